//! Which of several devices does a piece of work.
//!
//! Enters: the devices that may, what the work takes, and what would have to be brought to each of them first. Leaves: one of them, which
//! counts the work until the [`Assigned`] is dropped. Not here: which work is worth a device, and what is kept on which.
//!
//! ```text
//!             under way     to bring     done after
//! device 0    3 ms          nothing      3 ms  ─► this one
//! device 1    nothing       5 ms         5 ms
//! ```
//!
//! Where the work is soonest begun is where what it reads is, unless more is under way there than bringing it to another takes; then it is
//! there twice, and the next who reads it has the choice. Of equal ones that with most free memory is taken, so what is read by different
//! statements spreads. Nobody waits for a device: who is assigned to one that is busy shares it.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;

/// Seconds that a piece of work counts as at least, so that it counts, and at most, whatever was expected.
const SECONDS_MIN: f64 = 1e-6;
const SECONDS_MAX: f64 = 1e6;

/// Who chooses sees what all before have chosen.
static CHOOSING: Mutex<()> = Mutex::new(());

/// Work that is under way on a device.
#[derive(Debug, Default)]
pub(super) struct Load {
    pieces: AtomicUsize,
    /// Expected of all of them together, when they began.
    nanoseconds: AtomicU64,
}

/// What a piece of work takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Expected of it.
    pub(crate) seconds: f64,
    /// Of memory, at once.
    pub(crate) bytes: usize,
}

/// A piece of work that a device does until this is dropped.
#[derive(Debug)]
pub(crate) struct Assigned {
    device: Arc<Device>,
    nanoseconds: u64,
}

impl Assigned {
    fn new(device: &Arc<Device>, seconds: f64) -> Self {
        let nanoseconds = (seconds.clamp(SECONDS_MIN, SECONDS_MAX) * 1e9) as u64;
        device.load.pieces.fetch_add(1, Ordering::Relaxed);
        device.load.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        Self { device: Arc::clone(device), nanoseconds }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Assigned {
    fn drop(&mut self) {
        let load = &self.device.load;
        load.pieces.fetch_sub(1, Ordering::Relaxed);
        load.nanoseconds.fetch_sub(self.nanoseconds, Ordering::Relaxed);
    }
}

impl Device {
    /// Pieces of work that are under way, and the seconds that were expected of them.
    pub(crate) fn under_way(&self) -> (usize, f64) {
        let nanoseconds = self.load.nanoseconds.load(Ordering::Relaxed);
        (self.load.pieces.load(Ordering::Relaxed), nanoseconds as f64 * 1e-9)
    }
}

/// The device that is soonest done with a piece of work, where `bringing` says how many seconds it takes to bring what is not there; one
/// that may not hold so much only where none may. It is asked last whether it `can`, which may take long once; another is taken where not.
pub(crate) fn assign(
    mut devices: Vec<Arc<Device>>,
    piece: Piece,
    bringing: impl Fn(&Arc<Device>) -> f64,
    can: impl Fn(&Arc<Device>) -> bool,
) -> Option<Assigned> {
    loop {
        let assigned = {
            let _alone = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
            let chosen = first(&devices, piece.bytes, &bringing)?;
            Assigned::new(chosen, piece.seconds)
        };
        if can(assigned.device()) {
            return Some(assigned);
        }
        devices.retain(|device| !Arc::ptr_eq(device, assigned.device()));
    }
}

/// The device that work of which nothing is known would be assigned to now.
pub(crate) fn next(devices: &[Arc<Device>]) -> Option<&Arc<Device>> {
    first(devices, 0, &|_| 0.0)
}

fn first<'a>(
    devices: &'a [Arc<Device>],
    bytes: usize,
    bringing: &impl Fn(&Arc<Device>) -> f64,
) -> Option<&'a Arc<Device>> {
    let standing = |device: &'a Arc<Device>| {
        let has_no_room = device.memory_limit() < bytes;
        (device, has_no_room, device.under_way().1 + bringing(device), Reverse(device.free_bytes()))
    };
    // Of those that are alike the first.
    let standings = devices.iter().map(standing);
    let least = standings.min_by(|(_, no_room, seconds, free), (_, other, more, less)| {
        no_room.cmp(other).then(seconds.total_cmp(more)).then(free.cmp(less))
    });
    least.map(|(device, ..)| device)
}
