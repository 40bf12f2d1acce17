//! Groups on their way from one table to the next, by parts: in memory, and in files once memory is refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::spill::get_record_batch_memory_size;

use crate::exec::relational::files::{RowFile, Rows};
use crate::exec::relational::memory::Memory;

/// Bytes that an open file gathers before it writes them.
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// The files of the parts of one level, one for each, for whoever deals to it.
pub(super) struct Files {
    manager: SpillManager,
    memory: Memory,
    open: Vec<Mutex<Option<RowFile>>>,
}

impl Files {
    pub(super) fn new(manager: &SpillManager, memory: Memory, parts: usize) -> Self {
        let open = std::iter::repeat_with(Mutex::default).take(parts).collect();
        Self { manager: manager.clone(), memory, open }
    }

    fn file(&self, part: usize) -> MutexGuard<'_, Option<RowFile>> {
        // A file whose writer was stopped is read by nobody.
        self.open[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, part: usize, groups: &[RecordBatch]) -> Result<()> {
        let mut file = self.file(part);
        let file = match file.as_mut() {
            Some(file) => file,
            None => {
                self.memory.grow(PAGE_BYTES);
                file.insert(RowFile::new(&self.manager, "an aggregation")?)
            }
        };
        groups.iter().try_for_each(|groups| file.append(groups))
    }

    /// What was written of a part; nothing is added any more.
    ///
    /// # Errors
    /// Where the file cannot be written to its end.
    pub(super) fn finish(&self, part: usize) -> Result<Option<Rows>> {
        let Some(file) = self.file(part).take() else { return Ok(None) };
        self.memory.shrink(PAGE_BYTES);
        file.finish().map(Some)
    }
}

/// Groups that are held, by parts.
pub(super) struct Held {
    parts: Vec<Vec<RecordBatch>>,
    bytes: Vec<usize>,
}

impl Held {
    pub(super) fn new(parts: usize) -> Self {
        Self { parts: vec![Vec::new(); parts], bytes: vec![0; parts] }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    pub(super) fn push(&mut self, part: usize, groups: RecordBatch) {
        self.bytes[part] += get_record_batch_memory_size(&groups);
        self.parts[part].push(groups);
    }

    /// Writes all there is to files.
    ///
    /// # Errors
    /// Where there is no more room for them.
    pub(super) fn write(&mut self, files: &Files) -> Result<()> {
        for (part, groups) in self.parts.iter_mut().enumerate() {
            if !groups.is_empty() {
                files.append(part, &std::mem::take(groups))?;
            }
            self.bytes[part] = 0;
        }
        Ok(())
    }

    /// The groups of each part, whose bytes are reserved there.
    pub(super) fn take(self, memory: &Arc<Memory>) -> Vec<HeldPart> {
        let parts = self.parts.into_iter().zip(self.bytes);
        let held = |(groups, bytes)| HeldPart { groups, bytes, memory: Arc::clone(memory) };
        parts.map(held).collect()
    }
}

/// Groups of a part in memory; what they take is given back with them.
pub(super) struct HeldPart {
    pub(super) groups: Vec<RecordBatch>,
    bytes: usize,
    memory: Arc<Memory>,
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.memory.shrink(self.bytes);
    }
}

/// All that is known of the groups of a part.
#[derive(Default)]
pub(super) struct Part {
    pub(super) held: Vec<HeldPart>,
    pub(super) written: Option<Rows>,
}

impl Part {
    /// Puts groups into its file: these, and what is held.
    ///
    /// # Errors
    /// Where there is no more room for them.
    pub(super) fn write(
        &mut self,
        groups: Option<RecordBatch>,
        manager: &SpillManager,
    ) -> Result<()> {
        if groups.is_none() && self.held.is_empty() {
            return Ok(());
        }
        let mut file = RowFile::new(manager, "an aggregation")?;
        groups.iter().try_for_each(|groups| file.append(groups))?;
        for held in self.held.drain(..) {
            held.groups.iter().try_for_each(|groups| file.append(groups))?;
        }
        let rows = file.finish()?;
        match &mut self.written {
            Some(written) => written.append(rows),
            None => self.written = Some(rows),
        }
        Ok(())
    }
}
