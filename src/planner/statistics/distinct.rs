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

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef};
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// Steps of a bisection: beyond these, a floating-point number has no more digits.
const STEPS: usize = 60;

/// Of so many values that are not NULL; nothing where no row was seen.
pub(super) fn estimate(runs: Vec<ArrayRef>, values: f64) -> Option<f64> {
    let (mut seen, mut within, mut all) = (0, 0, HashSet::new());
    let random = RandomState::with_seed(0);
    for run in runs {
        let mut hashes = vec![0; run.len()];
        create_hashes([&run], &random, &mut hashes).ok()?;
        let present = hashes.iter().enumerate().filter(|(row, _)| run.is_valid(*row));
        let distinct: HashSet<u64> = present.map(|(_, &hash)| hash).collect();
        seen += run.len() - run.null_count();
        within += distinct.len();
        all.extend(distinct);
    }
    if seen == 0 {
        return None;
    }
    let all = all.len() as f64;
    if seen as f64 >= values {
        return Some(all);
    }
    let most = all / seen as f64 * values;
    Some(domain(within as f64, all).map_or(most, |domain| domain.min(most)))
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

    /// Four runs of 2048 values, of a column of a million made by a function of the row.
    fn estimated(mut value: impl FnMut(i64) -> i64) -> f64 {
        let runs = (0..4).map(|run| {
            let rows = run * 300_000..run * 300_000 + 2048;
            Arc::new(Int64Array::from_iter_values(rows.map(&mut value))) as ArrayRef
        });
        estimate(runs.collect(), 1e6).unwrap()
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
        assert_eq!(estimate(vec![run], 3.0), Some(2.0));
        assert_eq!(estimate(vec![], 3.0), None);
    }
}
