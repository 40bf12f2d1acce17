//! Householder QR, thin, and least squares through it.
//!
//! ```text
//! a = q·r            tall       x = r⁻¹·t(q)·b
//! t(a) = q·r         wide       x = q·t(r)⁻¹·b, the one of least norm
//! r = u·s·t(v)       where r is near singular: t(q) and q with v·s⁺·t(u) and its transpose between them
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §5.2, §5.5 and §5.6.

use std::ops::Range;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj as apply,
    apply_block_householder_sequence_transpose_on_the_left_in_place_scratch as apply_transposed_scratch,
    apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj as apply_transposed,
};
use faer::linalg::qr::no_pivoting;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};

use super::super::dense::slice_columns;
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense, view};
use super::solve::reciprocal_condition_of;
use super::spectral::{Svd, svd};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_rows, copied, norm_1, par, tall};
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
/// - Memory: what it takes beside the result, or, of a tall one, some blocks of rows ([`tall`]).
/// - Errors: a cell that is not finite.
pub fn qr<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Qr<T>> {
    if tall::goes_by_blocks(a) { tall::qr(a, stop) } else { factored(a, stop) }
}

/// The R of a matrix alone, where signs on its diagonal do not matter.
pub(super) fn triangle<T: Real>(
    function: &'static str,
    a: &Dense<T>,
    stop: Stop<'_>,
) -> Result<Dense<T>> {
    let reflected = Reflected::of(copied(function, a)?, stop);
    stop.check()?;
    Ok(by_rows(reflected.r().as_ref()))
}

/// The same where memory has room for all of it.
pub(super) fn factored<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Qr<T>> {
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
/// - Work: 2mn² multiplications or so for m ≥ n; that of the singular values beside it where the rank is
///   not full.
/// - Rank: the singular values above `max(m, n)·ε` times the largest.
/// - Errors: a cell that is not finite.
///
/// # Panics
/// Unless `a` and `b` are equally tall.
pub fn least_squares<T: Real>(a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    assert_eq!(b.shape().rows, m, "a right-hand side is as tall as the matrix");
    if n > 0 && tall::goes_by_blocks(a) {
        // The same differences, turned, and what of them no x changes left out.
        let r = tall::triangle_beside("lstsq", a, Some(b), stop)?;
        let both = r.rows(0..n);
        let (r, b) = (slice_columns(&both, 0..n), slice_columns(&both, n..both.shape().columns));
        return least_squares(&r, &b, stop);
    }
    let (a, mut b) = (copied("lstsq", a)?, copied("lstsq", b)?);
    let sides = b.ncols();
    if m == 0 || n == 0 || sides == 0 {
        return Ok(dense(Shape::new(n, sides), vec![T::ZERO; n * sides]));
    }
    if m >= n {
        let reflected = Reflected::of(a, stop);
        reflected.apply_transposed(b.as_mut(), stop);
        stop.check()?;
        b.truncate(n, sides);
        let r = reflected.r();
        if is_regular(&r, m) {
            solve_triangular(r.as_ref(), Triangle::Upper, Diagonal::Stored, b.as_mut(), stop);
            return Ok(by_rows(b.as_ref()));
        }
        let [u, inverse, v] = pseudoinverse(&r, m, stop)?;
        return Ok(by_rows(through(&v, &inverse, &u, &b, stop).as_ref()));
    }
    let reflected = Reflected::of(a.transpose().to_owned(), stop);
    stop.check()?;
    let r = reflected.r();
    let mut x = Mat::zeros(n, sides);
    let mut head = x.as_mut().subrows_mut(0, m);
    if is_regular(&r, n) {
        solve_triangular(r.transpose(), Triangle::Lower, Diagonal::Stored, b.as_mut(), stop);
        head.copy_from(b);
    } else {
        let [u, inverse, v] = pseudoinverse(&r, n, stop)?;
        head.copy_from(through(&u, &inverse, &v, &b, stop));
    }
    reflected.apply(x.as_mut(), stop);
    Ok(by_rows(x.as_ref()))
}

/// `u`, `s⁺` and `v` for which `v·s⁺·t(u)` is the inverse of a triangular matrix that has none; `longer` is the
/// longer side of the matrix it is from.
fn pseudoinverse<T: Real>(r: &Mat<T>, longer: usize, stop: Stop<'_>) -> Result<[Mat<T>; 3]> {
    let Svd { u, s, vt } = svd(&by_rows(r.as_ref()), None, stop)?;
    let least = T::EPSILON * T::from_f64(longer as f64) * s.cells()[0];
    let inverse = |i: usize| if s.cells()[i] > least { T::ONE / s.cells()[i] } else { T::ZERO };
    let inverse = Mat::from_fn(r.ncols(), 1, |i, _| inverse(i));
    Ok([view(&u).to_owned(), inverse, view(&vt).transpose().to_owned()])
}

/// `left·diag(s)·t(right)·b`.
fn through<T: Real>(
    left: &Mat<T>,
    s: &Mat<T>,
    right: &Mat<T>,
    b: &Mat<T>,
    stop: Stop<'_>,
) -> Mat<T> {
    let grain = Grain::factor(stop);
    let (mut parts, mut x) =
        (Mat::zeros(right.ncols(), b.ncols()), Mat::zeros(left.nrows(), b.ncols()));
    multiply(parts.as_mut(), Accum::Replace, right.transpose(), b.as_ref(), T::ONE, grain);
    for column in parts.col_iter_mut() {
        column.iter_mut().zip(s.col(0).iter()).for_each(|(part, &s)| *part *= s);
    }
    multiply(x.as_mut(), Accum::Replace, left.as_ref(), parts.as_ref(), T::ONE, grain);
    x
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
