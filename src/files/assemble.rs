//! A table becomes a matrix again.
//!
//! Where the schema carries no description of ours, the columns tell: `row`, `column`, `value` are
//! entries counted from 1; else leading columns that are not numbers are row labels, and the rest are
//! numbers, one matrix column each. Where the last column, and no other, has lists of numbers, these are the
//! rows, and all columns before are their labels.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_empty_array};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{
    DataType, FieldRef, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::error::ErrorKind;
use crate::matrix::{Dense, Element, Labels, Matrix, Nulls, Scalar, Shape};

use super::entries::{Entries, place};
use super::flaw::{Checked, Flaw, Limit};
use super::keys::Places;
use super::table::{Description, ENTRY_COLUMNS, Form};
use super::{Rules, is_exact};

/// Makes a matrix of a table's batches.
pub(super) fn assemble(
    schema: &Schema,
    batches: impl Iterator<Item = Checked<RecordBatch>>,
    rules: Rules,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let plan = Plan::of(schema)?;
    let first_cell = plan.first_cell();
    let batches = batches.map(|batch| {
        limit.go_on()?;
        match rules.nulls {
            Nulls::Drop => without_nulls(&batch?, first_cell),
            Nulls::Error | Nulls::Zero | Nulls::Nan => batch,
        }
    });
    match plan.element(schema) {
        Element::Float32 => plan.run::<f32>(schema, batches, rules, limit),
        Element::Float64 => plan.run::<f64>(schema, batches, rules, limit),
    }
}

/// Where labels and cells are found.
struct Plan {
    form: Form,
    row_keys: usize,
    column_keys: usize,
    names: bool,
    description: Option<Description>,
}

impl Plan {
    fn of(schema: &Schema) -> Checked<Self> {
        let Some(description) = Description::of(schema)? else { return Self::guess(schema) };
        let plan = Self {
            form: description.form,
            row_keys: description.row_keys,
            column_keys: description.column_keys,
            names: description.names,
            description: Some(description),
        };
        let columns = schema.fields().len();
        let first_cell = plan.first_cell();
        let fits = match plan.form {
            Form::Wide => first_cell <= columns,
            Form::Vectors | Form::Entries => Some(first_cell) == columns.checked_sub(1),
        };
        if !fits {
            return Err(Flaw::new(format!("its metadata does not fit its {columns} columns")));
        }
        plan.checked(schema)
    }

