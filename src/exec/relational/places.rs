//! Where rows stand in an order, as numbers: a row with a greater number comes after one with a smaller one; of rows with
//! the same number either may come first.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::DataType;
use datafusion::common::Result;

use crate::error::{Error, ErrorKind};
use crate::exec::relational::cells::{Cell, Key, cells, with_cell};

/// Bytes of a text that make its place.
const TEXT_BYTES: usize = size_of::<u64>();

/// Whether values of this type have places.
pub(crate) fn is_placed(data_type: &DataType) -> bool {
    data_type.is_string() || with_cell!(data_type, _Cell => ()).is_some()
}

/// Whether different values of such a type have different places.
pub(super) fn is_told_apart(data_type: &DataType) -> bool {
    let is_narrow = data_type.primitive_width().is_some_and(|bytes| bytes <= size_of::<u64>());
    is_placed(data_type) && is_narrow && !data_type.is_floating()
}

/// The place of each value.
///
/// # Errors
/// A type that [`is_placed`] does not name.
pub(super) fn places(values: &ArrayRef, options: SortOptions) -> Result<Vec<u64>> {
    let data_type = values.data_type();
    let mut places = match data_type.is_string() {
        true => of_texts(values)?,
        false => with_cell!(data_type, C => of_cells::<C>(values)).ok_or_else(|| {
            Error::from(ErrorKind::Internal(format!("values of {data_type} have no places")))
        })?,
    };
    if options.descending {
        places.iter_mut().for_each(|place| *place = !*place);
    }
    if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
        let outermost = if options.nulls_first { u64::MIN } else { u64::MAX };
        let nulls = places.iter_mut().zip(nulls).filter(|(_, is_valid)| !is_valid);
        nulls.for_each(|(place, _)| *place = outermost);
    }
    Ok(places)
}

fn of_cells<C: Cell>(values: &ArrayRef) -> Vec<u64> {
    cells::<C>(values).iter().map(|cell| cell.key().place()).collect()
}

/// A text begins its place: of one that begins another the place is not greater.
fn of_texts(values: &ArrayRef) -> Result<Vec<u64>> {
    let texts = cast(values, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let place = |row: usize| {
        let text = if texts.is_null(row) { &[] } else { texts.value(row).as_bytes() };
        let mut bytes = [0; TEXT_BYTES];
        let len = text.len().min(TEXT_BYTES);
        bytes[..len].copy_from_slice(&text[..len]);
        u64::from_be_bytes(bytes)
    };
    Ok((0..texts.len()).map(place).collect())
}
