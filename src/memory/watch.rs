//! What the process holds beyond what is counted.

use std::time::{Duration, Instant};

use super::resident::Resident;

/// How old a figure may be. To ask the system takes some microseconds.
const AGE_MAX: Duration = Duration::from_millis(5);

/// What is known to be resident and uncounted halves in this time once it is no more seen: it may only be
/// hidden behind memory that is promised and not yet touched.
const HALF_LIFE: Duration = Duration::from_millis(500);

/// What the process holds beyond what is counted.
#[derive(Debug)]
pub(super) struct Watch {
    resident: fn() -> Option<Resident>,
    looked: Instant,
    uncounted_bytes: usize,
    /// What it held before anything was counted, which nobody will give back.
    base_bytes: usize,
}

impl Watch {
    /// From now on; `None` where the system does not say what a process holds.
    pub(super) fn begin(resident: fn() -> Option<Resident>) -> Option<Self> {
        let base_bytes = resident()?.private_bytes;
        Some(Self { resident, looked: Instant::now(), uncounted_bytes: base_bytes, base_bytes })
    }

    /// Bytes beyond `counted`, as of a moment ago.
    pub(super) fn uncounted(&mut self, counted_bytes: usize) -> usize {
        if self.looked.elapsed() >= AGE_MAX {
            self.look(counted_bytes);
        }
        self.uncounted_bytes
    }

    /// Looks anew, and believes what it sees.
    pub(super) fn look_again(&mut self, counted_bytes: usize) -> usize {
        self.uncounted_bytes = self.base_bytes;
        self.look(counted_bytes);
        self.uncounted_bytes
    }

    fn look(&mut self, counted_bytes: usize) {
        let now = Instant::now();
        let private_bytes = (self.resident)().map_or(0, |resident| resident.private_bytes);
        let seen = private_bytes.saturating_sub(counted_bytes);
        self.uncounted_bytes = self.faded(now).max(seen).max(self.base_bytes);
        self.looked = now;
    }

    fn faded(&self, now: Instant) -> usize {
        let half_lives = (now - self.looked).as_secs_f64() / HALF_LIFE.as_secs_f64();
        (self.uncounted_bytes as f64 * (-half_lives).exp2()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_any_more_fades() {
        let now = Instant::now();
        let resident = Resident::now;
        let watch = Watch { resident, looked: now, uncounted_bytes: 1000, base_bytes: 0 };
        assert_eq!(watch.faded(now), 1000);
        assert_eq!(watch.faded(now + HALF_LIFE), 500);
        assert_eq!(watch.faded(now + 2 * HALF_LIFE), 250);
    }
}
