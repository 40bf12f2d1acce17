//! How many values of a column differ, by a few runs of its neighbouring rows.
//!
//! Rows that are neighbours may be alike because the column is sorted or came in groups, so repetition within a run
//! says how long such groups are; only repetition between runs says how large the domain is.
//!
//! ```text
//! m values that differ within their runs, d that differ in all: drawn from a domain of D,
//!     d = D (1 - exp(-m / D))                 solved for D where runs share values
//!     D = d · rows / rows seen                 at most, and where runs share none
//! ```
//!
//! The first is the occupancy of D urns after m balls: Feller, *An Introduction to Probability Theory and Its
//! Applications*, vol. 1, 3rd ed., §IV.2.

use arrow::array::{Array, ArrayRef};
use datafusion::common::HashMap;

use super::profile::hashes;

/// Steps of a bisection: beyond these, a floating-point number has no more digits.
const STEPS: usize = 60;

/// The values that were found in runs of a column's rows, by their hashes.
pub(super) struct Occurrences {
    /// Rows seen that are not NULL.
    pub(super) seen: usize,
    pub(super) values: HashMap<u64, Occurrence>,
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
        let mut this = Self { seen: 0, values: HashMap::with_capacity(rows) };
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
    pub(super) fn distinct(&self, values: f64) -> Option<f64> {
        if self.seen == 0 {
            return None;
        }
        let all = self.values.len() as f64;
        if self.seen as f64 >= values {
            return Some(all);
        }
        let within = self.values.values().map(|value| f64::from(value.runs)).sum();
        let most = all / self.seen as f64 * values;
        Some(domain(within, all).map_or(most, |domain| domain.min(most)).round())
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

    fn estimate(runs: &[ArrayRef], values: f64) -> Option<f64> {
        Occurrences::of(runs).unwrap().distinct(values)
    }

    /// Four runs of 2048 values, of a column of a million made by a function of the row.
    fn estimated(mut value: impl FnMut(i64) -> i64) -> f64 {
        let runs = (0..4).map(|run| {
            let rows = run * 300_000..run * 300_000 + 2048;
            Arc::new(Int64Array::from_iter_values(rows.map(&mut value))) as ArrayRef
        });
        estimate(&runs.collect::<Vec<_>>(), 1e6).unwrap()
    }

    #[test]
    fn keys_groups_and_small_domains_are_told_apart() {
        let mut random = SmallRng::seed_from_u64(7);
        let between = |from: f64, to: f64, count: f64| {
            assert!((from..=to).contains(&count), "{count} is not within {from}..={to}");
        };
        between(1e6, 1e6, estimated(|row| row));
        between(2.4e5, 2.6e5, estimated(|row| row / 4));
        between(7.0, 7.5, estimated(|row| row % 7));
        // Values repeat less within a run, where each counts once, than among balls.
        between(9e3, 1.4e4, estimated(|_| random.random_range(0..10_000)));
        between(1.2e5, 2.5e5, estimated(|_| random.random_range(0..170_000)));
    }

    #[test]
    fn all_rows_seen_are_counted_and_nulls_are_not() {
        let run = Arc::new(Int64Array::from(vec![Some(1), None, Some(2), Some(1)])) as ArrayRef;
        assert_eq!(estimate(&[run], 3.0), Some(2.0));
        assert_eq!(estimate(&[], 3.0), None);
    }
}
