//! Runs a [`Program`]: the steps in order, each value kept until its last reader is done.
//!
//! Everything here runs on one thread that may block, apart from the async runtime; blocks and
//! kernels run on the engine's thread pool. Between blocks, steps and rounds the run looks whether it
//! has been cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::entries;
use super::evaluate::{evaluate, multiply};
use super::footprint;
use super::kernels::Stop;
use super::labels::{AxisLabels, RelationLabels, resolve};
use super::offload::observed::{self, By, Parts};
use super::offload::{self, Failed};
use super::operation::Operation;
use super::program::{Offload, Program, Round, Rounds, Slot, Step};
use super::recall::{Made, Remembered, Watch, Watched};
use super::value::Value;
use crate::config::GpuDevices;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu;
use crate::matrix::{Cells, Labels, Layout, Matrix};
use crate::memory::Shelf;

/// A flag that stops a run between two blocks or steps, and within long kernels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The same for whoever is no part of a run.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// The same for kernels.
    pub(crate) fn stop(&self) -> Stop<'_> {
        Stop::once(&self.0)
    }

    /// # Errors
    /// [`ErrorKind::Cancelled`] once it has been cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(ErrorKind::Cancelled.into()) } else { Ok(()) }
    }
}

/// The batches of one input of a plan, pulled one at a time.
pub(crate) trait Rows: Send {
    /// The next batch, or `None` at the end.
    fn next(&mut self) -> Result<Option<RecordBatch>>;

    /// Names and types of the columns.
    fn schema(&self) -> SchemaRef;
}

/// Bytes that a run holds, counted against the database's budget.
pub(crate) trait Budget {
    /// Counts more bytes.
    ///
    /// # Errors
    /// [`ErrorKind::MemorySpent`] where the limit would be passed.
    fn grow(&mut self, bytes: usize, what: &str) -> Result<()>;

    /// Counts more bytes of cells, of which those that memory has no room for will be in files: how many memory
    /// was counted for, all of them or none.
    ///
    /// # Errors
    /// [`ErrorKind::MemorySpent`] where the disk has no room either, or there are too few for a file.
    fn grow_cells(&mut self, bytes: usize, what: &str) -> Result<usize>;

    /// Counts more bytes of rows that are gathered until the last is there: whether memory has room for them and
    /// leaves as much to those who make the rows.
    fn grow_rows(&mut self, bytes: usize) -> bool;

    /// [`ErrorKind::DiskSpent`]: what memory had no room for, and the disk has not either.
    fn disk_spent(&self, what: &str, needed_bytes: usize) -> Error;

    /// Counts half of what is left, for work on cells that are in files; how much that is.
    fn grow_spare(&mut self) -> usize;

    /// Counts fewer.
    fn shrink(&mut self, bytes: usize);
}

/// Takes the rows of a result as they are made: cells, their row labels, and how many came before.
pub(crate) type Emit<'a> = dyn FnMut(&Cells, Option<&Labels>, usize) -> Result<()> + Send + 'a;

/// What a run needs of its surroundings.
pub(crate) struct Surroundings<'a> {
    pub(crate) pool: &'a rayon::ThreadPool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) budget: &'a mut dyn Budget,
    pub(crate) emit: &'a mut Emit<'a>,
    /// Rows in a block, where a setting fixes it.
    pub(crate) tile_rows: Option<usize>,
    /// The devices that may be used.
    pub(crate) gpu_devices: &'a GpuDevices,
    /// Whether what a device fails at is an error.
    pub(crate) gpu_must_not_fail: bool,
    /// Told what each step made and how long it took.
    pub(crate) measured: &'a (dyn Fn(Slot, Measured) + Sync),
}

/// What a value turned out to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) shape: Option<crate::matrix::Shape>,
    pub(crate) stored: usize,
    pub(crate) bytes: usize,
    pub(crate) seconds: f64,
    /// Why the host did what was meant for a device.
    pub(crate) by_host: Option<String>,
    /// The device that did it, where there are several.
    pub(crate) on_device: Option<usize>,
}

/// A program in the middle of running.
pub(super) struct Run<'a> {
    pub(super) program: &'a Program,
    pub(super) around: Surroundings<'a>,
    /// For each relation its rows, then the labels given for its rows and columns.
    pub(super) inputs: Vec<Inputs>,
    pub(super) values: Vec<Option<Value>>,
    /// Bytes counted for each value: those in memory that nobody else counts.
    pub(super) counted: Vec<usize>,
    pub(super) relations: Vec<RelationLabels>,
    /// Rows for which memory has no room.
    pub(super) shelf: Shelf,
    on_devices: Parts,
}

