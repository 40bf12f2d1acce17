//! The memory that an operator holds, of the statement's limit.
//!
//! What is refused is the sign to write rows to a file. What it needs to go on at all is taken without asking, and
//! counted: a few pages. Who holds as much as there is leaves a part of the limit to operators beside it.

use std::sync::Arc;

use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// Of the limit, what is left to others.
const LEFT_PART: usize = 8;

/// The reservation of an operator, or of a partition of one.
pub(super) struct Memory {
    reservation: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
    /// Bytes that all operators together may reserve.
    pub(super) limit_bytes: usize,
    /// Of those, what is left to others.
    left_bytes: usize,
}

impl Memory {
    pub(super) fn new(name: &str, pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new(name).with_can_spill(true).register(pool);
        let limit_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            _ => usize::MAX,
        };
        Self { reservation, pool: Arc::clone(pool), limit_bytes, left_bytes: 0 }
    }

    /// The same, which leaves something to others.
    pub(super) fn leaving_some(mut self) -> Self {
        self.left_bytes = self.limit_bytes / LEFT_PART;
        self
    }

    /// Whether so many bytes more are to be had.
    pub(super) fn try_grow(&self, bytes: usize) -> bool {
        let would_be = self.pool.reserved().saturating_add(bytes);
        would_be <= self.limit_bytes - self.left_bytes && self.reservation.try_grow(bytes).is_ok()
    }

    /// Takes what there must be.
    pub(super) fn grow(&self, bytes: usize) {
        self.reservation.grow(bytes);
    }

    pub(super) fn shrink(&self, bytes: usize) {
        self.reservation.shrink(bytes);
    }
}
