//! Blocks whose bytes are those of a file: what a limit has no room for is read and written as if it had.
//!
//! Enters: a number of bytes. Leaves: a [`Mapping`], a file without a name whose space is reserved and which is mapped
//! shared, so that every loop works on it as on any memory and the system's page cache is the tier below. Not here:
//! which block is in memory and which in a file ([`Pool`](super::Pool)).
//!
//! A page of a mapping that somebody has touched is resident like any other. [`Residency`] knows all mappings of a
//! database: a thread of its own takes pages back from the process when it comes near its limit, in the order of
//! their addresses and around again, and who reads or writes says what he is done with, and does the work of that thread
//! after every few megabytes, for on a busy machine the system lets it wait. To take a page back loses nothing: of a
//! shared mapping it stays in the page cache, dirty or not, and who touches it again finds it there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use super::disk::{Disk, DiskFile};
use super::resident::Resident;

/// Between two looks at what is resident. On two threads some 50 MB may be touched meanwhile (measured).
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Bytes after which who reads or writes them looks himself.
const LOOK_AFTER_BYTES: usize = 8 << 20;

/// Looks without any mapping after which nobody looks any more.
const LOOKS_IDLE_MAX: usize = 1000;

/// Bytes that are taken back before the next look, and those that the system may map at once.
const TAKEN_AT_ONCE: usize = 8 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Who is done with fewer bytes, or will need fewer, says so for the whole of such a part once he has come to its end:
/// to ask the system for every few rows takes longer than to read them.
const PART_BYTES: usize = 4 << 20;

/// What mappings are left with in any case: to take back what is touched again at once gains nothing.
const LEFT_MIN: usize = 8 << 20;

/// Rounds over all pages of which the one that left least is believed: the others saw what was touched meanwhile.
const ROUNDS: usize = 8;

/// Memory that is a file's. When it is dropped, so is the file.
#[derive(Debug)]
pub(super) struct Mapping {
    map: Arc<MmapRaw>,
    residency: Arc<Residency>,
    file: DiskFile,
}

impl Mapping {
    /// So many zeros, whose space on disk is there.
    ///
    /// # Errors
    /// Where no directory has room.
    pub(super) fn new(
        disk: &Arc<Disk>,
        residency: &Arc<Residency>,
        bytes: usize,
    ) -> io::Result<Self> {
        let mut file = disk.file(bytes as u64)?;
        while let Err(error) = file.reserve(bytes as u64) {
            let next = disk.file_after(&file, bytes as u64);
            file = next.ok_or_else(|| file.failed("reserving space in", error))?;
        }
        let map = Arc::new(MmapOptions::new().len(bytes).map_raw(file.file())?);
        residency.watch(&map);
        Ok(Self { map, residency: Arc::clone(residency), file })
    }

    /// Another handle of the file.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.file().try_clone()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the map is as long and lives as long as `self`; its file has no name, is as long and
        // never cut, so nobody but the owner of `self` changes a byte.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map.len()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), self.map.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.residency.forget(&self.map);
    }
}

/// The mappings of a database, and how much of the process may be resident.
#[derive(Debug)]
pub(crate) struct Residency {
    limit_bytes: AtomicUsize,
    /// How many mappings there are, for a look without a lock.
    count: AtomicUsize,
    watched: Mutex<Watched>,
    /// Bytes that somebody read or wrote since it was looked last at what is resident. No lock: who looks may be made to
    /// wait in the middle of it.
    unlooked: AtomicUsize,
    passed: Passed,
}

/// Bytes of mappings that somebody was done with, by how he went through them, and those asked for before.
#[derive(Debug, Default)]
struct Passed {
    in_order: AtomicU64,
    scattered: AtomicU64,
    ahead: AtomicU64,
}

/// Bytes of blocks in files that were read or written, as who did it says when he is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MappedUsage {
    /// One part after another.
    pub(crate) in_order_bytes: u64,
    /// In parts that lie scattered among others.
    pub(crate) scattered_bytes: u64,
    /// That the system was asked to have ready before.
    pub(crate) ahead_bytes: u64,
}

