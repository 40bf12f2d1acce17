//! Dense products: `a·b`, `t(x)·y`, `x·t(y)` and `t(x)·x`.
//!
//! Those that end in `_into` take a block of rows, into memory of the caller; those in `_of` go by tiles where a factor or the
//! result has no room in memory.

use faer::Accum;
use rayon::prelude::*;

use super::super::dot::dots;
use super::super::gemm::{Grain, multiply, multiply_lower};
use super::super::{Real, Stop, dense, strassen, view, view_mut};
use super::reshape::transpose;
use super::tiles::{Factor, half_cross_by_tiles, needs_tiles, product_by_tiles};
use crate::matrix::{CellBuffer, Dense, Shape};

/// `a·b`.
///
/// - Work: 2·m·k·n flop for m×k by k×n. Memory: the result, and partial results no larger than it
///   for each task under way where k is the longest side by far.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product<T: Real>(a: &Dense<T>, b: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    if shape.rows < COLUMN_ROWS_MIN {
        let out = view_mut(&mut cells, shape);
        multiply(out, Accum::Replace, view(a), view(b), T::ONE, Grain::product(stop));
    } else {
        product_into(a, b, &mut cells, stop);
    }
    dense(shape, cells)
}

/// `a·b`, by tiles where they are needed.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product_of<T: Real>([a, b]: [Factor<'_, T>; 2], stop: Stop<'_>) -> Dense<T> {
    if needs_tiles([a.x, b.x], Shape::new(a.shape().rows, b.shape().columns)) {
        return product_by_tiles(a, b, |_| 0, stop);
    }
    match (a.is_transposed, b.is_transposed) {
        (false, false) => product(a.x, b.x, stop),
        (true, false) => cross(a.x, b.x, stop),
        (false, true) => outer(a.x, b.x, stop),
        (true, true) => transpose(&product(b.x, a.x, stop)),
    }
}

/// `a·b` by so many levels of Strassen's method; by [`product`] where a cell is not finite, for only the
/// definition says which others then are not.
///
/// - Work: that of [`product`] times (7/8)ˡ for l levels. Memory: the result, and a half of what both factors
///   take, about.
/// - Accuracy: norm-wise; [`strassen`] states the bound.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product_by_levels<T: Real>(
    a: &Dense<T>,
    b: &Dense<T>,
    levels: usize,
    stop: Stop<'_>,
) -> Dense<T> {
    assert_eq!(a.shape().columns, b.shape().rows, "inner sizes");
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    let mut cells = CellBuffer::zeroed(shape.cells());
    let (out, grain) = (view_mut(&mut cells, shape), Grain::product(stop));
    if strassen::multiply(out, view(a), view(b), levels, grain) || grain.is_stopped() {
        return dense(shape, cells);
    }
    drop(cells);
    product(a, b, stop)
}

/// `out = a·b` for a block of rows `a`; a wide one is shared with threads that have nothing to do.
///
/// # Panics
/// Where the inner sizes differ or `out` is not as long as the result.
pub fn product_into<T: Real>(a: &Dense<T>, b: &Dense<T>, out: &mut [T], stop: Stop<'_>) {
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    // However few rows a block has, for bits do not depend on where it ends.
    if shape.columns == 1 {
        return times_column(a, b, out, stop);
    }
    let out = view_mut(out, shape);
    multiply(out, Accum::Replace, view(a), view(b), T::ONE, Grain::product(stop));
}

/// Rows from which a whole product with one column is a sum for each of them, which reads the matrix once
/// and copies nothing; one of fewer rows is cut along their length.
const COLUMN_ROWS_MIN: usize = 32;

/// Cells of a task of such a product.
const COLUMN_CELLS: usize = 1 << 16;

/// `out = a·v` for one column `v`.
fn times_column<T: Real>(a: &Dense<T>, v: &Dense<T>, out: &mut [T], stop: Stop<'_>) {
    let (rows, inner) = (a.shape().rows, a.shape().columns);
    assert!(v.shape().rows == inner && out.len() == rows, "inner sizes");
    let height = (COLUMN_CELLS / inner.max(1)).max(1);
    out.par_chunks_mut(height).enumerate().for_each(|(part, out)| {
        if stop.is_asked() {
            return;
        }
        let first = part * height;
        let rows = (first..first + out.len()).map(|row| a.row(row));
        dots(rows, v.cells(), |at, sum| out[at] = sum);
    });
}

/// `t(x)·y`, without forming the transpose.
///
/// # Panics
/// Where the numbers of rows differ.
pub fn cross<T: Real>(x: &Dense<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().columns, y.shape().columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    let left = view(x).transpose();
    multiply(
        view_mut(&mut cells, shape),
        Accum::Replace,
        left,
        view(y),
        T::ONE,
        Grain::product(stop),
    );
    dense(shape, cells)
}

