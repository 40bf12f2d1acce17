//! Gaussian elimination of a matrix that memory has no room for, by columns of full height.
//!
//! Some columns at a time are in memory: what the columns to their left do to them is done, read row by row, they are
//! eliminated, and written once (left-looking). For w columns at a time an n×n matrix reads n³ / 2w cells of factors.
//! Rows that swap places are swapped in what is written already, so that factors always lie as they are read.
//!
//! Source: Toledo and Gustavson, *The design and implementation of SOLAR*, IOPADS 1996; Golub and Van Loan, *Matrix
//! Computations*, 4th ed., §3.2.11.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef};
use rayon::prelude::*;

use super::super::dense::tiles::{load, room_cells, store};
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense};
use super::lu::{apply_swaps, eliminate, take_back_swaps};
use super::solve::{reciprocal_condition_of, require_regular};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_rows, check_finite, norm_1_by_rows, side};
use crate::error::Result;
use crate::matrix::{CellBuffer, Dense, Shape};
use crate::memory;

/// Columns in memory at once, at least: below it a product is bound by memory.
const COLUMNS_MIN: usize = 64;

/// Share of the room that columns take; rows of factors take as much of what is left.
const COLUMNS_SHARE: f64 = 0.6;

/// Cells of the rows that are read or written at once, at most: 32 MiB of `f64`.
const ROW_CELLS_MAX: usize = 1 << 22;

/// Bytes of a row that one task writes.
const TASK_BYTES: usize = 4 << 20;

/// Both factors in one matrix, by rows, the ones on the diagonal of `l` left out.
pub(super) struct Written<T> {
    cells: CellBuffer<T>,
    shape: Shape,
    /// Row `i` was swapped with this one, in order.
    pub(super) swaps: Vec<usize>,
}

fn ranges(all: Range<usize>, step: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let Range { start, end } = all;
    (start..end).step_by(step.max(1)).map(move |first| first..end.min(first + step))
}

impl<T: Real> Written<T> {
    /// The factors of a matrix.
    ///
    /// # Errors
    /// A cell that is not finite.
    pub(super) fn of(function: &'static str, a: &Dense<T>, stop: Stop<'_>) -> Result<Self> {
        check_finite(function, a)?;
        let shape @ Shape { rows: m, columns: n } = a.shape();
        let k = m.min(n);
        let width = width::<T>(shape);
        let cells = CellBuffer::arbitrary(shape.cells());
        let mut written = Self { cells, shape, swaps: vec![0; k] };
        for columns in ranges(0..n, width) {
            let mut panel = columns_of(a, &columns);
            let done = columns.start.min(k);
            apply_swaps(panel.as_mut(), &written.swaps[..done]);
            for inner in ranges(0..done, width) {
                written.update(panel.as_mut(), &inner, stop)?;
            }
            if done < k {
                written.eliminate(panel.as_mut(), &columns, stop);
            }
            stop.check()?;
            put(panel.as_ref(), &columns, &mut written.cells, n);
        }
        Ok(written)
    }

    /// What the columns `inner` of factors do to columns to their right.
    fn update(&self, panel: MatMut<'_, T>, inner: &Range<usize>, stop: Stop<'_>) -> Result<()> {
        let (top, mut below) = panel.split_at_row_mut(inner.end);
        let (_, mut u) = top.split_at_row_mut(inner.start);
        let diagonal = self.tile(inner, inner);
        let l = MatRef::from_row_major_slice(&diagonal, inner.len(), inner.len());
        solve_triangular(l, Triangle::Lower, Diagonal::Ones, u.rb_mut(), stop);
        for rows in ranges(inner.end..self.shape.rows, height(inner.len())) {
            stop.check()?;
            let tile = self.tile(&rows, inner);
            let l = MatRef::from_row_major_slice(&tile, rows.len(), inner.len());
            let c = below.rb_mut().subrows_mut(rows.start - inner.end, rows.len());
            multiply(c, Accum::Add, l, u.rb(), -T::ONE, Grain::factor(stop));
        }
        Ok(())
    }

