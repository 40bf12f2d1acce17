//! The rows that one round of a recursion made, until the next one has read them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::SpillManager;
use futures::{StreamExt, stream};

use crate::exec::relational::feed::adapted;
use crate::exec::relational::files::RowFile;
use crate::exec::relational::memory::Memory;

/// Bytes of rows that are not worth a file, whatever the memory.
const FILE_BYTES_MIN: usize = 256 << 10;

/// Rows in the order in which they came: those that fit, then those of a file.
pub(super) struct Round {
    manager: SpillManager,
    memory: Memory,
    held: Vec<RecordBatch>,
    held_bytes: usize,
    file: Option<RowFile>,
}

impl Round {
    pub(super) fn new(manager: &SpillManager, context: &TaskContext) -> Self {
        let memory = Memory::new("SpillingRecursion", context.memory_pool());
        Self { manager: manager.clone(), memory, held: Vec::new(), held_bytes: 0, file: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.file.is_none()
    }

    pub(super) fn is_one_batch(&self) -> bool {
        self.held.len() == 1 && self.file.is_none()
    }

    /// # Errors
    /// Where there is no room for a file.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if let Some(file) = &mut self.file {
            return file.append(batch);
        }
        let bytes = batch.get_array_memory_size();
        if self.held_bytes + bytes <= FILE_BYTES_MIN {
            self.memory.grow(bytes);
        } else if !self.memory.try_grow(bytes) {
            let mut file = RowFile::new(&self.manager, "a recursion")?;
            file.append(batch)?;
            self.file = Some(file);
            return Ok(());
        }
        self.held_bytes += bytes;
        self.held.push(batch.clone());
        Ok(())
    }

    /// The rows, which are given back as they are read.
    ///
    /// # Errors
    /// Where the file cannot be written to its end.
    pub(super) fn rows(self) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(self.manager.schema());
        let file = self.file.map(RowFile::finish).transpose()?;
        let memory = self.memory;
        let held = stream::iter(self.held).map(move |batch| {
            memory.shrink(batch.get_array_memory_size());
            Ok(batch)
        });
        Ok(match file {
            Some(file) => adapted(schema, held.chain(file.read())),
            None => adapted(schema, held),
        })
    }
}
