//! Matrices, and columns of tables with the rows of their keys, that stay in a device's memory, so that who reads them next need not bring them.
//!
//! ```text
//! first reading ─ upload ─► kept ─► every later reading
//!                            └────► gives way, what saves least first, where there is no room
//! ```
//!
//! A stored matrix never changes, and neither do the rows of a version of a table, so what was brought is right for as long as they
//! live: what is stored under their name later is another one. Each reading of what is kept saves what bringing it takes. So that gives way first
//! which has saved least time for each of its bytes, readings of long ago left out: whoever comes begins at what the last that gave way
//! had saved (the method is Greedy-Dual-Size-Frequency, of caches of the web).
//!
//! What is kept is kept on a device, and may be on several: each has its own copies, and what has no room on one takes nothing from another.
//! What was on a device that is lost is forgotten.
//!
//! Nothing is brought because it might be of use. But where a plan would have gone to the device, had what it reads been there,
//! the seconds that this would have saved are owed to that; once those are as many as bringing them takes, they are brought.
//! So whatever is asked next, no more than the double of what was right is ever spent on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::groups::{Column, Places};
use super::matrix::Matrix;
use super::sparse::Sparse;
use crate::gpu::{Buffer, Device};
use crate::matrix;
use crate::storage::{SameColumn, TableColumn};

/// Of the devices of this process.
static KEPT: Mutex<Kept> = Mutex::new(Kept { held: Vec::new(), given_up: 0.0, owed: Vec::new() });

struct Kept {
    held: Vec<Held>,
    /// The worth of what has given way last.
    given_up: f64,
    /// Seconds that are owed to what is nowhere.
    owed: Vec<(Owner, f64)>,
}

struct Held {
    of: Owner,
    device: Arc<Device>,
    here: Here,
    /// Seconds that bringing a byte of it takes, and how often it was read.
    seconds_a_byte: f64,
    reads: u32,
    /// Seconds that a byte of it has saved, above what had been given up when it was read last.
    worth: f64,
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

impl Held {
    /// Whether it is of use on a device: what is none for devices is none for each of them.
    fn is_for(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device) || matches!(self.here, Here::Unfit(_))
    }
}

impl Kept {
    /// The copies of something, wherever they are.
    fn of(&self, of: &Owner) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.of.is(of))
    }

    /// The place of what a device has of something.
    fn place(&self, device: &Arc<Device>, of: &Owner) -> Option<usize> {
        self.held.iter().position(|held| held.is_for(device) && held.of.is(of))
    }
}

/// Without those of which nothing is there any more, and those of devices that are lost.
fn kept() -> MutexGuard<'static, Kept> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.held.retain(|held| held.of.lives() && held.device.lost().is_none());
    kept.owed.retain(|(of, _)| of.lives());
    kept
}

/// Whether something is on one of these devices, and the seconds that it is owed.
pub(crate) fn state(devices: &[Arc<Device>], of: impl Into<Owner>) -> (bool, f64) {
    let (kept, of) = (kept(), of.into());
    let is_there = kept.of(&of).any(|held| devices.iter().any(|device| held.is_for(device)));
    let owed = kept.owed.iter().find(|(owed, _)| owed.is(&of));
    (is_there, owed.map_or(0.0, |(_, seconds)| *seconds))
}

/// Whether something is on a device.
pub(super) fn is_there(device: &Arc<Device>, of: impl Into<Owner>) -> bool {
    kept().place(device, &of.into()).is_some()
}

/// Whether something turned out to be none for devices.
pub(crate) fn is_unfit(of: impl Into<Owner>) -> bool {
    kept().of(&of.into()).any(|held| matches!(held.here, Here::Unfit(_)))
}

/// How many different texts a column that is on any device has.
pub(crate) fn texts(of: &TableColumn) -> Option<usize> {
    kept().of(&of.into()).find_map(|held| match &held.here {
        Here::Column(column) => column.texts(),
        _ => None,
    })
}

/// A plan would have taken so many seconds less, had it been there.
pub(crate) fn owe(of: impl Into<Owner>, seconds: f64) {
    let (mut kept, of) = (kept(), of.into());
    match kept.owed.iter_mut().find(|(owed, _)| owed.is(&of)) {
        Some((_, owed)) => *owed += seconds,
        None => kept.owed.push((of, seconds)),
    }
}

/// What is on a device of it, for who reads it now.
pub(super) fn find(device: &Arc<Device>, of: impl Into<Owner>) -> Option<Here> {
    let mut kept = kept();
    let (at, given_up) = (kept.place(device, &of.into())?, kept.given_up);
    let held = &mut kept.held[at];
    held.reads = held.reads.saturating_add(1);
    held.worth = given_up + f64::from(held.reads) * held.seconds_a_byte;
    Some(held.here.clone())
}

/// Keeps what was brought to a device, each byte in so many seconds.
pub(super) fn keep(
    device: &Arc<Device>,
    of: impl Into<Owner>,
    (here, seconds_a_byte): (Here, f64),
) {
    let (mut kept, of) = (kept(), of.into());
    kept.owed.retain(|(owed, _)| !owed.is(&of));
    kept.held.retain(|held| !(Arc::ptr_eq(&held.device, device) && held.of.is(&of)));
    let (device, worth) = (Arc::clone(device), kept.given_up + seconds_a_byte);
    kept.held.push(Held { of, device, here, seconds_a_byte, reads: 1, worth });
}

/// Gives up what takes so many bytes of a device and that nobody reads now; false where there is none.
pub(super) fn give_way(device: &Arc<Device>, bytes: usize) -> bool {
    let (mut kept, mut given) = (kept(), 0);
    while given < bytes.max(1) {
        let may_go = |held: &Held| Arc::ptr_eq(&held.device, device) && held.here.is_kept_alone();
        let all = kept.held.iter().enumerate().filter(|(_, held)| may_go(held));
        let least = all.min_by(|(_, one), (_, other)| one.worth.total_cmp(&other.worth));
        let Some((at, _)) = least else { break };
        let held = kept.held.remove(at);
        kept.given_up = kept.given_up.max(held.worth);
        given += held.here.bytes();
    }
    given > 0
}

/// Gives up all.
pub(crate) fn forget() {
    let mut kept = kept();
    kept.held.clear();
    kept.owed.clear();
}

/// What is kept on a device.
pub(crate) fn usage(device: &Arc<Device>) -> Usage {
    let mut usage = Usage::default();
    let kept = kept();
    let own = kept.held.iter().filter(|held| Arc::ptr_eq(&held.device, device));
    for here in own.map(|held| &held.here) {
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
