//! A matrix that has a name: in memory or in files, wherever there is room as time goes by.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::MemoryReservation;

use crate::matrix::Matrix;
use crate::memory::{Eviction, Grant, Movable};

/// Uses after which a matrix in files is one that is used often.
const USES_OFTEN: u32 = 3;

/// A matrix whose bytes are counted until its last reader is done.
#[derive(Debug, Clone)]
pub(super) struct Held(Arc<Stored>);

#[derive(Debug)]
struct Stored {
    state: Mutex<State>,
    eviction: Arc<Eviction>,
}

#[derive(Debug)]
struct State {
    matrix: Arc<Matrix>,
    bytes: MemoryReservation,
    grant: Grant,
    used: Instant,
    /// How often it was used since it is where it is.
    uses: u32,
}

impl Held {
    /// A matrix, whose bytes in memory are reserved and granted.
    pub(super) fn new(
        matrix: Arc<Matrix>,
        bytes: MemoryReservation,
        grant: Grant,
        eviction: &Arc<Eviction>,
    ) -> Self {
        let state = State { matrix, bytes, grant, used: Instant::now(), uses: 0 };
        let stored = Arc::new(Stored { state: Mutex::new(state), eviction: Arc::clone(eviction) });
        eviction.add(&stored);
        Self(stored)
    }

    /// The matrix, to look at what it is.
    pub(super) fn matrix(&self) -> Arc<Matrix> {
        Arc::clone(&self.0.state().matrix)
    }

    /// The matrix, to be worked on: one that is used often comes back to memory where that has room.
    pub(super) fn used(&self) -> Arc<Matrix> {
        let mut state = self.0.state();
        state.used = Instant::now();
        state.uses = state.uses.saturating_add(1);
        let away_bytes = state.matrix.size_bytes() - state.matrix.memory_bytes();
        if away_bytes > 0 && state.uses >= USES_OFTEN && self.0.eviction.admits(away_bytes) {
            self.0.eviction.moved_up(state.move_up(away_bytes));
        }
        Arc::clone(&state.matrix)
    }
}

impl State {
    /// Brings cells to memory, and tells how many bytes of them.
    fn move_up(&mut self, bytes: usize) -> usize {
        if self.bytes.try_grow(bytes).is_err() {
            return 0;
        }
        self.grant.grow(bytes);
        match self.matrix.in_memory() {
            Some(matrix) => {
                (self.matrix, self.uses) = (Arc::new(matrix), 0);
                bytes
            }
            None => {
                self.give_back(bytes);
                0
            }
        }
    }

    fn give_back(&mut self, bytes: usize) {
        self.grant.shrink(bytes);
        self.bytes.shrink(bytes);
    }
}

impl Stored {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Movable for Stored {
    fn movable_bytes(&self) -> usize {
        let State { matrix, .. } = &*self.state();
        let is_read = Arc::strong_count(matrix) > 1 || matrix.is_shared();
        if is_read { 0 } else { matrix.memory_bytes() }
    }

    fn unused_for(&self) -> Duration {
        self.state().used.elapsed()
    }

    fn move_down(&self) -> usize {
        let mut state = self.state();
        if Arc::strong_count(&state.matrix) > 1 || state.matrix.is_shared() {
            return 0;
        }
        let Some(matrix) = state.matrix.on_disk() else { return 0 };
        let freed = state.matrix.memory_bytes() - matrix.memory_bytes();
        if freed > 0 {
            (state.matrix, state.uses) = (Arc::new(matrix), 0);
            state.give_back(freed);
        }
        freed
    }
}