    /// Eliminates columns that all before them have been applied to, and swaps rows of those.
    fn eliminate(&mut self, panel: MatMut<'_, T>, columns: &Range<usize>, stop: Stop<'_>) {
        let (first, n) = (columns.start, self.shape.columns);
        let width = columns.len().min(self.swaps.len() - first);
        let (_, lower) = panel.split_at_row_mut(first);
        let (mut left, mut right) = lower.split_at_col_mut(width);
        let swaps = &mut self.swaps[first..first + width];
        eliminate(left.rb_mut(), swaps, stop);
        apply_swaps(right.rb_mut(), swaps);
        let l = left.rb().subrows(0, width);
        let right = right.subrows_mut(0, width);
        solve_triangular(l, Triangle::Lower, Diagonal::Ones, right, stop);
        for (i, swap) in swaps.iter_mut().enumerate() {
            *swap += first;
            let (one, other) = (first + i, *swap);
            if one < other {
                let (above, below) = self.cells.split_at_mut(other * n);
                let (one, other) = (&mut above[one * n..][..first], &mut below[..first]);
                one.swap_with_slice(other);
                memory::done_with(bytemuck::cast_slice(one));
                memory::done_with(bytemuck::cast_slice(other));
            }
        }
    }

    fn tile(&self, rows: &Range<usize>, columns: &Range<usize>) -> CellBuffer<T> {
        let mut copy = CellBuffer::arbitrary(rows.len() * columns.len());
        load(&self.cells, self.shape.columns, rows, columns, &mut copy);
        copy
    }

    /// `l` and `u` as matrices of their own.
    pub(super) fn split(self) -> [Dense<T>; 2] {
        let Shape { rows: m, columns: n } = self.shape;
        let k = m.min(n);
        let (below, above) = (Shape::new(m, k), Shape::new(k, n));
        let mut l = CellBuffer::arbitrary(below.cells());
        fill(&mut l, below, |i, out| {
            let stored = i.min(k);
            out[..stored].copy_from_slice(&self.cells[i * n..][..stored]);
            out[stored..].fill(T::ZERO);
            if i < k {
                out[i] = T::ONE;
            }
        });
        let mut u = CellBuffer::arbitrary(above.cells());
        fill(&mut u, above, |i, out| {
            out[..i].fill(T::ZERO);
            out[i..].copy_from_slice(&self.cells[i * n..][i..n]);
        });
        [dense(below, l), dense(above, u)]
    }

    pub(super) fn diagonal(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.swaps.len()).map(|i| self.cells[i * self.shape.columns + i])
    }

    fn has_pivots(&self) -> bool {
        self.diagonal().all(|pivot| pivot != T::ZERO)
    }

    /// The factors' rows, some at a time.
    fn rows(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<T> {
        ranges(0..self.shape.rows, height(self.shape.columns))
    }

    /// `b = a⁻¹·b`.
    fn solve(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        let (n, grain) = (self.shape.rows, Grain::factor(stop));
        apply_swaps(b.rb_mut(), &self.swaps);
        for rows in self.rows() {
            let tile = self.tile(&rows, &(0..rows.end));
            let tile = MatRef::from_row_major_slice(&tile, rows.len(), rows.end);
            let (left, l) = tile.split_at_col(rows.start);
            let (above, rest) = b.rb_mut().split_at_row_mut(rows.start);
            let mut own = rest.subrows_mut(0, rows.len());
            multiply(own.rb_mut(), Accum::Add, left, above.rb(), -T::ONE, grain);
            solve_triangular(l, Triangle::Lower, Diagonal::Ones, own, stop);
        }
        for rows in self.rows().rev() {
            let tile = self.tile(&rows, &(rows.start..n));
            let tile = MatRef::from_row_major_slice(&tile, rows.len(), n - rows.start);
            let (u, right) = tile.split_at_col(rows.len());
            let (above, below) = b.rb_mut().split_at_row_mut(rows.end);
            let mut own = above.subrows_mut(rows.start, rows.len());
            multiply(own.rb_mut(), Accum::Add, right, below.rb(), -T::ONE, grain);
            solve_triangular(u, Triangle::Upper, Diagonal::Stored, own, stop);
        }
    }

    /// `x = a⁻¹·b` of this shape, where `right` tells some columns of `b`: those that are in memory at a time.
    fn solutions(
        &self,
        shape: Shape,
        right: impl Fn(&Range<usize>) -> Mat<T>,
        stop: Stop<'_>,
    ) -> Result<Dense<T>> {
        let mut x = CellBuffer::arbitrary(shape.cells());
        for columns in ranges(0..shape.columns, width::<T>(shape)) {
            let mut panel = right(&columns);
            self.solve(panel.as_mut(), stop);
            stop.check()?;
            put(panel.as_ref(), &columns, &mut x, shape.columns);
        }
        Ok(dense(shape, x))
    }

    /// `b = t(a)⁻¹·b`.
    fn solve_transposed(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        let (n, grain) = (self.shape.rows, Grain::factor(stop));
        for rows in self.rows() {
            let tile = self.tile(&rows, &(rows.start..n));
            let tile = MatRef::from_row_major_slice(&tile, rows.len(), n - rows.start);
            let (u, right) = tile.split_at_col(rows.len());
            let (above, below) = b.rb_mut().split_at_row_mut(rows.end);
            let mut own = above.subrows_mut(rows.start, rows.len());
            let u = u.transpose();
            solve_triangular(u, Triangle::Lower, Diagonal::Stored, own.rb_mut(), stop);
            multiply(below, Accum::Add, right.transpose(), own.rb(), -T::ONE, grain);
        }
        for rows in self.rows().rev() {
            let tile = self.tile(&rows, &(0..rows.end));
            let tile = MatRef::from_row_major_slice(&tile, rows.len(), rows.end);
            let (left, l) = tile.split_at_col(rows.start);
            let (above, rest) = b.rb_mut().split_at_row_mut(rows.start);
            let mut own = rest.subrows_mut(0, rows.len());
            solve_triangular(l.transpose(), Triangle::Upper, Diagonal::Ones, own.rb_mut(), stop);
            multiply(above, Accum::Add, left.transpose(), own.rb(), -T::ONE, grain);
        }
        take_back_swaps(b, &self.swaps);
    }
}

