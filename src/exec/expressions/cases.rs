//! `CASE` whose values are numbers, dates or times, all of them computed of all rows and chosen by bits.
//!
//! Enters: the expression as DataFusion has planned it, which divides the rows by their conditions and computes each value of
//! some of them. Leaves: the same. Where something fails of a row that may be none of its own, the rows are divided after all.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr_common::physical_expr::is_volatile;

use super::decimals::DecimalExpr;
use crate::exec::kernels::choose::{Cells, can_choose, chosen};

/// Conditions up to which each row has a value computed for each.
const BRANCHES_MAX: usize = 8;

/// A value by the first condition that holds.
#[derive(Debug)]
pub(super) struct ChoiceExpr {
    /// As it was planned, which says all there is to know of it.
    planned: Arc<dyn PhysicalExpr>,
    branches: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    otherwise: Option<Arc<dyn PhysicalExpr>>,
    data_type: DataType,
}

impl ChoiceExpr {
    /// That of conditions and values that take little of each row.
    ///
    /// # Errors
    /// None but DataFusion's, for an expression that does not fit the schema.
    pub(super) fn of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some(planned) = expression.downcast_ref::<CaseExpr>() else { return Ok(None) };
        let (branches, otherwise) = (planned.when_then_expr(), planned.else_expr());
        let data_type = planned.data_type(schema)?;
        if planned.expr().is_some() || branches.len() > BRANCHES_MAX || !can_choose(&data_type) {
            return Ok(None);
        }
        let values = branches.iter().map(|(_, value)| value).chain(otherwise);
        // The first condition is asked of all rows anyway.
        let mut others =
            branches.iter().skip(1).map(|(condition, _)| condition).chain(values.clone());
        if !others.all(takes_little) || branches.iter().any(|(first, _)| is_volatile(first)) {
            return Ok(None);
        }
        for value in values {
            if value.data_type(schema)? != data_type && !is_null(value) {
                return Ok(None);
            }
        }
        let (branches, otherwise) = (branches.to_vec(), otherwise.cloned());
        let planned = Arc::clone(expression);
        Ok(Some(Self { planned, branches, otherwise, data_type }))
    }

    /// The values of all rows, from those of the last condition to those of the first.
    fn at_once(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let mut values = match &self.otherwise {
            Some(otherwise) => self.value(otherwise, batch)?,
            None => Value::OfAll(self.null()?),
        };
        for (condition, value) in self.branches.iter().rev() {
            let holds = condition.evaluate(batch)?.into_array(batch.num_rows())?;
            let value = self.value(value, batch)?;
            let rows = chosen(&certain(holds.as_boolean()), value.cells(), values.cells())?;
            values = Value::OfEach(rows);
        }
        match values {
            Value::OfAll(values) | Value::OfEach(values) => Ok(values),
        }
    }

    fn value(&self, of: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Value> {
        Ok(match of.evaluate(batch)? {
            ColumnarValue::Scalar(scalar) if scalar.is_null() => Value::OfAll(self.null()?),
            ColumnarValue::Scalar(scalar) => Value::OfAll(scalar.to_array()?),
            ColumnarValue::Array(cells) => Value::OfEach(cells),
        })
    }

    fn null(&self) -> Result<ArrayRef> {
        ScalarValue::try_from(&self.data_type)?.to_array()
    }
}

/// What rows have for a value.
enum Value {
    /// One cell.
    OfAll(ArrayRef),
    OfEach(ArrayRef),
}

impl Value {
    fn cells(&self) -> Cells<'_> {
        match self {
            Self::OfAll(value) => Cells::All(value),
            Self::OfEach(values) => Cells::Of(values),
        }
    }
}

/// Where a condition holds: it does not where it is unknown.
fn certain(holds: &BooleanArray) -> BooleanBuffer {
    match holds.nulls() {
        Some(valid) => holds.values() & valid.inner(),
        None => holds.values().clone(),
    }
}

/// Whether an expression is of columns and constants, compared or added: of a row of which it is not asked it costs little.
fn takes_little(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_known = match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) => {
            use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, Minus, Multiply, NotEq, Or, Plus};
            matches!(
                binary.op(),
                And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | Plus | Minus | Multiply
            )
        }
        None => {
            expr.is::<Column>()
                || expr.is::<Literal>()
                || expr.is::<DecimalExpr>()
                || expr.is::<CastExpr>()
                || expr.is::<NotExpr>()
                || expr.is::<IsNullExpr>()
                || expr.is::<IsNotNullExpr>()
                || expr.is::<InListExpr>()
                || expr.is::<ChoiceExpr>()
        }
    };
    is_known && expr.children().into_iter().all(takes_little)
}

fn is_null(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null())
}

super::known_as_planned!(ChoiceExpr);

impl PhysicalExpr for ChoiceExpr {
    super::as_planned!();

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.at_once(batch) {
            Ok(values) => Ok(ColumnarValue::Array(values)),
            Err(_) => self.planned.evaluate(batch),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let mut parts = children.iter().cloned();
        let mut branches = Vec::with_capacity(self.branches.len());
        while branches.len() < self.branches.len()
            && let (Some(condition), Some(value)) = (parts.next(), parts.next())
        {
            branches.push((condition, value));
        }
        let (otherwise, data_type) = (parts.next(), self.data_type.clone());
        let planned = Arc::clone(&self.planned).with_new_children(children)?;
        Ok(Arc::new(Self { planned, branches, otherwise, data_type }))
    }
}
