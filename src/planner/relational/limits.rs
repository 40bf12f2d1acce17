//! Rows that a limit has taken are sorted after that, not before.
//!
//! ```text
//! SortExec: [a DESC]                          LIMIT, then sort
//!   HeldExec                  ─ tied ─►       SortExec: [a DESC]
//!     GlobalLimitExec: 3                        GlobalLimitExec: 3
//!       DataSourceExec                            DataSourceExec
//! ```
//!
//! DataFusion's rule that ties operators together moves a sort below a limit over rows of no order, where it sorts all rows, and others are
//! the first. While it runs, such a limit stands below an operator that no sort is moved through.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, StatisticsArgs,
};

use crate::error::{Error, ErrorKind};

type Operator = Arc<dyn ExecutionPlan>;

/// The name of DataFusion's rule.
pub(super) const TIED_BY: &str = "EnsureRequirements";

/// That rule, for plans whose limits stay where they are; see the header of this file.
#[derive(Debug)]
pub(super) struct LimitsStay(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for LimitsStay {
    fn optimize(&self, plan: Operator, config: &ConfigOptions) -> Result<Operator> {
        let held = plan.transform_up(|plan| {
            let is_limit = plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>();
            Ok(match is_limit && plan.output_ordering().is_none() {
                true => Transformed::yes(Arc::new(HeldExec(plan)) as Operator),
                false => Transformed::no(plan),
            })
        });
        let tied = self.0.optimize(held.data()?, config)?;
        let released = tied.transform_up(|plan| {
            Ok(match plan.downcast_ref::<HeldExec>() {
                Some(HeldExec(limit)) => Transformed::yes(Arc::clone(limit)),
                None => Transformed::no(plan),
            })
        });
        released.data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// A limit that no sort is moved through; nobody runs it.
#[derive(Debug)]
struct HeldExec(Operator);

impl DisplayAs for HeldExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldExec")
    }
}

impl ExecutionPlan for HeldExec {
    fn name(&self) -> &str {
        "HeldExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    /// It does, but who asks would move a sort.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Operator> {
        vec![&self.0]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Operator>,
        _: ReplaceChildrenOptions,
    ) -> Result<Operator> {
        let [limit] = <[Operator; 1]>::try_from(children)
            .map_err(|_| Error::from(ErrorKind::Internal("a limit is held alone".into())))?;
        Ok(Arc::new(Self(limit)))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Operator>) -> Result<Operator> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
