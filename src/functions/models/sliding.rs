//! The sum of a window that slides: rows join at its end and leave at its beginning.
//!
//! Nothing is subtracted, for that would lose digits that no later row brings back. Rows wait in two
//! stacks: the later ones with their sum, and the earlier ones, for each of which there is the sum of it
//! and all that follow up to the later ones. A row that leaves takes one sum off the earlier stack; when
//! that is empty, the later rows are stacked there, last one first. So a row is added three times at most,
//! however long the window is.
//!
//! Source: Tangwongsan, Hirzel, Schneider and Wu, "General incremental sliding-window aggregation",
//! *Proceedings of the VLDB Endowment* 8 (2015), §1.

use arrow::array::ArrayRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::sums::{Call, Groups};
use crate::exec::kernels::moments::{self, Moments};

/// The accumulator of a window that slides.
#[derive(Debug)]
pub(super) struct Sliding {
    call: Call,
    /// Known from the first row on.
    columns: Option<usize>,
    /// The sums of single rows, the last one last.
    later: Vec<f64>,
    /// Their sum; empty where there are none.
    later_sum: Vec<f64>,
    /// The sum from each earlier row on, that of the first row last.
    earlier: Vec<f64>,
}

impl Sliding {
    pub(super) fn new(call: Call) -> Self {
        let (later, later_sum, earlier) = (Vec::new(), Vec::new(), Vec::new());
        Self { call, columns: None, later, later_sum, earlier }
    }

    fn length(&self) -> usize {
        self.columns.map_or(0, moments::length)
    }

    fn push(&mut self, row: &[f64], columns: usize) -> Result<()> {
        self.call.check_columns(self.columns, columns)?;
        self.columns = Some(columns);
        self.later.extend_from_slice(row);
        self.later_sum.resize(row.len(), 0.0);
        moments::join(columns, &mut self.later_sum, row, self.call.summary.center());
        Ok(())
    }

    fn pop(&mut self) {
        let Some(columns) = self.columns else { return };
        let length = self.length();
        if self.earlier.is_empty() {
            let mut sum = vec![0.0; length];
            for row in self.later.chunks_exact(length).rev() {
                let mut from_row = row.to_vec();
                moments::join(columns, &mut from_row, &sum, self.call.summary.center());
                self.earlier.extend_from_slice(&from_row);
                sum = from_row;
            }
            self.later.clear();
            self.later_sum.fill(0.0);
        }
        self.earlier.truncate(self.earlier.len().saturating_sub(length));
    }
}

impl Accumulator for Sliding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut rows = Groups::new(self.call.clone());
        let places: Vec<usize> = (0..values[0].len()).collect();
        rows.update_batch(values, &places, None, places.len())?;
        let rows = rows.take(EmitTo::All);
        let Some(columns) = rows.columns else { return Ok(()) };
        for row in rows.sums.chunks_exact(moments::length(columns)) {
            if Moments::new(columns, row).rows() > 0 {
                self.push(row, columns)?;
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..self.call.rows(values, None)?.count() {
            self.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    /// A window is never cut into parts.
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(self.call.broken("the state of a window"))
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(self.call.broken("the state of a window"))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(columns) = self.columns else { return self.call.value(None) };
        let before = self.earlier.len().saturating_sub(self.length());
        let mut sum = self.earlier[before..].to_vec();
        sum.resize(self.length(), 0.0);
        moments::join(columns, &mut sum, &self.later_sum, self.call.summary.center());
        let sum = Moments::new(columns, &sum);
        self.call.value((sum.rows() > 0).then_some(sum))
    }

    fn size(&self) -> usize {
        let numbers = self.later.capacity() + self.later_sum.capacity() + self.earlier.capacity();
        size_of_val(self) + numbers * size_of::<f64>()
    }
}
