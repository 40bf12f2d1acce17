//! The plan of a graph whose relations are joined in a given order.

use std::sync::Arc;

use datafusion::common::{DFSchemaRef, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, JoinConstraint, LogicalPlan, Projection};

use super::enumerate::Tree;
use super::graph::{Attached, Attachment, ConditionKind, Graph};
use super::set::Set;

/// The joins of a tree. Their columns are those of the relations, in the order of the tree.
pub(super) fn plan(graph: &Graph, tree: &Tree) -> Result<LogicalPlan> {
    built(graph, tree).map(|(plan, _)| plan)
}

/// The same rows with their columns in the order of a schema.
pub(super) fn with_columns_of(plan: LogicalPlan, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    let columns = schema.columns();
    if plan.schema().columns() == columns {
        return Ok(plan);
    }
    let columns = columns.into_iter().map(Expr::Column).collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

fn built(graph: &Graph, tree: &Tree) -> Result<(LogicalPlan, Set)> {
    match tree {
        Tree::Relation(at) => Ok((graph.relations[*at].plan.clone(), Set::one(*at))),
        Tree::Join(sides) => {
            let [left, right] = sides.as_ref();
            let (left, right) = (built(graph, left)?, built(graph, right)?);
            let both = left.1.with(right.1);
            let join = match (attached(graph, left.1), attached(graph, right.1)) {
                (_, Some(attached)) => attached_join(attached, left.0, right.0, false)?,
                (Some(attached), None) => attached_join(attached, left.0, right.0, true)?,
                (None, None) => inner_join(graph, left, right)?,
            };
            Ok((LogicalPlan::Join(join), both))
        }
    }
}

/// The join of a set that is one relation which is attached to others.
fn attached(graph: &Graph, set: Set) -> Option<&Attached> {
    let relation = set.least().filter(|_| set.count() == 1)?;
    graph.relations[relation].attached.as_ref()
}

/// `is_right` where the rows that are joined are those on the right.
fn attached_join(
    attached: &Attached,
    left: LogicalPlan,
    right: LogicalPlan,
    is_right: bool,
) -> Result<Join> {
    let join_type = match attached.kind {
        Attachment::Semi => JoinType::LeftSemi,
        Attachment::Anti => JoinType::LeftAnti,
        Attachment::Outer => JoinType::Left,
    };
    let join_type = if is_right { join_type.swap() } else { join_type };
    let on = attached.on.iter().cloned();
    let on = on.map(|(kept, other)| if is_right { (other, kept) } else { (kept, other) });
    join(left, right, on.collect(), attached.filter.clone(), join_type)
}

fn inner_join(
    graph: &Graph,
    (left, of_left): (LogicalPlan, Set),
    (right, of_right): (LogicalPlan, Set),
) -> Result<Join> {
    let mut on = Vec::new();
    for class in &graph.classes {
        let member = |side: Set| class.iter().find(|member| side.meets(Set::one(member.relation)));
        if let (Some(one), Some(other)) = (member(of_left), member(of_right)) {
            on.push((one.expr.clone(), other.expr.clone()));
        }
    }
    let both = of_left.with(of_right);
    let mut filters = Vec::new();
    for condition in &graph.conditions {
        let is_done =
            of_left.includes(condition.relations) || of_right.includes(condition.relations);
        if is_done || !both.includes(condition.relations) {
            continue;
        }
        match &condition.kind {
            ConditionKind::Equality([(one, a), (other, b)]) => {
                if of_left.includes(*one) && of_right.includes(*other) {
                    on.push((a.clone(), b.clone()));
                } else if of_left.includes(*other) && of_right.includes(*one) {
                    on.push((b.clone(), a.clone()));
                } else {
                    filters.push(a.clone().eq(b.clone()));
                }
            }
            ConditionKind::Other(expr) => filters.push(expr.clone()),
        }
    }
    join(left, right, on, conjunction(filters), JoinType::Inner)
}

fn join(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    join_type: JoinType,
) -> Result<Join> {
    let (left, right) = (Arc::new(left), Arc::new(right));
    let nulls = NullEquality::NullEqualsNothing;
    Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, nulls, false)
}
