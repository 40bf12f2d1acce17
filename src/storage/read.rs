//! The rows of a scan, batch by batch. Before the first one is read joins have told what they know of keys, and sorts later tell
//! what they look for: batches that this rules out are not read, and of all others columns that it is about first, and of the rest
//! the rows that it leaves. Who decodes columns looks at it there, after a filter.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
    UInt64Array,
};
use arrow::compute::{FilterBuilder, FilterPredicate, filter};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{PhysicalExpr, conjunction_opt};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;

use super::dictionary::Coding;
use super::memory::{BATCH_ROWS, MemoryTable, Version};
use crate::encoding::{as_they_are, decoded};
use crate::first_by::FirstBy;
use crate::steps::{ROWS_DROPPED, Step, steps};

/// What is read of a table.
pub(super) struct Read {
    pub(super) table: Arc<MemoryTable>,
    pub(super) version: Arc<Version>,
    pub(super) schema: SchemaRef,
    /// The columns that are given, by their numbers in the schema.
    pub(super) columns: Arc<[usize]>,
    pub(super) given: SchemaRef,
    pub(super) batches: Arc<[usize]>,
    /// What operators tell while they run, over the columns of the schema.
    pub(super) told: Vec<Arc<dyn PhysicalExpr>>,
    /// What of that is asked of single rows.
    pub(super) told_of_rows: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) first_by: Option<FirstBy>,
    pub(super) fetch: Option<usize>,
    /// Whether columns are given as they are kept, to who decodes them.
    pub(super) is_encoded: bool,
}

