//! How many cells each row and each column of a sparse matrix stores: what its products and sums will store
//! is guessed from these (Sommer et al., *MNC: Structure-Exploiting Sparsity Estimation for Matrix
//! Expressions*, SIGMOD 2019, §3.1).
//!
//! Rows, and columns, are counted in groups of consecutive ones, at most [`GROUPS`] of them, so that a guess
//! takes the same time whatever the size; up to that many, each is counted for itself.

use super::{Csr, Scalar};

/// Groups of one dimension.
pub(crate) const GROUPS: usize = 64;

/// Counts of the stored cells of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counts {
    pub(crate) rows: Side,
    pub(crate) columns: Side,
    /// Whether no cell is stored off the diagonal.
    pub(crate) is_diagonal: bool,
}

/// Counts of the rows, or of the columns. Numbers of cells are real, for most are guesses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Side {
    /// How many there are.
    pub(crate) size: f64,
    /// How many a group holds; the last one may hold fewer.
    pub(crate) width: f64,
    /// Stored cells of each group; one group alone stands for all, evenly.
    pub(crate) groups: Vec<f64>,
    /// Of these, the cells that have the other dimension's row or column for themselves, where counted.
    pub(crate) alone: Vec<f64>,
    /// Cells of the fullest.
    pub(crate) most: f64,
    /// How many store a cell, exactly one cell, and more than half of their cells.
    pub(crate) present: f64,
    pub(crate) single: f64,
    pub(crate) half_full: f64,
}

impl Counts {
    /// Counts the cells: some nanoseconds for each.
    pub(crate) fn of<T: Scalar>(x: &Csr<T>) -> Self {
        let shape = x.shape();
        let mut columns = vec![0; shape.columns];
        let mut is_diagonal = true;
        for row in 0..shape.rows {
            for &column in x.row(row).0 {
                columns[column as usize] += 1;
                is_diagonal &= column as usize == row;
            }
        }
        let rows: Vec<usize> = (0..shape.rows).map(|row| x.row(row).0.len()).collect();
        let mut in_rows = Side::of(&rows, shape.columns);
        let mut in_columns = Side::of(&columns, shape.rows);
        for (row, &cells) in rows.iter().enumerate() {
            let group = in_rows.group(row);
            for &column in x.row(row).0 {
                if columns[column as usize] == 1 {
                    in_rows.alone[group] += 1.0;
                }
                if cells == 1 {
                    let group = in_columns.group(column as usize);
                    in_columns.alone[group] += 1.0;
                }
            }
        }
        Self { rows: in_rows, columns: in_columns, is_diagonal }
    }

    /// So many cells spread evenly.
    pub(crate) fn even(rows: f64, columns: f64, stored: f64) -> Self {
        let (in_rows, in_columns) =
            (Side::even(rows, columns, stored), Side::even(columns, rows, stored));
        Self { rows: in_rows, columns: in_columns, is_diagonal: false }
    }

    /// A diagonal without gaps.
    pub(crate) fn diagonal(size: f64) -> Self {
        let side =
            Side { alone: vec![size], single: size, most: 1.0, ..Side::even(size, size, size) };
        Self { rows: side.clone(), columns: side, is_diagonal: true }
    }

    /// Number of stored cells.
    pub(crate) fn stored(&self) -> f64 {
        self.rows.groups.iter().sum()
    }
}

impl Side {
    fn of(counts: &[usize], across: usize) -> Self {
        let count =
            |holds: &dyn Fn(usize) -> bool| counts.iter().filter(|&&n| holds(n)).count() as f64;
        let width = counts.len().div_ceil(GROUPS).max(1);
        let groups: Vec<f64> =
            counts.chunks(width).map(|group| group.iter().sum::<usize>() as f64).collect();
        Self {
            size: counts.len() as f64,
            width: width as f64,
            alone: vec![0.0; groups.len()],
            groups,
            most: counts.iter().copied().max().unwrap_or(0) as f64,
            present: count(&|n| n > 0),
            single: count(&|n| n == 1),
            half_full: count(&|n| 2 * n > across),
        }
    }

    fn even(size: f64, across: f64, stored: f64) -> Self {
        let each = stored / size.max(1.0);
        Self {
            size,
            width: size,
            groups: vec![stored],
            alone: Vec::new(),
            // More than one, for that there is but one in each nobody has said.
            most: each.max(2.0),
            present: size,
            single: 0.0,
            half_full: if 2.0 * each > across { size } else { 0.0 },
        }
    }

    /// The group of one of them.
    fn group(&self, at: usize) -> usize {
        at / self.width as usize
    }

    /// How many of them a group holds.
    pub(crate) fn width_of(&self, group: usize) -> f64 {
        (self.size - group as f64 * self.width).min(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Shape;

    #[test]
    fn rows_and_columns_are_counted_exactly_up_to_the_number_of_groups() {
        // 5 5 0 0
        // 0 0 0 0
        // 0 5 0 5
        let (offsets, columns) = (vec![0, 2, 2, 4], vec![0, 1, 1, 3]);
        let x = Csr::new(Shape::new(3, 4), offsets.into(), columns.into(), vec![5.0; 4].into());
        let counts = Counts::of(&x);
        assert_eq!(counts.rows.groups, [2.0, 0.0, 2.0]);
        assert_eq!(counts.columns.groups, [1.0, 2.0, 0.0, 1.0]);
        assert_eq!(counts.rows.alone, [1.0, 0.0, 1.0]);
        assert_eq!(counts.columns.alone, [0.0; 4]);
        let of = |side: &Side| (side.most, side.present, side.single, side.half_full);
        assert_eq!(of(&counts.rows), (2.0, 2.0, 0.0, 0.0));
        assert_eq!(of(&counts.columns), (2.0, 3.0, 2.0, 1.0));
        assert_eq!((counts.stored(), counts.is_diagonal), (4.0, false));
    }

    #[test]
    fn groups_of_a_large_matrix_cover_it() {
        for size in [1, GROUPS - 1, GROUPS, GROUPS + 1, 1000, 70_001] {
            let (offsets, columns) = ((0..=size as i64).collect(), (0..size as u32).collect());
            let offsets: Vec<i64> = offsets;
            let columns: Vec<u32> = columns;
            let values = vec![1.0; size];
            let x = Csr::new(Shape::new(size, size), offsets.into(), columns.into(), values.into());
            let counts = Counts::of(&x);
            let side = &counts.rows;
            assert!(side.groups.len() <= GROUPS && counts.is_diagonal);
            assert!((0..side.groups.len()).all(|at| side.width_of(at) == side.groups[at]));
            assert_eq!((counts.stored(), side.single), (size as f64, size as f64));
        }
    }
}
