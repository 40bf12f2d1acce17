//! Columns that a filter holds to one value.
//!
//! Of a column in general nothing is asked about filters, for a filter's own share is computed by what its table holds. The keys of
//! a join are another matter: where both sides are held to the same value, each row of one meets each of the other.

use datafusion::common::Column;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};

use super::estimate::{place_of, plain};

/// Whether an expression over a plan has one value.
pub(super) fn is_pinned(plan: &LogicalPlan, expr: &Expr) -> bool {
    match plain(expr) {
        Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Column(column) => is_column_pinned(plan, column),
        _ => false,
    }
}

fn is_column_pinned(plan: &LogicalPlan, column: &Column) -> bool {
    let is_at = |input: &LogicalPlan| {
        let at = place_of(plan.schema(), column)?;
        let (relation, field) = input.schema().qualified_field(at);
        Some(is_column_pinned(input, &Column::new(relation.cloned(), field.name())))
    };
    match plan {
        LogicalPlan::Filter(filter) => {
            let mut conditions = split_conjunction(&filter.predicate).into_iter();
            conditions.any(|condition| pins(condition, column))
                || is_column_pinned(&filter.input, column)
        }
        LogicalPlan::TableScan(scan) => {
            scan.filters.iter().any(|condition| pins(condition, column))
        }
        LogicalPlan::SubqueryAlias(alias) => is_at(&alias.input).unwrap_or(false),
        LogicalPlan::Projection(projection) => {
            let at = place_of(plan.schema(), column);
            at.is_some_and(|at| is_pinned(&projection.input, &projection.expr[at]))
        }
        LogicalPlan::Sort(sort) => is_column_pinned(&sort.input, column),
        LogicalPlan::Join(join) => {
            let sides = [&join.left, &join.right];
            let side = sides.into_iter().find(|side| place_of(side.schema(), column).is_some());
            side.is_some_and(|side| is_column_pinned(side, column))
        }
        _ => false,
    }
}

/// Whether a condition holds a column to one value.
fn pins(condition: &Expr, column: &Column) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return false;
    };
    let is_column = |expr: &Expr| matches!(plain(expr), Expr::Column(own) if own == column);
    let is_value = |expr: &Expr| matches!(plain(expr), Expr::Literal(..) | Expr::Placeholder(_));
    is_column(left) && is_value(right) || is_value(left) && is_column(right)
}
