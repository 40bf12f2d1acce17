//! What a row of a relation brings along that anybody asks for: the table of a join holds it for every row that is built.

use std::collections::HashSet;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::LogicalPlan;

/// Bytes of a value, in which those of all types are counted.
const VALUE_BYTES: f64 = 8.0;

/// Bytes of a text in a batch, beside what is too long for its view; of whatever else has no width, too.
const TEXT_BYTES: usize = 16;

/// Columns that are named anywhere in a statement but in its scans, which have done with theirs.
pub(super) struct Asked(HashSet<Column>);

impl Asked {
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut columns = HashSet::new();
        plan.apply_with_subqueries(|plan| {
            if matches!(plan, LogicalPlan::TableScan(_)) {
                return Ok(TreeNodeRecursion::Continue);
            }
            plan.apply_expressions(|expr| {
                columns.extend(expr.column_refs().into_iter().cloned());
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(Self(columns))
    }

    /// Values of eight bytes in a row of a relation.
    pub(super) fn values(&self, relation: &LogicalPlan) -> f64 {
        let schema = relation.schema();
        let asked = schema
            .iter()
            .filter(|(of, field)| self.0.contains(&Column::new(of.cloned(), field.name())));
        let bytes = asked.map(|(_, field)| field.data_type().primitive_width());
        bytes.map(|width| width.unwrap_or(TEXT_BYTES) as f64 / VALUE_BYTES).sum()
    }
}
