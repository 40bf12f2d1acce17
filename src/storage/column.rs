//! A column of one version of a table, for who takes all of it elsewhere.

use std::ops::Range;
use std::sync::{Arc, Weak};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, downcast_primitive_array,
};
use arrow::compute::interleave;
use arrow::datatypes::{ArrowNativeType, DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;

use super::digits::Digits;
use super::memory::{Batched, Version};

/// Numbers between the least and the greatest key for each row at most, for an array of all of them to be the way to find a row.
const KEY_NUMBERS_MAX: u128 = 8;

/// A column with all rows of a version.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    version: Arc<Version>,
    place: usize,
    data_type: DataType,
}

/// By which the same column of the same rows is known, for as long as there are these rows.
#[derive(Debug, Clone)]
pub(crate) struct SameColumn(Weak<Batched>, usize);

impl PartialEq for SameColumn {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0) && self.1 == other.1
    }
}

impl SameColumn {
    /// Whether somebody has the rows still.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl TableColumn {
    pub(super) fn new(version: &Arc<Version>, place: usize, data_type: &DataType) -> Self {
        Self { version: Arc::clone(version), place, data_type: data_type.clone() }
    }

    pub(crate) fn same(&self) -> SameColumn {
        SameColumn(Arc::downgrade(self.version.batched()), self.place)
    }

    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    pub(crate) fn rows(&self) -> usize {
        self.version.rows
    }

    pub(crate) fn nulls(&self) -> usize {
        self.version.figures().get(self.place).map_or(0, |figures| figures.nulls)
    }

    /// What it takes of memory where it is read.
    pub(crate) fn bytes(&self) -> usize {
        self.version.figures().get(self.place).map_or(0, |figures| figures.bytes)
    }

    /// The least and the greatest value, of whole numbers, decimals, days and times as the numbers that they are kept as; zeros where
    /// all are NULL, and nothing of other types.
    pub(crate) fn bounds(&self) -> Option<[i128; 2]> {
        let [least, greatest] = self.version.zones.bounds(self.place)?;
        let least = numbers(&least)?.into_iter().flatten().min();
        let greatest = numbers(&greatest)?.into_iter().flatten().max();
        Some([least.unwrap_or(0), greatest.unwrap_or(0)])
    }

    /// Whether the values may be found by an array of all numbers between the least and the greatest, and no two rows need have the same.
    pub(crate) fn may_be_key(&self) -> bool {
        if self.repeats() {
            return false;
        }
        let Some([least, greatest]) = self.bounds() else { return false };
        let (numbers, rows) = (greatest.abs_diff(least) + 1, self.rows() - self.nulls());
        (rows as u128..=rows as u128 * KEY_NUMBERS_MAX).contains(&numbers)
    }

    /// Whether somebody has found two rows with the same value.
    pub(crate) fn repeats(&self) -> bool {
        self.version.batched().known_key(self.place) == Some(false)
    }

    /// Whether no two rows have the same value, of a column that may be a key; NULL is no value. It is looked at once, which takes a bit for each
    /// number between the least and the greatest.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn is_key(&self) -> Result<bool, ArrowError> {
        let bounds = self.bounds().filter(|_| self.may_be_key());
        let Some([least, greatest]) = bounds else { return Ok(false) };
        let look = || {
            let mut seen = vec![0_u64; (greatest.abs_diff(least) / 64 + 1) as usize];
            for batch in 0..self.batches() {
                let values = self.values(batch)?;
                let values = values.as_ref();
                let is_key = downcast_primitive_array!(
                    values => each_once(values, least, &mut seen),
                    _ => false
                );
                if !is_key {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        self.version.batched().is_key(self.place, look)
    }

    /// The digits of the values, of numbers of floating point; nothing where one is NaN or infinite. They are looked at once.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn digits(&self) -> Result<Option<Digits>, ArrowError> {
        let look = || {
            let mut digits = Digits::NONE;
            for batch in 0..self.batches() {
                let values = self.values(batch)?;
                let own = match self.data_type {
                    DataType::Float64 => {
                        Digits::of_all(values.as_primitive::<Float64Type>().iter().flatten())
                    }
                    DataType::Float32 => {
                        let values = values.as_primitive::<Float32Type>().iter().flatten();
                        Digits::of_all(values.map(f64::from))
                    }
                    _ => None,
                };
                let Some(own) = own else { return Ok(None) };
                digits = digits.or(own);
            }
            Ok(Some(digits))
        };
        self.version.batched().digits(self.place, look)
    }

    pub(crate) fn batches(&self) -> usize {
        self.version.batches.len()
    }

    pub(crate) fn rows_of(&self, batch: usize) -> usize {
        self.version.batches[batch].num_rows()
    }

    /// The values of some rows of a batch, encoded.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn encoded(&self, batch: usize, rows: Range<usize>) -> Result<ArrayRef, ArrowError> {
        self.version.batches[batch].encoded(self.place, rows)
    }

