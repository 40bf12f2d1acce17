//! Filters above an aggregate that has a row of all rows, even of none.
//!
//! A filter that reads no column lets all rows through or none: `WHERE (SELECT max(x) FROM t) < 5`, or `ON false` of an outer join.
//! DataFusion hands it down below the aggregate, which then has a row still.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use crate::planner::rule::{Except, Given};

/// A rule of DataFusion's, kept from such filters.
pub(super) fn filtered_above(rule: Given) -> Given {
    match rule.name() {
        "push_down_filter" => Arc::new(Except::new(rule, is_above_total)),
        _ => rule,
    }
}

fn is_above_total(_: &Given, plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(false) };
    let LogicalPlan::Aggregate(aggregate) = filter.input.as_ref() else { return Ok(false) };
    let keys = &aggregate.group_expr;
    let has_total = keys.is_empty() || matches!(keys[..], [Expr::GroupingSet(_)]);
    let conditions = split_conjunction(&filter.predicate);
    Ok(has_total && conditions.into_iter().any(|condition| !condition.any_column_refs()))
}
