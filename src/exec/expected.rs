//! Rows that operators were expected to yield, shown beside those that they did.
//!
//! Enters: a plan, and the rows that some of its operators are expected to yield. Leaves: the plan as it is to be run and
//! shown; once it has run, a row that tells where the two are furthest apart. Not here: what is expected (`planner::expected`).
//!
//! ```text
//! q-error = max(expected / actual, actual / expected)      both at least 1
//! ```
//!
//! Moerkotte, Neumann and Steidl, *Preventing Bad Plans by Bounding the Impact of Cardinality Estimation Errors*, VLDB 2009.
//! What was expected are all rows. An operator need not yield them where one above has enough, or tells scans which rows it
//! needs; then fewer rows than expected are no error.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::Statistics;
use datafusion::common::display::human_readable::human_readable_count;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};

use crate::steps::ROWS_DROPPED;

/// The rows that some operators of a plan are expected to yield.
pub(crate) struct Expected {
    plan: Arc<dyn ExecutionPlan>,
    /// By the address of an operator, which the plan holds.
    rows: HashMap<usize, f64>,
}

/// What the operators above one need of its rows.
struct Needed {
    /// Whether they ask until there are none.
    to_the_end: bool,
    /// The filters that they tell scans of as they run.
    filters: Vec<u64>,
}

/// An estimate and what came of it.
struct Comparison {
    expected: f64,
    actual: f64,
    operator: String,
}

impl Comparison {
    fn q_error(&self) -> f64 {
        let (expected, actual) = (self.expected.max(1.0), self.actual.max(1.0));
        (expected / actual).max(actual / expected)
    }
}

impl Expected {
    /// Nothing is expected of a plan yet.
    pub(crate) fn of(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan, rows: HashMap::new() }
    }

    /// Expects an operator of the plan to yield so many rows.
    pub(crate) fn expect(&mut self, operator: &Arc<dyn ExecutionPlan>, rows: f64) {
        self.rows.insert(address(operator), rows);
    }

    /// The plan, which shows what is expected of its operators.
    pub(crate) fn shown(&self) -> Arc<dyn ExecutionPlan> {
        self.shown_from(&self.plan)
    }

    fn shown_from(&self, operator: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ShownExec {
            operator: Arc::clone(operator),
            children: operator.children().into_iter().map(|child| self.shown_from(child)).collect(),
            rows: self.rows.get(&address(operator)).copied(),
        })
    }

    /// What EXPLAIN ANALYZE yields, and after it a row that tells of the worst estimate, if there is any.
    pub(crate) fn with_worst(self, shown: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = shown.schema();
        let columns = Arc::clone(&schema);
        let row = move |worst: Comparison| {
            let texts = ["Estimates".to_owned(), worst.to_string()];
            let values = texts.map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
            Ok(RecordBatch::try_new(columns, values.to_vec())?)
        };
        let worst = stream::once(async move { self.worst().map(row) });
        let worst = worst.filter_map(std::future::ready);
        Box::pin(RecordBatchStreamAdapter::new(schema, shown.chain(worst)))
    }

    /// The estimate that was furthest from what came.
    fn worst(&self) -> Option<Comparison> {
        let mut all = Vec::new();
        let needed = Needed { to_the_end: true, filters: Vec::new() };
        self.compare(&self.plan, &needed, &mut all);
        all.into_iter().max_by(|one, other| one.q_error().total_cmp(&other.q_error()))
    }

    /// Compares what was expected with what came of an operator and all below it. Returns the filters that these read.
    fn compare(
        &self,
        operator: &Arc<dyn ExecutionPlan>,
        needed: &Needed,
        all: &mut Vec<Comparison>,
    ) -> Vec<u64> {
        let children = operator.children();
        let told = operator.dynamic_expressions_produced();
        let told: Vec<u64> = told.iter().filter_map(|filter| filter.expression_id()).collect();
        let reads_all = match operator.pipeline_behavior() {
            EmissionType::Final => true,
            _ => needed.to_the_end && operator.fetch().is_none(),
        };
        let mut read = filters_of(operator.as_ref());
        for (at, child) in children.iter().enumerate() {
            // The first side of a join is read before the second, which nobody asks for where there is nothing to be met.
            let is_first = children.len() == 2 && at == 0;
            let is_pointless =
                children.len() == 2 && at == 1 && actual_rows(children[0]) == Some(0);
            let mut filters = needed.filters.clone();
            filters.extend(&told);
            let to_the_end = (reads_all || is_first) && !is_pointless;
            read.extend(self.compare(child, &Needed { to_the_end, filters }, all));
        }
        let is_cut = !needed.to_the_end
            || operator.fetch().is_some()
            || read.iter().any(|filter| needed.filters.contains(filter));
        if let (Some(&expected), Some(actual)) =
            (self.rows.get(&address(operator)), actual_rows(operator))
        {
            let actual = (actual + passed_rows(operator)) as f64;
            if !is_cut || actual > expected {
                all.push(Comparison { expected, actual, operator: shown_alone(operator) });
            }
        }
        read
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, actual, operator } = self;
        let error = self.q_error();
        write!(
            f,
            "worst q-error {error:.2}: {expected:.0} rows expected, {actual:.0} came of {operator}"
        )
    }
}

