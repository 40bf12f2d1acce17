//! The rows that answered a question: in memory, or in files when memory gets short.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::spill::get_record_batch_memory_size;

use crate::catalog::Reads;
use crate::memory::{Movable, Shelf, Tier, is_away, shelved};

/// Bytes that an answer takes beside its rows and the text of its query, about: columns, buffers, names of what it read.
const OVERHEAD_BYTES: usize = 2 << 10;

/// What rows that are remembered are.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// The query that they answer, as it was written; of groups one that computes them.
    pub(crate) query: String,
    /// What they were made of.
    pub(crate) reads: Reads,
    /// What it took to compute them.
    pub(crate) seconds: f64,
}

/// What part of a query rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of its rows.
    Answer,
    /// The groups that its rows are made of.
    Groups,
    /// The first of the rows that it is made of.
    Rows,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer => "answer",
            Self::Groups => "groups",
            Self::Rows => "rows",
        })
    }
}

/// Rows that stay for as long as somebody reads them.
#[derive(Debug)]
pub(crate) struct Answer {
    about: About,
    schema: SchemaRef,
    rows: usize,
    bytes: usize,
    place: Mutex<Place>,
    shelf: Arc<Mutex<Shelf>>,
}

/// Where the rows are, and what they count for.
#[derive(Debug)]
struct Place {
    batches: Vec<RecordBatch>,
    in_memory: MemoryReservation,
    used: Instant,
}

impl Answer {
    /// Rows that are counted in memory.
    pub(super) fn new(
        about: About,
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        in_memory: MemoryReservation,
        shelf: &Arc<Mutex<Shelf>>,
    ) -> Self {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        in_memory.grow(about.query.len() + OVERHEAD_BYTES);
        let bytes = in_memory.size();
        let place = Mutex::new(Place { batches, in_memory, used: Instant::now() });
        Self { about, schema, rows, bytes, place, shelf: Arc::clone(shelf) }
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The rows, to be read.
    pub(crate) fn batches(&self) -> Vec<RecordBatch> {
        let mut place = self.place();
        place.used = Instant::now();
        place.batches.clone()
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Of all rows, wherever they are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn tier(&self) -> Tier {
        if self.place().batches.iter().any(is_away) { Tier::Disk } else { Tier::Memory }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // The batches of a place are replaced as a whole.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether somebody has some of the rows: to put them away would free nothing.
    fn is_read(&self) -> bool {
        let mut columns = self.batches.iter().flat_map(RecordBatch::columns);
        columns.any(|column| Arc::strong_count(column) > 1)
    }

    /// Moves the rows to files, and tells how many bytes of memory that has freed: all but those of what is no row.
    fn put_away(&mut self, shelf: &mut Shelf, stays_bytes: usize) -> Option<usize> {
        let away = self.batches.iter().map(|batch| match is_away(batch) {
            true => Some(batch.clone()),
            false => shelved(batch, shelf),
        });
        self.batches = away.collect::<Option<_>>()?;
        let left = self.batches.iter().filter(|batch| !is_away(batch));
        let left = stays_bytes + left.map(get_record_batch_memory_size).sum::<usize>();
        let freed = self.in_memory.size().saturating_sub(left);
        self.in_memory.resize(left);
        Some(freed)
    }
}

impl Movable for Answer {
    fn movable_bytes(&self) -> usize {
        // Who works with the place may be waiting for memory that this answer is asked to give.
        let Ok(place) = self.place.try_lock() else { return 0 };
        if place.is_read() { 0 } else { place.in_memory.size() }
    }

    fn unused_for(&self) -> Duration {
        self.place.try_lock().map_or(Duration::ZERO, |place| place.used.elapsed())
    }

    /// Rows go to files as they are, for there they can be read without being brought back.
    fn move_down(&self, to: Tier) -> usize {
        let (Ok(mut place), Ok(mut shelf)) = (self.place.try_lock(), self.shelf.try_lock()) else {
            return 0;
        };
        if to != Tier::Disk || place.is_read() {
            return 0;
        }
        place.put_away(&mut shelf, self.about.query.len() + OVERHEAD_BYTES).unwrap_or(0)
    }
}
