//! One version of a table as DataFusion's `TableProvider`, with the numbers of its rows if wanted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics, plan_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::{StreamExt, TryStreamExt};

use super::batch::Batch;
use super::memory::{Change, MemoryTable, Version};
use super::scan::TableScan;

/// The column that [`Snapshot::with_row_numbers`] adds; no unquoted name is spelled so.
pub(crate) const ROW_NUMBER: &str = "(row)";

/// A table as one statement sees it.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    table: Arc<MemoryTable>,
    version: Arc<Version>,
    /// Of the table, and the numbers of its rows where these are wanted.
    schema: SchemaRef,
}

impl Snapshot {
    /// The table as it is now.
    pub(crate) fn new(table: Arc<MemoryTable>) -> Self {
        let (version, schema) = (table.current(), Arc::clone(table.schema()));
        Self { table, version, schema }
    }

    /// The same rows with their numbers in a last column.
    pub(crate) fn with_row_numbers(&self) -> Self {
        let number = Arc::new(Field::new(ROW_NUMBER, DataType::UInt64, false));
        let fields = self.table.schema().fields().iter().cloned().chain([number]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { schema, ..self.clone() }
    }

    pub(crate) fn table(&self) -> &Arc<MemoryTable> {
        &self.table
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.number
    }

    /// The first version of which this one has all rows, before those that have come since.
    pub(crate) fn grown_since(&self) -> u64 {
        self.version.grown_since
    }

    /// The rows after so many of them.
    ///
    /// # Errors
    /// None, for what is kept was such rows.
    pub(crate) fn after(&self, rows: usize) -> Result<Self> {
        Ok(Self { version: self.version.after(rows)?, ..self.clone() })
    }

    pub(crate) fn row_count(&self) -> usize {
        self.version.rows
    }

    pub(super) fn rows(&self) -> &Arc<Version> {
        &self.version
    }

    /// Lengths of the batches, one after another.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.version.batches.iter().map(Batch::num_rows)
    }

    /// Some rows of a batch, as far as a column goes that is not their numbers.
    ///
    /// # Errors
    /// None, for what is kept was such a column.
    pub(crate) fn values(
        &self,
        batch: usize,
        column: usize,
        rows: Range<usize>,
    ) -> Result<ArrayRef> {
        Ok(self.version.batches[batch].values(column, rows)?)
    }

    /// The least and the greatest value of a column in each batch, where these are known.
    pub(crate) fn bounds(&self, column: usize) -> Option<[ArrayRef; 2]> {
        self.version.zones.bounds(column)
    }

    /// A plan that writes what `input` yields: row numbers, and new values for `columns` beside them.
    pub(crate) fn change(
        &self,
        columns: Option<Vec<usize>>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Arc<dyn ExecutionPlan> {
        let kind = columns.map_or(Write::Delete, Write::Update);
        self.sink(kind, input)
    }

    fn sink(&self, write: Write, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let (table, seen) = (Arc::clone(&self.table), self.version.number);
        let sink = Writer { table, seen, write, schema: nullable(&input.schema()) };
        Arc::new(DataSinkExec::new(input, Arc::new(sink), None))
    }
}

/// Asks a scan, through the session's configuration, for its rows in so many partitions at most, each a
/// run of rows in their stored order.
#[derive(Debug)]
pub(crate) struct ContiguousParts(pub(crate) usize);

impl ContiguousParts {
    fn of(&self, batches: Range<usize>) -> Vec<Arc<[usize]>> {
        let length = batches.len().div_ceil(self.0).max(1);
        let batches: Vec<usize> = batches.collect();
        let parts: Vec<_> = batches.chunks(length).map(Arc::from).collect();
        if parts.is_empty() { vec![Arc::default()] } else { parts }
    }
}

/// The schema without NOT NULL. What is written has it, for the table checks itself, to name the column in
/// its own words.
fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[async_trait]
impl TableProvider for Snapshot {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.table.default_of(column)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batches = 0..self.version.batches.len();
        let parts = match state.config().get_extension::<ContiguousParts>() {
            Some(parts) => parts.of(batches),
            None => vec![batches.collect()],
        };
        let (table, shows_sizes) = (&self.table, state.config_options().explain.show_sizes);
        let scan =
            TableScan::new(table, &self.version, &self.schema, projection, parts, shows_sizes)?;
        Ok(DataSourceExec::from_data_source(scan))
    }

    fn statistics(&self) -> Option<Statistics> {
        let bytes = self.version.figures().iter().map(|column| column.bytes).sum();
        Some(Statistics {
            num_rows: Precision::Exact(self.version.rows),
            total_byte_size: Precision::Inexact(bytes),
            column_statistics: vec![ColumnStatistics::new_unknown(); self.schema.fields().len()],
        })
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match operation {
            InsertOp::Append => Ok(self.sink(Write::Insert, input)),
            other => plan_err!("{other} is not supported"),
        }
    }
}

/// What to do with the rows that come in.
#[derive(Debug, Clone)]
enum Write {
    Insert,
    Delete,
    /// With the columns that change.
    Update(Vec<usize>),
}

/// Gathers all rows of a statement, then writes them at once: all or nothing.
#[derive(Debug)]
struct Writer {
    table: Arc<MemoryTable>,
    seen: u64,
    write: Write,
    schema: SchemaRef,
}

impl DisplayAs for Writer {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |&column: &usize| self.table.schema().field(column).name().as_str();
        match &self.write {
            Write::Insert => f.write_str("InsertRows"),
            Write::Delete => f.write_str("DeleteRows"),
            Write::Update(columns) => {
                let names: Vec<_> = columns.iter().map(name).collect();
                write!(f, "UpdateRows ({})", names.join(", "))
            }
        }
    }
}

#[async_trait]
impl DataSink for Writer {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(
        &self,
        data: SendableRecordBatchStream,
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let columns = match &self.write {
            Write::Insert => {
                // What is inserted stays, and may be more than memory has room for.
                let kept = data.map(|rows| -> Result<_> { Ok(self.table.keep(&rows?)?) });
                let rows = kept.try_collect::<Vec<_>>().await?;
                return Ok(self.table.insert_kept(rows)?);
            }
            Write::Delete => None,
            Write::Update(columns) => Some(columns.clone()),
        };
        let batches: Vec<RecordBatch> = data.try_collect().await?;
        let numbers = |batch: &RecordBatch| batch.column(0).as_primitive::<UInt64Type>().clone();
        let rows = batches.iter().map(numbers).collect();
        let change = match columns {
            None => Change::Delete(rows),
            Some(columns) => {
                let values = batches.iter().map(|batch| batch.columns()[1..].to_vec()).collect();
                Change::Update { columns, rows, values }
            }
        };
        Ok(self.table.change(self.seen, change)?)
    }
}
