//! Entries that memory has no room for, as compressed rows: sorted region by region of the matrix.
//!
//! Enters: places and values in pieces, in the order of the rows. Leaves: compressed rows, in files where memory has no room. A region
//! is whole rows, or a part of one where its entries alone are too many; those of one region keep their order, so that
//! repeated ones are added, or overwritten, as if all were at hand.
//!
//! ```text
//! pieces ─ dealt out ─ region 0 │ region 1 │ …     each in a file, and dealt out again where it is too large
//!                         └ from_entries ─ rows     one after another
//! ```

use std::ops::Range;

use arrow::buffer::ScalarBuffer;

use super::places::Files;
use crate::error::Result;
use crate::exec::kernels::Real;
use crate::exec::kernels::sparse::{self, Duplicates, RepeatedEntry};
use crate::matrix::{CellBuffer, Csr, Shape};
use crate::memory;

/// Bytes that an entry takes while a region is sorted: where it comes from, among those of its bucket, on the desk where that
/// is put in order, and in its row on the way to a file.
pub(super) const ENTRY_BYTES: usize = 64;

/// Entries of a region that is not cut any more.
const ENTRIES_MIN: usize = 1 << 14;

/// Regions that entries are dealt out to at once, and entries that each gathers before it writes them.
const REGIONS_MAX: usize = 128;
const WRITTEN_AT_ONCE: usize = 1 << 12;

/// Entries in the order that they came in.
pub(super) struct Piece<T: Real> {
    pub(super) rows: ScalarBuffer<u32>,
    pub(super) columns: ScalarBuffer<u32>,
    /// None where every entry is a one.
    pub(super) values: Option<ScalarBuffer<T>>,
}

impl<T: Real> Piece<T> {
    /// Those of one region lie among those of all others.
    fn let_go(self) {
        memory::let_go(bytemuck::cast_slice(&self.rows));
        memory::let_go(bytemuck::cast_slice(&self.columns));
        if let Some(values) = self.values {
            memory::let_go(bytemuck::cast_slice(&values));
        }
    }
}

/// A rectangle of the matrix.
#[derive(Debug, Clone)]
struct Region {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Region {
    /// So many parts of it or fewer, in the order of rows and then of columns, by whole rows where there are several; and
    /// the length of all but the last.
    fn parts(&self, count: usize) -> (Vec<Region>, usize) {
        let is_by_rows = self.rows.len() > 1;
        let whole = if is_by_rows { &self.rows } else { &self.columns };
        let step = whole.len().div_ceil(count).max(1);
        let part = |start: usize| {
            let part = start..whole.end.min(start + step);
            match is_by_rows {
                true => Region { rows: part, columns: self.columns.clone() },
                false => Region { rows: self.rows.clone(), columns: part },
            }
        };
        (whole.clone().step_by(step).map(part).collect(), step)
    }

    fn is_one_cell(&self) -> bool {
        self.rows.len() == 1 && self.columns.len() == 1
    }
}

/// Entries on their way to a region.
struct Dealt<T: Real> {
    rows: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<T>,
    count: usize,
    written: Vec<Piece<T>>,
}

impl<T: Real> Dealt<T> {
    fn none() -> Self {
        let (rows, columns, values) = Default::default();
        Self { rows, columns, values, count: 0, written: Vec::new() }
    }

    fn write(&mut self, has_values: bool, files: &mut Files<'_>) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let values = has_values.then(|| files.put(&self.values)).transpose()?;
        let (rows, columns) = (files.put(&self.rows)?, files.put(&self.columns)?);
        self.written.push(Piece { rows, columns, values });
        self.count += self.rows.len();
        self.rows.clear();
        self.columns.clear();
        self.values.clear();
        Ok(())
    }
}

/// What is made of entries.
pub(super) struct Sorting<'a, 'f, T: Real> {
    pub(super) shape: Shape,
    pub(super) duplicates: Duplicates,
    pub(super) has_values: bool,
    /// Entries that are sorted at once.
    pub(super) capacity: usize,
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) files: &'a mut Files<'f>,
    rows: Vec<(Range<usize>, Csr<T>)>,
}

