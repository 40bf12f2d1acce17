//! Elementwise chains become one loop: what a pass computes from each block, and what it never stores.
//!
//! A node joins its reader's loop where every reader is in that loop, the cells are of one type, and
//! both have the same number of columns (a column vector inside a wide loop would be computed once for
//! each of its columns). A reduction of all cells or of columns takes the chain before it into its own loop; one
//! of rows joins the loop of its readers where rows are short enough for a strip, for then they are in cache.
//! A chain whose pattern is turned off, or that is too short, stays apart.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::{Graph, Node, NodeId};
use super::patterns::{self, Expected, Users};
use crate::config::{self, Pattern};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::fused;
use crate::exec::operation::{Aggregate, Axis, Operation as Op};
use crate::exec::program::{BlockStep, Fusion, Sink, Slot};

/// The block computations of a pass.
pub(super) struct Fused {
    pub(super) steps: Vec<BlockStep>,
    /// Reductions, each with the chain that it took into its loop.
    pub(super) sinks: Vec<Sink>,
    /// What several operations became, by the node that they compute.
    pub(super) fusions: FxHashMap<NodeId, Fusion>,
}

/// Groups the row-local `members` of a pass into loops. `visible` values must exist as blocks; `readers` are those
/// in all passes.
pub(super) fn chains(
    expected: Expected<'_>,
    members: &[NodeId],
    is_local: &dyn Fn(NodeId) -> bool,
    visible: &FxHashSet<NodeId>,
    readers: &Users,
    options: config::Fusion,
) -> Fused {
    let graph = expected.graph;
    let mut users = Users::default();
    for &id in members {
        for &input in &graph.node(id).inputs {
            users.entry(input).or_default().push(id);
        }
    }
    // The node whose loop computes a member; readers come after what they read, so go backwards.
    let mut roots: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    // Operations from a member to the end of its loop.
    let mut depths: FxHashMap<NodeId, usize> = FxHashMap::default();
    for &id in members.iter().rev() {
        let of = users.get(&id).map_or(&[][..], Vec::as_slice);
        let root = of.first().and_then(|first| roots.get(first)).copied();
        let depth = 1 + of.iter().filter_map(|user| depths.get(user)).max().unwrap_or(&0);
        let joins = depth <= options.depth_max
            && is_local(id)
            && (graph.node(id).operation.is_elementwise()
                || (row_reduction(graph, id).is_some()
                    && options.patterns.contains(Pattern::RowReduce)))
            && !visible.contains(&id)
            && root.is_some_and(|root| {
                of.iter()
                    .all(|user| roots.get(user) == Some(&root) && takes_in(graph, *user, id, root))
            });
        roots.insert(id, if joins { root.unwrap_or(id) } else { id });
        depths.insert(id, if joins { depth } else { 1 });
    }

    let mut fused = Fused { steps: Vec::new(), sinks: Vec::new(), fusions: FxHashMap::default() };
    let in_cache = |id: NodeId| {
        let node = graph.node(id);
        is_local(id) && patterns::is_producer(&node.operation) && !visible.contains(&id)
    };
    for (root, nodes) in loops(graph, members, is_local, &roots) {
        let producer = nodes.iter().flat_map(|&id| &graph.node(id).inputs).copied();
        let producer = producer.filter(|&id| in_cache(id) && members.contains(&id)).min();
        let is_reduction = matches!(graph.node(root).operation, Op::Reduce { .. });
        let pattern = match producer {
            _ if is_reduction => Pattern::MapReduce,
            Some(producer) => patterns::of_producer(graph, readers, producer),
            None => patterns::of_loop(graph, &nodes),
        };
        let together: Vec<NodeId> =
            producer.filter(|_| !is_reduction).into_iter().chain(nodes.iter().copied()).collect();
        if together.len() < 2 {
            continue;
        }
        if options.patterns.contains(pattern) && together.len() >= options.operations_min {
            fused.fusions.insert(root, expected.fusion(pattern, &together));
        } else {
            roots.extend(nodes.iter().map(|&id| (id, id)));
        }
    }
    for &id in members {
        if roots[&id] != id {
            continue;
        }
        let node = graph.node(id);
        let slots = || node.inputs.iter().map(|input| input.index()).collect::<Vec<Slot>>();
        match &node.operation {
            operation if is_local(id) && operation.is_elementwise() => {
                let (builder, cell, inputs) = chain(graph, id, id, &roots);
                let program = builder.finish(cell);
                let (output, element) = (id.index(), node.element);
                fused.steps.push(BlockStep::Fused { program, inputs, output, element });
            }
            // The relation itself: its block is there.
            Op::Relation(_) => {}
            operation if is_local(id) => fused.steps.push(BlockStep::Evaluate {
                operation: operation.clone(),
                inputs: slots(),
                output: id.index(),
            }),
            Op::Reduce { aggregate, axis } => {
                let (mut builder, cell, inputs) = chain(graph, node.inputs[0], id, &roots);
                let (value, looped) = aggregate.reduction().looped(&mut builder, cell);
                fused.sinks.push(Sink::Reduce {
                    program: builder.finish(value),
                    inputs,
                    reduction: (aggregate.reduction(), looped),
                    axis: *axis,
                    element: graph.node(node.inputs[0]).element,
                    to: id.index(),
                });
            }
            _ => {}
        }
    }
    fused
}

