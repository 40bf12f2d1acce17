//! Distinct counts of groups that are known by several texts stay in their groups.
//!
//! DataFusion's rule makes a GROUP BY of the keys and the argument, and above it one of the keys. Its groups are dealt out by
//! both, which is quick where rows are many and words hold them; where keys are texts, these are compared, copied and kept
//! for each different argument, and once more for each group.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use crate::config::ForRules;
use crate::planner::rule::{Except, Given};

/// Keys of any length from which on a group is better found once.
const TEXTS_MIN: usize = 2;

/// A rule of DataFusion's, kept from distinct counts that are better left in their groups.
pub(super) fn of_short_keys(rule: Given) -> Given {
    match rule.name() {
        "single_distinct_aggregation_to_group_by" => Arc::new(Except::new(rule, is_left)),
        _ => rule,
    }
}

fn is_left(_: &Given, plan: &LogicalPlan, config: &dyn OptimizerConfig) -> Result<bool> {
    let options = config.options();
    let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.spills_groups);
    match plan {
        LogicalPlan::Aggregate(aggregate) if is_on => counts_integers_by_texts(aggregate),
        _ => Ok(false),
    }
}

/// Whether several keys are of no fixed length, and what is to be told apart in a group is integers.
fn counts_integers_by_texts(aggregate: &Aggregate) -> Result<bool> {
    let schema = aggregate.input.schema();
    let mut texts = 0;
    for key in &aggregate.group_expr {
        texts += usize::from(key.get_type(schema)?.primitive_width().is_none());
    }
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(function) = expr else { return Ok(false) };
        let params = &function.params;
        let of_integers = match params.args.as_slice() {
            [value] => function.func.name() == "count" && value.get_type(schema)?.is_integer(),
            _ => false,
        };
        if params.distinct && !of_integers {
            return Ok(false);
        }
    }
    Ok(texts >= TEXTS_MIN)
}
