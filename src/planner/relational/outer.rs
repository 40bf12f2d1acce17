//! Sub-queries in conditions of outer joins.
//!
//! ```text
//! Left Join: u.a = (q of t)        Left Join: u.a = __left_1              so for Right and Full, and for q of u
//!   t                        ──►     Projection: t.*, (q of t) AS __left_1
//!   u                                  t
//!                                    u
//!
//! Left Join: (q of t and u)        Union                                  so for Right and Full
//!   t                        ──►     Filter: (q of t and u)
//!   u                                  Cross Join: t, u
//!                                    Filter: NOT EXISTS (u of which (q of t and u) holds)
//!                                      t
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, Spans};
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::hoisted::{above, moved};
use super::nested::named_outside;
use super::subquery::{conditions, is_open, subquery_of};

/// The same rows of a left, right or full join whose conditions hold sub-queries.
pub(super) fn hoisted(join: Join) -> Result<LogicalPlan> {
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let kind = join.join_type;
    let (left, right, condition) = beside(&join)?;
    let rows = match condition {
        Some(condition) if is_open(&condition) => in_parts(left, right, kind, condition)?,
        other => LogicalPlanBuilder::from(left).join_on(right, kind, other)?.build()?,
    };
    LogicalPlanBuilder::from(rows).project(columns)?.build()
}

/// Both sides with the values of sub-queries that name rows of one alone, and the condition by these.
fn beside(join: &Join) -> Result<(LogicalPlan, LogicalPlan, Option<Expr>)> {
    let all = |side: &LogicalPlan| side.schema().columns().into_iter().map(Expr::Column).collect();
    let (mut left, mut right): (Vec<_>, Vec<_>) = (all(&join.left), all(&join.right));
    let mut placed = |part: Expr| {
        let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
        let mut named = named_outside(&subquery.subquery)?;
        named.extend(part.column_refs().into_iter().cloned());
        let is_of =
            |side: &LogicalPlan| named.iter().any(|column| side.schema().has_column(column));
        match (is_of(&join.left), is_of(&join.right)) {
            (true, true) => Ok(Transformed::new(part, false, TreeNodeRecursion::Jump)),
            (false, true) => moved(part, &mut right, "__right"),
            (_, false) => moved(part, &mut left, "__left"),
        }
    };
    let condition = conjunction(conditions(join));
    let condition = condition.map(|condition| condition.transform_down(&mut placed).data());
    let condition = condition.transpose()?;
    let with = |side: &Arc<LogicalPlan>, expressions: Vec<Expr>| match expressions.len()
        > side.schema().fields().len()
    {
        true => LogicalPlanBuilder::from(Arc::clone(side)).project(expressions)?.build(),
        false => Ok(side.as_ref().clone()),
    };
    Ok((with(&join.left, left)?, with(&join.right, right)?, condition))
}

/// The pairs for which the condition holds, and the rows without any.
fn in_parts(
    left: LogicalPlan,
    right: LogicalPlan,
    kind: JoinType,
    condition: Expr,
) -> Result<LogicalPlan> {
    let pairs = LogicalPlanBuilder::from(left.clone())
        .join_on(right.clone(), JoinType::Inner, [condition.clone()])?
        .build()?;
    let LogicalPlan::Join(pairs) = pairs else { return Ok(pairs) };
    let schema = Arc::clone(&pairs.schema);
    let mut parts = vec![above(pairs)?];
    if kind != JoinType::Right {
        parts.push(without_partner(&left, &right, &condition)?);
    }
    if kind != JoinType::Left {
        parts.push(without_partner(&right, &left, &condition)?);
    }
    // A union knows its columns by their names alone.
    let name = |at: usize| format!("c{at}");
    let mut union: Option<LogicalPlanBuilder> = None;
    for part in parts {
        let columns = schema.iter().enumerate().map(|(at, (relation, field))| {
            let column = Column::new(relation.cloned(), field.name());
            let value = match part.schema().has_column(&column) {
                true => Expr::Column(column),
                false => Expr::Literal(ScalarValue::try_new_null(field.data_type())?, None),
            };
            Ok(value.alias(name(at)))
        });
        let columns: Vec<Expr> = columns.collect::<Result<_>>()?;
        let part = LogicalPlanBuilder::from(part).project(columns)?;
        union = Some(match union {
            Some(union) => union.union(part.build()?)?,
            None => part,
        });
    }
    let rows = union.unwrap_or_else(|| LogicalPlanBuilder::empty(false));
    let columns = schema.iter().enumerate().map(|(at, (relation, field))| {
        Expr::Column(Column::from_name(name(at))).alias_qualified(relation.cloned(), field.name())
    });
    rows.project(columns.collect::<Vec<_>>())?.build()
}

/// The rows of one side for which the condition holds with no row of the other.
fn without_partner(
    rows: &LogicalPlan,
    others: &LogicalPlan,
    condition: &Expr,
) -> Result<LogicalPlan> {
    let condition = seen_from(condition, rows.schema())?;
    let partners = LogicalPlanBuilder::from(others.clone()).filter(condition)?.build()?;
    let outer_ref_columns = partners.all_out_ref_exprs();
    let subquery = Arc::new(partners);
    let subquery = Subquery { subquery, outer_ref_columns, spans: Spans::new() };
    let none = Expr::Exists(Exists { subquery, negated: true });
    LogicalPlanBuilder::from(rows.clone()).filter(none)?.build()
}

/// A condition over rows of both sides as one of the other side's, where these rows are those of a query around it.
fn seen_from(condition: &Expr, rows: &DFSchema) -> Result<Expr> {
    let inside = condition.clone().transform_up(|part| match part {
        Expr::Column(column) if rows.has_column(&column) => {
            let field = Arc::clone(rows.qualified_field_from_column(&column)?.1);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        part => Ok(Transformed::no(part)),
    });
    inside.data()
}