/// Compressed rows, or the first place that comes twice and must not.
pub(super) type Made<T> = std::result::Result<T, RepeatedEntry>;

impl<'a, 'f, T: Real> Sorting<'a, 'f, T> {
    /// With so many bytes to sort in.
    pub(super) fn new(
        (shape, duplicates, has_values): (Shape, Duplicates, bool),
        spare_bytes: usize,
        pool: &'a rayon::ThreadPool,
        files: &'a mut Files<'f>,
    ) -> Self {
        let capacity = (spare_bytes / ENTRY_BYTES).max(ENTRIES_MIN);
        Self { shape, duplicates, has_values, capacity, pool, files, rows: Vec::new() }
    }

    /// So many entries as compressed rows.
    pub(super) fn csr(
        mut self,
        count: usize,
        pieces: impl Iterator<Item = Result<Piece<T>>>,
    ) -> Result<Made<Csr<T>>> {
        let all = Region { rows: 0..self.shape.rows, columns: 0..self.shape.columns };
        Ok(match self.place(all, count, &mut { pieces })? {
            Ok(()) => Ok(self.joined()?),
            Err(repeated) => Err(repeated),
        })
    }

    /// Sorts the entries of a region, or deals them out to parts of it.
    fn place(
        &mut self,
        region: Region,
        count: usize,
        pieces: &mut dyn Iterator<Item = Result<Piece<T>>>,
    ) -> Result<Made<()>> {
        if count > self.capacity && region.is_one_cell() {
            return self.fold(region, count, pieces);
        }
        // Rows take memory too, also those without entries.
        let size = count.max(region.rows.len());
        if size <= self.capacity {
            return self.sort(region, count, pieces);
        }
        let parts = (2 * size).div_ceil(self.capacity).clamp(2, REGIONS_MAX);
        for (part, dealt) in self.dealt(&region, parts, pieces)? {
            if dealt.count > 0
                && let Err(repeated) =
                    self.place(part, dealt.count, &mut dealt.written.into_iter().map(Ok))?
            {
                return Ok(Err(repeated));
            }
        }
        Ok(Ok(()))
    }

    fn dealt(
        &mut self,
        region: &Region,
        parts: usize,
        pieces: &mut dyn Iterator<Item = Result<Piece<T>>>,
    ) -> Result<Vec<(Region, Dealt<T>)>> {
        let (regions, step) = region.parts(parts);
        let is_by_rows = region.rows.len() > 1;
        let first = if is_by_rows { region.rows.start } else { region.columns.start };
        let mut dealt: Vec<Dealt<T>> = regions.iter().map(|_| Dealt::none()).collect();
        for piece in pieces {
            self.files.cancel.check()?;
            let piece = piece?;
            for (at, (&row, &column)) in piece.rows.iter().zip(&piece.columns[..]).enumerate() {
                let along = if is_by_rows { row } else { column };
                let to = &mut dealt[(along as usize - first) / step];
                to.rows.push(row);
                to.columns.push(column);
                if let Some(values) = &piece.values {
                    to.values.push(values[at]);
                }
                if to.rows.len() == WRITTEN_AT_ONCE {
                    to.write(self.has_values, self.files)?;
                }
            }
            piece.let_go();
        }
        for to in &mut dealt {
            to.write(self.has_values, self.files)?;
        }
        Ok(regions.into_iter().zip(dealt).collect())
    }

