//! Sums of products of columns, by blocks of rows: what covariances and regressions are made of.
//!
//! A sum is a plain slice of numbers, so that many of them, one for each group of rows, lie in one buffer
//! and travel as one array:
//!
//! ```text
//! 0        the number of rows
//! 1        the sum of their weights, which are 1 unless given
//! 2 …      of each column the first cell, from which its mean is counted
//!   …      of each column the mean, less that cell; both are zeros where products are about the origin
//!   …      Σ w·(xᵢ - mᵢ)·(xⱼ - mⱼ) for j ≤ i, row after row of the lower triangle
//! ```
//!
//! Products about the means keep their digits however far the means are from zero: each block is
//! centred at its own means, two sums are joined by what their means are apart, and means are counted
//! from a cell of the column, so that the difference of two of them is no rounded one.
//!
//! Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance", *The American
//! Statistician* 37 (1983).

use pulp::{Simd, WithSimd};

use super::arch::Arch;

/// Rows of a block: eight columns of them fit the nearest cache, and a column's sum has few additions.
pub const BLOCK_ROWS: usize = 256;

/// Lanes of a sum of products: row i of a block goes to lane i mod 8.
const LANES: usize = 8;

/// Columns on each side of a tile, whose four sums stay in registers.
const TILE: usize = 2;

const _: () = assert!(BLOCK_ROWS.is_multiple_of(LANES));

/// What products are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Center {
    /// Zero: `Σ xᵢ·xⱼ` as it stands, exact where products and sums are integers within 2⁵³.
    Origin,
    /// The mean of each column.
    Mean,
}

/// Numbers of a sum over so many columns, of which [`columns`] is the inverse.
pub fn length(columns: usize) -> usize {
    2 + 2 * columns + columns * (columns + 1) / 2
}

/// The columns that a sum of so many numbers is over; `None` where no number of columns gives it.
pub fn columns(numbers: usize) -> Option<usize> {
    (0..)
        .take_while(|columns| length(*columns) <= numbers)
        .find(|columns| length(*columns) == numbers)
}

/// A sum as its parts.
#[derive(Debug, Clone, Copy)]
pub struct Moments<'a> {
    columns: usize,
    sum: &'a [f64],
}

impl<'a> Moments<'a> {
    /// # Panics
    /// Unless the sum has as many numbers as [`length`] says.
    pub fn new(columns: usize, sum: &'a [f64]) -> Self {
        assert_eq!(sum.len(), length(columns), "a sum over {columns} columns");
        Self { columns, sum }
    }

    /// Rows added.
    pub fn rows(self) -> u64 {
        self.sum[0] as u64
    }

    /// Sum of the weights.
    pub fn weight(self) -> f64 {
        self.sum[1]
    }

    /// Number of columns.
    pub fn columns(self) -> usize {
        self.columns
    }

    /// Mean of a column.
    pub fn mean(self, column: usize) -> f64 {
        self.sum[2 + column] + self.sum[2 + self.columns + column]
    }

    /// Sum of the products of two columns.
    pub fn product(self, i: usize, j: usize) -> f64 {
        let (i, j) = (i.max(j), i.min(j));
        self.sum[2 + 2 * self.columns + i * (i + 1) / 2 + j]
    }
}

/// Rows to be added together, column by column, with room for one column more than there are where their
/// number is odd, so that tiles are whole.
#[derive(Debug)]
pub struct Block {
    columns: usize,
    rows: usize,
    cells: Vec<f64>,
    /// All above zero; empty where all are 1.
    weights: Vec<f64>,
    /// First cells and means, as a sum has them.
    means: Vec<f64>,
}

