//! A matrix that has a name: in memory, compressed or in files, wherever there is room as time goes by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::MemoryReservation;

use crate::matrix::packed::{PackedMatrix, Unpack};
use crate::matrix::{Element, Labels, Layout, Matrix, Shape};
use crate::memory::{Eviction, Grant, Movable, Tier};

/// Uses after which a matrix in files is one that is used often.
const USES_OFTEN: u32 = 3;

/// A matrix whose bytes are counted until its last reader is done.
#[derive(Debug, Clone)]
pub(super) struct Held(Arc<Stored>);

#[derive(Debug)]
struct Stored {
    id: u64,
    state: Mutex<State>,
    eviction: Arc<Eviction>,
}

#[derive(Debug)]
struct State {
    place: Place,
    bytes: MemoryReservation,
    grant: Grant,
    used: Instant,
    /// How often it was used since it is where it is.
    uses: u32,
    /// Whether it was found that compression hardly makes it smaller.
    stays_large: bool,
}

/// Where a matrix is.
#[derive(Debug)]
enum Place {
    /// In memory or in files.
    Whole(Arc<Matrix>),
    Packed(Box<PackedMatrix>),
}

/// What is told of a matrix that nobody works on.
pub(super) struct About {
    pub(super) shape: Shape,
    pub(super) stored: usize,
    pub(super) layout: Layout,
    pub(super) element: Element,
    /// Of the whole matrix, wherever it is.
    pub(super) size_bytes: usize,
    pub(super) tier: Tier,
    pub(super) row_labels: Option<Labels>,
    pub(super) column_labels: Option<Labels>,
}

impl Held {
    /// A matrix, whose bytes in memory are reserved and granted.
    pub(super) fn new(
        matrix: Arc<Matrix>,
        bytes: MemoryReservation,
        grant: Grant,
        eviction: &Arc<Eviction>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let (place, used) = (Place::Whole(matrix), Instant::now());
        let state = State { place, bytes, grant, used, uses: 0, stays_large: false };
        let (id, state) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), Mutex::new(state));
        let stored = Arc::new(Stored { id, state, eviction: Arc::clone(eviction) });
        eviction.add(&stored);
        Self(stored)
    }

    /// A number that no other matrix of this process has had.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn about(&self) -> About {
        let state = self.0.state();
        let (rest, tier) = match &state.place {
            Place::Whole(matrix) if away_bytes(matrix) > 0 => (matrix.as_ref(), Tier::Disk),
            Place::Whole(matrix) => (matrix.as_ref(), Tier::Memory),
            Place::Packed(packed) => (packed.rest(), Tier::Compressed),
        };
        let (row_labels, column_labels) =
            (rest.row_labels().cloned(), rest.column_labels().cloned());
        match &state.place {
            Place::Whole(matrix) => About {
                shape: matrix.shape(),
                stored: matrix.cells().stored(),
                layout: matrix.layout(),
                element: matrix.element(),
                size_bytes: matrix.size_bytes(),
                tier,
                row_labels,
                column_labels,
            },
            Place::Packed(packed) => About {
                shape: packed.shape,
                stored: packed.stored,
                layout: packed.layout,
                element: packed.element,
                size_bytes: packed.cell_bytes() + rest.size_bytes(),
                tier,
                row_labels,
                column_labels,
            },
        }
    }

    /// The matrix, to be worked on. One that is compressed becomes whole; one in files that is used often comes back to
    /// memory where that has room. None where neither memory nor the disk has room for it.
    pub(super) fn used(&self) -> Option<Arc<Matrix>> {
        // Others may have to make room, which look at this one too.
        if let Some(bytes) = self.0.state().packed_bytes() {
            self.0.eviction.make_room(bytes);
        }
        let mut state = self.0.state();
        state.used = Instant::now();
        state.uses = state.uses.saturating_add(1);
        if state.packed_bytes().is_some() {
            self.0.eviction.moved_up(state.unpack()?);
        }
        let Place::Whole(matrix) = &state.place else { return None };
        let matrix = Arc::clone(matrix);
        let away_bytes = away_bytes(&matrix);
        if away_bytes == 0 || state.uses < USES_OFTEN || !self.0.eviction.admits(away_bytes) {
            return Some(matrix);
        }
        let Some(matrix) = state.moved_up(&matrix, away_bytes) else { return Some(matrix) };
        self.0.eviction.moved_up(away_bytes);
        Some(matrix)
    }

    /// Bytes of the whole matrix, and those that the disk has for it: what is told where it cannot be whole.
    pub(super) fn wanted_bytes(&self) -> (usize, usize) {
        (self.about().size_bytes, self.0.state().grant.disk_bytes())
    }
}

