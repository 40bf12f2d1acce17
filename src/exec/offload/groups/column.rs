//! A column of a table in a device's memory: as few bytes for each value as tell it from the least one, and a bit for whether there is
//! one.
//!
//! ```text
//! 17, 21, NULL, 18   ─►   0, 4, 0, 1 beside 17          bits 1101
//! 'b', 'a', 'b'      ─►   0, 1, 0 beside 'b', 'a'
//! ```
//!
//! It is brought batch by batch, a few at a time, decoded by as many threads as there are. Texts are codes in the order in which they
//! come; of many different ones there are none.

use std::fmt;
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

use super::run::Around;
use super::term::Values;
use crate::encoding::shared_codes;
use crate::exec::offload::kept::{self, Here};
use crate::exec::offload::{Failed, Queue};
use crate::exec::run::Cancel;
use crate::gpu::Buffer;
use crate::storage::TableColumn;

/// Rows that are brought at a time, and cells that a thread of a device reads at once, which a column's memory ends with.
const ROWS_AT_ONCE: usize = 1 << 20;
pub(super) const PACK: usize = 8;

/// Different texts of a column at most.
const TEXTS_MAX: usize = 1 << 16;

/// What a cell of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl Width {
    /// The narrowest for numbers up to this one.
    fn of(greatest: u64) -> Self {
        match greatest {
            0..=0xff => Self::U8,
            0x100..=0xffff => Self::U16,
            0x1_0000..=0xffff_ffff => Self::U32,
            _ => Self::U64,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::F32 => 4,
            Self::U64 | Self::F64 => 8,
        }
    }

    /// That of the values of a column; of texts nobody knows before they were read.
    pub(super) fn expected(values: Values) -> Self {
        match values {
            Values::Whole([least, greatest]) => Self::of(greatest.abs_diff(least)),
            Values::Double => Self::F64,
            Values::Single => Self::F32,
            Values::Texts => Self::U8,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

/// A column that is there. A copy shares its memory.
#[derive(Clone)]
pub(crate) struct Column {
    pub(super) width: Width,
    pub(super) cells: Arc<Buffer>,
    /// A bit for each row that has a value, where some have none.
    pub(super) valid: Option<Arc<Buffer>>,
    /// The texts, by their codes.
    pub(super) texts: Option<ArrayRef>,
}

impl Column {
    /// How many different texts there are, where it has any.
    pub(in crate::exec::offload) fn texts(&self) -> Option<usize> {
        self.texts.as_ref().map(|texts| texts.len())
    }

    pub(in crate::exec::offload) fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        [Some(&self.cells), self.valid.as_ref()].into_iter().flatten()
    }
}

/// Bytes that a column takes of a device's memory, as far as that is known before it was read.
pub(crate) fn expected_bytes(rows: usize, values: Values, is_nullable: bool) -> usize {
    let packs = rows.div_ceil(PACK);
    packs * PACK * Width::expected(values).bytes() + if is_nullable { packs } else { 0 }
}

impl Queue<'_> {
    /// A column with these values.
    pub(super) fn column(
        &self,
        of: &TableColumn,
        values: Values,
        Around { pool, cancel, bytes: counted }: Around<'_>,
    ) -> Result<Column, Failed> {
        let texts = match values {
            Values::Texts => Some(Texts::of(of, cancel)?),
            _ => None,
        };
        let width = match &texts {
            Some(texts) => Width::of(texts.all.len() as u64),
            None => Width::expected(values),
        };
        let valid = match of.nulls() {
            0 => None,
            _ => Some(Arc::new(self.bits(of)?)),
        };
        let bytes = of.rows().div_ceil(PACK) * PACK * width.bytes();
        let what = "a column of a table";
        let cells = self.with_room(bytes, || self.stream.alloc(bytes, what))?;
        let mut batches = 0..of.batches();
        let mut first = 0;
        while !batches.is_empty() {
            cancel.check().map_err(Failed::Stopped)?;
            let (mut rows, start) = (0, batches.start);
            for batch in batches.by_ref() {
                rows += of.rows_of(batch);
                if rows >= ROWS_AT_ONCE {
                    break;
                }
            }
            counted.try_grow(rows * width.bytes())?;
            let mut piece = vec![0; rows * width.bytes()];
            let mut left = piece.as_mut_slice();
            let mut parts = Vec::new();
            for batch in start..batches.start {
                let (part, rest) = left.split_at_mut(of.rows_of(batch) * width.bytes());
                parts.push((batch, part));
                left = rest;
            }
            let fill = |(batch, out): (usize, &mut [u8])| match &texts {
                Some(texts) => texts.write(of, batch, width, out),
                None => write(&of.values(batch)?, values, width, out),
            };
            let filled = pool.install(|| parts.into_par_iter().try_for_each(fill));
            filled.map_err(|error| Failed::Unfit(error.to_string()))?;
            self.stream.write(&cells, first, &piece)?;
            first += piece.len();
            counted.shrink(piece.len());
        }
        let texts = texts.map(|texts| texts.array(of.data_type())).transpose();
        let texts = texts.map_err(|error| Failed::Unfit(error.to_string()))?;
        Ok(Column { width, cells: Arc::new(cells), valid, texts })
    }

    /// A bit for each row that has a value.
    fn bits(&self, of: &TableColumn) -> Result<Buffer, Failed> {
        let mut bits = BooleanBufferBuilder::new(of.rows());
        for batch in 0..of.batches() {
            let kept = of.encoded(batch)?;
            match kept.logical_nulls() {
                Some(nulls) => bits.append_buffer(nulls.inner()),
                None => bits.append_n(kept.len(), true),
            }
        }
        let bits = bits.finish();
        let bytes = &bits.values()[..of.rows().div_ceil(PACK)];
        let what = "what is NULL of a column";
        self.with_room(bytes.len(), || self.stream.upload(bytes, what))
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

    fn of(column: &TableColumn, cancel: &Cancel) -> Result<Self, Failed> {
        let mut texts = Self { codes: FxHashMap::default(), all: Vec::new() };
        let mut known: Option<ArrayRef> = None;
        for batch in 0..column.batches() {
            cancel.check().map_err(Failed::Stopped)?;
            // A dictionary for all batches is looked at once; it may have texts that no row has.
            let kept = column.encoded(batch)?;
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
                    kept::keep(column, Here::Unfit(Self::TOO_MANY));
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

    /// Writes the codes of a batch.
    fn write(
        &self,
        column: &TableColumn,
        batch: usize,
        width: Width,
        out: &mut [u8],
    ) -> Result<(), ArrowError> {
        let encoded = column.encoded(batch)?;
        if let Some(kept) = shared_codes(&encoded) {
            let values = as_views(kept.values())?;
            let codes: Vec<u64> = values.iter().map(|text| self.code(text)).collect();
            let keys = kept.keys();
            let code = |at| codes.get(keys.value(at) as usize).copied().unwrap_or(0);
            put((0..keys.len()).map(code), width, out);
            return Ok(());
        }
        let values = as_views(&column.values(batch)?)?;
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
