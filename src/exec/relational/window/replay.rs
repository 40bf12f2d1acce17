//! One partition that does not fit: written to a file while its aggregates are made, then read again.
//!
//! Enters: the rows of a partition. Leaves: the same rows with the windows' columns. Of the windows of one operator,
//! each is made in one of three ways; a function that can be made in none refuses the partition.
//!
//! - **of the whole**: an aggregate whose frame is the partition is made while the rows are written.
//! - **row by row**: what needs no rows to come but a few is made by DataFusion's `BoundedWindowAggExec` of the file.
//! - **of the count**: `ntile` and `percent_rank` need the number of rows, which is known when the file is read.
//!   `cume_dist` also needs the last peer of each row: the file is read once more, ahead.

use std::sync::Arc;

use arrow::array::{Float64Array, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::InputOrderMode;
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{ExecutionPlan, PlanProperties, SpillManager};
use futures::{StreamExt, stream};

use super::boundaries::{Boundaries, PeerEnds};
use crate::exec::relational::feed::{Feed, adapted};
use crate::exec::relational::files::{RowFile, files_of};

/// How the windows of an operator are made of a file.
pub(super) struct Replay {
    ways: Result<Vec<Way>, String>,
    row_by_row: Vec<Arc<dyn WindowExpr>>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    manager: SpillManager,
}

/// How one window is made.
#[derive(Clone)]
enum Way {
    Whole(Arc<dyn WindowExpr>),
    /// The column of this place among those that are made row by row.
    RowByRow(usize),
    /// The number of groups.
    Ntile(u64),
    /// The expressions by whose change the rank does.
    PercentRank(Vec<Arc<dyn PhysicalExpr>>),
    /// The same of `cume_dist`.
    CumeDist(Vec<Arc<dyn PhysicalExpr>>),
}

impl Replay {
    pub(super) fn new(
        window: &WindowAggExec,
        context: Arc<TaskContext>,
        spills: SpillMetrics,
    ) -> Self {
        let mut row_by_row = Vec::new();
        let ways = window
            .window_expr()
            .iter()
            .map(|expr| way(expr, &mut row_by_row).ok_or_else(|| expr.name().to_owned()));
        let ways = ways.collect();
        let manager = files_of(&window.input().schema(), &context, &spills);
        Self { ways, row_by_row, schema: window.schema(), context, manager }
    }

    /// The first function that can only be made of rows that are held.
    pub(super) fn refused(&self) -> Option<&str> {
        self.ways.as_ref().err().map(String::as_str)
    }
}

fn way(expr: &Arc<dyn WindowExpr>, row_by_row: &mut Vec<Arc<dyn WindowExpr>>) -> Option<Way> {
    if expr.uses_bounded_memory() {
        row_by_row.push(Arc::clone(expr));
        return Some(Way::RowByRow(row_by_row.len() - 1));
    }
    if expr.as_any().is::<PlainAggregateWindowExpr>() {
        // A FILTER is not to be had but from the form for people.
        let is_filtered = !format!("{expr:?}").ends_with("filter: None }");
        return (is_of_the_whole(expr) && !is_filtered).then(|| Way::Whole(Arc::clone(expr)));
    }
    let standard = expr.as_any().downcast_ref::<StandardWindowExpr>()?;
    let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
    let keys = || expr.order_by().iter().map(|key| Arc::clone(&key.expr)).collect();
    match function.fun().name() {
        "ntile" => {
            let groups = function.args().first()?.downcast_ref::<Literal>()?.value();
            let groups = groups.cast_to(&arrow::datatypes::DataType::UInt64).ok()?;
            match groups {
                ScalarValue::UInt64(Some(groups)) if groups > 0 => Some(Way::Ntile(groups)),
                _ => None,
            }
        }
        "percent_rank" => Some(Way::PercentRank(keys())),
        "cume_dist" => Some(Way::CumeDist(keys())),
        _ => None,
    }
}

/// Whether the frame of every row is the partition.
fn is_of_the_whole(expr: &Arc<dyn WindowExpr>) -> bool {
    let frame = expr.get_window_frame();
    let all_are_peers = frame.units == WindowFrameUnits::Range && expr.order_by().is_empty();
    let is_open = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => all_are_peers,
        bound => bound.is_unbounded(),
    };
    is_open(&frame.start_bound) && is_open(&frame.end_bound)
}

/// A partition on its way to a file.
pub(super) struct Written {
    replay: Arc<Replay>,
    file: RowFile,
    /// Of each window, if it is one of the whole.
    accumulators: Vec<Option<Box<dyn Accumulator>>>,
}

impl Written {
    pub(super) fn new(replay: Arc<Replay>) -> Result<Self> {
        let file = RowFile::new(&replay.manager, "a window")?;
        let ways = replay.ways.as_deref().unwrap_or_default();
        let accumulators = ways.iter().map(|way| match way {
            Way::Whole(expr) => {
                let aggregate = expr.as_any().downcast_ref::<PlainAggregateWindowExpr>();
                aggregate.map(|expr| expr.get_aggregate_expr().create_accumulator()).transpose()
            }
            _ => Ok(None),
        });
        let accumulators = accumulators.collect::<Result<_>>()?;
        Ok(Self { replay, file, accumulators })
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let ways = self.replay.ways.as_deref().unwrap_or_default();
        for (way, accumulator) in ways.iter().zip(&mut self.accumulators) {
            if let (Way::Whole(expr), Some(accumulator)) = (way, accumulator) {
                accumulator.update_batch(&expr.evaluate_args(batch)?)?;
            }
        }
        self.file.append(batch)
    }

