//! Where work over rows is cut: into parts of equal work, which follow from the stored cells alone and never
//! from the number of threads.
//!
//! A part ends where its share of the work is full, within a row too. What is made of each cell alone is then laid
//! end to end. A sum along a row is cut between pieces of [`PIECE_CELLS`] cells: it is that of its pieces, in order,
//! wherever the cuts fall (after Merrill and Garland, *Merge-Based Parallel Sparse Matrix-Vector Multiplication*,
//! SC 2016, §III).
//!
//! ```text
//! row 0 ··   row 1 ···   row 2 ·········|·········|·····   row 3 ·   row 4 ··
//! part 0 ───────────────────────────────┤ part 1 ─────────┤ …
//! ```

use std::ops::Range;

use crate::matrix::{Csr, Scalar, Shape};

/// Cells of a row that are added as one piece.
pub(in crate::exec::kernels) const PIECE_CELLS: usize = 1 << 10;
/// Work that is worth a task, in stored cells read or written.
const TASK_CELLS: usize = 1 << 14;
/// Parts of one kernel, at most.
const PARTS_MAX: usize = 256;
/// A stored cell takes as long as so many rows without one.
const CELL_WORK: usize = 8;

/// A place in the order of the rows: a row and its next column; at the end of a row, the row behind and its first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) row: usize,
    pub(super) column: usize,
}

/// What lies between two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: Place,
    pub(super) end: Place,
}

impl Part {
    /// Its rows in order, and which of the `width` columns it has of each.
    pub(super) fn rows(self, width: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let Self { start, end } = self;
        (start.row..end.row + usize::from(end.column > 0)).map(move |row| {
            let first = if row == start.row { start.column } else { 0 };
            let last = if row == end.row { end.column } else { width };
            (row, first..last)
        })
    }
}

/// Parts of about equal work, where `before(i, j)` cells are read or written for the rows before row `i` and, of
/// that, the columns before column `j`.
pub(super) fn cuts(shape: Shape, before: impl Fn(usize, usize) -> usize) -> Vec<Part> {
    cuts_into(tasks(shape.rows, before(shape.rows, 0)), shape, before)
}

/// The same into so many parts, of which those without work are left out.
pub(super) fn cuts_into(
    parts: usize,
    shape: Shape,
    before: impl Fn(usize, usize) -> usize,
) -> Vec<Part> {
    let Shape { rows, columns } = shape;
    let work = |row: usize, column: usize| work(row, before(row, column));
    let total = work(rows, 0) as u128;
    let cut = |part: usize| {
        let share = (total * part as u128 / parts as u128) as usize;
        let row = first(rows, |row| work(row + 1, 0) > share);
        if row == rows || columns == 0 {
            return Place { row, column: 0 };
        }
        match first(columns, |column| work(row, column) >= share) {
            column if column == columns => Place { row: row + 1, column: 0 },
            column => Place { row, column },
        }
    };
    let cuts: Vec<Place> = (0..=parts).map(cut).collect();
    let parts = cuts.windows(2).map(|cut| Part { start: cut[0], end: cut[1] });
    parts.filter(|part| part.start != part.end).collect()
}

/// Consecutive rows of about equal work, where `before(i)` cells are read or written for the rows before
/// row `i`. A row is never cut.
pub(super) fn row_cuts(rows: usize, before: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let parts = tasks(rows, before(rows));
    let work = |row: usize| work(row, before(row));
    let total = work(rows) as u128;
    let cut = |part: usize| {
        let share = (total * part as u128 / parts as u128) as usize;
        let row = first(rows, |row| work(row) >= share);
        // Of the two rows beside the share, the one it ends closer to.
        row - usize::from(row > 0 && work(row) - share > share - work(row - 1))
    };
    let cuts: Vec<usize> = (0..=parts).map(cut).collect();
    cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|rows| !rows.is_empty()).collect()
}

/// Work of so many rows and cells.
fn work(rows: usize, cells: usize) -> usize {
    CELL_WORK.saturating_mul(cells).saturating_add(rows)
}

/// Tasks that so many rows and cells are worth.
fn tasks(rows: usize, cells: usize) -> usize {
    (cells.saturating_add(rows / CELL_WORK) / TASK_CELLS).clamp(1, PARTS_MAX)
}

/// The first number up to `end` at which what holds from somewhere on does hold.
fn first(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// A place between two pieces: the next cell, and the row it is in or, at the end of one, the row behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec::kernels) struct Cut {
    pub(in crate::exec::kernels) row: usize,
    /// Counted as the offsets of the matrix are.
    pub(in crate::exec::kernels) cell: usize,
}

