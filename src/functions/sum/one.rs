//! One sum: of all rows, or of those of a window, from which values can be taken back.

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, PrimitiveArray,
};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::SumType;

/// The sum of some numbers; none where they leave 128 bits.
pub(super) fn total<T: ArrowPrimitiveType<Native: Into<i128>>>(
    numbers: &PrimitiveArray<T>,
) -> Option<i128> {
    let values = numbers.values().iter();
    if numbers.null_count() > 0 {
        return numbers.iter().flatten().try_fold(0_i128, |sum, x| sum.checked_add(x.into()));
    }
    let mut wide = values.map(|&x| -> i128 { x.into() });
    match size_of::<T::Native>() {
        // Batches are far shorter than 2³² rows.
        ..=4 => Some(wide.map(|x| x as i64).sum::<i64>().into()),
        // Counted from the least one, an integer has no sign.
        8 => {
            let least: i128 = T::Native::MIN_TOTAL_ORDER.into();
            let unsigned = wide.map(|x| (x - least) as u64);
            Some(sum_of_halves(unsigned) + least * numbers.len() as i128)
        }
        _ => wide.try_fold(0_i128, i128::checked_add),
    }
}

/// The sum of some numbers that a sum is of; none where they leave 128 bits.
fn total_of(numbers: &ArrayRef) -> Option<i128> {
    match numbers.data_type() {
        DataType::UInt64 => total::<UInt64Type>(numbers.as_primitive()),
        DataType::Int64 => total::<Int64Type>(numbers.as_primitive()),
        DataType::Decimal32(..) => total::<Decimal32Type>(numbers.as_primitive()),
        DataType::Decimal64(..) => total::<Decimal64Type>(numbers.as_primitive()),
        _ => total::<Decimal128Type>(numbers.as_primitive()),
    }
}

/// High and low halves apart, as vectors of 64 bits add them; batches are far shorter than 2³² rows.
fn sum_of_halves(integers: impl Iterator<Item = u64>) -> i128 {
    let (high, low) =
        integers.fold((0u64, 0u64), |(high, low), x| (high + (x >> 32), low + (x & 0xffff_ffff)));
    (i128::from(high) << 32) + i128::from(low)
}

/// See the header of this file.
#[derive(Debug)]
pub(super) struct OneSum {
    sum: i128,
    /// Values, and states, that the sum is of: no sum where there are none.
    count: u64,
    sum_type: SumType,
}

impl OneSum {
    pub(super) fn new(sum_type: SumType) -> Self {
        Self { sum: 0, count: 0, sum_type }
    }

    fn put(&mut self, sum: Option<i128>) -> Result<()> {
        self.sum = sum.ok_or_else(|| self.sum_type.beyond())?;
        Ok(())
    }
}

fn count(numbers: &ArrayRef) -> u64 {
    (numbers.len() - numbers.null_count()) as u64
}

impl Accumulator for OneSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += count(&values[0]);
        self.put(total_of(&values[0]).and_then(|total| self.sum.checked_add(total)))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= count(&values[0]);
        self.put(total_of(&values[0]).and_then(|total| self.sum.checked_sub(total)))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, 38, self.sum_type.scale())])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.sum_type.value((self.count > 0).then_some(self.sum))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of what DataFusion's accumulator holds as distinct values.
#[derive(Debug)]
pub(super) struct DistinctSum {
    values: Box<dyn Accumulator>,
    sum_type: SumType,
}

impl DistinctSum {
    pub(super) fn new(values: Box<dyn Accumulator>, sum_type: SumType) -> Self {
        Self { values, sum_type }
    }
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(values)] = state.as_slice() else { return self.values.evaluate() };
        let values = values.value(0);
        let sum = total_of(&values).ok_or_else(|| self.sum_type.beyond())?;
        self.sum_type.value((count(&values) > 0).then_some(sum))
    }

    fn size(&self) -> usize {
        self.values.size()
    }
}

impl SumType {
    /// A sum as a value of the type; NULL where there is none.
    fn value(&self, sum: Option<i128>) -> Result<ScalarValue> {
        let Some(sum) = sum else { return ScalarValue::try_from(&self.0) };
        let sum = self.fitting(sum)?;
        Ok(match self.0 {
            DataType::UInt64 => ScalarValue::UInt64(Some(sum as u64)),
            DataType::Decimal32(precision, scale) => {
                ScalarValue::Decimal32(Some(sum as i32), precision, scale)
            }
            DataType::Decimal64(precision, scale) => {
                ScalarValue::Decimal64(Some(sum as i64), precision, scale)
            }
            DataType::Decimal128(precision, scale) => {
                ScalarValue::Decimal128(Some(sum), precision, scale)
            }
            _ => ScalarValue::Int64(Some(sum as i64)),
        })
    }
}
