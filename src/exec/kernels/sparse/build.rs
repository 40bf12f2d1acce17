//! Entries to rows, dense to sparse and back, and the transpose.
//!
//! Entries are sorted by row in two steps that each read and write mostly in order: runs of entries
//! into buckets of rows, then each bucket by row. Both are stable, so equal places keep their order.
//!
//! ```text
//! entries   run 0 | run 1 | …            each sorted by bucket, in parallel
//! buckets   bucket b of run 0, of run 1, … gathered, sorted by row, then each row by column
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::super::Stop;
use super::cuts::row_parts;
use super::lanes::{CELLS_MAX, LANES, Lanes};
use super::rows::{Rows, accumulate, by_rows, fill_rows, join, stored_before};
use crate::matrix::{CellBuffer, Csr, Dense, Scalar, Shape};

/// What to do where an entry comes twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Report it.
    Refuse,
    /// Add the values, in their order.
    Sum,
    /// Keep the last value.
    Last,
}

/// The first two entries of one place, by row and column and then in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatedEntry {
    /// Their row, from 0.
    pub row: usize,
    /// Their column, from 0.
    pub column: usize,
    /// Where among the entries the first is.
    pub first: usize,
    /// Where among the entries the second is.
    pub second: usize,
}

/// What an entry has beside its place.
pub trait Load<T>: Copy + Default + Send + Sync {
    /// The cell of the entries of one place, in their order.
    fn cell(same: &[(u32, Self)], duplicates: Duplicates) -> T;
}

/// A value.
impl<T: Scalar> Load<T> for T {
    fn cell(same: &[(u32, T)], duplicates: Duplicates) -> T {
        match duplicates {
            Duplicates::Sum => same.iter().map(|&(_, value)| value).sum(),
            Duplicates::Refuse | Duplicates::Last => same[same.len() - 1].1,
        }
    }
}

/// Nothing: it counts as one.
impl<T: Scalar> Load<T> for () {
    fn cell(same: &[(u32, ())], duplicates: Duplicates) -> T {
        match duplicates {
            Duplicates::Sum => T::from_f64(same.len() as f64),
            Duplicates::Refuse | Duplicates::Last => T::ONE,
        }
    }
}

/// Compressed rows from so many entries in any order; zeros are left out. `entry` gives the row, the column and the load
/// of each, and what it owns is let go once they have been read, unless an error might have to name two.
///
/// # Errors
/// With [`Duplicates::Refuse`], where a place comes twice.
///
/// # Panics
/// Where an entry is outside the shape.
pub fn from_entries<T: Scalar, L: Load<T>>(
    shape: Shape,
    count: usize,
    entry: impl Fn(usize) -> Entry<L> + Send + Sync,
    duplicates: Duplicates,
    stop: Stop<'_>,
) -> Result<Csr<T>, RepeatedEntry> {
    let is_within = |at: usize| {
        let (row, column, _) = entry(at);
        (row as usize) < shape.rows && (column as usize) < shape.columns
    };
    let all_within = (0..count).into_par_iter().with_min_len(1 << 14).all(is_within);
    assert!(all_within, "entries within {shape}");
    let runs = (count >> 16).clamp(1, 64);
    let length = count.div_ceil(runs).max(1);
    let mut entry = Some(entry);
    let sorted = {
        let entry = entry.as_ref().expect("it is let go below");
        let run =
            |run: usize| ((run * length).min(count)..((run + 1) * length).min(count)).map(entry);
        sorted_runs(shape, runs, run, stop)
    };
    if duplicates != Duplicates::Refuse {
        entry = None;
    }
    let made = joined(shape, sorted, duplicates, stop);
    made.ok_or_else(|| first_repeated(count, entry.expect("kept where an error may name two")))
}

/// The transpose.
pub fn transpose<T: Scalar>(x: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    let runs = (x.stored() >> 16).clamp(1, 64);
    let cuts = row_parts(x.shape().rows, runs, stored_before(x));
    let run = |run: usize| {
        cuts[run].clone().flat_map(|i| {
            let (columns, values) = x.row(i);
            columns.iter().zip(values).map(move |(&j, &x)| (j, i as u32, x))
        })
    };
    let shape = x.shape().transposed();
    let sorted = sorted_runs(shape, cuts.len(), run, stop);
    joined(shape, sorted, Duplicates::Last, stop).expect("only refused duplicates give none")
}

