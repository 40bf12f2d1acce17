//! `VALUES` with queries in it; DataFusion's operator makes its rows while planning, and runs none.
//!
//! ```text
//! VALUES (1, (SELECT 2)), (3, 4)      SELECT a, CASE row WHEN 1 THEN (SELECT 2) ELSE b END
//!                                     FROM (VALUES (1, NULL, 1), (3, 4, 2)) AS v(a, b, row)
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Values, case, lit};
use datafusion::optimizer::AnalyzerRule;

/// The column that numbers the rows of a VALUES, from 1.
const ROW: &str = "row of values";

#[derive(Debug)]
pub(super) struct ComputedValues;

impl AnalyzerRule for ComputedValues {
    fn name(&self) -> &str {
        "computed_values"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let computed = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) => computed(values),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(computed.data)
    }
}

/// Takes cells that are queries out of a VALUES, and computes them above it.
fn computed(values: Values) -> Result<Transformed<LogicalPlan>> {
    if !values.values.iter().flatten().any(is_query) {
        return Ok(Transformed::no(LogicalPlan::Values(values)));
    }
    let Values { schema, values: mut rows } = values;
    let row = Expr::Column(Column::from_name(ROW));
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (at, (qualifier, field)) in schema.iter().enumerate() {
        let given = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let mut chosen = case(row.clone());
        let mut branches = 0;
        for (number, cells) in rows.iter_mut().enumerate() {
            if is_query(&cells[at]) {
                let null = lit(ScalarValue::try_from(field.data_type())?);
                let cell = std::mem::replace(&mut cells[at], null);
                chosen = chosen.when(lit(number as i64 + 1), cell);
                branches += 1;
            }
        }
        columns.push(match branches {
            0 => given,
            _ => chosen.otherwise(given)?.alias_qualified(qualifier.cloned(), field.name()),
        });
    }
    for (number, cells) in rows.iter_mut().enumerate() {
        cells.push(lit(number as i64 + 1));
    }
    let fields = schema.iter().map(|(qualifier, field)| {
        (qualifier.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
    });
    let number = (None, Arc::new(Field::new(ROW, DataType::Int64, false)));
    let fields = fields.chain([number]).collect();
    let schema = Arc::new(DFSchema::new_with_metadata(fields, schema.metadata().clone())?);
    let given = LogicalPlan::Values(Values { schema, values: rows });
    Ok(Transformed::yes(LogicalPlanBuilder::from(given).project(columns)?.build()?))
}

fn is_query(cell: &Expr) -> bool {
    let found = cell.exists(|part| {
        Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)))
    });
    found.expect("the closure does not fail")
}
