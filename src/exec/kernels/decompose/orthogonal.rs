//! Householder QR, thin, and least squares through it.
//!
//! Least squares takes the R of a tall matrix, and where that is well conditioned solves with it. Else R
//! is taken again with column pivoting, which shows the rank; where that is not full, a second QR, of the transpose of what is left of R, gives the solution
//! of least norm (a complete orthogonal decomposition).
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §5.2 and §5.5.

use std::ops::Range;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
    apply_block_householder_sequence_transpose_on_the_left_in_place_scratch as apply_transposed_scratch,
    apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj as apply_transposed,
};
use faer::linalg::qr::{col_pivoting, no_pivoting};
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Conj, Mat, MatMut, MatRef, Par};

use super::super::{Real, Stop, dense};
use super::solve::reciprocal_condition_of;
use super::triangular::{Triangle, solve_triangular};
use super::{by_rows, copied, norm_1, par};
use crate::error::Result;
use crate::matrix::{Dense, Shape};

/// The thin factors of an m×n matrix, k = min(m, n).
#[derive(Debug, Clone)]
pub struct Qr<T: Real> {
    /// Orthonormal columns: m×k.
    pub q: Dense<T>,
    /// Upper triangular, or trapezoidal, no cell of its diagonal negative: k×n.
    pub r: Dense<T>,
}

/// Factors `a = q·r`.
///
/// - Work: 2mn² - 2n³/3 multiplications for m ≥ n, half of them for `q`.
/// - Errors: a cell that is not finite.
pub fn qr<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Qr<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    let reflected = Reflected::of(copied("qr", a)?, stop);
    stop.check()?;
    let mut q = Mat::identity(m, m.min(n));
    reflected.apply(q.as_mut(), stop);
    stop.check()?;
    let mut r = reflected.r();
    for i in 0..m.min(n) {
        if r[(i, i)] < T::ZERO {
            r.row_mut(i).iter_mut().for_each(|x| *x = -*x);
            q.col_mut(i).iter_mut().for_each(|x| *x = -*x);
        }
    }
    Ok(Qr { q: by_rows(q.as_ref()), r: by_rows(r.as_ref()) })
}

/// The `x` of least `‖a·x - b‖` in the 2-norm, column by column; where several are, that of least norm.
///
/// - Work: 2mn² multiplications or so.
/// - Rank: the pivots of R above `max(m, n)·ε` times the first.
/// - Errors: a cell that is not finite.
///
/// # Panics
/// Unless `a` and `b` are equally tall.
pub fn least_squares<T: Real>(a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    assert_eq!(b.shape().rows, m, "a right-hand side is as tall as the matrix");
    let (mut a, mut b) = (copied("lstsq", a)?, copied("lstsq", b)?);
    let sides = b.ncols();
    if m == 0 || n == 0 || sides == 0 {
        return Ok(dense(Shape::new(n, sides), vec![T::ZERO; n * sides]));
    }
    if m >= n {
        let reflected = Reflected::of(a, stop);
        reflected.apply_transposed(b.as_mut(), stop);
        stop.check()?;
        a = reflected.r();
        b.truncate(n, sides);
        if is_regular(&a, m) {
            solve_triangular(a.as_ref(), Triangle::Upper, b.as_mut(), stop);
            return Ok(by_rows(b.as_ref()));
        }
    }
    let (reflected, places) = Reflected::pivoted(a);
    reflected.apply_transposed(b.as_mut(), stop);
    let r = reflected.r();
    let tolerance = T::EPSILON * T::from_f64(m.max(n) as f64) * r[(0, 0)].abs();
    let rank = (0..r.nrows()).take_while(|&i| r[(i, i)].abs() > tolerance).count();
    let mut y = Mat::zeros(n, sides);
    y.as_mut().subrows_mut(0, rank).copy_from(b.subrows(0, rank));
    if rank == n {
        solve_triangular(r.as_ref(), Triangle::Upper, y.as_mut(), stop);
    } else if rank > 0 {
        let rest = Reflected::of(r.subrows(0, rank).transpose().to_owned(), stop);
        let triangle = rest.r();
        let head = y.as_mut().subrows_mut(0, rank);
        solve_lower_triangular_in_place(triangle.transpose(), head, Par::Seq);
        rest.apply(y.as_mut(), stop);
    }
    let mut x = Mat::zeros(n, sides);
    for (i, &place) in places.iter().enumerate() {
        x.row_mut(place).copy_from(y.row(i));
    }
    Ok(by_rows(x.as_ref()))
}

/// Whether a triangular matrix from one of `m` rows is far enough from singular for its rank to be beyond
/// doubt: pivoting, which is slow, would find the same.
fn is_regular<T: Real>(r: &Mat<T>, m: usize) -> bool {
    let n = r.ncols();
    if (0..n).any(|i| r[(i, i)] == T::ZERO) {
        return false;
    }
    let solve = |b: MatMut<'_, T>| solve_upper_triangular_in_place(r.as_ref(), b, Par::Seq);
    let transposed = |b: MatMut<'_, T>| solve_lower_triangular_in_place(r.transpose(), b, Par::Seq);
    let condition = reciprocal_condition_of(n, norm_1(r.as_ref()), &solve, &transposed);
    condition > T::EPSILON * T::from_f64(100.0 * m as f64)
}

/// A matrix turned into R by reflections, which lie below its diagonal and, in blocks, beside it.
pub(super) struct Reflected<T> {
    cells: Mat<T>,
    factors: Mat<T>,
    par: Par,
}

