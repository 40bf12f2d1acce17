//! Reservations of memory, DataFusion's operators' and ours, beside the blocks that wait for the next matrix.
//!
//! A kept block is resident memory like any other, so it counts: before a reservation grows, kept blocks are
//! given back to the system until both fit the limit together.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, TrackConsumersPool,
};

use crate::matrix::Pool;

/// Consumers that an error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).expect("it is not zero");

/// A limit, what is reserved of it, and the blocks that may fill what is not.
#[derive(Debug)]
pub(super) struct Reservations {
    reserved: TrackConsumersPool<FairSpillPool>,
    limit_bytes: usize,
    blocks: Arc<Pool>,
}

impl Reservations {
    pub(super) fn new(limit_bytes: usize, blocks: Arc<Pool>) -> Self {
        let reserved = TrackConsumersPool::new(FairSpillPool::new(limit_bytes), NAMED_CONSUMERS);
        Self { reserved, limit_bytes, blocks }
    }

    /// Leaves to kept blocks what is not reserved.
    fn make_room(&self) {
        self.blocks.trim(self.limit_bytes.saturating_sub(self.reserved.reserved()));
    }
}

impl fmt::Display for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reserved.fmt(f)
    }
}

impl MemoryPool for Reservations {
    fn name(&self) -> &str {
        self.reserved.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.reserved.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.reserved.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.reserved.grow(reservation, additional);
        self.make_room();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.reserved.shrink(reservation, shrink);
    }

    fn try_grow(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
    ) -> datafusion::error::Result<()> {
        self.reserved.try_grow(reservation, additional)?;
        self.make_room();
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.reserved.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.reserved.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{CellBuffer, PoolLimits};

    #[test]
    fn a_reservation_takes_the_place_of_kept_blocks() {
        let mib = 1 << 20;
        let limits = PoolLimits { idle_bytes: 16 * mib, total_bytes: 16 * mib, poison: false };
        let blocks = Pool::new(limits);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                blocks.serve_this_thread();
                drop(CellBuffer::<u8>::zeroed(8 * mib));
            });
        });
        let pool: Arc<dyn MemoryPool> = Arc::new(Reservations::new(16 * mib, Arc::clone(&blocks)));
        let reservation = MemoryConsumer::new("test").register(&pool);
        reservation.try_grow(8 * mib).unwrap();
        assert_eq!(blocks.usage().idle_bytes, 8 * mib);
        assert!(reservation.try_grow(9 * mib).is_err());
        reservation.try_grow(mib).unwrap();
        assert_eq!(blocks.usage().idle_bytes, 0);
        assert_eq!(pool.reserved(), 9 * mib);
    }
}
