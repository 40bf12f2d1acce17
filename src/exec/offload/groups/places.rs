//! Where a table has the row of each key: a number for each value that a key may have.
//!
//! ```text
//! key          row of each number above the least key, from 1
//! 12, 10, 13   ─►   2, 0, 1, 3
//! ```
//!
//! So a join by such a key is a look at one place, and what it finds are the other columns of that row. It is made on the device from
//! the column that is there, and stays as columns do.

use std::borrow::Cow;
use std::sync::Arc;

use super::column::{Column, PACK};
use super::term::Values;
use crate::exec::offload::kept::{self, Here, Owner};
use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Argument, Buffer, Launch, Source, Work};
use crate::storage::TableColumn;

/// The only entry of the text that makes them.
const ENTRY: &str = "place_rows";

/// The rows of a table by one of its columns. A copy shares its memory.
#[derive(Clone)]
pub(crate) struct Places {
    /// For each number above the least key, the row that has it, from 1, or none.
    pub(in crate::exec::offload) rows: Arc<Buffer>,
    /// How many numbers there are.
    pub(super) numbers: usize,
}

/// What they take of a device's memory, for keys between these.
pub(crate) fn places_bytes([least, greatest]: [i64; 2]) -> usize {
    let numbers = usize::try_from(greatest.abs_diff(least)).unwrap_or(usize::MAX);
    numbers.saturating_add(1).saturating_mul(size_of::<u32>())
}

impl Queue<'_> {
    /// The places of a key that is there as this column, kept where `keeps`.
    pub(super) fn places(
        &self,
        of: &TableColumn,
        values: Values,
        column: &Column,
        keeps: bool,
    ) -> Result<Places, Failed> {
        let owner = || Owner::Places(of.same());
        if let Some(Here::Places(places)) = kept::find(owner()) {
            return Ok(places);
        }
        let places = self.made(of.rows(), values, column)?;
        if keeps {
            kept::keep(owner(), Here::Places(places.clone()));
        }
        Ok(places)
    }

    /// Places for a column of so many rows, no two of which have the same value.
    pub(super) fn made(
        &self,
        rows: usize,
        values: Values,
        column: &Column,
    ) -> Result<Places, Failed> {
        let Values::Whole(bounds) = values else {
            return Err(Failed::Unfit("a key of no whole numbers".into()));
        };
        if u32::try_from(rows).is_err() {
            return Err(Failed::Unfit("more rows than have a place on a device".into()));
        }
        let bytes = places_bytes(bounds);
        let allocate = || self.stream.alloc(bytes, "the rows of keys");
        let places = self.with_room(bytes, allocate)?;
        self.stream.clear(&places)?;
        let source = Source {
            text: Cow::Owned(text(column)),
            headers: HEADERS,
            entry: ENTRY.into(),
            contracts: false,
        };
        let kernel = self.device.kernel(&source)?;
        let work = Work::Threads(rows.div_ceil(PACK) as u64);
        let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
        let valid = column.valid.as_ref().unwrap_or(&column.cells);
        let given = [
            Argument::Buffer(&places),
            Argument::U64(rows as u64),
            Argument::Buffer(&column.cells),
            Argument::Buffer(valid),
        ];
        self.stream.launch(&kernel, launch, &given)?;
        Ok(Places { rows: Arc::new(places), numbers: bytes / size_of::<u32>() })
    }
}

/// The text that gives each row its place.
fn text(column: &Column) -> String {
    written(&column.width.to_string(), column.valid.is_some())
}

pub(super) fn written(width: &str, is_nullable: bool) -> String {
    let valid = if is_nullable { "valid" } else { "nullptr" };
    let given = format!(
        "u32* __restrict__ places, u64 rows, const {width}* __restrict__ cells, const u8* __restrict__ valid"
    );
    format!(
        "#include \"groups.cuh\"\n\n\
         extern \"C\" __global__ void __launch_bounds__(THREADS) {ENTRY}({given}) {{\n    \
             place(places, rows, cells, {valid});\n\
         }}\n"
    )
}
