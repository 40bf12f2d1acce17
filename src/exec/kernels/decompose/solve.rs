//! Linear systems and inverses, with the condition that says whether they mean anything.
//!
//! A symmetric matrix with a positive diagonal is tried by Cholesky, every other one by LU of its transpose, which
//! has by columns what it has by rows: `p·t(a) = l·u`, so `a = t(u)·t(l)·p`. The reciprocal condition number in the 1-norm is estimated from a few more solutions, and below the
//! unit of rounding the matrix is singular to working precision.
//!
//! Source: Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., algorithm 15.4 (the
//! estimator of LAPACK's `gecon`), of which this is the version for one vector.

use faer::reborrow::ReborrowMut;
use faer::{Mat, MatMut};

use super::super::{Real, Stop};
use super::cholesky::factor;
use super::cholesky_tiles::goes_by_tiles;
use super::lu::{Factors, apply_swaps, take_back_swaps};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::work::Work;
use super::{by_rows, copied, lu_tiles, norm_1_by_rows, side};
use crate::error::{ErrorKind, Result};
use crate::matrix::{Dense, Shape};

/// Solves `a·x = b` for a square `a` and any number of right-hand sides.
///
/// - Work: n³/3 multiplications by LU, n³/6 by Cholesky, and n²k for k right-hand sides.
/// - Accuracy: backward stable up to the growth of the pivots.
/// - Errors: [`ErrorKind::Singular`] where the estimated reciprocal condition number is below the unit
///   of rounding; a cell that is not finite.
///
/// # Panics
/// Unless `a` is square and `b` as tall.
pub fn solve<T: Real>(a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let n = side(a);
    assert_eq!(b.shape().rows, n, "a right-hand side is as tall as the matrix");
    if goes_by_tiles(&[a, b]) {
        return lu_tiles::solve(a, b, stop);
    }
    let mut x = copied("solve", b)?;
    let (factored, norm) = Factored::of("solve", a, stop)?;
    stop.check()?;
    let condition = factored.reciprocal_condition(norm);
    require_regular("solve", a.shape(), condition)?;
    factored.solve(x.as_mut(), stop);
    Ok(by_rows(x.as_ref()))
}

/// The inverse.
///
/// - Work: 4n³/3 multiplications.
/// - Errors: as [`solve`]; the condition number is exact here.
///
/// # Panics
/// Unless `a` is square.
pub fn inverse<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let n = side(a);
    let (x, norm) = if goes_by_tiles(&[a]) {
        (lu_tiles::inverse(a, stop)?, norm_1_by_rows(a))
    } else {
        let (factored, norm) = Factored::of("inv", a, stop)?;
        stop.check()?;
        if !factored.has_pivots() {
            require_regular("inv", a.shape(), T::ZERO)?;
        }
        let mut x = Work::identity(n);
        factored.solve_transposed(x.view_mut(), stop);
        stop.check()?;
        (x.into_transpose(), norm)
    };
    let condition = if n == 0 { T::ONE } else { T::ONE / norm / norm_1_by_rows(&x) };
    require_regular("inv", a.shape(), condition)?;
    Ok(x)
}

/// The estimate that [`solve`] goes by.
#[cfg(test)]
pub(super) fn reciprocal_condition<T: Real>(a: &Dense<T>) -> Result<T> {
    let (factored, norm) = Factored::of("solve", a, Stop::NEVER)?;
    Ok(factored.reciprocal_condition(norm))
}

pub(super) fn require_regular<T: Real>(
    function: &'static str,
    shape: Shape,
    condition: T,
) -> Result<()> {
    // Also where it is NaN: the solution overflowed.
    if condition >= T::EPSILON {
        return Ok(());
    }
    let condition = if condition.is_nan() { 0.0 } else { condition.to_f64() };
    Err(ErrorKind::Singular { function, shape, condition }.into())
}

/// A factored square matrix.
enum Factored<T> {
    /// The lower triangle holds `l` of `l·t(l)`.
    Cholesky(Work<T>),
    /// Both factors of the transpose, and the swaps of its rows.
    Lu(Factors<T>),
}

impl<T: Real> Factored<T> {
    /// Factors `a`, and gives its 1-norm.
    fn of(function: &'static str, a: &Dense<T>, stop: Stop<'_>) -> Result<(Self, T)> {
        let norm = norm_1_by_rows(a);
        if a.is_symmetric() && (0..a.shape().rows).all(|i| a.row(i)[i] > T::ZERO) {
            let mut cells = Work::transposed(function, a)?;
            if factor(cells.view_mut(), stop).is_ok() {
                return Ok((Factored::Cholesky(cells), norm));
            }
        }
        Ok((Factored::Lu(Factors::of(Work::transposed(function, a)?, stop)), norm))
    }

