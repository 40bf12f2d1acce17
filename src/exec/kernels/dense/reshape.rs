//! Dense matrices rearranged: transposes, slices, stacks, Kronecker products, running sums.
//!
//! Blocks of whole rows share their cells ([`Dense::rows`]); everything here writes new ones, a row at
//! a time, in parallel where there are enough of them to be worth a task.

use std::ops::Range;
use std::slice;

use rayon::prelude::*;

use super::super::dense;
use super::tiles::{transpose_by_tiles, turns_by_tiles};
use crate::matrix::{CellBuffer, Dense, Scalar, Shape};
use crate::memory;

/// Cells that one task writes at least; about 50 µs.
const TASK_CELLS: usize = 1 << 15;

/// The transpose, in tiles that fit the first-level cache, and within them in blocks of registers.
pub fn transpose<T: Scalar>(x: &Dense<T>) -> Dense<T> {
    const TILE: usize = 32;
    let (m, n) = (x.shape().rows, x.shape().columns);
    if m <= 1 || n <= 1 {
        return reshape(x, x.shape().transposed());
    }
    let mut cells = CellBuffer::arbitrary(m * n);
    if turns_by_tiles(x, &cells) {
        transpose_by_tiles(x, &mut cells);
        return dense(x.shape().transposed(), cells);
    }
    cells.par_chunks_mut(TILE * m).enumerate().for_each(|(stripe, out)| {
        let left = stripe * TILE;
        for top in (0..m).step_by(TILE) {
            transpose_tile(x, top..m.min(top + TILE), left..n.min(left + TILE), out);
        }
    });
    dense(x.shape().transposed(), cells)
}

/// Writes a tile of `x` into its columns' rows of the transpose, of which `out` begins at the first.
fn transpose_tile<T: Scalar>(
    x: &Dense<T>,
    rows: Range<usize>,
    columns: Range<usize>,
    out: &mut [T],
) {
    const BLOCK: usize = 8;
    let (m, n) = (x.shape().rows, x.shape().columns);
    let (whole_rows, whole_columns) = (rows.len() / BLOCK, columns.len() / BLOCK);
    for top in (rows.start..).step_by(BLOCK).take(whole_rows) {
        for left in (columns.start..).step_by(BLOCK).take(whole_columns) {
            let mut block = [[T::ZERO; BLOCK]; BLOCK];
            for (i, row) in block.iter_mut().enumerate() {
                row.copy_from_slice(&x.cells()[(top + i) * n + left..][..BLOCK]);
            }
            for j in 0..BLOCK {
                let out = &mut out[(left + j - columns.start) * m + top..][..BLOCK];
                for (out, row) in out.iter_mut().zip(&block) {
                    *out = row[j];
                }
            }
        }
    }
    let mut rest = |rows: Range<usize>, columns_left: Range<usize>| {
        for j in columns_left {
            for i in rows.clone() {
                out[(j - columns.start) * m + i] = x.cells()[i * n + j];
            }
        }
    };
    let (bottom, right) = (rows.start + whole_rows * BLOCK, columns.start + whole_columns * BLOCK);
    rest(bottom..rows.end, columns.clone());
    rest(rows.start..bottom, right..columns.end);
}

/// The same cells, row by row, in another shape; shared.
///
/// # Panics
/// Where the numbers of cells differ.
pub fn reshape<T: Scalar>(x: &Dense<T>, shape: Shape) -> Dense<T> {
    Dense::new(shape, x.buffer().clone())
}

/// A range of columns.
///
/// # Panics
/// Where it reaches outside.
pub fn slice_columns<T: Scalar>(x: &Dense<T>, columns: Range<usize>) -> Dense<T> {
    assert!(columns.end <= x.shape().columns, "columns within {}", x.shape());
    by_rows_of(slice::from_ref(x), columns.len(), |i, out| {
        out.copy_from_slice(&x.row(i)[columns.clone()]);
    })
}

/// The columns at these places, in their order.
///
/// # Panics
/// Where one is outside.
pub fn gather_columns<T: Scalar>(x: &Dense<T>, places: &[usize]) -> Dense<T> {
    by_rows_of(slice::from_ref(x), places.len(), |i, out| {
        let row = x.row(i);
        for (out, &place) in out.iter_mut().zip(places) {
            *out = row[place];
        }
    })
}

/// The rows at these places, in their order.
///
/// # Panics
/// Where one is outside.
pub fn gather_rows<T: Scalar>(x: &Dense<T>, places: &[usize]) -> Dense<T> {
    assert!(places.iter().all(|&place| place < x.shape().rows), "rows within {}", x.shape());
    by_rows(Shape::new(places.len(), x.shape().columns), |i, out| {
        out.copy_from_slice(x.row(places[i]));
    })
}

