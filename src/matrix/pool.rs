//! Memory that outlives the matrices in it: blocks of a few sizes, kept for the next one that asks.
//!
//! Enters: a number of bytes. Leaves: a [`Block`] at least that long, aligned to 64 bytes, which comes back
//! when its last reader lets it go: at the end of a query whatever became of it, for a query owns what it
//! computes. Not here: what cells are ([`CellBuffer`](super::CellBuffer)), and how much a statement may ask
//! for (DataFusion's reservations, which make room here before they grow).
//!
//! A fresh page is zeroed by the system when it is first touched, which takes as long as a fused loop needs to
//! fill it: a result of 400 MB took up to twice as long in fresh memory as in memory that is reused.
//!
//! ```text
//! bytes             block
//! below 64 KiB      the allocator's, neither kept nor counted: it is quick with those by itself
//! below 4 MiB       the allocator's, kept
//! from 4 MiB on     mapped in huge pages, kept
//! ```
//!
//! Four sizes for each power of two: a block is at most a quarter longer than what was asked for, and what
//! lies beyond takes no memory while nobody has touched it. What is kept is bounded three times: by a number
//! of bytes, by what reservations leave of the memory limit, and by a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow::buffer::{Buffer, MutableBuffer};
use memmap2::{Advice, MmapMut};

/// From this size on, blocks are kept: a lock is nothing beside filling so many bytes.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// From this size on, blocks are mapped in huge pages: two of them.
pub(super) const MAPPED_BYTES_MIN: usize = 4 << 20;

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
    /// Whether memory that is to be overwritten holds `NaN`, so that a test sees what is not.
    pub(crate) poison: bool,
}

/// The blocks of a database.
#[derive(Debug)]
pub(crate) struct Pool(Mutex<State>);

#[derive(Debug)]
struct State {
    limits: PoolLimits,
    usage: MemoryUsage,
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

#[derive(Debug)]
enum Memory {
    Heap(MutableBuffer),
    Mapped(MmapMut),
}

impl Memory {
    /// So many zeros; none where the system refuses so many.
    fn fresh(bytes: usize) -> Option<Self> {
        if bytes < MAPPED_BYTES_MIN {
            return Some(Self::heap(bytes));
        }
        let map = MmapMut::map_anon(bytes).ok()?;
        // A hint: a system without huge pages gives small ones.
        let _ = map.advise(Advice::HugePage);
        Some(Self::Mapped(map))
    }

    fn heap(bytes: usize) -> Self {
        Self::Heap(MutableBuffer::from_len_zeroed(bytes))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Heap(buffer) => buffer,
            Memory::Mapped(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap(buffer) => buffer,
            Memory::Mapped(map) => map,
        }
    }
}

/// Memory of one owner, aligned to 64 bytes.
#[derive(Debug)]
pub(super) struct Block {
    /// `None` only while it is being dropped.
    memory: Option<Memory>,
    /// Bytes that were asked for.
    length: usize,
    /// Where it goes back to, if that is still there.
    home: Weak<Pool>,
    /// Whether nobody has written to it yet.
    is_zero: bool,
}

impl Block {
    /// So many bytes from the pool of this thread, zero or not; the system's where the thread has none.
    pub(super) fn new(bytes: usize) -> Self {
        Self::try_new(bytes).unwrap_or_else(|| Self::plain(Memory::heap(bytes), bytes))
    }

    /// The same; none where the system refuses so many.
    pub(super) fn try_new(bytes: usize) -> Option<Self> {
        let pool = SERVED_BY.with_borrow(Weak::upgrade);
        match (pool, class(bytes)) {
            (Some(pool), Some(class)) if bytes >= KEPT_BYTES_MIN => pool.take(bytes, class),
            _ => Memory::fresh(bytes).map(|memory| Self::plain(memory, bytes)),
        }
    }

    fn plain(memory: Memory, length: usize) -> Self {
        Self { memory: Some(memory), length, home: Weak::new(), is_zero: true }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.is_zero
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory.as_ref().expect(PRESENT).bytes()[..self.length]
    }

    /// The bytes that were asked for, never to be written again.
    pub(super) fn frozen(mut self) -> Buffer {
        match self.memory.take() {
            Some(Memory::Heap(mut buffer)) if self.home.strong_count() == 0 => {
                buffer.truncate(self.length);
                buffer.into()
            }
            memory => {
                self.memory = memory;
                let block = Arc::new(self);
                if let Some(pool) = block.home.upgrade() {
                    pool.state().frozen.insert(block.address(), Arc::downgrade(&block));
                }
                bytes::Bytes::from_owner(Frozen(block)).into()
            }
        }
    }

