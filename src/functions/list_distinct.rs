//! `list_distinct(l)`, also `array_distinct`: the distinct values of a list, NULL not among them.
//!
//! DataFusion's function keeps a NULL; DuckDB's does not, nor does `count(DISTINCT x)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::datatypes::FieldRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_nested::set_ops::array_distinct_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ListDistinct {
    distinct: Arc<ScalarUDF>,
}

impl Default for ListDistinct {
    fn default() -> Self {
        Self { distinct: array_distinct_udf() }
    }
}

impl ScalarUDFImpl for ListDistinct {
    fn name(&self) -> &str {
        self.distinct.name()
    }

    fn aliases(&self) -> &[String] {
        self.distinct.aliases()
    }

    fn signature(&self) -> &Signature {
        self.distinct.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.distinct.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.distinct.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match self.distinct.invoke_with_args(args)? {
            ColumnarValue::Array(lists) => ColumnarValue::Array(without_nulls(lists)?),
            ColumnarValue::Scalar(list) => {
                let list = without_nulls(list.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&list, 0)?)
            }
        })
    }
}

/// The same lists without their NULL elements.
fn without_nulls(lists: ArrayRef) -> Result<ArrayRef> {
    let Some(list) = lists.as_list_opt::<i32>() else { return Ok(lists) };
    let values = list.values();
    if values.logical_null_count() == 0 {
        return Ok(lists);
    }
    let nulls = values.logical_nulls();
    let mut kept = Vec::with_capacity(values.len());
    let mut lengths = Vec::with_capacity(list.len());
    for bounds in list.value_offsets().windows(2) {
        let before = kept.len();
        let elements = bounds[0] as u32..bounds[1] as u32;
        kept.extend(elements.filter(|at| nulls.as_ref().is_none_or(|n| n.is_valid(*at as usize))));
        lengths.push(kept.len() - before);
    }
    let DataType::List(field) = list.data_type() else { return Ok(lists) };
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::from_lengths(lengths),
        take(values, &UInt32Array::from(kept), None)?,
        list.nulls().cloned(),
    )?))
}
