//! Products of a sparse and a dense matrix: `s·d`, `d·s` and `t(s)·d`; the results are dense.
//!
//! Each row of `s·d` is a sum of rows of `d`, so rows are cut by stored cells and nothing is added
//! across a cut. `t(s)·d` and a thin `d·s` scatter: blocks of rows add into results of their own where
//! those are small beside the blocks, else the transpose of `s` is formed first.

use super::super::{Real, Stop, add_into, dense, fold_blocks};
use super::rows::{all_finite, fill_rows};
use super::transpose;
use crate::matrix::{CellBuffer, Csr, Dense, Shape};

/// The cells of a dense right factor that are not finite, by column: where a row of the left factor
/// does not store their row, the formula has `0 * NaN` or `0 * inf`.
#[derive(Debug, Clone)]
pub struct NonFinite {
    /// A column, and the rows of its cells that are not finite, ascending.
    columns: Vec<(usize, Vec<u32>)>,
}

impl NonFinite {
    /// Finds them; usually there are none.
    pub fn of<T: Real>(y: &Dense<T>) -> Self {
        if all_finite(y.cells()) {
            return Self { columns: Vec::new() };
        }
        let rows = |j: usize| {
            (0..y.shape().rows).filter(|&i| !y.row(i)[j].is_finite()).map(|i| i as u32).collect()
        };
        let columns = (0..y.shape().columns).map(|j| (j, rows(j)));
        Self { columns: columns.filter(|(_, rows): &(_, Vec<u32>)| !rows.is_empty()).collect() }
    }

    /// Marks the cells of one row of the product, of a left row that stores `stored`.
    fn mark<T: Real>(&self, stored: &[u32], out: &mut [T]) {
        for (j, rows) in &self.columns {
            let met = |row: &u32| stored.binary_search(row).is_ok();
            if rows.len() > stored.len() || !rows.iter().all(met) {
                out[*j] = T::NAN;
            }
        }
    }
}

/// `x·y`.
///
/// - Work: 2·nnz·n flop for n columns of `y`.
///
/// # Panics
/// Where the inner sizes differ.
pub fn times_dense<T: Real>(x: &Csr<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().rows, y.shape().columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    let non_finite = NonFinite::of(y);
    fill_rows(x, shape.columns, &mut cells, stop, &|x, out| {
        times_dense_into(x, y, &non_finite, out)
    });
    dense(shape, cells)
}

/// `out = x·y` for a block of rows `x`, on the calling thread; `non_finite` is that of `y`.
///
/// # Panics
/// Where the inner sizes differ or `out` is not as long as the result.
pub fn times_dense_into<T: Real>(x: &Csr<T>, y: &Dense<T>, non_finite: &NonFinite, out: &mut [T]) {
    let n = y.shape().columns;
    assert!(x.shape().columns == y.shape().rows && out.len() == x.shape().rows * n, "inner sizes");
    for i in 0..x.shape().rows {
        let (columns, values) = x.row(i);
        let out = &mut out[i * n..(i + 1) * n];
        if let [out] = out {
            *out = gathered_dot(columns, values, y.cells());
        } else {
            out.fill(T::ZERO);
            for (&k, &x) in columns.iter().zip(values) {
                add_scaled(out, x, y.row(k as usize));
            }
        }
        non_finite.mark(columns, out);
    }
}

