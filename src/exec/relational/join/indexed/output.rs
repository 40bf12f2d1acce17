//! The rows that a hash join makes: columns of both sides, in batches that are worth their way.
//!
//! Few rows of many batches of the probe side are put together. Rows of the build side are gathered after that, once.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{BatchCoalescer, FilterBuilder, take};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::JoinSide;
use datafusion::error::Result;

use super::pairs::{ALONE, Pairs};
use crate::encoding::decoded;
use crate::exec::relational::join::spec::{Spec, batch};
use crate::exec::relational::join::views::compacted_column;

/// The part of a batch's rows from which on they leave as they are.
const LARGE_SHARE: usize = 4;

/// Rows on their way out.
pub(super) struct Output {
    schema: SchemaRef,
    columns: Vec<Source>,
    build: RecordBatch,
    gathered: BatchCoalescer,
    /// For each row that has been gathered, the row of the build side.
    build_rows: Vec<u32>,
    ready: VecDeque<RecordBatch>,
}

/// Where a column comes from.
enum Source {
    Build(usize),
    /// A column of the probe side, and where it is among those that are gathered.
    Probe {
        column: usize,
        gathered: usize,
    },
}

impl Output {
    pub(super) fn new(spec: &Spec, build: RecordBatch, batch_rows: usize) -> Self {
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for column in &spec.output {
            match column.side {
                JoinSide::Left => columns.push(Source::Build(column.index)),
                JoinSide::Right => {
                    columns.push(Source::Probe { column: column.index, gathered: fields.len() });
                    fields.push(Arc::clone(&spec.sides[1].fields()[column.index]));
                }
                // A mark leaves with its rows, see `push`.
                JoinSide::None => {}
            }
        }
        let gathered = BatchCoalescer::new(Arc::new(Schema::new(fields)), batch_rows)
            .with_biggest_coalesce_batch_size(Some(batch_rows / LARGE_SHARE));
        let (schema, build_rows, ready) = (Arc::clone(&spec.schema), Vec::new(), VecDeque::new());
        Self { schema, columns, build, gathered, build_rows, ready }
    }

    /// Pairs of rows.
    pub(super) fn push_pairs(&mut self, probe: &RecordBatch, pairs: &mut Pairs) -> Result<()> {
        self.build_rows.append(&mut pairs.build);
        let rows = pairs.probe.len();
        let is_all = rows == probe.num_rows()
            && pairs.probe.iter().enumerate().all(|(at, &row)| at == row as usize);
        let columns = if is_all {
            self.of_probe(probe, |column| Ok(Arc::clone(column)))?
        } else {
            let rows = UInt32Array::from(std::mem::take(&mut pairs.probe));
            self.of_probe(probe, |column| Ok(take(column, &rows, None)?))?
        };
        self.gathered.push_batch(batch(&self.gathered.schema(), columns, rows)?)?;
        self.complete()
    }

    /// Rows of the probe side that leave alone.
    pub(super) fn push_probe_rows(
        &mut self,
        probe: &RecordBatch,
        leave: BooleanBuffer,
    ) -> Result<()> {
        let rows = leave.count_set_bits();
        let columns = if rows == leave.len() {
            self.of_probe(probe, |column| Ok(Arc::clone(column)))?
        } else {
            let leave = FilterBuilder::new(&BooleanArray::new(leave, None)).optimize().build();
            self.of_probe(probe, |column| Ok(leave.filter(column)?))?
        };
        self.build_rows.resize(self.build_rows.len() + rows, ALONE);
        self.gathered.push_batch(batch(&self.gathered.schema(), columns, rows)?)?;
        self.complete()
    }

    /// Rows that are what leaves.
    pub(super) fn push(&mut self, rows: RecordBatch) {
        if rows.num_rows() > 0 {
            self.ready.push_back(rows);
        }
    }

    /// Lets the rows leave that wait for others.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.gathered.finish_buffered_batch()?;
        self.complete()
    }

    /// Rows that leave.
    pub(super) fn next(&mut self) -> Option<RecordBatch> {
        self.ready.pop_front()
    }

    /// The columns of the probe side that are gathered, decoded once it is told which rows of each are.
    fn of_probe(
        &self,
        probe: &RecordBatch,
        rows: impl Fn(&ArrayRef) -> Result<ArrayRef>,
    ) -> Result<Vec<ArrayRef>> {
        let places = self.columns.iter().filter_map(|source| match source {
            Source::Build(_) => None,
            Source::Probe { column, .. } => Some(*column),
        });
        let schema = self.gathered.schema();
        let columns = places
            .zip(schema.fields())
            .map(|(place, field)| Ok(decoded(&rows(probe.column(place))?, field.data_type())?));
        columns.collect()
    }

    fn complete(&mut self) -> Result<()> {
        while let Some(probe) = self.gathered.next_completed_batch() {
            let waiting = self.build_rows.split_off(probe.num_rows());
            let rows = std::mem::replace(&mut self.build_rows, waiting);
            let joined = self.joined(&probe, rows)?;
            self.ready.push_back(joined);
        }
        Ok(())
    }

    /// Columns of the probe side beside those of rows of the build side.
    fn joined(&self, probe: &RecordBatch, build_rows: Vec<u32>) -> Result<RecordBatch> {
        let rows = numbers(build_rows);
        let column = |source: &Source| match source {
            Source::Build(column) => of_build(&self.build, *column, &rows),
            Source::Probe { gathered, .. } => Ok(Arc::clone(probe.column(*gathered))),
        };
        let columns = self.columns.iter().map(column).collect::<Result<_>>()?;
        batch(&self.schema, columns, rows.len())
    }
}

/// The rows of a column of the build side.
pub(super) fn of_build(build: &RecordBatch, column: usize, rows: &UInt32Array) -> Result<ArrayRef> {
    let column = build.column(column);
    if column.is_empty() {
        return Ok(new_null_array(column.data_type(), rows.len()));
    }
    Ok(compacted_column(&take(column, rows, None)?))
}

/// Numbers of rows, NULL for those that are not there.
fn numbers(mut rows: Vec<u32>) -> UInt32Array {
    if !rows.contains(&ALONE) {
        return UInt32Array::from(rows);
    }
    let valid = NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |at| rows[at] != ALONE));
    rows.iter_mut().filter(|row| **row == ALONE).for_each(|row| *row = 0);
    UInt32Array::new(rows.into(), Some(valid))
}
