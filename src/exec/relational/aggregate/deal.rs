//! Deals groups out to parts by a hash of their keys, so that all that is known of a group comes into one part.
//!
//! The first level deals as DataFusion's exchanges do, for operators above may rely on where a row leaves; what goes to
//! one output is dealt on by other bits of the same hash.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::create_hashes;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;

use crate::exec::kernels::distinct::{DistinctSketch, mixed};

/// Distances of the hashes of a level from those of the next.
const LEVEL: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where groups go.
#[derive(Clone)]
pub(super) struct Dealer {
    by: Vec<Arc<dyn PhysicalExpr>>,
    /// Outputs that rows leave at.
    outputs: usize,
    /// Parts of what leaves at one.
    pub(super) divisions: usize,
    level: u64,
}

impl Dealer {
    pub(super) fn new(
        by: &[Arc<dyn PhysicalExpr>],
        outputs: usize,
        divisions: usize,
        level: usize,
    ) -> Self {
        Self { by: by.to_vec(), outputs, divisions, level: level as u64 }
    }

    /// All parts, those of one output beside each other.
    pub(super) fn parts(&self) -> usize {
        self.outputs * self.divisions
    }

    /// The hashes of groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn hashes(&self, groups: &RecordBatch) -> Result<Vec<u64>> {
        let key = |key: &Arc<dyn PhysicalExpr>| key.evaluate(groups)?.into_array(groups.num_rows());
        let keys: Vec<ArrayRef> = self.by.iter().map(key).collect::<Result<_>>()?;
        let mut hashes = vec![0; groups.num_rows()];
        create_hashes(&keys, REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
        Ok(hashes)
    }

    /// The groups of each part, in their order; none where a part gets none.
    ///
    /// # Errors
    /// None but Arrow's.
    pub(super) fn deal(
        &self,
        groups: &RecordBatch,
        hashes: &[u64],
    ) -> Result<Vec<Option<RecordBatch>>> {
        let (outputs, divisions) = (self.outputs as u64, self.divisions as u128);
        let offset = self.level.wrapping_mul(LEVEL);
        let part = |hash: u64| {
            let division = (u128::from(mixed(hash.wrapping_add(offset))) * divisions) >> u64::BITS;
            (hash % outputs) as usize * self.divisions + division as usize
        };
        let mut rows = vec![Vec::new(); self.parts()];
        for (row, &hash) in hashes.iter().enumerate() {
            rows[part(hash)].push(row as u32);
        }
        let taken = |rows: Vec<u32>| {
            if rows.is_empty() {
                return Ok(None);
            }
            let taken = take_record_batch(groups, &UInt32Array::from(rows))?;
            let columns = taken.columns().iter().map(with_own_texts).collect::<Result<_>>()?;
            Ok(Some(RecordBatch::try_new(taken.schema(), columns)?))
        };
        rows.into_iter().map(taken).collect()
    }
}

/// A column whose texts point to no others: else each part would hold those of all.
fn with_own_texts(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Utf8View if !column.as_string_view().data_buffers().is_empty() => {
            Arc::new(column.as_string_view().gc())
        }
        DataType::BinaryView if !column.as_binary_view().data_buffers().is_empty() => {
            Arc::new(column.as_binary_view().gc())
        }
        DataType::List(item) => {
            let lists = column.as_list::<i32>();
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            let values = with_own_texts(lists.values())?;
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        _ => Arc::clone(column),
    })
}

/// How many different groups were dealt, about.
pub(super) struct Sketch {
    groups: DistinctSketch,
    dealt: usize,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { groups: DistinctSketch::new(Self::REGISTERS), dealt: 0 }
    }
}

impl Sketch {
    const REGISTERS: usize = 1024;

    /// Looks at the hashes of groups that differ from one another.
    pub(super) fn add(&mut self, hashes: &[u64]) {
        self.dealt += hashes.len();
        hashes.iter().for_each(|&hash| self.groups.add(hash));
    }

    /// Groups that differ, among all that were dealt.
    pub(super) fn different(&self) -> usize {
        (self.groups.count() as usize).min(self.dealt)
    }

    /// Whether groups come back after they were dealt, every other one at least.
    pub(super) fn recurs(&self) -> bool {
        2 * self.different() <= self.dealt
    }
}
