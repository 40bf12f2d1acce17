//! The keys of a build side, and which of its rows a row of the probe side meets by its own.
//!
//! Keys that fit into a word are looked for by that; others by a hash, and whoever is found is compared.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::NullEquality;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::utils::{JoinKeyComparator, JoinOn};

use crate::exec::kernels::lookup::Lookup;
use crate::exec::kernels::word::Word;
use crate::exec::relational::join::deal::valid_keys;
use crate::exec::relational::join::members::BITS_A_ROW;
use crate::exec::relational::packed::Layout;

/// Of hashes that rows are looked for by.
const SEED: u64 = 0x5e1e_c7ed_9a27_00aa;

/// The rows of a build side by their keys.
#[derive(Debug)]
pub(in crate::exec::relational::join) struct Keys {
    null_equality: NullEquality,
    table: Table,
}

#[derive(Debug)]
enum Table {
    Narrow(Layout, Lookup<u64>),
    Wide(Layout, Lookup<u128>),
    /// By hashes of these keys.
    Hashed(Vec<ArrayRef>, Lookup<u64>),
}

/// What the keys of some rows of the probe side have found.
pub(in crate::exec::relational::join) struct Matches {
    /// For each row the place of the first one of the build side, counted from 1; 0 where there is none.
    pub(in crate::exec::relational::join) first: Vec<u32>,
    /// Tells who has been found by a hash alone.
    comparator: Option<JoinKeyComparator>,
}

impl Matches {
    /// Whether all who have been found have the same keys.
    pub(super) fn is_certain(&self) -> bool {
        self.comparator.is_none()
    }

    /// Whether a row of the build side has the keys of one of the probe side that found it.
    pub(super) fn is_equal(&self, build: u32, probe: u32) -> bool {
        let is_equal = |by: &JoinKeyComparator| by.is_equal(build as usize, probe as usize);
        self.comparator.as_ref().is_none_or(is_equal)
    }
}

impl Keys {
    /// The rows of a build side by `on`, found by so many threads.
    ///
    /// # Errors
    /// Where a key cannot be computed.
    pub(in crate::exec::relational::join) fn new(
        on: &JoinOn,
        null_equality: NullEquality,
        build: &RecordBatch,
        probe: &SchemaRef,
        threads: usize,
    ) -> Result<Self> {
        let of_build: Vec<_> = on.iter().map(|(build, _)| Arc::clone(build)).collect();
        let values = evaluated(&of_build, build)?;
        let layout = layout(on, null_equality, [build.schema_ref(), probe])?.filter(|layout| {
            // NULL is no word of its own where there is one column.
            let is_known = null_equality == NullEquality::NullEqualsNothing || !layout.is_alone();
            is_known || valid_keys(&values).is_none()
        });
        let table = match layout {
            Some(layout) if layout.bits <= u64::BITS => {
                packed(&layout, &values, null_equality, threads)
                    .map(|rows| Table::Narrow(layout, rows))
            }
            Some(layout) => packed(&layout, &values, null_equality, threads)
                .map(|rows| Table::Wide(layout, rows)),
            None => None,
        };
        let table = match table {
            Some(table) => table,
            None => {
                let valid = valid(&values, null_equality);
                let rows = Lookup::by_threads(hashes(&values)?, valid.as_ref(), threads);
                Table::Hashed(values, rows)
            }
        };
        Ok(Self { null_equality, table })
    }

    /// Whether no row of the build side can be met.
    pub(super) fn is_empty(&self) -> bool {
        match &self.table {
            Table::Narrow(_, rows) | Table::Hashed(_, rows) => rows.keys() == 0,
            Table::Wide(_, rows) => rows.keys() == 0,
        }
    }

    /// Whether rows are found in an array over the range of the keys.
    pub(super) fn are_in_array(&self) -> bool {
        match &self.table {
            Table::Narrow(_, rows) | Table::Hashed(_, rows) => rows.is_array(),
            Table::Wide(_, rows) => rows.is_array(),
        }
    }

    /// Whether no row of the probe side finds more than one.
    pub(super) fn is_unique(&self) -> bool {
        match &self.table {
            Table::Narrow(_, rows) | Table::Hashed(_, rows) => rows.is_unique(),
            Table::Wide(_, rows) => rows.is_unique(),
        }
    }

    /// Appends rows of the build side from one on whose place is told, so many at most; the place of the one after them, or 0.
    #[inline]
    pub(super) fn append(&self, place: u32, limit: usize, rows: &mut Vec<u32>) -> u32 {
        match &self.table {
            Table::Narrow(_, by_key) | Table::Hashed(_, by_key) => {
                by_key.append(place, limit, rows)
            }
            Table::Wide(_, by_key) => by_key.append(place, limit, rows),
        }
    }

