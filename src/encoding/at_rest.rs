//! Columns of which nobody reads a row: one cell each, of the fewest bytes.
//!
//! Enters: a column in the form in which it is read ([`super::encoded`]). Leaves: one cell, and from that any rows of the column in
//! that form again.
//!
//! ```text
//! whole numbers                     bytes, with the bits that they need (`bits`)
//! codes                             as such bytes, and a list of the texts
//! texts packed by symbols           their codes, lengths and symbols (`symbols`)
//! anything else                     a list of its values
//! ```

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, LargeListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{ArrowDictionaryKeyType, DataType, Field, Fields, UInt8Type, UInt32Type};
use arrow::error::ArrowError;

use super::{bits, symbols};

/// Fields of codes at rest.
const CODES: usize = 2;

/// The name of the first of them, where others have the same texts.
const SHARED: &str = "shared codes";

/// What the texts of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    /// There are none.
    None,
    /// Themselves, packed or not.
    Plain,
    /// Codes that the batch has for itself.
    Codes,
    /// Codes of a dictionary that others share.
    SharedCodes,
}

impl Texts {
    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Dictionary(codes, _) if **codes == DataType::UInt32 => Self::SharedCodes,
            DataType::Dictionary(..) => Self::Codes,
            other if other.is_string() || symbols::are_packed_as(other) => Self::Plain,
            _ => Self::None,
        }
    }
}

/// A column as one cell. `own` is the type that it has when it is decoded.
pub(crate) fn at_rest(column: &ArrayRef, own: &DataType) -> ArrayRef {
    let packed = match Texts::of(column.data_type()) {
        Texts::None => bits::packed(column, own),
        Texts::Plain => symbols::at_rest(column),
        Texts::Codes => codes_at_rest::<UInt8Type>(column, "codes"),
        Texts::SharedCodes => codes_at_rest::<UInt32Type>(column, SHARED),
    };
    packed.unwrap_or_else(|| as_it_is(column))
}

/// A column as the only list of an array, which has it as it is.
pub(crate) fn as_it_is(column: &ArrayRef) -> ArrayRef {
    let field = Field::new_list_field(column.data_type().clone(), true);
    let offsets = OffsetBuffer::from_lengths([column.len()]);
    Arc::new(LargeListArray::new(Arc::new(field), offsets, Arc::clone(column), None))
}

/// Some rows of a column that is at rest, in the form in which it is read.
///
/// # Errors
/// Where this is no such column, or has fewer rows.
pub(crate) fn awake(
    at_rest: &ArrayRef,
    own: &DataType,
    rows: Range<usize>,
) -> Result<ArrayRef, ArrowError> {
    if let Some(list) = at_rest.as_list_opt::<i64>() {
        let values = list.values();
        return match rows.len() == values.len() {
            true => Ok(Arc::clone(values)),
            false => Ok(values.slice(rows.start, rows.len())),
        };
    }
    if let Some(packed) = at_rest.as_binary_opt::<i64>() {
        return bits::unpacked(packed, own, rows);
    }
    match at_rest.as_struct_opt() {
        Some(codes) if codes.num_columns() == CODES => match codes.fields()[0].name().as_str() {
            SHARED => codes_awake::<UInt32Type>(codes, rows),
            _ => codes_awake::<UInt8Type>(codes, rows),
        },
        Some(packed) => symbols::awake(packed, rows),
        None => {
            let message = format!("no column is at rest as {}", at_rest.data_type());
            Err(ArrowError::InvalidArgumentError(message))
        }
    }
}

