//! Dense products and transposes of matrices that are in files, by tiles that memory has room for.
//!
//! A tile of the result stays in memory until it is whole; tiles of the factors are copied beside it, one after
//! another along the inner side, and what was copied is let go. Each side is gone through to its end and then back, so that
//! the last tile of a factor serves the next tile of the result too. With room for s cells, a product of m×k by k×n then
//! reads some 2·m·n·k / √(s/3) of them, within a small factor of the least that any order can do with:
//! 2·m·n·k / √s, less what fits (Irony, Toledo and Tiskin, *Communication lower bounds for distributed-memory matrix
//! multiplication*, J. Parallel Distrib. Comput. 64, 2004; Hong and Kung, *I/O complexity: the red-blue pebble game*,
//! STOC 1981). A factor or a result that is in memory is worked on where it is.
//!
//! ```text
//!         b  ┌──┬▓▓┐
//!            ├──┼▓▓┤      for each tile of c: the sum over the inner side, to its end or back,
//!            └──┴▓▓┘      of tiles of a and of b
//!  ▓▓▓▓▓▓ a  ┌──┬──┐
//!  ──────    ├──┼▓▓┤ c
//! ```
//!
//! Sums are cut along the inner side where tiles end, so that they may differ in their last digits from those of a
//! product in memory, and with the room there is; they do not depend on the number of threads.

use std::ops::Range;

use faer::{Accum, MatMut, MatRef};
use rayon::prelude::*;

use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense, strassen};
use crate::matrix::{CellBuffer, Dense, Scalar, Shape};
use crate::memory;

/// Bytes of rows that one task copies before it lets them go.
const TASK_BYTES: usize = 4 << 20;

/// Share of the room that tiles take: the rest is for pages on their way.
const ROOM_SHARE: f64 = 0.75;

/// Side of a tile, at least: below it gemm would spend its time on copying.
const SIDE_MIN: usize = 256;

/// Sides are multiples of this, the longer one of gemm's register tile.
const SIDE_STEP: usize = 96;

/// Side of a tile of a transpose: rows of it are long enough to be read and written whole pages at a time.
const TRANSPOSED_SIDE: usize = 1024;

/// A factor, as it is or transposed.
#[derive(Debug, Clone, Copy)]
pub struct Factor<'a, T: Real> {
    pub(super) x: &'a Dense<T>,
    pub(super) is_transposed: bool,
}

impl<'a, T: Real> Factor<'a, T> {
    /// The matrix itself.
    pub fn plain(x: &'a Dense<T>) -> Self {
        Self { x, is_transposed: false }
    }

    /// Its transpose.
    pub fn transposed(x: &'a Dense<T>) -> Self {
        Self { x, is_transposed: true }
    }

    /// As a factor, rows by columns.
    pub fn shape(self) -> Shape {
        if self.is_transposed { self.x.shape().transposed() } else { self.x.shape() }
    }

    fn is_on_disk(self) -> bool {
        is_on_disk(self.x.cells())
    }

    /// A tile, copied into memory where it is in a file and not there since the last time.
    fn tile<'t>(
        self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        copied: &'t mut Copied<T>,
    ) -> MatRef<'t, T>
    where
        'a: 't,
    {
        let (stored_rows, stored_columns) =
            if self.is_transposed { (columns, rows) } else { (rows, columns) };
        let stored = if self.is_on_disk() {
            let cells = &mut copied.cells[..stored_rows.len() * stored_columns.len()];
            let place = (stored_rows.clone(), stored_columns.clone());
            if copied.place.as_ref() != Some(&place) {
                load(self.x.cells(), self.x.shape().columns, stored_rows, stored_columns, cells);
                copied.place = Some(place);
            }
            MatRef::from_row_major_slice(cells, stored_rows.len(), stored_columns.len())
        } else {
            super::super::view(self.x).submatrix(
                stored_rows.start,
                stored_columns.start,
                stored_rows.len(),
                stored_columns.len(),
            )
        };
        if self.is_transposed { stored.transpose() } else { stored }
    }
}

/// A tile of a factor in memory.
struct Copied<T: Real> {
    cells: CellBuffer<T>,
    /// Its rows and columns, as they are stored.
    place: Option<(Range<usize>, Range<usize>)>,
}

impl<T: Real> Copied<T> {
    /// Room for so many cells.
    fn none(cells: usize) -> Self {
        Self { cells: CellBuffer::arbitrary(cells), place: None }
    }
}

fn is_on_disk<T: Scalar>(cells: &[T]) -> bool {
    memory::is_on_disk(bytemuck::cast_slice(cells))
}

