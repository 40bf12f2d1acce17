//! Rows that an operator wants in an order have it, whatever the rules before have lost of it.
//!
//! DataFusion sorts each part of a union by what it takes to put that part in order, which is less where two columns are equal or one
//! is constant. Above the union, or a join, nobody knows that any more, and the plan is refused: `does not satisfy order requirements`.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::planner::operators::with_children;

/// The rule. Before the plan is checked.
#[derive(Debug)]
pub(super) struct SortedInputs;

impl PhysicalOptimizerRule for SortedInputs {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let mut is_new = false;
            let inputs = plan.children().into_iter().zip(plan.required_input_ordering());
            let inputs = inputs.map(|(input, required)| {
                let Some(required) = required.map(|required| required.into_single()) else {
                    return Ok(Arc::clone(input));
                };
                let promised = input.equivalence_properties();
                if promised.ordering_satisfy_requirement(required.clone())? {
                    return Ok(Arc::clone(input));
                }
                is_new = true;
                let sorted = SortExec::new(required.into(), Arc::clone(input));
                Ok(Arc::new(sorted.with_preserve_partitioning(true)) as _)
            });
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            match is_new {
                true => with_children(plan, inputs).map(Transformed::yes),
                false => Ok(Transformed::no(plan)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "sorted_inputs"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
