//! Columns of aggregates of frames that begin and end anywhere within their partition.
//!
//! Enters: rows in the order of their partitions and places (`offsets`). Leaves: the same batches with a column for each
//! aggregate. Rows are read three times (`readers`): as those that have a frame, as those at its beginning and as those at its end.
//! The latter enter the aggregates (`functions`), which hold them row by row in pieces; what the closed pieces were is kept in
//! a queue, to be read again when frames begin in them.
//!
//! ```text
//! rows ─┬─ queue of rows ──────────────────────────────────────┬─ rows with columns
//!       ├─ queue of places ──────────── where frames begin ────┤
//!       └─ queue of places and values ─ where they end ─ enter ┤
//!                                         └─ queue of pieces ──┘
//! ```
//!
//! Pieces are counted from rows of the partition, so sums have the same digits however rows come in batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::SpillMetrics;
use futures::stream;

use super::super::functions::{SpanFunction, Spanning};
use super::super::recipe::Made;
use super::super::{with_columns, with_fields};
use super::offsets::Span;
use super::pointer::Pointer;
use super::queue::Queue;
use super::readers::{OTHERS, PARTITION, Reader, Readers};
use crate::exec::relational::feed::adapted;

/// Rows of a closed piece. As many batches have, for which a queue is made.
const PIECE_ROWS: usize = 8 << 10;

/// The rows of one stream on their way.
pub(in super::super) struct Spans {
    readers: Readers,
    schema: SchemaRef,
    /// Rows that have been read, the number of the last one's partition, and how many came before that.
    read: usize,
    partition: Option<i64>,
    partition_start: usize,
    /// Nothing where frames begin with the partition.
    start: Option<Pointer>,
    end: Pointer,
    entered: Entered,
}

impl Spans {
    /// # Errors
    /// Where the key of places is none of the rows' columns.
    pub(in super::super) fn new(
        input: SendableRecordBatchStream,
        partition_by: &[Arc<dyn PhysicalExpr>],
        span: &Span,
        made: &[Made<SpanFunction>],
        context: &Arc<TaskContext>,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let schema = with_fields(&input.schema(), made);
        let mut fields = Vec::new();
        let mut arguments = Vec::new();
        for argument in made.iter().flat_map(|made| &made.arguments) {
            fields.push(argument.return_field(&input.schema())?);
            arguments.push(Arc::clone(argument));
        }
        let mut readers = Readers::new(input, partition_by, &span.end, context, spills)?;
        let start = span.start.clone();
        let start = start.map(|start| Pointer::new(start, readers.add(Vec::new(), &[])));
        let end = Pointer::new(span.end.clone(), readers.add(arguments, &fields));
        let batch = end.candidates().clone();
        let pieces = start.is_some().then(|| Queue::new(batch.schema_ref(), context, spills));
        let mut begin = OTHERS;
        let columns = made.iter().map(|made| {
            let arguments = begin..begin + made.arguments.len();
            begin = arguments.end;
            Column { function: made.function.start(), arguments }
        });
        let entered = Entered {
            columns: columns.collect(),
            batch,
            before: 0,
            rows: 0,
            front: 0,
            closed: 0,
            open: 0,
            kept: Vec::new(),
            pieces,
        };
        Ok(Self {
            readers,
            schema,
            read: 0,
            partition: None,
            partition_start: 0,
            start,
            end,
            entered,
        })
    }

    /// The batches with their columns.
    pub(in super::super) fn rows(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows = stream::try_unfold(self, |mut spans| async {
            Ok(spans.next().await?.map(|batch| (batch, spans)))
        });
        adapted(schema, rows)
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.readers.next(Reader::Rows).await? else { return Ok(None) };
        let partitions = self.partition_starts(&rows);
        let starts = match &mut self.start {
            Some(start) => start.numbers(&rows, &mut self.readers).await?,
            None => partitions.clone(),
        };
        let targets = self.end.targets(&rows)?;
        let mut known = 0;
        loop {
            for found in self.end.found(&rows, &targets, known)? {
                let end = self.end.before() + found.row;
                self.entered.begin(partitions[known]).await?;
                self.entered.enter_until(end)?;
                // A frame may begin after its end, and is empty.
                self.entered.leave_until(starts[known].min(end)).await?;
                self.entered.give();
                known += 1;
            }
            if known == rows.num_rows() {
                break;
            }
            // What is left of the candidates is before the end of the next frame.
            self.entered.begin(partitions[known]).await?;
            self.entered.enter_until(self.end.before() + self.end.candidates().num_rows())?;
            if self.end.go_on(&mut self.readers).await? {
                self.entered.look(self.end.candidates(), self.end.before())?;
            }
        }
        let columns = self.entered.columns.iter_mut().map(|column| column.function.values());
        let others: Vec<usize> = (OTHERS..rows.num_columns()).collect();
        with_columns(&rows.project(&others)?, columns.collect::<Result<_>>()?, &self.schema)
            .map(Some)
    }

