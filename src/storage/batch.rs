//! Rows of a table as they are kept: each column in the fewest bytes that hold it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat_batches, filter};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::encoding::{
    Texts, as_it_is, as_they_are, at_rest, awake, decoded, decoded_bytes, encoded, texts,
};
use crate::memory::{Kept, lay_together};

/// Fewer rows are kept as they come: they wait for others.
const ENCODED_ROWS_MIN: usize = 1024;

/// Columns at rest in memory of their own. Texts lie by themselves, for they may be kept in another way soon, and those of a
/// dictionary that other batches share stay where these have them.
fn together(mut columns: Vec<ArrayRef>) -> Vec<ArrayRef> {
    let own = columns.iter_mut().filter(|column| texts(column) != Texts::SharedCodes);
    let (mut plain, mut others): (Vec<_>, Vec<_>) =
        own.partition(|column| texts(column) == Texts::Plain);
    plain.chunks_mut(1).for_each(lay_together);
    lay_together(&mut others);
    columns
}

/// What plans ask about a column.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    pub(super) nulls: usize,
    /// What it takes of memory where it is read.
    pub(super) bytes: usize,
}

impl Figures {
    fn of(column: &ArrayRef, own: &DataType) -> Self {
        Self { nulls: column.logical_null_count(), bytes: decoded_bytes(column, own) }
    }
}

/// A column in the form in which it is read.
pub(super) fn encoded_if_many(column: &ArrayRef) -> ArrayRef {
    if column.len() < ENCODED_ROWS_MIN { Arc::clone(column) } else { encoded(column) }
}

/// A column that is read so as it is kept.
fn resting(column: &ArrayRef, own: &DataType) -> ArrayRef {
    if column.len() < ENCODED_ROWS_MIN { as_it_is(column) } else { at_rest(column, own) }
}

/// Some rows.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    /// The columns as who reads them has them.
    schema: SchemaRef,
    rows: usize,
    /// The same at rest: one cell each.
    kept: RecordBatch,
    figures: Arc<[Figures]>,
}

impl Batch {
    /// These rows.
    ///
    /// # Errors
    /// None, for a column at rest is one cell.
    pub(crate) fn new(rows: &RecordBatch) -> Result<Self, ArrowError> {
        let columns: Vec<_> = rows.columns().iter().map(encoded_if_many).collect();
        Self::of(&rows.schema(), &columns, rows.num_rows(), resting)
    }

    /// Rows of encoded columns, each of which is kept so.
    fn of(
        schema: &SchemaRef,
        columns: &[ArrayRef],
        rows: usize,
        kept: fn(&ArrayRef, &DataType) -> ArrayRef,
    ) -> Result<Self, ArrowError> {
        let own = schema.fields().iter().map(|field| field.data_type());
        let columns = columns.iter().zip(own);
        let figures = columns.clone().map(|(column, own)| Figures::of(column, own)).collect();
        let kept = columns.map(|(column, own)| kept(column, own)).collect();
        let kept = as_they_are(schema, together(kept), 1)?;
        Ok(Self { schema: Arc::clone(schema), rows, kept, figures })
    }

    /// The same rows, which count for their owner.
    pub(crate) fn kept(self, kept: &mut Kept) -> Self {
        Self { kept: kept.keep(self.kept), ..self }
    }

    /// The same rows as they are kept elsewhere.
    pub(super) fn moved(&self, kept: RecordBatch) -> Self {
        Self { kept, ..self.clone() }
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.rows
    }

    /// The columns at rest.
    pub(super) fn at_rest(&self) -> &RecordBatch {
        &self.kept
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What is known of each column.
    pub(super) fn figures(&self) -> &[Figures] {
        &self.figures
    }

    /// What the texts of a column are kept as.
    pub(super) fn texts(&self, place: usize) -> Texts {
        texts(self.kept.column(place))
    }

    /// Some rows of a column, encoded.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn encoded(&self, place: usize, rows: Range<usize>) -> Result<ArrayRef, ArrowError> {
        awake(self.kept.column(place), self.schema.field(place).data_type(), rows)
    }

