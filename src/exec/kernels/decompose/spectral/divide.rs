//! Divide and conquer: two or three diagonals are cut in half, and the halves solved and merged.
//!
//! ```text
//!     | t₁    |                      | b₁              |    n₁ rows, one column more
//! t = |    t₂ | + |e|·x·t(x)     b = | α·t(eₙ) β·t(e₁) |    the row between
//!                                    |         b₂      |
//! ```
//!
//! A right half of a bidiagonal may be wider than tall by one, as every left half is; the last
//! column of its right basis then spans what the others leave.

use faer::reborrow::ReborrowMut;
use faer::{Mat, MatMut, MatRef};

use super::super::super::{Real, Stop};
use super::conquer::{Basis, Half, Merge, rotate_columns};
use super::{Unfinished, leaves, scale_diagonals};

/// Side of what is solved in one piece.
const LEAF: usize = 48;

/// A coupling this small beside a norm of one is nothing, and its square has all its digits.
const TOLERANCE_MIN: f64 = 1e-130;

fn tolerance<T: Real>(norm: f64) -> f64 {
    (8.0 * T::EPSILON.to_f64() * norm).max(TOLERANCE_MIN)
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// The eigenvalues of a symmetric tridiagonal matrix of norm about one, in any order, and their
/// vectors in the columns of `q`, which is zero before; those of the `wanted` largest at least.
pub(super) fn eigenvalues<T: Real>(
    diagonal: &mut [f64],
    below: &[f64],
    mut q: MatMut<'_, T>,
    wanted: usize,
    stop: Stop<'_>,
) -> Result<Vec<f64>, Unfinished> {
    let n = diagonal.len();
    Unfinished::check(stop)?;
    if n <= LEAF {
        let mut below = [below, &[0.0]].concat();
        let scale = scale_leaf(diagonal, &mut below);
        let mut vectors = Mat::zeros(n, n);
        let mut values = leaves::eigh_of_tridiagonal(diagonal, &below, vectors.as_mut())?;
        values.iter_mut().for_each(|x| *x *= scale);
        narrow(q, vectors.as_ref());
        return Ok(values);
    }
    let half = n / 2;
    let link = below[half - 1];
    diagonal[half - 1] -= link.abs();
    diagonal[half] -= link.abs();
    let (upper, lower) = diagonal.split_at_mut(half);
    let (upper_left, _, _, lower_right) = q.rb_mut().split_at_mut(half, half);
    let (first, second) = rayon::join(
        || eigenvalues(upper, &below[..half - 1], upper_left, half, stop),
        || eigenvalues(lower, &below[half..], lower_right, n - half, stop),
    );
    let (mut values, second) = (first?, second?);
    Unfinished::check(stop)?;
    values.extend(second);
    let size = link.abs().sqrt();
    let z: Vec<f64> = (0..n)
        .map(|c| match c < half {
            true => size * q[(half - 1, c)].to_f64(),
            false => size.copysign(link) * q[(half, c)].to_f64(),
        })
        .collect();
    let norm = largest(&values).max(2.0 * link.abs());
    Merge {
        values: &mut values,
        z,
        halves: halves(half, n),
        row: None,
        tolerance: tolerance::<T>(norm),
        wanted,
    }
    .run::<T, false>(&mut [Basis { cells: q, top: half }], stop);
    Ok(values)
}

fn halves(top: usize, n: usize) -> Vec<Half> {
    (0..n).map(|c| if c < top { Half::Top } else { Half::Bottom }).collect()
}

/// The singular values of an upper bidiagonal matrix of norm about one, in any order, and their
/// vectors in the columns of `u` and `v`, which are zero before; those of the `wanted` largest at
/// least.
pub(super) fn singular_values<T: Real>(
    diagonal: &[f64],
    above: &[f64],
    mut u: MatMut<'_, T>,
    mut v: MatMut<'_, T>,
    wanted: usize,
    stop: Stop<'_>,
) -> Result<Vec<f64>, Unfinished> {
    let n = diagonal.len();
    Unfinished::check(stop)?;
    if n <= LEAF {
        let (mut diagonal, mut above) = (diagonal.to_vec(), above.to_vec());
        let scale = scale_leaf(&mut diagonal, &mut above);
        let (mut left, mut right) = (Mat::zeros(n, n), Mat::zeros(v.nrows(), v.nrows()));
        let cells = bidiagonal(&diagonal, &above);
        let mut values = leaves::svd(cells.as_ref(), left.as_mut(), right.as_mut())?;
        values.iter_mut().for_each(|x| *x *= scale);
        narrow(u, left.as_ref());
        narrow(v, right.as_ref());
        return Ok(values);
    }
    let row = n / 2;
    let (to_left, to_right) = (diagonal[row], above[row]);
    let (u_left, _, _, u_right) = u.rb_mut().split_at_mut(row + 1, row + 1);
    let (v_left, _, _, v_right) = v.rb_mut().split_at_mut(row + 1, row + 1);
    let u_left = u_left.submatrix_mut(0, 0, row, row);
    let (first, second) = rayon::join(
        || singular_values(&diagonal[..row], &above[..row], u_left, v_left, row, stop),
        || {
            let (diagonal, above) = (&diagonal[row + 1..], &above[row + 1..]);
            singular_values(diagonal, above, u_right, v_right, diagonal.len(), stop)
        },
    );
    let (mut values, second) = (first?, second?);
    Unfinished::check(stop)?;
    values.push(0.0);
    values.extend(second);
    u[(row, row)] = T::ONE;

    let mut z: Vec<f64> = (0..n)
        .map(|c| match c <= row {
            true => to_left * v[(row, c)].to_f64(),
            false => to_right * v[(row + 1, c)].to_f64(),
        })
        .collect();
    let mut halves = halves(row + 1, n);
    if above.len() == n {
        let beside = to_right * v[(row + 1, n)].to_f64();
        let length = z[row].hypot(beside);
        if length > 0.0 {
            rotate_columns(v.rb_mut(), row, n, z[row] / length, beside / length);
            (z[row], halves[row]) = (length, Half::Both);
        }
    }
    let norm = largest(&values).max(to_left.abs()).max(to_right.abs());
    Merge {
        values: &mut values,
        z,
        halves,
        row: Some(row),
        tolerance: tolerance::<T>(norm),
        wanted,
    }
    .run::<T, true>(
        &mut [Basis { cells: u, top: row + 1 }, Basis { cells: v, top: row + 1 }],
        stop,
    );
    Ok(values)
}

/// Scales to a norm of one, and drops what is nothing beside it and has a square that underflows.
fn scale_leaf(diagonal: &mut [f64], beside: &mut [f64]) -> f64 {
    let scale = scale_diagonals(diagonal, beside);
    let cells = diagonal.iter_mut().chain(beside);
    cells.filter(|x| x.abs() < TOLERANCE_MIN).for_each(|x| *x = 0.0);
    scale
}

/// Two diagonals as a matrix, wider than tall by one where the second is as long as the first.
fn bidiagonal(diagonal: &[f64], above: &[f64]) -> Mat<f64> {
    let mut cells = Mat::zeros(diagonal.len(), above.len() + 1);
    for (i, &x) in diagonal.iter().enumerate() {
        cells[(i, i)] = x;
    }
    for (i, &x) in above.iter().enumerate() {
        cells[(i, i + 1)] = x;
    }
    cells
}

fn narrow<T: Real>(mut to: MatMut<'_, T>, from: MatRef<'_, f64>) {
    for j in 0..from.ncols() {
        for i in 0..from.nrows() {
            to[(i, j)] = T::from_f64(from[(i, j)]);
        }
    }
}
