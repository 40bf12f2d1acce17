//! One column converted to several types in the keys, aggregates and windows of a query, as `sum(x::INT), sum(x::DOUBLE)`.
//!
//! DataFusion names an expression without its casts, and wants names to be unlike. So what holds a cast in an aggregate or a window
//! is given its full text as an alias; and keys of one name are all kept, for there is no projection that could bring back one of them.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr,
};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use crate::planner::rule::{Except, Given};

#[derive(Debug)]
pub(super) struct NamedCasts;

impl ExprPlanner for NamedCasts {
    fn plan_aggregate(
        &self,
        mut aggregate: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        // Which is asked about a key, and finds it as it is written.
        if aggregate.func.name() != "grouping" {
            aggregate.args.iter_mut().try_for_each(name_casts)?;
        }
        Ok(PlannerResult::Original(aggregate))
    }

    fn plan_window(&self, mut window: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let keys = window.order_by.iter_mut().map(|key| &mut key.expr);
        let parts = window.args.iter_mut().chain(&mut window.partition_by).chain(keys);
        parts.into_iter().try_for_each(name_casts)?;
        Ok(PlannerResult::Original(window))
    }
}

/// Gives an expression that holds a cast its text as a name.
fn name_casts(expression: &mut Expr) -> Result<()> {
    if expression.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))? {
        let text = expression.to_string();
        *expression = std::mem::take(expression).alias(text);
    }
    Ok(())
}

/// A rule of DataFusion's, kept from keys of one name if it would compute some of them above their groups.
pub(super) fn of_unlike_keys(rule: Given) -> Given {
    match rule.name() {
        "eliminate_group_by_constant" => Arc::new(Except::new(rule, has_keys_of_one_name)),
        _ => rule,
    }
}

fn has_keys_of_one_name(_: &Given, plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(false) };
    let mut names = HashSet::new();
    Ok(!aggregate.group_expr.iter().all(|key| names.insert(key.schema_name().to_string())))
}
