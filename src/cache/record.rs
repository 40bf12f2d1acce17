//! The rows of a run on their way to its reader, kept as an answer if all of them come by.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use futures::{Stream, StreamExt};

use super::{
    About, Answer, Cache, Content, Counted, DurableAnswer, DurableQuestion, Question, Rows,
};
use crate::memory::compacted;

/// Bytes a second at which an answer is read back: one that was computed as fast need not be remembered.
const BYTES_PER_SECOND: f64 = (1_u64 << 30) as f64;

/// Whether what took so long to compute is worth so many bytes, where nothing is that took less than this; where this is zero,
/// all is.
pub(crate) fn is_worth_it(seconds: f64, bytes: usize, seconds_min: f64) -> bool {
    seconds_min == 0.0 || seconds >= seconds_min + bytes as f64 / BYTES_PER_SECOND
}

/// Rows that become an answer.
#[derive(Debug)]
pub(crate) struct Recording {
    cache: Arc<Cache>,
    question: Question,
    /// Of what has come by: the time that it took, without that for which its reader let it wait.
    about: About,
    /// What takes less is not remembered; where this is zero, all is.
    seconds_min: f64,
    batches: Vec<RecordBatch>,
    bytes: MemoryReservation,
    bytes_max: usize,
    /// Where other processes are to know them, the question, and what they were made of.
    durable: Option<(DurableQuestion, Vec<(String, String)>)>,
}

impl Recording {
    /// Begins to record what answers a question, for which some time was needed already.
    pub(crate) fn new(
        cache: &Arc<Cache>,
        question: Question,
        about: About,
        seconds_min: f64,
    ) -> Self {
        let bytes = MemoryConsumer::new("remembered answer").register(&cache.pool);
        let (bytes_max, cache) = (cache.answer_bytes_max(), Arc::clone(cache));
        let (batches, durable) = Default::default();
        Self { cache, question, about, seconds_min, batches, bytes, bytes_max, durable }
    }

    /// The same for other processes too, where they may find what these rows are made of.
    pub(crate) fn durable(self, question: Option<DurableQuestion>) -> Self {
        Self { durable: question.zip(self.about.reads.lasting()), ..self }
    }

    /// The same rows, recorded as they pass.
    pub(crate) fn of(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(Recorded { rows, recording: Some(self), waited: None })
    }

    /// Takes a batch in; whether there is room for it.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> bool {
        let batch = compacted(batch);
        let bytes = get_record_batch_memory_size(&batch);
        let has_room =
            self.bytes.size() + bytes <= self.bytes_max && self.bytes.try_grow(bytes).is_ok();
        if has_room {
            self.batches.push(batch);
        }
        has_room
    }

    /// Takes note of time that the rows took.
    pub(super) fn took(&mut self, time: Duration) {
        self.about.seconds += time.as_secs_f64();
    }

    /// All rows have come by.
    pub(super) fn finish(self, schema: SchemaRef) {
        if is_worth_it(self.about.seconds, self.bytes.size(), self.seconds_min) {
            let Self { cache, question, about, batches, bytes, durable, .. } = self;
            let rows = Rows { schema, batches };
            if let Some((durable, reads)) = durable {
                let (query, seconds, rows) = (about.query.clone(), about.seconds, rows.clone());
                cache.write(durable, &DurableAnswer { rows, query, seconds, reads });
            }
            let (content, bytes) = (Content::Rows(rows), Counted::rows(bytes));
            cache.keep(question, Answer::new(about, content, bytes, &cache.shelf));
        }
    }
}

struct Recorded {
    rows: SendableRecordBatchStream,
    /// Until the rows turn out to be too many, or are at their end.
    recording: Option<Recording>,
    /// Since when the next batch is waited for.
    waited: Option<Instant>,
}

impl Stream for Recorded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let since = *self.waited.get_or_insert_with(Instant::now);
        let item = ready!(self.rows.poll_next_unpin(context));
        self.waited = None;
        let Some(mut recording) = self.recording.take() else { return Poll::Ready(item) };
        recording.took(since.elapsed());
        match &item {
            Some(Ok(batch)) => {
                if recording.push(batch) {
                    self.recording = Some(recording);
                }
            }
            Some(Err(_)) => {}
            None => recording.finish(self.rows.schema()),
        }
        Poll::Ready(item)
    }
}

impl RecordBatchStream for Recorded {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
