//! What the singular values say of any matrix: its rank, and the inverse of what it does not lose.

use super::super::dense::{cross, transpose};
use super::super::{Real, Stop, dense};
use super::spectral::{Svd, count_above, svd};
use super::{check_finite, tall};
use crate::error::Result;
use crate::matrix::{Dense, Shape};

/// The pseudo-inverse of Moore and Penrose, n×m for m×n: `t(vt)·diag(1/s)·t(u)` over the singular values
/// that [`rank`] counts.
///
/// - Work: that of the singular value decomposition, and a product.
/// - Errors: a cell that is not finite.
pub fn pseudo_inverse<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    check_finite("pinv", a)?;
    let Svd { u, s, vt } = svd(a, None, stop)?;
    let count = significant(&s, a.shape());
    let columns = a.shape().columns;
    let scaled = (0..count).flat_map(|i| vt.row(i).iter().map(move |&x| (i, x)));
    let scaled: Vec<T> = scaled.map(|(i, x)| x / s.cells()[i]).collect();
    let scaled = dense(Shape::new(count, columns), scaled);
    Ok(cross(&scaled, &transpose(&u).rows(0..count), stop))
}

/// How many singular values are above the largest one times the unit of rounding times the longer side.
///
/// - Work: that of the reduction to two diagonals; no value is computed.
/// - Errors: a cell that is not finite.
pub fn rank<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let least = least::<T>(a.shape());
    let count = if tall::goes_by_blocks(a) {
        count_above("rank", &tall::triangle_beside("rank", a, None, stop)?, least, stop)?
    } else {
        count_above("rank", a, least, stop)?
    };
    Ok(dense(Shape::new(1, 1), vec![T::from_f64(count as f64)]))
}

fn significant<T: Real>(s: &Dense<T>, shape: Shape) -> usize {
    let largest = s.cells().first().copied().unwrap_or(T::ZERO);
    let bound = T::from_f64(least::<T>(shape)) * largest;
    s.cells().iter().take_while(|&&s| s > bound).count()
}

/// What a singular value must pass beside the largest one.
fn least<T: Real>(shape: Shape) -> f64 {
    shape.rows.max(shape.columns) as f64 * T::EPSILON.to_f64()
}
