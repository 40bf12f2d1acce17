//! Arithmetic of decimals: in 64 bits where all digits of a batch fit there, and in 128 as Arrow does it where not.
//!
//! A decimal has 128 bits, whatever its precision. Whether a product of two leaves them is asked for each row, which takes
//! several times as long as the product. A product of two numbers of 64 bits never does, and whether all numbers of a batch
//! are of so few is seen in one reading. Whoever takes encoded columns gets results of 64 bits, too, where these are enough
//! ([`encoded`](fn@encoded)).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, Decimal128Array, Int64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type, Int8Type, Int16Type,
    Int32Type, Int64Type,
};
use arrow::error::ArrowError;

/// What becomes of two decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operation {
    /// Arrow's kernel, whose numbers, types, NULLs and errors these are.
    fn wide(self) -> fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self {
            Operation::Add => numeric::add,
            Operation::Subtract => numeric::sub,
            Operation::Multiply => numeric::mul,
            Operation::Divide => numeric::div,
            Operation::Remainder => numeric::rem,
        }
    }
}

/// The operation row by row, of columns or of a column and a constant; the result is of `data_type`, as Arrow derives it.
///
/// # Errors
/// Arrow's: a result that leaves 128 bits, or has more digits than its type; a division by zero.
pub(crate) fn computed(
    operation: Operation,
    left: &dyn Datum,
    right: &dyn Datum,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    match narrow(operation, left, right, data_type) {
        Some(results) if operation == Operation::Multiply => Ok(Arc::new(results)),
        Some(results) => within(Arc::new(results)),
        None => within(operation.wide()(left, right)?),
    }
}

/// One side of an operation whose columns may be encoded, by units of its last digit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand<'a> {
    /// Decimals, or the same as integers of fewer bits.
    Column(&'a dyn Array),
    Constant(i128),
}

/// Rows that are computed at once: the numbers of both sides stay in a near cache.
const STRIP: usize = 1024;

impl Operand<'_> {
    /// What no number is beyond, nor its negative; nothing where one leaves 64 bits.
    fn most(&self) -> Option<u128> {
        fn of<N: Copy + Into<i128>>(numbers: &[N]) -> u128 {
            let bits = |bits: u128, &number: &N| {
                let number: i128 = number.into();
                bits | (number ^ (number >> 127)) as u128
            };
            numbers.iter().fold(0, bits) + 1
        }
        let most = match self {
            Self::Constant(number) => number.unsigned_abs(),
            Self::Column(column) => match column.data_type() {
                DataType::Int8 => 1 << 7,
                DataType::Int16 => 1 << 15,
                DataType::Int32 => 1 << 31,
                DataType::Int64 => of(column.as_primitive::<Int64Type>().values()),
                DataType::Decimal128(..) => of(column.as_primitive::<Decimal128Type>().values()),
                _ => return None,
            },
        };
        (most <= i64::MAX as u128).then_some(most)
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::Column(column) => column.nulls(),
            Self::Constant(_) => None,
        }
    }

    /// The numbers of some rows, all of which have 64 bits.
    fn read(&self, rows: Range<usize>, to: &mut [i64]) {
        fn of<T: ArrowPrimitiveType>(
            column: &dyn Array,
            rows: Range<usize>,
            to: &mut [i64],
            number: impl Fn(T::Native) -> i64,
        ) {
            let numbers = &column.as_primitive::<T>().values()[rows];
            to.iter_mut().zip(numbers).for_each(|(to, &of)| *to = number(of));
        }
        match self {
            Self::Constant(number) => to.fill(*number as i64),
            Self::Column(column) => match column.data_type() {
                DataType::Int8 => of::<Int8Type>(*column, rows, to, i64::from),
                DataType::Int16 => of::<Int16Type>(*column, rows, to, i64::from),
                DataType::Int32 => of::<Int32Type>(*column, rows, to, i64::from),
                DataType::Int64 => of::<Int64Type>(*column, rows, to, |number| number),
                _ => of::<Decimal128Type>(*column, rows, to, |number| number as i64),
            },
        }
    }
}