impl<T: Real> Reflected<T> {
    /// Panel by panel, as faer would go through all of them at once.
    pub(super) fn of(mut cells: Mat<T>, stop: Stop<'_>) -> Self {
        let (m, n) = (cells.nrows(), cells.ncols());
        let block = no_pivoting::factor::recommended_block_size::<T>(m, n).max(1);
        let mut factors = Mat::zeros(block, m.min(n));
        let par = par(Shape::new(m, n));
        for columns in panels(m.min(n), block) {
            if stop.is_asked() {
                break;
            }
            let (left, width) = (columns.start, columns.len());
            let below = cells.as_mut().subrows_mut(left, m - left);
            let (head, mut rest) = below.split_at_col_mut(columns.end);
            let mut panel = head.subcols_mut(left, width);
            let mut factors = factors.as_mut().subcols_mut(left, width);
            let scratch = no_pivoting::factor::qr_in_place_scratch::<T>(
                m - left,
                width,
                block,
                par,
                Default::default(),
            );
            let stack = &mut MemBuffer::new(scratch);
            let stack = MemStack::new(stack);
            let parameters = Default::default();
            no_pivoting::factor::qr_in_place(
                panel.rb_mut(),
                factors.rb_mut(),
                par,
                stack,
                parameters,
            );
            apply_panel_transposed(panel.rb(), factors.rb(), rest.rb_mut(), par, stop);
        }
        Self { cells, factors, par }
    }

    /// With column pivoting; where each column of R came from is beside it.
    fn pivoted(mut cells: Mat<T>) -> (Self, Vec<usize>) {
        let (m, n) = (cells.nrows(), cells.ncols());
        let block = col_pivoting::factor::recommended_block_size::<T>(m, n);
        let mut factors = Mat::zeros(block, m.min(n));
        let par = par(Shape::new(m, n));
        let (mut places, mut inverse) = (vec![0; n], vec![0; n]);
        let scratch = col_pivoting::factor::qr_in_place_scratch::<usize, T>(
            m,
            n,
            block,
            par,
            Default::default(),
        );
        col_pivoting::factor::qr_in_place(
            cells.as_mut(),
            factors.as_mut(),
            &mut places,
            &mut inverse,
            par,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Default::default(),
        );
        (Self { cells, factors, par }, places)
    }

    pub(super) fn r(&self) -> Mat<T> {
        let (m, n) = (self.cells.nrows(), self.cells.ncols());
        Mat::from_fn(m.min(n), n, |i, j| if i <= j { self.cells[(i, j)] } else { T::ZERO })
    }

    /// `b = q·b`.
    pub(super) fn apply(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        for columns in self.panels().into_iter().rev() {
            if stop.is_asked() {
                return;
            }
            let (panel, factors) = self.panel(&columns);
            let rows = b.nrows() - columns.start;
            let below = b.rb_mut().subrows_mut(columns.start, rows);
            by_columns(below, stop, |below| {
                let scratch = apply_scratch::<T>(panel.nrows(), factors.nrows(), below.ncols());
                let stack = &mut MemBuffer::new(scratch);
                apply(panel, factors, Conj::No, below, self.par, MemStack::new(stack));
            });
        }
    }

    /// `b = t(q)·b`.
    fn apply_transposed(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        for columns in self.panels() {
            if stop.is_asked() {
                return;
            }
            let (panel, factors) = self.panel(&columns);
            let rows = b.nrows() - columns.start;
            let below = b.rb_mut().subrows_mut(columns.start, rows);
            apply_panel_transposed(panel, factors, below, self.par, stop);
        }
    }

    fn panels(&self) -> Vec<Range<usize>> {
        panels(self.factors.ncols(), self.factors.nrows())
    }

    /// The reflections of some columns, and their factors.
    fn panel(&self, columns: &Range<usize>) -> (MatRef<'_, T>, MatRef<'_, T>) {
        let (left, width) = (columns.start, columns.len());
        let panel = self.cells.subcols(left, width);
        (panel.subrows(left, self.cells.nrows() - left), self.factors.subcols(left, width))
    }
}

/// Columns of whole blocks that are reflected between two looks at whether to go on.
fn panels(columns: usize, block: usize) -> Vec<Range<usize>> {
    const PANEL: usize = 128;
    let width = PANEL.next_multiple_of(block);
    (0..columns).step_by(width).map(|left| left..columns.min(left + width)).collect()
}

/// `b = t(q)·b` for the reflections of one panel.
fn apply_panel_transposed<T: Real>(
    panel: MatRef<'_, T>,
    factors: MatRef<'_, T>,
    b: MatMut<'_, T>,
    par: Par,
    stop: Stop<'_>,
) {
    by_columns(b, stop, |b| {
        let scratch = apply_transposed_scratch::<T>(panel.nrows(), factors.nrows(), b.ncols());
        let stack = &mut MemBuffer::new(scratch);
        apply_transposed(panel, factors, Conj::No, b, par, MemStack::new(stack));
    });
}

/// Some hundred columns at a time, between which a stop is looked for.
fn by_columns<T: Real>(mut b: MatMut<'_, T>, stop: Stop<'_>, run: impl Fn(MatMut<'_, T>)) {
    const COLUMNS: usize = 1024;
    let columns = b.ncols();
    for left in (0..columns).step_by(COLUMNS) {
        if stop.is_asked() {
            return;
        }
        run(b.rb_mut().subcols_mut(left, COLUMNS.min(columns - left)));
    }
}
