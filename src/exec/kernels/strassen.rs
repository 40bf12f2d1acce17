//! Products with fewer multiplications: seven products of half the side instead of eight, one or more levels deep.
//!
//! Winograd's form of Strassen's method, in the order that keeps the sums of quadrants in two places and the rest
//! in the result. The innermost products are those of [`gemm`](super::gemm), one after another, each on all threads;
//! sums of quadrants are bound by memory, so each is one loop. Odd sides are peeled: the last row, column or term of
//! each sum is added classically. All cuts follow from the shape, so the bits do.
//!
//! ```text
//! x = a11 - a21    y = b22 - b12    c21 = x·y            p7
//! x = a21 + a22    y = b12 - b11    c22 = x·y            p5
//! x = x - a11      y = b22 - y      c12 = x·y            p6
//!                                   c11 = a11·b11        p1
//! u2 = c11 + c12   u3 = u2 + c21    c12 = u2 + c22   c21 = u3   c22 = u3 + c22
//! x = a12 - x                       c12 += x·b22         p3
//!                  y = b21 - y      c21 += a22·y         -p4
//!                                   c11 += a12·b21       p2
//! ```
//!
//! A product that is added to what is there has a third place for the sums of products:
//!
//! ```text
//! x = a21 + a22    y = b12 - b11    z = x·y              p5      c12 += z   c22 += z
//!                                   z = a11·b11          p1      c11 += z
//! x = x - a11      y = b22 - y      z += x·y             p6      c12 += z
//!                                   c11 += a12·b21       p2
//! x = a12 - x                       c12 += x·b22         p3
//!                  y = b21 - y      c21 += a22·y         -p4
//! x = a11 - a21    y = b22 - b12    z += x·y             p7      c21 += z   c22 += z
//! ```
//!
//! Error: with l levels over an inner side k that halves evenly, k₀ = k / 2ˡ, and |·| the largest cell by magnitude,
//! to first order
//! `|c - ĉ| ≤ (18ˡ·(k₀² + 6·k₀) - 6·k)·u·|a|·|b|`. It holds for the largest cell, not for each: where rows of `a` or
//! columns of `b` differ much in size, small cells of the result have fewer digits than a classical product
//! gives them. Source: Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §23.2.2; the order of steps
//! after Boyer, Dumas, Pernet and Zhou, *Memory efficient scheduling of Strassen-Winograd's matrix multiplication
//! algorithm*, ISSAC 2009, tables 1 and 2, with sums into the result left to gemm.

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef};

use super::Real;
use super::arch::Arch;
use super::gemm::{self, Grain};
use crate::matrix::CellBuffer;

/// Cells that one task of a sum of quadrants writes.
const TASK_CELLS: usize = 1 << 16;

/// Cells of working memory for a product of m×k by k×n.
pub fn spare_cells(sides: [usize; 3], levels: usize) -> usize {
    if levels == 0 {
        return 0;
    }
    let half @ [m, k, n] = sides.map(|side| side / 2);
    let sums = m.saturating_mul(k).saturating_add(k.saturating_mul(n));
    sums.saturating_add(spare_cells_to_add(half, levels - 1))
}

/// The same for one that is added to what is there.
pub(super) fn spare_cells_to_add(sides: [usize; 3], levels: usize) -> usize {
    if levels == 0 {
        return 0;
    }
    let half @ [m, k, n] = sides.map(|side| side / 2);
    let sums = m.saturating_mul(k).saturating_add(k.saturating_mul(n));
    let products = sums.saturating_add(m.saturating_mul(n));
    products.saturating_add(spare_cells_to_add(half, levels - 1))
}

/// `c = a·b`, all stored by rows; whether every cell is finite.
///
/// Infinite and `NaN` cells spread further than a product by its definition spreads them: where there is one, in
/// the result or on the way, the result means nothing. So it does once it is asked to stop.
pub(super) fn multiply<T: Real>(
    mut c: MatMut<'_, T>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    levels: usize,
    grain: Grain<'_>,
) -> bool {
    let mut spare = CellBuffer::zeroed(spare_cells([a.nrows(), a.ncols(), b.ncols()], levels));
    let levels = Levels { left: levels, grain };
    levels.product(c.rb_mut(), Accum::Replace, a, b, &mut spare) && is_finite(c.rb())
}

