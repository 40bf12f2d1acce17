//! `mode(x)`: the most frequent value of a group; of equally frequent ones, the one seen first.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Mode {
    signature: Signature,
}

impl Default for Mode {
    fn default() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let value = args.input_fields[0].data_type().clone();
        Ok(vec![
            Arc::new(Field::new_list("values", Field::new_list_field(value, true), false)),
            Arc::new(Field::new_list(
                "counts",
                Field::new_list_field(DataType::UInt64, true),
                false,
            )),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts { data_type: args.return_type().clone(), by_value: HashMap::new() }))
    }
}

#[derive(Debug)]
struct Counts {
    data_type: DataType,
    /// How often a value was seen, and how many others were seen before it.
    by_value: HashMap<ScalarValue, (u64, usize)>,
}

impl Counts {
    fn add(&mut self, value: ScalarValue, count: u64) {
        if !value.is_null() {
            let order = self.by_value.len();
            self.by_value.entry(value).or_insert((0, order)).0 += count;
        }
    }

    fn in_order(&self) -> Vec<(&ScalarValue, u64)> {
        let mut all: Vec<_> = self.by_value.iter().collect();
        all.sort_by_key(|(_, (_, order))| *order);
        all.into_iter().map(|(value, (count, _))| (value, *count)).collect()
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for row in 0..values[0].len() {
            self.add(ScalarValue::try_from_array(&values[0], row)?, 1);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for state in 0..values.len() {
            let (values, counts) = (values.value(state), counts.value(state));
            let counts = counts.as_primitive::<UInt64Type>();
            for row in 0..values.len() {
                self.add(ScalarValue::try_from_array(&values, row)?, counts.value(row));
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (values, counts): (Vec<_>, Vec<_>) = self
            .in_order()
            .into_iter()
            .map(|(value, count)| (value.clone(), ScalarValue::from(count)))
            .unzip();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.data_type)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::UInt64)),
        ])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut most = 0;
        let mut mode = None;
        for (value, count) in self.in_order() {
            if count > most {
                (most, mode) = (count, Some(value.clone()));
            }
        }
        mode.map_or_else(|| ScalarValue::try_from(&self.data_type), Ok)
    }

    fn size(&self) -> usize {
        let values: usize = self.by_value.keys().map(ScalarValue::size).sum();
        size_of_val(self) + values + self.by_value.capacity() * size_of::<(u64, usize)>()
    }
}