/// Whether a product is to be made by tiles: a factor is in a file, or the result will be.
pub fn needs_tiles<T: Real>(factors: [&Dense<T>; 2], result: Shape) -> bool {
    let has_room = memory::has_room(result.cells().saturating_mul(size_of::<T>()));
    !has_room || factors.iter().any(|factor| is_on_disk(factor.cells()))
}

/// Which cells of a product are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    /// Of a symmetric one those on and below the diagonal, which are then those above it too.
    Symmetric,
}

/// `a·b`, whose tiles are made by as many levels of Strassen's method as `levels` says for their sides; classically
/// where a cell is not finite.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product_by_tiles<T: Real>(
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    levels: impl Fn([usize; 3]) -> usize,
    stop: Stop<'_>,
) -> Dense<T> {
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    assert_eq!(a.shape().columns, b.shape().rows, "inner sizes");
    let mut out = CellBuffer::arbitrary(shape.cells());
    // Strassen's sums of quadrants read whole rows.
    let rows_lie = !a.is_transposed && !b.is_transposed;
    let levels = |sides| if rows_lie { levels(sides) } else { 0 };
    if !by_tiles(a, b, &mut out, Wanted::All, &levels, stop) && !stop.is_asked() {
        by_tiles(a, b, &mut out, Wanted::All, &|_| 0, stop);
    }
    dense(shape, out)
}

/// `t(x)·y` that is symmetric but for rounding, and exactly so here.
///
/// # Panics
/// Unless both have one shape.
pub(super) fn half_cross_by_tiles<T: Real>(x: &Dense<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    assert_eq!(x.shape(), y.shape(), "a symmetric product is of equally wide factors");
    let shape = Shape::new(x.shape().columns, x.shape().columns);
    let mut out = CellBuffer::arbitrary(shape.cells());
    let (left, right) = (Factor::transposed(x), Factor::plain(y));
    by_tiles(left, right, &mut out, Wanted::Symmetric, &|_| 0, stop);
    dense(shape, out)
}

/// Fills the result tile by tile; false where a cell may not be finite and Strassen's method was used.
fn by_tiles<T: Real>(
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    out: &mut [T],
    wanted: Wanted,
    levels: &impl Fn([usize; 3]) -> usize,
    stop: Stop<'_>,
) -> bool {
    let sides @ [m, k, n] = [a.shape().rows, a.shape().columns, b.shape().columns];
    if m * n == 0 {
        return true;
    }
    if k == 0 {
        out.fill(T::ZERO);
        return true;
    }
    let copied = [true, a.is_on_disk(), b.is_on_disk()];
    let [tile_m, tile_k, tile_n] = match wanted {
        Wanted::All => tile_sides(sides, copied, size_of::<T>(), levels),
        Wanted::Symmetric => {
            let [one, inner, other] = tile_sides(sides, copied, size_of::<T>(), levels);
            [one.min(other), inner, one.min(other)]
        }
    };
    let levels = levels([tile_m, tile_k, tile_n]);
    let grain = Grain::product(stop);
    let copy = |of: bool, cells: usize| Copied::none(if of { cells } else { 0 });
    let mut sum = CellBuffer::arbitrary(tile_m * tile_n);
    let (mut left, mut right) =
        (copy(copied[1], tile_m * tile_k), copy(copied[2], tile_k * tile_n));
    let mut spare =
        CellBuffer::arbitrary(strassen::spare_cells_to_add([tile_m, tile_k, tile_n], levels));
    let mut is_finite = true;
    let (mut is_up, mut is_back) = (false, false);
    for columns in ranges(n, tile_n) {
        let wanted_rows = |rows: &Range<usize>| match wanted {
            Wanted::All => true,
            Wanted::Symmetric => rows.start >= columns.start,
        };
        for rows in turned(ranges(m, tile_m).filter(wanted_rows), is_up) {
            let sum = &mut sum[..rows.len() * columns.len()];
            for (at, inner) in turned(ranges(k, tile_k), is_back).into_iter().enumerate() {
                if stop.is_asked() {
                    return false;
                }
                let a = a.tile(&rows, &inner, &mut left);
                let b = b.tile(&inner, &columns, &mut right);
                let accum = if at == 0 { Accum::Replace } else { Accum::Add };
                let sum = MatMut::from_row_major_slice_mut(sum, rows.len(), columns.len());
                if levels == 0 {
                    multiply(sum, accum, a, b, T::ONE, grain);
                } else {
                    is_finite &= strassen::accumulate(sum, accum, a, b, levels, &mut spare, grain);
                }
            }
            if !is_finite {
                return false;
            }
            store(sum, &rows, &columns, out, n);
            if wanted == Wanted::Symmetric {
                let mut mirrored = CellBuffer::arbitrary(sum.len());
                turn(sum, rows.len(), columns.len(), &mut mirrored);
                if rows == columns {
                    // Of a tile on the diagonal the lower half counts.
                    for i in 0..rows.len() {
                        mirrored[i * rows.len()..][..i]
                            .copy_from_slice(&sum[i * rows.len()..][..i]);
                    }
                }
                store(&mirrored, &columns, &rows, out, n);
            }
            is_back = !is_back;
        }
        is_up = !is_up;
    }
    true
}

