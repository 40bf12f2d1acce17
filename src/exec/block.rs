//! One block of rows: what a pass computes from it, and what it leaves for each sink.
//!
//! A block runs on one thread. What a later step of the block reads stays in cache as a value of the
//! block; what only the result wants is written straight to where it stays.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};

use super::evaluate::{self, Value, dense_of, evaluate, product_into, reduction_of};
use super::intake::Block;
use super::kernels::fused::Scratch;
use super::kernels::reduce::{self, Accumulator};
use super::kernels::{Real, dense, fused, sparse};
use super::operation::{Aggregate, Axis, Operation};
use super::program::{BlockStep, Pass, Program, Sink, Slot, Source};
use super::run::Cancel;
use crate::error::{ErrorKind, Result};
use crate::matrix::{CellBuffer, Cells, Dense, Element, Layout, Scalar, Shape, Storage};

/// What a block is made from.
pub(super) enum Input<'a> {
    /// Rows of a relation.
    Batches(&'a [RecordBatch]),
    /// Nothing but its extent: all its values are cut from whole ones.
    Range,
}

/// What a block leaves for one sink.
pub(super) enum Part {
    Cells(Cells),
    Sum64(Accumulator<f64>),
    Sum32(Accumulator<f32>),
    Fused(fused::Accumulator),
    Nothing,
}

/// Dense cells that are being written. A result whose rows are counted beforehand is written block by
/// block, each where it stays.
pub(super) enum Fresh {
    F64(CellBuffer<f64>),
    F32(CellBuffer<f32>),
}

impl Fresh {
    pub(super) fn zeroed(element: Element, cells: usize) -> Self {
        match element {
            Element::Float64 => Fresh::F64(CellBuffer::zeroed(cells)),
            Element::Float32 => Fresh::F32(CellBuffer::zeroed(cells)),
        }
    }

    /// The blocks of so many cells in a range of cells; the last may be shorter.
    pub(super) fn blocks(&mut self, cells: Range<usize>, block_cells: usize) -> Vec<Target<'_>> {
        match self {
            Fresh::F64(all) => all[cells].chunks_mut(block_cells).map(Target::F64).collect(),
            Fresh::F32(all) => all[cells].chunks_mut(block_cells).map(Target::F32).collect(),
        }
    }

    /// All of them as one block.
    fn target(&mut self) -> Target<'_> {
        match self {
            Fresh::F64(all) => Target::F64(all),
            Fresh::F32(all) => Target::F32(all),
        }
    }

    pub(super) fn frozen(self, shape: Shape) -> Cells {
        match self {
            Fresh::F64(cells) => Dense::new(shape, cells.into()).into(),
            Fresh::F32(cells) => Dense::new(shape, cells.into()).into(),
        }
    }
}

/// Where one block of a result stays.
pub(super) enum Target<'a> {
    F64(&'a mut [f64]),
    F32(&'a mut [f32]),
}

impl Target<'_> {
    fn copy_from(self, block: &Cells) {
        match self {
            Target::F64(cells) => cells.copy_from_slice(dense_of::<f64>(block).cells()),
            Target::F32(cells) => cells.copy_from_slice(dense_of::<f32>(block).cells()),
        }
    }
}

/// A computed block.
pub(super) struct Done {
    pub(super) rows: usize,
    /// Columns of the relation's cells, where there are rows to tell.
    pub(super) width: Option<usize>,
    pub(super) keys: Vec<ArrayRef>,
    pub(super) parts: Vec<Part>,
}

/// What the blocks of a pass read, on any thread.
pub(super) struct Blocks<'a> {
    pub(super) program: &'a Program,
    pub(super) values: &'a [Option<Value>],
    pub(super) cancel: &'a Cancel,
    /// For each step the sink that collects its output, where nothing else reads it.
    pub(super) collected: Vec<Option<usize>>,
}

