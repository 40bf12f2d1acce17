//! Singular values and the eigenvalues of symmetric matrices, with their vectors.
//!
//! ```text
//! reduce       reflections turn the matrix into two or three diagonals   bidiagonal, tridiagonal
//! divide       those are cut in half until a part is small               divide, leaves
//! conquer      a secular equation gives the values of two parts          conquer, secular
//!              together, a product their vectors
//! turn back    the reflections are applied to the vectors                ../reflections
//! ```
//!
//! A matrix much taller than wide goes through its R first. Only what is small is solved in one
//! piece; else the stop is looked at for each column of a reduction and each task of a product.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §8.3 and §8.6.

mod bidiagonal;
mod conquer;
mod count;
mod divide;
mod leaves;
mod secular;
mod tridiagonal;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{ColMut, Mat, MatMut, MatRef};
use rayon::prelude::*;

use super::super::{Real, Stop, view};
use super::orthogonal::Reflected;
use super::{Unfinished, by_columns, by_rows, check_finite, negate, scale_to_one, side, tall};
use crate::error::Result;
use crate::matrix::{Dense, Shape};
use bidiagonal::Bidiagonal;
use tridiagonal::Tridiagonal;

/// The thin factors of `a = u·diag(s)·vt`, or the first of them.
#[derive(Debug, Clone)]
pub struct Svd<T: Real> {
    /// Left singular vectors, as columns.
    pub u: Dense<T>,
    /// Singular values, descending, as a column.
    pub s: Dense<T>,
    /// Right singular vectors, as rows.
    pub vt: Dense<T>,
}

/// The `count` largest singular values of an m×n matrix with their vectors; min(m, n) if `None` or
/// more.
///
/// All values are computed, whatever `count` is, but only the vectors that are asked for.
///
/// - Errors: a cell that is not finite; no convergence, which has not been seen of finite cells.
pub fn svd<T: Real>(a: &Dense<T>, count: Option<usize>, stop: Stop<'_>) -> Result<Svd<T>> {
    if tall::goes_by_blocks(a) {
        return tall::svd(a, |small| svd_at_once(small, count, stop), stop);
    }
    svd_at_once(a, count, stop)
}

/// Cells that it takes: the factors, the copy they are made in, and the vectors of its two diagonals, merged.
pub fn svd_cells(shape: Shape) -> usize {
    let side = shape.rows.min(shape.columns);
    shape.cells().saturating_mul(3).saturating_add(side.saturating_mul(side).saturating_mul(2))
}

/// Flops that it takes, of so many cells and so short a side.
pub fn svd_flops(cells: f64, short: f64) -> f64 {
    14.0 * cells * short
}

/// The same where memory has room for all of it.
pub(super) fn svd_at_once<T: Real>(
    a: &Dense<T>,
    count: Option<usize>,
    stop: Stop<'_>,
) -> Result<Svd<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    let count = count.map_or(m.min(n), |count| count.min(m).min(n));
    check_finite("svd", a)?;
    let wide = m < n;
    let mut cells = by_columns(if wide { view(a).transpose() } else { view(a) });
    let scale = scale_to_one(cells.as_mut());
    let Factors { mut u, s, mut v } =
        tall_svd(cells, count, stop).map_err(|why| why.error("svd", a.shape()))?;
    if wide {
        (u, v) = (v, u);
    }
    stop.check()?;
    for (mut column, negative) in v.as_mut().col_iter_mut().zip(fix_signs(u.as_mut())) {
        if negative {
            negate(column.rb_mut());
        }
    }
    let u = by_rows(u.as_ref());
    stop.check()?;
    let s = Mat::from_fn(count, 1, |i, _| s[i] * scale);
    Ok(Svd { u, s: by_rows(s.as_ref()), vt: by_rows(v.transpose()) })
}

