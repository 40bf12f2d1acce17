//! Join keys of one meaning: NULL equals NULL for all of them, or for none.
//!
//! A join over `a IS NOT DISTINCT FROM b` holds NULL equal to NULL. Two of DataFusion's rules would make keys
//! of the `=` in its filter and in filters above it too, which would then hold for NULLs.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;

use crate::planner::rule::{Except, Given};

/// A rule of DataFusion's, kept from joins in which NULL equals NULL if it would add keys to them.
pub(super) fn of_one_meaning(rule: Given) -> Given {
    match rule.name() {
        "extract_equijoin_predicate" | "eliminate_cross_join" => {
            Arc::new(Except::new(rule, meets_equal_nulls))
        }
        _ => rule,
    }
}

/// Whether the rule would meet a join that holds NULL equal to NULL: at this node, or below it where the
/// rule goes there by itself. Outer joins keep their keys.
fn meets_equal_nulls(rule: &Given, plan: &LogicalPlan, _: &dyn OptimizerConfig) -> Result<bool> {
    let holds = |plan: &LogicalPlan| match plan {
        LogicalPlan::Join(join) => {
            join.null_equality == NullEquality::NullEqualsNull
                && (join.join_type == JoinType::Inner || rule.apply_order().is_some())
        }
        _ => false,
    };
    match rule.apply_order() {
        Some(_) => Ok(holds(plan)),
        None => plan.exists(|node| Ok(holds(node))),
    }
}