    /// The rows again, with the windows' columns.
    pub(super) fn rows(
        mut self,
        properties: &Arc<PlanProperties>,
    ) -> Result<SendableRecordBatchStream> {
        let wholes = self.accumulators.iter_mut().map(|accumulator| {
            accumulator.as_mut().map(|accumulator| accumulator.evaluate()).transpose()
        });
        let wholes = wholes.collect::<Result<Vec<_>>>()?;
        let replay = self.replay;
        let file = self.file.finish()?;
        let ways = replay.ways.as_deref().unwrap_or_default();
        let peers = ways.iter().map(|way| match way {
            Way::PercentRank(keys) => Peers::Starts(Boundaries::new(keys.clone()), 0),
            Way::CumeDist(keys) => Peers::Ends(PeerEnds::new(file.read(), keys.clone())),
            _ => Peers::None,
        });
        let peers = peers.collect();
        let mut rows = file.read();
        let width = rows.schema().fields().len();
        if !replay.row_by_row.is_empty() {
            let source = Feed::once(rows, properties);
            let expressions = replay.row_by_row.clone();
            let mode = InputOrderMode::Sorted;
            let window = BoundedWindowAggExec::try_new(expressions, source, mode, false)?;
            rows = window.execute(0, Arc::clone(&replay.context))?;
        }
        let schema = Arc::clone(&replay.schema);
        let columns = Columns { replay, wholes, width, count: file.count as u64, row: 0, peers };
        let rows = stream::try_unfold((rows, columns), |(mut rows, mut columns)| async {
            let Some(batch) = rows.next().await.transpose()? else { return Ok(None) };
            let batch = columns.of(&batch).await?;
            Ok(Some((batch, (rows, columns))))
        });
        Ok(adapted(schema, rows))
    }
}

/// The columns of batches that follow one another.
struct Columns {
    replay: Arc<Replay>,
    wholes: Vec<Option<ScalarValue>>,
    /// Columns of the input.
    width: usize,
    /// Rows of the partition, and those that were read.
    count: u64,
    row: u64,
    /// Of each window, where it looks for peers.
    peers: Vec<Peers>,
}

/// Where the peers of a row are.
enum Peers {
    None,
    /// Where they begin, and the first peer of the last row.
    Starts(Boundaries, u64),
    Ends(PeerEnds),
}

impl Columns {
    async fn of(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = batch.columns()[..self.width].to_vec();
        let replay = Arc::clone(&self.replay);
        for (at, way) in replay.ways.as_deref().unwrap_or_default().iter().enumerate() {
            columns.push(match way {
                Way::Whole(_) => {
                    let value = self.wholes[at].as_ref().unwrap_or(&ScalarValue::Null);
                    value.to_array_of_size(rows)?
                }
                Way::RowByRow(place) => Arc::clone(batch.column(self.width + place)),
                Way::Ntile(groups) => {
                    let group = |row| ntile(row, self.count, *groups);
                    let places = self.row..self.row + rows as u64;
                    Arc::new(UInt64Array::from_iter_values(places.map(group)))
                }
                Way::PercentRank(_) | Way::CumeDist(_) => {
                    Arc::new(Float64Array::from(self.shares_before(at, batch).await?))
                }
            });
        }
        self.row += rows as u64;
        let rows = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&replay.schema), columns, &rows)?)
    }

    /// Of each row, the part of the other rows that come before its first peer; or the part of all rows that do not
    /// come after its last.
    async fn shares_before(&mut self, window: usize, batch: &RecordBatch) -> Result<Vec<f64>> {
        let rows = batch.num_rows();
        let mut shares = Vec::with_capacity(rows);
        match &mut self.peers[window] {
            Peers::None => shares.resize(rows, 0.0),
            Peers::Starts(boundaries, first_peer) => {
                let others = self.count.saturating_sub(1).max(1) as f64;
                for start in boundaries.starts(batch)? {
                    shares.resize(start, *first_peer as f64 / others);
                    *first_peer = self.row + start as u64;
                }
                shares.resize(rows, *first_peer as f64 / others);
            }
            Peers::Ends(ends) => {
                while shares.len() < rows {
                    let end = ends.of(self.row + shares.len() as u64).await?;
                    let until = (end - self.row).min(rows as u64) as usize;
                    shares.resize(until, end as f64 / self.count as f64);
                }
            }
        }
        Ok(shares)
    }
}

/// The group, from 1, of a row, from 0: groups are as equally large as can be, the larger ones first.
fn ntile(row: u64, count: u64, groups: u64) -> u64 {
    let (small, larger) = (count / groups, count % groups);
    let in_larger = larger * (small + 1);
    match row < in_larger {
        true => row / (small + 1) + 1,
        // There is a row beyond the larger groups, so the others are not empty.
        false => larger + (row - in_larger) / small + 1,
    }
}