impl Block {
    /// No rows of so many columns, with weights or without.
    pub fn new(columns: usize, is_weighted: bool) -> Self {
        let cells = vec![0.0; columns.next_multiple_of(TILE) * BLOCK_ROWS];
        let weights = vec![0.0; if is_weighted { BLOCK_ROWS } else { 0 }];
        Self { columns, rows: 0, cells, weights, means: vec![0.0; 2 * columns] }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows it holds.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows it has room for.
    pub fn room(&self) -> usize {
        BLOCK_ROWS - self.rows
    }

    /// Where the next `count` cells of a column go.
    pub fn next_cells(&mut self, column: usize, count: usize) -> &mut [f64] {
        let start = column * BLOCK_ROWS + self.rows;
        &mut self.cells[start..start + count]
    }

    /// Where the next `count` weights go.
    ///
    /// # Panics
    /// Of a block without weights.
    pub fn next_weights(&mut self, count: usize) -> &mut [f64] {
        &mut self.weights[self.rows..self.rows + count]
    }

    /// Takes the next `count` cells and weights, all written, as rows.
    ///
    /// # Panics
    /// Where there is no room for them.
    pub fn grow(&mut self, count: usize) {
        assert!(count <= self.room(), "a block has {BLOCK_ROWS} rows at most");
        self.rows += count;
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        let numbers = self.cells.capacity() + self.weights.capacity() + self.means.capacity();
        numbers * size_of::<f64>()
    }

    /// Adds its rows to a sum, and is empty then.
    pub fn add_to(&mut self, sum: &mut [f64], center: Center) {
        self.add_by(Arch::up_to_256_bits(), sum, center);
    }

    fn add_by(&mut self, arch: Arch, sum: &mut [f64], center: Center) {
        assert_eq!(sum.len(), length(self.columns), "a sum over {} columns", self.columns);
        if self.rows > 0 {
            arch.dispatch(Add { block: self, sum, center });
        }
        self.rows = 0;
    }
}

struct Add<'a> {
    block: &'a mut Block,
    sum: &'a mut [f64],
    center: Center,
}

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { block, sum, center } = self;
        let Block { columns, rows, cells, weights, means: block_means } = block;
        let (columns, rows) = (*columns, *rows);
        let padded = rows.next_multiple_of(LANES);
        let weights = weights.get(..rows).filter(|weights| !weights.is_empty());
        let added = weights.map_or(rows as f64, |weights| weights.iter().sum());
        let (counts, rest) = sum.split_at_mut(2);
        let (means, products) = rest.split_at_mut(2 * columns);
        for (j, column) in cells.chunks_exact_mut(BLOCK_ROWS).take(columns).enumerate() {
            column[rows..padded].fill(0.0);
            if center == Center::Mean {
                let first = if counts[0] == 0.0 { column[0] } else { means[j] };
                block_means[j] = first;
                block_means[columns + j] = centre(&mut column[..rows], first, weights, added);
            }
            if let Some(weights) = weights {
                column[..rows].iter_mut().zip(weights).for_each(|(x, weight)| *x *= weight.sqrt());
            }
        }
        // One row is its own mean.
        if rows > 1 || center == Center::Origin {
            add_products(cells, columns, padded, products);
        }
        if center == Center::Mean {
            join_means(means, products, block_means, [counts[1], added]);
        }
        counts[0] += rows as f64;
        counts[1] += added;
    }
}

/// Subtracts the mean from each cell; gives the mean, less `first`.
#[inline(always)]
fn centre(column: &mut [f64], first: f64, weights: Option<&[f64]>, weight: f64) -> f64 {
    column.iter_mut().for_each(|x| *x -= first);
    let mut lanes = [0.0; LANES];
    match weights {
        None => {
            for cells in column.chunks(LANES) {
                lanes.iter_mut().zip(cells).for_each(|(lane, x)| *lane += x);
            }
        }
        Some(weights) => {
            for (cells, weights) in column.chunks(LANES).zip(weights.chunks(LANES)) {
                let weighted = cells.iter().zip(weights).map(|(x, weight)| x * weight);
                lanes.iter_mut().zip(weighted).for_each(|(lane, x)| *lane += x);
            }
        }
    }
    let mean = total(lanes) / weight;
    column.iter_mut().for_each(|x| *x -= mean);
    mean
}

/// The lanes added by halves.
#[inline(always)]
fn total(mut lanes: [f64; LANES]) -> f64 {
    let mut count = LANES;
    while count > 1 {
        count /= 2;
        for lane in 0..count {
            lanes[lane] += lanes[lane + count];
        }
    }
    lanes[0]
}

/// Adds the products of all pairs of columns to the lower triangle, tile by tile.
#[inline(always)]
fn add_products(cells: &[f64], columns: usize, rows: usize, products: &mut [f64]) {
    let column = |j: usize| &cells[j * BLOCK_ROWS..j * BLOCK_ROWS + rows];
    for i in (0..columns).step_by(TILE) {
        let left = [column(i), column(i + 1)];
        for j in (0..=i).step_by(TILE) {
            let sums = tile(left, [column(j), column(j + 1)]);
            for (i, sums) in (i..columns).zip(sums) {
                let row = &mut products[i * (i + 1) / 2..][..=i];
                for (product, sum) in row[j..].iter_mut().zip(sums) {
                    *product += sum;
                }
            }
        }
    }
}

