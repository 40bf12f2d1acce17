//! Factorizations of dense matrices, and what is computed through them.
//!
//! Enters: a matrix whose cells must be finite, else [`ErrorKind::Argument`]. LU, QR and Cholesky are
//! recursive and cut as products are; so is nearly all the work of the spectral decompositions. Their smallest
//! parts, and those of triangular systems, are faer's, on one thread: work is cut by shape alone here too. Tall
//! matrices that memory has no room for go by blocks of rows; the first few singular values come from products alone.
//!
//! Every sign that is free is fixed: the diagonal of an R is not negative, and the entry of largest
//! magnitude in each singular vector of U and each eigenvector is positive.

mod cholesky;
mod cholesky_tiles;
mod columns;
mod eigen;
mod exponential;
mod leading;
mod logarithm;
mod lu;
mod lu_tiles;
mod orthogonal;
mod pseudo;
mod reflections;
mod schur;
mod solve;
mod spectral;
mod substitution;
mod tall;
mod triangular;
mod work;

pub use cholesky::cholesky;
pub(crate) use eigen::arranged;
pub use eigen::{Eig, eig};
pub use exponential::exponential;
pub(crate) use exponential::{Steps, exponential_by};
pub use leading::{block_columns, leading, leading_flops, space_cells};
pub use logarithm::logarithm;
pub(crate) use lu::permuted;
pub use lu::{Lu, determinant, lu};
pub use orthogonal::{Qr, least_squares, qr};
pub use pseudo::{pseudo_inverse, rank};
pub(crate) use solve::reciprocal_condition_of;
pub use solve::{inverse, solve};
pub use spectral::{Eigh, Svd, eigh, svd, svd_cells, svd_flops};
pub use substitution::{determinant_of_triangle, inverse_of_triangle, solve_by_substitution};
pub use tall::is_tall;
pub use triangular::Triangle;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{ColMut, ColRef, Mat, MatMut, MatRef};
use rayon::prelude::*;

use super::{Real, Stop, dense, view};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{CellBuffer, Dense, Shape};

/// Why a decomposition has no result.
#[derive(Debug, Clone, Copy)]
enum Unfinished {
    Stopped,
    NotConverged,
}

impl Unfinished {
    fn check(stop: Stop<'_>) -> Result<(), Self> {
        if stop.is_asked() { Err(Self::Stopped) } else { Ok(()) }
    }

    fn error(self, function: &'static str, shape: Shape) -> Error {
        match self {
            Self::Stopped => ErrorKind::Cancelled.into(),
            Self::NotConverged => {
                let hint = "; with its rows and columns in another order it may";
                ErrorKind::NotConverged { function, shape, hint }.into()
            }
        }
    }
}

/// A copy by columns, as factorizations work in place; an error where a cell is not finite.
fn copied<T: Real>(function: &'static str, x: &Dense<T>) -> Result<Mat<T>> {
    check_finite(function, x)?;
    Ok(by_columns(view(x)))
}

fn check_finite<T: Real>(function: &'static str, x: &Dense<T>) -> Result<()> {
    if !x.cells().par_chunks(1 << 15).all(|cells| cells.iter().all(|x| x.is_finite())) {
        return Err(refuse_infinite(function, x.shape()));
    }
    Ok(())
}

fn refuse_infinite(function: &'static str, shape: Shape) -> Error {
    let message = format!("every cell of its {shape} argument must be finite");
    ErrorKind::Argument { function: function.into(), message }.into()
}

/// A copy by columns of cells that lie by rows, in tiles and in parallel.
fn by_columns<T: Real>(x: MatRef<'_, T>) -> Mat<T> {
    let mut copy = Mat::zeros(x.nrows(), x.ncols());
    fill(copy.as_mut(), x);
    copy
}

