//! `single_value(x)`: the one value of a group, and an error where there are two.
//!
//! What a subquery that stands for a value promises. Not meant to be called, but nothing forbids it.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, cast::as_uint64_array, exec_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

/// The function, to be called in a plan.
pub(crate) fn single_value() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::from(SingleValue::default())));
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl Default for SingleValue {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new("value", args.return_type().clone(), true)),
            Arc::new(Field::new("rows", DataType::UInt64, false)),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_type())?;
        Ok(Box::new(Single { value, rows: 0 }))
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: u64,
}

impl Single {
    fn take(&mut self, values: &dyn Array, rows: u64) -> Result<()> {
        self.rows += rows;
        if self.rows > 1 {
            return exec_err!("a subquery that stands for one value returned several rows");
        }
        if rows == 1 {
            self.value = ScalarValue::try_from_array(values, 0)?;
        }
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take(&values[0], values[0].len() as u64)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows: &UInt64Array = as_uint64_array(&states[1])?;
        for (index, rows) in rows.values().iter().enumerate() {
            self.take(&states[0].slice(index, 1), *rows)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::from(self.rows)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() - size_of_val(&self.value)
    }
}
