//! Where a table has the row of each key: a place for each value that a key may have, or slots for those that it has.
//!
//! ```text
//! near         row of each number above the least key, from 1          far          codes and rows of slots
//! 12, 10, 13   ─►   2, 0, 1, 3                                         (7, 10^9)    ─►   …, code, … beside …, 1, …
//! ```
//!
//! So a join by such a key is a look at one place, and what it finds are the other columns of that row. They are made on the device from
//! the columns that are there, and stay as columns do. That no two rows share a near key is known before; of far ones it turns out here.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use super::batches::Lies;
use super::column::{Column, PACK, Width};
use super::term::Values;
use super::{Asked, Join};
use crate::exec::offload::kept::{self, Here, Owner};
use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Argument, Buffer, Launch, Source, Work};

/// The entries of the texts that make them.
const PLACE: &str = "place_rows";
const CLEAR: &str = "clear_slots";

/// Slots at least, and how often they become twice as many, because a code found none, before there is no hope.
const SLOTS_MIN: usize = 1 << 10;
const DOUBLED_MAX: usize = 3;

/// The rows of a table by some of its columns. A copy shares its memory.
#[derive(Clone)]
pub(crate) struct Places {
    /// For each number above the least key, or each slot, the row that has it, from 1, or none.
    pub(super) rows: Arc<Buffer>,
    /// The codes of slots.
    pub(super) codes: Option<Arc<Buffer>>,
    /// How many numbers, or slots, there are.
    pub(super) numbers: usize,
}

impl Places {
    pub(in crate::exec::offload) fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        [Some(&self.rows), self.codes.as_ref()].into_iter().flatten()
    }
}

/// What those of a join take of a device's memory.
pub(crate) fn places_bytes(asked: &Asked, join: &Join) -> usize {
    let key = join.key.first().map_or(Values::Texts, |key| asked.values[*key]);
    match join.is_near {
        true => (key.numbers() as usize).saturating_mul(size_of::<u32>()),
        false => {
            let rows = join.key.first().map_or(0, |key| asked.columns[*key].rows());
            slots(rows).saturating_mul(size_of::<u32>() + size_of::<u64>())
        }
    }
}

/// Twice as many as rows.
fn slots(rows: usize) -> usize {
    rows.saturating_mul(2).next_power_of_two().max(SLOTS_MIN)
}

/// By which the places of a key are kept.
pub(in crate::exec::offload) fn owner(asked: &Asked, join: &Join) -> Owner {
    Owner::Places(join.key.iter().map(|key| asked.columns[*key].same()).collect())
}

