//! Expressions of a running plan that are computed otherwise than DataFusion does, to the same answers.
//!
//! - `cases`: `CASE`, its values chosen by bits
//! - `decimals`: arithmetic of decimals, in 64 bits where these are enough
//! - `patterns`: `LIKE` and regular expressions, whose patterns are compiled once
//! - `replacements`, `matches`: `regexp_replace`, and `regexp_match`, `regexp_count` and `regexp_instr`, compiled once, too
//! - `spelled`: numbers and days as texts
//! - `of_column`: what all of these are to DataFusion
//! - `compiled`: what is compiled once, with a copy for each thread

mod cases;
mod compiled;
mod decimals;
mod matches;
mod of_column;
mod patterns;
mod replacements;
mod spelled;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

use self::cases::ChoiceExpr;
use self::decimals::DecimalExpr;

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
        if let Some(ours) = ChoiceExpr::of(&node, schema)? {
            return Ok(Transformed::yes(Arc::new(ours) as _));
        }
        for ours in [spelled::ours, patterns::ours, replacements::ours, matches::ours] {
            if let Some(ours) = ours(&node, schema)? {
                return Ok(Transformed::yes(ours));
            }
        }
        Ok(Transformed::no(node))
    })
}

/// What an expression answers of rows whose columns may be encoded, all but those of [`decoded_columns`]; it may be encoded, too.
///
/// # Errors
/// Those of the expression.
pub(crate) fn encoded_values(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
) -> Result<ArrayRef> {
    let values = match expression.downcast_ref::<DecimalExpr>() {
        Some(decimals) => decimals.encoded(rows)?,
        None => expression.evaluate(rows)?,
    };
    values.into_array(rows.num_rows())
}

/// The columns that must be decoded for an expression.
pub(crate) fn decoded_columns(expression: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let mut places = Vec::new();
    match expression.downcast_ref::<DecimalExpr>() {
        Some(decimals) => decimals.add_decoded(&mut places),
        None => places.extend(collect_columns(expression).iter().map(Column::index)),
    }
    places
}
