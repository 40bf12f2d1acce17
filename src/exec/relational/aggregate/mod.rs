//! GROUP BY that finishes whatever the memory: groups in tables small enough for a processor's cache, dealt out by a hash
//! of their keys where they are many, and to files where they do not fit.
//!
//! Enters: rows of all inputs, at once. Leaves: groups and their answers, at the output where DataFusion's exchange would
//! have put them. The operator stands for all of `AggregateExec: Final`, `RepartitionExec` and `AggregateExec: Partial`, or
//! for one that aggregates at once. What is added up in a group is DataFusion's (and ours, of `functions`), and so are
//! the answers, their types and errors. Not here: which aggregations are run like this (`planner::spilling`).
//!
//! - `run`: the way from inputs to outputs
//! - `worker`: one who aggregates and deals out; `table`: groups and their keys
//! - `distinct`: the different values of each group; `only`: what is known of all rows, where there are no keys
//! - `deal`, `parts`: groups by hash, in memory and in files
//! - `values`: the answers of groups of which all values are known, and too many for any table; `chosen`: which of them are asked for
//! - `spec`: keys, aggregates, and how rows look on their way; `reads`: what these are of rows that may be encoded

mod chosen;
mod deal;
mod distinct;
mod only;
mod parts;
mod reads;
mod run;
mod spec;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod worker;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, StatisticsArgs,
};
use futures::StreamExt;

use self::run::{Gathered, Metrics, Run};
use self::spec::Spec;
pub(crate) use self::spec::{Knows, knows};
use super::feed::generated;
use super::tasks::OnceForAll;
use crate::exec::encoded::encoded_rows;

/// The groups of all inputs, of which each output has its own.
type Gathering = OnceForAll<Gathered>;

/// An aggregation; see the header of this file.
pub(crate) struct SpillingAggregateExec {
    /// The aggregation of all rows at once, which says what there is to know of it and is never run.
    whole: Arc<AggregateExec>,
    /// Of each aggregate, whether it adds whole numbers however many bits they have.
    adds_any_width: Vec<bool>,
    schema: SchemaRef,
    /// By what groups are dealt out to outputs; none where each input has groups of its own.
    dealt_by: Option<Vec<Arc<dyn PhysicalExpr>>>,
    properties: Arc<PlanProperties>,
    gathering: Mutex<Option<(Arc<Run>, Gathering)>>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingAggregateExec {
    /// The operator that stands for others with this schema and these properties. `dealt_by` are expressions of the
    /// keys, where the groups of all inputs are dealt out to outputs.
    pub(crate) fn new(
        whole: AggregateExec,
        adds_any_width: Vec<bool>,
        schema: SchemaRef,
        dealt_by: Option<Vec<Arc<dyn PhysicalExpr>>>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        let (gathering, metrics) = (Mutex::default(), ExecutionPlanMetricsSet::new());
        let whole = Arc::new(whole);
        Self { whole, adds_any_width, schema, dealt_by, properties, gathering, metrics }
    }

    fn run(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Arc<Run>> {
        let outputs = match &self.dealt_by {
            Some(_) => self.properties.output_partitioning().partition_count(),
            None => 1,
        };
        let keys = self.whole.output_group_expr();
        let dealt_by = self.dealt_by.clone().unwrap_or(keys);
        let schema = Arc::clone(&self.schema);
        let spec = Spec::new(&self.whole, &self.adds_any_width, schema, dealt_by)?;
        let metrics = Metrics::new(&self.metrics, partition);
        Ok(Arc::new(Run::new(&Arc::new(spec), outputs, context, metrics)))
    }

    /// The groups that an output is to have a share of, and which one it is.
    fn gathering(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<(Arc<Run>, Gathering, usize)> {
        let input = self.whole.input();
        let gathering =
            |run: &Arc<Run>, inputs| OnceForAll::new(run.outputs(), Arc::clone(run).gather(inputs));
        if self.dealt_by.is_none() {
            let run = self.run(partition, context)?;
            let rows = encoded_rows(input, partition, Arc::clone(context))?;
            let gathering = gathering(&run, vec![rows]);
            return Ok((run, gathering, 0));
        }
        let mut all = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((run, gathering)) = all.as_ref() {
            return Ok((Arc::clone(run), gathering.clone(), partition));
        }
        let run = self.run(partition, context)?;
        let inputs = (0..input.output_partitioning().partition_count())
            .map(|partition| encoded_rows(input, partition, Arc::clone(context)))
            .collect::<Result<Vec<_>>>()?;
        let gathering = gathering(&run, inputs);
        *all = Some((Arc::clone(&run), gathering.clone()));
        Ok((run, gathering, partition))
    }
}

impl fmt::Debug for SpillingAggregateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillingAggregateExec").field("whole", &self.whole).finish_non_exhaustive()
    }
}

impl ExecutionPlan for SpillingAggregateExec {
    fn name(&self) -> &str {
        "SpillingAggregateExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.whole.children()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = Arc::clone(&self.whole).replace_children(children, options)?;
        let whole = whole.downcast_ref::<AggregateExec>().cloned().ok_or_else(|| {
            DataFusionError::Internal("an aggregation became another operator".into())
        })?;
        let (schema, properties) = (Arc::clone(&self.schema), Arc::clone(&self.properties));
        let (adds_any_width, dealt_by) = (self.adds_any_width.clone(), self.dealt_by.clone());
        Ok(Arc::new(Self::new(whole, adds_any_width, schema, dealt_by, properties)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.whole.apply_expressions(visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (run, gathering, output) = self.gathering(partition, &context)?;
        let answers = generated(self.schema(), move |mut to| async move {
            let gathered = gathering.get().await?;
            run.finish(&gathered, output, &mut to).await
        });
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let answers = answers.map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), answers)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition.filter(|_| self.dealt_by.is_none()))]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.whole.statistics_from_inputs(inputs, arguments)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}

impl DisplayAs for SpillingAggregateExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format != DisplayFormatType::TreeRender {
            f.write_str("Spilling")?;
        }
        self.whole.fmt_as(format, f)
    }
}
