//! A column of a table in a device's memory: as few bytes for each value as tell it from the least one, and a bit for whether there is
//! one.
//!
//! ```text
//! 17, 21, NULL, 18   ─►   0, 4, 0, 1 beside 17          bits 1101
//! 'b', 'a', 'b'      ─►   0, 1, 0 beside 'b', 'a'
//! ```
//!
//! Here is how it lies there. How its values become such cells is `coded`, and how those come over `batches`.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};

use super::term::Values;
use crate::gpu::Buffer;

/// Cells that a thread of a device reads at once, which a column's memory ends with.
pub(in crate::exec::offload) const PACK: usize = 8;

/// What a cell of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec::offload) enum Width {
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl Width {
    /// The narrowest for numbers up to this one.
    pub(super) fn of(greatest: u64) -> Self {
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

/// How a column lies there.
#[derive(Debug, Clone)]
pub(in crate::exec::offload) struct Form {
    pub(in crate::exec::offload) width: Width,
    pub(in crate::exec::offload) is_nullable: bool,
    /// The texts, by their codes.
    pub(in crate::exec::offload) texts: Option<ArrayRef>,
}

impl Form {
    /// Bytes of the cells of so many rows, and of the bits of those that have a value.
    pub(super) fn bytes(&self, rows: usize) -> [usize; 2] {
        let packs = rows.div_ceil(PACK);
        [packs * PACK * self.width.bytes(), if self.is_nullable { packs } else { 0 }]
    }
}

/// A column that is there, or some of its rows. A copy shares its memory.
#[derive(Clone)]
pub(crate) struct Column {
    pub(in crate::exec::offload) form: Form,
    pub(in crate::exec::offload) cells: Arc<Buffer>,
    /// A bit for each row that has a value, where some have none.
    pub(in crate::exec::offload) valid: Option<Arc<Buffer>>,
}

impl Column {
    /// How many different texts there are, where it has any.
    pub(in crate::exec::offload) fn texts(&self) -> Option<usize> {
        self.form.texts.as_ref().map(|texts| texts.len())
    }

    pub(in crate::exec::offload) fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        [Some(&self.cells), self.valid.as_ref()].into_iter().flatten()
    }
}

/// Bytes that a column takes of a device's memory, as far as that is known before it was read.
pub(crate) fn expected_bytes(rows: usize, values: Values, is_nullable: bool) -> usize {
    let form = Form { width: Width::expected(values), is_nullable, texts: None };
    form.bytes(rows).iter().sum()
}
