//! Products of views, cut into tasks: what whole-matrix products and factorizations share.
//!
//! A product is halved along its longest side until a part is worth one task, and each part is one
//! sequential gemm of faer's. Halving the inner side makes two partial results, which are then added.
//! The cuts follow from the shape, and gemm adds each cell in one order, so the bits do too.
//!
//! ```text
//! 4000x4000 · 4000x4000    halves of rows, then of columns: no partial results
//! 50x1000000 · 1000000x50  halves of the inner side: 50x50 partial results, added pairwise
//! ```

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::reborrow::ReborrowMut;
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::Real;

/// Work below which a whole product is one task; about 2 ms.
pub(super) const TASK_WORK: usize = 1 << 27;

/// Multiplications that reading or writing one cell costs as much as, roughly: keeps the parts of a
/// matrix-vector product, which is bound by memory, near 16 MiB.
const CELL_WORK: usize = 64;

/// Depth that one part of an inner split keeps, whatever its work: gemm's own block of depth.
const DEPTH_MIN: usize = 512;

fn work(m: usize, n: usize, k: usize) -> usize {
    let cells = m.saturating_mul(k) + k.saturating_mul(n) + m.saturating_mul(n);
    m.saturating_mul(n).saturating_mul(k).saturating_add(CELL_WORK.saturating_mul(cells))
}

/// Where a side is cut: its half, a multiple of the widest register tile where it is that long.
fn half(side: usize) -> usize {
    const TILE: usize = 96;
    let half = side / 2;
    if half >= TILE { half.next_multiple_of(TILE) } else { half }
}

/// `c = alpha·a·b` or `c += alpha·a·b`, in parallel, in tasks of `task` multiplications at least.
pub(super) fn multiply<T: Real>(
    c: MatMut<'_, T>,
    accum: Accum,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: T,
    task: usize,
) {
    let (m, n, k) = (c.nrows(), c.ncols(), a.ncols());
    if work(m, n, k) <= task {
        gemm(c, accum, a, b, alpha);
    } else if k >= 2 * DEPTH_MIN && k / 8 > m.max(n) {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut right = Mat::zeros(m, n);
        let mut c = c;
        let left = c.rb_mut();
        rayon::join(
            || multiply(left, accum, a.subcols(0, cut), b.subrows(0, cut), alpha, task),
            || {
                let (a, b) = (a.subcols(cut, k - cut), b.subrows(cut, k - cut));
                multiply(right.as_mut(), Accum::Replace, a, b, alpha, task);
            },
        );
        c += right;
    } else if m >= n {
        let cut = half(m);
        let (top, bottom) = c.split_at_row_mut(cut);
        let (a_top, a_bottom) = a.split_at_row(cut);
        rayon::join(
            || multiply(top, accum, a_top, b, alpha, task),
            || multiply(bottom, accum, a_bottom, b, alpha, task),
        );
    } else {
        let cut = half(n);
        let (left, right) = c.split_at_col_mut(cut);
        let (b_left, b_right) = b.split_at_col(cut);
        rayon::join(
            || multiply(left, accum, a, b_left, alpha, task),
            || multiply(right, accum, a, b_right, alpha, task),
        );
    }
}

/// The lower triangle of `c += alpha·t(x)·x`, in parallel.
pub(super) fn multiply_lower<T: Real>(c: MatMut<'_, T>, x: MatRef<'_, T>, alpha: T, task: usize) {
    let (k, n) = (x.nrows(), x.ncols());
    if work(n, n, k) / 2 <= task {
        gemm_lower(c, x, alpha);
    } else if k >= 2 * DEPTH_MIN && k / 8 > n {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut bottom = Mat::zeros(n, n);
        let mut c = c;
        let top = c.rb_mut();
        let (x_top, x_bottom) = x.split_at_row(cut);
        rayon::join(
            || multiply_lower(top, x_top, alpha, task),
            || multiply_lower(bottom.as_mut(), x_bottom, alpha, task),
        );
        c += bottom;
    } else {
        let cut = half(n);
        let (left, right) = x.split_at_col(cut);
        let (top_left, _, bottom_left, bottom_right) = c.split_at_mut(cut, cut);
        rayon::join(
            || multiply(bottom_left, Accum::Add, right.transpose(), left, alpha, task),
            || {
                rayon::join(
                    || multiply_lower(top_left, left, alpha, task),
                    || multiply_lower(bottom_right, right, alpha, task),
                )
            },
        );
    }
}

/// `c = alpha·a·b` or `c += alpha·a·b`, on the calling thread.
pub(super) fn gemm<T: Real>(
    c: MatMut<'_, T>,
    accum: Accum,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: T,
) {
    matmul(c, accum, a, b, alpha, Par::Seq);
}

/// The lower triangle of `c += alpha·t(x)·x`, on the calling thread.
pub(super) fn gemm_lower<T: Real>(c: MatMut<'_, T>, x: MatRef<'_, T>, alpha: T) {
    use BlockStructure::{Rectangular, TriangularLower};
    let (left, right) = (x.transpose(), x);
    triangular::matmul(
        c,
        TriangularLower,
        Accum::Add,
        left,
        Rectangular,
        right,
        Rectangular,
        alpha,
        Par::Seq,
    );
}
