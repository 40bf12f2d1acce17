//! Chains: products of products, seen through what moves in and out of them.
//!
//! ```text
//! sum(2 * t(a @ b) @ c)    is    2 * (1ᵀ @ t(b) @ t(a) @ c @ 1)
//! ```
//!
//! A sum is a product with ones, at one end or at both, and a mean one with shares; a transpose turns the chain
//! around, and a scale can be applied anywhere. So whatever stands between two products, all their factors are put
//! in order together. A product that somebody else reads too is a factor: it is computed anyway.

use rustc_hash::FxHashMap;

use super::super::graph::{Dim, Graph, Node, NodeId};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Aggregate, Axis, Operation as Op};

/// Factors from left to right, and scales.
pub(super) struct Chain {
    pub(super) links: Vec<Link>,
    pub(super) scales: Vec<Scale>,
    /// Whether what is written is the transpose of the product of these.
    pub(super) is_turned: bool,
}

/// A factor of a chain.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Link {
    Node {
        id: NodeId,
        is_transposed: bool,
    },
    /// At the left end a row, at the right end a column, that a sum or a mean is a product with.
    Ones(Aggregate),
}

/// What all cells of a product are multiplied with.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    By(NodeId),
    Over(NodeId),
    Negated,
}

/// A product, or something about one, step by step.
enum Step {
    Product(NodeId, NodeId),
    Transpose(NodeId),
    Scaled(NodeId, Scale),
    Reduced(NodeId, Aggregate, Option<Axis>),
}

/// Reads the chains of a graph.
pub(super) struct Reader<'a> {
    graph: &'a Graph,
    /// How often each node is read.
    readers: FxHashMap<NodeId, usize>,
}

/// Which ends of the whole chain a part of it has.
#[derive(Clone, Copy)]
struct Ends {
    left: bool,
    right: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(graph: &'a Graph, root: NodeId) -> Self {
        Self { graph, readers: graph.readers(root) }
    }

    /// The chain of at least three factors, of one type, that ends in a node.
    pub(super) fn chain(&self, end: NodeId) -> Option<Chain> {
        let mut chain = Chain { links: Vec::new(), scales: Vec::new(), is_turned: false };
        let element = self.graph.node(end).element;
        if !self.is_about_product(end) {
            return None;
        }
        self.read(self.step(end)?, false, Ends { left: true, right: true }, &mut chain);
        let is_alike = |id: NodeId| {
            let node = self.graph.node(id);
            node.element == element || matches!(node.operation, Op::Constant(_))
        };
        let links_are_alike = chain.links.iter().all(|link| match link {
            Link::Node { id, .. } => is_alike(*id),
            Link::Ones(_) => true,
        });
        let scales_are_alike = chain.scales.iter().all(|scale| match scale {
            Scale::By(number) | Scale::Over(number) => is_alike(*number),
            Scale::Negated => true,
        });
        if chain.links.len() < 3 || !links_are_alike || !scales_are_alike {
            return None;
        }
        chain.turn_if_less(self.graph);
        Some(chain)
    }

    /// What a node is, as a step of a chain.
    fn step(&self, id: NodeId) -> Option<Step> {
        let node = self.graph.node(id);
        let is_number = |id: NodeId| is_one(self.graph.node(id));
        Some(match (&node.operation, &node.inputs[..]) {
            (Op::Product, &[left, right]) => Step::Product(left, right),
            (Op::Transpose, &[of]) => Step::Transpose(of),
            (Op::Unary(UnaryFunction::Negate), &[of]) => Step::Scaled(of, Scale::Negated),
            (Op::Binary(BinaryFunction::Multiply), &[number, of]) if is_number(number) => {
                Step::Scaled(of, Scale::By(number))
            }
            (Op::Binary(BinaryFunction::Multiply), &[of, number]) if is_number(number) => {
                Step::Scaled(of, Scale::By(number))
            }
            (Op::Binary(BinaryFunction::Divide), &[of, number]) if is_number(number) => {
                Step::Scaled(of, Scale::Over(number))
            }
            (Op::Reduce { aggregate: Aggregate::Sum, axis }, &[of]) => {
                Step::Reduced(of, Aggregate::Sum, *axis)
            }
            // The mean of no cells is no number, while a product along no cells is 0.
            (Op::Reduce { aggregate: Aggregate::Mean, axis }, &[of])
                if has_cells(self.graph.node(of)) =>
            {
                Step::Reduced(of, Aggregate::Mean, *axis)
            }
            _ => return None,
        })
    }

