//! Sorted keys, held or in a file.
//!
//! Enters: a sorted slice. Leaves: its keys in order, as many at a time as are asked for, and the last key of every
//! block of them, by which a merge knows what it will need next without reading it.

use std::pin::Pin;
use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut};
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SpillFile, SpillWriter};
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::{Stream, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::exec::relational::cells::Key;

/// Keys of a block, all but the last of a run: 64 KiB of 64-bit keys, which a disk reads as fast as larger ones.
pub(super) const BLOCK_KEYS: usize = 8192;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Keys in ascending order.
pub(super) enum Run<K> {
    Held(Vec<K>),
    Written(WrittenRun<K>),
}

/// Keys in a file.
pub(super) struct WrittenRun<K> {
    file: Arc<dyn SpillFile>,
    count: usize,
    lasts: Vec<K>,
}

impl<K: Key> Run<K> {
    pub(super) fn count(&self) -> usize {
        match self {
            Run::Held(keys) => keys.len(),
            Run::Written(run) => run.count(),
        }
    }

    /// The last key of each block.
    pub(super) fn lasts(&self) -> Vec<K> {
        match self {
            Run::Held(keys) => lasts(keys),
            Run::Written(run) => run.lasts.clone(),
        }
    }
}

impl<K> WrittenRun<K> {
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

fn lasts<K: Key>(keys: &[K]) -> Vec<K> {
    keys.chunks(BLOCK_KEYS).filter_map(|block| block.last().copied()).collect()
}

/// A run while it is written.
pub(super) struct Writer<K> {
    run: WrittenRun<K>,
    writer: Box<dyn SpillWriter>,
    metrics: SpillMetrics,
}

impl<K: Key> Writer<K> {
    pub(super) fn new(environment: &RuntimeEnv, metrics: SpillMetrics) -> Result<Self> {
        let file = environment.disk_manager.create_tmp_file("a sort")?;
        let writer = file.open_writer()?;
        metrics.spill_file_count.add(1);
        let run = WrittenRun { file, count: 0, lasts: Vec::new() };
        Ok(Self { run, writer, metrics })
    }

    /// Appends keys that are not less than those before.
    pub(super) fn append(&mut self, keys: &[K]) -> Result<()> {
        for part in keys.chunks(WRITE_BYTES / size_of::<K>()) {
            self.writer.write_all(cast_slice(part))?;
        }
        self.metrics.spilled_bytes.add(size_of_val(keys));
        self.metrics.spilled_rows.add(keys.len());
        // The first block may have been begun before.
        let run = &mut self.run;
        let mut rest = keys;
        while let Some(&last) = rest.last() {
            let begun = run.count % BLOCK_KEYS;
            let now = rest.len().min(BLOCK_KEYS - begun);
            let last = if now < rest.len() { rest[now - 1] } else { last };
            match run.lasts.last_mut().filter(|_| begun > 0) {
                Some(block) => *block = last,
                None => run.lasts.push(last),
            }
            run.count += now;
            rest = &rest[now..];
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<WrittenRun<K>> {
        self.writer.finish()?;
        Ok(self.run)
    }
}

/// The keys of a run in order.
pub(super) enum Reader<K> {
    Held { keys: Vec<K>, taken: usize },
    Written(FileReader<K>),
}

impl<K: Key> Reader<K> {
    /// # Errors
    /// Where the file cannot be opened.
    pub(super) fn new(run: Run<K>) -> Result<Self> {
        Ok(match run {
            Run::Held(keys) => Reader::Held { keys, taken: 0 },
            Run::Written(run) => {
                let bytes = run.file.read_stream()?;
                Reader::Written(FileReader {
                    bytes,
                    _file: run.file,
                    keys: Vec::new(),
                    taken: 0,
                    filled_bytes: 0,
                })
            }
        })
    }

    /// Appends the next so many keys, all of which there are, and then those that are less than the bound among as
    /// many as follow in the same block; says how many those were.
    pub(super) async fn take(
        &mut self,
        count: usize,
        within: usize,
        bound: K,
        into: &mut Vec<K>,
    ) -> Result<usize> {
        let ahead = match self {
            Reader::Held { keys, taken } => &keys[*taken..*taken + count + within],
            Reader::Written(reader) => reader.ahead(count + within).await?,
        };
        let below = ahead[count..].partition_point(|&key| key < bound);
        into.extend_from_slice(&ahead[..count + below]);
        match self {
            Reader::Held { taken, .. } => *taken += count + below,
            Reader::Written(reader) => reader.taken += count + below,
        }
        Ok(below)
    }
}

/// Keys as they come from a file.
pub(super) struct FileReader<K> {
    bytes: Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>,
    /// A file goes when nobody has it.
    _file: Arc<dyn SpillFile>,
    /// Those from `taken` on are still to be had; the last may be there in part.
    keys: Vec<K>,
    taken: usize,
    filled_bytes: usize,
}

impl<K: Key> FileReader<K> {
    /// The next so many keys, which stay.
    async fn ahead(&mut self, count: usize) -> Result<&[K]> {
        while self.filled_bytes / size_of::<K>() < self.taken + count {
            let Some(bytes) = self.bytes.next().await.transpose()? else {
                let message = "a file of sorted rows ends before its last row".to_owned();
                return Err(Error::from(ErrorKind::Internal(message)).into());
            };
            self.append(&bytes);
        }
        Ok(&self.keys[self.taken..self.taken + count])
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            let taken_bytes = self.taken * size_of::<K>();
            cast_slice_mut::<K, u8>(&mut self.keys).copy_within(taken_bytes..self.filled_bytes, 0);
            self.filled_bytes -= taken_bytes;
            self.taken = 0;
        }
        let end = self.filled_bytes + bytes.len();
        let count = end.div_ceil(size_of::<K>());
        if self.keys.len() < count {
            self.keys.resize(count, K::zeroed());
        }
        cast_slice_mut::<K, u8>(&mut self.keys)[self.filled_bytes..end].copy_from_slice(bytes);
        self.filled_bytes = end;
    }
}
