//! The arguments of one batch as rows of numbers.
//!
//! An argument is a column of numbers or a column of lists, each of as many numbers; a row is all of
//! them in their order. Rows with a NULL anywhere are left out, and so are those of weight zero.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DataFusionError, Result};

use super::super::lists::{Lists, cells_of, not_numbers, numeric_list, readable, refused};
use super::COLUMNS_MAX;
use crate::exec::kernels::moments::Block;

pub(super) fn is_number(given: &DataType) -> bool {
    given.is_numeric() || given.is_null()
}

/// Asserts columns or lists of numbers.
pub(super) fn check_types(function: &str, arguments: &[DataType]) -> Result<()> {
    match arguments.iter().find(|given| !is_number(given) && numeric_list(given, false).is_none()) {
        Some(given) => Err(not_numbers(function, given)),
        None => Ok(()),
    }
}

/// The rows of a batch.
pub(super) struct Rows {
    arguments: Vec<ArrayRef>,
    weights: Option<Float64Array>,
    /// Numbers in a row.
    width: usize,
    kept: Kept,
}

/// Rows that count.
enum Kept {
    All(usize),
    Places(Vec<usize>),
}

impl Rows {
    /// # Errors
    /// Lists of several lengths, and weights below zero.
    pub(super) fn new(
        function: &str,
        arguments: &[ArrayRef],
        weights: Option<&ArrayRef>,
        filter: Option<&BooleanArray>,
    ) -> Result<Self> {
        let numbers = |array: &ArrayRef| match numeric_list(array.data_type(), false) {
            Some(_) if !array.data_type().is_null() => readable(Arc::clone(array), false),
            _ => Ok(cast(array, &DataType::Float64)?),
        };
        let arguments: Vec<ArrayRef> = arguments.iter().map(numbers).collect::<Result<_>>()?;
        let weights = weights.map(numbers).transpose()?;
        let weights = weights.map(|weights| weights.as_primitive::<Float64Type>().clone());
        let kept = kept(function, &arguments, weights.as_ref(), filter)?;
        let mut rows = Self { arguments, weights, width: 0, kept };
        let widths = rows.arguments.iter().map(|array| rows.width_of(function, array));
        rows.width = widths.sum::<Result<_>>()?;
        if rows.width > COLUMNS_MAX {
            let message = format!(
                "takes {COLUMNS_MAX} columns at most, not {}; a matrix expression takes more",
                rows.width
            );
            return Err(refused(function, message));
        }
        Ok(rows)
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Rows that count.
    pub(super) fn count(&self) -> usize {
        match &self.kept {
            Kept::All(count) => *count,
            Kept::Places(places) => places.len(),
        }
    }

    /// Numbers that an argument gives to a row: 1, or the length of every list.
    fn width_of(&self, function: &str, array: &ArrayRef) -> Result<usize> {
        let Some(lists) = Lists::of(array) else { return Ok(1) };
        let mut lengths = self.places(0..array.len()).map(|row| lists.range(row).len());
        let Some(first) = lengths.next() else { return Ok(0) };
        match lengths.find(|length| *length != first) {
            Some(other) => Err(different_lengths(function, first, other)),
            None => Ok(first),
        }
    }

    /// The places of rows that count, of these among all rows.
    fn places(&self, all: Range<usize>) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.kept {
            Kept::All(_) => Box::new(all),
            Kept::Places(places) => Box::new(places.iter().copied()),
        }
    }

    /// All rows, one block after the other; `full` is called with a block that has no room left.
    pub(super) fn fill(
        &self,
        function: &str,
        block: &mut Block,
        mut full: impl FnMut(&mut Block),
    ) -> Result<()> {
        match &self.kept {
            Kept::All(count) => {
                let mut start = 0;
                while start < *count {
                    let end = (*count).min(start + block.room());
                    self.copy(function, block, &Chosen::Range(start..end))?;
                    start = end;
                    if block.room() == 0 {
                        full(block);
                    }
                }
                Ok(())
            }
            Kept::Places(places) => self.gather(function, places, block, full),
        }
    }

    /// The rows at these places, as [`Self::fill`] does all.
    fn gather(
        &self,
        function: &str,
        mut places: &[usize],
        block: &mut Block,
        mut full: impl FnMut(&mut Block),
    ) -> Result<()> {
        while !places.is_empty() {
            let (next, rest) = places.split_at(places.len().min(block.room()));
            self.copy(function, block, &Chosen::Places(next))?;
            places = rest;
            if block.room() == 0 {
                full(block);
            }
        }
        Ok(())
    }

    /// The rows of one group after those of another: calls `add` with each group and a block of its rows,
    /// in the order in which they stand.
    pub(super) fn by_group(
        &self,
        function: &str,
        groups: &[usize],
        block: &mut Block,
        mut add: impl FnMut(usize, &mut Block),
    ) -> Result<()> {
        let places = in_groups(self.places(0..groups.len()).collect(), groups);
        for places in places.chunk_by(|left, right| groups[*left] == groups[*right]) {
            let group = groups[places[0]];
            self.gather(function, places, block, |block| add(group, block))?;
            add(group, block);
        }
        Ok(())
    }

