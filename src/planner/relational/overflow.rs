//! Arithmetic that leaves its type is an error, where DataFusion's wraps around, or has more digits than there are.
//!
//! Operators of a running plan get Arrow's checked kernels. What is constant DataFusion computes while it
//! plans, with kernels of its own choice; so there the operators become calls of checked functions.

use std::sync::Arc;

use arrow::array::Datum;
use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::take_function_args;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr as PhysicalBinary;
use datafusion::physical_expr_common::datum::apply;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};

use super::names;
use crate::exec::kernels::decimals::{self, Operation};
use crate::planner::expressions::{Rewritten, with_rewritten};

/// Whether an operator can leave an integer's range.
fn overflows(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply)
}

/// Whether an operator over columns is one of integers that can leave their range.
pub(super) fn may_overflow(expression: &Expr, schema: &DFSchema) -> bool {
    let Expr::BinaryExpr(BinaryExpr { op, .. }) = expression else { return false };
    overflows(*op)
        && expression.any_column_refs()
        && expression.get_type(schema).is_ok_and(|of| of.is_integer())
}

/// Checks what projections, filters and the conditions of joins compute; what other nodes would is lifted
/// out of them.
#[derive(Debug)]
pub(super) struct CheckedArithmetic;

impl PhysicalOptimizerRule for CheckedArithmetic {
    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(node) = with_rewritten(&node, |expression, _| checked(expression))? {
                return Ok(Transformed::yes(node));
            }
            let checked_filter = |filter: &JoinFilter| {
                let condition = checked(Arc::clone(filter.expression()))?.data;
                let columns = filter.column_indices().to_vec();
                Ok::<_, DataFusionError>(JoinFilter::new(
                    condition,
                    columns,
                    Arc::clone(filter.schema()),
                ))
            };
            if let Some(join) = node.downcast_ref::<HashJoinExec>()
                && let Some(filter) = join.filter()
            {
                let filter = checked_filter(filter)?;
                let join = HashJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
                return Ok(Transformed::yes(Arc::new(join)));
            }
            if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
                && let Some(filter) = join.filter()
            {
                let filter = checked_filter(filter)?;
                let join =
                    NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?;
                return Ok(Transformed::yes(Arc::new(join)));
            }
            Ok(Transformed::no(node))
        })
        .map(|transformed| transformed.data)
    }
}

fn checked(expression: Arc<dyn PhysicalExpr>) -> Result<Rewritten> {
    expression.transform_up(|node| match node.downcast_ref::<PhysicalBinary>() {
        Some(binary) if overflows(*binary.op()) => {
            let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
            let checked = PhysicalBinary::new(left, *binary.op(), right);
            Ok(Transformed::yes(Arc::new(checked.with_fail_on_overflow(true)) as _))
        }
        _ => Ok(Transformed::no(node)),
    })
}

/// Checks what is computed while planning, and writes negatives so that they are checked when the plan runs. Runs last, when
/// operands have their final types.
#[derive(Debug)]
pub(super) struct CheckedConstants;

impl AnalyzerRule for CheckedConstants {
    fn name(&self) -> &str {
        "checked_constants"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let no_columns = DFSchema::empty();
        plan.transform_up_with_subqueries(|node| {
            let columns = merge_schema(&node.inputs());
            names::rewritten(node, |expression| {
                expression.transform_up(|inner| {
                    let inner = subtracted(inner, &columns);
                    let data_type = inner.data.get_type(&no_columns);
                    Ok(match (inner.data, data_type) {
                        (Expr::BinaryExpr(BinaryExpr { left, op, right }), Ok(data_type))
                            if overflows(op)
                                && is_exact_constant(&left, &no_columns)
                                && is_exact_constant(&right, &no_columns) =>
                        {
                            let function = ScalarUDF::from(Checked::new(op, data_type));
                            Transformed::yes(function.call(vec![*left, *right]))
                        }
                        (other, _) => Transformed { data: other, ..inner },
                    })
                })
            })
        })
        .map(|transformed| transformed.data)
    }
}

/// The negative of an integer as its difference from zero, which is checked; that of the least has no room.
fn subtracted(expression: Expr, columns: &DFSchema) -> Transformed<Expr> {
    match expression {
        Expr::Negative(integer) => {
            let data_type = integer.get_type(columns).ok().filter(DataType::is_signed_integer);
            match data_type.and_then(|of| ScalarValue::new_zero(&of).ok()) {
                Some(zero) => Transformed::yes(Expr::Literal(zero, None) - *integer),
                None => Transformed::no(Expr::Negative(integer)),
            }
        }
        other => Transformed::no(other),
    }
}

/// Whether an expression is a constant integer or decimal.
fn is_exact_constant(expression: &Expr, no_columns: &DFSchema) -> bool {
    let plain = !expression
        .exists(|node| {
            Ok(!matches!(
                node,
                Expr::Literal(_, _)
                    | Expr::Cast(_)
                    | Expr::Negative(_)
                    | Expr::BinaryExpr(_)
                    | Expr::ScalarFunction(_)
            ) || node.is_volatile_node())
        })
        .expect("the closure does not fail");
    let is_exact = |of: DataType| of.is_integer() || matches!(of, DataType::Decimal128(..));
    plain && expression.get_type(no_columns).is_ok_and(is_exact)
}

/// An operator as a function that fails where the result does not fit.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operator: Operator,
    data_type: DataType,
    signature: Signature,
}

impl Checked {
    fn new(operator: Operator, data_type: DataType) -> Self {
        Self { operator, data_type, signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            _ => "checked_multiply",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = take_function_args(self.name(), &args.args)?;
        let (of_integers, of_decimals) = match self.operator {
            Operator::Plus => (numeric::add as fn(&dyn Datum, &dyn Datum) -> _, Operation::Add),
            Operator::Minus => (numeric::sub as _, Operation::Subtract),
            _ => (numeric::mul as _, Operation::Multiply),
        };
        apply(left, right, |left, right| match self.data_type {
            DataType::Decimal128(..) => {
                decimals::computed(of_decimals, left, right, &self.data_type)
            }
            _ => of_integers(left, right),
        })
    }
}