/// The cells that are not zero.
pub fn from_dense<T: Scalar>(x: &Dense<T>) -> Csr<T> {
    by_rows(
        x.shape(),
        |row| row * x.shape().columns,
        || (),
        Stop::NEVER,
        |(), i, rows| {
            for (j, &x) in x.row(i).iter().enumerate() {
                rows.push(j as u32, x);
            }
        },
    )
}

/// Every cell, stored or not.
pub fn to_dense<T: Scalar>(x: &Csr<T>) -> Dense<T> {
    let (shape, n) = (x.shape(), x.shape().columns);
    let mut cells = CellBuffer::zeroed(shape.cells());
    fill_rows(x, n, &mut cells, Stop::NEVER, &|x, out| {
        for i in 0..x.shape().rows {
            let (columns, values) = x.row(i);
            for (&j, &x) in columns.iter().zip(values) {
                out[i * n + j as usize] = x;
            }
        }
    });
    Dense::new(shape, cells.into())
}

/// One entry: row, column, and what it carries.
pub type Entry<L> = (u32, u32, L);

/// A run of entries sorted by bucket, stably, and where each bucket begins.
type Run<L> = (Vec<usize>, Vec<Entry<L>>);

/// Runs of entries by buckets of rows.
struct Sorted<L> {
    runs: Vec<Run<L>>,
    buckets: usize,
    /// A bucket has 2ˢ rows.
    shift: u32,
}

/// Sorts the entries of each run into buckets.
fn sorted_runs<L: Copy + Default + Send, I: Iterator<Item = Entry<L>>>(
    shape: Shape,
    runs: usize,
    run: impl Fn(usize) -> I + Sync,
    stop: Stop<'_>,
) -> Sorted<L> {
    // At most 512 buckets, so that a run writes few enough streams for the cache.
    let shift = (shape.rows.max(1).div_ceil(512)).next_power_of_two().trailing_zeros();
    let buckets = if runs == 1 { 1 } else { (shape.rows >> shift) + 1 };
    let bucket = |row: u32| if runs == 1 { 0 } else { (row >> shift) as usize };
    let runs = (0..runs)
        .into_par_iter()
        .filter(|_| !stop.is_asked())
        .map(|at| by_bucket(|| run(at), buckets, bucket))
        .collect();
    Sorted { runs, buckets, shift }
}

/// The entries of all runs by row and column; `None` where a refused place comes twice.
fn joined<T: Scalar, L: Load<T>>(
    shape: Shape,
    sorted: Sorted<L>,
    duplicates: Duplicates,
    stop: Stop<'_>,
) -> Option<Csr<T>> {
    let Sorted { runs, buckets, shift } = sorted;
    let parts: Vec<Option<Rows<T>>> = (0..buckets)
        .into_par_iter()
        .map(|at| {
            let rows = if buckets == 1 {
                0..shape.rows
            } else {
                at << shift..shape.rows.min((at + 1) << shift)
            };
            if stop.is_asked() {
                return Some(Rows::empty(rows.len()));
            }
            sort_bucket(&runs, at, rows, shape.columns, duplicates)
        })
        .collect();
    // What is sorted is in the parts, and joining them takes as much once more.
    drop(runs);
    Some(join(shape, parts.into_iter().collect::<Option<_>>()?))
}

fn by_bucket<L: Copy + Default, I: Iterator<Item = Entry<L>>>(
    entries: impl Fn() -> I,
    buckets: usize,
    bucket: impl Fn(u32) -> usize,
) -> Run<L> {
    let mut starts = vec![0; buckets + 1];
    entries().for_each(|(row, ..)| starts[bucket(row) + 1] += 1);
    accumulate(&mut starts);
    let mut sorted = vec![(0, 0, L::default()); starts[buckets]];
    let mut next = starts.clone();
    for entry in entries() {
        let place = &mut next[bucket(entry.0)];
        sorted[*place] = entry;
        *place += 1;
    }
    (starts, sorted)
}