    fn guess(schema: &Schema) -> Checked<Self> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let types: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
        let plan = |form, row_keys| {
            let names = form == Form::Wide;
            Self { form, row_keys, column_keys: 0, names, description: None }
        };
        if names == ENTRY_COLUMNS && types[0].is_integer() && types[1].is_integer() {
            return plan(Form::Entries, 0).checked(schema);
        }
        // Before a list that is alone, and last, all are labels: numbers too.
        let is_list = |data_type: &&DataType| is_cells(data_type) && !is_number(data_type);
        if let Some((last, before)) = types.split_last()
            && is_list(last)
            && !before.iter().any(is_list)
        {
            return plan(Form::Vectors, before.len()).checked(schema);
        }
        let keys = types.iter().take_while(|data_type| !is_cells(data_type)).count();
        match types[keys..] {
            [list] if !is_number(list) => plan(Form::Vectors, keys).checked(schema),
            _ => plan(Form::Wide, keys).checked(schema),
        }
    }

    /// The plan, if the columns after the keys can hold cells.
    fn checked(self, schema: &Schema) -> Checked<Self> {
        let fields = &schema.fields()[self.first_cell()..];
        let fits = |data_type: &DataType| match self.form {
            Form::Vectors => is_cells(data_type) && !is_number(data_type),
            Form::Wide | Form::Entries => is_number(data_type),
        };
        match fields.iter().find(|field| !fits(field.data_type())) {
            None => Ok(self),
            Some(field) => Err(Flaw::new(format!(
                "column '{}' is {}, not numbers; only leading columns can be row labels",
                field.name(),
                field.data_type()
            ))),
        }
    }

    fn first_cell(&self) -> usize {
        match self.form {
            Form::Wide | Form::Vectors => self.row_keys,
            Form::Entries => self.row_keys.max(1).saturating_add(self.column_keys.max(1)),
        }
    }

    /// `FLOAT32` where every column of cells is, or narrower.
    fn element(&self, schema: &Schema) -> Element {
        let narrow = |data_type: &DataType| {
            let data_type = list_item(data_type).unwrap_or(data_type);
            matches!(data_type, DataType::Float32 | DataType::Float16)
        };
        let cells = &schema.fields()[self.first_cell()..];
        match (&self.description, cells.is_empty()) {
            (Some(description), true) => description.element,
            (None, true) => Element::Float64,
            _ if cells.iter().all(|field| narrow(field.data_type())) => Element::Float32,
            _ => Element::Float64,
        }
    }

    fn run<T: Scalar>(
        self,
        schema: &Schema,
        batches: impl Iterator<Item = Checked<RecordBatch>>,
        rules: Rules,
        limit: Limit<'_>,
    ) -> Checked<Matrix> {
        match self.form {
            Form::Wide | Form::Vectors => {
                self.run_dense::<T>(schema, batches, rules.nulls.cell(), limit)
            }
            Form::Entries => self.run_entries::<T>(batches, rules, limit),
        }
    }

    fn run_dense<T: Scalar>(
        self,
        schema: &Schema,
        batches: impl Iterator<Item = Checked<RecordBatch>>,
        null: Option<f64>,
        limit: Limit<'_>,
    ) -> Checked<Matrix> {
        let (key_fields, cell_fields) = schema.fields().split_at(self.row_keys);
        let keys = |columns: &mut dyn Iterator<Item = ArrayRef>| {
            let names = key_fields.iter().map(|field| field.name().clone());
            (self.row_keys > 0).then(|| Labels::new(names.zip(columns).collect()))
        };
        let mut empty = key_fields.iter().map(|field| new_empty_array(field.data_type()));
        let mut labels: Vec<Labels> = keys(&mut empty).into_iter().collect();
        let mut block: Block<T> = Block {
            shape: Shape::new(0, declared_columns(self.form, cell_fields)),
            cells: Vec::new(),
            null,
        };
        for batch in batches {
            let batch = batch?;
            labels.extend(keys(&mut batch.columns().iter().cloned()));
            let cells = &batch.columns()[self.row_keys..];
            match self.form {
                Form::Vectors => block.push_lists(&cells[0], cell_fields[0].name(), limit)?,
                Form::Wide | Form::Entries => {
                    block.push_columns(cells, cell_fields, batch.num_rows(), limit)?;
                }
            }
        }
        let shape = match &self.description {
            // Without a column at all only the description knows how many rows there are.
            Some(description) if schema.fields().is_empty() => {
                Shape::new(description.shape.rows, 0)
            }
            _ => block.shape,
        };
        let row_labels = (self.row_keys > 0).then(|| Labels::concat(&labels)).transpose()?;
        let column_labels = match self.description {
            _ if self.names => Some(Labels::names(cell_fields.iter().map(|field| field.name()))),
            Some(description) => description.column_labels,
            None => None,
        };
        labelled(Matrix::new(Dense::new(shape, block.cells.into())), row_labels, column_labels)
    }

    fn run_entries<T: Scalar>(
        self,
        batches: impl Iterator<Item = Checked<RecordBatch>>,
        Rules { nulls, duplicates }: Rules,
        limit: Limit<'_>,
    ) -> Checked<Matrix> {
        let (shape, row_labels, column_labels) = match self.description {
            Some(it) => (Some(it.shape), it.row_labels, it.column_labels),
            None => (None, None, None),
        };
        let row_places = key_places(self.row_keys, row_labels.as_ref())?;
        let column_places = key_places(self.column_keys, column_labels.as_ref())?;
        let mut entries: Entries<T> = Entries::new();
        let mut seen = 0;
        for batch in batches {
            let batch = batch?;
            let stored = entries.len() + batch.num_rows();
            limit.admit_sparse::<T>(shape.unwrap_or(Shape::new(0, 0)), stored)?;
            let (row_keys, rest) = batch.columns().split_at(self.row_keys.max(1));
            let (column_keys, values) = rest.split_at(self.column_keys.max(1));
            let rows = places(row_keys, row_places.as_ref(), ENTRY_COLUMNS[0], seen)?;
            let columns = places(column_keys, column_places.as_ref(), ENTRY_COLUMNS[1], seen)?;
            each_number(&values[0], ENTRY_COLUMNS[2], seen, nulls.cell(), |at, value| {
                entries.push(rows[at], columns[at], value);
            })?;
            seen += batch.num_rows();
        }
        let shape = shape.unwrap_or_else(|| entries.extent());
        place(shape.rows.max(shape.columns))?;
        labelled(
            Matrix::new(entries.into_csr(shape, duplicates, limit)?),
            row_labels,
            column_labels,
        )
    }
}

