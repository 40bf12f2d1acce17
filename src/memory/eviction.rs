//! Which values that are held move to a file when memory gets short, and which come back.
//!
//! Enters: the values, and what of the limit is promised. Leaves: moves. Not here: how a value moves
//! ([`Movable`]), and where to ([`Disk`](super::Disk)).
//!
//! ```text
//! promised and wanted beyond the threshold     values move down until they are not, or nobody is left
//! a value in a file that is used again         moves up where it stays below the threshold
//! ```
//!
//! Nothing is dropped, so what it took to compute a value does not count: to bring it back takes as long as its bytes
//! do. First goes what has the largest product of its bytes and the time since it was used, so that few moves make much
//! room (by size and age, as in Cao and Irani, *Cost-aware WWW proxy caching algorithms*, USENIX Symposium on Internet
//! Technologies and Systems, 1997).

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

/// A value that can be in memory and in a file.
pub(crate) trait Movable: fmt::Debug + Send + Sync {
    /// Bytes of it in memory that could move now: none while somebody reads them.
    fn movable_bytes(&self) -> usize;

    /// How long ago it was used last.
    fn unused_for(&self) -> Duration;

    /// Moves it to a file and tells how many bytes that has freed; none where the disk has no room.
    fn move_down(&self) -> usize;
}

/// The values of a database, and how much of the limit they may be part of.
#[derive(Debug)]
pub(crate) struct Eviction {
    pool: Arc<dyn MemoryPool>,
    threshold_percent: AtomicUsize,
    values: Mutex<Vec<Weak<dyn Movable>>>,
    down_bytes: AtomicU64,
    up_bytes: AtomicU64,
}

/// What has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) down_bytes: u64,
    pub(crate) up_bytes: u64,
}

impl Eviction {
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, threshold_percent: usize) -> Arc<Self> {
        let (values, down_bytes, up_bytes) = Default::default();
        let (pool, threshold_percent) = (Arc::clone(pool), AtomicUsize::new(threshold_percent));
        Arc::new(Self { pool, threshold_percent, values, down_bytes, up_bytes })
    }

    pub(crate) fn set_threshold(&self, percent: usize) {
        self.threshold_percent.store(percent, Ordering::Relaxed);
    }

    /// Counts a value among those that may move.
    pub(crate) fn add(&self, value: &Arc<impl Movable + 'static>) {
        let mut values = self.values();
        values.retain(|value| value.strong_count() > 0);
        let value: Weak<dyn Movable> = Arc::downgrade(&(Arc::clone(value) as Arc<dyn Movable>));
        values.push(value);
    }

    /// Whether so many bytes more stay below the threshold.
    pub(crate) fn admits(&self, more_bytes: usize) -> bool {
        self.pool.reserved().saturating_add(more_bytes) <= self.threshold_bytes()
    }

    /// Moves values down until so many bytes more stay below the threshold; nothing where they never would.
    pub(crate) fn make_room(&self, more_bytes: usize) {
        if self.admits(more_bytes) || more_bytes > self.threshold_bytes() {
            return;
        }
        let mut values: Vec<Arc<dyn Movable>> =
            self.values().iter().filter_map(Weak::upgrade).collect();
        values.sort_by_cached_key(|value| {
            let weight = value.movable_bytes() as u128 * value.unused_for().as_nanos();
            std::cmp::Reverse(weight)
        });
        for value in values {
            if self.admits(more_bytes) {
                return;
            }
            self.down_bytes.fetch_add(value.move_down() as u64, Ordering::Relaxed);
        }
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

    fn threshold_bytes(&self) -> usize {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => {
                limit / 100 * self.threshold_percent.load(Ordering::Relaxed)
            }
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

        fn move_down(&self) -> usize {
            let bytes = self.movable_bytes();
            self.bytes.shrink(bytes);
            bytes
        }
    }

    #[test]
    fn what_is_large_and_long_unused_moves_first_and_no_more_than_needed() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let eviction = Eviction::new(&pool, 80);
        let values = [(100, 50, false), (300, 10, false), (200, 40, false), (100, 900, true)];
        let values = values.map(|(bytes, seconds, is_read)| {
            let reservation = MemoryConsumer::new("test").register(&pool);
            reservation.grow(bytes);
            let value = Arc::new(Value { bytes: reservation, seconds, is_read });
            eviction.add(&value);
            value
        });
        let sizes = || values.each_ref().map(|value| value.bytes.size());
        // 700 of 800 are taken.
        eviction.make_room(100);
        assert_eq!(sizes(), [100, 300, 200, 100]);
        eviction.make_room(150);
        assert_eq!(sizes(), [100, 300, 0, 100]);
        eviction.make_room(801);
        assert_eq!(sizes(), [100, 300, 0, 100]);
        eviction.make_room(750);
        assert_eq!(sizes(), [0, 0, 0, 100]);
        assert!(eviction.admits(700) && !eviction.admits(701));
        eviction.set_threshold(100);
        assert!(eviction.admits(900));
        eviction.moved_up(7);
        assert_eq!(eviction.moved(), Moved { down_bytes: 600, up_bytes: 7 });
    }
}
