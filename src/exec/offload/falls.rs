//! What a device has failed at again and again, by the texts of programs: three times, and it is the host's from then on.
//!
//! What fails on a device is done by the host from its beginning, so each fall costs what the device has spent on it. One may be chance, as
//! of memory that others had; three are none. Whoever sets `gpu` or `gpu_on_failure` anew has it tried again.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Falls after which a program is the host's.
const FALLS_MAX: usize = 3;

/// Programs that are remembered.
const PROGRAMS_MAX: usize = 256;

/// By their texts, who fell longest ago first.
static FALLEN: Mutex<Vec<Fallen>> = Mutex::new(Vec::new());

struct Fallen {
    program: String,
    times: usize,
    /// The last time.
    why: String,
}

fn fallen() -> MutexGuard<'static, Vec<Fallen>> {
    FALLEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device failed at a program.
pub(in crate::exec) fn note(program: &str, why: &str) {
    let mut fallen = fallen();
    let known = fallen.iter().position(|known| known.program == program);
    let times = known.map_or(0, |at| fallen.remove(at).times) + 1;
    if fallen.len() == PROGRAMS_MAX {
        fallen.remove(0);
    }
    fallen.push(Fallen { program: program.to_owned(), times, why: why.to_owned() });
}

/// Why a program is not for a device any more, as EXPLAIN says it.
pub(crate) fn why(program: &str) -> Option<String> {
    let fallen = fallen();
    let known = fallen.iter().find(|known| known.program == program && known.times >= FALLS_MAX);
    known.map(|known| format!("failed on the GPU three times: {}", known.why))
}

/// All may be tried again.
pub(crate) fn forget() {
    fallen().clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_falls_are_enough() {
        let program = "of this test of falls alone";
        for times in 1..=4 {
            assert_eq!(why(program).is_some(), times > FALLS_MAX);
            note(program, &format!("for the {times}. time"));
        }
        assert_eq!(why(program).unwrap(), "failed on the GPU three times: for the 4. time");
        // Others push it out.
        (0..PROGRAMS_MAX).for_each(|at| note(&format!("another that fell {at}"), "by chance"));
        assert_eq!((why(program), fallen().len()), (None, PROGRAMS_MAX));
    }
}
