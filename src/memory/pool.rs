//! Memory that outlives the matrices in it: blocks of a few sizes, kept for the next one that asks.
//!
//! Enters: a number of bytes. Leaves: a [`Block`] at least that long, aligned to 64 bytes, which comes back
//! when its last reader lets it go: at the end of a query whatever became of it, for a query owns what it
//! computes. Not here: what cells are ([`CellBuffer`](crate::matrix::CellBuffer)), and how much a statement may ask
//! for ([`Reservations`](super::Reservations), which make room here before they grow).
//!
//! A fresh page is zeroed by the system when it is first touched, which takes as long as a fused loop needs to
//! fill it: a result of 400 MB took up to twice as long in fresh memory as in memory that is reused.
//!
//! ```text
//! bytes             block
//! below 64 KiB      the allocator's, neither kept nor counted: it is quick with those by itself
//! below 4 MiB       the allocator's, kept
//! from 4 MiB on     mapped in huge pages, kept
//! beyond the limit  a file's, mapped, let go at once
//! ```
//!
//! Which it is from 4 MiB on, [`Grant`](super::Grant)s decide: what matrices were granted beside what nobody has reserved is memory,
//! and a block beyond both is in a file ([`Residency`]).
//!
//! Four sizes for each power of two: a block is at most a quarter longer than what was asked for, and what
//! lies beyond takes no memory while nobody has touched it. What is kept is bounded three times: by a number
//! of bytes, by what reservations leave of the memory limit, and by a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Disk;
use super::block::{Block, MAPPED_BYTES_MIN, Memory};
use super::mapping::{MappedUsage, Mapping, Residency};

/// How long a block is kept that nobody asks for: much longer than a user who tries one statement after
/// another thinks between two, and short for a process that has gone on to other things.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);

/// The memory of cells: what is in use, what is kept for reuse, and how often it was reused. Blocks below
/// 64 KiB are not counted.
///
/// ```
/// # use relatrix::Database;
/// let database = Database::builder().threads(1).build()?;
/// let connection = database.connect();
/// for _ in 0..4 {
///     connection.execute("CREATE OR REPLACE MATRIX x = 2 * ones(1000, 100)")?;
/// }
/// let usage = database.memory_usage();
/// assert!(usage.used_bytes >= 800_000 && usage.peak_bytes >= usage.used_bytes);
/// assert!(usage.reuse_rate() > 0.0);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes of the blocks in which matrices and results under way are.
    pub used_bytes: usize,
    /// Bytes of the blocks that wait for the next matrix.
    pub idle_bytes: usize,
    /// The most that both were together.
    pub peak_bytes: usize,
    /// Blocks that were asked for.
    pub blocks: u64,
    /// Those of them that had been used before.
    pub blocks_reused: u64,
}

impl MemoryUsage {
    /// Share of the blocks asked for that had been used before; 0 of none.
    ///
    /// ```
    /// let usage = relatrix::MemoryUsage { blocks: 4, blocks_reused: 3, ..Default::default() };
    /// assert_eq!(usage.reuse_rate(), 0.75);
    /// ```
    pub fn reuse_rate(&self) -> f64 {
        self.blocks_reused as f64 / self.blocks.max(1) as f64
    }
}

/// What a pool may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    /// Bytes that are kept at most.
    pub(crate) idle_bytes: usize,
    /// Bytes in use and kept at most; use goes beyond it, and then nothing is kept.
    pub(crate) total_bytes: usize,
    /// Bytes of the process that may be resident where pages of files can be taken back.
    pub(crate) resident_bytes: usize,
    /// Whether memory that is to be overwritten holds `NaN`, so that a test sees what is not.
    pub(crate) poison: bool,
}

/// The blocks of a database.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Where blocks go that memory has no room for; without it all are in memory.
    files: Option<Files>,
}

#[derive(Debug)]
struct Files {
    disk: Arc<Disk>,
    residency: Arc<Residency>,
}