/// The inputs of one relation.
pub(crate) struct Inputs {
    /// In parts that follow one another.
    pub(crate) rows: Vec<Box<dyn Rows>>,
    /// How many rows those are, where that is certain.
    pub(crate) count: Option<usize>,
    pub(crate) given: [Option<Vec<Box<dyn Rows>>>; 2],
}

/// Runs a program; its result has left through `emit` where a pass hands rows on, else it is returned.
///
/// # Errors
/// Whatever its inputs, kernels or labels refuse, and [`ErrorKind::Cancelled`].
pub(crate) fn run<'a>(
    program: &'a Program,
    inputs: Vec<Inputs>,
    around: Surroundings<'a>,
) -> Result<Option<Matrix>> {
    let mut run = Run {
        program,
        around,
        relations: program.known_labels.iter().cloned().map(Option::unwrap_or_default).collect(),
        inputs,
        values: (0..program.slots).map(|_| None).collect(),
        counted: vec![0; program.slots],
        shelf: Shelf::default(),
        on_devices: Parts::default(),
    };
    for (stored, seconds) in &program.missed {
        offload::kept::owe(&stored.matrix, *seconds);
    }
    let start = Instant::now();
    match &program.watch {
        None => run.steps(&program.steps)?,
        Some(watch) => run.watched_steps(watch)?,
    }
    if let Some(expected) = program.host_seconds {
        observed::note(By::Host, &program.text, expected, start.elapsed().as_secs_f64());
    }
    run.on_devices.note(&program.text);
    for check in &program.checks {
        check.run(&run.relations)?;
    }
    let Some(value) = run.values[program.root].take() else { return Ok(None) };
    let [rows, columns] = &program.root_labels;
    let labels = [resolve(rows, &run.relations)?, resolve(columns, &run.relations)?];
    let [rows, columns] = labels;
    let matrix = Matrix::new(value.cells()?).with_labels(rows, columns);
    Ok(Some(matrix.with_sparsity(program.root_is_sparse)))
}

