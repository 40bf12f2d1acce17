//! The rows of both sides as entries: their keys become places, their values columns of numbers.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float64Type, Int64Type};

use super::Contraction;
use crate::error::{ErrorKind, Result};
use crate::exec::kernels::contract::{Column, Values};
use crate::exec::keys::{Places, distinct, keys_of, length};

/// Bytes for each row beside its batch: its places, and its keys while they are found.
pub(super) const ROW_BYTES: usize = 48;

/// The distinct join keys must come this often for a join to make more pairs than rows.
const REPEATS_MIN: usize = 2;

/// One side: for each row its place among the group keys, among the join keys, and its values.
pub(super) struct Entries {
    pub(super) outer: Places,
    pub(super) inner: Places,
    pub(super) columns: Vec<Column>,
    /// The distinct group keys.
    pub(super) keys: Vec<ArrayRef>,
    /// How many join keys there are, of both sides.
    pub(super) inner_count: usize,
}

impl Entries {
    /// How many group keys there are.
    pub(super) fn outer_count(&self) -> usize {
        length(&self.keys)
    }

    pub(super) fn len(&self) -> usize {
        self.inner.len()
    }
}

/// Whether the join keys of these rows come more than once, mostly.
pub(super) fn keys_repeat(batches: &[RecordBatch], join_keys: usize) -> Result<bool> {
    let (places, keys) = distinct(&keys_of(batches, 0..join_keys)?)?;
    Ok(places.len() >= REPEATS_MIN * length(&keys))
}

/// The entries of both sides; rows whose join key is NULL join nothing, and are none.
pub(super) fn entries(
    contraction: &Contraction,
    batches: [Vec<RecordBatch>; 2],
) -> Result<[Entries; 2]> {
    let join_keys = 0..contraction.join_keys;
    let [left, right] = batches.map(|batches| {
        batches.iter().map(|batch| with_keys(batch, &join_keys)).collect::<Result<Vec<_>>>()
    });
    let (left, right) = (left?, right?);
    let group_keys = |side: usize| join_keys.end..join_keys.end + contraction.group_keys[side];
    let ((inner, left_outer), right_outer) = rayon::join(
        || {
            rayon::join(
                || inner_places(&left, &right, join_keys.clone()),
                || distinct(&keys_of(&left, group_keys(0))?),
            )
        },
        || distinct(&keys_of(&right, group_keys(1))?),
    );
    let ([left_inner, right_inner], inner_count) = inner?;
    let side = |batches: &[RecordBatch], side: usize, outer, inner| -> Result<Entries> {
        let (outer, keys) = outer;
        let width = batches.first().map_or(0, RecordBatch::num_columns);
        let columns = (group_keys(side).end..width).map(|at| column(batches, at));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Entries { outer, inner, columns, keys, inner_count })
    };
    let (left, right) = rayon::join(
        || side(&left, 0, left_outer?, left_inner),
        || side(&right, 1, right_outer?, right_inner),
    );
    Ok([left?, right?])
}

/// The batch without the rows in which a key is NULL.
fn with_keys(batch: &RecordBatch, keys: &Range<usize>) -> Result<RecordBatch> {
    let nulls = batch.columns()[keys.clone()].iter().fold(None, |nulls, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
    });
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => Ok(batch.clone()),
        Some(nulls) => {
            Ok(filter_record_batch(batch, &BooleanArray::new(nulls.into_inner(), None))?)
        }
    }
}

/// The places of the join keys of both sides among all of them.
fn inner_places(
    left: &[RecordBatch],
    right: &[RecordBatch],
    keys: Range<usize>,
) -> Result<([Places; 2], usize)> {
    let rows = left.iter().map(RecordBatch::num_rows).sum();
    let both: Vec<RecordBatch> = left.iter().chain(right).cloned().collect();
    let (places, distinct) = distinct(&keys_of(&both, keys)?)?;
    let sides = [places.slice(0, rows), places.slice(rows, places.len() - rows)];
    Ok((sides, length(&distinct)))
}

/// One column of all batches, as numbers.
fn column(batches: &[RecordBatch], at: usize) -> Result<Column> {
    let arrays: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(at)).collect();
    let values = match arrays.first().map(|array| array.data_type()) {
        Some(DataType::Float64) => Values::Floats(numbers::<Float64Type>(&arrays)),
        Some(DataType::Int64) => Values::Integers(numbers::<Int64Type>(&arrays)),
        other => {
            let message = format!("a contraction over values of type {other:?}");
            return Err(ErrorKind::Internal(message).into());
        }
    };
    let has_nulls = arrays.iter().any(|array| array.null_count() > 0);
    let valid = has_nulls.then(|| {
        arrays.iter().flat_map(|array| (0..array.len()).map(|row| array.is_valid(row))).collect()
    });
    Ok(Column { values, valid })
}

fn numbers<T: ArrowPrimitiveType>(arrays: &[&ArrayRef]) -> Vec<T::Native> {
    let mut numbers = Vec::with_capacity(arrays.iter().map(|array| array.len()).sum());
    arrays.iter().for_each(|array| numbers.extend_from_slice(array.as_primitive::<T>().values()));
    numbers
}