/// `c = a·b` or `c += a·b`, as [`multiply`], in working memory of the caller: [`spare_cells_to_add`].
pub(super) fn accumulate<T: Real>(
    mut c: MatMut<'_, T>,
    accum: Accum,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    levels: usize,
    spare: &mut [T],
    grain: Grain<'_>,
) -> bool {
    let levels = Levels { left: levels, grain };
    levels.product(c.rb_mut(), accum, a, b, spare) && is_finite(c.rb())
}

/// What products are made by.
#[derive(Clone, Copy)]
struct Levels<'a> {
    /// How often quadrants are cut into quadrants.
    left: usize,
    grain: Grain<'a>,
}

impl Levels<'_> {
    /// `c = a·b` or `c += a·b`; false where it cannot be finite, or nobody wants it any more.
    fn product<T: Real>(
        self,
        c: MatMut<'_, T>,
        accum: Accum,
        a: MatRef<'_, T>,
        b: MatRef<'_, T>,
        spare: &mut [T],
    ) -> bool {
        let (m, k, n) = (c.nrows() / 2 * 2, a.ncols() / 2 * 2, c.ncols() / 2 * 2);
        let grain = self.grain;
        if self.left == 0 || m.min(k).min(n) == 0 {
            gemm::multiply(c, accum, a, b, T::ONE, grain);
            return !grain.is_stopped();
        }
        let ((above, below), (left, right)) = (a.split_at_row(m), b.split_at_col(n));
        let ((above_even, above_last), (left_even, left_last)) =
            (above.split_at_col(k), left.split_at_row(k));
        let (mut even, last_column, last_row, corner) = c.split_at_mut(m, n);
        let is_made = match accum {
            Accum::Replace => self.quadrants(even.rb_mut(), above_even, left_even, spare),
            Accum::Add => self.added_quadrants(even.rb_mut(), above_even, left_even, spare),
        };
        if !is_made {
            return false;
        }
        let peel = |c, accum, a, b| gemm::multiply(c, accum, a, b, T::ONE, grain);
        if above_last.ncols() > 0 {
            peel(even, Accum::Add, above_last, left_last);
        }
        peel(last_column, accum, above, right);
        peel(last_row, accum, below, left);
        peel(corner, accum, below, right);
        !grain.is_stopped()
    }

    /// `c = a·b` for even sides.
    fn quadrants<T: Real>(
        self,
        c: MatMut<'_, T>,
        a: MatRef<'_, T>,
        b: MatRef<'_, T>,
        spare: &mut [T],
    ) -> bool {
        let (m, k, n) = (c.nrows() / 2, a.ncols() / 2, c.ncols() / 2);
        let (mut c11, mut c12, mut c21, mut c22) = c.split_at_mut(m, n);
        let ((a11, a12, a21, a22), (b11, b12, b21, b22)) = (a.split_at(m, k), b.split_at(k, n));
        let (x, spare) = spare.split_at_mut(m * k);
        let (y, spare) = spare.split_at_mut(k * n);
        let mut x = MatMut::from_row_major_slice_mut(x, m, k);
        let mut y = MatMut::from_row_major_slice_mut(y, k, n);
        let inner = Self { left: self.left - 1, ..self };
        let (replace, add) = (Accum::Replace, Accum::Add);

        write(x.rb_mut(), a11, a21, |a11, a21| a11 - a21)
            && write(y.rb_mut(), b22, b12, |b22, b12| b22 - b12)
            && inner.product(c21.rb_mut(), replace, x.rb(), y.rb(), spare)
            && write(x.rb_mut(), a21, a22, |a21, a22| a21 + a22)
            && write(y.rb_mut(), b12, b11, |b12, b11| b12 - b11)
            && inner.product(c22.rb_mut(), replace, x.rb(), y.rb(), spare)
            && update(x.rb_mut(), a11, |x, a11| x - a11)
            && update(y.rb_mut(), b22, |y, b22| b22 - y)
            && inner.product(c12.rb_mut(), replace, x.rb(), y.rb(), spare)
            && inner.product(c11.rb_mut(), replace, a11, b11, spare)
            && join(c11.rb(), c12.rb_mut(), c21.rb_mut(), c22)
            && update(x.rb_mut(), a12, |x, a12| a12 - x)
            && inner.product(c12, add, x.rb(), b22, spare)
            && update(y.rb_mut(), b21, |y, b21| b21 - y)
            && inner.product(c21, add, a22, y.rb(), spare)
            && inner.product(c11, add, a12, b21, spare)
    }

    /// `c += a·b` for even sides.
    fn added_quadrants<T: Real>(
        self,
        c: MatMut<'_, T>,
        a: MatRef<'_, T>,
        b: MatRef<'_, T>,
        spare: &mut [T],
    ) -> bool {
        let (m, k, n) = (c.nrows() / 2, a.ncols() / 2, c.ncols() / 2);
        let (mut c11, mut c12, mut c21, mut c22) = c.split_at_mut(m, n);
        let ((a11, a12, a21, a22), (b11, b12, b21, b22)) = (a.split_at(m, k), b.split_at(k, n));
        let (x, spare) = spare.split_at_mut(m * k);
        let (y, spare) = spare.split_at_mut(k * n);
        let (z, spare) = spare.split_at_mut(m * n);
        let mut x = MatMut::from_row_major_slice_mut(x, m, k);
        let mut y = MatMut::from_row_major_slice_mut(y, k, n);
        let mut z = MatMut::from_row_major_slice_mut(z, m, n);
        let inner = Self { left: self.left - 1, ..self };
        let (replace, add) = (Accum::Replace, Accum::Add);

        write(x.rb_mut(), a21, a22, |a21, a22| a21 + a22)
            && write(y.rb_mut(), b12, b11, |b12, b11| b12 - b11)
            && inner.product(z.rb_mut(), replace, x.rb(), y.rb(), spare)
            && add_to_both(c12.rb_mut(), c22.rb_mut(), z.rb())
            && inner.product(z.rb_mut(), replace, a11, b11, spare)
            && update(c11.rb_mut(), z.rb(), |c11, z| c11 + z)
            && update(x.rb_mut(), a11, |x, a11| x - a11)
            && update(y.rb_mut(), b22, |y, b22| b22 - y)
            && inner.product(z.rb_mut(), add, x.rb(), y.rb(), spare)
            && update(c12.rb_mut(), z.rb(), |c12, z| c12 + z)
            && inner.product(c11, add, a12, b21, spare)
            && update(x.rb_mut(), a12, |x, a12| a12 - x)
            && inner.product(c12, add, x.rb(), b22, spare)
            && update(y.rb_mut(), b21, |y, b21| b21 - y)
            && inner.product(c21.rb_mut(), add, a22, y.rb(), spare)
            && write(x.rb_mut(), a11, a21, |a11, a21| a11 - a21)
            && write(y.rb_mut(), b22, b12, |b22, b12| b22 - b12)
            && inner.product(z.rb_mut(), add, x.rb(), y.rb(), spare)
            && add_to_both(c21, c22, z.rb())
    }
}

