//! Rows in files: written a batch at a time, then read as often as needed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::{StreamExt, TryStreamExt, stream};

use super::feed::adapted;

/// Makes files for rows of one schema.
pub(super) fn files_of(
    schema: &SchemaRef,
    context: &TaskContext,
    metrics: &SpillMetrics,
) -> SpillManager {
    SpillManager::new(context.runtime_env(), metrics.clone(), Arc::clone(schema))
        .with_compression_type(context.session_config().spill_compression())
}

/// Rows on their way to a file.
pub(super) struct RowFile {
    manager: SpillManager,
    /// Appends a batch; without one, ends the file. It holds DataFusion's writer, whose type cannot be named outside.
    write: Box<dyn FnMut(Option<&RecordBatch>) -> Result<Option<Arc<dyn SpillFile>>> + Send>,
    count: usize,
}

impl RowFile {
    /// # Errors
    /// Where no file can be made.
    pub(super) fn new(manager: &SpillManager, what: &str) -> Result<Self> {
        let mut file = manager.create_in_progress_file(what)?;
        let write = move |batch: Option<&RecordBatch>| match batch {
            Some(batch) => file.append_batch(batch).map(|_bytes| None),
            None => file.finish(),
        };
        Ok(Self { manager: manager.clone(), write: Box::new(write), count: 0 })
    }

    /// # Errors
    /// Where there is no more room for the file.
    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        self.count += batch.num_rows();
        (self.write)(Some(batch)).map(drop)
    }

    /// The rows, whole.
    ///
    /// # Errors
    /// Where the file cannot be written to its end.
    pub(super) fn finish(mut self) -> Result<Rows> {
        let files = (self.write)(None)?.into_iter().collect();
        Ok(Rows { manager: self.manager, files, count: self.count })
    }
}

/// Rows in files, to be read as often as needed. The files go with the last who holds them.
#[derive(Clone)]
pub(super) struct Rows {
    manager: SpillManager,
    pub(super) files: Vec<Arc<dyn SpillFile>>,
    pub(super) count: usize,
}

impl Rows {
    pub(super) fn none(manager: &SpillManager) -> Self {
        Self { manager: manager.clone(), files: Vec::new(), count: 0 }
    }

    /// A batch at a time.
    pub(super) fn read(&self) -> SendableRecordBatchStream {
        let manager = self.manager.clone();
        let files = stream::iter(self.files.clone());
        let rows = files
            .map(move |file| manager.read_spill_as_stream_unbuffered(file, None))
            .try_flatten();
        adapted(Arc::clone(self.manager.schema()), rows)
    }

    /// Takes in more rows of the same schema.
    pub(super) fn append(&mut self, rows: Rows) {
        self.files.extend(rows.files);
        self.count += rows.count;
    }
}
