//! Householder QR, thin, and least squares through it.
//!
//! ```text
//! a = q·r            tall       x = r⁻¹·t(q)·b
//! t(a) = q·r         wide       x = q·t(r)⁻¹·b, the one of least norm
//! r = u·s·t(v)       where r is near singular: t(q) and q with v·s⁺·t(u) and its transpose between them
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §5.2, §5.5 and §5.6.

use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::super::dense::slice_columns;
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense, view};
use super::columns::{add_columns, column_mut, dots};
use super::reflections::{Block, Reflections, reflect};
use super::solve::reciprocal_condition_of;
use super::spectral::{Svd, svd};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_rows, copied, norm_1, tall};
use crate::error::Result;
use crate::matrix::{Dense, Shape};

/// Columns between two updates of all that is on their right.
const PANEL: usize = 128;

/// Columns that are reflected one by one.
const NARROW: usize = 8;

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
    let mut q = reflected.q(stop);
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

/// A matrix turned into R by reflections, whose vectors lie below its diagonal.
pub(super) struct Reflected<T> {
    cells: Mat<T>,
    scales: Vec<T>,
}

impl<T: Real> Reflected<T> {
    /// Panel by panel. The next one is updated before all that is on its right and reflected beside that, for it
    /// is work for one thread.
    pub(super) fn of(mut cells: Mat<T>, stop: Stop<'_>) -> Self {
        let (m, k) = (cells.nrows(), cells.nrows().min(cells.ncols()));
        let mut scales = vec![T::ZERO; k];
        let first = PANEL.min(k);
        reflect_panel(cells.as_mut().subcols_mut(0, first), &mut scales[..first], stop);
        for left in (0..k).step_by(PANEL) {
            if stop.is_asked() {
                break;
            }
            let end = k.min(left + PANEL);
            let below = cells.as_mut().subrows_mut(left, m - left);
            let (done, open) = below.split_at_col_mut(end);
            let (known, unknown) = scales.split_at_mut(end);
            let block = Block::of(done.rb().subcols(left, end - left), &known[left..], stop);
            let width = PANEL.min(k - end);
            let (next, rest) = open.split_at_col_mut(width);
            rayon::join(
                || {
                    let mut next = next;
                    block.apply_transposed(next.rb_mut());
                    let (_, next) = next.split_at_row_mut(end - left);
                    reflect_panel(next, &mut unknown[..width], stop);
                },
                || block.apply_transposed(rest),
            );
        }
        Self { cells, scales }
    }

    pub(super) fn r(&self) -> Mat<T> {
        let (m, n) = (self.cells.nrows(), self.cells.ncols());
        Mat::from_fn(m.min(n), n, |i, j| if i <= j { self.cells[(i, j)] } else { T::ZERO })
    }

    /// The orthogonal matrix, as many columns of it as `r` has rows.
    fn q(&self, stop: Stop<'_>) -> Mat<T> {
        self.reflections().product(stop)
    }

    /// `b = q·b`.
    pub(super) fn apply(&self, b: MatMut<'_, T>, stop: Stop<'_>) {
        self.reflections().apply(b, stop);
    }

    /// `b = t(q)·b`.
    fn apply_transposed(&self, b: MatMut<'_, T>, stop: Stop<'_>) {
        self.reflections().apply_transposed(b, stop);
    }

    fn reflections(&self) -> Reflections<'_, T> {
        let vectors = self.cells.subcols(0, self.scales.len());
        Reflections { vectors, scales: &self.scales }
    }
}

/// Reflects columns from the diagonal down: the left half, then what it leaves of the right one.
fn reflect_panel<T: Real>(a: MatMut<'_, T>, scales: &mut [T], stop: Stop<'_>) {
    let n = a.ncols();
    if n <= NARROW {
        return reflect_one_by_one(a, scales);
    }
    let half = (n / 2).next_multiple_of(NARROW).min(n - 1);
    let (left_scales, right_scales) = scales.split_at_mut(half);
    let (mut left, mut right) = a.split_at_col_mut(half);
    reflect_panel(left.rb_mut(), left_scales, stop);
    Block::of(left.rb(), left_scales, stop).apply_transposed(right.rb_mut());
    reflect_panel(right.split_at_row_mut(half).1, right_scales, stop);
}

/// The same of a few columns, each of which is applied to all on its right.
fn reflect_one_by_one<T: Real>(mut a: MatMut<'_, T>, scales: &mut [T]) {
    for (j, scale) in scales.iter_mut().enumerate() {
        let (done, mut right) = a.rb_mut().split_at_col_mut(j + 1);
        let v = &mut column_mut(done, j)[j..];
        let rest;
        (rest, *scale) = reflect(v);
        let mut right = right.rb_mut().subrows_mut(j, v.len());
        let mut sums = vec![T::ZERO; right.ncols()];
        dots(right.rb(), v, &mut sums);
        let vector = MatRef::from_column_major_slice(v, v.len(), 1);
        for (at, &sum) in sums.iter().enumerate() {
            add_columns(column_mut(right.rb_mut(), at), vector, &[sum], -*scale);
        }
        v[0] = rest;
    }
}
