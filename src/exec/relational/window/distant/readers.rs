//! Rows that are read several times, each time in their order and at a pace of its own: what one reader has before another
//! waits for it in a queue.
//!
//! ```text
//! rows ─┬─ queue of rows ─────────────── the rows themselves
//!       ├─ queue of places and values ── as those at an end of frames
//!       └─ …
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::StreamExt;

use super::super::boundaries::Boundaries;
use super::super::evaluated;
use super::offsets::{Offset, Places};
use super::queue::Queue;

/// The columns that rows have in all queues: the number of their partition and their place. Others follow.
pub(super) const PARTITION: usize = 0;
pub(super) const PLACE: usize = 1;
pub(super) const OTHERS: usize = 2;

/// The rows of one stream, and their readers.
pub(super) struct Readers {
    input: SendableRecordBatchStream,
    has_ended: bool,
    partitions: Boundaries,
    places: Places,
    own: [FieldRef; OTHERS],
    rows: Queue,
    row_schema: SchemaRef,
    values: Vec<Values>,
    context: Arc<TaskContext>,
    spills: SpillMetrics,
}

/// What one reader is given of each row.
struct Values {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    queue: Queue,
}

/// As what rows are read.
#[derive(Clone, Copy)]
pub(super) enum Reader {
    Rows,
    Values(usize),
}

impl Readers {
    /// One of the rows, each with its place as the offset counts.
    ///
    /// # Errors
    /// Where the key of places is none of the rows' columns.
    pub(super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        offset: &Offset,
        context: &Arc<TaskContext>,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let own = [
            Arc::new(Field::new("partition", DataType::Int64, false)),
            Arc::new(Field::new("place", offset.place_type(&input.schema())?, true)),
        ];
        let row_schema = with_own(&own, input.schema().fields());
        Ok(Self {
            input,
            has_ended: false,
            partitions: Boundaries::new(partition_by.to_vec()),
            places: offset.places(),
            own,
            rows: Queue::new(&row_schema, context, spills),
            row_schema,
            values: Vec::new(),
            context: Arc::clone(context),
            spills: spills.clone(),
        })
    }

    /// One more, of the values of some expressions, and the schema of what it reads.
    pub(super) fn add(
        &mut self,
        expressions: Vec<Arc<dyn PhysicalExpr>>,
        fields: &[FieldRef],
    ) -> (Reader, SchemaRef) {
        let schema = with_own(&self.own, fields);
        let queue = Queue::new(&schema, &self.context, &self.spills);
        self.values.push(Values { expressions, schema: Arc::clone(&schema), queue });
        (Reader::Values(self.values.len() - 1), schema)
    }

    /// The next batch for one of them.
    ///
    /// # Errors
    /// Those of the rows, and of files.
    pub(super) async fn next(&mut self, reader: Reader) -> Result<Option<RecordBatch>> {
        loop {
            let queue = match reader {
                Reader::Rows => &mut self.rows,
                Reader::Values(at) => &mut self.values[at].queue,
            };
            if let Some(batch) = queue.pop().await? {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.push(&batch)?,
                None => self.has_ended = true,
            }
        }
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let own = [Arc::new(self.partitions.numbers(batch)?) as ArrayRef, self.places.of(batch)?];
        let rows = own.iter().chain(batch.columns()).cloned().collect();
        self.rows.push(RecordBatch::try_new(Arc::clone(&self.row_schema), rows)?)?;
        // Copies, for a part of a batch would hold all of it.
        let all: UInt32Array = (0..batch.num_rows() as u32).collect();
        let copied = |values: &ArrayRef| take(values, &all, None);
        let own = own.iter().map(copied).collect::<Result<Vec<_>, _>>()?;
        for Values { expressions, schema, queue } in &mut self.values {
            let values = evaluated(expressions, batch)?;
            let values = own.iter().cloned().map(Ok).chain(values.iter().map(copied));
            let values = values.collect::<Result<_, _>>()?;
            queue.push(RecordBatch::try_new(Arc::clone(schema), values)?)?;
        }
        Ok(())
    }
}

fn with_own(own: &[FieldRef], fields: &[FieldRef]) -> SchemaRef {
    Arc::new(Schema::new([own, fields].concat()))
}