    /// The rows of a region whose entries memory has room for.
    fn sort(
        &mut self,
        region: Region,
        count: usize,
        pieces: &mut dyn Iterator<Item = Result<Piece<T>>>,
    ) -> Result<Made<()>> {
        let (mut rows, mut columns) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut values = Vec::with_capacity(if self.has_values { count } else { 0 });
        for piece in pieces {
            self.files.cancel.check()?;
            let piece = piece?;
            rows.extend(piece.rows.iter().map(|&row| row - region.rows.start as u32));
            columns.extend_from_slice(&piece.columns);
            values.extend_from_slice(piece.values.as_deref().unwrap_or_default());
            piece.let_go();
        }
        let shape = Shape::new(region.rows.len(), self.shape.columns);
        let (duplicates, stop) = (self.duplicates, self.files.cancel.stop());
        let has_values = self.has_values;
        let made = self.pool.install(|| match has_values {
            true => {
                let entry = move |at: usize| (rows[at], columns[at], values[at]);
                sparse::from_entries::<T, T>(shape, count, entry, duplicates, stop)
            }
            false => {
                let entry = move |at: usize| (rows[at], columns[at], ());
                sparse::from_entries::<T, ()>(shape, count, entry, duplicates, stop)
            }
        });
        self.files.cancel.check()?;
        match made {
            Ok(csr) => {
                let csr = self.put(&csr)?;
                self.rows.push((region.rows, csr));
                Ok(Ok(()))
            }
            Err(mut repeated) => {
                repeated.row += region.rows.start;
                Ok(Err(repeated))
            }
        }
    }

    /// The one cell of a region that has more entries than memory has room for.
    fn fold(
        &mut self,
        region: Region,
        count: usize,
        pieces: &mut dyn Iterator<Item = Result<Piece<T>>>,
    ) -> Result<Made<()>> {
        let (row, column) = (region.rows.start, region.columns.start);
        if self.duplicates == Duplicates::Refuse {
            return Ok(Err(RepeatedEntry { row, column, first: 0, second: 1 }));
        }
        let mut cell = match self.duplicates {
            Duplicates::Sum if !self.has_values => Some(T::from_f64(count as f64)),
            Duplicates::Last if !self.has_values => Some(T::ONE),
            _ => None,
        };
        for piece in pieces {
            self.files.cancel.check()?;
            let piece = piece?;
            for &value in piece.values.as_deref().unwrap_or_default() {
                cell = Some(match cell {
                    Some(sum) if self.duplicates == Duplicates::Sum => sum + value,
                    _ => value,
                });
            }
            piece.let_go();
        }
        let shape = Shape::new(1, self.shape.columns);
        let cell = cell.filter(|&cell| cell != T::ZERO);
        let columns: Vec<u32> = cell.iter().map(|_| column as u32).collect();
        let values: Vec<T> = cell.into_iter().collect();
        let offsets = vec![0, values.len() as i64];
        let csr = Csr::new(shape, offsets.into(), columns.into(), values.into());
        self.rows.push((region.rows, csr));
        Ok(Ok(()))
    }

    fn put(&mut self, csr: &Csr<T>) -> Result<Csr<T>> {
        let offsets = self.files.put(csr.offsets())?;
        let columns = self.files.put(csr.columns())?;
        let values = self.files.put(csr.values())?;
        Ok(Csr::new(csr.shape(), offsets, columns, values))
    }