/// A row of a matrix that is stored by rows.
fn row<T>(x: MatRef<'_, T>, i: usize) -> &[T] {
    x.row(i).try_as_row_major().expect("rows lie in one piece").as_slice()
}

fn row_mut<T>(x: MatMut<'_, T>, i: usize) -> &mut [T] {
    x.row_mut(i).try_as_row_major_mut().expect("rows lie in one piece").as_slice_mut()
}

/// The row at which work of so many cells in a row is halved; none where it is one task.
fn cut(rows: usize, columns: usize) -> Option<usize> {
    (rows > 1 && rows * columns > TASK_CELLS).then_some(rows / 2)
}

/// `out = f(a, b)` cell by cell; whether all of it is finite.
fn write<T: Real>(
    mut out: MatMut<'_, T>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    f: impl Fn(T, T) -> T + Copy + Sync,
) -> bool {
    if let Some(cut) = cut(out.nrows(), out.ncols()) {
        let (top, bottom) = out.split_at_row_mut(cut);
        let ((a_top, a_bottom), (b_top, b_bottom)) = (a.split_at_row(cut), b.split_at_row(cut));
        let halves =
            rayon::join(|| write(top, a_top, b_top, f), || write(bottom, a_bottom, b_bottom, f));
        return halves.0 & halves.1;
    }
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut is_finite = true;
            for i in 0..out.nrows() {
                let inputs = row(a, i).iter().zip(row(b, i));
                for (out, (&a, &b)) in row_mut(out.rb_mut(), i).iter_mut().zip(inputs) {
                    *out = f(a, b);
                    is_finite &= Real::is_finite(*out);
                }
            }
            is_finite
        },
    )
}