/// Matrices of equally many rows, side by side.
///
/// # Panics
/// Where their numbers of rows differ, or there is none.
pub fn hstack<T: Scalar>(parts: &[Dense<T>]) -> Dense<T> {
    let columns = parts.iter().map(|part| part.shape().columns).sum();
    by_rows_of(parts, columns, |i, mut out| {
        for part in parts {
            let (head, tail) = out.split_at_mut(part.shape().columns);
            head.copy_from_slice(part.row(i));
            out = tail;
        }
    })
}

/// Matrices of equally many columns, one below the other. Each goes once it is copied: where nobody else
/// reads them, they and what they become are never in memory together.
///
/// # Panics
/// Where their numbers of columns differ, or there is none.
pub fn vstack<T: Scalar>(parts: Vec<Dense<T>>) -> Dense<T> {
    let columns = parts[0].shape().columns;
    assert!(parts.iter().all(|part| part.shape().columns == columns), "equally many columns");
    let rows = parts.iter().map(|part| part.shape().rows).sum();
    let mut cells = CellBuffer::arbitrary(rows * columns);
    let mut left = &mut cells[..];
    let mut copies = Vec::with_capacity(parts.len());
    for part in parts {
        let (to, rest) = std::mem::take(&mut left).split_at_mut(part.cells().len());
        copies.push((to, part));
        left = rest;
    }
    copies.into_par_iter().for_each(|(to, part)| memory::copy(to, part.cells()));
    dense(Shape::new(rows, columns), cells)
}

/// The Kronecker product: each cell of `x` times the whole of `y`.
pub fn kron<T: Scalar>(x: &Dense<T>, y: &Dense<T>) -> Dense<T> {
    let (x_shape, y_shape) = (x.shape(), y.shape());
    let shape = Shape::new(x_shape.rows * y_shape.rows, x_shape.columns * y_shape.columns);
    by_rows(shape, |i, out| {
        let (left, right) = (x.row(i / y_shape.rows), y.row(i % y_shape.rows));
        for (&x, out) in left.iter().zip(out.chunks_exact_mut(y_shape.columns)) {
            for (out, &y) in out.iter_mut().zip(right) {
                *out = x * y;
            }
        }
    })
}

/// Running sums down the rows.
pub fn cumsum<T: Scalar>(x: &Dense<T>) -> Dense<T> {
    let Shape { rows, columns } = x.shape();
    let mut cells = CellBuffer::arbitrary(rows * columns);
    let mut carry = vec![T::ZERO; columns];
    let height = block_rows(columns);
    let blocks = cells.chunks_mut((height * columns).max(1)).enumerate();
    for (block, out) in blocks {
        let block = x.rows(block * height..rows.min((block + 1) * height));
        cumsum_into(&block, &mut carry, out);
        memory::done_with(bytemuck::cast_slice(out));
        memory::done_with(bytemuck::cast_slice(block.cells()));
    }
    dense(x.shape(), cells)
}

/// Running sums down a block of rows, on the calling thread; `carry` holds those of the rows before
/// and, on return, those of the last row.
///
/// # Panics
/// Unless `carry` is as long as a row and `out` as the block.
pub fn cumsum_into<T: Scalar>(x: &Dense<T>, carry: &mut [T], out: &mut [T]) {
    let n = x.shape().columns;
    assert!(carry.len() == n && out.len() == x.cells().len(), "a carry for each column");
    for (i, out) in out.chunks_exact_mut(n.max(1)).enumerate() {
        for ((sum, out), &x) in carry.iter_mut().zip(out).zip(x.row(i)) {
            *sum += x;
            *out = *sum;
        }
    }
}

/// The cells on the diagonal, as a column.
pub fn diagonal<T: Scalar>(x: &Dense<T>) -> Dense<T> {
    let n = x.shape().rows.min(x.shape().columns);
    dense(Shape::new(n, 1), (0..n).map(|i| x.row(i)[i]).collect::<Vec<_>>())
}

/// The square matrix with these cells on its diagonal and zeros elsewhere.
pub fn diagonal_matrix<T: Scalar>(values: &[T]) -> Dense<T> {
    let n = values.len();
    let mut cells = CellBuffer::zeroed(n * n);
    for (i, &value) in values.iter().enumerate() {
        cells[i * (n + 1)] = value;
    }
    dense(Shape::new(n, n), cells)
}

/// A matrix whose rows are written one by one, in parallel.
fn by_rows<T: Scalar>(shape: Shape, write: impl Fn(usize, &mut [T]) + Sync) -> Dense<T> {
    by_blocks(shape, block_rows(shape.columns), |rows, out| {
        rows.zip(out.chunks_exact_mut(shape.columns)).for_each(|(i, out)| write(i, out));
    })
}

/// The same where each row is made of the rows that some matrices have in its place.
///
/// # Panics
/// Where their numbers of rows differ, or there is none.
fn by_rows_of<T: Scalar>(
    of: &[Dense<T>],
    columns: usize,
    write: impl Fn(usize, &mut [T]) + Sync,
) -> Dense<T> {
    let rows = of[0].shape().rows;
    assert!(of.iter().all(|x| x.shape().rows == rows), "equally many rows");
    let widest = of.iter().map(|x| x.shape().columns).fold(columns, usize::max);
    by_blocks(Shape::new(rows, columns), block_rows(widest), |rows, out| {
        rows.clone().zip(out.chunks_exact_mut(columns)).for_each(|(i, out)| write(i, out));
        for x in of {
            memory::done_with(bytemuck::cast_slice(x.rows(rows.clone()).cells()));
        }
    })
}