/// Rows of so many cells, counted as if they had 64 bits, that are read or written at once.
fn height(columns: usize) -> usize {
    let room = (room_cells::<f64>() as f64 * (1.0 - COLUMNS_SHARE) / 2.0) as usize;
    (room.min(ROW_CELLS_MAX) / columns.max(1)).max(1)
}

/// Writes a matrix row by row, and lets go what is written.
fn fill<T: Real>(out: &mut [T], shape: Shape, row: impl Fn(usize, &mut [T]) + Sync) {
    let width = shape.columns.max(1);
    let height = (TASK_BYTES / size_of::<T>() / width).max(1);
    out.par_chunks_mut(height * width).enumerate().for_each(|(part, out)| {
        for (at, out) in out.chunks_mut(width).enumerate() {
            row(part * height + at, out);
        }
        memory::done_with(bytemuck::cast_slice(out));
    });
}

/// Columns of a matrix of this shape that are in memory at once.
fn width<T>(shape: Shape) -> usize {
    let fit = (room_cells::<T>() as f64 * COLUMNS_SHARE) as usize / shape.rows.max(1);
    fit.max(COLUMNS_MIN).min(shape.columns.max(1))
}

/// Some columns of a matrix, in memory.
fn columns_of<T: Real>(a: &Dense<T>, columns: &Range<usize>) -> Mat<T> {
    let Shape { rows: m, columns: n } = a.shape();
    let mut panel = Mat::zeros(m, columns.len());
    for rows in ranges(0..m, height(columns.len())) {
        let mut copy = CellBuffer::arbitrary(rows.len() * columns.len());
        load(a.cells(), n, &rows, columns, &mut copy);
        let copy = MatRef::from_row_major_slice(&copy, rows.len(), columns.len());
        panel.as_mut().subrows_mut(rows.start, rows.len()).copy_from(copy);
    }
    panel
}

/// Writes some columns of a matrix of so many.
fn put<T: Real>(panel: MatRef<'_, T>, columns: &Range<usize>, out: &mut [T], all: usize) {
    for rows in ranges(0..panel.nrows(), height(columns.len())) {
        let tile = by_rows(panel.subrows(rows.start, rows.len()));
        store(tile.cells(), &rows, columns, out, all);
    }
}