impl Blocks<'_> {
    /// Computes one block and its part of every sink, some of them straight to where they stay.
    pub(super) fn block(
        &self,
        pass: &Pass,
        input: &Input<'_>,
        rows: Range<usize>,
        mut targets: Vec<Option<Target<'_>>>,
    ) -> Result<Done> {
        self.cancel.check()?;
        let mut local: HashMap<Slot, Cells> = HashMap::new();
        let (mut keys, mut width) = (Vec::new(), None);
        if let (Source::Relation { relation, slot }, Input::Batches(batches)) = (pass.source, input)
        {
            let intake = &self.program.intakes[relation];
            let Block { keys: of, cells } = intake.block(batches, rows.start)?;
            keys = of;
            width = (!rows.is_empty()).then_some(cells.shape().columns);
            local.insert(slot, cells);
        }
        for &slot in &pass.cut {
            let whole = self.cells(slot)?;
            let end = rows.end.min(whole.shape().rows);
            local.insert(slot, whole.rows(rows.start.min(end)..end));
        }
        for (step, &collected) in pass.steps.iter().zip(&self.collected) {
            let target = collected.and_then(|at| targets[at].take());
            if let Some(value) = self.compute(step, &local, rows.len(), target)? {
                local.insert(step.output(), value);
            }
        }
        let sinks = pass.sinks.iter().zip(targets);
        let part = |(sink, target): (&Sink, Option<Target<'_>>)| match (sink, target) {
            (Sink::Collect { from, .. }, Some(target)) => {
                target.copy_from(self.block_inputs(&[*from], &local)?[0]);
                Ok(Part::Nothing)
            }
            // Its step has written it where it stays.
            (Sink::Collect { from, .. }, None) if !local.contains_key(from) => Ok(Part::Nothing),
            _ => self.part(sink, &local, rows.len()),
        };
        let parts = sinks.map(part).collect::<Result<_>>()?;
        Ok(Done { rows: rows.len(), width, keys, parts })
    }

    /// Computes one step: into its target where it has one, else as a value of the block.
    fn compute(
        &self,
        step: &BlockStep,
        local: &HashMap<Slot, Cells>,
        rows: usize,
        target: Option<Target<'_>>,
    ) -> Result<Option<Cells>> {
        let inputs = self.step_inputs(step, local)?;
        let is_dense = inputs.iter().all(|input| input.layout() == Layout::Dense);
        let (element, columns) = match step {
            BlockStep::Fused { element, .. } => (*element, width(&inputs)),
            BlockStep::Evaluate { operation: Operation::Product, .. } if is_dense => {
                let element = inputs[0].element().common(inputs[1].element());
                (element, inputs[1].shape().columns)
            }
            BlockStep::Evaluate { operation, .. } => {
                let value = evaluate(operation, &inputs, self.cancel.stop())?.cells()?;
                let Some(target) = target else { return Ok(Some(value)) };
                target.copy_from(&value);
                return Ok(None);
            }
        };
        let Some(target) = target else {
            let mut block = Fresh::zeroed(element, rows * columns);
            write(step, &inputs, rows, block.target())?;
            return Ok(Some(block.frozen(Shape::new(rows, columns))));
        };
        write(step, &inputs, rows, target)?;
        Ok(None)
    }

    /// What a step reads: the rows of this block, else whole values.
    fn step_inputs<'v>(
        &'v self,
        step: &BlockStep,
        local: &'v HashMap<Slot, Cells>,
    ) -> Result<Vec<&'v Cells>> {
        match step {
            // Of the right operand all rows, though it may be cut for others, or for the left one.
            BlockStep::Evaluate { operation: Operation::Product, inputs, .. } => {
                let left = self.block_inputs(&inputs[..1], local)?[0];
                Ok(vec![left, self.cells(inputs[1])?])
            }
            _ => self.block_inputs(step.inputs(), local),
        }
    }

    /// Values of this block, else whole.
    fn block_inputs<'v>(
        &'v self,
        slots: &[Slot],
        local: &'v HashMap<Slot, Cells>,
    ) -> Result<Vec<&'v Cells>> {
        slots.iter().map(|slot| local.get(slot).map_or_else(|| self.cells(*slot), Ok)).collect()
    }

    fn part(&self, sink: &Sink, local: &HashMap<Slot, Cells>, rows: usize) -> Result<Part> {
        let of = |slot: Slot| self.block_inputs(&[slot], local).map(|cells| cells[0]);
        Ok(match sink {
            Sink::Collect { from, .. } | Sink::Emit { from } => Part::Cells(of(*from)?.clone()),
            Sink::Reduce { from, aggregate, axis, .. } => match of(*from)? {
                Cells::F64(block) => Part::Sum64(reduced(block, *aggregate, *axis)),
                Cells::F32(block) => Part::Sum32(reduced(block, *aggregate, *axis)),
            },
            Sink::FusedReduce { program, inputs, aggregate, element, .. } => {
                let inputs = self.block_inputs(inputs, local)?;
                let reduction = evaluate::fused_reduction(*aggregate);
                Part::Fused(match element {
                    Element::Float64 => fused_sum::<f64>(program, &inputs, rows, reduction)?,
                    Element::Float32 => fused_sum::<f32>(program, &inputs, rows, reduction)?,
                })
            }
            Sink::Gram { from, .. } => Part::Cells(match of(*from)? {
                Cells::F64(block) => gram(block).into(),
                Cells::F32(block) => gram(block).into(),
            }),
            Sink::Cross { left, right, .. } => Part::Cells(match (of(*left)?, of(*right)?) {
                (Cells::F64(x), Cells::F64(y)) => cross(x, y).into(),
                (Cells::F32(x), Cells::F32(y)) => cross(x, y).into(),
                (x, y) => {
                    let (x, y) = (evaluate::storage::<f64>(x), evaluate::storage::<f64>(y));
                    cross(&x, &y).into()
                }
            }),
            Sink::CountRows { .. } => Part::Nothing,
        })
    }

    fn cells(&self, slot: Slot) -> Result<&Cells> {
        super::run::cells(self.program, self.values, slot)
    }
}

