//! What some rows of a table in memory say of a column.
//!
//! ```text
//! 16,384 rows or fewer   all are looked at, as ANALYZE does
//! more                   256 runs of 64 neighbouring rows, one in each part of as many rows
//! ```
//!
//! Runs are short, so that a table that is sorted is met in all of its parts, and no shorter, so that one whose rows are in a file
//! is read in few places. A column takes 0.7 ms, however many rows there are.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::profile::{Profile, Reader};
use crate::exec::kernels::distinct::mixed;

/// Rows that are all looked at, if they are no more.
pub(super) const WHOLE_ROWS_MAX: usize = RUNS * RUN_ROWS;

/// Runs of neighbouring rows.
const RUNS: usize = 256;

/// Rows of a run.
const RUN_ROWS: usize = 64;

/// What is known of a column of rows that are in batches of these lengths, of which no more than so many values can differ; nothing
/// where there are none. It is asked for values of rows of a batch.
pub(super) fn profile(
    lengths: &[usize],
    values: impl Fn(usize, Range<usize>) -> Option<ArrayRef>,
    distinct_max: f64,
) -> Option<Profile> {
    let rows: usize = lengths.iter().sum();
    if rows > WHOLE_ROWS_MAX {
        let runs = runs(lengths, rows).into_iter().map(|(batch, run)| values(batch, run));
        return Profile::of_runs(&runs.collect::<Option<Vec<_>>>()?, rows as f64, distinct_max);
    }
    let all = lengths.iter().enumerate().map(|(batch, &length)| values(batch, 0..length));
    let all = all.collect::<Option<Vec<_>>>()?;
    (rows > 0).then(|| Reader::of_all(all.iter()))
}

/// Runs of rows, each with its batch; one that two batches share is two.
fn runs(lengths: &[usize], rows: usize) -> Vec<(usize, Range<usize>)> {
    let mut starts = (0..RUNS).map(|run| start(run, rows)).peekable();
    let (mut runs, mut before, mut left) = (Vec::with_capacity(RUNS), 0, 0);
    for (batch, length) in lengths.iter().enumerate() {
        let end = before + length;
        // What is left of a run that began in a batch before.
        let mut start = before;
        loop {
            let taken = left.min(end - start);
            if taken > 0 {
                runs.push((batch, start - before..start - before + taken));
            }
            left -= taken;
            match starts.next_if(|&next| left == 0 && next < end) {
                Some(next) => (start, left) = (next, RUN_ROWS),
                None => break,
            }
        }
        before = end;
    }
    runs
}

/// Where a run begins: the first and the last are at both ends, each other one is anywhere in its part, though always at the
/// same place, for values may come back at even distances.
fn start(run: usize, rows: usize) -> usize {
    let even = |run: usize| (rows - RUN_ROWS) * run / (RUNS - 1);
    if run == 0 || run == RUNS - 1 {
        return even(run);
    }
    let free = even(run + 1) - even(run) - RUN_ROWS + 1;
    even(run) + mixed(run as u64) as usize % free
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int64Type};
    use datafusion::common::ScalarValue;

    use super::super::distinct::Count;
    use super::*;

    /// A column of so many rows in batches of these lengths, again and again.
    fn batches(rows: i64, lengths: &[i64], value: impl Fn(i64) -> Option<i64>) -> Vec<ArrayRef> {
        let (mut batches, mut first) = (Vec::<ArrayRef>::new(), 0);
        for length in lengths.iter().cycle() {
            let end = (first + length).min(rows);
            batches.push(Arc::new((first..end).map(&value).collect::<Int64Array>()));
            first = end;
            if first == rows {
                return batches;
            }
        }
        unreachable!("lengths are not empty")
    }

    fn lengths(batches: &[ArrayRef]) -> Vec<usize> {
        batches.iter().map(|batch| batch.len()).collect()
    }

    fn profile(batches: &[ArrayRef]) -> Option<Profile> {
        let values =
            |batch: usize, rows: Range<usize>| Some(batches[batch].slice(rows.start, rows.len()));
        super::profile(&lengths(batches), values, f64::INFINITY)
    }

    #[test]
    fn runs_are_of_all_parts_and_cross_batches() {
        let rows = 100_000;
        let starts: Vec<usize> = (0..RUNS).map(|run| start(run, rows as usize)).collect();
        assert_eq!((starts[0], starts[RUNS - 1]), (0, rows as usize - RUN_ROWS));
        let part = rows as usize / RUNS;
        let distances = starts.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(distances.into_iter().all(|between| (RUN_ROWS..2 * part).contains(&between)));
        for lengths in [&[8192][..], &[1, 100, 0, 200], &[100_000]] {
            let batches = batches(rows, lengths, Some);
            let runs = runs(&self::lengths(&batches), rows as usize).into_iter();
            let found: Vec<i64> = runs
                .flat_map(|(batch, run)| {
                    batches[batch].as_primitive::<Int64Type>().values()[run].to_vec()
                })
                .collect();
            let expected = (0..RUNS).flat_map(|run| {
                let start = start(run, rows as usize) as i64;
                start..start + RUN_ROWS as i64
            });
            assert!(found.into_iter().eq(expected), "{lengths:?}");
        }
    }

    #[test]
    fn sorted_keys_groups_and_common_values_are_told_apart() {
        let rows = 1_000_000;
        let of =
            |value: &dyn Fn(i64) -> Option<i64>| profile(&batches(rows, &[8192], value)).unwrap();
        let share = |profile: &Profile, value: i64| {
            profile.share_of(&ScalarValue::from(value), &DataType::Int64).unwrap()
        };
        let keys = of(&Some);
        assert_eq!(keys.distinct, Some(Count::counted(1e6)));
        let last = keys.within(999_000.0, 1e6).unwrap();
        assert!((0.0005..0.002).contains(&last), "{last}");
        assert!(share(&keys, 77) < 2e-6);
        // Each value in one place only: none is more common than another.
        let sorted = of(&|row| Some(row / 100_000));
        assert_eq!(sorted.distinct.map(|distinct| distinct.all), Some(10.0));
        assert!((0.08..0.12).contains(&share(&sorted, 3)), "{}", share(&sorted, 3));
        let skewed = of(&|row| match row * 7919 % 1000 {
            0..300 => None,
            300..500 => Some(-1),
            500..510 => Some(-2),
            _ => Some(row),
        });
        assert!((skewed.nulls - 0.3).abs() < 0.02, "{}", skewed.nulls);
        assert!((share(&skewed, -1) - 0.2).abs() < 0.02, "{}", share(&skewed, -1));
        assert!((share(&skewed, -2) - 0.01).abs() < 0.004, "{}", share(&skewed, -2));
        assert!(share(&skewed, 999_999) < 1e-4, "{}", share(&skewed, 999_999));
    }

    #[test]
    fn what_a_sample_has_not_met_is_rare_and_not_impossible() {
        let few = profile(&batches(100_000, &[8192], |row| Some(row % 3))).unwrap();
        let unseen = few.share_of(&ScalarValue::from(7_i64), &DataType::Int64).unwrap();
        assert!(unseen > 0.0 && unseen < 1e-4, "{unseen}");
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "a"]));
        let all = profile(&[texts]).unwrap();
        assert_eq!(all.share_of(&ScalarValue::from("a"), &DataType::Utf8), Some(0.75));
        assert_eq!(all.share_of(&ScalarValue::from("c"), &DataType::Utf8), Some(0.0));
        assert!(profile(&[]).is_none());
    }
}
