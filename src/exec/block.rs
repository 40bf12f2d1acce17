//! One block of rows: what a pass computes from it, and what it leaves for each sink.
//!
//! A block is one task, of which wide products share parts with threads that have nothing to do. What a
//! later step of the block reads stays in cache as a value of the block; what only the result wants is
//! written straight to where it stays.

use std::collections::HashMap;
use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};

use super::evaluate::{self, dense_of, evaluate, evaluate_into, written};
use super::intake::Block;
use super::kernels::fused::Scratch;
use super::kernels::reduce::{self, Totals};
use super::kernels::{Real, Stop, dense, fused, sparse};
use super::program::{BlockStep, Pass, Program, Sink, Slot, Source};
use super::run::Cancel;
use super::value::Value;
use crate::error::{ErrorKind, Result};
use crate::matrix::{CellBuffer, Cells, Dense, Element, Scalar, Shape, Storage};
use crate::memory;

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
    Totals(Totals),
    /// A product over the rows so far.
    Product(Fresh, Shape),
    Nothing,
}

/// Dense cells that are being written. A result whose rows are counted beforehand is written block by
/// block, each where it stays.
pub(super) enum Fresh {
    F64(CellBuffer<f64>),
    F32(CellBuffer<f32>),
}

impl Fresh {
    /// So many cells of any value, which whoever asked for them writes all.
    pub(super) fn arbitrary(element: Element, cells: usize) -> Self {
        match element {
            Element::Float64 => Fresh::F64(CellBuffer::arbitrary(cells)),
            Element::Float32 => Fresh::F32(CellBuffer::arbitrary(cells)),
        }
    }

    /// So many zeros, to be added to.
    fn zeroed(element: Element, cells: usize) -> Self {
        match element {
            Element::Float64 => Fresh::F64(CellBuffer::zeroed(cells)),
            Element::Float32 => Fresh::F32(CellBuffer::zeroed(cells)),
        }
    }

    pub(super) fn element(&self) -> Element {
        match self {
            Fresh::F64(_) => Element::Float64,
            Fresh::F32(_) => Element::Float32,
        }
    }

