//! Arithmetic of decimals in projections, filters and aggregates becomes ours.
//!
//! Enters: a plan after all rules that look for operators in expressions. Leaves: the same plan, in which those over
//! decimals are computed by [`exec::decimals`](crate::exec::decimals).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::expressions::with_rewritten;
use crate::exec::decimals::with_ours;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct DecimalArithmetic;

impl PhysicalOptimizerRule for DecimalArithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match computed(&node)? {
                Some(computed) => Transformed::yes(computed),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "decimal_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator with other expressions; none where it has no decimals to compute.
fn computed(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(node) = with_rewritten(node, with_ours)? {
        return Ok(Some(node));
    }
    let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let schema = aggregation.input_schema();
    let mut any = false;
    let mut call = |call: &Arc<AggregateFunctionExpr>| {
        let arguments = call.expressions().into_iter().map(|argument| {
            let argument = with_ours(argument, &schema)?;
            any |= argument.transformed;
            Ok(argument.data)
        });
        let arguments = arguments.collect::<Result<_>>()?;
        let order = call.order_bys().iter().map(|by| Arc::clone(&by.expr)).collect();
        let computed = call.with_new_expressions(arguments, order);
        Ok(computed.map_or_else(|| Arc::clone(call), Arc::new))
    };
    let calls = aggregation.aggr_expr().iter().map(&mut call).collect::<Result<Vec<_>>>()?;
    Ok(any.then(|| Arc::new(aggregation.with_new_aggr_exprs(calls)) as _))
}
