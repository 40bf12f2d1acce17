//! Rows and columns scaled to unit norm; dense and sparse.

use rayon::prelude::*;

use super::reduce::{Axis, Reduction, reduce};
use super::{Real, Stop, dense, sparse};
use crate::matrix::Storage;

/// Each row (or column) divided by its p-norm; those of zeros stay.
///
/// # Panics
/// For [`Axis::All`], which no function of the language asks for.
pub fn normalize<T: Real>(x: &Storage<T>, p: f64, axis: Axis) -> Storage<T> {
    assert!(axis != Axis::All, "rows or columns");
    let norms = reduce(x, Reduction::Norm(p), axis);
    let divide = |x: T, norm: T| if norm == T::ZERO { x } else { x / norm };
    match x {
        Storage::Csr(x) => Storage::Csr(sparse::zip_dense(x, &norms, divide, Stop::NEVER)),
        Storage::Dense(x) => {
            let (n, norms) = (x.shape().columns, norms.cells());
            let mut cells = x.cells().to_vec();
            let rows = cells.par_chunks_mut(n.max(1)).with_min_len((1 << 15) / n.max(1) + 1);
            rows.enumerate().for_each(|(i, row)| {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = divide(*x, norms[if axis == Axis::Rows { i } else { j }]);
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