/// Rows of a column that is at rest by their places; nothing where it wakes as a whole alone.
///
/// # Errors
/// Where this is no such column, or has fewer rows.
pub(super) fn taken(
    at_rest: &ArrayRef,
    own: &DataType,
    places: impl Iterator<Item = usize> + Clone,
) -> Result<Option<ArrayRef>, ArrowError> {
    if let Some(packed) = at_rest.as_binary_opt::<i64>() {
        return bits::taken(packed, own, places).map(Some);
    }
    match texts(at_rest) {
        Texts::Codes => codes_taken::<UInt8Type>(at_rest, places),
        Texts::SharedCodes => codes_taken::<UInt32Type>(at_rest, places),
        Texts::None | Texts::Plain => Ok(None),
    }
}

/// What the texts of a column at rest are.
pub(crate) fn texts(at_rest: &ArrayRef) -> Texts {
    match at_rest.data_type() {
        DataType::LargeList(values) => Texts::of(values.data_type()),
        DataType::Struct(fields) if fields.len() == CODES => match fields[0].name().as_str() {
            SHARED => Texts::SharedCodes,
            _ => Texts::Codes,
        },
        DataType::Struct(_) => Texts::Plain,
        _ => Texts::None,
    }
}

/// Whether somebody else has a column at rest, or what it has as it is.
pub(crate) fn is_held(at_rest: &ArrayRef) -> bool {
    let values = at_rest.as_list_opt::<i64>().map(LargeListArray::values);
    Arc::strong_count(at_rest) > 1 || values.is_some_and(|values| Arc::strong_count(values) > 1)
}

/// Codes and their texts; nothing where codes need all bits of their type.
fn codes_at_rest<K: ArrowDictionaryKeyType>(column: &ArrayRef, name: &str) -> Option<ArrayRef> {
    let codes = column.as_dictionary_opt::<K>()?;
    let keys: ArrayRef = Arc::new(codes.keys().clone());
    let columns = [bits::packed(&keys, &K::DATA_TYPE)?, as_it_is(codes.values())];
    let types = columns.each_ref().map(|column| column.data_type().clone());
    let fields = [name, "texts"].into_iter().zip(types);
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
    let columns = columns.to_vec();
    Some(Arc::new(StructArray::try_new(Fields::from_iter(fields), columns, None).ok()?))
}

fn codes_awake<K: ArrowDictionaryKeyType>(
    at_rest: &StructArray,
    rows: Range<usize>,
) -> Result<ArrayRef, ArrowError> {
    let codes = bits::unpacked(at_rest.column(0).as_binary::<i64>(), &K::DATA_TYPE, rows)?;
    coded::<K>(&codes, at_rest)
}

fn codes_taken<K: ArrowDictionaryKeyType>(
    at_rest: &ArrayRef,
    places: impl Iterator<Item = usize> + Clone,
) -> Result<Option<ArrayRef>, ArrowError> {
    let Some(at_rest) = at_rest.as_struct_opt() else { return Ok(None) };
    let codes = bits::taken(at_rest.column(0).as_binary::<i64>(), &K::DATA_TYPE, places)?;
    coded::<K>(&codes, at_rest).map(Some)
}

