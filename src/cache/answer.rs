//! What is remembered of a question: in memory, or in files when memory gets short.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::MemoryReservation;

use super::{Content, Rows};
use crate::catalog::Reads;
use crate::memory::{Grant, Movable, Pool, Shelf, Tier};

/// Bytes that an answer takes beside its rows and the text of its query, about: columns, buffers, names of what it read.
const OVERHEAD_BYTES: usize = 2 << 10;

/// What is told of what is remembered.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// The query that it answers, as it was written; of groups one that computes them, and of a part of an expression that.
    pub(crate) query: String,
    /// What it was made of.
    pub(crate) reads: Reads,
    /// What it took to compute.
    pub(crate) seconds: f64,
    /// What groups are of.
    pub(crate) grouped: Option<Grouped>,
}

/// What groups are made of, by the hashes of plans and expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grouped {
    /// The rows that are in them.
    pub(crate) rows: [u64; 2],
    /// Keys, then what is known of each group.
    pub(crate) columns: Vec<[u64; 2]>,
}

impl About {
    /// Of what is no groups.
    pub(crate) fn new(kind: Kind, query: String, reads: Reads, seconds: f64) -> Self {
        Self { kind, query, reads, seconds, grouped: None }
    }
}

/// What part of a query it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All of its rows.
    Answer,
    /// The groups that its rows are made of.
    Groups,
    /// The first of the rows that it is made of.
    Rows,
    /// Those of a plan within it.
    Plan,
    /// What a part of a matrix expression comes to.
    Matrix,
    /// The labels of a relation in one.
    Labels,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer => "answer",
            Self::Groups => "groups",
            Self::Rows => "rows",
            Self::Plan => "plan",
            Self::Matrix => "matrix",
            Self::Labels => "labels",
        })
    }
}

/// What is remembered of a question, for as long as somebody reads it.
#[derive(Debug)]
pub(crate) struct Answer {
    about: About,
    rows: usize,
    bytes: usize,
    place: Mutex<Place>,
    shelf: Arc<Mutex<Shelf>>,
}

/// Where it is, and what it counts for.
#[derive(Debug)]
struct Place {
    /// Nothing once it was let go.
    content: Option<Content>,
    in_memory: Counted,
    used: Instant,
}

/// Bytes of memory that are counted for an answer.
#[derive(Debug)]
pub(super) struct Counted {
    bytes: MemoryReservation,
    /// Where they are those of blocks of cells.
    grant: Option<Grant>,
}

impl Counted {
    /// Rows, whose bytes are reserved.
    pub(super) fn rows(bytes: MemoryReservation) -> Self {
        Self { bytes, grant: None }
    }

    /// Cells, whose bytes are reserved.
    pub(super) fn cells(bytes: MemoryReservation, blocks: &Arc<Pool>) -> Self {
        let mut grant = Grant::new(blocks);
        grant.grow(bytes.size());
        Self { bytes, grant: Some(grant) }
    }

    fn resize(&mut self, bytes: usize) {
        let less = self.bytes.size().saturating_sub(bytes);
        self.bytes.resize(bytes);
        if let Some(grant) = &mut self.grant {
            grant.shrink(less);
        }
    }
}

impl Answer {
    /// One that is counted in memory.
    pub(super) fn new(
        about: About,
        content: Content,
        in_memory: Counted,
        shelf: &Arc<Mutex<Shelf>>,
    ) -> Self {
        in_memory.bytes.grow(about.query.len() + OVERHEAD_BYTES);
        let (rows, bytes) = (content.rows(), in_memory.bytes.size());
        let (content, used) = (Some(content), Instant::now());
        let place = Mutex::new(Place { content, in_memory, used });
        Self { about, rows, bytes, place, shelf: Arc::clone(shelf) }
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// What is remembered, to be read; nothing where it was let go.
    pub(crate) fn content(&self) -> Option<Content> {
        let mut place = self.place();
        place.used = Instant::now();
        place.content.clone()
    }

    /// The same where it is rows.
    pub(crate) fn as_rows(&self) -> Option<Rows> {
        match self.content()? {
            Content::Rows(rows) => Some(rows),
            Content::Matrices(_) | Content::Labels(_) => None,
        }
    }

    /// Whether it was let go.
    pub(super) fn is_gone(&self) -> bool {
        self.place().content.is_none()
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Of all of it, wherever it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn tier(&self) -> Tier {
        let place = self.place();
        if place.content.as_ref().is_some_and(Content::is_away) { Tier::Disk } else { Tier::Memory }
    }

    /// Bytes that stay in memory.
    fn stays_bytes(&self) -> usize {
        self.about.query.len() + OVERHEAD_BYTES
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // The content of a place is replaced as a whole.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether it cannot move: somebody has some of it, to whom it counts too. A matrix that somebody has is let go instead, for
    /// two who wait for each other would keep it in memory.
    fn stays(&self) -> bool {
        matches!(&self.content, Some(content @ Content::Rows(_)) if content.is_shared())
    }

    /// Moves it to files, and tells how many bytes of memory that has freed: all but those of what is no row and no cell.
    fn put_away(&mut self, shelf: &mut Shelf, stays_bytes: usize) -> Option<usize> {
        let content = self.content.take()?;
        if !content.is_shared() {
            let away = content.away(shelf);
            let is_away = away.is_some();
            self.content = Some(away.unwrap_or(content));
            if !is_away {
                return None;
            }
        }
        let left = stays_bytes + self.content.as_ref().map_or(0, Content::memory_bytes);
        let freed = self.in_memory.bytes.size().saturating_sub(left);
        self.in_memory.resize(left);
        Some(freed)
    }
}

impl Movable for Answer {
    fn movable_bytes(&self) -> usize {
        // Who works with the place may be waiting for memory that this answer is asked to give.
        let Ok(place) = self.place.try_lock() else { return 0 };
        if place.stays() { 0 } else { place.in_memory.bytes.size() }
    }

    fn unused_for(&self) -> Duration {
        self.place.try_lock().map_or(Duration::ZERO, |place| place.used.elapsed())
    }

    /// It goes to files as it is, for there it can be read without being brought back.
    fn move_down(&self, to: Tier) -> usize {
        let (Ok(mut place), Ok(mut shelf)) = (self.place.try_lock(), self.shelf.try_lock()) else {
            return 0;
        };
        if to != Tier::Disk || place.stays() {
            return 0;
        }
        place.put_away(&mut shelf, self.stays_bytes()).unwrap_or(0)
    }
}