    /// Blocks of so many cells, one behind another from a cell on.
    pub(super) fn blocks(&mut self, first: usize, lengths: &[usize]) -> Vec<Target<'_>> {
        fn blocks<'a, T>(mut rest: &'a mut [T], lengths: &[usize]) -> Vec<&'a mut [T]> {
            let block = |&length| rest.split_off_mut(..length).expect("cells for all blocks");
            lengths.iter().map(block).collect()
        }
        match self {
            Fresh::F64(all) => {
                blocks(&mut all[first..], lengths).into_iter().map(Target::F64).collect()
            }
            Fresh::F32(all) => {
                blocks(&mut all[first..], lengths).into_iter().map(Target::F32).collect()
            }
        }
    }

    /// Whether they are in a file.
    pub(super) fn is_on_disk(&self) -> bool {
        memory::is_on_disk(self.bytes(0..self.len()))
    }

    /// Says that nobody will want these cells soon.
    pub(super) fn done_with(&self, cells: Range<usize>) {
        memory::done_with(self.bytes(cells));
    }

    fn len(&self) -> usize {
        match self {
            Fresh::F64(all) => all.len(),
            Fresh::F32(all) => all.len(),
        }
    }

    fn bytes(&self, cells: Range<usize>) -> &[u8] {
        match self {
            Fresh::F64(all) => bytemuck::cast_slice(&all[cells]),
            Fresh::F32(all) => bytemuck::cast_slice(&all[cells]),
        }
    }

    /// All of them as one block.
    fn target(&mut self) -> Target<'_> {
        match self {
            Fresh::F64(all) => Target::F64(all),
            Fresh::F32(all) => Target::F32(all),
        }
    }

    /// Adds as many cells of the same type.
    fn add(&mut self, other: &Self) {
        fn add<T: Scalar>(sum: &mut [T], part: &[T]) {
            sum.iter_mut().zip(part).for_each(|(sum, &part)| *sum += part);
        }
        match (self, other) {
            (Fresh::F64(sum), Fresh::F64(part)) => add(sum, part),
            (Fresh::F32(sum), Fresh::F32(part)) => add(sum, part),
            _ => unreachable!("parts of one sum are of one type"),
        }
    }

    /// The memory of a matrix of this extent, of which this is the last reader; else the matrix.
    pub(super) fn thawed(cells: Cells, shape: Shape, element: Element) -> Result<Self, Cells> {
        fn thawed<T: Scalar>(x: Dense<T>, of: fn(CellBuffer<T>) -> Fresh) -> Result<Fresh, Cells> {
            let shape = x.shape();
            let stays = |cells| Cells::from(Dense::new(shape, cells));
            CellBuffer::thawed(x.into_buffer()).map(of).map_err(stays)
        }
        match cells {
            cells if (cells.shape(), cells.element()) != (shape, element) => Err(cells),
            Cells::F64(Storage::Dense(x)) => thawed(x, Fresh::F64),
            Cells::F32(Storage::Dense(x)) => thawed(x, Fresh::F32),
            sparse => Err(sparse),
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
    pub(super) fn copy_from(self, block: &Cells) {
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
    /// For each step what nobody reads after it.
    pub(super) over: Vec<Vec<Slot>>,
    /// Whole values whose memory already is that of a result; what is not overwritten yet is still theirs.
    pub(super) overwritten: Vec<Slot>,
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
        for &slot in pass.cut.iter().filter(|slot| !self.overwritten.contains(slot)) {
            let whole = self.cells(slot)?;
            let end = rows.end.min(whole.shape().rows);
            local.insert(slot, whole.rows(rows.start.min(end)..end));
        }
        for ((step, &collected), over) in pass.steps.iter().zip(&self.collected).zip(&self.over) {
            let target = collected.and_then(|at| targets[at].take());
            let value = self.compute(step, &local, rows.len(), target);
            let place = self.program.notes[step.output()].place;
            if let Some(value) = value.map_err(|error| error.of_block().at(place))? {
                local.insert(step.output(), value);
            }
            // The next step writes where this one has read, which is still in cache.
            over.iter().for_each(|slot| drop(local.remove(slot)));
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
        // A product that was stopped on the way has left numbers that mean nothing.
        self.cancel.check()?;
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
        if let BlockStep::Fused { program, inputs, .. } = step
            && inputs.iter().any(|slot| self.overwritten.contains(slot))
        {
            let place = target.expect("what is overwritten has the place of the result");
            self.overwrite(program, inputs, local, rows, place)?;
            return Ok(None);
        }
        let inputs = self.step_inputs(step, local)?;
        let (element, columns) = match step {
            BlockStep::Fused { element, .. } => (*element, width(&inputs)),
            BlockStep::Evaluate { operation, .. } => match written(operation, &inputs) {
                Some(known) => known,
                None => {
                    let value = evaluate(operation, &inputs, self.cancel.stop())?.cells()?;
                    let Some(target) = target else { return Ok(Some(value)) };
                    target.copy_from(&value);
                    return Ok(None);
                }
            },
        };
        let Some(target) = target else {
            let mut block = Fresh::arbitrary(element, rows * columns);
            write(step, &inputs, rows, block.target(), self.cancel.stop())?;
            return Ok(Some(block.frozen(Shape::new(rows, columns))));
        };
        write(step, &inputs, rows, target, self.cancel.stop())?;
        Ok(None)
    }

    /// Computes a loop over the rows of a block that its result is written over.
    fn overwrite(
        &self,
        program: &fused::Program,
        inputs: &[Slot],
        local: &HashMap<Slot, Cells>,
        rows: usize,
        place: Target<'_>,
    ) -> Result<()> {
        let beside = inputs.iter().map(|slot| {
            if self.overwritten.contains(slot) {
                return Ok(None);
            }
            self.block_inputs(&[*slot], local).map(|cells| Some(cells[0]))
        });
        let beside: Vec<Option<&Cells>> = beside.collect::<Result<_>>()?;
        match place {
            Target::F64(place) => overwrite(program, &beside, rows, place),
            Target::F32(place) => overwrite(program, &beside, rows, place),
        }
        Ok(())
    }

    /// What a step reads: the rows of this block, else whole values.
    fn step_inputs<'v>(
        &'v self,
        step: &BlockStep,
        local: &'v HashMap<Slot, Cells>,
    ) -> Result<Vec<&'v Cells>> {
        let BlockStep::Evaluate { operation, inputs, .. } = step else {
            return self.block_inputs(step.inputs(), local);
        };
        let input = |(at, &slot): (usize, &Slot)| {
            // Of a right operand all rows, though it may be cut for others, or for the left one.
            if operation.reads_whole(at) {
                return self.cells(slot);
            }
            local.get(&slot).map_or_else(|| self.cells(slot), Ok)
        };
        inputs.iter().enumerate().map(input).collect()
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
            Sink::Reduce { inputs, element, .. } => {
                let inputs = self.block_inputs(inputs, local)?;
                Part::Totals(match element {
                    Element::Float64 => totals::<f64>(sink, &inputs, rows),
                    Element::Float32 => totals::<f32>(sink, &inputs, rows),
                })
            }
            Sink::Cross { left, right, .. } | Sink::HalfCross { left, right, .. } => {
                let (x, y) = (of(*left)?, of(*right)?);
                let is_half = matches!(sink, Sink::HalfCross { .. });
                let shape = Shape::new(x.shape().columns, y.shape().columns);
                let mut sum = Fresh::zeroed(x.element().common(y.element()), shape.cells());
                match sum.target() {
                    Target::F64(sum) => cross::<f64>(x, y, is_half, sum, self.cancel.stop()),
                    Target::F32(sum) => cross::<f32>(x, y, is_half, sum, self.cancel.stop()),
                }
                Part::Product(sum, shape)
            }
            Sink::CountRows { .. } => Part::Nothing,
        })
    }

    fn cells(&self, slot: Slot) -> Result<&Cells> {
        super::run::cells(self.program, self.values, slot)
    }
}

