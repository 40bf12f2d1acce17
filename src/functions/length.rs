//! `length(x)` and `len(x)`: characters of a text, elements of a list.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::unicode::character_length;
use datafusion::functions_nested::length::array_length_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Length {
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for Length {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
            aliases: vec!["len".to_owned()],
        }
    }
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        "length"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let of_list = matches!(
            args.args[0].data_type(),
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _)
        );
        let function: Arc<ScalarUDF> = if of_list {
            array_length_udf()
        } else {
            if !args.args[0].data_type().is_string() {
                args.args[0] = args.args[0].cast_to(&DataType::Utf8, None)?;
            }
            character_length()
        };
        function.invoke_with_args(args)?.cast_to(&DataType::Int64, None)
    }
}