/// The four products of two columns with two.
#[inline(always)]
fn tile([a, b]: [&[f64]; TILE], [c, d]: [&[f64]; TILE]) -> [[f64; TILE]; TILE] {
    let [mut ac, mut ad, mut bc, mut bd] = [[0.0; LANES]; 4];
    let rows = |column| <[f64]>::as_chunks::<LANES>(column).0;
    for (((a, b), c), d) in rows(a).iter().zip(rows(b)).zip(rows(c)).zip(rows(d)) {
        for lane in 0..LANES {
            ac[lane] += a[lane] * c[lane];
            ad[lane] += a[lane] * d[lane];
            bc[lane] += b[lane] * c[lane];
            bd[lane] += b[lane] * d[lane];
        }
    }
    [[total(ac), total(ad)], [total(bc), total(bd)]]
}

/// Adds another sum over the same columns to this one.
///
/// # Panics
/// Unless both are equally long.
pub fn join(columns: usize, sum: &mut [f64], other: &[f64], center: Center) {
    assert_eq!((sum.len(), other.len()), (length(columns), length(columns)), "sums over one set");
    if other[0] == 0.0 {
        return;
    }
    let (counts, rest) = sum.split_at_mut(2);
    let (means, products) = rest.split_at_mut(2 * columns);
    let (other_means, other_products) = other[2..].split_at(2 * columns);
    for (product, other) in products.iter_mut().zip(other_products) {
        *product += other;
    }
    if center == Center::Mean {
        join_means(means, products, other_means, [counts[1], other[1]]);
    }
    counts[0] += other[0];
    counts[1] += other[1];
}

