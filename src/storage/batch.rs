//! Rows of a table as they are kept: each column in the fewest bytes that hold it.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::encoding::{
    as_they_are, decoded, decoded_batch, encoded, has_plain_texts, shared_codes,
};
use crate::memory::{Kept, lay_together};

/// Fewer rows are kept as they come: they wait for others.
const ENCODED_ROWS_MIN: usize = 1024;

/// A column as a batch keeps it.
pub(super) fn as_kept(column: &ArrayRef) -> ArrayRef {
    if column.len() < ENCODED_ROWS_MIN { Arc::clone(column) } else { encoded(column) }
}

/// Columns in memory of their own. Texts lie by themselves, for they may be kept in another way soon, and those of a dictionary
/// that other batches share stay where these have them.
fn together(mut columns: Vec<ArrayRef>) -> Vec<ArrayRef> {
    let own = columns.iter_mut().filter(|column| shared_codes(column).is_none());
    let (mut texts, mut others): (Vec<_>, Vec<_>) = own.partition(|column| has_plain_texts(column));
    texts.chunks_mut(1).for_each(lay_together);
    lay_together(&mut others);
    columns
}

/// Some rows.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    /// The columns as who reads them has them.
    schema: SchemaRef,
    /// The same as they are kept.
    kept: RecordBatch,
}

impl Batch {
    /// These rows.
    pub(crate) fn new(rows: RecordBatch) -> Self {
        let schema = rows.schema();
        let columns = together(rows.columns().iter().map(as_kept).collect());
        let kept = as_they_are(&schema, columns, rows.num_rows()).unwrap_or(rows);
        Self { schema, kept }
    }

    /// The same rows, which count for their owner.
    pub(crate) fn kept(self, kept: &mut Kept) -> Self {
        Self { kept: kept.keep(self.kept), ..self }
    }

    /// The same rows as they are kept elsewhere.
    pub(super) fn moved(&self, kept: RecordBatch) -> Self {
        Self { schema: Arc::clone(&self.schema), kept }
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.kept.num_rows()
    }

    /// The columns as they are kept.
    pub(super) fn as_kept(&self) -> &RecordBatch {
        &self.kept
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// A column.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn column(&self, place: usize) -> Result<ArrayRef, ArrowError> {
        decoded(self.kept.column(place), self.schema.field(place).data_type())
    }

    /// All columns.
    ///
    /// # Errors
    /// As of one.
    pub(super) fn rows(&self) -> Result<RecordBatch, ArrowError> {
        decoded_batch(&self.kept, &self.schema)
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

    /// Some of the rows, which follow one another.
    pub(super) fn slice(&self, first: usize, rows: usize) -> Self {
        self.moved(self.kept.slice(first, rows))
    }

    /// The same rows with a column that is kept in another way.
    ///
    /// # Errors
    /// Where it has not as many rows.
    pub(super) fn with_column(&self, place: usize, kept: ArrayRef) -> Result<Self, ArrowError> {
        let mut columns = self.kept.columns().to_vec();
        columns[place] = kept;
        Ok(self.moved(as_they_are(&self.schema, columns, self.num_rows())?))
    }

    /// The same rows, beside one another again after a change.
    ///
    /// # Errors
    /// None, for they are as many.
    pub(super) fn settled(&self) -> Result<Self, ArrowError> {
        let columns = together(self.kept.columns().to_vec());
        Ok(self.moved(as_they_are(&self.schema, columns, self.num_rows())?))
    }

    /// The rows as they are kept, without what they share with others.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(super) fn alone(&self) -> Result<RecordBatch, ArrowError> {
        if !self.kept.columns().iter().any(|column| shared_codes(column).is_some()) {
            return Ok(self.kept.clone());
        }
        let columns = self.kept.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| match shared_codes(column) {
            Some(_) => Ok(encoded(&decoded(column, field.data_type())?)),
            None => Ok(Arc::clone(column)),
        });
        as_they_are(&self.schema, columns.collect::<Result<_, ArrowError>>()?, self.num_rows())
    }

    /// The rows that are true here.
    ///
    /// # Errors
    /// Where there is not a truth for each row.
    pub(super) fn filtered(&self, wanted: &BooleanArray) -> Result<Self, ArrowError> {
        self.moved(filter_record_batch(&self.kept, wanted)?).settled()
    }

    /// These rows and others that follow.
    ///
    /// # Errors
    /// Where these have other columns.
    pub(super) fn followed_by(&self, others: &Self) -> Result<Self, ArrowError> {
        let both = [self.rows()?, others.rows()?];
        Ok(Self::new(concat_batches(&self.schema, &both)?))
    }
}
