//! Orders matrix products, where associativity pays.
//!
//! Dynamic programming over the intervals of a chain, O(n³) for n factors (Cormen et al.,
//! *Introduction to Algorithms*, §15.2), with stored cells in place of cells. Beyond [`EXACT_MAX`] factors an
//! interval is cut where those one shorter are, between these places, or at its ends.
//!
//! ```text
//! a 10x1000, b 1000x10, c 10x1000:   (a·b)·c  0.4 Mflop      a·(b·c)  40 Mflop
//! ```
//!
//! The rules know every order of a chain as well, and what it has to do with its surroundings, but only as
//! far as there is room for: a long chain begins in the order that is found here.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::cost::CostModel;
use super::super::estimate::{Estimate, Estimator};
use super::super::graph::{Dim, Graph, NodeId};
use super::super::stored_cells;
use super::chain::{Chain, Link, Reader, Scale};
use crate::error::Result;
use crate::exec::evaluate::DENSE_FROM;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Aggregate, Axis, Operation as Op};
use crate::matrix::counts::Counts;
use crate::matrix::{Element, Layout};

/// Factors of which every order is looked at.
const EXACT_MAX: usize = 48;

/// A factor of a chain, as products see it.
struct Factor {
    rows: f64,
    columns: f64,
    density: f64,
    /// Stored cells of its rows and columns, where it is sparse.
    counts: Option<Arc<Counts>>,
    /// The node that it is, or is the transpose of; none of ones.
    of: Option<(NodeId, bool)>,
}

impl Factor {
    fn is_transpose_of(&self, other: &Factor) -> bool {
        matches!((self.of, other.of), (Some((of, turned)), Some(other)) if other == (of, !turned))
    }
}

/// An order of products.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    /// The factor at this place of the chain.
    Factor(usize),
    Product(Box<Tree>, Box<Tree>),
}

/// What is known about the product of an interval.
#[derive(Clone)]
struct Interval {
    seconds: f64,
    density: f64,
    /// Where all its factors are sparse.
    counts: Option<Arc<Counts>>,
    /// The last factor of the left part.
    split: usize,
}

/// Puts every chain of products in its cheapest order.
pub(super) fn ordered(
    graph: &Graph,
    root: NodeId,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> (Graph, NodeId) {
    let (chains, needed) = chains(graph, root);
    let mut estimator = Estimator::new(relation_rows, cost);
    estimator.extend(graph);
    let mut new = graph.unlabelled();
    let mut moved: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    for (id, node) in graph.nodes().filter(|(id, _)| needed.contains(id)) {
        let to = match chains.get(&id) {
            Some(chain) => {
                let factors = factors(graph, &mut estimator, chain);
                let order = products(&factors, cost);
                put_together(&mut new, &moved, chain, &factors, &order)
                    .expect("factors fit in any order")
            }
            None => new.adopt(node, node.inputs.iter().map(|input| moved[input]).collect()),
        };
        new.stands_at(to, node.place);
        moved.insert(id, to);
    }
    (new, moved[&root])
}

/// The chains that end in nodes, and all nodes that are needed once these are put together from their factors.
fn chains(graph: &Graph, root: NodeId) -> (FxHashMap<NodeId, Chain>, FxHashSet<NodeId>) {
    let reader = Reader::new(graph, root);
    let (mut chains, mut needed) = (FxHashMap::default(), FxHashSet::default());
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if !needed.insert(id) {
            continue;
        }
        match reader.chain(id) {
            Some(chain) => {
                open.extend(chain.nodes());
                chains.insert(id, chain);
            }
            None => open.extend(&graph.node(id).inputs),
        }
    }
    (chains, needed)
}

fn factors(graph: &Graph, estimator: &mut Estimator<'_>, chain: &Chain) -> Vec<Factor> {
    let mut factor = |link: &Link| match *link {
        Link::Ones(_) => Factor { rows: 1.0, columns: 1.0, density: 1.0, counts: None, of: None },
        Link::Node { id, is_transposed } => {
            let Estimate { rows, columns, density, layout, .. } = estimator.estimates[id.index()];
            let counts = (layout == Layout::Csr).then(|| estimator.counts_of(graph, id));
            let of = Some((id, is_transposed));
            if !is_transposed {
                return Factor { rows, columns, density, counts, of };
            }
            let counts = counts.map(|counts| Arc::new(stored_cells::transposed(&counts)));
            Factor { rows: columns, columns: rows, density, counts, of }
        }
    };
    let mut factors: Vec<Factor> = chain.links.iter().map(&mut factor).collect();
    // There are as many ones as what they stand beside is long.
    if let [first @ Factor { of: None, .. }, second, ..] = &mut factors[..] {
        first.columns = second.rows;
    }
    if let [.., second, last @ Factor { of: None, .. }] = &mut factors[..] {
        last.rows = second.columns;
    }
    factors
}

