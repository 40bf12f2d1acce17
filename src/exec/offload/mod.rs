//! Steps of a program on a device: the same steps that `run` runs, over matrices that stay in its memory.
//!
//! Enters: the steps of an offload, and the values that it reads. Leaves: the values that somebody reads after it, all of them or none: where
//! the device fails, the host runs the very same steps from what they read, and nobody has seen a part of the result. Not here:
//! which steps are worth it (`planner::place`), and how a device is spoken to (`gpu`).
//!
//! ```text
//! cells ─ upload ─ Matrix ─ products ─ loops ─ reductions ─ Matrix ─ download ─ cells
//!             kept ┘  └──────────── rounds of an iteration ──┘
//! ```
//!
//! Everything that is made there is dense, row-major, and queued on one stream, beside which copies go by their own ([`ways`]): nothing waits
//! but where a number decides what comes next.

mod chosen;
mod decompose;
mod eigen;
mod expression;
pub(crate) mod falls;
pub(crate) mod groups;
mod images;
pub(crate) mod kept;
mod loops;
mod matrix;
pub(crate) mod observed;
mod operations;
pub(crate) mod operator;
mod pairs;
mod replay;
mod reshape;
pub(crate) mod sorts;
mod sparse;
#[cfg(test)]
mod tests;
mod trial;
mod tried;
mod ways;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::chosen::evaluates;
pub(super) use self::chosen::for_steps;
pub(crate) use self::decompose::taken;
use self::kept::Here;
use self::matrix::Matrix;
pub(crate) use self::operations::runs;
use self::replay::Ran;
use self::sparse::Sparse;
pub(crate) use self::trial::{
    decomposes, distrust, finds_eigenvalues, is_used, known, multiplies, trusted,
};
use self::ways::{Marked, Ways};
use super::evaluate::dense_of;
use super::kernels::fused::Goal;
use super::operation::{Operation, Part, Stored};
use super::program::{Offload, Pass, Program, Rounds, Sink, Slot, Step};
use super::run::{Cancel, cells};
use super::value::Value;
use crate::config::GpuGraphs;
use crate::error::{Error, ErrorKind};
use crate::gpu::{Arithmetic, Device, Fault, Stream};
use crate::matrix::{Cells, Element, Layout};

/// Why a device did not run steps.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It refused, or went wrong.
    Device(Fault),
    /// Something is not for devices that the planner could not see, as a matrix that turned out to be sparse.
    Unfit(String),
    /// Cells of which only the host can say what is wrong with them, as of a singular matrix: no failure.
    Refused(String),
    /// Whoever asked has gone.
    Stopped(Error),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(fault) => fault.fmt(f),
            Self::Unfit(why) | Self::Refused(why) => f.write_str(why),
            Self::Stopped(error) => error.fmt(f),
        }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Stopped => Self::Stopped(ErrorKind::Cancelled.into()),
            fault => Self::Device(fault),
        }
    }
}

/// A value that was made here.
#[derive(Clone)]
pub(super) enum Found {
    /// In the device's memory.
    Here(Matrix),
    /// With the host: a permutation, which is made of a few numbers that it has to see, or a product of sparse matrices, of which nobody
    /// knows how large it is before the host has counted its cells.
    Host(Cells),
}

impl Found {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Here(matrix) => matrix.bytes(),
            Self::Host(cells) => cells.size_bytes(),
        }
    }
}

/// What runs on a device one after the other.
struct Queue<'a> {
    device: &'a Arc<Device>,
    stream: Arc<Stream>,
    ways: Ways,
    cancel: &'a Cancel,
    /// Rows and columns of the numbers from 1 on that somebody has read.
    numbered: RefCell<Vec<Matrix>>,
}

impl<'a> Queue<'a> {
    fn new(device: &'a Arc<Device>, cancel: &'a Cancel) -> Result<Self, Failed> {
        let (stream, ways) = (Arc::new(device.stream()?), Ways::default());
        Ok(Self { device, stream, ways, cancel, numbered: RefCell::default() })
    }

    /// Waits for a value and brings it back, where the host has not got it.
    fn fetch(&self, found: Found) -> Result<Cells, Failed> {
        match found {
            Found::Here(matrix) => self.download(&matrix),
            Found::Host(cells) => Ok(cells),
        }
    }
}

