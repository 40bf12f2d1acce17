//! How sparse results are made: rows written in order, in parts, in parallel.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::super::{Real, Stop};
use super::cuts::{Part, cuts};
use crate::matrix::{CellBuffer, Csr, Scalar, Shape};
use crate::memory;

/// Consecutive rows of a result, as they are written. The first may go on with one that is already begun, and the last
/// may go on elsewhere.
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

    /// With room for so many cells, a guess which may be too large: pages that are not written cost nothing, within
    /// reason.
    pub(super) fn with_guess(rows: usize, cells: usize) -> Self {
        Self::with_capacity(rows, cells.min(1 << 22))
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
        let cells = within(&self.columns, range);
        (&self.columns[cells.clone()], &self.values[cells])
    }

    /// Ends this row.
    pub(super) fn end_row(&mut self) {
        self.ends.push(self.columns.len());
    }
}

/// A matrix of which `write` writes the cells row by row: those of a row, or of some of its columns where it is cut.
/// About `before(i, j)` cells are read or written for what is before column `j` of row `i`. Tasks take their scratch
/// from a pool, so that there are as many as threads. Once it is asked to stop, the rows that are left are empty.
pub(super) fn by_rows<T: Scalar, S: Send>(
    shape: Shape,
    before: impl Fn(usize, usize) -> usize + Sync,
    scratch: impl Fn() -> S + Sync,
    stop: Stop<'_>,
    write: impl Fn(&mut S, usize, Range<usize>, &mut Rows<T>) + Sync,
) -> Csr<T> {
    let rows = |scratch: &mut S, part: Part| {
        let Part { start, end } = part;
        let cells = before(end.row, end.column) - before(start.row, start.column);
        let mut rows = Rows::with_guess(end.row - start.row, cells);
        for (row, columns) in part.rows(shape.columns) {
            let is_last = columns.end == shape.columns;
            if !columns.is_empty() && !stop.is_asked() {
                write(scratch, row, columns, &mut rows);
            }
            if is_last {
                rows.end_row();
            }
        }
        rows
    };
    join(shape, in_parts(cuts(shape, &before), scratch, rows))
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

/// What `make` makes of the stored cells of each row, or of those in some of its columns where it is cut; in order,
/// each with its row.
pub(in crate::exec::kernels) fn of_pieces<T: Scalar, R: Send>(
    x: &Csr<T>,
    make: impl Fn((&[u32], &[T]), Range<usize>) -> R + Sync,
) -> Vec<(usize, R)> {
    let of_part = |part: Part| -> Vec<_> {
        let rows = part.rows(x.shape().columns);
        let made = rows.map(|(row, columns)| (row, make(piece(x, row, &columns), columns)));
        let made = made.collect();
        done_with(x, part);
        made
    };
    let parts = cuts(x.shape(), stored_before(x));
    parts.into_par_iter().map(of_part).collect::<Vec<_>>().into_iter().flatten().collect()
}

/// Cells that a matrix stores before a column of a row, in the order of the rows.
pub(super) fn stored_before<T: Scalar>(x: &Csr<T>) -> impl Fn(usize, usize) -> usize + Sync {
    let offsets = x.offsets();
    move |row, column| (offsets[row] - offsets[0]) as usize + stored_left(x, row, column)
}

/// Cells that a row stores before a column.
pub(super) fn stored_left<T: Scalar>(x: &Csr<T>, row: usize, column: usize) -> usize {
    if column == 0 { 0 } else { x.row(row).0.partition_point(|&at| (at as usize) < column) }
}

/// Says that nobody will want the stored cells of a part soon.
pub(super) fn done_with<T: Scalar>(x: &Csr<T>, part: Part) {
    let (first, before) = (x.offsets()[0] as usize, stored_before(x));
    let [start, end] = [part.start, part.end].map(|at| first + before(at.row, at.column));
    memory::done_with(bytemuck::cast_slice(&x.columns()[start..end]));
    memory::done_with(bytemuck::cast_slice(&x.values()[start..end]));
}

/// The cells that a row stores in some columns.
pub(super) fn piece<'a, T: Scalar>(
    x: &'a Csr<T>,
    row: usize,
    columns: &Range<usize>,
) -> (&'a [u32], &'a [T]) {
    let (places, values) = x.row(row);
    if columns.len() == x.shape().columns {
        return (places, values);
    }
    let cells = within(places, columns);
    (&places[cells.clone()], &values[cells])
}

/// Where among ascending columns those of a range are.
pub(super) fn within(columns: &[u32], range: &Range<usize>) -> Range<usize> {
    let before = |end: usize| columns.partition_point(|&column| (column as usize) < end);
    before(range.start)..before(range.end)
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
        memory::copy(columns, &part.columns);
        memory::copy(values, &part.values);
    });
    Csr::new(shape, offsets.into(), columns.into(), values.into())
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
pub(in crate::exec::kernels) fn stored_values<T: Scalar>(x: &Csr<T>) -> &[T] {
    let offsets = x.offsets();
    &x.values()[offsets[0] as usize..offsets[x.shape().rows] as usize]
}