/// The rows of one bucket, from its entries in every run.
fn sort_bucket<T: Scalar, L: Load<T>>(
    runs: &[Run<L>],
    bucket: usize,
    rows: Range<usize>,
    columns: usize,
    duplicates: Duplicates,
) -> Option<Rows<T>> {
    let entries = || runs.iter().flat_map(|(starts, run)| &run[starts[bucket]..starts[bucket + 1]]);
    let mut starts = vec![0; rows.len() + 1];
    entries().for_each(|&(row, ..)| starts[row as usize - rows.start + 1] += 1);
    accumulate(&mut starts);
    let mut cells = vec![(0, L::default()); starts[rows.len()]];
    let mut next = starts.clone();
    for &(row, column, load) in entries() {
        let place = &mut next[row as usize - rows.start];
        cells[*place] = (column, load);
        *place += 1;
    }
    sort_by_column(&starts, columns, &mut cells);
    let mut written = Rows::with_capacity(rows.len(), cells.len());
    for ends in starts.windows(2) {
        let row = &cells[ends[0]..ends[1]];
        for same in row.chunk_by(|left, right| left.0 == right.0) {
            if duplicates == Duplicates::Refuse && same.len() > 1 {
                return None;
            }
            written.push(same[0].0, L::cell(same, duplicates));
        }
        written.end_row();
    }
    Some(written)
}

/// Sorts each row by column, stably; row `i` begins at `starts[i]`.
fn sort_by_column<L: Copy + Default>(starts: &[usize], columns: usize, cells: &mut [(u32, L)]) {
    let mut lanes = Lanes::new();
    let rows: Vec<Range<usize>> = starts.windows(2).map(|ends| ends[0]..ends[1]).collect();
    for rows in rows.chunks(LANES) {
        for (lane, row) in rows.iter().enumerate() {
            let row = &mut cells[row.clone()];
            if row.is_sorted_by_key(|&(column, _)| column) {
                continue;
            }
            if row.len() <= CELLS_MAX && Lanes::<L>::hold(columns) {
                lanes.extend(lane, row.iter().copied());
            } else {
                row.sort_by_key(|&(column, _)| column);
            }
        }
        lanes.sort();
        for (lane, row) in rows.iter().enumerate() {
            // A lane without cells is that of a row in order already.
            for (to, cell) in cells[row.clone()].iter_mut().zip(lanes.take(lane)) {
                *to = cell;
            }
        }
    }
}

