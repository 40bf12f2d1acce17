//! Some rows of a column, each as likely as any other: what conditions are tried on.
//!
//! Rows of runs are drawn at once. Of rows that come in batches each next one takes the place of one that was drawn before, by a
//! chance that gets smaller; most are skipped without a look: Vitter, *Random Sampling with a Reservoir*, ACM Transactions on
//! Mathematical Software 11(1), 1985. Numbers are the same in each run, for plans must not depend on chance. What is kept holds
//! nothing that lay beside these rows in memory.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::{cast, concat, interleave, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use rand::rngs::SmallRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};

/// Rows that are drawn: the share of those that meet a condition is off by a tenth of itself, in two cases of three, if it is a tenth.
const DRAWN: usize = 1 << 10;

/// Bytes that they take at most; of longer texts fewer are drawn.
pub(super) const DRAWN_BYTES: usize = 1 << 17;

/// Those of some runs of a column; nothing of types whose values have values of their own.
pub(super) fn of_runs(runs: &[ArrayRef]) -> Option<ArrayRef> {
    let seen: usize = runs.iter().map(|run| run.len()).sum();
    let mut random = SmallRng::seed_from_u64(0);
    let mut rows = sample(&mut random, seen, DRAWN.min(seen)).into_vec();
    rows.sort_unstable();
    let (mut rows, mut before) = (rows.as_slice(), 0);
    let mut drawn = Vec::with_capacity(runs.len());
    for run in runs.iter().filter(|run| is_simple(run.data_type())) {
        let (own, others) = rows.split_at(rows.partition_point(|&row| row < before + run.len()));
        drawn.push(taken(run, own.iter().map(|row| row - before)).ok()?);
        (rows, before) = (others, before + run.len());
    }
    let drawn: Vec<&dyn Array> = drawn.iter().map(AsRef::as_ref).collect();
    within_bytes(concat(&drawn).ok()?, &mut random).ok()
}

/// A column whose rows are being read.
pub(super) struct Draw {
    drawn: Option<ArrayRef>,
    /// Rows that are drawn at most; none where a condition cannot be tried.
    most: usize,
    seen: usize,
    random: SmallRng,
}

impl Draw {
    pub(super) fn new() -> Self {
        Self { drawn: None, most: DRAWN, seen: 0, random: SmallRng::seed_from_u64(0) }
    }

    /// Draws of some rows.
    pub(super) fn look(&mut self, values: &ArrayRef) {
        if !is_simple(values.data_type()) {
            self.most = 0;
        }
        let picked = self.pick(values.len());
        if picked.is_empty() {
            return;
        }
        let drawn = self.put(values, &picked);
        self.drawn = drawn.and_then(|drawn| within_bytes(drawn, &mut self.random)).ok();
        let held = self.held();
        if held < DRAWN.min(self.seen) {
            self.most = held;
        }
    }

    /// What was drawn.
    pub(super) fn drawn(self) -> Option<ArrayRef> {
        self.drawn.filter(|drawn| !drawn.is_empty())
    }

    fn held(&self) -> usize {
        self.drawn.as_ref().map_or(0, |drawn| drawn.len())
    }

    /// Which of the next rows are drawn, each after the place that it takes.
    fn pick(&mut self, rows: usize) -> Vec<(usize, usize)> {
        let held = self.held();
        let free = (self.most - held).min(rows);
        let mut picked: Vec<_> = (0..free).map(|row| (held + row, row)).collect();
        let (before, mut row) = (self.seen + free, free);
        self.seen += rows;
        if self.most == 0 || free == rows {
            return picked;
        }
        // The chance of a row, the number of places by that of rows seen, is no greater than that of the first.
        let passed = (-(self.most as f64 / before as f64)).ln_1p();
        loop {
            let skipped = (-self.random.random::<f64>()).ln_1p() / passed;
            row = row.saturating_add(skipped as usize);
            if row >= rows {
                return picked;
            }
            let seen = before + row - free + 1;
            if self.random.random_range(0..seen) < before {
                picked.push((self.random.random_range(0..self.most), row));
            }
            row += 1;
        }
    }

    /// The rows that are drawn once these have taken their places.
    fn put(&self, values: &ArrayRef, picked: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
        let new = taken(values, picked.iter().map(|(_, row)| *row))?;
        let old = self.drawn.clone().unwrap_or_else(|| new.slice(0, 0));
        let mut rows: Vec<(usize, usize)> = (0..old.len()).map(|place| (0, place)).collect();
        for (at, (place, _)) in picked.iter().enumerate() {
            rows.resize(rows.len().max(place + 1), (1, at));
            rows[*place] = (1, at);
        }
        interleave(&[old.as_ref(), new.as_ref()], &rows)
    }
}

/// Whether values have none of their own, by which they may be of any length.
fn is_simple(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, values) => is_simple(values),
        of => of.is_primitive() || of.is_string() || of.is_binary() || *of == DataType::Boolean,
    }
}

/// These rows of a column, those of a dictionary as what they stand for.
fn taken(values: &ArrayRef, rows: impl Iterator<Item = usize>) -> Result<ArrayRef, ArrowError> {
    let taken = take(values, &UInt64Array::from_iter_values(rows.map(|row| row as u64)), None)?;
    match taken.data_type() {
        DataType::Dictionary(_, of) => cast(&taken, of),
        _ => Ok(taken),
    }
}

