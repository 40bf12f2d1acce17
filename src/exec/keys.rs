//! Keys and their places: the distinct ones in order, and where each key is among others.
//!
//! ```text
//! keys      5 3 5 9         distinct  3 5 9
//!                           places    1 0 1 2
//! ```
//!
//! Integers of a narrow range are addressed by value, and so are the codes of texts that a table keeps in order. All else is hashed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::row::{RowConverter, SortField};
use rayon::prelude::*;

use crate::encoding::shared_codes;
use crate::error::{Error, Result};
use crate::matrix::CellBuffer;

/// The number of keys, of one or more columns.
pub(super) fn length(keys: &[ArrayRef]) -> usize {
    keys.first().map_or(0, |keys| keys.len())
}

/// Some columns of all batches.
pub(super) fn keys_of(batches: &[RecordBatch], columns: Range<usize>) -> Result<Vec<ArrayRef>> {
    columns
        .map(|at| {
            let parts: Vec<&dyn Array> =
                batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            Ok(concat(&parts)?)
        })
        .collect()
}

/// The place of each key.
pub(super) type Places = ScalarBuffer<u32>;

/// The distinct keys in ascending order, and the place of every key among them; NULL is a key like others.
pub(super) fn distinct(keys: &[ArrayRef]) -> Result<(Places, Vec<ArrayRef>)> {
    if let [column] = keys
        && let Some(by_value) = distinct_integers(std::slice::from_ref(column))?
    {
        return Ok(by_value);
    }
    let Some(converter) = converter(keys)? else {
        return Ok((Vec::new().into(), keys.to_vec()));
    };
    let rows = converter.convert_columns(keys)?;
    let mut seen: HashMap<&[u8], u32> = HashMap::new();
    let mut firsts: Vec<usize> = Vec::new();
    let mut places: Vec<u32> = Vec::with_capacity(rows.num_rows());
    for at in 0..rows.num_rows() {
        let next = firsts.len() as u32;
        let place = *seen.entry(rows.row(at).data()).or_insert(next);
        if place == next {
            firsts.push(at);
        }
        places.push(place);
    }
    let mut order: Vec<u32> = (0..firsts.len() as u32).collect();
    order
        .sort_unstable_by(|&a, &b| rows.row(firsts[a as usize]).cmp(&rows.row(firsts[b as usize])));
    let mut rank = vec![0u32; order.len()];
    for (at, &old) in order.iter().enumerate() {
        rank[old as usize] = at as u32;
    }
    places.iter_mut().for_each(|place| *place = rank[*place as usize]);
    let picked: Vec<u32> = order.iter().map(|&old| firsts[old as usize] as u32).collect();
    Ok((places.into(), taken(keys, picked)?))
}

/// Runs `$body` with `$values` the numbers of a piece, as integers of 64 bits, of whatever type [`is_by_value`] allows.
macro_rules! integers {
    ($piece:expr, $values:ident => $body:expr) => {
        integers!($piece, $values => $body; Int8 Int8Type, Int16 Int16Type, Int32 Int32Type, Int64 Int64Type,
            UInt8 UInt8Type, UInt16 UInt16Type, UInt32 UInt32Type)
    };
    ($piece:expr, $values:ident => $body:expr; $($name:ident $type:ident),*) => {
        match $piece.data_type() {
            $(DataType::$name => {
                let $values = $piece.as_primitive::<$type>().values().iter();
                let $values = $values.map(|&value| i64::from(value));
                $body
            })*
            other => unreachable!("{other} has no integers of 64 bits"),
        }
    };
}

/// The same for integers in a range not much wider than they are many, one after the other in any number of pieces of one
/// type: a table addressed by value.
pub(super) fn distinct_integers(pieces: &[ArrayRef]) -> Result<Option<(Places, Vec<ArrayRef>)>> {
    let Some(data_type) = pieces.first().map(|piece| piece.data_type().clone()) else {
        return Ok(None);
    };
    if !pieces.iter().all(is_by_value) {
        return Ok(None);
    }
    let count: usize = pieces.iter().map(|piece| piece.len()).sum();
    // Some of them at a time, on several threads.
    let chunks = chunks_of(pieces, count.div_ceil(16).max(1 << 16));
    let ends = |chunk: &Vec<ArrayRef>| {
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for piece in chunk {
            integers!(piece, values => for value in values {
                (least, most) = (least.min(value), most.max(value));
            });
        }
        (least, most)
    };
    let outer = |a: (i64, i64), b: (i64, i64)| (a.0.min(b.0), a.1.max(b.1));
    let (least, most) = chunks.par_iter().map(ends).reduce(|| (i64::MAX, i64::MIN), outer);
    if !is_narrow(least, most, count) {
        return Ok(None);
    }
    let range = most.wrapping_sub(least) as u64;
    let slot = |value: i64| value.wrapping_sub(least) as usize;
    // Which values there are, as bits.
    let there = |chunk: &Vec<ArrayRef>| {
        let mut bits = vec![0u64; range as usize / 64 + 1];
        for piece in chunk {
            integers!(piece, values => for value in values {
                let slot = slot(value);
                bits[slot / 64] |= 1 << (slot % 64);
            });
        }
        bits
    };
    let either = |mut a: Vec<u64>, b: Vec<u64>| {
        a.resize(a.len().max(b.len()), 0);
        a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
        a
    };
    let bits = chunks.par_iter().map(there).reduce(Vec::new, either);
    let mut ranks = vec![0u32; range as usize + 1];
    let mut distinct = Vec::new();
    for (at, rank) in ranks.iter_mut().enumerate() {
        if bits[at / 64] >> (at % 64) & 1 == 1 {
            *rank = distinct.len() as u32;
            distinct.push(least + at as i64);
        }
    }
    let mut places = CellBuffer::<u32>::arbitrary(count);
    let is_gapless = distinct.len() == ranks.len();
    let mut left = &mut places[..];
    let mut targets = Vec::with_capacity(chunks.len());
    for chunk in &chunks {
        let (target, rest) = left.split_at_mut(chunk.iter().map(|piece| piece.len()).sum());
        targets.push(target);
        left = rest;
    }
    targets.into_par_iter().zip(&chunks).for_each(|(mut target, chunk)| {
        for piece in chunk {
            let (own, rest) = std::mem::take(&mut target).split_at_mut(piece.len());
            target = rest;
            integers!(piece, values => for (value, place) in values.zip(own) {
                let slot = slot(value);
                *place = if is_gapless { slot as u32 } else { ranks[slot] };
            });
        }
    });
    let distinct: ArrayRef = Arc::new(Int64Array::from(distinct));
    Ok(Some((places.into(), vec![cast(&distinct, &data_type)?])))
}

