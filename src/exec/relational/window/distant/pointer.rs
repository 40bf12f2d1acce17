//! Where frames begin or end, for one row after the other: a pointer that only moves forward.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::Result;

use super::offsets::{Offset, Targets};
use super::readers::{PARTITION, PLACE, Reader, Readers};

/// Looks for the first row of the same partition that is not before an end of a frame.
pub(super) struct Pointer {
    offset: Offset,
    reader: Reader,
    /// Rows that may be the one; none is that lies before this one.
    candidates: RecordBatch,
    first: usize,
    /// How many rows came before those.
    before: usize,
    /// Whether no others follow.
    are_last: bool,
}

/// A row among the candidates.
pub(super) struct Found {
    pub(super) row: usize,
    /// Whether it is of the partition, which has no such row otherwise, and is followed by this one.
    pub(super) is_within: bool,
}

impl Pointer {
    /// A pointer before any row that the reader reads.
    pub(super) fn new(offset: Offset, (reader, schema): (Reader, SchemaRef)) -> Self {
        let candidates = RecordBatch::new_empty(schema);
        Self { offset, reader, candidates, first: 0, before: 0, are_last: false }
    }

    pub(super) fn candidates(&self) -> &RecordBatch {
        &self.candidates
    }

    /// How many rows came before the candidates.
    pub(super) fn before(&self) -> usize {
        self.before
    }

    /// # Errors
    /// Those of [`Offset::targets`].
    pub(super) fn targets(&self, rows: &RecordBatch) -> Result<Targets> {
        self.offset.targets(rows.column(PLACE))
    }

    /// Takes the candidates that follow, if others do.
    ///
    /// # Errors
    /// Those of reading rows.
    pub(super) async fn go_on(&mut self, readers: &mut Readers) -> Result<bool> {
        match readers.next(self.reader).await? {
            Some(batch) => {
                self.before += self.candidates.num_rows();
                (self.candidates, self.first) = (batch, 0);
            }
            None => self.are_last = true,
        }
        Ok(!self.are_last)
    }

    /// Of each row, how many come before the one that is found.
    ///
    /// # Errors
    /// Those of reading rows, and of their places.
    pub(super) async fn numbers(
        &mut self,
        rows: &RecordBatch,
        readers: &mut Readers,
    ) -> Result<Vec<usize>> {
        let targets = self.targets(rows)?;
        let mut numbers = Vec::with_capacity(rows.num_rows());
        loop {
            let found = self.found(rows, &targets, numbers.len())?;
            numbers.extend(found.iter().map(|found| self.before + found.row));
            if numbers.len() == rows.num_rows() {
                return Ok(numbers);
            }
            self.go_on(readers).await?;
        }
    }

    /// What is found for some rows, from one on to the last of which the candidates tell.
    ///
    /// # Errors
    /// Where places have no order.
    pub(super) fn found(
        &mut self,
        rows: &RecordBatch,
        targets: &Targets,
        from: usize,
    ) -> Result<Vec<Found>> {
        let count = self.candidates.num_rows();
        let is_before = self.offset.is_before(self.candidates.column(PLACE), targets)?;
        let [theirs, partitions] = [&self.candidates, rows]
            .map(|batch| batch.column(PARTITION).as_primitive::<Int64Type>().values());
        let mut found = Vec::with_capacity(rows.num_rows() - from);
        for row in from..rows.num_rows() {
            let partition = partitions[row];
            while self.first < count
                && (theirs[self.first] < partition
                    || theirs[self.first] == partition && is_before(self.first, row))
            {
                self.first += 1;
            }
            if self.first == count && !self.are_last {
                break;
            }
            let is_within = self.first < count && theirs[self.first] == partition;
            found.push(Found { row: self.first, is_within });
        }
        Ok(found)
    }
}
