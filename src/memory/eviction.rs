//! Which values that are held move to slower tiers when memory gets short, and which come back.
//!
//! Enters: the values, and what of the limit is promised. Leaves: moves. Not here: how a value moves
//! ([`Movable`]), and where to ([`Disk`](super::Disk)).
//!
//! ```text
//! memory ──────► compressed, in memory ──────► files
//!   beyond memory_threshold     beyond compressed_threshold, and where an operator would be refused
//! ◄──────────────────────────────────────────
//!   used, from the compressed at once, from a file where it is used often and memory has room
//! ```
//!
//! Nothing is dropped that had to be computed again, so what that took does not count: to bring a value back takes as long as its
//! bytes do, whether it went to a file or was in one all the time. First goes what has the largest product of its bytes and the time since it was used, so that few moves make much
//! room (by size and age, as in Cao and Irani, *Cost-aware WWW proxy caching algorithms*, USENIX Symposium on Internet
//! Technologies and Systems, 1997).

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

use crate::config::Compression;

/// Where a held value is, from fast to slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Memory,
    Compressed,
    Disk,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Compressed => "compressed",
            Self::Disk => "disk",
        })
    }
}

/// A value that can be in several tiers.
pub(crate) trait Movable: fmt::Debug + Send + Sync {
    /// Bytes of it in memory that could move now: none while somebody reads them.
    fn movable_bytes(&self) -> usize;

    /// How long ago it was used last.
    fn unused_for(&self) -> Duration;

    /// Moves it to a slower tier and tells how many bytes of memory that has freed; none where it is there already, would be
    /// no smaller, or the tier has no room.
    fn move_down(&self, to: Tier) -> usize;
}

/// When values leave a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Of the limit, in percent.
    pub(crate) memory: usize,
    /// Of the limit, in percent.
    pub(crate) compressed: usize,
    /// By which they are made smaller; none leaves that tier out.
    pub(crate) compression: Compression,
}

/// The values of a database, and how much of the limit they may be part of.
#[derive(Debug)]
pub(crate) struct Eviction {
    pool: Arc<dyn MemoryPool>,
    thresholds: RwLock<Thresholds>,
    values: Mutex<Vec<Weak<dyn Movable>>>,
    down_bytes: AtomicU64,
    up_bytes: AtomicU64,
}

/// Bytes of memory that moves have freed and taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) down_bytes: u64,
    pub(crate) up_bytes: u64,
}

