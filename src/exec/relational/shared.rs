//! A plan that runs once, however many read its rows.
//!
//! Enters: the rows of a plan, once its first reader asks for some. Leaves: all of them, to each reader, from memory or where
//! they lie in a file. All partitions run at once, whichever is asked for: an exchange in the plan would wait for one
//! that nobody reads.
//!
//! ```text
//! plan ─ rows that are kept ─┬─ SharedExec: #1            holds the plan
//!                            └─ SharedExec: #1, as above  reads the same rows
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::feed::adapted;
use crate::memory::Kept;

/// One of the readers of a plan; see the header of this file.
#[derive(Debug)]
pub(crate) struct SharedExec {
    /// The same for all readers of a plan.
    id: u64,
    /// Its place among the shared plans of a statement, from 1.
    number: usize,
    rows: Arc<Rows>,
    /// Whether the plan is shown as its input, and replaced with it.
    holds_plan: bool,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedExec {
    /// A reader of its own plan. Those of one `id` share it once [`run_once`] has seen them.
    pub(crate) fn new(id: u64, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self::of(id, 1, Rows::of(plan), true)
    }

    fn of(id: u64, number: usize, rows: Arc<Rows>, holds_plan: bool) -> Self {
        Self { id, number, rows, holds_plan, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// Lets the first reader of each shared plan hold it, and the others read its rows. To be called whenever the
/// operators of a plan may have been made anew.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn run_once(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut held: HashMap<u64, (usize, Arc<Rows>)> = HashMap::new();
    plan.transform_up(|plan| {
        let Some(reader) = plan.downcast_ref::<SharedExec>() else {
            return Ok(Transformed::no(plan));
        };
        let (id, next) = (reader.id, held.len() + 1);
        let reader = match held.get(&id) {
            Some((number, rows)) => SharedExec::of(id, *number, Arc::clone(rows), false),
            None => {
                let rows = Arc::clone(&reader.rows);
                held.insert(id, (next, Arc::clone(&rows)));
                SharedExec::of(id, next, rows, true)
            }
        };
        Ok(Transformed::yes(Arc::new(reader) as _))
    })
    .data()
}

/// The rows of a plan, from when somebody wants them.
struct Rows {
    plan: Arc<dyn ExecutionPlan>,
    partitions: Mutex<Vec<Running>>,
}

/// The rows of a partition, once they are there.
type Running = Shared<BoxFuture<'static, Result<Arc<Partition>, Arc<DataFusionError>>>>;

/// The rows of a partition, and what counts them.
struct Partition {
    batches: Vec<RecordBatch>,
    _kept: Kept,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Rows {
    fn of(plan: Arc<dyn ExecutionPlan>) -> Arc<Self> {
        Arc::new(Self { plan, partitions: Mutex::default() })
    }

    /// The rows of a partition. Whoever comes first runs the plan.
    fn partition(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Running> {
        let mut running = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_empty() {
            let partitions = 0..self.plan.properties().output_partitioning().partition_count();
            let streams = partitions.map(|at| self.plan.execute(at, Arc::clone(context)));
            let streams = streams.collect::<Result<Vec<_>>>()?;
            running.extend(streams.into_iter().map(|rows| started(rows, context)));
        }
        let rows = running.get(partition).cloned();
        rows.ok_or_else(|| internal_datafusion_err!("there is no partition {partition}"))
    }
}

/// A partition that is read to its end by a task of its own.
fn started(mut rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Running {
    let mut kept = Kept::new("SharedExec", context.memory_pool());
    let task = SpawnedTask::spawn(async move {
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await.transpose()? {
            batches.push(kept.keep(batch));
        }
        Ok(Arc::new(Partition { batches, _kept: kept }))
    });
    let rows = async move {
        let done: Result<_> = match task.join_unwind().await {
            Ok(done) => done,
            Err(stopped) => Err(DataFusionError::ExecutionJoin(Box::new(stopped))),
        };
        done.map_err(Arc::new)
    };
    rows.boxed().shared()
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.rows.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        if self.holds_plan { vec![&self.rows.plan] } else { Vec::new() }
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.children().iter().map(|_| false).collect()
    }

    /// Not as far as rules go: they would sort the plan that one reader holds, and it may be another's that runs.
    fn maintains_input_order(&self) -> Vec<bool> {
        self.children().iter().map(|_| false).collect()
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(plan) => Arc::new(Self::of(self.id, self.number, Rows::of(plan), true)),
            None => self,
        })
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (rows, metrics) =
            (Arc::clone(&self.rows), BaselineMetrics::new(&self.metrics, partition));
        let read = async move {
            let running = rows.partition(partition, &context)?;
            let partition = running.await.map_err(DataFusionError::Shared)?;
            let batches =
                (0..partition.batches.len()).map(move |at| Ok(partition.batches[at].clone()));
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        let batches = stream::once(read).try_flatten();
        let batches = batches.map(move |batch| batch.record_output(&metrics));
        Ok(make_cooperative(adapted(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.children().iter().map(|_| ChildStats::At(partition)).collect()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let unknown = || Arc::new(Statistics::new_unknown(&self.schema()));
        Ok(inputs.first().map_or_else(unknown, Arc::clone))
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.holds_plan { "" } else { ", as above" };
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "#{}{again}", self.number),
            _ => write!(f, "SharedExec: #{}{again}", self.number),
        }
    }
}