/// Pieces of rows of about equal work, for sums along rows of `x` that are `width` wide.
pub(in crate::exec::kernels) fn piece_cuts<T: Scalar>(x: &Csr<T>, width: usize) -> Vec<Range<Cut>> {
    let (rows, offsets) = (x.shape().rows, x.offsets());
    let work = |row: usize| CELL_WORK * (offsets[row] - offsets[0]) as usize + row;
    let total = work(rows);
    let tasks = (total / CELL_WORK).saturating_mul(width) / TASK_CELLS;
    // A cut is at most half a piece from its place, on either side of a part of forty pieces or more: 2.5 %.
    let even = x.stored() / (40 * PIECE_CELLS);
    let parts = tasks.min(even.max(16)).clamp(1, PARTS_MAX);
    let cut = |part: usize| {
        let share = (total as u128 * part as u128 / parts as u128) as usize;
        let row = first(rows, |row| work(row + 1) > share);
        let start = offsets[row] as usize;
        let cells = if row < rows { (share - work(row)) / CELL_WORK } else { 0 };
        let rounded = (cells + PIECE_CELLS / 2) / PIECE_CELLS * PIECE_CELLS;
        match offsets.get(row + 1) {
            Some(&end) if rounded >= (end as usize - start).max(1) => {
                Cut { row: row + 1, cell: end as usize }
            }
            _ => Cut { row, cell: start + rounded },
        }
    };
    let cuts: Vec<Cut> = (0..=parts).map(cut).collect();
    cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|part| part.start != part.end).collect()
}

/// The rows that begin in a part.
pub(in crate::exec::kernels) fn begun(offsets: &[i64], part: &Range<Cut>) -> Range<usize> {
    let row = |cut: Cut| cut.row + usize::from(offsets[cut.row] as usize != cut.cell);
    row(part.start)..row(part.end)
}

/// Cells of a row, cut into pieces.
pub(in crate::exec::kernels) fn pieces(cells: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    cells.clone().step_by(PIECE_CELLS).map(move |at| at..cells.end.min(at + PIECE_CELLS))
}

/// Parts of a sparse result of which rows are cut: a row that holds more than such a share of all work is long.
const LONG_PARTS: usize = 32;