/// Ranges in their order, or the other way round.
fn turned(ranges: impl Iterator<Item = Range<usize>>, is_back: bool) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = ranges.collect();
    if is_back {
        ranges.reverse();
    }
    ranges
}

fn ranges(side: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..side).step_by(step).map(move |start| start..side.min(start + step))
}

/// Sides of tiles that fit the room together: of the result, of the factors that are copied, and of what Strassen's
/// method works in.
fn tile_sides(
    sides: [usize; 3],
    copied: [bool; 3],
    cell_bytes: usize,
    levels: &impl Fn([usize; 3]) -> usize,
) -> [usize; 3] {
    let room_cells = room_bytes() / cell_bytes;
    let cells = |side: usize| {
        let tile @ [m, k, n] = sides.map(|whole| whole.min(side));
        let of = |is_copied: bool, cells: usize| if is_copied { cells } else { 0 };
        let spare = strassen::spare_cells_to_add(tile, levels(tile));
        of(copied[0], m * n) + of(copied[1], m * k) + of(copied[2], k * n) + spare
    };
    let (mut fits, mut beyond) = (SIDE_MIN, sides.into_iter().max().unwrap_or(0).max(SIDE_MIN) + 1);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        if cells(middle) <= room_cells { fits = middle } else { beyond = middle }
    }
    // Equal tiles, so that none is a narrow rest.
    sides.map(|side| {
        let count = side.div_ceil(fits).max(1);
        let even = side.div_ceil(count).max(1);
        if count > 1 { even.next_multiple_of(SIDE_STEP).min(fits.max(even)) } else { even }
    })
}

/// Bytes that tiles may take together.
fn room_bytes() -> usize {
    (memory::room_bytes() as f64 * ROOM_SHARE) as usize
}

/// Cells of tiles that there is room for together.
pub(in super::super) fn room_cells<T>() -> usize {
    room_bytes() / size_of::<T>()
}

/// Copies a rectangle of a matrix whose rows are so wide, and lets go what it was copied from.
pub(in super::super) fn load<T: Scalar>(
    cells: &[T],
    width: usize,
    rows: &Range<usize>,
    columns: &Range<usize>,
    copy: &mut [T],
) {
    let height = (TASK_BYTES / size_of::<T>() / width.max(1)).max(1);
    copy.par_chunks_mut((height * columns.len()).max(1)).enumerate().for_each(|(part, copy)| {
        let first = rows.start + part * height;
        let last = rows.end.min(first + height);
        for (row, copy) in (first..last).zip(copy.chunks_mut(columns.len())) {
            copy.copy_from_slice(&cells[row * width..][columns.clone()]);
        }
        memory::done_with(bytemuck::cast_slice(&cells[first * width..last * width]));
    });
}

/// Writes a rectangle of a matrix whose rows are so wide, and lets go what it was written to.
pub(in super::super) fn store<T: Scalar>(
    tile: &[T],
    rows: &Range<usize>,
    columns: &Range<usize>,
    out: &mut [T],
    width: usize,
) {
    let height = (TASK_BYTES / size_of::<T>() / width.max(1)).max(1);
    let out = &mut out[rows.start * width..rows.end * width];
    out.par_chunks_mut(height * width).enumerate().for_each(|(part, out)| {
        let tile = tile.chunks(columns.len()).skip(part * height);
        for (out, tile) in out.chunks_mut(width).zip(tile) {
            out[columns.clone()].copy_from_slice(tile);
        }
        memory::done_with(bytemuck::cast_slice(out));
    });
}

/// `out = t(x)` for so many rows and columns, in memory.
fn turn<T: Scalar>(x: &[T], rows: usize, columns: usize, out: &mut [T]) {
    const TILE: usize = 32;
    out.par_chunks_mut(TILE * rows).enumerate().for_each(|(stripe, out)| {
        let left = stripe * TILE;
        for top in (0..rows).step_by(TILE) {
            for (j, out) in (left..columns.min(left + TILE)).zip(out.chunks_mut(rows)) {
                for i in top..rows.min(top + TILE) {
                    out[i] = x[i * columns + j];
                }
            }
        }
    });
}

