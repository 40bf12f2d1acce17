//! Joins that finish whatever the memory: [`SpillingJoinExec`] runs one of DataFusion's joins, and deals both
//! sides out to files where its build side does not fit.
//!
//! Enters: both inputs of the join. Leaves: its rows. A build side is collected here and not by DataFusion's
//! operator, with a reservation for what that will make of it. Where all of it fits, the operator joins it as
//! it would have; where it does not, nothing has left yet. Not here: which joins are run like this
//! (`planner::spilling`).
//!
//! - `run`: the way of a join that does not fit, and who joins what
//! - `build`, `probe`, `blocks`: the sides, and parts that cannot be divided
//! - `deal`, `files`, `share`, `views`: parts by hash, rows in files, memory, and what of it texts need
//! - `spec`, `order`: DataFusion's operators over our streams, and the order of their rows

mod blocks;
mod build;
mod deal;
mod files;
mod order;
mod probe;
mod run;
mod share;
mod spec;
#[cfg(test)]
mod tests;
mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use datafusion::prelude::SessionConfig;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};

use self::run::{Build, Metrics, Run};
use self::spec::Spec;
use crate::exec::relational::feed::{Feed, adapted};

/// A build side that is being read, for whoever asks first and for all others.
type Building = Shared<BoxFuture<'static, std::result::Result<Arc<Build>, Arc<DataFusionError>>>>;

/// One of DataFusion's joins that spills.
#[derive(Debug)]
pub(crate) struct SpillingJoinExec {
    /// The join over its inputs, which says what there is to know of it and is never run.
    join: Arc<dyn ExecutionPlan>,
    in_memory: OnceLock<InMemory>,
    metrics: ExecutionPlanMetricsSet,
    depth: Gauge,
}

/// The join over streams that it is handed, for what fits.
struct InMemory {
    join: Arc<dyn ExecutionPlan>,
    build: Arc<Feed>,
    probe: Arc<Feed>,
    /// The build side that all partitions share.
    shared: Mutex<Option<Building>>,
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").field("join", &self.join).finish_non_exhaustive()
    }
}

impl SpillingJoinExec {
    /// None where the operator is no join that can be run like this.
    pub(crate) fn new(join: Arc<dyn ExecutionPlan>) -> Option<Self> {
        Spec::of(join.as_ref())?;
        let hash_join = join.downcast_ref::<HashJoinExec>();
        // A join whose mode is open has not been planned to its end, and one that reads a side that never
        // ends is none that can collect it.
        let is_planned = hash_join.is_none_or(|join| *join.partition_mode() != PartitionMode::Auto);
        let is_bounded = join.children().iter().all(|side| !side.boundedness().is_unbounded());
        let keeps_build_order = join.maintains_input_order().first().copied().unwrap_or_default();
        (is_planned && is_bounded && !keeps_build_order).then(|| Self::of(join))
    }

    fn of(join: Arc<dyn ExecutionPlan>) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        let depth = MetricBuilder::new(&metrics).global_gauge("spill_depth");
        Self { join, in_memory: OnceLock::new(), metrics, depth }
    }

    /// The join that is run.
    pub(crate) fn join(&self) -> &Arc<dyn ExecutionPlan> {
        &self.join
    }

    fn in_memory(&self) -> Result<&InMemory> {
        if let Some(in_memory) = self.in_memory.get() {
            return Ok(in_memory);
        }
        let children = self.join.children();
        let (build, probe) = (Feed::in_place_of(children[0]), Feed::in_place_of(children[1]));
        let feeds = vec![Arc::clone(&build) as _, Arc::clone(&probe) as _];
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let join = Arc::clone(&self.join).replace_children(feeds, options)?;
        let in_memory = InMemory { join, build, probe, shared: Mutex::default() };
        Ok(self.in_memory.get_or_init(|| in_memory))
    }

    /// Whether all partitions of the probe side meet the same build side.
    fn shares_build(&self) -> bool {
        let hash_join = self.join.downcast_ref::<HashJoinExec>();
        hash_join.is_none_or(|join| *join.partition_mode() == PartitionMode::CollectLeft)
    }

    fn run(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Run> {
        let spec = Spec::of(self.join.as_ref())
            .ok_or_else(|| DataFusionError::Internal("a join became another operator".into()))?;
        let partitions = match self.shares_build() {
            true => self.join.children()[1].output_partitioning().partition_count(),
            false => 1,
        };
        let hash_join = self.join.downcast_ref::<HashJoinExec>();
        Ok(Run::new(
            spec,
            order::is_relied_on(self.join.as_ref()),
            hash_join.is_some_and(|join| join.null_aware),
            partitions,
            context,
            unlimited(context),
            Metrics::new(&self.metrics, partition, &self.depth),
        ))
    }

    /// The build side of a partition, which the join in memory is fed with where it fits.
    fn building(&self, partition: usize, run: &Arc<Run>, in_memory: &InMemory) -> Result<Building> {
        let build_partition = if self.shares_build() { 0 } else { partition };
        let mut shared = in_memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shares_build()
            && let Some(building) = shared.as_ref()
        {
            return Ok(building.clone());
        }
        let input = self.join.children()[0].execute(build_partition, Arc::clone(&run.context))?;
        let whole = Arc::new(Mutex::new(None::<RecordBatch>));
        let rows = {
            let whole = Arc::clone(&whole);
            stream::once(async move { taken(&whole).ok_or_else(not_read) })
        };
        in_memory.build.put(build_partition, adapted(input.schema(), rows));
        let reading = run::read(Arc::clone(run), input, move |batch| {
            *whole.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        });
        let building = reading.map_ok(Arc::new).map_err(Arc::new).boxed().shared();
        if self.shares_build() {
            *shared = Some(building.clone());
        }
        Ok(building)
    }
}