/// Whole rows of a dense matrix, as they come.
struct Block<T> {
    shape: Shape,
    cells: Vec<T>,
    /// The cell that stands for a NULL, where one does.
    null: Option<f64>,
}

impl<T: Scalar> Block<T> {
    fn push_columns(
        &mut self,
        columns: &[ArrayRef],
        fields: &[FieldRef],
        rows: usize,
        limit: Limit<'_>,
    ) -> Checked<()> {
        let first_row = self.shape.rows;
        let start = self.grow(rows, limit)?;
        self.cells.resize(start + rows * columns.len(), T::ZERO);
        let block = &mut self.cells[start..];
        for (at, (column, field)) in columns.iter().zip(fields).enumerate() {
            each_number(column, field.name(), first_row, self.null, |row, value| {
                block[row * columns.len() + at] = value;
            })?;
        }
        Ok(())
    }

    fn push_lists(&mut self, lists: &ArrayRef, name: &str, limit: Limit<'_>) -> Checked<()> {
        let first_row = self.shape.rows;
        if self.null.is_none() {
            no_nulls(lists, name, first_row)?;
        }
        if first_row == 0
            && let Some(known) = (0..lists.len()).find(|&at| lists.is_valid(at))
        {
            self.shape.columns = list(lists, known).len();
        }
        self.grow(lists.len(), limit)?;
        for at in 0..lists.len() {
            let row = first_row + at;
            if lists.is_null(at) {
                let null = self.null.map_or(T::ZERO, T::from_f64);
                self.cells.resize(self.cells.len() + self.shape.columns, null);
                continue;
            }
            let list = list(lists, at);
            if list.len() != self.shape.columns {
                let (expected, found) = (self.shape.columns, list.len());
                return Err(ErrorKind::RaggedList { row: row + 1, expected, found }.into());
            }
            if self.null.is_none() {
                no_nulls(&list, name, row)?;
            }
            each_number(&list, name, row, self.null, |_, value| self.cells.push(value))?;
        }
        Ok(())
    }

    /// Counts rows that are about to be pushed; where their cells begin.
    fn grow(&mut self, rows: usize, limit: Limit<'_>) -> Checked<usize> {
        self.shape.rows += rows;
        limit.admit_dense::<T>(self.shape)?;
        Ok(self.cells.len())
    }
}

/// Columns of a dense matrix as far as its schema tells.
fn declared_columns(form: Form, cell_fields: &[FieldRef]) -> usize {
    match (form, cell_fields.first().map(|field| field.data_type())) {
        (Form::Vectors, Some(DataType::FixedSizeList(_, size))) => {
            usize::try_from(*size).unwrap_or(0)
        }
        (Form::Vectors, _) => 0,
        (Form::Wide | Form::Entries, _) => cell_fields.len(),
    }
}

fn labelled(matrix: Matrix, rows: Option<Labels>, columns: Option<Labels>) -> Checked<Matrix> {
    let shape = matrix.shape();
    let fit = |labels: &Option<Labels>, size| labels.as_ref().is_none_or(|it| it.len() == size);
    if !fit(&rows, shape.rows) || !fit(&columns, shape.columns) {
        return Err(Flaw::new(format!("the labels in its metadata do not fit its {shape} cells")));
    }
    Ok(matrix.with_labels(rows, columns))
}

/// Where the keys stand, if the entries are given by so many key columns and not by index.
fn key_places(keys: usize, labels: Option<&Labels>) -> Checked<Option<Places>> {
    if keys == 0 {
        return Ok(None);
    }
    let labels = labels.filter(|labels| labels.fields().len() == keys);
    let places = labels.map(Places::of).transpose()?.flatten();
    places.map(Some).ok_or_else(|| Flaw::new("its metadata lacks the labels of its entries"))
}

