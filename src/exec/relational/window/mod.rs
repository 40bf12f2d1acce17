//! Windows, column by column.
//!
//! Enters: rows in the order of PARTITION BY and ORDER BY. Leaves: the same rows with the windows' columns, as DataFusion's
//! operators make them. Rows pass six steps, those that have something to make (`recipe`); only where a value asks for rows
//! to come are rows held, and those of a partition that does not fit go to files.
//!
//! ```text
//! rows ─ of tails ─ of firsts ─ of spans ─ of the partition ─ of peers ─ of rows ─ rows with columns
//!        (tails)    (distant)   (distant)  (groups, held)     (groups)   (rows)        functions: running, sliding, spanning,
//!                                                                                                 shift, ranks
//! ```
//!
//! A window of a kind that is not known here leaves the operator to DataFusion: where that would hold all rows, it runs over a
//! few whole partitions at a time (`chunks`). Sums of floating-point numbers are added in the order of the rows, however
//! they come in batches.

mod boundaries;
mod chunks;
mod distant;
mod functions;
mod groups;
mod recipe;
mod rows;
mod tails;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
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
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
    StatisticsArgs,
};
use futures::StreamExt;

use self::chunks::Chunks;
use self::distant::{Firsts, Spans};
use self::groups::Groups;
use self::recipe::{FromFirsts, FromSpans, Made, Recipe};
use self::rows::Rows;
use self::tails::Tails;
use super::feed::adapted;

/// The operator that stands for another; see the header of this file.
#[derive(Debug)]
pub(crate) struct SpillingWindowExec {
    ordinary: Arc<dyn ExecutionPlan>,
    way: Way,
    metrics: ExecutionPlanMetricsSet,
}

/// How the columns are made.
#[derive(Debug)]
enum Way {
    Columns(Arc<Recipe>),
    Partitions(Arc<WindowAggExec>),
}

impl SpillingWindowExec {
    /// Nothing where the operator is none of windows, or none for us.
    pub(crate) fn new(ordinary: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let of_bounded = ordinary.downcast_ref::<BoundedWindowAggExec>();
        let of_whole = ordinary.downcast_ref::<WindowAggExec>();
        let windows = match (of_bounded, of_whole) {
            (Some(window), _) if window.input_order_mode == InputOrderMode::Sorted => {
                window.window_expr()
            }
            (_, Some(window)) => window.window_expr(),
            _ => return None,
        };
        let way = match (Recipe::of(windows, &ordinary.children()[0].schema()), of_whole) {
            (Some(recipe), _) => Way::Columns(Arc::new(recipe)),
            (None, Some(window)) => Way::Partitions(Arc::new(window.clone())),
            (None, None) => return None,
        };
        let ordinary = Arc::clone(ordinary);
        Some(Self { ordinary, way, metrics: ExecutionPlanMetricsSet::new() })
    }

    /// The steps.
    fn columns(
        &self,
        recipe: &Recipe,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Recipe {
            partition_by,
            peers_by,
            elsewhere,
            of_tails,
            of_firsts,
            of_spans,
            of_partition,
            of_peers,
            of_rows,
            columns: _,
        } = recipe;
        let mut source = Arc::clone(self.ordinary.children()[0]);
        if !elsewhere.is_empty() {
            let (windows, mode) = (elsewhere.clone(), InputOrderMode::Sorted);
            source = Arc::new(BoundedWindowAggExec::try_new(windows, source, mode, false)?);
        }
        let mut rows = source.execute(partition, Arc::clone(context))?;
        let spills = SpillMetrics::new(&self.metrics, partition);
        if !of_tails.is_empty() {
            rows = Tails::new(rows, partition_by, of_tails, context, &spills)?.rows();
        }
        for FromFirsts { offset, made } in of_firsts {
            rows = Firsts::new(rows, partition_by, offset, made, context, &spills)?.rows();
        }
        for FromSpans { span, made } in of_spans {
            rows = Spans::new(rows, partition_by, span, made, context, &spills)?.rows();
        }
        if !of_partition.is_empty() {
            let made = of_partition;
            rows = Groups::new(rows, partition_by, None, made, context, &spills)?.rows();
        }
        if !of_peers.is_empty() {
            let (peers, made) = (Some(peers_by.as_slice()), of_peers);
            rows = Groups::new(rows, partition_by, peers, made, context, &spills)?.rows();
        }
        if !of_rows.is_empty() {
            rows = Rows::new(rows, partition_by, peers_by, of_rows, context)?.rows();
        }
        let width = self.ordinary.children()[0].schema().fields().len();
        let columns: Vec<usize> = (0..width).chain(recipe.columns.iter().copied()).collect();
        let schema = self.schema();
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let columns = columns.iter().map(|&at| Arc::clone(batch.column(at))).collect();
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &rows)?)
        });
        Ok(adapted(self.schema(), rows))
    }
}

/// The values of expressions over a batch.
fn evaluated(expressions: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let rows = batch.num_rows();
    expressions.iter().map(|of| of.evaluate(batch)?.into_array(rows)).collect()
}

/// The schema of rows to which a step adds its columns.
fn with_fields<F>(schema: &SchemaRef, made: &[Made<F>]) -> SchemaRef {
    let made = made.iter().map(|made| Arc::clone(&made.field));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain(made).collect::<Vec<_>>()))
}

/// A batch to which a step adds its columns.
fn with_columns(
    batch: &RecordBatch,
    made: Vec<ArrayRef>,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let columns = batch.columns().iter().cloned().chain(made).collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?)
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
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ordinary = Arc::clone(&self.ordinary).replace_children(children, options)?;
        Ok(match Self::new(&ordinary) {
            Some(window) => Arc::new(window),
            None => ordinary,
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
        let rows = match &self.way {
            Way::Columns(recipe) => self.columns(recipe, partition, &context)?,
            Way::Partitions(window) => {
                adapted(self.schema(), Chunks::new(window, partition, context)?.rows())
            }
        };
        Ok(adapted(self.schema(), rows.map(move |batch| batch.record_output(&metrics))))
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
        f.write_str(match self.way {
            Way::Columns(_) => "SpillingWindowExec, column by column: ",
            Way::Partitions(_) => "SpillingWindowExec, by whole partitions: ",
        })?;
        self.ordinary.fmt_as(format, f)
    }
}
