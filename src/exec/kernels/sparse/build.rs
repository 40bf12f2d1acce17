//! Entries to rows, dense to sparse and back, and the transpose.
//!
//! Entries are sorted by row in two steps that each read and write mostly in order: runs of entries
//! into buckets of rows, then each bucket by row. Both are stable, so equal places keep their order.
//!
//! ```text
//! entries   run 0 | run 1 | …            counted by bucket, then dealt out, in parallel
//! buckets   bucket 0 | bucket 1 | …      of each the entries of run 0, of run 1, …; sorted by row, then by column
//! rows      bucket 0 | bucket 1 | …      written over their entries; zeros and repeated places leave gaps, which are closed
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::super::{Real, Stop};
use super::cuts::{cuts, cuts_into};
use super::lanes::{CELLS_MAX, LANES, Lanes};
use super::rows::{accumulate, by_rows, done_with, in_parts, piece, stored_before};
use crate::matrix::{CellBuffer, Csr, Dense, Scalar, Shape};
use crate::memory;

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
    /// What is kept of it while entries are sorted, where the cell of the entry will be.
    fn keep(self, value: &mut T);

    /// What was kept.
    fn kept(value: T) -> Self;

    /// The cell of the entries of one place, in their order.
    fn cell(same: &[(u32, Self)], duplicates: Duplicates) -> T;
}

/// A value.
impl<T: Scalar> Load<T> for T {
    fn keep(self, value: &mut T) {
        *value = self;
    }

    fn kept(value: T) -> Self {
        value
    }

    fn cell(same: &[(u32, T)], duplicates: Duplicates) -> T {
        match duplicates {
            Duplicates::Sum => same.iter().map(|&(_, value)| value).sum(),
            Duplicates::Refuse | Duplicates::Last => same[same.len() - 1].1,
        }
    }
}

/// Nothing: it counts as one.
impl<T: Scalar> Load<T> for () {
    fn keep(self, _: &mut T) {}

    fn kept(_: T) -> Self {}

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
    let runs = (count >> 16).clamp(1, 64);
    let length = count.div_ceil(runs).max(1);
    let mut entry = Some(entry);
    let sorted = {
        let entry = entry.as_ref().expect("it is let go below");
        let run =
            |run: usize| ((run * length).min(count)..((run + 1) * length).min(count)).map(entry);
        sorted::<T, L, _>(shape, runs, run, stop)
    };
    if duplicates != Duplicates::Refuse {
        entry = None;
    }
    let made = compressed::<T, L>(shape, sorted, duplicates, stop);
    made.ok_or_else(|| first_repeated(count, entry.expect("kept where an error may name two")))
}

/// The transpose.
pub fn transpose<T: Real>(x: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    let runs = (x.stored() >> 16).clamp(1, 64);
    let parts = cuts_into(runs, x.shape(), stored_before(x));
    let run = |run: usize| {
        parts[run].rows(x.shape().columns).flat_map(|(i, columns)| {
            let (columns, values) = piece(x, i, &columns);
            columns.iter().zip(values).map(move |(&j, &x)| (j, i as u32, x))
        })
    };
    let shape = x.shape().transposed();
    let sorted = sorted::<T, T, _>(shape, parts.len(), run, stop);
    let turned = compressed::<T, T>(shape, sorted, Duplicates::Last, stop);
    turned.expect("only refused duplicates give none")
}

/// The cells that are not zero.
pub fn from_dense<T: Scalar>(x: &Dense<T>) -> Csr<T> {
    by_rows(
        x.shape(),
        |row, column| row * x.shape().columns + column,
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            for (j, &x) in columns.clone().zip(&x.row(i)[columns]) {
                rows.push(j as u32, x);
            }
        },
    )
}

