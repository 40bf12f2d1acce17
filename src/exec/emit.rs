//! Cells become rows: a result as the batches that SQL reads.
//!
//! ```text
//! Rows      row labels, then a column for each matrix column     MATRIX(x)
//! Entries   row labels, column label, value                      ENTRIES(x)
//! Vectors   row labels, then each row as one list                VECTORS(x)
//! Scalar    the one cell                                         (MATRIX(x))
//! ```
//!
//! This is where 0 becomes 1: rows and columns without labels are numbered from 1.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Int64Array, PrimitiveArray, RecordBatch,
    RecordBatchOptions, UInt64Array,
};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, SchemaRef};
use rayon::prelude::*;

use super::intake::column_type;
use super::kernels::best::Best;
use super::kernels::{dense, sparse};
use crate::error::Result;
use crate::matrix::{Cells, Element, Labels, Scalar, Storage};

/// How a result is read as rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) enum Form {
    Rows,
    Entries,
    Vectors,
    Scalar,
    /// Not at all: the caller takes the matrix.
    Whole,
}

/// How a result is read, and what its rows are called.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) form: Form,
    /// Which entries of each row, where not all.
    pub(crate) best: Option<Best>,
    pub(crate) schema: SchemaRef,
}

/// Rows or entries in one batch, about.
const BATCH_ROWS: usize = 8192;
/// Rows of which the best entries are found together, in parallel.
const BEST_ROWS: usize = 256;
/// Cells in one batch of rows, about: wide rows make short batches.
const BATCH_CELLS: usize = 1 << 18;

/// The fields of a result: names and types of the row labels, of the column labels, and the names of
/// the columns where they are known.
pub(crate) fn fields(
    form: Form,
    rows: &[(String, DataType)],
    columns: &[(String, DataType)],
    names: &[String],
    element: Element,
) -> Vec<Field> {
    let cell = column_type(element);
    let labels = |labels: &[(String, DataType)], otherwise: &str| match labels {
        [] => vec![Field::new(otherwise, DataType::Int64, false)],
        labels => labels.iter().map(|(name, of)| Field::new(name, of.clone(), true)).collect(),
    };
    match form {
        Form::Rows => {
            let cells = names.iter().map(|name| Field::new(name, cell.clone(), false));
            labels(rows, "row").into_iter().chain(cells).collect()
        }
        Form::Entries => {
            let mut fields = labels(rows, "row");
            for field in labels(columns, "column") {
                let taken = field.name() == "name"
                    || fields.iter().any(|other: &Field| other.name() == field.name());
                fields.push(if taken { field.with_name("column") } else { field });
            }
            fields.push(Field::new("value", cell, false));
            fields
        }
        Form::Vectors => {
            let mut fields = labels(rows, "row");
            fields.push(Field::new("vector", list_type(element, names.len()), false));
            fields
        }
        Form::Scalar | Form::Whole => vec![Field::new("value", cell, false)],
    }
}

fn list_type(element: Element, width: usize) -> DataType {
    let item = Field::new_list_field(column_type(element), false);
    DataType::FixedSizeList(Arc::new(item), width as i32)
}

/// The batches of a block of rows that begins at `first_row` of the whole result, made one by one as
/// they are asked for.
///
/// `rows` are the block's row labels; `columns` those of all columns. Zeros of a sparse result are no
/// entries.
pub(crate) fn batches<'a>(
    reading: &'a Reading,
    is_sparse: bool,
    cells: &'a Cells,
    rows: Option<&'a Labels>,
    columns: Option<&'a Labels>,
    first_row: usize,
) -> impl Iterator<Item = Result<RecordBatch>> + 'a {
    let emitter = Emitter { reading, is_sparse, rows, columns, first_row };
    let shape = cells.shape();
    let rows_per_batch = match reading.form {
        Form::Entries if reading.best.is_some() => BEST_ROWS,
        // A row of entries is a batch of its own where it is long.
        Form::Entries => (BATCH_ROWS * shape.rows.max(1) / cells.stored().max(1)).max(1),
        _ => (BATCH_CELLS / shape.columns.max(1)).clamp(1, BATCH_ROWS),
    };
    (0..shape.rows).step_by(rows_per_batch).map(move |start| {
        let rows = start..(start + rows_per_batch).min(shape.rows);
        let batch = crate::with_storage!(cells, storage => emitter.batch(storage, rows.clone()));
        cells.done_with(rows);
        batch
    })
}

struct Emitter<'a> {
    reading: &'a Reading,
    is_sparse: bool,
    rows: Option<&'a Labels>,
    columns: Option<&'a Labels>,
    first_row: usize,
}

