//! Keys as they come, sorted into runs as large as memory allows.
//!
//! Enters: batches of the partitions, at once. Leaves: runs that are held, of which one is written to a file whenever
//! memory is refused, and runs that were. Where only the first so many rows are asked for, keys that cannot be among
//! them are dropped as soon as the runs show it.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef};
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::StreamExt;

use super::runs::{BLOCK_KEYS, Run, Writer, WrittenRun};
use crate::exec::relational::cells::{Cell, Key, cells};
use crate::exec::relational::memory::Memory;

/// Bytes of a held run at most. Larger ones take longer to sort than a statement that is to stop may wait.
const RUN_BYTES_MAX: usize = 32 << 20;

/// Keys that are gathered without asking, and the least that a run has while there are more.
const RUN_KEYS_MIN: usize = 16 << 10;

/// The runs of all partitions, and where they go.
pub(super) struct Runs<K> {
    pub(super) environment: Arc<RuntimeEnv>,
    pub(super) memory: Memory,
    pub(super) spills: SpillMetrics,
    /// Rows that are asked for.
    pub(super) fetch: Option<usize>,
    partitions: usize,
    kept: Mutex<Kept<K>>,
}

/// What the runs hold.
pub(super) struct Kept<K> {
    pub(super) held: Vec<Vec<K>>,
    pub(super) written: Vec<WrittenRun<K>>,
    pub(super) nulls: usize,
    /// The last key of each block and how many keys it ends, where not all rows are asked for.
    blocks: Vec<(K, usize)>,
    /// No key above it is asked for.
    cutoff: Option<K>,
}

impl<K: Key> Runs<K> {
    pub(super) fn new(
        environment: Arc<RuntimeEnv>,
        spills: SpillMetrics,
        fetch: Option<usize>,
        partitions: usize,
    ) -> Self {
        let memory = Memory::new("SpillingSort", &environment.memory_pool).leaving_some();
        let kept = Kept {
            held: Vec::new(),
            written: Vec::new(),
            nulls: 0,
            blocks: Vec::new(),
            cutoff: None,
        };
        Self { environment, memory, spills, fetch, partitions, kept: Mutex::new(kept) }
    }

    /// All runs. A partition whose task was stopped leaves none half made.
    pub(super) fn kept(&self) -> std::sync::MutexGuard<'_, Kept<K>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the largest held run to a file; whether there was one.
    pub(super) fn write_held(&self) -> Result<bool> {
        let run = {
            let held = &mut self.kept().held;
            let largest = (0..held.len()).max_by_key(|&at| held[at].len());
            largest.map(|at| held.swap_remove(at))
        };
        let Some(run) = run else { return Ok(false) };
        self.write(&run)?;
        self.memory.shrink(bytes(run.capacity(), &run));
        Ok(true)
    }

    fn write(&self, keys: &[K]) -> Result<()> {
        let mut writer = Writer::new(&self.environment, self.spills.clone())?;
        writer.append(keys)?;
        let run = writer.finish()?;
        self.kept().written.push(run);
        Ok(())
    }

    /// Takes a sorted run's blocks into account; returns the key above which none is asked for.
    fn bound(&self, keys: &[K]) -> Option<K> {
        let fetch = self.fetch?;
        let mut kept = self.kept();
        let blocks =
            keys.chunks(BLOCK_KEYS).filter_map(|block| Some((*block.last()?, block.len())));
        kept.blocks.extend(blocks);
        kept.blocks.sort_unstable();
        let mut below = 0;
        let enough = kept.blocks.iter().position(|(_, count)| {
            below += count;
            below >= fetch
        });
        if let Some(at) = enough {
            kept.cutoff = Some(kept.blocks[at].0);
            kept.blocks.truncate(at + 1);
        }
        kept.cutoff
    }
}

/// Bytes of so many keys.
fn bytes<K>(count: usize, _of: &[K]) -> usize {
    count * size_of::<K>()
}

/// The keys of one partition.
pub(super) struct Gather<C: Cell> {
    runs: Arc<Runs<C::Key>>,
    chunk: Vec<C::Key>,
    chunk_max: usize,
    /// All bits where the order is descending.
    flipped: C::Key,
    cutoff: Option<C::Key>,
    nulls: usize,
}

