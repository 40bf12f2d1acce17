//! The values of a table's column as the cells that a device has of them, for any of its rows.
//!
//! Texts are codes in the order in which they come; of many different ones there are none. Rows are decoded by as many threads as there
//! are, each some batches of the table.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, PrimitiveArray,
    StringArray, StringViewArray, downcast_primitive_array,
};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::column::{Form, Width};
use super::term::Values;
use crate::encoding::shared_codes;
use crate::exec::offload::Failed;
use crate::exec::offload::kept::{self, Here};
use crate::exec::offload::operator::Around;
use crate::exec::run::Cancel;
use crate::gpu::Device;
use crate::storage::TableColumn;

/// Different texts of a column at most.
const TEXTS_MAX: usize = 1 << 16;

/// A column of which the form is known, and nothing is there yet.
pub(in crate::exec::offload) struct Coded<'a> {
    pub(super) of: &'a TableColumn,
    pub(super) form: Form,
    values: Values,
    texts: Option<Texts>,
    /// Who decodes it.
    pool: &'a rayon::ThreadPool,
    /// The first row of each batch of the table, and behind the last how many there are.
    firsts: Vec<usize>,
}

/// Some rows of a column.
pub(super) struct Piece {
    pub(super) cells: Vec<u8>,
    pub(super) valid: Option<Vec<u8>>,
}

impl<'a> Coded<'a> {
    /// That of a table's column. One that turns out to be none for devices is remembered as that, on this one.
    pub(super) fn new(
        of: &'a TableColumn,
        values: Values,
        (device, around): (&Arc<Device>, Around<'a>),
    ) -> Result<Self, Failed> {
        let texts = match values {
            Values::Texts => Some(Texts::of(device, of, around.cancel)?),
            _ => None,
        };
        let width = match &texts {
            Some(texts) => Width::of(texts.all.len() as u64),
            None => Width::expected(values),
        };
        let all = texts.as_ref().map(|texts| texts.array(of.data_type())).transpose()?;
        let form = Form { width, is_nullable: of.nulls() > 0, texts: all };
        let mut firsts = vec![0];
        for batch in 0..of.batches() {
            firsts.push(firsts[batch] + of.rows_of(batch));
        }
        Ok(Self { of, form, values, texts, pool: around.pool, firsts })
    }

    /// Bytes of a piece of so many rows.
    pub(super) fn piece_bytes(&self, rows: usize) -> usize {
        let valid = if self.form.is_nullable { rows.div_ceil(8) } else { 0 };
        rows * self.form.width.bytes() + valid
    }

    /// The cells of these rows, of which the first has the first bit of a byte.
    pub(super) fn piece(&self, rows: Range<usize>) -> Result<Piece, ArrowError> {
        let width = self.form.width.bytes();
        let mut cells = vec![0; rows.len() * width];
        let mut left = cells.as_mut_slice();
        let mut parts = Vec::new();
        for (batch, own) in self.batches(rows.clone()) {
            let (part, rest) = left.split_at_mut(own.len() * width);
            parts.push((batch, own, part));
            left = rest;
        }
        let fill = |(batch, own, out): (usize, Range<usize>, &mut [u8])| match &self.texts {
            Some(texts) => {
                let encoded = self.of.encoded(batch, own.clone())?;
                texts.write(&encoded, || self.of.part(batch, own), self.form.width, out)
            }
            None => write(&self.of.part(batch, own)?, self.values, self.form.width, out),
        };
        self.pool.install(|| parts.into_par_iter().try_for_each(fill))?;
        let valid = self.form.is_nullable.then(|| self.valid(rows)).transpose()?;
        Ok(Piece { cells, valid })
    }

    /// The batches of the table that have some of these rows, and which of theirs.
    fn batches(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let Range { start, end } = rows;
        let batch = self.firsts.partition_point(|first| *first <= start).saturating_sub(1);
        let is_before = move |batch: &usize| self.firsts[*batch] < end;
        let own = move |batch| {
            let [first, last] = [self.firsts[batch], self.firsts[batch + 1]];
            (batch, start.max(first) - first..end.min(last) - first)
        };
        (batch..self.of.batches()).take_while(is_before).map(own)
    }

    /// A bit for each row that has a value.
    fn valid(&self, rows: Range<usize>) -> Result<Vec<u8>, ArrowError> {
        let bytes = rows.len().div_ceil(8);
        let mut bits = BooleanBufferBuilder::new(rows.len());
        for (batch, own) in self.batches(rows) {
            let kept = self.of.encoded(batch, own)?;
            match kept.logical_nulls() {
                Some(nulls) => bits.append_buffer(nulls.inner()),
                None => bits.append_n(kept.len(), true),
            }
        }
        Ok(bits.finish().values()[..bytes].to_vec())
    }
}

/// Writes values beside the least one.
fn write(values: &ArrayRef, of: Values, width: Width, out: &mut [u8]) -> Result<(), ArrowError> {
    fn above<T: ArrowPrimitiveType>(
        values: &PrimitiveArray<T>,
        least: i64,
        width: Width,
        out: &mut [u8],
    ) {
        // What is NULL may be any number, and is read by nobody: but each is to be within the bounds.
        let above = |at: usize| match values.is_valid(at) {
            true => values.value(at).to_i64().map_or(0, |value| value.wrapping_sub(least) as u64),
            false => 0,
        };
        put((0..values.len()).map(above), width, out);
    }
    match of {
        Values::Double => {
            let values = values.as_primitive::<Float64Type>().values();
            out.copy_from_slice(bytemuck::cast_slice(values));
        }
        Values::Single => {
            let values = values.as_primitive::<Float32Type>().values();
            out.copy_from_slice(bytemuck::cast_slice(values));
        }
        Values::Whole([least, _]) => {
            let values = values.as_ref();
            downcast_primitive_array!(
                values => above(values, least, width, out),
                other => {
                    return Err(ArrowError::CastError(format!("{other} is no whole number")));
                }
            );
        }
        Values::Texts => {}
    }
    Ok(())
}

/// Writes numbers in so many bytes each.
fn put(numbers: impl Iterator<Item = u64>, width: Width, out: &mut [u8]) {
    match width {
        Width::U8 => out.iter_mut().zip(numbers).for_each(|(to, number)| *to = number as u8),
        Width::U16 => out
            .chunks_exact_mut(2)
            .zip(numbers)
            .for_each(|(to, number)| to.copy_from_slice(&(number as u16).to_ne_bytes())),
        Width::U32 | Width::F32 => out
            .chunks_exact_mut(4)
            .zip(numbers)
            .for_each(|(to, number)| to.copy_from_slice(&(number as u32).to_ne_bytes())),
        Width::U64 | Width::F64 => out
            .chunks_exact_mut(8)
            .zip(numbers)
            .for_each(|(to, number)| to.copy_from_slice(&number.to_ne_bytes())),
    }
}

/// The different texts of a column.
struct Texts {
    codes: FxHashMap<String, u32>,
    all: Vec<String>,
}

impl Texts {
    /// Why a device does not take a column of others.
    const TOO_MANY: &str = "a column of too many different texts";

