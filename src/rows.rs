//! Arrow batches as Rust values: tuples by [`FromRow`], a whole result as a [`Matrix`].
//!
//! A Rust type reads the SQL types whose values it can hold, or refuse one by one: an `i64` any
//! integer, an `f64` any number, a `String` any text. Nothing is cut off without a word.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::ScalarValue;

use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{Dense, Element, Labels, Matrix, Scalar, Shape};
use crate::value::Value;

/// A Rust type that a column can be read into.
///
/// ```
/// use relatrix::{FromValue, arrow::{array::ArrayRef, datatypes::DataType}};
/// #[derive(Debug, PartialEq)]
/// struct Celsius(f64);
/// impl FromValue for Celsius {
///     const NAME: &'static str = "Celsius";
///     fn accepts(data_type: &DataType) -> bool { f64::accepts(data_type) }
///     fn prepare(column: &ArrayRef) -> relatrix::Result<ArrayRef> { f64::prepare(column) }
///     fn get(column: &ArrayRef, row: usize) -> Option<Self> { f64::get(column, row).map(Self) }
/// }
/// let connection = relatrix::Database::memory()?.connect();
/// assert_eq!(connection.query("SELECT 21.5")?.rows::<(Celsius,)>()?, [(Celsius(21.5),)]);
/// # Ok::<(), relatrix::Error>(())
/// ```
pub trait FromValue: Sized {
    /// The type's name, for messages.
    const NAME: &'static str;

    /// Whether columns of this type can be read.
    ///
    /// ```
    /// use relatrix::{FromValue, arrow::datatypes::DataType};
    /// assert!(f64::accepts(&DataType::Int32) && !i32::accepts(&DataType::Float64));
    /// ```
    fn accepts(data_type: &DataType) -> bool;

    /// The column in the form that [`FromValue::get`] reads.
    ///
    /// ```
    /// use relatrix::FromValue;
    /// use relatrix::arrow::array::{ArrayRef, Int32Array};
    /// let column: ArrayRef = std::sync::Arc::new(Int32Array::from(vec![1, 300]));
    /// assert_eq!(f64::get(&f64::prepare(&column)?, 1), Some(300.0));
    /// assert!(u8::prepare(&column).is_err());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where a value does not fit.
    fn prepare(column: &ArrayRef) -> Result<ArrayRef>;

    /// The value in this row of a prepared column; `None` where it is a NULL that does not fit.
    ///
    /// ```
    /// use relatrix::FromValue;
    /// use relatrix::arrow::array::{ArrayRef, Float64Array};
    /// let column: ArrayRef = std::sync::Arc::new(Float64Array::from(vec![Some(0.5), None]));
    /// let column = f64::prepare(&column)?;
    /// assert_eq!((f64::get(&column, 0), f64::get(&column, 1)), (Some(0.5), None));
    /// assert_eq!(Option::<f64>::get(&column, 1), Some(None));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    fn get(column: &ArrayRef, row: usize) -> Option<Self>;
}

fn cast(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(column, to, &options)?)
}

fn primitive<P: ArrowPrimitiveType>(column: &ArrayRef, row: usize) -> Option<P::Native> {
    column.is_valid(row).then(|| column.as_primitive::<P>().value(row))
}

/// Rust types by the Arrow type they are read from, and the types that casts to it without rounding.
macro_rules! values {
    ($($rust:ty, $to:expr, $accepts:expr, $get:expr;)*) => {$(
        impl FromValue for $rust {
            const NAME: &'static str = stringify!($rust);

            fn accepts(data_type: &DataType) -> bool {
                let accepts: fn(&DataType) -> bool = $accepts;
                accepts(data_type)
            }

            fn prepare(column: &ArrayRef) -> Result<ArrayRef> {
                cast(column, &$to)
            }

            fn get(column: &ArrayRef, row: usize) -> Option<Self> {
                let get: fn(&ArrayRef, usize) -> Option<Self> = $get;
                get(column, row)
            }
        }
    )*};
}

values! {
    i8, DataType::Int8, DataType::is_integer, primitive::<Int8Type>;
    i16, DataType::Int16, DataType::is_integer, primitive::<Int16Type>;
    i32, DataType::Int32, DataType::is_integer, primitive::<Int32Type>;
    i64, DataType::Int64, DataType::is_integer, primitive::<Int64Type>;
    u8, DataType::UInt8, DataType::is_integer, primitive::<UInt8Type>;
    u16, DataType::UInt16, DataType::is_integer, primitive::<UInt16Type>;
    u32, DataType::UInt32, DataType::is_integer, primitive::<UInt32Type>;
    u64, DataType::UInt64, DataType::is_integer, primitive::<UInt64Type>;
    f32, DataType::Float32, |from| matches!(from, DataType::Float16 | DataType::Float32),
        primitive::<Float32Type>;
    f64, DataType::Float64, DataType::is_numeric, primitive::<Float64Type>;
    bool, DataType::Boolean, |from| matches!(from, DataType::Boolean),
        |column, row| column.is_valid(row).then(|| column.as_boolean().value(row));
    String, DataType::LargeUtf8, |from| from.is_string() || is_text_dictionary(from),
        |column, row| column.is_valid(row).then(|| column.as_string::<i64>().value(row).to_owned());
    Vec<u8>, DataType::LargeBinary, |from| from.is_binary(),
        |column, row| column.is_valid(row).then(|| column.as_binary::<i64>().value(row).to_vec());
}