#[derive(Debug)]
struct State {
    limits: PoolLimits,
    usage: MemoryUsage,
    /// Bytes of reservations that stand for blocks.
    granted_bytes: usize,
    /// Bytes that nobody has reserved.
    unreserved_bytes: usize,
    /// By size, those let go last at the end: they may still be in a cache.
    idle: BTreeMap<usize, Vec<Idle>>,
    /// Those that are read, by their address: the last reader may write them again.
    frozen: HashMap<usize, Weak<Block>>,
}

#[derive(Debug)]
struct Idle {
    memory: Memory,
    since: Instant,
}
impl Pool {
    /// One whose blocks are all in memory.
    pub(crate) fn new(limits: PoolLimits) -> Arc<Self> {
        Self::with(limits, None)
    }

    /// One whose blocks are in files where memory has no room for them.
    pub(crate) fn on(disk: Arc<Disk>, limits: PoolLimits) -> Arc<Self> {
        let residency = Residency::new(limits.resident_bytes);
        Self::with(limits, Some(Files { disk, residency }))
    }

    fn with(limits: PoolLimits, files: Option<Files>) -> Arc<Self> {
        let state = State {
            limits,
            usage: MemoryUsage::default(),
            granted_bytes: 0,
            unreserved_bytes: limits.total_bytes,
            idle: BTreeMap::new(),
            frozen: HashMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), files })
    }

    pub(crate) fn usage(&self) -> MemoryUsage {
        self.state().usage
    }

    /// Takes new limits, and gives to the system what is kept beyond them.
    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        let mut state = self.state();
        if let Some(files) = &self.files {
            files.residency.set_limit(limits.resident_bytes);
        }
        state.limits = limits;
        state.unreserved_bytes = limits.total_bytes;
        let released = state.release_beyond(limits.idle_bytes);
        drop(state);
        drop(released);
    }

    /// Leaves so many bytes, which nobody has reserved, to blocks: kept ones beyond them go to the system.
    pub(crate) fn leave(&self, unreserved_bytes: usize) {
        self.state().unreserved_bytes = unreserved_bytes;
        self.trim(unreserved_bytes);
    }

    /// Gives kept blocks to the system until so many bytes are kept at most.
    pub(crate) fn trim(&self, idle_bytes_max: usize) {
        let mut state = self.state();
        let released = state.release_beyond(idle_bytes_max);
        drop(state);
        drop(released);
    }

    /// Gives to the system what nobody has asked for since [`IDLE_MAX`].
    pub(crate) fn expire(&self, now: Instant) {
        let mut state = self.state();
        let mut released = Vec::new();
        while state
            .oldest()
            .is_some_and(|(_, since)| now.saturating_duration_since(since) > IDLE_MAX)
        {
            released.extend(state.release_oldest());
        }
        drop(state);
        drop(released);
    }

    /// Counts reserved bytes that stand for blocks.
    pub(super) fn grant(&self, bytes: usize) {
        self.state().granted_bytes += bytes;
    }

    /// Counts fewer of them.
    pub(super) fn revoke(&self, bytes: usize) {
        self.state().granted_bytes -= bytes;
    }

    /// Bytes that the disk has for what memory has not.
    pub(super) fn disk_bytes(&self) -> usize {
        let free = self.files.as_ref().map_or(0, |files| files.disk.free_bytes());
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of blocks that may come in memory beside those there are.
    pub(super) fn room_bytes(&self) -> usize {
        self.state().room_bytes()
    }

    /// Who keeps pages of files in memory, where there are files.
    pub(super) fn residency(&self) -> Option<&Residency> {
        self.files.as_ref().map(|files| files.residency.as_ref())
    }

    /// How blocks in files were read and written.
    pub(crate) fn mapped(&self) -> MappedUsage {
        self.residency().map(Residency::usage).unwrap_or_default()
    }

    pub(super) fn poisons(&self) -> bool {
        self.state().limits.poison
    }

    /// Remembers a block that is read from now on.
    pub(super) fn note_frozen(&self, block: &Arc<Block>) {
        self.state().frozen.insert(block.address(), Arc::downgrade(block));
    }

    /// The block at this address that is read, of this length; it is not remembered any more.
    pub(super) fn thawed(&self, address: usize, length: usize) -> Option<Arc<Block>> {
        let block = self.state().frozen.get(&address).and_then(Weak::upgrade);
        let block = block.filter(|block| block.length() == length)?;
        self.state().frozen.remove(&address);
        Some(block)
    }

    /// A block of this size, kept or fresh; in a file where memory has no room for it.
    pub(super) fn take(self: &Arc<Self>, length: usize, class: usize) -> Option<Block> {
        let block =
            |memory, is_zero| Some(Block::of(Arc::downgrade(self), memory, length, is_zero));
        let mut state = self.state();
        if self.files.is_some() && class >= MAPPED_BYTES_MIN && class > state.room_bytes() {
            drop(state);
            return self.take_file(length);
        }
        if let Some(memory) = state.reused(class) {
            return block(memory, false);
        }
        let room = state.limits.total_bytes.saturating_sub(state.usage.used_bytes + class);
        let released = state.release_beyond(room);
        drop(state);
        drop(released);
        let memory = Memory::fresh(class).or_else(|| {
            self.trim(0);
            Memory::fresh(class)
        })?;
        self.state().count(class);
        block(memory, true)
    }

    /// A block in a file.
    pub(super) fn take_file(self: &Arc<Self>, length: usize) -> Option<Block> {
        let files = self.files.as_ref()?;
        let mapping = Mapping::new(&files.disk, &files.residency, length.max(1)).ok()?;
        Some(Block::of(Arc::downgrade(self), Memory::File(mapping), length, true))
    }

    /// Takes memory back, to keep it for the next block or let it go.
    pub(super) fn give_back(&self, memory: Memory) {
        let class = memory.bytes().len();
        let mut state = self.state();
        state.frozen.remove(&(memory.bytes().as_ptr() as usize));
        if matches!(memory, Memory::File(_)) {
            // What the system takes back it takes back outside the lock, for that takes long.
            drop(state);
            return drop(memory);
        }
        state.usage.used_bytes -= class;
        let PoolLimits { idle_bytes, total_bytes, .. } = state.limits;
        let kept_max = idle_bytes.min(total_bytes.saturating_sub(state.usage.used_bytes));
        let released = match kept_max.checked_sub(class) {
            Some(others_max) => {
                let released = state.release_beyond(others_max);
                state.keep(memory);
                released
            }
            None => vec![memory],
        };
        drop(state);
        drop(released);
    }
}

