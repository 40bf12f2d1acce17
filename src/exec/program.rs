//! What a graph runs as: steps over numbered values, written by `planner::lower`.
//!
//! A [`Pass`] reads rows once, in blocks, and does everything that one reading serves: it computes
//! block by block, keeps what later steps need whole, and adds up what is a sum over rows. Anything
//! else is one [`Step::Evaluate`] over whole matrices. Values are known by [`Slot`], one for each
//! node of the graph, and are let go at their last reader.

use super::costs::Constant;
use super::intake::Intake;
use super::kernels::fused;
use super::kernels::reduce::Reduction;
use super::labels::{AxisLabels, LabelCheck, RelationLabels};
use super::multiply::{Algorithm, Rates};
use super::operation::{Axis, Iteration, Operation, Stored};
use super::recall::{Fingerprint, Watch};
use crate::config::GpuGraphs;
use crate::error::Place;
use crate::gpu::Arithmetic;
use crate::matrix::Element;

/// The number of a value.
pub(crate) type Slot = usize;

/// A graph made ready to run.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// How each relation is read, in the order of the plan's inputs.
    pub(crate) intakes: Vec<Intake>,
    /// What must hold of labels once the relations have run.
    pub(crate) checks: Vec<LabelCheck>,
    /// The value asked for.
    pub(crate) root: Slot,
    pub(crate) root_labels: [AxisLabels; 2],
    /// Whether its zeros are no entries, in whatever layout it comes.
    pub(crate) root_is_sparse: bool,
    /// Number of slots.
    pub(crate) slots: usize,
    /// What is known and guessed about each value, for EXPLAIN.
    pub(crate) notes: Vec<Note>,
    /// The whole expression.
    pub(crate) text: String,
    /// Seconds that it is expected to take, and that what is written would.
    pub(crate) seconds: [f64; 2],
    /// The next best expression that was found, and its seconds.
    pub(crate) runner_up: Option<(String, f64)>,
    /// Whether that is by constants measured on this machine.
    pub(crate) is_by_measured_costs: bool,
    /// Matrices that a device would have been given work for, had they been there, and how many seconds that would have saved.
    pub(crate) missed: Vec<(Stored, f64)>,
    /// Seconds that the host is expected to take, where it runs all of what a device could run.
    pub(crate) host_seconds: Option<f64>,
    /// Why no device is given any of it, where one has failed at it.
    pub(crate) fallen: Option<String>,
    /// The labels of each relation, where they are known before it runs.
    pub(crate) known_labels: Vec<Option<RelationLabels>>,
    /// What tells the value asked for from every other one, where that can be told.
    pub(crate) root_part: Option<Fingerprint>,
    /// What is to be remembered.
    pub(crate) watch: Option<Watch>,
}

/// One step; the steps run in order.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Reads a relation as a whole: entries, graphs, and rows in a given order.
    Gather { relation: usize, output: Slot },
    /// One operation over whole values.
    Evaluate { operation: Operation, inputs: Vec<Slot>, output: Slot },
    /// A product whose sizes, or the rates, make another algorithm than the classical one worth a look.
    Multiply { rates: Rates, inputs: Vec<Slot>, output: Slot },
    /// Rows put in the order of other labels.
    Align { from: AxisLabels, to: AxisLabels, input: Slot, output: Slot },
    /// One result of a decomposition.
    Part { of: Slot, at: usize, output: Slot },
    /// Rows in blocks.
    Pass(Pass),
    /// Rounds of steps.
    Iterate(Box<Rounds>),
    /// Steps that a device runs.
    Offload(Box<Offload>),
    /// Values that nobody reads any more.
    Release(Vec<Slot>),
}

