//! Sums over products, which need no product: O(mk + kn) in place of O(mkn).
//!
//! ```text
//! sum(a @ b)         col_sums(a) @ row_sums(b)       trace(a @ b)    sum(a * t(b))
//! col_sums(a @ b)    col_sums(a) @ b                 trace(t(x))     trace(x)
//! row_sums(a @ b)    a @ row_sums(b)                 sum(t(x))       sum(x)
//! ```
//!
//! A product that somebody else reads too is computed anyway, and its cells are summed.

use std::collections::HashSet;

use super::graph::{Graph, NodeId};
use crate::error::Result;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::labels::AxisLabels;
use crate::exec::operation::{Aggregate, Axis, Operation as Op};

/// Adds the sum of all cells, of each row or of each column; `single` are the nodes that only it reads.
pub(super) fn sum(
    graph: &mut Graph,
    axis: Option<Axis>,
    x: NodeId,
    single: &HashSet<NodeId>,
) -> Result<NodeId> {
    let node = graph.node(x);
    match (&node.operation, &node.inputs[..], axis) {
        (Op::Product, &[a, b], _) if single.contains(&x) => {
            let a = match axis {
                Some(Axis::Rows) => a,
                Some(Axis::Columns) | None => sum(graph, Some(Axis::Columns), a, single)?,
            };
            let b = match axis {
                Some(Axis::Columns) => b,
                Some(Axis::Rows) | None => sum(graph, Some(Axis::Rows), b, single)?,
            };
            graph.add(Op::Product, [a, b], None)
        }
        (Op::Transpose, &[x], None) => sum(graph, None, x, single),
        _ => graph.add(Op::Reduce { aggregate: Aggregate::Sum, axis }, [x], None),
    }
}

/// Whether the rows of `a` and the columns of `b`, which a trace does not compare, may be compared.
fn diagonal_is_labelled_alike(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let (rows, columns) = (&graph.node(a).labels[0], &graph.node(b).labels[1]);
    matches!((rows, columns), (AxisLabels::None, _) | (_, AxisLabels::None)) || rows == columns
}

/// Adds the trace of a matrix.
pub(super) fn trace(graph: &mut Graph, x: NodeId, single: &HashSet<NodeId>) -> Result<NodeId> {
    let node = graph.node(x);
    match (&node.operation, &node.inputs[..]) {
        (Op::Product, &[a, b])
            if single.contains(&x) && diagonal_is_labelled_alike(graph, a, b) =>
        {
            let b = super::rewrite::transpose(graph, b)?;
            let cells = graph.add(Op::Binary(BinaryFunction::Multiply), [a, b], None)?;
            graph.add(Op::Reduce { aggregate: Aggregate::Sum, axis: None }, [cells], None)
        }
        (Op::Transpose, &[x]) => trace(graph, x, single),
        _ => graph.add(Op::Trace, [x], None),
    }
}