/// Sums, differences and products of two sides of so many rows whose last digits are of these scales, in units of the last
/// digit of a result; nothing where one may leave 64 bits, or where it is not computed so.
pub(crate) fn encoded(
    operation: Operation,
    sides: [Operand<'_>; 2],
    scales: [i8; 2],
    scale: i8,
    rows: usize,
) -> Option<Int64Array> {
    let [left, right] = &sides;
    let [most_left, most_right] = [left.most()?, right.most()?];
    let factors = match operation {
        Operation::Multiply if scales[0].checked_add(scales[1])? == scale => [1, 1],
        Operation::Add | Operation::Subtract => {
            [power(scale, scales[0])?, power(scale, scales[1])?]
        }
        Operation::Multiply | Operation::Divide | Operation::Remainder => return None,
    };
    let [of_left, of_right] = factors.map(|factor| factor as u128);
    let most = match operation {
        Operation::Multiply => most_left.checked_mul(most_right)?,
        _ => most_left.checked_mul(of_left)?.checked_add(most_right.checked_mul(of_right)?)?,
    };
    if most > i64::MAX as u128 {
        return None;
    }
    let [of_left, of_right] = factors;
    let (mut lefts, mut rights) = ([0; STRIP], [0; STRIP]);
    let mut results: Vec<i64> = Vec::with_capacity(rows);
    for first in (0..rows).step_by(STRIP) {
        let strip = first..rows.min(first + STRIP);
        let (lefts, rights) = (&mut lefts[..strip.len()], &mut rights[..strip.len()]);
        left.read(strip.clone(), lefts);
        right.read(strip, rights);
        let pairs = lefts.iter().zip(rights.iter());
        // None wraps around: that was looked at above.
        match operation {
            Operation::Add => results.extend(pairs.map(|(&left, &right)| {
                left.wrapping_mul(of_left).wrapping_add(right.wrapping_mul(of_right))
            })),
            Operation::Subtract => results.extend(pairs.map(|(&left, &right)| {
                left.wrapping_mul(of_left).wrapping_sub(right.wrapping_mul(of_right))
            })),
            _ => results.extend(pairs.map(|(&left, &right)| left.wrapping_mul(right))),
        }
    }
    Int64Array::try_new(results.into(), NullBuffer::union(left.nulls(), right.nulls())).ok()
}

/// Results that have no more digits than their type. Only those of the widest can have, for others are as wide as any result;
/// and products of 64 bits have at most 38.
///
/// # Errors
/// For the first one that has more.
fn within(results: ArrayRef) -> Result<ArrayRef, ArrowError> {
    const END: u128 = 10_u128.pow(DECIMAL128_MAX_PRECISION as u32);
    if let DataType::Decimal128(precision @ DECIMAL128_MAX_PRECISION, _) = *results.data_type() {
        let decimals = results.as_primitive::<Decimal128Type>();
        let is_beyond = |&value: &i128| value.unsigned_abs() >= END;
        if decimals.values().iter().any(is_beyond) {
            decimals.validate_decimal_precision(precision)?;
        }
    }
    Ok(results)
}

/// The same where every number has 64 bits; none where it does not, or where it is Arrow's to answer.
fn narrow(
    operation: Operation,
    left: &dyn Datum,
    right: &dyn Datum,
    data_type: &DataType,
) -> Option<Decimal128Array> {
    let DataType::Decimal128(precision, scale) = *data_type else { return None };
    let (left, right) = (Side::of(left)?, Side::of(right)?);
    let results = match operation {
        Operation::Multiply if left.scale.checked_add(right.scale)? == scale => {
            zipped(&left, &right, |left, right| i128::from(left) * i128::from(right))?
        }
        Operation::Add => {
            let (of_left, of_right) = (power(scale, left.scale)?, power(scale, right.scale)?);
            zipped(&left, &right, |left, right| {
                i128::from(left) * i128::from(of_left) + i128::from(right) * i128::from(of_right)
            })?
        }
        Operation::Subtract => {
            let (of_left, of_right) = (power(scale, left.scale)?, power(scale, right.scale)?);
            zipped(&left, &right, |left, right| {
                i128::from(left) * i128::from(of_left) - i128::from(right) * i128::from(of_right)
            })?
        }
        Operation::Multiply | Operation::Divide | Operation::Remainder => return None,
    };
    let nulls = NullBuffer::union(left.nulls(), right.nulls());
    let results = Decimal128Array::try_new(results.into(), nulls).ok()?;
    results.with_precision_and_scale(precision, scale).ok()
}

/// Ten to so many digits as a scale has more than another: at most 60 bits, so that what it multiplies leaves room for a sum.
fn power(scale: i8, of: i8) -> Option<i64> {
    10_i64.checked_pow(u32::try_from(scale.checked_sub(of)?).ok()?)
}

/// One side of an operation, all of whose numbers have 64 bits.
struct Side<'a> {
    column: &'a Decimal128Array,
    is_constant: bool,
    scale: i8,
}

