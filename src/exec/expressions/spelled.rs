//! Whole numbers, decimals and days as texts: digits are written one after another where DataFusion formats each number by itself.

use std::str;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, StringViewBuilder};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Schema};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;

use super::of_column::{CompiledExpr, OfColumn};

/// A conversion to texts.
#[derive(Debug)]
struct Spelling;

/// The expression that is a conversion of such values to texts.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn ours(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let Some(cast) = expression.downcast_ref::<CastExpr>() else { return Ok(None) };
    let of = cast.expr().data_type(schema)?;
    let is_ours = of.is_integer() || matches!(of, DataType::Date32 | DataType::Decimal128(_, 0..));
    let is_ours = is_ours && *cast.cast_type() == DataType::Utf8View;
    Ok(is_ours.then(|| CompiledExpr::over(expression, Spelling)))
}

impl OfColumn for Spelling {
    fn values(&self, column: &ArrayRef) -> Result<Option<ArrayRef>> {
        use arrow::datatypes::{
            Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
            UInt64Type,
        };
        let column = column.as_ref();
        let whole = |text: &mut Text, number: i128| text.number(number, 0);
        Ok(match column.data_type() {
            DataType::Int8 => spelled::<Int8Type>(column, whole),
            DataType::Int16 => spelled::<Int16Type>(column, whole),
            DataType::Int32 => spelled::<Int32Type>(column, whole),
            DataType::Int64 => spelled::<Int64Type>(column, whole),
            DataType::UInt8 => spelled::<UInt8Type>(column, whole),
            DataType::UInt16 => spelled::<UInt16Type>(column, whole),
            DataType::UInt32 => spelled::<UInt32Type>(column, whole),
            DataType::UInt64 => spelled::<UInt64Type>(column, whole),
            DataType::Date32 => spelled::<Date32Type>(column, |text, days| text.day(days)),
            &DataType::Decimal128(_, scale @ 0..) => {
                let scale = usize::from(scale.unsigned_abs());
                spelled::<Decimal128Type>(column, |text, number| text.number(number, scale))
            }
            _ => None,
        })
    }
}

/// The texts of a column; nothing where one of them is longer than is written here.
fn spelled<P: ArrowPrimitiveType<Native: Into<i128>>>(
    column: &dyn Array,
    write: impl Fn(&mut Text, i128) -> Option<()>,
) -> Option<ArrayRef> {
    let mut texts = StringViewBuilder::with_capacity(column.len());
    let mut text = Text::default();
    for value in column.as_primitive::<P>() {
        match value {
            None => texts.append_null(),
            Some(value) => {
                text.first = text.bytes.len();
                write(&mut text, value.into())?;
                texts.append_value(str::from_utf8(&text.bytes[text.first..]).ok()?);
            }
        }
    }
    Some(Arc::new(texts.finish()))
}

/// Digits of the longest number that is written here.
const DIGITS_MAX: usize = 20;

/// A text that is written from its end.
#[derive(Default)]
struct Text {
    /// With a sign, and a point.
    bytes: [u8; DIGITS_MAX + 2],
    first: usize,
}

impl Text {
    fn put(&mut self, byte: u8) {
        self.first -= 1;
        self.bytes[self.first] = byte;
    }

    /// The digits of a number, so many at least.
    fn digits(&mut self, mut number: u64, least: usize) -> u64 {
        for _ in 0..least {
            self.put(b'0' + (number % 10) as u8);
            number /= 10;
        }
        number
    }

    /// A number, of which so many digits are behind the point.
    fn number(&mut self, number: i128, scale: usize) -> Option<()> {
        let mut rest = u64::try_from(number.unsigned_abs()).ok()?;
        if scale > 0 {
            if scale >= DIGITS_MAX {
                return None;
            }
            rest = self.digits(rest, scale);
            self.put(b'.');
        }
        rest = self.digits(rest, 1);
        while rest > 0 {
            rest = self.digits(rest, 1);
        }
        if number < 0 {
            self.put(b'-');
        }
        Some(())
    }

    /// A day, counted from the first of 1970, as year, month and day of the month: Hinnant, *chrono-Compatible Low-Level Date
    /// Algorithms*, 2013. Years of other than four digits have a sign, and are left to Arrow.
    fn day(&mut self, days: i128) -> Option<()> {
        // From the first of March of the year 0 on, in which the day that not each year has is the last.
        let days = u64::try_from(days + 719_468).ok()?;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + 400 * era + u64::from(month <= 2);
        if year > 9999 {
            return None;
        }
        self.digits(day, 2);
        self.put(b'-');
        self.digits(month, 2);
        self.put(b'-');
        self.digits(year, 4);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Decimal128Array, Int8Array, Int64Array, UInt64Array};
    use arrow::compute::cast;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn texts_are_those_that_arrow_writes() {
        let random = &mut SmallRng::seed_from_u64(3);
        let mut numbers: Vec<Option<i64>> = (0..4000)
            .map(|at| {
                let number = random.random_range(i64::MIN..=i64::MAX) >> random.random_range(0..64);
                (at % 9 != 4).then_some(number)
            })
            .collect();
        numbers.extend([i64::MIN, i64::MAX, 0, -1, 1, 9, 10, -99, 100].map(Some));
        let days = |of: &Option<i64>| of.map(|of| (of % 2_900_000) as i32);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(numbers.clone())),
            Arc::new(numbers.iter().map(|of| of.map(i64::cast_unsigned)).collect::<UInt64Array>()),
            Arc::new(numbers.iter().map(|of| of.map(|of| of as i8)).collect::<Int8Array>()),
            Arc::new(numbers.iter().map(days).collect::<Date32Array>().slice(3, 2000)),
        ];
        for scale in [0, 1, 2, 19, 20, 38] {
            let decimals: Decimal128Array = numbers.iter().map(|of| of.map(i128::from)).collect();
            columns.push(Arc::new(decimals.with_precision_and_scale(38, scale).unwrap()));
        }
        let mut ours = 0;
        for column in &columns {
            let expected = cast(column, &DataType::Utf8View).unwrap();
            if let Some(texts) = Spelling.values(column).unwrap() {
                assert_eq!(&texts, &expected, "{}", column.data_type());
                ours += 1;
            }
        }
        // Of decimals those with 20 and 38 digits behind the point are left, and of days those of years before 0.
        assert_eq!(ours, 7);
        let days: ArrayRef = Arc::new(Date32Array::from_iter_values(-719_468 + 306..2_932_896));
        let texts = Spelling.values(&days).unwrap().unwrap();
        assert_eq!(&texts, &cast(&days, &DataType::Utf8View).unwrap());
        for beyond in [-719_469, 2_932_897] {
            let day: ArrayRef = Arc::new(Date32Array::from(vec![beyond]));
            assert!(Spelling.values(&day).unwrap().is_none());
        }
    }
}
