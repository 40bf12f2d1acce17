//! Joins that finish whatever the memory: [`SpillingJoinExec`] runs one of DataFusion's joins, and deals both
//! sides out to files where its build side does not fit.
//!
//! Enters: both inputs of the join. Leaves: its rows. A build side is collected with a reservation for what will be
//! made of it. Where all of it fits, it is joined at once; where it does not, nothing has left yet. Not here: which joins
//! are run like this (`planner::spilling`).
//!
//! - `spec`, `bands`: what is joined, and by which order where it is not by equal keys
//! - `engine`, `indexed`: who joins a build side in memory
//! - `bounds`: what its keys tell whoever reads the probe side
//! - `run`: the way of a join that does not fit, and who joins what
//! - `build`, `probe`, `blocks`: the sides, and parts that cannot be divided
//! - `deal`, `files`, `share`, `views`: parts by hash, rows in files, memory, and what of it texts need
//! - `order`: the order of rows that have been in files
//! - `reverse`: the sides exchanged, where the one to build turns out to be much the larger

mod bands;
mod blocks;
mod bounds;
mod build;
mod deal;
mod engine;
mod files;
mod indexed;
mod members;
mod order;
mod probe;
mod reverse;
mod run;
mod share;
mod spec;
#[cfg(test)]
mod tests;
mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet, Time,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::{TryStreamExt, stream};

use self::bounds::{Announcement, Telling};
use self::engine::{Engines, Measures};
use self::reverse::Reversal;
use self::run::{Build, Metrics, Run};
use self::spec::{Method, Spec};
use crate::exec::encoded::encoded_rows;
use crate::exec::relational::feed::adapted;
use crate::exec::relational::tasks::OnceForAll;

/// A build side that is being read.
type Building = OnceForAll<Build>;

/// One of DataFusion's joins that spills.
#[derive(Debug)]
pub(crate) struct SpillingJoinExec {
    /// The join over its inputs, which says what there is to know of it and is never run.
    join: Arc<dyn ExecutionPlan>,
    common: Common,
    metrics: ExecutionPlanMetricsSet,
    depth: Gauge,
}

/// What all partitions of a run have in common.
#[derive(Default)]
struct Common {
    /// The build side, where there is one for all, and the probe side, where that may be built instead.
    building: Mutex<Option<(Building, Option<Arc<Reversal>>)>>,
    /// Where its keys are told; none where nobody listens.
    announcement: OnceLock<Option<Arc<Announcement>>>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").finish_non_exhaustive()
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
        Self { join, common: Common::default(), metrics, depth }
    }

    /// The join that is run.
    pub(crate) fn join(&self) -> &Arc<dyn ExecutionPlan> {
        &self.join
    }

    /// Whether all partitions of the probe side meet the same build side.
    fn shares_build(&self) -> bool {
        let hash_join = self.join.downcast_ref::<HashJoinExec>();
        hash_join.is_none_or(|join| *join.partition_mode() == PartitionMode::CollectLeft)
    }

    fn run(&self, partition: usize, context: &Arc<TaskContext>, elapsed: Time) -> Result<Run> {
        let spec = Spec::of(self.join.as_ref())
            .ok_or_else(|| DataFusionError::Internal("a join became another operator".into()))?
            .by_bands()?;
        let partitions = match self.shares_build() {
            true => self.join.children()[1].output_partitioning().partition_count(),
            false => 1,
        };
        let hash_join = self.join.downcast_ref::<HashJoinExec>();
        let measures = Measures::new(&self.metrics, partition, elapsed);
        Ok(Run::new(
            spec,
            order::is_relied_on(self.join.as_ref()),
            hash_join.is_some_and(|join| join.null_aware),
            partitions,
            context,
            Engines { context: unlimited(context), measures },
            Metrics::new(&self.metrics, partition, &self.depth),
        ))
    }

    /// The build side of a partition, and the probe side where the former may be the latter's.
    fn building(
        &self,
        partition: usize,
        run: &Arc<Run>,
    ) -> Result<(Building, Option<Arc<Reversal>>)> {
        if !self.shares_build() {
            return Ok((self.reading(partition, run, None)?, None));
        }
        let mut shared = self.common.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(both) = shared.as_ref() {
            return Ok(both.clone());
        }
        let reversal = Reversal::of(&self.join, &run.context)?;
        let both = (self.reading(0, run, reversal.clone())?, reversal);
        *shared = Some(both.clone());
        Ok(both)
    }

    fn reading(
        &self,
        partition: usize,
        run: &Arc<Run>,
        reversal: Option<Arc<Reversal>>,
    ) -> Result<Building> {
        let build = self.join.children()[0];
        let inputs = match build.downcast_ref::<CoalescePartitionsExec>() {
            // All of its inputs are read at once.
            Some(all) if all.fetch().is_none() => {
                let partitions = 0..all.input().output_partitioning().partition_count();
                let execute = |partition| all.input().execute(partition, Arc::clone(&run.context));
                partitions.map(execute).collect::<Result<_>>()?
            }
            _ => vec![build.execute(partition, Arc::clone(&run.context))?],
        };
        let announcement = self.common.announcement.get_or_init(|| {
            let builds = self.join.children()[0].output_partitioning().partition_count();
            Announcement::of(
                self.join.downcast_ref()?,
                if self.shares_build() { 1 } else { builds },
            )
        });
        let telling = announcement.as_ref().map(|told| Telling::new(Arc::clone(told)));
        let reading = run::read(Arc::clone(run), inputs, telling, reversal);
        Ok(OnceForAll::new(run.partitions, reading))
    }
}

/// The context for operators whose memory has been reserved, and that evaluate nothing but what they hold.
fn unlimited(context: &TaskContext) -> Arc<TaskContext> {
    let runtime = RuntimeEnv {
        memory_pool: Arc::new(UnboundedMemoryPool::default()),
        ..RuntimeEnv::clone(&context.runtime_env())
    };
    let (task, session) = (context.task_id(), context.session_id());
    let config = context.session_config().clone();
    let (scalar, higher, aggregate, window) =
        (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    let runtime = Arc::new(runtime);
    Arc::new(TaskContext::new(task, session, config, scalar, higher, aggregate, window, runtime))
}

impl DisplayAs for SpillingJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => f.write_str("Spilling")?,
            // The name is written by itself there.
            DisplayFormatType::TreeRender => {}
        }
        self.join.fmt_as(format, f)?;
        let spec = Spec::of(self.join.as_ref()).and_then(|spec| spec.by_bands().ok());
        match spec.map(|spec| spec.method) {
            Some(Method::Bands(bands)) => write!(f, ", {bands}"),
            _ => Ok(()),
        }
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
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let run = Arc::new(self.run(partition, &context, baseline.elapsed_compute().clone())?);
        let (building, reversal) = self.building(partition, &run)?;
        let probe = match &reversal {
            Some(_) => None,
            None => Some(encoded_rows(self.join.children()[1], partition, context)?),
        };
        let rows = stream::once(async move {
            let build = building.get().await?;
            run::joined(&run, build, partition, || match (probe, reversal) {
                (Some(probe), _) => Ok(probe),
                (None, Some(reversal)) => reversal.probe(partition),
                (None, None) => internal_err!("a join has lost its probe side"),
            })
        });
        let rows = adapted(self.schema(), rows.try_flatten());
        Ok(Box::pin(LimitStream::new(rows, 0, self.join.fetch(), baseline)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
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