/// Solves `a·x = b` by factors that are written: those of any matrix, symmetric or not. Some of the right-hand sides are in
/// memory at a time.
///
/// # Errors
/// As those of a solution in memory.
pub(super) fn solve<T: Real>(a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    check_finite("solve", b)?;
    let (n, shape) = (side(a), b.shape());
    let norm = norm_1_by_rows(a);
    let factors = Written::of("solve", a, stop)?;
    let condition = if factors.has_pivots() {
        let of = |b: MatMut<'_, T>| factors.solve(b, stop);
        reciprocal_condition_of(n, norm, &of, &|b| factors.solve_transposed(b, stop))
    } else {
        T::ZERO
    };
    stop.check()?;
    require_regular("solve", a.shape(), condition)?;
    factors.solutions(shape, |columns| columns_of(b, columns), stop)
}

/// The inverse, some of whose columns are in memory at a time; whether it means anything is not looked at.
///
/// # Errors
/// A zero pivot; a cell that is not finite.
pub(super) fn inverse<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let (n, shape) = (side(a), a.shape());
    let factors = Written::of("inv", a, stop)?;
    stop.check()?;
    if !factors.has_pivots() {
        require_regular("inv", shape, T::ZERO)?;
    }
    let of_one = |columns: &Range<usize>| {
        let one = |row, at| if row == columns.start + at { T::ONE } else { T::ZERO };
        Mat::from_fn(n, columns.len(), one)
    };
    factors.solutions(shape, of_one, stop)
}

#[cfg(test)]
mod tests {
    use super::super::super::dense::product;
    use super::super::super::testing::*;
    use super::super::{determinant, inverse as inverse_of_any, lu, solve as solve_any};
    use super::*;
    use crate::matrix::tier::testing::on_disk;

    #[test]
    fn factors_by_columns_reconstruct_what_they_are_of() {
        let mut rng = rng(31);
        for (m, n) in [(700, 700), (900, 400), (400, 900)] {
            let a = random::<f64>(&mut rng, m, n);
            let expected = lu(&a, Stop::NEVER).unwrap();
            for room_bytes in [0, 3 << 20] {
                let found = on_disk(room_bytes, |put| lu(&put(&a), Stop::NEVER).unwrap());
                assert_eq!(found.p.columns(), expected.p.columns());
                assert_close(&found.l, &expected.l, 1e6);
                assert_close(&found.u, &expected.u, 1e6);
                let rows: Vec<usize> = found.p.columns().iter().map(|&row| row as usize).collect();
                let turned = build(m, n, |i, j| a.row(rows[i])[j]);
                assert_close(&product(&found.l, &found.u, Stop::NEVER), &turned, 1e4);
            }
        }
    }

    #[test]
    fn systems_are_solved_and_singular_ones_refused() {
        let mut rng = rng(32);
        let (a, x) = (random::<f64>(&mut rng, 600, 600), random::<f64>(&mut rng, 600, 3));
        let b = product(&a, &x, Stop::NEVER);
        let wide = random::<f64>(&mut rng, 600, 700);
        let of_wide = product(&a, &wide, Stop::NEVER);
        let inverse = inverse_of_any(&a, Stop::NEVER).unwrap();
        let singular = build(600, 600, |i, j| (i + j) as f64);
        let zero = build(600, 600, |_, _| 0.0);
        // Scaled, for its determinant to be a number.
        let small = build(600, 600, |i, j| 0.07 * a.row(i)[j]);
        let value = determinant(&small, Stop::NEVER).unwrap().cells()[0];
        on_disk(2 << 20, |put| {
            assert_close(&solve_any(&put(&a), &b, Stop::NEVER).unwrap(), &x, 1e7);
            assert!(solve_any(&put(&singular), &b, Stop::NEVER).is_err());
            for (a, b) in
                [(put(&a), of_wide.clone()), (a.clone(), put(&of_wide)), (put(&a), put(&of_wide))]
            {
                assert_close(&solve_any(&a, &b, Stop::NEVER).unwrap(), &wide, 1e7);
            }
            assert_close(&inverse_of_any(&put(&a), Stop::NEVER).unwrap(), &inverse, 1e7);
            assert!(inverse_of_any(&put(&singular), Stop::NEVER).is_err());
            assert!(inverse_of_any(&put(&zero), Stop::NEVER).is_err());
            let found = determinant(&put(&small), Stop::NEVER).unwrap().cells()[0];
            assert!((found / value - 1.0).abs() < 1e-9, "{found} is not {value}");
        });
    }
}
