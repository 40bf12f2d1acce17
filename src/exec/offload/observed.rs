//! How long the host took for programs that a device could run, beside what was expected of it.
//!
//! Rates of a machine are measured one by one; what a loop over large matrices takes depends on what its threads do to one another and to
//! the system's memory, and may be off by a factor. So the host's side of the next choice is what it took before, in proportion.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exec::costs::Ratio;

/// Programs that are remembered, and seconds below which a run is mostly noise.
const PROGRAMS_MAX: usize = 256;
const SECONDS_MIN: f64 = 1e-3;

/// By their texts, who ran longest ago first.
static OBSERVED: Mutex<Vec<(String, Ratio)>> = Mutex::new(Vec::new());

fn observed() -> MutexGuard<'static, Vec<(String, Ratio)>> {
    OBSERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host ran a program.
pub(in crate::exec) fn note(program: &str, expected_seconds: f64, seconds: f64) {
    if expected_seconds.max(seconds) < SECONDS_MIN {
        return;
    }
    let mut observed = observed();
    let known = observed.iter().position(|(text, _)| text == program);
    let mut entry = match known {
        Some(at) => observed.remove(at),
        None => (program.to_owned(), Ratio::default()),
    };
    entry.1.add(seconds / expected_seconds);
    if observed.len() == PROGRAMS_MAX {
        observed.remove(0);
    }
    observed.push(entry);
}

/// How many times of what was expected the host took for a program; 1 where it has not run.
pub(crate) fn factor(program: &str) -> f64 {
    let observed = observed();
    let known = observed.iter().find(|(text, _)| text == program);
    known.map_or(1.0, |(_, ratio)| ratio.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_what_it_took() {
        let program = "of this test alone";
        assert_eq!(factor(program), 1.0);
        note(program, 1e-6, 5e-4);
        assert_eq!(factor(program), 1.0);
        note(program, 0.01, 0.03);
        assert!((factor(program) - 3.0).abs() < 1e-9);
        (0..200).for_each(|_| note(program, 0.01, 0.02));
        assert!((factor(program) - 2.0).abs() < 0.01);
        // Others push it out.
        (0..PROGRAMS_MAX).for_each(|at| note(&format!("another {at}"), 1.0, 1.0));
        assert_eq!(factor(program), 1.0);
        assert_eq!(super::observed().len(), PROGRAMS_MAX);
    }
}