/// Makes the means those of all rows, and adds to the products what is due to the two sides' means being
/// apart: `d·dᵗ` times `before·added / (before + added)`.
#[inline(always)]
fn join_means(
    means: &mut [f64],
    products: &mut [f64],
    other_means: &[f64],
    [before, added]: [f64; 2],
) {
    if before == 0.0 {
        means.copy_from_slice(other_means);
        return;
    }
    let columns = means.len() / 2;
    let (first, means) = means.split_at_mut(columns);
    let (other_first, other_means) = other_means.split_at(columns);
    let apart = |means: &[f64], j: usize| (other_first[j] - first[j]) + (other_means[j] - means[j]);
    let share = added / (before + added);
    let mut start = 0;
    for i in 0..columns {
        let scaled = apart(means, i) * (before * share);
        for (j, product) in products[start..=start + i].iter_mut().enumerate() {
            *product += scaled * apart(means, j);
        }
        start += i + 1;
    }
    for j in 0..columns {
        means[j] += apart(means, j) * share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::kernels::testing::{PLAIN, random, rng, wider};
    use crate::matrix::{Dense, Shape};

    /// Adds rows block by block.
    fn moments(x: &Dense<f64>, weights: Option<&[f64]>, center: Center) -> Vec<f64> {
        moments_by(x, weights, |block, sum| block.add_to(sum, center))
    }

    fn moments_by(
        x: &Dense<f64>,
        weights: Option<&[f64]>,
        add: impl Fn(&mut Block, &mut [f64]),
    ) -> Vec<f64> {
        let columns = x.shape().columns;
        let mut sum = vec![0.0; length(columns)];
        let mut block = Block::new(columns, weights.is_some());
        for i in 0..x.shape().rows {
            for j in 0..columns {
                block.next_cells(j, 1)[0] = x.row(i)[j];
            }
            if let Some(weights) = weights {
                block.next_weights(1)[0] = weights[i];
            }
            block.grow(1);
            if block.room() == 0 {
                add(&mut block, &mut sum);
            }
        }
        add(&mut block, &mut sum);
        sum
    }

    /// The definition, in two passes.
    fn product(x: &Dense<f64>, weights: &[f64], center: Center, i: usize, j: usize) -> f64 {
        let rows = || (0..x.shape().rows).map(|r| (x.row(r), weights[r]));
        let mean = |j: usize| {
            let sum: f64 = rows().map(|(row, weight)| row[j] * weight).sum();
            if center == Center::Mean { sum / weights.iter().sum::<f64>() } else { 0.0 }
        };
        let (left, right) = (mean(i), mean(j));
        rows().map(|(row, weight)| weight * (row[i] - left) * (row[j] - right)).sum()
    }

    #[test]
    fn products_follow_their_definition() {
        let mut rng = rng(4);
        for (rows, columns) in [(1, 1), (2, 3), (7, 2), (9, 5), (256, 4), (257, 4), (1000, 7)] {
            let x = random::<f64>(&mut rng, rows, columns);
            let given: Vec<f64> =
                random::<f64>(&mut rng, rows, 1).cells().iter().map(|w| w.abs() + 0.1).collect();
            let ones = vec![1.0; rows];
            for center in [Center::Origin, Center::Mean] {
                for weights in [None, Some(&given[..])] {
                    let sum = moments(&x, weights, center);
                    let found = Moments::new(columns, &sum);
                    assert_eq!(found.rows(), rows as u64);
                    for i in 0..columns {
                        for j in 0..columns {
                            let expected = product(&x, weights.unwrap_or(&ones), center, i, j);
                            let error = (found.product(i, j) - expected).abs();
                            assert!(error < 1e-12 * rows as f64, "{rows}x{columns} {center:?}");
                        }
                    }
                }
            }
        }
    }

    /// Means a thousand million times the deviations leave them seven digits of sixteen.
    #[test]
    fn a_large_mean_takes_no_digits() {
        let mut rng = rng(5);
        let near = random::<f64>(&mut rng, 1000, 2);
        // Multiples of 2⁻²⁰, which the large numbers hold exactly.
        let cells: Vec<f64> =
            near.cells().iter().map(|x| (x * 1048576.0).round() / 1048576.0).collect();
        let far: Vec<f64> = cells.iter().map(|x| x + 1e9).collect();
        let of = |cells: Vec<f64>| {
            let x = Dense::new(near.shape(), cells.into());
            moments(&x, None, Center::Mean)
        };
        let (near, far) = (of(cells), of(far));
        let (near, far) = (Moments::new(2, &near), Moments::new(2, &far));
        for (i, j) in [(0, 0), (1, 0), (1, 1)] {
            let (near, far) = (near.product(i, j), far.product(i, j));
            assert!((near - far).abs() < 1e-7, "{near} {far}");
        }
    }

    #[test]
    fn a_constant_column_has_no_variance_at_all() {
        let x = Dense::new(Shape::new(1000, 1), vec![0.1; 1000].into());
        let sum = moments(&x, None, Center::Mean);
        assert_eq!(Moments::new(1, &sum).product(0, 0), 0.0);
        assert_eq!(Moments::new(1, &sum).mean(0), 0.1);
    }

    #[test]
    fn joined_parts_are_the_whole() {
        let mut rng = rng(6);
        let x = random::<f64>(&mut rng, 700, 3);
        let part = |rows: std::ops::Range<usize>| {
            let shape = Shape::new(rows.len(), 3);
            Dense::new(shape, x.cells()[rows.start * 3..rows.end * 3].to_vec().into())
        };
        for center in [Center::Origin, Center::Mean] {
            let whole = moments(&x, None, center);
            let mut joined = vec![0.0; length(3)];
            for rows in [0..0, 0..1, 1..300, 300..700, 700..700] {
                join(3, &mut joined, &moments(&part(rows), None, center), center);
            }
            for (joined, whole) in joined.iter().zip(&whole) {
                assert!((joined - whole).abs() < 1e-12, "{center:?}");
            }
        }
    }

    #[test]
    fn vector_instructions_change_no_bit() {
        let mut rng = rng(7);
        let x = random::<f64>(&mut rng, 601, 5);
        let given: Vec<f64> =
            random(&mut rng, 601, 1).cells().iter().map(|w: &f64| w.abs()).collect();
        for center in [Center::Origin, Center::Mean] {
            for weights in [None, Some(&given[..])] {
                let bits = |arch| -> Vec<u64> {
                    let sum = moments_by(&x, weights, |block, sum| block.add_by(arch, sum, center));
                    sum.into_iter().map(f64::to_bits).collect()
                };
                assert!(wider().into_iter().all(|arch| bits(arch) == bits(PLAIN)), "{center:?}");
            }
        }
    }

    #[test]
    fn sums_of_integers_are_exact() {
        let shape = Shape::new(1000, 2);
        let cells: Vec<f64> = (0..2000).map(f64::from).collect();
        let sum = moments(&Dense::new(shape, cells.into()), None, Center::Origin);
        let products = Moments::new(2, &sum);
        let expected: f64 = (0..1000).map(|i| f64::from(2 * i * (2 * i + 1))).sum();
        assert_eq!(products.product(0, 1), expected);
    }

    #[test]
    fn an_empty_block_changes_nothing() {
        let mut sum = vec![0.0; length(2)];
        Block::new(2, false).add_to(&mut sum, Center::Mean);
        assert!(sum.iter().all(|x| *x == 0.0));
    }
}
