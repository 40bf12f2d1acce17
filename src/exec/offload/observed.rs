//! How long the host and devices took for programs that either could run, beside what was expected of them.
//!
//! - **The host's side** of the next choice is what it took before, in proportion. Rates of a machine are measured one by one; what a loop
//!   over large matrices takes depends on what its threads do to one another and to the system's memory, and may be off by a factor.
//! - **A device's** is the better of its last two runs: one may have waited for somebody else, or brought what stays there. Of a device
//!   that has lost by that nothing new is seen, so it is tried again when the host has run the program so often since that a run in vain
//!   costs little beside.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exec::costs::Ratio;

/// Programs that are remembered, and seconds below which a run is mostly noise.
const PROGRAMS_MAX: usize = 256;
const SECONDS_MIN: f64 = 1e-3;

/// Runs of the host after which a device is tried again, for each time that it took of what was expected: a twentieth is spent in vain.
const AGAIN: f64 = 20.0;

/// Who ran a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Host,
    Device,
}

/// What is known of a program.
#[derive(Debug, Clone, Default)]
struct Seen {
    host: Ratio,
    /// Seconds by what was expected of the last two runs of a device, and how often the host has run it since.
    device: [Option<f64>; 2],
    since: usize,
}

impl Seen {
    fn note(&mut self, by: By, factor: f64) {
        match by {
            By::Host => {
                self.host.add(factor);
                self.since += 1;
            }
            By::Device => {
                self.device = [self.device[1], Some(factor)];
                self.since = 0;
            }
        }
    }

    fn factor(&self, by: By) -> f64 {
        match (by, self.device) {
            (By::Host, _) => self.host.value(),
            (By::Device, [Some(one), Some(other)]) => {
                let better = one.min(other);
                if self.since as f64 >= AGAIN * better.max(1.0) { 1.0 } else { better }
            }
            (By::Device, _) => 1.0,
        }
    }
}

/// By their texts, who ran longest ago first.
static OBSERVED: Mutex<Vec<(String, Seen)>> = Mutex::new(Vec::new());

fn observed() -> MutexGuard<'static, Vec<(String, Seen)>> {
    OBSERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody ran a program.
pub(in crate::exec) fn note(by: By, program: &str, expected_seconds: f64, seconds: f64) {
    if expected_seconds.max(seconds) < SECONDS_MIN {
        return;
    }
    let mut observed = observed();
    let known = observed.iter().position(|(text, _)| text == program);
    let mut entry = match known {
        Some(at) => observed.remove(at),
        None => (program.to_owned(), Seen::default()),
    };
    entry.1.note(by, seconds / expected_seconds);
    if observed.len() == PROGRAMS_MAX {
        observed.remove(0);
    }
    observed.push(entry);
}

/// The parts of a program that devices ran.
#[derive(Debug, Default)]
pub(in crate::exec) struct Parts {
    expected_seconds: f64,
    seconds: f64,
    /// Whether they tell nothing of the next run: some were the host's in the end, or waited for a compiler.
    tell_nothing: bool,
}

impl Parts {
    pub(in crate::exec) fn add(&mut self, expected_seconds: f64, seconds: f64) {
        self.expected_seconds += expected_seconds;
        self.seconds += seconds;
    }

    pub(in crate::exec) fn leave_out(&mut self) {
        self.tell_nothing = true;
    }

    /// All of a program have run.
    pub(in crate::exec) fn note(&self, program: &str) {
        if self.expected_seconds > 0.0 && !self.tell_nothing {
            note(By::Device, program, self.expected_seconds, self.seconds);
        }
    }
}

/// How many times of what was expected somebody took for a program; 1 where that is not known.
pub(crate) fn factor(by: By, program: &str) -> f64 {
    let observed = observed();
    let known = observed.iter().find(|(text, _)| text == program);
    known.map_or(1.0, |(_, seen)| seen.factor(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_what_it_took() {
        let program = "of this test alone";
        let by_host = || factor(By::Host, program);
        assert_eq!(by_host(), 1.0);
        note(By::Host, program, 1e-6, 5e-4);
        assert_eq!(by_host(), 1.0);
        note(By::Host, program, 0.01, 0.03);
        assert!((by_host() - 3.0).abs() < 1e-9);
        (0..200).for_each(|_| note(By::Host, program, 0.01, 0.02));
        assert!((by_host() - 2.0).abs() < 0.01);
        assert_eq!(factor(By::Device, program), 1.0);
        // Others push it out.
        (0..PROGRAMS_MAX).for_each(|at| note(By::Host, &format!("another {at}"), 1.0, 1.0));
        assert_eq!(by_host(), 1.0);
        assert_eq!(super::observed().len(), PROGRAMS_MAX);
    }

    #[test]
    fn a_device_is_known_by_the_better_of_two_runs() {
        let mut seen = Seen::default();
        seen.note(By::Device, 40.0);
        assert_eq!(seen.factor(By::Device), 1.0);
        seen.note(By::Device, 3.0);
        assert_eq!(seen.factor(By::Device), 3.0);
        seen.note(By::Device, 5.0);
        seen.note(By::Device, 4.0);
        assert_eq!((seen.factor(By::Device), seen.factor(By::Host)), (4.0, 1.0));
    }

    #[test]
    fn a_device_that_has_lost_is_tried_again() {
        let mut seen = Seen::default();
        (0..2).for_each(|_| seen.note(By::Device, 4.0));
        let mut runs = 0;
        while seen.factor(By::Device) > 1.0 {
            seen.note(By::Host, 1.0);
            runs += 1;
        }
        assert_eq!(runs, 80);
        // As slow as before, and the host goes on at once.
        seen.note(By::Device, 5.0);
        assert_eq!(seen.factor(By::Device), 4.0);
        (0..80).for_each(|_| seen.note(By::Host, 1.0));
        seen.note(By::Device, 0.9);
        assert_eq!(seen.factor(By::Device), 0.9);
    }
}
