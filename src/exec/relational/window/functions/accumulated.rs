//! Aggregates of every other kind, by DataFusion's accumulators.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::running::{Ends, Piece, Running};

/// One accumulator for each partition, one after the other.
pub(super) struct Accumulated {
    aggregate: Arc<AggregateFunctionExpr>,
    accumulator: Box<dyn Accumulator>,
}

impl Accumulated {
    /// # Errors
    /// Where DataFusion has no such accumulator.
    pub(super) fn new(aggregate: Arc<AggregateFunctionExpr>) -> Result<Self> {
        Ok(Self { accumulator: aggregate.create_accumulator()?, aggregate })
    }

    fn add(&mut self, arguments: &[ArrayRef], from: usize, to: usize) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let rows: Vec<_> = arguments.iter().map(|values| values.slice(from, to - from)).collect();
        self.accumulator.update_batch(&rows)
    }
}

impl Running for Accumulated {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece, ends: Ends) -> Result<ArrayRef> {
        let every: Vec<usize>;
        let ends = match ends {
            Ends::Every => {
                every = (1..=piece.rows).collect();
                &every
            }
            Ends::After(ends) => ends,
        };
        let mut ends = ends.iter().copied().peekable();
        let mut values = Vec::new();
        for (begins, part) in piece.parts() {
            if begins {
                self.accumulator = self.aggregate.create_accumulator()?;
            }
            let mut row = part.start;
            while let Some(end) = ends.next_if(|&end| end <= part.end) {
                self.add(arguments, row, end)?;
                values.push(self.accumulator.evaluate()?);
                row = end;
            }
            self.add(arguments, row, part.end)?;
        }
        match values.is_empty() {
            true => Ok(new_empty_array(self.aggregate.field().data_type())),
            false => ScalarValue::iter_to_array(values),
        }
    }
}
