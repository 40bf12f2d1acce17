//! What a machine is measured by, and what runs show of it.
//!
//! The constants of the planner's cost model are named here, for a run knows by its notes which of them bounds a
//! step. [`Runs`] keeps, for each, how much longer such steps took than was expected.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::program::{Program, Slot, Step};
use super::run::Measured;

/// Threads that the machine has for this process, on all of which constants are measured.
pub(crate) fn machine_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One property of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constant {
    /// Dense products and what is built of them, in `f64`.
    Products64,
    /// The same in `f32`.
    Products32,
    /// Decompositions in `f64`, whose panels are bound by latency.
    Decompositions,
    /// Products of a sparse and a dense operand, bound by gathers.
    SparseProducts,
    /// Products of two sparse operands, whose every sum is looked for where it lies.
    SparsePairs,
    /// Elementwise functions, in units of one addition.
    Elementwise,
    /// Reading and writing memory.
    Memory,
    /// What every step takes, however little it does.
    Steps,
    /// Rows that a filter reads.
    Read,
    /// Values that are kept and read again.
    Kept,
    /// Rows that are hashed, dealt out and put into the table of a join.
    Built,
    /// Rows that are hashed and looked up in a table within the caches.
    Probed,
    /// The same in one far beyond them.
    ProbedFar,
    /// Pairs of rows of which the columns are gathered.
    Gathered,
    /// Pairs of rows that are compared, where no key says which belong together.
    Compared,
    /// Rows that are hashed and dealt out to threads.
    Dealt,
    /// Rows that are added to groups within the caches.
    Grouped,
    /// The same to groups far beyond them.
    GroupedFar,
    /// Rows that are put in order.
    Sorted,
}

impl Constant {
    pub(crate) const COUNT: usize = 19;

    pub(crate) const ALL: [Constant; Self::COUNT] = [
        Constant::Products64,
        Constant::Products32,
        Constant::Decompositions,
        Constant::SparseProducts,
        Constant::SparsePairs,
        Constant::Elementwise,
        Constant::Memory,
        Constant::Steps,
        Constant::Read,
        Constant::Kept,
        Constant::Built,
        Constant::Probed,
        Constant::ProbedFar,
        Constant::Gathered,
        Constant::Compared,
        Constant::Dealt,
        Constant::Grouped,
        Constant::GroupedFar,
        Constant::Sorted,
    ];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The name users know it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Constant::Products64 => "products_float64",
            Constant::Products32 => "products_float32",
            Constant::Decompositions => "decompositions",
            Constant::SparseProducts => "sparse_products",
            Constant::SparsePairs => "sparse_pairs",
            Constant::Elementwise => "elementwise",
            Constant::Memory => "memory",
            Constant::Steps => "steps",
            Constant::Read => "read",
            Constant::Kept => "kept",
            Constant::Built => "built",
            Constant::Probed => "probed",
            Constant::ProbedFar => "probed_far",
            Constant::Gathered => "gathered",
            Constant::Compared => "compared",
            Constant::Dealt => "dealt",
            Constant::Grouped => "grouped",
            Constant::GroupedFar => "grouped_far",
            Constant::Sorted => "sorted",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Constant::Memory => "bytes/s",
            Constant::Steps => "s",
            Constant::Products64
            | Constant::Products32
            | Constant::Decompositions
            | Constant::SparseProducts
            | Constant::SparsePairs
            | Constant::Elementwise => "flop/s",
            Constant::Kept => "values/s",
            Constant::Gathered | Constant::Compared => "pairs/s",
            Constant::Read
            | Constant::Built
            | Constant::Probed
            | Constant::ProbedFar
            | Constant::Dealt
            | Constant::Grouped
            | Constant::GroupedFar
            | Constant::Sorted => "rows/s",
        }
    }
}

/// What steps took beside what was expected of them, by what bounds them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ratio {
    /// Logarithm of measured by expected seconds; recent runs count more.
    log: f64,
    /// Number of steps behind it.
    pub(crate) runs: u64,
}

/// Steps that were expected to take less are not worth a look: noise, mostly.
const SECONDS_MIN: f64 = 1e-3;

/// Weight of a step among those before it, once there are a few.
const WEIGHT_MIN: f64 = 1.0 / 16.0;

/// Largest factor that one step may be off by: beyond it, the sizes were guessed wrong and not the rate.
const FACTOR_MAX: f64 = 8.0;

impl Ratio {
    /// Measured by expected seconds; 1 where nothing has run.
    pub(crate) fn value(self) -> f64 {
        self.log.exp()
    }

    /// Takes in a step that took so many times what was expected.
    pub(crate) fn add(&mut self, factor: f64) {
        let log = factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX).ln();
        self.runs += 1;
        let weight = (1.0 / self.runs as f64).max(WEIGHT_MIN);
        self.log += weight * (log - self.log);
    }
}

/// What the runs of a database show about the constants that they were planned by.
#[derive(Debug)]
pub(crate) struct Runs {
    ratios: Mutex<[Ratio; Constant::COUNT]>,
    /// Whether they have all the threads that constants are measured on.
    have_all_threads: bool,
}

impl Runs {
    /// Those on so many threads, of which there are none yet.
    pub(crate) fn on(threads: usize) -> Self {
        Self { ratios: Mutex::default(), have_all_threads: threads == machine_threads() }
    }

    pub(crate) fn ratios(&self) -> [Ratio; Constant::COUNT] {
        *self.lock()
    }

    /// Forgets everything, and says what it was.
    pub(crate) fn take(&self) -> [Ratio; Constant::COUNT] {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, [Ratio; Constant::COUNT]> {
        self.ratios.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the whole operations of a program that has run, where it was planned by constants that
    /// were measured. Passes do several things at once, and rounds differ.
    pub(super) fn add(&self, program: &Program, measured: &HashMap<Slot, Measured>) {
        if !program.is_by_measured_costs || !self.have_all_threads {
            return;
        }
        let mut ratios = self.lock();
        for step in &program.steps {
            let (Step::Evaluate { output, .. } | Step::Multiply { output, .. }) = step else {
                continue;
            };
            let note = &program.notes[*output];
            if let (Some(bound), Some(measured)) = (note.bound, measured.get(output))
                && note.seconds >= SECONDS_MIN
                && note.is_exact
            {
                ratios[bound.index()].add(measured.seconds / note.seconds);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_listed_in_their_order() {
        assert!(Constant::ALL.iter().enumerate().all(|(at, constant)| constant.index() == at));
    }

    #[test]
    fn what_runs_show_is_bounded_and_damped() {
        let mut ratio = Ratio::default();
        assert_eq!(ratio.value(), 1.0);
        ratio.add(1e6);
        assert!((ratio.value() - FACTOR_MAX).abs() < 1e-9);
        (0..200).for_each(|_| ratio.add(2.0));
        assert!((ratio.value() - 2.0).abs() < 0.01);
        ratio.add(f64::MIN_POSITIVE);
        assert!(ratio.value() > 1.5 && ratio.runs == 202);
    }
}