/// The products of a chain in this order. Its scales go where they touch the fewest cells.
fn put_together(
    graph: &mut Graph,
    moved: &FxHashMap<NodeId, NodeId>,
    chain: &Chain,
    factors: &[Factor],
    order: &Tree,
) -> Result<NodeId> {
    let cells = |at: usize| match factors[at].of {
        Some(_) => factors[at].rows * factors[at].columns * factors[at].density,
        None => f64::INFINITY,
    };
    let result = factors[0].rows * factors[factors.len() - 1].columns;
    let smallest = (0..factors.len()).min_by(|&a, &b| cells(a).total_cmp(&cells(b)));
    let place = smallest.filter(|&at| cells(at) < result);
    let mut pieces = Vec::with_capacity(factors.len());
    for (at, link) in chain.links.iter().enumerate() {
        pieces.push(match *link {
            Link::Ones(aggregate) => Piece::Ones(aggregate),
            Link::Node { id, is_transposed } => {
                let mut to = moved[&id];
                if is_transposed {
                    to = graph.add(Op::Transpose, [to], None)?;
                }
                if place == Some(at) {
                    to = scaled(graph, moved, to, &chain.scales)?;
                }
                Piece::Node(to)
            }
        });
    }
    let Piece::Node(mut product) = multiplied(graph, &pieces, order)? else {
        unreachable!("there are two factors that are no ones");
    };
    if place.is_none() {
        product = scaled(graph, moved, product, &chain.scales)?;
    }
    if chain.is_turned { graph.add(Op::Transpose, [product], None) } else { Ok(product) }
}

/// A factor, or some of them multiplied.
#[derive(Clone, Copy)]
enum Piece {
    Node(NodeId),
    Ones(Aggregate),
}

/// The product of a tree.
fn multiplied(graph: &mut Graph, pieces: &[Piece], tree: &Tree) -> Result<Piece> {
    let (left, right) = match tree {
        Tree::Factor(at) => return Ok(pieces[*at]),
        Tree::Product(left, right) => {
            (multiplied(graph, pieces, left)?, multiplied(graph, pieces, right)?)
        }
    };
    let product = match (left, right) {
        (Piece::Node(left), Piece::Node(right)) => graph.add(Op::Product, [left, right], None)?,
        (Piece::Ones(aggregate), Piece::Node(of)) => {
            let axis = (graph.node(of).columns != Dim::ONE).then_some(Axis::Columns);
            graph.add(Op::Reduce { aggregate, axis }, [of], None)?
        }
        (Piece::Node(of), Piece::Ones(aggregate)) => {
            let axis = (graph.node(of).rows != Dim::ONE).then_some(Axis::Rows);
            graph.add(Op::Reduce { aggregate, axis }, [of], None)?
        }
        (Piece::Ones(_), Piece::Ones(_)) => return Ok(left),
    };
    Ok(Piece::Node(product))
}

fn scaled(
    graph: &mut Graph,
    moved: &FxHashMap<NodeId, NodeId>,
    of: NodeId,
    scales: &[Scale],
) -> Result<NodeId> {
    scales.iter().try_fold(of, |of, scale| match scale {
        Scale::By(number) => {
            graph.add(Op::Binary(BinaryFunction::Multiply), [moved[number], of], None)
        }
        Scale::Over(number) => {
            graph.add(Op::Binary(BinaryFunction::Divide), [of, moved[number]], None)
        }
        Scale::Negated => graph.add(Op::Unary(UnaryFunction::Negate), [of], None),
    })
}

