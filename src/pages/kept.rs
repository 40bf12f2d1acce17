//! Columns of row groups that are read again and again: their pages, decompressed, for whoever reads them next.
//!
//! Enters: a column of a file as it was at some time. Leaves: its pages, where they are kept, of whole numbers in the fewest bits
//! ([`super::offsets`]). Who reads a column first leaves a
//! mark, who reads all of it a second time keeps its pages, and from then on nobody reads the file or decompresses: what is read
//! once costs nothing. Kept bytes are counted, never have others moved, and are dropped where these would be refused memory
//! ([`Eviction`]): to read them again takes no longer than to bring them back from a file. When the limit is reached, columns give
//! way to one that is worth more. A column is worth how often it was read, less where it was hardly compressed, more where it is kept
//! in fewer bytes than it was decompressed to, and where the clock was when it was read last; so the columns of a scan that has no
//! room for all of them do not push out one another (frequency and cost
//! with aging, as in Arlitt, Cherkasova, Dilley, Friedrich and Jin, *Evaluating content management techniques for Web proxy caches*,
//! ACM SIGMETRICS Performance Evaluation Review 27, 2000; but what moves the clock is what does not get in. By what gave way, as
//! there, columns that save little let others in by turns until none stayed for the next scan).

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parquet::file::metadata::ColumnChunkMetaData;

use super::header::Header;
use super::offsets::{self, Numbers, Page};
use super::page::Form;
use crate::catalog::Stamp;
use crate::config::ColumnLimits;
use crate::memory::{Eviction, Movable, Tier};

/// Of the bytes of all columns that have been read, as their files have them, those that may be kept: decompressed, they are a
/// larger part of the data than this.
const SHARE_OF_READ: u64 = 4;

/// Columns that are known to have been read, at most.
const MARKS_MAX: usize = 1 << 16;

/// Of all that may be kept, what one column may have.
const COLUMN_PART: usize = 4;

/// What it saves to read a column here whose file has no fewer bytes of it than this share: a copy, a fifth of decompressing it.
const HARDLY_COMPRESSED: f64 = 0.95;
const SAVED_BY_COPIES: f64 = 0.2;

/// As often as this all that a cache may keep is refused, or all columns of a scan that are more, before the kept ones are worth a
/// use less: a scan that is larger than the cache should not move it, however large it is, but what nobody reads any more should go.
const AGING_SCANS: f64 = 6.0;

/// Uses of a column that count: what was read for a day should not take a day to go.
const USES_MAX: u32 = 8;

/// Of what its first use saves, what a column counts for that comes: with all of it, the last column of a scan that is too large
/// would push out the first before that is read again.
const NEWCOMER: f64 = 0.5;

/// Bytes of a page beside its own: its header, and where it is.
const PAGE_BYTES: usize = 128;

/// The pages of a column, from its first to its last.
pub(super) type Pages = Arc<[Page]>;

/// The columns that a database keeps.
#[derive(Debug)]
pub(crate) struct KeptColumns {
    pool: Arc<dyn MemoryPool>,
    eviction: Arc<Eviction>,
    state: Mutex<State>,
    /// Bytes that nobody had to decompress.
    read_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    limits: ColumnLimits,
    columns: HashMap<Key, Arc<Kept>>,
    /// Of columns that are being read, to be kept.
    coming_bytes: usize,
    /// Columns that have been read once.
    marks: HashSet<Key>,
    /// Bytes of these, and of those that were, in their files.
    read_bytes: u64,
    /// A little more for each column that did not get in.
    clock: f64,
}

/// A column of a row group: a file as it was, and where the column begins there.
type Key = (Arc<Stamp>, u64);

/// The pages of one column, until somebody needs their memory.
#[derive(Debug)]
struct Kept(Mutex<Place>);

#[derive(Debug)]
struct Place {
    pages: Option<Pages>,
    /// Bytes that it has in its file.
    stored_bytes: u64,
    memory: MemoryReservation,
    used: Instant,
    uses: u32,
    /// What one use saves, and what all of them are worth.
    saved: f64,
    worth: f64,
}

impl KeptColumns {
    pub(crate) fn new(
        pool: &Arc<dyn MemoryPool>,
        eviction: &Arc<Eviction>,
        limits: ColumnLimits,
    ) -> Arc<Self> {
        let state = Mutex::new(State { limits, ..State::default() });
        let (pool, eviction) = (Arc::clone(pool), Arc::clone(eviction));
        Arc::new(Self { pool, eviction, state, read_bytes: AtomicU64::new(0) })
    }

