//! Conditions on rows of several relations beside what follows of them for each.
//!
//! Of `(n1.name = 'FRANCE' AND n2.name = 'GERMANY') OR (n1.name = 'GERMANY' AND n2.name = 'FRANCE')` follows
//! `n1.name = 'FRANCE' OR n1.name = 'GERMANY'`, which an optimizer asks of `n1` before it is joined. The condition keeps fewer of
//! all pairs than of those that are left, by what that filter has dropped.

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, and, or};

use super::estimate::Estimates;

impl Estimates<'_> {
    /// The share of the pairs of rows that plans yield, each filtered by itself, for which all of these hold.
    pub(in crate::planner) fn kept_of_pairs(
        &self,
        conditions: &[&Expr],
        plans: &[&LogicalPlan],
    ) -> f64 {
        let mut others = Vec::new();
        let mut share = 1.0;
        for condition in conditions {
            match self.kept_of_filtered(condition, plans) {
                Some(kept) => share *= kept,
                None => others.push(*condition),
            }
        }
        share * self.kept(&others, plans)
    }

    /// The share for which one of several alternatives holds, which are taken to exclude one another; nothing where no plan is
    /// filtered by what follows of them. Of the rows of one that is, each holds as often as it does among all.
    fn kept_of_filtered(&self, condition: &Expr, plans: &[&LogicalPlan]) -> Option<f64> {
        let alternatives = alternatives(condition);
        let mut shares: Vec<f64> =
            alternatives.iter().map(|one| self.kept(&about_several(one, plans), plans)).collect();
        let mut is_filtered = false;
        for plan in plans {
            let parts: Vec<_> = alternatives.iter().map(|one| part_about(one, plan)).collect();
            let kept =
                |part: &Option<Expr>| part.as_ref().map_or(1.0, |part| self.kept(&[part], &[plan]));
            let kept: Vec<f64> = parts.iter().map(kept).collect();
            let either = parts.into_iter().collect::<Option<Vec<Expr>>>();
            let either = either.and_then(|parts| parts.into_iter().reduce(or));
            let is_told = either.is_some_and(|either| is_filtered_by(plan, &either));
            is_filtered |= is_told;
            let all = if is_told { kept.iter().sum::<f64>().min(1.0) } else { 1.0 };
            shares.iter_mut().zip(kept).for_each(|(share, kept)| *share *= kept / all);
        }
        is_filtered.then(|| shares.iter().sum::<f64>().min(1.0))
    }
}

/// What a condition asks of rows of several plans at once.
fn about_several<'e>(condition: &'e Expr, plans: &[&LogicalPlan]) -> Vec<&'e Expr> {
    let mut all = split_conjunction(condition);
    all.retain(|one| plans.iter().all(|plan| part_about(one, plan).is_none()));
    all
}

/// The parts of a condition of which one must hold.
fn alternatives(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            [alternatives(left), alternatives(right)].concat()
        }
        one => vec![one],
    }
}

/// What follows of a condition for the rows of one plan; none where nothing does.
fn part_about(condition: &Expr, plan: &LogicalPlan) -> Option<Expr> {
    if let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) =
        condition
    {
        let parts = (part_about(left, plan), part_about(right, plan));
        return match (op, parts) {
            (Operator::Or, (left, right)) => Some(or(left?, right?)),
            (_, (Some(left), Some(right))) => Some(and(left, right)),
            (_, (left, right)) => left.or(right),
        };
    }
    let columns = condition.column_refs();
    let is_own = |column: &&Column| plan.schema().has_column(column);
    (!columns.is_empty() && columns.iter().all(is_own)).then(|| condition.clone())
}

/// Whether a plan lets only rows through for which a condition holds. Relations may have other names further down.
fn is_filtered_by(plan: &LogicalPlan, condition: &Expr) -> bool {
    let condition = &without_relations(condition);
    let asks = |filter: &Expr| without_relations(filter) == *condition;
    match plan {
        LogicalPlan::Filter(filter) => {
            split_conjunction(&filter.predicate).into_iter().any(asks)
                || is_filtered_by(&filter.input, condition)
        }
        LogicalPlan::TableScan(scan) => scan.filters.iter().any(asks),
        LogicalPlan::Projection(projection) => is_filtered_by(&projection.input, condition),
        LogicalPlan::SubqueryAlias(alias) => is_filtered_by(&alias.input, condition),
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            [&join.left, &join.right].into_iter().any(|side| is_filtered_by(side, condition))
        }
        _ => false,
    }
}

fn without_relations(expr: &Expr) -> Expr {
    let without = |expr| match expr {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    };
    let without = expr.clone().transform(without);
    without.data().unwrap_or_else(|_| expr.clone())
}