impl Emitter<'_> {
    fn batch<T: Scalar>(&self, storage: &Storage<T>, rows: Range<usize>) -> Result<RecordBatch> {
        let block = storage.rows(rows.clone());
        let schema = &self.reading.schema;
        let mut arrays = Vec::with_capacity(schema.fields().len());
        match self.reading.form {
            Form::Rows => {
                self.row_labels(&rows, &mut arrays);
                arrays.extend(columns_of(&block));
            }
            Form::Entries => self.entries(&block, &rows, &mut arrays)?,
            Form::Vectors => {
                self.row_labels(&rows, &mut arrays);
                let item = Arc::new(Field::new_list_field(column_type(T::ELEMENT), false));
                let width = block.shape().columns as i32;
                let values = numbers(cells_of(&block));
                arrays.push(Arc::new(FixedSizeListArray::try_new_with_length(
                    item,
                    width,
                    values,
                    None,
                    rows.len(),
                )?));
            }
            Form::Scalar | Form::Whole => {
                arrays.push(numbers(cells_of(&block)));
            }
        }
        let options =
            RecordBatchOptions::new().with_row_count(arrays.first().map(|array| array.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
    }

    fn row_labels(&self, rows: &Range<usize>, arrays: &mut Vec<ArrayRef>) {
        match self.rows {
            Some(labels) => {
                let cut = labels.slice(rows.clone());
                arrays.extend(cut.fields().iter().map(|(_, keys)| Arc::clone(keys)));
            }
            None => {
                let first = (self.first_row + rows.start) as i64 + 1;
                let numbers = Int64Array::from_iter_values(first..first + rows.len() as i64);
                arrays.push(Arc::new(numbers));
            }
        }
    }

    /// The cells of a block with their labels: all, or of a sparse result those that are not zero; of
    /// those the best of each row, if no others are read.
    fn entries<T: Scalar>(
        &self,
        block: &Storage<T>,
        rows: &Range<usize>,
        arrays: &mut Vec<ArrayRef>,
    ) -> Result<()> {
        let mut places: (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut values = Vec::new();
        let mut end_row = |row: usize, count: usize| {
            places.0.resize(count, (rows.start + row) as u64);
        };
        match self.reading.best {
            None => {
                values.reserve(block.stored());
                for row in 0..rows.len() {
                    self.row_entries(block, row, &mut places.1, &mut values);
                    end_row(row, values.len());
                }
            }
            Some(best) => {
                let kept: Vec<(Vec<u64>, Vec<T>)> = (0..rows.len())
                    .into_par_iter()
                    .map(|row| self.best_of_row(best, block, row))
                    .collect();
                for (row, (columns, cells)) in kept.into_iter().enumerate() {
                    places.1.extend(columns);
                    values.extend(cells);
                    end_row(row, values.len());
                }
            }
        }
        for (labels, places, first) in
            [(self.rows, places.0, self.first_row as u64), (self.columns, places.1, 0)]
        {
            match labels {
                Some(labels) => {
                    let places = UInt64Array::from(places);
                    for (_, keys) in labels.fields() {
                        arrays.push(take(keys, &places, None)?);
                    }
                }
                None => {
                    let numbers = places.iter().map(|&place| (place + first) as i64 + 1);
                    arrays.push(Arc::new(Int64Array::from_iter_values(numbers)));
                }
            }
        }
        arrays.push(numbers::<T>(values.into()));
        Ok(())
    }
}

impl Emitter<'_> {
    /// Adds the entries of one row of a block.
    fn row_entries<T: Scalar>(
        &self,
        block: &Storage<T>,
        row: usize,
        places: &mut Vec<u64>,
        values: &mut Vec<T>,
    ) {
        let columns = block.shape().columns;
        match block {
            Storage::Dense(dense) if self.is_sparse => {
                for (column, &value) in dense.row(row).iter().enumerate() {
                    if value != T::ZERO {
                        places.push(column as u64);
                        values.push(value);
                    }
                }
            }
            Storage::Dense(dense) => {
                places.extend(0..columns as u64);
                values.extend_from_slice(dense.row(row));
            }
            Storage::Csr(csr) if self.is_sparse => {
                let (columns, stored) = csr.row(row);
                places.extend(columns.iter().map(|&column| u64::from(column)));
                values.extend_from_slice(stored);
            }
            Storage::Csr(csr) => {
                let first = values.len();
                places.extend(0..columns as u64);
                values.resize(first + columns, T::ZERO);
                let (columns, stored) = csr.row(row);
                for (&column, &value) in columns.iter().zip(stored) {
                    values[first + column as usize] = value;
                }
            }
        }
    }

    /// The best entries of one row of a block.
    fn best_of_row<T: Scalar>(
        &self,
        best: Best,
        block: &Storage<T>,
        row: usize,
    ) -> (Vec<u64>, Vec<T>) {
        // The cells of a dense row are looked at where they lie.
        if let (Storage::Dense(dense), false) = (block, self.is_sparse) {
            let cells = dense.row(row);
            let kept = best.places(cells);
            return kept.into_iter().map(|place| (place as u64, cells[place])).unzip();
        }
        let (mut places, mut values) = (Vec::new(), Vec::new());
        self.row_entries(block, row, &mut places, &mut values);
        let kept = best.places(&values);
        kept.into_iter().map(|place| (places[place], values[place])).unzip()
    }
}

/// The columns of a block, each as an array; they share the memory of its transpose.
fn columns_of<T: Scalar>(block: &Storage<T>) -> Vec<ArrayRef> {
    let shape = block.shape();
    let turned = match block {
        Storage::Dense(block) => dense::transpose(block),
        Storage::Csr(block) => dense::transpose(&sparse::to_dense(block)),
    };
    let column =
        |at: usize| -> ArrayRef { numbers(turned.buffer().slice(at * shape.rows, shape.rows)) };
    (0..shape.columns).map(column).collect()
}

/// A column of cells. SQL has one `NaN`, which is above infinity; arithmetic gives it a sign on some processors, by which it
/// would be below everything.
fn numbers<T: Scalar>(cells: ScalarBuffer<T>) -> ArrayRef {
    let is_signed = |cell: &T| cell.to_f64().is_nan() && cell.to_f64().is_sign_negative();
    let cells = match cells.iter().any(is_signed) {
        true => cells
            .iter()
            .map(|&cell| if is_signed(&cell) { T::from_f64(f64::NAN) } else { cell })
            .collect(),
        false => cells,
    };
    Arc::new(PrimitiveArray::<T::Arrow>::new(cells, None))
}

/// All cells of a block, row by row.
fn cells_of<T: Scalar>(block: &Storage<T>) -> ScalarBuffer<T> {
    match block {
        Storage::Dense(block) => block.buffer().clone(),
        Storage::Csr(block) => sparse::to_dense(block).buffer().clone(),
    }
}
