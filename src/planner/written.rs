//! An expression as text, for EXPLAIN and snapshots.

use std::fmt;

use super::graph::{Graph, NodeId};
use crate::exec::kernels::elementwise::UnaryFunction;
use crate::exec::operation::Operation;

/// What a node computes, in the notation of the language; a node that is used twice is written twice.
pub(crate) struct Written<'a>(pub(crate) &'a Graph, pub(crate) NodeId);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written(graph, id) = *self;
        let node = graph.node(id);
        write(graph, &node.operation, &node.inputs, f)
    }
}

/// Writes an operation over these inputs.
fn write(
    graph: &Graph,
    operation: &Operation,
    inputs: &[NodeId],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let input = |at: usize| Written(graph, inputs[at]);
    match operation {
        Operation::Relation(index) => f.write_str(&graph.relations[*index].name),
        Operation::Unary(UnaryFunction::Negate) => write!(f, "-{}", input(0)),
        Operation::Binary(function) if !function.name().starts_with(char::is_alphabetic) => {
            write!(f, "({} {} {})", input(0), function.name(), input(1))
        }
        Operation::Product => write!(f, "({} @ {})", input(0), input(1)),
        Operation::Sampled => {
            write!(f, "sampled({} * ({} @ t({})))", input(0), input(1), input(2))
        }
        Operation::SampledCells(function) => {
            write!(f, "sampled({} * ", input(0))?;
            write(graph, &(*function).into(), &inputs[1..], f)?;
            f.write_str(")")
        }
        Operation::Part(part) => write!(f, "{}.{}", input(0), part.name()),
        operation if inputs.is_empty() => f.write_str(&operation.to_string()),
        operation => {
            write!(f, "{operation}(")?;
            for at in 0..inputs.len() {
                write!(f, "{}{}", if at > 0 { ", " } else { "" }, input(at))?;
            }
            f.write_str(")")
        }
    }
}