/// A matrix of which so many rows are written at a time, in parallel.
fn by_blocks<T: Scalar>(
    shape: Shape,
    height: usize,
    write: impl Fn(Range<usize>, &mut [T]) + Sync,
) -> Dense<T> {
    let mut cells = CellBuffer::arbitrary(shape.cells());
    if !cells.is_empty() {
        cells.par_chunks_mut(height * shape.columns).enumerate().for_each(|(block, out)| {
            let first = block * height;
            write(first..first + out.len() / shape.columns, out);
            memory::done_with(bytemuck::cast_slice(out));
        });
    }
    dense(shape, cells)
}

/// Rows of a task.
fn block_rows(columns: usize) -> usize {
    TASK_CELLS / columns.max(1) + 1
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::*;

    const SHAPES: [(usize, usize); 9] =
        [(0, 0), (0, 3), (3, 0), (1, 1), (1, 50), (50, 1), (7, 31), (33, 64), (300, 200)];

    #[test]
    fn a_transpose_swaps_rows_and_columns() {
        let mut rng = rng(1);
        for (m, n) in SHAPES {
            let x = random::<f32>(&mut rng, m, n);
            assert_close(&transpose(&x), &build(n, m, |i, j| x.row(j)[i]), 0.0);
        }
    }

    #[test]
    fn slices_and_gathers_take_what_they_name() {
        let mut rng = rng(2);
        let x = random::<f64>(&mut rng, 20, 30);
        let slice = slice_columns(&x.rows(5..20), 3..9);
        assert_close(&slice, &build(15, 6, |i, j| x.row(i + 5)[j + 3]), 0.0);
        let places = [4, 0, 4, 19];
        assert_close(&gather_rows(&x, &places), &build(4, 30, |i, j| x.row(places[i])[j]), 0.0);
        assert_close(&gather_columns(&x, &places), &build(20, 4, |i, j| x.row(i)[places[j]]), 0.0);
        assert_eq!(gather_columns(&x, &[]).shape(), Shape::new(20, 0));
        assert_eq!(gather_rows(&x, &[]).shape(), Shape::new(0, 30));
    }

    #[test]
    fn stacks_lay_their_parts_in_order() {
        let mut rng = rng(3);
        let (x, y) = (random::<f64>(&mut rng, 4, 2), random::<f64>(&mut rng, 4, 3));
        let empty = random::<f64>(&mut rng, 4, 0);
        let wide = hstack(&[x.clone(), empty, y.clone()]);
        let cell = |i: usize, j: usize| if j < 2 { x.row(i)[j] } else { y.row(i)[j - 2] };
        assert_close(&wide, &build(4, 5, cell), 0.0);
        let tall = vstack(vec![transpose(&x), transpose(&y)]);
        assert_close(&tall, &transpose(&wide), 0.0);
    }

    #[test]
    fn kron_repeats_its_right_factor() {
        let mut rng = rng(4);
        for ((a, b), (c, d)) in
            [((2, 3), (4, 5)), ((1, 1), (3, 2)), ((0, 2), (3, 2)), ((2, 2), (3, 0))]
        {
            let (x, y) = (random::<f64>(&mut rng, a, b), random::<f64>(&mut rng, c, d));
            let cell = |i: usize, j: usize| x.row(i / c)[j / d] * y.row(i % c)[j % d];
            assert_close(&kron(&x, &y), &build(a * c, b * d, cell), 0.0);
        }
    }

    #[test]
    fn running_sums_carry_over_blocks() {
        let mut rng = rng(5);
        let x = random::<f64>(&mut rng, 10, 3);
        let whole = cumsum(&x);
        let column = |i: usize, j: usize| (0..=i).map(|k| x.row(k)[j]).sum();
        assert_close(&whole, &build(10, 3, column), 10.0);
        let (mut carry, mut out) = (vec![0.0; 3], vec![0.0; 30]);
        cumsum_into(&x.rows(0..4), &mut carry, &mut out[..12]);
        cumsum_into(&x.rows(4..10), &mut carry, &mut out[12..]);
        assert_eq!(out, whole.cells());
        assert_eq!(cumsum(&random::<f64>(&mut rng, 5, 0)).shape(), Shape::new(5, 0));
    }

    #[test]
    fn a_diagonal_goes_in_and_comes_out() {
        let x = diagonal_matrix(&[1.0, 2.0, 3.0]);
        assert_eq!(x.cells(), [1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0]);
        assert_eq!(diagonal(&x).cells(), [1.0, 2.0, 3.0]);
        assert_eq!(diagonal(&x.rows(0..2)).cells(), [1.0, 2.0]);
    }
}
