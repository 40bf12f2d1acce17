//! Products of two sparse matrices, row by row (Gustavson), with sparse results.
//!
//! The cells of a short row are put in order by a network for eight rows at once ([`Lanes`]), and those of
//! one place added. A long one is scattered into a dense row of sums; which of them were touched is kept as
//! bits under a summary of bits, which gives the columns in order without sorting. Both add in the order
//! of the columns of the left factor, so that no bit depends on which of them was taken.

use std::ops::Range;

use rayon::prelude::*;

use super::super::{Real, Stop};
use super::cut_rows;
use super::cuts::{cuts_within_rows, row_cuts};
use super::lanes::{CELLS_MAX, LANES, Lanes};
use super::rows::{Rows, accumulate, all_finite, by_rows, in_parts, join, piece, stored_values};
use super::transpose;
use crate::matrix::{Csr, Shape};

/// `a·b`.
///
/// - Work: 2 flop for each pair of stored cells that meet. Memory: besides the result, 8⅛ or so bytes
///   for each column of `b` and thread.
///
/// # Panics
/// Where the inner sizes differ.
pub fn product<T: Real>(a: &Csr<T>, b: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    assert_eq!(a.shape().columns, b.shape().rows, "inner sizes");
    let sums = of_stored(a, b, stop);
    if are_finite(a, b) {
        return sums;
    }
    let (left, right) = (non_finite(a), non_finite(b));
    by_rows(
        sums.shape(),
        |row, column| row * sums.shape().columns + column,
        Vec::new,
        stop,
        |cells, i, columns, rows| {
            cells.clear();
            cells.resize(columns.len(), T::ZERO);
            let (places, values) = piece(&sums, i, &columns);
            for (&j, &sum) in places.iter().zip(values) {
                cells[j as usize - columns.start] = sum;
            }
            let own = left.partition_point(|bad| (bad.0 as usize) < i);
            let bad = left[own..].iter().take_while(|bad| bad.0 as usize == i);
            spoil(a.row(i).0, bad.map(|bad| bad.1), (b, &right), &columns, cells);
            for (j, &cell) in columns.zip(&*cells) {
                rows.push(j as u32, cell);
            }
        },
    )
}

/// The same of the stored cells alone, whether or not others would be met.
fn of_stored<T: Real>(a: &Csr<T>, b: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    let shape = Shape::new(a.shape().rows, b.shape().columns);
    let before = pairs_before(a, b);
    let pairs = Pairs { a, b, before: &before, stop };
    if let Some(parts) = cuts_within_rows(&before) {
        return cut_rows::product(shape, &pairs, parts);
    }
    let scratch = || (Lanes::new(), Sums::new(shape.columns));
    let rows = |(lanes, sums): &mut (Lanes<T>, Sums<T>), part: Range<usize>| {
        let mut rows = Rows::with_guess(part.len(), before[part.end] - before[part.start]);
        pairs.write(part, lanes, sums, &mut rows);
        rows
    };
    join(shape, in_parts(row_cuts(shape.rows, |row| before[row]), scratch, rows))
}

/// Whether no cell that is stored makes more of one that is not than a zero.
fn are_finite<T: Real>(a: &Csr<T>, b: &Csr<T>) -> bool {
    all_finite(stored_values(a)) && all_finite(stored_values(b))
}

/// Pairs of stored cells that meet in the rows of `a·b` before each of them, where these are all that it is made of: where all are finite.
///
/// # Panics
/// Where the inner sizes differ.
pub(crate) fn finite_pairs<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Option<Vec<usize>> {
    assert_eq!(a.shape().columns, b.shape().rows, "inner sizes");
    are_finite(a, b).then(|| pairs_before(a, b))
}

