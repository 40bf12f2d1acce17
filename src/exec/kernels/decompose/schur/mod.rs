//! The real Schur form of any square matrix: `a = z·t·t(z)`.
//!
//! ```text
//! reduce     reflections leave one diagonal below the main one             hessenberg
//! deflate    eigenvalues that a window at the end has found are split off  deflate, exchange
//! sweep      the others are shifts: chains of bulges are chased down       sweep, window
//! ```
//!
//! `t` is quasi-triangular: on its diagonal are the real eigenvalues and, for each conjugate pair, a block of
//! two rows (`pairs`). Nearly all the work is in products; what is not is done in windows that lie in the cache.
//! The stop is looked at for each window.
//!
//! Source: Braman, Byers and Mathias, *The multishift QR algorithm*, SIAM J. Matrix Anal. Appl. 23 (2002),
//! 929–973; Kressner, *Numerical Methods for General and Structured Eigenvalue Problems*, 2005, ch. 1.

mod deflate;
mod exchange;
mod hessenberg;
mod pairs;
mod sweep;
mod window;

use faer::traits::math_utils::min_positive;
use faer::{Mat, MatMut};

use super::super::{Real, Stop};
use super::Unfinished;
pub(super) use exchange::solve_sylvester;
use hessenberg::Hessenberg;
pub(super) use pairs::{Pair, Value};

/// Rounds one after another in which nothing is split off, after which it is given up.
const ROUNDS_MAX: usize = 300;

/// The factors of `a = z·t·t(z)`.
pub(super) struct Schur<T> {
    /// Quasi-triangular, its pairs in standard form.
    pub(super) t: Mat<T>,
    /// Orthogonal.
    pub(super) z: Mat<T>,
}

impl<T: Real> Schur<T> {
    /// Of a square matrix, no cell far above one.
    pub(super) fn of(a: Mat<T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let reduced = Hessenberg::of(a, stop)?;
        let mut z = reduced.orthogonal(stop);
        Unfinished::check(stop)?;
        let mut t = reduced.into_matrix();
        sweep::iterate(t.as_mut(), z.as_mut(), ROUNDS_MAX, stop)?;
        Ok(Self { t, z })
    }
}

/// Where the blocks on the diagonal of a quasi-triangular matrix begin, and where the last one ends.
pub(super) fn blocks<T: Real>(t: faer::MatRef<'_, T>) -> Vec<usize> {
    let n = t.nrows();
    let is_inside = |i: usize| i > 0 && i < n && t[(i, i - 1)] != T::ZERO;
    (0..=n).filter(|&i| !is_inside(i)).collect()
}

/// Where the block that ends here begins: the cells before it and below the diagonal are nothing beside
/// their neighbours, and are made zero.
fn active_from<T: Real>(mut h: MatMut<'_, T>, end: usize) -> usize {
    let mut start = end - 1;
    while start > 0 {
        if is_negligible(h.as_ref(), start) {
            h[(start, start - 1)] = T::ZERO;
            break;
        }
        start -= 1;
    }
    start
}

/// Whether the cell below the diagonal in this row may be dropped: it is below the unit of rounding beside
/// the diagonal, and so is what it does to the eigenvalues (Ahues and Tisseur, LAPACK Working Note 122).
fn is_negligible<T: Real>(h: faer::MatRef<'_, T>, i: usize) -> bool {
    let n = h.nrows();
    let (below, above) = (h[(i, i - 1)].abs(), h[(i - 1, i)].abs());
    let least = least::<T>(n);
    if below <= least {
        return true;
    }
    let (first, second) = (h[(i - 1, i - 1)], h[(i, i)]);
    let mut size = first.abs() + second.abs();
    if size == T::ZERO {
        if i >= 2 {
            size += h[(i - 1, i - 2)].abs();
        }
        if i + 1 < n {
            size += h[(i + 1, i)].abs();
        }
    }
    if below > T::EPSILON * size {
        return false;
    }
    let order = |x: T, y: T| if x > y { (x, y) } else { (y, x) };
    let (larger, smaller) = order(below, above);
    let (far, near) = order(second.abs(), (first - second).abs());
    let scale = far + larger;
    let bound = T::EPSILON * (near * (far / scale));
    smaller * (larger / scale) <= if bound > least { bound } else { least }
}

/// What is zero beside a norm of one, and has a square that loses no digits in a sum.
fn least<T: Real>(n: usize) -> T {
    min_positive::<T>() * T::from_f64(n as f64) / T::EPSILON
}

#[cfg(test)]
mod tests;
