//! Sorted files of rows, and their merge.
//!
//! Enters: rows in order. Leaves: files of small batches, and the rows of all of them in order. As many are merged at
//! once as memory allows; where there are more, neighbours become one first, so that of equal rows the one that came
//! first stays first.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::{SendableRecordBatchStream, SpillFile};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt};

use super::order::Block;
use super::rows::{RowSort, held_rows};
use crate::exec::relational::files::RowFile;
use crate::exec::relational::memory::Memory;

/// Bytes of a batch in a file.
const BATCH_BYTES_MAX: usize = 1 << 20;
const BATCH_BYTES_MIN: usize = 32 << 10;

/// Of a batch's bytes, what a file that is read holds: two that are ahead, the one that is merged with its keys, and
/// one that rows of the output are still to be taken of.
const READ_BATCHES: usize = 5;

/// Files that are merged at once at least.
const FAN_IN_MIN: usize = 4;

/// The files of one partition.
pub(super) struct Spills {
    manager: SpillManager,
    batch_bytes: usize,
    pub(super) files: Vec<Arc<dyn SpillFile>>,
}

impl Spills {
    pub(super) fn new(sort: &RowSort, share_bytes: usize) -> Self {
        let compression = sort.context.session_config().spill_compression();
        let (metrics, schema) = (sort.spills.clone(), Arc::clone(&sort.schema));
        let manager = SpillManager::new(sort.context.runtime_env(), metrics, schema)
            .with_compression_type(compression);
        let batch_bytes = (share_bytes / 256).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        Self { manager, batch_bytes, files: Vec::new() }
    }

    /// Rows of a batch in a file.
    pub(super) fn batch_rows(&self, blocks: &[Block]) -> usize {
        let sizes = blocks
            .iter()
            .map(|block| (block.batch.num_rows(), block.batch.get_array_memory_size()));
        let (rows, bytes) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let row_bytes = bytes.div_ceil(rows.max(1)).max(1);
        (self.batch_bytes / row_bytes).clamp(1, BATCH_ROWS_MAX)
    }

    /// Writes a file of rows in order.
    pub(super) async fn write(
        &mut self,
        rows: impl Stream<Item = Result<RecordBatch>> + Send,
    ) -> Result<()> {
        let file = written(&self.manager, rows).await?;
        self.files.extend(file);
        Ok(())
    }
}

/// Rows of a batch in a file at most, as of any other batch.
const BATCH_ROWS_MAX: usize = 8192;

async fn written(
    manager: &SpillManager,
    rows: impl Stream<Item = Result<RecordBatch>> + Send,
) -> Result<Option<Arc<dyn SpillFile>>> {
    let mut file = RowFile::new(manager, "a sort")?;
    let mut rows = std::pin::pin!(rows);
    while let Some(batch) = rows.next().await.transpose()? {
        file.append(&batch)?;
    }
    Ok(file.finish()?.files.into_iter().next())
}

/// All rows in order: of each partition those of its files, then what it holds.
pub(super) async fn merged(
    sort: RowSort,
    partitions: Vec<(Spills, Vec<Block>)>,
    memories: Vec<Memory>,
) -> Result<SendableRecordBatchStream> {
    let (Some((first, _)), Some(memory)) = (partitions.first(), memories.first()) else {
        return Ok(held_rows(sort, Vec::new(), memories));
    };
    let (manager, file_bytes) = (first.manager.clone(), first.batch_bytes * READ_BATCHES);
    let mut runs = VecDeque::new();
    for (spills, blocks) in partitions {
        runs.extend(spills.files.into_iter().map(Sorted::Written));
        if !blocks.is_empty() {
            runs.push_back(Sorted::Held(blocks));
        }
    }
    let fan_in = fan_in(runs.len(), file_bytes, memory);
    let merge = Merge { sort, manager };
    // Neighbours become one file until the rest can be merged at once.
    while runs.len() > fan_in {
        let mut round = VecDeque::new();
        while !runs.is_empty() {
            let excess = (runs.len() + round.len()).saturating_sub(fan_in);
            let count = (excess + 1).min(fan_in.max(2)).min(runs.len());
            let group: Vec<Sorted> = runs.drain(..count).collect();
            if group.len() == 1 {
                round.extend(group);
                continue;
            }
            let file = written(&merge.manager, merge.stream(group)?).await?;
            round.extend(file.map(Sorted::Written));
        }
        runs = round;
    }
    let rows = merge.stream(runs.into())?;
    let schema = Arc::clone(&merge.sort.schema);
    let rows = rows.map(move |batch| {
        // The reservations live as long as this closure.
        let _held = &memories;
        batch
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// How many of so many runs can be merged at once, for which memory is taken.
fn fan_in(runs: usize, file_bytes: usize, memory: &Memory) -> usize {
    let mut fan_in = runs;
    while !memory.try_grow(fan_in * file_bytes) {
        if fan_in <= FAN_IN_MIN {
            memory.grow(fan_in * file_bytes);
            break;
        }
        fan_in = (fan_in - fan_in.div_ceil(8)).max(FAN_IN_MIN);
    }
    fan_in
}

/// Rows in order.
enum Sorted {
    Held(Vec<Block>),
    Written(Arc<dyn SpillFile>),
}

/// How runs become one stream.
struct Merge {
    sort: RowSort,
    manager: SpillManager,
}

impl Merge {
    /// The rows of runs in order; of equal ones those of the first run come first.
    fn stream(&self, runs: Vec<Sorted>) -> Result<SendableRecordBatchStream> {
        let streams = runs.into_iter().map(|run| match run {
            Sorted::Held(blocks) => Ok(held_rows(self.sort.clone(), blocks, Vec::new())),
            Sorted::Written(file) => self.manager.read_spill_as_stream(file, None),
        });
        // What it will hold was reserved with the number of runs.
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let reservation = MemoryConsumer::new("SpillingSortMerge").register(&pool);
        StreamingMergeBuilder::new()
            .with_streams(streams.collect::<Result<_>>()?)
            .with_schema(Arc::clone(&self.sort.schema))
            .with_expressions(&self.sort.ordering)
            .with_metrics(self.sort.metrics.intermediate())
            .with_batch_size(self.sort.batch_rows())
            .with_fetch(self.sort.fetch)
            .with_reservation(reservation)
            .with_round_robin_tie_breaker(false)
            .build()
    }
}
