//! The build side of a join, in memory as far as it fits.
//!
//! ```text
//! inputs, at once ─ collect ─ all fit ──────────────────────────── one batch
//!                           └ refused ─ deal ─ parts that still fit ─ one batch
//!                                            └ the largest ────────── files
//! ```
//!
//! Each input is read by a task that keeps its rows itself. Were they to send them to one that keeps all, each would wait for the
//! others after every few batches, and soon all of them on one thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use futures::{StreamExt, stream};

use super::deal::Dealer;
use super::files::Writer;
use super::reverse::Reversal;
use super::share::Share;
use super::spec::{Spec, batch};
use super::views::{column_bytes, compacted, compacted_column};
use crate::exec::kernels::threads::{THREAD_ROWS_MIN, in_parallel};
use crate::exec::relational::feed::adapted;
use crate::exec::relational::files::Rows;
use crate::exec::relational::tasks::at_once;

/// What came of reading a build side.
pub(super) enum Collected {
    /// All rows; the share holds them and what will be made of them.
    Whole(RecordBatch),
    /// Memory was refused: what has been read, and what has not.
    Refused(Held, SendableRecordBatchStream),
    /// The probe side is much smaller: all of its rows, those that have been read, and those that have not.
    Larger(Vec<RecordBatch>, Held, SendableRecordBatchStream),
}

/// Rows that have been read.
#[derive(Default)]
pub(super) struct Held {
    batches: VecDeque<RecordBatch>,
    rows: usize,
    /// What they take, each buffer counted once.
    counter: RecordBatchMemoryCounter,
    /// By column, for the copies that make one batch of all: each thread copies one column after the other.
    column_bytes: Vec<usize>,
    /// Threads that copy.
    threads: usize,
}

impl Held {
    /// Adds rows that are alone in their buffers.
    fn push(&mut self, batch: RecordBatch) {
        self.counter.count_batch(&batch);
        self.rows += batch.num_rows();
        self.column_bytes.resize(batch.num_columns(), 0);
        for (bytes, column) in self.column_bytes.iter_mut().zip(batch.columns()) {
            *bytes += column_bytes(column);
        }
        self.batches.push_back(batch);
    }

    /// Bytes of the rows, of what is copied of them at a time, and of what the join makes of them.
    fn needed_bytes(&self, spec: &Spec) -> usize {
        self.counter.memory_usage() + self.copy_bytes() + spec.table_bytes(self.rows)
    }

    /// Bytes of the columns that are there twice at a time, while one batch is made of all.
    fn copy_bytes(&self) -> usize {
        if self.batches.len() <= 1 {
            return 0;
        }
        let mut largest = self.column_bytes.clone();
        largest.sort_unstable_by(|one, other| other.cmp(one));
        largest.iter().take(self.copying_threads()).sum()
    }

    fn copying_threads(&self) -> usize {
        self.threads.min(self.rows / THREAD_ROWS_MIN).max(1)
    }

    pub(super) fn into_batches(self) -> Vec<RecordBatch> {
        self.batches.into()
    }

    /// One batch of all, the share made as small as it may be.
    fn whole(self, schema: &SchemaRef, spec: &Spec, share: &Share) -> Result<RecordBatch> {
        let (rows, threads) = (self.rows, self.copying_threads());
        let whole = whole(schema, self.batches.into(), threads)?;
        share.hold(get_record_batch_memory_size(&whole) + spec.table_bytes(rows));
        Ok(whole)
    }
}

/// Reads a build side until all of its inputs end, memory is refused, or the probe side turns out to be much smaller, where that is
/// looked at; so many threads make one batch of all.
pub(super) async fn collect(
    mut inputs: Vec<SendableRecordBatchStream>,
    spec: &Arc<Spec>,
    share: &Arc<Share>,
    mut reversal: Option<&Reversal>,
    threads: usize,
) -> Result<Collected> {
    let schema = &spec.sides[0];
    let mut held = Held { threads, ..Held::default() };
    while !inputs.is_empty() {
        let rows_max = reversal.map_or(usize::MAX, Reversal::many_rows);
        let reading = Arc::new(Reading::new(held, rows_max, spec, share));
        let read = inputs.into_iter().map(|input| Arc::clone(&reading).read(input));
        inputs = at_once(read.collect()).await?.into_iter().flatten().collect();
        held = reading.take();
        if held.rows > 0 && !share.try_hold(held.needed_bytes(spec)) {
            return Ok(Collected::Refused(held, together(schema, inputs)));
        }
        if let Some(reversal) = reversal.take_if(|_| held.rows >= rows_max)
            && let Some(probe) = reversal.few(held.rows).await?
        {
            return Ok(Collected::Larger(probe, held, together(schema, inputs)));
        }
    }
    held.whole(schema, spec, share).map(Collected::Whole)
}

/// A build side while its inputs are read.
struct Reading {
    held: Mutex<Held>,
    /// Rows from which on nobody goes on.
    rows_max: usize,
    is_stopped: AtomicBool,
    spec: Arc<Spec>,
    share: Arc<Share>,
}