    /// Of each row, how many come before its partition.
    fn partition_starts(&mut self, rows: &RecordBatch) -> Vec<usize> {
        let partitions = rows.column(PARTITION).as_primitive::<Int64Type>().values().iter();
        let starts = partitions.enumerate().map(|(row, &partition)| {
            if self.partition.replace(partition) != Some(partition) {
                self.partition_start = self.read + row;
            }
            self.partition_start
        });
        let starts = starts.collect();
        self.read += rows.num_rows();
        starts
    }
}

/// The rows of the last frame: a front, closed pieces and an open one, which follow one another.
struct Entered {
    columns: Vec<Column>,
    /// Rows that enter, and how many came before those.
    batch: RecordBatch,
    before: usize,
    /// Rows that have come, and those of them that are in the front; closed pieces, and rows of the open one.
    rows: usize,
    front: usize,
    closed: usize,
    open: usize,
    /// Rows of the open piece from batches before.
    kept: Vec<RecordBatch>,
    /// The closed pieces, if some frame begins in one.
    pieces: Option<Queue>,
}

/// A column that is made, and where its arguments are in a batch.
struct Column {
    function: Box<dyn Spanning>,
    arguments: Range<usize>,
}

impl Entered {
    /// Takes the rows that follow.
    fn look(&mut self, batch: &RecordBatch, before: usize) -> Result<()> {
        if self.pieces.is_some() {
            let rows = self.open - self.kept_rows();
            if rows > 0 {
                self.kept.push(self.batch.slice(self.batch.num_rows() - rows, rows));
            }
        }
        (self.batch, self.before) = (batch.clone(), before);
        for Column { function, arguments } in &mut self.columns {
            function.look(&batch.columns()[arguments.clone()])?;
        }
        Ok(())
    }

    fn kept_rows(&self) -> usize {
        self.kept.iter().map(RecordBatch::num_rows).sum()
    }

    /// Forgets the rows of other partitions than the one that begins after so many rows.
    async fn begin(&mut self, partition: usize) -> Result<()> {
        if self.rows - self.all() < partition {
            self.leave_until(self.rows).await?;
            self.rows = partition;
        }
        Ok(())
    }

    /// Rows that have entered and have not left.
    fn all(&self) -> usize {
        self.front + self.closed * PIECE_ROWS + self.open
    }

    fn enter_until(&mut self, end: usize) -> Result<()> {
        while self.rows < end {
            let count = (end - self.rows).min(PIECE_ROWS - self.open);
            let first = self.rows - self.before;
            for column in &mut self.columns {
                column.function.enter(first..first + count);
            }
            self.rows += count;
            self.open += count;
            if self.open == PIECE_ROWS {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let rows = PIECE_ROWS - self.kept_rows();
        if let Some(pieces) = &mut self.pieces {
            self.kept.push(self.batch.slice(self.rows - self.before - rows, rows));
            pieces.push(concat_batches(self.batch.schema_ref(), &self.kept)?)?;
            self.kept.clear();
        }
        for column in &mut self.columns {
            column.function.close();
        }
        (self.closed, self.open) = (self.closed + 1, 0);
        Ok(())
    }

    async fn leave_until(&mut self, start: usize) -> Result<()> {
        let rows = start - (self.rows - self.all());
        if rows <= self.front {
            self.front -= rows;
            self.columns.iter_mut().for_each(|column| column.function.leave(rows));
            return Ok(());
        }
        let beyond = rows - self.front;
        let (piece, rows) = (beyond / PIECE_ROWS, beyond % PIECE_ROWS);
        if piece < self.closed {
            self.reopen(piece, rows).await
        } else {
            self.turn(beyond - self.closed * PIECE_ROWS).await
        }
    }

    /// Makes a closed piece the front, but for so many of its first rows.
    async fn reopen(&mut self, piece: usize, rows: usize) -> Result<()> {
        let batch = self.next_piece(piece).await?;
        for Column { function, arguments } in &mut self.columns {
            let arguments = &batch.columns()[arguments.clone()];
            function.reopen(piece, arguments, rows..PIECE_ROWS)?;
        }
        (self.front, self.closed) = (PIECE_ROWS - rows, self.closed - piece - 1);
        Ok(())
    }

    /// Makes the open piece the front, but for so many of its first rows.
    async fn turn(&mut self, rows: usize) -> Result<()> {
        if let Some(last) = self.closed.checked_sub(1).filter(|_| self.pieces.is_some()) {
            self.next_piece(last).await?;
        }
        for column in &mut self.columns {
            column.function.turn(rows);
        }
        self.kept.clear();
        (self.front, self.closed, self.open) = (self.open - rows, 0, 0);
        Ok(())
    }

    /// The closed piece after so many others, which are forgotten.
    async fn next_piece(&mut self, others: usize) -> Result<RecordBatch> {
        let pieces = self.pieces.as_mut().expect("a frame begins in a closed piece");
        for _ in 0..others {
            pieces.pop().await?;
        }
        Ok(pieces.pop().await?.expect("pieces that were closed are in the queue"))
    }

    fn give(&mut self) {
        self.columns.iter_mut().for_each(|column| column.function.give());
    }
}
