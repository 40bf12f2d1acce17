//! Batches that wait for a reader, first in, first out.
//!
//! What waits is reserved; where that is refused, all that waits in memory goes to the end of a file. Files are read a batch at
//! a time, the oldest first, and what waits in memory after them.
//!
//! ```text
//! in ─ held ─ file that is written ─ files ─ file that is read ─ out
//! ```

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use futures::StreamExt;

use crate::exec::relational::files::{RowFile, Rows, files_of};
use crate::exec::relational::memory::Memory;

/// Bytes that are held whatever there is: the least that go to a file.
const HELD_BYTES_MIN: usize = 1 << 20;

/// Bytes of a file, which stays as long as some of its rows are to be read.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Batches of one schema.
pub(in super::super) struct Queue {
    reading: Option<SendableRecordBatchStream>,
    files: VecDeque<Rows>,
    /// With its bytes.
    writing: Option<(RowFile, usize)>,
    /// What came last, with the bytes that are reserved for it.
    held: VecDeque<(RecordBatch, usize)>,
    held_bytes: usize,
    memory: Memory,
    manager: SpillManager,
}

impl Queue {
    pub(in super::super) fn new(
        schema: &SchemaRef,
        context: &TaskContext,
        spills: &SpillMetrics,
    ) -> Self {
        Self {
            reading: None,
            files: VecDeque::new(),
            writing: None,
            held: VecDeque::new(),
            held_bytes: 0,
            memory: Memory::new("SpillingWindow", context.memory_pool()).leaving_some(),
            manager: files_of(schema, context, spills),
        }
    }

    /// # Errors
    /// Where there is no more room for files.
    pub(in super::super) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let bytes = get_record_batch_memory_size(&batch);
        if !self.memory.try_grow(bytes) {
            if self.held_bytes >= HELD_BYTES_MIN {
                self.write()?;
            }
            self.memory.grow(bytes);
        }
        self.held.push_back((batch, bytes));
        self.held_bytes += bytes;
        Ok(())
    }

    /// The batch that has waited longest.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(in super::super) async fn pop(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.reading {
                match rows.next().await.transpose()? {
                    Some(batch) => return Ok(Some(batch)),
                    None => self.reading = None,
                }
            }
            match self.next_file()? {
                Some(rows) => self.reading = Some(rows.read()),
                None => break,
            }
        }
        let oldest = self.held.pop_front();
        Ok(oldest.map(|(batch, bytes)| {
            self.held_bytes -= bytes;
            self.memory.shrink(bytes);
            batch
        }))
    }

    /// Writes what is held, to another file where this one is full.
    fn write(&mut self) -> Result<()> {
        if let Some((file, _)) = self.writing.take_if(|(_, bytes)| *bytes >= FILE_BYTES_MAX) {
            self.files.push_back(file.finish()?);
        }
        let (file, bytes) = match &mut self.writing {
            Some(writing) => writing,
            None => self.writing.insert((RowFile::new(&self.manager, "a window")?, 0)),
        };
        for (batch, _) in self.held.drain(..) {
            file.append(&batch)?;
        }
        *bytes += self.held_bytes;
        self.memory.shrink(std::mem::take(&mut self.held_bytes));
        Ok(())
    }

    fn next_file(&mut self) -> Result<Option<Rows>> {
        match self.files.pop_front() {
            Some(file) => Ok(Some(file)),
            None => self.writing.take().map(|(file, _)| file.finish()).transpose(),
        }
    }
}
