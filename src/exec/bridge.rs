//! Between DataFusion's streams, which never block, and work on threads that may: batches in, bytes counted,
//! batches out; and an end to the work when its reader has gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::stream::{
    RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter,
};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::encoded::coded_rows;
use super::run::{Budget, Cancel, Rows};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Grant, MAPPED_BYTES_MIN, Pool, Refused};

/// Bytes reserved in DataFusion's memory pool, and those of them that stand for blocks of cells.
pub(super) struct Reserved {
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
    granted: Grant,
}

impl Reserved {
    /// None yet, in the pool of a session.
    pub(super) fn new(context: &TaskContext, blocks: &Arc<Pool>) -> Self {
        let pool = Arc::clone(context.memory_pool());
        let reservation = MemoryConsumer::new("matrix").register(&pool);
        Self { pool, reservation, granted: Grant::new(blocks) }
    }

    fn free_bytes(&self) -> usize {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(self.pool.reserved()),
            MemoryLimit::Infinite | MemoryLimit::Unknown => 0,
        }
    }

    /// What a block that nobody had room for means.
    pub(super) fn refused(&self, what: &str, refused: &Refused) -> Error {
        self.refusal(what, refused.bytes, Some(self.granted.disk_bytes()))
    }

    fn refusal(&self, what: &str, needed_bytes: usize, disk_bytes: Option<usize>) -> Error {
        let (what, free_bytes) = (what.to_owned(), self.free_bytes());
        ErrorKind::MemorySpent { what, needed_bytes, free_bytes, disk_bytes }.into()
    }
}

impl Budget for Reserved {
    fn grow(&mut self, bytes: usize, what: &str) -> Result<()> {
        self.reservation.try_grow(bytes).map_err(|_| self.refusal(what, bytes, None))
    }

    fn grow_cells(&mut self, bytes: usize, what: &str) -> Result<usize> {
        if self.reservation.try_grow(bytes).is_ok() {
            self.granted.grow(bytes);
            return Ok(bytes);
        }
        let disk_bytes = self.granted.disk_bytes();
        if bytes < MAPPED_BYTES_MIN || bytes > disk_bytes {
            return Err(self.refusal(what, bytes, Some(disk_bytes)));
        }
        Ok(0)
    }

    fn grow_rows(&mut self, bytes: usize) -> bool {
        let is_within = match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => {
                self.reservation.size().saturating_add(bytes) <= limit / 2
            }
            MemoryLimit::Infinite | MemoryLimit::Unknown => true,
        };
        is_within && self.reservation.try_grow(bytes).is_ok()
    }

    fn disk_spent(&self, what: &str, needed_bytes: usize) -> Error {
        let (what, free_bytes) = (what.to_owned(), self.granted.disk_bytes());
        ErrorKind::DiskSpent { what, needed_bytes, free_bytes }.into()
    }

    fn grow_spare(&mut self) -> usize {
        let bytes = self.free_bytes() / 2;
        if self.reservation.try_grow(bytes).is_err() {
            return 0;
        }
        self.granted.grow(bytes);
        bytes
    }

    fn shrink(&mut self, bytes: usize) {
        self.reservation.shrink(bytes);
        self.granted.shrink(bytes);
    }
}

/// One part of an input, pulled from a thread that may block. It begins to run when it is first asked, and
/// then runs ahead by [`BATCHES_AHEAD`].
pub(super) struct Batches {
    plan: Arc<dyn ExecutionPlan>,
    part: usize,
    /// Leading columns that are taken as codes of a dictionary where they are.
    coded: usize,
    context: Arc<TaskContext>,
    handle: Handle,
    stream: Option<SendableRecordBatchStream>,
}

/// Batches that a part makes before they are asked for.
const BATCHES_AHEAD: usize = 2;

impl Batches {
    pub(super) fn new(
        plan: &Arc<dyn ExecutionPlan>,
        part: usize,
        context: &Arc<TaskContext>,
    ) -> Self {
        let (plan, context) = (Arc::clone(plan), Arc::clone(context));
        Self { plan, part, coded: 0, context, handle: Handle::current(), stream: None }
    }

    /// The same, of which so many columns at the front may be codes of a dictionary.
    pub(super) fn coded(self, coded: usize) -> Self {
        Self { coded, ..self }
    }
}

impl Rows for Batches {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let _runtime = self.handle.enter();
                let context = Arc::clone(&self.context);
                let stream = match self.coded {
                    0 => self.plan.execute(self.part, context)?,
                    coded => coded_rows(&self.plan, self.part, context, coded)?,
                };
                none.insert(spawn_buffered(stream, BATCHES_AHEAD))
            }
        };
        Ok(self.handle.block_on(stream.next()).transpose()?)
    }

    fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }
}

/// Runs what blocks on a thread for that. Who waits no more cancels it, and it is to look whether somebody
/// has.
pub(crate) async fn blocking<T: Send + 'static>(
    cancel: Cancel,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let _stop = StopOnDrop(cancel);
    let result = SpawnedTask::spawn_blocking(work).join().await;
    result.map_err(|error| ErrorKind::Internal(error.to_string()))?
}

/// Runs what never blocks on a thread of the pool, and else does as [`blocking`].
pub(super) async fn computing<T: Send + 'static>(
    pool: &rayon::ThreadPool,
    cancel: Cancel,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let _stop = StopOnDrop(cancel);
    let (give, result) = oneshot::channel();
    pool.spawn(move || {
        // A panic ends the work and not the process.
        let done = catch_unwind(AssertUnwindSafe(work));
        let _reader_has_gone = give.send(done);
    });
    match result.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) | Err(_) => Err(ErrorKind::Internal("a computation panicked".into()).into()),
    }
}

/// Cancels a run when its reader has gone.
struct StopOnDrop(Cancel);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Where an operator's work puts the batches that it makes.
pub(super) struct Sender(tokio::sync::mpsc::Sender<datafusion::error::Result<RecordBatch>>);

impl Sender {
    /// Hands on a batch once there is room.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] where the reader has gone: it wants no more.
    pub(super) fn batch(&self, batch: RecordBatch) -> Result<()> {
        self.0.blocking_send(Ok(batch)).map_err(|_| ErrorKind::Cancelled.into())
    }
}

/// Batches made by work that may block, and that is cancelled when the stream is dropped.
pub(super) fn streamed(
    schema: SchemaRef,
    cancel: Cancel,
    work: impl FnOnce(&Sender) -> Result<()> + Send + 'static,
) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStreamBuilder::new(Arc::clone(&schema), BATCHES_AHEAD);
    let sender = Sender(builder.tx());
    builder.spawn_blocking(move || Ok(work(&sender)?));
    let stream = Stopping { stream: builder.build(), _stop: StopOnDrop(cancel) };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

/// A stream that stops its run when it is dropped.
struct Stopping {
    stream: SendableRecordBatchStream,
    _stop: StopOnDrop,
}

impl Stream for Stopping {
    type Item = datafusion::error::Result<RecordBatch>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(context)
    }
}