/// Pairs of stored cells that meet in the rows of `a·b` before each of them.
fn pairs_before<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Vec<usize> {
    let offsets = b.offsets();
    let pairs = |k: &u32| (offsets[*k as usize + 1] - offsets[*k as usize]) as usize;
    let mut before = vec![0; a.shape().rows + 1];
    before[1..].par_iter_mut().enumerate().for_each(|(i, count)| {
        *count = a.row(i).0.iter().map(pairs).sum();
    });
    accumulate(&mut before);
    before
}

/// The sums of pairs of stored cells that meet.
pub(super) struct Pairs<'a, T: Real> {
    a: &'a Csr<T>,
    b: &'a Csr<T>,
    /// Pairs before each row.
    pub(super) before: &'a [usize],
    stop: Stop<'a>,
}

impl<T: Real> Pairs<'_, T> {
    /// Writes these rows.
    pub(super) fn write(
        &self,
        part: Range<usize>,
        lanes: &mut Lanes<T>,
        sums: &mut Sums<T>,
        rows: &mut Rows<T>,
    ) {
        let columns = self.b.shape().columns;
        let mut waiting = 0;
        for i in part {
            let pairs = self.before[i + 1] - self.before[i];
            // Where most columns are met, a row of sums is short too.
            if pairs <= CELLS_MAX && 4 * pairs <= columns && Lanes::<T>::hold(columns) {
                self.gather(i, waiting, lanes);
                waiting += 1;
            } else {
                flush(lanes, std::mem::take(&mut waiting), rows);
                self.scatter(i, sums);
                sums.take(rows);
                rows.end_row();
            }
            if waiting == LANES {
                flush(lanes, std::mem::take(&mut waiting), rows);
            }
        }
        flush(lanes, waiting, rows);
    }

    /// Row `i` into a lane.
    fn gather(&self, i: usize, lane: usize, lanes: &mut Lanes<T>) {
        if self.stop.is_asked() {
            return;
        }
        let (columns, values) = self.a.row(i);
        for (&k, &x) in columns.iter().zip(values) {
            let (columns, values) = self.b.row(k as usize);
            lanes.extend(lane, columns.iter().zip(values).map(|(&j, &y)| (j, x * y)));
        }
    }

    /// These pairs of row `i`, counted from its first, into a dense row.
    pub(super) fn scatter_piece(&self, i: usize, pairs: Range<usize>, sums: &mut Sums<T>) {
        let (columns, values) = self.a.row(i);
        let (mut skipped, mut left) = (pairs.start, pairs.len());
        for (&k, &x) in columns.iter().zip(values).take_while(|_| !self.stop.is_asked()) {
            let (columns, values) = self.b.row(k as usize);
            if skipped >= columns.len() {
                skipped -= columns.len();
                continue;
            }
            let cells = skipped..columns.len().min(skipped + left);
            for (&j, &y) in columns[cells.clone()].iter().zip(&values[cells.clone()]) {
                sums.add(j, x * y);
            }
            (skipped, left) = (0, left - cells.len());
            if left == 0 {
                break;
            }
        }
    }

    /// Row `i` into a dense row.
    fn scatter(&self, i: usize, sums: &mut Sums<T>) {
        let (columns, values) = self.a.row(i);
        for (&k, &x) in columns.iter().zip(values).take_while(|_| !self.stop.is_asked()) {
            let (columns, values) = self.b.row(k as usize);
            for (&j, &y) in columns.iter().zip(values) {
                sums.add(j, x * y);
            }
        }
    }
}

/// Writes the rows that lie in so many lanes.
fn flush<T: Real>(lanes: &mut Lanes<T>, count: usize, rows: &mut Rows<T>) {
    if count > 0 {
        lanes.sort();
    }
    for lane in 0..count {
        let mut cells = lanes.take(lane);
        if let Some((mut column, mut sum)) = cells.next() {
            for (j, x) in cells {
                if j == column {
                    sum += x;
                } else {
                    rows.push(column, sum);
                    (column, sum) = (j, x);
                }
            }
            rows.push(column, sum);
        }
        rows.end_row();
    }
}