/// The same for texts that are codes of one dictionary, which is in their order; the first piece has no rows and the type of the
/// texts.
pub(super) fn distinct_shared(pieces: &[ArrayRef]) -> Result<Option<(Places, Vec<ArrayRef>)>> {
    let [first, coded @ ..] = pieces else { return Ok(None) };
    let Some(dictionary) = coded.first().and_then(shared_codes).map(|codes| codes.values()) else {
        return Ok(None);
    };
    let mut codes = Vec::with_capacity(coded.len());
    for piece in coded {
        match shared_codes(piece).filter(|of| Arc::ptr_eq(of.values(), dictionary)) {
            Some(of) => codes.push(Arc::new(of.keys().clone()) as ArrayRef),
            None => return Ok(None),
        }
    }
    if !first.is_empty() || first.data_type() != dictionary.data_type() {
        return Ok(None);
    }
    let Some((places, distinct)) = distinct_integers(&codes)? else { return Ok(None) };
    let is_whole = length(&distinct) == dictionary.len();
    let labels = match distinct.as_slice() {
        [distinct] if !is_whole => take(dictionary, distinct, None)?,
        _ => Arc::clone(dictionary),
    };
    Ok(Some((places, vec![labels])))
}

/// Whether keys are integers of 64 bits, none of them NULL.
pub(super) fn is_by_value(keys: &ArrayRef) -> bool {
    let is_small = keys.data_type().is_integer() && *keys.data_type() != DataType::UInt64;
    is_small && keys.null_count() == 0
}

/// Whether so many numbers from the least to the most are in a range not much wider than they are many.
pub(super) fn is_narrow(least: i64, most: i64, count: usize) -> bool {
    least <= most && most.wrapping_sub(least) as u64 <= 4 * count as u64 + (1 << 16)
}

/// Pieces in groups of about so many rows; a long one is cut.
fn chunks_of(pieces: &[ArrayRef], rows: usize) -> Vec<Vec<ArrayRef>> {
    let (mut chunks, mut chunk, mut filled) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        for start in (0..piece.len()).step_by(rows) {
            let cut = piece.slice(start, rows.min(piece.len() - start));
            filled += cut.len();
            chunk.push(cut);
            if filled >= rows {
                chunks.push(std::mem::take(&mut chunk));
                filled = 0;
            }
        }
    }
    chunks.push(chunk);
    chunks
}

fn taken(keys: &[ArrayRef], places: Vec<u32>) -> Result<Vec<ArrayRef>> {
    let places = UInt32Array::from(places);
    keys.iter().map(|keys| Ok(take(keys, &places, None)?)).collect()
}

/// What makes keys bytes that compare as they do; none of no keys.
pub(super) fn converter(keys: &[ArrayRef]) -> Result<Option<RowConverter>> {
    let fields: Vec<SortField> =
        keys.iter().map(|key| SortField::new(key.data_type().clone())).collect();
    if fields.is_empty() { Ok(None) } else { Ok(Some(RowConverter::new(fields)?)) }
}

/// Finds keys among others.
pub(super) struct Index {
    types: Vec<DataType>,
    converter: Option<RowConverter>,
    places: HashMap<Box<[u8]>, usize>,
    /// The first key that has been there before.
    pub(super) repeated: Option<usize>,
}

impl Index {
    pub(super) fn new(keys: &[ArrayRef]) -> Result<Self> {
        let types = keys.iter().map(|key| key.data_type().clone()).collect();
        let converter = converter(keys)?;
        let (mut places, mut repeated) = (HashMap::new(), None);
        if let Some(converter) = &converter {
            for (at, row) in converter.convert_columns(keys)?.iter().enumerate() {
                if places.insert(row.data().into(), at).is_some() && repeated.is_none() {
                    repeated = Some(at);
                }
            }
        }
        Ok(Self { types, converter, places, repeated })
    }

    /// The place of each key, cast to the types of the index.
    pub(super) fn find(&self, keys: &[ArrayRef]) -> Result<Vec<Option<usize>>> {
        let Some(converter) = &self.converter else { return Ok(vec![None; length(keys)]) };
        if keys.len() != self.types.len() {
            let (left, right) = (keys.len(), self.types.len());
            let message = format!("labels of {left} and of {right} key columns do not match");
            return Err(Error::argument("labels", message));
        }
        let keys = keys.iter().zip(&self.types).map(|(key, of)| cast(key, of));
        let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
        let rows = converter.convert_columns(&keys)?;
        Ok(rows.iter().map(|row| self.places.get(row.data()).copied()).collect())
    }
}
