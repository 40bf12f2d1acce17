//! A matrix as a table, for the formats that hold tables with a schema.
//!
//! | form | columns | written for |
//! |---|---|---|
//! | wide | row labels, then one column per matrix column: its label, or `c1 … cn` | dense |
//! | vectors | row labels, then `vector`, a list of fixed size | dense, of more columns than a table should have |
//! | entries | row label or `row`, column label or `column`, `value` | sparse |
//!
//! Any program reads these as tables. What the columns do not say is in the schema's metadata, so that
//! a matrix comes back as it was: shape, element, and the labels that are not columns of the table.
//!
//! ```text
//! relatrix.matrix          form=entries;shape=3x4;element=float32;row_keys=2;column_keys=0;names=false
//! relatrix.row_labels      all row labels, empty rows included   (entries)
//! relatrix.column_labels   all column labels                     (where they are not plain names)
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, Int64Array, PrimitiveArray, RecordBatch, RecordBatchOptions,
    UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Schema, SchemaRef};

use crate::matrix::{Csr, Dense, Element, Labels, Matrix, Scalar, Shape, Storage};
use crate::with_storage;

use super::flaw::{Checked, Flaw};
use super::keys::{self, Places};

/// The columns of unlabelled entries, as `ENTRIES` names them.
pub(super) const ENTRY_COLUMNS: [&str; 3] = ["row", "column", "value"];

const DESCRIPTION_KEY: &str = "relatrix.matrix";
const ROW_LABELS_KEY: &str = "relatrix.row_labels";
const COLUMN_LABELS_KEY: &str = "relatrix.column_labels";

/// Most columns of a wide table: what PostgreSQL allows, and about what other readers bear.
const WIDE_COLUMNS_MAX: usize = 1600;

/// Bytes of cells in a batch.
const BATCH_BYTES: usize = 4 << 20;

/// How the cells lie in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Wide,
    Vectors,
    Entries,
}

/// What the schema's metadata says.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) form: Form,
    pub(super) shape: Shape,
    pub(super) element: Element,
    /// Leading columns that are row labels.
    pub(super) row_keys: usize,
    /// Columns after them that are column labels; entries only.
    pub(super) column_keys: usize,
    /// Whether the names of the matrix columns are their labels; wide only.
    pub(super) names: bool,
    pub(super) row_labels: Option<Labels>,
    pub(super) column_labels: Option<Labels>,
}

impl Description {
    /// The description in a schema, if there is one.
    pub(super) fn of(schema: &Schema) -> Checked<Option<Self>> {
        let metadata = schema.metadata();
        let Some(text) = metadata.get(DESCRIPTION_KEY) else { return Ok(None) };
        let labels = |key| metadata.get(key).map(|text| keys::decode(text)).transpose();
        let mut description = Self::parse(text).ok_or_else(|| {
            Flaw::new(format!("cannot read the metadata {DESCRIPTION_KEY} '{text}'"))
        })?;
        description.row_labels = labels(ROW_LABELS_KEY)?;
        description.column_labels = labels(COLUMN_LABELS_KEY)?;
        Ok(Some(description))
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: HashMap<&str, &str> =
            text.split(';').map(|field| field.split_once('=')).collect::<Option<_>>()?;
        let (rows, columns) = fields.get("shape")?.split_once('x')?;
        Some(Self {
            form: match *fields.get("form")? {
                "wide" => Form::Wide,
                "vectors" => Form::Vectors,
                "entries" => Form::Entries,
                _ => return None,
            },
            shape: Shape::new(rows.parse().ok()?, columns.parse().ok()?),
            element: match *fields.get("element")? {
                "float32" => Element::Float32,
                "float64" => Element::Float64,
                _ => return None,
            },
            row_keys: fields.get("row_keys")?.parse().ok()?,
            column_keys: fields.get("column_keys")?.parse().ok()?,
            names: fields.get("names")?.parse().ok()?,
            row_labels: None,
            column_labels: None,
        })
    }

