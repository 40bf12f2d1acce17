//! Products of a sparse and a dense matrix: `s·d`, `d·s` and `t(s)·d`; the results are dense.
//!
//! Each row of `s·d` is a sum of rows of `d`, held in registers for a block of columns at a time. Rows
//! are cut by stored cells, and a long row between pieces whose sums are added in order. `t(s)·d` and a
//! thin `d·s` scatter: parts add into results of their own where those are small beside the
//! parts, else the transpose of `s` is formed first.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::super::arch::Arch;
use super::super::{Real, Stop, add_into, dense, fold_blocks};
use super::cuts::{Cut, PIECE_CELLS, Part, begun, cuts_into, piece_cuts, pieces};
use super::rows::{all_finite, piece, stored_before};
use super::transpose;
use crate::matrix::{CellBuffer, Csr, Dense, Shape};
use crate::memory;

/// The cells of a dense right factor that are not finite, by column: where a row of the left factor
/// does not store their row, the formula has `0 * NaN` or `0 * inf`.
#[derive(Debug, Clone)]
pub struct NonFinite {
    /// A column, and the rows of its cells that are not finite, ascending.
    columns: Vec<(usize, Vec<u32>)>,
}

impl NonFinite {
    /// Finds them; usually there are none.
    pub fn of<T: Real>(y: &Dense<T>) -> Self {
        if all_finite(y.cells()) {
            return Self { columns: Vec::new() };
        }
        let rows = |j: usize| {
            (0..y.shape().rows).filter(|&i| !y.row(i)[j].is_finite()).map(|i| i as u32).collect()
        };
        let columns = (0..y.shape().columns).map(|j| (j, rows(j)));
        Self { columns: columns.filter(|(_, rows): &(_, Vec<u32>)| !rows.is_empty()).collect() }
    }

    /// Marks the cells of one row of the product, of a left row that stores `stored`.
    fn mark<T: Real>(&self, stored: &[u32], out: &mut [T]) {
        for (j, rows) in &self.columns {
            let met = |row: &u32| stored.binary_search(row).is_ok();
            if rows.len() > stored.len() || !rows.iter().all(met) {
                out[*j] = T::NAN;
            }
        }
    }
}

/// `x·y`.
///
/// - Work: 2·nnz·n flop for n columns of `y`.
///
/// # Panics
/// Where the inner sizes differ.
pub fn times_dense<T: Real>(x: &Csr<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().rows, y.shape().columns);
    let mut cells = CellBuffer::arbitrary(shape.cells());
    let non_finite = NonFinite::of(y);
    let mut left = &mut cells[..];
    let mut parts = Vec::new();
    for part in piece_cuts(x, shape.columns) {
        let (out, rest) = left.split_at_mut(begun(x.offsets(), &part).len() * shape.columns);
        left = rest;
        parts.push((part, out));
    }
    let continued: Vec<_> = parts
        .into_par_iter()
        .map(|(part, out)| (part.start.row, Sums::new(x, y, stop).part(&part, &non_finite, out)))
        .collect();
    for (row, pieces) in continued {
        for piece in pieces.chunks(shape.columns.max(1)) {
            add_into(&mut cells[row * shape.columns..][..shape.columns], piece);
        }
    }
    dense(shape, cells)
}

/// `out = x·y` for a block of rows `x`, on the calling thread; `non_finite` is that of `y`.
///
/// # Panics
/// Where the inner sizes differ or `out` is not as long as the result.
pub fn times_dense_into<T: Real>(x: &Csr<T>, y: &Dense<T>, non_finite: &NonFinite, out: &mut [T]) {
    let (rows, offsets) = (x.shape().rows, x.offsets());
    let cells = rows * y.shape().columns;
    assert!(x.shape().columns == y.shape().rows && out.len() == cells, "inner sizes");
    let cut = |row: usize| Cut { row, cell: offsets[row] as usize };
    Sums::new(x, y, Stop::NEVER).part(&(cut(0)..cut(rows)), non_finite, out);
}

/// Rows of `x·y`.
struct Sums<'a, T: Real> {
    offsets: &'a [i64],
    columns: &'a [u32],
    values: &'a [T],
    y: &'a Dense<T>,
    stop: Stop<'a>,
}

impl<'a, T: Real> Sums<'a, T> {
    fn new(x: &'a Csr<T>, y: &'a Dense<T>, stop: Stop<'a>) -> Self {
        Self { offsets: x.offsets(), columns: x.columns(), values: x.values(), y, stop }
    }