fn is_text_dictionary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(_, values) if values.is_string())
}

impl FromValue for Value {
    const NAME: &'static str = "Value";

    fn accepts(_: &DataType) -> bool {
        true
    }

    fn prepare(column: &ArrayRef) -> Result<ArrayRef> {
        Ok(Arc::clone(column))
    }

    fn get(column: &ArrayRef, row: usize) -> Option<Self> {
        ScalarValue::try_from_array(column, row).ok().map(Value::from)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const NAME: &'static str = T::NAME;

    fn accepts(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Null) || T::accepts(data_type)
    }

    fn prepare(column: &ArrayRef) -> Result<ArrayRef> {
        if column.data_type().is_null() { Ok(Arc::clone(column)) } else { T::prepare(column) }
    }

    fn get(column: &ArrayRef, row: usize) -> Option<Self> {
        let null = column.data_type().is_null() || column.is_null(row);
        if null { Some(None) } else { T::get(column, row).map(Some) }
    }
}

/// A Rust type that a row can be read into: tuples of [`FromValue`] types, and `Vec<Value>`.
///
/// ```
/// use relatrix::{FromRow, Result, arrow::{array::RecordBatch, datatypes::Schema}};
/// struct City { name: String, people: i64 }
/// impl FromRow for City {
///     fn check(schema: &Schema) -> Result<()> { <(String, i64)>::check(schema) }
///     fn read(batch: &RecordBatch, rows: &mut Vec<Self>) -> Result<()> {
///         let mut tuples = Vec::new();
///         <(String, i64)>::read(batch, &mut tuples)?;
///         rows.extend(tuples.into_iter().map(|(name, people)| Self { name, people }));
///         Ok(())
///     }
/// }
/// let connection = relatrix::Database::memory()?.connect();
/// let cities = connection.query("SELECT 'Lhasa', 464736")?.rows::<City>()?;
/// assert_eq!((cities[0].name.as_str(), cities[0].people), ("Lhasa", 464736));
/// # Ok::<(), relatrix::Error>(())
/// ```
pub trait FromRow: Sized {
    /// Checks the number and the types of the columns.
    ///
    /// ```
    /// use relatrix::FromRow;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let schema = connection.query("SELECT 1 AS id, 'one' AS name")?.schema();
    /// assert!(<(i64, String)>::check(&schema).is_ok());
    /// assert!(<(i64,)>::check(&schema).is_err());
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// For the first column that does not fit.
    fn check(schema: &Schema) -> Result<()>;

    /// Appends the rows of a batch.
    ///
    /// ```
    /// use relatrix::FromRow;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let mut rows: Vec<(i64, String)> = Vec::new();
    /// for batch in connection.query("SELECT value, 'x' || value FROM range(3)")? {
    ///     FromRow::read(&batch?, &mut rows)?;
    /// }
    /// assert_eq!(rows[2], (2, "x2".to_owned()));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// For a NULL in a type without it, or a value that does not fit.
    fn read(batch: &RecordBatch, rows: &mut Vec<Self>) -> Result<()>;
}

impl FromRow for Vec<Value> {
    fn check(_: &Schema) -> Result<()> {
        Ok(())
    }

    fn read(batch: &RecordBatch, rows: &mut Vec<Self>) -> Result<()> {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| Ok(ScalarValue::try_from_array(column, row)?.into());
            rows.push(batch.columns().iter().map(value).collect::<Result<_>>()?);
        }
        Ok(())
    }
}

fn check_column<T: FromValue>(schema: &Schema, index: usize) -> Result<()> {
    let field = schema.field(index);
    if T::accepts(field.data_type()) {
        return Ok(());
    }
    let message = format!("{} cannot be read as {}", field.data_type(), T::NAME);
    Err(Error::argument(format!("column '{}'", field.name()), message))
}

fn check_width(schema: &Schema, width: usize) -> Result<()> {
    if schema.fields().len() == width {
        return Ok(());
    }
    let message = format!("the result has {} columns, not {width}", schema.fields().len());
    Err(Error::argument("rows", message))
}

fn get<T: FromValue>(
    batch: &RecordBatch,
    index: usize,
    column: &ArrayRef,
    row: usize,
) -> Result<T> {
    T::get(column, row).ok_or_else(|| {
        let column = format!("column '{}'", batch.schema().field(index).name());
        Error::argument(column, format!("NULL cannot be read as {0}, but as Option<{0}>", T::NAME))
    })
}

