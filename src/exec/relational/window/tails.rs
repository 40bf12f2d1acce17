//! Columns of the rows from each one to the last of its partition: made from behind, from the last row to the first.
//!
//! Enters: rows in the order of their partitions. Leaves: the same rows with a column for each function, as soon as their
//! partition has ended. What is held is reserved; where that is refused, rows of the open partition go to files of some
//! megabytes, which are read and completed once it has ended, the last one first.
//!
//! ```text
//! rows ─ held ──────────────── columns, from the last row to the first ─ rows with columns
//!      └ file ─ file ─ file ─ read, the last first ─┘ └ file ─ file ─ file ─┘
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::{StreamExt, stream};

use super::boundaries::Boundaries;
use super::functions::{ByRow, Piece, RowFunction};
use super::recipe::Made;
use super::{evaluated, with_columns, with_fields};
use crate::exec::relational::feed::adapted;
use crate::exec::relational::files::{RowFile, Rows, files_of};
use crate::exec::relational::memory::Memory;

/// Rows of whole partitions that are completed together, as far as there are so many.
const WHOLE_ROWS: usize = 32 << 10;

/// Of a batch's bytes, what it takes with its arguments in the other order and with the columns that are made.
const COPIES: usize = 3;

/// Bytes of the least rows that go to files.
const FILED_BYTES_MIN: usize = 1 << 20;

/// Of the limit, what the rows of a file take, within bounds: one of them at a time is read whole.
const FILE_PART: usize = 16;
const FILE_BYTES_MIN: usize = 1 << 20;
const FILE_BYTES_MAX: usize = 64 << 20;

/// The rows of one stream on their way.
pub(super) struct Tails {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    columns: Vec<Column>,
    partitions: Boundaries,
    /// Rows of partitions that have ended, and of the one that has not.
    whole: Held,
    open: Held,
    /// What came before of the open partition.
    filed: Option<Filed>,
    ready: VecDeque<Ready>,
    replayed: Option<SendableRecordBatchStream>,
    has_ended: bool,
    memory: Memory,
    /// Files of rows, and of rows with columns.
    manager: SpillManager,
    completed: SpillManager,
}

/// A column that is made.
struct Column {
    function: Box<dyn ByRow>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
}

/// Rows in memory, and the bytes that are reserved for them.
#[derive(Default)]
struct Held {
    parts: Vec<Part>,
    rows: usize,
    bytes: usize,
}

/// Some rows of a batch, and those where partitions begin.
struct Part {
    batch: RecordBatch,
    bytes: usize,
    starts: Vec<usize>,
}

impl Held {
    fn push(&mut self, part: Part) {
        self.rows += part.batch.num_rows();
        self.bytes += COPIES * part.bytes;
        self.parts.push(part);
    }

    fn append(&mut self, other: Held) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.parts.extend(other.parts);
    }
}

/// Rows of one partition in files.
struct Filed {
    manager: SpillManager,
    file_bytes_max: usize,
    files: Vec<Rows>,
    file: RowFile,
    file_bytes: usize,
}

impl Filed {
    fn new(manager: &SpillManager, file_bytes_max: usize) -> Result<Self> {
        let file = RowFile::new(manager, "a window")?;
        let manager = manager.clone();
        Ok(Self { manager, file_bytes_max, files: Vec::new(), file, file_bytes: 0 })
    }

    /// Writes rows, to another file where this one is full.
    fn append(&mut self, part: &Part) -> Result<()> {
        if self.file_bytes >= self.file_bytes_max {
            let file = RowFile::new(&self.manager, "a window")?;
            self.files.push(std::mem::replace(&mut self.file, file).finish()?);
            self.file_bytes = 0;
        }
        self.file_bytes += part.bytes;
        self.file.append(&part.batch)
    }

    fn finish(mut self) -> Result<Vec<Rows>> {
        self.files.push(self.file.finish()?);
        Ok(self.files)
    }
}

/// Rows with their columns.
enum Ready {
    /// With the bytes that are reserved for them.
    Batch(RecordBatch, usize),
    Files(Rows),
}

