//! Aggregates of one column converted to several types, as `sum(x::INT), sum(x::DOUBLE)`.
//!
//! DataFusion names an expression without its casts, and wants the names of all aggregates unlike. So what
//! holds a cast is given its full text as an alias.

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};

#[derive(Debug)]
pub(super) struct NamedCasts;

impl ExprPlanner for NamedCasts {
    fn plan_aggregate(
        &self,
        mut aggregate: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        for argument in &mut aggregate.args {
            if argument.exists(|part| Ok(matches!(part, Expr::Cast(_) | Expr::TryCast(_))))? {
                let text = argument.to_string();
                *argument = std::mem::take(argument).alias(text);
            }
        }
        Ok(PlannerResult::Original(aggregate))
    }
}
