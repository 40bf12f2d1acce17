//! The constants of the cost model, measured on this machine.
//!
//! ```text
//! first plan that is worth it ─► the file of an earlier run, else measure and write it ─► CostModel
//! joins before that           ─► the file of an earlier run, else the built-in constants
//! CALIBRATE ─► measure, corrected by what runs showed ─► the file, CostModel
//! ```
//!
//! They are those of the whole machine, whatever `threads` says: a plan, and so the last digits of a result, must not
//! depend on it. For the same reason runs correct the constants only when CALIBRATE is asked for, and what has
//! been measured once holds for all statements and later runs, until the machine is another one.

mod measure;
mod store;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cost::CostModel;
use crate::exec::costs::{Constant, Ratio};

/// One number for each constant, in the order of [`Constant::ALL`].
type Constants = [f64; Constant::COUNT];

/// What is known of this machine.
#[derive(Debug)]
pub(crate) struct Calibration {
    /// Where it is kept, if anywhere.
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

/// What has been found out so far.
#[derive(Debug, Default)]
struct Known {
    constants: Option<Constants>,
    /// Whether it was looked for in the file.
    is_read: bool,
}

/// A constant as CALIBRATE and SHOW COSTS present it.
pub(crate) struct Line {
    pub(crate) constant: Constant,
    pub(crate) built_in: f64,
    /// None where nothing has been measured yet.
    pub(crate) measured: Option<f64>,
    pub(crate) shown: Ratio,
}

impl Calibration {
    /// That of this user, kept in the folder for what can be made anew.
    pub(crate) fn of_user() -> Self {
        Self { file: store::user_file(), known: Mutex::default() }
    }

    /// The model by what was measured; measures where nobody has.
    pub(super) fn model(&self) -> CostModel {
        let mut known = self.lock();
        let measure = || self.keep(measure::constants());
        CostModel::of(*known.constants.get_or_insert_with(measure))
    }

    /// The model by what was measured, if anything was.
    pub(super) fn known(&self) -> Option<CostModel> {
        self.lock().constants.map(CostModel::of)
    }

    /// Measures anew, and takes what runs showed into account.
    pub(crate) fn renew(&self, shown: [Ratio; Constant::COUNT]) -> Vec<Line> {
        let mut known = self.lock();
        let fresh = measure::constants();
        let constants = match known.constants {
            Some(before) => corrected(fresh, before, shown),
            None => fresh,
        };
        known.constants = Some(self.keep(constants));
        lines(known.constants, shown)
    }

    /// What is known, without measuring.
    pub(crate) fn lines(&self, shown: [Ratio; Constant::COUNT]) -> Vec<Line> {
        lines(self.lock().constants, shown)
    }

    /// Writes the constants, rounded to what they are worth. A folder that cannot be written is no error: the next
    /// run measures again.
    fn keep(&self, constants: Constants) -> Constants {
        let constants = constants.map(rounded);
        if let Some(file) = &self.file {
            let _ = store::write(file, &constants);
        }
        constants
    }

    /// What is known, with what is in the file.
    fn lock(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.is_read {
            known.is_read = true;
            known.constants = self.file.as_deref().and_then(store::read);
        }
        known
    }
}

fn lines(measured: Option<Constants>, shown: [Ratio; Constant::COUNT]) -> Vec<Line> {
    let built_in = CostModel::default();
    let line = |constant: Constant| Line {
        constant,
        built_in: rounded(built_in.constant(constant)),
        measured: measured.map(|measured| measured[constant.index()]),
        shown: shown[constant.index()],
    };
    Constant::ALL.map(line).into()
}

/// Runs after which what they show counts as much as a measurement.
const RUNS_HALF: f64 = 8.0;

/// Largest factor by which runs change a constant.
const CORRECTION_MAX: f64 = 4.0;

/// Fresh constants, drawn towards what runs that were planned by those `before` show: the geometric mean,
/// weighted by the number of runs.
fn corrected(fresh: Constants, before: Constants, shown: [Ratio; Constant::COUNT]) -> Constants {
    let mut corrected = fresh;
    for constant in Constant::ALL {
        let at = constant.index();
        let runs = shown[at].runs as f64;
        let weight = runs / (runs + RUNS_HALF);
        // A rate is lower where steps took longer.
        let by_runs = before[at] / shown[at].value();
        let factor = (by_runs / fresh[at]).powf(weight);
        corrected[at] = fresh[at] * factor.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
    }
    corrected
}

/// To three digits: more would be noise, and the file is for people too.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> (tempfile::TempDir, Calibration) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relatrix").join("costs.txt");
        (folder, Calibration { file: Some(file), known: Mutex::default() })
    }

    fn again(calibration: &Calibration) -> Calibration {
        Calibration { file: calibration.file.clone(), known: Mutex::default() }
    }

    #[test]
    fn what_was_measured_holds_for_later_runs() {
        let (_folder, calibration) = temporary();
        assert!(calibration.lines(Default::default()).iter().all(|line| line.measured.is_none()));
        let model = calibration.model();
        assert_eq!(model, calibration.model());
        assert_eq!(model, again(&calibration).model());
        let found = again(&calibration).lines(Default::default());
        assert!(found.iter().all(|line| line.measured == Some(model.constant(line.constant))));
    }

    #[test]
    fn a_damaged_file_is_measured_anew_and_no_folder_is_no_error() {
        let (_folder, calibration) = temporary();
        let file = calibration.file.clone().unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, format!("{}\nmemory fast", store::VERSION)).unwrap();
        let model = calibration.model();
        assert_eq!(again(&calibration).model(), model);
        let nowhere = Calibration { file: Some("/proc/no/costs".into()), known: Mutex::default() };
        assert_eq!(nowhere.model(), nowhere.model());
    }

    #[test]
    fn runs_correct_by_degrees_and_within_bounds() {
        let (fresh, before) = ([100.0; Constant::COUNT], [100.0; Constant::COUNT]);
        assert_eq!(corrected(fresh, before, Default::default()), fresh);
        // Steps that took twice as long: half of the way after a few, all of it after many, and never further than a bound.
        let after = |runs: usize, factor: f64| {
            let mut shown = [Ratio::default(); Constant::COUNT];
            (0..runs).for_each(|_| shown[0].add(factor));
            let found = corrected(fresh, before, shown);
            assert_eq!(found[1..], fresh[1..]);
            found[0]
        };
        assert!((after(8, 2.0) - 100.0 / 2.0_f64.sqrt()).abs() < 1e-9);
        assert!((after(100_000, 2.0) - 50.0).abs() < 0.01);
        assert!((after(100_000, 0.5) - 200.0).abs() < 0.1);
        assert!((after(100_000, 8.0) - 100.0 / CORRECTION_MAX).abs() < 1e-9);
        assert_eq!(rounded(1.23456e11), 1.23e11);
    }
}
