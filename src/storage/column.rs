//! A column of one version of a table, for who takes all of it elsewhere.

use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;

use super::memory::{Batched, Version};

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

    /// The least and the greatest value, of whole numbers, decimals, days and times as the numbers that they are kept as; zeros where
    /// all are NULL, and nothing of other types.
    pub(crate) fn bounds(&self) -> Option<[i128; 2]> {
        let [least, greatest] = self.version.zones.bounds(self.place)?;
        let least = numbers(&least)?.into_iter().flatten().min();
        let greatest = numbers(&greatest)?.into_iter().flatten().max();
        Some([least.unwrap_or(0), greatest.unwrap_or(0)])
    }

    pub(crate) fn batches(&self) -> usize {
        self.version.batches.len()
    }

    pub(crate) fn rows_of(&self, batch: usize) -> usize {
        self.version.batches[batch].num_rows()
    }

    /// The values of a batch, encoded.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn encoded(&self, batch: usize) -> Result<ArrayRef, ArrowError> {
        let batch = &self.version.batches[batch];
        batch.encoded(self.place, 0..batch.num_rows())
    }

    /// The values of a batch.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn values(&self, batch: usize) -> Result<ArrayRef, ArrowError> {
        self.version.batches[batch].column(self.place)
    }
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
