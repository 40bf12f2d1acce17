//! One reading of rows: blocks in, and what every reader of those rows needs out.
//!
//! Rows come in blocks of a size that depends on the shape alone. Blocks are computed in parallel, a
//! window at a time, and their parts are added up in the order of the rows: the same bits for any number
//! of threads. While one window is computed, the next is read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::row::{RowConverter, SortField};
use rayon::prelude::*;

use super::evaluate::{self, Value, dense_of, evaluate_block, reduction_of};
use super::intake::{Block, Intake};
use super::kernels::fused::Scratch;
use super::kernels::reduce::{self, Accumulator};
use super::kernels::{Real, dense, fused, sparse};
use super::operation::{Aggregate, Axis};
use super::program::{BlockStep, Pass, Program, Sink, Slot, Source};
use super::run::{Cancel, Rows, Run};
use crate::error::{ErrorKind, Result};
use crate::matrix::{Cells, Dense, Element, Labels, Nulls, Scalar, Shape, Storage};

/// Cells of the widest row value in one block, about: 2 MiB of `f64`, within a core's share of cache.
const BLOCK_CELLS: usize = 1 << 18;
/// Rows in a block at least, so that a product's packing of its right operand is paid for.
const BLOCK_ROWS_MIN: usize = 256;
const BLOCK_ROWS_MAX: usize = 1 << 16;
/// Blocks in a window for each thread.
const WINDOW_BLOCKS: usize = 4;

/// A block of rows on its way to be computed.
enum Input {
    /// Rows of a relation.
    Batches(Vec<RecordBatch>),
    /// Nothing but its extent: all its values are cut from whole ones.
    Range,
}

/// What a block leaves for one sink.
enum Part {
    Cells(Cells),
    Sum64(Accumulator<f64>),
    Sum32(Accumulator<f32>),
    Fused(fused::Accumulator),
    Nothing,
}

/// A computed block.
struct Done {
    rows: usize,
    keys: Vec<ArrayRef>,
    parts: Vec<Part>,
}

/// What the sinks have so far.
struct Sums {
    parts: Vec<Option<Part>>,
    collected: Vec<Vec<Cells>>,
    keys: Vec<Vec<ArrayRef>>,
    unique: Option<UniqueKeys>,
    rows: usize,
}