#[derive(Debug, Default)]
struct Watched {
    /// By the address of their first byte.
    maps: BTreeMap<usize, WatchedMap>,
    /// The address before which pages were taken back last.
    hand: usize,
    /// What was resident when all pages had been taken back, the last times: a limit below the least is not to be had.
    left_bytes: [usize; ROUNDS],
    /// The next of these rounds.
    round: usize,
    /// Whether a thread looks at what is resident.
    is_running: bool,
}

#[derive(Debug)]
struct WatchedMap {
    map: Weak<MmapRaw>,
    /// The part that somebody who goes through it in order has come to.
    part: usize,
}

impl Residency {
    pub(super) fn new(limit_bytes: usize) -> Arc<Self> {
        let (limit_bytes, count) = (AtomicUsize::new(limit_bytes), AtomicUsize::new(0));
        let (watched, unlooked, passed) = Default::default();
        Arc::new(Self { limit_bytes, count, watched, unlooked, passed })
    }

    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn usage(&self) -> MappedUsage {
        let bytes = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let Passed { in_order, scattered, ahead } = &self.passed;
        MappedUsage {
            in_order_bytes: bytes(in_order),
            scattered_bytes: bytes(scattered),
            ahead_bytes: bytes(ahead),
        }
    }

    /// Whether the first of these bytes is in a file.
    pub(super) fn has(&self, bytes: &[u8]) -> bool {
        self.map_of(bytes).is_some()
    }

    /// Takes back the pages of bytes that nobody will want soon, and those beside them that the system maps
    /// together with them. Of few bytes, the parts of the mapping that end with them: they are read in order.
    pub(super) fn done_with(&self, bytes: &[u8]) {
        let Some((map, start)) = self.map_of(bytes) else { return };
        self.passed.in_order.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let end = start + bytes.len();
        if bytes.len() < PART_BYTES && end < map.len() {
            let part = end / PART_BYTES;
            let before = self.reached(&map, part);
            // Between two bytes of one column lie those of others: a part may end with theirs.
            let first = (start / PART_BYTES).min(if before + 1 == part { before } else { part });
            take_back(&map, first * PART_BYTES, part * PART_BYTES);
        } else {
            take_back_around(&map, start, end);
        }
        self.passed_by(bytes.len());
    }

    /// The same of bytes that lie scattered among others: all of their pages at once.
    pub(super) fn let_go(&self, bytes: &[u8]) {
        let Some((map, start)) = self.map_of(bytes) else { return };
        self.passed.scattered.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        take_back_around(&map, start, start + bytes.len());
        self.passed_by(bytes.len());
    }

    /// Asks the system to have these bytes ready in its page cache. Of few bytes, the parts of the mapping that begin
    /// with them.
    pub(super) fn will_need(&self, bytes: &[u8]) {
        let Some((map, mut start)) = self.map_of(bytes) else { return };
        let mut end = (start + bytes.len()).min(map.len());
        if bytes.len() < PART_BYTES {
            let unit = |at: usize| at.next_multiple_of(PART_BYTES).min(map.len());
            (start, end) = (unit(start), unit(end));
        }
        // A hint: without it the pages are read when they are touched.
        if start < end {
            self.passed.ahead.fetch_add((end - start) as u64, Ordering::Relaxed);
            let _ = map.advise_range(Advice::WillNeed, start, end - start);
        }
    }

    /// Notes the part of a mapping that somebody has come to, and returns the one before.
    fn reached(&self, map: &Arc<MmapRaw>, part: usize) -> usize {
        let mut watched = self.watched();
        let of = watched.maps.get_mut(&(map.as_ptr() as usize));
        of.map_or(part, |of| std::mem::replace(&mut of.part, part))
    }

    /// The mapping in which bytes begin, and where.
    fn map_of(&self, bytes: &[u8]) -> Option<(Arc<MmapRaw>, usize)> {
        if self.count.load(Ordering::Relaxed) == 0 || bytes.is_empty() {
            return None;
        }
        let address = bytes.as_ptr() as usize;
        let watched = self.watched();
        let (&first, of) = watched.maps.range(..=address).next_back()?;
        let map = of.map.upgrade()?;
        (address - first < map.len()).then_some((map, address - first))
    }