/// The rows of one partition of a scan.
pub(super) fn rows(
    read: Read,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> SendableRecordBatchStream {
    let given = Arc::clone(&read.given);
    let reading = Reading {
        left: read.promising_first(),
        steps: None,
        begun: None,
        told: None,
        batches_read: 0,
        codings: read.columns.iter().map(|_| OnceCell::new()).collect(),
        first_rows: None,
        still_wanted: read.fetch.unwrap_or(usize::MAX),
        rows_given: MetricBuilder::new(metrics).output_rows(partition),
        rows_dropped: MetricBuilder::new(metrics).counter(ROWS_DROPPED, partition),
        read,
    };
    let batches = stream::try_unfold(reading, |mut reading| async {
        loop {
            match reading.next()? {
                // Others of this thread have their turn, and who stops a statement: to drop many rows takes a while.
                Some(rows) if rows.num_rows() == 0 => tokio::task::yield_now().await,
                next => return Ok(next.map(|rows| (rows, reading))),
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(given, Box::pin(batches)))
}

impl Read {
    /// The batches, those that may have the first rows before all others.
    fn promising_first(&self) -> VecDeque<usize> {
        let bounds = |by: &FirstBy| self.version.zones.bounds(by.column.index());
        let order = self.first_by.as_ref().and_then(|by| by.parts(&bounds(by)?));
        let Some(mut order) = order else { return self.batches.iter().copied().collect() };
        let mut is_read = vec![false; self.version.batches.len()];
        self.batches.iter().for_each(|&batch| is_read[batch] = true);
        order.retain(|&batch| is_read[batch]);
        order.into()
    }
}

struct Reading {
    read: Read,
    left: VecDeque<usize>,
    /// Of what is told, once the first batch is read: joins have told by then.
    steps: Option<Vec<Step>>,
    /// A batch of more rows than are given at once, and how many of them were.
    begun: Option<(usize, usize)>,
    /// The state in which what is told was looked at last.
    told: Option<u64>,
    batches_read: usize,
    /// For each column that is given who gives codes to its texts, once it is read.
    codings: Vec<OnceCell<Option<Arc<Coding>>>>,
    /// The number of the first row of each batch, once somebody asks.
    first_rows: Option<Vec<u64>>,
    still_wanted: usize,
    rows_given: Count,
    rows_dropped: Count,
}

impl Reading {
    /// The next rows, none of them where nobody needs any.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.leave_out();
        let begun = self.begun.take().or_else(|| Some((self.left.pop_front()?, 0)));
        let Some((batch, first)) = begun.filter(|_| self.still_wanted > 0) else {
            return Ok(None);
        };
        self.batches_read += usize::from(first == 0);
        let rows = self.read.version.batches[batch].num_rows() - first;
        let taken = rows.min(BATCH_ROWS).min(self.still_wanted);
        if taken < rows {
            self.begun = Some((batch, first + taken));
        }
        // Nothing is told to a scan of which only some rows are wanted.
        self.still_wanted -= taken;
        let rows = self.rows(batch, first..first + taken)?;
        self.rows_dropped.add(taken - rows.num_rows());
        self.rows_given.add(rows.num_rows());
        Ok(Some(rows))
    }

    /// Leaves out batches that are ruled out by now. A sort tells more with most batches at first, and to look takes as long as to
    /// read some thousand rows: so it is done before the first batch, and again each time that twice as many have been read.
    fn leave_out(&mut self) {
        let Read { version, schema, told, .. } = &self.read;
        if told.is_empty() || !(self.batches_read == 0 || self.batches_read.is_power_of_two()) {
            return;
        }
        let state = told.iter().map(snapshot_generation).fold(0, u64::wrapping_add);
        if self.told.replace(state) == Some(state) {
            return;
        }
        let Some(kept) = version.zones.that_may_meet(told, schema) else { return };
        let rows = |left: &VecDeque<usize>| -> usize {
            left.iter().map(|&batch| version.batches[batch].num_rows()).sum()
        };
        let before = rows(&self.left);
        self.left.retain(|&batch| kept[batch]);
        self.rows_dropped.add(before - rows(&self.left));
    }

    fn rows(&mut self, batch: usize, rows: Range<usize>) -> Result<RecordBatch> {
        let places = Arc::clone(&self.read.columns);
        if self.read.is_encoded {
            if rows.start == 0 {
                self.give_codes(batch)?;
            }
            let columns = places.iter().map(|&place| self.column(batch, place, &rows)).collect();
            return Ok(as_they_are(&self.read.given, columns, rows.len())?);
        }
        let needed = self.needed(batch, &rows)?;
        let count = needed.as_ref().map_or(rows.len(), |needed| needed.count());
        let schema = Arc::clone(&self.read.given);
        if count == 0 {
            return Ok(RecordBatch::new_empty(schema));
        }
        let columns = places.iter().zip(schema.fields()).map(|(&place, field)| {
            let mut column = self.column(batch, place, &rows);
            if let Some(needed) = &needed {
                column = needed.filter(&column)?;
            }
            Ok(decoded(&column, field.data_type())?)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Those of some rows of a batch that joins and sorts may need; nothing where they may need most.
    fn needed(&mut self, batch: usize, rows: &Range<usize>) -> Result<Option<FilterPredicate>> {
        let mut steps = self.steps.take().unwrap_or_else(|| {
            let all = conjunction_opt(self.read.told_of_rows.iter().cloned());
            all.map_or_else(Vec::new, |all| steps(&all, &self.read.schema))
        });
        let mut needed: Option<BooleanArray> = None;
        for step in steps.iter_mut().filter(|step| step.is_worth_it()) {
            let mut columns = vec![None; self.read.schema.fields().len()];
            for &place in &step.places {
                let column = self.column(batch, place, rows);
                columns[place] = Some(match &needed {
                    Some(needed) => filter(&column, needed)?,
                    None => column,
                });
            }
            let Some(kept) = step.kept(&columns) else { continue };
            needed = Some(match needed {
                Some(needed) => among(&needed, &kept),
                None => kept,
            });
        }
        self.steps = Some(steps);
        Ok(needed.map(|needed| FilterBuilder::new(&needed).optimize().build()))
    }

    /// Gives codes to the texts of a batch, where somebody asks for that.
    fn give_codes(&self, batch: usize) -> Result<()> {
        let Read { table, version, columns, .. } = &self.read;
        for (&column, coding) in columns.iter().zip(&self.codings) {
            let Some(coding) = coding.get_or_init(|| table.coding(version, column)) else {
                continue;
            };
            let progress = coding.add(batch, version.batches[batch].as_kept().column(column));
            table.coded(coding, progress)?;
        }
        Ok(())
    }

    /// Rows of a column of a batch as they are kept; the one after the last has the numbers of the rows.
    fn column(&mut self, batch: usize, place: usize, rows: &Range<usize>) -> ArrayRef {
        let batches = &self.read.version.batches;
        let whole = &batches[batch];
        let Some(kept) = whole.as_kept().columns().get(place) else {
            let first_rows = self.first_rows.get_or_insert_with(|| {
                let rows = batches.iter().map(|batch| batch.num_rows() as u64);
                rows.scan(0, |next, rows| Some(std::mem::replace(next, *next + rows))).collect()
            });
            let first = first_rows[batch] + rows.start as u64;
            return Arc::new(UInt64Array::from_iter_values(first..first + rows.len() as u64));
        };
        match rows.len() == whole.num_rows() {
            true => Arc::clone(kept),
            false => kept.slice(rows.start, rows.len()),
        }
    }
}

/// Of rows that are kept, those that are of these, too.
fn among(kept: &BooleanArray, of_these: &BooleanArray) -> BooleanArray {
    let mut all = BooleanBufferBuilder::new(kept.len());
    all.append_n(kept.len(), false);
    for (row, is_kept) in kept.values().set_indices().zip(of_these.values()) {
        all.set_bit(row, is_kept);
    }
    BooleanArray::new(all.finish(), None)
}