    fn of(device: &Arc<Device>, column: &TableColumn, cancel: &Cancel) -> Result<Self, Failed> {
        let mut texts = Self { codes: FxHashMap::default(), all: Vec::new() };
        let mut known: Option<ArrayRef> = None;
        for batch in 0..column.batches() {
            cancel.check().map_err(Failed::Stopped)?;
            // A dictionary for all batches is looked at once; it may have texts that no row has.
            let kept = column.encoded(batch, 0..column.rows_of(batch))?;
            let (values, is_same) = match shared_codes(&kept) {
                Some(codes) => {
                    let is_same = known.as_ref().is_some_and(|of| Arc::ptr_eq(of, codes.values()));
                    known = Some(Arc::clone(codes.values()));
                    (Ok(Arc::clone(codes.values())), is_same)
                }
                None => (column.values(batch), false),
            };
            if is_same {
                continue;
            }
            let values = values.and_then(|values| as_views(&values));
            let values = values.map_err(|error| Failed::Unfit(error.to_string()))?;
            for text in values.iter().flatten() {
                if texts.codes.contains_key(text) {
                    continue;
                }
                if texts.all.len() == TEXTS_MAX {
                    // Nobody counts them again.
                    kept::keep(device, column, (Here::Unfit(Self::TOO_MANY), 0.0));
                    return Err(Failed::Unfit(Self::TOO_MANY.into()));
                }
                texts.codes.insert(text.to_owned(), texts.all.len() as u32);
                texts.all.push(text.to_owned());
            }
        }
        Ok(texts)
    }

    fn code(&self, text: Option<&str>) -> u64 {
        text.and_then(|text| self.codes.get(text)).map_or(0, |code| u64::from(*code))
    }

    /// Writes the codes of texts, which are decoded where they have none that their column shares.
    fn write(
        &self,
        encoded: &ArrayRef,
        decoded: impl FnOnce() -> Result<ArrayRef, ArrowError>,
        width: Width,
        out: &mut [u8],
    ) -> Result<(), ArrowError> {
        if let Some(kept) = shared_codes(encoded) {
            let values = as_views(kept.values())?;
            let codes: Vec<u64> = values.iter().map(|text| self.code(text)).collect();
            let keys = kept.keys();
            let code = |at| codes.get(keys.value(at) as usize).copied().unwrap_or(0);
            put((0..keys.len()).map(code), width, out);
            return Ok(());
        }
        let values = as_views(&decoded()?)?;
        put(values.iter().map(|text| self.code(text)), width, out);
        Ok(())
    }

    /// All of them, as the column has them.
    fn array(&self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let all = StringArray::from_iter_values(&self.all);
        cast(&all, data_type)
    }
}

/// Texts, whatever type they have.
fn as_views(texts: &ArrayRef) -> Result<StringViewArray, ArrowError> {
    Ok(cast(texts, &DataType::Utf8View)?.as_string_view().clone())
}
