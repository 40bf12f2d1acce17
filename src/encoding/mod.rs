//! Columns in fewer bytes than their types have.
//!
//! Enters: a column. Leaves: the same values as narrower integers or as codes, and from those the column again. Not here: who
//! keeps columns so (`storage`), and what is done with codes before they are texts again (`exec`).
//!
//! ```text
//! whole numbers in any unit    as they are, in the fewest of 8, 16, 32 and 64 bits that hold all of them
//! texts                        codes of 8 bits for those that differ, where they are no more than 256; codes of 32 bits of a
//!                              dictionary that the batches of a table share, in the order of its texts; else packed by
//!                              symbols where that halves them (`symbols`), and apart from others where it does not
//! anything else                itself
//! ```
//!
//! A number is not moved: what is asked of it can be asked of the narrower one. So columns are read; who keeps them has them in fewer
//! bytes still (`at_rest`), of which any rows are made so again.

mod at_rest;
mod bits;
mod symbols;
mod waking;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringArray, StringViewArray, UInt8Array, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::{max, min, take};
use arrow::datatypes::{
    ArrowNativeType, DataType, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
    UInt8Type, UInt32Type,
};
use arrow::error::ArrowError;
use rustc_hash::FxHashMap;

pub(crate) use self::at_rest::{Texts, as_it_is, at_rest, awake, is_held, texts};
pub(crate) use self::symbols::PackedBytes;
pub(crate) use self::waking::Waking;

/// Runs code for the type of a column of whole numbers in some unit; else what is written last.
macro_rules! for_whole_numbers {
    ($data_type:expr, $call:ident($($argument:expr),*), $other:ident => $else:expr) => {{
        use arrow::datatypes::{
            DataType, Date32Type, Date64Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
            TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
            UInt8Type, UInt16Type, UInt32Type, UInt64Type,
        };
        match $data_type {
            DataType::Int8 => $call::<Int8Type>($($argument),*),
            DataType::Int16 => $call::<Int16Type>($($argument),*),
            DataType::Int32 => $call::<Int32Type>($($argument),*),
            DataType::Int64 => $call::<Int64Type>($($argument),*),
            DataType::UInt8 => $call::<UInt8Type>($($argument),*),
            DataType::UInt16 => $call::<UInt16Type>($($argument),*),
            DataType::UInt32 => $call::<UInt32Type>($($argument),*),
            DataType::UInt64 => $call::<UInt64Type>($($argument),*),
            DataType::Date32 => $call::<Date32Type>($($argument),*),
            DataType::Date64 => $call::<Date64Type>($($argument),*),
            DataType::Timestamp(TimeUnit::Second, _) => $call::<TimestampSecondType>($($argument),*),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                $call::<TimestampMillisecondType>($($argument),*)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                $call::<TimestampMicrosecondType>($($argument),*)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                $call::<TimestampNanosecondType>($($argument),*)
            }
            DataType::Decimal128(..) => $call::<Decimal128Type>($($argument),*),
            $other => $else,
        }
    }};
}

pub(crate) use for_whole_numbers;

/// A column in fewer bytes; itself where there are none.
pub(crate) fn encoded(column: &ArrayRef) -> ArrayRef {
    let encoded = match column.data_type() {
        DataType::Utf8View => {
            let texts = column.as_string_view();
            let make = |values| Arc::new(StringViewArray::from_iter_values(values)) as ArrayRef;
            codes(texts.iter(), texts.nulls(), make)
                .or_else(|| symbols::packed(texts))
                .or_else(|| apart(texts))
        }
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            let make = |values| Arc::new(StringArray::from_iter_values(values)) as ArrayRef;
            codes(texts.iter(), texts.nulls(), make)
        }
        whole => for_whole_numbers!(whole, narrowed(column.as_ref()), _other => None),
    };
    encoded.unwrap_or_else(|| Arc::clone(column))
}

