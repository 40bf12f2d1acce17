//! Arithmetic of decimals as an expression of a running plan.
//!
//! Enters: an operator over two decimals, as DataFusion has planned it. Leaves: the same expression, computed by
//! [`kernels::decimals`](crate::exec::kernels::decimals). It answers, and fails, as the other does.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::ExprProperties;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr_common::datum::apply;

use crate::exec::kernels::decimals::{self, Operation};

/// An operator over decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DecimalExpr {
    /// As it was planned, which says all there is to know of it but its numbers.
    planned: BinaryExpr,
    operation: Operation,
    data_type: DataType,
}

impl DecimalExpr {
    /// That of an operator over two decimals of 128 bits.
    ///
    /// # Errors
    /// None but DataFusion's, for an expression that does not fit the schema.
    pub(super) fn of(expression: &dyn PhysicalExpr, schema: &Schema) -> Result<Option<Self>> {
        let Some(planned) = expression.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        let operation = match planned.op() {
            Operator::Plus => Operation::Add,
            Operator::Minus => Operation::Subtract,
            Operator::Multiply => Operation::Multiply,
            Operator::Divide => Operation::Divide,
            Operator::Modulo => Operation::Remainder,
            _ => return Ok(None),
        };
        for side in [planned.left(), planned.right()] {
            if !matches!(side.data_type(schema)?, DataType::Decimal128(..)) {
                return Ok(None);
            }
        }
        let data_type = planned.data_type(schema)?;
        Ok(Some(Self { planned: planned.clone(), operation, data_type }))
    }
}

impl PhysicalExpr for DecimalExpr {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let left = self.planned.left().evaluate(batch)?;
        let right = self.planned.right().evaluate(batch)?;
        apply(&left, &right, |left, right| {
            decimals::computed(self.operation, left, right, &self.data_type)
        })
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.planned.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.planned.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let [left, right] = <[_; 2]>::try_from(children).map_err(|children| {
            DataFusionError::Internal(format!("an operator of {} sides", children.len()))
        })?;
        let planned = BinaryExpr::new(left, *self.planned.op(), right);
        Ok(Arc::new(Self { planned, operation: self.operation, data_type: self.data_type.clone() }))
    }

    fn evaluate_bounds(&self, children: &[&Interval]) -> Result<Interval> {
        self.planned.evaluate_bounds(children)
    }

    fn get_properties(&self, children: &[ExprProperties]) -> Result<ExprProperties> {
        self.planned.get_properties(children)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.planned.fmt_sql(f)
    }
}

/// As DataFusion writes it: with parentheses around sides whose operators bind less.
impl fmt::Display for DecimalExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = self.planned.op();
        let side = |f: &mut fmt::Formatter<'_>, side: &Arc<dyn PhysicalExpr>| {
            let inner = side.downcast_ref::<Self>();
            match inner.is_some_and(|inner| inner.planned.op().precedence() < operator.precedence())
            {
                true => write!(f, "({side})"),
                false => write!(f, "{side}"),
            }
        };
        side(f, self.planned.left())?;
        write!(f, " {operator} ")?;
        side(f, self.planned.right())
    }
}