impl Run<'_> {
    /// Runs a pass.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<()> {
        let start = Instant::now();
        let block_rows = self.around.tile_rows.unwrap_or_else(|| {
            (BLOCK_CELLS / pass.row_cells.max(1)).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS_MAX)
        });
        let mut sums = Sums {
            parts: pass.sinks.iter().map(|_| None).collect(),
            collected: vec![Vec::new(); pass.sinks.len()],
            keys: Vec::new(),
            unique: None,
            rows: 0,
        };
        match pass.source {
            Source::Relation { relation, .. } => {
                self.over_relation(pass, relation, block_rows, &mut sums)?;
            }
            Source::Cut => self.over_whole(pass, block_rows, &mut sums)?,
        }
        for (at, sink) in pass.sinks.iter().enumerate() {
            let Some(to) = sink.output() else { continue };
            let value = match sink {
                Sink::Collect { .. } => {
                    let parts = std::mem::take(&mut sums.collected[at]);
                    self.around.pool.install(|| evaluate::stack_rows(parts))?
                }
                Sink::CountRows { .. } => Dense::scalar(sums.rows as f64).into(),
                _ => finish(sink, sums.parts[at].take())?,
            };
            self.keep(to, value.into(), start)?;
        }
        Ok(())
    }

    /// Blocks cut from whole values.
    fn over_whole(&mut self, pass: &Pass, block_rows: usize, sums: &mut Sums) -> Result<()> {
        let rows = match pass.cut.first() {
            Some(&slot) => self.cells(slot)?.shape().rows,
            None => 0,
        };
        self.same_rows(pass, rows)?;
        let window = WINDOW_BLOCKS * self.around.pool.current_num_threads() * block_rows;
        let mut first = 0;
        loop {
            self.around.cancel.check()?;
            let end = rows.min(first + window);
            let starts: Vec<usize> = (first..end.max(first + 1)).step_by(block_rows).collect();
            let run = self.blocks();
            let done: Vec<Done> = self.around.pool.install(|| {
                starts
                    .par_iter()
                    .map(|&start| {
                        run.block(pass, &Input::Range, start, block_rows.min(rows - start))
                    })
                    .collect::<Result<_>>()
            })?;
            for block in done {
                self.absorb(pass, block, sums)?;
            }
            first = end;
            if first >= rows {
                return Ok(());
            }
        }
    }

    /// Blocks of a relation's rows; each window is computed while the next is read.
    fn over_relation(
        &mut self,
        pass: &Pass,
        relation: usize,
        block_rows: usize,
        sums: &mut Sums,
    ) -> Result<()> {
        let intake = &self.program.intakes[relation];
        if intake.row_keys > 0 {
            sums.unique = Some(UniqueKeys::default());
        }
        let mut source = std::mem::replace(&mut self.inputs[relation].rows, Box::new(Spent));
        let mut reader = Reader { intake, rows: source.as_mut(), rest: None };
        let blocks = WINDOW_BLOCKS * self.around.pool.current_num_threads();
        let cancel = self.around.cancel;
        let mut window = reader.window(blocks, block_rows, cancel)?;
        let mut first = 0;
        // No rows at all are still one block: sums over nothing have a shape.
        let mut is_first = true;
        while is_first || !window.is_empty() {
            cancel.check()?;
            is_first = false;
            let mut starts = Vec::with_capacity(window.len().max(1));
            let inputs: Vec<Input> = if window.is_empty() {
                vec![Input::Batches(vec![])]
            } else {
                window.into_iter().map(Input::Batches).collect()
            };
            for input in &inputs {
                let rows = match input {
                    Input::Batches(batches) => batches.iter().map(RecordBatch::num_rows).sum(),
                    Input::Range => 0,
                };
                starts.push((first, rows));
                first += rows;
            }
            let run = self.blocks();
            let mut computed = None;
            let mut next = Ok(Vec::new());
            self.around.pool.in_place_scope(|scope| {
                scope.spawn(|_| {
                    let blocks = inputs.par_iter().zip(&starts);
                    let done =
                        blocks.map(|(input, &(start, rows))| run.block(pass, input, start, rows));
                    computed = Some(done.collect::<Result<Vec<Done>>>());
                });
                next = reader.window(blocks, block_rows, cancel);
            });
            for block in computed.expect("the scope has ended")? {
                self.absorb(pass, block, sums)?;
            }
            window = next?;
        }
        self.same_rows(pass, sums.rows)?;
        let keys = std::mem::take(&mut sums.keys);
        if !keys.is_empty() {
            let blocks: Vec<Labels> =
                keys.into_iter().filter_map(|keys| intake.labels(0, keys)).collect();
            self.relations[relation].rows = Some(Labels::concat(&blocks)?);
        }
        Ok(())
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { program: self.program, values: &self.values, cancel: self.around.cancel }
    }

    /// Whole values that are cut by rows must have as many as there are.
    fn same_rows(&self, pass: &Pass, rows: usize) -> Result<()> {
        for &slot in &pass.cut {
            let shape = self.cells(slot)?.shape();
            if shape.rows != rows {
                let operation = self.program.notes[slot].text.clone();
                let (needs, left) = ("equally many rows", Shape::new(rows, Shape::UNKNOWN));
                return Err(ErrorKind::Shapes { operation, needs, left, right: shape }.into());
            }
        }
        Ok(())
    }

    /// Adds a block's parts to what the sinks have; blocks come in the order of the rows.
    fn absorb(&mut self, pass: &Pass, block: Done, sums: &mut Sums) -> Result<()> {
        if let Some(unique) = &mut sums.unique {
            unique.check(&block.keys)?;
        }
        let program = self.program;
        for (at, (sink, part)) in pass.sinks.iter().zip(block.parts).enumerate() {
            match (sink, part) {
                (Sink::Emit { .. }, Part::Cells(cells)) => {
                    let labels = match pass.source {
                        Source::Relation { relation, .. } => {
                            program.intakes[relation].labels(0, block.keys.clone())
                        }
                        Source::Cut => None,
                    };
                    (self.around.emit)(&cells, labels.as_ref(), sums.rows)?;
                }
                (Sink::Collect { .. }, Part::Cells(cells)) => sums.collected[at].push(cells),
                (_, part) => {
                    let sum = sums.parts[at].take();
                    sums.parts[at] = Some(match sum {
                        None => part,
                        Some(sum) => added(sum, part),
                    });
                }
            }
        }
        let emits = pass.sinks.iter().any(|sink| matches!(sink, Sink::Emit { .. }));
        if !block.keys.is_empty() && !emits {
            sums.keys.push(block.keys);
        }
        sums.rows += block.rows;
        Ok(())
    }
}

/// What the blocks of a pass read, on any thread.
struct Blocks<'a> {
    program: &'a Program,
    values: &'a [Option<Value>],
    cancel: &'a Cancel,
}