    /// The values of rows by their numbers; meanwhile there are those of all ([`TableColumn::bytes`]).
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn at(&self, rows: impl Iterator<Item = usize>) -> Result<ArrayRef, ArrowError> {
        let all = (0..self.batches()).map(|batch| self.values(batch));
        let all: Vec<ArrayRef> = all.collect::<Result<_, _>>()?;
        let mut ends = Vec::with_capacity(all.len());
        for batch in &all {
            ends.push(ends.last().map_or(0, |end| *end) + batch.len());
        }
        let place = |row: usize| {
            let batch = ends.partition_point(|end| *end <= row);
            (batch, row - batch.checked_sub(1).map_or(0, |last| ends[last]))
        };
        let places: Vec<(usize, usize)> = rows.map(place).collect();
        let all: Vec<&dyn Array> = all.iter().map(AsRef::as_ref).collect();
        interleave(&all, &places)
    }

    /// The values of a batch.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn values(&self, batch: usize) -> Result<ArrayRef, ArrowError> {
        self.version.batches[batch].column(self.place)
    }

    /// The values of some rows of a batch.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn part(&self, batch: usize, rows: Range<usize>) -> Result<ArrayRef, ArrowError> {
        self.version.batches[batch].values(self.place, rows)
    }
}

/// Whether none of these numbers was seen before; they are from now on.
fn each_once<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    least: i128,
    seen: &mut [u64],
) -> bool {
    values.iter().flatten().all(|value| {
        // Within 64 bits, as the bounds are for which there is room.
        let above = value.to_i64().map(|value| (i128::from(value) - least) as usize);
        let word = above.and_then(|above| Some((seen.get_mut(above / 64)?, 1 << (above % 64))));
        word.is_some_and(|(word, bit)| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    })
}

/// The values of an array as the numbers that they are kept as; nothing where they are none.
fn numbers(values: &ArrayRef) -> Option<Vec<Option<i128>>> {
    (0..values.len()).map(|at| number(&ScalarValue::try_from_array(values, at).ok()?)).collect()
}

/// A value as the number that it is kept as, none of which is NULL; nothing where it is of another type.
pub(crate) fn number(value: &ScalarValue) -> Option<Option<i128>> {
    use ScalarValue::{
        Date32, Date64, Decimal32, Decimal64, Decimal128, Int8, Int16, Int32, Int64,
        Time32Millisecond, Time32Second, Time64Microsecond, Time64Nanosecond, TimestampMicrosecond,
        TimestampMillisecond, TimestampNanosecond, TimestampSecond, UInt8, UInt16, UInt32, UInt64,
    };
    Some(match value {
        Int8(x) => x.map(i128::from),
        Int16(x) => x.map(i128::from),
        Int32(x) | Date32(x) | Time32Second(x) | Time32Millisecond(x) | Decimal32(x, ..) => {
            x.map(i128::from)
        }
        Int64(x)
        | Date64(x)
        | Time64Microsecond(x)
        | Time64Nanosecond(x)
        | TimestampSecond(x, _)
        | TimestampMillisecond(x, _)
        | TimestampMicrosecond(x, _)
        | TimestampNanosecond(x, _)
        | Decimal64(x, ..) => x.map(i128::from),
        Decimal128(x, ..) => *x,
        UInt8(x) => x.map(i128::from),
        UInt16(x) => x.map(i128::from),
        UInt32(x) => x.map(i128::from),
        UInt64(x) => x.map(i128::from),
        _ => return None,
    })
}
