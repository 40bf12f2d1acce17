//! Householder reflections, one after the other, and their product applied in blocks.
//!
//! ```text
//! h = 1 - τ·v·t(v)        h₀·h₁·…·hₖ = 1 - v·t·t(v)        t upper triangular
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §5.1; Schreiber and Van Loan, *A
//! storage-efficient WY representation for products of Householder transformations*, 1989.

use faer::linalg::matmul::matmul;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::math_utils::min_positive;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::super::dot::dot;
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop};

/// Reflections that are applied together.
const BLOCK: usize = 128;

/// Turns `x` into a multiple of the first unit vector: what remains there, and `τ`. Leaves `v`,
/// whose first cell is one, in `x`.
pub(super) fn reflect<T: Real>(x: &mut [T]) -> (T, T) {
    let first = x[0];
    let tail = square(&x[1..]);
    let norm = (first * first + tail).sqrt();
    // Squares this small have lost digits.
    if norm < min_positive::<T>().sqrt() / T::EPSILON {
        let largest =
            x.iter().fold(T::ZERO, |most, &x| if x.abs() > most { x.abs() } else { most });
        if largest > T::ZERO && largest < T::ONE {
            x.iter_mut().for_each(|x| *x /= largest);
            let (rest, scale) = reflect(x);
            return (rest * largest, scale);
        }
    }
    x[0] = T::ONE;
    if tail == T::ZERO {
        x[1..].fill(T::ZERO);
        return (first, T::ZERO);
    }
    let rest = if first > T::ZERO { -norm } else { norm };
    let pivot = first - rest;
    x[1..].iter_mut().for_each(|x| *x /= pivot);
    // Rather than from the norm: exactly orthogonal though v is rounded.
    (rest, (T::ONE + T::ONE) / (T::ONE + square(&x[1..])))
}

/// The sum of squares, by halves: cells that are all alike are rounded alike, and in one long sum
/// that would add up.
fn square<T: Real>(x: &[T]) -> T {
    const WHOLE: usize = 64;
    if x.len() <= WHOLE {
        return dot(x, x);
    }
    let (left, right) = x.split_at((x.len() / 2).next_multiple_of(WHOLE));
    square(left) + square(right)
}

/// Reflections whose vectors are the columns of a matrix, from its diagonal down.
pub(super) struct Reflections<'a, T> {
    pub(super) vectors: MatRef<'a, T>,
    pub(super) scales: &'a [T],
}

impl<T: Real> Reflections<'_, T> {
    /// `x = h₀·h₁·…·x`; looks at the stop before each block.
    pub(super) fn apply(&self, mut x: MatMut<'_, T>, stop: Stop<'_>) {
        for left in self.blocks().rev() {
            let below = x.rb_mut().split_at_row_mut(left).1;
            self.block(left, stop).apply(below);
        }
    }

    /// `x = …·h₁·h₀·x`.
    pub(super) fn apply_transposed(&self, mut x: MatMut<'_, T>, stop: Stop<'_>) {
        for left in self.blocks() {
            let below = x.rb_mut().split_at_row_mut(left).1;
            self.block(left, stop).apply_transposed(below);
        }
    }

    /// As many columns of `h₀·h₁·…` as there are reflections.
    pub(super) fn product(&self, stop: Stop<'_>) -> Mat<T> {
        let mut x = Mat::identity(self.vectors.nrows(), self.scales.len());
        for left in self.blocks().rev() {
            // Columns further left are those of the identity yet, and have nothing in these rows.
            let (_, below) = x.as_mut().split_at_row_mut(left);
            self.block(left, stop).apply(below.split_at_col_mut(left).1);
        }
        x
    }

    /// Where blocks begin.
    fn blocks(&self) -> impl DoubleEndedIterator<Item = usize> + use<T> {
        (0..self.scales.len()).step_by(BLOCK)
    }

    fn block<'s>(&self, left: usize, stop: Stop<'s>) -> Block<'s, T> {
        let scales = &self.scales[left..self.scales.len().min(left + BLOCK)];
        let rows = self.vectors.nrows() - left;
        Block::of(self.vectors.submatrix(left, left, rows, scales.len()), scales, stop)
    }
}

/// Reflections that are applied together.
pub(super) struct Block<'a, T> {
    v: Mat<T>,
    t: Mat<T>,
    grain: Grain<'a>,
}

impl<'a, T: Real> Block<'a, T> {
    /// Those with vectors that are columns, from the diagonal down. Nothing is applied once a stop is asked for.
    pub(super) fn of(columns: MatRef<'_, T>, scales: &[T], stop: Stop<'a>) -> Self {
        let grain = Grain::factor(stop);
        let v = Mat::from_fn(columns.nrows(), scales.len(), |i, j| match i.cmp(&j) {
            std::cmp::Ordering::Less => T::ZERO,
            std::cmp::Ordering::Equal => T::ONE,
            std::cmp::Ordering::Greater => columns[(i, j)],
        });
        let t = triangle(v.as_ref(), scales, grain);
        Self { v, t, grain }
    }

    /// `x = h₀·h₁·…·x`
    fn apply(&self, x: MatMut<'_, T>) {
        self.subtract(x, self.t.as_ref());
    }

    /// `x = …·h₁·h₀·x`
    pub(super) fn apply_transposed(&self, x: MatMut<'_, T>) {
        self.subtract(x, self.t.transpose());
    }

    /// `x -= v·t·t(v)·x`
    fn subtract(&self, x: MatMut<'_, T>, t: MatRef<'_, T>) {
        let mut met = Mat::zeros(self.v.ncols(), x.ncols());
        let mut parts = Mat::zeros(self.v.ncols(), x.ncols());
        let (v, replace, grain) = (self.v.as_ref(), Accum::Replace, self.grain);
        multiply(met.as_mut(), replace, v.transpose(), x.rb(), T::ONE, grain);
        multiply(parts.as_mut(), replace, t, met.as_ref(), T::ONE, grain);
        multiply(x, Accum::Add, v, parts.as_ref(), -T::ONE, grain);
    }
}

/// The `t` of one block.
fn triangle<T: Real>(v: MatRef<'_, T>, scales: &[T], grain: Grain<'_>) -> Mat<T> {
    let k = scales.len();
    let (mut products, mut t) = (Mat::zeros(k, k), Mat::<T>::zeros(k, k));
    multiply(products.as_mut(), Accum::Replace, v.transpose(), v, T::ONE, grain);
    for (j, &scale) in scales.iter().enumerate() {
        let (before, mut column) = t.as_mut().split_at_col_mut(j);
        let mut above = column.rb_mut().subcols_mut(0, 1).subrows_mut(0, j);
        let before = before.rb().subrows(0, j);
        let products = products.submatrix(0, j, j, 1);
        matmul(above.rb_mut(), Accum::Replace, before, products, -scale, Par::Seq);
        column[(j, 0)] = scale;
    }
    t
}