/// Whether an operation takes next to no time beside reading its cells from memory.
pub(super) fn is_quick(operation: &Op) -> bool {
    match operation {
        Op::Unary(function) => matches!(function, UnaryFunction::Negate | UnaryFunction::Relu),
        Op::Binary(function) => matches!(
            function,
            BinaryFunction::Add | BinaryFunction::Subtract | BinaryFunction::Multiply
        ),
        _ => false,
    }
}

/// The nodes of each loop in their order, by the last of them.
fn loops(
    graph: &Graph,
    members: &[NodeId],
    is_local: &dyn Fn(NodeId) -> bool,
    roots: &FxHashMap<NodeId, NodeId>,
) -> BTreeMap<NodeId, Vec<NodeId>> {
    let mut loops: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for &id in members {
        let is_loop = match &graph.node(id).operation {
            Op::Reduce { .. } => !is_local(id) || roots[&id] != id,
            operation => is_local(id) && operation.is_elementwise(),
        };
        if is_loop {
            loops.entry(roots[&id]).or_default().push(id);
        }
    }
    loops
}

/// The reduction of rows that a loop over them may compute: one of a known number of columns, few enough.
pub(super) fn row_reduction(graph: &Graph, id: NodeId) -> Option<fused::Reduction> {
    let node = graph.node(id);
    let Op::Reduce { aggregate, axis: Some(Axis::Rows) } = node.operation else { return None };
    let columns = graph.node(node.inputs[0]).columns.known()?;
    let reduction = match aggregate {
        Aggregate::Sum => fused::Reduction::Sum,
        Aggregate::Mean => fused::Reduction::Mean,
        Aggregate::Min => fused::Reduction::Min,
        Aggregate::Max => fused::Reduction::Max,
        Aggregate::Variance => fused::Reduction::Variance,
        Aggregate::PopulationVariance => fused::Reduction::PopulationVariance,
        Aggregate::Deviation => fused::Reduction::Deviation,
        Aggregate::Norm(_) | Aggregate::ArgMax => return None,
    };
    (2..=fused::ROW_MAX).contains(&columns).then_some(reduction)
}

/// Whether the loop of `root` may compute `id` for its reader `user`, which is in it.
fn takes_in(graph: &Graph, user: NodeId, id: NodeId, root: NodeId) -> bool {
    let node = graph.node(id);
    // The loop of a reduction runs over the shape of its input.
    let over = match graph.node(root).operation {
        Op::Reduce { .. } => graph.node(graph.node(root).inputs[0]),
        _ => graph.node(root),
    };
    let fills = |of: &Node| of.rows == over.rows && of.columns == over.columns;
    match &graph.node(user).operation {
        operation if operation.is_elementwise() => {
            let is_as_wide = match row_reduction(graph, id) {
                Some(_) => fills(graph.node(node.inputs[0])),
                None => node.columns == over.columns,
            };
            is_as_wide && node.element == over.element
        }
        Op::Reduce { axis: None | Some(Axis::Columns), .. } => row_reduction(graph, id).is_none(),
        Op::Reduce { axis: Some(Axis::Rows), .. } => {
            user != root && fills(node) && node.element == over.element
        }
        _ => false,
    }
}

/// The loop that computes `result`, as far as it goes, and the slots of what it reads.
fn chain(
    graph: &Graph,
    result: NodeId,
    root: NodeId,
    roots: &FxHashMap<NodeId, NodeId>,
) -> (fused::Builder, fused::Value, Vec<Slot>) {
    let mut builder = fused::Builder::new();
    let mut inputs: Vec<Slot> = Vec::new();
    let mut registers = FxHashMap::default();
    let mut open = vec![result];
    while let Some(&id) = open.last() {
        if registers.contains_key(&id) {
            open.pop();
            continue;
        }
        let node = graph.node(id);
        let reduction = row_reduction(graph, id).filter(|_| id != root);
        let inside = roots.get(&id) == Some(&root)
            && (node.operation.is_elementwise() || reduction.is_some());
        if !inside {
            let register = match graph.as_constant(id) {
                Some(value) => builder.constant(value),
                None => {
                    let known = inputs.iter().position(|&slot| slot == id.index());
                    let at = known.unwrap_or_else(|| {
                        inputs.push(id.index());
                        inputs.len() - 1
                    });
                    builder.input(at)
                }
            };
            registers.insert(id, register);
            open.pop();
            continue;
        }
        let missing = node.inputs.iter().filter(|input| !registers.contains_key(input));
        let before = open.len();
        open.extend(missing.copied().collect::<Vec<_>>());
        if open.len() > before {
            continue;
        }
        let at = |index: usize| registers[&node.inputs[index]];
        let register = match (&node.operation, reduction) {
            (Op::Unary(function), _) => builder.unary(*function, at(0)),
            (Op::Binary(function), _) => builder.binary(*function, at(0), at(1)),
            (Op::Select, _) => builder.select(at(0), at(1), at(2)),
            (_, Some(reduction)) => builder.rows(reduction, at(0)),
            (other, None) => unreachable!("{other} is not of a loop"),
        };
        registers.insert(id, register);
        open.pop();
    }
    (builder, registers[&result], inputs)
}