    /// The block that was frozen into these bytes, to be written again; the bytes themselves where somebody
    /// else reads them, where they are a part of a block, or of none that the pool of this thread keeps.
    pub(super) fn thawed(bytes: Buffer) -> Result<Self, Buffer> {
        let Some(pool) = SERVED_BY.with_borrow(Weak::upgrade) else { return Err(bytes) };
        if bytes.strong_count() > 1 {
            return Err(bytes);
        }
        let address = bytes.as_ptr() as usize;
        let block = pool.state().frozen.get(&address).and_then(Weak::upgrade);
        let Some(block) = block.filter(|block| block.length == bytes.len()) else {
            return Err(bytes);
        };
        pool.state().frozen.remove(&address);
        drop(bytes);
        Ok(Arc::into_inner(block).expect("the last reader has let it go"))
    }

    fn address(&self) -> usize {
        self.bytes().as_ptr() as usize
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect(PRESENT).bytes_mut()[..self.length]
    }
}

/// Whether the matrices that this thread makes must show who reads before writing.
pub(super) fn poisons() -> bool {
    let pool = SERVED_BY.with_borrow(Weak::upgrade);
    pool.is_some_and(|pool| pool.state().limits.poison)
}

/// Why a block has memory.
const PRESENT: &str = "memory leaves its block only when that is dropped";

/// A block that is read.
struct Frozen(Arc<Block>);

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Some(pool), Some(memory)) = (self.home.upgrade(), self.memory.take()) {
            pool.give_back(memory);
        }
    }
}

/// The size of the block for so many bytes: the next multiple of a quarter of a power of two. None where
/// there are not so many.
fn class(bytes: usize) -> Option<usize> {
    let quarter = (1_usize << bytes.max(4).ilog2()) / 4;
    bytes.checked_next_multiple_of(quarter)
}

thread_local! {
    /// The pool whose database this thread works for. Kernels make matrices in many places and on threads
    /// of the database alone, so its pool comes with the thread rather than through each of them.
    static SERVED_BY: RefCell<Weak<Pool>> = const { RefCell::new(Weak::new()) };
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Arc<Self> {
        let (usage, idle, frozen) = (MemoryUsage::default(), BTreeMap::new(), HashMap::new());
        Arc::new(Self(Mutex::new(State { limits, usage, idle, frozen })))
    }

    /// From now on the matrices that this thread makes are in blocks of this pool.
    pub(crate) fn serve_this_thread(self: &Arc<Self>) {
        SERVED_BY.set(Arc::downgrade(self));
    }

    pub(crate) fn usage(&self) -> MemoryUsage {
        self.state().usage
    }

    /// Takes new limits, and gives to the system what is kept beyond them.
    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        let mut state = self.state();
        state.limits = limits;
        let released = state.release_beyond(limits.idle_bytes);
        drop(state);
        drop(released);
    }

    /// Gives kept blocks to the system until so many bytes are kept at most.
    pub(crate) fn trim(&self, idle_bytes_max: usize) {
        let mut state = self.state();
        // What the system takes back it takes back outside the lock, for that takes long.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, length: usize, class: usize) -> Option<Block> {
        let block = |memory, is_zero| {
            Some(Block { memory: Some(memory), length, home: Arc::downgrade(self), is_zero })
        };
        let mut state = self.state();
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

    fn give_back(&self, memory: Memory) {
        let class = memory.bytes().len();
        let mut state = self.state();
        state.frozen.remove(&(memory.bytes().as_ptr() as usize));
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
    use super::*;

    const LIMITS: PoolLimits =
        PoolLimits { idle_bytes: 1 << 30, total_bytes: 1 << 40, poison: false };

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
    fn a_size_is_at_most_a_quarter_too_long() {
        for bytes in (1..70_000).chain([(1 << 40) - 1, 1 << 40, (1 << 40) + 1]) {
            let class = class(bytes).unwrap();
            assert!(bytes <= class && class <= bytes.max(4) / 4 * 5 + 4, "{class} for {bytes}");
        }
        assert_eq!(class(400_000_000), Some(384 << 20));
        assert_eq!(class(usize::MAX), None);
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