/// Every cell, stored or not.
pub fn to_dense<T: Scalar>(x: &Csr<T>) -> Dense<T> {
    let (shape, n) = (x.shape(), x.shape().columns);
    let mut cells = CellBuffer::zeroed(shape.cells());
    let mut left = &mut cells[..];
    let mut parts = Vec::new();
    for part in cuts(shape, stored_before(x)) {
        let [start, end] = [part.start, part.end].map(|at| at.row * n + at.column);
        parts.push((part, start, next_of(&mut left, end - start)));
    }
    parts.into_par_iter().for_each(|(part, start, out)| {
        for (i, columns) in part.rows(n) {
            let (columns, values) = piece(x, i, &columns);
            for (&j, &x) in columns.iter().zip(values) {
                out[i * n + j as usize - start] = x;
            }
        }
        memory::let_go(bytemuck::cast_slice(out));
        done_with(x, part);
    });
    Dense::new(shape, cells.into())
}

/// One entry: row, column, and what it carries.
pub type Entry<L> = (u32, u32, L);

/// Entries by buckets of rows, each in the order that they came in. Columns and values lie where those of the result
/// will, so that a bucket is put in order in its place.
struct Sorted<T> {
    rows: CellBuffer<u32>,
    columns: CellBuffer<u32>,
    values: CellBuffer<T>,
    /// Where each bucket begins, and the last one ends.
    starts: Vec<usize>,
    /// A bucket has 2ˢ rows.
    shift: u32,
}

/// Deals the entries of all runs out to buckets.
fn sorted<T: Scalar, L: Load<T>, I: Iterator<Item = Entry<L>>>(
    shape: Shape,
    runs: usize,
    run: impl Fn(usize) -> I + Sync,
    stop: Stop<'_>,
) -> Sorted<T> {
    // At most 128 buckets, so that a run writes few enough streams for the cache.
    let shift = match runs {
        1 => shape.rows.max(1).next_power_of_two().trailing_zeros(),
        _ => (shape.rows.max(1).div_ceil(128)).next_power_of_two().trailing_zeros(),
    };
    let buckets = (shape.rows >> shift) + 1;
    let count = |at: usize| {
        let mut counts = vec![0; buckets];
        if !stop.is_asked() {
            run(at).for_each(|(row, column, _)| {
                let is_within = (row as usize) < shape.rows && (column as usize) < shape.columns;
                assert!(is_within, "entries within {shape}");
                counts[(row >> shift) as usize] += 1;
            });
        }
        counts
    };
    let counts: Vec<Vec<usize>> = (0..runs).into_par_iter().map(count).collect();
    let mut starts = vec![0; buckets + 1];
    for counts in &counts {
        starts[1..].iter_mut().zip(counts).for_each(|(start, count)| *start += count);
    }
    accumulate(&mut starts);
    let (mut rows, mut columns) =
        (CellBuffer::arbitrary(starts[buckets]), CellBuffer::arbitrary(starts[buckets]));
    let mut values = CellBuffer::arbitrary(starts[buckets]);
    // For each run, where its entries of each bucket stay.
    let mut places: Vec<_> = counts.iter().map(|_| Vec::with_capacity(buckets)).collect();
    let (mut rows_left, mut columns_left, mut values_left) =
        (&mut rows[..], &mut columns[..], &mut values[..]);
    for bucket in 0..buckets {
        for (counts, places) in counts.iter().zip(&mut places) {
            let rows = next_of(&mut rows_left, counts[bucket]);
            let columns = next_of(&mut columns_left, counts[bucket]);
            let values = next_of(&mut values_left, counts[bucket]);
            places.push(rows.iter_mut().zip(columns).zip(values));
        }
    }
    places.into_par_iter().zip(counts).enumerate().for_each(|(at, (mut places, counts))| {
        // None of a run that was not counted, for it was stopped.
        let count = counts.iter().sum();
        run(at).take(count).for_each(|(row, column, load)| {
            let place = places[(row >> shift) as usize].next();
            let ((to_row, to_column), value) =
                place.expect("a run has the entries that were counted");
            (*to_row, *to_column) = (row, column);
            load.keep(value);
        });
        memory::touched(count * (2 * size_of::<u32>() + size_of::<T>()));
    });
    Sorted { rows, columns, values, starts, shift }
}