/// The eigenvalues and vectors of a symmetric matrix: `a = vectors·diag(values)·t(vectors)`.
#[derive(Debug, Clone)]
pub struct Eigh<T: Real> {
    /// Ascending, as a column.
    pub values: Dense<T>,
    /// Orthonormal, as columns in the order of the values.
    pub vectors: Dense<T>,
}

/// The `count` largest eigenvalues of a symmetric matrix, still ascending, with their vectors; all
/// if `None` or more. Only the lower triangle is read. All values are computed, whatever `count`
/// is, but only the vectors that are asked for.
///
/// - Errors: a cell that is not finite; no convergence, which has not been seen of finite cells.
///
/// # Panics
/// Unless `a` is square.
pub fn eigh<T: Real>(a: &Dense<T>, count: Option<usize>, stop: Stop<'_>) -> Result<Eigh<T>> {
    let n = side(a);
    let count = count.map_or(n, |count| count.min(n));
    check_finite("eigh", a)?;
    let mut cells = by_columns(view(a));
    let scale = scale_to_one(cells.as_mut());
    let (values, mut vectors) =
        symmetric(cells, count, stop).map_err(|why| why.error("eigh", a.shape()))?;
    stop.check()?;
    fix_signs(vectors.as_mut());
    let values = Mat::from_fn(count, 1, |i, _| values[i] * scale);
    Ok(Eigh { values: by_rows(values.as_ref()), vectors: by_rows(vectors.as_ref()) })
}

/// Short sides below which a decomposition is one piece, of some milliseconds; where that does not
/// converge, as may be in 32 bits, it goes the way of the others, whose pieces are in 64.
const SMALL: usize = 128;

/// Rows from which a matrix with a short side goes through its R, though it is one piece then.
const TALL: usize = 1024;

/// From where a reduction of R with a QR before it is less work than one of all rows.
fn is_tall(m: usize, n: usize) -> bool {
    n > 0 && 6 * m >= 11 * n && (n >= SMALL || m >= TALL)
}

struct Factors<T> {
    u: Mat<T>,
    s: Vec<T>,
    v: Mat<T>,
}

/// The first singular values and vectors of a matrix at least as tall as wide, no cell far above
/// one.
fn tall_svd<T: Real>(a: Mat<T>, count: usize, stop: Stop<'_>) -> Result<Factors<T>, Unfinished> {
    let (m, n) = (a.nrows(), a.ncols());
    if is_tall(m, n) {
        let reflected = Reflected::of(a, stop);
        Unfinished::check(stop)?;
        let of_r = tall_svd(reflected.r(), count, stop)?;
        let mut u = Mat::zeros(m, count);
        u.as_mut().subrows_mut(0, n).copy_from(of_r.u);
        reflected.apply(u.as_mut(), stop);
        return Ok(Factors { u, ..of_r });
    }
    if n < SMALL {
        let (mut u, mut v) = (Mat::zeros(m, n), Mat::zeros(n, n));
        if let Ok(mut s) = leaves::svd(a.as_ref(), u.as_mut(), v.as_mut()) {
            s.truncate(count);
            u.truncate(m, count);
            v.truncate(n, count);
            return Ok(Factors { u, s, v });
        }
    }
    let reduced = Bidiagonal::of(a, stop)?;
    let (mut diagonal, mut above) = (widened(&reduced.diagonal), widened(&reduced.above));
    let scale = scale_diagonals(&mut diagonal, &mut above);
    let (mut left, mut right) = (Mat::zeros(n, n), Mat::zeros(n, n));
    let (to_left, to_right) = (left.as_mut(), right.as_mut());
    let values = divide::singular_values(&diagonal, &above, to_left, to_right, count, stop)?;
    let mut order = sorted(&values);
    order.reverse();
    order.truncate(count);
    let mut u = Mat::zeros(m, count);
    gather(u.as_mut().subrows_mut(0, n), left.as_ref(), &order);
    drop(left);
    reduced.left().apply(u.as_mut(), stop);
    Unfinished::check(stop)?;
    let mut v = Mat::zeros(n, count);
    gather(v.as_mut(), right.as_ref(), &order);
    drop(right);
    reduced.right().apply(v.as_mut().subrows_mut(1, n - 1), stop);
    let s = order.iter().map(|&j| T::from_f64(values[j] * scale)).collect();
    Ok(Factors { u, s, v })
}

