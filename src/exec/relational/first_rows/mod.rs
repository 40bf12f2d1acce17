//! Of each group, rows that cannot be among its first ones go before anyone exchanges or sorts them.
//!
//! Enters: rows in any order. Leaves: those that meet a condition, where there is one, without those that are beyond as many
//! others of their group as are asked for, by the first sort key, of what this stream has seen so far; ties stay. The rows
//! that are asked for are among those that leave, and whoever numbers or sorts them sees few others.
//!
//! ```text
//! batch ─ condition ─ rows that meet it
//!   ├ keys ─ numbers of groups ┐
//!   └ first sort key ─ places ─┴ standings: the best places of each group ─ rows that may be first
//! ```
//!
//! Rows are gathered once, at the end: lists that a row is ordered by stay where they are. Where too few rows go, or there is
//! no memory for the places, all that meet the condition pass from then on.

mod standings;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
};
use arrow::compute::{BatchCoalescer, filter, not, nullif, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics,
    StatisticsArgs,
};
use futures::{StreamExt, stream};

use self::standings::Standings;
use super::feed::adapted;
use super::memory::Memory;
use super::places::places;

/// Rows after which it is seen whether enough of them go, again and again.
const TRIAL_ROWS: usize = 1 << 20;

/// Of those, the part that must go at least: dropping a row is cheaper than to exchange and to sort it.
const DROPPED_PART: usize = 8;

/// What is asked for of each group.
#[derive(Debug, Clone)]
pub(crate) struct First {
    /// So many rows, at least one.
    pub(crate) count: usize,
    /// Of groups by these keys; of all rows where there are none.
    pub(crate) keys: Vec<Arc<dyn PhysicalExpr>>,
    /// What orders the rows of a group before anything else does.
    pub(crate) by: PhysicalSortExpr,
    /// Of the rows that meet this condition. The others have keys and an order too, with NULL for each list, and computing
    /// them must not fail.
    pub(crate) condition: Option<Arc<dyn PhysicalExpr>>,
}