/// Computes a loop or an operation on dense cells into a block of so many rows.
fn write(
    step: &BlockStep,
    inputs: &[&Cells],
    rows: usize,
    out: Target<'_>,
    stop: Stop<'_>,
) -> Result<()> {
    match (step, out) {
        (BlockStep::Fused { program, .. }, Target::F64(out)) => fused(program, inputs, rows, out),
        (BlockStep::Fused { program, .. }, Target::F32(out)) => fused(program, inputs, rows, out),
        (BlockStep::Evaluate { operation, .. }, Target::F64(out)) => {
            evaluate_into(operation, inputs, out, stop)?
        }
        (BlockStep::Evaluate { operation, .. }, Target::F32(out)) => {
            evaluate_into(operation, inputs, out, stop)?
        }
    }
    Ok(())
}

fn fused<T: Real>(program: &fused::Program, inputs: &[&Cells], rows: usize, out: &mut [T]) {
    let columns = width(inputs);
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    program.run(&views(&owned, rows, columns), rows, columns, &mut Scratch::new(), out);
}

/// The same over cells that are there already, which stand for the inputs that are none.
fn overwrite<T: Real>(
    program: &fused::Program,
    inputs: &[Option<&Cells>],
    rows: usize,
    place: &mut [T],
) {
    let columns = place.len() / rows.max(1);
    let owned: Vec<Option<Dense<T>>> =
        inputs.iter().map(|cells| cells.map(dense_of::<T>)).collect();
    let views: Vec<fused::Input<'_, T>> = owned
        .iter()
        .map(|input| input.as_ref().map_or(fused::Input::Place, |x| view(x, rows, columns)))
        .collect();
    program.run(&views, rows, columns, &mut Scratch::new(), place);
}

/// Columns of the result of an elementwise loop: those of the inputs that are not stretched.
fn width(inputs: &[&Cells]) -> usize {
    inputs.iter().map(|input| input.shape().columns).find(|&columns| columns != 1).unwrap_or(1)
}

fn totals<T: Real>(sink: &Sink, inputs: &[&Cells], rows: usize) -> Totals {
    let Sink::Reduce { program, reduction, axis, .. } = sink else {
        unreachable!("totals are of a reduction")
    };
    let axis = if axis.is_none() { reduce::Axis::All } else { reduce::Axis::Columns };
    let columns = width(inputs);
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    let views = views(&owned, rows, columns);
    Totals::of(*reduction, axis, program, &views, (rows, columns))
}

/// How each input is stretched over a block of this shape.
pub(super) fn views<T: Scalar>(
    inputs: &[Dense<T>],
    rows: usize,
    columns: usize,
) -> Vec<fused::Input<'_, T>> {
    inputs.iter().map(|input| view(input, rows, columns)).collect()
}

fn view<T: Scalar>(input: &Dense<T>, rows: usize, columns: usize) -> fused::Input<'_, T> {
    let shape = input.shape();
    match (shape.rows == rows, shape.columns == columns) {
        (true, true) => fused::Input::Cells(input.cells()),
        (_, true) if shape.rows == 1 => fused::Input::Row(input.cells()),
        (true, _) => fused::Input::Column(input.cells()),
        _ => fused::Input::Scalar(input.cells()[0]),
    }
}

/// Adds `t(x) @ y`; where half of it is enough at least the lower one, and [`finish`] mirrors the sum.
fn cross<T: Real>(x: &Cells, y: &Cells, is_half: bool, sum: &mut [T], stop: Stop<'_>) {
    let right = dense_of::<T>(y);
    match evaluate::storage::<T>(x) {
        Storage::Dense(x) if is_half => dense::half_cross_into(&x, &right, sum, stop),
        Storage::Dense(x) => dense::cross_into(&x, &right, sum, stop),
        Storage::Csr(x) => sparse::cross_dense_into(&x, &right, sum),
    }
}

/// The sum of two parts of one sink, the earlier first.
pub(super) fn added(sum: Part, next: Part) -> Part {
    match (sum, next) {
        (Part::Totals(sum), Part::Totals(next)) => Part::Totals(sum.merge(&next)),
        (Part::Product(mut sum, shape), Part::Product(next, _)) => {
            sum.add(&next);
            Part::Product(sum, shape)
        }
        (sum, _) => sum,
    }
}

pub(super) fn finish(sink: &Sink, part: Option<Part>) -> Result<Cells> {
    Ok(match (sink, part) {
        (Sink::Reduce { element, .. }, Some(Part::Totals(totals))) => match element {
            Element::Float64 => totals.finish::<f64>().into(),
            Element::Float32 => totals.finish::<f32>().into(),
        },
        (Sink::HalfCross { .. }, Some(Part::Product(mut sum, shape))) => {
            match sum.target() {
                Target::F64(sum) => dense::mirror(sum, shape.rows),
                Target::F32(sum) => dense::mirror(sum, shape.rows),
            }
            sum.frozen(shape)
        }
        (_, Some(Part::Product(sum, shape))) => sum.frozen(shape),
        _ => return Err(ErrorKind::Internal("a pass left nothing for a sink".into()).into()),
    })
}
