//! The Cholesky factor of a symmetric positive definite matrix: `a = l·t(l)`.
//!
//! The side is halved: factor the upper left, solve for the lower left, subtract its Gram matrix from
//! the lower right, go on there. Only the lower triangle is read and written.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §4.2.

use faer::MatMut;
use faer::reborrow::{Reborrow, ReborrowMut};

use super::super::gemm::{Grain, multiply_lower};
use super::super::{Real, Stop};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_rows, cholesky_tiles, copied, side};
use crate::error::{ErrorKind, Result};
use crate::matrix::Dense;

/// Side below which columns are factored one by one.
const BLOCK: usize = 32;

/// The lower triangular factor `l`, its diagonal positive; only the lower triangle of `a` is read.
///
/// - Work: n³/6 multiplications.
/// - Errors: [`ErrorKind::NotPositiveDefinite`] with the first pivot that is not above zero; a cell that
///   is not finite.
pub fn cholesky<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    if cholesky_tiles::goes_by_tiles(&[a]) {
        return cholesky_tiles::cholesky(a, stop);
    }
    let n = side(a);
    let mut l = copied("cholesky", a)?;
    factor(l.as_mut(), stop).map_err(|NoPivot { index, value }| {
        ErrorKind::NotPositiveDefinite { shape: a.shape(), pivot: index + 1, value: value.to_f64() }
    })?;
    stop.check()?;
    for j in 1..n {
        l.col_mut(j).subrows_mut(0, j).fill(T::ZERO);
    }
    Ok(by_rows(l.as_ref()))
}

/// The first pivot that is not above zero.
pub(super) struct NoPivot<T> {
    /// Its row, from 0.
    pub(super) index: usize,
    pub(super) value: T,
}

/// Replaces the lower triangle by its factor.
pub(super) fn factor<T: Real>(a: MatMut<'_, T>, stop: Stop<'_>) -> Result<(), NoPivot<T>> {
    let n = a.nrows();
    if stop.is_asked() {
        return Ok(());
    }
    if n <= BLOCK {
        return factor_block(a);
    }
    let half = (n / 2).next_multiple_of(BLOCK).min(n - 1);
    let (mut upper_left, _, mut lower_left, mut lower_right) = a.split_at_mut(half, half);
    factor(upper_left.rb_mut(), stop)?;
    let l = upper_left.rb();
    solve_triangular(
        l,
        Triangle::Lower,
        Diagonal::Stored,
        lower_left.rb_mut().transpose_mut(),
        stop,
    );
    let (left, grain) = (lower_left.rb(), Grain::factor(stop));
    multiply_lower(lower_right.rb_mut(), left, left.transpose(), -T::ONE, grain);
    factor(lower_right, stop)
        .map_err(|NoPivot { index, value }| NoPivot { index: half + index, value })
}

/// Factors a small block column by column.
fn factor_block<T: Real>(mut a: MatMut<'_, T>) -> Result<(), NoPivot<T>> {
    let n = a.nrows();
    for k in 0..n {
        let value = a[(k, k)];
        // A NaN, which an overflow can leave, is no pivot either.
        if !(value > T::ZERO && value.is_finite()) {
            return Err(NoPivot { index: k, value });
        }
        let pivot = value.sqrt();
        a[(k, k)] = pivot;
        for i in k + 1..n {
            a[(i, k)] /= pivot;
        }
        for j in k + 1..n {
            let factor = a[(j, k)];
            for i in j..n {
                a[(i, j)] = a[(i, j)] - a[(i, k)] * factor;
            }
        }
    }
    Ok(())
}