macro_rules! tuples {
    ($(($($type:ident $column:ident $index:literal),+) of $width:literal;)*) => {$(
        impl<$($type: FromValue),+> FromRow for ($($type,)+) {
            fn check(schema: &Schema) -> Result<()> {
                check_width(schema, $width)?;
                $(check_column::<$type>(schema, $index)?;)+
                Ok(())
            }

            fn read(batch: &RecordBatch, rows: &mut Vec<Self>) -> Result<()> {
                $(let $column = $type::prepare(batch.column($index))?;)+
                rows.reserve(batch.num_rows());
                for row in 0..batch.num_rows() {
                    rows.push(($(get::<$type>(batch, $index, &$column, row)?,)+));
                }
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A a 0) of 1;
    (A a 0, B b 1) of 2;
    (A a 0, B b 1, C c 2) of 3;
    (A a 0, B b 1, C c 2, D d 3) of 4;
    (A a 0, B b 1, C c 2, D d 3, E e 4) of 5;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5) of 6;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6) of 7;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7) of 8;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8) of 9;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9) of 10;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10) of 11;
    (A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11) of 12;
}

/// A result as a dense matrix: one column of lists is its rows, else every column is a column of it.
pub(crate) fn matrix(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Matrix> {
    let all = match batches {
        [one] => one.clone(),
        many => concat_batches(schema, many)?,
    };
    if let [one] = all.columns()
        && let Some((values, width)) = list_cells(one)?
        && f64::accepts(values.data_type())
    {
        let shape = Shape::new(all.num_rows(), width);
        check_nulls(schema.field(0).name(), one)?;
        check_nulls(schema.field(0).name(), &values)?;
        check_exact(schema.field(0).name(), &values)?;
        return match values.data_type() {
            DataType::Float32 => cells::<f32>(shape, &values),
            _ => cells::<f64>(shape, &cast(&values, &DataType::Float64)?),
        };
    }
    for (index, (field, column)) in schema.fields().iter().zip(all.columns()).enumerate() {
        check_column::<f64>(schema, index)?;
        check_nulls(field.name(), column)?;
        check_exact(field.name(), column)?;
    }
    let single = |column: &ArrayRef| column.data_type() == &DataType::Float32;
    let matrix = if !all.columns().is_empty() && all.columns().iter().all(single) {
        interleaved::<f32>(&all)
    } else {
        interleaved::<f64>(&all)
    }?;
    let names = schema.fields().iter().map(|field| field.name());
    Ok(matrix.with_labels(None, Some(Labels::names(names))))
}

/// The elements of a column of equally long lists, in row order, and that length.
fn list_cells(column: &ArrayRef) -> Result<Option<(ArrayRef, usize)>> {
    match column.data_type() {
        DataType::FixedSizeList(_, width) => {
            Ok(Some((Arc::clone(column.as_fixed_size_list().values()), *width as usize)))
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let mut lengths = lists.offsets().lengths().enumerate();
            let expected = lengths.next().map_or(0, |(_, length)| length);
            if let Some((row, found)) = lengths.find(|&(_, length)| length != expected) {
                return Err(ErrorKind::RaggedList { row: row + 1, expected, found }.into());
            }
            let first = lists.offsets()[0] as usize;
            Ok(Some((lists.values().slice(first, lists.len() * expected), expected)))
        }
        _ => Ok(None),
    }
}

fn check_nulls(name: &str, column: &ArrayRef) -> Result<()> {
    let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(());
    };
    let row = nulls.iter().position(|valid| !valid).map_or(0, |row| row + 1);
    Err(ErrorKind::NullCell { column: name.to_owned(), row }.into())
}

/// Whole numbers beyond 2⁵³ have no `f64` of their own.
fn check_exact(name: &str, column: &ArrayRef) -> Result<()> {
    const EXACT: u64 = 1 << 53;
    let odd = match column.data_type() {
        DataType::Int64 => {
            let mut values = column.as_primitive::<Int64Type>().values().iter();
            values.find(|value| value.unsigned_abs() > EXACT).map(ToString::to_string)
        }
        DataType::UInt64 => {
            let mut values = column.as_primitive::<UInt64Type>().values().iter();
            values.find(|&&value| value > EXACT).map(ToString::to_string)
        }
        _ => None,
    };
    match odd {
        Some(value) => {
            let (column, element) = (name.to_owned(), Element::Float64);
            Err(ErrorKind::Inexact { value, column, element }.into())
        }
        None => Ok(()),
    }
}

/// Cells that lie in row order already.
fn cells<T: Scalar>(shape: Shape, values: &ArrayRef) -> Result<Matrix> {
    Ok(Matrix::new(Dense::new(shape, values.as_primitive::<T::Arrow>().values().clone())))
}

/// Columns written side by side into rows.
fn interleaved<T: Scalar>(batch: &RecordBatch) -> Result<Matrix> {
    let shape = Shape::new(batch.num_rows(), batch.num_columns());
    let to = match T::ELEMENT {
        Element::Float32 => DataType::Float32,
        Element::Float64 => DataType::Float64,
    };
    let mut cells = vec![T::ZERO; shape.cells()];
    for (index, column) in batch.columns().iter().enumerate() {
        let values = cast(column, &to)?;
        let values = values.as_primitive::<T::Arrow>().values();
        for (cell, &value) in cells.iter_mut().skip(index).step_by(shape.columns).zip(values) {
            *cell = value;
        }
    }
    Ok(Matrix::new(Dense::new(shape, cells.into())))
}
