//! Subscripts of texts: `'abcd'[2]` is `b`, `'abcd'[2:3]` is `bc`, and negative positions count from the end.
//!
//! `array_slice` and `list_slice` take a text too; on a list they are DataFusion's.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions_nested::extract::array_slice_udf;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ExprSchemable, GetFieldAccess, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};

/// Plans a subscript of a text, which DataFusion takes for one of a list.
#[derive(Debug)]
pub(crate) struct StringSubscript;

impl ExprPlanner for StringSubscript {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        if !access.expr.get_type(schema)?.is_string() {
            return Ok(PlannerResult::Original(access));
        }
        let RawFieldAccessExpr { expr, field_access } = access;
        let (start, stop) = match field_access {
            GetFieldAccess::ListIndex { key } => (key.as_ref().clone(), *key),
            GetFieldAccess::ListRange { start, stop, stride } if *stride == lit(1_i64) => {
                (*start, *stop)
            }
            field_access => {
                return Ok(PlannerResult::Original(RawFieldAccessExpr { expr, field_access }));
            }
        };
        let slice = ScalarUDF::from(Slice::default());
        Ok(PlannerResult::Planned(slice.call(vec![expr, start, stop])))
    }
}

/// `array_slice(text or list, first, last[, stride])`, both ends included.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Slice {
    signature: Signature,
    of_list: Arc<ScalarUDF>,
}

impl Default for Slice {
    fn default() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            of_list: array_slice_udf(),
        }
    }
}

impl ScalarUDFImpl for Slice {
    fn name(&self) -> &str {
        self.of_list.name()
    }

    fn aliases(&self) -> &[String] {
        self.of_list.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [text, _, _] if text.is_string() => {
                Ok(vec![DataType::Utf8, DataType::Int64, DataType::Int64])
            }
            [text, ..] if text.is_string() => {
                plan_err!("{} of a text takes a first and a last position", self.name())
            }
            _ => {
                let field = |of: &DataType| Arc::new(Field::new("argument", of.clone(), true));
                let fields: Vec<FieldRef> = arguments.iter().map(field).collect();
                let coerced = fields_with_udf(&fields, self.of_list.as_ref())?;
                Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Utf8, ..] => Ok(DataType::Utf8),
            _ => self.of_list.return_type(arguments),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [text, ..] if *text.data_type() == DataType::Utf8 => {
                Ok(Arc::new(text.as_ref().clone().with_name(self.name()).with_nullable(true)))
            }
            _ => self.of_list.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if args.args[0].data_type() != DataType::Utf8 {
            return self.of_list.invoke_with_args(args);
        }
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (texts, first) = (cast(&arrays[0], &DataType::Utf8)?, &arrays[1]);
        let (texts, first, last) = (
            texts.as_string::<i32>(),
            first.as_primitive::<Int64Type>(),
            arrays[2].as_primitive::<Int64Type>(),
        );
        let slices: StringArray = (0..texts.len())
            .map(|row| {
                let known = texts.is_valid(row) && first.is_valid(row) && last.is_valid(row);
                known.then(|| slice(texts.value(row), first.value(row), last.value(row)))
            })
            .collect();
        let slices: ArrayRef = Arc::new(slices);
        Ok(if is_scalar {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&slices, 0)?)
        } else {
            ColumnarValue::Array(slices)
        })
    }
}

fn slice(text: &str, first: i64, last: i64) -> &str {
    let length = if first < 0 || last < 0 { text.chars().count() as i64 } else { 0 };
    let position = |index: i64| if index < 0 { length + index + 1 } else { index };
    let first = position(first).max(1);
    let count = position(last).saturating_sub(first).saturating_add(1).max(0);
    let byte = |text: &str, characters: i64| {
        let index = usize::try_from(characters).unwrap_or(usize::MAX);
        text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
    };
    let rest = &text[byte(text, first - 1)..];
    &rest[..byte(rest, count)]
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn both_ends_count_and_the_outside_is_empty() {
        assert_eq!(slice("hello", 2, 3), "el");
        assert_eq!(slice("hello", -3, -1), "llo");
        assert_eq!(slice("hello", 0, 2), "he");
        assert_eq!(slice("hello", 4, 9), "lo");
        assert_eq!(slice("hello", 7, 9), "");
        assert_eq!(slice("äöü", 2, 2), "ö");
    }
}