/// Takes so many cells from the front.
fn next_of<'a, T>(left: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    left.split_off_mut(..count).expect("cells for all that were counted")
}

/// The entries of one bucket, over which its rows are written.
struct Bucket<'a, T> {
    first_row: usize,
    /// For each row how many cells of the bucket are before its end.
    ends: &'a mut [i64],
    rows: &'a [u32],
    columns: &'a mut [u32],
    values: &'a mut [T],
}

/// What a thread sorts buckets in.
struct Desk<L> {
    starts: Vec<usize>,
    next: Vec<usize>,
    cells: Vec<(u32, L)>,
}

/// The entries of all buckets by row and column; `None` where a refused place comes twice.
fn compressed<T: Scalar, L: Load<T>>(
    shape: Shape,
    sorted: Sorted<T>,
    duplicates: Duplicates,
    stop: Stop<'_>,
) -> Option<Csr<T>> {
    let Sorted { rows, mut columns, mut values, starts, shift } = sorted;
    let mut offsets = CellBuffer::<i64>::arbitrary(shape.rows + 1);
    offsets[0] = 0;
    let (mut columns_left, mut values_left) = (&mut columns[..], &mut values[..]);
    let mut buckets = Vec::with_capacity(starts.len() - 1);
    let ends = offsets[1..].chunks_mut(1 << shift);
    for (at, (ends, cells)) in ends.zip(starts.windows(2)).enumerate() {
        let rows = &rows[cells[0]..cells[1]];
        let columns = next_of(&mut columns_left, rows.len());
        let values = next_of(&mut values_left, rows.len());
        buckets.push(Bucket { first_row: at << shift, ends, rows, columns, values });
    }
    let desk = || Desk { starts: Vec::new(), next: Vec::new(), cells: Vec::new() };
    let stored = in_parts(buckets, desk, |desk, bucket| {
        if stop.is_asked() {
            bucket.ends.fill(0);
            return Some(0);
        }
        bucket.write::<L>(shape.columns, duplicates, desk)
    });
    drop(rows);
    let mut end = 0;
    let ends = offsets[1..].chunks_mut(1 << shift);
    for ((stored, &start), ends) in stored.into_iter().zip(&starts).zip(ends) {
        let stored = stored?;
        ends.iter_mut().for_each(|row| *row += end as i64);
        // What buckets leave out is closed up.
        if start != end {
            columns.copy_within(start..start + stored, end);
            values.copy_within(start..start + stored, end);
        }
        end += stored;
    }
    let (columns, values) = (columns.truncated(end), values.truncated(end));
    Some(Csr::new(shape, offsets.into(), columns.into(), values.into()))
}

impl<T: Scalar> Bucket<'_, T> {
    /// Writes its rows; says how many cells they have.
    fn write<L: Load<T>>(
        self,
        width: usize,
        duplicates: Duplicates,
        desk: &mut Desk<L>,
    ) -> Option<usize> {
        let Self { first_row, ends, rows, columns, values } = self;
        let Desk { starts, next, cells } = desk;
        starts.clear();
        starts.resize(ends.len() + 1, 0);
        rows.iter().for_each(|&row| starts[row as usize - first_row + 1] += 1);
        accumulate(starts);
        next.clone_from(starts);
        cells.resize(rows.len(), (0, L::default()));
        for ((&row, &column), &value) in rows.iter().zip(&*columns).zip(&*values) {
            let place = &mut next[row as usize - first_row];
            cells[*place] = (column, L::kept(value));
            *place += 1;
        }
        sort_by_column(starts, width, cells);
        let mut written = 0;
        for (row, end) in starts.windows(2).zip(ends) {
            let row = &cells[row[0]..row[1]];
            for same in row.chunk_by(|left, right| left.0 == right.0) {
                if duplicates == Duplicates::Refuse && same.len() > 1 {
                    return None;
                }
                let value = L::cell(same, duplicates);
                (columns[written], values[written]) = (same[0].0, value);
                written += usize::from(value != T::ZERO);
            }
            *end = written as i64;
        }
        Some(written)
    }
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