impl<'a> Side<'a> {
    fn of(datum: &'a dyn Datum) -> Option<Self> {
        let (column, is_constant) = datum.get();
        let column = column.as_primitive_opt::<Decimal128Type>()?;
        let scale = column.scale();
        let is_known = !is_constant || column.null_count() == 0;
        let is_usual = (0..=DECIMAL128_MAX_SCALE).contains(&scale);
        (is_known && is_usual && fit(column.values())).then_some(Self {
            column,
            is_constant,
            scale,
        })
    }

    /// Which rows are NULL; a constant is not.
    fn nulls(&self) -> Option<&NullBuffer> {
        self.column.nulls().filter(|_| !self.is_constant)
    }
}

/// Whether all numbers have 64 bits.
fn fit(values: &[i128]) -> bool {
    values.iter().fold(0, |beyond, &value| beyond | ((value >> 64) ^ (value as i64 >> 63) as i128))
        == 0
}

/// The numbers of both sides, row by row; none where both are constants.
fn zipped(left: &Side<'_>, right: &Side<'_>, of: impl Fn(i64, i64) -> i128) -> Option<Vec<i128>> {
    let (lefts, rights) = (left.column.values(), right.column.values());
    Some(match (left.is_constant, right.is_constant) {
        (false, false) => lefts
            .iter()
            .zip(rights.iter())
            .map(|(&left, &right)| of(left as i64, right as i64))
            .collect(),
        (true, false) => {
            let left = *lefts.first()? as i64;
            rights.iter().map(|&right| of(left, right as i64)).collect()
        }
        (false, true) => {
            let right = *rights.first()? as i64;
            lefts.iter().map(|&left| of(left as i64, right)).collect()
        }
        (true, true) => return None,
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::Scalar;
    use rand::rngs::SmallRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn column(values: Vec<Option<i128>>, scale: i8) -> Decimal128Array {
        Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap()
    }

    /// Numbers near the ends of 64 bits, within them and, for some columns, beyond; some of them NULL.
    fn numbers(random: &mut SmallRng) -> Vec<Option<i128>> {
        let ends = [i64::MAX, i64::MIN, 0, -1, 1].map(i128::from);
        let beyond =
            [i128::from(i64::MAX) + 1, i128::from(i64::MIN) - 1, 10_i128.pow(37), -(1 << 126)];
        let goes_beyond = random.random_bool(0.3);
        let mut number = || match random.random_range(0..10) {
            0 => None,
            1..4 => ends.choose(random).copied(),
            4 if goes_beyond => beyond.choose(random).copied(),
            5..7 => Some(i128::from(random.random::<i64>())),
            _ => Some(random.random_range(-100_000_000..100_000_000)),
        };
        (0..7).map(|_| number()).collect()
    }

    /// Columns of any bits, and results of 64 bits wherever there are some: these are Arrow's.
    #[test]
    fn of_encoded_sides_the_results_are_the_same() {
        use Operation::{Add, Divide, Multiply, Subtract};
        let mut random = SmallRng::seed_from_u64(2);
        let mut narrow_ones = 0;
        for _ in 0..3000 {
            let operation = [Add, Subtract, Multiply, Divide].choose(&mut random).copied().unwrap();
            let scales = [0; 2].map(|_: i8| random.random_range(0..6));
            let rows = random.random_range(1..3000);
            let decimals = [0, 1].map(|side| {
                let bits = random.random_range(2..72);
                let nulls = [0.0, 0.2][random.random_range(0..2)];
                let mut number = || {
                    let number = random.random_range(-(1_i128 << bits)..1 << bits);
                    (!random.random_bool(nulls)).then_some(number)
                };
                let numbers: Decimal128Array = (0..rows).map(|_| number()).collect();
                let of = numbers.with_precision_and_scale(30, scales[side]);
                Arc::new(of.unwrap()) as ArrayRef
            });
            let constant = random.random_range(-1000..1000);
            let is_constant = random.random_bool(0.3);
            let kept = decimals.each_ref().map(crate::encoding::encoded);
            let mut sides = [Operand::Column(kept[0].as_ref()), Operand::Column(kept[1].as_ref())];
            let one = Decimal128Array::from(vec![constant]);
            let one = Scalar::new(one.with_precision_and_scale(30, scales[0]).unwrap());
            let mut left: &dyn Datum = &decimals[0];
            if is_constant {
                (sides[0], left) = (Operand::Constant(constant), &one);
            }
            let Ok(expected) = operation.wide()(left, &decimals[1]) else { continue };
            let scale = expected.as_primitive::<Decimal128Type>().scale();
            let Some(found) = encoded(operation, sides, scales, scale, rows) else { continue };
            narrow_ones += 1;
            let found: ArrayRef = Arc::new(found);
            assert_eq!(&crate::encoding::decoded(&found, expected.data_type()).unwrap(), &expected);
        }
        assert!(narrow_ones > 500, "{narrow_ones} of them in 64 bits");
    }

    #[test]
    fn the_numbers_types_and_errors_are_those_of_arrow() {
        use Operation::{Add, Divide, Multiply, Remainder, Subtract};
        let mut random = SmallRng::seed_from_u64(1);
        let mut narrow_ones = 0;
        for _ in 0..20_000 {
            let operation =
                [Add, Subtract, Multiply, Divide, Remainder].choose(&mut random).copied().unwrap();
            let scales = [0; 2].map(|_: i8| random.random_range(-2..25));
            let (left, right) =
                (column(numbers(&mut random), scales[0]), column(numbers(&mut random), scales[1]));
            let (one, other) = (Scalar::new(left.slice(0, 1)), Scalar::new(right.slice(0, 1)));
            let (left, right): (&dyn Datum, &dyn Datum) = match random.random_range(0..4) {
                0 => (&one, &right),
                1 => (&left, &other),
                2 => (&one, &other),
                _ => (&left, &right),
            };
            let expected = operation.wide()(left, right).and_then(within);
            let data_type = match &expected {
                Ok(expected) => expected.data_type().clone(),
                // That of nothing at all, of which nothing can fail but its scale.
                Err(_) => DataType::Decimal128(38, scales[0].max(scales[1])),
            };
            narrow_ones += usize::from(narrow(operation, left, right, &data_type).is_some());
            match (computed(operation, left, right, &data_type), expected) {
                (Ok(computed), Ok(expected)) => assert_eq!(&computed, &expected),
                (Err(computed), Err(expected)) => {
                    assert_eq!(computed.to_string(), expected.to_string())
                }
                (computed, expected) => panic!("{computed:?}, not {expected:?}"),
            }
        }
        assert!(narrow_ones > 1000, "{narrow_ones} of them in 64 bits");
    }
}
