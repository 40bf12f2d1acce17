//! `sum(x)` of integers: added in 128 bits, and an error where the sum is none of its type.
//!
//! DataFusion's, which serves every other type, wraps around.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use arrow::compute::{cast, not, nullif, prep_null_mask_filter};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};

use crate::error::Error;

/// Holds any sum of 64-bit integers.
const STATE: DataType = DataType::Decimal128(38, 0);

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
}

impl Default for Sum {
    fn default() -> Self {
        Self { any: sum_udaf() }
    }
}

fn is_integer(sum: &DataType) -> bool {
    matches!(sum, DataType::Int64 | DataType::UInt64)
}

impl AggregateUDFImpl for Sum {
    super::as_datafusion_does!();

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct || !is_integer(args.return_type()) {
            return self.any.state_fields(args);
        }
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sum"), STATE, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let sum_type = args.return_type().clone();
        if !is_integer(&sum_type) {
            return self.any.accumulator(args);
        }
        if args.is_distinct {
            let values = self.any.accumulator(args)?;
            return Ok(Box::new(DistinctSum { values, sum_type }));
        }
        Ok(Box::new(IntegerSum { sum: 0, count: 0, sum_type }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct || !is_integer(args.return_type()) {
            true => self.any.create_sliding_accumulator(args),
            false => self.accumulator(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let sum_type = args.return_type().clone();
        match is_integer(&sum_type) {
            true => Ok(Box::new(GroupedSums { sums: Vec::new(), seen: Vec::new(), sum_type })),
            false => self.any.create_groups_accumulator(args),
        }
    }
}

/// The sum as a value of its type.
fn fitting(sum: i128, sum_type: &DataType) -> Result<ScalarValue> {
    let value = match sum_type {
        DataType::UInt64 => u64::try_from(sum).ok().map(ScalarValue::from),
        _ => i64::try_from(sum).ok().map(ScalarValue::from),
    };
    value.ok_or_else(|| overflow(sum, sum_type))
}

fn overflow(sum: i128, sum_type: &DataType) -> DataFusionError {
    Error::integer_sum(sum, *sum_type == DataType::UInt64).into()
}

/// The sum and the number of integers that are not NULL.
fn total(integers: &ArrayRef) -> (i128, u64) {
    let count = (integers.len() - integers.null_count()) as u64;
    if integers.null_count() > 0 {
        return (sum_of_some(integers), count);
    }
    let sum = match integers.data_type() {
        DataType::UInt64 => {
            sum_of_halves(integers.as_primitive::<UInt64Type>().values().iter().copied())
        }
        DataType::Decimal128(..) => integers.as_primitive::<Decimal128Type>().values().iter().sum(),
        // Counted from the least one, an integer has no sign.
        _ => {
            let integers = integers.as_primitive::<Int64Type>().values().iter();
            sum_of_halves(integers.map(|&x| x.wrapping_sub(i64::MIN) as u64))
                + i128::from(i64::MIN) * i128::from(count)
        }
    };
    (sum, count)
}

fn sum_of_some(integers: &ArrayRef) -> i128 {
    match integers.data_type() {
        DataType::UInt64 => {
            integers.as_primitive::<UInt64Type>().iter().flatten().map(i128::from).sum()
        }
        DataType::Decimal128(..) => {
            integers.as_primitive::<Decimal128Type>().iter().flatten().sum()
        }
        _ => integers.as_primitive::<Int64Type>().iter().flatten().map(i128::from).sum(),
    }
}

/// High and low halves apart, as vectors of 64 bits add them; batches are far shorter than 2³² rows.
fn sum_of_halves(integers: impl Iterator<Item = u64>) -> i128 {
    let (high, low) =
        integers.fold((0u64, 0u64), |(high, low), x| (high + (x >> 32), low + (x & 0xffff_ffff)));
    (i128::from(high) << 32) + i128::from(low)
}

/// One sum, from which values can be taken back.
#[derive(Debug)]
struct IntegerSum {
    sum: i128,
    /// Values, and states, that the sum is of: no sum where there are none.
    count: u64,
    sum_type: DataType,
}

impl Accumulator for IntegerSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total(&values[0]);
        self.sum += sum;
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = total(&values[0]);
        self.sum -= sum;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, 38, 0)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.count {
            0 => ScalarValue::try_from(&self.sum_type),
            _ => fitting(self.sum, &self.sum_type),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of what DataFusion's accumulator holds as distinct values.
#[derive(Debug)]
struct DistinctSum {
    values: Box<dyn Accumulator>,
    sum_type: DataType,
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
        match total(&values.value(0)) {
            (_, 0) => ScalarValue::try_from(&self.sum_type),
            (sum, _) => fitting(sum, &self.sum_type),
        }
    }

    fn size(&self) -> usize {
        self.values.size()
    }
}

/// The sums of many groups.
#[derive(Debug)]
struct GroupedSums {
    sums: Vec<i128>,
    /// Whether a group had a value.
    seen: Vec<bool>,
    sum_type: DataType,
}

impl GroupedSums {
    fn add<T: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        integers: &PrimitiveArray<T>,
        groups: &[usize],
    ) {
        let mut add = |group: usize, integer: T::Native| {
            self.sums[group] += integer.into();
            self.seen[group] = true;
        };
        match integers.null_count() {
            0 => groups.iter().zip(integers.values()).for_each(|(&at, &integer)| add(at, integer)),
            _ => {
                let pairs = groups.iter().zip(integers);
                pairs.for_each(|(&at, integer)| integer.into_iter().for_each(|x| add(at, x)));
            }
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Option<i128>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let seen = emit_to.take_needed(&mut self.seen);
        sums.into_iter().zip(seen).map(|(sum, seen)| seen.then_some(sum)).collect()
    }
}

impl GroupsAccumulator for GroupedSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        chosen: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let chosen_values = chosen.map(|chosen| nulled(&values[0], chosen)).transpose()?;
        let values = chosen_values.as_ref().unwrap_or(&values[0]);
        self.sums.resize(group_count, 0);
        self.seen.resize(group_count, false);
        match values.data_type() {
            DataType::UInt64 => self.add(values.as_primitive::<UInt64Type>(), group_indices),
            DataType::Decimal128(..) => {
                self.add(values.as_primitive::<Decimal128Type>(), group_indices)
            }
            _ => self.add(values.as_primitive::<Int64Type>(), group_indices),
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(states, group_indices, None, group_count)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from_iter(self.take(emit_to)).with_data_type(STATE);
        Ok(vec![Arc::new(sums)])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        fn fitted<T: ArrowPrimitiveType<Native: TryFrom<i128>>>(
            sums: Vec<Option<i128>>,
            sum_type: &DataType,
        ) -> Result<ArrayRef> {
            let fit = |sum: i128| T::Native::try_from(sum).map_err(|_| overflow(sum, sum_type));
            let sums = sums.into_iter().map(|sum| sum.map(fit).transpose());
            Ok(Arc::new(sums.collect::<Result<PrimitiveArray<T>>>()?))
        }
        let sums = self.take(emit_to);
        match self.sum_type {
            DataType::UInt64 => fitted::<UInt64Type>(sums, &self.sum_type),
            _ => fitted::<Int64Type>(sums, &self.sum_type),
        }
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let chosen = chosen.map(|chosen| nulled(&values[0], chosen)).transpose()?;
        let values = chosen.as_ref().unwrap_or(&values[0]);
        Ok(vec![cast(values, &STATE)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}

/// The values with NULL in the place of those that are not chosen.
pub(super) fn nulled(values: &ArrayRef, chosen: &BooleanArray) -> Result<ArrayRef> {
    let dropped = match chosen.null_count() {
        0 => not(chosen)?,
        _ => not(&prep_null_mask_filter(chosen))?,
    };
    Ok(nullif(values, &dropped)?)
}
