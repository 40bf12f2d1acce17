//! Entries in any order become compressed rows.

use crate::matrix::{Csr, Duplicates, Scalar, Shape};

use super::flaw::{Checked, Flaw, Limit};

/// Stored cells in the order of a file: row and column, counted from 0, and value.
#[derive(Debug)]
pub(super) struct Entries<T> {
    rows: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<T>,
}

impl<T: Scalar> Entries<T> {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new(), columns: Vec::new(), values: Vec::new() }
    }

    pub(super) fn from_parts(rows: Vec<u32>, columns: Vec<u32>, values: Vec<T>) -> Self {
        assert!(rows.len() == columns.len() && rows.len() == values.len(), "whole entries");
        Self { rows, columns, values }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn push(&mut self, row: u32, column: u32, value: T) {
        self.rows.push(row);
        self.columns.push(column);
        self.values.push(value);
    }

    /// The smallest shape that holds every entry.
    pub(super) fn extent(&self) -> Shape {
        let end = |places: &[u32]| places.iter().max().map_or(0, |&last| last as usize + 1);
        Shape::new(end(&self.rows), end(&self.columns))
    }

    /// Sorts by row, then column: a counting sort, stable, then each row where it needs it.
    pub(super) fn into_csr(
        self,
        shape: Shape,
        duplicates: Duplicates,
        limit: Limit<'_>,
    ) -> Checked<Csr<T>> {
        limit.admit_sparse::<T>(shape, self.len())?;
        if let Some(row) = self.rows.iter().find(|&&row| row as usize >= shape.rows) {
            return Err(Flaw::new(format!(
                "row {} lies outside the {shape} matrix",
                *row as u64 + 1
            )));
        }
        let mut offsets = vec![0i64; shape.rows + 1];
        for &row in &self.rows {
            offsets[row as usize + 1] += 1;
        }
        for row in 0..shape.rows {
            offsets[row + 1] += offsets[row];
        }
        if self.rows.is_sorted() {
            return csr(shape, offsets, (self.columns, self.values), duplicates, limit);
        }
        let mut next: Vec<usize> = offsets.iter().map(|&offset| offset as usize).collect();
        let mut columns = vec![0; self.len()];
        let mut values = vec![T::ZERO; self.len()];
        for ((row, column), value) in self.rows.into_iter().zip(self.columns).zip(self.values) {
            let place = &mut next[row as usize];
            columns[*place] = column;
            values[*place] = value;
            *place += 1;
        }
        limit.go_on()?;
        csr(shape, offsets, (columns, values), duplicates, limit)
    }
}

/// Compressed rows whose columns may be out of order and come twice, checked throughout.
pub(super) fn csr<T: Scalar>(
    shape: Shape,
    mut offsets: Vec<i64>,
    (mut columns, mut values): (Vec<u32>, Vec<T>),
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Csr<T>> {
    let rises = offsets.is_sorted() && offsets.first() == Some(&0);
    if offsets.len() != shape.rows + 1
        || columns.len() != values.len()
        || !rises
        || offsets.last() != Some(&(values.len() as i64))
    {
        let message =
            format!("the row offsets do not fit a {shape} matrix of {} entries", values.len());
        return Err(Flaw::new(message));
    }
    if let Some(column) = columns.iter().find(|&&column| column as usize >= shape.columns) {
        let column = u64::from(*column) + 1;
        return Err(Flaw::new(format!("column {column} lies outside the {shape} matrix")));
    }
    let mut pairs = Vec::new();
    // Cells of the rows so far, which are fewer than entries where some have become one, and entries of those rows.
    let (mut kept, mut read) = (0, 0);
    for row in 0..shape.rows {
        if row % (1 << 14) == 0 {
            limit.go_on()?;
        }
        let range = read..offsets[row + 1] as usize;
        read = range.end;
        let is_in_order = columns[range.clone()].windows(2).all(|pair| pair[0] < pair[1]);
        if is_in_order && kept == range.start {
            kept = range.end;
            continue;
        }
        pairs.clear();
        pairs.extend(columns[range.clone()].iter().copied().zip(values[range].iter().copied()));
        pairs.sort_by_key(|&(column, _)| column);
        let first = kept;
        for &(column, value) in &pairs {
            if kept == first || columns[kept - 1] != column {
                (columns[kept], values[kept]) = (column, value);
                kept += 1;
                continue;
            }
            match duplicates {
                Duplicates::Error => {
                    let (row, column) = (row + 1, u64::from(column) + 1);
                    return Err(Flaw::new(format!(
                        "entry ({row}, {column}) appears twice; WITH (duplicates = 'sum' | 'last') chooses what to do"
                    )));
                }
                Duplicates::Sum => values[kept - 1] += value,
                Duplicates::Last => values[kept - 1] = value,
            }
        }
        offsets[row + 1] = kept as i64;
    }
    columns.truncate(kept);
    values.truncate(kept);
    Ok(Csr::new(shape, offsets.into(), columns.into(), values.into()))
}

/// The number of a row or column as stored, where it is small enough for a sparse matrix.
pub(super) fn place(index: usize) -> Checked<u32> {
    u32::try_from(index).map_err(|_| Flaw::new("a sparse matrix has at most 2^32 rows and columns"))
}
