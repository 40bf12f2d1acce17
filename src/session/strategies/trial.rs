//! The rows of a run that is measured, and those of one that tries another way.
//!
//! What is tried hands on its rows once it has all of them: until then it can be stopped, whatever the reason, and the rows come
//! from the operators that are known. So nobody waits longer than the try may take, and no reader meets its errors.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, TryStreamExt, stream};

use crate::memory::compacted;

/// Bytes of an answer that is kept until its end.
const ANSWER_MAX: usize = 4 << 20;

/// The same rows; whoever asks is told what they took once the last one is there, without the time for which their reader let
/// them wait.
pub(super) fn measured(
    rows: SendableRecordBatchStream,
    report: impl FnOnce(Duration) + Send + Unpin + 'static,
) -> SendableRecordBatchStream {
    Box::pin(Timed { rows, report: Some(report), waited: None, took: Duration::ZERO })
}

struct Timed<F> {
    rows: SendableRecordBatchStream,
    /// Until the rows are at their end, or fail.
    report: Option<F>,
    /// Since when the next batch is waited for.
    waited: Option<Instant>,
    took: Duration,
}

impl<F: FnOnce(Duration) + Unpin> Stream for Timed<F> {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let since = *self.waited.get_or_insert_with(Instant::now);
        let item = ready!(self.rows.poll_next_unpin(context));
        self.waited = None;
        self.took += since.elapsed();
        match &item {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.report = None,
            None => {
                let took = self.took;
                if let Some(report) = self.report.take() {
                    report(took);
                }
            }
        }
        Poll::Ready(item)
    }
}

impl<F: FnOnce(Duration) + Unpin> RecordBatchStream for Timed<F> {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

/// The rows that are tried, if all are there in time; else those that are known. Whoever asks is told what the try took, or
/// nothing where it came to no end.
pub(super) fn tried(
    rows: SendableRecordBatchStream,
    most: Duration,
    known: impl FnOnce() -> Result<SendableRecordBatchStream> + Send + 'static,
    pool: Arc<dyn MemoryPool>,
    report: impl FnOnce(Option<Duration>) + Send + 'static,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rows = async move {
        let began = Instant::now();
        let all = tokio::time::timeout(most, Answer::of(rows, &pool)).await.ok().flatten();
        report(all.as_ref().map(|_| began.elapsed()));
        match all {
            Some(answer) => Ok(stream::iter(answer).map(Ok).boxed()),
            None => known().map(StreamExt::boxed),
        }
    };
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(rows).try_flatten()))
}

/// All rows of a try.
struct Answer {
    batches: std::vec::IntoIter<RecordBatch>,
    /// Of the batches, until the last one has been read.
    _bytes: MemoryReservation,
}

impl Answer {
    /// All of these rows; nothing where they fail, or are too many to be kept.
    async fn of(mut rows: SendableRecordBatchStream, pool: &Arc<dyn MemoryPool>) -> Option<Self> {
        let reserved = MemoryConsumer::new("answer of a try").register(pool);
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = compacted(&batch.ok()?);
            let bytes = get_record_batch_memory_size(&batch);
            if reserved.size() + bytes > ANSWER_MAX || reserved.try_grow(bytes).is_err() {
                return None;
            }
            batches.push(batch);
        }
        Some(Self { batches: batches.into_iter(), _bytes: reserved })
    }
}

impl Iterator for Answer {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        self.batches.next()
    }
}
