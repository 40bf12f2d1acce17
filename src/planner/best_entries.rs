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
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, Projection, SubqueryAlias};
use datafusion::optimizer::OptimizerConfig;

use super::matrix_node::MatrixNode;
use super::ranking::{Ranking, ranking};
use crate::exec::kernels::best::Best;

/// The rule; see the header of this file.
pub(super) fn rewrite(
    plan: LogicalPlan,
    _: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let found = match &plan {
        LogicalPlan::Sort(sort) => {
            let wanted = sort.fetch.and_then(|count| match &sort.expr[..] {
                [key] => ranked(key, count),
                _ => None,
            });
            let wanted = wanted.map(|(best, by)| Wanted { best, by, each: None });
            let input = wanted.and_then(|wanted| pruned(&sort.input, wanted));
            input.map(|input| plan.with_new_exprs(plan.expressions(), vec![input]))
        }
        _ => ranking(&plan).filter(|ranking| !ranking.has_ties).and_then(|ranking| {
            let rows = pruned(&ranking.window.input, numbered(&ranking)?)?;
            Some(ranking.over(rows))
        }),
    };
    match found {
        Some(found) => Ok(Transformed::yes(found?)),
        None => Ok(Transformed::no(plan)),
    }
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

/// What a condition on the numbers of rows wants.
fn numbered(ranking: &Ranking) -> Option<Wanted> {
    let [key] = ranking.order_by else { return None };
    let (best, by) = ranked(key, ranking.count)?;
    let each = ranking.partition_by.iter().map(|expr| match expr {
        Expr::Column(column) => Some(column.clone()),
        _ => None,
    });
    Some(Wanted { best, by, each: Some(each.collect::<Option<_>>()?) })
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