    /// Writes the rows that begin in a part, as far as it has them, and returns the sum of each piece of
    /// the row that it begins within.
    fn part(&self, part: &Range<Cut>, non_finite: &NonFinite, out: &mut [T]) -> Vec<T> {
        let (offsets, n) = (self.offsets, self.y.shape().columns);
        let begun = begun(offsets, part);
        let mut piece = vec![T::ZERO; n];
        let mut continued = Vec::new();
        if begun.start > part.start.row {
            let end = part.end.cell.min(offsets[begun.start] as usize);
            for cells in pieces(part.start.cell..end) {
                self.write(cells, &mut piece);
                continued.extend_from_slice(&piece);
            }
        }
        for (at, row) in begun.enumerate() {
            if self.stop.is_asked() {
                break;
            }
            let out = &mut out[at * n..(at + 1) * n];
            let start = offsets[row] as usize;
            let end = part.end.cell.min(offsets[row + 1] as usize);
            let first = end.min(start + PIECE_CELLS);
            self.write(start..first, out);
            for cells in pieces(first..end) {
                self.write(cells, &mut piece);
                add_into(out, &piece);
            }
            non_finite.mark(&self.columns[start..offsets[row + 1] as usize], out);
        }
        let cells = part.start.cell..part.end.cell;
        memory::done_with(bytemuck::cast_slice(&self.columns[cells.clone()]));
        memory::done_with(bytemuck::cast_slice(&self.values[cells]));
        continued
    }

    /// The sum of the rows of `y` that some cells of one row meet.
    #[inline]
    fn write(&self, cells: Range<usize>, out: &mut [T]) {
        let (columns, values) = (&self.columns[cells.clone()], &self.values[cells]);
        if let [out] = out {
            *out = gathered_dot(columns, values, self.y.cells());
        } else {
            Arch::new().dispatch(Combination { columns, values, y: self.y, out });
        }
    }
}

/// `out = Σ valueₖ·rowₖ` of the rows of `y` at these places, a block of columns at a time.
struct Combination<'a, T: Real> {
    columns: &'a [u32],
    values: &'a [T],
    y: &'a Dense<T>,
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Combination<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let first = self.blocks::<32>(0);
        let first = self.blocks::<8>(first);
        let first = self.blocks::<2>(first);
        self.blocks::<1>(first);
    }
}

impl<T: Real> Combination<'_, T> {
    /// Blocks of so many columns from `first` on; returns where fewer are left.
    #[inline(always)]
    fn blocks<const WIDTH: usize>(&mut self, mut first: usize) -> usize {
        let (n, cells) = (self.out.len(), self.y.cells());
        while n - first >= WIDTH {
            let mut sums = [T::ZERO; WIDTH];
            for (&k, &x) in self.columns.iter().zip(self.values) {
                let row = &cells[k as usize * n + first..][..WIDTH];
                for at in 0..WIDTH {
                    sums[at] += x * row[at];
                }
            }
            self.out[first..first + WIDTH].copy_from_slice(&sums);
            first += WIDTH;
        }
        first
    }
}

/// `x·y` of a dense and a sparse matrix.
///
/// # Panics
/// Where the inner sizes differ.
pub fn dense_times<T: Real>(x: &Dense<T>, y: &Csr<T>, stop: Stop<'_>) -> Dense<T> {
    let shape = Shape::new(x.shape().rows, y.shape().columns);
    let blocks = blocks(y);
    if shape.rows >= 8 || blocks == 1 {
        let leaf = |rows: Range<usize>| {
            let mut out = vec![T::ZERO; rows.len() * shape.columns];
            if !stop.is_asked() {
                dense_times_into(&x.rows(rows), y, &mut out);
            }
            out
        };
        let join = |mut top: Vec<T>, bottom: Vec<T>| {
            top.extend_from_slice(&bottom);
            top
        };
        let grain = (1 << 16) / y.stored().max(1) + 1;
        let cells = fold_blocks(shape.rows, grain, &leaf, &join).unwrap_or_default();
        return dense(shape, cells);
    }
    let leaf = |part: Part| {
        let mut out = vec![T::ZERO; shape.cells()];
        for (k, columns) in part.rows(shape.columns).take_while(|_| !stop.is_asked()) {
            let row = piece(y, k, &columns);
            for (i, out) in out.chunks_mut(shape.columns).enumerate() {
                scatter(x.row(i)[k], row, &columns, out, 1);
            }
        }
        out
    };
    dense(shape, by_cells(y, blocks, &leaf).expect("there are blocks"))
}

