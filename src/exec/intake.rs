//! Rows become cells: how the batches of a relation are read as a matrix.
//!
//! The wide and the vector form stream: any run of rows becomes a block of cells by itself
//! ([`Intake::block`]). Entries and graphs need all rows, for their labels are the distinct keys
//! ([`super::entries`]).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, RecordBatch, new_empty_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat, filter_record_batch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type};

use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{CellBuffer, Cells, Dense, Duplicates, Element, Labels, Nulls, Scalar, Shape};

/// How rows are read as a matrix. The columns of the relation are its row keys, its column keys and
/// its values, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) struct Intake {
    pub(crate) form: Form,
    pub(crate) element: Element,
    pub(crate) nulls: Nulls,
    pub(crate) duplicates: Duplicates,
    /// Number of leading columns that label the rows; none leaves them to their indices.
    pub(crate) row_keys: usize,
    /// Whether a second query gives the row labels and their order.
    pub(crate) rows_given: bool,
    /// Whether the rows of entries are in the order in which their keys come first, and not in that of the keys.
    pub(crate) rows_as_they_come: bool,
    /// Names of the relation's columns.
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) enum Form {
    /// Each remaining column is a matrix column.
    Wide,
    /// The one remaining column is a list: a row; the width, where its type tells.
    Vectors { width: Option<usize> },
    /// The columns are labelled by keys too; the remaining column, if any, is the value.
    Entries { column_keys: usize, columns_given: bool },
    /// One key column each for rows and columns, labelled by the union of both.
    Graph,
}

/// A run of rows as cells, with their keys.
pub(crate) struct Block {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) cells: Cells,
}

/// Cells of the rows into which columns are interleaved at once: 32 KiB of `f64`.
const CELLS_AT_ONCE: usize = 1 << 12;

/// Integers up to here are exact in `f64`.
const EXACT_MAX: u64 = 1 << 53;

impl Intake {
    /// Whether any run of rows can be read by itself.
    pub(crate) fn streams(&self) -> bool {
        matches!(self.form, Form::Wide | Form::Vectors { .. }) && !self.rows_given
    }

    /// Columns of the matrix, where the relation's columns tell.
    pub(crate) fn width(&self) -> Option<usize> {
        match self.form {
            Form::Wide => Some(self.names.len() - self.row_keys),
            Form::Vectors { width } => width,
            Form::Entries { .. } | Form::Graph => None,
        }
    }

    /// Reads rows as a block of cells; `first_row` counts from 0 and is for messages.
    ///
    /// # Errors
    /// A NULL or inexact cell, by column and row; lists of different lengths.
    pub(crate) fn block(&self, batches: &[RecordBatch], first_row: usize) -> Result<Block> {
        match self.element {
            Element::Float64 => self.typed_block::<f64>(batches, first_row),
            Element::Float32 => self.typed_block::<f32>(batches, first_row),
        }
    }

