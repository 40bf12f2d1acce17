//! Products of two sparse matrices, row by row (Gustavson), with sparse results.
//!
//! A row of the result is scattered into one dense row of sums; which of them were touched is kept as
//! bits under a summary of bits, which gives the columns in order without sorting.

use super::super::{Real, Stop};
use super::rows::{Rows, all_finite, by_rows_until, stored_values};
use super::transpose;
use crate::matrix::{Csr, Shape};

/// `a·b`.
///
/// - Work: 2 flop for each pair of stored cells that meet. Memory: besides the result, 8⅛ or so bytes
///   for each column of `b` and thread.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product<T: Real>(a: &Csr<T>, b: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    assert_eq!(a.shape().columns, b.shape().rows, "inner sizes");
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    let mean = b.stored() / b.shape().rows.max(1) + 1;
    let work = a.stored().saturating_mul(mean);
    if all_finite(stored_values(a)) && all_finite(stored_values(b)) {
        return by_rows_until(
            shape,
            work,
            || Sums::new(shape.columns),
            stop,
            |sums, i, rows| {
                let (columns, values) = a.row(i);
                for (&k, &x) in columns.iter().zip(values) {
                    let (columns, values) = b.row(k as usize);
                    for (&j, &y) in columns.iter().zip(values) {
                        sums.add(j, x * y);
                    }
                }
                sums.take(rows);
            },
        );
    }
    let poison = columns_of_non_finite(b);
    by_rows_until(
        shape,
        work,
        || vec![T::ZERO; shape.columns],
        stop,
        |sums, i, rows| {
            spoiled_row(a.row(i), b, &poison, sums);
            for (j, &sum) in sums.iter().enumerate() {
                rows.push(j as u32, sum);
            }
        },
    )
}

/// `t(x)·x`.
pub fn gram<T: Real>(x: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    product(&transpose(x), x, stop)
}

/// One row of a product in which `NaN` or infinities are stored: every cell in full.
fn spoiled_row<T: Real>(
    (columns, values): (&[u32], &[T]),
    b: &Csr<T>,
    poison: &[(u32, u32)],
    sums: &mut [T],
) {
    sums.fill(T::ZERO);
    for (&k, &x) in columns.iter().zip(values) {
        let (columns, values) = b.row(k as usize);
        for (&j, &y) in columns.iter().zip(values) {
            sums[j as usize] += x * y;
        }
        if !x.is_finite() {
            let mut stored = columns.iter().peekable();
            for (j, sum) in sums.iter_mut().enumerate() {
                if stored.next_if(|column| **column as usize == j).is_none() {
                    *sum = T::NAN;
                }
            }
        }
    }
    for (k, j) in poison {
        if columns.binary_search(k).is_err() {
            sums[*j as usize] = T::NAN;
        }
    }
}

/// Row and column of the stored cells that are not finite.
fn columns_of_non_finite<T: Real>(x: &Csr<T>) -> Vec<(u32, u32)> {
    let of_row = |i: usize| {
        let (columns, values) = x.row(i);
        let bad = columns.iter().zip(values).filter(|(_, x)| !x.is_finite());
        bad.map(move |(&j, _)| (i as u32, j))
    };
    (0..x.shape().rows).flat_map(of_row).collect()
}

/// A dense row of sums, and which of them were touched.
struct Sums<T> {
    values: Vec<T>,
    /// Bit `j` of these: column `j` was touched.
    touched: Vec<u64>,
    /// Bit `w` of these: word `w` of `touched` is not zero.
    summary: Vec<u64>,
}

impl<T: Real> Sums<T> {
    fn new(columns: usize) -> Self {
        let words = columns.div_ceil(64);
        let (touched, summary) = (vec![0; words], vec![0; words.div_ceil(64)]);
        Self { values: vec![T::ZERO; columns], touched, summary }
    }

    #[inline]
    fn add(&mut self, column: u32, value: T) {
        let (j, word) = (column as usize, column as usize / 64);
        let bit = 1 << (column % 64);
        if self.touched[word] & bit == 0 {
            self.touched[word] |= bit;
            self.summary[word / 64] |= 1 << (word % 64);
            self.values[j] = value;
        } else {
            self.values[j] += value;
        }
    }

    /// Writes the sums by column and forgets them.
    fn take(&mut self, rows: &mut Rows<T>) {
        for (at, summary) in self.summary.iter_mut().enumerate() {
            while *summary != 0 {
                let word = at * 64 + summary.trailing_zeros() as usize;
                *summary &= *summary - 1;
                let mut touched = std::mem::take(&mut self.touched[word]);
                while touched != 0 {
                    let j = word * 64 + touched.trailing_zeros() as usize;
                    touched &= touched - 1;
                    rows.push(j as u32, self.values[j]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::{from_dense, map, to_dense};
    use super::*;

    #[test]
    fn a_sparse_product_is_that_of_the_definition() {
        let mut rng = rng(1);
        for (m, k, n) in
            [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (40, 30, 50), (300, 200, 9000)]
        {
            let a = random_sparse::<f64>(&mut rng, m, k, 0.1);
            let b = random_sparse::<f64>(&mut rng, k, n, 0.1);
            let expected = naive_product(&to_dense(&a), &to_dense(&b));
            assert_close(&to_dense(&product(&a, &b, Stop::NEVER)), &expected, 1e3);
            let (x, a32) = (to_dense(&a), random_sparse::<f32>(&mut rng, m, k, 0.1));
            let t = build(k, m, |i, j| x.row(j)[i]);
            assert_close(&to_dense(&gram(&a, Stop::NEVER)), &naive_product(&t, &x), 1e3);
            let cube = product(&a32, &gram(&a32, Stop::NEVER), Stop::NEVER);
            let d = to_dense(&a32);
            let t = build(k, m, |i, j| d.row(j)[i]);
            assert_close(&to_dense(&cube), &naive_product(&d, &naive_product(&t, &d)), 1e4);
        }
    }

    #[test]
    fn stored_nan_and_infinity_meet_the_cells_that_are_not_stored() {
        let mut rng = rng(2);
        for poison in [f64::NAN, f64::INFINITY] {
            let spoil = |x: &Csr<f64>| map(x, |x| if x > 0.9 { poison } else { x });
            let a = random_sparse::<f64>(&mut rng, 30, 20, 0.2);
            let b = random_sparse::<f64>(&mut rng, 20, 25, 0.2);
            for (a, b) in [(spoil(&a), b.clone()), (a.clone(), spoil(&b)), (spoil(&a), spoil(&b))] {
                let expected = naive_product(&to_dense(&a), &to_dense(&b));
                assert_close(&to_dense(&product(&a, &b, Stop::NEVER)), &expected, 1e3);
            }
        }
    }

    #[test]
    fn cells_that_cancel_are_not_stored() {
        let a = from_dense(&build(1, 2, |_, j| if j == 0 { 1.0 } else { -1.0 }));
        let b = from_dense(&build(2, 1, |_, _| 1.0));
        assert_eq!(product(&a, &b, Stop::NEVER).stored(), 0);
    }

    #[test]
    fn the_bits_of_a_sparse_product_do_not_depend_on_threads() {
        let mut rng = rng(3);
        let a = random_sparse::<f64>(&mut rng, 3000, 400, 0.05);
        let b = random_sparse::<f64>(&mut rng, 400, 3000, 0.05);
        same_bits(|| stored_values(&product(&a, &b, Stop::NEVER)).to_vec());
        same_bits(|| stored_values(&gram(&a, Stop::NEVER)).to_vec());
    }
}