/// How many singular values of a matrix are above the largest one times `bound`.
///
/// - Work: that of the reduction to two diagonals alone, 8n³/3 flop for a square one.
/// - Errors: a cell that is not finite.
pub(super) fn count_above<T: Real>(
    function: &'static str,
    a: &Dense<T>,
    bound: f64,
    stop: Stop<'_>,
) -> Result<usize> {
    check_finite(function, a)?;
    let wide = a.shape().rows < a.shape().columns;
    let mut cells = by_columns(if wide { view(a).transpose() } else { view(a) });
    scale_to_one(cells.as_mut());
    count::significant(cells, bound, stop).map_err(|why| why.error(function, a.shape()))
}

/// The last eigenvalues and vectors of a symmetric matrix, no cell far above one.
fn symmetric<T: Real>(
    a: Mat<T>,
    count: usize,
    stop: Stop<'_>,
) -> Result<(Vec<T>, Mat<T>), Unfinished> {
    let n = a.nrows();
    let mut q = Mat::zeros(n, n);
    let mut vectors = Mat::zeros(n, count);
    if n < SMALL {
        if let Ok(mut values) = leaves::eigh(a.as_ref(), q.as_mut()) {
            vectors.copy_from(q.subcols(n - count, count));
            return Ok((values.split_off(n - count), vectors));
        }
        q.fill(T::ZERO);
    }
    let reduced = Tridiagonal::of(a, stop)?;
    let (mut diagonal, mut below) = (widened(&reduced.diagonal), widened(&reduced.below));
    let scale = scale_diagonals(&mut diagonal, &mut below);
    let values = divide::eigenvalues(&mut diagonal, &below, q.as_mut(), count, stop)?;
    let order = sorted(&values).split_off(n - count);
    gather(vectors.as_mut(), q.as_ref(), &order);
    drop(q);
    reduced.reflections().apply(vectors.as_mut().subrows_mut(1, n - 1), stop);
    Ok((order.iter().map(|&j| T::from_f64(values[j] * scale)).collect(), vectors))
}

/// Divides two diagonals by a power of two, so that the largest cell is near one, and gives it.
fn scale_diagonals(diagonal: &mut [f64], beside: &mut [f64]) -> f64 {
    let most = diagonal.iter().chain(&*beside).fold(0.0f64, |most, x| most.max(x.abs()));
    let scale = if most > 0.0 { most.log2().floor().exp2() } else { 1.0 };
    diagonal.iter_mut().chain(beside).for_each(|x| *x /= scale);
    scale
}

fn widened<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// Where the values are, ascending.
fn sorted(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    order
}

/// Copies these columns beside each other.
fn gather<T: Real>(to: MatMut<'_, T>, from: MatRef<'_, T>, columns: &[usize]) {
    to.par_col_iter_mut().zip(columns).for_each(|(mut to, &j)| to.copy_from(from.col(j)));
}

/// Makes the first entry of largest magnitude in each column positive; which columns were turned.
fn fix_signs<T: Real>(vectors: MatMut<'_, T>) -> Vec<bool> {
    let fix = |column: ColMut<'_, T>| {
        let larger = |most: T, &x: &T| if x.abs() > most.abs() { x } else { most };
        let turned = column.rb().iter().fold(T::ZERO, larger) < T::ZERO;
        if turned {
            negate(column);
        }
        turned
    };
    vectors.par_col_iter_mut().map(fix).collect()
}

#[cfg(test)]
mod tests;