    fn watch(self: &Arc<Self>, map: &Arc<MmapRaw>) {
        let mut watched = self.watched();
        let of = WatchedMap { map: Arc::downgrade(map), part: 0 };
        watched.maps.insert(map.as_ptr() as usize, of);
        self.count.store(watched.maps.len(), Ordering::Relaxed);
        if !watched.is_running {
            let residency = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("relatrix-residency".to_owned());
            watched.is_running = thread.spawn(move || look_on(&residency)).is_ok();
        }
    }

    fn forget(&self, map: &Arc<MmapRaw>) {
        let mut watched = self.watched();
        watched.maps.remove(&(map.as_ptr() as usize));
        self.count.store(watched.maps.len(), Ordering::Relaxed);
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what is resident after so many bytes that somebody read or wrote, wherever there are mappings.
    pub(super) fn passed_by(&self, bytes: usize) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let unlooked = self.unlooked.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unlooked >= LOOK_AFTER_BYTES {
            self.keep();
        }
    }

    /// Takes pages back until the process is as far below its limit as it should be, once around at most.
    fn keep(&self) {
        self.unlooked.store(0, Ordering::Relaxed);
        let (limit, resident) = (self.limit_bytes.load(Ordering::Relaxed), resident_bytes());
        let (hand, left) = {
            let mut watched = self.watched();
            // What others hold is no more than what is resident.
            watched.left_bytes = watched.left_bytes.map(|left| left.min(resident));
            (watched.hand, watched.left_bytes.into_iter().min().unwrap_or(0))
        };
        let high = (limit - limit / 16).max(left + LEFT_MIN);
        let low = high - (limit / 16).clamp(LEFT_MIN, high);
        if resident <= high {
            return;
        }
        let maps: Vec<Arc<MmapRaw>> =
            self.watched().maps.values().filter_map(|of| of.map.upgrade()).collect();
        let address = |map: &Arc<MmapRaw>, offset: usize| map.as_ptr() as usize + offset;
        let parts = || {
            let of = |map: Arc<MmapRaw>| {
                (0..map.len()).step_by(TAKEN_AT_ONCE).map(move |offset| (Arc::clone(&map), offset))
            };
            maps.iter().cloned().flat_map(of)
        };
        let after = parts().filter(|(map, offset)| address(map, *offset) >= hand);
        let before = parts().filter(|(map, offset)| address(map, *offset) < hand);
        for (map, offset) in after.chain(before) {
            take_back(&map, offset, (offset + TAKEN_AT_ONCE).min(map.len()));
            if resident_bytes() <= low {
                self.watched().hand = address(&map, offset) + TAKEN_AT_ONCE;
                return;
            }
        }
        let left = resident_bytes();
        let mut watched = self.watched();
        let round = watched.round;
        watched.left_bytes[round] = left;
        watched.round = (round + 1) % ROUNDS;
    }
}

/// Looks at what is resident as long as there are mappings.
fn look_on(residency: &Weak<Residency>) {
    let mut idle = 0;
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(residency) = residency.upgrade() else { return };
        residency.keep();
        let mut watched = residency.watched();
        idle = if watched.maps.is_empty() { idle + 1 } else { 0 };
        if idle > LOOKS_IDLE_MAX {
            watched.is_running = false;
            return;
        }
    }
}

/// What the process holds; nothing where the system does not say.
fn resident_bytes() -> usize {
    Resident::now().map_or(0, Resident::bytes)
}

/// Takes back the pages of a part, and those beside them that the system maps together with them.
fn take_back_around(map: &MmapRaw, start: usize, end: usize) {
    let (start, end) = (start / HUGE_PAGE * HUGE_PAGE, end.next_multiple_of(HUGE_PAGE));
    take_back(map, start, end.min(map.len()));
}