/// `out = f(out, a)` cell by cell; whether all of it is finite.
fn update<T: Real>(
    mut out: MatMut<'_, T>,
    a: MatRef<'_, T>,
    f: impl Fn(T, T) -> T + Copy + Sync,
) -> bool {
    if let Some(cut) = cut(out.nrows(), out.ncols()) {
        let ((top, bottom), (a_top, a_bottom)) = (out.split_at_row_mut(cut), a.split_at_row(cut));
        let halves = rayon::join(|| update(top, a_top, f), || update(bottom, a_bottom, f));
        return halves.0 & halves.1;
    }
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut is_finite = true;
            for i in 0..out.nrows() {
                for (out, &a) in row_mut(out.rb_mut(), i).iter_mut().zip(row(a, i)) {
                    *out = f(*out, a);
                    is_finite &= Real::is_finite(*out);
                }
            }
            is_finite
        },
    )
}

/// `c += z` and `d += z`; whether all of both is finite.
fn add_to_both<T: Real>(mut c: MatMut<'_, T>, mut d: MatMut<'_, T>, z: MatRef<'_, T>) -> bool {
    if let Some(cut) = cut(z.nrows(), z.ncols()) {
        let (c, d) = (c.split_at_row_mut(cut), d.split_at_row_mut(cut));
        let z = z.split_at_row(cut);
        let halves = rayon::join(|| add_to_both(c.0, d.0, z.0), || add_to_both(c.1, d.1, z.1));
        return halves.0 & halves.1;
    }
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut is_finite = true;
            for i in 0..z.nrows() {
                let both = row_mut(c.rb_mut(), i).iter_mut().zip(row_mut(d.rb_mut(), i));
                for ((c, d), &z) in both.zip(row(z, i)) {
                    (*c, *d) = (*c + z, *d + z);
                    is_finite &= Real::is_finite(*c) & Real::is_finite(*d);
                }
            }
            is_finite
        },
    )
}

/// The sums of the first four products: `u2 = c11 + c12`, `u3 = u2 + c21`, then `c12 = u2 + c22`, `c21 = u3` and
/// `c22 = u3 + c22`; whether all of them are finite.
fn join<T: Real>(
    c11: MatRef<'_, T>,
    mut c12: MatMut<'_, T>,
    mut c21: MatMut<'_, T>,
    mut c22: MatMut<'_, T>,
) -> bool {
    if let Some(cut) = cut(c11.nrows(), c11.ncols()) {
        let (c11, c12) = (c11.split_at_row(cut), c12.split_at_row_mut(cut));
        let (c21, c22) = (c21.split_at_row_mut(cut), c22.split_at_row_mut(cut));
        let halves =
            rayon::join(|| join(c11.0, c12.0, c21.0, c22.0), || join(c11.1, c12.1, c21.1, c22.1));
        return halves.0 & halves.1;
    }
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut is_finite = true;
            for i in 0..c11.nrows() {
                let left = row(c11, i).iter().zip(row_mut(c12.rb_mut(), i));
                let right = row_mut(c21.rb_mut(), i).iter_mut().zip(row_mut(c22.rb_mut(), i));
                for ((c11, c12), (c21, c22)) in left.zip(right) {
                    let u2 = *c11 + *c12;
                    let u3 = u2 + *c21;
                    (*c12, *c21, *c22) = (u2 + *c22, u3, u3 + *c22);
                    is_finite &= Real::is_finite(*c12) & Real::is_finite(*c22);
                }
            }
            is_finite
        },
    )
}