/// `out += x·y` for a block of rows `x`, on the calling thread.
///
/// # Panics
/// Where the inner sizes differ or `out` is not as long as the result.
pub fn dense_times_into<T: Real>(x: &Dense<T>, y: &Csr<T>, out: &mut [T]) {
    let n = y.shape().columns;
    assert!(x.shape().columns == y.shape().rows && out.len() == x.shape().rows * n, "inner sizes");
    for i in 0..x.shape().rows {
        let out = &mut out[i * n..(i + 1) * n];
        for (k, &x) in x.row(i).iter().enumerate() {
            scatter(x, y.row(k), &(0..n), out, 1);
        }
    }
}

/// `t(x)·y`.
///
/// # Panics
/// Where the numbers of rows differ.
pub fn cross_dense<T: Real>(x: &Csr<T>, y: &Dense<T>, stop: Stop<'_>) -> Dense<T> {
    let blocks = blocks(x);
    if blocks == 1 && x.stored() > 1 << 16 {
        return times_dense(&transpose(x, stop), y, stop);
    }
    let shape = Shape::new(x.shape().columns, y.shape().columns);
    let leaf = |part: Part| {
        let mut out = vec![T::ZERO; shape.cells()];
        for (i, columns) in part.rows(shape.rows).take_while(|_| !stop.is_asked()) {
            cross_row(piece(x, i, &columns), &columns, y.row(i), &mut out);
        }
        out
    };
    let cells = by_cells(x, blocks, &leaf);
    dense(shape, cells.unwrap_or_else(|| vec![T::ZERO; shape.cells()]))
}

/// `out += t(x)·y` for a block of the rows of both, on the calling thread.
///
/// # Panics
/// Where the numbers of rows differ or `out` is not as long as the result.
pub fn cross_dense_into<T: Real>(x: &Csr<T>, y: &Dense<T>, out: &mut [T]) {
    let (m, n) = (x.shape().columns, y.shape().columns);
    assert!(x.shape().rows == y.shape().rows && out.len() == m * n, "equally many rows");
    for i in 0..x.shape().rows {
        cross_row(x.row(i), &(0..m), y.row(i), out);
    }
}

/// Adds what one row of `t(x)·y` comes from: `row` of `x`, or what it stores in these columns, and `right` of `y`.
fn cross_row<T: Real>(row: (&[u32], &[T]), columns: &Range<usize>, right: &[T], out: &mut [T]) {
    if columns.is_empty() {
        return;
    }
    let n = right.len();
    if let [y] = right {
        scatter(*y, row, columns, out, 1);
    } else if right.iter().all(|y| y.is_finite()) {
        for (&j, &x) in row.0.iter().zip(row.1) {
            add_scaled(&mut out[j as usize * n..][..n], x, right);
        }
    } else {
        for (k, &y) in right.iter().enumerate() {
            scatter(y, row, columns, &mut out[k..], n);
        }
    }
}

/// Adds `x` times a sparse row, or what it stores in these columns, to cells that lie `stride` apart.
fn scatter<T: Real>(
    x: T,
    (places, values): (&[u32], &[T]),
    columns: &Range<usize>,
    out: &mut [T],
    stride: usize,
) {
    for (&j, &y) in places.iter().zip(values) {
        out[j as usize * stride] += x * y;
    }
    if !x.is_finite() {
        let mut stored = places.iter().peekable();
        for j in columns.clone() {
            if stored.next_if(|column| **column as usize == j).is_none() {
                out[j * stride] = T::NAN;
            }
        }
    }
}

/// The sum of stored cells times those of a vector, in four lanes so that they need not wait.
fn gathered_dot<T: Real>(columns: &[u32], values: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; 4];
    let (columns, values) = (columns.chunks_exact(4), values.chunks_exact(4));
    let rest = columns.remainder().iter().zip(values.remainder());
    for (columns, values) in columns.zip(values) {
        for (lane, (&k, &x)) in lanes.iter_mut().zip(columns.iter().zip(values)) {
            *lane += x * y[k as usize];
        }
    }
    let [a, b, c, d] = lanes;
    rest.fold((a + b) + (c + d), |sum, (&k, &x)| sum + x * y[k as usize])
}

/// `out += a·row`.
fn add_scaled<T: Real>(out: &mut [T], a: T, row: &[T]) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out += a * x;
    }
}

/// Into how many parts a scattering product is cut: only where the columns are few beside
/// the stored cells is it worth a result for each.
fn blocks<T: Real>(x: &Csr<T>) -> usize {
    let per_column = x.stored() / x.shape().columns.max(1);
    if x.stored() < 1 << 16 { 1 } else { (per_column / 4).clamp(1, 16) }
}

