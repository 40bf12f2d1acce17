//! What sub-queries select that are asked whether they have some row.
//!
//! ```text
//! x IN (SELECT y FROM u WHERE u.y = t.y)                  x IN (SELECT y AS __member FROM u WHERE u.y = t.y)
//! EXISTS (SELECT f(y), y FROM u WHERE …)                  EXISTS (FROM u WHERE …)
//! … FROM (SELECT x FROM u WHERE u.y = t.y) AS v(z) …      … FROM (SELECT x AS v.z FROM u WHERE u.y = t.y) …
//! ```
//!
//! DataFusion selects beside it what conditions compare that it takes out of a sub-query. A column that becomes another type has the
//! name that it had, and two of one name are none to it; and of a query in FROM it goes on to know the columns that it had before.

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
    selected(part)?.transform_data(named_by_columns)
}

/// An expression whose sub-query's queries in FROM that name columns outside give their columns the name that they have themselves.
fn named_by_columns(mut part: Expr) -> Result<Transformed<Expr>> {
    let (Expr::ScalarSubquery(subquery)
    | Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })) = &mut part
    else {
        return Ok(Transformed::no(part));
    };
    let named = LogicalPlan::clone(&subquery.subquery).transform_up(|node| match node {
        LogicalPlan::SubqueryAlias(named) if !named.input.all_out_ref_exprs().is_empty() => {
            let columns = named.input.schema().columns().into_iter().zip(named.schema.columns());
            let columns = columns
                .map(|(column, own)| Expr::Column(column).alias_qualified(own.relation, own.name));
            let rows = LogicalPlanBuilder::from(named.input).project(columns)?.build()?;
            Ok(Transformed::yes(rows))
        }
        node => Ok(Transformed::no(node)),
    })?;
    if named.transformed {
        subquery.subquery = Arc::new(named.data);
    }
    Ok(Transformed::new_transformed(part, named.transformed))
}

fn selected(part: Expr) -> Result<Transformed<Expr>> {
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
