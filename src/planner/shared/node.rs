//! A plan that runs once, however many read its rows.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, Result, internal_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use crate::exec::relational::shared::{SharedExec, run_once};

/// One of the readers of a plan. All of them hold the plan, so that rules see what they read; which of them runs
/// it is decided once all is planned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SharedNode {
    /// The same for the readers of one plan, and no others.
    id: u64,
    input: LogicalPlan,
}

impl SharedNode {
    /// A reader of a plan that nobody reads yet.
    pub(super) fn new(input: LogicalPlan) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Memory::Relaxed), input }
    }

    pub(super) fn plan(&self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self.clone()) })
    }
}

/// What is read through a [`SharedNode`], if the plan is one.
pub(in crate::planner) fn behind(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref::<SharedNode>().map(|shared| &shared.input)
}

impl PartialOrd for SharedNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for SharedNode {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = inputs.pop();
        let input = input.ok_or_else(|| internal_datafusion_err!("a shared plan is one plan"))?;
        Ok(Self { id: self.id, input })
    }
}

/// Plans [`SharedNode`]s.
#[derive(Debug)]
pub(crate) struct SharedPlanner;

#[async_trait]
impl ExtensionPlanner for SharedPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<SharedNode>() else { return Ok(None) };
        let [input] = inputs else { return Ok(None) };
        Ok(Some(Arc::new(SharedExec::new(node.id, Arc::clone(input)))))
    }
}

/// Lets one of the readers of a plan run it. The last of the physical rules, for each of the others may make another
/// plan of what a reader holds.
#[derive(Debug)]
pub(crate) struct RunOnce;

impl PhysicalOptimizerRule for RunOnce {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        run_once(plan)
    }

    fn name(&self) -> &str {
        "run_once"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
