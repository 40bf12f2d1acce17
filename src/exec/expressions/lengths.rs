//! Lengths of texts: those of packed ones are kept beside them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::of_column::{CompiledExpr, OfColumn};
use crate::encoding::{packed_bytes, unpacked};

/// What is counted of a text, and in which type.
#[derive(Debug)]
struct Lengths {
    of: Unit,
    data_type: DataType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Characters,
    Bytes,
}

/// The expression that counts either.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn ours(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() else { return Ok(None) };
    let of = match call.fun().name() {
        "length" | "character_length" => Unit::Characters,
        "octet_length" => Unit::Bytes,
        _ => return Ok(None),
    };
    let [text] = call.args() else { return Ok(None) };
    let data_type = call.return_type().clone();
    let is_ours = text.data_type(schema)? == DataType::Utf8View && data_type.is_integer();
    Ok(is_ours.then(|| CompiledExpr::over(expression, Lengths { of, data_type })))
}

impl OfColumn for Lengths {
    fn values(&self, column: &ArrayRef) -> Result<Option<ArrayRef>> {
        // Of texts that are not packed DataFusion has them as quickly.
        let Some(packed) = packed_bytes(column) else { return Ok(None) };
        let lengths = match self.of == Unit::Bytes || packed.are_characters {
            true => packed.bytes,
            false => characters(unpacked(column)?.as_string_view()),
        };
        Ok(Some(cast(&lengths, &self.data_type)?))
    }

    fn reads_packed(&self) -> bool {
        true
    }
}

/// None of the texts is longer than a view can say.
fn characters(texts: &StringViewArray) -> Int32Array {
    texts.iter().map(|text| text.map(|text| text.chars().count() as i32)).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use datafusion::common::config::ConfigOptions;
    use datafusion::functions::expr_fn;
    use datafusion::logical_expr::Expr;
    use datafusion::physical_expr::expressions::{Column, cast as to};

    use super::*;
    use crate::encoding::{decoded, encoded};
    use crate::exec::expressions::{decoded_columns, encoded_values, with_ours};

    /// A function of the only column of a schema.
    fn call(function: fn(Expr) -> Expr, schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let Expr::ScalarFunction(call) = function(datafusion::logical_expr::col("s")) else {
            panic!("it is a function")
        };
        let column = Arc::new(Column::new("s", 0)) as _;
        let options = Arc::new(ConfigOptions::default());
        let call = ScalarFunctionExpr::try_new(call.func, vec![column], schema, options);
        Arc::new(call.unwrap())
    }

    #[test]
    fn lengths_of_packed_texts_are_those_of_the_texts() {
        let ends = ["", " the end of it is not like that of others", " ends as \u{e5}ngstr\u{f6}m"];
        for differ in [2, 3] {
            let texts = (0..2000).map(|row| {
                let text = format!("the text of row number {row}{}", ends[row % differ]);
                (row % 7 != 0).then_some(text)
            });
            let texts: ArrayRef = Arc::new(texts.collect::<StringViewArray>());
            let packed = encoded(&texts);
            assert!(packed_bytes(&packed).is_some_and(|of| of.are_characters == (differ == 2)));
            let plain = RecordBatch::try_from_iter([("s", Arc::clone(&texts))]).unwrap();
            let rows = RecordBatch::try_from_iter([("s", packed)]).unwrap();
            let schema = plain.schema();
            for function in [expr_fn::character_length as fn(Expr) -> Expr, expr_fn::octet_length] {
                let length = call(function, &schema);
                assert!(ours(&length, &schema).unwrap().is_some());
                let wider = to(Arc::clone(&length), &schema, DataType::Float64).unwrap();
                for planned in [length, wider] {
                    let ours = with_ours(Arc::clone(&planned), &schema).unwrap().data;
                    assert!(decoded_columns(&ours).is_empty());
                    let expected = planned.evaluate(&plain).unwrap().into_array(2000).unwrap();
                    assert_eq!(&encoded_values(&ours, &rows).unwrap(), &expected);
                    assert_eq!(&encoded_values(&ours, &plain).unwrap(), &expected);
                    let part = encoded_values(&ours, &rows.slice(100, 700)).unwrap();
                    assert_eq!(
                        &decoded(&part, expected.data_type()).unwrap(),
                        &expected.slice(100, 700)
                    );
                }
            }
        }
    }
}
