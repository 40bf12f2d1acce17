//! What sub-queries select that are asked whether they have some row.
//!
//! ```text
//! x IN (SELECT y FROM u WHERE u.y = t.y)       x IN (SELECT y AS __member FROM u WHERE u.y = t.y)
//! EXISTS (SELECT f(y), y FROM u WHERE …)       EXISTS (FROM u WHERE …)
//! ```
//!
//! DataFusion selects beside it what conditions compare that it takes out of a sub-query, and a column that becomes another type has
//! the name that it had: two of one name are none to it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use super::names;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct SelectedColumns;

impl AnalyzerRule for SelectedColumns {
    fn name(&self) -> &str {
        "selected_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            names::rewritten(node, |expression| expression.transform_up(changed))
        })
        .data()
    }
}

fn changed(part: Expr) -> Result<Transformed<Expr>> {
    Ok(match part {
        Expr::InSubquery(member) if !member.subquery.outer_ref_columns.is_empty() => {
            let values = member.subquery.subquery.as_ref();
            let value = Expr::Column(values.schema().columns().swap_remove(0)).alias("__member");
            let named = LogicalPlanBuilder::from(values.clone()).project([value])?.build()?;
            let subquery = member.subquery.with_plan(Arc::new(named));
            Transformed::yes(Expr::InSubquery(InSubquery { subquery, ..member }))
        }
        Expr::Exists(Exists { subquery, negated }) => {
            let mut rows = Arc::clone(&subquery.subquery);
            while let LogicalPlan::Projection(selected) = rows.as_ref() {
                rows = Arc::clone(&selected.input);
            }
            if Arc::ptr_eq(&rows, &subquery.subquery) {
                return Ok(Transformed::no(Expr::Exists(Exists { subquery, negated })));
            }
            let outer_ref_columns = rows.all_out_ref_exprs();
            let subquery = Subquery { subquery: rows, outer_ref_columns, ..subquery };
            Transformed::yes(Expr::Exists(Exists { subquery, negated }))
        }
        part => Transformed::no(part),
    })
}