    fn metadata(&self) -> Checked<HashMap<String, String>> {
        let Self { form, shape, element, row_keys, column_keys, names, .. } = self;
        let form = match form {
            Form::Wide => "wide",
            Form::Vectors => "vectors",
            Form::Entries => "entries",
        };
        let text = format!(
            "form={form};shape={shape};element={element};\
             row_keys={row_keys};column_keys={column_keys};names={names}"
        );
        let mut metadata = HashMap::from([(DESCRIPTION_KEY.to_owned(), text)]);
        for (key, labels) in
            [(ROW_LABELS_KEY, &self.row_labels), (COLUMN_LABELS_KEY, &self.column_labels)]
        {
            if let Some(labels) = labels {
                metadata.insert(key.to_owned(), keys::encode(labels)?);
            }
        }
        Ok(metadata)
    }
}

/// The name of each matrix column: its label, or `c1 … cn`.
pub(super) fn column_names(matrix: &Matrix) -> Vec<String> {
    let columns = 0..matrix.shape().columns;
    match matrix.column_labels() {
        Some(labels) => columns.map(|column| labels.text(column)).collect(),
        None => columns.map(|column| format!("c{}", column + 1)).collect(),
    }
}

/// A matrix about to be written as a table.
pub(super) struct Table<'a> {
    matrix: &'a Matrix,
    form: Form,
    /// Labels that are columns of the table.
    row_keys: Option<&'a Labels>,
    column_keys: Option<&'a Labels>,
    schema: SchemaRef,
}

