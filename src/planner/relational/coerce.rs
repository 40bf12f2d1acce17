//! Conversions that DataFusion's type coercion lacks; runs before it.
//!
//! ```text
//! boolean = text            the text becomes a boolean
//! boolean = number          the boolean becomes 0 or 1
//! number IS TRUE            the number becomes a boolean
//! CAST(text AS INTEGER)     reads 12, 1e3, 0x1f, 0b101 and 1_000; a fraction is rounded
//! date - date               the numbers of both days become integers, for DataFusion's bounds of their difference are no number
//! ```

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{BinaryExpr, Cast, TryCast};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, cast};
use datafusion::optimizer::AnalyzerRule;
use sqlparser::ast::BinaryOperator;

use super::names;
use crate::functions::text_to_integer;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct Coerce;

impl AnalyzerRule for Coerce {
    fn name(&self) -> &str {
        "coerce"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let mut schema = merge_schema(&node.inputs());
            if let LogicalPlan::TableScan(scan) = &node {
                schema.merge(&DFSchema::try_from_qualified_schema(
                    scan.table_name.clone(),
                    &scan.source.schema(),
                )?);
            }
            names::rewritten(node, |expression| {
                expression.transform_up(|inner| coerce(inner, &schema))
            })
        })
        .map(|transformed| transformed.data)
    }
}

fn coerce(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let type_of = |expression: &Expr| expression.get_type(schema).ok();
    Ok(match expression {
        Expr::IsTrue(inner) => Transformed::yes(Expr::IsTrue(truth(inner, schema))),
        Expr::IsNotTrue(inner) => Transformed::yes(Expr::IsNotTrue(truth(inner, schema))),
        Expr::IsFalse(inner) => Transformed::yes(Expr::IsFalse(truth(inner, schema))),
        Expr::IsNotFalse(inner) => Transformed::yes(Expr::IsNotFalse(truth(inner, schema))),
        Expr::IsUnknown(inner) => Transformed::yes(Expr::IsUnknown(truth(inner, schema))),
        Expr::IsNotUnknown(inner) => Transformed::yes(Expr::IsNotUnknown(truth(inner, schema))),
        Expr::Cast(Cast { expr, field })
            if field.data_type().is_integer() && type_of(&expr).is_some_and(|t| t.is_string()) =>
        {
            Transformed::yes(text_to_integer(field.data_type(), false).call(vec![*expr]))
        }
        Expr::TryCast(TryCast { expr, field })
            if field.data_type().is_integer() && type_of(&expr).is_some_and(|t| t.is_string()) =>
        {
            Transformed::yes(text_to_integer(field.data_type(), true).call(vec![*expr]))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right })
            if [&left, &right].iter().all(|day| type_of(day) == Some(DataType::Date32)) =>
        {
            let number = |day| cast(cast(day, DataType::Int32), DataType::Int64);
            Transformed::yes(binary_expr(number(*left), Operator::Minus, number(*right)))
        }
        other => Transformed::no(other),
    })
}

/// Comparisons of booleans are converted as soon as they are planned: DataFusion asks for their type then.
#[derive(Debug)]
pub(crate) struct BooleanComparisons;

impl ExprPlanner for BooleanComparisons {
    fn plan_binary_op(
        &self,
        comparison: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let operator = match comparison.op {
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::Lt => Operator::Lt,
            BinaryOperator::LtEq => Operator::LtEq,
            BinaryOperator::Gt => Operator::Gt,
            BinaryOperator::GtEq => Operator::GtEq,
            _ => return Ok(PlannerResult::Original(comparison)),
        };
        let RawBinaryExpr { op, left, right } = comparison;
        let types = (left.get_type(schema)?, right.get_type(schema)?);
        let (left, right) = match types {
            (DataType::Boolean, other) if other.is_string() => {
                (left, cast(right, DataType::Boolean))
            }
            (DataType::Boolean, other) if other.is_integer() => (cast(left, other), right),
            (other, DataType::Boolean) if other.is_string() => {
                (cast(left, DataType::Boolean), right)
            }
            (other, DataType::Boolean) if other.is_integer() => (left, cast(right, other)),
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        Ok(PlannerResult::Planned(binary_expr(left, operator, right)))
    }
}

fn truth(expression: Box<Expr>, schema: &DFSchema) -> Box<Expr> {
    match expression.get_type(schema) {
        Ok(data_type) if data_type.is_numeric() => Box::new(cast(*expression, DataType::Boolean)),
        _ => expression,
    }
}
