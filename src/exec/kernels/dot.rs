//! Sums of products of two rows of cells, where both lie in order.
//!
//! Vectors are `pulp`'s own here, and not left to the compiler as those of [`arch`](super::arch) are: one instruction
//! multiplies and adds. Whole operations, each rounded, take 1.6 times as long for 100 cells with AVX-512, and as long from 1,000 on; with
//! AVX2 at least three times (measured). So the bits are those of an instruction set, as those of faer's products are.

use pulp::{Arch, Simd, WithSimd};

use super::Real;

/// Rows that are summed side by side: memory has as many streams to fetch ahead, no sum waits for itself, and what
/// is beside them is read once for all.
pub(super) const WIDTH: usize = 4;

/// `Σ rowₖ·xₖ` of each row in turn. Its bits follow from the cells of the row and of `x` alone. `take` has the place
/// of the row and its sum.
///
/// # Panics
/// Where a row is not as long as `x`.
pub(super) fn dots<'a, T: Real>(
    rows: impl Iterator<Item = &'a [T]>,
    x: &[T],
    take: impl FnMut(usize, T),
) {
    Arch::new().dispatch(Dots { rows, x, take });
}

/// `Σ aₖ·bₖ`.
///
/// # Panics
/// Where the rows are not equally long.
pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut total = T::ZERO;
    dots([a].into_iter(), b, |_, sum| total = sum);
    total
}

struct Dots<'x, T, R, F> {
    rows: R,
    x: &'x [T],
    take: F,
}

impl<'a, T: Real, R: Iterator<Item = &'a [T]>, F: FnMut(usize, T)> WithSimd for Dots<'_, T, R, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut group = [&[][..]; WIDTH];
        let (mut at, mut count) = (0, 0);
        for row in self.rows {
            group[count] = row;
            count += 1;
            if count == WIDTH {
                for sum in sums(simd, group, self.x) {
                    (self.take)(at, sum);
                    at += 1;
                }
                count = 0;
            }
        }
        for &row in &group[..count] {
            let [sum] = sums(simd, [row], self.x);
            (self.take)(at, sum);
            at += 1;
        }
    }
}

#[inline(always)]
fn sums<T: Real, S: Simd, const N: usize>(simd: S, rows: [&[T]; N], x: &[T]) -> [T; N] {
    assert!(rows.iter().all(|row| row.len() == x.len()), "rows are equally long");
    let simd = T::simd_ctx(simd);
    let mut sums = [T::simd_splat(&simd, &T::ZERO); N];
    let (x, last_x) = vectors::<T, S>(x);
    let rows = rows.map(vectors::<T, S>);
    let whole = rows.map(
        #[inline(always)]
        |(whole, _)| &whole[..x.len()],
    );
    for (k, &x) in x.iter().enumerate() {
        for at in 0..N {
            sums[at] = T::simd_mul_add(&simd, whole[at][k], x, sums[at]);
        }
    }
    let mut totals = sums.map(
        #[inline(always)]
        |sum| T::simd_reduce_sum(&simd, sum),
    );
    for (k, &x) in last_x.iter().enumerate() {
        for (total, (_, last)) in totals.iter_mut().zip(rows) {
            *total += last[k] * x;
        }
    }
    totals
}

/// The cells as whole vectors, and those that do not fill one.
#[inline(always)]
pub(super) fn vectors<T: Real, S: Simd>(x: &[T]) -> (&[T::SimdVec<S>], &[T]) {
    let (whole, last) = x.split_at(x.len() - x.len() % lanes::<T, S>());
    (bytemuck::cast_slice(whole), last)
}

/// The same, to write.
#[inline(always)]
pub(super) fn vectors_mut<T: Real, S: Simd>(x: &mut [T]) -> (&mut [T::SimdVec<S>], &mut [T]) {
    let (whole, last) = x.split_at_mut(x.len() - x.len() % lanes::<T, S>());
    (bytemuck::cast_slice_mut(whole), last)
}

#[inline(always)]
fn lanes<T: Real, S: Simd>() -> usize {
    size_of::<T::SimdVec<S>>() / size_of::<T>()
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::super::testing::rng;
    use super::*;

    #[test]
    fn every_row_is_summed_whatever_their_number_and_length() {
        let mut rng = rng(41);
        let mut row = |length| -> Vec<f32> {
            (0..length).map(|_| f32::from(rng.random_range(-9..9_i8))).collect()
        };
        for length in [0, 1, 7, 8, 9, 64, 1003] {
            for count in 0..10 {
                let (x, rows) = (row(length), (0..count).map(|_| row(length)).collect::<Vec<_>>());
                let mut found = Vec::new();
                dots(rows.iter().map(Vec::as_slice), &x, |at, sum| {
                    assert_eq!(at, found.len(), "in turn");
                    found.push(sum);
                });
                let expected = rows.iter().map(|row| row.iter().zip(&x).map(|(a, b)| a * b).sum());
                assert_eq!(found, expected.collect::<Vec<f32>>(), "{count} of {length} cells");
            }
        }
    }
}