    fn cells(&self) -> &Work<T> {
        match self {
            Factored::Cholesky(cells) | Factored::Lu(Factors { cells, .. }) => cells,
        }
    }

    /// Whether no pivot is zero.
    fn has_pivots(&self) -> bool {
        let cells = self.cells();
        (0..cells.shape().rows).all(|i| cells[(i, i)] != T::ZERO)
    }

    /// `b = a⁻¹·b`.
    fn solve(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        match self {
            Factored::Cholesky(cells) => {
                let l = cells.view();
                solve_triangular(l, Triangle::Lower, Diagonal::Stored, b.rb_mut(), stop);
                solve_triangular(l.transpose(), Triangle::Upper, Diagonal::Stored, b, stop);
            }
            Factored::Lu(Factors { cells, swaps }) => {
                let of = cells.view().transpose();
                solve_triangular(of, Triangle::Lower, Diagonal::Stored, b.rb_mut(), stop);
                solve_triangular(of, Triangle::Upper, Diagonal::Ones, b.rb_mut(), stop);
                take_back_swaps(b, swaps);
            }
        }
    }

    /// `b = t(a)⁻¹·b`.
    fn solve_transposed(&self, mut b: MatMut<'_, T>, stop: Stop<'_>) {
        match self {
            Factored::Cholesky(_) => self.solve(b, stop),
            Factored::Lu(Factors { cells, swaps }) => {
                apply_swaps(b.rb_mut(), swaps);
                let of = cells.view();
                solve_triangular(of, Triangle::Lower, Diagonal::Ones, b.rb_mut(), stop);
                solve_triangular(of, Triangle::Upper, Diagonal::Stored, b, stop);
            }
        }
    }

    /// `1 / (‖a‖·‖a⁻¹‖)` in the 1-norm, the second norm estimated from below; 0 without a pivot.
    fn reciprocal_condition(&self, norm: T) -> T {
        if !self.has_pivots() {
            return T::ZERO;
        }
        let solve = |b: MatMut<'_, T>| self.solve(b, Stop::NEVER);
        let across = |b: MatMut<'_, T>| self.solve_transposed(b, Stop::NEVER);
        reciprocal_condition_of(self.cells().shape().rows, norm, &solve, &across)
    }
}

/// `1 / (‖a‖·‖a⁻¹‖)` in the 1-norm, the second norm estimated from below by solutions for one right-hand
/// side with `a` and with its transpose.
pub(crate) fn reciprocal_condition_of<T: Real>(
    n: usize,
    norm: T,
    solve: &dyn Fn(MatMut<'_, T>),
    solve_transposed: &dyn Fn(MatMut<'_, T>),
) -> T {
    if n == 0 {
        return T::ONE;
    }
    let size = T::from_f64(n as f64);
    let sum = |x: &Mat<T>| (0..n).fold(T::ZERO, |sum, i| sum + x[(i, 0)].abs());
    let mut x = Mat::from_fn(n, 1, |_, _| T::ONE / size);
    solve(x.as_mut());
    let mut estimate = sum(&x);
    if !estimate.is_finite() {
        return T::ZERO;
    }
    let mut last = usize::MAX;
    for _ in 0..4 {
        let mut gradient =
            Mat::from_fn(n, 1, |i, _| if x[(i, 0)] < T::ZERO { -T::ONE } else { T::ONE });
        solve_transposed(gradient.as_mut());
        let steepest = (0..n).fold(0, |best, i| {
            if gradient[(i, 0)].abs() > gradient[(best, 0)].abs() { i } else { best }
        });
        if steepest == last {
            break;
        }
        last = steepest;
        x = Mat::from_fn(n, 1, |i, _| if i == steepest { T::ONE } else { T::ZERO });
        solve(x.as_mut());
        let next = sum(&x);
        if next <= estimate {
            break;
        }
        estimate = next;
    }
    // A vector of growing, alternating entries catches the rare matrices that mislead the above.
    let steps = T::from_f64(n.max(2) as f64 - 1.0);
    let mut x = Mat::from_fn(n, 1, |i, _| {
        let entry = T::ONE + T::from_f64(i as f64) / steps;
        if i % 2 == 0 { entry } else { -entry }
    });
    solve(x.as_mut());
    let alternate = sum(&x) * T::from_f64(2.0) / (T::from_f64(3.0) * size);
    T::ONE / norm / if alternate > estimate { alternate } else { estimate }
}
