//! The probe side of a join whose build side is in parts: rows of parts in memory go on, others to files.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{PhysicalExpr, SpillManager};
use futures::{Stream, StreamExt, future};

use super::deal::{Dealer, valid_keys};
use super::files::Writer;
use super::spec::Spec;
use crate::exec::relational::feed::adapted;
use crate::exec::relational::files::Rows;

/// What NOT IN must know of all rows of the probe side.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) any_row: AtomicBool,
    pub(super) any_null: AtomicBool,
}

impl Seen {
    /// Looks at the keys of rows.
    pub(super) fn look(&self, keys: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            self.any_row.store(true, Ordering::Relaxed);
            if !self.any_null.load(Ordering::Relaxed) {
                let keys = keys.iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows()));
                let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
                if valid_keys(&keys).is_some() {
                    self.any_null.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// One partition of a probe side while it is dealt: held by the join of the parts in memory, which may not
/// want all of it, and by whoever reads the rest.
#[derive(Clone)]
pub(super) struct Probe(Arc<Mutex<Dealing>>);

struct Dealing {
    /// None once all has been read.
    input: Option<SendableRecordBatchStream>,
    dealer: Dealer,
    is_kept: Vec<bool>,
    /// None once the parts have been taken.
    writer: Option<Writer>,
}

impl Probe {
    pub(super) fn new(
        input: SendableRecordBatchStream,
        spec: &Spec,
        files: &SpillManager,
        working_bytes: usize,
        level: usize,
        is_kept: Vec<bool>,
    ) -> Self {
        let dealer = Dealer::new(spec, 1, working_bytes, level);
        let writer = Some(Writer::new(files, dealer.parts()));
        Self(Arc::new(Mutex::new(Dealing { input: Some(input), dealer, is_kept, writer })))
    }

    /// The rows of parts in memory. The others are dealt as these are read.
    pub(super) fn kept(&self, spec: &Spec) -> SendableRecordBatchStream {
        adapted(Arc::clone(&spec.sides[1]), self.clone())
    }

    /// Reads what has not been read, of which rows of parts in memory have nobody to meet, and yields the parts
    /// in files.
    pub(super) async fn parts(self) -> Result<Vec<Rows>> {
        let mut rest = self.clone();
        while rest.next().await.transpose()?.is_some() {}
        let writer = self.dealing().writer.take();
        writer.map_or_else(|| Ok(Vec::new()), Writer::finish)
    }

    fn dealing(&self) -> MutexGuard<'_, Dealing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Probe {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.dealing().poll_next(context)
    }
}

impl Dealing {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        while let Some(input) = &mut self.input {
            let is_full = match ready!(input.poll_next_unpin(context)) {
                Some(Ok(batch)) => batch.num_rows() > 0 && self.dealer.push(batch),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.input = None;
                    true
                }
            };
            if is_full && let Some(rows) = self.deal().transpose() {
                return Poll::Ready(Some(rows));
            }
        }
        Poll::Ready(None)
    }

    /// Deals what has been gathered; what is kept of it.
    fn deal(&mut self) -> Result<Option<RecordBatch>> {
        let dealt = self.dealer.deal(&self.is_kept)?;
        if let Some(writer) = &mut self.writer {
            for part in 0..self.is_kept.len() {
                if let Some(rows) = dealt.part(part)? {
                    writer.write(part, &rows)?;
                }
            }
        }
        dealt.kept()
    }
}

/// A stream whose rows are looked at as they pass.
pub(super) fn looked_at(
    rows: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    seen: Arc<Seen>,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let looked_at = rows.map(move |batch| {
        let batch = batch?;
        seen.look(&keys, &batch)?;
        Ok(batch)
    });
    adapted(schema, looked_at)
}

/// The rows of a stream whose keys are not NULL.
pub(super) fn with_keys(
    rows: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let filtered = rows.map(move |batch| {
        let batch = batch?;
        let arrays = keys.iter().map(|key| key.evaluate(&batch)?.into_array(batch.num_rows()));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        match valid_keys(&arrays) {
            Some(valid) => {
                let valid = arrow::array::BooleanArray::new(valid.into_inner(), None);
                Ok(arrow::compute::filter_record_batch(&batch, &valid)?)
            }
            None => Ok(batch),
        }
    });
    adapted(
        schema,
        filtered.filter(|batch| {
            future::ready(batch.as_ref().map_or(true, |batch| batch.num_rows() > 0))
        }),
    )
}
