//! Arithmetic of decimals: in 64 bits where all digits of a batch fit there, and in 128 as Arrow does it where not.
//!
//! A decimal has 128 bits, whatever its precision. Whether a product of two leaves them is asked for each row, which takes
//! several times as long as the product. A product of two numbers of 64 bits never does, and whether all numbers of a batch
//! are of so few is seen in one reading.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type};
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