    /// The rows of all regions one after another; those of one row are side by side.
    fn joined(self) -> Result<Csr<T>> {
        let stored = self.rows.iter().map(|(_, csr)| csr.stored()).sum();
        let mut offsets = CellBuffer::<i64>::arbitrary(self.shape.rows + 1);
        let (mut columns, mut values) =
            (CellBuffer::<u32>::arbitrary(stored), CellBuffer::<T>::arbitrary(stored));
        offsets[0] = 0;
        let (mut filled, mut ended) = (0, 0);
        for (rows, csr) in self.rows {
            self.files.cancel.check()?;
            // Rows between regions have no entries.
            for offset in &mut offsets[ended + 1..=rows.start.max(ended)] {
                *offset = filled as i64;
            }
            for (at, end) in csr.offsets()[1..].iter().enumerate() {
                offsets[rows.start + at + 1] = filled as i64 + end;
            }
            let target = filled..filled + csr.stored();
            memory::copy(&mut columns[target.clone()], csr.columns());
            memory::copy(&mut values[target.clone()], csr.values());
            memory::done_with(bytemuck::cast_slice(&offsets[rows.clone()]));
            memory::done_with(bytemuck::cast_slice(csr.offsets()));
            (filled, ended) = (target.end, rows.end);
        }
        for offset in &mut offsets[ended + 1..] {
            *offset = filled as i64;
        }
        Ok(Csr::new(self.shape, offsets.into(), columns.into(), values.into()))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::testing::with_files;
    use super::*;
    use crate::exec::kernels::Stop;

    /// Entries of a matrix: rows, columns, values.
    type Entries = (Vec<u32>, Vec<u32>, Vec<f64>);

    /// Entries at random places, most of which come more than once, in pieces of so many.
    fn entries(seed: u64, shape: Shape, count: usize) -> Entries {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut place = |side: usize| rng.random_range(0..side as u32 * 2 / 3 + 1);
        let (rows, columns) = (0..count).map(|_| (place(shape.rows), place(shape.columns))).unzip();
        (rows, columns, (0..count).map(|_| rng.random_range(-3..4) as f64 / 3.0).collect())
    }

    fn expected(
        shape: Shape,
        (rows, columns, values): &Entries,
        duplicates: Duplicates,
        has_values: bool,
    ) -> Made<Csr<f64>> {
        let count = rows.len();
        if has_values {
            let entry = |at: usize| (rows[at], columns[at], values[at]);
            return sparse::from_entries::<f64, f64>(shape, count, entry, duplicates, Stop::NEVER);
        }
        let entry = |at: usize| (rows[at], columns[at], ());
        sparse::from_entries::<f64, ()>(shape, count, entry, duplicates, Stop::NEVER)
    }

    /// The same by regions that hold so many entries.
    fn found(
        shape: Shape,
        (rows, columns, values): &Entries,
        duplicates: Duplicates,
        has_values: bool,
        capacity: usize,
    ) -> Made<Csr<f64>> {
        with_files(|files, pool| {
            let pieces = (0..rows.len()).step_by(700).map(|start| {
                let cut = start..rows.len().min(start + 700);
                Ok(Piece {
                    rows: rows[cut.clone()].to_vec().into(),
                    columns: columns[cut.clone()].to_vec().into(),
                    values: has_values.then(|| values[cut].to_vec().into()),
                })
            });
            let mut sorting = Sorting::new((shape, duplicates, has_values), 0, pool, files);
            sorting.capacity = capacity;
            sorting.csr(rows.len(), pieces).unwrap()
        })
    }

    fn assert_same(found: Made<Csr<f64>>, expected: Made<Csr<f64>>, about: &str) {
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.shape(), expected.shape(), "{about}");
                assert_eq!(found.offsets(), expected.offsets(), "{about}");
                assert_eq!(found.columns(), expected.columns(), "{about}");
                assert_eq!(found.values(), expected.values(), "{about}");
            }
            (Err(found), Err(expected)) => {
                assert_eq!((found.row, found.column), (expected.row, expected.column), "{about}");
            }
            (found, expected) => panic!("{about}: {found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn entries_sorted_by_regions_are_those_sorted_at_once() {
        let all = [Duplicates::Refuse, Duplicates::Sum, Duplicates::Last];
        for (seed, rows, columns, count) in
            [(1, 900, 700, 20_000), (2, 1, 5000, 9000), (3, 5000, 1, 9000), (4, 1, 1, 3000)]
        {
            let shape = Shape::new(rows, columns);
            let entries = entries(seed, shape, count);
            for duplicates in all {
                for has_values in [true, false] {
                    let expected = || expected(shape, &entries, duplicates, has_values);
                    for capacity in [30, 1000, 1 << 20] {
                        let found = found(shape, &entries, duplicates, has_values, capacity);
                        let about = format!("seed {seed}, {duplicates:?}, {capacity}");
                        assert_same(found, expected(), &about);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_without_entries_are_there() {
        let shape = Shape::new(100_000, 3);
        let entries = (vec![77, 99_000, 77, 500], vec![1, 0, 2, 1], vec![1.0, 2.0, 3.0, 4.0]);
        let of = |capacity| found(shape, &entries, Duplicates::Refuse, true, capacity);
        assert_same(of(100), expected(shape, &entries, Duplicates::Refuse, true), "few");
        let none = (Vec::new(), Vec::new(), Vec::new());
        for shape in [shape, Shape::new(0, 0)] {
            let found = found(shape, &none, Duplicates::Sum, true, 100);
            assert_same(found, expected(shape, &none, Duplicates::Sum, true), "none");
        }
    }
}
