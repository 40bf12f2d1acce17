//! Gaussian elimination with partial pivoting: `p·a = l·u`.
//!
//! Some columns at a time are eliminated, and what lies to their right is updated by products. The next ones
//! are updated before all others and eliminated beside the rest, for that is work for one thread (look-ahead):
//!
//! ```text
//! eliminated │ panel │ next: update, eliminate │ rest: update
//! ```
//!
//! A panel is halved (Toledo): eliminate the left half, apply its swaps to the right, solve for
//! the upper right, update the lower right by one product, go on there; [`NARROW`] columns are
//! eliminated one by one. A column of zeros has no pivot and leaves a zero on the diagonal of `u`.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §3.4; Toledo, *SIAM J. Matrix Anal.*
//! 18 (1997), 1065–1081; Strazdins, *A comparison of lookahead and algorithmic blocking techniques for
//! parallel matrix factorization* (1998).

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef};
use pulp::{Simd, WithSimd};

use super::super::arch::Arch;
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense};
use super::cholesky_tiles::goes_by_tiles;
use super::lu_tiles::Written;
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::work::Work;
use super::{by_rows, side};
use crate::error::Result;
use crate::matrix::{Csr, Dense, Shape};

/// Columns that are eliminated one by one.
const NARROW: usize = 16;

/// Columns of a panel: a sixteenth of all, so that the rest is work for longer, within these.
const PANEL: [usize; 2] = [64, 256];

/// Columns whose rows are swapped side by side.
const SWAPPED_COLUMNS: usize = 8;

/// The factors of `p·a = l·u` for an m×n matrix, k = min(m, n).
#[derive(Debug, Clone)]
pub struct Lu<T: Real> {
    /// Unit lower triangular, or trapezoidal: m×k.
    pub l: Dense<T>,
    /// Upper triangular, or trapezoidal: k×n.
    pub u: Dense<T>,
    /// The permutation: m×m.
    pub p: Csr<T>,
}

/// Factors any matrix, singular or not.
///
/// - Work: mn² - n³/3 multiplications for m ≥ n.
/// - Errors: a cell that is not finite.
pub fn lu<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Lu<T>> {
    let (m, n) = (a.shape().rows, a.shape().columns);
    let k = m.min(n);
    if goes_by_tiles(&[a]) {
        let factors = Written::of("lu", a, stop)?;
        let p = permuted(m, &factors.swaps);
        let [l, u] = factors.split();
        return Ok(Lu { l, u, p });
    }
    let factors = Factors::of(Work::copy("lu", a)?, stop);
    stop.check()?;
    let l = Mat::from_fn(m, k, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Less => T::ZERO,
        std::cmp::Ordering::Equal => T::ONE,
        std::cmp::Ordering::Greater => factors.cells[(i, j)],
    });
    let u = Mat::from_fn(k, n, |i, j| if i <= j { factors.cells[(i, j)] } else { T::ZERO });
    let p = permuted(m, &factors.swaps);
    Ok(Lu { l: by_rows(l.as_ref()), u: by_rows(u.as_ref()), p })
}

/// The permutation of m rows that swaps make, one after another.
pub(crate) fn permuted<T: Real>(m: usize, swaps: &[usize]) -> Csr<T> {
    let mut places: Vec<u32> = (0..m as u32).collect();
    for (i, &swap) in swaps.iter().enumerate() {
        places.swap(i, swap);
    }
    let offsets: Vec<i64> = (0..=m as i64).collect();
    Csr::new(Shape::new(m, m), offsets.into(), places.into(), vec![T::ONE; m].into())
}

/// The determinant; 1 of an empty matrix.
///
/// - Errors: a cell that is not finite.
pub fn determinant<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let n = side(a);
    let (swaps, pivots): (Vec<usize>, Vec<T>) = if goes_by_tiles(&[a]) {
        let factors = Written::of("det", a, stop)?;
        let pivots = factors.diagonal().collect();
        (factors.swaps, pivots)
    } else {
        // That of the transpose is the same.
        let factors = Factors::of(Work::transposed("det", a)?, stop);
        let pivots = (0..n).map(|i| factors.cells[(i, i)]).collect();
        (factors.swaps, pivots)
    };
    let odd = swaps.iter().enumerate().filter(|(i, swap)| i != *swap).count() % 2 == 1;
    let sign = if odd { -T::ONE } else { T::ONE };
    let value = pivots.into_iter().fold(sign, |product, pivot| product * pivot);
    Ok(dense(Shape::new(1, 1), vec![value]))
}

/// Both factors in one matrix, the ones on the diagonal of `l` left out.
pub(super) struct Factors<T> {
    pub(super) cells: Work<T>,
    /// Row `i` was swapped with this one, in order.
    pub(super) swaps: Vec<usize>,
}

impl<T: Real> Factors<T> {
    pub(super) fn of(mut cells: Work<T>, stop: Stop<'_>) -> Self {
        let k = cells.shape().rows.min(cells.shape().columns);
        let mut swaps = vec![0; k];
        let (mut left, right) = cells.view_mut().split_at_col_mut(k);
        eliminate(left.rb_mut(), &mut swaps, stop);
        update(right, left.rb(), &swaps, stop);
        Self { cells, swaps }
    }
}

