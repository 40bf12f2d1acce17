//! Deals rows out to parts by a hash of their keys: rows that may meet come into the same part.
//!
//! Rows are gathered until they are worth a piece of a file for each part, and dealt then all at once: what
//! waits is one buffer, however many parts there are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::error::Result;
use datafusion::physical_plan::PhysicalExpr;

use super::spec::{Spec, batch};
use super::views::row_bytes;

/// Bytes of a part's share of the buffer: what is written at once.
const PIECE_BYTES: usize = 64 << 10;

/// Parts that one level deals to.
const PARTS: std::ops::RangeInclusive<usize> = 4..=32;

/// The seed of the first level; DataFusion's exchanges and hash tables have others.
const SEED: u64 = 0x5e1e_c7ed_9a27_0001;

/// A place in the buffer costs this beside the row: a hash, and where the row is.
const PLACE_BYTES: usize = 24;

/// Rows on their way to their parts.
pub(super) struct Dealer {
    schema: SchemaRef,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether rows with a NULL for a key go anywhere: they meet nothing, and may be many.
    spreads_nulls: bool,
    spread: u64,
    seed: u64,
    parts: usize,
    buffer: Vec<RecordBatch>,
    buffer_bytes: usize,
    buffer_bytes_max: usize,
}

impl Dealer {
    /// For a side of a join, with so many bytes for its buffer and what is made of it, at a level of its own.
    pub(super) fn new(spec: &Spec, side: usize, working_bytes: usize, level: usize) -> Self {
        let keys = spec.keys(side);
        let parts = if keys.is_empty() { 1 } else { part_count(working_bytes) };
        Self {
            schema: Arc::clone(&spec.sides[side]),
            keys,
            spreads_nulls: spec.nulls_meet_nothing(),
            spread: 0,
            seed: SEED.wrapping_add(level as u64),
            parts,
            buffer: Vec::new(),
            buffer_bytes: 0,
            buffer_bytes_max: working_bytes / 2,
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// Takes rows in; true once there are enough to be dealt.
    pub(super) fn push(&mut self, batch: RecordBatch) -> bool {
        self.buffer_bytes += row_bytes(&batch) + PLACE_BYTES * batch.num_rows();
        self.buffer.push(batch);
        self.buffer_bytes >= self.buffer_bytes_max
    }

    /// Deals what there is. Rows of the parts that are kept stay together and in their order.
    pub(super) fn deal(&mut self, is_kept: &[bool]) -> Result<Dealt> {
        let batches = std::mem::take(&mut self.buffer);
        self.buffer_bytes = 0;
        let mut places = vec![Vec::new(); self.parts + 1];
        let mut hashes = Vec::new();
        for (at, batch) in batches.iter().enumerate() {
            self.hash(batch, &mut hashes)?;
            for (row, hash) in hashes.iter().enumerate() {
                let part = ((u128::from(mixed(*hash)) * self.parts as u128) >> 64) as usize;
                places[if is_kept[part] { self.parts } else { part }].push((at, row));
            }
        }
        Ok(Dealt { schema: Arc::clone(&self.schema), batches, places })
    }

    fn hash(&mut self, batch: &RecordBatch, hashes: &mut Vec<u64>) -> Result<()> {
        let rows = batch.num_rows();
        hashes.clear();
        hashes.resize(rows, 0);
        let keys = self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_>>()?;
        create_hashes(&keys, &RandomState::with_seed(self.seed), hashes)?;
        if self.spreads_nulls
            && let Some(valid) = valid_keys(&keys)
        {
            for row in (0..rows).filter(|&row| valid.is_null(row)) {
                self.spread = self.spread.wrapping_add(1);
                hashes[row] = self.spread;
            }
        }
        Ok(())
    }
}

/// Rows that have been dealt.
pub(super) struct Dealt {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// Batch and row of each row, by part; those of all parts that are kept come last.
    places: Vec<Vec<(usize, usize)>>,
}

impl Dealt {
    /// The rows of a part that is not kept.
    pub(super) fn part(&self, part: usize) -> Result<Option<RecordBatch>> {
        let places = &self.places[part];
        if places.is_empty() {
            return Ok(None);
        }
        let column = |at: usize| {
            let columns: Vec<&dyn Array> =
                self.batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            Ok(interleave(&columns, places)?)
        };
        let columns = (0..self.schema.fields().len()).map(column).collect::<Result<_>>()?;
        batch(&self.schema, columns, places.len()).map(Some)
    }

    /// The rows of all parts that are kept.
    pub(super) fn kept(&self) -> Result<Option<RecordBatch>> {
        self.part(self.places.len() - 1)
    }
}

/// Which rows have no key that is NULL; none where all have.
pub(super) fn valid_keys(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let nulls = keys.iter().map(|key| key.logical_nulls());
    let valid = nulls.fold(None, |valid, nulls| NullBuffer::union(valid.as_ref(), nulls.as_ref()));
    valid.filter(|valid| valid.null_count() > 0)
}

fn part_count(working_bytes: usize) -> usize {
    (working_bytes / 2 / PIECE_BYTES).clamp(*PARTS.start(), *PARTS.end())
}

/// A hash whose first bits depend on all bits of this one.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
