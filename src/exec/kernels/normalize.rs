//! Rows and columns scaled to unit norm; dense and sparse.

use std::ops::Range;

use rayon::prelude::*;

use super::reduce::{Axis, Reduction, reduce};
use super::{Real, Stop, dense, sparse};
use crate::matrix::{Dense, Storage};

/// Sums of powers within this range have lost nothing to either end of it.
const SAFE: Range<f64> = 1e-280..1e300;

/// Each row (or column) divided by its p-norm; those of zeros stay. Where powers leave the range of numbers, or its small
/// end, its cells are divided by the largest of them before.
///
/// # Panics
/// For [`Axis::All`], which no function of the language asks for.
pub fn normalize<T: Real>(x: &Storage<T>, p: f64, axis: Axis) -> Storage<T> {
    assert!(axis != Axis::All, "rows or columns");
    let norms = reduce(x, Reduction::Norm(p), axis);
    let is_lost = |norm: T| match norm.to_f64() {
        norm if p == 1.0 || p.is_infinite() => norm.is_infinite(),
        norm => !norm.is_nan() && !SAFE.contains(&norm.powf(p)),
    };
    if !norms.cells().iter().any(|&norm| is_lost(norm)) {
        return divided(x, &norms, axis);
    }
    let largest = reduce(x, Reduction::Norm(f64::INFINITY), axis);
    let scale = |(&norm, &largest): (&T, &T)| match is_lost(norm) && largest.to_f64().is_finite() {
        true => largest,
        false => T::ONE,
    };
    let scales: Vec<T> = norms.cells().iter().zip(largest.cells()).map(scale).collect();
    let x = divided(x, &Dense::new(norms.shape(), scales.into()), axis);
    let norms = reduce(&x, Reduction::Norm(p), axis);
    divided(&x, &norms, axis)
}

/// Each row (or column) divided by its number, if that is not 0.
fn divided<T: Real>(x: &Storage<T>, by: &Dense<T>, axis: Axis) -> Storage<T> {
    let divide = |x: T, by: T| if by == T::ZERO { x } else { x / by };
    match x {
        Storage::Csr(x) => Storage::Csr(sparse::zip_dense(x, by, divide, Stop::NEVER)),
        Storage::Dense(x) => {
            let (n, by) = (x.shape().columns, by.cells());
            let mut cells = x.cells().to_vec();
            let rows = cells.par_chunks_mut(n.max(1)).with_min_len((1 << 15) / n.max(1) + 1);
            rows.enumerate().for_each(|(i, row)| {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = divide(*x, by[if axis == Axis::Rows { i } else { j }]);
                }
            });
            Storage::Dense(dense(x.shape(), cells))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::matrix::{Dense, Shape};

    /// Both layouts, as dense.
    fn normalized(x: &Dense<f64>, p: f64, axis: Axis) -> Dense<f64> {
        let Storage::Dense(found) = normalize(&Storage::Dense(x.clone()), p, axis) else {
            panic!("dense stays dense")
        };
        let Storage::Csr(sparse) = normalize(&Storage::Csr(sparse::from_dense(x)), p, axis) else {
            panic!("sparse stays sparse")
        };
        assert_close(&sparse::to_dense(&sparse), &found, 4.0);
        found
    }

    #[test]
    fn normalized_rows_and_columns_have_unit_norm() {
        let x = dense(Shape::new(3, 2), vec![3.0, 4.0, 0.0, 0.0, 0.0, -2.0]);
        let rows = normalized(&x, 2.0, Axis::Rows);
        assert_eq!(rows.cells(), [0.6, 0.8, 0.0, 0.0, 0.0, -1.0]);
        let rows = normalized(&x, 1.0, Axis::Rows);
        assert_eq!(rows.cells()[..2], [3.0 / 7.0, 4.0 / 7.0]);
        let columns = normalized(&x, f64::INFINITY, Axis::Columns);
        assert_eq!(columns.cells(), [1.0, 1.0, 0.0, 0.0, 0.0, -0.5]);
    }

    #[test]
    fn the_least_and_the_greatest_cells_have_a_norm_too() {
        let shape = Shape::new(5, 2);
        let cells = vec![3e-200, 4e-200, 1e200, 1e200, 0.0, 0.0, 3.0, 4.0, 1e-320, 0.0];
        let rows = normalized(&dense(shape, cells), 2.0, Axis::Rows);
        let half = 0.5f64.sqrt();
        let expected = [0.6, 0.8, half, half, 0.0, 0.0, 0.6, 0.8, 1.0, 0.0];
        assert_close(&rows, &dense(shape, expected.to_vec()), 4.0);
        let columns = dense(Shape::new(2, 2), vec![1e-300, 1.7e308, 0.0, 1.7e308]);
        let columns = normalized(&columns, 1.0, Axis::Columns);
        assert_eq!(columns.cells(), [1.0, 0.5, 0.0, 0.5]);
    }

    #[test]
    fn a_nan_spoils_its_row_and_an_empty_matrix_nothing() {
        let x = dense(Shape::new(2, 2), vec![f64::NAN, 0.0, 0.0, 2.0]);
        let rows = normalized(&x, 2.0, Axis::Rows);
        assert!(rows.row(0).iter().all(|x| x.is_nan()));
        assert_eq!(rows.row(1), [0.0, 1.0]);
        for shape in [Shape::new(0, 3), Shape::new(3, 0)] {
            let x = dense(shape, vec![]);
            assert_eq!(normalized(&x, 2.0, Axis::Rows).shape(), shape);
            assert_eq!(normalized(&x, 2.0, Axis::Columns).shape(), shape);
        }
    }
}
