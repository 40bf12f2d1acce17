//! Products of views, cut into tasks: what whole-matrix products and factorizations share.
//!
//! A product is halved along its longest side until a part is worth one task, and each part is one
//! sequential gemm of faer's. Halving the inner side for two threads makes two partial results, which are then added; a
//! result that is large enough for all threads is made in stretches of the inner side, each added to it in turn.
//! The cuts follow from the shape, and gemm adds each cell in one order, so the bits do too.
//!
//! ```text
//! 2000x2000 · 2000x2000    halves of rows, then of columns: no partial results
//! 8000x8000 · 8000x8000    the same, first for the first quarter of the inner side, then for the next
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
    /// Sides, of the result, that are one task whatever the work: gemm copies both factors into
    /// panels, which costs 1 / side. The one along which cells lie beside one another may be shorter ([`Grain::part`]).
    side: usize,
    /// The same where the whole result is no larger than one such task.
    small_side: usize,
    /// Looked at before each task.
    stop: Stop<'a>,
}

impl<'a> Grain<'a> {
    /// Of whole products: some 0.2 ms, and 2 to 20 ms of large ones.
    pub(super) fn product(stop: Stop<'a>) -> Self {
        Self { work: 1 << 24, side: 512, small_side: 256, stop }
    }

    /// Of those within a factorization, which wait for each other: some 0.3 ms.
    pub(super) fn factor(stop: Stop<'a>) -> Self {
        Self { work: 1 << 24, side: 192, small_side: 192, stop }
    }

    /// Whether what is under way means nothing any more.
    pub(super) fn is_stopped(self) -> bool {
        self.stop.is_asked()
    }

    /// The grain of the parts of a product whose result has these sides.
    fn of(self, m: usize, n: usize) -> Self {
        if m.max(n) <= self.side { Self { side: self.small_side, ..self } } else { self }
    }

    /// Whether a result of these sides is one task, the first of them as that of [`Grain::part`].
    fn holds<T>(self, [along, across]: [usize; 2], k: usize) -> bool {
        let part = self.part::<T>();
        let is_small = along <= part[0] && across <= part[1] && !is_deep(along, across, k);
        is_small || work(along, across, k) <= self.work
    }

    /// Whether a triangle is one task.
    fn holds_triangle(self, n: usize, k: usize) -> bool {
        work(n, n, k / 2) <= self.work || (n <= self.side && !is_deep(n, n, k / 2))
    }

    /// Sides that are one task whatever the work: along which cells lie beside one another, and the other.
    fn part<T>(self) -> [usize; 2] {
        let along = if has_short_tiles() { BLOCK_BYTES / size_of::<T>() } else { self.side };
        [along.min(self.side), self.side]
    }
}

/// Whether gemm's register tiles are 96 bytes long, as with AVX2, and not 384, as with AVX-512.
///
/// Then gemm takes a longer side by blocks of [`BLOCK_BYTES`] where cells have 64 bits, which is no multiple of 96: each block ends
/// with a tile that leaves registers unused.
fn has_short_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// What gemm takes at once, of a column, where the second level of cache has 512 KiB.
const BLOCK_BYTES: usize = 512;

/// Multiplications that reading or writing one cell costs as much as, roughly: keeps the parts of a
/// matrix-vector product, which is bound by memory, near 2 MiB.
const CELL_WORK: usize = 64;

/// Depth that one part of an inner split keeps, whatever its work: gemm's own block of depth.
const DEPTH_MIN: usize = 512;

/// Depth, in bytes, up to which the panels that neighbouring tasks share stay in cache between them: deeper products are made
/// one stretch of their inner side after the other. Of 8192 `f32` a side, that is twice as fast on a Zen 3.
const DEPTH_BYTES: usize = 16 << 10;

fn work(m: usize, n: usize, k: usize) -> usize {
    let cells = m.saturating_mul(k) + k.saturating_mul(n) + m.saturating_mul(n);
    m.saturating_mul(n).saturating_mul(k).saturating_add(CELL_WORK.saturating_mul(cells))
}