    /// Whether there is a product behind what may be said about one.
    fn is_about_product(&self, id: NodeId) -> bool {
        match self.step(id) {
            Some(Step::Product(..)) => true,
            Some(Step::Transpose(of) | Step::Scaled(of, _) | Step::Reduced(of, ..)) => {
                self.is_inner(of)
            }
            None => false,
        }
    }

    /// Whether a node belongs to the chain of whoever reads it.
    fn is_inner(&self, id: NodeId) -> bool {
        self.readers.get(&id).copied() == Some(1) && self.is_about_product(id)
    }

    fn read(&self, step: Step, is_transposed: bool, ends: Ends, chain: &mut Chain) {
        match step {
            Step::Product(left, right) => {
                let (first, second) = if is_transposed { (right, left) } else { (left, right) };
                self.read_part(first, is_transposed, Ends { right: false, ..ends }, chain);
                self.read_part(second, is_transposed, Ends { left: false, ..ends }, chain);
            }
            Step::Transpose(of) => self.read_part(of, !is_transposed, ends, chain),
            Step::Scaled(of, scale) => {
                self.read_part(of, is_transposed, ends, chain);
                chain.scales.push(scale);
            }
            Step::Reduced(of, aggregate, axis) => {
                let [left, right] = ends_of(axis, is_transposed);
                if left {
                    chain.links.push(Link::Ones(aggregate));
                }
                let ends = Ends { left: ends.left && !left, right: ends.right && !right };
                self.read_part(of, is_transposed, ends, chain);
                if right {
                    chain.links.push(Link::Ones(aggregate));
                }
            }
        }
    }

    /// Reads a part further if that is what somebody else does not need as it is.
    fn read_part(&self, id: NodeId, is_transposed: bool, ends: Ends, chain: &mut Chain) {
        let step = self.step(id).filter(|step| match step {
            Step::Transpose(_) => true,
            Step::Reduced(_, _, axis) => {
                let [left, right] = ends_of(*axis, is_transposed);
                self.is_inner(id) && (!left || ends.left) && (!right || ends.right)
            }
            _ => self.is_inner(id),
        });
        match step {
            Some(step) => self.read(step, is_transposed, ends, chain),
            None => chain.links.push(Link::Node { id, is_transposed }),
        }
    }
}

/// At which ends of a chain a sum along these cells has its ones.
fn ends_of(axis: Option<Axis>, is_transposed: bool) -> [bool; 2] {
    match axis {
        None => [true, true],
        Some(axis) => {
            let is_right = (axis == Axis::Rows) != is_transposed;
            [!is_right, is_right]
        }
    }
}

fn is_one(node: &Node) -> bool {
    (node.rows, node.columns) == (Dim::ONE, Dim::ONE)
}

fn has_cells(node: &Node) -> bool {
    [node.rows, node.columns].iter().all(|size| size.known().is_some_and(|size| size > 0))
}

impl Chain {
    /// What the chain is put together from.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let factors = self.links.iter().filter_map(|link| match link {
            Link::Node { id, .. } => Some(*id),
            Link::Ones(_) => None,
        });
        let numbers = self.scales.iter().filter_map(|scale| match scale {
            Scale::By(number) | Scale::Over(number) => Some(*number),
            Scale::Negated => None,
        });
        factors.chain(numbers)
    }

    /// Turns the chain around where fewer cells are transposed that way.
    fn turn_if_less(&mut self, graph: &Graph) {
        let size = |dim: Dim| dim.known().map_or(f64::INFINITY, |size| size as f64);
        let cells = |id: NodeId| size(graph.node(id).rows) * size(graph.node(id).columns);
        let cells_of = |transposed: bool| -> f64 {
            let of = |link: &Link| match link {
                Link::Node { id, is_transposed } if *is_transposed == transposed => cells(*id),
                _ => 0.0,
            };
            self.links.iter().map(of).sum()
        };
        let (rows, columns) =
            (side(graph, self.links.first(), true), side(graph, self.links.last(), false));
        if cells_of(false) + size(rows) * size(columns) < cells_of(true) {
            self.links.reverse();
            for link in &mut self.links {
                if let Link::Node { is_transposed, .. } = link {
                    *is_transposed = !*is_transposed;
                }
            }
            self.is_turned = true;
        }
    }
}

/// The rows of the first link, or the columns of the last one.
fn side(graph: &Graph, link: Option<&Link>, is_first: bool) -> Dim {
    match link {
        Some(&Link::Node { id, is_transposed }) => {
            let node = graph.node(id);
            if is_first != is_transposed { node.rows } else { node.columns }
        }
        _ => Dim::ONE,
    }
}