/// `x·y` of a dense and a sparse matrix.
///
/// # Panics
/// Where the inner sizes differ.
pub fn dense_times<T: Real>(x: &Dense<T>, y: &Csr<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().rows, y.shape().columns);
    let blocks = blocks(y);
    if shape.rows >= 8 || blocks == 1 {
        let leaf = |rows: std::ops::Range<usize>| {
            let mut out = vec![T::ZERO; rows.len() * shape.columns];
            if !stop.is_asked() {
                dense_times_into(&x.rows(rows), y, &mut out);
            }
            out
        };
        let join = |mut top: Vec<T>, bottom: Vec<T>| {
            top.extend_from_slice(&bottom);
            top
        };
        let grain = (1 << 16) / y.stored().max(1) + 1;
        let cells = fold_blocks(shape.rows, grain, &leaf, &join).unwrap_or_default();
        return dense(shape, cells);
    }
    let leaf = |inner: std::ops::Range<usize>| {
        let mut out = vec![T::ZERO; shape.cells()];
        let x = super::super::dense::slice_columns(x, inner.clone());
        dense_times_into(&x, &y.rows(inner), &mut out);
        out
    };
    let grain = y.shape().rows.div_ceil(blocks);
    dense(shape, fold_blocks(y.shape().rows, grain, &leaf, &sum).expect("there are blocks"))
}

/// `out += x·y` for a block of rows `x`, on the calling thread.
///
/// # Panics
/// Where the inner sizes differ or `out` is not as long as the result.
pub fn dense_times_into<T: Real>(x: &Dense<T>, y: &Csr<T>, out: &mut [T]) {
    let n = y.shape().columns;
    assert!(x.shape().columns == y.shape().rows && out.len() == x.shape().rows * n, "inner sizes");
    for i in 0..x.shape().rows {
        let out = &mut out[i * n..(i + 1) * n];
        for (k, &x) in x.row(i).iter().enumerate() {
            scatter(x, y.row(k), out, 1);
        }
    }
}

/// `t(x)·y`.
///
/// # Panics
/// Where the numbers of rows differ.
pub fn cross_dense<T: Real>(x: &Csr<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let blocks = blocks(x);
    if blocks == 1 && x.stored() > 1 << 16 {
        return times_dense(&transpose(x), y, stop);
    }
    let shape = Shape::new(x.shape().columns, y.shape().columns);
    let leaf = |rows: std::ops::Range<usize>| {
        let mut out = vec![T::ZERO; shape.cells()];
        if !stop.is_asked() {
            cross_dense_into(&x.rows(rows.clone()), &y.rows(rows), &mut out);
        }
        out
    };
    let grain = x.shape().rows.div_ceil(blocks).max(1);
    let cells = fold_blocks(x.shape().rows, grain, &leaf, &sum);
    dense(shape, cells.unwrap_or_else(|| vec![T::ZERO; shape.cells()]))
}

/// `out += t(x)·y` for a block of the rows of both, on the calling thread.
///
/// # Panics
/// Where the numbers of rows differ or `out` is not as long as the result.
pub fn cross_dense_into<T: Real>(x: &Csr<T>, y: &Dense<T>, out: &mut [T]) {
    let (m, n) = (x.shape().columns, y.shape().columns);
    assert!(x.shape().rows == y.shape().rows && out.len() == m * n, "equally many rows");
    let rows = if out.is_empty() { 0 } else { x.shape().rows };
    for i in 0..rows {
        let (row, right) = (x.row(i), y.row(i));
        if let [y] = right {
            scatter(*y, row, out, 1);
        } else if right.iter().all(|y| y.is_finite()) {
            for (&j, &x) in row.0.iter().zip(row.1) {
                add_scaled(&mut out[j as usize * n..][..n], x, right);
            }
        } else {
            for (j, &y) in right.iter().enumerate() {
                scatter(y, row, &mut out[j..], n);
            }
        }
    }
}

/// Adds `x` times a sparse row to cells that lie `stride` apart.
fn scatter<T: Real>(x: T, (columns, values): (&[u32], &[T]), out: &mut [T], stride: usize) {
    for (&j, &y) in columns.iter().zip(values) {
        out[j as usize * stride] += x * y;
    }
    if !x.is_finite() {
        let mut stored = columns.iter().peekable();
        for (j, out) in out.iter_mut().step_by(stride).enumerate() {
            if stored.next_if(|column| **column as usize == j).is_none() {
                *out = T::NAN;
            }
        }
    }
}

