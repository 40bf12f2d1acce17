//! Of the entries of a matrix, a query that wants the best few of each row is given no others.
//!
//! ```text
//! Filter place <= 10                                        Sort value DESC, fetch 10
//!   Window row_number() OVER (PARTITION BY row                 …
//!                             ORDER BY value DESC) place         Matrix: entries
//!     …
//!       Matrix: entries  ──►  Matrix: the 10 largest of each row
//! ```
//!
//! What stands above stays: it puts the few that are left in order. Between it and the matrix there may be
//! only what hands rows on one by one under other names.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, LogicalPlan, Operator, Projection, SubqueryAlias, Window,
    WindowFunctionDefinition,
};
use datafusion::optimizer::OptimizerConfig;

use super::matrix_node::MatrixNode;
use crate::exec::kernels::best::Best;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    _: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let found = match &plan {
        LogicalPlan::Sort(sort) => {
            let count = sort.fetch.and_then(|count| match &sort.expr[..] {
                [key] => ranked(key, count),
                _ => None,
            });
            count.and_then(|(best, by)| pruned(&sort.input, Wanted { best, by, each: None }))
        }
        LogicalPlan::Filter(filter) => match filter.input.as_ref() {
            LogicalPlan::Window(window) => {
                let wanted = numbered(window, &filter.predicate);
                let rows = wanted.and_then(|wanted| pruned(&window.input, wanted));
                rows.map(|rows| {
                    LogicalPlan::Window(Window { input: Arc::new(rows), ..window.clone() })
                })
            }
            _ => None,
        },
        _ => None,
    };
    let Some(input) = found else { return Ok(Transformed::no(plan)) };
    let expressions = plan.expressions();
    Ok(Transformed::yes(plan.with_new_exprs(expressions, vec![input])?))
}

/// What a query wants of some rows.
struct Wanted {
    best: Best,
    /// What the rows are ranked by.
    by: Column,
    /// What each few share; none where the few are of all rows together.
    each: Option<Vec<Column>>,
}

/// The few that a sort key puts first, and the column that it is.
fn ranked(key: &SortKey, count: usize) -> Option<(Best, Column)> {
    let Expr::Column(by) = &key.expr else { return None };
    Some((Best { count, largest: !key.asc }, by.clone()))
}

/// What a bound on the numbers of rows wants, where a window has nothing else to do than to number them.
fn numbered(window: &Window, predicate: &Expr) -> Option<Wanted> {
    let [Expr::WindowFunction(function)] = &window.window_expr[..] else { return None };
    let WindowFunction { fun: WindowFunctionDefinition::WindowUDF(udf), params } =
        function.as_ref()
    else {
        return None;
    };
    if udf.name() != "row_number" || params.filter.is_some() {
        return None;
    }
    let name = window.window_expr[0].schema_name().to_string();
    let count = split_conjunction(predicate).into_iter().find_map(|part| bound(part, &name))?;
    let [key] = &params.order_by[..] else { return None };
    let (best, by) = ranked(key, count)?;
    let each = params.partition_by.iter().map(|expr| match expr {
        Expr::Column(column) => Some(column.clone()),
        _ => None,
    });
    Some(Wanted { best, by, each: Some(each.collect::<Option<_>>()?) })
}

/// The largest number that a condition on a column lets through.
fn bound(condition: &Expr, name: &str) -> Option<usize> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (Expr::Column(column), Expr::Literal(limit, _)) = (left.as_ref(), right.as_ref()) else {
        return None;
    };
    let limit = match limit {
        ScalarValue::UInt64(Some(limit)) => usize::try_from(*limit).ok()?,
        ScalarValue::Int64(Some(limit)) => usize::try_from(*limit).ok()?,
        _ => return None,
    };
    match op {
        _ if column.name != name => None,
        Operator::LtEq | Operator::Eq => Some(limit),
        Operator::Lt => limit.checked_sub(1),
        _ => None,
    }
}

/// A plan whose rows are the entries of a matrix, with none but the wanted ones.
fn pruned(plan: &LogicalPlan, wanted: Wanted) -> Option<LogicalPlan> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = |column: &Column| {
                let at = alias.schema.maybe_index_of_column(column)?;
                Some(Column::from(alias.input.schema().qualified_field(at)))
            };
            let input = pruned(&alias.input, renamed(wanted, inner)?)?;
            let alias = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone()).ok()?;
            Some(LogicalPlan::SubqueryAlias(alias))
        }
        LogicalPlan::Projection(projection) => {
            let inner = |column: &Column| {
                let at = projection.schema.maybe_index_of_column(column)?;
                match projection.expr[at].clone().unalias() {
                    Expr::Column(column) => Some(column),
                    _ => None,
                }
            };
            let input = pruned(&projection.input, renamed(wanted, inner)?)?;
            let expr = projection.expr.clone();
            let schema = Arc::clone(&projection.schema);
            let projection = Projection::try_new_with_schema(expr, Arc::new(input), schema).ok()?;
            Some(LogicalPlan::Projection(projection))
        }
        LogicalPlan::Extension(Extension { node }) => {
            let node = node.as_any().downcast_ref::<MatrixNode>()?;
            let place = |column: &Column| node.schema_place(column);
            let each = match &wanted.each {
                Some(each) => Some(each.iter().map(place).collect::<Option<Vec<usize>>>()?),
                None => None,
            };
            let by = place(&wanted.by)?;
            node.best_entries(wanted.best, by, each.as_deref()).map(MatrixNode::into_plan)
        }
        _ => None,
    }
}

/// The same under the names that the rows have further down.
fn renamed(wanted: Wanted, inner: impl Fn(&Column) -> Option<Column>) -> Option<Wanted> {
    let each = match wanted.each {
        Some(each) => Some(each.iter().map(&inner).collect::<Option<Vec<_>>>()?),
        None => None,
    };
    Some(Wanted { best: wanted.best, by: inner(&wanted.by)?, each })
}
