//! A sort of rows of any kind, held as long as memory allows.
//!
//! Enters: the partitions of a relation. Leaves: its rows in order, as one stream. What a partition holds when memory is
//! refused becomes a sorted file (`spilled`); where none was, threads put pieces of the order into place and gather
//! their rows, and nothing is merged. Where only the first rows are asked for, the others go as soon as they are many.
//!
//! ```text
//! batches ─ blocks ─ entries, sorted in parts ─ pieces ─ rows gathered by threads ─ batches
//!              └ refused: a file, sorted ───────────────────────── merge ─┘
//! ```

use std::future::ready;
use std::sync::Arc;

use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};

use super::bound::Bound;
use super::order::{Block, Blocks, Cuts, Encoder, Entry};
use super::spilled::{Spills, merged};
use crate::exec::relational::memory::Memory;
use crate::exec::relational::tasks::joined;

/// Bytes of a block of held rows.
const BLOCK_BYTES_MAX: usize = 2 << 20;
const BLOCK_BYTES_MIN: usize = 64 << 10;

/// Rows of a block: the fewer blocks, the cheaper it is to gather rows of all.
const BLOCK_ROWS_MAX: usize = 64 << 10;

/// Rows that are held before those beyond the ones that are asked for are dropped: to put them in order takes some 20 ms.
const NARROWED_ROWS: usize = 256 << 10;

/// Rows whose entries are sorted at once, within some 50 ms.
const PART_ROWS: usize = 1 << 20;

/// Rows of a piece of the order.
const PIECE_ROWS: usize = 64 << 10;

/// What is sorted, and how.
#[derive(Clone)]
pub(super) struct RowSort {
    pub(super) schema: SchemaRef,
    pub(super) ordering: LexOrdering,
    pub(super) fetch: Option<usize>,
    pub(super) context: Arc<TaskContext>,
    pub(super) spills: SpillMetrics,
    /// Of what happens within the sort, for its output is counted where it leaves.
    pub(super) metrics: BaselineMetrics,
    /// Rows that were dealt out byte by byte, and not compared.
    pub(super) dealt: Count,
}

