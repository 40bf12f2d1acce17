//! A function as one of DataFusion's optimizer rules, a rule of DataFusion's that some plans are kept from, and one that may fail.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// What makes another plan of a node and what is below it.
type Rewrite = fn(LogicalPlan, &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>>;

/// A rewrite of each node of a plan.
pub(super) struct Rule {
    name: &'static str,
    is_top_down: bool,
    rewrite: Rewrite,
}

impl Rule {
    /// One for which what is below a node is rewritten first.
    pub(super) fn bottom_up(name: &'static str, rewrite: Rewrite) -> Self {
        Self { name, is_top_down: false, rewrite }
    }

    /// One for which a node is rewritten before what is below it.
    pub(super) fn top_down(name: &'static str, rewrite: Rewrite) -> Self {
        Self { name, is_top_down: true, rewrite }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

impl OptimizerRule for Rule {
    fn name(&self) -> &str {
        self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(if self.is_top_down { ApplyOrder::TopDown } else { ApplyOrder::BottomUp })
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.rewrite)(plan, config)
    }
}

/// A rule of DataFusion's.
pub(super) type Given = Arc<dyn OptimizerRule + Send + Sync>;

/// Whether a rule must not meet a plan.
type Keeps = fn(&Given, &LogicalPlan, &dyn OptimizerConfig) -> Result<bool>;

/// A rule of DataFusion's, but for some plans.
#[derive(Debug)]
pub(super) struct Except {
    rule: Given,
    keeps: Keeps,
}

impl Except {
    pub(super) fn new(rule: Given, keeps: Keeps) -> Self {
        Self { rule, keeps }
    }
}

impl OptimizerRule for Except {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match (self.keeps)(&self.rule, &plan, config)? {
            true => Ok(Transformed::no(plan)),
            false => self.rule.rewrite(plan, config),
        }
    }
}

/// A physical rule of DataFusion's whose failure leaves the plan as it was: nothing but speed depends on it.
#[derive(Debug)]
pub(super) struct IfItCan(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for IfItCan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.0.optimize(Arc::clone(&plan), config).unwrap_or(plan))
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
