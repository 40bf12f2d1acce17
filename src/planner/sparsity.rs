//! Which results are sparse by what they are made of: a matrix of entries, and what keeps zeros zero.
//!
//! Whether they are stored so too, estimates decide, and no result may show it: `ENTRIES` lists the
//! non-zeros of a result that is sparse here, and all cells of any other.

use super::graph::{Graph, Node, NodeId};
use crate::exec::intake::Form;
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::operation::Operation as Op;
use crate::matrix::Layout;

/// Whether the value of `root` is sparse.
pub(crate) fn is_sparse(graph: &Graph, root: NodeId) -> bool {
    let mut sparse: Vec<bool> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        sparse.push(keeps_sparse(graph, node, |input| sparse[input.index()]));
    }
    sparse[root.index()]
}

/// Whether the kernels have a sparse result for an operation where these inputs are sparse.
pub(crate) fn keeps_sparse(graph: &Graph, node: &Node, sparse: impl Fn(NodeId) -> bool) -> bool {
    let any = || node.inputs.iter().any(|&input| sparse(input));
    let all = || node.inputs.iter().all(|&input| sparse(input));
    match &node.operation {
        Op::Stored(stored) => stored.matrix.is_sparse(),
        Op::Relation(index) => {
            matches!(graph.relations[*index].intake.form, Form::Entries { .. } | Form::Graph)
        }
        Op::Eye(_) | Op::Store(Layout::Csr) => true,
        Op::Diagonal => node.rows == node.columns,
        Op::Sampled | Op::SampledCells(_) => sparse(node.inputs[0]),
        Op::Binary(function) => {
            // Zeros that a row, a column or a scalar is stretched to are as many as any others.
            let is_whole = |input: NodeId| {
                let operand = graph.node(input);
                sparse(input) && (operand.rows, operand.columns) == (node.rows, node.columns)
            };
            let (left, right) = (node.inputs[0], node.inputs[1]);
            match function {
                BinaryFunction::Multiply | BinaryFunction::And => is_whole(left) || is_whole(right),
                BinaryFunction::Divide | BinaryFunction::Power => is_whole(left),
                function => match (graph.as_constant(left), graph.as_constant(right)) {
                    (_, Some(number)) => is_whole(left) && function.apply(0.0, number) == 0.0,
                    (Some(number), _) => is_whole(right) && function.apply(number, 0.0) == 0.0,
                    _ => function.zero_preserving() && is_whole(left) && is_whole(right),
                },
            }
        }
        Op::Unary(function) => function.zero_preserving() && any(),
        Op::Transpose | Op::Slice { .. } | Op::Align(_) | Op::Cast(_) | Op::Normalize { .. } => {
            any()
        }
        product if product.is_product() => all(),
        Op::Kronecker | Op::Stack(_) => all(),
        _ => false,
    }
}