/// The operator; see the header of this file.
#[derive(Debug)]
pub(crate) struct FirstRowsExec {
    first: First,
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl FirstRowsExec {
    pub(crate) fn new(first: First, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { first, input, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// The rows of one stream on their way.
struct Rows {
    first: First,
    input: SendableRecordBatchStream,
    /// Nothing once all rows pass.
    standings: Option<Standings>,
    /// Rows of this trial, and those of them that went.
    seen: usize,
    dropped: usize,
    kept: BatchCoalescer,
    has_ended: bool,
}

impl Rows {
    fn new(first: &First, input: SendableRecordBatchStream, context: &TaskContext) -> Result<Self> {
        let schema = input.schema();
        let fields = first.keys.iter().enumerate().map(|(at, key)| {
            let (data_type, nullable) = (key.data_type(&schema)?, key.nullable(&schema)?);
            Ok(Field::new(at.to_string(), data_type, nullable))
        });
        let keys = Arc::new(Schema::new(fields.collect::<Result<Vec<Field>>>()?));
        let memory = Memory::new("FirstRows", context.memory_pool());
        Ok(Self {
            standings: Some(Standings::new(first.count, &keys, memory)?),
            first: first.clone(),
            seen: 0,
            dropped: 0,
            kept: BatchCoalescer::new(schema, context.session_config().batch_size()),
            has_ended: false,
            input,
        })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.kept.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.input.next().await.transpose()? {
                Some(batch) => self.push(batch)?,
                None => {
                    self.has_ended = true;
                    self.kept.finish_buffered_batch()?;
                }
            }
        }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let met = self.met(&batch)?;
        let Some(chosen) = self.chosen(&batch, met.as_ref())? else {
            self.standings = None;
            match &met {
                Some(met) => self.kept.push_batch_with_filter(batch, met)?,
                None => self.kept.push_batch(batch)?,
            }
            return Ok(());
        };
        let met = met.map_or(batch.num_rows(), |met| met.true_count());
        self.seen += met;
        self.dropped += met - chosen.true_count();
        self.kept.push_batch_with_filter(batch, &chosen)?;
        if self.seen >= TRIAL_ROWS {
            if self.dropped < self.seen / DROPPED_PART {
                self.standings = None;
            }
            (self.seen, self.dropped) = (0, 0);
        }
        Ok(())
    }

    /// The rows that meet the condition; nothing where there is none.
    fn met(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>> {
        let Some(condition) = &self.first.condition else { return Ok(None) };
        let met = condition.evaluate(batch)?.into_array(batch.num_rows())?;
        let met = met.as_boolean_opt();
        let met = met.ok_or_else(|| exec_datafusion_err!("{condition} is no condition"))?;
        Ok(Some(if met.null_count() > 0 { prep_null_mask_filter(met) } else { met.clone() }))
    }

    /// The rows that may be among the first; nothing where all pass that meet the condition.
    fn chosen(
        &mut self,
        batch: &RecordBatch,
        met: Option<&BooleanArray>,
    ) -> Result<Option<BooleanArray>> {
        let Some(standings) = &mut self.standings else { return Ok(None) };
        let rows = batch.num_rows();
        let asked = met.map(|met| without_lists(batch, met)).transpose()?;
        let batch = asked.as_ref().unwrap_or(batch);
        let computed = |of: &Arc<dyn PhysicalExpr>| -> Result<ArrayRef> {
            let values = of.evaluate(batch)?.into_array(rows)?;
            met.map_or_else(|| Ok(Arc::clone(&values)), |met| Ok(filter(&values, met)?))
        };
        let keys = self.first.keys.iter().map(computed).collect::<Result<Vec<_>>>()?;
        let by = computed(&self.first.by.expr)?;
        let chosen = standings.enter(&keys, &places(&by, self.first.by.options)?)?;
        let chosen = chosen.map(|chosen| match met {
            None => chosen,
            Some(met) => {
                let mut all = BooleanBufferBuilder::new(rows);
                all.append_n(rows, false);
                let places = met.values().set_indices().zip(&chosen);
                places.for_each(|(place, is_chosen)| all.set_bit(place, is_chosen));
                all.finish()
            }
        });
        Ok(chosen.map(|chosen| BooleanArray::new(chosen, None)))
    }
}

/// A batch with NULL for each list of a row that does not meet a condition. Nothing is moved.
fn without_lists(batch: &RecordBatch, met: &BooleanArray) -> Result<RecordBatch> {
    let others = not(met)?;
    let columns = batch.columns().iter().map(|column| match column.data_type().is_list() {
        true => nullif(column, &others),
        false => Ok(Arc::clone(column)),
    });
    let fields = batch.schema_ref().fields().iter();
    let fields = fields.map(|field| {
        let is_nullable = field.is_nullable() || field.data_type().is_list();
        field.as_ref().clone().with_nullable(is_nullable)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}

impl ExecutionPlan for FirstRowsExec {
    fn name(&self) -> &str {
        "FirstRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    /// Rows stay in their order, but whoever is told so sorts them before they come here.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input));
        Ok(Arc::new(Self::new(self.first.clone(), input)))
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
        let mut next = TreeNodeRecursion::Continue;
        let First { keys, by, condition, .. } = &self.first;
        for expression in keys.iter().chain([&by.expr]).chain(condition) {
            next = next.visit_sibling(|| visit(expression))?;
        }
        Ok(next)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let rows = Rows::new(&self.first, input, &context)?;
        let rows = stream::try_unfold(rows, |mut rows| async {
            Ok(rows.next().await?.map(|batch| (batch, rows)))
        });
        Ok(adapted(self.schema(), rows.map(move |batch| batch.record_output(&metrics))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let input = inputs.first().map(|input| Statistics::clone(input).to_inexact());
        Ok(Arc::new(input.unwrap_or_else(|| Statistics::new_unknown(&self.schema()))))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}

impl DisplayAs for FirstRowsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let First { count, keys, by, condition } = &self.first;
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let mut first = format!("first={count}, of=[{}], by={by}", keys.join(", "));
        if let Some(condition) = condition {
            write!(first, ", where={condition}")?;
        }
        match format {
            DisplayFormatType::TreeRender => f.write_str(&first),
            _ => write!(f, "FirstRowsExec: {first}"),
        }
    }
}

/// Whether keys of this type make the groups that a window's partitions are: to those, zeros of either sign are two.
pub(crate) fn is_grouped(data_type: &DataType) -> bool {
    !data_type.is_floating() && !data_type.is_nested()
}
