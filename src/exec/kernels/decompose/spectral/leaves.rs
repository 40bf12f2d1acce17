//! What is small enough for one piece: solved by faer, on the calling thread.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{
    ComputeEigenvectors, EvdError, self_adjoint_evd, self_adjoint_evd_scratch,
    tridiagonal_self_adjoint_evd,
};
use faer::linalg::svd::{ComputeSvdVectors, svd as faer_svd, svd_scratch};
use faer::{ColMut, ColRef, MatMut, MatRef, Par};

use super::super::super::Real;
use super::Unfinished;

/// The singular values, descending, with their vectors in `u` and `v`: as many as those have
/// columns.
pub(super) fn svd<T: Real>(
    a: MatRef<'_, T>,
    u: MatMut<'_, T>,
    v: MatMut<'_, T>,
) -> Result<Vec<T>, Unfinished> {
    let (m, n) = (a.nrows(), a.ncols());
    let mut values = vec![T::ZERO; m.min(n)];
    if values.is_empty() {
        return Ok(values);
    }
    let full = m < n && v.ncols() == n;
    let which = if full { ComputeSvdVectors::Full } else { ComputeSvdVectors::Thin };
    let scratch = svd_scratch::<T>(m, n, which, which, Par::Seq, Default::default());
    faer_svd(
        a,
        ColMut::from_slice_mut(&mut values).as_diagonal_mut(),
        Some(u),
        Some(v),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .map_err(|_| Unfinished::NotConverged)?;
    Ok(values)
}

/// The eigenvalues of a symmetric matrix, ascending, with their vectors in `q`.
pub(super) fn eigh<T: Real>(a: MatRef<'_, T>, q: MatMut<'_, T>) -> Result<Vec<T>, Unfinished> {
    let n = a.nrows();
    let mut values = vec![T::ZERO; n];
    if n == 0 {
        return Ok(values);
    }
    let yes = ComputeEigenvectors::Yes;
    let scratch = self_adjoint_evd_scratch::<T>(n, yes, Par::Seq, Default::default());
    let found = self_adjoint_evd(
        a,
        ColMut::from_slice_mut(&mut values).as_diagonal_mut(),
        Some(q),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    numbers(found, values)
}

/// The same of three diagonals, that below as long as the one in the middle.
pub(super) fn eigh_of_tridiagonal(
    diagonal: &[f64],
    below: &[f64],
    q: MatMut<'_, f64>,
) -> Result<Vec<f64>, Unfinished> {
    let n = diagonal.len();
    let mut values = vec![0.0; n];
    let yes = ComputeEigenvectors::Yes;
    // That of the whole problem, of which this is a part.
    let scratch = self_adjoint_evd_scratch::<f64>(n, yes, Par::Seq, Default::default());
    let found = tridiagonal_self_adjoint_evd(
        ColRef::from_slice(diagonal).as_diagonal(),
        ColRef::from_slice(below).as_diagonal(),
        ColMut::from_slice_mut(&mut values).as_diagonal_mut(),
        Some(q),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    );
    numbers(found, values)
}

/// Values that are numbers: where the diagonals hold none, faer may take them for zeros and for found, which depends on
/// how a processor compares.
fn numbers<T: Real>(found: Result<(), EvdError>, values: Vec<T>) -> Result<Vec<T>, Unfinished> {
    match found {
        Ok(()) if !values.iter().any(|value| value.is_nan()) => Ok(values),
        _ => Err(Unfinished::NotConverged),
    }
}