    /// Whom rows of the probe side find that have these keys.
    ///
    /// # Errors
    /// Where keys cannot be compared.
    pub(in crate::exec::relational::join) fn find(&self, values: Vec<ArrayRef>) -> Result<Matches> {
        let mut first = Vec::new();
        let comparator = match &self.table {
            Table::Narrow(layout, rows) => {
                find_packed(layout, rows, &values, self.null_equality, &mut first);
                None
            }
            Table::Wide(layout, rows) => {
                find_packed(layout, rows, &values, self.null_equality, &mut first);
                None
            }
            Table::Hashed(keys, rows) => {
                let valid = valid(&values, self.null_equality);
                rows.first(&hashes(&values)?, valid.as_ref(), &mut first);
                let options = vec![SortOptions::default(); keys.len()];
                Some(JoinKeyComparator::new(keys, &values, &options, self.null_equality)?)
            }
        };
        Ok(Matches { first, comparator })
    }
}

/// The keys of some rows.
///
/// # Errors
/// Where one cannot be computed.
pub(in crate::exec::relational::join) fn evaluated(
    keys: &[PhysicalExprRef],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    keys.iter().map(|key| key.evaluate(rows)?.into_array(rows.num_rows())).collect()
}

/// How the keys of both sides lie in words; none where they do not, or are not of the same types.
fn layout(
    on: &JoinOn,
    null_equality: NullEquality,
    sides: [&SchemaRef; 2],
) -> Result<Option<Layout>> {
    let mut fields = Vec::with_capacity(on.len());
    for (build, probe) in on {
        let data_type = build.data_type(sides[0])?;
        if data_type != probe.data_type(sides[1])? {
            return Ok(None);
        }
        fields.push(Field::new(fields.len().to_string(), data_type, true));
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(match null_equality {
        NullEquality::NullEqualsNothing => Layout::of_valid_rows(&schema),
        NullEquality::NullEqualsNull => Layout::of(&schema),
    })
}

/// Bytes of what is made of the keys of so many rows at most.
pub(super) fn bytes_max(
    on: &JoinOn,
    null_equality: NullEquality,
    sides: [&SchemaRef; 2],
    rows: usize,
) -> usize {
    let table = match layout(on, null_equality, sides) {
        Ok(Some(layout)) if layout.bits > u64::BITS => Lookup::<u128>::bytes_max(rows),
        _ => Lookup::<u64>::bytes_max(rows),
    };
    // What scans are told of each of several keys by itself.
    let told = if on.len() > 1 { on.len() * rows * BITS_A_ROW / 8 } else { 0 };
    table + told
}

/// The rows that may meet others; none where all may.
fn valid(values: &[ArrayRef], null_equality: NullEquality) -> Option<NullBuffer> {
    match null_equality {
        NullEquality::NullEqualsNothing => valid_keys(values),
        NullEquality::NullEqualsNull => None,
    }
}

/// The rows whose words mean something; none where all do.
fn valid_words(
    layout: &Layout,
    values: &[ArrayRef],
    null_equality: NullEquality,
) -> Option<NullBuffer> {
    if layout.is_alone() { valid_keys(values) } else { valid(values, null_equality) }
}

/// Rows by their keys in words; none where a text is too long for that.
fn packed<W: Word>(
    layout: &Layout,
    values: &[ArrayRef],
    null_equality: NullEquality,
    threads: usize,
) -> Option<Lookup<W>> {
    let mut words = Vec::new();
    if !layout.pack(values, &mut words) {
        return None;
    }
    let valid = valid_words(layout, values, null_equality);
    Some(Lookup::by_threads(words, valid.as_ref(), threads))
}

fn find_packed<W: Word>(
    layout: &Layout,
    rows: &Lookup<W>,
    values: &[ArrayRef],
    null_equality: NullEquality,
    first: &mut Vec<u32>,
) {
    let mut words = Vec::new();
    let mut valid = valid_words(layout, values, null_equality);
    if !layout.pack(values, &mut words) {
        // No row of the build side has a text that is too long.
        valid = NullBuffer::union(valid.as_ref(), Some(&layout.fitting(values)));
    }
    rows.first(&words, valid.as_ref(), first);
}

fn hashes(values: &[ArrayRef]) -> Result<Vec<u64>> {
    let mut hashes = vec![0; values.first().map_or(0, |values| values.len())];
    create_hashes(values, &RandomState::with_seed(SEED), &mut hashes)?;
    Ok(hashes)
}
