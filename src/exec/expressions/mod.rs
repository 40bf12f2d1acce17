//! Expressions of a running plan that are computed otherwise than DataFusion does, to the same answers.
//!
//! - `decimals`: arithmetic of decimals, in 64 bits where these are enough
//! - `likes`: patterns of several parts, found one after another

mod decimals;
mod likes;

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;

use self::decimals::DecimalExpr;
use self::likes::PartsExpr;

/// An expression over columns of a schema, in which what is ours stands for DataFusion's.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(crate) fn with_ours(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_up(|node| {
        if let Some(ours) = DecimalExpr::of(node.as_ref(), schema)? {
            return Ok(Transformed::yes(Arc::new(ours) as _));
        }
        Ok(match PartsExpr::of(node.as_ref(), schema)? {
            Some(ours) => Transformed::yes(Arc::new(ours) as _),
            None => Transformed::no(node),
        })
    })
}
