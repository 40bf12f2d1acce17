//! Matrices, and columns of tables with the rows of their keys, that stay in the device's memory, so that who reads them next need not bring them.
//!
//! ```text
//! first reading ─ upload ─► kept ─► every later reading
//!                            └────► gives way, who was read longest ago first, where there is no room
//! ```
//!
//! A stored matrix never changes, and neither do the rows of a version of a table, so what was brought is right for as long as they
//! live: what is stored under their name later is another one. What a kept matrix saves is its way here, as long for each of its bytes, so which one gives way is a question of
//! who was read last.
//!
//! Nothing is brought because it might be of use. But where a plan would have gone to the device, had what it reads been there,
//! the seconds that this would have saved are owed to that; once those are as many as bringing them takes, they are brought.
//! So whatever is asked next, no more than the double of what was right is ever spent on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::groups::{Column, Places};
use super::matrix::Matrix;
use super::sparse::Sparse;
use crate::gpu::Buffer;
use crate::matrix;
use crate::storage::{SameColumn, TableColumn};

/// Of the device of this process.
static KEPT: Mutex<Kept> = Mutex::new(Kept { entries: Vec::new() });

/// Who was read longest ago first.
struct Kept {
    entries: Vec<Entry>,
}

struct Entry {
    of: Owner,
    here: Option<Here>,
    owed_seconds: f64,
}

/// What something is a copy of. It holds the place of that, so that nothing else is taken for it.
pub(crate) enum Owner {
    Matrix(Weak<matrix::Matrix>),
    Column(SameColumn),
    /// The rows of a table by the values of these columns.
    Places(Vec<SameColumn>),
}

impl From<&Arc<matrix::Matrix>> for Owner {
    fn from(of: &Arc<matrix::Matrix>) -> Self {
        Self::Matrix(Arc::downgrade(of))
    }
}

impl From<&TableColumn> for Owner {
    fn from(of: &TableColumn) -> Self {
        Self::Column(of.same())
    }
}

impl Owner {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Matrix(own), Self::Matrix(other)) => Weak::ptr_eq(own, other),
            (Self::Column(own), Self::Column(other)) => own == other,
            (Self::Places(own), Self::Places(other)) => own == other,
            _ => false,
        }
    }

    /// Whether it is there still.
    fn lives(&self) -> bool {
        match self {
            Self::Matrix(matrix) => matrix.strong_count() > 0,
            Self::Column(column) => column.is_there(),
            Self::Places(columns) => columns.iter().all(SameColumn::is_there),
        }
    }
}

/// What is there of it.
#[derive(Clone)]
pub(super) enum Here {
    Dense(Matrix),
    Sparse(Sparse),
    Column(Column),
    Places(Places),
    /// Nothing, for it turned out to be none for devices, and why.
    Unfit(&'static str),
}

impl Here {
    fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Dense(matrix) => matrix.buffers().map(Arc::as_ref).collect(),
            Self::Sparse(matrix) => matrix.buffers().collect(),
            Self::Column(column) => column.buffers().map(Arc::as_ref).collect(),
            Self::Places(places) => places.buffers().map(Arc::as_ref).collect(),
            Self::Unfit(_) => Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        self.buffers().iter().map(|buffer| buffer.bytes()).sum()
    }

    fn is_kept_alone(&self) -> bool {
        match self {
            Self::Dense(matrix) => matrix.is_kept_alone(),
            Self::Sparse(matrix) => matrix.is_kept_alone(),
            Self::Column(column) => column.buffers().all(|of| Arc::strong_count(of) == 1),
            Self::Places(places) => places.buffers().all(|of| Arc::strong_count(of) == 1),
            Self::Unfit(_) => false,
        }
    }
}

/// What is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) matrices: usize,
    pub(crate) columns: usize,
    pub(crate) buffers: usize,
    pub(crate) bytes: usize,
}

impl Kept {
    /// The entry of something, read last from now on.
    fn entry(&mut self, of: Owner) -> &mut Entry {
        let entry = match self.place(&of) {
            Some(at) => self.entries.remove(at),
            None => Entry { of, here: None, owed_seconds: 0.0 },
        };
        self.entries.push(entry);
        self.entries.last_mut().expect("one was just put there")
    }

    fn place(&self, of: &Owner) -> Option<usize> {
        self.entries.iter().position(|entry| entry.of.is(of))
    }
}

/// Without those of which nothing is there any more.
fn kept() -> MutexGuard<'static, Kept> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.entries.retain(|entry| entry.of.lives());
    kept
}

/// Whether something is there, and the seconds that it is owed.
pub(crate) fn state(of: impl Into<Owner>) -> (bool, f64) {
    let kept = kept();
    let entry = kept.place(&of.into()).map(|at| &kept.entries[at]);
    entry.map_or((false, 0.0), |entry| (entry.here.is_some(), entry.owed_seconds))
}

/// Whether something turned out to be none for devices.
pub(crate) fn is_unfit(of: impl Into<Owner>) -> bool {
    let kept = kept();
    let entry = kept.place(&of.into()).map(|at| &kept.entries[at]);
    entry.is_some_and(|entry| matches!(entry.here, Some(Here::Unfit(_))))
}

/// How many different texts a column that is there has.
pub(crate) fn texts(of: &TableColumn) -> Option<usize> {
    let (kept, of) = (kept(), Owner::from(of));
    match kept.place(&of).map(|at| &kept.entries[at].here) {
        Some(Some(Here::Column(column))) => column.texts(),
        _ => None,
    }
}

/// A plan would have taken so many seconds less, had it been there.
pub(crate) fn owe(of: impl Into<Owner>, seconds: f64) {
    kept().entry(of.into()).owed_seconds += seconds;
}

/// What is there of it, for who reads it now.
pub(super) fn find(of: impl Into<Owner>) -> Option<Here> {
    let (mut kept, of) = (kept(), of.into());
    kept.place(&of)?;
    kept.entry(of).here.clone()
}

/// Keeps what was brought.
pub(super) fn keep(of: impl Into<Owner>, here: Here) {
    let mut kept = kept();
    let entry = kept.entry(of.into());
    entry.here = Some(here);
    entry.owed_seconds = 0.0;
}

/// Gives up what takes so many bytes and that nobody reads now; false where there is none.
pub(super) fn give_way(bytes: usize) -> bool {
    let mut given = 0;
    for entry in &mut kept().entries {
        if given < bytes.max(1)
            && let Some(here) = entry.here.take_if(|here| here.is_kept_alone())
        {
            given += here.bytes();
        }
    }
    given > 0
}

/// Gives up all.
pub(crate) fn forget() {
    kept().entries.clear();
}

pub(crate) fn usage() -> Usage {
    let mut usage = Usage::default();
    for here in kept().entries.iter().filter_map(|entry| entry.here.as_ref()) {
        match here {
            Here::Dense(_) | Here::Sparse(_) => usage.matrices += 1,
            Here::Column(_) => usage.columns += 1,
            Here::Places(_) | Here::Unfit(_) => {}
        }
        usage.buffers += here.buffers().len();
        usage.bytes += here.bytes();
    }
    usage
}
