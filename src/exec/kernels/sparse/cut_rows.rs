//! Sparse products of which a few rows hold much of the work: those are cut, where a part's share of it ends.
//!
//! A row that is cut is the sum of its pieces in order. Where it is cut follows from the stored cells of both
//! factors alone, and so does every bit. Pieces are added up range by range of the columns, in parallel.
//!
//! ```text
//! part 0      rows 0 to 4, and of row 5 the first pairs          tail ┐
//! part 1      the next pairs of row 5                            head ├ one row
//! part 2      the last pairs of row 5, rows 6 to 900             head ┘
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::super::Real;
use super::cuts::Cut;
use super::lanes::Lanes;
use super::product::{Pairs, Sums};
use super::rows::{Rows, in_parts, join};
use crate::matrix::{Csr, Shape};

/// Ranges of columns in which the pieces of one row are added up.
const RANGES: usize = 32;

/// What one part makes: rows that are its own, and pieces of the rows that are cut at its ends.
struct Made<T> {
    /// Of a row that an earlier part began.
    head: Option<Rows<T>>,
    /// Whether that row ends here.
    ends: bool,
    body: Rows<T>,
    /// Of a row that a later part ends.
    tail: Option<Rows<T>>,
}

/// The product by these parts, which lie end to end.
pub(super) fn product<T: Real>(
    shape: Shape,
    pairs: &Pairs<'_, T>,
    parts: Vec<Range<Cut>>,
) -> Csr<T> {
    let scratch = || (Lanes::new(), Sums::new(shape.columns));
    let made = in_parts(parts, scratch, |(lanes, sums), part| made(pairs, &part, lanes, sums));
    let (mut rows, mut open) = (Vec::new(), Vec::new());
    for Made { head, ends, body, tail } in made {
        open.extend(head);
        if ends {
            rows.extend(added(shape.columns, &std::mem::take(&mut open)));
        }
        rows.push(body);
        open.extend(tail);
    }
    assert!(open.is_empty(), "a row that is cut ends in some part");
    join(shape, rows)
}

/// Makes one part.
fn made<T: Real>(
    pairs: &Pairs<'_, T>,
    Range { start, end }: &Range<Cut>,
    lanes: &mut Lanes<T>,
    sums: &mut Sums<T>,
) -> Made<T> {
    let before = pairs.before;
    let mut piece = |row: usize, of: Range<usize>| {
        let mut cells = Rows::with_guess(0, of.len());
        pairs.scatter_piece(row, of.start - before[row]..of.end - before[row], sums);
        sums.take(&mut cells);
        cells
    };
    let begins_within = start.cell > before[start.row];
    let is_one_row = begins_within && start.row == end.row;
    let head_end = if is_one_row { end.cell } else { before[start.row + 1] };
    let head = begins_within.then(|| piece(start.row, start.cell..head_end));
    let ends_within = !is_one_row && end.cell > before[end.row];
    let tail = ends_within.then(|| piece(end.row, before[end.row]..end.cell));
    let first = if is_one_row { end.row } else { start.row + usize::from(begins_within) };
    let own = first..end.row;
    let mut body = Rows::with_guess(own.len(), before[own.end] - before[own.start]);
    pairs.write(own, lanes, sums, &mut body);
    Made { head, ends: begins_within && !is_one_row, body, tail }
}

/// The sum of pieces of one row, the first first: its cells range by range, the row ended.
fn added<T: Real>(columns: usize, pieces: &[Rows<T>]) -> Vec<Rows<T>> {
    let width = columns.div_ceil(RANGES).max(1);
    let ranges: Vec<usize> = (0..columns).step_by(width).collect();
    let of_range = |first: usize| {
        let range = first..columns.min(first + width);
        let mut sums = Sums::new(range.len());
        for piece in pieces {
            let (places, values) = piece.cells_in(&range);
            for (&place, &value) in places.iter().zip(values) {
                sums.add(place - range.start as u32, value);
            }
        }
        let mut cells = Rows::with_capacity(1, 0);
        sums.take_from(range.start as u32, &mut cells);
        if range.end == columns {
            cells.end_row();
        }
        cells
    };
    ranges.into_par_iter().map(of_range).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::product::product;
    use super::super::rows::stored_values;
    use super::super::to_dense;
    use super::*;
    use crate::exec::kernels::Stop;

    #[test]
    fn a_product_whose_rows_are_cut_is_that_of_the_definition() {
        // Some long rows, one alone, and none: the right factor's do not make rows long.
        let mut rng = rng(31);
        let even = random_sparse::<f64>(&mut rng, 700, 700, 0.3);
        let skewed = power_law(700, 700, 32);
        let row = random_sparse::<f64>(&mut rng, 1, 5000, 1.0);
        let tall = random_sparse::<f64>(&mut rng, 5000, 700, 0.3);
        for (a, b) in [(&skewed, &even), (&row, &tall), (&even, &skewed)] {
            let found = product(a, b, Stop::NEVER);
            assert_close(&to_dense(&found), &naive_product(&to_dense(a), &to_dense(b)), 1e3);
            same_bits(|| stored_values(&product(a, b, Stop::NEVER)).to_vec());
        }
    }

    #[test]
    fn pieces_that_cancel_are_not_stored() {
        let mut rng = rng(33);
        let b = random_sparse::<f64>(&mut rng, 2000, 900, 0.9);
        // The second half of the only row takes away what the first half adds.
        let b = super::super::vstack(&[b.clone(), b]);
        let values: Vec<f64> = (0..4000).map(|k| if k < 2000 { 1.0 } else { -1.0 }).collect();
        let places: Vec<u32> = (0..4000).collect();
        let a = Csr::new(Shape::new(1, 4000), vec![0, 4000].into(), places.into(), values.into());
        let found = product(&a, &b, Stop::NEVER);
        assert!(stored_values(&found).iter().all(|cell| cell.abs() < 1e-9));
        assert!(stored_values(&found).iter().all(|cell| *cell != 0.0));
    }

    #[test]
    fn a_product_that_is_asked_to_stop_still_has_its_rows() {
        let asked = std::sync::atomic::AtomicBool::new(true);
        let skewed = power_law(900, 900, 34);
        let even = random_sparse::<f64>(&mut rng(35), 900, 900, 0.3);
        assert_eq!(product(&skewed, &even, Stop::once(&asked)).shape(), Shape::new(900, 900));
    }
}
