//! Which pattern operations that run as one step are an instance of, and what that is expected to save.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cost::{CostModel, SAMPLED_OPERATIONS};
use super::estimate::Estimate;
use super::fuse::row_reduction;
use super::graph::{Graph, Node, NodeId};
use super::lower::expected_rows;
use crate::config::Pattern;
use crate::exec::costs::Constant;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::Operation as Op;
use crate::exec::program::Fusion;
use crate::exec::transform::{Condition, Number};

/// Rows of a relation that nobody knows anything of.
const UNKNOWN_ROWS: f64 = 1e6;

/// Bytes of most numbers of SQL.
const CELL_BYTES: f64 = 8.0;

/// Who reads a node.
pub(super) type Users = FxHashMap<NodeId, Vec<NodeId>>;

/// The pattern of a loop over these nodes, the last of which it stores.
pub(super) fn of_loop(graph: &Graph, nodes: &[NodeId]) -> Pattern {
    let is = |function: BinaryFunction| {
        move |id: &NodeId| graph.node(*id).operation == Op::Binary(function)
    };
    let has = |function: BinaryFunction| nodes.iter().any(is(function));
    let activates = nodes.iter().any(|&id| is_activation(graph, id));
    let sums = has(BinaryFunction::Add) || has(BinaryFunction::Subtract);
    let plain = nodes.iter().filter(|&&id| !is_activation(graph, id)).count();
    if nodes.iter().any(|&id| row_reduction(graph, id).is_some()) {
        Pattern::RowReduce
    } else if activates && has(BinaryFunction::Subtract) && has(BinaryFunction::Divide) {
        Pattern::NormActivation
    } else if plain == 2 && has(BinaryFunction::Multiply) && sums {
        Pattern::MultiplyAdd
    } else {
        Pattern::Elementwise
    }
}

/// Whether blocks of a node's result may be read by a loop while they are in cache.
pub(super) fn is_producer(operation: &Op) -> bool {
    matches!(operation, Op::Product | Op::Outer | Op::Convolve(_))
}

/// The pattern of a producer and the chain that follows it.
pub(super) fn of_producer(graph: &Graph, users: &Users, producer: NodeId) -> Pattern {
    if matches!(graph.node(producer).operation, Op::Convolve(_)) {
        return Pattern::ConvNormActivation;
    }
    let mut at = producer;
    while let Some([user]) = users.get(&at).map(Vec::as_slice)
        && graph.node(*user).operation.is_elementwise()
    {
        at = *user;
        if is_activation(graph, at) {
            return Pattern::LinearActivation;
        }
    }
    Pattern::ProductAdd
}

/// Whether a function of cells is one that follows a layer: `relu(x)`, also written `greatest(x, 0)`.
fn is_activation(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    match node.operation {
        Op::Unary(function) => matches!(
            function,
            UnaryFunction::Relu
                | UnaryFunction::Sigmoid
                | UnaryFunction::Tanh
                | UnaryFunction::Gelu
                | UnaryFunction::Softplus
        ),
        Op::Binary(BinaryFunction::Greatest) => {
            node.inputs.iter().any(|&input| graph.as_constant(input) == Some(0.0))
        }
        _ => false,
    }
}

/// What is guessed about the nodes of a graph.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) graph: &'a Graph,
    pub(super) estimates: &'a [Estimate],
    pub(super) cost: &'a CostModel,
}

