//! How many values of a column differ, by a few runs of its neighbouring rows.
//!
//! Rows that are neighbours may be alike because the column is sorted or came in groups, so repetition within a run
//! says how long such groups are; only repetition between runs says how large the domain is.
//!
//! ```text
//! m values that differ within their k runs, d that differ in all, f of them in one run alone and g in two:
//!     d = A (1 - exp(-m / A))                              solved for A: as many as if all were as common, where runs share values
//!     D = d + (k - 1) / k · f (f - 1) / (2 (g + 1))         all, the rare ones too, and no less than A
//!     D = d · rows / rows seen                             at most, and where runs share none
//! ```
//!
//! The first is the occupancy of A urns after m balls: Feller, *An Introduction to Probability Theory and Its
//! Applications*, vol. 1, 3rd ed., §IV.2. It is what pairs of equal values ask for, of which most are of common ones. The second is what
//! groups ask for: A. Chao, *Estimating the Population Size for Capture-Recapture Data with Unequal Catchability*, Biometrics 43
//! (1987).

use arrow::array::{Array, ArrayRef};
use datafusion::common::HashMap;

use super::profile::hashes;

/// Steps of a bisection: beyond these, a floating-point number has no more digits.
const STEPS: usize = 60;

/// The values that were found in runs of a column's rows, by their hashes.
pub(super) struct Occurrences {
    /// Rows seen that are not NULL.
    pub(super) seen: usize,
    runs: usize,
    pub(super) values: HashMap<u64, Occurrence>,
}

/// How many values differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Count {
    /// As many as if each were as common as any other, for pairs of equal values.
    pub(super) alike: f64,
    /// All, for groups.
    pub(super) all: f64,
}

impl Count {
    /// So many, counted.
    pub(super) fn counted(count: f64) -> Self {
        Self { alike: count, all: count }
    }

    pub(super) fn clamp(self, least: f64, most: f64) -> Self {
        Self { alike: self.alike.clamp(least, most), all: self.all.clamp(least, most) }
    }
}

/// Where a value was found.
pub(super) struct Occurrence {
    pub(super) rows: u32,
    pub(super) runs: u32,
    last_run: usize,
}

impl Occurrences {
    /// Those of runs; nothing for types that have no hash.
    pub(super) fn of(runs: &[ArrayRef]) -> Option<Self> {
        let rows = runs.iter().map(|run| run.len()).sum();
        let mut this = Self { seen: 0, runs: runs.len(), values: HashMap::with_capacity(rows) };
        for (run, values) in runs.iter().enumerate() {
            let hashes = hashes(values)?;
            let nulls = values.logical_nulls();
            let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            for (_, hash) in hashes.into_iter().enumerate().filter(|&(row, _)| is_there(row)) {
                this.seen += 1;
                let new = Occurrence { rows: 0, runs: 0, last_run: usize::MAX };
                let known = this.values.entry(hash).or_insert(new);
                known.rows += 1;
                known.runs += u32::from(known.last_run != run);
                known.last_run = run;
            }
        }
        Some(this)
    }

    /// How many differ of so many values that are not NULL; nothing where no row was seen.
    pub(super) fn distinct(&self, values: f64) -> Option<Count> {
        if self.seen == 0 {
            return None;
        }
        let all = self.values.len() as f64;
        if self.seen as f64 >= values {
            return Some(Count::counted(all));
        }
        let within = self.values.values().map(|value| f64::from(value.runs)).sum();
        let most = all / self.seen as f64 * values;
        let Some(alike) = domain(within, all) else {
            return Some(Count::counted(most.round()));
        };
        let in_runs = |runs: u32| self.values.values().filter(|value| value.runs == runs).count();
        let (once, twice, runs) = (in_runs(1) as f64, in_runs(2) as f64, self.runs as f64);
        let unseen = (runs - 1.0) / runs * once * (once - 1.0).max(0.0) / (2.0 * (twice + 1.0));
        let [alike, all] = [alike, alike.max(all + unseen)].map(|count| count.min(most).round());
        Some(Count { alike, all })
    }
}

/// The urns of which `occupied` hold one of `balls`; nothing where each ball has an urn of its own.
fn domain(balls: f64, occupied: f64) -> Option<f64> {
    if occupied >= balls {
        return None;
    }
    // With C more urns than balls a half of C² / 2 pairs meet, so this many are enough.
    let (mut low, mut high) = (occupied, balls * balls);
    for _ in 0..STEPS {
        let middle = low.midpoint(high);
        let expected = middle * -(-balls / middle).exp_m1();
        if expected < occupied { low = middle } else { high = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn estimate(runs: &[ArrayRef], values: f64) -> Option<Count> {
        Occurrences::of(runs).unwrap().distinct(values)
    }

    /// Of a column of a million values made by a function of the row, by so many runs of as many values.
    fn estimated_by([runs, values]: [i64; 2], mut value: impl FnMut(i64) -> i64) -> Count {
        let runs = (0..runs).map(|run| {
            let first = run * (1_000_000 / runs);
            let rows = first..first + values;
            Arc::new(Int64Array::from_iter_values(rows.map(&mut value))) as ArrayRef
        });
        estimate(&runs.collect::<Vec<_>>(), 1e6).unwrap()
    }

    /// The same by a few long runs, as of files.
    fn estimated(value: impl FnMut(i64) -> i64) -> Count {
        estimated_by([4, 2048], value)
    }

    #[test]
    fn keys_groups_and_small_domains_are_told_apart() {
        let mut random = SmallRng::seed_from_u64(7);
        let between = |from: f64, to: f64, found: Count| {
            let is_within = |count: f64| (from..=to).contains(&count);
            assert!(is_within(found.alike) && is_within(found.all), "{found:?}: {from} to {to}");
        };
        between(1e6, 1e6, estimated(|row| row));
        between(2.4e5, 2.6e5, estimated(|row| row / 4));
        between(7.0, 7.5, estimated(|row| row % 7));
        // Values repeat less within a run, where each counts once, than among balls.
        between(9e3, 1.4e4, estimated(|_| random.random_range(0..10_000)));
        between(1.2e5, 2.5e5, estimated(|_| random.random_range(0..170_000)));
    }

    #[test]
    fn rare_values_are_counted_for_groups() {
        let mut random = SmallRng::seed_from_u64(7);
        // The lower, the more common.
        let mut skewed = |domain: f64| {
            estimated_by([256, 64], |_| (random.random::<f64>().powi(4) * domain) as i64)
        };
        let [few, many] = [1e3, 2e4].map(&mut skewed);
        assert!((900.0..1.1e3).contains(&few.all), "{few:?}");
        assert!(many.alike < 1e4 && (1.4e4..2e4).contains(&many.all), "{many:?}");
    }

    #[test]
    fn all_rows_seen_are_counted_and_nulls_are_not() {
        let run = Arc::new(Int64Array::from(vec![Some(1), None, Some(2), Some(1)])) as ArrayRef;
        assert_eq!(estimate(&[run], 3.0), Some(Count::counted(2.0)));
        assert_eq!(estimate(&[], 3.0), None);
    }
}