/// The column of this type that was encoded so; itself where it has this type.
///
/// # Errors
/// Where no column of this type is encoded so.
pub(crate) fn decoded(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    if let Some(codes) = column.as_dictionary_opt::<UInt8Type>()
        && codes.values().data_type() == data_type
    {
        return take(codes.values(), codes.keys(), None);
    }
    if let Some(codes) = shared_codes(column)
        && codes.values().data_type() == data_type
    {
        return take(codes.values(), codes.keys(), None);
    }
    if *data_type == DataType::Utf8View
        && let Some(texts) = symbols::unpacked(column)?
    {
        return Ok(texts);
    }
    let cells = match column.data_type() {
        DataType::Int8 => widened::<Int8Type>(column, data_type),
        DataType::Int16 => widened::<Int16Type>(column, data_type),
        DataType::Int32 => widened::<Int32Type>(column, data_type),
        DataType::Int64 => widened::<Int64Type>(column, data_type),
        _ => None,
    };
    let cells = cells.ok_or_else(|| {
        let encoded = column.data_type();
        ArrowError::CastError(format!("no column of {data_type} is encoded as {encoded}"))
    })?;
    let data = ArrayData::builder(data_type.clone()).len(column.len()).add_buffer(cells);
    Ok(make_array(data.nulls(column.nulls().cloned()).build()?))
}

/// A column as codes of a dictionary whose texts are in their order, each once; nothing where it is none. A column whose own type
/// is a dictionary may look so, which says nothing about its texts.
pub(crate) fn shared_codes(column: &ArrayRef) -> Option<&DictionaryArray<UInt32Type>> {
    column.as_dictionary_opt::<UInt32Type>()
}

/// A column as it is, but for texts that are packed.
///
/// # Errors
/// None, for what was packed is unpacked.
pub(crate) fn unpacked(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(symbols::unpacked(column)?.unwrap_or_else(|| Arc::clone(column)))
}

/// Bytes of texts that are packed; nothing where a column has none.
pub(crate) fn packed_bytes(column: &ArrayRef) -> Option<PackedBytes> {
    symbols::packed_bytes(column)
}

/// Whether a column has texts, and no codes for those that differ.
pub(crate) fn has_plain_texts(column: &ArrayRef) -> bool {
    column.data_type().is_string() || symbols::is_packed(column)
}

/// Bytes of a column, without those of a dictionary that others share.
pub(crate) fn own_bytes(column: &ArrayRef) -> usize {
    match shared_codes(column) {
        Some(codes) => codes.keys().get_array_memory_size(),
        None => column.get_array_memory_size(),
    }
}

