//! Algebra: a graph becomes one that computes the same for less.
//!
//! ```text
//! t(t(x))        x                       t(t(a) @ b)    t(b) @ a
//! inv(a) @ b     solve(a, b)             b @ inv(a)     t(solve(t(a), t(b)))
//! a @ b @ c      in the cheapest order   t(x) @ x       gram(x): half of it computed
//! t(x) @ y       cross(x, y): no transpose is made
//! sum(a @ b)     col_sums(a) @ row_sums(b), and its like (`sums`)
//! ```
//!
//! Each pass rebuilds the graph from its inputs to its root, so equal nodes that a rule brings together
//! become one, and what is not needed any more is gone. Results may differ in the last bits, as any
//! other order of additions does; `solve` in place of `inv` is the more accurate of the two.

use std::collections::{HashMap, HashSet};

use super::cost::CostModel;
use super::estimate::{Estimate, estimate};
use super::graph::{Graph, NodeId};
use super::{order, sums};
use crate::error::Result;
use crate::exec::operation::{Aggregate, Operation as Op};
use crate::matrix::Layout;

/// The passes, in an order that matters: products are ordered while inverses are still factors, so that
/// `inv(t(x) @ x) @ t(x) @ y` solves for one column; transposed products are recognized in the order
/// that was chosen.
pub(crate) fn rewrite(
    graph: Graph,
    root: NodeId,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> Result<(Graph, NodeId)> {
    let (graph, root) = rebuilt(&graph, root, &mut untransposed)?;
    let (graph, root) = summed(&graph, root)?;
    let estimates = estimate(&graph, relation_rows, cost);
    let (graph, root) = reordered(&graph, root, &estimates, cost)?;
    let (graph, root) = rebuilt(&graph, root, &mut solved)?;
    let estimates = estimate(&graph, relation_rows, cost);
    transposed_products(&graph, root, &estimates)
}

/// A graph with every needed node passed through `change`, which sees the inputs it now has.
fn rebuilt(
    graph: &Graph,
    root: NodeId,
    change: &mut dyn FnMut(&mut Graph, &Op, Vec<NodeId>, NodeId) -> Result<NodeId>,
) -> Result<(Graph, NodeId)> {
    let mut new = graph.emptied();
    let needed = graph.needed(root);
    let mut moved: HashMap<NodeId, NodeId> = HashMap::new();
    for (id, node) in graph.nodes() {
        if !needed.contains(&id) {
            continue;
        }
        let inputs = node.inputs.iter().map(|input| moved[input]).collect();
        let place = node.place;
        let to = change(&mut new, &node.operation, inputs, id).map_err(|error| error.at(place))?;
        new.stands_at(to, place);
        moved.insert(id, to);
    }
    Ok((new, moved[&root]))
}

fn untransposed(
    graph: &mut Graph,
    operation: &Op,
    inputs: Vec<NodeId>,
    _: NodeId,
) -> Result<NodeId> {
    match operation {
        Op::Transpose => transpose(graph, inputs[0]),
        _ => graph.add(operation.clone(), inputs, None),
    }
}

/// Sums over products without the products.
fn summed(graph: &Graph, root: NodeId) -> Result<(Graph, NodeId)> {
    let readers = graph.readers(root);
    let mut single: HashSet<NodeId> = HashSet::new();
    rebuilt(graph, root, &mut |new, operation, inputs, id| {
        let to = match operation {
            Op::Reduce { aggregate: Aggregate::Sum, axis } => {
                sums::sum(new, *axis, inputs[0], &single)
            }
            Op::Trace => sums::trace(new, inputs[0], &single),
            _ => new.add(operation.clone(), inputs, None),
        }?;
        if readers.get(&id).copied() == Some(1) {
            single.insert(to);
        }
        Ok(to)
    })
}

/// A product with an inverse as the solution of a system.
fn solved(graph: &mut Graph, operation: &Op, inputs: Vec<NodeId>, _: NodeId) -> Result<NodeId> {
    let inverse = |graph: &Graph, id: NodeId| match graph.node(id).operation {
        Op::Inverse => Some(graph.node(id).inputs[0]),
        _ => None,
    };
    if !matches!(operation, Op::Product) {
        return graph.add(operation.clone(), inputs, None);
    }
    let (left, right) = (inputs[0], inputs[1]);
    if let Some(a) = inverse(graph, left) {
        return graph.add(Op::Solve, [a, right], None);
    }
    if let Some(a) = inverse(graph, right) {
        let (a, b) = (transpose(graph, a)?, transpose(graph, left)?);
        let solution = graph.add(Op::Solve, [a, b], None)?;
        return transpose(graph, solution);
    }
    graph.add(Op::Product, inputs, None)
}

/// The transpose of a node, without one of its own where there is one inside.
pub(super) fn transpose(graph: &mut Graph, id: NodeId) -> Result<NodeId> {
    let node = graph.node(id).clone();
    let inner = |graph: &Graph, at: usize| {
        let input = graph.node(node.inputs[at]);
        matches!(input.operation, Op::Transpose).then(|| input.inputs[0])
    };
    match node.operation {
        Op::Transpose => Ok(node.inputs[0]),
        Op::Constant(_) | Op::Eye(_) => Ok(id),
        Op::Product => match (inner(graph, 0), inner(graph, 1)) {
            (None, None) => graph.add(Op::Transpose, [id], None),
            (left, right) => {
                let mut turned = |inner: Option<NodeId>, id: NodeId| match inner {
                    Some(inner) => Ok(inner),
                    None => transpose(graph, id),
                };
                let left = turned(left, node.inputs[0])?;
                let right = turned(right, node.inputs[1])?;
                graph.add(Op::Product, [right, left], None)
            }
        },
        _ => graph.add(Op::Transpose, [id], None),
    }
}

/// Puts every chain of products in its cheapest order. A product that somebody else reads too is a
/// factor, not a part of the chain: it is computed anyway.
fn reordered(
    graph: &Graph,
    root: NodeId,
    estimates: &[Estimate],
    cost: &CostModel,
) -> Result<(Graph, NodeId)> {
    let readers = graph.readers(root);
    let is_inner = |id: NodeId| {
        matches!(graph.node(id).operation, Op::Product) && readers.get(&id).copied() == Some(1)
    };
    let mut moved: HashMap<NodeId, NodeId> = HashMap::new();
    rebuilt(graph, root, &mut |new, operation, inputs, id| {
        let to = if matches!(operation, Op::Product) {
            let mut factors = Vec::new();
            let mut open = vec![id];
            while let Some(at) = open.pop() {
                if at == id || is_inner(at) {
                    let node = graph.node(at);
                    open.extend([node.inputs[1], node.inputs[0]]);
                } else {
                    factors.push(at);
                }
            }
            let links: Vec<order::Factor> = factors
                .iter()
                .map(|factor| {
                    let estimate = estimates[factor.index()];
                    let transposed = match graph.node(*factor).operation {
                        Op::Transpose => Some(graph.node(*factor).inputs[0]),
                        _ => None,
                    };
                    order::Factor { id: *factor, estimate, transposed }
                })
                .collect();
            product(new, &order::products(&links, cost), &factors, &moved)?
        } else {
            new.add(operation.clone(), inputs, None)?
        };
        moved.insert(id, to);
        Ok(to)
    })
}

/// Builds the products of a tree over factors.
fn product(
    graph: &mut Graph,
    tree: &order::Tree,
    factors: &[NodeId],
    moved: &HashMap<NodeId, NodeId>,
) -> Result<NodeId> {
    match tree {
        order::Tree::Factor(at) => Ok(moved[&factors[*at]]),
        order::Tree::Product(left, right) => {
            let left = product(graph, left, factors, moved)?;
            let right = product(graph, right, factors, moved)?;
            graph.add(Op::Product, [left, right], None)
        }
    }
}

/// `t(x) @ x` and `t(x) @ y` as operations that need no transpose.
///
/// In a round of an iteration a sparse `x` from outside is better transposed once: its rows are then
/// read in order, round after round.
fn transposed_products(
    graph: &Graph,
    root: NodeId,
    estimates: &[Estimate],
) -> Result<(Graph, NodeId)> {
    let mut varies = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        let itself = matches!(node.operation, Op::Variable(_) | Op::Prior(_));
        varies[id.index()] = itself || node.inputs.iter().any(|input| varies[input.index()]);
    }
    let result = rebuilt(graph, root, &mut |new, operation, inputs, id| {
        if !matches!(operation, Op::Product) {
            return new.add(operation.clone(), inputs, None);
        }
        let [left, right] = graph.node(id).inputs[..] else { unreachable!("a product of two") };
        let once = estimates[left.index()].layout == Layout::Csr
            && varies[right.index()]
            && !varies[left.index()];
        match new.node(inputs[0]).operation {
            Op::Transpose if !once => {
                let x = new.node(inputs[0]).inputs[0];
                if x == inputs[1] {
                    new.add(Op::Gram, [x], None)
                } else {
                    new.add(Op::Cross, [x, inputs[1]], None)
                }
            }
            _ => new.add(Op::Product, inputs, None),
        }
    })?;
    // The transposes that nobody reads any more are still there.
    rebuilt(&result.0, result.1, &mut |new, operation, inputs, _| {
        new.add(operation.clone(), inputs, None)
    })
}