    /// Some rows of all columns, encoded.
    fn all_encoded(&self, rows: Range<usize>) -> Result<Vec<ArrayRef>, ArrowError> {
        (0..self.kept.num_columns()).map(|place| self.encoded(place, rows.clone())).collect()
    }

    /// Some rows of a column.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn values(&self, place: usize, rows: Range<usize>) -> Result<ArrayRef, ArrowError> {
        decoded(&self.encoded(place, rows)?, self.schema.field(place).data_type())
    }

    /// A column.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn column(&self, place: usize) -> Result<ArrayRef, ArrowError> {
        self.values(place, 0..self.rows)
    }

    /// All columns.
    ///
    /// # Errors
    /// As of one.
    pub(super) fn rows(&self) -> Result<RecordBatch, ArrowError> {
        let columns = (0..self.kept.num_columns()).map(|place| self.column(place));
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let columns = columns.collect::<Result<_, _>>()?;
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    /// The same rows under a schema of the same types.
    ///
    /// # Errors
    /// Where the types are others.
    pub(super) fn under(self, schema: &SchemaRef) -> Result<Self, ArrowError> {
        let types = |schema: &Schema| -> Vec<_> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        if types(&self.schema) != types(schema) {
            let message = format!("rows of {} for a table of {schema}", self.schema);
            return Err(ArrowError::SchemaError(message));
        }
        Ok(Self { schema: Arc::clone(schema), ..self })
    }

    /// The rows after so many of them, as they are read.
    ///
    /// # Errors
    /// None, for what is kept was such columns.
    pub(super) fn after(&self, rows: usize) -> Result<Self, ArrowError> {
        let columns = self.all_encoded(rows..self.rows)?;
        Self::of(&self.schema, &columns, self.rows - rows, |column, _| as_it_is(column))
    }

    /// The same rows with other values in a column, encoded or not.
    ///
    /// # Errors
    /// Where it has not as many rows.
    pub(super) fn with_column(&self, place: usize, column: &ArrayRef) -> Result<Self, ArrowError> {
        if column.len() != self.rows {
            let message = format!("{} values for {} rows", column.len(), self.rows);
            return Err(ArrowError::InvalidArgumentError(message));
        }
        let (mut columns, mut figures) = (self.kept.columns().to_vec(), self.figures.to_vec());
        let own = self.schema.field(place).data_type();
        (columns[place], figures[place]) = (resting(column, own), Figures::of(column, own));
        let kept = as_they_are(&self.schema, columns, 1)?;
        Ok(Self { kept, figures: figures.into(), ..self.clone() })
    }

    /// The same rows, beside one another again after a change.
    ///
    /// # Errors
    /// None, for they are as many.
    pub(super) fn settled(&self) -> Result<Self, ArrowError> {
        let columns = together(self.kept.columns().to_vec());
        Ok(self.moved(as_they_are(&self.schema, columns, 1)?))
    }

    /// The columns at rest, without what they share with others.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn alone(&self) -> Result<RecordBatch, ArrowError> {
        let columns = self.kept.columns().iter().enumerate().map(|(at, column)| {
            if texts(column) != Texts::SharedCodes {
                return Ok(Arc::clone(column));
            }
            Ok(resting(&encoded(&self.column(at)?), self.schema.field(at).data_type()))
        });
        as_they_are(&self.schema, columns.collect::<Result<_, ArrowError>>()?, 1)
    }

    /// The rows that are true here.
    ///
    /// # Errors
    /// Where there is not a truth for each row.
    pub(super) fn filtered(&self, wanted: &BooleanArray) -> Result<Self, ArrowError> {
        let columns = self.all_encoded(0..self.rows)?;
        let columns = columns.iter().map(|column| filter(column, wanted));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Self::of(&self.schema, &columns, wanted.true_count(), resting)
    }

    /// These rows and others that follow.
    ///
    /// # Errors
    /// Where these have other columns.
    pub(super) fn followed_by(&self, others: &Self) -> Result<Self, ArrowError> {
        let both = [self.rows()?, others.rows()?];
        Self::new(&concat_batches(&self.schema, &both)?)
    }
}