/// The places that key columns, or one column that counts from 1, stand for.
fn places(
    columns: &[ArrayRef],
    keys: Option<&Places>,
    name: &str,
    first_row: usize,
) -> Checked<Vec<u32>> {
    if let Some(keys) = keys {
        return keys.find(columns, name);
    }
    let mut places = Vec::with_capacity(columns[0].len());
    let mut outside = None;
    each_number::<f64>(&columns[0], name, first_row, None, |_, index| {
        if index >= 1.0 && index <= f64::from(u32::MAX) && index.fract() == 0.0 {
            places.push((index - 1.0) as u32);
        } else {
            outside = outside.or(Some(index));
        }
    })?;
    match outside {
        None => Ok(places),
        Some(index) => Err(Flaw::new(format!("{index} in column '{name}' does not count from 1"))),
    }
}

/// Whether a column of this type can be a matrix column.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type == &DataType::Boolean
}

/// Whether a column of this type holds cells: numbers, or lists of them.
fn is_cells(data_type: &DataType) -> bool {
    is_number(list_item(data_type).unwrap_or(data_type))
}

fn list_item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type())
        }
        _ => None,
    }
}

fn list(lists: &ArrayRef, at: usize) -> ArrayRef {
    match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().value(at),
        DataType::LargeList(_) => lists.as_list::<i64>().value(at),
        _ => lists.as_fixed_size_list().value(at),
    }
}

fn no_nulls(array: &ArrayRef, column: &str, first_row: usize) -> Checked<()> {
    let Some(nulls) = array.logical_nulls() else { return Ok(()) };
    match (0..array.len()).find(|&row| nulls.is_null(row)) {
        None => Ok(()),
        Some(row) => {
            let column = column.to_owned();
            Err(ErrorKind::NullCell { column, row: first_row + row + 1 }.into())
        }
    }
}

/// The rows in which no cell is NULL, nor an element of a list of cells.
fn without_nulls(batch: &RecordBatch, first_cell: usize) -> Checked<RecordBatch> {
    let mut whole = vec![true; batch.num_rows()];
    for column in &batch.columns()[first_cell.min(batch.num_columns())..] {
        let is_list = !is_number(column.data_type());
        for (row, whole) in whole.iter_mut().enumerate() {
            *whole &=
                column.is_valid(row) && !(is_list && list(column, row).logical_null_count() > 0);
        }
    }
    Ok(filter_record_batch(batch, &BooleanArray::from(whole))?)
}

/// Hands each value of a numeric column to `put`, as a cell; `null` for each that is NULL.
fn each_number<T: Scalar>(
    array: &ArrayRef,
    column: &str,
    first_row: usize,
    null: Option<f64>,
    mut put: impl FnMut(usize, T),
) -> Checked<()> {
    let nulls = match null {
        Some(_) => array.logical_nulls().filter(|nulls| nulls.null_count() > 0),
        None => no_nulls(array, column, first_row).map(|()| None)?,
    };
    let null = T::from_f64(null.unwrap_or_default());
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let inexact = |value: String| -> Flaw {
        ErrorKind::Inexact { value, column: column.to_owned(), element: T::ELEMENT }.into()
    };
    macro_rules! each {
        ($values:expr) => {
            for (row, value) in $values.iter().enumerate() {
                put(row, if is_null(row) { null } else { T::from_f64((*value).into()) });
            }
        };
    }
    macro_rules! each_exact {
        ($values:expr) => {
            for (row, value) in $values.iter().enumerate() {
                if !is_null(row) && !is_exact((*value).into()) {
                    return Err(inexact(value.to_string()));
                }
                put(row, if is_null(row) { null } else { T::from_f64(*value as f64) });
            }
        };
    }
    match array.data_type() {
        DataType::Float64 => each!(array.as_primitive::<Float64Type>().values()),
        DataType::Float32 => each!(array.as_primitive::<Float32Type>().values()),
        DataType::Float16 => each!(array.as_primitive::<Float16Type>().values()),
        DataType::Int8 => each!(array.as_primitive::<Int8Type>().values()),
        DataType::Int16 => each!(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => each!(array.as_primitive::<Int32Type>().values()),
        DataType::UInt8 => each!(array.as_primitive::<UInt8Type>().values()),
        DataType::UInt16 => each!(array.as_primitive::<UInt16Type>().values()),
        DataType::UInt32 => each!(array.as_primitive::<UInt32Type>().values()),
        DataType::Int64 => each_exact!(array.as_primitive::<Int64Type>().values()),
        DataType::UInt64 => each_exact!(array.as_primitive::<UInt64Type>().values()),
        // Booleans and decimals, which SQL converts too.
        _ => each!(cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().values()),
    }
    Ok(())
}