impl<'a> Table<'a> {
    pub(super) fn of(matrix: &'a Matrix) -> Checked<Self> {
        let shape = matrix.shape();
        let form = match matrix.cells().layout() {
            crate::matrix::Layout::Csr => Form::Entries,
            crate::matrix::Layout::Dense if shape.columns > WIDE_COLUMNS_MAX => Form::Vectors,
            crate::matrix::Layout::Dense => Form::Wide,
        };
        let (row_labels, column_labels) = (matrix.row_labels(), matrix.column_labels());
        let names = form == Form::Wide && column_labels.is_some_and(are_names);
        let (row_keys, column_keys) = match form {
            Form::Wide | Form::Vectors => (row_labels, None),
            Form::Entries => (distinct(row_labels)?, distinct(column_labels)?),
        };
        let key_count = |labels: Option<&Labels>| labels.map_or(0, |labels| labels.fields().len());
        let description = Description {
            form,
            shape,
            element: matrix.element(),
            row_keys: key_count(row_keys),
            column_keys: key_count(column_keys),
            names,
            row_labels: row_labels.filter(|_| form == Form::Entries).cloned(),
            column_labels: column_labels.filter(|_| !names).cloned(),
        };
        let fields = fields(matrix, form, row_keys, column_keys)?;
        let schema = Arc::new(Schema::new_with_metadata(fields, description.metadata()?));
        Ok(Self { matrix, form, row_keys, column_keys, schema })
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Hands the rows of the table to `write`, batch by batch.
    pub(super) fn batches(&self, mut write: impl FnMut(RecordBatch) -> Checked<()>) -> Checked<()> {
        with_storage!(self.matrix.cells(), storage => match storage {
            Storage::Dense(dense) => self.dense_batches(dense, &mut write),
            Storage::Csr(csr) => self.entry_batches(csr, &mut write),
        })
    }

    fn dense_batches<T: Scalar>(
        &self,
        dense: &Dense<T>,
        write: &mut impl FnMut(RecordBatch) -> Checked<()>,
    ) -> Checked<()> {
        let Shape { rows, columns } = dense.shape();
        let batch_rows = (BATCH_BYTES / (columns * size_of::<T>()).max(1)).clamp(1, 1 << 16);
        for start in (0..rows).step_by(batch_rows) {
            let end = rows.min(start + batch_rows);
            let block = dense.rows(start..end);
            let mut arrays: Vec<ArrayRef> = Vec::new();
            if let Some(keys) = self.row_keys {
                arrays
                    .extend(keys.slice(start..end).fields().iter().map(|(_, key)| Arc::clone(key)));
            }
            match self.form {
                Form::Vectors => arrays.push(Arc::new(FixedSizeListArray::try_new(
                    item::<T>(),
                    list_size(columns)?,
                    Arc::new(PrimitiveArray::<T::Arrow>::new(block.buffer().clone(), None)),
                    None,
                )?)),
                Form::Wide | Form::Entries => arrays.extend((0..columns).map(|column| {
                    let cells = block.cells().iter().skip(column).step_by(columns);
                    Arc::new(PrimitiveArray::<T::Arrow>::from_iter_values(cells.copied()))
                        as ArrayRef
                })),
            }
            write(self.batch(arrays, end - start)?)?;
        }
        Ok(())
    }

    fn entry_batches<T: Scalar>(
        &self,
        csr: &Csr<T>,
        write: &mut impl FnMut(RecordBatch) -> Checked<()>,
    ) -> Checked<()> {
        let batch_entries = BATCH_BYTES / (size_of::<T>() + 2 * size_of::<u32>());
        let base = csr.offsets()[0] as usize;
        let mut row = 0;
        for start in (0..csr.stored()).step_by(batch_entries) {
            let end = csr.stored().min(start + batch_entries);
            let rows = (start..end).map(|entry| {
                while csr.offsets()[row + 1] as usize - base <= entry {
                    row += 1;
                }
                row as u32
            });
            let rows = UInt32Array::from_iter_values(rows);
            let columns = UInt32Array::new(csr.columns().slice(base + start, end - start), None);
            let values = csr.values().slice(base + start, end - start);
            let mut arrays = keys_at(self.row_keys, &rows)?;
            arrays.extend(keys_at(self.column_keys, &columns)?);
            arrays.push(Arc::new(PrimitiveArray::<T::Arrow>::new(values, None)));
            write(self.batch(arrays, end - start)?)?;
        }
        Ok(())
    }

    fn batch(&self, arrays: Vec<ArrayRef>, rows: usize) -> Checked<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

fn fields(
    matrix: &Matrix,
    form: Form,
    row_keys: Option<&Labels>,
    column_keys: Option<&Labels>,
) -> Checked<Vec<Field>> {
    let number = with_storage!(matrix.cells(), storage => number_type(storage));
    let keys = |labels: Option<&Labels>, index: &str| match labels {
        Some(labels) => {
            let field = |(name, array): &(String, ArrayRef)| {
                Field::new(name, array.data_type().clone(), true)
            };
            labels.fields().iter().map(field).collect()
        }
        None => vec![Field::new(index, DataType::Int64, false)],
    };
    let mut fields = match (form, row_keys) {
        (Form::Wide | Form::Vectors, None) => Vec::new(),
        (_, row_keys) => keys(row_keys, ENTRY_COLUMNS[0]),
    };
    match form {
        Form::Wide => {
            let names = column_names(matrix).into_iter();
            fields.extend(names.map(|name| Field::new(name, number.clone(), false)));
        }
        Form::Vectors => {
            let item = Arc::new(Field::new_list_field(number, false));
            let list = DataType::FixedSizeList(item, list_size(matrix.shape().columns)?);
            fields.push(Field::new("vector", list, false));
        }
        Form::Entries => {
            fields.extend(keys(column_keys, ENTRY_COLUMNS[1]));
            fields.push(Field::new(ENTRY_COLUMNS[2], number, false));
        }
    }
    Ok(fields)
}

fn number_type<T: Scalar>(_: &Storage<T>) -> DataType {
    T::Arrow::DATA_TYPE
}

fn item<T: Scalar>() -> Arc<Field> {
    Arc::new(Field::new_list_field(T::Arrow::DATA_TYPE, false))
}

fn list_size(columns: usize) -> Checked<i32> {
    i32::try_from(columns).map_err(|_| Flaw::new("a list holds at most 2^31 - 1 columns"))
}

/// The keys at these places, or the places themselves counted from 1.
fn keys_at(labels: Option<&Labels>, places: &UInt32Array) -> Checked<Vec<ArrayRef>> {
    match labels {
        Some(labels) => {
            let keys = labels.fields().iter().map(|(_, array)| take(array, places, None));
            Ok(keys.collect::<Result<_, _>>()?)
        }
        None => {
            let indices = places.values().iter().map(|&place| i64::from(place) + 1);
            Ok(vec![Arc::new(Int64Array::from_iter_values(indices))])
        }
    }
}

/// Labels by which an entry can be found again; where two are equal, indices must do.
fn distinct(labels: Option<&Labels>) -> Checked<Option<&Labels>> {
    let Some(labels) = labels else { return Ok(None) };
    Ok(Places::of(labels)?.map(|_| labels))
}

/// Whether labels are what [`Labels::names`] makes of the names of columns.
fn are_names(labels: &Labels) -> bool {
    let [(name, names)] = labels.fields() else { return false };
    name == "name" && names.data_type() == &DataType::Utf8 && names.null_count() == 0
}