/// All columns of a batch as this schema has them.
///
/// # Errors
/// As of one.
pub(crate) fn decoded_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| decoded(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = columns.collect::<Result<_, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Columns under the names that a schema has for them, whatever their types.
///
/// # Errors
/// Where they are not as many, or not of so many rows.
pub(crate) fn as_they_are(
    schema: &Schema,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let fields = schema.fields().iter().zip(&columns).map(|(field, column)| {
        match field.data_type() == column.data_type() {
            true => Arc::clone(field),
            false => Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone())),
        }
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// Bytes that a column takes once it is decoded.
pub(crate) fn decoded_bytes(column: &ArrayRef, data_type: &DataType) -> usize {
    if column.data_type() == data_type {
        return column.get_array_memory_size();
    }
    let views = column.len() * size_of::<u128>();
    match (data_type.primitive_width(), column.as_dictionary_opt::<UInt8Type>()) {
        (Some(width), _) => column.len() * width,
        (None, Some(codes)) => views + codes.values().get_array_memory_size(),
        (None, None) if shared_codes(column).is_some() => views,
        (None, None) if symbols::is_packed(column) => views + symbols::unpacked_bytes(column),
        (None, None) => column.get_array_memory_size(),
    }
}

/// Numbers in the fewest bits that hold all of them; nothing where those are theirs.
fn narrowed<P: ArrowPrimitiveType<Native: Into<i128>>>(column: &dyn Array) -> Option<ArrayRef> {
    let column = column.as_primitive_opt::<P>()?;
    let least: i128 = min(column).unwrap_or_default().into();
    let greatest: i128 = max(column).unwrap_or_default().into();
    let own_bits = 8 * size_of::<P::Native>();
    let fits =
        |bits: usize| bits < own_bits && least >= -1 << (bits - 1) && greatest < 1 << (bits - 1);
    if fits(8) {
        Some(Arc::new(cells::<P, Int8Type>(column, |cell| cell as i8)))
    } else if fits(16) {
        Some(Arc::new(cells::<P, Int16Type>(column, |cell| cell as i16)))
    } else if fits(32) {
        Some(Arc::new(cells::<P, Int32Type>(column, |cell| cell as i32)))
    } else if fits(64) {
        Some(Arc::new(cells::<P, Int64Type>(column, |cell| cell as i64)))
    } else {
        None
    }
}

fn cells<P: ArrowPrimitiveType<Native: Into<i128>>, T: ArrowPrimitiveType>(
    column: &PrimitiveArray<P>,
    of: impl Fn(i128) -> T::Native,
) -> PrimitiveArray<T> {
    let cells: Vec<T::Native> = column.values().iter().map(|&cell| of(cell.into())).collect();
    PrimitiveArray::new(ScalarBuffer::from(cells), column.nulls().cloned())
}

/// The cells of a wider type; nothing where it is none.
fn widened<P: ArrowPrimitiveType<Native: Into<i64>>>(
    column: &dyn Array,
    data_type: &DataType,
) -> Option<Buffer> {
    fn of<P: ArrowPrimitiveType<Native: Into<i64>>, T: ArrowNativeType>(
        column: &dyn Array,
        of: impl Fn(i64) -> T,
    ) -> Buffer {
        let cells = column.as_primitive::<P>().values();
        let wider = pulp::Arch::new().dispatch(
            #[inline(always)]
            || cells.iter().map(|&cell| of(cell.into())).collect::<Vec<_>>(),
        );
        Buffer::from_vec(wider)
    }
    let width = data_type.primitive_width().filter(|&width| width > size_of::<P::Native>())?;
    match width {
        2 => Some(of::<P, _>(column, |cell| cell as i16)),
        4 => Some(of::<P, _>(column, |cell| cell as i32)),
        8 => Some(of::<P, _>(column, |cell| cell)),
        16 => Some(of::<P, _>(column, i128::from)),
        _ => None,
    }
}

/// Codes of texts, whose values `make` makes an array of; nothing where too many differ.
fn codes<'a>(
    texts: impl ExactSizeIterator<Item = Option<&'a str>>,
    nulls: Option<&NullBuffer>,
    make: impl Fn(Vec<&'a str>) -> ArrayRef,
) -> Option<ArrayRef> {
    let (mut known, mut values) = (FxHashMap::default(), Vec::new());
    let mut keys = Vec::with_capacity(texts.len());
    for text in texts {
        // A NULL has the code of whatever text comes first.
        let Some(text) = text else {
            keys.push(0);
            continue;
        };
        let code = *known.entry(text).or_insert_with(|| {
            values.push(text);
            values.len() - 1
        });
        keys.push(u8::try_from(code).ok()?);
    }
    if values.is_empty() {
        values.push("");
    }
    let keys = UInt8Array::new(keys.into(), nulls.cloned());
    DictionaryArray::try_new(keys, make(values)).ok().map(|codes| Arc::new(codes) as _)
}

/// Texts without those of other rows that lie in the same buffers; nothing where there are few.
fn apart(column: &StringViewArray) -> Option<ArrayRef> {
    let all_bytes: usize = column.data_buffers().iter().map(Buffer::len).sum();
    let own_bytes = column.total_buffer_bytes_used();
    (all_bytes - all_bytes / 4 > own_bytes).then(|| Arc::new(column.gc()) as _)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int64Array, TimestampMicrosecondArray,
        UInt64Array,
    };
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn back(column: &ArrayRef) -> ArrayRef {
        let encoded = encoded(column);
        assert_eq!(encoded.nulls(), column.nulls());
        decoded(&encoded, column.data_type()).unwrap()
    }

    #[test]
    fn what_is_encoded_is_decoded_as_it_was() {
        let random = &mut SmallRng::seed_from_u64(5);
        for round in 0..400 {
            let bits = random.random_range(1..64);
            let rows = random.random_range(0..300);
            let nulls = if round % 3 == 0 { 0.0 } else { 0.2 };
            let mut numbers = || -> Vec<Option<i64>> {
                let number = |_| {
                    let edge = (1_i64 << (bits - 1)).wrapping_sub(random.random_range(0..2));
                    let other = random.random_range(i64::MIN..=i64::MAX) >> (64 - bits);
                    let number = if random.random_bool(0.1) { edge } else { other };
                    (!random.random_bool(nulls)).then_some(number)
                };
                (0..rows).map(number).collect()
            };
            let [a, b, c, d] = [(); 4].map(|()| numbers());
            let unsigned = |of: Option<i64>| of.map(i64::cast_unsigned);
            let few = |of: Option<i64>| of.map(|of| format!("a text that is long {}", of % 200));
            let decimals: Decimal128Array =
                a.iter().map(|of| of.map(|of| i128::from(of) * i128::from(bits))).collect();
            let columns: [ArrayRef; 8] = [
                Arc::new(decimals.with_precision_and_scale(38, 4).unwrap()),
                Arc::new(Int64Array::from(b.clone())),
                Arc::new(b.into_iter().map(unsigned).collect::<UInt64Array>()),
                Arc::new(c.iter().map(|of| of.map(|of| of as i32)).collect::<Date32Array>()),
                Arc::new(TimestampMicrosecondArray::from(c.clone()).with_timezone("+02:00")),
                Arc::new(d.iter().map(|of| few(*of)).collect::<StringArray>()),
                Arc::new(d.into_iter().map(few).collect::<StringViewArray>()),
                Arc::new(c.into_iter().map(|of| of.map(|of| of as f64)).collect::<Float64Array>()),
            ];
            for column in &columns {
                assert_eq!(&back(column), column);
                let part = column.slice(rows / 3, rows - rows / 3);
                assert_eq!(&back(&part), &part);
            }
        }
    }

    #[test]
    fn the_fewest_bits_are_found() {
        let bits = |of: &[Option<i64>]| {
            let column: ArrayRef = Arc::new(Int64Array::from(of.to_vec()));
            let encoded = encoded(&column);
            8 * encoded.data_type().primitive_width().unwrap()
        };
        assert_eq!(bits(&[Some(127), Some(-128), None]), 8);
        assert_eq!(bits(&[Some(128)]), 16);
        assert_eq!(bits(&[Some(-129)]), 16);
        assert_eq!(bits(&[Some(1 << 15), None]), 32);
        assert_eq!(bits(&[Some(1 << 31)]), 64);
        assert_eq!(bits(&[None]), 8);
        assert_eq!(bits(&[]), 8);
        // What a NULL hides does not count.
        let hidden = Int64Array::new(vec![1_i64 << 40, 3].into(), Some(vec![false, true].into()));
        assert_eq!(*encoded(&(Arc::new(hidden) as _)).data_type(), DataType::Int8);
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        assert_eq!(*encoded(&large).data_type(), DataType::UInt64);
    }

    #[test]
    fn texts_are_codes_where_few_differ() {
        let column = |differ: usize| -> ArrayRef {
            let texts = (0..1000).map(|row| Some(format!("text {}", row % differ)));
            Arc::new(texts.collect::<StringViewArray>())
        };
        assert!(encoded(&column(256)).as_dictionary_opt::<UInt8Type>().is_some());
        let many = column(257);
        assert!(Arc::ptr_eq(&encoded(&many), &many));
        // Some of them are kept without the others.
        let some = encoded(&column(900).slice(3, 300));
        assert_eq!(some.as_string_view().data_buffers().len(), 0);
        // Texts without a common part are not packed.
        let random = &mut SmallRng::seed_from_u64(6);
        let long = |_| Some((0..40).map(|_| random.random_range('a'..'~')).collect::<String>());
        let all: ArrayRef = Arc::new((0..1000).map(long).collect::<StringViewArray>());
        let some = encoded(&all.slice(3, 300));
        assert_eq!(&some, &all.slice(3, 300));
        assert!(some.get_buffer_memory_size() < all.get_buffer_memory_size() / 3);
        let few: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]));
        assert!(encoded(&few).as_dictionary_opt::<UInt8Type>().is_some());
        let nulls: ArrayRef = Arc::new(StringViewArray::from(vec![None::<&str>; 3]));
        assert_eq!(back(&nulls).null_count(), 3);
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let narrow: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        assert!(decoded(&narrow, &DataType::Int32).is_err());
        assert!(decoded(&narrow, &DataType::Utf8View).is_err());
        let codes = encoded(&(Arc::new(StringViewArray::from(vec!["a", "a"])) as _));
        assert_ne!(*codes.data_type(), DataType::Utf8View);
        assert!(decoded(&codes, &DataType::Int32).is_err());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(decoded(&texts, &DataType::Int32).is_err());
    }
}
