//! The rows of a table in an order that is known by their numbers: the host reads their columns, batch by batch.
//!
//! Enters: numbers of rows. Leaves: the rows, a batch at a time, of which threads make as many at once as there are. Only those batches of a table are
//! decoded that a row is in: where few rows are asked for, few of them are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use rayon::prelude::*;

use super::Sorting;
use crate::exec::offload::Failed;
use crate::exec::offload::operator::{Around, Rows};
use crate::exec::relational::joined;
use crate::storage::TableColumn;

/// See the header of this file.
pub(super) struct Gather(Arc<Gathered>);

struct Gathered {
    /// Their numbers, in order.
    rows: Vec<u32>,
    /// The number of the first row of each batch, and the place of a batch among those that are decoded.
    firsts: Vec<usize>,
    places: Vec<usize>,
    /// Of each column the batches that are decoded.
    columns: Vec<Vec<ArrayRef>>,
    read_as: SchemaRef,
    /// What leaves, over these columns.
    given: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

impl Gather {
    /// The rows of these numbers, whose memory is counted.
    ///
    /// # Errors
    /// Where there is none for the columns.
    pub(super) fn new(
        sorting: &Sorting,
        schema: SchemaRef,
        rows: Vec<u32>,
        Around { pool, bytes, .. }: Around<'_>,
    ) -> Result<Self, Failed> {
        let read = &sorting.read;
        let mut firsts = Vec::new();
        if let Some(column) = read.first() {
            let mut first = 0;
            for batch in 0..column.batches() {
                firsts.push(first);
                first += column.rows_of(batch);
            }
        }
        let mut is_read = vec![false; firsts.len()];
        rows.iter().for_each(|row| is_read[batch_of(&firsts, *row as usize)] = true);
        let mut places = vec![0; firsts.len()];
        let mut batches = Vec::new();
        for (batch, _) in is_read.iter().enumerate().filter(|(_, is_read)| **is_read) {
            places[batch] = batches.len();
            batches.push(batch);
        }
        bytes.try_grow(decoded_bytes(read, &batches))?;
        let cells = read.iter().flat_map(|of| batches.iter().map(move |batch| (of, *batch)));
        let cells: Vec<_> = cells.collect();
        let decode = |(of, batch): (&TableColumn, usize)| of.values(batch);
        let decoded: Result<Vec<ArrayRef>, ArrowError> =
            pool.install(|| cells.into_par_iter().map(decode).collect());
        let decoded = decoded?;
        let columns = decoded.chunks(batches.len().max(1)).map(<[ArrayRef]>::to_vec).collect();
        let (read_as, given) = (Arc::clone(&sorting.read_as), sorting.given.clone());
        Ok(Self(Arc::new(Gathered { rows, firsts, places, columns, read_as, given, schema })))
    }
}

/// What these batches of some columns take.
fn decoded_bytes(columns: &[TableColumn], batches: &[usize]) -> usize {
    let share = |column: &TableColumn| {
        let rows: usize = batches.iter().map(|batch| column.rows_of(*batch)).sum();
        column.bytes() as f64 * rows as f64 / column.rows().max(1) as f64
    };
    columns.iter().map(share).sum::<f64>() as usize
}

/// The batch of a row, of which this is the number of the first row of each: the last that has begun.
fn batch_of(firsts: &[usize], row: usize) -> usize {
    firsts.partition_point(|first| *first <= row).saturating_sub(1)
}

impl Gathered {
    /// Some of the rows, by their places in the order.
    fn batch(&self, from: usize, count: usize) -> Result<RecordBatch> {
        let rows = &self.rows[from..(from + count).min(self.rows.len())];
        let cell = |row: &u32| {
            let batch = batch_of(&self.firsts, *row as usize);
            (self.places[batch], *row as usize - self.firsts[batch])
        };
        let cells: Vec<(usize, usize)> = rows.iter().map(cell).collect();
        let columns = self.columns.iter().map(|batches| {
            let batches: Vec<&dyn Array> = batches.iter().map(AsRef::as_ref).collect();
            interleave(&batches, &cells)
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let read = RecordBatch::try_new_with_options(Arc::clone(&self.read_as), columns, &options)?;
        let given = self.given.iter().map(|of| of.evaluate(&read)?.into_array(rows.len()));
        let given = given.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), given, &options)?)
    }
}

impl Rows for Gather {
    fn of(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (all, batch_rows) = (Arc::clone(&self.0), context.session_config().batch_size().max(1));
        let count = if partition == 0 { all.rows.len() } else { 0 };
        // Few rows are gathered before another thread could be asked.
        if count <= batch_rows {
            let some = (count > 0).then(|| all.batch(0, count));
            return stream::iter(some).boxed();
        }
        let threads = context.session_config().target_partitions();
        let batches = stream::iter((0..count).step_by(batch_rows)).map(move |from| {
            let all = Arc::clone(&all);
            let task = SpawnedTask::spawn(async move { all.batch(from, batch_rows) });
            async { joined(task).await? }
        });
        batches.buffered(threads + 1).boxed()
    }
}