impl<C: Cell> Gather<C> {
    pub(super) fn new(runs: Arc<Runs<C::Key>>, flipped: C::Key) -> Self {
        let share_bytes = runs.memory.limit_bytes / (4 * runs.partitions);
        let chunk_max = share_bytes.min(RUN_BYTES_MAX) / size_of::<C::Key>();
        let chunk_max = chunk_max.max(RUN_KEYS_MIN);
        Self { runs, chunk: Vec::new(), chunk_max, flipped, cutoff: None, nulls: 0 }
    }

    /// All keys of the first column of a stream.
    pub(super) async fn all(mut self, mut input: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = input.next().await.transpose()? {
            self.push(batch.column(0))?;
        }
        drop(input);
        self.seal()?;
        self.runs.kept().nulls += self.nulls;
        Ok(())
    }

    fn push(&mut self, column: &ArrayRef) -> Result<()> {
        let cells = cells::<C>(column);
        match column.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => self.extend(&cells),
            Some(nulls) => {
                self.nulls += nulls.null_count();
                nulls.valid_slices().try_for_each(|(start, end)| self.extend(&cells[start..end]))
            }
        }
    }

    fn extend(&mut self, mut cells: &[C]) -> Result<()> {
        while !cells.is_empty() {
            if self.chunk.len() == self.chunk.capacity() {
                self.make_room()?;
            }
            let room = self.chunk.capacity() - self.chunk.len();
            let (now, rest) = cells.split_at(room.min(cells.len()));
            let flipped = self.flipped;
            let keys = now.iter().map(|cell| cell.key() ^ flipped);
            match self.cutoff {
                None => self.chunk.extend(keys),
                Some(cutoff) => self.chunk.extend(keys.filter(|&key| key <= cutoff)),
            }
            cells = rest;
        }
        Ok(())
    }

    /// Room for at least one key more: the chunk grows, or becomes a run.
    fn make_room(&mut self) -> Result<()> {
        let capacity = self.chunk.capacity();
        if capacity >= self.chunk_max {
            return self.seal();
        }
        let more = capacity.max(RUN_KEYS_MIN).min(self.chunk_max - capacity);
        let more_bytes = bytes(more, &self.chunk);
        while !self.runs.memory.try_grow(more_bytes) {
            if self.runs.write_held()? {
                continue;
            }
            if capacity > 0 {
                return self.write_chunk();
            }
            self.runs.memory.grow(more_bytes);
            break;
        }
        self.chunk.reserve_exact(more);
        Ok(())
    }

    /// Sorts the chunk and holds it as a run.
    fn seal(&mut self) -> Result<()> {
        self.sort();
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            self.runs.memory.shrink(bytes(chunk.capacity(), &chunk));
        } else {
            self.runs.kept().held.push(chunk);
        }
        Ok(())
    }

    /// Sorts the chunk, writes it to a file and begins anew in its memory.
    fn write_chunk(&mut self) -> Result<()> {
        self.sort();
        self.runs.write(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    fn sort(&mut self) {
        self.chunk.sort_unstable();
        if let Some(fetch) = self.runs.fetch {
            self.chunk.truncate(fetch);
            self.cutoff = self.runs.bound(&self.chunk);
        }
    }
}

impl<K: Key> Kept<K> {
    /// Keys of all runs.
    pub(super) fn count(&self) -> usize {
        let held = self.held.iter().map(Vec::len);
        held.chain(self.written.iter().map(WrittenRun::count)).sum()
    }

    /// The oldest files that become one so that so many are left, or fewer at once where they are too many for that.
    pub(super) fn take_beyond(&mut self, fan_in: usize) -> Vec<Run<K>> {
        let group = match self.written.len().saturating_sub(fan_in) {
            0 => 0,
            excess => (excess + 1).min(fan_in),
        };
        self.written.drain(..group).map(Run::Written).collect()
    }

    /// The runs, of which none is kept any more.
    pub(super) fn take(&mut self) -> Vec<Run<K>> {
        let held = std::mem::take(&mut self.held).into_iter().map(Run::Held);
        held.chain(std::mem::take(&mut self.written).into_iter().map(Run::Written)).collect()
    }
}