fn first_repeated<L>(count: usize, entry: impl Fn(usize) -> Entry<L> + Sync) -> RepeatedEntry {
    let place = |at: usize| {
        let (row, column, _) = entry(at);
        (row, column)
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.par_sort_by_key(|&at| place(at));
    let is_repeated = |pair: &&[usize]| place(pair[0]) == place(pair[1]);
    let pair = order.windows(2).find(is_repeated).expect("a place comes twice");
    let (row, column) = place(pair[0]);
    RepeatedEntry { row: row as usize, column: column as usize, first: pair[0], second: pair[1] }
}

#[cfg(test)]
mod tests {
    use rand::Rng;
    use rand::seq::SliceRandom;

    use super::super::super::testing::*;
    use super::*;

    #[test]
    fn dense_and_sparse_hold_the_same_cells() {
        let mut rng = rng(1);
        for (m, n) in [(0, 0), (0, 4), (4, 0), (1, 1), (1, 90), (90, 1), (70, 300)] {
            for density in [0.0, 0.2, 1.0] {
                let x = random_sparse::<f64>(&mut rng, m, n, density);
                let dense = to_dense(&x);
                assert_close(
                    &dense,
                    &build(m, n, |i, j| crate::matrix::Storage::Csr(x.clone()).cell(i, j)),
                    0.0,
                );
                let back = from_dense(&dense);
                assert_eq!(back.stored(), x.stored());
                assert_close(&to_dense(&back), &dense, 0.0);
            }
        }
    }

    #[test]
    fn a_sparse_transpose_swaps_rows_and_columns() {
        let mut rng = rng(2);
        for (m, n, density) in
            [(0, 3, 0.5), (3, 0, 0.5), (1, 1, 1.0), (40, 90, 0.2), (900, 700, 0.3)]
        {
            let x = random_sparse::<f32>(&mut rng, m, n, density);
            let (dense, found) = (to_dense(&x), transpose(&x, Stop::NEVER));
            assert_close(&to_dense(&found), &build(n, m, |i, j| dense.row(j)[i]), 0.0);
        }
    }

    /// Entries of distinct places in random order, some thrice; the sums and last values beside them.
    fn entries(seed: u64, m: usize, n: usize, count: usize) -> (Vec<u32>, Vec<u32>, Vec<f64>) {
        let mut rng = rng(seed);
        let mut places: Vec<(u32, u32)> =
            (0..m as u32).flat_map(|i| (0..n as u32).map(move |j| (i, j))).collect();
        places.shuffle(&mut rng);
        places.truncate(count);
        let values = places.iter().map(|_| rng.random_range(1..100) as f64).collect();
        let (rows, columns) = places.into_iter().unzip();
        (rows, columns, values)
    }

    fn from(
        shape: Shape,
        rows: &[u32],
        columns: &[u32],
        values: &[f64],
        duplicates: Duplicates,
    ) -> Result<Csr<f64>, RepeatedEntry> {
        let entry = |at: usize| (rows[at], columns[at], values[at]);
        from_entries(shape, rows.len(), entry, duplicates, Stop::NEVER)
    }

    #[test]
    fn entries_in_any_order_become_rows() {
        for (seed, m, n, count) in
            [(1, 1, 1, 1), (2, 30, 20, 250), (3, 1500, 200, 200_000), (4, 3, 3, 0)]
        {
            let shape = Shape::new(m, n);
            let (rows, columns, values) = entries(seed, m, n, count);
            let found = from(shape, &rows, &columns, &values, Duplicates::Refuse).unwrap();
            assert_eq!(found.stored(), count, "seed {seed}");
            let dense = to_dense(&found);
            for ((&i, &j), &x) in rows.iter().zip(&columns).zip(&values) {
                assert_eq!(dense.row(i as usize)[j as usize], x, "seed {seed}");
            }
        }
    }

    #[test]
    fn an_entry_that_comes_twice_is_refused_summed_or_the_last() {
        let shape = Shape::new(3, 3);
        let (rows, columns) = ([2, 0, 2, 1, 2], [1, 0, 1, 2, 1]);
        let values = [1.0, 5.0, 10.0, 7.0, 100.0];
        let with = |duplicates| from(shape, &rows, &columns, &values, duplicates);
        let repeated = RepeatedEntry { row: 2, column: 1, first: 0, second: 2 };
        assert_eq!(with(Duplicates::Refuse).unwrap_err(), repeated);
        let cell = |x: Csr<f64>| to_dense(&x).row(2)[1];
        assert_eq!(cell(with(Duplicates::Sum).unwrap()), 111.0);
        assert_eq!(cell(with(Duplicates::Last).unwrap()), 100.0);
        // Without values each of them is a one.
        let ones = |duplicates| {
            let entry = |at: usize| (rows[at], columns[at], ());
            from_entries::<f64, ()>(shape, rows.len(), entry, duplicates, Stop::NEVER)
        };
        assert_eq!(ones(Duplicates::Refuse).unwrap_err(), repeated);
        assert_eq!(cell(ones(Duplicates::Sum).unwrap()), 3.0);
        assert_eq!(cell(ones(Duplicates::Last).unwrap()), 1.0);
    }

    #[test]
    fn many_repeated_entries_are_summed_in_their_order() {
        let shape = Shape::new(700, 10);
        let (mut rows, mut columns, mut values) = entries(7, 700, 10, 7000);
        for _ in 0..5 {
            rows.extend_from_within(..7000);
            columns.extend_from_within(..7000);
            values.extend_from_within(..7000);
        }
        for _ in 0..3 {
            (rows, columns, values) = (rows.repeat(2), columns.repeat(2), values.repeat(2));
        }
        let times = rows.len() / 7000;
        let found = from(shape, &rows, &columns, &values, Duplicates::Sum).unwrap();
        let dense = to_dense(&found);
        for at in 0..7000 {
            let sum = dense.row(rows[at] as usize)[columns[at] as usize];
            assert_eq!(sum, values[at] * times as f64);
        }
    }

    #[test]
    fn no_zero_is_stored() {
        let shape = Shape::new(1, 3);
        let found = from(shape, &[0, 0, 0], &[0, 1, 1], &[0.0, 2.0, -2.0], Duplicates::Sum);
        assert_eq!(found.unwrap().stored(), 0);
    }
}
