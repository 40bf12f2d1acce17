//! Numbers, dates and times as places on one line, on which ranges are compared and cut.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;

/// The values of a type within a range, if neighbouring ones are one apart on the line.
pub(super) fn count(range: Option<[f64; 2]>, of: &DataType) -> Option<f64> {
    let is_whole = of.is_integer() || matches!(of, DataType::Date32);
    range.filter(|_| is_whole).map(|[low, high]| high - low + 1.0)
}

/// The places of values; nothing for types that have none.
pub(super) fn places(values: &ArrayRef) -> Option<ArrayRef> {
    use DataType as Of;
    let whole = match values.data_type() {
        Of::Date32 | Of::Time32(_) => Of::Int32,
        Of::Date64 | Of::Time64(_) | Of::Timestamp(..) | Of::Duration(_) => Of::Int64,
        of if of.is_numeric() => return cast(values, &Of::Float64).ok(),
        _ => return None,
    };
    cast(&cast(values, &whole).ok()?, &Of::Float64).ok()
}

/// The least and the greatest place of values.
pub(super) fn range(values: &ArrayRef) -> Option<[f64; 2]> {
    let places = places(values)?;
    let places = places.as_primitive::<Float64Type>();
    Some([min(places)?, max(places)?])
}

/// The range of two sets of values together.
pub(super) fn joined(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> Option<[f64; 2]> {
    match (one, other) {
        (Some(one), Some(other)) => Some([one[0].min(other[0]), one[1].max(other[1])]),
        (range, None) | (None, range) => range,
    }
}

/// The place of a value that is not NULL.
pub(super) fn place(value: &ScalarValue) -> Option<f64> {
    let places = places(&value.to_array().ok()?)?;
    let places = places.as_primitive::<Float64Type>();
    (places.null_count() == 0).then(|| places.value(0))
}
