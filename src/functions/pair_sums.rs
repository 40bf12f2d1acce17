//! Many sums of products of two columns in one aggregate, which the planner makes of `sum(x * y)`, `sum(x * z)`, …:
//! each column is read once for all of them, and no product is ever a column.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use crate::exec::kernels::pairs::add_products;

/// An aggregate over columns of `DOUBLE`: a structure of the sums of these pairs, by [`field`]. A pair with a
/// NULL counts for nothing, and the sum of none is NULL.
pub(crate) fn pair_sums(pairs: Vec<(usize, usize)>) -> Arc<AggregateUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(AggregateUDF::from(PairSums { pairs, signature }))
}

/// What the sum of a pair is called, by its number.
pub(crate) fn field(pair: usize) -> String {
    format!("pair_{pair}")
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PairSums {
    pairs: Vec<(usize, usize)>,
    signature: Signature,
}

fn fields(pairs: usize) -> Fields {
    (0..pairs).map(|pair| Field::new(field(pair), DataType::Float64, true)).collect()
}

impl AggregateUDFImpl for PairSums {
    fn name(&self) -> &str {
        "pair_sums"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(fields(self.pairs.len())))
    }

    fn state_fields(&self, _: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let item = Field::new_list_field(DataType::Float64, true);
        Ok(vec![Arc::new(Field::new_list("pair_sums", item, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let count = self.pairs.len();
        Ok(Box::new(Sums {
            pairs: self.pairs.clone(),
            sums: vec![0.0; count],
            seen: vec![false; count],
        }))
    }
}

#[derive(Debug)]
struct Sums {
    pairs: Vec<(usize, usize)>,
    sums: Vec<f64>,
    /// Whether a pair had a product.
    seen: Vec<bool>,
}

impl Sums {
    fn values(&self) -> impl Iterator<Item = Option<f64>> {
        self.sums.iter().zip(&self.seen).map(|(&sum, &seen)| seen.then_some(sum))
    }

    /// Adds the products of pairs of which one may be NULL.
    fn add_nullable(&mut self, values: &[ArrayRef]) {
        let pairs = self.pairs.iter().zip(&mut self.sums).zip(&mut self.seen);
        for ((&(x, y), sum), seen) in pairs {
            let x = values[x].as_primitive::<Float64Type>().iter();
            let y = values[y].as_primitive::<Float64Type>().iter();
            for (x, y) in x.zip(y).filter_map(|(x, y)| x.zip(y)) {
                *sum += x * y;
                *seen = true;
            }
        }
    }
}

impl Accumulator for Sums {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if values.iter().any(|column| column.null_count() > 0) {
            self.add_nullable(values);
            return Ok(());
        }
        let columns: Vec<&[f64]> = values
            .iter()
            .map(|column| column.as_primitive::<Float64Type>().values().as_ref())
            .collect();
        add_products(&columns, &self.pairs, &mut self.sums);
        if columns.first().is_some_and(|column| !column.is_empty()) {
            self.seen.fill(true);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states: &ListArray = states[0].as_list();
        for sums in states.iter().flatten() {
            let sums = sums.as_primitive::<Float64Type>();
            for ((sum, total), seen) in sums.iter().zip(&mut self.sums).zip(&mut self.seen) {
                if let Some(sum) = sum {
                    *total += sum;
                    *seen = true;
                }
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sums: arrow::array::Float64Array = self.values().collect();
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(sums)).build_list_scalar()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let column = |sum: Option<f64>| -> ArrayRef {
            Arc::new(arrow::array::Float64Array::from(vec![sum]))
        };
        let columns = self.values().map(column).collect();
        let row = StructArray::try_new(fields(self.pairs.len()), columns, None)?;
        Ok(ScalarValue::Struct(Arc::new(row)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.len() * (size_of::<(usize, usize)>() + size_of::<f64>() + 1)
    }
}
