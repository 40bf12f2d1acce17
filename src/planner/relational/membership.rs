//! `x IN (q)` within a condition, beside an OR say, where an unknown answer is not the same as false.
//!
//! DataFusion makes of it a column that tells whether `x` was found, and is never NULL. So that is asked
//! first, then what makes the answer unknown:
//!
//! ```text
//! CASE WHEN x IN (q) THEN true
//!      WHEN x IS NULL THEN CASE WHEN count(*) > 0 THEN NULL ELSE false END        over q
//!      WHEN count(*) > count(y) THEN NULL ELSE false END                          over q(y)
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Subquery, lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct UnknownMembership;

impl AnalyzerRule for UnknownMembership {
    fn name(&self) -> &str {
        "unknown_membership"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Filter(filter) = node else { return Ok(Transformed::no(node)) };
            let conditions = split_conjunction(&filter.predicate);
            let schema = filter.input.schema();
            let mut changed = false;
            let conditions = conditions.into_iter().map(|condition| {
                if is_membership(condition, false) {
                    return Ok(condition.clone());
                }
                let spelled = condition.clone().transform_down(|part| spell_out(part, schema))?;
                changed |= spelled.transformed;
                Ok(spelled.data)
            });
            let predicate = conjunction(conditions.collect::<Result<Vec<_>>>()?);
            Ok(match (changed, predicate) {
                (true, Some(predicate)) => {
                    Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?))
                }
                _ => Transformed::no(LogicalPlan::Filter(filter)),
            })
        })
        .map(|transformed| transformed.data)
    }
}

/// A whole condition, which DataFusion joins for as it is: there unknown and false are alike. That a constant is not among some
/// values is none: there is no key to join by, and what is unknown would be true.
fn is_membership(condition: &Expr, is_negated: bool) -> bool {
    match condition {
        Expr::Not(inner) => is_membership(inner, !is_negated),
        Expr::InSubquery(member) => {
            member.negated == is_negated
                || member.expr.any_column_refs()
                || member.expr.contains_outer()
        }
        _ => false,
    }
}

fn spell_out(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::InSubquery(InSubquery { expr: x, subquery, negated }) = part else {
        return Ok(Transformed::no(part));
    };
    let y = subquery.subquery.schema().columns().swap_remove(0);
    let (x_nullable, y_nullable) =
        (x.nullable(schema)?, subquery.subquery.schema().field(0).is_nullable());
    let found = InSubquery { expr: x.clone(), subquery: subquery.clone(), negated: false };
    let found = Expr::InSubquery(found);
    if !x_nullable && !y_nullable {
        let member = if negated { not(found) } else { found };
        return Ok(Transformed::new(member, negated, TreeNodeRecursion::Jump));
    }
    let unknown = || lit(ScalarValue::Boolean(None));
    let rows = counted(&subquery, lit(1_i64))?;
    let member = when(found, lit(true))
        .when(x.is_null(), when(rows.clone().gt(lit(0_i64)), unknown()).otherwise(lit(false))?)
        .when(rows.gt(counted(&subquery, Expr::Column(y))?), unknown())
        .otherwise(lit(false))?;
    let member = if negated { not(member) } else { member };
    Ok(Transformed::new(member, true, TreeNodeRecursion::Jump))
}

/// How many rows of a subquery have this value.
fn counted(subquery: &Subquery, value: Expr) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), vec![count(value).alias("count")])?
        .project(vec![Expr::Column(Column::from_name("count"))])?
        .build()?;
    Ok(Expr::ScalarSubquery(subquery.with_plan(Arc::new(plan))))
}
