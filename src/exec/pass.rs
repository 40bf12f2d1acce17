//! One reading of rows: blocks in, and what every reader of those rows needs out.
//!
//! Rows come in blocks of a size that depends on the shape alone. Blocks are computed in parallel, a
//! window at a time, and their parts are added up in the order of the rows: the same bits for any number
//! of threads. While one window is computed, the next is read.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::{Array, ArrayRef};
use rayon::prelude::*;

use super::block::{Blocks, Done, Fresh, Input, Part, Target, added, finish};
use super::evaluate;
use super::labels::resolve;
use super::operation::Operation;
use super::program::{BlockStep, Pass, Sink, Slot, Source};
use super::reader::{InSequence, Reader, RowBlock, UniqueKeys};
use super::run::Run;
use super::value::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Cells, Dense, Element, Layout, Shape};
use crate::memory;

/// Cells of the widest row value in one block, about: 2 MiB of `f64`, within a core's share of cache.
const BLOCK_CELLS: usize = 1 << 18;
/// Rows in a block at least, so that a product's packing of its right operand is paid for.
const BLOCK_ROWS_MIN: usize = 256;
/// The same where rows are images, whose convolutions pack the filters for each of them anyway.
const BLOCK_IMAGES_MIN: usize = 1;
/// Blocks in a window for each thread.
const WINDOW_BLOCKS: usize = 4;
/// The same where a block leaves next to nothing but what it writes where it stays: threads wait for one
/// another at the end of a window, and of such blocks many may be under way.
const LONG_WINDOW_BLOCKS: usize = 64;
/// Windows that memory has room for, or else one has one block for each thread.
const TIGHT_WINDOWS: usize = 8;

/// Whether memory has too little room for windows of several blocks of so many rows for each thread.
fn is_tight(pass: &Pass, block_rows: usize, threads: usize) -> bool {
    let block_bytes = pass.row_cells.saturating_mul(block_rows).saturating_mul(size_of::<f64>());
    !memory::has_room(block_bytes.saturating_mul(WINDOW_BLOCKS * threads * TIGHT_WINDOWS))
}

/// What the sinks have so far.
struct Sums {
    parts: Vec<Option<Part>>,
    /// For each sink that collects rows: the blocks so far that are in no whole, with the bytes counted for each.
    collected: Vec<Vec<(Cells, usize)>>,
    /// For each sink that collects a known number of rows: all of them.
    wholes: Vec<Option<Whole>>,
    keys: UniqueKeys,
    /// Bytes counted for those that are in memory.
    key_bytes: usize,
    rows: usize,
    /// Columns of the relation, once a row has told.
    width: Option<usize>,
}

/// Memory for all rows that will come.
struct Whole {
    cells: Fresh,
    counted_bytes: usize,
    shape: Shape,
    /// How many rows are there: the first ones.
    rows: usize,
}

impl Sums {
    fn new(pass: &Pass) -> Self {
        Self {
            parts: pass.sinks.iter().map(|_| None).collect(),
            collected: vec![Vec::new(); pass.sinks.len()],
            wholes: pass.sinks.iter().map(|_| None).collect(),
            keys: UniqueKeys::default(),
            key_bytes: 0,
            rows: 0,
            width: None,
        }
    }

    /// Takes what the sinks have of the rows that follow.
    ///
    /// # Errors
    /// Lists of another length than those before.
    fn append(&mut self, next: Self) -> Result<()> {
        self.same_width(next.width)?;
        for (sum, next) in self.parts.iter_mut().zip(next.parts) {
            *sum = match (sum.take(), next) {
                (Some(sum), Some(next)) => Some(added(sum, next)),
                (sum, next) => sum.or(next),
            };
        }
        for (collected, next) in self.collected.iter_mut().zip(next.collected) {
            collected.extend(next);
        }
        self.keys.append(next.keys);
        self.key_bytes += next.key_bytes;
        self.rows += next.rows;
        Ok(())
    }

