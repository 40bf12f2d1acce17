//! `INSERT … VALUES`: a NULL where none may be is refused by the table, which names the column.
//!
//! DataFusion gives VALUES the types of the table with their NOT NULL, and Arrow then refuses the batch
//! under a name that nobody wrote (`column1`).

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, Values, WriteOp};
use datafusion::optimizer::AnalyzerRule;

#[derive(Debug)]
pub(super) struct NullableValues;

impl AnalyzerRule for NullableValues {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !matches!(&plan, LogicalPlan::Dml(DmlStatement { op: WriteOp::Insert(_), .. })) {
            return Ok(plan);
        }
        let relaxed = plan.transform_up(|node| match node {
            LogicalPlan::Values(Values { schema, values }) => {
                let fields = schema.iter().map(|(table, field)| {
                    (table.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
                });
                let schema =
                    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?;
                let schema = Arc::new(schema);
                Ok(Transformed::yes(LogicalPlan::Values(Values { schema, values })))
            }
            LogicalPlan::Projection(_) => node.recompute_schema().map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(relaxed.data)
    }

    fn name(&self) -> &str {
        "nullable_values"
    }
}
