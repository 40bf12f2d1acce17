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

use super::{Real, Stop};

/// When a product is one task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grain<'a> {
    /// Work that is one task, in multiplications.
    work: usize,
    /// Sides, of the result, that are one task whatever the work: the one along which its cells lie beside one
    /// another, and the other. The longer the other one, the less it costs that gemm copies a factor into panels;
    /// the shorter the first, the longer a panel stays in the cache of its core.
    sides: [usize; 2],
    /// Side of a triangle that is one task whatever the work.
    triangle: usize,
    /// Looked at before each task.
    stop: Stop<'a>,
}

impl<'a> Grain<'a> {
    /// Of whole products: some 0.2 ms, and 1 to 5 ms of large ones.
    pub(super) fn product(stop: Stop<'a>) -> Self {
        Self { work: 1 << 24, sides: [TILE[0], 512], triangle: 256, stop }
    }

    /// Of those within a factorization, which wait for each other: some 0.3 ms.
    pub(super) fn factor(stop: Stop<'a>) -> Self {
        Self { work: 1 << 24, sides: [192, 192], triangle: 192, stop }
    }

    /// Whether what is under way means nothing any more.
    pub(super) fn is_stopped(self) -> bool {
        self.stop.is_asked()
    }

    fn holds(self, [m, n]: [usize; 2], k: usize) -> bool {
        let is_small = m <= self.sides[0] && n <= self.sides[1];
        work(m, n, k) <= self.work || (is_small && !is_deep(m, n, k))
    }

    fn holds_triangle(self, n: usize, k: usize) -> bool {
        work(n, n, k / 2) <= self.work || (n <= self.triangle && !is_deep(n, n, k / 2))
    }
}

/// Multiplications that reading or writing one cell costs as much as, roughly: keeps the parts of a
/// matrix-vector product, which is bound by memory, near 2 MiB.
const CELL_WORK: usize = 64;

/// Depth that one part of an inner split keeps, whatever its work: gemm's own block of depth.
const DEPTH_MIN: usize = 512;

fn work(m: usize, n: usize, k: usize) -> usize {
    let cells = m.saturating_mul(k) + k.saturating_mul(n) + m.saturating_mul(n);
    m.saturating_mul(n).saturating_mul(k).saturating_add(CELL_WORK.saturating_mul(cells))
}

/// Whether the inner side is long enough, beside the others, for partial results.
fn is_deep(m: usize, n: usize, k: usize) -> bool {
    k >= 2 * DEPTH_MIN && k / 8 > m.max(n)
}

/// Sides of gemm's widest register tile, in the order of [`Grain::sides`].
const TILE: [usize; 2] = [96, 8];

/// Where a side is cut: near its half, at a multiple of the register tile where it is that long.
fn half(side: usize, tile: usize) -> usize {
    let half = side / 2;
    if half >= tile { (half + tile / 2) / tile * tile } else { half }
}

/// `c = alpha·a·b` or `c += alpha·a·b`, in parallel.
pub(super) fn multiply<T: Real>(
    c: MatMut<'_, T>,
    accum: Accum,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: T,
    grain: Grain<'_>,
) {
    let (m, n, k) = (c.nrows(), c.ncols(), a.ncols());
    let by_columns = c.row_stride() == 1;
    let ordered =
        |[rows, columns]: [usize; 2]| if by_columns { [rows, columns] } else { [columns, rows] };
    if grain.stop.is_asked() {
        return;
    }
    let ([row_part, column_part], [row_tile, column_tile]) = (ordered(grain.sides), ordered(TILE));
    if grain.holds(ordered([m, n]), k) {
        gemm(c, accum, a, b, alpha);
    } else if is_deep(m, n, k) {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut right = Mat::zeros(m, n);
        let mut c = c;
        let left = c.rb_mut();
        rayon::join(
            || multiply(left, accum, a.subcols(0, cut), b.subrows(0, cut), alpha, grain),
            || {
                let (a, b) = (a.subcols(cut, k - cut), b.subrows(cut, k - cut));
                multiply(right.as_mut(), Accum::Replace, a, b, alpha, grain);
            },
        );
        c += right;
    } else if m * column_part >= n * row_part {
        let cut = half(m, row_tile);
        let (top, bottom) = c.split_at_row_mut(cut);
        let (a_top, a_bottom) = a.split_at_row(cut);
        rayon::join(
            || multiply(top, accum, a_top, b, alpha, grain),
            || multiply(bottom, accum, a_bottom, b, alpha, grain),
        );
    } else {
        let cut = half(n, column_tile);
        let (left, right) = c.split_at_col_mut(cut);
        let (b_left, b_right) = b.split_at_col(cut);
        rayon::join(
            || multiply(left, accum, a, b_left, alpha, grain),
            || multiply(right, accum, a, b_right, alpha, grain),
        );
    }
}

/// The lower triangle of `c += alpha·a·b`, in parallel.
pub(super) fn multiply_lower<T: Real>(
    c: MatMut<'_, T>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: T,
    grain: Grain<'_>,
) {
    let (n, k) = (a.nrows(), a.ncols());
    if grain.stop.is_asked() {
        return;
    }
    if grain.holds_triangle(n, k) {
        gemm_lower(c, a, b, alpha);
    } else if is_deep(n, n, k) {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut last = Mat::zeros(n, n);
        let mut c = c;
        let first = c.rb_mut();
        let (a_left, a_right) = a.split_at_col(cut);
        let (b_top, b_bottom) = b.split_at_row(cut);
        rayon::join(
            || multiply_lower(first, a_left, b_top, alpha, grain),
            || multiply_lower(last.as_mut(), a_right, b_bottom, alpha, grain),
        );
        c += last;
    } else {
        let cut = half(n, TILE[0]);
        let (a_top, a_bottom) = a.split_at_row(cut);
        let (b_left, b_right) = b.split_at_col(cut);
        let (top_left, _, bottom_left, bottom_right) = c.split_at_mut(cut, cut);
        rayon::join(
            || multiply(bottom_left, Accum::Add, a_bottom, b_left, alpha, grain),
            || {
                rayon::join(
                    || multiply_lower(top_left, a_top, b_left, alpha, grain),
                    || multiply_lower(bottom_right, a_bottom, b_right, alpha, grain),
                )
            },
        );
    }
}

/// `c = alpha·a·b` or `c += alpha·a·b`, on the calling thread.
fn gemm<T: Real>(c: MatMut<'_, T>, accum: Accum, a: MatRef<'_, T>, b: MatRef<'_, T>, alpha: T) {
    matmul(c, accum, a, b, alpha, Par::Seq);
}

/// The lower triangle of `c += alpha·a·b`, on the calling thread.
fn gemm_lower<T: Real>(c: MatMut<'_, T>, a: MatRef<'_, T>, b: MatRef<'_, T>, alpha: T) {
    use BlockStructure::{Rectangular, TriangularLower};
    triangular::matmul(
        c,
        TriangularLower,
        Accum::Add,
        a,
        Rectangular,
        b,
        Rectangular,
        alpha,
        Par::Seq,
    );
}