impl State {
    /// Bytes of blocks that may come in memory beside those there are.
    fn room_bytes(&self) -> usize {
        (self.granted_bytes.saturating_add(self.unreserved_bytes))
            .saturating_sub(self.usage.used_bytes)
    }

    /// A kept block of this size.
    fn reused(&mut self, class: usize) -> Option<Memory> {
        let blocks = self.idle.get_mut(&class)?;
        let Idle { memory, .. } = blocks.pop()?;
        if blocks.is_empty() {
            self.idle.remove(&class);
        }
        self.usage.idle_bytes -= class;
        self.usage.blocks_reused += 1;
        self.count(class);
        Some(memory)
    }

    /// Counts a block that was asked for.
    fn count(&mut self, class: usize) {
        let usage = &mut self.usage;
        usage.blocks += 1;
        usage.used_bytes += class;
        usage.peak_bytes = usage.peak_bytes.max(usage.used_bytes + usage.idle_bytes);
    }

    fn keep(&mut self, memory: Memory) {
        let class = memory.bytes().len();
        self.usage.idle_bytes += class;
        self.idle.entry(class).or_default().push(Idle { memory, since: Instant::now() });
    }

    /// Takes out kept blocks, the oldest first, until so many bytes are kept at most.
    fn release_beyond(&mut self, idle_bytes_max: usize) -> Vec<Memory> {
        let mut released = Vec::new();
        while self.usage.idle_bytes > idle_bytes_max {
            released.extend(self.release_oldest());
        }
        released
    }

    fn release_oldest(&mut self) -> Option<Memory> {
        let (class, _) = self.oldest()?;
        let blocks = self.idle.get_mut(&class)?;
        let Idle { memory, .. } = blocks.remove(0);
        if blocks.is_empty() {
            self.idle.remove(&class);
        }
        self.usage.idle_bytes -= class;
        Some(memory)
    }