/// `t(x)·x`.
pub fn gram<T: Real>(x: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    product(&transpose(x, stop), x, stop)
}

/// Where the stored cells are that are not finite, row by row.
fn non_finite<T: Real>(x: &Csr<T>) -> Vec<(u32, u32)> {
    let of_row = |i: usize| {
        let (columns, values) = x.row(i);
        let bad = columns.iter().zip(values).filter(|(_, x)| !x.is_finite());
        bad.map(move |(&j, _)| (i as u32, j))
    };
    (0..x.shape().rows).flat_map(of_row).collect()
}

/// Marks the cells of one row of a product, in these columns, in which a cell that is not stored meets one that is not
/// finite: one of those in `bad`, of the left row that stores `stored`, or of the right factor.
fn spoil<T: Real>(
    stored: &[u32],
    bad: impl Iterator<Item = u32>,
    (b, bad_right): (&Csr<T>, &[(u32, u32)]),
    columns: &Range<usize>,
    cells: &mut [T],
) {
    for k in bad {
        let mut met = piece(b, k as usize, columns).0.iter().peekable();
        for (j, cell) in columns.clone().zip(&mut *cells) {
            if met.next_if(|column| **column as usize == j).is_none() {
                *cell = T::NAN;
            }
        }
    }
    for (k, j) in bad_right {
        if columns.contains(&(*j as usize)) && stored.binary_search(k).is_err() {
            cells[*j as usize - columns.start] = T::NAN;
        }
    }
}

/// A dense row of sums, and which of them were touched.
pub(super) struct Sums<T> {
    /// Zeros where not touched.
    values: Vec<T>,
    /// Bit `j` of these: column `j` was touched.
    touched: Vec<u64>,
    /// Bit `w` of these: word `w` of `touched` is not zero.
    summary: Vec<u64>,
}

impl<T: Real> Sums<T> {
    pub(super) fn new(columns: usize) -> Self {
        let words = columns.div_ceil(64);
        let (touched, summary) = (vec![0; words], vec![0; words.div_ceil(64)]);
        Self { values: vec![T::ZERO; columns], touched, summary }
    }

