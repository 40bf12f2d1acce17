//! What rows add up to: counts, sums, means and extremes, of which those of some rows and of others make that of all.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, Float64Array,
    Int64Array, PrimitiveArray, make_array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type, i256,
};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::error::Error;
use crate::exec::relational::cells::cells;

/// Digits of the widest decimals whose mean is computed in 128 bits, as DataFusion's is.
const MEAN_DIGITS_MAX: u8 = 25;

/// Digits that a mean of decimals has more than they.
const MEAN_DIGITS_MORE: u32 = 4;

/// How rows add up.
pub(super) trait Measure: Send + 'static {
    /// The arguments of some rows.
    type Column: Send;
    /// What is known of some rows; by default of none.
    type State: Copy + Default + Send;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column>;

    fn of(column: &Self::Column, row: usize) -> Self::State;

    /// That of two runs of rows, the right one after the left one.
    fn joined(left: Self::State, right: Self::State) -> Self::State;

    /// # Errors
    /// Where one leaves its type.
    fn values(&self, states: &[Self::State]) -> Result<ArrayRef>;
}

/// What can be done with a measure of any type.
pub(super) trait Taken {
    type Made;
    fn take<M: Measure>(self, measure: M) -> Self::Made;
}

/// What is done with the measure that an aggregate is; nothing where it is none.
pub(super) fn measured<T: Taken>(
    aggregate: &AggregateFunctionExpr,
    arguments: &[DataType],
    taken: T,
) -> Option<T::Made> {
    if aggregate.is_distinct() {
        return None;
    }
    let name = aggregate.fun().name();
    let result = aggregate.field().data_type().clone();
    match (name, arguments, &result) {
        ("count", _, DataType::Int64) => Some(taken.take(Count)),
        ("sum", [DataType::Int64], DataType::Int64) => {
            Some(taken.take(Integers::<Int64Type>(PhantomData)))
        }
        ("sum", [DataType::UInt64], DataType::UInt64) => {
            Some(taken.take(Integers::<UInt64Type>(PhantomData)))
        }
        ("sum" | "avg", [DataType::Float64], DataType::Float64) => {
            Some(taken.take(Floats { is_mean: name == "avg" }))
        }
        ("sum", [DataType::Decimal128(_, from)], DataType::Decimal128(_, to)) if from == to => {
            Some(taken.take(Decimals { data_type: result, is_mean: false }))
        }
        ("avg", [DataType::Decimal128(digits, from)], DataType::Decimal128(_, to))
            if *digits <= MEAN_DIGITS_MAX && *to - *from == MEAN_DIGITS_MORE as i8 =>
        {
            Some(taken.take(Decimals { data_type: result, is_mean: true }))
        }
        ("min", [data_type], result) if data_type == result => extreme::<T, true>(result, taken),
        ("max", [data_type], result) if data_type == result => extreme::<T, false>(result, taken),
        _ => None,
    }
}

/// The least or the greatest of values that are numbers in memory.
fn extreme<T: Taken, const LEAST: bool>(data_type: &DataType, taken: T) -> Option<T::Made> {
    macro_rules! of {
        ($native:ty) => {
            Some(taken.take(Extreme::<$native, LEAST>::new(data_type.clone())))
        };
    }
    match data_type {
        DataType::Int8 => of!(i8),
        DataType::Int16 => of!(i16),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(..) => {
            of!(i32)
        }
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Decimal64(..) => of!(i64),
        DataType::UInt8 => of!(u8),
        DataType::UInt16 => of!(u16),
        DataType::UInt32 => of!(u32),
        DataType::UInt64 => of!(u64),
        DataType::Float32 => of!(f32),
        DataType::Float64 => of!(f64),
        DataType::Decimal128(..) => of!(i128),
        DataType::Decimal256(..) => of!(i256),
        _ => None,
    }
}

/// Numbers of which some may be NULL.
pub(super) struct Numbers<N: ArrowNativeType> {
    values: ScalarBuffer<N>,
    nulls: Option<NullBuffer>,
}

impl<N: ArrowNativeType> Numbers<N> {
    fn of<T: ArrowPrimitiveType<Native = N>>(array: &ArrayRef) -> Self {
        let array = array.as_primitive::<T>();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        Self { values: array.values().clone(), nulls: nulls.cloned() }
    }

    fn at(&self, row: usize) -> Option<N> {
        match &self.nulls {
            Some(nulls) if nulls.is_null(row) => None,
            _ => Some(self.values[row]),
        }
    }
}

/// How many rows there are; with arguments, those of which none is NULL.
pub(super) struct Count;

impl Measure for Count {
    type Column = Option<NullBuffer>;
    type State = i64;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column> {
        let nulls = arguments.iter().fold(None, |nulls, argument| {
            NullBuffer::union(nulls.as_ref(), argument.logical_nulls().as_ref())
        });
        Ok(nulls.filter(|nulls| nulls.null_count() > 0))
    }

    fn of(column: &Self::Column, row: usize) -> i64 {
        i64::from(column.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
    }

    fn joined(left: i64, right: i64) -> i64 {
        left + right
    }

    fn values(&self, states: &[i64]) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from(states.to_vec())))
    }
}

/// A sum, and of how many numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum<N> {
    sum: N,
    count: u64,
}

impl<N> Sum<N> {
    fn some(self) -> Option<N> {
        (self.count > 0).then_some(self.sum)
    }
}

/// The exact sum of integers.
pub(super) struct Integers<T>(PhantomData<T>);