/// The cheapest order of a chain of at least one factor.
fn products(factors: &[Factor], cost: &CostModel) -> Tree {
    let n = factors.len();
    let single = |at: usize| {
        let Factor { density, counts, .. } = &factors[at];
        Interval { seconds: 0.0, density: *density, counts: counts.clone(), split: at }
    };
    let mut best: Vec<Vec<Interval>> = (0..n).map(|at| vec![single(at); n]).collect();
    for length in 2..=n {
        for first in 0..=n - length {
            let last = first + length - 1;
            let inner = |split: usize| factors[split].columns;
            let (rows, columns) = (factors[first].rows, factors[last].columns);
            let own = |split: usize| {
                let (left, right) = (&best[first][split], &best[split + 1][last]);
                let cells = rows * columns;
                if let (Some(left), Some(right)) = (&left.counts, &right.counts) {
                    let pairs = stored_cells::pairs(left, right);
                    let stored = pairs.min(cells);
                    let bytes = 12.0 * stored + 8.0 * rows;
                    return cost.pairs_cost(2.0 * pairs, stored, bytes).seconds;
                }
                let flops = 2.0 * cells * inner(split) * left.density * right.density;
                let bytes = 8.0 * cells;
                if left.density.min(right.density) <= DENSE_FROM {
                    cost.sparse_cost(flops, bytes).seconds
                } else {
                    let is_gram = length == 2 && factors[first].is_transpose_of(&factors[last]);
                    // Of t(x) @ x half is enough.
                    let flops = if is_gram { flops / 2.0 } else { flops };
                    let flops = CostModel::packed(flops, rows, columns);
                    cost.cost(&Op::Product, Element::Float64, flops, bytes).seconds
                }
            };
            // Of equals the leftmost, which is the order of evaluation as written, reading from the left.
            let (mut split, mut least) = (first, f64::INFINITY);
            for candidate in cuts(&best, first, last) {
                let parts = best[first][candidate].seconds + best[candidate + 1][last].seconds;
                // What the product itself takes comes on top.
                if parts < least {
                    let seconds = parts + own(candidate);
                    if seconds < least {
                        (split, least) = (candidate, seconds);
                    }
                }
            }
            let (left, right) = (&best[first][split], &best[split + 1][last]);
            let counts = match (&left.counts, &right.counts) {
                (Some(left), Some(right)) => {
                    let pairs = stored_cells::pairs(left, right);
                    Some(Arc::new(stored_cells::product(left, right, pairs)))
                }
                _ => None,
            };
            let density = match &counts {
                Some(counts) => (counts.stored() / (rows * columns).max(1.0)).min(1.0),
                None => 1.0 - (1.0 - left.density * right.density).powf(inner(split)),
            };
            // What is stored densely is as full in every row.
            let counts = counts.filter(|_| density <= DENSE_FROM);
            best[first][last] = Interval { seconds: least, density, counts, split };
        }
    }
    tree(&best, 0, n - 1)
}

/// Where an interval may be cut, from the right: the last places of left parts.
fn cuts(best: &[Vec<Interval>], first: usize, last: usize) -> impl Iterator<Item = usize> {
    let (mut from, mut to) = (first, last - 1);
    if best.len() > EXACT_MAX && last - first > 1 {
        let (shorter, later) = (best[first][last - 1].split, best[first + 1][last].split);
        (from, to) = (shorter.min(later), shorter.max(later));
    }
    let right = (to < last - 1).then_some(last - 1);
    let left = (from > first).then_some(first);
    right.into_iter().chain((from..=to).rev()).chain(left)
}

fn tree(best: &[Vec<Interval>], first: usize, last: usize) -> Tree {
    if first == last {
        return Tree::Factor(first);
    }
    let split = best[first][last].split;
    Tree::Product(Box::new(tree(best, first, split)), Box::new(tree(best, split + 1, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order chosen for dense factors of these sizes, as text.
    fn ordered(sizes: &[f64]) -> String {
        let factors: Vec<Factor> = sizes
            .windows(2)
            .map(|size| Factor {
                rows: size[0],
                columns: size[1],
                density: 1.0,
                counts: None,
                of: None,
            })
            .collect();
        fn text(tree: &Tree) -> String {
            match tree {
                Tree::Factor(at) => char::from(b'a' + *at as u8).to_string(),
                Tree::Product(left, right) => format!("({}{})", text(left), text(right)),
            }
        }
        text(&products(&factors, &CostModel::default()))
    }

    #[test]
    fn the_small_intermediate_comes_first() {
        assert_eq!(ordered(&[1000.0, 100_000.0, 1000.0, 100_000.0]), "((ab)c)");
        assert_eq!(ordered(&[2000.0, 2000.0, 2000.0, 1.0]), "(a(bc))");
        assert_eq!(ordered(&[1.0, 2000.0, 2000.0, 2000.0]), "((ab)c)");
        assert_eq!(ordered(&[500.0, 500.0]), "a");
    }

    /// Cormen et al., §15.2: the optimal parenthesization of their example, scaled so that flops decide.
    #[test]
    fn the_textbook_chain_is_ordered_as_in_the_textbook() {
        let sizes = [30.0, 35.0, 15.0, 5.0, 10.0, 20.0, 25.0].map(|size| size * 100.0);
        assert_eq!(ordered(&sizes), "((a(bc))((de)f))");
    }
}