    /// Bounds the bytes of all columns; what is beyond is dropped.
    pub(crate) fn set_limits(&self, limits: ColumnLimits) {
        let mut state = self.state();
        state.limits = limits;
        state.make_room(0, f64::INFINITY);
    }

    /// Bytes that are kept, and those that were read of them instead of the file.
    pub(crate) fn usage(&self) -> (usize, u64) {
        (self.state().bytes(), self.read_bytes.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is kept is right at any time: at worst a mark is missing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.columns.values().map(|kept| kept.bytes()).sum()
    }

    fn limit_bytes(&self) -> usize {
        let share = usize::try_from(self.read_bytes / SHARE_OF_READ).unwrap_or(usize::MAX);
        share.max(self.limits.least).min(self.limits.most)
    }

    /// Whether so many bytes more have room, if need be by dropping columns that are worth less.
    fn has_room(&self, bytes: usize, worth: f64) -> bool {
        let stay = self.columns.values().filter(|kept| kept.place().worth >= worth);
        let stay_bytes: usize = stay.map(|kept| kept.bytes()).sum();
        stay_bytes + self.coming_bytes + bytes <= self.limit_bytes()
    }

    /// Drops columns that are worth less, until so many bytes more have room; says whether they have.
    fn make_room(&mut self, bytes: usize, worth: f64) -> bool {
        self.columns.retain(|_, kept| kept.bytes() > 0);
        let wanted_bytes = self.bytes() + self.coming_bytes + bytes;
        let mut free_bytes = self.limit_bytes() as i64 - wanted_bytes as i64;
        let mut order: Vec<(f64, Key)> =
            self.columns.iter().map(|(key, kept)| (kept.place().worth, key.clone())).collect();
        order.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (worth_of_least, key) in order {
            if free_bytes >= 0 || worth_of_least >= worth {
                break;
            }
            if let Some(kept) = self.columns.remove(&key) {
                free_bytes += kept.bytes() as i64;
            }
        }
        free_bytes >= 0
    }
}

impl Kept {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> usize {
        self.place().memory.size()
    }

    /// The pages, for a reader, and the bytes that need not be read for it.
    fn read(&self, clock: f64) -> Option<(Pages, u64)> {
        let mut place = self.place();
        place.used = Instant::now();
        place.uses = USES_MAX.min(place.uses + 1);
        place.worth = clock + f64::from(place.uses) * place.saved;
        Some((place.pages.clone()?, place.stored_bytes))
    }
}

impl Movable for Kept {
    fn movable_bytes(&self) -> usize {
        // Who holds it may be waiting for memory that it is asked to give.
        let Ok(place) = self.0.try_lock() else { return 0 };
        let is_read = place.pages.as_ref().is_none_or(|pages| Arc::strong_count(pages) > 1);
        if is_read { 0 } else { place.memory.size() }
    }

    fn unused_for(&self) -> Duration {
        self.0.try_lock().map_or(Duration::ZERO, |place| place.used.elapsed())
    }

    /// They are in a file already.
    fn move_down(&self, to: Tier) -> usize {
        let bytes = if to == Tier::Disk { self.movable_bytes() } else { 0 };
        match self.0.try_lock() {
            Ok(mut place) if bytes > 0 => {
                place.pages = None;
                place.memory.free()
            }
            _ => 0,
        }
    }
}

/// The columns of one file.
#[derive(Debug)]
pub(super) struct FileColumns {
    all: Arc<KeptColumns>,
    file: Arc<Stamp>,
    /// Of all columns that a scan reads, decompressed.
    scan_bytes: f64,
}

impl FileColumns {
    /// Nothing where none may be kept, or the file may change and look as before.
    pub(super) fn of(
        all: &Arc<KeptColumns>,
        path: &Path,
        metadata: &Metadata,
        scan_bytes: f64,
    ) -> Option<Self> {
        let is_on = all.state().limits.most > 0;
        let file = is_on.then(|| Stamp::settled(path, metadata)).flatten()?;
        Some(Self { all: Arc::clone(all), file: Arc::new(file), scan_bytes })
    }

    /// The pages of the column that begins there.
    pub(super) fn pages(&self, first: u64) -> Option<Pages> {
        let key = (Arc::clone(&self.file), first);
        let state = self.all.state();
        let (pages, stored_bytes) = state.columns.get(&key)?.read(state.clock)?;
        drop(state);
        self.all.read_bytes.fetch_add(stored_bytes, Ordering::Relaxed);
        Some(pages)
    }