impl Reading {
    fn new(held: Held, rows_max: usize, spec: &Arc<Spec>, share: &Arc<Share>) -> Self {
        let (held, is_stopped) = (Mutex::new(held), AtomicBool::new(false));
        Self { held, rows_max, is_stopped, spec: Arc::clone(spec), share: Arc::clone(share) }
    }

    /// Reads an input, and yields it where it has not ended before all were stopped.
    async fn read(
        self: Arc<Self>,
        mut input: SendableRecordBatchStream,
    ) -> Result<Option<SendableRecordBatchStream>> {
        while !self.is_stopped.load(Ordering::Relaxed) {
            match input.next().await.map(|batch| self.keep(&batch?)) {
                Some(Ok(true)) => {}
                Some(Ok(false)) => self.is_stopped.store(true, Ordering::Relaxed),
                Some(Err(error)) => {
                    self.is_stopped.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                None => return Ok(None),
            }
        }
        Ok(Some(input))
    }

    /// Keeps rows; false where no more are to be read.
    fn keep(&self, batch: &RecordBatch) -> Result<bool> {
        if batch.num_rows() == 0 {
            return Ok(true);
        }
        let batch = compacted(batch)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push(batch);
        Ok(self.share.try_hold(held.needed_bytes(&self.spec)) && held.rows < self.rows_max)
    }

    fn take(&self) -> Held {
        std::mem::take(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Inputs as one, each read by a task.
fn together(
    schema: &SchemaRef,
    mut inputs: Vec<SendableRecordBatchStream>,
) -> SendableRecordBatchStream {
    if inputs.len() <= 1 {
        return adapted(Arc::clone(schema), stream::iter(inputs.pop()).flatten());
    }
    let mut all = RecordBatchReceiverStreamBuilder::new(Arc::clone(schema), inputs.len());
    for mut input in inputs {
        let to = all.tx();
        all.spawn(async move {
            while let Some(batch) = input.next().await {
                let has_failed = batch.is_err();
                if to.send(batch).await.is_err() || has_failed {
                    break;
                }
            }
            Ok(())
        });
    }
    all.build()
}

/// Reads as many rows as fit, one batch at least; none at the end. `ahead` is the batch that did not fit.
pub(super) async fn next_block(
    input: &mut SendableRecordBatchStream,
    ahead: &mut Option<RecordBatch>,
    spec: &Spec,
    share: &Share,
) -> Result<Option<RecordBatch>> {
    let mut held = Held::default();
    loop {
        let batch = match ahead.take() {
            Some(batch) => batch,
            None => match input.next().await.transpose()? {
                Some(batch) => batch,
                None => break,
            },
        };
        if batch.num_rows() == 0 {
            continue;
        }
        // Asked for before it is added: what does not fit begins the next block.
        let batch = compacted(&batch)?;
        let more = get_record_batch_memory_size(&batch);
        let rows = held.rows + batch.num_rows();
        let needed = held.counter.memory_usage() + 2 * more + spec.table_bytes(rows);
        if !share.try_hold(needed + held.copy_bytes()) && held.rows > 0 {
            *ahead = Some(batch);
            break;
        }
        held.push(batch);
    }
    if held.rows == 0 {
        return Ok(None);
    }
    held.whole(&input.schema(), spec, share).map(Some)
}

/// A build side in parts.
pub(super) struct Parts {
    /// The rows of all parts that fit together; none where none does.
    pub(super) resident: Option<RecordBatch>,
    pub(super) is_resident: Vec<bool>,
    /// The rows of the others.
    pub(super) spilled: Vec<Rows>,
    /// All rows.
    pub(super) rows: usize,
}

/// Deals out a build side that does not fit.
pub(super) struct Dealing<'a> {
    pub(super) spec: &'a Spec,
    pub(super) share: &'a Share,
    pub(super) files: &'a SpillManager,
    pub(super) working_bytes: usize,
    pub(super) level: usize,
    /// Whether rows may stay in memory.
    pub(super) keeps_parts: bool,
}

impl Dealing<'_> {
    /// The parts of what has been read and of what has not; `prepare` makes of a batch what is kept of it.
    pub(super) async fn run(
        self,
        mut held: Held,
        mut input: SendableRecordBatchStream,
        mut prepare: impl FnMut(RecordBatch) -> Result<RecordBatch>,
    ) -> Result<Parts> {
        let mut dealer = Dealer::new(self.spec, 0, self.working_bytes, self.level);
        let mut parts = InMemory::new(&self, dealer.parts());
        let (held_bytes, held_rows) = (held.counter.memory_usage(), held.rows);
        let mut rows = 0;
        let none_kept = vec![false; dealer.parts()];
        self.share.set_base(self.working_bytes);
        self.share.hold(held_bytes);
        loop {
            let batch = match held.batches.pop_front() {
                Some(batch) => Some(batch),
                None => input.next().await.transpose()?,
            };
            let is_last = batch.is_none();
            let is_full = match batch {
                Some(batch) if batch.num_rows() > 0 => {
                    rows += batch.num_rows();
                    dealer.push(prepare(batch)?)
                }
                Some(_) | None => false,
            };
            if !is_full && !is_last {
                continue;
            }
            let dealt = dealer.deal(&none_kept)?;
            for part in 0..dealer.parts() {
                if let Some(rows) = dealt.part(part)? {
                    parts.push(part, rows)?;
                }
            }
            drop(dealt);
            let waiting =
                held_bytes as f64 * held_rows.saturating_sub(rows) as f64 / held_rows.max(1) as f64;
            parts.fit(waiting as usize)?;
            if is_last {
                drop(input);
                return parts.finish(rows);
            }
            // What has been read is dealt without waiting for anything.
            tokio::task::yield_now().await;
        }
    }
}

/// Parts of which some are in memory.
struct InMemory<'a> {
    dealing: &'a Dealing<'a>,
    /// None of a part that has gone to its file.
    resident: Vec<Option<Vec<RecordBatch>>>,
    bytes: Vec<usize>,
    rows: Vec<usize>,
    writer: Writer,
}

impl<'a> InMemory<'a> {
    fn new(dealing: &'a Dealing<'a>, parts: usize) -> Self {
        let resident = std::iter::repeat_with(|| dealing.keeps_parts.then(Vec::new)).take(parts);
        Self {
            dealing,
            resident: resident.collect(),
            bytes: vec![0; parts],
            rows: vec![0; parts],
            writer: Writer::new(dealing.files, parts),
        }
    }

