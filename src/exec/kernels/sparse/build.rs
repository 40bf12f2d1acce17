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

/// Compressed rows from entries in any order; zeros are left out.
///
/// # Errors
/// With [`Duplicates::Refuse`], where a place comes twice.
///
/// # Panics
/// Where the slices are not equally long, or an entry is outside the shape.
pub fn from_entries<T: Scalar>(
    shape: Shape,
    rows: &[u32],
    columns: &[u32],
    values: &[T],
    duplicates: Duplicates,
    stop: Stop<'_>,
) -> Result<Csr<T>, RepeatedEntry> {
    assert!(rows.len() == columns.len() && rows.len() == values.len(), "entries have three parts");
    let within = |row: &u32, column: &u32| {
        (*row as usize) < shape.rows && (*column as usize) < shape.columns
    };
    assert!(rows.par_iter().zip(columns).all(|(i, j)| within(i, j)), "entries within {shape}");
    let count = rows.len();
    let runs = (count >> 16).clamp(1, 64);
    let length = count.div_ceil(runs).max(1);
    let run = |run: usize| {
        let range = (run * length).min(count)..((run + 1) * length).min(count);
        let places = rows[range.clone()].iter().zip(&columns[range.clone()]);
        places.zip(&values[range]).map(|((&i, &j), &x)| (i, j, x))
    };
    sort_entries(shape, runs, run, duplicates, stop).ok_or_else(|| first_repeated(rows, columns))
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
    sort_entries(x.shape().transposed(), cuts.len(), run, Duplicates::Last, stop)
        .expect("only refused duplicates give none")
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

/// One entry: row, column, value.
type Entry<T> = (u32, u32, T);

/// A run of entries sorted by bucket, stably, and where each bucket begins.
type Run<T> = (Vec<usize>, Vec<Entry<T>>);

/// Sorts the entries of all runs by row and column; `None` where a refused place comes twice.
fn sort_entries<T: Scalar, I: Iterator<Item = Entry<T>>>(
    shape: Shape,
    runs: usize,
    run: impl Fn(usize) -> I + Sync,
    duplicates: Duplicates,
    stop: Stop<'_>,
) -> Option<Csr<T>> {
    // Buckets of 2ˢ rows: at most 512, so that a run writes few enough streams for the cache.
    let shift = (shape.rows.max(1).div_ceil(512)).next_power_of_two().trailing_zeros();
    let buckets = if runs == 1 { 1 } else { (shape.rows >> shift) + 1 };
    let bucket = |row: u32| if runs == 1 { 0 } else { (row >> shift) as usize };
    let runs: Vec<Run<T>> = (0..runs)
        .into_par_iter()
        .filter(|_| !stop.is_asked())
        .map(|at| by_bucket(|| run(at), buckets, bucket))
        .collect();
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

fn by_bucket<T: Scalar, I: Iterator<Item = Entry<T>>>(
    entries: impl Fn() -> I,
    buckets: usize,
    bucket: impl Fn(u32) -> usize,
) -> Run<T> {
    let mut starts = vec![0; buckets + 1];
    entries().for_each(|(row, ..)| starts[bucket(row) + 1] += 1);
    accumulate(&mut starts);
    let mut sorted = vec![(0, 0, T::ZERO); starts[buckets]];
    let mut next = starts.clone();
    for entry in entries() {
        let place = &mut next[bucket(entry.0)];
        sorted[*place] = entry;
        *place += 1;
    }
    (starts, sorted)
}

/// The rows of one bucket, from its entries in every run.
fn sort_bucket<T: Scalar>(
    runs: &[Run<T>],
    bucket: usize,
    rows: Range<usize>,
    columns: usize,
    duplicates: Duplicates,
) -> Option<Rows<T>> {
    let entries = || runs.iter().flat_map(|(starts, run)| &run[starts[bucket]..starts[bucket + 1]]);
    let mut starts = vec![0; rows.len() + 1];
    entries().for_each(|&(row, ..)| starts[row as usize - rows.start + 1] += 1);
    accumulate(&mut starts);
    let mut cells = vec![(0, T::ZERO); starts[rows.len()]];
    let mut next = starts.clone();
    for &(row, column, value) in entries() {
        let place = &mut next[row as usize - rows.start];
        cells[*place] = (column, value);
        *place += 1;
    }
    sort_by_column(&starts, columns, &mut cells);
    let mut written = Rows::with_capacity(rows.len(), cells.len());
    for ends in starts.windows(2) {
        let row = &cells[ends[0]..ends[1]];
        for same in row.chunk_by(|left, right| left.0 == right.0) {
            let value = match duplicates {
                Duplicates::Refuse if same.len() > 1 => return None,
                Duplicates::Refuse | Duplicates::Last => same[same.len() - 1].1,
                Duplicates::Sum => same.iter().map(|&(_, value)| value).sum(),
            };
            written.push(same[0].0, value);
        }
        written.end_row();
    }
    Some(written)
}

/// Sorts each row by column, stably; row `i` begins at `starts[i]`.
fn sort_by_column<T: Scalar>(starts: &[usize], columns: usize, cells: &mut [(u32, T)]) {
    let mut lanes = Lanes::new();
    let rows: Vec<Range<usize>> = starts.windows(2).map(|ends| ends[0]..ends[1]).collect();
    for rows in rows.chunks(LANES) {
        for (lane, row) in rows.iter().enumerate() {
            let row = &mut cells[row.clone()];
            if row.is_sorted_by_key(|&(column, _)| column) {
                continue;
            }
            if row.len() <= CELLS_MAX && Lanes::<T>::hold(columns) {
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

fn first_repeated(rows: &[u32], columns: &[u32]) -> RepeatedEntry {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.par_sort_by_key(|&at| (rows[at], columns[at]));
    let pair = places
        .windows(2)
        .find(|pair| (rows[pair[0]], columns[pair[0]]) == (rows[pair[1]], columns[pair[1]]))
        .expect("a place comes twice");
    let (row, column) = (rows[pair[0]] as usize, columns[pair[0]] as usize);
    RepeatedEntry { row, column, first: pair[0], second: pair[1] }
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

    #[test]
    fn entries_in_any_order_become_rows() {
        for (seed, m, n, count) in
            [(1, 1, 1, 1), (2, 30, 20, 250), (3, 1500, 200, 200_000), (4, 3, 3, 0)]
        {
            let shape = Shape::new(m, n);
            let (rows, columns, values) = entries(seed, m, n, count);
            let found =
                from_entries(shape, &rows, &columns, &values, Duplicates::Refuse, Stop::NEVER)
                    .unwrap();
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
        let with =
            |duplicates| from_entries(shape, &rows, &columns, &values, duplicates, Stop::NEVER);
        let repeated = RepeatedEntry { row: 2, column: 1, first: 0, second: 2 };
        assert_eq!(with(Duplicates::Refuse).unwrap_err(), repeated);
        let cell = |x: Csr<f64>| to_dense(&x).row(2)[1];
        assert_eq!(cell(with(Duplicates::Sum).unwrap()), 111.0);
        assert_eq!(cell(with(Duplicates::Last).unwrap()), 100.0);
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
        let found =
            from_entries(shape, &rows, &columns, &values, Duplicates::Sum, Stop::NEVER).unwrap();
        let dense = to_dense(&found);
        for at in 0..7000 {
            let sum = dense.row(rows[at] as usize)[columns[at] as usize];
            assert_eq!(sum, values[at] * times as f64);
        }
    }

    #[test]
    fn no_zero_is_stored() {
        let shape = Shape::new(1, 3);
        let found = from_entries(
            shape,
            &[0, 0, 0],
            &[0, 1, 1],
            &[0.0, 2.0, -2.0],
            Duplicates::Sum,
            Stop::NEVER,
        );
        assert_eq!(found.unwrap().stored(), 0);
    }
}
