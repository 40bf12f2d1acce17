//! Sorts that finish under any memory limit.
//!
//! Enters: the partitions of a relation, its sort keys, and how many rows are asked for. Leaves: the rows in order, of all
//! partitions as one stream, or each partition's as one of its own. It answers what DataFusion's `SortExec`, and the
//! merge above it, would; where those leave open which of equal rows comes first, it is the one that came first in its
//! partition, and of several partitions the first's.
//!
//! ```text
//! keys      rows that are one number each: the numbers are sorted    gather, runs, pieces
//! rows      all others: what compares like the keys is sorted, and rows are gathered in that order
//! stretches where a stream comes in the order of the first keys, rows that have the same of these are sorted by themselves
//! ```
//!
//! All that is held is reserved in the memory pool. A refusal makes rows go to a file; what a sort needs to go on at all
//! is taken without asking.

mod bound;
mod gather;
mod keys;
mod order;
mod packing;
mod pieces;
mod rows;
mod runs;
mod spilled;
mod stretches;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::row::RowConverter;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, StatisticsArgs,
};

use futures::StreamExt;

use self::keys::KeySort;
use self::rows::RowSort;
use crate::error::{Error, ErrorKind};

/// A sort; see the header of this file.
#[derive(Debug)]
pub(crate) struct SpillingSortExec {
    input: Arc<dyn ExecutionPlan>,
    ordering: LexOrdering,
    /// Rows that are asked for, of each stream.
    fetch: Option<usize>,
    /// Whether each partition is sorted by itself.
    by_partition: bool,
    /// So many of the first keys are those by which each partition comes in order.
    come_by: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingSortExec {
    /// The sort that stands for others with these properties.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        ordering: LexOrdering,
        fetch: Option<usize>,
        by_partition: bool,
        properties: Arc<PlanProperties>,
    ) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, ordering, fetch, by_partition, come_by: 0, properties, metrics }
    }

    /// The same where each partition comes in the order of so many of the first keys.
    pub(crate) fn coming_by(self, come_by: usize) -> Self {
        Self { come_by, ..self }
    }

    /// Whether all sort keys can be compared as bytes; few types cannot.
    pub(crate) fn can_sort(&self) -> bool {
        let schema = self.input.schema();
        self.sorts_keys()
            || order::sort_fields(&self.ordering, &schema)
                .is_ok_and(|fields| RowConverter::supports_fields(&fields))
    }

    /// Whether rows are one number each, which are sorted by it.
    fn sorts_keys(&self) -> bool {
        let schema = self.input.schema();
        let is_column = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>();
        schema.fields().len() == 1
            && is_column(&self.ordering.first().expr)
            && keys::is_key(schema.field(0).data_type())
    }
}

impl ExecutionPlan for SpillingSortExec {
    fn name(&self) -> &str {
        "SpillingSortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children)
            .map_err(|_| Error::from(ErrorKind::Internal("a sort has one input".into())))?;
        let (ordering, properties) = (self.ordering.clone(), Arc::clone(&self.properties));
        let sort = Self::new(input, ordering, self.fetch, self.by_partition, properties);
        Ok(Arc::new(sort.coming_by(self.come_by)))
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
        let mut recursion = TreeNodeRecursion::Continue;
        for key in &self.ordering {
            recursion = recursion.visit_sibling(|| visit(&key.expr))?;
        }
        Ok(recursion)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let partitions = match self.by_partition {
            true => partition..partition + 1,
            false => 0..self.input.output_partitioning().partition_count(),
        };
        let mut inputs = partitions
            .map(|partition| self.input.execute(partition, Arc::clone(&context)))
            .collect::<Result<Vec<_>>>()?;
        let spills = SpillMetrics::new(&self.metrics, partition);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (schema, fetch, ordering) = (self.schema(), self.fetch, self.ordering.clone());
        let rows = if self.sorts_keys() {
            let options = ordering.first().options;
            KeySort { schema, options, fetch, context, spills }.sorted(inputs)?
        } else {
            let metrics = metrics.intermediate();
            let come_by = LexOrdering::new(ordering.iter().take(self.come_by).cloned());
            let dealt = MetricBuilder::new(&self.metrics).counter("rows_by_radix", partition);
            let sort = RowSort { schema, ordering, fetch, context, spills, metrics, dealt };
            match (come_by, inputs.len()) {
                (Some(come_by), 1) => stretches::sorted(sort, come_by, inputs.remove(0))?,
                _ => sort.sorted(inputs),
            }
        };
        let rows = rows.map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition.filter(|_| self.by_partition))]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let statistics = inputs[0].as_ref().clone();
        Ok(Arc::new(statistics.with_fetch(self.fetch, 0, 1)?))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.fetch {
            None => CardinalityEffect::Equal,
            Some(_) => CardinalityEffect::LowerEqual,
        }
    }
}

impl DisplayAs for SpillingSortExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return writeln!(f, "{}", self.ordering);
        }
        write!(f, "SpillingSortExec: expr=[{}]", self.ordering)?;
        if let Some(fetch) = self.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        if self.by_partition {
            f.write_str(", each partition")?;
        }
        match self.come_by {
            0 => {}
            1 => f.write_str(", the first in order")?,
            count => write!(f, ", the first {count} in order")?,
        }
        Ok(())
    }
}
