//! Columns that are known when a group of rows ends, a partition or peers: its rows are held until then.
//!
//! Enters: rows in the order of their groups. Leaves: the same batches with a column for each function, as soon as all groups
//! of a batch have ended. What is held is reserved; where that is refused, rows of the group that has not ended go to a file,
//! and are read again when it has.
//!
//! ```text
//! batch ─ functions, value by group ─────────────┐
//!   └ held, or a file ─ once the group has ended ─ batch with columns
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::{StreamExt, stream};

use super::boundaries::Boundaries;
use super::functions::{Ends, Piece, Running, RunningFunction};
use super::recipe::Made;
use super::{evaluated, with_columns, with_fields};
use crate::exec::relational::feed::adapted;
use crate::exec::relational::files::{RowFile, files_of};
use crate::exec::relational::memory::Memory;

/// Bytes of the least rows that go to a file.
const FILE_BYTES_MIN: usize = 1 << 20;

/// Of a row, what a column takes that is made.
const COLUMN_BYTES: usize = 8;

/// The rows of one stream on their way.
pub(super) struct Groups {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    columns: Vec<Column>,
    partitions: Boundaries,
    /// Where groups begin, if those are not the partitions.
    peers: Option<Boundaries>,
    /// Rows of the stream up to the end of each group that has ended and of which rows are still here.
    ends: VecDeque<u64>,
    /// Rows that have come, and those that have left.
    came: u64,
    left: u64,
    /// Batches with the bytes that are reserved for them, and of all of these.
    held: VecDeque<(RecordBatch, usize)>,
    held_bytes: usize,
    /// What came before those, while its last group has not ended; and afterwards, what is read of it.
    file: Option<RowFile>,
    replayed: Option<SendableRecordBatchStream>,
    has_ended: bool,
    memory: Memory,
    manager: SpillManager,
}

/// A column that is made.
struct Column {
    function: Box<dyn Running>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Values of the groups that have ended and of which rows are still here.
    values: ArrayRef,
}

impl Groups {
    /// Groups are partitions, or peers within them.
    ///
    /// # Errors
    /// Those of functions that cannot begin.
    pub(super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        peers_by: Option<&[Arc<dyn PhysicalExpr>]>,
        made: &[Made<RunningFunction>],
        context: &TaskContext,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let columns = made.iter().map(|made| {
            let (function, arguments) = (made.function.start()?, made.arguments.clone());
            Ok(Column { function, arguments, values: new_empty_array(made.field.data_type()) })
        });
        Ok(Self {
            schema: with_fields(&input.schema(), made),
            columns: columns.collect::<Result<_>>()?,
            partitions: Boundaries::new(partition_by.to_vec()),
            peers: peers_by.map(|keys| Boundaries::new(keys.to_vec())),
            ends: VecDeque::new(),
            came: 0,
            left: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            file: None,
            replayed: None,
            has_ended: false,
            memory: Memory::new("SpillingWindow", context.memory_pool()),
            manager: files_of(&input.schema(), context, spills),
            input,
        })
    }