    /// Lists are equally long from block to block, too.
    fn same_width(&mut self, width: Option<usize>) -> Result<()> {
        match (self.width, width) {
            (Some(expected), Some(found)) if expected != found => {
                Err(ErrorKind::RaggedList { row: self.rows + 1, expected, found }.into())
            }
            (known, next) => {
                self.width = known.or(next);
                Ok(())
            }
        }
    }
}

/// Whether the rows of a pass are images.
fn reads_images(pass: &Pass) -> bool {
    pass.steps.iter().any(|step| {
        let BlockStep::Evaluate { operation, .. } = step else { return false };
        matches!(operation, Operation::Convolve(_) | Operation::Pool(..))
    })
}

/// Whether what blocks leave until their window ends is a number at most.
fn leaves_little(pass: &Pass) -> bool {
    pass.sinks.iter().all(|sink| match sink {
        Sink::Collect { columns, .. } => columns.is_some(),
        Sink::Reduce { axis, .. } => axis.is_none(),
        Sink::CountRows { .. } => true,
        Sink::Cross { .. } | Sink::HalfCross { .. } | Sink::Emit { .. } => false,
    })
}

/// A pass that is one product and nothing else: of factors in files it is made by tiles, and not row by row, which
/// would read the right one for every few rows of the left one.
fn lone_product(pass: &Pass) -> Option<(&Operation, &[Slot], Slot)> {
    match (&pass.source, pass.steps.as_slice(), pass.sinks.as_slice()) {
        (
            Source::Cut,
            [BlockStep::Evaluate { operation, inputs, output }],
            [Sink::Collect { to, from, .. }],
        ) if from == output && matches!(operation, Operation::Product | Operation::Outer) => {
            Some((operation, inputs, *to))
        }
        _ => None,
    }
}

