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
use super::evaluate::{Value, evaluate, multiply};
use super::footprint;
use super::kernels::Stop;
use super::labels::{AxisLabels, RelationLabels, resolve};
use super::operation::Operation;
use super::program::{Program, Round, Rounds, Slot, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Cells, Labels, Layout, Matrix};

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
}

/// A program in the middle of running.
pub(super) struct Run<'a> {
    pub(super) program: &'a Program,
    pub(super) around: Surroundings<'a>,
    /// For each relation its rows, then the labels given for its rows and columns.
    pub(super) inputs: Vec<Inputs>,
    pub(super) values: Vec<Option<Value>>,
    pub(super) relations: Vec<RelationLabels>,
}

/// The inputs of one relation.
pub(crate) struct Inputs {
    /// In parts that follow one another.
    pub(crate) rows: Vec<Box<dyn Rows>>,
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
        relations: vec![RelationLabels::default(); inputs.len()],
        inputs,
        values: (0..program.slots).map(|_| None).collect(),
    };
    run.steps(&program.steps)?;
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
            Step::Evaluate { operation, inputs, output } => {
                let run = |inputs: &[&Cells], stop: Stop<'_>| evaluate(operation, inputs, stop);
                self.evaluate(inputs, *output, |inputs| footprint::bytes(operation, inputs), run)?;
            }
            Step::Multiply { rates, inputs, output } => {
                let levels =
                    |sides: Option<[usize; 3]>| sides.map_or(0, |sides| rates.levels(sides));
                let bytes = |inputs: &[&Cells]| match product_sides(inputs) {
                    Some(sides) => {
                        let cell_bytes = rates.cell_bytes as usize;
                        footprint::product_bytes(sides, rates.levels(sides), cell_bytes)
                    }
                    None => footprint::bytes(&Operation::Product, inputs),
                };
                let run = |inputs: &[&Cells], stop: Stop<'_>| {
                    multiply(inputs, levels(product_sides(inputs)), stop)
                };
                self.evaluate(inputs, *output, bytes, run)?;
            }
            Step::Align { from, to, input, output } => {
                let cells = self.align(from, to, *input)?;
                self.keep(*output, cells.into(), start)?;
            }
            Step::Part { of, at, output } => {
                let part = self.value(*of)?.part(*at).clone();
                self.keep(*output, part.into(), start)?;
            }
            Step::Pass(pass) => self.pass(pass)?,
            Step::Iterate(rounds) => self.iterate(rounds)?,
            Step::Release(slots) => {
                for &slot in slots {
                    self.release(slot);
                }
            }
        }
        Ok(())
    }

    /// Computes a value from whole ones, the bytes it will take counted before.
    fn evaluate(
        &mut self,
        inputs: &[Slot],
        output: Slot,
        bytes: impl Fn(&[&Cells]) -> usize,
        run: impl Fn(&[&Cells], Stop<'_>) -> Result<Value> + Sync,
    ) -> Result<()> {
        let start = Instant::now();
        let inputs: Vec<&Cells> = inputs
            .iter()
            .map(|&slot| cells(self.program, &self.values, slot))
            .collect::<Result<_>>()?;
        let expected_bytes = bytes(&inputs);
        self.around.budget.grow(expected_bytes, &self.program.notes[output].text)?;
        let cancel = self.around.cancel;
        let value = self.around.pool.install(|| run(&inputs, cancel.stop()));
        // First this: a kernel that was stopped may also have failed.
        cancel.check()?;
        self.keep_counted(output, value?, expected_bytes, start)
    }

    /// Stores a value and counts its bytes.
    pub(super) fn keep(&mut self, slot: Slot, value: Value, start: Instant) -> Result<()> {
        self.keep_counted(slot, value, 0, start)
    }

    /// Stores a value for which so many bytes were counted before it was made.
    pub(super) fn keep_counted(
        &mut self,
        slot: Slot,
        value: Value,
        counted_bytes: usize,
        start: Instant,
    ) -> Result<()> {
        let bytes = value.size_bytes();
        self.release(slot);
        if bytes > counted_bytes {
            self.around.budget.grow(bytes - counted_bytes, &self.program.notes[slot].text)?;
        } else {
            self.around.budget.shrink(counted_bytes - bytes);
        }
        let (shape, stored) = value.extent();
        let seconds = start.elapsed().as_secs_f64();
        (self.around.measured)(slot, Measured { shape, stored, bytes, seconds });
        self.values[slot] = Some(value);
        Ok(())
    }

    fn release(&mut self, slot: Slot) {
        if let Some(value) = self.values[slot].take() {
            self.around.budget.shrink(value.size_bytes());
        }
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

    /// Rounds of an iteration. Before the first, the value before the beginning is the beginning.
    fn iterate(&mut self, rounds: &Rounds) -> Result<()> {
        let start = Instant::now();
        let mut last = self.value(rounds.start)?.clone();
        self.bind(rounds, &last, &last);
        let (mut done, mut held_bytes) = (0, 0);
        while rounds.iteration.times.is_none_or(|times| done < times) {
            self.around.cancel.check()?;
            last = match rounds.variable {
                Some(variable) if rounds.prior.is_none() && rounds.step.makes_result => {
                    self.next_alone(&rounds.step, variable, last, &mut held_bytes)?
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
        for slot in [rounds.variable, rounds.prior].into_iter().flatten() {
            self.values[slot] = None;
        }
        for round in [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten() {
            if round.makes_result {
                self.release(round.result);
            }
        }
        self.around.budget.shrink(held_bytes);
        self.keep(rounds.output, last, start)
    }

    /// A round of an iteration in which nobody reads a value when the next one is there: the variable alone holds
    /// it, so that a loop may write the next one over it. Beyond the beginning, `held_bytes` are counted for it.
    fn next_alone(
        &mut self,
        round: &Round,
        variable: Slot,
        last: Value,
        held_bytes: &mut usize,
    ) -> Result<Value> {
        self.values[variable] = Some(last);
        self.steps(&round.steps)?;
        if self.values[variable].take().is_some() {
            self.around.budget.shrink(*held_bytes);
        }
        let next = self.values[round.result].take().expect("the steps of a round make its result");
        *held_bytes = next.size_bytes();
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
