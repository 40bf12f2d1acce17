//! How sparse results are made: rows written in order, in parts, in parallel.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::super::{Real, Stop};
use crate::matrix::{CellBuffer, Csr, Scalar, Shape};

/// Stored cells read or written that are worth a task.
const TASK_CELLS: usize = 1 << 14;

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

    /// Ends this row.
    pub(super) fn end_row(&mut self) {
        self.ends.push(self.columns.len());
    }
}

/// A matrix whose rows `write` writes in order, some thousands of stored cells (of about `cells` in
/// all) to a task. Tasks take their scratch from a pool, so that there are as many as threads.
pub(super) fn by_rows<T: Scalar, S: Send>(
    shape: Shape,
    cells: usize,
    scratch: impl Fn() -> S + Sync,
    write: impl Fn(&mut S, usize, &mut Rows<T>) + Sync,
) -> Csr<T> {
    by_rows_until(shape, cells, scratch, Stop::NEVER, write)
}

/// The same; once it is asked to stop, the rows that are left are empty.
pub(super) fn by_rows_until<T: Scalar, S: Send>(
    shape: Shape,
    cells: usize,
    scratch: impl Fn() -> S + Sync,
    stop: Stop<'_>,
    write: impl Fn(&mut S, usize, &mut Rows<T>) + Sync,
) -> Csr<T> {
    let parts = (cells / TASK_CELLS).clamp(1, 256);
    let height = shape.rows.div_ceil(parts).max(1);
    // Pages that are not written cost nothing, so the guess may be too large, within reason.
    let capacity = (cells / parts).min(1 << 22);
    let pool = Mutex::new(Vec::new());
    let parts = (0..shape.rows.div_ceil(height))
        .into_par_iter()
        .map(|part| {
            let taken = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut scratch = taken.unwrap_or_else(&scratch);
            let mut rows = Rows::with_capacity(height, capacity);
            for row in part * height..shape.rows.min((part + 1) * height) {
                if !stop.is_asked() {
                    write(&mut scratch, row, &mut rows);
                }
                rows.end_row();
            }
            pool.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
            rows
        })
        .collect();
    join(shape, parts)
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

/// Fills `out`, which has `width` cells for each row of `x`, in parallel: the rows are halved by their
/// stored cells until a part is worth a task.
pub(super) fn fill_rows<T: Scalar>(
    x: &Csr<T>,
    width: usize,
    out: &mut [T],
    stop: Stop<'_>,
    fill: &(impl Fn(&Csr<T>, &mut [T]) + Sync),
) {
    let (rows, stored) = (x.shape().rows, x.stored());
    if stop.is_asked() {
        return;
    }
    if rows < 2 || (stored + rows).saturating_mul(width) <= 4 * TASK_CELLS {
        return fill(x, out);
    }
    let offsets = x.offsets();
    let half = offsets[0] + stored as i64 / 2;
    let cut = offsets.partition_point(|&offset| offset < half).clamp(1, rows - 1);
    let (top, bottom) = out.split_at_mut(cut * width);
    rayon::join(
        || fill_rows(&x.rows(0..cut), width, top, stop, fill),
        || fill_rows(&x.rows(cut..rows), width, bottom, stop, fill),
    );
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