impl Run<'_> {
    /// All steps, while somebody watches what they make.
    fn watched_steps(&mut self, watch: &Watch) -> Result<()> {
        let mut seconds = Vec::with_capacity(self.program.steps.len());
        for (at, step) in self.program.steps.iter().enumerate() {
            let start = Instant::now();
            self.steps(std::slice::from_ref(step))?;
            seconds.push(start.elapsed().as_secs_f64());
            for part in watch.parts.iter().filter(|part| part.steps.last() == Some(&at)) {
                let seconds = part.steps.iter().map(|&step| seconds[step]).sum();
                self.remember(watch, part, seconds)?;
            }
        }
        Ok(())
    }

    /// Tells who watches a part what it has come to.
    fn remember(&self, watch: &Watch, part: &Watched, seconds: f64) -> Result<()> {
        let (text, is) = match part.what {
            Made::Value(slot) => {
                let Some(value) = &self.values[slot] else { return Ok(()) };
                (self.program.notes[slot].text.clone(), Remembered::Value(value.clone()))
            }
            Made::Labels(relation) => {
                let (labels, names) =
                    (&self.relations[relation], &self.program.intakes[relation].names);
                if labels.rows.is_none() && labels.columns.is_none() {
                    return Ok(());
                }
                (format!("labels of {}", names.join(", ")), Remembered::Labels(labels.clone()))
            }
        };
        watch.recall.learn(part.part, &text, is, seconds)
    }

    pub(super) fn steps(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.around.cancel.check()?;
            self.step(step).map_err(|error| match step.output() {
                Some(slot) => error.at(self.program.notes[slot].place),
                None => error,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let start = Instant::now();
        match step {
            Step::Gather { relation, output } => {
                let intake = &self.program.intakes[*relation];
                let inputs = &mut self.inputs[*relation];
                let gathered = entries::gather(intake, inputs, &mut self.around)?;
                self.relations[*relation] = gathered.labels.compacted();
                self.keep(*output, gathered.cells.into(), start)?;
            }
            // Who stored it counts its cells.
            Step::Evaluate { operation: Operation::Stored(stored), output, .. } => {
                let value = Value::from(stored.matrix.cells().clone());
                self.put(*output, value, 0, start);
            }
            Step::Evaluate { operation, inputs, output } => {
                self.evaluate_operation(operation, inputs, *output)?;
            }
            Step::Multiply { rates, inputs, output } => {
                let bytes = |inputs: &[&Cells]| match product_sides(inputs) {
                    Some(sides) => {
                        let cell_bytes = rates.cell_bytes as usize;
                        footprint::product_bytes(sides, rates.levels(sides), cell_bytes)
                    }
                    None => footprint::bytes(&Operation::Product, inputs),
                };
                let run = |inputs: &[&Cells], stop: Stop<'_>| {
                    multiply(inputs, |sides| rates.levels(sides), stop)
                };
                self.evaluate(inputs, *output, |_| true, bytes, run)?;
            }
            Step::Align { from, to, input, output } => {
                let cells = self.align(from, to, *input)?;
                self.keep(*output, cells.into(), start)?;
            }
            Step::Part { of, at, output } => {
                let part = Value::from(self.value(*of)?.part(*at).clone());
                let bytes = part.memory_bytes();
                // Counted with the whole too, as long as that is there.
                let is_counted = self.around.budget.grow(bytes, "").is_ok();
                self.put(*output, part, if is_counted { bytes } else { 0 }, start);
            }
            Step::Pass(pass) => self.pass(pass)?,
            Step::Iterate(rounds) => self.iterate(rounds)?,
            Step::Offload(offload) => self.offload(offload)?,
            Step::Release(slots) => {
                for &slot in slots {
                    self.release(slot);
                }
            }
        }
        Ok(())
    }

    /// Computes an operation of whole values.
    pub(super) fn evaluate_operation(
        &mut self,
        operation: &Operation,
        inputs: &[Slot],
        output: Slot,
    ) -> Result<()> {
        let element = self.program.notes[output].element;
        let run = |inputs: &[&Cells], stop: Stop<'_>| {
            let value = evaluate(operation, inputs, stop)?;
            // Numbers in the text have no type: they widen no cells.
            match operation.is_elementwise() && value.as_cells()?.element() != element {
                true => evaluate(&Operation::Cast(element), &[value.as_cells()?], stop),
                false => Ok(value),
            }
        };
        let is_in_blocks = |inputs: &[&Cells]| footprint::is_in_blocks(operation, inputs);
        let bytes = |inputs: &[&Cells]| footprint::bytes(operation, inputs);
        self.evaluate(inputs, output, is_in_blocks, bytes, run)
    }

    /// Computes a value from whole ones, the bytes it will take counted before; where it is made in blocks, they may
    /// be in files.
    fn evaluate(
        &mut self,
        inputs: &[Slot],
        output: Slot,
        is_in_blocks: impl Fn(&[&Cells]) -> bool,
        bytes: impl Fn(&[&Cells]) -> usize,
        run: impl Fn(&[&Cells], Stop<'_>) -> Result<Value> + Sync,
    ) -> Result<()> {
        let start = Instant::now();
        let inputs: Vec<&Cells> = inputs
            .iter()
            .map(|&slot| cells(self.program, &self.values, slot))
            .collect::<Result<_>>()?;
        let expected_bytes = bytes(&inputs);
        let what = &self.program.notes[output].text;
        let budget = &mut self.around.budget;
        let counted_bytes = match is_in_blocks(&inputs) {
            true => match budget.grow_cells(expected_bytes, what)? {
                0 if expected_bytes > 0 => budget.grow_spare(),
                counted_bytes => counted_bytes,
            },
            false => {
                budget.grow(expected_bytes, what)?;
                expected_bytes
            }
        };
        let cancel = self.around.cancel;
        let value = self.around.pool.install(|| run(&inputs, cancel.stop()));
        // First this: a kernel that was stopped may also have failed.
        cancel.check()?;
        self.keep_counted(output, value?, counted_bytes, start)
    }

    /// Stores a value and counts its bytes.
    pub(super) fn keep(&mut self, slot: Slot, value: Value, start: Instant) -> Result<()> {
        self.keep_counted(slot, value, 0, start)
    }

    /// Stores a value for which so many bytes were counted before it was made; on disk where memory has no room.
    pub(super) fn keep_counted(
        &mut self,
        slot: Slot,
        mut value: Value,
        counted_bytes: usize,
        start: Instant,
    ) -> Result<()> {
        let mut in_memory = value.memory_bytes();
        if in_memory > counted_bytes {
            let more = in_memory - counted_bytes;
            if let Err(refused) = self.around.budget.grow(more, &self.program.notes[slot].text) {
                value = value.on_disk().ok_or(refused)?;
                in_memory = value.memory_bytes();
                // What is left is small: labels of rows, say, are beside the cells of the rows.
                in_memory = in_memory.min(counted_bytes);
            }
        }
        self.around.budget.shrink(counted_bytes.saturating_sub(in_memory));
        self.put(slot, value, in_memory, start);
        Ok(())
    }

    /// Stores a value for which so many bytes are counted.
    fn put(&mut self, slot: Slot, value: Value, counted_bytes: usize, start: Instant) {
        self.release(slot);
        let ((shape, stored), bytes) = (value.extent(), value.size_bytes());
        let seconds = start.elapsed().as_secs_f64();
        let measured = Measured { shape, stored, bytes, seconds, ..Measured::default() };
        (self.around.measured)(slot, measured);
        self.values[slot] = Some(value);
        self.counted[slot] = counted_bytes;
    }

    fn release(&mut self, slot: Slot) {
        self.values[slot] = None;
        let counted_bytes = std::mem::take(&mut self.counted[slot]);
        self.around.budget.shrink(counted_bytes);
    }

    fn value(&self, slot: Slot) -> Result<&Value> {
        value(self.program, &self.values, slot)
    }

    /// A value that is one matrix.
    pub(super) fn cells(&self, slot: Slot) -> Result<&Cells> {
        cells(self.program, &self.values, slot)
    }

    fn align(&self, from: &AxisLabels, to: &AxisLabels, input: Slot) -> Result<Cells> {
        let (from, to) = (resolve(from, &self.relations)?, resolve(to, &self.relations)?);
        let (Some(from), Some(to)) = (from, to) else {
            return Err(Error::argument("align", "both matrices need row labels"));
        };
        let places = entries::places(&from, &to)?;
        super::evaluate::gather_rows(self.cells(input)?, &places)
    }

    /// Steps by a device. Where it fails, the host begins them anew.
    fn offload(&mut self, offload: &Offload) -> Result<()> {
        let start = Instant::now();
        let by_device = self.by_device(offload, start);
        if by_device.is_err() {
            self.on_devices.leave_out();
        }
        let (why, is_failure) = match by_device {
            Ok(()) => return Ok(()),
            Err(Failed::Stopped(error)) => return Err(error),
            Err(Failed::Refused(why)) => (why, false),
            Err(failed) => (failed.to_string(), true),
        };
        if is_failure {
            offload::falls::note(&self.program.text, &why);
        }
        if is_failure && self.around.gpu_must_not_fail {
            return Err(ErrorKind::Gpu(why).into());
        }
        if let Some(&last) = offload.leaves.last() {
            (self.around.measured)(last, Measured { by_host: Some(why), ..Measured::default() });
        }
        self.steps(&offload.steps)
    }

    fn by_device(&mut self, offload: &Offload, start: Instant) -> Result<(), Failed> {
        let assigned = offload::for_steps(self.program, offload, self.around.gpu_devices)?;
        let (device, cancel) = (assigned.device(), self.around.cancel);
        let (began, loaded) = (Instant::now(), device.usage().loaded());
        let mut run = offload::Run::new(device, self.program, offload, &self.values, cancel)?;
        run.all(offload)?;
        let in_order = run.in_order(&offload.leaves);
        let (budget, notes) = (&mut self.around.budget, &self.program.notes);
        let mut all_bytes = 0;
        let bring = |&slot: &Slot| {
            let found = run.result(slot)?;
            // As for whatever the host makes in blocks: in files where memory has no room.
            let bytes = found.iter().map(|found| found.bytes()).sum();
            let counted = budget.grow_cells(bytes, &notes[slot].text);
            let counted_bytes = counted.map_err(Failed::Stopped)?;
            all_bytes += counted_bytes;
            let cells = found.into_iter().map(|found| run.fetch(slot, found));
            let mut cells = cells.collect::<Result<Vec<_>, _>>()?;
            let value = match cells.pop() {
                Some(one) if cells.is_empty() => Value::Matrix(one),
                last => Value::Parts(cells.into_iter().chain(last).collect()),
            };
            Ok((slot, value, counted_bytes))
        };
        let leaves: Result<Vec<_>, Failed> = in_order.iter().map(bring).collect();
        drop(run);
        // What came before a failure is of no use.
        let leaves = leaves.inspect_err(|_| self.around.budget.shrink(all_bytes))?;
        if let Some(&last) = offload.leaves.last().filter(|_| gpu::are_several()) {
            let on_device = Some(assigned.device().ordinal());
            (self.around.measured)(last, Measured { on_device, ..Measured::default() });
        }
        self.on_devices.add(offload.device_by_rates, began.elapsed().as_secs_f64());
        if assigned.device().usage().loaded() != loaded {
            self.on_devices.leave_out();
        }
        drop(assigned);
        for (slot, value, counted_bytes) in leaves {
            self.keep_counted(slot, value, counted_bytes, start).map_err(Failed::Stopped)?;
        }
        for step in &offload.steps {
            if let Step::Release(slots) = step {
                slots.iter().for_each(|&slot| self.release(slot));
            }
        }
        Ok(())
    }

    /// Rounds of an iteration. Before the first, the value before the beginning is the beginning.
    fn iterate(&mut self, rounds: &Rounds) -> Result<()> {
        let start = Instant::now();
        let mut last = self.value(rounds.start)?.clone();
        self.bind(rounds, &last, &last);
        let mut done = 0;
        while rounds.iteration.times.is_none_or(|times| done < times) {
            self.around.cancel.check()?;
            last = match rounds.variable {
                Some(variable) if rounds.prior.is_none() && rounds.step.makes_result => {
                    self.next_alone(&rounds.step, variable, last)?
                }
                _ => {
                    let next = self.round(&rounds.step)?;
                    self.bind(rounds, &next, &last);
                    next
                }
            };
            done += 1;
            if let Some(until) = &rounds.until
                && self.round(until)?.as_cells()?.cell(0, 0) != 0.0
            {
                break;
            }
        }
        let mut counted_bytes = 0;
        for slot in [rounds.variable, rounds.prior].into_iter().flatten() {
            self.values[slot] = None;
            counted_bytes += std::mem::take(&mut self.counted[slot]);
        }
        for round in [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten() {
            if round.makes_result {
                self.release(round.result);
            }
        }
        self.keep_counted(rounds.output, last, counted_bytes, start)
    }

    /// A round of an iteration in which nobody reads a value when the next one is there: the variable alone holds
    /// it, so that a loop may write the next one over it.
    fn next_alone(&mut self, round: &Round, variable: Slot, last: Value) -> Result<Value> {
        self.values[variable] = Some(last);
        self.steps(&round.steps)?;
        self.release(variable);
        let next = self.values[round.result].take().expect("the steps of a round make its result");
        self.counted[variable] = std::mem::take(&mut self.counted[round.result]);
        self.values[variable] = Some(next.clone());
        Ok(next)
    }

    fn round(&mut self, round: &Round) -> Result<Value> {
        self.steps(&round.steps)?;
        Ok(self.value(round.result)?.clone())
    }

    /// Gives the variable its value, and the one before it.
    fn bind(&mut self, rounds: &Rounds, last: &Value, prior: &Value) {
        for (slot, value) in [(rounds.variable, last), (rounds.prior, prior)] {
            if let Some(slot) = slot {
                self.values[slot] = Some(value.clone());
            }
        }
    }
}

/// The sides m, k and n of a product of dense matrices.
fn product_sides(inputs: &[&Cells]) -> Option<[usize; 3]> {
    let is_dense = inputs.iter().all(|input| input.layout() == Layout::Dense);
    let (a, b) = (inputs[0].shape(), inputs[1].shape());
    (is_dense && a.columns == b.rows).then_some([a.rows, a.columns, b.columns])
}

fn value<'v>(program: &Program, values: &'v [Option<Value>], slot: Slot) -> Result<&'v Value> {
    values[slot].as_ref().ok_or_else(|| {
        let text = &program.notes[slot].text;
        Error::from(ErrorKind::Internal(format!("{text} is read before it is there")))
    })
}

/// A value that is one matrix.
pub(super) fn cells<'v>(
    program: &Program,
    values: &'v [Option<Value>],
    slot: Slot,
) -> Result<&'v Cells> {
    value(program, values, slot)?.as_cells()
}