/// Steps in the middle of running.
pub(super) struct Run<'a> {
    queue: Queue<'a>,
    program: &'a Program,
    /// What stays for the next who reads it.
    keeps: &'a [(Slot, Stored)],
    graphs: GpuGraphs,
    /// Those of the host.
    values: &'a [Option<Value>],
    held: HashMap<Slot, Matrix>,
    /// Those of decompositions.
    parts: HashMap<Slot, Vec<Found>>,
    /// What was made here and is with the host.
    with_host: HashMap<Slot, Cells>,
    /// What is sparse, of the host's values alone.
    sparse: HashMap<Slot, Sparse>,
    /// What is read after the steps and was made before the last.
    marked: Vec<Marked>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        device: &'a Arc<Device>,
        program: &'a Program,
        offload: &'a Offload,
        values: &'a [Option<Value>],
        cancel: &'a Cancel,
    ) -> Result<Self, Failed> {
        let (queue, keeps) = (Queue::new(device, cancel)?, offload.keeps.as_slice());
        Ok(Self {
            queue,
            program,
            keeps,
            graphs: offload.graphs,
            values,
            held: HashMap::new(),
            parts: HashMap::new(),
            with_host: HashMap::new(),
            sparse: HashMap::new(),
            marked: Vec::new(),
        })
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), Failed> {
        for step in steps {
            self.queue.cancel.check().map_err(Failed::Stopped)?;
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Evaluate { operation, inputs, output } if taken(operation).is_some() => {
                self.decompose(operation, inputs, *output)?;
            }
            Step::Evaluate { operation, inputs, output } => {
                self.keep(operation, inputs, *output)?;
            }
            Step::Part { of, at, output } => {
                let part = match (self.parts.get(of), self.values.get(*of)) {
                    (Some(parts), _) => parts[*at].clone(),
                    (None, Some(Some(of))) if of.part(*at).layout() == Layout::Csr => {
                        Found::Host(of.part(*at).clone())
                    }
                    (None, Some(Some(of))) => Found::Here(self.queue.upload(of.part(*at))?),
                    (None, _) => return Err(Failed::Unfit("a part of nothing".into())),
                };
                self.hold(*output, part);
            }
            Step::Multiply { inputs, output, .. } => {
                self.keep(&Operation::Product, inputs, *output)?;
            }
            Step::Pass(pass) => self.pass(pass)?,
            Step::Iterate(rounds) => self.iterate(rounds)?,
            Step::Release(slots) => {
                for slot in slots {
                    self.held.remove(slot);
                    self.parts.remove(slot);
                    self.with_host.remove(slot);
                    self.sparse.remove(slot);
                }
            }
            Step::Gather { .. } | Step::Align { .. } | Step::Offload(_) => {
                return Err(Failed::Unfit("a step that only the host runs".into()));
            }
        }
        Ok(())
    }

    /// What there is of a value that somebody reads on the host.
    pub(super) fn result(&mut self, slot: Slot) -> Result<Vec<Found>, Failed> {
        match (self.parts.get(&slot), self.with_host.get(&slot)) {
            (Some(parts), _) => Ok(parts.clone()),
            (None, Some(cells)) => Ok(vec![Found::Host(cells.clone())]),
            (None, None) => Ok(vec![Found::Here(self.matrix(slot)?)]),
        }
    }

    fn hold(&mut self, slot: Slot, found: Found) {
        match found {
            Found::Here(matrix) => {
                self.with_host.remove(&slot);
                self.held.insert(slot, matrix);
            }
            Found::Host(cells) => {
                // That of the last round was another one.
                self.held.remove(&slot);
                self.sparse.remove(&slot);
                self.with_host.insert(slot, cells);
            }
        }
    }

    /// A value, brought over when it is first read, unless it is there from an earlier run.
    pub(super) fn matrix(&mut self, slot: Slot) -> Result<Matrix, Failed> {
        if let Some(matrix) = self.held.get(&slot) {
            return Ok(matrix.clone());
        }
        if let Some(cells) = self.with_host.get(&slot) {
            let matrix = self.queue.upload(&match cells.element() {
                Element::Float64 => dense_of::<f64>(cells).into(),
                Element::Float32 => dense_of::<f32>(cells).into(),
            })?;
            self.held.insert(slot, matrix.clone());
            return Ok(matrix);
        }
        let stored = self.stored(slot);
        let device = self.queue.device;
        let matrix = match stored.and_then(|stored| kept::find(device, &stored.matrix)) {
            Some(Here::Dense(matrix)) => matrix,
            Some(Here::Sparse(_)) => return Err(Failed::Unfit("a sparse matrix".into())),
            Some(Here::Column(_) | Here::Places(_) | Here::Unfit(_)) | None => {
                let matrix = self.queue.upload(self.cells(slot)?)?;
                let here = Here::Dense(matrix.clone());
                stored.into_iter().for_each(|of| self.keep_here(of, &here));
                matrix
            }
        };
        self.held.insert(slot, matrix.clone());
        Ok(matrix)
    }

    /// A value with all of its cells; one that is sparse is made dense for this reader alone.
    fn full(&mut self, slot: Slot) -> Result<Matrix, Failed> {
        match self.sparse(slot) {
            Some(sparse) => self.queue.expanded(&sparse, self.cells(slot)?),
            None => self.matrix(slot),
        }
    }

    /// A value that is sparse; nothing of it is brought before it is read.
    fn sparse(&mut self, slot: Slot) -> Option<Sparse> {
        if self.held.contains_key(&slot) || self.sparse.contains_key(&slot) {
            return self.sparse.get(&slot).cloned();
        }
        self.cells(slot).ok().filter(|cells| cells.layout() == Layout::Csr)?;
        let stored = self.stored(slot);
        let device = self.queue.device;
        let matrix = match stored.and_then(|stored| kept::find(device, &stored.matrix)) {
            Some(Here::Sparse(matrix)) => matrix,
            _ => {
                let matrix = Sparse::default();
                let here = Here::Sparse(matrix.clone());
                stored.into_iter().for_each(|of| self.keep_here(of, &here));
                matrix
            }
        };
        self.sparse.insert(slot, matrix.clone());
        Some(matrix)
    }

    fn keep_here(&self, of: &Stored, here: &Here) {
        let device = self.queue.device;
        kept::keep(device, &of.matrix, (here.clone(), 1.0 / device.rates().upload));
    }

    /// The matrix at hand that a value is, where it stays.
    fn stored(&self, slot: Slot) -> Option<&'a Stored> {
        self.keeps.iter().find(|(of, _)| *of == slot).map(|(_, stored)| stored)
    }

    /// A value of the host.
    fn cells(&self, slot: Slot) -> Result<&Cells, Failed> {
        match self.with_host.get(&slot) {
            Some(cells) => Ok(cells),
            None => cells(self.program, self.values, slot)
                .map_err(|error| Failed::Unfit(error.to_string())),
        }
    }

    fn matrices(&mut self, slots: &[Slot]) -> Result<Vec<Matrix>, Failed> {
        slots.iter().map(|&slot| self.matrix(slot)).collect()
    }

    /// In what a product is computed, where that is less than the type of its cells.
    fn arithmetic(&self, slot: Slot) -> Option<Arithmetic> {
        self.program.notes[slot].arithmetic
    }

    fn decompose(
        &mut self,
        operation: &Operation,
        inputs: &[Slot],
        output: Slot,
    ) -> Result<(), Failed> {
        let inputs = inputs.iter().map(|&slot| self.full(slot)).collect::<Result<Vec<_>, _>>()?;
        let mut results = self.queue.decompose(operation, &inputs)?;
        match results.pop() {
            Some(one) if Part::all(operation).is_empty() => {
                self.hold(output, one);
            }
            last => {
                results.extend(last);
                self.parts.insert(output, results);
            }
        }
        Ok(())
    }

    fn keep(&mut self, operation: &Operation, inputs: &[Slot], output: Slot) -> Result<(), Failed> {
        let is_turned = matches!(operation, Operation::Cross);
        let of_sparse = is_turned || matches!(operation, Operation::Product);
        let sparse = if of_sparse { self.sparse(inputs[0]) } else { None };
        if let Some(left) = sparse {
            let right = if is_turned { None } else { self.sparse(inputs[1]) };
            let product = match right {
                Some(right) => {
                    let both = [self.cells(inputs[0])?, self.cells(inputs[1])?];
                    Found::Host(self.queue.product_of_sparse([&left, &right], both)?)
                }
                None => {
                    let right = self.matrix(inputs[1])?;
                    let cells = self.cells(inputs[0])?;
                    Found::Here(self.queue.sparse_product(&left, cells, is_turned, &right)?)
                }
            };
            self.hold(output, product);
            return Ok(());
        }
        let inputs = self.matrices(inputs)?;
        let mut result = self.queue.evaluate(operation, &inputs, self.arithmetic(output))?;
        if operation.is_elementwise() {
            result = self.queue.cast(&result, self.program.notes[output].element)?;
        }
        self.hold(output, Found::Here(result));
        Ok(())
    }

    /// A pass over whole values: all of its rows are one block.
    fn pass(&mut self, pass: &Pass) -> Result<(), Failed> {
        self.block_steps(pass)?;
        for sink in &pass.sinks {
            let inputs = self.matrices(&sink.inputs())?;
            let (to, made) = match sink {
                Sink::Collect { to, element, .. } => (*to, self.queue.cast(&inputs[0], *element)?),
                Sink::Reduce {
                    program, reduction: (reduction, looped), axis, element, to, ..
                } => {
                    let goal = match axis {
                        None => Goal::Cells(*looped),
                        Some(_) => Goal::Columns(*looped),
                    };
                    let inputs = Vec::from_iter(&inputs);
                    (*to, self.queue.reduce(program, &inputs, *element, goal, *reduction)?)
                }
                Sink::Cross { to, .. } | Sink::HalfCross { to, .. } => {
                    let arithmetic = self.arithmetic(*to);
                    (*to, self.queue.evaluate(&Operation::Cross, &inputs, arithmetic)?)
                }
                Sink::CountRows { .. } | Sink::Emit { .. } => {
                    return Err(Failed::Unfit("rows that only the host counts".into()));
                }
            };
            self.held.insert(to, made);
        }
        // What exists for its rows alone.
        for step in &pass.steps {
            let stays = |sink: &Sink| sink.output() == Some(step.output());
            if !pass.sinks.iter().any(stays) {
                self.held.remove(&step.output());
            }
        }
        Ok(())
    }

    /// Rounds of an iteration, as on the host; only what ends it comes back before the end.
    fn iterate(&mut self, rounds: &Rounds) -> Result<(), Failed> {
        let mut last = self.matrix(rounds.start)?;
        self.bind(rounds, &last, &last);
        let (mut done, mut may_record) = (0, true);
        while rounds.iteration.times.is_none_or(|times| done < times) {
            let launches = self.queue.stream.launches();
            self.steps(&rounds.step.steps)?;
            let next = self.matrix(rounds.step.result)?;
            self.bind(rounds, &next, &last);
            let prior = std::mem::replace(&mut last, next);
            done += 1;
            if let Some(until) = &rounds.until {
                self.steps(&until.steps)?;
                let decides = self.matrix(until.result)?;
                if self.queue.download(&decides)?.cell(0, 0) != 0.0 {
                    break;
                }
            }
            let ran = Ran { done, launches: self.queue.stream.launches() - launches };
            if may_record && self.is_worth_recording(rounds, &last, ran) {
                may_record = false;
                if let Some(made) = self.replayed(rounds, [&last, &prior], done)? {
                    last = made;
                    break;
                }
            }
        }
        let made = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
        let made = made.filter(|round| round.makes_result).map(|round| round.result);
        for slot in rounds.variable.into_iter().chain(rounds.prior).chain(made) {
            self.held.remove(&slot);
        }
        self.held.insert(rounds.output, last);
        Ok(())
    }

    fn bind(&mut self, rounds: &Rounds, last: &Matrix, prior: &Matrix) {
        for (slot, matrix) in [(rounds.variable, last), (rounds.prior, prior)] {
            if let Some(slot) = slot {
                self.held.insert(slot, matrix.clone());
            }
        }
    }
}

/// What devices failed at, in the runs of a database.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<(u64, Option<String>)>);

impl Failures {
    pub(super) fn note(&self, why: &str) {
        let mut failures = self.lock();
        failures.0 += 1;
        failures.1 = Some(why.to_owned());
    }

    /// How many there were, and why the last.
    pub(crate) fn all(&self) -> (u64, Option<String>) {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