/// The transpose of a matrix, where one of the two is in a file: by tiles that are read, turned and written, so that
/// a page is touched for each tile and not for each row.
pub(super) fn transpose_by_tiles<T: Scalar>(x: &Dense<T>, out: &mut [T]) {
    let Shape { rows, columns } = x.shape();
    let side = TRANSPOSED_SIDE;
    let cells = side.min(rows) * side.min(columns);
    let (mut tile, mut turned) = (CellBuffer::arbitrary(cells), CellBuffer::arbitrary(cells));
    for across in ranges(columns, side) {
        for down in ranges(rows, side) {
            let cells = down.len() * across.len();
            load(x.cells(), columns, &down, &across, &mut tile[..cells]);
            turn(&tile[..cells], down.len(), across.len(), &mut turned[..cells]);
            store(&turned[..cells], &across, &down, out, rows);
        }
    }
}

/// Whether a transpose is to be made by tiles.
pub(super) fn turns_by_tiles<T: Scalar>(x: &Dense<T>, out: &[T]) -> bool {
    is_on_disk(x.cells()) || is_on_disk(out)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::{cross, gram, outer, product, transpose};
    use super::*;
    use crate::matrix::tier::testing::on_disk;

    /// All kinds of products where memory has room for this many bytes, in files and in memory.
    fn products_match(room_bytes: usize, sides: [usize; 3]) {
        let mut rng = rng(7);
        let [m, k, n] = sides;
        let (a, b) = (random::<f64>(&mut rng, m, k), random::<f64>(&mut rng, k, n));
        let tolerance = 20.0 * (k as f64).sqrt();
        let plain = (product(&a, &b, Stop::NEVER), gram(&a, Stop::NEVER), transpose(&a));
        let ((by_tiles, by_levels), (squares, turned), (crossed, outer_product)) =
            on_disk(room_bytes, |put| {
                let (a, b) = (put(&a), put(&b));
                let (x, y) = (Factor::plain(&a), Factor::plain(&b));
                assert!(needs_tiles([&a, &b], Shape::new(m, n)));
                let product = |levels| product_by_tiles(x, y, |_| levels, Stop::NEVER);
                let turned = transpose(&a);
                let crossed = product_by_tiles(Factor::transposed(&turned), y, |_| 1, Stop::NEVER);
                let outer_product = product_by_tiles(x, Factor::transposed(&a), |_| 1, Stop::NEVER);
                let both = (product(0), product(1));
                (both, (half_cross_by_tiles(&a, &a, Stop::NEVER), turned), (crossed, outer_product))
            });
        assert_close(&by_tiles, &plain.0, tolerance);
        assert_close(&by_levels, &plain.0, 100.0 * k as f64);
        assert_close(&squares, &plain.1, tolerance);
        let n = squares.shape().rows;
        assert!((0..n).all(|i| (0..i).all(|j| squares.row(i)[j] == squares.row(j)[i])));
        assert_eq!(turned.cells(), plain.2.cells());
        assert_close(&crossed, &cross(&plain.2, &b, Stop::NEVER), tolerance);
        assert_close(&outer_product, &outer(&a, &a, Stop::NEVER), tolerance);
    }

    #[test]
    fn products_by_tiles_are_those_of_the_definition() {
        products_match(5 << 20, [900, 700, 1100]);
        products_match(3 << 20, [2500, 600, 300]);
        products_match(0, [800, 1300, 700]);
    }

    #[test]
    fn tiles_fit_the_room_and_are_even() {
        let sides = [20_000, 20_000, 20_000];
        let ([m, k, n], room) = on_disk::<f64, _>(1 << 30, |_| {
            (tile_sides(sides, [true; 3], 8, &|_| 1), memory::room_bytes())
        });
        assert!(m == k && k == n && (4000..=5088).contains(&m), "{m}");
        assert!(m * m * 8 * 3 <= room);
        let narrow =
            on_disk::<f64, _>(1 << 30, |_| tile_sides([1_000_000, 50, 50], [true; 3], 8, &|_| 0));
        assert!(narrow[1] == 50 && narrow[2] == 50 && narrow[0] > 500_000, "{narrow:?}");
    }

    #[test]
    fn a_cell_that_is_not_finite_is_where_the_definition_has_it() {
        let mut cells = vec![1.0; 600 * 600];
        cells[5 * 600 + 7] = f64::INFINITY;
        let a = Dense::new(Shape::new(600, 600), cells.into());
        let expected = product(&a, &a, Stop::NEVER);
        let found = on_disk(1 << 20, |put| {
            let a = put(&a);
            product_by_tiles(Factor::plain(&a), Factor::plain(&a), |_| 1, Stop::NEVER)
        });
        assert_eq!(found.cells(), expected.cells());
    }
}
