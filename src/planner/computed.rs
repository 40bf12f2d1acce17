//! What projections, filters and aggregates compute of decimals, and of texts by patterns, becomes ours.
//!
//! Enters: a plan after all rules that look for operators in expressions. Leaves: the same plan, in which those are computed
//! by [`exec::expressions`](crate::exec::expressions).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::expressions::with_rewritten;
use super::operators::with_others;
use crate::exec::expressions::with_ours;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(crate) struct ComputedExpressions;

impl PhysicalOptimizerRule for ComputedExpressions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        with_others(plan, &mut computed)
    }

    fn name(&self) -> &str {
        "computed_expressions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator with other expressions; none where nothing is ours.
fn computed(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(node) = with_rewritten(node, with_ours)? {
        return Ok(Some(node));
    }
    let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let schema = aggregation.input_schema();
    let mut any = false;
    let mut call = |call: &Arc<AggregateFunctionExpr>| {
        // With other arguments DataFusion takes it for one that is not turned round.
        if call.is_reversed() {
            return Ok(Arc::clone(call));
        }
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
