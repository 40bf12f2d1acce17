//! How sparse results are made: rows written in order, in parts, in parallel.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::super::{Real, Stop};
use super::cuts::row_cuts;
use crate::matrix::{CellBuffer, Csr, Scalar, Shape};

/// Consecutive rows of a result, as they are written.
#[derive(Debug)]
pub(super) struct Rows<T> {
    /// Cells stored up to the end of each row.
    ends: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<T>,
}

impl<T: Scalar> Rows<T> {
    pub(super) fn with_capacity(rows: usize, cells: usize) -> Self {
        Self {
            ends: Vec::with_capacity(rows),
            columns: Vec::with_capacity(cells),
            values: Vec::with_capacity(cells),
        }
    }

    /// Writes the next cell of this row, unless it is zero.
    pub(super) fn push(&mut self, column: u32, value: T) {
        if value != T::ZERO {
            self.columns.push(column);
            self.values.push(value);
        }
    }

    /// Writes cells of this row that are known not to be zeros.
    pub(super) fn extend(&mut self, columns: &[u32], values: &[T]) {
        self.columns.extend_from_slice(columns);
        self.values.extend_from_slice(values);
    }

    /// The cells in these columns, where they are those of one row.
    pub(super) fn cells_in(&self, range: &Range<usize>) -> (&[u32], &[T]) {
        let before = |end: usize| self.columns.partition_point(|&column| (column as usize) < end);
        let cells = before(range.start)..before(range.end);
        (&self.columns[cells.clone()], &self.values[cells])
    }

    /// Ends this row.
    pub(super) fn end_row(&mut self) {
        self.ends.push(self.columns.len());
    }
}

/// A matrix whose rows `write` writes in order; about `before(i)` cells are read or written for the rows
/// before row `i`. Tasks take their scratch from a pool, so that there are as many as threads. Once it is
/// asked to stop, the rows that are left are empty.
pub(super) fn by_rows<T: Scalar, S: Send>(
    shape: Shape,
    before: impl Fn(usize) -> usize + Sync,
    scratch: impl Fn() -> S + Sync,
    stop: Stop<'_>,
    write: impl Fn(&mut S, usize, &mut Rows<T>) + Sync,
) -> Csr<T> {
    by_parts(shape, before, scratch, |scratch, part, rows| {
        for row in part {
            if !stop.is_asked() {
                write(scratch, row, rows);
            }
            rows.end_row();
        }
    })
}

/// The same where `write` writes and ends all rows of a part.
pub(super) fn by_parts<T: Scalar, S: Send>(
    shape: Shape,
    before: impl Fn(usize) -> usize + Sync,
    scratch: impl Fn() -> S + Sync,
    write: impl Fn(&mut S, Range<usize>, &mut Rows<T>) + Sync,
) -> Csr<T> {
    let rows = |scratch: &mut S, part: Range<usize>| {
        // Pages that are not written cost nothing, so the guess may be too large, within reason.
        let capacity = (before(part.end) - before(part.start)).min(1 << 22);
        let mut rows = Rows::with_capacity(part.len(), capacity);
        write(scratch, part, &mut rows);
        rows
    };
    join(shape, in_parts(row_cuts(shape.rows, &before), scratch, rows))
}

/// What is made of each part, in order, by tasks that take their scratch from a pool.
pub(super) fn in_parts<P: Send, S: Send, R: Send>(
    parts: Vec<P>,
    scratch: impl Fn() -> S + Sync,
    make: impl Fn(&mut S, P) -> R + Sync,
) -> Vec<R> {
    let pool = Mutex::new(Vec::new());
    let made = parts.into_par_iter().map(|part| {
        let taken = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = taken.unwrap_or_else(&scratch);
        let made = make(&mut scratch, part);
        pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        made
    });
    made.collect()
}

/// Cells that a matrix stores before each of its rows.
pub(super) fn stored_before<T: Scalar>(x: &Csr<T>) -> impl Fn(usize) -> usize + Sync {
    let offsets = x.offsets();
    move |row| (offsets[row] - offsets[0]) as usize
}

/// Counts to where each begins: the count of `i` stands at `i + 1`.
pub(super) fn accumulate(counts: &mut [usize]) {
    for at in 1..counts.len() {
        counts[at] += counts[at - 1];
    }
}

/// The parts laid end to end.
///
/// # Panics
/// Unless they have `shape.rows` rows together.
pub(super) fn join<T: Scalar>(shape: Shape, mut parts: Vec<Rows<T>>) -> Csr<T> {
    let mut offsets = Vec::with_capacity(shape.rows + 1);
    offsets.push(0);
    let mut stored = 0;
    for part in &parts {
        offsets.extend(part.ends.iter().map(|end| (stored + end) as i64));
        stored += part.columns.len();
    }
    if parts.len() == 1 {
        let part = parts.remove(0);
        return Csr::new(shape, offsets.into(), part.columns.into(), part.values.into());
    }
    let (mut columns, mut values) = (CellBuffer::arbitrary(stored), CellBuffer::arbitrary(stored));
    let (mut columns_left, mut values_left) = (&mut columns[..], &mut values[..]);
    let mut copies = Vec::with_capacity(parts.len());
    for part in parts {
        let (columns, rest) = columns_left.split_at_mut(part.columns.len());
        columns_left = rest;
        let (values, rest) = values_left.split_at_mut(part.values.len());
        values_left = rest;
        copies.push((part, columns, values));
    }
    copies.into_par_iter().for_each(|(part, columns, values)| {
        columns.copy_from_slice(&part.columns);
        values.copy_from_slice(&part.values);
    });
    Csr::new(shape, offsets.into(), columns.into(), values.into())
}

/// Fills `out`, which has `width` cells for each row of `x`, in parallel.
pub(super) fn fill_rows<T: Scalar>(
    x: &Csr<T>,
    width: usize,
    out: &mut [T],
    stop: Stop<'_>,
    fill: &(impl Fn(&Csr<T>, &mut [T]) + Sync),
) {
    let mut left = out;
    let mut parts = Vec::new();
    for rows in row_cuts(x.shape().rows, stored_before(x)) {
        let (out, rest) = left.split_at_mut(rows.len() * width);
        left = rest;
        parts.push((rows, out));
    }
    parts
        .into_par_iter()
        .filter(|_| !stop.is_asked())
        .for_each(|(rows, out)| fill(&x.rows(rows), out));
}

/// Whether every cell is neither infinite nor `NaN`.
pub(super) fn all_finite<T: Real>(cells: &[T]) -> bool {
    // A sum of 0·x is 0 or NaN, and the loop has no branch.
    let finite = |cells: &[T]| {
        let mut lanes = [T::ZERO; 8];
        let chunks = cells.chunks_exact(8);
        let rest = chunks.remainder();
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += x * T::ZERO);
        }
        lanes.iter().all(|&lane| lane == T::ZERO) && rest.iter().all(|&x| x.is_finite())
    };
    cells.par_chunks(1 << 16).all(finite)
}

/// The stored values of these rows and no others.
pub(super) fn stored_values<T: Scalar>(x: &Csr<T>) -> &[T] {
    let offsets = x.offsets();
    &x.values()[offsets[0] as usize..offsets[x.shape().rows] as usize]
}
