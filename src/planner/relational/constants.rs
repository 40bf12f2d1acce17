//! Keeps what is constant on the inner side of an outer join, or in each part of a union, from being taken for constant above it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::union::UnionExec;

use crate::exec::relational::no_constants::NoConstantsExec;

/// The rule. Before all that look at what operators promise.
#[derive(Debug)]
pub(super) struct FewerConstants;

impl PhysicalOptimizerRule for FewerConstants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let fewer = match plan.is::<UnionExec>() {
                true => NoConstantsExec::of(&plan).map(|plan| Arc::new(plan) as _),
                false => over_inner_sides(&plan)?,
            };
            Ok(fewer.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "fewer_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The outer join over sides that promise no constants; nothing where none does, or it is no outer join.
fn over_inner_sides(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let of_keys = plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let of_pairs = || plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let are_inner = match of_keys.or_else(of_pairs) {
        Some(JoinType::Left) => [false, true],
        Some(JoinType::Right) => [true, false],
        Some(JoinType::Full) => [true, true],
        _ => return Ok(None),
    };
    let mut sides: Vec<_> = plan.children().into_iter().map(Arc::clone).collect();
    let mut is_new = false;
    for (side, is_inner) in sides.iter_mut().zip(are_inner) {
        if let Some(inner) = NoConstantsExec::of(side).filter(|_| is_inner) {
            *side = Arc::new(inner);
            is_new = true;
        }
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    is_new.then(|| Arc::clone(plan).replace_children(sides, options)).transpose()
}
