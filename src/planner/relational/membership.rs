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
//!
//! `x NOT IN (q)`, a whole condition where `q` refers to outer rows, is `NOT EXISTS (SELECT 1 FROM q(y) WHERE y = x OR y IS NULL OR
//! x IS NULL)`: DataFusion's join that knows of NULLs looks for them among all rows, not those that belong to a row outside.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Subquery, lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::subquery::{is_open, seen_from_inside};

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
                if let Some(member) = outer_member(condition) {
                    changed = true;
                    return absence(member, schema);
                }
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

/// What is not among values that depend on the row it belongs to, where a condition is just that.
fn outer_member(condition: &Expr) -> Option<&InSubquery> {
    let (member, is_negated) = match condition {
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(member) => (member, !member.negated),
            _ => return None,
        },
        Expr::InSubquery(member) => (member, member.negated),
        _ => return None,
    };
    let depends = !member.subquery.outer_ref_columns.is_empty();
    (is_negated && depends && !is_open(&member.expr)).then_some(member)
}

/// That no value is, or might be, the one that is looked for.
fn absence(member: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    let values = member.subquery.subquery.as_ref();
    let y = Expr::Column(values.schema().columns().swap_remove(0));
    let (x, references) = seen_from_inside(&member.expr, schema)?;
    let mut could_be = x.clone().eq(y.clone());
    if values.schema().field(0).is_nullable() {
        could_be = could_be.or(y.is_null());
    }
    if member.expr.nullable(schema)? {
        could_be = could_be.or(x.is_null());
    }
    let plan = LogicalPlanBuilder::from(values.clone()).filter(could_be)?.build()?;
    let mut subquery = member.subquery.with_plan(Arc::new(plan));
    subquery.outer_ref_columns.extend(references);
    Ok(Expr::Exists(Exists { subquery, negated: true }))
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