impl Expected<'_> {
    /// What it saves that these nodes, inputs first, are one step that stores the last alone: each of the
    /// others would be written, and read by each of its readers.
    pub(super) fn fusion(&self, pattern: Pattern, nodes: &[NodeId]) -> Fusion {
        let inside: FxHashSet<NodeId> = nodes.iter().copied().collect();
        let output = nodes.last().copied();
        let readers = |id: NodeId| {
            let reads = |user: &&NodeId| self.graph.node(**user).inputs.contains(&id);
            nodes.iter().filter(reads).count()
        };
        let between = nodes.iter().copied().filter(|id| Some(*id) != output);
        let saved = between.map(|id| self.bytes(id) * (1 + readers(id)) as f64);
        let apart: f64 = nodes.iter().map(|&id| self.seconds(id, |_| true)).sum();
        let outside = |id: NodeId| !inside.contains(&id);
        let (producers, looped): (Vec<NodeId>, Vec<NodeId>) =
            nodes.iter().partition(|&&id| is_producer(&self.graph.node(id).operation));
        let produced: f64 = producers.iter().map(|&id| self.seconds(id, outside)).sum();
        Fusion {
            pattern: pattern.name(),
            operations: nodes.len(),
            saved_bytes: saved.sum(),
            speedup: apart / (produced + self.looped(&looped, outside)),
        }
    }

    /// What it saves that these nodes read what they share once.
    pub(super) fn shared_scan(&self, nodes: &[NodeId]) -> Option<Fusion> {
        let mut readers: Users = FxHashMap::default();
        for &id in nodes {
            for &input in &self.graph.node(id).inputs {
                readers.entry(input).or_default().push(id);
            }
        }
        let again =
            readers.iter().map(|(id, readers)| self.bytes(*id) * (readers.len() - 1) as f64);
        let saved_bytes: f64 = again.sum();
        let apart: f64 = nodes.iter().map(|&id| self.seconds(id, |_| true)).sum();
        let together = (apart - saved_bytes / self.cost.constant(Constant::Memory))
            .max(apart / nodes.len() as f64);
        let pattern = Pattern::SharedScan.name();
        let fusion =
            Fusion { pattern, operations: nodes.len(), saved_bytes, speedup: apart / together };
        (nodes.len() > 1 && saved_bytes > 0.0).then_some(fusion)
    }

    /// What it saves that a node is computed for the stored cells of its first input alone: all cells of what that
    /// multiplies would be written, and read.
    pub(super) fn sparse_driven(&self, id: NodeId) -> Option<Fusion> {
        let node = self.node(id);
        let function: Op = match node.operation {
            Op::Sampled => Op::Outer,
            Op::SampledCells(function) => function.into(),
            _ => return None,
        };
        let estimate = &self.estimates[id.index()];
        let cells = estimate.rows * estimate.columns;
        let bytes = cells * node.element.size_bytes() as f64;
        let driver = &self.estimates[node.inputs[0].index()];
        let stored = driver.rows * driver.columns * driver.density;
        let flops = estimate.flops * cells / stored.max(1.0);
        let whole = self.cost.cost(&function, node.element, flops, bytes);
        let times = Op::Binary(BinaryFunction::Multiply);
        let times = self.cost.cost(&times, node.element, cells, bytes + estimate.bytes);
        Some(Fusion {
            pattern: Pattern::SparseDriven.name(),
            operations: SAMPLED_OPERATIONS,
            saved_bytes: 2.0 * bytes,
            speedup: (whole.seconds + times.seconds) / estimate.seconds,
        })
    }

    fn node(&self, id: NodeId) -> &Node {
        self.graph.node(id)
    }

    fn bytes(&self, id: NodeId) -> f64 {
        self.estimates[id.index()].bytes
    }

    /// Seconds of a node by itself that moves those of its operands for which this holds.
    fn seconds(&self, id: NodeId, moves: impl Fn(NodeId) -> bool) -> f64 {
        let node = self.node(id);
        let operands = node.inputs.iter().copied().chain([id]).filter(|&id| moves(id));
        let bytes = operands.map(|id| self.bytes(id)).sum();
        let flops = self.estimates[id.index()].flops;
        self.cost.cost(&node.operation, node.element, flops, bytes).seconds
    }

    /// Seconds of a loop over these nodes, which reads what is outside once and writes the last.
    fn looped(&self, nodes: &[NodeId], outside: impl Fn(NodeId) -> bool) -> f64 {
        let Some(&output) = nodes.last() else { return 0.0 };
        let inputs = nodes.iter().flat_map(|&id| self.node(id).inputs.iter().copied());
        let read: FxHashSet<NodeId> = inputs.filter(|&input| outside(input)).collect();
        let bytes = read.iter().map(|&id| self.bytes(id)).sum::<f64>() + self.bytes(output);
        let flops = nodes.iter().map(|id| self.estimates[id.index()].flops).sum();
        let node = self.node(output);
        self.cost.cost(&node.operation, node.element, flops, bytes).seconds
    }
}

/// What it saves that a condition, and the numbers computed of the share of rows that it keeps, are one operator over
/// an input: the numbers between operations, which would be written and read.
pub(super) fn transform_filter(
    condition: Option<&Condition>,
    numbers: &[&Number],
    input: &Arc<dyn ExecutionPlan>,
    kept_share: f64,
) -> datafusion::error::Result<Fusion> {
    let rows = expected_rows(input)?.unwrap_or(UNKNOWN_ROWS);
    let kept = rows * kept_share;
    let mut tests = Vec::new();
    condition.iter().for_each(|condition| condition.tests(&mut tests));
    let compared: Vec<&Number> = tests.iter().filter_map(|test| test.numbers()).flatten().collect();
    let (mut tested, mut read) = (BTreeSet::new(), BTreeSet::new());
    tests.iter().for_each(|test| test.add_columns(&mut tested));
    numbers.iter().for_each(|number| number.add_columns(&mut read));
    // What stays: the columns of the condition, those of the numbers, and the numbers themselves.
    let least = rows * tested.len() as f64 + kept * (read.len() + numbers.len()) as f64;
    let moved = |numbers: &[&Number]| -> f64 {
        numbers.iter().map(|number| number.moved_cells() as f64).sum()
    };
    let flops = |numbers: &[&Number]| -> f64 { numbers.iter().map(|number| number.flops()).sum() };
    // Each comparison reads its columns, or what is computed for it.
    let is_read = |number: &&&Number| !matches!(number, Number::Constant(_));
    let others = tests.iter().filter(|test| test.numbers().is_none()).count();
    let sides = compared.iter().filter(is_read).count() + others;
    let apart = rows * (moved(&compared) + sides as f64) + kept * moved(numbers);
    let flops = rows * (flops(&compared) + tests.len() as f64) + kept * flops(numbers);
    let cost = CostModel::default();
    let seconds = |cells: f64| {
        let moving = CELL_BYTES * cells / cost.constant(Constant::Memory);
        moving.max(flops / cost.constant(Constant::Elementwise)) + cost.constant(Constant::Steps)
    };
    let operations = condition.map_or(0, Condition::operations)
        + numbers.iter().map(|number| number.operations()).sum::<usize>();
    Ok(Fusion {
        pattern: Pattern::TransformFilter.name(),
        operations,
        saved_bytes: CELL_BYTES * (apart - least).max(0.0),
        speedup: seconds(apart.max(least)) / seconds(least),
    })
}