    /// What keeps the pages of a column that is read for the second time, and for which there is room.
    pub(super) fn keeping(&self, column: &ColumnChunkMetaData, form: Form) -> Option<Keeping> {
        let stored_bytes = u64::try_from(column.compressed_size()).unwrap_or(0);
        let key = (Arc::clone(&self.file), column.byte_range().0);
        let mut guard = self.all.state();
        let state = &mut *guard;
        if state.marks.insert(key.clone()) {
            state.read_bytes += stored_bytes;
            if state.marks.len() > MARKS_MAX {
                state.marks.clear();
            }
            // Nobody asks again for those of the file that was there before.
            let is_of_now = |(file, _): &Key| file.path != self.file.path || *file == self.file;
            state.columns.retain(|key, _| is_of_now(key));
            return None;
        }
        let bytes = usize::try_from(column.uncompressed_size()).ok()?;
        let is_compressed = (stored_bytes as f64) < HARDLY_COMPRESSED * bytes as f64;
        let saved = if is_compressed { 1.0 } else { SAVED_BY_COPIES };
        let worth = state.clock + NEWCOMER * saved;
        let limit_bytes = state.limit_bytes();
        if bytes > limit_bytes / COLUMN_PART || !state.has_room(bytes, worth) {
            let of_all = self.scan_bytes.max(limit_bytes as f64);
            state.clock += saved * bytes as f64 / (AGING_SCANS * of_all);
            return None;
        }
        state.coming_bytes += bytes;
        drop(guard);
        let memory = MemoryConsumer::new("ParquetColumns").register(&self.all.pool);
        let coming = Coming { all: Arc::clone(&self.all), bytes };
        let count = usize::try_from(column.num_values()).ok()?;
        let numbers = Numbers { physical: column.column_type(), form, count };
        let (pages, left_bytes) = (Vec::new(), bytes);
        Some(Keeping { coming, key, pages, numbers, stored_bytes, left_bytes, memory, saved })
    }
}

/// The pages of a column while it is read.
pub(super) struct Keeping {
    coming: Coming,
    key: Key,
    pages: Vec<Page>,
    numbers: Numbers,
    stored_bytes: u64,
    /// What its file says that the pages to come have.
    left_bytes: usize,
    memory: MemoryReservation,
    saved: f64,
}

/// Bytes of a column that is being read.
struct Coming {
    all: Arc<KeptColumns>,
    bytes: usize,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.all.state().coming_bytes -= self.bytes;
    }
}

impl Keeping {
    /// Adds the next page; false where there is no room for the column.
    pub(super) fn push(&mut self, header: Header, bytes: Bytes) -> bool {
        let Some(left_bytes) = self.left_bytes.checked_sub(bytes.len()) else { return false };
        let page_bytes = bytes.len() + PAGE_BYTES;
        let is_granted =
            self.coming.all.eviction.admits(page_bytes) && self.memory.try_grow(page_bytes).is_ok();
        if is_granted {
            self.left_bytes = left_bytes;
            self.pages.push((header, bytes));
        }
        is_granted
    }

    /// The column has been read to its end.
    pub(super) fn finish(self) {
        let Self { coming, key, mut pages, numbers, stored_bytes, memory, mut saved, .. } = self;
        // What is wrong with a page is told to who reads it.
        let while_packed_bytes = numbers.packed_bytes_max();
        let is_granted = memory.try_grow(while_packed_bytes).is_ok();
        let packed = is_granted.then(|| offsets::of_pages(&pages, numbers));
        if is_granted {
            memory.shrink(while_packed_bytes);
        }
        if let Some(Ok(Some(packed))) = packed {
            let bytes = packed.iter().map(|(_, bytes)| bytes.len() + PAGE_BYTES).sum();
            saved *= memory.size() as f64 / f64::max(1.0, bytes as f64);
            memory.shrink(memory.size().saturating_sub(bytes));
            pages = packed;
        }
        let all = Arc::clone(&coming.all);
        drop(coming);
        let mut state = all.state();
        let worth = state.clock + NEWCOMER * saved;
        if state.make_room(memory.size(), worth) {
            let worth = state.clock + saved;
            let (pages, used, uses) = (Some(pages.into()), Instant::now(), 1);
            let place = Place { pages, stored_bytes, memory, used, uses, saved, worth };
            let kept = Arc::new(Kept(Mutex::new(place)));
            all.eviction.add(&kept);
            state.columns.insert(key, kept);
        }
    }
}
