//! How much memory a join may hold.
//!
//! Joins are nested, and those above hold their rows while those below collect theirs. So none takes more than
//! two thirds of what others leave, and there is something left for the next one; and a quarter of the limit is
//! not for joins at all, for operators that cannot spill fail where they find nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// Bytes that rows on their way take at least and at most, whatever the limit: small enough for a limit of
/// a megabyte, and large enough that a file is written in pieces of some 100 KiB.
const WORKING_BYTES: std::ops::RangeInclusive<usize> = (16 << 10)..=(8 << 20);

/// The part of a limit that rows on their way may take.
const WORKING_SHARE: usize = 48;

/// What one join has reserved.
pub(super) struct Share {
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
    /// Bytes that the join cannot do without, and that are reserved beside all others.
    base_bytes: AtomicUsize,
    /// Bytes beside the base that are never refused.
    granted_bytes: AtomicUsize,
}

impl Share {
    pub(super) fn new(context: &TaskContext) -> Self {
        let pool = Arc::clone(context.memory_pool());
        let reservation = MemoryConsumer::new("SpillingJoin").register(&pool);
        let (base_bytes, granted_bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { pool, reservation, base_bytes, granted_bytes }
    }

    /// Reserves these bytes, and no others, whatever the limit: without them the join could not go on.
    pub(super) fn set_base(&self, bytes: usize) {
        self.base_bytes.store(bytes, Ordering::Relaxed);
        self.hold(0);
    }

    /// From now on never refuses so few bytes: to deal out less is not worth its files.
    pub(super) fn grant(&self, bytes: usize) {
        self.granted_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Reserves so many bytes in all beside the base, or leaves everything as it is. What is reserved already stays.
    pub(super) fn try_hold(&self, bytes: usize) -> bool {
        let held = self.reservation.size();
        let is_granted = bytes <= self.granted_bytes.load(Ordering::Relaxed);
        let bytes = bytes + self.base_bytes.load(Ordering::Relaxed);
        let Some(more) = bytes.checked_sub(held).filter(|more| *more > 0) else { return true };
        if is_granted {
            self.reservation.grow(more);
            return true;
        }
        if let MemoryLimit::Finite(limit) = self.pool.memory_limit() {
            let others = self.pool.reserved().saturating_sub(held);
            if bytes > (limit - limit / 4).saturating_sub(others) / 3 * 2 {
                return false;
            }
        }
        self.reservation.try_grow(more).is_ok()
    }

    /// Reserves so many bytes in all beside the base, no more and no less, whatever the limit: for what is
    /// there already.
    pub(super) fn hold(&self, bytes: usize) {
        self.reservation.resize(bytes + self.base_bytes.load(Ordering::Relaxed));
    }
}

/// Bytes that rows on their way from a file or to a file may take.
pub(super) fn working_bytes(context: &TaskContext) -> usize {
    let share = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(limit) => limit / WORKING_SHARE,
        MemoryLimit::Infinite | MemoryLimit::Unknown => *WORKING_BYTES.end(),
    };
    share.clamp(*WORKING_BYTES.start(), *WORKING_BYTES.end())
}
