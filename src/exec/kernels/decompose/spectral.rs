//! Singular values and the eigenvalues of symmetric matrices, with their vectors.
//!
//! Both reduce to two diagonals by reflections and divide and conquer from there (faer). A matrix much
//! taller than wide goes through its R first.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §8.3 and §8.6.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::svd::{ComputeSvdVectors, svd as faer_svd, svd_scratch};
use faer::reborrow::Reborrow;
use faer::{Mat, MatMut};

use super::super::Real;
use super::{by_rows, copied, par, side};
use crate::error::{ErrorKind, Result};
use crate::matrix::Dense;

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

/// The `count` largest singular values of an m×n matrix with their vectors; min(m, n) if `None` or more.
///
/// All are computed, whatever `count` is.
///
/// - Errors: a cell that is not finite; no convergence, which has not been seen of finite cells.
pub fn svd<T: Real>(a: &Dense<T>, count: Option<usize>) -> Result<Svd<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    let (k, cells) = (m.min(n), copied("svd", a)?);
    let (mut u, mut s, mut v) = (Mat::zeros(m, k), Mat::zeros(k, 1), Mat::zeros(n, k));
    if k > 0 {
        let thin = ComputeSvdVectors::Thin;
        let par = par(a.shape());
        let scratch = svd_scratch::<T>(m, n, thin, thin, par, Default::default());
        faer_svd(
            cells.as_ref(),
            s.as_mut().col_mut(0).as_diagonal_mut(),
            Some(u.as_mut()),
            Some(v.as_mut()),
            par,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Default::default(),
        )
        .map_err(|_| ErrorKind::NotConverged {
            function: "svd",
            shape: a.shape(),
            hint: "",
        })?;
    }
    for (j, negative) in fix_signs(u.as_mut()).into_iter().enumerate() {
        if negative {
            v.col_mut(j).iter_mut().for_each(|x| *x = -*x);
        }
    }
    let count = count.map_or(k, |count| count.min(k));
    Ok(Svd {
        u: by_rows(u.subcols(0, count)),
        s: by_rows(s.subrows(0, count)),
        vt: by_rows(v.subcols(0, count).transpose()),
    })
}

/// The eigenvalues and vectors of a symmetric matrix: `a = vectors·diag(values)·t(vectors)`.
#[derive(Debug, Clone)]
pub struct Eigh<T: Real> {
    /// Ascending, as a column.
    pub values: Dense<T>,
    /// Orthonormal, as columns in the order of the values.
    pub vectors: Dense<T>,
}

/// The `count` largest eigenvalues of a symmetric matrix, still ascending, with their vectors; all if
/// `None` or more. Only the lower triangle is read, and all are computed, whatever `count` is.
///
/// - Errors: a cell that is not finite; no convergence, which has not been seen of finite cells.
///
/// # Panics
/// Unless `a` is square.
pub fn eigh<T: Real>(a: &Dense<T>, count: Option<usize>) -> Result<Eigh<T>> {
    let (n, cells) = (side(a), copied("eigh", a)?);
    let (mut values, mut vectors) = (Mat::zeros(n, 1), Mat::zeros(n, n));
    if n > 0 {
        let par = par(a.shape());
        let compute = ComputeEigenvectors::Yes;
        let scratch = self_adjoint_evd_scratch::<T>(n, compute, par, Default::default());
        self_adjoint_evd(
            cells.as_ref(),
            values.as_mut().col_mut(0).as_diagonal_mut(),
            Some(vectors.as_mut()),
            par,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Default::default(),
        )
        .map_err(|_| ErrorKind::NotConverged {
            function: "eigh",
            shape: a.shape(),
            hint: "",
        })?;
    }
    fix_signs(vectors.as_mut());
    let from = n - count.map_or(n, |count| count.min(n));
    Ok(Eigh {
        values: by_rows(values.subrows(from, n - from)),
        vectors: by_rows(vectors.subcols(from, n - from)),
    })
}

/// Makes the first entry of largest magnitude in each column positive; which columns were turned.
fn fix_signs<T: Real>(vectors: MatMut<'_, T>) -> Vec<bool> {
    let fix = |column: faer::ColMut<'_, T>| {
        let largest = column
            .rb()
            .iter()
            .fold(T::ZERO, |most, &x| if x.abs() > most.abs() { x } else { most });
        if largest < T::ZERO {
            column.iter_mut().for_each(|x| *x = -*x);
        }
        largest < T::ZERO
    };
    vectors.col_iter_mut().map(fix).collect()
}
