//! Columns of the first row of each row's frame, where that lies any way before or after.
//!
//! Enters: rows in the order of their partitions and places (`offsets`). Leaves: the same batches with a column for each
//! expression, its value at the first row of the frame. Rows are read twice (`readers`), as those that look for their first
//! and as those that may be it: what waits is values of rows before, or rows for values to come.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{concat, interleave};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::stream;

use super::super::recipe::Made;
use super::super::{with_columns, with_fields};
use super::offsets::Offset;
use super::pointer::{Found, Pointer};
use super::readers::{OTHERS, Reader, Readers};
use crate::exec::relational::feed::adapted;

/// Where a value is: with one of the candidates, or nowhere.
const HERE: usize = 0;
const NOWHERE: usize = 1;

/// The rows of one stream on their way.
pub(in super::super) struct Firsts {
    readers: Readers,
    first: Pointer,
    schema: SchemaRef,
    /// Of each column the value where a frame has no rows.
    of_none: Vec<ArrayRef>,
}

impl Firsts {
    /// # Errors
    /// Those of arrays of the values where there are no rows.
    pub(in super::super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        offset: &Offset,
        made: &[Made<ScalarValue>],
        context: &Arc<TaskContext>,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let schema = with_fields(&input.schema(), made);
        let mut readers = Readers::new(input, partition_by, offset, context, spills)?;
        let values = made.iter().flat_map(|made| made.arguments.clone()).collect();
        let fields: Vec<_> = made.iter().map(|made| Arc::clone(&made.field)).collect();
        let first = Pointer::new(offset.clone(), readers.add(values, &fields));
        let of_none = made.iter().map(|made| made.function.to_array()).collect::<Result<_>>()?;
        Ok(Self { readers, first, schema, of_none })
    }

    /// The batches with their columns.
    pub(in super::super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut firsts| async {
            Ok(firsts.next().await?.map(|batch| (batch, firsts)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.readers.next(Reader::Rows).await? else { return Ok(None) };
        let targets = self.first.targets(&rows)?;
        let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.of_none.len()];
        let mut known = 0;
        loop {
            let found = self.first.found(&rows, &targets, known)?;
            known += found.len();
            let place =
                |found: &Found| if found.is_within { (HERE, found.row) } else { (NOWHERE, 0) };
            let places: Vec<_> = found.iter().map(place).collect();
            for (at, pieces) in pieces.iter_mut().enumerate().filter(|_| !places.is_empty()) {
                let values = [self.first.candidates().column(OTHERS + at), &self.of_none[at]];
                pieces.push(interleave(&values.map(AsRef::as_ref), &places)?);
            }
            if known == rows.num_rows() {
                break;
            }
            self.first.go_on(&mut self.readers).await?;
        }
        let columns = pieces.iter().map(|pieces| {
            let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
            Ok(concat(&pieces)?)
        });
        let others: Vec<usize> = (OTHERS..rows.num_columns()).collect();
        with_columns(&rows.project(&others)?, columns.collect::<Result<_>>()?, &self.schema)
            .map(Some)
    }
}
