//! The rows of a scan, batch by batch. Before the first one is read joins have told what they know of keys, and sorts later tell
//! what they look for: batches that this rules out are not read, and of all others columns that it is about first, and of the rest
//! the rows that it leaves. A filter that reads the scan looks at it itself, of the rows that meet its own condition.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, BooleanBufferBuilder, RecordBatch, UInt64Array};
use arrow::compute::{FilterBuilder, filter};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{PhysicalExpr, conjunction_opt};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, BoxStream, StreamExt};

use super::dictionary::Coding;
use super::memory::{BATCH_ROWS, MemoryTable, Version};
use crate::encoding::{Waking, as_they_are, decoded};
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
}

/// The rows of one partition of a scan that joins and sorts may need; their columns stay encoded for who decodes what it uses.
pub(super) fn rows(
    read: Read,
    is_encoded: bool,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> SendableRecordBatchStream {
    let given = Arc::clone(&read.given);
    let reading = Reading::new(read, metrics, partition);
    let batches = stream::try_unfold(reading, move |mut reading| async move {
        while let Some((batch, rows)) = reading.next() {
            let count = rows.len();
            if is_encoded && rows.start == 0 {
                reading.give_codes(batch)?;
            }
            let given = reading.needed_rows(batch, rows, is_encoded)?;
            reading.rows_dropped.add(count - given.num_rows());
            reading.rows_given.add(given.num_rows());
            if given.num_rows() > 0 {
                return Ok(Some((given, reading)));
            }
            // Others of this thread have their turn, and who stops a statement: to drop many rows takes a while.
            tokio::task::yield_now().await;
        }
        Ok(None)
    });
    Box::pin(RecordBatchStreamAdapter::new(given, Box::pin(batches)))
}

/// All rows to who looks at what joins and sorts have told after something else: columns wake as they are asked for.
pub(super) fn waking_rows(
    read: Read,
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
) -> BoxStream<'static, Result<Waking>> {
    let reading = Reading::new(read, metrics, partition);
    let batches = stream::try_unfold(reading, |mut reading| async {
        // Others of this thread have their turn.
        tokio::task::consume_budget().await;
        let Some((batch, rows)) = reading.next() else { return Ok(None) };
        reading.rows_given.add(rows.len());
        if rows.start == 0 {
            reading.give_codes(batch)?;
        }
        let places = Arc::clone(&reading.read.columns);
        Ok(Some((reading.waking(batch, rows, &places), reading)))
    });
    batches.boxed()
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
    /// All columns of the schema, by their numbers.
    all: Arc<[usize]>,
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
    fn new(read: Read, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            all: (0..read.schema.fields().len()).collect(),
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
        }
    }

    /// The next batch, and some of its rows.
    fn next(&mut self) -> Option<(usize, Range<usize>)> {
        self.leave_out();
        let begun = self.begun.take().or_else(|| Some((self.left.pop_front()?, 0)));
        let (batch, first) = begun.filter(|_| self.still_wanted > 0)?;
        self.batches_read += usize::from(first == 0);
        let rows = self.read.version.batches[batch].num_rows() - first;
        let taken = rows.min(BATCH_ROWS).min(self.still_wanted);
        if taken < rows {
            self.begun = Some((batch, first + taken));
        }
        // Nothing is told to a scan of which only some rows are wanted.
        self.still_wanted -= taken;
        Some((batch, first..first + taken))
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

    /// Columns of some rows of a batch.
    fn waking(&mut self, batch: usize, rows: Range<usize>, places: &[usize]) -> Waking {
        let mut waking = Waking::of(rows.len());
        let whole = &self.read.version.batches[batch];
        for &place in places {
            match whole.at_rest().columns().get(place) {
                Some(cell) => {
                    let own = self.read.schema.field(place).data_type();
                    waking.push_at_rest(cell, own, rows.clone());
                }
                // The one after the last of the table.
                None => {
                    let first_rows = &mut self.first_rows;
                    waking.push(numbers_of_rows(&self.read.version, first_rows, batch, &rows));
                }
            }
        }
        waking
    }

    /// Those of some rows of a batch that joins and sorts may need, encoded or decoded.
    fn needed_rows(
        &mut self,
        batch: usize,
        rows: Range<usize>,
        is_encoded: bool,
    ) -> Result<RecordBatch> {
        let all = Arc::clone(&self.all);
        let all = self.waking(batch, rows, &all);
        let needed = self.needed(&all)?;
        let count = needed.as_ref().map_or(all.num_rows(), BooleanArray::true_count);
        let schema = Arc::clone(&self.read.given);
        if count == 0 {
            return Ok(RecordBatch::new_empty(schema));
        }
        let few = needed.as_ref().and_then(|needed| Waking::few(needed.values()));
        let filter = needed.map(|needed| FilterBuilder::new(&needed).optimize().build());
        let columns = self.read.columns.iter().zip(schema.fields()).map(|(&place, field)| {
            let few = few.as_ref().map(|few| all.taken(place, few)).transpose()?.flatten();
            let column = match (few, &filter) {
                (Some(few), _) => few,
                (None, Some(filter)) => filter.filter(&all.column(place)?)?,
                (None, None) => all.column(place)?,
            };
            Ok(if is_encoded { column } else { decoded(&column, field.data_type())? })
        });
        Ok(as_they_are(&schema, columns.collect::<Result<_>>()?, count)?)
    }

    /// Those that joins and sorts may need; nothing where they may need most.
    fn needed(&mut self, rows: &Waking) -> Result<Option<BooleanArray>> {
        let mut steps = self.steps.take().unwrap_or_else(|| {
            let all = conjunction_opt(self.read.told_of_rows.iter().cloned());
            all.map_or_else(Vec::new, |all| steps(&all, &self.read.schema))
        });
        let mut needed: Option<BooleanArray> = None;
        for step in steps.iter_mut().filter(|step| step.is_worth_it()) {
            let mut columns = vec![None; rows.num_columns()];
            for &place in &step.places {
                let column = rows.column(place)?;
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
        Ok(needed)
    }

    /// Gives codes to the texts of a batch, where somebody asks for that.
    fn give_codes(&self, batch: usize) -> Result<()> {
        let Read { table, version, columns, .. } = &self.read;
        for (&column, coding) in columns.iter().zip(&self.codings) {
            let Some(coding) = coding.get_or_init(|| table.coding(version, column)) else {
                continue;
            };
            let progress = coding.add(batch, &version.batches[batch]);
            table.coded(coding, progress)?;
        }
        Ok(())
    }
}

/// The numbers of some rows of a batch. `first_rows` has those of the first of each batch, once somebody has asked.
fn numbers_of_rows(
    version: &Version,
    first_rows: &mut Option<Vec<u64>>,
    batch: usize,
    rows: &Range<usize>,
) -> ArrayRef {
    let first_rows = first_rows.get_or_insert_with(|| {
        let rows = version.batches.iter().map(|batch| batch.num_rows() as u64);
        rows.scan(0, |next, rows| Some(std::mem::replace(next, *next + rows))).collect()
    });
    let first = first_rows[batch] + rows.start as u64;
    Arc::new(UInt64Array::from_iter_values(first..first + rows.len() as u64))
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
