//! The expressions of a physical operator, rewritten where they stand.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

/// An expression, and whether it is another one than before.
pub(super) type Rewritten = Transformed<Arc<dyn PhysicalExpr>>;

/// A projection or a filter with its expressions rewritten, each over the columns of the input; none where all of them
/// stay as they are, and for other operators.
///
/// # Errors
/// Those of the rewriting, and DataFusion's for an operator that cannot be made again.
pub(super) fn with_rewritten(
    node: &Arc<dyn ExecutionPlan>,
    rewrite: impl Fn(Arc<dyn PhysicalExpr>, &Schema) -> Result<Rewritten>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        let mut any = false;
        let column = |column: &ProjectionExpr| {
            let rewritten = rewrite(Arc::clone(&column.expr), &schema)?;
            any |= rewritten.transformed;
            Ok(ProjectionExpr { expr: rewritten.data, alias: column.alias.clone() })
        };
        let columns = projection.expr().iter().map(column).collect::<Result<Vec<_>>>()?;
        let input = Arc::clone(projection.input());
        return match any {
            true => Ok(Some(Arc::new(ProjectionExec::try_new(columns, input)?))),
            false => Ok(None),
        };
    }
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    let condition = rewrite(Arc::clone(filter.predicate()), &filter.input().schema())?;
    if !condition.transformed {
        return Ok(None);
    }
    let filter = FilterExecBuilder::from(filter).with_predicate(condition.data).build()?;
    Ok(Some(Arc::new(filter)))
}
