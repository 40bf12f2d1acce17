//! Recursive queries whose rows need not fit.
//!
//! Enters: the rows of the static term, and the recursive term over a work table. Leaves: the rows of both, as DataFusion's
//! `RecursiveQueryExec` makes them. The rows of a round wait for the next one in memory or in a file (`round`); those that
//! UNION has seen are in a table, or in files that a join looks through once a round (`seen`).
//!
//! ```text
//! static term ─┐
//!              ├─ new ones of UNION ─┬─ rows
//! recursive ───┘                     └─ the round ─ work table ─ recursive term of the next round
//! ```

mod round;
mod seen;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, reset_plan_states,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, Partitioning,
    PlanProperties,
};
use futures::StreamExt;

use self::round::Round;
use self::seen::Seen;
use super::feed::{Feed, Output, adapted, generated};
use super::files::files_of;

/// The operator that stands for another; see the header of this file.
#[derive(Debug)]
pub(crate) struct SpillingRecursionExec {
    ordinary: Arc<RecursiveQueryExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpillingRecursionExec {
    /// None where the columns of the work table cannot be told apart by their names.
    pub(crate) fn new(ordinary: &RecursiveQueryExec) -> Option<Self> {
        let schema = ordinary.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let are_unique =
            names.clone().collect::<std::collections::HashSet<_>>().len() == names.len();
        let metrics = ExecutionPlanMetricsSet::new();
        are_unique.then(|| Self { ordinary: Arc::new(ordinary.clone()), metrics })
    }

    /// The recursive term over a work table that is handed to it: the table's columns that it reads, of all.
    fn term(&self) -> Result<(Term, Option<WorkTable>)> {
        let schema = self.schema();
        let mut table = None;
        let term = Arc::clone(self.ordinary.recursive_term()).transform_down(|plan| {
            let Some(read) = plan.downcast_ref::<WorkTableExec>() else {
                return Ok(Transformed::no(plan));
            };
            if read.name() != RecursiveQueryExec::name(&self.ordinary) {
                return Ok(Transformed::no(plan));
            }
            let read = WorkTableExec::schema(read);
            let columns = read.fields().iter().map(|field| schema.index_of(field.name()));
            let columns = columns.collect::<Result<_, _>>()?;
            let feed = Feed::of(Arc::clone(&read), 1);
            table = Some(WorkTable { feed: Arc::clone(&feed), columns, schema: read });
            Ok(Transformed::yes(feed as _))
        });
        Ok((Term::new(term.data()?)?, table))
    }
}

/// The recursive term, which is run once a round.
struct Term {
    dealt: Arc<dyn ExecutionPlan>,
    /// The same over a work table of which nothing is dealt out to threads: a round of one batch takes longer to wake them.
    alone: Arc<dyn ExecutionPlan>,
}

impl Term {
    fn new(dealt: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let alone = Arc::clone(&dealt).transform_down(|plan| {
            let table = plan.downcast_ref::<RepartitionExec>().and_then(|repartition| {
                let is_by_turns =
                    matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_));
                let table = Some(repartition.input()).filter(|input| input.is::<Feed>());
                table.filter(|_| is_by_turns).map(Arc::clone)
            });
            Ok(table.map_or_else(|| Transformed::no(plan), Transformed::yes))
        });
        Ok(Self { dealt, alone: alone.data()? })
    }

    /// The term as no round has run it.
    fn of_round(&self, is_one_batch: bool) -> Result<Arc<dyn ExecutionPlan>> {
        reset_plan_states(Arc::clone(if is_one_batch { &self.alone } else { &self.dealt }))
    }
}

/// What the recursive term reads of the round before.
struct WorkTable {
    feed: Arc<Feed>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl WorkTable {
    fn put(&self, rows: SendableRecordBatchStream) {
        let columns = self.columns.clone();
        let rows = rows.map(move |batch| Ok(batch?.project(&columns)?));
        self.feed.put(0, adapted(Arc::clone(&self.schema), rows));
    }
}

/// The rounds of one run.
struct Rounds {
    term: Term,
    work_table: Option<WorkTable>,
    seen: Option<Seen>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    spills: SpillMetrics,
}

impl Rounds {
    /// Round after round, until one makes no rows.
    async fn run(mut self, first: SendableRecordBatchStream, mut output: Output) -> Result<()> {
        let manager = files_of(&self.schema, &self.context, &self.spills);
        let mut rows = first;
        loop {
            let mut round = Round::new(&manager, &self.context);
            self.take(&mut rows, &mut round, &mut output).await?;
            if round.is_empty() {
                return Ok(());
            }
            let term = self.term.of_round(round.is_one_batch())?;
            if let Some(table) = &self.work_table {
                table.put(round.rows()?);
            }
            rows = term.execute(0, Arc::clone(&self.context))?;
        }
    }

    /// Takes the rows of a round, those that are new where it is a UNION.
    async fn take(
        &mut self,
        rows: &mut SendableRecordBatchStream,
        round: &mut Round,
        output: &mut Output,
    ) -> Result<()> {
        while let Some(batch) = rows.next().await.transpose()? {
            let new = match &mut self.seen {
                Some(seen) => seen.new_rows(batch)?,
                None => Some(batch),
            };
            if let Some(batch) = new {
                round.push(&batch)?;
                output.send(batch).await?;
            }
        }
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let Some(mut late) = seen.late_rows()? else { return Ok(()) };
        while let Some(batch) = late.next().await.transpose()? {
            seen.add(&batch)?;
            round.push(&batch)?;
            output.send(batch).await?;
        }
        seen.end_round()
    }
}

impl ExecutionPlan for SpillingRecursionExec {
    fn name(&self) -> &str {
        "SpillingRecursionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.ordinary.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.ordinary.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.ordinary.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.ordinary.benefits_from_input_partitioning()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.ordinary.input_distribution_requirements()
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(recursive), Some(first)) = (children.pop(), children.pop()) else {
            return Err(DataFusionError::Internal("a recursion has two terms".into()));
        };
        let ordinary = RecursiveQueryExec::try_new(
            RecursiveQueryExec::name(&self.ordinary).to_owned(),
            self.schema(),
            first,
            recursive,
            self.ordinary.is_distinct(),
        )?;
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(Self { ordinary: Arc::new(ordinary), metrics }))
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
        let first = self.ordinary.static_term().execute(partition, Arc::clone(&context))?;
        let (term, work_table) = self.term()?;
        let schema = self.schema();
        let spills = SpillMetrics::new(&self.metrics, partition);
        let seen = self.ordinary.is_distinct().then(|| Seen::new(&schema, &context, &spills));
        let rounds = Rounds {
            term,
            work_table,
            seen: seen.transpose()?,
            schema: Arc::clone(&schema),
            context,
            spills,
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = generated(Arc::clone(&schema), |output| rounds.run(first, output));
        Ok(adapted(schema, rows.map(move |batch| batch.record_output(&metrics))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

impl DisplayAs for SpillingRecursionExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format != DisplayFormatType::TreeRender {
            f.write_str("SpillingRecursionExec, ")?;
        }
        self.ordinary.fmt_as(format, f)
    }
}
