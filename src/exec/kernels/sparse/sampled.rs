//! A product for the stored cells of a sparse matrix alone: the rest of it is never computed.

use super::super::dot::dots;
use super::super::{Real, Stop};
use super::rows::{by_rows, piece, stored_before};
use crate::matrix::{Csr, Dense};

/// `m·(a·t(b))`, cell by cell, where `m` stores one, and nothing elsewhere.
///
/// - Shapes: `m` m×n, `a` m×k, `b` n×k; the result m×n.
/// - Work: 2·nnz·k flop. Memory: that of the result.
///
/// # Panics
/// Where the shapes do not fit.
pub fn sampled<T: Real>(m: &Csr<T>, a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Csr<T> {
    let (shape, inner) = (m.shape(), a.shape().columns);
    assert!(
        a.shape().rows == shape.rows && b.shape().rows == shape.columns,
        "a row of each factor for each row and column"
    );
    assert_eq!(inner, b.shape().columns, "inner sizes");
    by_rows(
        shape,
        stored_before(m),
        || (),
        stop,
        |(), i, columns, rows| {
            let (columns, values) = piece(m, i, &columns);
            let factors = columns.iter().map(|&j| b.row(j as usize));
            dots(factors, a.row(i), |at, sum| rows.push(columns[at], values[at] * sum));
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::to_dense;
    use super::*;

    #[test]
    fn a_sampled_product_is_the_product_where_cells_are_stored() {
        let mut rng = rng(5);
        for (rows, columns, inner) in [(0, 3, 2), (1, 1, 1), (7, 5, 0), (40, 30, 8), (300, 200, 21)]
        {
            let m = random_sparse::<f64>(&mut rng, rows, columns, 0.2);
            let a = random::<f64>(&mut rng, rows, inner);
            let b = random::<f64>(&mut rng, columns, inner);
            let dense = to_dense(&m);
            let expected = build(rows, columns, |i, j| {
                let product: f64 = a.row(i).iter().zip(b.row(j)).map(|(a, b)| a * b).sum();
                dense.row(i)[j] * product
            });
            let found = sampled(&m, &a, &b, Stop::NEVER);
            assert_close(&to_dense(&found), &expected, 1e2);
            assert!(found.stored() <= m.stored());
        }
    }
}