impl Eviction {
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, thresholds: Thresholds) -> Arc<Self> {
        let (values, down_bytes, up_bytes) = Default::default();
        let (pool, thresholds) = (Arc::clone(pool), RwLock::new(thresholds));
        Arc::new(Self { pool, thresholds, values, down_bytes, up_bytes })
    }

    pub(crate) fn set_thresholds(&self, thresholds: Thresholds) {
        *self.thresholds.write().unwrap_or_else(PoisonError::into_inner) = thresholds;
    }

    fn thresholds(&self) -> Thresholds {
        *self.thresholds.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// By which values are made smaller.
    pub(crate) fn compression(&self) -> Compression {
        self.thresholds().compression
    }

    /// Counts a value among those that may move.
    pub(crate) fn add(&self, value: &Arc<impl Movable + 'static>) {
        let mut values = self.values();
        values.retain(|value| value.strong_count() > 0);
        let value: Weak<dyn Movable> = Arc::downgrade(&(Arc::clone(value) as Arc<dyn Movable>));
        values.push(value);
    }

    /// Whether so many bytes more stay below the threshold of memory.
    pub(crate) fn admits(&self, more_bytes: usize) -> bool {
        self.is_below(self.thresholds().memory, more_bytes)
    }

    fn is_below(&self, percent: usize, more_bytes: usize) -> bool {
        self.pool.reserved().saturating_add(more_bytes) <= self.share_of_limit(percent)
    }

    /// Moves values down until so many bytes more stay below the thresholds; nothing where they never would.
    pub(crate) fn make_room(&self, more_bytes: usize) {
        let Thresholds { memory, compressed, compression } = self.thresholds();
        let tiers = [(Tier::Compressed, memory), (Tier::Disk, compressed)];
        for (tier, percent) in tiers {
            let is_there = tier != Tier::Compressed || compression != Compression::None;
            if is_there && more_bytes <= self.share_of_limit(percent) {
                self.move_down(tier, || self.is_below(percent, more_bytes));
            }
        }
    }

    /// Moves values to files for somebody who would be refused so many bytes else, and tells how many that has freed:
    /// none where all of them together are not enough.
    pub(crate) fn give_way(&self, bytes: usize) -> usize {
        let movable: usize = self.alive().iter().map(|value| value.movable_bytes()).sum();
        if movable == 0 || movable < bytes {
            return 0;
        }
        let mut freed = 0;
        for value in self.in_order() {
            if freed >= bytes {
                break;
            }
            freed += self.moved_down(value.as_ref(), Tier::Disk);
        }
        freed
    }

    fn move_down(&self, tier: Tier, is_enough: impl Fn() -> bool) {
        if is_enough() {
            return;
        }
        for value in self.in_order() {
            if is_enough() {
                return;
            }
            self.moved_down(value.as_ref(), tier);
        }
    }

    fn moved_down(&self, value: &dyn Movable, tier: Tier) -> usize {
        let freed = value.move_down(tier);
        self.down_bytes.fetch_add(freed as u64, Ordering::Relaxed);
        freed
    }

    fn alive(&self) -> Vec<Arc<dyn Movable>> {
        self.values().iter().filter_map(Weak::upgrade).collect()
    }

    /// The values, first those that should go first.
    fn in_order(&self) -> Vec<Arc<dyn Movable>> {
        let mut values = self.alive();
        values.sort_by_cached_key(|value| {
            Reverse(value.movable_bytes() as u128 * value.unused_for().as_nanos())
        });
        values
    }

    /// Counts bytes that came back.
    pub(crate) fn moved_up(&self, bytes: usize) {
        self.up_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self) -> Moved {
        Moved {
            down_bytes: self.down_bytes.load(Ordering::Relaxed),
            up_bytes: self.up_bytes.load(Ordering::Relaxed),
        }
    }

    fn share_of_limit(&self, percent: usize) -> usize {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit / 100 * percent,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        }
    }

    fn values(&self) -> MutexGuard<'_, Vec<Weak<dyn Movable>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryReservation};

    use super::*;

    #[derive(Debug)]
    struct Value {
        bytes: MemoryReservation,
        seconds: u64,
        is_read: bool,
    }

    impl Movable for Value {
        fn movable_bytes(&self) -> usize {
            if self.is_read { 0 } else { self.bytes.size() }
        }

        fn unused_for(&self) -> Duration {
            Duration::from_secs(self.seconds)
        }

        /// To half of what it is, once, and to nothing.
        fn move_down(&self, to: Tier) -> usize {
            let bytes = match to {
                Tier::Compressed if self.bytes.size() >= 100 => self.movable_bytes() / 2,
                Tier::Memory | Tier::Compressed => 0,
                Tier::Disk => self.movable_bytes(),
            };
            self.bytes.shrink(bytes);
            bytes
        }
    }

    /// Values of 100, 300, 200 and, while they are read, 100 bytes in a pool of 1000, of which the second goes last.
    fn values(compression: Compression) -> (Arc<Eviction>, [Arc<Value>; 4]) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let eviction = Eviction::new(&pool, Thresholds { memory: 70, compressed: 80, compression });
        let values = [(100, 50, false), (300, 10, false), (200, 40, false), (100, 900, true)];
        let values = values.map(|(bytes, seconds, is_read)| {
            let reservation = MemoryConsumer::new("test").register(&pool);
            reservation.grow(bytes);
            let value = Arc::new(Value { bytes: reservation, seconds, is_read });
            eviction.add(&value);
            value
        });
        (eviction, values)
    }

    fn sizes(values: &[Arc<Value>; 4]) -> [usize; 4] {
        values.each_ref().map(|value| value.bytes.size())
    }

    #[test]
    fn what_is_large_and_long_unused_moves_first_and_no_more_than_needed() {
        let (eviction, values) = values(Compression::None);
        // 700 of 800 are taken.
        eviction.make_room(100);
        assert_eq!(sizes(&values), [100, 300, 200, 100]);
        eviction.make_room(150);
        assert_eq!(sizes(&values), [100, 300, 0, 100]);
        eviction.make_room(801);
        assert_eq!(sizes(&values), [100, 300, 0, 100]);
        eviction.make_room(750);
        assert_eq!(sizes(&values), [0, 0, 0, 100]);
        assert!(eviction.admits(600) && !eviction.admits(601));
        let compression = Compression::None;
        eviction.set_thresholds(Thresholds { memory: 100, compressed: 100, compression });
        assert!(eviction.admits(900));
        eviction.moved_up(7);
        assert_eq!(eviction.moved(), Moved { down_bytes: 600, up_bytes: 7 });
    }

    #[test]
    fn what_gets_smaller_stays_in_memory_until_that_is_not_enough() {
        let (eviction, values) = values(Compression::Lz4);
        eviction.make_room(0);
        assert_eq!(sizes(&values), [100, 300, 200, 100]);
        eviction.make_room(50);
        assert_eq!(sizes(&values), [100, 300, 100, 100]);
        eviction.make_room(200);
        assert_eq!(sizes(&values), [50, 300, 50, 100]);
        // All that can is smaller, and the second threshold would be passed all the same.
        eviction.make_room(500);
        assert_eq!(sizes(&values), [0, 150, 50, 100]);
        assert_eq!(eviction.moved().down_bytes, 400);
    }

    #[test]
    fn values_give_way_where_that_is_enough() {
        let (eviction, values) = values(Compression::Lz4);
        assert_eq!(eviction.give_way(601), 0);
        assert_eq!(eviction.give_way(201), 300);
        assert_eq!(sizes(&values), [0, 300, 0, 100]);
        assert_eq!(eviction.give_way(1), 300);
        assert_eq!(eviction.give_way(1), 0);
        assert_eq!(sizes(&values), [0, 0, 0, 100]);
    }
}