/// `x·t(y)`, without forming the transpose.
///
/// # Panics
/// Where the numbers of columns differ.
pub fn outer<T: Real>(x: &Dense<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().rows, y.shape().rows);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    outer_into(x, y, &mut cells, stop);
    dense(shape, cells)
}

/// `out = x·t(y)` for a block of rows `x`.
///
/// # Panics
/// Where the numbers of columns differ or `out` is not as long as the result.
pub fn outer_into<T: Real>(x: &Dense<T>, y: &Dense<T>, out: &mut [T], stop: Stop<'_>) {
    let shape = Shape::new(x.shape().rows, y.shape().rows);
    let (out, right) = (view_mut(out, shape), view(y).transpose());
    multiply(out, Accum::Replace, view(x), right, T::ONE, Grain::product(stop));
}

/// `sum += t(x)·y` for a block of the rows of both.
///
/// # Panics
/// Where the numbers of rows differ or `sum` is not as long as the result.
pub fn cross_into<T: Real>(x: &Dense<T>, y: &Dense<T>, sum: &mut [T], stop: Stop<'_>) {
    let shape = Shape::new(x.shape().columns, y.shape().columns);
    let (sum, left) = (view_mut(sum, shape), view(x).transpose());
    multiply(sum, Accum::Add, left, view(y), T::ONE, Grain::product(stop));
}

/// `t(x)·y` that is symmetric but for rounding, and exactly so here, by tiles where they are needed.
///
/// # Panics
/// Unless both have one shape.
pub fn half_cross_of<T: Real>([x, y]: [&Dense<T>; 2], stop: Stop<'_>) -> Dense<T> {
    let side = x.shape().columns;
    if needs_tiles([x, y], Shape::new(side, side)) {
        half_cross_by_tiles(x, y, stop)
    } else {
        half_cross(x, y, stop)
    }
}

/// `t(x)·x`, exactly symmetric, at half the work of [`cross`].
pub fn gram<T: Real>(x: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    half_cross(x, x, stop)
}

/// `t(x)·y` that is symmetric but for rounding, and exactly so here, at half the work of [`cross`].
///
/// # Panics
/// Unless both have one shape.
pub fn half_cross<T: Real>(x: &Dense<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let n = x.shape().columns;
    let mut cells = CellBuffer::zeroed(n * n);
    half_cross_into(x, y, &mut cells, stop);
    mirror(&mut cells, n);
    dense(Shape::new(n, n), cells)
}

/// Adds `t(x)·y` of a block of the rows of both to the lower triangle of `sum`.
///
/// The cells above the diagonal are left as they are; [`mirror`] fills them once all blocks are in.
///
/// # Panics
/// Unless both have one shape, and `sum` n·n cells for their n columns.
pub fn half_cross_into<T: Real>(x: &Dense<T>, y: &Dense<T>, sum: &mut [T], stop: Stop<'_>) {
    assert_eq!(x.shape(), y.shape(), "a symmetric product is of equally wide factors");
    let n = x.shape().columns;
    let sum = view_mut(sum, Shape::new(n, n));
    multiply_lower(sum, view(x).transpose(), view(y), T::ONE, Grain::product(stop));
}