    /// Size and time of the block that has been kept longest.
    fn oldest(&self) -> Option<(usize, Instant)> {
        let firsts =
            self.idle.iter().filter_map(|(&class, blocks)| Some((class, blocks.first()?.since)));
        firsts.min_by_key(|&(_, since)| since)
    }
}

#[cfg(test)]
mod tests {
    use arrow::buffer::Buffer;

    use super::*;
    use crate::config::Directory;
    use crate::memory::Grant;
    use crate::memory::block::{KEPT_BYTES_MIN, Refused, class};
    use crate::memory::served::{done_with, is_on_disk, room_bytes};

    const LIMITS: PoolLimits = PoolLimits {
        idle_bytes: 1 << 30,
        total_bytes: 1 << 40,
        resident_bytes: 1 << 40,
        poison: false,
    };

    /// Runs on a thread that a pool serves.
    fn served(limits: PoolLimits, work: impl FnOnce(&Arc<Pool>) + Send) {
        let pool = Pool::new(limits);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pool.serve_this_thread();
                work(&pool);
            });
        });
    }

    #[test]
    fn a_block_that_is_let_go_serves_the_next_of_its_size() {
        served(LIMITS, |pool| {
            for bytes in [KEPT_BYTES_MIN + 100, 1_000_000, MAPPED_BYTES_MIN, 10_000_000] {
                let mut block = Block::new(bytes);
                assert!(block.is_zero() && block.bytes().len() == bytes);
                assert_eq!(block.bytes().as_ptr() as usize % 64, 0);
                block.bytes_mut().fill(7);
                let place = block.bytes().as_ptr();
                drop(block);
                let again = Block::new(bytes - 1);
                assert!(!again.is_zero() && again.bytes().as_ptr() == place);
                assert_eq!(Block::new(bytes * 2).bytes().len(), bytes * 2);
            }
            let usage = pool.usage();
            assert_eq!((usage.used_bytes, usage.blocks, usage.blocks_reused), (0, 12, 4));
            assert!(usage.idle_bytes > 0 && usage.peak_bytes >= usage.idle_bytes);
            assert!((usage.reuse_rate() - 1.0 / 3.0).abs() < 1e-12);
        });
    }

    #[test]
    fn small_blocks_and_those_of_other_threads_are_not_counted() {
        served(LIMITS, |pool| {
            drop(Block::new(KEPT_BYTES_MIN - 1));
            std::thread::scope(|scope| {
                scope.spawn(|| drop(Block::new(1 << 20)));
            });
            assert_eq!(pool.usage(), MemoryUsage::default());
        });
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mib = 1 << 20;
        served(PoolLimits { idle_bytes: 3 * mib, ..LIMITS }, |pool| {
            let blocks: Vec<Block> = (0..5).map(|_| Block::new(mib)).collect();
            let places: Vec<usize> =
                blocks.iter().map(|block| block.bytes().as_ptr() as usize).collect();
            drop(blocks);
            assert_eq!(pool.usage().idle_bytes, 3 * mib);
            drop(Block::new(4 * mib));
            assert_eq!(pool.usage().idle_bytes, 3 * mib);
            // The last that was let go is the first to serve.
            assert_eq!(Block::new(mib).bytes().as_ptr() as usize, places[4]);
            pool.trim(mib);
            assert_eq!(pool.usage().idle_bytes, mib);
            pool.expire(Instant::now() + IDLE_MAX / 2);
            assert_eq!(pool.usage().idle_bytes, mib);
            pool.expire(Instant::now() + 2 * IDLE_MAX);
            assert_eq!(pool.usage().idle_bytes, 0);
            assert_eq!(pool.usage().peak_bytes, 7 * mib);
        });
    }

    #[test]
    fn nothing_is_kept_that_use_has_no_room_for() {
        let mib = 1 << 20;
        served(PoolLimits { total_bytes: 8 * mib, ..LIMITS }, |pool| {
            drop((Block::new(3 * mib), Block::new(2 * mib)));
            assert_eq!(pool.usage().idle_bytes, 5 * mib);
            let block = Block::new(4 * mib);
            assert!(pool.usage().idle_bytes <= 4 * mib);
            let more = Block::new(10 * mib);
            assert_eq!(pool.usage().idle_bytes, 0);
            drop((block, more));
            pool.set_limits(PoolLimits { idle_bytes: 0, ..LIMITS });
            assert_eq!(pool.usage().idle_bytes, 0);
        });
    }

    #[test]
    fn a_block_is_in_a_file_where_memory_has_no_room() {
        let mib = 1 << 20;
        let quota_bytes = 64 * mib as u64;
        let disk =
            Disk::new(vec![Directory { quota_bytes, ..Directory::at(std::env::temp_dir()) }]);
        let limits = PoolLimits { total_bytes: 10 * mib, ..LIMITS };
        let pool = Pool::on(Arc::clone(&disk), limits);
        let mut grant = Grant::new(&pool);
        let work = || {
            pool.serve_this_thread();
            let first = Block::new(8 * mib);
            assert!(!is_on_disk(first.bytes()) && room_bytes() == 2 * mib);
            // Small ones are in memory whatever is there.
            assert!(!is_on_disk(Block::new(3 * mib).bytes()));
            let mut second = Block::new(8 * mib);
            assert!(is_on_disk(second.bytes()) && second.is_zero());
            second.bytes_mut().fill(7);
            let frozen = second.frozen();
            done_with(&frozen);
            assert!(is_on_disk(&frozen) && frozen.iter().all(|&byte| byte == 7));
            let mut again = Block::thawed(frozen).unwrap();
            again.bytes_mut()[0] = 1;
            assert_eq!(disk.used_bytes(), 8 * mib as u64);
            assert_eq!(pool.usage().used_bytes, 8 * mib);
            drop(again);
            assert_eq!(disk.used_bytes(), 0);
            // What is granted is in memory.
            grant.grow(8 * mib);
            assert!(!is_on_disk(Block::new(8 * mib).bytes()));
            grant.shrink(8 * mib);
            assert!(Block::in_file(65 * mib).is_none() && grant.disk_bytes() <= 64 * mib);
            let refused = std::panic::catch_unwind(|| Block::new(65 * mib)).unwrap_err();
            assert_eq!(refused.downcast::<Refused>().unwrap().bytes, 65 * mib);
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!((disk.used_bytes(), pool.usage().used_bytes), (0, 0));
    }

    #[test]
    fn a_block_outlives_its_pool() {
        let mut kept = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Pool::new(LIMITS).serve_this_thread();
                kept = Some(Block::new(1 << 20));
            });
        });
        assert_eq!(kept.unwrap().bytes().len(), 1 << 20);
    }

    #[test]
    fn a_block_is_written_again_by_its_last_reader_alone() {
        served(LIMITS, |pool| {
            let bytes = KEPT_BYTES_MIN + 8;
            let mut block = Block::new(bytes);
            block.bytes_mut().fill(7);
            let address = block.address();
            let frozen = block.frozen();
            // Somebody else reads it, whole or in part.
            let (whole, part) = (frozen.clone(), frozen.slice_with_length(0, 8));
            let frozen = Block::thawed(frozen).unwrap_err();
            drop(whole);
            let frozen = Block::thawed(frozen).unwrap_err();
            // A part is not the block.
            drop(frozen);
            let part = Block::thawed(part).unwrap_err();
            assert_eq!((part.len(), pool.usage().used_bytes), (8, class(bytes).unwrap()));
            drop(part);
            assert_eq!((pool.usage().used_bytes, pool.state().frozen.len()), (0, 0));
            let mut block = Block::new(bytes);
            block.bytes_mut().fill(9);
            let mut again = Block::thawed(block.frozen()).unwrap();
            assert_eq!((again.address(), pool.usage().blocks), (address, 2));
            again.bytes_mut()[0] = 1;
            let frozen = again.frozen();
            assert_eq!((frozen[0], frozen[1], frozen.len()), (1, 9, bytes));
            drop(frozen);
            assert_eq!((pool.usage().used_bytes, pool.state().frozen.len()), (0, 0));
            // What the allocator made is nobody's block.
            assert!(Block::thawed(Buffer::from(vec![0_u8; bytes])).is_err());
            assert!(Block::thawed(Block::new(8).frozen()).is_err());
        });
    }
}
