//! Orders matrix products, where associativity pays.
//!
//! Dynamic programming over the intervals of a chain, O(n³) for n factors (Cormen et al.,
//! *Introduction to Algorithms*, §15.2), with stored cells in place of cells.
//!
//! ```text
//! a 10x1000, b 1000x10, c 10x1000:   (a·b)·c  0.4 Mflop      a·(b·c)  40 Mflop
//! ```
//!
//! The rules know every order of a chain as well, and what it has to do with its surroundings, but only as
//! far as there is room for: a long chain begins in the order that is found here.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::cost::CostModel;
use super::super::estimate::{Estimate, Estimator};
use super::super::graph::{Graph, NodeId};
use super::super::stored_cells;
use crate::exec::evaluate::DENSE_FROM;
use crate::exec::operation::Operation as Op;
use crate::matrix::counts::Counts;
use crate::matrix::{Element, Layout};

/// A factor of a chain.
struct Factor {
    id: NodeId,
    estimate: Estimate,
    /// Stored cells of its rows and columns, where it is sparse.
    counts: Option<Arc<Counts>>,
    /// What it is the transpose of.
    transposed: Option<NodeId>,
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

/// Puts every chain of products in its cheapest order. A product that somebody else reads too is a
/// factor, not a part of the chain: it is computed anyway.
pub(super) fn ordered(
    graph: &Graph,
    root: NodeId,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> (Graph, NodeId) {
    let mut estimator = Estimator::new(relation_rows, cost);
    estimator.extend(graph);
    let readers = graph.readers(root);
    let is_product = |id: NodeId| matches!(graph.node(id).operation, Op::Product);
    let is_inner = |id: NodeId| is_product(id) && readers.get(&id).copied() == Some(1);
    let mut new = graph.unlabelled();
    let mut moved: HashMap<NodeId, NodeId> = HashMap::new();
    let needed = graph.needed(root);
    for (id, node) in graph.nodes().filter(|(id, _)| needed.contains(id)) {
        let to = if is_product(id) {
            let factors = factors(graph, id, &is_inner);
            let links: Vec<Factor> = factors
                .iter()
                .map(|&id| {
                    let node = graph.node(id);
                    let is_transpose = matches!(node.operation, Op::Transpose);
                    let transposed = is_transpose.then(|| node.inputs[0]);
                    let estimate = estimator.estimates[id.index()];
                    let is_sparse = factors.len() > 2 && estimate.layout == Layout::Csr;
                    let counts = is_sparse.then(|| estimator.counts_of(graph, id));
                    Factor { id, estimate, counts, transposed }
                })
                .collect();
            built(&mut new, &products(&links, cost), &factors, &moved)
        } else {
            None
        };
        // What has no other order stays as it is.
        let to = to.unwrap_or_else(|| {
            new.adopt(node, node.inputs.iter().map(|input| moved[input]).collect())
        });
        new.stands_at(to, node.place);
        moved.insert(id, to);
    }
    (new, moved[&root])
}

/// The factors of the chain that ends in a product, from left to right.
fn factors(graph: &Graph, end: NodeId, is_inner: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
    let mut factors = Vec::new();
    let mut open = vec![end];
    while let Some(at) = open.pop() {
        if at == end || is_inner(at) {
            let node = graph.node(at);
            open.extend([node.inputs[1], node.inputs[0]]);
        } else {
            factors.push(at);
        }
    }
    factors
}

/// Builds the products of a tree over factors.
fn built(
    graph: &mut Graph,
    tree: &Tree,
    factors: &[NodeId],
    moved: &HashMap<NodeId, NodeId>,
) -> Option<NodeId> {
    match tree {
        Tree::Factor(at) => Some(moved[&factors[*at]]),
        Tree::Product(left, right) => {
            let left = built(graph, left, factors, moved)?;
            let right = built(graph, right, factors, moved)?;
            graph.add(Op::Product, [left, right], None).ok()
        }
    }
}

/// The cheapest order of a chain of at least one factor.
fn products(factors: &[Factor], cost: &CostModel) -> Tree {
    let n = factors.len();
    let single = |at: usize| {
        let Factor { estimate, counts, .. } = &factors[at];
        Interval { seconds: 0.0, density: estimate.density, counts: counts.clone(), split: at }
    };
    let mut best: Vec<Vec<Interval>> = (0..n).map(|at| vec![single(at); n]).collect();
    for length in 2..=n {
        for first in 0..=n - length {
            let last = first + length - 1;
            let inner = |split: usize| factors[split].estimate.columns;
            let (rows, columns) = (factors[first].estimate.rows, factors[last].estimate.columns);
            let own = |split: usize| {
                let (left, right) = (&best[first][split], &best[split + 1][last]);
                let cells = rows * columns;
                let (mut flops, bytes) = match (&left.counts, &right.counts) {
                    (Some(left), Some(right)) => {
                        let pairs = stored_cells::pairs(left, right);
                        (2.0 * pairs, 12.0 * pairs.min(cells) + 8.0 * rows)
                    }
                    _ => (2.0 * cells * inner(split) * left.density * right.density, 8.0 * cells),
                };
                if length == 2 && factors[first].transposed == Some(factors[last].id) {
                    // Of t(x) @ x half is enough.
                    flops /= 2.0;
                }
                let is_sparse = left.density.min(right.density) <= DENSE_FROM;
                if is_sparse {
                    cost.sparse_cost(flops, bytes).seconds
                } else {
                    let flops = CostModel::packed(flops, rows, columns);
                    cost.cost(&Op::Product, Element::Float64, flops, bytes).seconds
                }
            };
            // Of equals the leftmost, which is the order of evaluation as written, reading from the left.
            let (mut split, mut least) = (first, f64::INFINITY);
            for candidate in (first..last).rev() {
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
            best[first][last] = Interval { seconds: least, density, counts, split };
        }
    }
    tree(&best, 0, n - 1)
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
    use crate::matrix::Layout;

    /// The order chosen for dense factors of these sizes, as text.
    fn ordered(sizes: &[f64]) -> String {
        let factors: Vec<Factor> = sizes
            .windows(2)
            .map(|size| Factor {
                id: NodeId::default(),
                estimate: Estimate {
                    rows: size[0],
                    columns: size[1],
                    density: 1.0,
                    layout: Layout::Dense,
                    bytes: 0.0,
                    flops: 0.0,
                    seconds: 0.0,
                    bound: None,
                    product: None,
                    other_layout: None,
                },
                counts: None,
                transposed: None,
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
