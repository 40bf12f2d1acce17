//! The value of a row so many before or after: `lag` and `lead`, and where a frame begins.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use datafusion::common::{Result, ScalarValue};

use super::ByRow;
use super::running::Piece;

/// The place of the value for rows that reach beyond their partition, before those that are kept.
const OTHER: usize = 0;

/// Values of other rows.
pub(super) struct Shift {
    /// Rows between: before those that are asked for, or after them.
    rows: usize,
    is_before: bool,
    other: ArrayRef,
    /// Values of the open partition's last rows: those that rows to come ask for, or those that wait for rows to come.
    kept: ArrayRef,
}

impl Shift {
    /// The value so many rows before, or after where the number is negative.
    ///
    /// # Errors
    /// Those of making an array of the other value.
    pub(super) fn new(rows: i64, other: &ScalarValue) -> Result<Self> {
        let kept = other.to_array_of_size(0)?;
        let other = other.to_array_of_size(1)?;
        Ok(Self { rows: rows.unsigned_abs() as usize, is_before: rows >= 0, other, kept })
    }
}

impl ByRow for Shift {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let kept = self.kept.len();
        let values = concat(&[&self.other, &self.kept, &arguments[0]])?;
        let mut places: Vec<u32> = Vec::with_capacity(kept + piece.rows);
        // The open partition's rows among the values, and how many of the last of them are kept.
        let mut open = 0..0;
        let mut last = 0;
        let all = piece.partitions.len();
        for (number, (begins, part)) in piece.parts().enumerate() {
            let first = if begins { kept + part.start } else { 0 };
            open = 1 + first..1 + kept + part.end;
            last = self.rows.min(open.len());
            let outside = |count: usize| std::iter::repeat_n(OTHER as u32, count);
            if self.is_before {
                let from = open.start.max(1 + kept);
                // Rows of the part that have too few before them.
                let few = (open.start + last).max(from) - from;
                places.extend(outside(few));
                let begin = from + few;
                places.extend((begin..open.end).map(|place| (place - self.rows) as u32));
            } else {
                places.extend((open.start + last..open.end).map(|place| place as u32));
                if number < all || piece.is_last {
                    places.extend(outside(last));
                    last = 0;
                }
            }
        }
        self.kept = concat(&[&values.slice(open.end - last, last)])?;
        Ok(take(&values, &UInt32Array::from(places), None)?)
    }
}

/// Values of rows before; where there are too few of them, that of the first of the partition.
pub(super) struct Back {
    rows: usize,
    /// Values of the open partition's last rows.
    kept: Option<ArrayRef>,
}

impl Back {
    pub(super) fn new(rows: usize) -> Self {
        Self { rows, kept: None }
    }
}

impl ByRow for Back {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let values = match &self.kept {
            Some(kept) => concat(&[kept, &arguments[0]])?,
            None => Arc::clone(&arguments[0]),
        };
        let kept = values.len() - piece.rows;
        let mut places: Vec<u32> = Vec::with_capacity(piece.rows);
        let mut first = 0;
        for (begins, part) in piece.parts() {
            if begins {
                first = kept + part.start;
            }
            let rows = kept + part.start..kept + part.end;
            places.extend(rows.map(|row| first.max(row.saturating_sub(self.rows)) as u32));
        }
        // While the partition has fewer rows, its first is among them.
        let last = first.max(values.len().saturating_sub(self.rows));
        self.kept = Some(concat(&[&values.slice(last, values.len() - last)])?);
        Ok(take(&values, &UInt32Array::from(places), None)?)
    }
}
