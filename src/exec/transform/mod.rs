//! Rows that are kept by a condition over numbers, and what is computed of them, in loops over strips in cache.
//!
//! Enters: batches. Leaves: batches of the rows for which the condition holds, with the columns that only pass
//! through and those that are computed. It answers what the filter and the projection it stands for answer, to the
//! bit, in the same batches; it never fails where they do not. Not here: which expressions can be computed so
//! (`planner::transform`).
//!
//! ```text
//! columns ─ condition ─ bits ─ compressed, each column once ─ programs ─ columns of the kept rows
//!           strips      │ ▲    no row that is dropped          strips
//!                       └─┘ keys of joins above, of the rows that are left
//! ```
//!
//! - **NULLs.** A number is NULL where a column it reads is; a comparison is true, false, or neither where one of its
//!   sides is NULL, and conditions are combined as SQL's three values are (`condition`).
//! - **NaN.** Which of two `NaN` of different signs an operation hands on is left open here, as it is in Rust.
//! - **Order.** Floating-point numbers are compared as DataFusion compares them; see `kernels::selection`.

mod condition;
mod decimals;
mod numbers;
mod stream;
mod texts;

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};

use self::stream::Metrics;
use super::encoded::waking_rows;
use super::explain;
use super::program::Fusion;
use crate::error::{Error, ErrorKind};
use crate::steps::ROWS_DROPPED;

pub(crate) use self::condition::{Condition, Filter, Test};
pub(crate) use self::decimals::Decimals;
pub(crate) use self::numbers::{Number, Numbers};

/// What is done to the rows of a batch.
#[derive(Debug)]
pub(crate) struct Transform {
    /// Which rows are kept; all where there is none.
    pub(crate) filter: Option<Filter>,
    /// What joins tell of the rows that they need, over the columns of the input: of those that the filter keeps, others go.
    pub(crate) told: Vec<Arc<dyn PhysicalExpr>>,
    /// The numbers of 64 and of 32 bits that are computed of those.
    pub(crate) doubles: Numbers,
    pub(crate) singles: Numbers,
    /// The decimals that are.
    pub(crate) decimals: Decimals,
    /// The columns of the result.
    pub(crate) outputs: Vec<Output>,
}

/// A column of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// The column of the input of this number, whatever its type.
    Passed(usize),
    /// The computed number of 64 bits of this place.
    Double(usize),
    /// The same of 32 bits.
    Single(usize),
    /// The computed decimal of this place.
    Decimal(usize),
}

/// How rows leave where some are dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathering {
    /// Rows of a batch, as far as there are so many.
    pub(crate) batch_rows: usize,
    /// Rows after which no more are asked for.
    pub(crate) rows_max: Option<usize>,
}

/// A filter and a projection, or one of them, as one operator.
#[derive(Debug)]
pub(crate) struct TransformExec {
    transform: Arc<Transform>,
    gathering: Gathering,
    input: Arc<dyn ExecutionPlan>,
    /// The operators it stands for, of which this many are above the input: what they promise, it keeps.
    ordinary: Arc<dyn ExecutionPlan>,
    ordinary_depth: usize,
    fusion: Fusion,
    metrics: ExecutionPlanMetricsSet,
}

impl TransformExec {
    /// The operator that stands for the `ordinary_depth` uppermost ones of a plan.
    ///
    /// # Errors
    /// Where the plan is not so deep, or one of them has not exactly one input.
    pub(crate) fn new(
        transform: Transform,
        gathering: Gathering,
        ordinary: Arc<dyn ExecutionPlan>,
        ordinary_depth: usize,
        fusion: Fusion,
    ) -> Result<Self> {
        let input = input_below(&ordinary, ordinary_depth)?;
        Ok(Self {
            transform: Arc::new(transform),
            gathering,
            input,
            ordinary,
            ordinary_depth,
            fusion,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }
}

impl TransformExec {
    /// The rows of a partition, whose columns may be encoded: who reads them decodes them.
    ///
    /// # Errors
    /// Those of the input.
    pub(super) fn encoded_rows(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.rows(partition, context, true)
    }

    fn rows(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
        is_encoded: bool,
    ) -> Result<SendableRecordBatchStream> {
        let input = waking_rows(&self.input, partition, context)?;
        let metrics = Metrics {
            baseline: BaselineMetrics::new(&self.metrics, partition),
            dropped: MetricBuilder::new(&self.metrics).counter(ROWS_DROPPED, partition),
        };
        let transform = Arc::clone(&self.transform);
        let schemas = [self.input.schema(), self.schema()];
        Ok(stream::transformed(transform, self.gathering, schemas, is_encoded, input, metrics))
    }
}

fn only_child(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match plan.children().as_slice() {
        [child] => Ok(Arc::clone(child)),
        _ => Err(Error::from(ErrorKind::Internal("a transformation has one input".into())).into()),
    }
}

fn input_below(plan: &Arc<dyn ExecutionPlan>, depth: usize) -> Result<Arc<dyn ExecutionPlan>> {
    (0..depth).try_fold(Arc::clone(plan), |plan, _| only_child(&plan))
}

/// The plan with another input below so many operators.
fn over(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    input: Arc<dyn ExecutionPlan>,
    options: ReplaceChildrenOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    if depth == 0 {
        return Ok(input);
    }
    let child = over(&only_child(plan)?, depth - 1, input, options)?;
    Arc::clone(plan).replace_children(vec![child], options)
}

/// What is known of the rows of the uppermost of so many operators, by what is known of the input's.
fn statistics_above(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    input: &Arc<Statistics>,
    arguments: &StatisticsArgs,
) -> Result<Arc<Statistics>> {
    if depth == 0 {
        return Ok(Arc::clone(input));
    }
    let below = statistics_above(&only_child(plan)?, depth - 1, input, arguments)?;
    plan.statistics_from_inputs(&[below], arguments)
}

impl ExecutionPlan for TransformExec {
    fn name(&self) -> &str {
        "TransformExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.ordinary.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children).map_err(|_| {
            Error::from(ErrorKind::Internal("a transformation has one input".into()))
        })?;
        Ok(Arc::new(Self {
            transform: Arc::clone(&self.transform),
            gathering: self.gathering,
            ordinary: over(&self.ordinary, self.ordinary_depth, Arc::clone(&input), options)?,
            ordinary_depth: self.ordinary_depth,
            input,
            fusion: self.fusion.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
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

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for told in &self.transform.told {
            if visit(told)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.rows(partition, context, false)
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
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        statistics_above(&self.ordinary, self.ordinary_depth, &inputs[0], arguments)
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.transform.filter {
            Some(_) => CardinalityEffect::LowerEqual,
            None => CardinalityEffect::Equal,
        }
    }
}

impl DisplayAs for TransformExec {
    /// What its being one operator saves, how many operators above narrow it, and those that it stands for, each on a line of its
    /// own.
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return write!(f, "{}", explain::fused(&self.fusion));
        }
        write!(f, "TransformExec: {}", explain::fused(&self.fusion))?;
        match self.transform.told.len() {
            0 => {}
            count => write!(f, ", narrowed by {count}")?,
        }
        let mut plan = Arc::clone(&self.ordinary);
        for _ in 0..self.ordinary_depth {
            f.write_str("\n    | ")?;
            plan.fmt_as(format, f)?;
            plan = only_child(&plan).map_err(|_| fmt::Error)?;
        }
        Ok(())
    }
}