/// The sum of stored cells times those of a vector, in four lanes so that they need not wait.
fn gathered_dot<T: Real>(columns: &[u32], values: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; 4];
    let (columns, values) = (columns.chunks_exact(4), values.chunks_exact(4));
    let rest = columns.remainder().iter().zip(values.remainder());
    for (columns, values) in columns.zip(values) {
        for (lane, (&k, &x)) in lanes.iter_mut().zip(columns.iter().zip(values)) {
            *lane += x * y[k as usize];
        }
    }
    let [a, b, c, d] = lanes;
    rest.fold((a + b) + (c + d), |sum, (&k, &x)| sum + x * y[k as usize])
}

/// `out += a·row`.
fn add_scaled<T: Real>(out: &mut [T], a: T, row: &[T]) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out += a * x;
    }
}

/// Into how many blocks of rows a scattering product is cut: only where the columns are few beside
/// the stored cells is it worth a result for each.
fn blocks<T: Real>(x: &Csr<T>) -> usize {
    let per_column = x.stored() / x.shape().columns.max(1);
    if x.stored() < 1 << 16 { 1 } else { (per_column / 4).clamp(1, 16) }
}

fn sum<T: Real>(mut left: Vec<T>, right: Vec<T>) -> Vec<T> {
    add_into(&mut left, &right);
    left
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::to_dense;
    use super::*;

    const SHAPES: [(usize, usize, usize); 9] = [
        (0, 3, 2),
        (3, 0, 2),
        (3, 2, 0),
        (1, 1, 1),
        (40, 30, 1),
        (1, 30, 40),
        (300, 200, 7),
        (3000, 200, 3),
        (500, 3000, 1),
    ];

    fn transposed<T: Real>(x: &Dense<T>) -> Dense<T> {
        build(x.shape().columns, x.shape().rows, |i, j| x.row(j)[i])
    }

    fn products_match<T: Real>(poison: Option<f64>) {
        let mut rng = rng(1);
        for (m, k, n) in SHAPES {
            let s = random_sparse::<T>(&mut rng, m, k, 0.2);
            let spoil = |x: Dense<T>| {
                build(x.shape().rows, x.shape().columns, |i, j| match poison {
                    Some(poison) if (i * 7 + j * 3) % 29 == 0 => T::from_f64(poison),
                    _ => x.row(i)[j],
                })
            };
            let (right, left) = (spoil(random(&mut rng, k, n)), spoil(random(&mut rng, n, m)));
            let (tall, d) = (spoil(random(&mut rng, m, n)), to_dense(&s));
            assert_close(&times_dense(&s, &right, Stop::NEVER), &naive_product(&d, &right), 1e3);
            assert_close(&dense_times(&left, &s, Stop::NEVER), &naive_product(&left, &d), 1e3);
            assert_close(
                &cross_dense(&s, &tall, Stop::NEVER),
                &naive_product(&transposed(&d), &tall),
                1e3,
            );
        }
    }

    #[test]
    fn mixed_products_are_those_of_the_definition() {
        products_match::<f64>(None);
        products_match::<f32>(None);
    }

    #[test]
    fn cells_that_are_not_stored_meet_nan_and_infinity_too() {
        products_match::<f64>(Some(f64::NAN));
        products_match::<f64>(Some(f64::INFINITY));
    }

    #[test]
    fn the_bits_of_mixed_products_do_not_depend_on_threads() {
        let mut rng = rng(2);
        let s = random_sparse::<f64>(&mut rng, 20_000, 50, 0.3);
        let (x, y) = (random::<f64>(&mut rng, 50, 4), random::<f64>(&mut rng, 20_000, 3));
        let z = random::<f64>(&mut rng, 2, 20_000);
        same_bits(|| times_dense(&s, &x, Stop::NEVER).cells().to_vec());
        same_bits(|| cross_dense(&s, &y, Stop::NEVER).cells().to_vec());
        same_bits(|| dense_times(&z, &s, Stop::NEVER).cells().to_vec());
    }
}