/// Steps that a device runs in one go, and the host where it fails.
#[derive(Debug, Clone)]
pub(crate) struct Offload {
    pub(crate) steps: Vec<Step>,
    /// What they make that is read after them.
    pub(crate) leaves: Vec<Slot>,
    /// What they read of the matrices at hand, which stays on the device.
    pub(crate) keeps: Vec<(Slot, Stored)>,
    /// Seconds expected of the device with what is moved, and of the host.
    pub(crate) seconds: [f64; 2],
    /// Those of the device by rates alone.
    pub(crate) device_by_rates: f64,
    /// Bytes moved to the device and back.
    pub(crate) moved_bytes: f64,
    /// Bytes that it has in the device's memory at once.
    pub(crate) peak_bytes: f64,
    /// Whether rounds are recorded.
    pub(crate) graphs: GpuGraphs,
}

/// One reading of rows, in blocks.
#[derive(Debug, Clone)]
pub(crate) struct Pass {
    /// Where the rows come from.
    pub(crate) source: Source,
    /// Whole values that are cut to the rows of each block.
    pub(crate) cut: Vec<Slot>,
    /// What is computed from each block, in order.
    pub(crate) steps: Vec<BlockStep>,
    /// What becomes of it.
    pub(crate) sinks: Vec<Sink>,
    /// The widest row of the pass in cells: blocks are bounded by it.
    pub(crate) row_cells: usize,
    /// Where several sums read the same rows.
    pub(crate) shared: Option<Fusion>,
}

impl Step {
    /// The slot of the value that the step makes, or reads, where it is one.
    pub(crate) fn output(&self) -> Option<Slot> {
        match self {
            Step::Gather { output, .. }
            | Step::Evaluate { output, .. }
            | Step::Multiply { output, .. }
            | Step::Align { output, .. }
            | Step::Part { output, .. } => Some(*output),
            Step::Pass(pass) => match pass.source {
                Source::Relation { slot, .. } => Some(slot),
                Source::Cut => pass.sinks.first().and_then(Sink::output),
            },
            Step::Iterate(rounds) => Some(rounds.output),
            Step::Offload(offload) => offload.leaves.last().copied(),
            Step::Release(_) => None,
        }
    }

    /// The slots of values from outside that the step reads or writes.
    pub(crate) fn touched(&self) -> Vec<Slot> {
        match self {
            Step::Gather { output, .. } => vec![*output],
            Step::Evaluate { inputs, output, .. } | Step::Multiply { inputs, output, .. } => {
                inputs.iter().copied().chain([*output]).collect()
            }
            Step::Pass(pass) => pass.whole_slots(),
            Step::Iterate(rounds) => {
                let repeated = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
                let inside = repeated.flat_map(|round| {
                    let steps = round.steps.iter().flat_map(Step::touched);
                    steps.chain([round.result]).collect::<Vec<_>>()
                });
                inside.chain([rounds.start, rounds.output]).collect()
            }
            Step::Align { input, output, .. } => vec![*input, *output],
            Step::Part { of, output, .. } => vec![*of, *output],
            Step::Offload(offload) => offload.steps.iter().flat_map(Step::touched).collect(),
            Step::Release(_) => Vec::new(),
        }
    }

    /// The relation that the step reads.
    pub(crate) fn relation(&self) -> Option<usize> {
        match self {
            Step::Gather { relation, .. } => Some(*relation),
            Step::Pass(Pass { source: Source::Relation { relation, .. }, .. }) => Some(*relation),
            _ => None,
        }
    }

    /// The slots of the values that the step leaves behind.
    pub(crate) fn made(&self) -> Vec<Slot> {
        match self {
            Step::Pass(pass) => pass.sinks.iter().filter_map(Sink::output).collect(),
            Step::Offload(offload) => offload.leaves.clone(),
            step => step.output().into_iter().collect(),
        }
    }