/// Takes pages from the process that stay in the page cache.
fn take_back(map: &MmapRaw, start: usize, end: usize) {
    if start >= end {
        return;
    }
    // SAFETY: of a mapping that is shared with its file no byte changes: whoever reads or writes meanwhile faults
    // and finds the same page.
    let taken =
        unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
    debug_assert!(taken.is_ok(), "pages of a mapping can be taken back: {taken:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Directory;

    fn disk(quota_bytes: u64) -> Arc<Disk> {
        Disk::new(vec![Directory { quota_bytes, ..Directory::at(std::env::temp_dir()) }])
    }

    #[test]
    fn what_was_written_is_there_after_its_pages_were_taken() {
        let residency = Residency::new(1 << 40);
        let disk = disk(1 << 30);
        let mut mapping = Mapping::new(&disk, &residency, 9 << 20).unwrap();
        assert!(mapping.bytes().iter().all(|&byte| byte == 0));
        for (at, byte) in mapping.bytes_mut().iter_mut().enumerate() {
            *byte = (at / 1000) as u8;
        }
        residency.done_with(&mapping.bytes()[3 << 20..7 << 20]);
        residency.done_with(mapping.bytes());
        residency.will_need(&mapping.bytes()[5 << 20..]);
        residency.let_go(&mapping.bytes()[1 << 20..2 << 20]);
        let [in_order_bytes, scattered_bytes, ahead_bytes] = [13, 1, 4].map(|mib| mib << 20);
        let expected = MappedUsage { in_order_bytes, scattered_bytes, ahead_bytes };
        assert_eq!(residency.usage(), expected);
        let mut bytes = mapping.bytes().iter().enumerate();
        assert!(bytes.all(|(at, &byte)| byte == (at / 1000) as u8));
        assert!(residency.has(&mapping.bytes()[8 << 20..]) && !residency.has(&[1, 2, 3]));
        assert_eq!(disk.used_bytes(), 9 << 20);
        drop(mapping);
        assert_eq!((disk.used_bytes(), residency.count.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_disk_without_room_is_an_error_and_takes_nothing() {
        let (disk, residency) = (disk(1 << 20), Residency::new(1 << 40));
        assert!(Mapping::new(&disk, &residency, 2 << 20).is_err());
        assert_eq!(disk.used_bytes(), 0);
        let more_than_there_is = Disk::new(vec![Directory::at(std::env::temp_dir())]);
        assert!(Mapping::new(&more_than_there_is, &residency, 1 << 50).is_err());
        assert_eq!(more_than_there_is.used_bytes(), 0);
    }

    #[test]
    fn pages_are_taken_back_while_others_write_and_read() {
        let residency = Residency::new(0);
        let mut mapping = Mapping::new(&disk(1 << 30), &residency, 64 << 20).unwrap();
        for round in 0..4_u8 {
            std::thread::scope(|scope| {
                for part in mapping.bytes_mut().chunks_mut(16 << 20) {
                    scope.spawn(move || part.fill(round + 1));
                }
            });
            assert!(mapping.bytes().iter().all(|&byte| byte == round + 1));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn who_is_done_looks_where_the_thread_that_should_has_to_wait() {
        let residency = Residency::new(0);
        // As if there were one, for ever.
        residency.watched().is_running = true;
        let mut mapping = Mapping::new(&disk(1 << 30), &residency, 256 << 20).unwrap();
        mapping.bytes_mut().fill(1);
        let file_bytes = || Resident::now().unwrap().file_bytes;
        let before = file_bytes();
        residency.let_go(&mapping.bytes()[..LOOK_AFTER_BYTES]);
        // Other tests have mappings too.
        assert!(file_bytes() + (128 << 20) <= before);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_column_that_lies_among_others_is_let_go_as_it_is_read() {
        const COLUMN_BYTES: usize = 64 << 10;
        let residency = Residency::new(1 << 40);
        let mut mapping = Mapping::new(&disk(1 << 30), &residency, 256 << 20).unwrap();
        mapping.bytes_mut().fill(1);
        let file_bytes = || Resident::now().unwrap().file_bytes;
        let before = file_bytes();
        for of_all in mapping.bytes().chunks(4 * COLUMN_BYTES) {
            residency.done_with(&of_all[..COLUMN_BYTES]);
        }
        // Other tests have mappings too.
        assert!(file_bytes() + (128 << 20) <= before);
    }
}
