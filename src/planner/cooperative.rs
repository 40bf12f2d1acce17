//! Joins that can be stopped.
//!
//! A task ends where it yields, and DataFusion yields at scans and exchanges only. A join makes many
//! batches of one: a skewed one under an aggregate may go on for seconds without asking its scans for
//! more. So each operator whose output may be larger than its input counts its batches against the
//! task's budget, which makes it yield every 128 batches. And the condition of each join fails once the
//! statement has been stopped, for a join in which nothing matches makes no batches at all.

use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec,
    NestedLoopJoinExecBuilder, PiecewiseMergeJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::unnest::UnnestExec;

use super::operators::with_others;
use crate::error;
use crate::exec::contraction::ContractionExec;
use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::relational::shared::run_once;
use crate::exec::stoppable::{StopCheck, Stoppable};

/// Wraps joins and unnesting in [`CooperativeExec`]. The last of the physical rules: others look for
/// joins by type.
#[derive(Debug)]
pub(crate) struct CooperativeJoins;

impl PhysicalOptimizerRule for CooperativeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        with_others(plan, &mut |plan| {
            let is_cooperative = |plan: &dyn ExecutionPlan| plan.is::<CooperativeExec>();
            Ok(match plan.children().as_slice() {
                // A plan that was optimized by itself before it became part of this one.
                [input] if is_cooperative(plan.as_ref()) && is_cooperative(input.as_ref()) => {
                    Some(Arc::clone(input))
                }
                _ if may_grow(plan.as_ref()) => {
                    Some(Arc::new(CooperativeExec::new(Arc::clone(plan))))
                }
                _ => None,
            })
        })
    }

    fn name(&self) -> &str {
        "cooperative_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan of one statement, the conditions of its joins looking at whether to go on.
///
/// # Errors
/// None but DataFusion's, for a join that cannot be made again.
pub(crate) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    check: impl Fn() -> error::Result<()> + Send + Sync + 'static,
) -> Result<Arc<dyn ExecutionPlan>> {
    stoppable_by(plan, &(Arc::new(check) as StopCheck))
}

fn stoppable_by(plan: Arc<dyn ExecutionPlan>, check: &StopCheck) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = with_others(plan, &mut |plan| {
        if let Some(spilling) = plan.downcast_ref::<SpillingJoinExec>() {
            let join = stoppable_join(spilling.join().as_ref(), check)?;
            return Ok(join.and_then(SpillingJoinExec::new).map(|join| Arc::new(join) as _));
        }
        if let Some(contraction) = plan.downcast_ref::<ContractionExec>() {
            let ordinary = stoppable_by(Arc::clone(contraction.ordinary()), check)?;
            return Ok(Some(Arc::new(contraction.with_ordinary(ordinary))));
        }
        stoppable_join(plan.as_ref(), check)
    })?;
    run_once(plan)
}

/// A join of DataFusion's whose condition fails once the statement has been stopped; none where it has no
/// condition.
fn stoppable_join(
    join: &dyn ExecutionPlan,
    check: &StopCheck,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let stoppable = |filter: &JoinFilter| {
        let condition = Stoppable::new(Arc::clone(filter.expression()), Arc::clone(check));
        let columns = filter.column_indices().to_vec();
        Some(JoinFilter::new(Arc::new(condition), columns, Arc::clone(filter.schema())))
    };
    if let Some(join) = join.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(stoppable(filter));
        return Ok(Some(Arc::new(join.build()?)));
    }
    if let Some(join) = join.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        return HashJoinExecBuilder::from(join)
            .with_filter(stoppable(filter))
            .build_exec()
            .map(Some);
    }
    Ok(None)
}

fn may_grow(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<SpillingJoinExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
        || plan.is::<SymmetricHashJoinExec>()
        || plan.is::<UnnestExec>()
}
