//! Sub-queries in windows, keys of groups, conditions of joins and such as become some, where DataFusion takes none, are moved to where
//! it does.
//!
//! ```text
//! Window: sum((q)) OVER (…)        Window: sum(__subquery_1) OVER (…)
//!   t                        ──►     Projection: t.*, (q) AS __subquery_1      so for groups
//!                                      t
//!
//! Inner Join: t.a = (q)            Filter: t.a = (q)
//!   t                        ──►     Inner Join:
//!   u                                  t
//!                                      u
//!
//! Filter: outer(t.a) < (q)         Filter: outer(t.a) < __subquery_1
//!   u                        ──►     Projection: u.*, (q) AS __subquery_1
//!                                      u
//! ```
//!
//! Those of outer joins are in `outer`.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Window,
};
use datafusion::optimizer::AnalyzerRule;

use super::subquery::{conditions, is_open, subquery_of};
use super::{names, outer};

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct HoistedSubqueries;

impl AnalyzerRule for HoistedSubqueries {
    fn name(&self) -> &str {
        "hoisted_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Window(window) if window.window_expr.iter().any(is_open) => {
                below_window(window).map(Transformed::yes)
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(is_open) => {
                below_groups(aggregate).map(Transformed::yes)
            }
            LogicalPlan::Filter(filter)
                if split_conjunction(&filter.predicate).into_iter().any(is_no_join) =>
            {
                below_filter(filter).map(Transformed::yes)
            }
            LogicalPlan::Join(join) if has_open(&join) => match join.join_type {
                JoinType::Inner => above(join).map(Transformed::yes),
                JoinType::Left | JoinType::Right | JoinType::Full => {
                    outer::hoisted(join).map(Transformed::yes)
                }
                _ => Ok(Transformed::no(LogicalPlan::Join(join))),
            },
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn below_window(window: Window) -> Result<LogicalPlan> {
    let columns = window.schema.columns().into_iter().map(Expr::Column);
    let (expressions, input) = computed(window.window_expr, window.input)?;
    let window = Window::try_new(expressions, Arc::new(input))?;
    LogicalPlanBuilder::from(LogicalPlan::Window(window)).project(columns)?.build()
}

fn below_groups(aggregate: Aggregate) -> Result<LogicalPlan> {
    let (keys, input) = computed(aggregate.group_expr, aggregate.input)?;
    Aggregate::try_new(Arc::new(input), keys, aggregate.aggr_expr).map(LogicalPlan::Aggregate)
}

/// Whether a join that is made of a condition would have a sub-query in its own: one that stands beside columns of a query around, or
/// that is looked for among what another selects.
fn is_no_join(condition: &Expr) -> bool {
    let looks_for_one =
        |part: &Expr| Ok(matches!(part, Expr::InSubquery(member) if is_open(&member.expr)));
    is_open(condition)
        && (condition.contains_outer() || condition.exists(looks_for_one).unwrap_or(false))
}

fn below_filter(filter: Filter) -> Result<LogicalPlan> {
    let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
    let conditions = split_conjunction_owned(filter.predicate);
    let (asking, mut others): (Vec<_>, Vec<_>) = conditions.into_iter().partition(is_no_join);
    let (asking, input) = computed(asking, filter.input)?;
    others.extend(asking);
    let rows = LogicalPlanBuilder::from(input);
    let rows = conjunction(others).map_or(Ok(rows.clone()), |condition| rows.filter(condition))?;
    rows.project(columns)?.build()
}

/// Expressions without sub-queries, and the rows that have the values of these beside what they had.
fn computed(expressions: Vec<Expr>, input: Arc<LogicalPlan>) -> Result<(Vec<Expr>, LogicalPlan)> {
    let mut computed = input.schema().columns().into_iter().map(Expr::Column).collect();
    let names = NamePreserver::new_for_projection();
    let expressions = expressions.into_iter().map(|expression| {
        let mut change =
            |whole: Expr| whole.transform_down(|part| moved(part, &mut computed, "__subquery"));
        names::named(&names, expression, &mut change).data()
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let input = LogicalPlanBuilder::from(input).project(computed)?.build()?;
    Ok((expressions, input))
}

/// The column that has a sub-query's value, where it is one, and the sub-query among what is computed.
pub(super) fn moved(
    part: Expr,
    computed: &mut Vec<Expr>,
    prefix: &str,
) -> Result<Transformed<Expr>> {
    if subquery_of(&part).is_none() || !is_open(&part) {
        return Ok(Transformed::no(part));
    }
    let name = format!("{prefix}_{}", computed.len());
    computed.push(part.alias(&name));
    let column = Expr::Column(Column::from_name(name));
    Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
}

fn has_open(join: &Join) -> bool {
    join.filter.iter().any(is_open)
        || join.on.iter().any(|(left, right)| is_open(left) || is_open(right))
}

/// The join by its conditions without sub-queries, below the others.
pub(super) fn above(join: Join) -> Result<LogicalPlan> {
    let (above, others): (Vec<_>, Vec<_>) = conditions(&join).into_iter().partition(is_open);
    let right = Arc::unwrap_or_clone(join.right);
    let join = LogicalPlanBuilder::from(join.left).join_on(right, JoinType::Inner, others)?;
    match conjunction(above) {
        Some(above) => join.filter(above)?.build(),
        None => join.build(),
    }
}
