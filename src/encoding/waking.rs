//! Rows whose columns wake as somebody asks for them: who drops most rows by some columns takes of the others only what is left.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::at_rest;

/// Of this many rows one is looked for where it rests. An estimate: such a look misses the caches, which takes 12 ns (q5 of TPC-H on
/// a Zen 4), and to wake 8,192 rows takes some microseconds.
const FEW_SHARE: usize = 64;

/// Some rows.
#[derive(Debug)]
pub(crate) struct Waking {
    rows: usize,
    columns: Vec<Column>,
}

/// A column, at rest or awake or both.
#[derive(Debug, Default)]
struct Column {
    at_rest: Option<AtRest>,
    awake: OnceCell<ArrayRef>,
}

/// Some rows of a column at rest, and the type that it has when it is decoded.
#[derive(Debug)]
struct AtRest {
    cell: ArrayRef,
    own: DataType,
    rows: Range<usize>,
}

impl Waking {
    /// So many rows, without a column.
    pub(crate) fn of(rows: usize) -> Self {
        Self { rows, columns: Vec::new() }
    }

    /// Adds some rows of a column that is at rest.
    pub(crate) fn push_at_rest(&mut self, cell: &ArrayRef, own: &DataType, rows: Range<usize>) {
        let at_rest = AtRest { cell: Arc::clone(cell), own: own.clone(), rows };
        self.columns.push(Column { at_rest: Some(at_rest), awake: OnceCell::new() });
    }

    /// Adds a column that is awake.
    pub(crate) fn push(&mut self, column: ArrayRef) {
        self.columns.push(Column { at_rest: None, awake: OnceCell::from(column) });
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn num_columns(&self) -> usize {
        self.columns.len()
    }

    /// A column, in the form in which it is read.
    ///
    /// # Errors
    /// None, for what is at rest was such a column.
    pub(crate) fn column(&self, at: usize) -> Result<ArrayRef, ArrowError> {
        let Column { at_rest, awake } = &self.columns[at];
        if let (None, Some(AtRest { cell, own, rows })) = (awake.get(), at_rest) {
            let column = at_rest::awake(cell, own, rows.clone())?;
            return Ok(Arc::clone(awake.get_or_init(|| column)));
        }
        let none = || ArrowError::InvalidArgumentError(format!("no column of number {at}"));
        awake.get().cloned().ok_or_else(none)
    }

    /// The places of rows that are wanted, where these are so few that a column need not wake for them.
    pub(crate) fn few(wanted: &BooleanBuffer) -> Option<Vec<usize>> {
        let are_few = wanted.count_set_bits() <= wanted.len() / FEW_SHARE;
        are_few.then(|| wanted.set_indices().collect())
    }

    /// Rows of a column, by their places; nothing where it is awake, or wakes as a whole.
    ///
    /// # Errors
    /// None, for what is at rest was such a column.
    pub(crate) fn taken(
        &self,
        at: usize,
        places: &[usize],
    ) -> Result<Option<ArrayRef>, ArrowError> {
        let Column { at_rest, awake } = &self.columns[at];
        match (awake.get(), at_rest) {
            (None, Some(AtRest { cell, own, rows })) => {
                at_rest::taken(cell, own, places.iter().map(|place| rows.start + place))
            }
            _ => Ok(None),
        }
    }
}

impl From<&RecordBatch> for Waking {
    fn from(batch: &RecordBatch) -> Self {
        let mut rows = Self::of(batch.num_rows());
        batch.columns().iter().for_each(|column| rows.push(Arc::clone(column)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array, StringViewArray, UInt64Array};
    use arrow::compute::take;

    use super::super::{decoded, encoded};
    use super::*;

    #[test]
    fn few_rows_of_a_column_do_not_wake_it() {
        let texts = (0..3000).map(|row| Some(["A", "N", "R"][row % 3]));
        let columns: [ArrayRef; 2] = [
            Arc::new(Int64Array::from_iter_values((0..3000).map(|row| row * 37 % 1000))),
            Arc::new(texts.collect::<StringViewArray>()),
        ];
        let mut rows = Waking::of(2000);
        for column in &columns {
            let own = column.data_type();
            rows.push_at_rest(&at_rest::at_rest(&encoded(column), own), own, 900..2900);
        }
        rows.push(Arc::new(Int64Array::from_iter_values(0..2000)));
        let wanted = |step: usize| (0..2000).map(move |row| Some(row % step == 3));
        assert!(Waking::few(wanted(60).collect::<BooleanArray>().values()).is_none());
        let few = Waking::few(wanted(80).collect::<BooleanArray>().values()).unwrap();
        assert_eq!((few.len(), few[1]), (25, 83));
        let places = UInt64Array::from_iter_values(few.iter().map(|&place| 900 + place as u64));
        for (at, column) in columns.iter().enumerate() {
            let taken = rows.taken(at, &few).unwrap().unwrap();
            let expected = take(column, &places, None).unwrap();
            assert_eq!(&decoded(&taken, column.data_type()).unwrap(), &expected);
            assert!(rows.columns[at].awake.get().is_none());
            let whole = decoded(&rows.column(at).unwrap(), column.data_type()).unwrap();
            assert_eq!(&whole, &column.slice(900, 2000));
            assert!(rows.taken(at, &few).unwrap().is_none());
        }
        assert!(rows.taken(2, &few).unwrap().is_none() && rows.column(2).unwrap().len() == 2000);
    }
}