impl<T> Measure for Integers<T>
where
    T: ArrowPrimitiveType<Native: Into<i128> + TryFrom<i128>> + Send,
{
    type Column = Numbers<T::Native>;
    type State = Sum<i128>;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column> {
        Ok(Numbers::of::<T>(&arguments[0]))
    }

    fn of(column: &Self::Column, row: usize) -> Sum<i128> {
        column.at(row).map_or_else(Sum::default, |value| Sum { sum: value.into(), count: 1 })
    }

    fn joined(left: Sum<i128>, right: Sum<i128>) -> Sum<i128> {
        Sum { sum: left.sum + right.sum, count: left.count + right.count }
    }

    fn values(&self, states: &[Sum<i128>]) -> Result<ArrayRef> {
        let is_unsigned = T::DATA_TYPE == DataType::UInt64;
        let fit = |sum: i128| {
            T::Native::try_from(sum).map_err(|_| Error::integer_sum(sum, is_unsigned).into())
        };
        let values = states.iter().map(|state| state.some().map(fit).transpose());
        Ok(Arc::new(values.collect::<Result<PrimitiveArray<T>, DataFusionError>>()?))
    }
}

/// The sum of floating-point numbers in the order of the rows, or their mean.
pub(super) struct Floats {
    is_mean: bool,
}

impl Measure for Floats {
    type Column = Numbers<f64>;
    type State = Sum<f64>;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column> {
        Ok(Numbers::of::<Float64Type>(&arguments[0]))
    }

    fn of(column: &Self::Column, row: usize) -> Sum<f64> {
        column.at(row).map_or_else(Sum::default, |sum| Sum { sum, count: 1 })
    }

    fn joined(left: Sum<f64>, right: Sum<f64>) -> Sum<f64> {
        Sum { sum: left.sum + right.sum, count: left.count + right.count }
    }

    fn values(&self, states: &[Sum<f64>]) -> Result<ArrayRef> {
        let divisor = |state: &Sum<f64>| if self.is_mean { state.count as f64 } else { 1.0 };
        let values = states.iter().map(|state| Some(state.some()? / divisor(state)));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }
}

/// The sum of decimals, or their mean, cut off after the digits of its type.
pub(super) struct Decimals {
    data_type: DataType,
    is_mean: bool,
}

/// A sum that has left 128 bits, whatever is added to it.
const BEYOND: i128 = i128::MIN;

impl Measure for Decimals {
    type Column = Numbers<i128>;
    type State = Sum<i128>;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column> {
        Ok(Numbers::of::<Decimal128Type>(&arguments[0]))
    }

    fn of(column: &Self::Column, row: usize) -> Sum<i128> {
        column.at(row).map_or_else(Sum::default, |sum| Sum { sum, count: 1 })
    }

    fn joined(left: Sum<i128>, right: Sum<i128>) -> Sum<i128> {
        let sum = left.sum.checked_add(right.sum);
        let is_beyond = left.sum == BEYOND || right.sum == BEYOND;
        let sum = sum.filter(|_| !is_beyond).unwrap_or(BEYOND);
        Sum { sum, count: left.count + right.count }
    }

    fn values(&self, states: &[Sum<i128>]) -> Result<ArrayRef> {
        let DataType::Decimal128(precision, scale) = self.data_type else {
            return internal_err!("a sum of decimals of the type {}", self.data_type);
        };
        let end = 10_u128.pow(u32::from(precision));
        let overflow = || match self.is_mean {
            true => DataFusionError::Execution("avg: the sum has too many digits".into()),
            false => Error::decimal_sum(precision, scale).into(),
        };
        let value = |state: &Sum<i128>| {
            let value = match self.is_mean {
                true => {
                    state.sum.checked_mul(10i128.pow(MEAN_DIGITS_MORE))? / i128::from(state.count)
                }
                false => state.sum,
            };
            (value.unsigned_abs() < end).then_some(value)
        };
        let value = |state: &Sum<i128>| value(state).ok_or_else(overflow);
        let values = states.iter().map(|state| state.some().map(|_| value(state)).transpose());
        let values = values.collect::<Result<PrimitiveArray<Decimal128Type>>>()?;
        Ok(Arc::new(values.with_data_type(self.data_type.clone())))
    }
}

/// The least value, or the greatest; of floating-point numbers in their total order, in which NaN is beyond infinity.
pub(super) struct Extreme<N, const LEAST: bool> {
    data_type: DataType,
    number: PhantomData<N>,
}

impl<N, const LEAST: bool> Extreme<N, LEAST> {
    fn new(data_type: DataType) -> Self {
        Self { data_type, number: PhantomData }
    }
}

impl<N: ArrowNativeTypeOp, const LEAST: bool> Measure for Extreme<N, LEAST> {
    type Column = Numbers<N>;
    type State = Option<N>;

    fn column(&self, arguments: &[ArrayRef]) -> Result<Self::Column> {
        let values = cells(&arguments[0]);
        let nulls = arguments[0].nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Numbers { values, nulls: nulls.cloned() })
    }

    fn of(column: &Self::Column, row: usize) -> Option<N> {
        column.at(row)
    }

    fn joined(left: Option<N>, right: Option<N>) -> Option<N> {
        match (left, right) {
            (Some(x), Some(y)) => {
                Some(if if LEAST { y.is_lt(x) } else { y.is_gt(x) } { y } else { x })
            }
            (left, right) => left.or(right),
        }
    }

    fn values(&self, states: &[Option<N>]) -> Result<ArrayRef> {
        let values: ScalarBuffer<N> =
            states.iter().map(|state| state.unwrap_or_default()).collect();
        let nulls: NullBuffer = states.iter().map(Option::is_some).collect();
        let data = ArrayData::builder(self.data_type.clone())
            .len(states.len())
            .add_buffer(values.into_inner())
            .nulls(Some(nulls).filter(|nulls| nulls.null_count() > 0));
        Ok(make_array(data.build()?))
    }
}
