//! Operators of a query whose parameters have no values yet, and the same once they have.
//!
//! Operators are chosen for expressions that can be computed, which a parameter cannot be: in its place stands a function that
//! nobody calls, and in the place of that later the value. Only conditions may have one: what else a parameter is part of gives
//! columns their names and types.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TableProviderFilterPushDown, TableScan, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// The values of parameters, whose names begin with `$`.
pub(crate) type Values<'v> = &'v dyn Fn(&str) -> Option<ScalarValue>;

/// What stands for a parameter.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Parameter {
    name: String,
    data_type: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Parameter {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("parameter {} has no value", self.name)
    }
}

/// Whether an expression of a plan has a parameter in it.
pub(super) fn names_parameter(expr: &Expr) -> bool {
    matches!(expr.exists(|expr| Ok(matches!(expr, Expr::Placeholder(_)))), Ok(true))
}

/// The plan with functions for its parameters; nothing where one is part of anything but a condition. Scans of files are not told
/// of these conditions: they are when operators are chosen.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn as_functions(plan: LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut in_conditions = true;
    let plan = plan.transform_up(|node| {
        let node = match node {
            LogicalPlan::TableScan(scan) => LogicalPlan::TableScan(without_told(scan)?),
            other => other,
        };
        let is_filter = matches!(node, LogicalPlan::Filter(_));
        node.map_expressions(|expr| {
            expr.transform_up(|expr| {
                let Expr::Placeholder(Placeholder { id, field }) = &expr else {
                    return Ok(Transformed::no(expr));
                };
                in_conditions &= is_filter;
                let Some(field) = field else { return internal_err!("{id} has no type") };
                let parameter = Parameter {
                    name: id.clone(),
                    data_type: field.data_type().clone(),
                    signature: Signature::nullary(Volatility::Stable),
                };
                let function = Arc::new(ScalarUDF::from(parameter));
                Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                    function,
                    vec![],
                ))))
            })
        })
    })?;
    Ok(in_conditions.then_some(plan.data))
}

/// A scan that is not told of conditions with parameters which are looked at again above it.
fn without_told(scan: TableScan) -> Result<TableScan> {
    let answers =
        scan.source.supports_filters_pushdown(&scan.filters.iter().collect::<Vec<_>>())?;
    let mut kept = Vec::with_capacity(scan.filters.len());
    for (filter, answer) in scan.filters.into_iter().zip(answers) {
        if answer == TableProviderFilterPushDown::Exact || !names_parameter(&filter) {
            kept.push(filter);
        }
    }
    Ok(TableScan { filters: kept, ..scan })
}

/// The expression with values for its parameters, over columns of a schema.
///
/// # Errors
/// Where one has no value.
pub(super) fn with_values(
    expr: &Arc<dyn PhysicalExpr>,
    values: Values<'_>,
    schema: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let filled = Arc::clone(expr).transform_up(|expr| {
        let Some(parameter) = parameter(&expr) else { return Ok(Transformed::no(expr)) };
        let Some(value) = values(&parameter.name) else {
            return internal_err!("parameter {} has no value", parameter.name);
        };
        Ok(Transformed::yes(Arc::new(Literal::new(value)) as _))
    })?;
    match filled.transformed {
        true => PhysicalExprSimplifier::new(schema).simplify(filled.data),
        false => Ok(filled.data),
    }
}

/// Whether an expression has a parameter in it.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn has_parameter(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let mut has_parameter = false;
    expr.apply(|expr| {
        has_parameter |= parameter(expr).is_some();
        Ok(if has_parameter { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(has_parameter)
}

fn parameter(expr: &Arc<dyn PhysicalExpr>) -> Option<&Parameter> {
    expr.downcast_ref::<ScalarFunctionExpr>()?.fun().inner().downcast_ref::<Parameter>()
}