    /// The products of matrices in the step: what each reads, and what it makes.
    pub(crate) fn products(&self) -> Vec<(Vec<Slot>, Slot)> {
        match self {
            Step::Evaluate { operation, inputs, output } => {
                let is_one = operation.is_product();
                is_one.then(|| (inputs.clone(), *output)).into_iter().collect()
            }
            Step::Multiply { inputs, output, .. } => vec![(inputs.clone(), *output)],
            Step::Pass(pass) => pass.products().collect(),
            Step::Iterate(rounds) => {
                let repeated = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
                repeated.flat_map(|round| &round.steps).flat_map(Step::products).collect()
            }
            Step::Offload(offload) => offload.steps.iter().flat_map(Step::products).collect(),
            Step::Gather { .. } | Step::Align { .. } | Step::Part { .. } | Step::Release(_) => {
                Vec::new()
            }
        }
    }
}

impl Pass {
    /// The slots of whole values that the pass reads or writes.
    pub(crate) fn whole_slots(&self) -> Vec<Slot> {
        let mut slots = self.cut.clone();
        for step in &self.steps {
            slots.extend(step.inputs());
        }
        for sink in &self.sinks {
            slots.extend(sink.inputs());
            slots.extend(sink.output());
        }
        let own: Vec<Slot> = self.block_slots();
        let collected = |slot: &Slot| self.sinks.iter().any(|sink| sink.output() == Some(*slot));
        slots.retain(|slot| !own.contains(slot) || collected(slot));
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The products of matrices among what is computed: what each reads, and what it makes.
    fn products(&self) -> impl Iterator<Item = (Vec<Slot>, Slot)> {
        let steps = self.steps.iter().filter_map(|step| match step {
            BlockStep::Evaluate { operation, inputs, output } if operation.is_product() => {
                Some((inputs.clone(), *output))
            }
            BlockStep::Evaluate { .. } | BlockStep::Fused { .. } => None,
        });
        let sinks = self.sinks.iter().filter_map(|sink| match sink {
            Sink::Cross { to, .. } | Sink::HalfCross { to, .. } => Some((sink.inputs(), *to)),
            Sink::Collect { .. }
            | Sink::Reduce { .. }
            | Sink::CountRows { .. }
            | Sink::Emit { .. } => None,
        });
        steps.chain(sinks)
    }

    /// The value that is made from a block of this one.
    pub(crate) fn reader_of(&self, slot: Slot) -> Option<Slot> {
        let step = self.steps.iter().find(|step| step.inputs().contains(&slot));
        let sink = || self.sinks.iter().find(|sink| sink.inputs().contains(&slot));
        step.map(BlockStep::output).or_else(|| sink().and_then(Sink::output))
    }

    /// The slots of values that exist block by block.
    pub(crate) fn block_slots(&self) -> Vec<Slot> {
        let read = match self.source {
            Source::Relation { slot, .. } => Some(slot),
            Source::Cut => None,
        };
        self.steps.iter().map(BlockStep::output).chain(read).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The batches of a relation, whose cells are the value of this slot.
    Relation { relation: usize, slot: Slot },
    /// The rows of the first value that is cut.
    Cut,
}

/// One computation on a block.
#[derive(Debug, Clone)]
pub(crate) enum BlockStep {
    /// A chain of elementwise operations as one loop.
    Fused { program: fused::Program, inputs: Vec<Slot>, output: Slot, element: Element },
    /// An operation for which the rows of a block are as good as a whole; inputs that the pass does
    /// not cut or compute are whole.
    Evaluate { operation: Operation, inputs: Vec<Slot>, output: Slot },
}

impl BlockStep {
    pub(crate) fn inputs(&self) -> &[Slot] {
        match self {
            BlockStep::Fused { inputs, .. } | BlockStep::Evaluate { inputs, .. } => inputs,
        }
    }

    pub(crate) fn output(&self) -> Slot {
        match self {
            BlockStep::Fused { output, .. } | BlockStep::Evaluate { output, .. } => *output,
        }
    }
}

/// What a pass leaves behind.
#[derive(Debug, Clone)]
pub(crate) enum Sink {
    /// All blocks, below one another: cells of this type, so many in a row where that is known.
    Collect {
        from: Slot,
        to: Slot,
        columns: Option<usize>,
        element: Element,
        /// A value that only their loop reads, and nobody after it: they are written over it where no other
        /// matrix shares its memory.
        over: Option<Slot>,
    },
    /// A reduction of all cells or of each column, of which no more than a strip exists at a time.
    Reduce {
        program: fused::Program,
        inputs: Vec<Slot>,
        /// What is asked for, and what the program's loop accumulates for it.
        reduction: (Reduction, fused::Reduction),
        axis: Option<Axis>,
        element: Element,
        to: Slot,
    },
    /// `t(left) @ right`
    Cross { left: Slot, right: Slot, to: Slot },
    /// The same where it is symmetric.
    HalfCross { left: Slot, right: Slot, to: Slot },
    /// Number of rows.
    CountRows { to: Slot },
    /// The rows of the result, handed on block by block.
    Emit { from: Slot },
}

impl Sink {
    pub(crate) fn inputs(&self) -> Vec<Slot> {
        match self {
            Sink::Collect { from, .. } | Sink::Emit { from } => vec![*from],
            Sink::Reduce { inputs, .. } => inputs.clone(),
            Sink::Cross { left, right, .. } | Sink::HalfCross { left, right, .. } => {
                vec![*left, *right]
            }
            Sink::CountRows { .. } => Vec::new(),
        }
    }

    pub(crate) fn output(&self) -> Option<Slot> {
        match self {
            Sink::Collect { to, .. }
            | Sink::Reduce { to, .. }
            | Sink::Cross { to, .. }
            | Sink::HalfCross { to, .. }
            | Sink::CountRows { to } => Some(*to),
            Sink::Emit { .. } => None,
        }
    }
}

/// The rounds of an iteration.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    pub(crate) iteration: Iteration,
    pub(crate) start: Slot,
    /// The slots of the variable and of the value before it, where they are read.
    pub(crate) variable: Option<Slot>,
    pub(crate) prior: Option<Slot>,
    /// What makes the next value.
    pub(crate) step: Round,
    /// What decides, on the next value and the one before it, whether it is the last.
    pub(crate) until: Option<Round>,
    pub(crate) output: Slot,
}

/// Steps that are repeated, and the value they are repeated for.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) steps: Vec<Step>,
    pub(crate) result: Slot,
    /// Whether the steps make the result; else it is a value from outside, or the variable itself.
    pub(crate) makes_result: bool,
}