impl RowSort {
    /// The rows of all inputs in order.
    pub(super) fn sorted(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = stream::once(self.batches(inputs)).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    pub(super) fn batch_rows(&self) -> usize {
        self.context.session_config().batch_size()
    }

    /// Gathers all rows; the batches are made as they are asked for.
    async fn batches(
        self,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> Result<SendableRecordBatchStream> {
        let partitions = inputs.len();
        let gathered = inputs.into_iter().map(|input| {
            let gather = Gather::new(self.clone(), partitions)?.all(input);
            Ok(match partitions {
                1 => gather.left_future(),
                _ => joined(SpawnedTask::spawn(gather)).map(Result::flatten).right_future(),
            })
        });
        let (mut partitions, mut memories) = (Vec::new(), Vec::new());
        for task in gathered.collect::<Result<Vec<_>>>()? {
            let Gather { blocks, spills, memory, .. } = task.await?;
            partitions.push((spills, blocks));
            memories.push(memory);
        }
        if partitions.iter().all(|(spills, _)| spills.files.is_empty()) {
            let held = partitions.into_iter().flat_map(|(_, blocks)| blocks).collect();
            return Ok(held_rows(self, held, memories));
        }
        merged(self, partitions, memories).await
    }
}

/// The rows of one partition.
pub(super) struct Gather {
    sort: RowSort,
    encoder: Encoder,
    memory: Memory,
    partitions: usize,
    coalescer: Option<BatchCoalescer>,
    blocks: Vec<Block>,
    held_rows: usize,
    held_bytes: usize,
    /// What rows are within that may be asked for, by those that were held.
    bound: Option<Bound>,
    spills: Spills,
}

impl Gather {
    fn new(sort: RowSort, partitions: usize) -> Result<Self> {
        let memory =
            Memory::new("SpillingSort", &sort.context.runtime_env().memory_pool).leaving_some();
        let encoder = Encoder::new(&sort.ordering, &sort.schema)?;
        let spills = Spills::new(&sort, memory.limit_bytes / partitions);
        Ok(Self {
            sort,
            encoder,
            memory,
            partitions,
            coalescer: None,
            blocks: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            bound: None,
            spills,
        })
    }

    async fn all(mut self, mut input: SendableRecordBatchStream) -> Result<Self> {
        while let Some(mut batch) = input.next().await.transpose()? {
            if let Some(bound) = &self.bound {
                batch = bound.within(&batch)?;
            }
            if batch.num_rows() == 0 {
                continue;
            }
            let coalescer = match &mut self.coalescer {
                Some(coalescer) => coalescer,
                none => {
                    let rows = block_rows(&batch, self.memory.limit_bytes / self.partitions);
                    none.insert(BatchCoalescer::new(Arc::clone(&self.sort.schema), rows))
                }
            };
            coalescer.push_batch(batch)?;
            if coalescer.size() > 2 * BLOCK_BYTES_MAX {
                // Rows became longer than those by which a block's number of them was chosen.
                coalescer.finish_buffered_batch()?;
            }
            while let Some(batch) = self.coalescer.as_mut().and_then(|c| c.next_completed_batch()) {
                self.hold(batch).await?;
            }
        }
        drop(input);
        if let Some(mut coalescer) = self.coalescer.take() {
            coalescer.finish_buffered_batch()?;
            while let Some(batch) = coalescer.next_completed_batch() {
                self.hold(batch).await?;
            }
        }
        // What is left beside files is held only where that leaves memory for merging them.
        let share_bytes = self.memory.limit_bytes / (4 * self.partitions);
        if !self.spills.files.is_empty() && self.held_bytes > share_bytes {
            self.spill().await?;
        }
        Ok(self)
    }

    /// Adds a block; what is held before becomes a file where memory is refused.
    async fn hold(&mut self, batch: RecordBatch) -> Result<()> {
        let block = self.encoder.block(batch)?;
        let bytes = block.bytes();
        if !self.memory.try_grow(bytes) {
            if !self.blocks.is_empty() {
                self.spill().await?;
            }
            if !self.memory.try_grow(bytes) {
                self.memory.grow(bytes);
            }
        }
        self.held_rows += block.rows();
        self.held_bytes += bytes;
        self.blocks.push(block);
        match self.sort.fetch {
            Some(fetch) if self.held_rows >= NARROWED_ROWS.max(fetch.saturating_mul(4)) => {
                self.narrow().await
            }
            _ => Ok(()),
        }
    }

    /// Drops the rows that are held beyond those that are asked for.
    async fn narrow(&mut self) -> Result<()> {
        let blocks = std::mem::take(&mut self.blocks);
        let batches: Vec<RecordBatch> =
            gathered(blocks, &self.sort, BLOCK_ROWS_MAX, 1).try_collect().await?;
        self.memory.shrink(std::mem::take(&mut self.held_bytes));
        self.held_rows = 0;
        if let Some(last) = batches.last() {
            self.bound = Bound::of(last, &self.sort.ordering)?;
        }
        for batch in batches {
            let block = self.encoder.block(batch)?;
            self.held_rows += block.rows();
            self.held_bytes += block.bytes();
            self.blocks.push(block);
        }
        self.memory.grow(self.held_bytes);
        Ok(())
    }

    /// Writes what is held to a file.
    async fn spill(&mut self) -> Result<()> {
        let blocks = std::mem::take(&mut self.blocks);
        let rows = self.spills.batch_rows(&blocks);
        let sorted = gathered(blocks, &self.sort, rows, 1);
        self.spills.write(sorted).await?;
        self.memory.shrink(std::mem::take(&mut self.held_bytes));
        self.held_rows = 0;
        Ok(())
    }
}

/// Rows of a block where operators may hold so many bytes.
fn block_rows(batch: &RecordBatch, share_bytes: usize) -> usize {
    let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
    let bytes = (share_bytes / 64).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    (bytes / row_bytes.max(1)).clamp(256, BLOCK_ROWS_MAX)
}

/// The rows of blocks in order, and their memory until the last has left.
pub(super) fn held_rows(
    sort: RowSort,
    blocks: Vec<Block>,
    memories: Vec<Memory>,
) -> SendableRecordBatchStream {
    let rows: usize = blocks.iter().map(|block| block.batch.num_rows()).sum();
    // Few rows are sorted before another thread could be asked.
    let threads = match rows <= sort.batch_rows() {
        true => 0,
        false => sort.context.session_config().target_partitions(),
    };
    let batches = gathered(blocks, &sort, sort.batch_rows(), threads);
    let batches = batches.map(move |batch| {
        // The reservations live as long as this closure.
        let _held = &memories;
        batch
    });
    Box::pin(RecordBatchStreamAdapter::new(sort.schema, batches))
}

/// The first so many rows of blocks in order, worked on by so many tasks at once; by none where there are few rows.
fn gathered(
    blocks: Vec<Block>,
    sort: &RowSort,
    batch_rows: usize,
    at_once: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send + use<> {
    let (ordering, fetch, dealt) = (sort.ordering.clone(), sort.fetch, sort.dealt.clone());
    if at_once == 0 {
        let rows = at_once_gathered(Blocks::new(blocks, &ordering, dealt), fetch);
        return stream::iter(rows.transpose()).left_stream();
    }
    let ordered = async move {
        let blocks = async move { Arc::new(Blocks::new(blocks, &ordering, dealt)) };
        let blocks = joined(SpawnedTask::spawn(blocks)).await?;
        let parts = sorted_parts(&blocks, at_once).await?;
        let pieces = Cuts::new(parts, PIECE_ROWS);
        Result::<_>::Ok(batches(blocks, pieces, batch_rows, fetch, at_once))
    };
    stream::once(ordered).try_flatten().right_stream()
}

/// The first so many rows of blocks in order as one batch.
fn at_once_gathered(blocks: Blocks, fetch: Option<usize>) -> Result<Option<RecordBatch>> {
    let Some(all) = blocks.parts(usize::MAX).pop() else { return Ok(None) };
    let mut entries = blocks.entries(all)?;
    blocks.order(&mut entries);
    entries.truncate(fetch.unwrap_or(usize::MAX));
    if entries.is_empty() { Ok(None) } else { blocks.rows(&entries).map(Some) }
}

/// The entries of the rows of blocks in parts that are sorted by their first words.
async fn sorted_parts(blocks: &Arc<Blocks>, at_once: usize) -> Result<Vec<Vec<Entry>>> {
    let sorting = stream::iter(blocks.parts(PART_ROWS)).map(|part| {
        let blocks = Arc::clone(blocks);
        let task = SpawnedTask::spawn(async move { blocks.entries(part) });
        async { joined(task).await? }
    });
    sorting.buffered(at_once).try_collect().await
}

/// The rows of pieces: a task puts a piece in order, then tasks gather the rows of its batches.
fn batches(
    blocks: Arc<Blocks>,
    pieces: Cuts,
    batch_rows: usize,
    fetch: Option<usize>,
    at_once: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let ordering = Arc::clone(&blocks);
    let pieces = stream::iter(pieces).map(move |mut piece| {
        let blocks = Arc::clone(&ordering);
        joined(SpawnedTask::spawn(async move {
            piece.sort();
            blocks.order(&mut piece);
            piece
        }))
    });
    let places = pieces.buffered(at_once).scan(fetch.unwrap_or(usize::MAX), move |left, piece| {
        let taken = (*left > 0).then(|| {
            piece.map(|piece: Vec<Entry>| {
                let asked = piece.len().min(*left);
                *left -= asked;
                let parts = piece[..asked].chunks(batch_rows).map(|part| Ok(part.to_vec()));
                stream::iter(parts.collect::<Vec<Result<Vec<Entry>>>>())
            })
        });
        ready(taken)
    });
    let rows = places.try_flatten().map(move |places: Result<Vec<Entry>>| {
        let blocks = Arc::clone(&blocks);
        let task = places.map(|places| SpawnedTask::spawn(async move { blocks.rows(&places) }));
        async move { joined(task?).await? }
    });
    rows.buffered(at_once + 1)
}
