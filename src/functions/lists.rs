//! List arrays as the kernels see them: cells that lie one behind the other, and where each list is.
//!
//! Of `List`, `LargeList` and `FixedSizeList`. What is neither a `FLOAT` nor a `DOUBLE` is made a
//! `DOUBLE` first; see [`readable`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result};

use crate::error::Error;
use crate::exec::kernels::vectors::Bounds;
use crate::matrix::Scalar;

/// A list array taken apart.
pub(super) struct Lists<'a> {
    /// The elements of all lists.
    pub(super) elements: &'a ArrayRef,
    pub(super) bounds: Bounds<'a>,
}

impl<'a> Lists<'a> {
    /// `None` of what is no list array.
    pub(super) fn of(array: &'a dyn Array) -> Option<Self> {
        let (elements, bounds) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (list.values(), Bounds::Offsets(list.value_offsets()))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (list.values(), Bounds::LargeOffsets(list.value_offsets()))
            }
            DataType::FixedSizeList(..) => {
                let list = array.as_fixed_size_list();
                (list.values(), Bounds::Length(list.value_length() as usize))
            }
            _ => return None,
        };
        Some(Self { elements, bounds })
    }

    /// The places of the elements of list `i`.
    pub(super) fn range(&self, i: usize) -> std::ops::Range<usize> {
        match self.bounds {
            Bounds::Offsets(offsets) => offsets[i] as usize..offsets[i + 1] as usize,
            Bounds::LargeOffsets(offsets) => offsets[i] as usize..offsets[i + 1] as usize,
            Bounds::Length(length) => i * length..(i + 1) * length,
            Bounds::Constant => 0..self.elements.len(),
        }
    }

    /// Whether an element of list `i` is NULL.
    pub(super) fn has_null(&self, i: usize) -> bool {
        let Some(nulls) = self.elements.nulls() else { return false };
        let range = self.range(i);
        nulls.null_count() > 0 && nulls.slice(range.start, range.len()).null_count() > 0
    }
}

/// What a list of numbers is cast to for a kernel to read it: the same list of `DOUBLE`, or of `FLOAT`
/// where that is to be kept; `None` of what is no list of numbers.
pub(super) fn numeric_list(data_type: &DataType, keeps_float: bool) -> Option<DataType> {
    let with = |element: &FieldRef, list: fn(FieldRef) -> DataType| {
        numeric(element.data_type(), keeps_float)
            .map(|to| list(Arc::new(Field::new_list_field(to, true))))
    };
    match data_type {
        DataType::Null => {
            Some(DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true))))
        }
        DataType::List(element) => with(element, DataType::List),
        DataType::LargeList(element) => with(element, DataType::LargeList),
        DataType::FixedSizeList(element, length) => {
            let to = numeric(element.data_type(), keeps_float)?;
            Some(DataType::FixedSizeList(Arc::new(Field::new_list_field(to, true)), *length))
        }
        _ => None,
    }
}

fn numeric(element: &DataType, keeps_float: bool) -> Option<DataType> {
    match element {
        DataType::Float32 if keeps_float => Some(DataType::Float32),
        element if element.is_numeric() || element.is_null() => Some(DataType::Float64),
        _ => None,
    }
}

/// The lists with elements that a kernel reads; the same where they are so already.
pub(super) fn readable(lists: ArrayRef, keeps_float: bool) -> Result<ArrayRef> {
    let element = match lists.data_type() {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => Some(element.data_type()),
        _ => None,
    };
    if element == Some(&DataType::Float64) || (keeps_float && element == Some(&DataType::Float32)) {
        return Ok(lists);
    }
    match numeric_list(lists.data_type(), keeps_float) {
        Some(to) => Ok(cast(&lists, &to)?),
        None => Ok(lists),
    }
}

/// Says what `function` does not take.
pub(super) fn refused(function: &str, message: impl Into<String>) -> DataFusionError {
    Error::argument(function, message).into()
}

/// Says that `function` takes numbers and lists of them.
pub(super) fn not_numbers(function: &str, given: &DataType) -> DataFusionError {
    refused(function, format!("takes lists of numbers, not {given}"))
}

/// The elements as cells; an error of any other type than that of the cells.
pub(super) fn cells_of<'a, T: Scalar>(function: &str, elements: &'a dyn Array) -> Result<&'a [T]> {
    let cells = elements.as_primitive_opt::<T::Arrow>();
    cells
        .map(|cells| &cells.values()[..])
        .ok_or_else(|| not_numbers(function, elements.data_type()))
}