/// The rows of the join in memory, or of the one that spills where the build side does not fit.
async fn joined(
    run: Arc<Run>,
    building: Building,
    in_memory: SendableRecordBatchStream,
    spilled: impl FnOnce(&Arc<run::Shared>, &Arc<Run>) -> Result<SendableRecordBatchStream>,
) -> Result<SendableRecordBatchStream> {
    let build = building.await.map_err(|error| DataFusionError::from(&error))?;
    match build.as_ref() {
        Build::Whole { .. } => {
            // What has been reserved stays so until the last row has left.
            let held = Arc::clone(&build);
            let rows = in_memory.inspect(move |_| {
                let _held = &held;
            });
            Ok(adapted(Arc::clone(&run.spec.schema), rows))
        }
        Build::Dealt(shared) => {
            // Others may wait for what this join says about its build side: it says that it will not.
            drop(in_memory);
            spilled(shared, &run)
        }
    }
}

/// What is behind a lock, once.
fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn not_read() -> DataFusionError {
    DataFusionError::Internal("a side of a join was asked for before it was read".into())
}

/// The context for operators whose memory has been reserved.
fn unlimited(context: &TaskContext) -> Arc<TaskContext> {
    let runtime = RuntimeEnv {
        memory_pool: Arc::new(UnboundedMemoryPool::default()),
        ..RuntimeEnv::clone(&context.runtime_env())
    };
    in_environment(context, context.session_config().clone(), Arc::new(runtime))
}

/// The context for an operator of ours that evaluates nothing but what it holds.
fn in_environment(
    context: &TaskContext,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
) -> Arc<TaskContext> {
    let (task, session) = (context.task_id(), context.session_id());
    let (scalar, higher, aggregate, window) =
        (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    Arc::new(TaskContext::new(task, session, config, scalar, higher, aggregate, window, runtime))
}

impl DisplayAs for SpillingJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => f.write_str("Spilling")?,
            // The name is written by itself there.
            DisplayFormatType::TreeRender => {}
        }
        self.join.fmt_as(format, f)
    }
}

impl ExecutionPlan for SpillingJoinExec {
    fn name(&self) -> &str {
        match self.join.name() {
            "HashJoinExec" => "SpillingHashJoinExec",
            "NestedLoopJoinExec" => "SpillingNestedLoopJoinExec",
            _ => "SpillingCrossJoinExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.join.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.join.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.join.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(visit)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.join.dynamic_expressions_produced()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = Arc::clone(&self.join).replace_children(children, options)?;
        Ok(Arc::new(Self::of(join)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::of(Arc::clone(&self.join).reset_state()?)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let in_memory = self.in_memory()?;
        let run = Arc::new(self.run(partition, &context)?);
        let building = self.building(partition, &run, in_memory)?;
        let probe = self.join.children()[1].execute(partition, Arc::clone(&context))?;
        let schema = probe.schema();
        let probe = Arc::new(Mutex::new(Some(probe)));
        let rows = {
            let probe = Arc::clone(&probe);
            stream::once(async move { taken(&probe).ok_or_else(not_read) }).try_flatten()
        };
        in_memory.probe.put(partition, adapted(schema, rows));
        let in_memory = in_memory.join.execute(partition, Arc::clone(&run.unlimited))?;
        let (metrics, fetch) = (self.metrics.clone(), self.join.fetch());
        let spilled = move |shared: &Arc<run::Shared>, run: &Arc<Run>| {
            let probe = taken(&probe).ok_or_else(not_read)?;
            let rows = shared.join(run, partition, probe)?;
            let baseline = BaselineMetrics::new(&metrics, partition);
            Ok(Box::pin(LimitStream::new(rows, 0, fetch, baseline)) as _)
        };
        let rows = stream::once(joined(run, building, in_memory, spilled)).try_flatten();
        Ok(adapted(self.schema(), rows))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        let in_memory = self.in_memory.get().and_then(|in_memory| in_memory.join.metrics());
        for metric in in_memory.iter().flat_map(MetricsSet::iter) {
            metrics.push(Arc::clone(metric));
        }
        Some(metrics)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.join.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.join.statistics_from_inputs(inputs, arguments)
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.join.supports_limit_pushdown()
    }

    fn fetch(&self) -> Option<usize> {
        self.join.fetch()
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self::of(self.join.with_fetch(limit)?)))
    }
}
