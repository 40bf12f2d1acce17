//! Where rows in order begin to have other keys: partitions by PARTITION BY, peers by ORDER BY.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::{concat, partition};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;

/// Looks for other keys in batches that follow one another.
pub(super) struct Boundaries {
    by: Vec<Arc<dyn PhysicalExpr>>,
    /// The keys of the last row.
    last: Option<Vec<ArrayRef>>,
    /// How often they have changed, of the rows that were numbered.
    changes: i64,
}

impl Boundaries {
    pub(super) fn new(by: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { by, last: None, changes: 0 }
    }

    /// The rows whose keys are not those of the row before; of all batches the first row is one, where there are keys.
    ///
    /// # Errors
    /// Those of evaluating the keys.
    pub(super) fn starts(&mut self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let rows = batch.num_rows();
        if self.by.is_empty() || rows == 0 {
            return Ok(Vec::new());
        }
        let keys = self.by.iter().map(|key| key.evaluate(batch)?.into_array(rows));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let mut starts: Vec<usize> =
            partition(&keys)?.ranges().into_iter().map(|range| range.start).collect();
        if let Some(last) = &self.last {
            let pairs = last.iter().zip(&keys);
            let pairs = pairs.map(|(last, keys)| concat(&[last.as_ref(), &keys.slice(0, 1)]));
            if partition(&pairs.collect::<Result<Vec<_>, _>>()?)?.len() == 1 {
                starts.remove(0);
            }
        }
        // One row of its own, for a slice would hold the whole batch.
        let last = keys.iter().map(|key| concat(&[&key.slice(rows - 1, 1)]));
        self.last = Some(last.collect::<Result<Vec<_>, _>>()?);
        Ok(starts)
    }
    /// Of each row a number, which is another one from each start on.
    ///
    /// # Errors
    /// Those of evaluating the keys.
    pub(super) fn numbers(&mut self, batch: &RecordBatch) -> Result<Int64Array> {
        let mut numbers = Vec::with_capacity(batch.num_rows());
        for start in self.starts(batch)? {
            numbers.resize(start, self.changes);
            self.changes += 1;
        }
        numbers.resize(batch.num_rows(), self.changes);
        Ok(Int64Array::from(numbers))
    }
}
