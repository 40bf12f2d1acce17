//! Matrices that stay in the device's memory, so that who reads them next need not bring them.
//!
//! ```text
//! first reading ─ upload ─► kept ─► every later reading
//!                            └────► gives way, who was read longest ago first, where there is no room
//! ```
//!
//! A stored matrix never changes, so what was brought is right for as long as it lives: what is stored under its name later is
//! another one. What a kept matrix saves is its way here, as long for each of its bytes, so which one gives way is a question of
//! who was read last.
//!
//! Nothing is brought because it might be of use. But where a plan would have gone to the device, had its matrices been there,
//! the seconds that this would have saved are owed to them; once those are as many as bringing them takes, they are brought.
//! So whatever is asked next, no more than the double of what was right is ever spent on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::matrix::Matrix;
use super::sparse::Sparse;
use crate::gpu::Buffer;
use crate::matrix;

/// Of the device of this process.
static KEPT: Mutex<Kept> = Mutex::new(Kept { entries: Vec::new() });

/// Who was read longest ago first.
struct Kept {
    entries: Vec<Entry>,
}

struct Entry {
    /// It holds the place of the matrix, so that no other one is taken for it.
    of: Weak<matrix::Matrix>,
    here: Option<Here>,
    owed_seconds: f64,
}

/// What is there of a matrix.
#[derive(Clone)]
pub(super) enum Here {
    Dense(Matrix),
    Sparse(Sparse),
}

impl Here {
    fn buffers(&self) -> Vec<&Buffer> {
        match self {
            Self::Dense(matrix) => matrix.buffers().map(Arc::as_ref).collect(),
            Self::Sparse(matrix) => matrix.buffers().collect(),
        }
    }

    fn bytes(&self) -> usize {
        self.buffers().iter().map(|buffer| buffer.bytes()).sum()
    }

    fn is_kept_alone(&self) -> bool {
        match self {
            Self::Dense(matrix) => matrix.is_kept_alone(),
            Self::Sparse(matrix) => matrix.is_kept_alone(),
        }
    }
}

/// What is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) matrices: usize,
    pub(crate) buffers: usize,
    pub(crate) bytes: usize,
}

impl Kept {
    /// The entry of a matrix, read last from now on.
    fn entry(&mut self, of: &Arc<matrix::Matrix>) -> &mut Entry {
        let entry = match self.place(of) {
            Some(at) => self.entries.remove(at),
            None => Entry { of: Arc::downgrade(of), here: None, owed_seconds: 0.0 },
        };
        self.entries.push(entry);
        self.entries.last_mut().expect("one was just put there")
    }

    fn place(&self, of: &Arc<matrix::Matrix>) -> Option<usize> {
        self.entries.iter().position(|entry| entry.of.as_ptr() == Arc::as_ptr(of))
    }
}

/// Without those whose matrix is gone.
fn kept() -> MutexGuard<'static, Kept> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.entries.retain(|entry| entry.of.strong_count() > 0);
    kept
}

/// Whether a matrix is there, and the seconds that it is owed.
pub(crate) fn state(of: &Arc<matrix::Matrix>) -> (bool, f64) {
    let kept = kept();
    let entry = kept.place(of).map(|at| &kept.entries[at]);
    entry.map_or((false, 0.0), |entry| (entry.here.is_some(), entry.owed_seconds))
}

/// A plan would have taken so many seconds less, had the matrix been there.
pub(crate) fn owe(of: &Arc<matrix::Matrix>, seconds: f64) {
    kept().entry(of).owed_seconds += seconds;
}

/// What is there of a matrix, for who reads it now.
pub(super) fn find(of: &Arc<matrix::Matrix>) -> Option<Here> {
    let mut kept = kept();
    kept.place(of)?;
    kept.entry(of).here.clone()
}

/// Keeps what was brought.
pub(super) fn keep(of: &Arc<matrix::Matrix>, here: Here) {
    let mut kept = kept();
    let entry = kept.entry(of);
    entry.here = Some(here);
    entry.owed_seconds = 0.0;
}

/// Gives up matrices of so many bytes that nobody reads now; false where there is none.
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
        usage.matrices += 1;
        usage.buffers += here.buffers().len();
        usage.bytes += here.bytes();
    }
    usage
}