    /// Copies rows for which there is room into a block.
    fn copy(&self, function: &str, block: &mut Block, rows: &Chosen<'_>) -> Result<()> {
        let count = rows.len();
        let mut column = 0;
        for array in &self.arguments {
            let Some(lists) = Lists::of(array) else {
                let numbers = array.as_primitive::<Float64Type>().values();
                rows.copy(numbers, block.next_cells(column, count));
                column += 1;
                continue;
            };
            let cells = cells_of::<f64>(function, lists.elements)?;
            let length = rows.first().map_or(0, |row| lists.range(row).len());
            for at in 0..length {
                let to = block.next_cells(column + at, count);
                rows.each(to, |row| cells[lists.range(row).start + at]);
            }
            column += length;
        }
        if let Some(weights) = &self.weights {
            rows.copy(weights.values(), block.next_weights(count));
        }
        block.grow(count);
        Ok(())
    }
}

/// Rows to be copied.
enum Chosen<'a> {
    Range(Range<usize>),
    Places(&'a [usize]),
}

impl Chosen<'_> {
    fn len(&self) -> usize {
        match self {
            Chosen::Range(range) => range.len(),
            Chosen::Places(places) => places.len(),
        }
    }

    fn first(&self) -> Option<usize> {
        match self {
            Chosen::Range(range) => Some(range.start),
            Chosen::Places(places) => places.first().copied(),
        }
    }

    fn copy(&self, from: &[f64], to: &mut [f64]) {
        match self {
            Chosen::Range(range) => to.copy_from_slice(&from[range.clone()]),
            Chosen::Places(_) => self.each(to, |row| from[row]),
        }
    }

    fn each(&self, to: &mut [f64], cell: impl Fn(usize) -> f64) {
        match self {
            Chosen::Range(range) => {
                to.iter_mut().zip(range.clone()).for_each(|(to, row)| *to = cell(row));
            }
            Chosen::Places(places) => {
                to.iter_mut().zip(*places).for_each(|(to, row)| *to = cell(*row));
            }
        }
    }
}

/// The places of each group after those of another, in their order; counted into their groups unless there
/// are far more of these.
fn in_groups(mut places: Vec<usize>, groups: &[usize]) -> Vec<usize> {
    let group_count = places.iter().map(|place| groups[*place] + 1).max().unwrap_or(0);
    if group_count > 4 * places.len() {
        places.sort_by_key(|place| groups[*place]);
        return places;
    }
    let mut next = vec![0; group_count];
    places.iter().for_each(|place| next[groups[*place]] += 1);
    let mut before = 0;
    for next in &mut next {
        before += std::mem::replace(next, before);
    }
    let mut sorted = vec![0; places.len()];
    for place in places {
        let next = &mut next[groups[place]];
        sorted[*next] = place;
        *next += 1;
    }
    sorted
}

/// The rows without a NULL, chosen by the filter, and of a weight above zero.
fn kept(
    function: &str,
    arguments: &[ArrayRef],
    weights: Option<&Float64Array>,
    filter: Option<&BooleanArray>,
) -> Result<Kept> {
    let count = arguments.first().map_or(0, |array| array.len());
    let nulls = arguments.iter().map(|array| array.logical_nulls());
    let nulls: Vec<_> = nulls.chain([weights.and_then(Array::logical_nulls)]).collect();
    let nulls = NullBuffer::union_many(nulls.iter().map(Option::as_ref));
    let lists: Vec<Lists<'_>> = arguments.iter().filter_map(|array| Lists::of(array)).collect();
    let with_nulls: Vec<_> = lists.iter().filter(|lists| lists.elements.null_count() > 0).collect();
    if nulls.is_none() && filter.is_none() && weights.is_none() && with_nulls.is_empty() {
        return Ok(Kept::All(count));
    }
    let is_kept = |row: &usize| {
        nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row))
            && filter.is_none_or(|filter| filter.is_valid(*row) && filter.value(*row))
            && !with_nulls.iter().any(|lists| lists.has_null(*row))
    };
    let mut places: Vec<usize> = (0..count).filter(is_kept).collect();
    if let Some(weights) = weights {
        let is_weight = |weight: f64| weight >= 0.0 && weight.is_finite();
        if let Some(row) = places.iter().find(|row| !is_weight(weights.value(**row))) {
            let weight = weights.value(*row);
            return Err(refused(
                function,
                format!("a weight is a number from 0 on, not {weight:?}"),
            ));
        }
        places.retain(|row| weights.value(*row) > 0.0);
    }
    Ok(Kept::Places(places))
}

/// Says that two lists give rows of several widths.
pub(super) fn different_lengths(function: &str, first: usize, other: usize) -> DataFusionError {
    refused(function, format!("needs lists of one length, not of {first} and {other} elements"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_in_order_within_their_groups() {
        let few = [2, 0, 1, 0, 2, 1, 1];
        assert_eq!(in_groups(vec![0, 1, 2, 3, 4, 6], &few), [1, 3, 2, 6, 0, 4]);
        let many = [900, 7, 900, 3];
        assert_eq!(in_groups(vec![0, 1, 2, 3], &many), [3, 1, 0, 2]);
        assert_eq!(in_groups(Vec::new(), &few), [0; 0]);
    }
}