impl Run<'_> {
    /// Runs a pass.
    pub(super) fn pass(&mut self, pass: &Pass) -> Result<()> {
        let start = Instant::now();
        if let Some((operation, inputs, to)) = lone_product(pass)
            && inputs.iter().any(|slot| self.cells(*slot).is_ok_and(Cells::is_on_disk))
        {
            return self.evaluate_operation(operation, inputs, to);
        }
        let block_rows = self.around.tile_rows.unwrap_or_else(|| {
            let least = if reads_images(pass) { BLOCK_IMAGES_MIN } else { BLOCK_ROWS_MIN };
            (BLOCK_CELLS / pass.row_cells.max(1)).max(least)
        });
        let mut sums = Sums::new(pass);
        match pass.source {
            Source::Relation { relation, .. } => {
                sums = self.over_relation(pass, relation, block_rows)?;
            }
            Source::Cut => self.over_whole(pass, block_rows, &mut sums)?,
        }
        for (at, sink) in pass.sinks.iter().enumerate() {
            let Some(to) = sink.output() else { continue };
            let (value, counted_bytes) = match (sink, sums.wholes[at].take()) {
                (Sink::Collect { .. }, whole) => {
                    let blocks = std::mem::take(&mut sums.collected[at]);
                    self.collected(to, whole, blocks)?
                }
                (Sink::CountRows { .. }, _) => (Dense::scalar(sums.rows as f64).into(), 0),
                _ => (finish(sink, sums.parts[at].take())?, 0),
            };
            self.keep_counted(to, value.into(), counted_bytes, start)?;
        }
        Ok(())
    }

    /// All rows of a sink, with the bytes counted for them: what is in place, and the blocks that follow.
    fn collected(
        &mut self,
        to: Slot,
        whole: Option<Whole>,
        blocks: Vec<(Cells, usize)>,
    ) -> Result<(Cells, usize)> {
        let mut parts = Vec::with_capacity(blocks.len() + 1);
        let mut counted_bytes = 0;
        if let Some(whole) = whole {
            let cells = whole.cells.frozen(whole.shape);
            if blocks.is_empty() && whole.rows == whole.shape.rows {
                return Ok((cells, whole.counted_bytes));
            }
            parts.push(cells.rows(0..whole.rows));
            counted_bytes += whole.counted_bytes;
        }
        for (block, bytes) in blocks {
            parts.push(block);
            counted_bytes += bytes;
        }
        if parts.len() == 1 {
            return Ok((evaluate::stack_rows(parts)?, counted_bytes));
        }
        // The whole beside its parts, for a while.
        let bytes = parts.iter().map(Cells::size_bytes).sum();
        let text = &self.program.notes[to].text;
        let whole_bytes = self.around.budget.grow_cells(bytes, text)?;
        let stacked = self.around.pool.install(|| evaluate::stack_rows(parts))?;
        self.around.budget.shrink(counted_bytes);
        Ok((stacked, whole_bytes))
    }

    /// Blocks cut from whole values.
    fn over_whole(&mut self, pass: &Pass, block_rows: usize, sums: &mut Sums) -> Result<()> {
        let rows = match pass.cut.first() {
            Some(&slot) => self.cells(slot)?.shape().rows,
            None => 0,
        };
        self.same_rows(pass, rows)?;
        for (sink, whole) in pass.sinks.iter().zip(&mut sums.wholes) {
            if let Sink::Collect { to, columns: Some(columns), element, over, .. } = sink {
                let shape = Shape::new(rows, *columns);
                // The bytes of what is overwritten are counted already.
                let thawed = over.and_then(|slot| self.thawed(slot, shape, *element));
                if let Some((cells, counted_bytes)) = thawed {
                    *whole = Some(Whole { cells, counted_bytes, shape, rows });
                    continue;
                }
                let cells = shape.cells();
                let bytes = cells.saturating_mul(element.size_bytes());
                let bytes = bytes.min(isize::MAX as usize);
                let counted_bytes =
                    self.around.budget.grow_cells(bytes, &self.program.notes[*to].text)?;
                let cells = Fresh::arbitrary(*element, cells);
                *whole = Some(Whole { cells, counted_bytes, shape, rows });
            }
        }
        let on_disk = self.on_disk(pass);
        let threads = self.around.pool.current_num_threads();
        let writes_files = sums.wholes.iter().flatten().any(|whole| whole.cells.is_on_disk());
        let blocks = match on_disk.is_empty() && !writes_files {
            true if leaves_little(pass) => LONG_WINDOW_BLOCKS,
            // What is written into files stays in memory until its window ends.
            false if is_tight(pass, block_rows, threads) => 1,
            _ => WINDOW_BLOCKS,
        };
        let window = blocks * threads * block_rows;
        let mut first = 0;
        loop {
            self.around.cancel.check()?;
            let end = rows.min(first + window);
            let starts: Vec<usize> = (first..end.max(first + 1)).step_by(block_rows).collect();
            // For each block, where its part of each result stays.
            let mut targets: Vec<Vec<Option<Target>>> =
                starts.iter().map(|_| pass.sinks.iter().map(|_| None).collect()).collect();
            for (at, whole) in sums.wholes.iter_mut().enumerate() {
                let Some(Whole { cells, shape: Shape { columns, .. }, .. }) = whole else {
                    continue;
                };
                let cells_from = |&start: &usize| block_rows.min(rows - start) * *columns;
                let lengths: Vec<usize> = starts.iter().map(cells_from).collect();
                let blocks = cells.blocks(first * *columns, &lengths);
                for (targets, block) in targets.iter_mut().zip(blocks) {
                    targets[at] = Some(block);
                }
            }
            let run = self.blocks(pass);
            let in_files: Vec<&Cells> =
                on_disk.iter().map(|&slot| self.cells(slot)).collect::<Result<_>>()?;
            let done: Vec<Done> = self.around.pool.install(|| {
                starts
                    .par_iter()
                    .zip(targets)
                    .map(|(&start, targets)| {
                        let rows = start..start + block_rows.min(rows - start);
                        let done = run.block(pass, &Input::Range, rows.clone(), targets)?;
                        in_files.iter().for_each(|whole| whole.done_with(rows.clone()));
                        Ok(done)
                    })
                    .collect::<Result<_>>()
            })?;
            in_files.iter().for_each(|whole| whole.will_need(end..rows.min(end + window)));
            for block in done {
                self.absorb(pass, block, sums)?;
            }
            for Whole { cells, shape, .. } in sums.wholes.iter().flatten() {
                cells.done_with(first * shape.columns..end * shape.columns);
            }
            first = end;
            if first >= rows {
                return Ok(());
            }
        }
    }

    /// Whole values in files that a pass reads by rows.
    fn on_disk(&self, pass: &Pass) -> Vec<Slot> {
        let is_on_disk = |slot: &Slot| self.cells(*slot).is_ok_and(Cells::is_on_disk);
        pass.cut.iter().copied().filter(is_on_disk).collect()
    }

    /// Blocks of a relation's rows; each window is computed while the next is read.
    ///
    /// What parts leave is added up in their order, whichever of them is read sooner.
    fn over_relation(&mut self, pass: &Pass, relation: usize, block_rows: usize) -> Result<Sums> {
        let intake = &self.program.intakes[relation];
        let mut parts = std::mem::take(&mut self.inputs[relation].rows);
        let threads = self.around.pool.current_num_threads();
        // What leaves row by row, or meets rows of values at hand, must know how many came before.
        let emits = pass.sinks.iter().any(|sink| matches!(sink, Sink::Emit { .. }));
        if emits || !pass.cut.is_empty() {
            parts = vec![Box::new(InSequence::new(parts))];
        }
        let mut reader = Reader::new(intake, parts, block_rows, threads);
        let is_tight = is_tight(pass, block_rows, threads);
        let blocks = if is_tight { threads } else { WINDOW_BLOCKS * threads };
        let cancel = self.around.cancel;
        let mut window = reader.window(blocks, cancel)?;
        if window.is_empty() {
            // No rows at all are still one block: sums over nothing have a shape.
            window.push(RowBlock { part: 0, first: 0, rows: 0, batches: Vec::new() });
        }
        let mut sums = Sums::new(pass);
        let count = self.inputs[relation].count;
        if let Some(rows) = count.filter(|&rows| rows > block_rows && !is_tight) {
            sums.wholes = pass.sinks.iter().map(|sink| self.whole(sink, rows)).collect();
        }
        let mut open: BTreeMap<usize, Sums> = BTreeMap::new();
        let mut failed: Option<(usize, Error)> = None;
        while !window.is_empty() {
            cancel.check()?;
            let run = self.blocks(pass);
            let none = || pass.sinks.iter().map(|_| None).collect();
            let mut computed = Vec::new();
            let mut next = Ok(Vec::new());
            self.around.pool.in_place_scope(|scope| {
                scope.spawn(|_| {
                    let block = |block: &RowBlock| {
                        let rows = block.first..block.first + block.rows;
                        run.block(pass, &Input::Batches(&block.batches), rows, none())
                    };
                    window.par_iter().map(block).collect_into_vec(&mut computed);
                });
                next = reader.window(blocks, cancel);
            });
            for (RowBlock { part, .. }, done) in window.into_iter().zip(computed) {
                if failed.as_ref().is_some_and(|(failed, _)| part >= *failed) {
                    continue;
                }
                let part_sums = open.entry(part).or_insert_with(|| Sums::new(pass));
                if let Err(error) = done.and_then(|done| self.absorb(pass, done, part_sums)) {
                    // An earlier part may fail too, and its rows come first.
                    reader.stop_before(part);
                    open.retain(|&open, _| open < part);
                    failed = Some((part, error));
                }
            }
            window = next?;
            let ended = reader.first_open_part().unwrap_or(usize::MAX);
            let ended = window.iter().map(|block| block.part).fold(ended, usize::min);
            while let Some(part) = open.first_entry().filter(|part| *part.key() < ended) {
                sums.append(part.remove())?;
            }
            // All rows before those of the first open part are there.
            if let Some(mut part) = open.first_entry() {
                for (collected, next) in
                    sums.collected.iter_mut().zip(&mut part.get_mut().collected)
                {
                    collected.append(next);
                }
            }
            self.settle(&mut sums);
        }
        if let Some((_, error)) = failed {
            return Err(error.rows_later(sums.rows));
        }
        self.same_rows(pass, sums.rows)?;
        if let Some(labels) = std::mem::take(&mut sums.keys).finish(intake)? {
            self.relations[relation].rows = Some(labels);
        }
        self.around.budget.shrink(std::mem::take(&mut sums.key_bytes));
        Ok(sums)
    }

    /// Memory for so many rows of a sink, where it collects cells and there is room.
    fn whole(&mut self, sink: &Sink, rows: usize) -> Option<Whole> {
        let Sink::Collect { columns: Some(columns), element, .. } = sink else { return None };
        let shape = Shape::new(rows, *columns);
        let bytes = rows.checked_mul(*columns)?.checked_mul(element.size_bytes())?;
        self.around.budget.grow_rows(bytes).then(|| {
            let cells = Fresh::arbitrary(*element, shape.cells());
            Whole { cells, counted_bytes: bytes, shape, rows: 0 }
        })
    }

    /// Takes blocks to where their rows stay, so that the next ones are made in their memory.
    fn settle(&mut self, sums: &mut Sums) {
        for (whole, blocks) in sums.wholes.iter_mut().zip(&mut sums.collected) {
            let Some(whole) = whole else { continue };
            let first = whole.rows;
            let mut lengths = Vec::new();
            for (block, _) in blocks.iter() {
                let shape = block.shape();
                let is_alike = shape.columns == whole.shape.columns
                    && block.layout() == Layout::Dense
                    && block.element() == whole.cells.element();
                if !is_alike || whole.rows + shape.rows > whole.shape.rows {
                    break;
                }
                lengths.push(shape.cells());
                whole.rows += shape.rows;
            }
            let taken: Vec<(Cells, usize)> = blocks.drain(..lengths.len()).collect();
            let columns = whole.shape.columns;
            let targets = whole.cells.blocks(first * columns, &lengths);
            self.around.budget.shrink(taken.iter().map(|(_, bytes)| bytes).sum());
            self.around.pool.install(|| {
                let all = targets.into_par_iter().zip(taken);
                all.for_each(|(target, (block, _))| target.copy_from(&block));
            });
            whole.cells.done_with(first * columns..whole.rows * columns);
        }
    }

    /// The memory of a value of this extent, which is gone then, where no other matrix shares it.
    /// With the bytes counted for it.
    fn thawed(&mut self, slot: Slot, shape: Shape, element: Element) -> Option<(Fresh, usize)> {
        let stays = match self.values[slot].take()? {
            Value::Matrix(cells) => match Fresh::thawed(cells, shape, element) {
                Ok(fresh) => return Some((fresh, std::mem::take(&mut self.counted[slot]))),
                Err(cells) => cells.into(),
            },
            parts => parts,
        };
        self.values[slot] = Some(stays);
        None
    }

    fn blocks(&self, pass: &Pass) -> Blocks<'_> {
        let only_collected = |slot: Slot| {
            let collects =
                |sink: &Sink| matches!(sink, Sink::Collect { from, .. } if *from == slot);
            let read = pass.steps.iter().any(|step| step.inputs().contains(&slot))
                || pass.sinks.iter().any(|sink| !collects(sink) && sink.inputs().contains(&slot));
            if read { None } else { pass.sinks.iter().position(collects) }
        };
        let collected = pass.steps.iter().map(|step| only_collected(step.output())).collect();
        let is_over = |at: usize, slot: Slot| {
            let later = pass.steps[at + 1..].iter().any(|step| step.inputs().contains(&slot));
            !later && !pass.sinks.iter().any(|sink| sink.inputs().contains(&slot))
        };
        let over_after = |(at, step): (usize, &BlockStep)| {
            step.inputs().iter().copied().filter(|&slot| is_over(at, slot)).collect()
        };
        let over = pass.steps.iter().enumerate().map(over_after).collect();
        let (program, cancel) = (self.program, self.around.cancel);
        let is_gone = |slot: &Slot| self.values[*slot].is_none();
        let overwritten = pass.sinks.iter().filter_map(|sink| match sink {
            Sink::Collect { over, .. } => over.filter(is_gone),
            _ => None,
        });
        let overwritten = overwritten.collect();
        Blocks { program, values: &self.values, cancel, collected, over, overwritten }
    }

    /// Whole values that are cut by rows must have as many as there are.
    fn same_rows(&self, pass: &Pass, rows: usize) -> Result<()> {
        for &slot in &pass.cut {
            let right = self.cells(slot)?.shape();
            if right.rows != rows {
                let width = match pass.source {
                    Source::Relation { relation, .. } => self.program.intakes[relation].width(),
                    Source::Cut => None,
                };
                let left = Shape::new(rows, width.unwrap_or(Shape::UNKNOWN));
                let note = &self.program.notes[pass.reader_of(slot).unwrap_or(slot)];
                let (operation, needs) = (note.text.clone(), "equally many rows");
                let error = Error::from(ErrorKind::Shapes { operation, needs, left, right });
                return Err(error.at(note.place));
            }
        }
        Ok(())
    }

    /// Adds a block's parts to what the sinks have; blocks come in the order of the rows.
    fn absorb(&mut self, pass: &Pass, block: Done, sums: &mut Sums) -> Result<()> {
        sums.same_width(block.width)?;
        let program = self.program;
        for (at, (sink, part)) in pass.sinks.iter().zip(block.parts).enumerate() {
            match (sink, part) {
                (Sink::Emit { .. }, Part::Cells(cells)) => {
                    let labels = match pass.source {
                        Source::Relation { relation, .. } => {
                            program.intakes[relation].labels(0, block.keys.clone())
                        }
                        // Rows that were kept by an earlier pass.
                        Source::Cut => resolve(&program.root_labels[0], &self.relations)?
                            .map(|labels| labels.slice(sums.rows..sums.rows + block.rows)),
                    };
                    (self.around.emit)(&cells, labels.as_ref(), sums.rows)?;
                }
                (Sink::Collect { to, .. }, Part::Cells(cells)) => {
                    let bytes = cells.size_bytes();
                    let block = if self.around.budget.grow_rows(bytes) {
                        (cells, bytes)
                    } else {
                        let spent =
                            || self.around.budget.disk_spent(&program.notes[*to].text, bytes);
                        (cells.shelved(&mut self.shelf).ok_or_else(spent)?, 0)
                    };
                    sums.collected[at].push(block);
                }
                (Sink::Collect { .. }, _) => {}
                (_, part) => {
                    let sum = sums.parts[at].take();
                    sums.parts[at] = Some(match sum {
                        None => part,
                        Some(sum) => added(sum, part),
                    });
                }
            }
        }
        let keys = self.kept(block.keys, sums)?;
        sums.keys.push(keys)?;
        sums.rows += block.rows;
        Ok(())
    }

    /// Keys that are held until the last row is there; in a file where memory has no room.
    fn kept(&mut self, keys: Vec<ArrayRef>, sums: &mut Sums) -> Result<Vec<ArrayRef>> {
        let bytes = keys.iter().map(|keys| keys.to_data().get_slice_memory_size());
        let bytes: usize = bytes.sum::<std::result::Result<_, _>>()?;
        if self.around.budget.grow_rows(bytes) {
            sums.key_bytes += bytes;
            return Ok(keys);
        }
        let shelved = keys.iter().map(|keys| memory::shelved_column(keys, &mut self.shelf));
        let shelved = shelved.collect::<Option<_>>();
        shelved.ok_or_else(|| self.around.budget.disk_spent("the labels of a relation", bytes))
    }
}