    fn typed_block<T: Scalar>(&self, batches: &[RecordBatch], first_row: usize) -> Result<Block> {
        batches.iter().try_for_each(|batch| self.refuse_null_keys(batch))?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let cells = match self.form {
            Form::Vectors { width } => self.vectors::<T>(batches, rows, width, first_row)?,
            _ => self.wide::<T>(batches, rows, first_row)?,
        };
        let keys = (0..self.row_keys)
            .map(|at| {
                let parts: Vec<&dyn Array> =
                    batches.iter().map(|batch| batch.column(at).as_ref()).collect();
                Ok(match parts.as_slice() {
                    [] => new_empty_array(&DataType::Null),
                    [_] => Arc::clone(batches[0].column(at)),
                    parts => concat(parts)?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Block { keys, cells: cells.into() })
    }

    /// Columns become interleaved cells: each is written at its stride, into so many rows that they stay in cache
    /// until the last column is there.
    fn wide<T: Scalar>(
        &self,
        batches: &[RecordBatch],
        rows: usize,
        first_row: usize,
    ) -> Result<Dense<T>> {
        let width = self.names.len() - self.row_keys;
        let mut cells = CellBuffer::arbitrary(rows * width);
        let rows_at_once = (CELLS_AT_ONCE / width.max(1)).max(1);
        let mut done = 0;
        for batch in batches {
            let column = |at: usize| {
                let (column, name) = (batch.column(at), &self.names[at]);
                self.column::<T>(column, name, first_row + done)
            };
            let columns: Vec<_> =
                (self.row_keys..self.names.len()).map(column).collect::<Result<_>>()?;
            for start in (0..batch.num_rows()).step_by(rows_at_once) {
                let end = batch.num_rows().min(start + rows_at_once);
                let target = &mut cells[(done + start) * width..(done + end) * width];
                for (at, column) in columns.iter().enumerate() {
                    let target = target.iter_mut().skip(at).step_by(width);
                    for (cell, &value) in target.zip(&column.values()[start..end]) {
                        *cell = value;
                    }
                }
            }
            done += batch.num_rows();
        }
        Ok(Dense::new(Shape::new(rows, width), cells.into()))
    }

    fn vectors<T: Scalar>(
        &self,
        batches: &[RecordBatch],
        rows: usize,
        width: Option<usize>,
        first_row: usize,
    ) -> Result<Dense<T>> {
        let name = &self.names[self.row_keys];
        let mut width = width;
        let mut cells: Vec<T> = Vec::new();
        let mut done = 0;
        for batch in batches {
            let lists = batch.column(self.row_keys);
            let row = first_row + done;
            // Lists that lie side by side are rows as they are.
            if let Some((elements, columns)) = even_lists(lists)?
                && width.is_none_or(|width| width == columns)
            {
                let elements = self.column::<T>(&elements, name, row)?;
                if batches.len() == 1 {
                    return Ok(Dense::new(Shape::new(rows, columns), elements.values().clone()));
                }
                width = Some(columns);
                cells.reserve_exact(rows * columns - cells.len());
                cells.extend_from_slice(elements.values());
                done += batch.num_rows();
                continue;
            }
            self.refuse_nulls(lists, name, row)?;
            let (values, widths) = list_parts(lists)?;
            let widths: Vec<Range<usize>> = widths.collect();
            let first_list = widths.iter().enumerate().find(|(at, _)| lists.is_valid(*at));
            width = width.or(first_list.map(|(_, range)| range.len()));
            for (at, range) in widths.into_iter().enumerate() {
                let expected = width.unwrap_or(0);
                if !lists.is_null(at) && range.len() != expected {
                    let (row, found) = (row + at + 1, range.len());
                    return Err(ErrorKind::RaggedList { row, expected, found }.into());
                }
                if lists.is_null(at) {
                    let fill = if self.nulls == Nulls::Nan { f64::NAN } else { 0.0 };
                    cells.extend(std::iter::repeat_n(T::from_f64(fill), expected));
                    continue;
                }
                let elements = values.slice(range.start, range.len());
                // Of a list that holds NULL the row counts, not the place within it.
                self.refuse_nulls(&elements, name, row + at)
                    .map_err(|_| ErrorKind::NullCell { column: name.clone(), row: row + at + 1 })?;
                cells.extend_from_slice(self.column::<T>(&elements, name, row + at)?.values());
            }
            done += batch.num_rows();
        }
        let shape = Shape::new(rows, width.unwrap_or(0));
        Ok(Dense::new(shape, cells.into()))
    }

    /// One column as cells: cast, with NULLs replaced or refused.
    pub(super) fn column<T: Scalar>(
        &self,
        column: &ArrayRef,
        name: &str,
        first_row: usize,
    ) -> Result<PrimitiveArray<T::Arrow>> {
        self.refuse_nulls(column, name, first_row)?;
        refuse_inexact(column, name, T::ELEMENT)?;
        let target = match T::ELEMENT {
            Element::Float64 => DataType::Float64,
            Element::Float32 => DataType::Float32,
        };
        let values = cast(column, &target)?;
        let values = values.as_primitive::<T::Arrow>();
        if values.null_count() == 0 {
            return Ok(values.clone());
        }
        let fill = T::from_f64(if self.nulls == Nulls::Nan { f64::NAN } else { 0.0 });
        Ok(values.iter().map(|value| Some(value.unwrap_or(fill))).collect())
    }

    /// A NULL, where it is an error.
    pub(super) fn refuse_nulls(
        &self,
        column: &ArrayRef,
        name: &str,
        first_row: usize,
    ) -> Result<()> {
        if self.nulls != Nulls::Error {
            return Ok(());
        }
        match first_null(column) {
            None => Ok(()),
            Some(at) => {
                Err(ErrorKind::NullCell { column: name.to_owned(), row: first_row + at + 1 }.into())
            }
        }
    }

    /// A key of these rows that is NULL, whatever the rule for cells is.
    pub(super) fn refuse_null_keys(&self, batch: &RecordBatch) -> Result<()> {
        let mut keys = batch.columns()[..self.key_count()].iter().zip(&self.names);
        keys.try_for_each(|(keys, name)| refuse_null_keys(keys, name))
    }

    /// The batch without the rows in which a key or a value is NULL.
    pub(super) fn without_nulls(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let batch = filter_nulls(batch)?;
        let Form::Vectors { .. } = self.form else { return Ok(batch) };
        let lists = batch.column(self.row_keys);
        let (values, ranges) = list_parts(lists)?;
        let nulls = values.logical_nulls();
        let is_whole = |range: Range<usize>| {
            nulls
                .as_ref()
                .is_none_or(|nulls| nulls.slice(range.start, range.len()).null_count() == 0)
        };
        let keep = ranges.map(|range| Some(is_whole(range)));
        Ok(filter_record_batch(&batch, &keep.collect::<BooleanArray>())?)
    }

    /// Number of columns that are keys, of rows and of columns.
    pub(super) fn key_count(&self) -> usize {
        match self.form {
            Form::Wide | Form::Vectors { .. } => self.row_keys,
            Form::Entries { column_keys, .. } => self.row_keys + column_keys,
            Form::Graph => 2,
        }
    }

    /// Number of columns that are keys and told apart by codes of texts, where a table has any.
    pub(super) fn coded_keys(&self) -> usize {
        match self.form {
            Form::Entries { .. } => self.key_count(),
            Form::Wide | Form::Vectors { .. } | Form::Graph => 0,
        }
    }

    /// The labels over key columns of this relation, under the relation's names.
    pub(super) fn labels(&self, first: usize, keys: Vec<ArrayRef>) -> Option<Labels> {
        let names = self.names[first..].iter().cloned();
        (!keys.is_empty()).then(|| Labels::new(names.zip(keys).collect()))
    }
}

/// The batch without the rows in which one of its columns is NULL.
fn filter_nulls(batch: &RecordBatch) -> Result<RecordBatch> {
    let nulls = batch.columns().iter().fold(None, |nulls, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
    });
    match nulls {
        None => Ok(batch.clone()),
        Some(nulls) => {
            Ok(filter_record_batch(batch, &BooleanArray::new(nulls.into_inner(), None))?)
        }
    }
}

/// A key that is NULL: it labels nothing.
pub(super) fn refuse_null_keys(keys: &ArrayRef, name: &str) -> Result<()> {
    match first_null(keys) {
        None => Ok(()),
        Some(_) => Err(ErrorKind::NullKey { column: name.to_owned() }.into()),
    }
}

fn first_null(column: &ArrayRef) -> Option<usize> {
    let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    nulls.iter().position(|valid| !valid)
}

/// The elements of a list column, and each row's range of them.
fn list_parts(lists: &ArrayRef) -> Result<(ArrayRef, Box<dyn Iterator<Item = Range<usize>> + '_>)> {
    let ranges = |offsets: Vec<usize>| {
        Box::new((1..offsets.len()).map(move |at| offsets[at - 1]..offsets[at]))
    };
    Ok(match lists.data_type() {
        DataType::FixedSizeList(_, width) => {
            let lists = lists.as_fixed_size_list();
            let width = *width as usize;
            let ranges = (0..lists.len()).map(move |at| at * width..(at + 1) * width);
            (Arc::clone(lists.values()), Box::new(ranges))
        }
        DataType::List(_) => {
            let lists = lists.as_list::<i32>();
            let offsets = lists.value_offsets().iter().map(|&offset| offset as usize).collect();
            (Arc::clone(lists.values()), ranges(offsets))
        }
        DataType::LargeList(_) => {
            let lists = lists.as_list::<i64>();
            let offsets = lists.value_offsets().iter().map(|&offset| offset as usize).collect();
            (Arc::clone(lists.values()), ranges(offsets))
        }
        other => return Err(ErrorKind::Internal(format!("{other} read as vectors")).into()),
    })
}

/// The elements of lists that are equally long and side by side, and how long; `None` of other lists, of no list, and
/// where something is NULL.
fn even_lists(lists: &ArrayRef) -> Result<Option<(ArrayRef, usize)>> {
    let (values, mut ranges) = list_parts(lists)?;
    let Some(first) = ranges.next().filter(|_| lists.null_count() == 0) else { return Ok(None) };
    let mut end = first.end;
    for range in ranges {
        if range.start != end || range.len() != first.len() {
            return Ok(None);
        }
        end = range.end;
    }
    let elements = values.slice(first.start, end - first.start);
    Ok((elements.logical_null_count() == 0).then_some((elements, first.len())))
}

/// An integer that a float would round.
fn refuse_inexact(column: &ArrayRef, name: &str, element: Element) -> Result<()> {
    let found = match column.data_type() {
        DataType::Int64 => column
            .as_primitive::<Int64Type>()
            .iter()
            .flatten()
            .find(|value| value.unsigned_abs() > EXACT_MAX)
            .map(|value| value.to_string()),
        DataType::UInt64 => column
            .as_primitive::<UInt64Type>()
            .iter()
            .flatten()
            .find(|&value| value > EXACT_MAX)
            .map(|value| value.to_string()),
        _ => None,
    };
    match found {
        None => Ok(()),
        Some(value) => {
            Err(Error::from(ErrorKind::Inexact { value, column: name.to_owned(), element }))
        }
    }
}

/// The element of a matrix over columns of these types, or the position of one that has no numbers.
///
/// `FLOAT32` where every column is, else `FLOAT64`.
pub(crate) fn element_of<'a>(
    types: impl IntoIterator<Item = &'a DataType>,
) -> std::result::Result<Element, usize> {
    let mut element = None;
    for (at, data_type) in types.into_iter().enumerate() {
        let this = match data_type {
            DataType::Float32 | DataType::Float16 => Element::Float32,
            DataType::Boolean | DataType::Null => Element::Float64,
            number if number.is_numeric() => Element::Float64,
            _ => return Err(at),
        };
        element = Some(element.map_or(this, |element: Element| element.common(this)));
    }
    Ok(element.unwrap_or(Element::Float64))
}

/// The type of the labels of a graph whose edges have keys of these types: that of the nodes at either end.
pub(crate) fn node_type(from: &DataType, to: &DataType) -> DataType {
    match (from, to) {
        _ if from == to => from.clone(),
        _ if from.is_integer() && to.is_integer() => DataType::Int64,
        _ if from.is_numeric() && to.is_numeric() => DataType::Float64,
        _ => DataType::Utf8,
    }
}

/// The width of a vector column and the type of its elements.
pub(crate) fn vector_type(data_type: &DataType) -> Option<(Option<usize>, &DataType)> {
    match data_type {
        DataType::FixedSizeList(field, width) => Some((Some(*width as usize), field.data_type())),
        DataType::List(field) | DataType::LargeList(field) => Some((None, field.data_type())),
        _ => None,
    }
}

/// The SQL type of cells.
pub(crate) fn column_type(element: Element) -> DataType {
    use arrow::datatypes::ArrowPrimitiveType;
    match element {
        Element::Float64 => Float64Type::DATA_TYPE,
        Element::Float32 => Float32Type::DATA_TYPE,
    }
}