impl Blocks<'_> {
    /// Computes one block and its part of every sink.
    fn block(&self, pass: &Pass, input: &Input, start: usize, rows: usize) -> Result<Done> {
        self.cancel.check()?;
        let mut local: HashMap<Slot, Cells> = HashMap::new();
        let mut keys = Vec::new();
        if let (Source::Relation { relation, slot }, Input::Batches(batches)) = (pass.source, input)
        {
            let Block { keys: of, cells } = self.program.intakes[relation].block(batches, start)?;
            keys = of;
            local.insert(slot, cells);
        }
        for &slot in &pass.cut {
            let whole = self.cells(slot)?;
            let end = (start + rows).min(whole.shape().rows);
            local.insert(slot, whole.rows(start.min(end)..end));
        }
        for step in &pass.steps {
            let value = match step {
                BlockStep::Fused { program, inputs, element, .. } => {
                    let inputs = self.block_inputs(inputs, &local)?;
                    match element {
                        Element::Float64 => fused_block::<f64>(program, &inputs, rows)?,
                        Element::Float32 => fused_block::<f32>(program, &inputs, rows)?,
                    }
                }
                BlockStep::Evaluate { operation, inputs, .. } => {
                    evaluate_block(operation, &self.block_inputs(inputs, &local)?)?
                }
            };
            local.insert(step.output(), value);
        }
        let parts =
            pass.sinks.iter().map(|sink| self.part(sink, &local, rows)).collect::<Result<_>>()?;
        Ok(Done { rows, keys, parts })
    }

    /// The values that a block computation reads: of this block, else whole.
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

/// A relation that has been read.
struct Spent;

impl Rows for Spent {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(None)
    }
}

/// Cuts a relation's batches into blocks of equally many rows.
struct Reader<'a> {
    intake: &'a Intake,
    rows: &'a mut dyn Rows,
    rest: Option<RecordBatch>,
}

impl Reader<'_> {
    /// Up to so many blocks; none at the end.
    fn window(
        &mut self,
        blocks: usize,
        block_rows: usize,
        cancel: &Cancel,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let mut window = Vec::with_capacity(blocks);
        while window.len() < blocks {
            cancel.check()?;
            let block = self.block(block_rows)?;
            if block.is_empty() {
                break;
            }
            window.push(block);
        }
        Ok(window)
    }

    fn block(&mut self, block_rows: usize) -> Result<Vec<RecordBatch>> {
        let (mut block, mut missing) = (Vec::new(), block_rows);
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(rest) => rest,
                None => match self.rows.next()? {
                    Some(batch) if self.intake.nulls == Nulls::Drop => {
                        self.intake.without_nulls(&batch)?
                    }
                    Some(batch) => batch,
                    None => break,
                },
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let take = missing.min(batch.num_rows());
            if take < batch.num_rows() {
                self.rest = Some(batch.slice(take, batch.num_rows() - take));
            }
            missing -= take;
            block.push(batch.slice(0, take));
        }
        Ok(block)
    }
}

/// Row keys seen so far.
#[derive(Default)]
struct UniqueKeys {
    converter: Option<RowConverter>,
    seen: HashSet<Box<[u8]>>,
}

impl UniqueKeys {
    /// # Errors
    /// The first key that has been there before.
    fn check(&mut self, keys: &[ArrayRef]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none => {
                let fields = keys.iter().map(|key| SortField::new(key.data_type().clone()));
                none.insert(RowConverter::new(fields.collect())?)
            }
        };
        let rows = converter.convert_columns(keys)?;
        for (at, row) in rows.iter().enumerate() {
            if !self.seen.insert(row.data().into()) {
                let fields = keys.iter().map(|key| (String::new(), Arc::clone(key))).collect();
                let key = format!("'{}'", Labels::new(fields).text(at));
                return Err(ErrorKind::Duplicate {
                    what: "row",
                    key,
                    hint: "; ROWS BY needs a unique key",
                }
                .into());
            }
        }
        Ok(())
    }
}

fn fused_block<T: Real>(program: &fused::Program, inputs: &[&Cells], rows: usize) -> Result<Cells> {
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    let columns = owned.iter().map(|input| input.shape().columns).max().unwrap_or(1);
    let mut out = vec![T::ZERO; rows * columns];
    program.run(&views(&owned, rows, columns), rows, columns, &mut Scratch::new(), &mut out);
    Ok(Dense::new(Shape::new(rows, columns), out.into()).into())
}

fn fused_sum<T: Real>(
    program: &fused::Program,
    inputs: &[&Cells],
    rows: usize,
    reduction: fused::Reduction,
) -> Result<fused::Accumulator> {
    let owned: Vec<Dense<T>> = inputs.iter().map(|cells| dense_of::<T>(cells)).collect();
    let columns = owned.iter().map(|input| input.shape().columns).max().unwrap_or(1);
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
fn added(sum: Part, next: Part) -> Part {
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

fn finish(sink: &Sink, part: Option<Part>) -> Result<Cells> {
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