/// Whether no cell is infinite or `NaN`.
fn is_finite<T: Real>(x: MatRef<'_, T>) -> bool {
    if let Some(cut) = cut(x.nrows(), x.ncols()) {
        let (top, bottom) = x.split_at_row(cut);
        let halves = rayon::join(|| is_finite(top), || is_finite(bottom));
        return halves.0 & halves.1;
    }
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut is_finite = true;
            for i in 0..x.nrows() {
                for &cell in row(x, i) {
                    is_finite &= Real::is_finite(cell);
                }
            }
            is_finite
        },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::dense::{product, product_by_levels};
    use super::super::testing::*;
    use super::super::{Stop, dense, view, view_mut};
    use super::*;
    use crate::matrix::{Dense, Shape};

    /// The larger of two bounds: of the error, and of that of the product it is compared with.
    fn bound<T: Real>(a: &Dense<T>, b: &Dense<T>, levels: usize) -> f64 {
        let largest = |x: &Dense<T>| x.cells().iter().map(|x| x.to_f64().abs()).fold(0.0, f64::max);
        let (k, inner) = (a.shape().columns as f64, (a.shape().columns >> levels).max(1) as f64);
        let own = 18f64.powi(levels as i32) * (inner * inner + 6.0 * inner) - 6.0 * k;
        // What is peeled is added classically, as is the product it is compared with.
        (own.max(0.0) + 2.0 * k * k + 6.0 * k) * T::EPSILON.to_f64() / 2.0 * largest(a) * largest(b)
    }

    fn assert_within_bound<T: Real>(a: &Dense<T>, b: &Dense<T>, levels: usize) {
        let (found, expected) =
            (product_by_levels(a, b, levels, Stop::NEVER), product(a, b, Stop::NEVER));
        assert_eq!(found.shape(), expected.shape());
        let bound = bound(a, b, levels);
        for (x, y) in found.cells().iter().zip(expected.cells()) {
            let error = (x.to_f64() - y.to_f64()).abs();
            assert!(error <= bound, "{x:?} is not {y:?}: {error:e} beyond {bound:e}");
        }
    }

    fn products_are_within_the_bound<T: Real>() {
        let mut rng = rng(31);
        let sides = [
            [1, 1, 1],
            [2, 2, 2],
            [3, 5, 7],
            [16, 16, 16],
            [33, 64, 31],
            [100, 1, 50],
            [1, 300, 9],
            [257, 129, 255],
        ];
        for [m, k, n] in sides {
            let (a, b) = (random::<T>(&mut rng, m, k), random::<T>(&mut rng, k, n));
            (0..=3).for_each(|levels| assert_within_bound(&a, &b, levels));
        }
    }

    #[test]
    fn the_error_is_within_its_bound() {
        products_are_within_the_bound::<f64>();
        products_are_within_the_bound::<f32>();
    }

    #[test]
    fn a_product_is_added_to_what_is_there() {
        let mut rng = rng(38);
        for (sides, levels) in [
            ([64, 64, 64], 3),
            ([65, 33, 17], 2),
            ([40, 51, 62], 1),
            ([3, 3, 3], 3),
            ([1, 9, 8], 1),
        ] {
            let [m, k, n] = sides;
            let whole = |x: Dense<f64>| {
                let cells: Vec<f64> = x.cells().iter().map(|x| (x * 100.0).round()).collect();
                dense(x.shape(), cells)
            };
            let [a, b] = [random(&mut rng, m, k), random(&mut rng, k, n)].map(whole);
            let there = whole(random(&mut rng, m, n));
            let mut cells = there.cells().to_vec();
            let mut spare = vec![f64::NAN; spare_cells_to_add(sides, levels)];
            let sum = view_mut(&mut cells, Shape::new(m, n));
            let grain = Grain::product(Stop::NEVER);
            let (a_view, b_view) = (view(&a), view(&b));
            assert!(accumulate(sum, Accum::Add, a_view, b_view, levels, &mut spare, grain));
            let product = naive_product(&a, &b);
            let expected = there.cells().iter().zip(product.cells()).map(|(x, y)| x + y);
            assert_eq!(cells, expected.collect::<Vec<f64>>(), "{sides:?}, {levels} levels");
        }
    }

    #[test]
    fn whole_numbers_are_exact() {
        let mut rng = rng(32);
        let whole = |x: Dense<f64>| {
            let cells: Vec<f64> = x.cells().iter().map(|x| (x * 100.0).round()).collect();
            dense(x.shape(), cells)
        };
        for [m, k, n] in [[64, 64, 64], [75, 41, 63], [7, 2, 5]] {
            let (a, b) = (whole(random(&mut rng, m, k)), whole(random(&mut rng, k, n)));
            for levels in 1..=3 {
                let found = product_by_levels(&a, &b, levels, Stop::NEVER);
                assert_eq!(found.cells(), naive_product(&a, &b).cells());
            }
        }
    }

    #[test]
    fn a_badly_scaled_product_is_right_beside_its_largest_cell() {
        let mut rng = rng(33);
        let scaled = |x: Dense<f64>| {
            let power = |i: usize| 10f64.powi((i as i32 % 13) - 6);
            build(x.shape().rows, x.shape().columns, |i, j| x.row(i)[j] * power(i) * power(j + 5))
        };
        let (a, b) = (scaled(random(&mut rng, 90, 110)), scaled(random(&mut rng, 110, 70)));
        (1..=2).for_each(|levels| assert_within_bound(&a, &b, levels));
    }

    #[test]
    fn infinities_and_nan_spread_as_the_definition_spreads_them() {
        let mut rng = rng(34);
        for (at, value) in [(0, f64::NAN), (70, f64::INFINITY), (4095, f64::NEG_INFINITY)] {
            for is_left in [true, false] {
                let mut factors = [random::<f64>(&mut rng, 64, 64), random(&mut rng, 64, 64)];
                let factor = &mut factors[usize::from(!is_left)];
                let mut cells = factor.cells().to_vec();
                cells[at] = value;
                *factor = dense(factor.shape(), cells);
                let [a, b] = &factors;
                let found = product_by_levels(a, b, 1, Stop::NEVER);
                assert_close(&found, &naive_product(a, b), 1000.0);
                assert!(found.cells().iter().any(|x| x.is_finite()));
            }
        }
    }

    #[test]
    fn a_sum_of_quadrants_that_overflows_is_no_infinity() {
        let largest = build(8, 8, |_, _| f64::MAX);
        let small = build(8, 8, |i, j| if i == j { 0.5 } else { 0.0 });
        let found = product_by_levels(&largest, &small, 1, Stop::NEVER);
        assert!(found.cells().iter().all(|&x| x == f64::MAX / 2.0));
    }

    #[test]
    fn no_cells_are_a_product_too() {
        for [m, k, n] in [[0, 5, 4], [5, 0, 4], [5, 4, 0], [0, 0, 0]] {
            let (a, b) = (build(m, k, |_, _| 1.0), build(k, n, |_, _| 1.0));
            let found = product_by_levels(&a, &b, 2, Stop::NEVER);
            assert_eq!(found.shape(), Shape::new(m, n));
            assert!(found.cells().iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_threads() {
        let mut rng = rng(35);
        for [m, k, n] in [[600, 500, 700], [1025, 515, 771]] {
            let (a, b) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, k, n));
            for levels in 1..=2 {
                same_bits(|| product_by_levels(&a, &b, levels, Stop::NEVER).cells().to_vec());
            }
        }
    }

    #[test]
    fn the_working_memory_is_what_was_said() {
        let mut rng = rng(36);
        for (sides, levels) in
            [([64, 64, 64], 3), ([65, 33, 17], 2), ([9, 8, 7], 1), ([3, 3, 3], 3)]
        {
            let [m, k, n] = sides;
            let (a, b) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, k, n));
            let mut cells = vec![0.0; m * n];
            // Taking more would be a panic.
            assert!(multiply(
                view_mut(&mut cells, Shape::new(m, n)),
                view(&a),
                view(&b),
                levels,
                Grain::product(Stop::NEVER),
            ));
        }
        assert_eq!(spare_cells([64, 64, 64], 1), 2 * 32 * 32);
        assert_eq!(spare_cells([64, 64, 64], 2), 2 * 32 * 32 + 3 * 16 * 16);
        assert_eq!(spare_cells([64, 64, 64], 0), 0);
    }

    #[test]
    fn a_product_that_is_asked_to_stop_is_left_undone() {
        let asked = AtomicBool::new(true);
        let x = random::<f64>(&mut rng(37), 600, 600);
        let found = product_by_levels(&x, &x, 1, Stop::once(&asked));
        assert!(found.cells().iter().all(|&x| x == 0.0));
    }
}
