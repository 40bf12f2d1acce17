//! What an aggregation reads of its rows, whose columns may be encoded.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};

use crate::encoding::decoded;
use crate::exec::encoded::with_decoded;
use crate::exec::expressions::{decoded_columns, encoded_values, with_ours};

/// A key, an argument or a condition.
pub(super) enum Read {
    Column {
        at: usize,
        data_type: DataType,
    },
    /// An integer as another number: of fewer bits, it is the same number.
    Number {
        at: usize,
        to: DataType,
        options: CastOptions<'static>,
    },
    Computed {
        expression: Arc<dyn PhysicalExpr>,
        data_type: DataType,
    },
}

impl Read {
    /// What an expression reads of rows that have, once they are decoded, these columns.
    ///
    /// # Errors
    /// None but DataFusion's, for an expression that does not fit the schema.
    pub(super) fn of(expression: &Arc<dyn PhysicalExpr>, rows: &Schema) -> Result<Self> {
        let place = |of: &Arc<dyn PhysicalExpr>| of.downcast_ref::<Column>().map(Column::index);
        let data_type = |at: usize| rows.field(at).data_type();
        if let Some(at) = place(expression) {
            return Ok(Self::Column { at, data_type: data_type(at).clone() });
        }
        if let Some(cast) = expression.downcast_ref::<CastExpr>()
            && let Some(at) = place(cast.expr()).filter(|&at| has_wider(data_type(at)))
            && cast.cast_type().is_numeric()
        {
            let (to, options) = (cast.cast_type().clone(), cast.cast_options().clone());
            return Ok(Self::Number { at, to, options });
        }
        let data_type = expression.data_type(rows)?;
        // Keys and conditions are as they were planned, for whoever shows the operator.
        let expression = with_ours(Arc::clone(expression), rows)?.data;
        Ok(Self::Computed { expression, data_type })
    }

    /// The cells, which may be encoded.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn encoded(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        match self {
            Self::Column { at, .. } => Ok(Arc::clone(rows.column(*at))),
            Self::Number { .. } => self.decoded(rows),
            Self::Computed { expression, .. } => encoded_values(expression, rows),
        }
    }

    /// The cells, of the type of the expression.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn decoded(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        match self {
            Self::Column { at, data_type } => Ok(decoded(rows.column(*at), data_type)?),
            Self::Number { at, to, options } => {
                Ok(cast_with_options(rows.column(*at), to, options)?)
            }
            Self::Computed { expression, data_type } => {
                Ok(decoded(&encoded_values(expression, rows)?, data_type)?)
            }
        }
    }

    /// The cells as whole numbers of however many bits, where the expression is about some; else as it has them.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn of_any_width(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        match self {
            Self::Number { at, to: DataType::Int64 | DataType::Float64, .. } => {
                Ok(Arc::clone(rows.column(*at)))
            }
            of => of.encoded(rows),
        }
    }
}

/// Whether a type is one of integers all of which another type of integers has.
fn has_wider(data_type: &DataType) -> bool {
    data_type.is_integer() && *data_type != DataType::UInt64
}

/// The columns that are computed with decoded, before all else.
pub(super) struct Computed {
    places: Vec<usize>,
    rows: SchemaRef,
}

impl Computed {
    pub(super) fn new<'a>(reads: impl Iterator<Item = &'a Read>, rows: &SchemaRef) -> Self {
        let mut places = Vec::new();
        for read in reads {
            if let Read::Computed { expression, .. } = read {
                places.extend(decoded_columns(expression));
            }
        }
        places.sort_unstable();
        places.dedup();
        Self { places, rows: Arc::clone(rows) }
    }

    /// Rows of which those columns are decoded.
    ///
    /// # Errors
    /// None, for what is encoded was such a column.
    pub(super) fn of(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        with_decoded(rows.clone(), &self.places, &self.rows)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, binary, col, lit};

    use super::*;

    #[test]
    fn a_pattern_in_a_key_or_a_condition_is_compiled_once() {
        let rows = Schema::new(vec![Field::new("s", DataType::Utf8, true)]);
        let text = col("s", &rows).unwrap();
        let planned = binary(text, Operator::RegexMatch, lit("a.b"), &rows).unwrap();
        let read = Read::of(&planned, &rows).unwrap();
        let Read::Computed { expression, .. } = read else { panic!("it is computed") };
        assert!(planned.is::<BinaryExpr>() && !expression.is::<BinaryExpr>());
        assert_eq!(expression.to_string(), planned.to_string());
    }
}