    /// The batches with their columns.
    pub(super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut groups| async {
            Ok(groups.next().await?.map(|batch| (batch, groups)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.replayed {
                match rows.next().await.transpose()? {
                    Some(batch) => return self.completed(&batch).map(Some),
                    None => self.replayed = None,
                }
            } else if let Some((batch, bytes)) = self.whole() {
                let batch = self.completed(&batch);
                self.held_bytes -= bytes;
                self.memory.shrink(bytes);
                return batch.map(Some);
            } else if self.has_ended {
                return Ok(None);
            } else {
                match self.input.next().await.transpose()? {
                    Some(batch) if batch.num_rows() == 0 => {}
                    Some(batch) => self.push(batch)?,
                    None => self.end()?,
                }
            }
        }
    }

    /// The first batch that is held, if all its groups have ended.
    fn whole(&mut self) -> Option<(RecordBatch, usize)> {
        let ended = self.ends.back()?;
        self.held.pop_front_if(|(batch, _)| self.left + batch.num_rows() as u64 <= *ended)
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let partitions = self.partitions.starts(&batch)?;
        let peers = self.peers.as_mut().map(|peers| peers.starts(&batch)).transpose()?;
        let groups = peers.as_ref().unwrap_or(&partitions);
        // Before the first row of all nothing ends.
        let ends = if self.came == 0 && !groups.is_empty() { &groups[1..] } else { groups };
        let piece = Piece {
            rows: batch.num_rows(),
            partitions: &partitions,
            peers: groups,
            is_last: false,
        };
        self.add(&batch, &piece, ends)?;
        self.came += batch.num_rows() as u64;
        self.hold(batch, !ends.is_empty())
    }

    fn end(&mut self) -> Result<()> {
        self.has_ended = true;
        if self.came > 0 {
            let none = RecordBatch::new_empty(self.input.schema());
            let piece = Piece { rows: 0, partitions: &[], peers: &[], is_last: true };
            self.add(&none, &piece, &[0])?;
        }
        self.replay()
    }

    /// Adds rows to the functions, and the values of groups that end.
    fn add(&mut self, batch: &RecordBatch, piece: &Piece, ends: &[usize]) -> Result<()> {
        for column in &mut self.columns {
            let arguments = evaluated(&column.arguments, batch)?;
            let values = column.function.push(&arguments, piece, Ends::After(ends))?;
            if !ends.is_empty() {
                column.values = concat(&[&column.values, &values])?;
            }
        }
        self.ends.extend(ends.iter().map(|&end| self.came + end as u64));
        Ok(())
    }

    /// Keeps a batch, in memory or in the file; `has_end` says that what is in the file has ended.
    fn hold(&mut self, batch: RecordBatch, has_end: bool) -> Result<()> {
        if has_end {
            self.replay()?;
        }
        if let Some(file) = &mut self.file {
            return file.append(&batch);
        }
        let made = COLUMN_BYTES * self.columns.len() * batch.num_rows();
        let bytes = batch.get_array_memory_size() + made;
        self.held_bytes += bytes;
        self.held.push_back((batch, bytes));
        if !self.memory.try_grow(bytes) {
            // What has ended leaves next.
            if !has_end && self.held_bytes >= FILE_BYTES_MIN {
                return self.begin_file(bytes);
            }
            self.memory.grow(bytes);
        }
        Ok(())
    }

    /// Writes what is held, of which the last bytes are not reserved.
    fn begin_file(&mut self, last_bytes: usize) -> Result<()> {
        let mut file = RowFile::new(&self.manager, "a window")?;
        for (batch, _) in self.held.drain(..) {
            file.append(&batch)?;
        }
        self.memory.shrink(self.held_bytes - last_bytes);
        self.held_bytes = 0;
        self.file = Some(file);
        Ok(())
    }

    fn replay(&mut self) -> Result<()> {
        if let Some(file) = self.file.take() {
            self.replayed = Some(file.finish()?.read());
        }
        Ok(())
    }

    /// A batch with the values of its rows' groups.
    fn completed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut groups = Vec::with_capacity(rows);
        for (group, end) in self.ends.iter().enumerate() {
            let until = (end - self.left).min(rows as u64) as usize;
            groups.resize(until, group as u32);
            if until == rows {
                break;
            }
        }
        self.left += rows as u64;
        let gone = self.ends.iter().take_while(|&&end| end <= self.left).count();
        self.ends.drain(..gone);
        let groups = UInt32Array::from(groups);
        let columns = self.columns.iter_mut().map(|column| {
            let values = take(&column.values, &groups, None)?;
            column.values = column.values.slice(gone, column.values.len() - gone);
            Ok(values)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        with_columns(batch, columns, &self.schema)
    }
}