    #[inline]
    pub(super) fn add(&mut self, column: u32, value: T) {
        let (j, word) = (column as usize, column as usize / 64);
        self.touched[word] |= 1 << (column % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.values[j] += value;
    }

    /// Writes the sums by column and forgets them.
    pub(super) fn take(&mut self, rows: &mut Rows<T>) {
        self.take_from(0, rows);
    }

    /// The same where the first column is that of this number.
    pub(super) fn take_from(&mut self, first: u32, rows: &mut Rows<T>) {
        for (at, summary) in self.summary.iter_mut().enumerate() {
            while *summary != 0 {
                let word = at * 64 + summary.trailing_zeros() as usize;
                *summary &= *summary - 1;
                let mut touched = std::mem::take(&mut self.touched[word]);
                while touched != 0 {
                    let j = word * 64 + touched.trailing_zeros() as usize;
                    touched &= touched - 1;
                    rows.push(first + j as u32, std::mem::take(&mut self.values[j]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::{from_dense, to_dense};
    use super::*;

    #[test]
    fn a_sparse_product_is_that_of_the_definition() {
        let mut rng = rng(1);
        for (m, k, n) in
            [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (40, 30, 50), (300, 200, 9000)]
        {
            let a = random_sparse::<f64>(&mut rng, m, k, 0.1);
            let b = random_sparse::<f64>(&mut rng, k, n, 0.1);
            let expected = naive_product(&to_dense(&a), &to_dense(&b));
            assert_close(&to_dense(&product(&a, &b, Stop::NEVER)), &expected, 1e3);
            let (x, a32) = (to_dense(&a), random_sparse::<f32>(&mut rng, m, k, 0.1));
            let t = build(k, m, |i, j| x.row(j)[i]);
            assert_close(&to_dense(&gram(&a, Stop::NEVER)), &naive_product(&t, &x), 1e3);
            let cube = product(&a32, &gram(&a32, Stop::NEVER), Stop::NEVER);
            let d = to_dense(&a32);
            let t = build(k, m, |i, j| d.row(j)[i]);
            assert_close(&to_dense(&cube), &naive_product(&d, &naive_product(&t, &d)), 1e4);
        }
    }

    #[test]
    fn stored_nan_and_infinity_meet_the_cells_that_are_not_stored() {
        let mut rng = rng(2);
        for poison in [f64::NAN, f64::INFINITY] {
            let spoil = |x: &Csr<f64>| spoiled(x, 0.9, poison);
            let a = random_sparse::<f64>(&mut rng, 30, 20, 0.2);
            let b = random_sparse::<f64>(&mut rng, 20, 25, 0.2);
            for (a, b) in [(spoil(&a), b.clone()), (a.clone(), spoil(&b)), (spoil(&a), spoil(&b))] {
                let expected = naive_product(&to_dense(&a), &to_dense(&b));
                assert_close(&to_dense(&product(&a, &b, Stop::NEVER)), &expected, 1e3);
            }
        }
    }

    /// Every cell at which `i·p + j·q` is a multiple of `r`.
    fn lattice(m: usize, n: usize, [p, q, r]: [usize; 3]) -> Csr<f64> {
        let cell = |i: usize, j: usize| (i as f64 - 2.0 * j as f64) / 8.0 + 0.25;
        let x = build(m, n, |i, j| if (i * p + j * q) % r == 0 { cell(i, j) } else { 0.0 });
        from_dense(&x)
    }

    fn weighed(x: &Csr<f64>) -> f64 {
        let of_row = |i: usize| {
            let (columns, values) = x.row(i);
            let weight = |j: u32| (1 + (i + 3 * j as usize) % 7) as f64;
            columns.iter().zip(values).map(|(&j, &x)| x * weight(j)).sum::<f64>()
        };
        (0..x.shape().rows).map(of_row).sum()
    }

    /// Numbers of stored cells and weighted sums by SciPy 1.17: short rows, then long ones. All sums are exact.
    #[test]
    fn products_and_transposes_are_those_of_scipy() {
        for (moduli, stored, of_product, of_transpose) in [
            ([211, 499], [2844, 20_039, 28_495], 11_969_306_109.453125, -2_623_415.0),
            ([23, 37], [26_081, 270_244, 1_500_000], 1_480_276_378_457.953_1, -24_099_982.75),
        ] {
            let a = lattice(300, 2000, [7, 3, moduli[0]]);
            let b = lattice(2000, 5000, [5, 11, moduli[1]]);
            let product = product(&a, &b, Stop::NEVER);
            assert_eq!([a.stored(), b.stored(), product.stored()], stored);
            assert_eq!(weighed(&product), of_product);
            assert_eq!(weighed(&transpose(&a, Stop::NEVER)), of_transpose);
        }
    }

    #[test]
    fn cells_that_cancel_are_not_stored() {
        let a = from_dense(&build(1, 2, |_, j| if j == 0 { 1.0 } else { -1.0 }));
        let b = from_dense(&build(2, 1, |_, _| 1.0));
        assert_eq!(product(&a, &b, Stop::NEVER).stored(), 0);
    }

    #[test]
    fn the_bits_of_a_sparse_product_do_not_depend_on_threads() {
        let mut rng = rng(3);
        let a = random_sparse::<f64>(&mut rng, 3000, 400, 0.05);
        let b = random_sparse::<f64>(&mut rng, 400, 3000, 0.05);
        same_bits(|| stored_values(&product(&a, &b, Stop::NEVER)).to_vec());
        same_bits(|| stored_values(&gram(&a, Stop::NEVER)).to_vec());
    }
}