/// What EXPLAIN says about a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    /// The operation with its inputs, as `gram(x)`.
    pub(crate) text: String,
    /// The shape, with `?` for what only running can tell, and what is guessed for it.
    pub(crate) shape: String,
    pub(crate) element: Element,
    pub(crate) layout: String,
    /// Stored cells by cells, guessed.
    pub(crate) density: f64,
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// What the seconds are bound by.
    pub(crate) bound: Option<Constant>,
    /// Whether they follow from sizes that are known, its own and those of what it reads.
    pub(crate) is_exact: bool,
    /// By which algorithm a product is made, and the next best.
    pub(crate) product: Option<[Algorithm; 2]>,
    /// The layout that it could have as well, and the bytes it would take.
    pub(crate) other_layout: Option<(String, f64)>,
    /// Where it stands in the text, for what goes wrong when it runs.
    pub(crate) place: Option<Place>,
    /// The operations that are one step with it, where there are any.
    pub(crate) fusion: Option<Fusion>,
    /// In what a device multiplies, where that is less than the type of the cells.
    pub(crate) arithmetic: Option<Arithmetic>,
}

/// Operations that run as one step, and what that is expected to save.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fusion {
    pub(crate) pattern: &'static str,
    pub(crate) operations: usize,
    /// Bytes that would be written and read again between them.
    pub(crate) saved_bytes: f64,
    /// Seconds of each by itself, by those of the one step.
    pub(crate) speedup: f64,
}