/// The sum of what `leaf` yields for so many parts that store equally many cells.
fn by_cells<T: Real>(
    x: &Csr<T>,
    blocks: usize,
    leaf: &(impl Fn(Part) -> Vec<T> + Sync),
) -> Option<Vec<T>> {
    let parts = cuts_into(blocks, x.shape(), stored_before(x));
    fold_blocks(parts.len(), 1, &|part| leaf(parts[part.start]), &sum)
}

fn sum<T: Real>(mut left: Vec<T>, right: Vec<T>) -> Vec<T> {
    add_into(&mut left, &right);
    left
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::to_dense;
    use super::*;

    const SHAPES: [(usize, usize, usize); 9] = [
        (0, 3, 2),
        (3, 0, 2),
        (3, 2, 0),
        (1, 1, 1),
        (40, 30, 1),
        (1, 30, 40),
        (300, 200, 7),
        (3000, 200, 3),
        (500, 3000, 1),
    ];

    fn transposed<T: Real>(x: &Dense<T>) -> Dense<T> {
        build(x.shape().columns, x.shape().rows, |i, j| x.row(j)[i])
    }

    fn products_match<T: Real>(poison: Option<f64>) {
        let mut rng = rng(1);
        for (m, k, n) in SHAPES {
            let s = random_sparse::<T>(&mut rng, m, k, 0.2);
            let spoil = |x: Dense<T>| {
                build(x.shape().rows, x.shape().columns, |i, j| match poison {
                    Some(poison) if (i * 7 + j * 3) % 29 == 0 => T::from_f64(poison),
                    _ => x.row(i)[j],
                })
            };
            let (right, left) = (spoil(random(&mut rng, k, n)), spoil(random(&mut rng, n, m)));
            let (tall, d) = (spoil(random(&mut rng, m, n)), to_dense(&s));
            assert_close(&times_dense(&s, &right, Stop::NEVER), &naive_product(&d, &right), 1e3);
            assert_close(&dense_times(&left, &s, Stop::NEVER), &naive_product(&left, &d), 1e3);
            assert_close(
                &cross_dense(&s, &tall, Stop::NEVER),
                &naive_product(&transposed(&d), &tall),
                1e3,
            );
        }
    }

    #[test]
    fn mixed_products_are_those_of_the_definition() {
        products_match::<f64>(None);
        products_match::<f32>(None);
    }

    #[test]
    fn cells_that_are_not_stored_meet_nan_and_infinity_too() {
        products_match::<f64>(Some(f64::NAN));
        products_match::<f64>(Some(f64::INFINITY));
    }

    fn long_rows_match<T: Real>() {
        let mut rng = rng(3);
        let (short, long) = (
            random_sparse::<T>(&mut rng, 600, 9000, 0.002),
            random_sparse(&mut rng, 40, 9000, 0.7),
        );
        let none = random_sparse(&mut rng, 300, 9000, 0.0);
        let s = super::super::vstack(&[short.clone(), long, none, short]);
        for n in [1, 2, 3, 41, 64] {
            let y = random::<T>(&mut rng, 9000, n);
            let found = times_dense(&s, &y, Stop::NEVER);
            assert_close(&found, &naive_product(&to_dense(&s), &y), 1e4);
            let non_finite = NonFinite::of(&y);
            for rows in [0..1, 0..1540, 590..640, 601..602, 700..1540] {
                let mut block = vec![T::ONE; rows.len() * n];
                times_dense_into(&s.rows(rows.clone()), &y, &non_finite, &mut block);
                assert_eq!(block, found.rows(rows).cells(), "{n} columns");
            }
        }
    }

    #[test]
    fn a_row_that_is_cut_has_the_bits_of_one_that_is_not() {
        long_rows_match::<f64>();
        long_rows_match::<f32>();
    }

    #[test]
    fn the_bits_of_mixed_products_do_not_depend_on_threads() {
        let mut rng = rng(2);
        let s = random_sparse::<f64>(&mut rng, 20_000, 50, 0.3);
        let (x, y) = (random::<f64>(&mut rng, 50, 4), random::<f64>(&mut rng, 20_000, 3));
        let z = random::<f64>(&mut rng, 2, 20_000);
        same_bits(|| times_dense(&s, &x, Stop::NEVER).cells().to_vec());
        same_bits(|| cross_dense(&s, &y, Stop::NEVER).cells().to_vec());
        same_bits(|| dense_times(&z, &s, Stop::NEVER).cells().to_vec());
    }
}