/// Bytes of cells that are in files.
fn away_bytes(matrix: &Matrix) -> usize {
    matrix.cells().size_bytes() - matrix.cells().memory_bytes()
}

impl State {
    /// Bytes that cells take once they are unpacked; none where they are.
    fn packed_bytes(&self) -> Option<usize> {
        match &self.place {
            Place::Whole(_) => None,
            Place::Packed(packed) => Some(packed.cell_bytes()),
        }
    }

    /// Makes compressed cells whole, and tells how many bytes of memory that took.
    fn unpack(&mut self) -> Option<usize> {
        let Place::Packed(packed) = &self.place else { return Some(0) };
        let (before, cells) = (packed.memory_bytes(), packed.cell_bytes());
        let in_memory = self.bytes.try_grow(cells).is_ok();
        if in_memory {
            self.grant.grow(cells);
        }
        let to = if in_memory { Unpack::ToMemory } else { Unpack::ToFile };
        let Some(matrix) = packed.unpacked(to) else {
            self.give_back(if in_memory { cells } else { 0 });
            return None;
        };
        // What was compressed had no block; labels stay counted.
        self.bytes.shrink(before - packed.rest().memory_bytes());
        (self.place, self.uses) = (Place::Whole(Arc::new(matrix)), 0);
        Some(if in_memory { cells } else { 0 })
    }

    /// The matrix with its cells in memory, which so many bytes of them were not.
    fn moved_up(&mut self, matrix: &Matrix, bytes: usize) -> Option<Arc<Matrix>> {
        self.bytes.try_grow(bytes).ok()?;
        self.grant.grow(bytes);
        let Some(matrix) = matrix.in_memory() else {
            self.give_back(bytes);
            return None;
        };
        let matrix = Arc::new(matrix);
        (self.place, self.uses) = (Place::Whole(Arc::clone(&matrix)), 0);
        Some(matrix)
    }

    fn give_back(&mut self, bytes: usize) {
        self.grant.shrink(bytes);
        self.bytes.shrink(bytes);
    }

    /// The matrix, where nobody else has it.
    fn unread(&self) -> Option<&Matrix> {
        match &self.place {
            Place::Whole(matrix) if Arc::strong_count(matrix) == 1 && !matrix.is_shared() => {
                Some(matrix)
            }
            Place::Whole(_) | Place::Packed(_) => None,
        }
    }

    /// Compresses cells that are in memory, and tells how many bytes that has freed.
    fn pack(&mut self, eviction: &Eviction) -> usize {
        let Some(matrix) = self.unread().filter(|_| !self.stays_large) else { return 0 };
        if away_bytes(matrix) > 0 {
            return 0;
        }
        let before = matrix.memory_bytes();
        let cells = matrix.cells().size_bytes();
        let Some(packed) = matrix.packed(eviction.compression()) else {
            self.stays_large = true;
            return 0;
        };
        let after = packed.memory_bytes();
        (self.place, self.uses) = (Place::Packed(Box::new(packed)), 0);
        self.grant.shrink(cells);
        self.bytes.shrink(before - after);
        before - after
    }

    /// Moves cells to files, and tells how many bytes of memory that has freed.
    fn store(&mut self) -> usize {
        let (before, stored) = match &self.place {
            Place::Packed(packed) => (packed.memory_bytes(), packed.unpacked(Unpack::ToFile)),
            Place::Whole(_) => match self.unread() {
                Some(matrix) => (matrix.memory_bytes(), matrix.on_disk()),
                None => return 0,
            },
        };
        let Some(matrix) = stored else { return 0 };
        let freed = before.saturating_sub(matrix.memory_bytes());
        if freed > 0 {
            (self.place, self.uses) = (Place::Whole(Arc::new(matrix)), 0);
            self.give_back(freed);
        }
        freed
    }
}

impl Stored {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same where nobody works with it: who does may be waiting for memory that this one is asked to give.
    fn idle_state(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }
}

impl Movable for Stored {
    fn movable_bytes(&self) -> usize {
        let Some(state) = self.idle_state() else { return 0 };
        match &state.place {
            Place::Packed(packed) => packed.memory_bytes(),
            Place::Whole(_) => state.unread().map_or(0, Matrix::memory_bytes),
        }
    }

    fn unused_for(&self) -> Duration {
        self.idle_state().map_or(Duration::ZERO, |state| state.used.elapsed())
    }

    fn move_down(&self, to: Tier) -> usize {
        let Some(mut state) = self.idle_state() else { return 0 };
        match to {
            Tier::Memory => 0,
            Tier::Compressed => state.pack(&self.eviction),
            Tier::Disk => state.store(),
        }
    }
}
