//! A few columns times a vector: the loops that reductions by reflections wait for.
//!
//! They are bound by memory, so columns go four at a time: the vectors beside them are then read,
//! or written, once for four. They multiply and add in one rounding, as those of [`dot`] do.

use faer::{Mat, MatMut, MatRef};
use pulp::{Arch, Simd, WithSimd};

use super::super::Real;
pub(super) use super::super::dot::WIDTH;
use super::super::dot::{self, vectors, vectors_mut};

/// How many columns a reduction goes through between two products of matrices.
pub(super) const PANEL: usize = 32;

/// In how many strips a product with a vector is cut: some half a megabyte each, if not too many.
pub(super) fn strips(cells: usize) -> usize {
    (cells >> 16).clamp(1, 16)
}

/// The cells of one column of a matrix that lies by columns.
#[inline(always)]
pub(super) fn column<T>(x: MatRef<'_, T>, j: usize) -> &[T] {
    x.col(j).try_as_col_major().expect("a column's cells lie side by side").as_slice()
}

/// The same, to write.
pub(super) fn column_mut<T>(x: MatMut<'_, T>, j: usize) -> &mut [T] {
    x.col_mut(j).try_as_col_major_mut().expect("a column's cells lie side by side").as_slice_mut()
}

/// Some columns beside each other.
pub(super) fn group<T, const N: usize>(x: MatRef<'_, T>, first: usize) -> [&[T]; N] {
    std::array::from_fn(|at| column(x, first + at))
}

/// Two matrices beside each other, from one row on.
pub(super) fn beside<T: Real>(left: &Mat<T>, right: &Mat<T>, from: usize) -> Mat<T> {
    let (rows, columns) = (left.nrows() - from, left.ncols());
    Mat::from_fn(rows, columns + right.ncols(), |i, j| {
        if j < columns { left[(from + i, j)] } else { right[(from + i, j - columns)] }
    })
}

/// `sums = t(x)·y`.
pub(super) fn dots<T: Real>(x: MatRef<'_, T>, y: &[T], sums: &mut [T]) {
    assert_eq!((x.nrows(), x.ncols()), (y.len(), sums.len()), "the shapes fit");
    dot::dots((0..x.ncols()).map(|j| column(x, j)), y, |j, sum| sums[j] = sum);
}

/// `y += scale·x·weights`.
pub(super) fn add_columns<T: Real>(y: &mut [T], x: MatRef<'_, T>, weights: &[T], scale: T) {
    assert_eq!((x.nrows(), x.ncols()), (y.len(), weights.len()), "the shapes fit");
    let (groups, rest) = weights.as_chunks::<WIDTH>();
    let from = groups.len() * WIDTH;
    for (at, weights) in groups.iter().enumerate() {
        let weights = weights.map(|weight| scale * weight);
        Arch::new().dispatch(Add { columns: group(x, at * WIDTH), weights, y });
    }
    for (at, &weight) in rest.iter().enumerate() {
        let columns = [column(x, from + at)];
        Arch::new().dispatch(Add { columns, weights: [scale * weight], y });
    }
}

/// `y += columns·weights`; gives `t(columns)·x`, which is read from memory no second time.
pub(super) fn dot_and_add<T: Real, const N: usize>(
    columns: [&[T]; N],
    x: &[T],
    weights: [T; N],
    y: &mut [T],
) -> [T; N] {
    Arch::new().dispatch(DotAndAdd { columns, x, weights, y })
}

struct Add<'a, T, const N: usize> {
    columns: [&'a [T]; N],
    weights: [T; N],
    y: &'a mut [T],
}

impl<T: Real, const N: usize> WithSimd for Add<'_, T, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let simd = T::simd_ctx(simd);
        let (y, last_y) = vectors_mut::<T, S>(self.y);
        let columns = self.columns.map(vectors::<T, S>);
        let whole = columns.map(
            #[inline(always)]
            |(whole, _)| &whole[..y.len()],
        );
        let weights = self.weights.map(
            #[inline(always)]
            |weight| T::simd_splat(&simd, &weight),
        );
        for (i, y) in y.iter_mut().enumerate() {
            // Not in `y` itself, which would be written once for each column.
            let mut sum = *y;
            for k in 0..N {
                sum = T::simd_mul_add(&simd, whole[k][i], weights[k], sum);
            }
            *y = sum;
        }
        for (i, y) in last_y.iter_mut().enumerate() {
            for ((_, last), weight) in columns.iter().zip(self.weights) {
                *y += last[i] * weight;
            }
        }
    }
}

struct DotAndAdd<'a, T, const N: usize> {
    columns: [&'a [T]; N],
    x: &'a [T],
    weights: [T; N],
    y: &'a mut [T],
}

impl<T: Real, const N: usize> WithSimd for DotAndAdd<'_, T, N> {
    type Output = [T; N];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [T; N] {
        let simd = T::simd_ctx(simd);
        let mut sums = [T::simd_splat(&simd, &T::ZERO); N];
        let (x, last_x) = vectors::<T, S>(self.x);
        let (y, last_y) = vectors_mut::<T, S>(self.y);
        let columns = self.columns.map(vectors::<T, S>);
        let whole = columns.map(
            #[inline(always)]
            |(whole, _)| &whole[..x.len()],
        );
        let weights = self.weights.map(
            #[inline(always)]
            |weight| T::simd_splat(&simd, &weight),
        );
        for (i, (&x, y)) in x.iter().zip(y).enumerate() {
            let mut sum = *y;
            for k in 0..N {
                sums[k] = T::simd_mul_add(&simd, whole[k][i], x, sums[k]);
                sum = T::simd_mul_add(&simd, whole[k][i], weights[k], sum);
            }
            *y = sum;
        }
        let mut totals = sums.map(
            #[inline(always)]
            |sum| T::simd_reduce_sum(&simd, sum),
        );
        for (i, (&x, y)) in last_x.iter().zip(last_y).enumerate() {
            for k in 0..N {
                totals[k] += columns[k].1[i] * x;
                *y += columns[k].1[i] * self.weights[k];
            }
        }
        totals
    }
}