    fn push(&mut self, part: usize, batch: RecordBatch) -> Result<()> {
        let Some(resident) = &mut self.resident[part] else {
            return self.writer.write(part, &batch);
        };
        let batch = compacted(&batch)?;
        self.bytes[part] += get_record_batch_memory_size(&batch);
        self.rows[part] += batch.num_rows();
        resident.push(batch);
        Ok(())
    }

    /// Sends parts to their files, the largest first, until what is in memory fits beside so many bytes.
    fn fit(&mut self, others: usize) -> Result<()> {
        let Dealing { spec, share, .. } = self.dealing;
        loop {
            let resident = self.bytes.iter().sum::<usize>();
            let table = spec.table_bytes(self.rows.iter().sum());
            // Half as much again, for the copies that make one batch of all.
            let needed = others + resident + resident / 2 + table;
            if share.try_hold(needed) {
                return Ok(());
            }
            let largest = (0..self.bytes.len()).max_by_key(|&part| self.bytes[part]);
            match largest.filter(|&part| self.bytes[part] > 0) {
                Some(part) => self.spill(part)?,
                None => {
                    share.hold(others);
                    return Ok(());
                }
            }
        }
    }

    fn spill(&mut self, part: usize) -> Result<()> {
        for batch in self.resident[part].take().into_iter().flatten() {
            self.writer.write(part, &batch)?;
        }
        (self.bytes[part], self.rows[part]) = (0, 0);
        Ok(())
    }

    fn finish(self, rows: usize) -> Result<Parts> {
        let Dealing { spec, share, .. } = self.dealing;
        // A part that has had no rows yet is in memory too: the probe side may have rows for it.
        let is_resident: Vec<bool> = self.resident.iter().map(Option::is_some).collect();
        let resident_rows: usize = self.rows.iter().sum();
        let batches: Vec<RecordBatch> = self.resident.into_iter().flatten().flatten().collect();
        let resident = match is_resident.contains(&true) {
            true => Some(whole(&spec.sides[0], batches, 1)?),
            false => None,
        };
        let bytes = resident.as_ref().map_or(0, get_record_batch_memory_size);
        share.set_base(0);
        share.hold(bytes + spec.table_bytes(resident_rows));
        Ok(Parts { resident, is_resident, spilled: self.writer.finish()?, rows })
    }
}

/// One batch of many, by each thread a column at a time, so that no others are there twice.
fn whole(schema: &SchemaRef, batches: Vec<RecordBatch>, threads: usize) -> Result<RecordBatch> {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    if rows == 0 {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let mut columns: Vec<Vec<ArrayRef>> =
        (0..schema.fields().len()).map(|_| Vec::with_capacity(batches.len())).collect();
    for batch in batches {
        for (column, array) in columns.iter_mut().zip(batch.columns()) {
            column.push(Arc::clone(array));
        }
    }
    let copied = |arrays: Vec<ArrayRef>| -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
        Ok(compacted_column(&concat(&arrays)?))
    };
    let mut of_threads = Vec::with_capacity(threads);
    let part = columns.len().div_ceil(threads).max(1);
    while !columns.is_empty() {
        of_threads.push(columns.drain(..part.min(columns.len())).collect::<Vec<_>>());
    }
    let copy = |columns: Vec<_>| columns.into_iter().map(copied).collect::<Result<Vec<_>>>();
    let copies = in_parallel(of_threads, copy).into_iter().collect::<Result<Vec<_>>>()?;
    batch(schema, copies.concat(), rows)
}
