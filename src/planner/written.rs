//! An expression as text, for EXPLAIN and snapshots.

use std::fmt;

use super::graph::{Graph, Node, NodeId};
use crate::exec::kernels::elementwise::UnaryFunction;
use crate::exec::operation::Operation;

/// What a node computes, in the notation of the language; a node that is used twice is written twice.
pub(crate) struct Written<'a>(pub(crate) &'a Graph, pub(crate) NodeId);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written(graph, id) = *self;
        let node = graph.node(id);
        let inputs: Vec<_> = node.inputs.iter().map(|&input| Written(graph, input)).collect();
        write(graph, &node.operation, &inputs, f)
    }
}

/// What every node computes. Each text is made of those of its inputs, for to write a long expression anew for each of its
/// parts takes the square of its length.
pub(crate) fn texts(graph: &Graph) -> Vec<String> {
    let mut texts: Vec<String> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        texts.push(Over { graph, node, texts: &texts }.to_string());
    }
    texts
}

/// A node over what is written of its inputs.
struct Over<'a> {
    graph: &'a Graph,
    node: &'a Node,
    texts: &'a [String],
}

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<&str> =
            self.node.inputs.iter().map(|input| self.texts[input.index()].as_str()).collect();
        write(self.graph, &self.node.operation, &inputs, f)
    }
}

/// Writes an operation over these inputs.
fn write(
    graph: &Graph,
    operation: &Operation,
    inputs: &[impl fmt::Display],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let input = |at: usize| &inputs[at];
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