impl Tails {
    /// # Errors
    /// Those of functions that cannot begin.
    pub(super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        made: &[Made<RowFunction>],
        context: &TaskContext,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let columns = made.iter().map(|made| {
            Ok(Column { function: made.function.start()?, arguments: made.arguments.clone() })
        });
        let schema = with_fields(&input.schema(), made);
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
            partitions: Boundaries::new(partition_by.to_vec()),
            whole: Held::default(),
            open: Held::default(),
            filed: None,
            ready: VecDeque::new(),
            replayed: None,
            has_ended: false,
            memory: Memory::new("SpillingWindow", context.memory_pool()),
            manager: files_of(&input.schema(), context, spills),
            completed: files_of(&schema, context, spills),
            schema,
            input,
        })
    }

    /// The batches with their columns.
    pub(super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut tails| async {
            Ok(tails.next().await?.map(|batch| (batch, tails)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = &mut self.replayed {
                match rows.next().await.transpose()? {
                    Some(batch) => return Ok(Some(batch)),
                    None => self.replayed = None,
                }
                continue;
            }
            match self.ready.pop_front() {
                Some(Ready::Files(rows)) => self.replayed = Some(rows.read()),
                Some(Ready::Batch(batch, bytes)) => {
                    self.memory.shrink(bytes);
                    return Ok(Some(batch));
                }
                None if self.has_ended => return Ok(None),
                None => match self.input.next().await.transpose()? {
                    Some(batch) if batch.num_rows() == 0 => {}
                    Some(batch) => self.push(&batch).await?,
                    None => {
                        self.has_ended = true;
                        self.close().await?;
                        self.complete_whole()?;
                    }
                },
            }
        }
    }

    /// Takes a batch, cut where the last of its partitions begins and where the one before it has ended.
    async fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let starts = self.partitions.starts(batch)?;
        let (rows, last) = (batch.num_rows(), starts.last().copied());
        let first = starts.first().copied().unwrap_or(rows);
        self.extend(batch, 0..first, &[])?;
        if let Some(last) = last {
            self.close().await?;
            self.extend(batch, first..last, &starts[..starts.len() - 1])?;
            self.close().await?;
            self.extend(batch, last..rows, &[last])?;
            if self.whole.rows >= WHOLE_ROWS {
                self.complete_whole()?;
            }
        }
        Ok(())
    }

    /// Adds rows to the open partition.
    fn extend(&mut self, batch: &RecordBatch, rows: Range<usize>, starts: &[usize]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let part = Part {
            batch: batch.slice(rows.start, rows.len()),
            bytes: batch.get_array_memory_size() * rows.len() / batch.num_rows(),
            starts: starts.iter().map(|start| start - rows.start).collect(),
        };
        if let Some(filed) = &mut self.filed {
            return filed.append(&part);
        }
        let is_granted = self.memory.try_grow(COPIES * part.bytes);
        if !is_granted {
            self.complete_whole()?;
            self.memory.grow(COPIES * part.bytes);
        }
        self.open.push(part);
        if !is_granted && self.open.bytes >= FILED_BYTES_MIN {
            return self.file_open();
        }
        Ok(())
    }

    /// Writes the rows of the open partition.
    fn file_open(&mut self) -> Result<()> {
        let file_bytes = self.memory.limit_bytes / FILE_PART;
        let file_bytes = file_bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let mut filed = Filed::new(&self.manager, file_bytes)?;
        let open = std::mem::take(&mut self.open);
        for part in open.parts {
            filed.append(&part)?;
        }
        self.memory.shrink(open.bytes);
        self.filed = Some(filed);
        Ok(())
    }

    /// The open partition has ended.
    async fn close(&mut self) -> Result<()> {
        let Some(filed) = self.filed.take() else {
            self.whole.append(std::mem::take(&mut self.open));
            return Ok(());
        };
        let mut completed = VecDeque::new();
        for (at, file) in filed.finish()?.into_iter().rev().enumerate() {
            let mut held = Held::default();
            let mut rows = file.read();
            while let Some(batch) = rows.next().await.transpose()? {
                let bytes = batch.get_array_memory_size();
                self.memory.grow(COPIES * bytes);
                held.push(Part { batch, bytes, starts: Vec::new() });
            }
            let columns = self.columns_of(&held, at == 0)?;
            let mut file = RowFile::new(&self.completed, "a window")?;
            for (part, columns) in held.parts.iter().zip(columns) {
                file.append(&with_columns(&part.batch, columns, &self.schema)?)?;
            }
            self.memory.shrink(held.bytes);
            completed.push_front(Ready::Files(file.finish()?));
        }
        self.ready.append(&mut completed);
        Ok(())
    }

    /// Makes the columns of the partitions that have ended.
    fn complete_whole(&mut self) -> Result<()> {
        let whole = std::mem::take(&mut self.whole);
        let columns = self.columns_of(&whole, true)?;
        for (part, columns) in whole.parts.into_iter().zip(columns) {
            let batch = with_columns(&part.batch, columns, &self.schema)?;
            self.ready.push_back(Ready::Batch(batch, COPIES * part.bytes));
        }
        Ok(())
    }

    /// The columns of each batch, made from the last row to the first; `ends` says that a partition ends with the last.
    fn columns_of(&mut self, held: &Held, mut ends: bool) -> Result<Vec<Vec<ArrayRef>>> {
        let mut made = Vec::with_capacity(held.parts.len());
        for Part { batch, starts, .. } in held.parts.iter().rev() {
            let rows = batch.num_rows();
            let turned: UInt32Array = (0..rows as u32).rev().collect();
            // From behind, a partition begins with its last row: the one before the start of the next.
            let others = starts.iter().rev().filter(|&&start| start > 0).map(|start| rows - start);
            let partitions: Vec<usize> = ends.then_some(0).into_iter().chain(others).collect();
            ends = starts.first() == Some(&0);
            let piece = Piece { rows, partitions: &partitions, peers: &partitions, is_last: false };
            let columns = self.columns.iter_mut().map(|column| {
                let arguments = evaluated(&column.arguments, batch)?;
                let arguments = arguments.iter().map(|values| take(values, &turned, None));
                let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
                Ok(take(&column.function.push(&arguments, &piece)?, &turned, None)?)
            });
            made.push(columns.collect::<Result<Vec<_>>>()?);
        }
        made.reverse();
        Ok(made)
    }
}