/// As many of these rows as take few bytes, without what else is in their buffers.
fn within_bytes(mut drawn: ArrayRef, random: &mut SmallRng) -> Result<ArrayRef, ArrowError> {
    loop {
        drawn = match drawn.data_type() {
            DataType::Utf8View => Arc::new(drawn.as_string_view().gc()),
            DataType::BinaryView => Arc::new(drawn.as_binary_view().gc()),
            _ => drawn,
        };
        if drawn.is_empty() || drawn.get_array_memory_size() <= DRAWN_BYTES {
            return Ok(drawn);
        }
        let fewer = sample(random, drawn.len(), drawn.len() / 2);
        drawn = taken(&drawn, fewer.into_iter())?;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::{Int32Type, Int64Type};

    use super::*;

    fn numbers(rows: std::ops::Range<i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows))
    }

    fn drawn(batches: impl IntoIterator<Item = ArrayRef>) -> Option<ArrayRef> {
        let mut draw = Draw::new();
        batches.into_iter().for_each(|batch| draw.look(&batch));
        draw.drawn()
    }

    /// Of as many rows from each tenth of a column: a tenth of them, within five standard deviations.
    fn are_of_all(drawn: &ArrayRef, rows: i64) -> bool {
        let mut tenths = [0_u32; 10];
        for value in drawn.as_primitive::<Int64Type>().values() {
            tenths[(value * 10 / rows) as usize] += 1;
        }
        let expected = drawn.len() as f64 / 10.0;
        tenths.iter().all(|count| (f64::from(*count) - expected).abs() < 5.0 * expected.sqrt())
    }

    #[test]
    fn rows_of_all_batches_are_as_likely() {
        for (rows, length) in [(100_000, 8192), (20_000, 1), (5000, 1000), (1_000_000, 300_000)] {
            let batches = (0..rows).step_by(length).map(|first| {
                let end = (first + length as i64).min(rows);
                numbers(first..end)
            });
            let drawn = drawn(batches).unwrap();
            let mut values = drawn.as_primitive::<Int64Type>().values().to_vec();
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), DRAWN, "{rows} {length}");
            assert!(are_of_all(&drawn, rows), "{rows} {length}");
        }
    }

    #[test]
    fn rows_of_all_runs_are_as_likely() {
        let runs: Vec<_> = (0..100).map(|run| numbers(run * 100..run * 100 + 100)).collect();
        let drawn = of_runs(&runs).unwrap();
        assert!(drawn.len() == DRAWN && are_of_all(&drawn, 10_000));
    }

    #[test]
    fn few_rows_are_all_drawn() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]));
        let expected = concat(&[texts.as_ref(), texts.as_ref()]).unwrap();
        assert_eq!(drawn([Arc::clone(&texts), Arc::clone(&texts)]), Some(Arc::clone(&expected)));
        assert_eq!(of_runs(&[Arc::clone(&texts), texts]), Some(expected));
        assert_eq!(drawn([]), None);
    }

    #[test]
    fn rows_hold_nothing_that_lay_beside_them() {
        let long = "x".repeat(100_000);
        let texts = StringViewArray::from_iter_values([&long, "a text of its own bytes", &long]);
        let texts: ArrayRef = Arc::new(texts.slice(1, 1));
        let codes: DictionaryArray<Int32Type> = [&long[..], "b"].into_iter().collect();
        let codes: ArrayRef = Arc::new(codes.slice(1, 1));
        for rows in [texts, codes] {
            for drawn in [drawn([Arc::clone(&rows)]), of_runs(&[rows])] {
                let drawn = drawn.unwrap();
                assert!(drawn.len() == 1 && drawn.get_array_memory_size() < 10_000);
                assert!(drawn.data_type().is_string());
            }
        }
    }

    #[test]
    fn of_long_texts_fewer_are_drawn_and_of_lists_none() {
        let text = |row: i64| format!("{row} {}", "x".repeat(1000));
        let texts = |rows: std::ops::Range<i64>| -> ArrayRef {
            Arc::new(StringViewArray::from_iter_values(rows.map(text)))
        };
        let batches = || (0..10).map(|batch| texts(batch * 1000..batch * 1000 + 1000));
        for drawn in [drawn(batches()), of_runs(&batches().collect::<Vec<_>>())] {
            let drawn = drawn.unwrap();
            assert!((32..=128).contains(&drawn.len()), "{}", drawn.len());
            let rows = drawn.as_string_view().iter().flatten();
            let rows = rows.map(|text| text.split(' ').next().unwrap().parse::<i64>().unwrap());
            let rows: ArrayRef = Arc::new(rows.collect::<Int64Array>());
            assert!(are_of_all(&rows, 10_000), "{rows:?}");
        }
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)])]));
        assert_eq!((drawn([Arc::clone(&lists)]), of_runs(&[lists])), (None, None));
        let enormous = || texts(0..1).as_string_view().value(0).repeat(1000);
        let enormous: ArrayRef = Arc::new(StringArray::from(vec![enormous(), enormous()]));
        assert_eq!(drawn([enormous]), None);
    }
}
