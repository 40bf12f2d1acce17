//! Operators that finish whatever the memory, in place of those of DataFusion's that hold all their rows.

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;

use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::relational::recursion::SpillingRecursionExec;
use crate::exec::relational::window::SpillingWindowExec;
use crate::planner::operators::with_others;

/// Puts operators that spill in place of those that fail. After DataFusion's rules, which know its own by their types.
#[derive(Debug)]
pub(crate) struct SpillingOperators;

/// The operator that stands for another, if there is one.
fn spilling(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(window) = SpillingWindowExec::new(plan) {
        return Some(Arc::new(window));
    }
    if let Some(recursion) = plan.downcast_ref::<RecursiveQueryExec>() {
        return SpillingRecursionExec::new(recursion).map(|recursion| Arc::new(recursion) as _);
    }
    SpillingJoinExec::new(Arc::clone(plan)).map(|join| Arc::new(join) as _)
}

impl PhysicalOptimizerRule for SpillingOperators {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        with_others(plan, &mut |operator| Ok(spilling(operator)))
    }

    fn name(&self) -> &str {
        "spilling_operators"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
