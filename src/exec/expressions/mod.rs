//! Expressions of a running plan that are computed otherwise than DataFusion does, to the same answers.
//!
//! - `cases`: `CASE`, its values chosen by bits
//! - `decimals`: arithmetic of decimals, in 64 bits where these are enough
//! - `patterns`: `LIKE` and regular expressions, whose patterns are compiled once
//! - `replacements`, `matches`: `regexp_replace`, and `regexp_match`, `regexp_count` and `regexp_instr`, compiled once, too
//! - `spelled`: numbers and days as texts
//! - `lengths`: lengths of texts
//! - `of_column`: what all of these are to DataFusion
//! - `compiled`: what is compiled once, with a copy for each thread
//! - `by_value`: expressions of one column of few values, computed once for each

/// What an expression leaves to the one that was planned, which is its field `planned`: all but its values.
macro_rules! as_planned {
    () => {
        fn return_field(
            &self,
            schema: &arrow::datatypes::Schema,
        ) -> Result<arrow::datatypes::FieldRef> {
            self.planned.return_field(schema)
        }

        fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
            self.planned.children()
        }

        fn get_properties(
            &self,
            children: &[datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> Result<datafusion::logical_expr::sort_properties::ExprProperties> {
            self.planned.get_properties(children)
        }

        fn fmt_sql(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.planned.fmt_sql(f)
        }
    };
}

/// What such an expression is to others: the same as one of which the same was planned, and written as DataFusion writes that.
macro_rules! known_as_planned {
    ($ours:ty) => {
        impl PartialEq for $ours {
            fn eq(&self, other: &Self) -> bool {
                self.planned.eq(&other.planned)
            }
        }

        impl Eq for $ours {}

        impl std::hash::Hash for $ours {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.planned.hash(state);
            }
        }

        impl std::fmt::Display for $ours {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.planned.fmt(f)
            }
        }
    };
}

use {as_planned, known_as_planned};

mod by_value;
mod cases;
mod compiled;
mod decimals;
mod lengths;
mod matches;
mod of_column;
mod patterns;
mod replacements;
mod spelled;

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

use self::by_value::ByValueExpr;
use self::cases::ChoiceExpr;
use self::decimals::DecimalExpr;

/// What is ours of a node, where anything is.
type Ours = fn(&Arc<dyn PhysicalExpr>, &Schema) -> Result<Option<Arc<dyn PhysicalExpr>>>;

/// Functions of a column and constants.
const OURS: [Ours; 5] =
    [spelled::ours, lengths::ours, patterns::ours, replacements::ours, matches::ours];

/// An expression over columns of a schema, in which what is ours stands for DataFusion's.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(crate) fn with_ours(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    let ours = expression.transform_up(|node| {
        if let Some(ours) = DecimalExpr::of(node.as_ref(), schema)? {
            return Ok(Transformed::yes(Arc::new(ours) as _));
        }
        if let Some(ours) = ChoiceExpr::of(&node, schema)? {
            return Ok(Transformed::yes(Arc::new(ours) as _));
        }
        for ours in OURS {
            if let Some(ours) = ours(&node, schema)? {
                return Ok(Transformed::yes(ours));
            }
        }
        Ok(Transformed::no(node))
    });
    ours?.transform_data(|ours| by_value::with_values(ours, schema))
}

/// An expression over these columns alone, which are in ascending order, and in that order.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn over_columns(
    expression: &Arc<dyn PhysicalExpr>,
    columns: &[usize],
) -> Result<Arc<dyn PhysicalExpr>> {
    let over = Arc::clone(expression).transform_up(|node| {
        let column = node.downcast_ref::<Column>();
        let to = column.and_then(|column| columns.binary_search(&column.index()).ok());
        Ok(match column.zip(to) {
            Some((column, to)) => Transformed::yes(Arc::new(Column::new(column.name(), to)) as _),
            None => Transformed::no(node),
        })
    });
    over.data()
}

/// What an expression answers of rows whose columns may be encoded, all but those of [`decoded_columns`]; it may be encoded, too.
///
/// # Errors
/// Those of the expression.
pub(crate) fn encoded_values(
    expression: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
) -> Result<ArrayRef> {
    if let Some(by_value) = expression.downcast_ref::<ByValueExpr>() {
        return by_value.encoded(rows);
    }
    let values = match expression.downcast_ref::<DecimalExpr>() {
        Some(decimals) => decimals.encoded(rows)?,
        None => expression.evaluate(rows)?,
    };
    values.into_array(rows.num_rows())
}

/// The columns that must be decoded for an expression.
pub(crate) fn decoded_columns(expression: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let mut places = Vec::new();
    if expression.is::<ByValueExpr>() {
        return places;
    }
    match expression.downcast_ref::<DecimalExpr>() {
        Some(decimals) => decimals.add_decoded(&mut places),
        None => places.extend(collect_columns(expression).iter().map(Column::index)),
    }
    places
}