/// These codes of the texts of a column at rest.
fn coded<K: ArrowDictionaryKeyType>(
    codes: &ArrayRef,
    at_rest: &StructArray,
) -> Result<ArrayRef, ArrowError> {
    let texts = Arc::clone(at_rest.column(1).as_list::<i64>().values());
    let codes = codes.as_primitive::<K>();
    Ok(Arc::new(DictionaryArray::try_new(codes.clone(), texts)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray,
        StringViewArray, UInt64Array,
    };
    use arrow::compute::take;
    use arrow::datatypes::Int64Type;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::{decoded, encoded};
    use super::*;

    #[test]
    fn any_rows_of_a_column_are_what_they_were() {
        let random = &mut SmallRng::seed_from_u64(55);
        for round in 0..200 {
            let rows = random.random_range(0..4000);
            let nulls = if round % 3 == 0 { 0.0 } else { 0.2 };
            let differ = [1, 3, 200, 1000][round % 4];
            let numbers: Vec<Option<i64>> = (0..rows)
                .map(|_| {
                    let number = random.random_range(0..differ) * 7 - 300;
                    (!random.random_bool(nulls)).then_some(number)
                })
                .collect();
            let text = |of: Option<i64>| of.map(|of| format!("a text that is long, {of}"));
            let decimals: Decimal128Array = numbers.iter().map(|of| of.map(i128::from)).collect();
            let lists = numbers.iter().map(|of| of.map(|of| vec![Some(of), None]));
            let columns: [ArrayRef; 7] = [
                Arc::new(Int64Array::from(numbers.clone())),
                Arc::new(decimals.with_precision_and_scale(15, 2).unwrap()),
                Arc::new(numbers.iter().map(|of| of.map(|of| of as i32)).collect::<Date32Array>()),
                Arc::new(numbers.iter().map(|of| text(*of)).collect::<StringArray>()),
                Arc::new(numbers.iter().map(|of| text(*of)).collect::<StringViewArray>()),
                Arc::new(numbers.iter().map(|of| of.map(|of| of as f64)).collect::<Float64Array>()),
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
            ];
            for column in &columns {
                let own = column.data_type();
                for read in [Arc::clone(column), encoded(column)] {
                    let resting = at_rest(&read, own);
                    assert_eq!((resting.len(), texts(&resting)), (1, Texts::of(read.data_type())));
                    assert_eq!(
                        awake(&resting, own, 0..rows).unwrap().data_type(),
                        read.data_type()
                    );
                    let start = random.random_range(0..=rows);
                    let end = random.random_range(start..=rows);
                    for part in [0..rows, start..end, start..start] {
                        let awake = awake(&resting, own, part.clone()).unwrap();
                        let expected = column.slice(part.start, part.len());
                        assert_eq!(&decoded(&awake, own).unwrap(), &expected);
                        let few = part.clone().filter(|place| place % 17 < 2);
                        let Some(taken) = taken(&resting, own, few.clone()).unwrap() else {
                            continue;
                        };
                        let few = UInt64Array::from_iter_values(few.map(|place| place as u64));
                        let expected = take(column, &few, None).unwrap();
                        assert_eq!(&decoded(&taken, own).unwrap(), &expected);
                    }
                }
            }
        }
    }

    #[test]
    fn what_may_be_packed_takes_fewer_bytes() {
        let rows = 8192;
        let text = |row: i64| ["A", "N", "R"][row as usize % 3];
        let words = ["carefully ", "final ", "deposits ", "sleep "];
        let long = |row: i64| (0..4).map(|at| words[(row >> at) as usize % 4]).collect::<String>();
        let columns: [(ArrayRef, usize); 4] = [
            (Arc::new(Int64Array::from_iter_values(0..rows)), 13),
            (Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row % 11))), 4),
            (Arc::new((0..rows).map(|row| Some(text(row))).collect::<StringViewArray>()), 2),
            (Arc::new((0..rows).map(|row| Some(long(row))).collect::<StringViewArray>()), 50),
        ];
        for (column, bits) in columns {
            let resting = at_rest(&encoded(&column), column.data_type());
            let bytes = resting.to_data().get_slice_memory_size().unwrap();
            assert!(bytes < rows as usize * bits / 8 + 4096, "{bytes}, {}", column.data_type());
        }
    }

    #[test]
    fn a_column_that_somebody_has_is_held() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX]));
        let resting = at_rest(&numbers, &DataType::Int64);
        assert!(is_held(&resting));
        drop(numbers);
        assert!(!is_held(&resting));
        let awake = awake(&resting, &DataType::Int64, 0..2).unwrap();
        assert!(is_held(&resting));
        drop(awake);
        assert!(!is_held(&resting) && is_held(&Arc::clone(&resting)));
    }

    #[test]
    fn what_is_not_at_rest_is_refused() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        assert!(awake(&numbers, &DataType::Int64, 0..1).is_err());
    }
}
