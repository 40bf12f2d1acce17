//! Arithmetic of decimals as an expression of a running plan.
//!
//! Enters: an operator over two decimals, as DataFusion has planned it. Leaves: the same expression, computed by
//! [`kernels::decimals`](crate::exec::kernels::decimals). It answers, and fails, as the other does, and its columns may be
//! encoded.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::datum::apply;

use crate::encoding::decoded;
use crate::exec::kernels::decimals::{self, Operand, Operation};

/// An operator over decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DecimalExpr {
    /// As it was planned, which says all there is to know of it but its numbers.
    planned: BinaryExpr,
    operation: Operation,
    /// Of both sides, and of the answer.
    sides: [DataType; 2],
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
        let sides = [planned.left().data_type(schema)?, planned.right().data_type(schema)?];
        if !sides.iter().all(|side| matches!(side, DataType::Decimal128(..))) {
            return Ok(None);
        }
        let data_type = planned.data_type(schema)?;
        Ok(Some(Self { planned: planned.clone(), operation, sides, data_type }))
    }

    /// Adds the columns that it reads otherwise than as a side of such an operator: these must be decoded.
    pub(super) fn add_decoded(&self, places: &mut Vec<usize>) {
        for side in self.planned.children() {
            match side.downcast_ref::<Self>() {
                Some(inner) => inner.add_decoded(places),
                None if side.is::<Column>() => {}
                None => places.extend(collect_columns(side).iter().map(Column::index)),
            }
        }
    }

    /// What it answers of rows of which all other columns may be encoded; it may be encoded, too.
    ///
    /// # Errors
    /// As of decoded ones.
    pub(super) fn encoded(&self, rows: &RecordBatch) -> Result<ColumnarValue> {
        let side = |side: &Arc<dyn PhysicalExpr>| match side.downcast_ref::<Self>() {
            Some(inner) => inner.encoded(rows),
            None => side.evaluate(rows),
        };
        let sides = [side(self.planned.left())?, side(self.planned.right())?];
        if let Some(narrow) = self.narrow(&sides, rows.num_rows()) {
            return Ok(ColumnarValue::Array(Arc::new(narrow)));
        }
        let of_side = |(side, data_type): (&ColumnarValue, &DataType)| match side {
            ColumnarValue::Array(side) => Ok(ColumnarValue::Array(decoded(side, data_type)?)),
            ColumnarValue::Scalar(_) => Ok(side.clone()),
        };
        let sides = sides.iter().zip(&self.sides).map(of_side).collect::<Result<Vec<_>>>()?;
        self.computed(&sides[0], &sides[1])
    }

    /// The answers in 64 bits, where these are enough.
    fn narrow(&self, sides: &[ColumnarValue; 2], rows: usize) -> Option<Int64Array> {
        let scale = |of: &DataType| match of {
            DataType::Decimal128(_, scale) => Some(*scale),
            _ => None,
        };
        let [left, right] = sides.each_ref().map(operand);
        let [of_left, of_right] = self.sides.each_ref().map(scale);
        let scales = [of_left?, of_right?];
        decimals::encoded(self.operation, [left?, right?], scales, scale(&self.data_type)?, rows)
    }

    fn computed(&self, left: &ColumnarValue, right: &ColumnarValue) -> Result<ColumnarValue> {
        apply(left, right, |left, right| {
            decimals::computed(self.operation, left, right, &self.data_type)
        })
    }
}

fn operand(side: &ColumnarValue) -> Option<Operand<'_>> {
    match side {
        ColumnarValue::Array(column) => Some(Operand::Column(column.as_ref())),
        ColumnarValue::Scalar(ScalarValue::Decimal128(number, ..)) => number.map(Operand::Constant),
        ColumnarValue::Scalar(_) => None,
    }
}

impl PhysicalExpr for DecimalExpr {
    super::as_planned!();

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.computed(&self.planned.left().evaluate(batch)?, &self.planned.right().evaluate(batch)?)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let [left, right] = <[_; 2]>::try_from(children).map_err(|children| {
            DataFusionError::Internal(format!("an operator of {} sides", children.len()))
        })?;
        let planned = BinaryExpr::new(left, *self.planned.op(), right);
        let (sides, data_type) = (self.sides.clone(), self.data_type.clone());
        Ok(Arc::new(Self { planned, operation: self.operation, sides, data_type }))
    }

    fn evaluate_bounds(&self, children: &[&Interval]) -> Result<Interval> {
        self.planned.evaluate_bounds(children)
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
