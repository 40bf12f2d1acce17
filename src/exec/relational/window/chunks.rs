//! Rows cut into whole partitions, for windows that are none of ours.
//!
//! Enters: rows in the order of PARTITION BY. Leaves: the rows of every so many partitions with the columns that DataFusion's
//! operator makes of them. What is held is reserved; a refusal first hands on the partitions that are whole, and then
//! names the function for which a partition must fit.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt, stream};

use super::boundaries::Boundaries;
use crate::error::{Error, ErrorKind};
use crate::exec::relational::feed::Feed;
use crate::exec::relational::memory::Memory;

/// Rows of a chunk, as far as there are so many: enough that what a run of the operator costs does not count.
const CHUNK_ROWS: usize = 32 << 10;

/// Of a batch's bytes, what it takes with its copies in the chunk and in what is made of it.
const COPIES: usize = 3;

/// Of a row, what a column takes that is made.
const COLUMN_BYTES: usize = 8;

/// Bytes of the smallest partition that is refused.
const REFUSED_BYTES_MIN: usize = 1 << 20;

/// The rows of one stream on their way.
pub(super) struct Chunks {
    window: Arc<WindowAggExec>,
    /// Where partitions begin.
    partitions: Boundaries,
    input: SendableRecordBatchStream,
    properties: Arc<PlanProperties>,
    context: Arc<TaskContext>,
    memory: Memory,
    /// Batches of partitions that are whole, and of the one that is not.
    whole: Held,
    open: Held,
    ready: VecDeque<RecordBatch>,
    has_ended: bool,
}

#[derive(Default)]
struct Held {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl Held {
    fn push(&mut self, batch: RecordBatch, bytes: usize) {
        self.rows += batch.num_rows();
        self.bytes += bytes;
        self.batches.push(batch);
    }

    fn append(&mut self, other: Held) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.batches.extend(other.batches);
    }
}

impl Chunks {
    /// # Errors
    /// Those of the input.
    pub(super) fn new(
        window: &Arc<WindowAggExec>,
        of: usize,
        context: Arc<TaskContext>,
    ) -> Result<Self> {
        let input = window.input().execute(of, Arc::clone(&context))?;
        Ok(Self {
            window: Arc::clone(window),
            partitions: Boundaries::new(window.window_expr()[0].partition_by().to_vec()),
            input,
            properties: Arc::clone(window.input().properties()),
            memory: Memory::new("SpillingWindow", context.memory_pool()),
            context,
            whole: Held::default(),
            open: Held::default(),
            ready: VecDeque::new(),
            has_ended: false,
        })
    }

    /// All rows with their columns.
    pub(super) fn rows(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        stream::try_unfold(self, |mut chunks| async {
            Ok(chunks.next().await?.map(|batch| (batch, chunks)))
        })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.push(batch).await?,
                None => {
                    self.has_ended = true;
                    self.close();
                    self.hand_on().await?;
                }
            }
        }
    }

    /// Takes a batch, cut where its partitions begin.
    async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let starts = self.partitions.starts(&batch)?;
        let last = starts.last().copied();
        let first = starts.first().copied().unwrap_or(batch.num_rows());
        self.extend(&batch, 0..first).await?;
        if let Some(last) = last {
            self.close();
            self.extend(&batch, first..last).await?;
            self.close();
            self.extend(&batch, last..batch.num_rows()).await?;
            if self.whole.rows >= CHUNK_ROWS {
                self.hand_on().await?;
            }
        }
        Ok(())
    }

    /// Adds rows to the open partition.
    async fn extend(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let part = batch.slice(rows.start, rows.len());
        let made = self.window.window_expr().len() * COLUMN_BYTES * rows.len();
        let bytes = COPIES * (made + batch.get_array_memory_size() * rows.len() / batch.num_rows());
        if !self.memory.try_grow(bytes) {
            self.hand_on().await?;
            if !self.memory.try_grow(bytes) {
                if self.open.bytes >= REFUSED_BYTES_MIN {
                    return Err(self.refused());
                }
                self.memory.grow(bytes);
            }
        }
        self.open.push(part, bytes);
        Ok(())
    }

    /// That the open partition does not fit.
    fn refused(&self) -> DataFusionError {
        let needs_all = |window: &&Arc<dyn WindowExpr>| !window.uses_bounded_memory();
        let window = self.window.window_expr().iter().find(needs_all);
        let what = window.map_or("a window", |window| window.name()).to_owned();
        let needed_bytes = self.open.bytes;
        let free_bytes = self.memory.limit_bytes.saturating_sub(needed_bytes);
        let disk_bytes = None;
        Error::from(ErrorKind::MemorySpent { what, needed_bytes, free_bytes, disk_bytes }).into()
    }

    /// The open partition has ended.
    fn close(&mut self) {
        self.whole.append(std::mem::take(&mut self.open));
    }

    /// Makes the columns of the partitions that are whole.
    async fn hand_on(&mut self) -> Result<()> {
        let whole = std::mem::take(&mut self.whole);
        if whole.rows == 0 {
            return Ok(());
        }
        let schema = self.input.schema();
        let batches = stream::iter(whole.batches.into_iter().map(Ok));
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
        let source = Feed::once(rows, &self.properties);
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let window = Arc::clone(&self.window).replace_children(vec![source], options)?;
        let mut rows = window.execute(0, Arc::clone(&self.context))?;
        let batch_rows = self.context.session_config().batch_size();
        while let Some(batch) = rows.next().await.transpose()? {
            let starts = (0..batch.num_rows()).step_by(batch_rows);
            self.ready.extend(starts.map(|start| {
                let count = batch_rows.min(batch.num_rows() - start);
                batch.slice(start, count)
            }));
        }
        self.memory.shrink(whole.bytes);
        Ok(())
    }
}