/// Copies the lower triangle of an n×n matrix over its upper one.
///
/// # Panics
/// Unless there are n·n cells.
pub fn mirror<T: Real>(cells: &mut [T], n: usize) {
    assert_eq!(cells.len(), n * n, "a square matrix");
    const TILE: usize = 32;
    for top in (0..n).step_by(TILE) {
        for left in (0..=top).step_by(TILE) {
            for i in top..n.min(top + TILE) {
                for j in left..i.min(left + TILE) {
                    cells[j * n + i] = cells[i * n + j];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::*;

    const SIDES: [usize; 8] = [0, 1, 2, 3, 7, 16, 33, 100];

    fn products_match<T: Real>() {
        let mut rng = rng(1);
        for m in SIDES {
            for k in SIDES {
                for n in SIDES {
                    let (a, b) = (random::<T>(&mut rng, m, k), random::<T>(&mut rng, k, n));
                    let expected = naive_product(&a, &b);
                    assert_close(&product(&a, &b, Stop::NEVER), &expected, 100.0);
                    let mut out = vec![T::NAN; m * n];
                    product_into(&a, &b, &mut out, Stop::NEVER);
                    assert_close(&dense(Shape::new(m, n), out), &expected, 100.0);
                }
            }
        }
    }

    #[test]
    fn a_product_is_that_of_the_definition() {
        products_match::<f64>();
        products_match::<f32>();
    }

    fn crosses_match<T: Real>() {
        let mut rng = rng(2);
        for k in SIDES {
            for m in SIDES {
                let x = random::<T>(&mut rng, k, m);
                let expected = naive_product(&build(m, k, |i, j| x.row(j)[i]), &x);
                assert_close(&gram(&x, Stop::NEVER), &expected, 100.0);
                let y = random::<T>(&mut rng, k, 5);
                let expected = naive_product(&build(m, k, |i, j| x.row(j)[i]), &y);
                assert_close(&cross(&x, &y, Stop::NEVER), &expected, 100.0);
            }
        }
    }

    #[test]
    fn a_cross_product_needs_no_transpose() {
        crosses_match::<f64>();
        crosses_match::<f32>();
    }

    #[test]
    fn blocks_of_rows_add_up_to_the_whole() {
        let mut rng = rng(3);
        let (x, y) = (random::<f64>(&mut rng, 1000, 20), random::<f64>(&mut rng, 1000, 3));
        let (mut squares, mut crosses) = (vec![0.0; 400], vec![0.0; 60]);
        for start in (0..1000).step_by(300) {
            let rows = start..1000.min(start + 300);
            let block = x.rows(rows.clone());
            half_cross_into(&block, &block, &mut squares, Stop::NEVER);
            cross_into(&x.rows(rows.clone()), &y.rows(rows), &mut crosses, Stop::NEVER);
        }
        mirror(&mut squares, 20);
        assert_close(&dense(Shape::new(20, 20), squares), &gram(&x, Stop::NEVER), 1000.0);
        assert_close(&dense(Shape::new(20, 3), crosses), &cross(&x, &y, Stop::NEVER), 1000.0);
    }

    #[test]
    fn parts_of_a_large_product_fit_together() {
        let mut rng = rng(4);
        // Split by rows, by columns, into stretches, by depth, and as vectors.
        let shapes = [(900, 300, 600), (300, 300, 1900), (600, 4700, 530), (30, 200_000, 30)];
        for (m, k, n) in shapes.into_iter().chain([(1, 9000, 900)]) {
            let (a, b) = (random::<f32>(&mut rng, m, k), random::<f32>(&mut rng, k, n));
            let (found, expected) = (product(&a, &b, Stop::NEVER), naive_product(&a, &b));
            assert_close(&found, &expected, 20.0 * (k as f64).sqrt());
        }
    }

    #[test]
    fn a_gram_matrix_is_exactly_symmetric() {
        let mut rng = rng(5);
        for (k, n) in [(200_000, 30), (2300, 300), (700, 700), (3, 129)] {
            let x = random::<f64>(&mut rng, k, n);
            let (g, c) = (gram(&x, Stop::NEVER), cross(&x, &x, Stop::NEVER));
            assert_close(&g, &c, 20.0 * (k as f64).sqrt());
            assert!((0..n).all(|i| (0..n).all(|j| g.row(i)[j] == g.row(j)[i])));
            let weighted = build(k, n, |i, j| (i % 7) as f64 * x.row(i)[j]);
            let half = half_cross(&x, &weighted, Stop::NEVER);
            let whole = cross(&x, &weighted, Stop::NEVER);
            assert_close(&half, &whole, 100.0 * (k as f64).sqrt());
            assert!((0..n).all(|i| (0..n).all(|j| half.row(i)[j] == half.row(j)[i])));
        }
    }

    #[test]
    fn the_bits_of_a_product_do_not_depend_on_threads() {
        let mut rng = rng(6);
        for (m, k, n) in [(700, 500, 600), (40, 100_000, 40), (1, 100_000, 60), (9000, 900, 1)] {
            let (a, b) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, k, n));
            same_bits(|| product(&a, &b, Stop::NEVER).cells().to_vec());
        }
        for (k, n) in [(100_000, 60), (2300, 300), (800, 800)] {
            let x = random::<f64>(&mut rng, k, n);
            same_bits(|| gram(&x, Stop::NEVER).cells().to_vec());
        }
    }

    #[test]
    fn nan_and_infinity_pass_through_a_product() {
        let a = dense(Shape::new(1, 2), vec![0.0, 1.0]);
        let b = dense(Shape::new(2, 2), vec![f64::NAN, f64::INFINITY, 1.0, 1.0]);
        assert!(product(&a, &b, Stop::NEVER).cells().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn an_outer_product_is_that_with_the_transpose() {
        let mut rng = rng(9);
        for (m, n, k) in [(0, 3, 2), (3, 2, 1), (1, 5, 7), (40, 33, 0), (130, 70, 50)] {
            let (x, y) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, n, k));
            let turned = build(k, n, |i, j| y.row(j)[i]);
            assert_close(&outer(&x, &y, Stop::NEVER), &naive_product(&x, &turned), 1e3);
        }
    }

    #[test]
    fn a_product_that_is_asked_to_stop_is_left_undone() {
        let asked = std::sync::atomic::AtomicBool::new(true);
        let x = random::<f64>(&mut rng(9), 600, 600);
        let zero = |x: &Dense<f64>| x.cells().iter().all(|&x| x == 0.0);
        assert!(zero(&product(&x, &x, Stop::once(&asked))));
        assert!(zero(&gram(&x, Stop::once(&asked))));
        assert!(!zero(&product(&x, &x, Stop::NEVER)));
    }
}
