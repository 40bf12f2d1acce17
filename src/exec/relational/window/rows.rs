//! Columns that have a value of their own for each row.
//!
//! Enters: rows in order. Leaves: the same batches with a column for each function; a batch waits while some of its values ask
//! for rows to come.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use futures::{StreamExt, stream};

use super::boundaries::Boundaries;
use super::functions::{ByRow, Piece, RowFunction};
use super::recipe::Made;
use super::{evaluated, with_columns, with_fields};
use crate::exec::relational::feed::adapted;
use crate::exec::relational::memory::Memory;

/// The rows of one stream on their way.
pub(super) struct Rows {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    columns: Vec<Column>,
    partitions: Boundaries,
    /// If some function asks.
    peers: Option<Boundaries>,
    /// Batches of which some values are missing.
    waiting: VecDeque<(RecordBatch, usize)>,
    has_ended: bool,
    memory: Memory,
}

/// A column that is made.
struct Column {
    function: Box<dyn ByRow>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Values of the rows that wait, as far as they are known.
    values: ArrayRef,
}

impl Rows {
    /// # Errors
    /// Those of functions that cannot begin.
    pub(super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        peers_by: &[Arc<dyn PhysicalExpr>],
        made: &[Made<RowFunction>],
        context: &TaskContext,
    ) -> Result<Self> {
        let columns = made.iter().map(|made| {
            let (function, arguments) = (made.function.start()?, made.arguments.clone());
            let values = new_empty_array(made.field.data_type());
            Ok(Column { function, arguments, values })
        });
        let has_peers = made.iter().any(|made| made.function.has_peers());
        Ok(Self {
            schema: with_fields(&input.schema(), made),
            columns: columns.collect::<Result<_>>()?,
            partitions: Boundaries::new(partition_by.to_vec()),
            peers: has_peers.then(|| Boundaries::new(peers_by.to_vec())),
            waiting: VecDeque::new(),
            has_ended: false,
            memory: Memory::new("SpillingWindow", context.memory_pool()),
            input,
        })
    }

    /// The batches with their columns.
    pub(super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut rows| async {
            Ok(rows.next().await?.map(|batch| (batch, rows)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let known = self.columns.iter().map(|column| column.values.len()).min();
            let known = known.unwrap_or(usize::MAX);
            let whole = self.waiting.pop_front_if(|(batch, _)| batch.num_rows() <= known);
            if let Some((batch, bytes)) = whole {
                self.memory.shrink(bytes);
                return self.completed(&batch).map(Some);
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.push(batch)?,
                None => self.end()?,
            }
        }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let partitions = self.partitions.starts(&batch)?;
        let peers = self.peers.as_mut().map(|peers| peers.starts(&batch)).transpose()?;
        let peers = peers.as_ref().unwrap_or(&partitions);
        let rows = batch.num_rows();
        let piece = Piece { rows, partitions: &partitions, peers, is_last: false };
        self.add(&batch, &piece)?;
        // A few batches, whatever there is: as many rows as a frame reaches.
        let bytes = batch.get_array_memory_size();
        self.memory.grow(bytes);
        self.waiting.push_back((batch, bytes));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.has_ended = true;
        let none = RecordBatch::new_empty(self.input.schema());
        self.add(&none, &Piece { rows: 0, partitions: &[], peers: &[], is_last: true })
    }

    fn add(&mut self, batch: &RecordBatch, piece: &Piece) -> Result<()> {
        for column in &mut self.columns {
            let arguments = evaluated(&column.arguments, batch)?;
            let values = column.function.push(&arguments, piece)?;
            column.values = match column.values.is_empty() {
                true => values,
                false => concat(&[&column.values, &values])?,
            };
        }
        Ok(())
    }

    fn completed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self.columns.iter_mut().map(|column| {
            let rest = column.values.slice(rows, column.values.len() - rows);
            std::mem::replace(&mut column.values, rest).slice(0, rows)
        });
        let columns = columns.collect();
        with_columns(batch, columns, &self.schema)
    }
}
