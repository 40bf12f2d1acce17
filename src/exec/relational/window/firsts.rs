//! Columns of the first row of each row's frame, where that lies any way before or after.
//!
//! Enters: rows in the order of their partitions and places (`offsets`). Leaves: the same batches with a column for each
//! expression, its value at the first row of the frame. Rows are read twice, as those that look for their first and as those
//! that may be it, each time in their order; what one reader has before the other waits for it in a queue (`queue`): values
//! of rows before, or rows for values to come.
//!
//! ```text
//! rows ─┬─ queue of rows ──────────────┬─ rows with columns
//!       └─ queue of places and values ─┘
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::{StreamExt, stream};

use super::boundaries::Boundaries;
use super::offsets::{Offset, Places, Targets};
use super::queue::Queue;
use super::recipe::Made;
use super::{evaluated, with_columns, with_fields};
use crate::exec::relational::feed::adapted;

/// The columns that rows have in both queues: the number of their partition and their place. Others follow.
const PARTITION: usize = 0;
const PLACE: usize = 1;
const OTHERS: usize = 2;

/// Where a value is: with one of the candidates, or nowhere.
const HERE: usize = 0;
const NOWHERE: usize = 1;

/// The rows of one stream on their way.
pub(super) struct Firsts {
    twice: Twice,
    schema: SchemaRef,
    offset: Offset,
    /// Of each column the value where a frame has no rows.
    of_none: Vec<ArrayRef>,
    /// Rows that may be the first of a frame; none is that lies before this one.
    candidates: RecordBatch,
    first: usize,
    /// Whether no others follow.
    are_last: bool,
}

impl Firsts {
    /// # Errors
    /// Those of arrays of the values where there are no rows.
    pub(super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        offset: &Offset,
        made: &[Made<ScalarValue>],
        context: &TaskContext,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let schema = with_fields(&input.schema(), made);
        let own = [
            Arc::new(Field::new("partition", DataType::Int64, false)),
            Arc::new(Field::new("place", offset.place_type(&schema)?, true)),
        ];
        let with_own = |fields: Vec<_>| Arc::new(Schema::new([own.to_vec(), fields].concat()));
        let rows = with_own(input.schema().fields().to_vec());
        let firsts = with_own(made.iter().map(|made| Arc::clone(&made.field)).collect());
        Ok(Self {
            candidates: RecordBatch::new_empty(Arc::clone(&firsts)),
            first: 0,
            are_last: false,
            of_none: made.iter().map(|made| made.function.to_array()).collect::<Result<_>>()?,
            twice: Twice {
                input,
                has_ended: false,
                partitions: Boundaries::new(partition_by.to_vec()),
                places: offset.places(),
                values: made.iter().flat_map(|made| made.arguments.clone()).collect(),
                rows: Queue::new(&rows, context, spills),
                row_schema: rows,
                firsts: Queue::new(&firsts, context, spills),
                first_schema: firsts,
            },
            offset: offset.clone(),
            schema,
        })
    }

    /// The batches with their columns.
    pub(super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut firsts| async {
            Ok(firsts.next().await?.map(|batch| (batch, firsts)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.twice.next(Reader::Rows).await? else { return Ok(None) };
        let targets = self.offset.targets(rows.column(PLACE))?;
        let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.of_none.len()];
        let mut known = 0;
        loop {
            let found = self.found(&rows, &targets, known)?;
            known += found.len();
            for (at, pieces) in pieces.iter_mut().enumerate().filter(|_| !found.is_empty()) {
                let values = [self.candidates.column(OTHERS + at), &self.of_none[at]];
                pieces.push(interleave(&values.map(AsRef::as_ref), &found)?);
            }
            if known == rows.num_rows() {
                break;
            }
            match self.twice.next(Reader::Firsts).await? {
                Some(batch) => (self.candidates, self.first) = (batch, 0),
                None => self.are_last = true,
            }
        }
        let columns = pieces.iter().map(|pieces| {
            let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
            Ok(concat(&pieces)?)
        });
        let others: Vec<usize> = (OTHERS..rows.num_columns()).collect();
        with_columns(&rows.project(&others)?, columns.collect::<Result<_>>()?, &self.schema)
            .map(Some)
    }

    /// Where the firsts of rows are among the candidates, from a row on to the last of which these tell.
    fn found(
        &mut self,
        rows: &RecordBatch,
        targets: &Targets,
        from: usize,
    ) -> Result<Vec<(usize, usize)>> {
        let count = self.candidates.num_rows();
        let is_before = self.offset.is_before(self.candidates.column(PLACE), targets)?;
        let [theirs, partitions] = [&self.candidates, rows]
            .map(|batch| batch.column(PARTITION).as_primitive::<Int64Type>().values());
        let mut found = Vec::new();
        for row in from..rows.num_rows() {
            let partition = partitions[row];
            while self.first < count
                && (theirs[self.first] < partition
                    || theirs[self.first] == partition && is_before(self.first, row))
            {
                self.first += 1;
            }
            if self.first < count && theirs[self.first] == partition {
                found.push((HERE, self.first));
            } else if self.first < count || self.are_last {
                found.push((NOWHERE, 0));
            } else {
                break;
            }
        }
        Ok(found)
    }
}

/// Rows that are read twice, each time at a pace of its own.
struct Twice {
    input: SendableRecordBatchStream,
    has_ended: bool,
    partitions: Boundaries,
    places: Places,
    values: Vec<Arc<dyn PhysicalExpr>>,
    rows: Queue,
    row_schema: SchemaRef,
    firsts: Queue,
    first_schema: SchemaRef,
}

/// As what rows are read.
#[derive(Clone, Copy)]
enum Reader {
    Rows,
    Firsts,
}

impl Twice {
    async fn next(&mut self, reader: Reader) -> Result<Option<RecordBatch>> {
        loop {
            let queue = match reader {
                Reader::Rows => &mut self.rows,
                Reader::Firsts => &mut self.firsts,
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
        let values = evaluated(&self.values, batch)?;
        let firsts = own.iter().chain(&values).map(|values| take(values, &all, None));
        let firsts = firsts.collect::<Result<_, _>>()?;
        self.firsts.push(RecordBatch::try_new(Arc::clone(&self.first_schema), firsts)?)
    }
}
