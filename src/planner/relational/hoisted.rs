//! Sub-queries in windows, keys of groups and conditions of joins, where DataFusion takes none, are moved to where it does.
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
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, NullEquality, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Window,
    binary_expr,
};
use datafusion::optimizer::AnalyzerRule;

use super::names;
use super::subquery::is_open;

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
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && has_open(&join) => {
                above(join).map(Transformed::yes)
            }
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

/// Expressions without sub-queries, and the rows that have the values of these beside what they had.
fn computed(expressions: Vec<Expr>, input: Arc<LogicalPlan>) -> Result<(Vec<Expr>, LogicalPlan)> {
    let mut computed = input.schema().columns().into_iter().map(Expr::Column).collect();
    let names = NamePreserver::new_for_projection();
    let expressions = expressions.into_iter().map(|expression| {
        let mut change = |whole: Expr| whole.transform_down(|part| moved(part, &mut computed));
        names::named(&names, expression, &mut change).data()
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let input = LogicalPlanBuilder::from(input).project(computed)?.build()?;
    Ok((expressions, input))
}

/// The column that has a sub-query's value, where it is one, and the sub-query among what is computed.
fn moved(part: Expr, computed: &mut Vec<Expr>) -> Result<Transformed<Expr>> {
    let is_subquery =
        matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
    if !is_subquery || !is_open(&part) {
        return Ok(Transformed::no(part));
    }
    let name = format!("__subquery_{}", computed.len());
    computed.push(part.alias(&name));
    let column = Expr::Column(Column::from_name(name));
    Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
}

fn has_open(join: &Join) -> bool {
    join.filter.iter().any(is_open)
        || join.on.iter().any(|(left, right)| is_open(left) || is_open(right))
}

/// The join by its other conditions, below those with sub-queries.
fn above(mut join: Join) -> Result<LogicalPlan> {
    let operator = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let is_moved = |(left, right): &(Expr, Expr)| is_open(left) || is_open(right);
    let (keys, on): (Vec<_>, Vec<_>) = join.on.into_iter().partition(is_moved);
    let filter = join.filter.map_or_else(Vec::new, split_conjunction_owned);
    let (conditions, filter): (Vec<_>, Vec<_>) = filter.into_iter().partition(is_open);
    let keys = keys.into_iter().map(|(left, right)| binary_expr(left, operator, right));
    let moved = conjunction(keys.chain(conditions));
    (join.on, join.filter) = (on, conjunction(filter));
    let join = LogicalPlan::Join(join);
    Ok(match moved {
        Some(moved) => LogicalPlan::Filter(Filter::try_new(moved, Arc::new(join))?),
        None => join,
    })
}