/// Parts of equal work over rows before which so many cells are read or written, for a result whose longest rows
/// are cut; none where no row is long. A row is cut where a share of the work ends within it, unless that is closer
/// to an end of the row than a fortieth of the share.
pub(super) fn cuts_within_rows(before: &[usize]) -> Option<Vec<Range<Cut>>> {
    let rows = before.len() - 1;
    let longest = before.windows(2).map(|row| row[1] - row[0]).max()?;
    let total = before[rows];
    if total < LONG_PARTS * TASK_CELLS || longest <= total / LONG_PARTS {
        return None;
    }
    let work = |row: usize| CELL_WORK * before[row] + row;
    let all = work(rows) as u128;
    let near = total / LONG_PARTS / 40;
    let cut = |part: usize| {
        let share = (all * part as u128 / LONG_PARTS as u128) as usize;
        let row = first(rows, |row| work(row + 1) > share);
        if row == rows {
            return Cut { row, cell: total };
        }
        let cell = (before[row] + (share - work(row)) / CELL_WORK).min(before[row + 1]);
        match (cell - before[row] <= near, before[row + 1] - cell <= near) {
            (true, _) => Cut { row, cell: before[row] },
            (_, true) => Cut { row: row + 1, cell: before[row + 1] },
            _ => Cut { row, cell },
        }
    };
    let cuts: Vec<Cut> = (0..=LONG_PARTS).map(cut).collect();
    Some(cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|part| part.start != part.end).collect())
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::super::super::testing::*;
    use super::super::rows::stored_before;
    use super::*;

    /// The largest of some parts beside their mean.
    fn imbalance(parts: &[usize]) -> f64 {
        let mean = parts.iter().sum::<usize>() as f64 / parts.len() as f64;
        *parts.iter().max().unwrap() as f64 / mean - 1.0
    }

    fn skewed() -> [Csr<f64>; 2] {
        [power_law(200_000, 150_000, 11), one_long_row(3000, 2_000_000, 12)]
    }

    #[test]
    fn parts_of_a_skewed_matrix_hold_equally_many_cells() {
        for x in skewed() {
            let longest = x.offsets().windows(2).map(|row| row[1] - row[0]).max().unwrap();
            let before = stored_before(&x);
            let cells: Vec<usize> = cuts(x.shape(), &before)
                .iter()
                .map(|Part { start, end }| {
                    before(end.row, end.column) - before(start.row, start.column)
                })
                .collect();
            assert!(cells.len() >= 64 && cells.iter().all(|&cells| (cells as i64) < longest / 4));
            assert!(imbalance(&cells) < 0.05, "{}", imbalance(&cells));
            for width in [1, 7, 64] {
                let parts = piece_cuts(&x, width);
                let cells: Vec<usize> =
                    parts.iter().map(|part| part.end.cell - part.start.cell).collect();
                assert!(parts.len() >= 16 && imbalance(&cells) < 0.05, "{}", imbalance(&cells));
            }
        }
    }

    #[test]
    fn parts_of_a_skewed_result_hold_equally_many_pairs() {
        let x = power_law(200_000, 150_000, 11);
        let before: Vec<usize> =
            x.offsets().iter().map(|&offset| 5 * (offset - x.offsets()[0]) as usize).collect();
        let parts = cuts_within_rows(&before).unwrap();
        let pairs: Vec<usize> = parts.iter().map(|part| part.end.cell - part.start.cell).collect();
        assert!(pairs.len() == LONG_PARTS && imbalance(&pairs) < 0.05, "{}", imbalance(&pairs));
        let mut at = Cut { row: 0, cell: 0 };
        for part in parts {
            assert_eq!(part.start, at);
            assert!(
                (before[part.end.row]..=before[(part.end.row + 1).min(200_000)])
                    .contains(&part.end.cell)
            );
            at = part.end;
        }
        assert_eq!(at, Cut { row: 200_000, cell: before[200_000] });
        // Without a long row, and where there is little to do, rows stay whole.
        assert_eq!(cuts_within_rows(&(0..=5000).map(|row| row * 1000).collect::<Vec<_>>()), None);
        assert_eq!(cuts_within_rows(&[0, 10, 10_000]), None);
        assert_eq!(cuts_within_rows(&[0]), None);
    }

    #[test]
    fn cuts_lie_end_to_end_between_pieces() {
        let mut rng = rng(12);
        let matrices = [
            power_law(3000, 60_000, 12),
            one_long_row(40, 400_000, 13),
            random_sparse(&mut rng, 500, 40, 0.3),
            random_sparse(&mut rng, 3, 200_000, 0.5),
            random_sparse(&mut rng, 100_000, 3, 0.0),
            random_sparse(&mut rng, 0, 3, 0.0),
        ];
        for x in matrices.iter().chain([&matrices[0].rows(100..2000)]) {
            let offsets = x.offsets();
            let (mut at, rows) = (Cut { row: 0, cell: offsets[0] as usize }, x.shape().rows);
            for part in piece_cuts(x, 64) {
                assert_eq!(part.start, at);
                let within = part.end.cell - offsets[part.end.row] as usize;
                assert_eq!(within % PIECE_CELLS, 0);
                at = part.end;
            }
            assert_eq!(at, Cut { row: rows, cell: offsets[rows] as usize });
            let (mut at, mut cells) = (Place { row: 0, column: 0 }, 0);
            for part in cuts(x.shape(), stored_before(x)) {
                assert_eq!(part.start, at);
                assert!(part.end.column < x.shape().columns.max(1));
                cells +=
                    part.rows(x.shape().columns).map(|(_, columns)| columns.len()).sum::<usize>();
                at = part.end;
            }
            assert_eq!(at, Place { row: rows, column: 0 });
            assert_eq!(cells, x.shape().cells());
            let mut next = 0;
            for part in row_cuts(rows, |row| (offsets[row] - offsets[0]) as usize) {
                assert_eq!(part.start, next);
                next = part.end;
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn rows_that_are_not_cut_are_dealt_evenly() {
        let mut rng = rng(13);
        // Blocks of full rows among sparse ones: equal numbers of rows would be 8 times too uneven.
        let lengths: Vec<usize> = (0..100_000)
            .map(|i| if i % 20_000 < 1000 { 300 } else { rng.random_range(0..5) })
            .collect();
        let mut before = vec![0];
        for length in lengths {
            before.push(before[before.len() - 1] + length);
        }
        let parts = row_cuts(100_000, |row| before[row]);
        let cells: Vec<usize> =
            parts.iter().map(|part| before[part.end] - before[part.start]).collect();
        assert!(parts.len() > 60 && imbalance(&cells) < 0.05, "{}", imbalance(&cells));
    }
}