/// Eliminates a matrix at least as tall as wide, in place.
pub(super) fn eliminate<T: Real>(mut a: MatMut<'_, T>, swaps: &mut [usize], stop: Stop<'_>) {
    let n = a.ncols();
    let width = (n / 16).next_multiple_of(NARROW).clamp(PANEL[0], PANEL[1]);
    if n <= 2 * width {
        return eliminate_panel(a, swaps, stop);
    }
    eliminate_panel(a.rb_mut().subcols_mut(0, width), &mut swaps[..width], stop);
    for first in (0..n - width).step_by(width) {
        let end = first + width;
        let (done, open) = swaps.split_at_mut(end);
        let (panel, right) = a.rb_mut().split_at_row_mut(first).1.split_at_col_mut(end);
        let (panel, swaps) = (panel.rb().subcols(first, width), &done[first..]);
        let next_width = width.min(n - end);
        let (next, rest) = right.split_at_col_mut(next_width);
        rayon::join(
            || {
                let below = update(next, panel, swaps, stop);
                eliminate_panel(below, &mut open[..next_width], stop);
            },
            || update(rest, panel, swaps, stop),
        );
    }
    for (at, swaps) in swaps.chunks_mut(width).enumerate() {
        let first = at * width;
        let (left, _) = a.rb_mut().split_at_row_mut(first).1.split_at_col_mut(first);
        apply_swaps(left, swaps);
        swaps.iter_mut().for_each(|swap| *swap += first);
    }
}

/// What the elimination of a panel does to columns on its right; gives the rows that are left of them.
fn update<'a, T: Real>(
    mut columns: MatMut<'a, T>,
    panel: MatRef<'_, T>,
    swaps: &[usize],
    stop: Stop<'_>,
) -> MatMut<'a, T> {
    apply_swaps(columns.rb_mut(), swaps);
    let (upper, lower) = panel.split_at_row(panel.ncols());
    let (mut u, mut below) = columns.split_at_row_mut(panel.ncols());
    solve_triangular(upper, Triangle::Lower, Diagonal::Ones, u.rb_mut(), stop);
    multiply(below.rb_mut(), Accum::Add, lower, u.rb(), -T::ONE, Grain::factor(stop));
    below
}

/// Eliminates a panel by halves.
fn eliminate_panel<T: Real>(a: MatMut<'_, T>, swaps: &mut [usize], stop: Stop<'_>) {
    let n = a.ncols();
    if stop.is_asked() {
        return;
    }
    if n <= NARROW {
        return eliminate_one_by_one(a, swaps);
    }
    let half = (n / 2).next_multiple_of(NARROW).min(n - 1);
    let (left_swaps, right_swaps) = swaps.split_at_mut(half);
    let (mut left, right) = a.split_at_col_mut(half);
    eliminate_panel(left.rb_mut(), left_swaps, stop);
    eliminate_panel(update(right, left.rb(), left_swaps, stop), right_swaps, stop);
    apply_swaps(left.split_at_row_mut(half).1, right_swaps);
    right_swaps.iter_mut().for_each(|swap| *swap += half);
}

/// Eliminates a few columns one by one.
fn eliminate_one_by_one<T: Real>(a: MatMut<'_, T>, swaps: &mut [usize]) {
    let mut columns = columns_of(a);
    Arch::new().dispatch(Columns { columns: &mut columns, swaps });
}

fn columns_of<T: Real>(a: MatMut<'_, T>) -> Vec<&mut [T]> {
    a.col_iter_mut()
        .map(|column| column.try_as_col_major_mut().expect("columns lie together").as_slice_mut())
        .collect()
}

/// A few columns, and where their swaps go.
struct Columns<'a, 'b, T> {
    columns: &'a mut [&'b mut [T]],
    swaps: &'a mut [usize],
}

impl<T: Real> WithSimd for Columns<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { columns, swaps } = self;
        for k in 0..columns.len() {
            let column = &columns[k][k..];
            let largest = largest(column);
            let pivot = column.iter().position(|x| x.abs() == largest).map_or(k, |at| k + at);
            swaps[k] = pivot;
            if largest == T::ZERO {
                continue;
            }
            columns.iter_mut().for_each(|column| column.swap(k, pivot));
            let (left, right) = columns.split_at_mut(k + 1);
            let column = &mut *left[k];
            let value = column[k];
            column[k + 1..].iter_mut().for_each(|x| *x /= value);
            for other in right {
                let factor = other[k];
                for (x, &l) in other[k + 1..].iter_mut().zip(&column[k + 1..]) {
                    *x -= l * factor;
                }
            }
        }
    }
}

/// The largest magnitude; in lanes, for a maximum of one after the other waits for each.
#[inline(always)]
fn largest<T: Real>(cells: &[T]) -> T {
    let mut lanes = [T::ZERO; 32];
    let (chunks, rest) = cells.as_chunks::<32>();
    let keep = |most: &mut T, x: T| *most = if x.abs() > *most { x.abs() } else { *most };
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(most, &x)| keep(most, x));
    }
    let mut most = T::ZERO;
    lanes.iter().chain(rest).for_each(|&x| keep(&mut most, x));
    most
}

/// Swaps rows of each column in order; columns in parallel.
pub(super) fn apply_swaps<T: Real>(a: MatMut<'_, T>, swaps: &[usize]) {
    if a.ncols() > 1 && a.ncols() * swaps.len() > 1 << 13 {
        let half = a.ncols() / 2;
        let (left, right) = a.split_at_col_mut(half);
        rayon::join(|| apply_swaps(left, swaps), || apply_swaps(right, swaps));
        return;
    }
    let mut columns = columns_of(a);
    // Some columns side by side, so that one waits for memory while others do.
    for columns in columns.chunks_mut(SWAPPED_COLUMNS) {
        for (i, &swap) in swaps.iter().enumerate() {
            columns.iter_mut().for_each(|column| column.swap(i, swap));
        }
    }
}

/// Swaps rows back, the last swap first.
pub(super) fn take_back_swaps<T: Real>(a: MatMut<'_, T>, swaps: &[usize]) {
    for column in columns_of(a) {
        swaps.iter().enumerate().rev().for_each(|(i, &swap)| column.swap(i, swap));
    }
}
