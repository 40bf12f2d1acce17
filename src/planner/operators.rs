//! Operators of a plan in the places of others, which promise what those did.
//!
//! So the operators above them are made again without finding out what they promise (`ChildrenPropertiesMode::Keep`), which is
//! most of what DataFusion's way to rewrite a plan takes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

type Operator = Arc<dyn ExecutionPlan>;

/// The plan with another operator in the place of each for which there is one, those below first.
///
/// # Errors
/// Those of the choice, and DataFusion's for an operator that cannot be made again.
pub(super) fn with_others(
    plan: Operator,
    other: &mut impl FnMut(&Operator) -> Result<Option<Operator>>,
) -> Result<Operator> {
    let children = plan.children().into_iter().map(|child| with_others(Arc::clone(child), other));
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = with_children(plan, children)?;
    Ok(other(&plan)?.unwrap_or(plan))
}

/// The operator over other children, which promise what its own did; where one has fewer partitions, so may the operator.
///
/// # Errors
/// None but DataFusion's, for an operator that cannot be made again.
pub(super) fn with_children(plan: Operator, children: Vec<Operator>) -> Result<Operator> {
    let pairs = || children.iter().zip(plan.children());
    if pairs().all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Ok(plan);
    }
    let partitions = |of: &Operator| of.output_partitioning().partition_count();
    let properties = match pairs().all(|(new, old)| partitions(new) == partitions(old)) {
        true => ChildrenPropertiesMode::Keep,
        false => ChildrenPropertiesMode::Recompute,
    };
    plan.replace_children(children, ReplaceChildrenOptions::new(properties))
}