fn address(operator: &Arc<dyn ExecutionPlan>) -> usize {
    Arc::as_ptr(operator).addr()
}

fn actual_rows(operator: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    operator.metrics()?.output_rows()
}

/// The rows of a scan are estimated before any condition: those that it passes over count.
fn passed_rows(operator: &Arc<dyn ExecutionPlan>) -> usize {
    let is_scan = operator.children().is_empty();
    let metrics = operator.metrics().filter(|_| is_scan);
    let dropped = metrics.and_then(|metrics| metrics.sum_by_name(ROWS_DROPPED));
    dropped.map_or(0, |count| count.as_usize())
}

/// The filters told by others that an operator reads.
fn filters_of(operator: &dyn ExecutionPlan) -> Vec<u64> {
    let mut filters = Vec::new();
    // What cannot be looked at is taken to read none.
    _ = operator.apply_expressions(&mut |expression| {
        expression.apply(|expression| {
            filters.extend(expression.expression_id());
            Ok(TreeNodeRecursion::Continue)
        })
    });
    filters
}

/// The line of an operator in a plan.
fn shown_alone(operator: &Arc<dyn ExecutionPlan>) -> String {
    struct Line<'o>(&'o dyn ExecutionPlan);
    impl fmt::Display for Line<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt_as(DisplayFormatType::Default, f)
        }
    }
    Line(operator.as_ref()).to_string()
}

/// An operator that is run as it is, and shown with what is expected of it. Made once a plan is final, so nothing has to
/// know it by its type.
#[derive(Debug)]
struct ShownExec {
    operator: Arc<dyn ExecutionPlan>,
    /// Those of the operator, shown like this.
    children: Vec<Arc<dyn ExecutionPlan>>,
    rows: Option<f64>,
}

impl DisplayAs for ShownExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operator.fmt_as(format, f)?;
        match (self.rows, format) {
            (None, _) => Ok(()),
            (Some(rows), DisplayFormatType::Default | DisplayFormatType::Verbose) => {
                write!(f, ", expected_rows={}", human_readable_count(rows.round() as usize))
            }
            (Some(rows), DisplayFormatType::TreeRender) => {
                writeln!(f, "expected_rows={}", human_readable_count(rows.round() as usize))
            }
        }
    }
}

impl ExecutionPlan for ShownExec {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.operator.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.operator.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (operator, rows) = (Arc::clone(&self.operator), self.rows);
        Ok(Arc::new(Self { operator, children, rows }))
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
        self.operator.apply_expressions(visit)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.operator.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.operator.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.operator.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.operator.statistics_from_inputs(inputs, arguments)
    }
}
