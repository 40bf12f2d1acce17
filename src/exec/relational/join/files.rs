//! The rows of one side in files, by parts.

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::physical_plan::SpillManager;

use crate::exec::relational::files::{RowFile, Rows};

/// The parts of one side that are being written.
pub(super) struct Writer {
    manager: SpillManager,
    parts: Vec<Option<RowFile>>,
}

impl Writer {
    pub(super) fn new(manager: &SpillManager, parts: usize) -> Self {
        let parts = std::iter::repeat_with(|| None).take(parts).collect();
        Self { manager: manager.clone(), parts }
    }

    /// Adds rows to a part.
    ///
    /// # Errors
    /// Where no file can be written.
    pub(super) fn write(&mut self, part: usize, batch: &RecordBatch) -> Result<()> {
        let file = match &mut self.parts[part] {
            Some(file) => file,
            none => none.insert(RowFile::new(&self.manager, "a join")?),
        };
        file.append(batch)
    }

    /// All parts, whole.
    ///
    /// # Errors
    /// Where a file cannot be written to its end.
    pub(super) fn finish(self) -> Result<Vec<Rows>> {
        let Self { manager, parts } = self;
        let finished = |part: Option<RowFile>| match part {
            Some(file) => file.finish(),
            None => Ok(Rows::none(&manager)),
        };
        parts.into_iter().map(finished).collect()
    }
}