/// Whether the inner side is long enough, beside the others, for partial results.
fn is_deep(m: usize, n: usize, k: usize) -> bool {
    k >= 2 * DEPTH_MIN && k / 8 > m.max(n)
}

/// Sides of gemm's widest register tile, a multiple of others: along which cells lie beside one another, and the other.
fn tile<T>() -> [usize; 2] {
    [384 / size_of::<T>(), 8]
}

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
    let grain = grain.of(c.nrows(), c.ncols());
    parts(c, accum, a, b, alpha, grain);
}

/// The same for a part, which is a task or is cut again.
fn parts<T: Real>(
    c: MatMut<'_, T>,
    accum: Accum,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    alpha: T,
    grain: Grain<'_>,
) {
    let (m, n, k) = (c.nrows(), c.ncols(), a.ncols());
    let by_columns = c.row_stride() == 1;
    let ordered = |[one, other]: [usize; 2]| if by_columns { [one, other] } else { [other, one] };
    let ([row_part, column_part], [row_tile, column_tile]) =
        (ordered(grain.part::<T>()), ordered(tile::<T>()));
    if grain.stop.is_asked() {
        return;
    }
    if grain.holds::<T>(ordered([m, n]), k) {
        gemm(c, accum, a, b, alpha);
    } else if is_deep(m, n, k) {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut right = Mat::zeros(m, n);
        let mut c = c;
        let left = c.rb_mut();
        rayon::join(
            || parts(left, accum, a.subcols(0, cut), b.subrows(0, cut), alpha, grain),
            || {
                let (a, b) = (a.subcols(cut, k - cut), b.subrows(cut, k - cut));
                parts(right.as_mut(), Accum::Replace, a, b, alpha, grain);
            },
        );
        c += right;
    } else if k * size_of::<T>() > DEPTH_BYTES {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut c = c;
        parts(c.rb_mut(), accum, a.subcols(0, cut), b.subrows(0, cut), alpha, grain);
        parts(c, Accum::Add, a.subcols(cut, k - cut), b.subrows(cut, k - cut), alpha, grain);
    } else if m * column_part >= n * row_part {
        let cut = half(m, row_tile);
        let (top, bottom) = c.split_at_row_mut(cut);
        let (a_top, a_bottom) = a.split_at_row(cut);
        rayon::join(
            || parts(top, accum, a_top, b, alpha, grain),
            || parts(bottom, accum, a_bottom, b, alpha, grain),
        );
    } else {
        let cut = half(n, column_tile);
        let (left, right) = c.split_at_col_mut(cut);
        let (b_left, b_right) = b.split_at_col(cut);
        rayon::join(
            || parts(left, accum, a, b_left, alpha, grain),
            || parts(right, accum, a, b_right, alpha, grain),
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
    let grain = grain.of(a.nrows(), a.nrows());
    lower_parts(c, a, b, alpha, grain);
}

/// The same for a part, which is a task or is cut again.
fn lower_parts<T: Real>(
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
            || lower_parts(first, a_left, b_top, alpha, grain),
            || lower_parts(last.as_mut(), a_right, b_bottom, alpha, grain),
        );
        c += last;
    } else if k * size_of::<T>() > DEPTH_BYTES {
        let cut = (k / 2).next_multiple_of(DEPTH_MIN);
        let mut c = c;
        lower_parts(c.rb_mut(), a.subcols(0, cut), b.subrows(0, cut), alpha, grain);
        lower_parts(c, a.subcols(cut, k - cut), b.subrows(cut, k - cut), alpha, grain);
    } else {
        let cut = half(n, tile::<T>()[0]);
        let (a_top, a_bottom) = a.split_at_row(cut);
        let (b_left, b_right) = b.split_at_col(cut);
        let (top_left, _, bottom_left, bottom_right) = c.split_at_mut(cut, cut);
        rayon::join(
            || parts(bottom_left, Accum::Add, a_bottom, b_left, alpha, grain),
            || {
                rayon::join(
                    || lower_parts(top_left, a_top, b_left, alpha, grain),
                    || lower_parts(bottom_right, a_bottom, b_right, alpha, grain),
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