fn fill<T: Real>(mut to: faer::MatMut<'_, T>, from: MatRef<'_, T>) {
    const TILE: usize = 64;
    let (m, n) = (to.nrows(), to.ncols());
    if m * n > 1 << 16 && m.max(n) > TILE {
        if m >= n {
            let (top, bottom) = to.split_at_row_mut(m / 2);
            let (from_top, from_bottom) = from.split_at_row(m / 2);
            rayon::join(|| fill(top, from_top), || fill(bottom, from_bottom));
        } else {
            let (left, right) = to.split_at_col_mut(n / 2);
            let (from_left, from_right) = from.split_at_col(n / 2);
            rayon::join(|| fill(left, from_left), || fill(right, from_right));
        }
        return;
    }
    for left in (0..n).step_by(TILE) {
        for i in 0..m {
            for j in left..n.min(left + TILE) {
                to[(i, j)] = from[(i, j)];
            }
        }
    }
}

/// The cells by rows again.
fn by_rows<T: Real>(x: MatRef<'_, T>) -> Dense<T> {
    let shape = Shape::new(x.nrows(), x.ncols());
    let mut cells = CellBuffer::arbitrary(shape.cells());
    fill(super::view_mut(&mut cells, shape).transpose_mut(), x.transpose());
    dense(shape, cells)
}

/// Divides by a power of two, which rounds nothing, so that the largest cell is near one: its
/// square and those of all that matter beside it are then far from both ends of the range. Gives
/// the power.
fn scale_to_one<T: Real>(mut x: MatMut<'_, T>) -> T {
    let largest =
        |column: ColRef<'_, T>| column.iter().fold(0.0, |most, x| x.to_f64().abs().max(most));
    let most = x.rb().par_col_iter().map(largest).reduce(|| 0.0, f64::max);
    // That of the inverse is in the range too.
    let limit = if T::EPSILON.to_f64() == f64::EPSILON { 1000.0 } else { 120.0 };
    let exponent = if most > 0.0 { most.log2().floor().clamp(-limit, limit) } else { 0.0 };
    let inverse = T::from_f64((-exponent).exp2());
    if inverse != T::ONE {
        let scale = |column: ColMut<'_, T>| column.iter_mut().for_each(|x| *x *= inverse);
        x.rb_mut().par_col_iter_mut().for_each(scale);
    }
    T::from_f64(exponent.exp2())
}

fn negate<T: Real>(column: ColMut<'_, T>) {
    column.iter_mut().for_each(|x| *x = -*x);
}

/// The largest sum of absolute values down a column.
fn norm_1<T: Real>(x: MatRef<'_, T>) -> T {
    let sum = |j: usize| x.col(j).iter().fold(T::ZERO, |sum, &x| sum + x.abs());
    (0..x.ncols()).map(sum).fold(T::ZERO, |norm, sum| if sum > norm { sum } else { norm })
}

/// The same of a matrix that lies by rows, some of which are added up at a time.
fn norm_1_by_rows<T: Real>(x: &Dense<T>) -> T {
    let Shape { rows, columns } = x.shape();
    let rows_at_once = (1 << 16) / columns.max(1) + 1;
    let sums_of = |rows: std::ops::Range<usize>| {
        let mut sums = vec![T::ZERO; columns];
        for row in rows {
            sums.iter_mut().zip(x.row(row)).for_each(|(sum, &x)| *sum += x.abs());
        }
        sums
    };
    let merge = |mut one: Vec<T>, other: Vec<T>| {
        super::add_into(&mut one, &other);
        one
    };
    let sums = super::fold_blocks(rows, rows_at_once, &sums_of, &merge).unwrap_or_default();
    sums.into_iter().fold(T::ZERO, |norm, sum| if sum > norm { sum } else { norm })
}

/// Asserts a square matrix and gives its side.
fn side<T: Real>(a: &Dense<T>) -> usize {
    let shape = a.shape();
    assert_eq!(shape.rows, shape.columns, "the planner lets square matrices through only");
    shape.rows
}

#[cfg(test)]
mod tests;
