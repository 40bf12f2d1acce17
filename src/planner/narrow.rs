//! Relations without the columns that nobody reads.
//!
//! `x[:, 'b']` over a query of a hundred columns wants one of them, and the keys. Where all who read a relation take
//! slices of its columns, it is asked for those alone, once for all of them; a NULL in another one is then nobody's concern,
//! unless it decides which rows there are.

use std::collections::BTreeSet;

use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use rustc_hash::FxHashSet;

use super::graph::{Graph, NodeId};
use super::relation::Relation;
use crate::error::Result;
use crate::exec::intake::Form;
use crate::exec::operation::{Axis, Operation as Op};
use crate::matrix::Nulls;

/// The graph and its root over narrower relations.
///
/// # Errors
/// None that a user could cause.
pub(super) fn narrowed(mut graph: Graph, mut root: NodeId) -> Result<(Graph, NodeId)> {
    let needed = graph.needed(root);
    for &id in &needed {
        let Op::Relation(index) = graph.node(id).operation else { continue };
        let relation = &graph.relations[index];
        let drops_rows = relation.intake.nulls == Nulls::Drop;
        let Some(width) = relation.width() else { continue };
        if id == root || relation.intake.form != Form::Wide || drops_rows {
            continue;
        }
        let Some(read) = columns_read(&graph, id, &needed).filter(|read| read.len() < width) else {
            continue;
        };
        let relation = with_columns(relation, &read)?;
        root = graph.keep_columns(id, relation, &read, root);
    }
    Ok((graph, root))
}

/// The columns of a relation that slices read, ascending, if nothing else reads it.
fn columns_read(graph: &Graph, id: NodeId, needed: &FxHashSet<NodeId>) -> Option<Vec<usize>> {
    let mut read = BTreeSet::new();
    for &user in needed {
        let node = graph.node(user);
        if node.inputs.contains(&id) {
            let Op::Slice { axis: Axis::Columns, range } = node.operation else { return None };
            read.extend(range.start..range.start + range.count);
        }
    }
    Some(Vec::from_iter(read))
}

/// A relation of its keys and of these columns.
fn with_columns(relation: &Relation, columns: &[usize]) -> Result<Relation> {
    let keys = relation.intake.row_keys;
    let kept: Vec<usize> = (0..keys).chain(columns.iter().map(|column| keys + column)).collect();
    let schema = relation.plan.schema();
    let column = |&at: &usize| {
        let (qualifier, field) = schema.qualified_field(at);
        Expr::Column(datafusion::common::Column::new(qualifier.cloned(), field.name()))
    };
    let plan = LogicalPlanBuilder::from(relation.plan.clone())
        .project(kept.iter().map(column).collect::<Vec<_>>())?
        .build()?;
    let mut narrow = Relation { plan, ..relation.clone() };
    narrow.intake.names = kept.iter().map(|&at| relation.intake.names[at].clone()).collect();
    Ok(narrow)
}