/// Computes a loop or a product of dense cells into a block of so many rows.
fn write(step: &BlockStep, inputs: &[&Cells], rows: usize, out: Target<'_>) -> Result<()> {
    match (step, out) {
        (BlockStep::Fused { program, .. }, Target::F64(out)) => fused(program, inputs, rows, out),
        (BlockStep::Fused { program, .. }, Target::F32(out)) => fused(program, inputs, rows, out),
        (BlockStep::Evaluate { .. }, Target::F64(out)) => product_into(inputs[0], inputs[1], out)?,
        (BlockStep::Evaluate { .. }, Target::F32(out)) => product_into(inputs[0], inputs[1], out)?,
    }
    Ok(())
}

fn fused<T: Real>(program: &fused::Program, inputs: &[&Cells], rows: usize, out: &mut [T]) {
    let columns = width(inputs);
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    program.run(&views(&owned, rows, columns), rows, columns, &mut Scratch::new(), out);
}

/// Columns of the result of an elementwise loop: those of the inputs that are not stretched.
fn width(inputs: &[&Cells]) -> usize {
    inputs.iter().map(|input| input.shape().columns).find(|&columns| columns != 1).unwrap_or(1)
}

fn fused_sum<T: Real>(
    program: &fused::Program,
    inputs: &[&Cells],
    rows: usize,
    reduction: fused::Reduction,
) -> Result<fused::Accumulator> {
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    let columns = width(inputs);
    let views = views(&owned, rows, columns);
    Ok(program.reduce(&views, rows, columns, reduction, &mut Scratch::new()))
}

/// How each input is stretched over a block of this shape.
pub(super) fn views<T: Scalar>(
    inputs: &[Dense<T>],
    rows: usize,
    columns: usize,
) -> Vec<fused::Input<'_, T>> {
    inputs
        .iter()
        .map(|input| {
            let shape = input.shape();
            match (shape.rows == rows, shape.columns == columns) {
                (true, true) => fused::Input::Cells(input.cells()),
                (_, true) if shape.rows == 1 => fused::Input::Row(input.cells()),
                (true, _) => fused::Input::Column(input.cells()),
                _ => fused::Input::Scalar(input.cells()[0]),
            }
        })
        .collect()
}

fn reduced<T: Real>(
    block: &Storage<T>,
    aggregate: Aggregate,
    axis: Option<Axis>,
) -> Accumulator<T> {
    let axis = if axis.is_none() { reduce::Axis::All } else { reduce::Axis::Columns };
    let mut sum = Accumulator::new(reduction_of(aggregate), axis, block.shape().columns);
    sum.push(block);
    sum
}

/// `t(block) @ block`, its lower half; [`finish`] mirrors the sum.
fn gram<T: Real>(block: &Storage<T>) -> Dense<T> {
    let n = block.shape().columns;
    let mut sum = vec![T::ZERO; n * n];
    match block {
        Storage::Dense(block) => dense::gram_into(block, &mut sum),
        Storage::Csr(block) => sparse::cross_dense_into(block, &sparse::to_dense(block), &mut sum),
    }
    Dense::new(Shape::new(n, n), sum.into())
}

fn cross<T: Real>(x: &Storage<T>, y: &Storage<T>) -> Dense<T> {
    let shape = Shape::new(x.shape().columns, y.shape().columns);
    let mut sum = vec![T::ZERO; shape.cells()];
    let right = match y {
        Storage::Dense(y) => y.clone(),
        Storage::Csr(y) => sparse::to_dense(y),
    };
    match x {
        Storage::Dense(x) => dense::cross_into(x, &right, &mut sum),
        Storage::Csr(x) => sparse::cross_dense_into(x, &right, &mut sum),
    }
    Dense::new(shape, sum.into())
}

/// The sum of two parts of one sink, the earlier first.
pub(super) fn added(sum: Part, next: Part) -> Part {
    match (sum, next) {
        (Part::Sum64(sum), Part::Sum64(next)) => Part::Sum64(sum.merge(next)),
        (Part::Sum32(sum), Part::Sum32(next)) => Part::Sum32(sum.merge(next)),
        (Part::Fused(mut sum), Part::Fused(next)) => {
            sum.merge(&next);
            Part::Fused(sum)
        }
        (Part::Cells(sum), Part::Cells(next)) => Part::Cells(evaluate::add_dense(sum, &next)),
        (sum, _) => sum,
    }
}

pub(super) fn finish(sink: &Sink, part: Option<Part>) -> Result<Cells> {
    Ok(match (sink, part) {
        (_, Some(Part::Sum64(sum))) => sum.finish().into(),
        (_, Some(Part::Sum32(sum))) => sum.finish().into(),
        (Sink::FusedReduce { element, .. }, Some(Part::Fused(sum))) => match element {
            Element::Float64 => Dense::scalar(sum.value()).into(),
            Element::Float32 => Dense::scalar(sum.value() as f32).into(),
        },
        (Sink::Gram { .. }, Some(Part::Cells(sum))) => evaluate::mirrored(sum),
        (_, Some(Part::Cells(sum))) => sum,
        _ => return Err(ErrorKind::Internal("a pass left nothing for a sink".into()).into()),
    })
}
