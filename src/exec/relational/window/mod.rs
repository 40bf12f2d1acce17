//! Windows over whole partitions, a few partitions at a time.
//!
//! Enters: rows in the order of PARTITION BY. Leaves: the same rows with the windows' columns, as DataFusion's
//! `WindowAggExec` makes them of all rows at once: it runs over chunks of whole partitions instead. A partition that does
//! not fit goes to a file while its aggregates are made, and is read again with them beside (`replay`).
//!
//! ```text
//! rows ─ cut at partitions ─ chunk ─ WindowAggExec ─ rows with columns
//!               └ refused: a file and aggregates ─ the file again, with columns
//! ```
//!
//! Sums of floating-point numbers over a partition that went to a file are added batch by batch, and may differ in
//! their last digits from those of one that did not.

mod boundaries;
mod chunks;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};
use futures::StreamExt;

use self::chunks::Chunks;

/// The operator that stands for another; see the header of this file.
#[derive(Debug)]
pub(crate) struct SpillingWindowExec {
    ordinary: Arc<WindowAggExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingWindowExec {
    pub(crate) fn new(ordinary: WindowAggExec) -> Self {
        Self { ordinary: Arc::new(ordinary), metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl ExecutionPlan for SpillingWindowExec {
    fn name(&self) -> &str {
        "SpillingWindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.ordinary.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.ordinary.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let expressions = self.ordinary.window_expr().to_vec();
        let can_repartition = !self.ordinary.partition_keys().is_empty();
        let ordinary =
            WindowAggExec::try_new(expressions, children.swap_remove(0), can_repartition)?;
        Ok(Arc::new(Self::new(ordinary)))
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
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.ordinary.apply_expressions(visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let spills = SpillMetrics::new(&self.metrics, partition);
        let rows = Chunks::new(&self.ordinary, partition, context, spills)?.rows();
        let rows = rows.map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.ordinary.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.ordinary.statistics_from_inputs(inputs, arguments)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

impl DisplayAs for SpillingWindowExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return self.ordinary.fmt_as(format, f);
        }
        f.write_str("SpillingWindowExec, by whole partitions: ")?;
        self.ordinary.fmt_as(format, f)
    }
}