impl Queue<'_> {
    /// The places of a join, whose key is there among these columns, kept where `keeps`.
    pub(super) fn places(
        &self,
        asked: &Asked,
        join: &Join,
        columns: &[Lies<'_>],
        keeps: bool,
    ) -> Result<Places, Failed> {
        match kept::find(self.device, owner(asked, join)) {
            Some(Here::Places(places)) => return Ok(places),
            Some(Here::Unfit(why)) => return Err(Failed::Refused(why.into())),
            _ => {}
        }
        let keys = join.key.iter().map(|key| match &columns[*key] {
            Lies::There(column) => Ok((asked.values[*key], column)),
            Lies::Coming(_) => Err(Failed::Unfit("a key that is not there yet".into())),
        });
        let keys: Vec<(Values, &Column)> = keys.collect::<Result<_, _>>()?;
        let rows = join.key.first().map_or(0, |key| asked.columns[*key].rows());
        let began = Instant::now();
        let places = match (join.is_near, &keys[..]) {
            (true, [(values, column)]) => self.near(rows, *values, column)?,
            _ => self.far(rows, &keys).inspect_err(|failed| {
                if let Failed::Refused(_) = failed {
                    kept::keep(self.device, owner(asked, join), (Here::Unfit(TWICE), 0.0));
                }
            })?,
        };
        if keeps {
            let bytes: usize = places.buffers().map(|buffer| buffer.bytes()).sum();
            let each = began.elapsed().as_secs_f64() / bytes.max(1) as f64;
            kept::keep(self.device, owner(asked, join), (Here::Places(places.clone()), each));
        }
        Ok(places)
    }

    /// Places for a column of so many rows, no two of which have the same value.
    pub(super) fn near(
        &self,
        rows: usize,
        values: Values,
        column: &Column,
    ) -> Result<Places, Failed> {
        check(rows)?;
        let numbers = values.numbers() as usize;
        let places = self.cleared(numbers * size_of::<u32>(), "the rows of keys")?;
        let text = near_text(&column.form.width.to_string(), column.valid.is_some());
        let given = [Argument::Buffer(&places), Argument::U64(rows as u64)];
        let key = [Argument::Buffer(&column.cells), valid(column)];
        self.run_text(&text, PLACE, rows.div_ceil(PACK), &[given, key].concat())?;
        Ok(Places { rows: Arc::new(places), codes: None, numbers })
    }

    /// Places for columns of so many rows, if no two of these have the same values.
    pub(super) fn far(&self, rows: usize, keys: &[(Values, &Column)]) -> Result<Places, Failed> {
        check(rows)?;
        let kinds = keys.iter().map(|(_, column)| (column.form.width, column.form.is_nullable));
        let text = far_text(&Vec::from_iter(kinds));
        let key = keys.iter().flat_map(|(values, column)| {
            let cells = Argument::Buffer(&column.cells);
            [cells, valid(column), Argument::U64(values.numbers())]
        });
        let key: Vec<Argument<'_>> = key.collect();
        let mut slots = slots(rows);
        for _ in 0..=DOUBLED_MAX {
            let what = "the slots of keys";
            let places = self.cleared(slots * size_of::<u32>(), what)?;
            let bytes = slots * size_of::<u64>();
            let codes = self.with_room(bytes, || self.stream.alloc(bytes, what))?;
            let told = self.cleared(2 * size_of::<u32>(), what)?;
            let given = [Argument::Buffer(&codes), Argument::U64(slots as u64)];
            self.run_text(&text, CLEAR, slots, &given)?;
            let head = [Argument::Buffer(&places), Argument::U64(rows as u64)];
            let given = [&head[..], &given, &[Argument::Buffer(&told)], &key].concat();
            self.run_text(&text, PLACE, rows.div_ceil(PACK), &given)?;
            let mut found = [0_u32; 2];
            self.back(&told, &mut found)?;
            match found {
                [_, 1] => return Err(Failed::Refused(TWICE.into())),
                [0, _] => {
                    let (rows, codes) = (Arc::new(places), Some(Arc::new(codes)));
                    return Ok(Places { rows, codes, numbers: slots });
                }
                _ => slots *= 2,
            }
        }
        Err(Failed::Refused("keys that find no slots".into()))
    }

    fn cleared(&self, bytes: usize, what: &str) -> Result<Buffer, Failed> {
        let buffer = self.with_room(bytes, || self.stream.alloc(bytes, what))?;
        self.stream.clear(&buffer)?;
        Ok(buffer)
    }

    fn run_text(
        &self,
        text: &str,
        entry: &'static str,
        threads: usize,
        given: &[Argument<'_>],
    ) -> Result<(), Failed> {
        let source = Source {
            text: Cow::Owned(text.to_owned()),
            headers: HEADERS,
            entry: Cow::Borrowed(entry),
            contracts: false,
        };
        let kernel = self.device.kernel(&source)?;
        let work = Work::Threads(threads as u64);
        let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
        Ok(self.stream.launch(&kernel, launch, given)?)
    }
}

/// Why a key is none.
const TWICE: &str = "two rows of a table share the key that it would be looked up by";

fn check(rows: usize) -> Result<(), Failed> {
    let why = || Failed::Unfit("more rows than have a place on a device".into());
    u32::try_from(rows).map(drop).map_err(|_| why())
}

fn valid(column: &Column) -> Argument<'_> {
    Argument::Buffer(column.valid.as_ref().unwrap_or(&column.cells))
}

const HEAD: &str = "extern \"C\" __global__ void __launch_bounds__(THREADS)";

/// The text that gives each row of a column the place of its number.
pub(super) fn near_text(width: &str, is_nullable: bool) -> String {
    let valid = if is_nullable { "valid" } else { "nullptr" };
    let given = format!(
        "u32* __restrict__ places, u64 rows, const {width}* __restrict__ cells, const u8* __restrict__ valid"
    );
    format!(
        "#include \"groups.cuh\"\n\n{HEAD} {PLACE}({given}) {{\n    place(places, rows, cells, {valid});\n}}\n"
    )
}

/// The text that gives each row of some columns a slot.
pub(super) fn far_text(columns: &[(Width, bool)]) -> String {
    let (mut given, mut known) = (String::new(), String::from("true"));
    let mut code = String::from("0");
    for (at, (width, is_nullable)) in columns.iter().enumerate().rev() {
        code = format!("c{at}[row] + s{at} * ({code})");
        if *is_nullable {
            let _ = write!(known, " && is_valid(n{at}, row)");
        }
        let own =
            format!(", const {width}* __restrict__ c{at}, const u8* __restrict__ n{at}, u64 s{at}");
        given.insert_str(0, &own);
    }
    format!(
        "#include \"slots.cuh\"\n\n\
         {HEAD} {CLEAR}(u64* codes, u64 slots) {{\n    clear_codes(codes, slots);\n}}\n\n\
         {HEAD} {PLACE}(u32* __restrict__ places, u64 rows, u64* codes, u64 slots, u32* told{given}) {{\n    \
             place_far(places, rows, Slots{{codes, slots - 1, told}}, told + 1, [&](u64 pack, u32 k, u64& code) {{\n        \
                 const u32 row = (u32)(pack * PACK + k);\n        \
                 code = {code};\n        \
                 return {known};\n    \
             }});\n\
         }}\n"
    )
}
