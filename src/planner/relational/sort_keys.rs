//! What is sorted by a number computed from a list, as nearest neighbours are, is sorted without the list; and
//! by integers that are computed, below the sort, where they are checked.
//!
//! ```text
//! Sort f(v)                  Projection id, v
//!   rows id, v      ──►        Sort key
//!                                Projection id, v, f(v) AS key
//!                                  rows id, v
//! ```
//!
//! The rules for projections then drop `v` below the sort where nothing above it reads `v`: what a
//! top-k keeps, and what threads hand to each other, is the number in place of the list.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Sort, col};
use datafusion::optimizer::OptimizerConfig;

use super::overflow::may_overflow;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(Sort { mut expr, input, fetch }) = plan else {
        return Ok(Transformed::no(plan));
    };
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut computed = columns.clone();
    for key in &mut expr {
        if reads_list(&key.expr, &input) || computes(&key.expr, &input)? {
            let name = config.alias_generator().next("__sort_key");
            computed.push(std::mem::replace(&mut key.expr, col(&name)).alias(name));
        }
    }
    if computed.len() == columns.len() {
        return Ok(Transformed::no(LogicalPlan::Sort(Sort { expr, input, fetch })));
    }
    let input = LogicalPlanBuilder::from(input).project(computed)?.build()?;
    let sort = LogicalPlan::Sort(Sort { expr, input: Arc::new(input), fetch });
    Ok(Transformed::yes(LogicalPlanBuilder::from(sort).project(columns)?.build()?))
}

/// Whether an expression computes integers that may leave their range, which a projection checks.
fn computes(key: &Expr, input: &LogicalPlan) -> Result<bool> {
    key.exists(|inner| Ok(may_overflow(inner, input.schema())))
}

/// Whether an expression is computed, and from a list.
fn reads_list(key: &Expr, input: &LogicalPlan) -> bool {
    let is_list = |column: &datafusion::common::Column| {
        Expr::Column(column.clone()).get_type(input.schema()).is_ok_and(|type_| type_.is_list())
    };
    !matches!(key, Expr::Column(_)) && key.column_refs().into_iter().any(is_list)
}
