//! Text to integer, as SQL's `CAST` does it.
//!
//! Blanks around the number are skipped. `1e3` is 1000, `0x1f` and `0b101` are read in their base, `_` may
//! stand between digits, and a fraction is rounded, halves away from zero.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, PrimitiveArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue, exec_err, utils::take_function_args};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The conversion to this type; `lenient` yields NULL for what is not a number.
pub(crate) fn text_to_integer(target: &DataType, lenient: bool) -> ScalarUDF {
    ScalarUDF::from(TextToInteger {
        signature: Signature::string(1, Volatility::Immutable),
        target: target.clone(),
        lenient,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextToInteger {
    signature: Signature,
    target: DataType,
    lenient: bool,
}

impl ScalarUDFImpl for TextToInteger {
    fn name(&self) -> &str {
        if self.lenient { "try_text_to_integer" } else { "text_to_integer" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = take_function_args(self.name(), args.args)?;
        match argument {
            ColumnarValue::Array(texts) => Ok(ColumnarValue::Array(self.convert(&texts)?)),
            ColumnarValue::Scalar(text) => {
                let number = self.convert(&text.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&number, 0)?))
            }
        }
    }
}

impl TextToInteger {
    fn convert(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(texts, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let mut numbers = Vec::with_capacity(texts.len());
        for text in texts {
            numbers.push(match text.map(|text| (text, parse(text))) {
                None => None,
                Some((_, Some(number))) => Some(number),
                Some((_, None)) if self.lenient => None,
                Some((text, None)) => {
                    return exec_err!("cannot cast '{text}' to {}", self.target);
                }
            });
        }
        // Every integer type fits 38 digits; the cast then checks the range.
        let options = CastOptions { safe: self.lenient, ..CastOptions::default() };
        let numbers: ArrayRef = match numbers.iter().flatten().all(|n| i64::try_from(*n).is_ok()) {
            true => {
                Arc::new(numbers.into_iter().map(|n| n.map(|n| n as i64)).collect::<Int64Array>())
            }
            false => Arc::new(
                PrimitiveArray::<Decimal128Type>::from_iter(numbers)
                    .with_precision_and_scale(38, 0)?,
            ),
        };
        Ok(cast_with_options(&numbers, &self.target, &options)?)
    }
}

/// The number a text stands for.
fn parse(text: &str) -> Option<i128> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let magnitude = if let Some(hexadecimal) = lower.strip_prefix("0x") {
        i128::from_str_radix(&joined(hexadecimal)?, 16).ok()?
    } else if let Some(binary) = lower.strip_prefix("0b") {
        i128::from_str_radix(&joined(binary)?, 2).ok()?
    } else {
        decimal(&lower)?
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Digits without the underscores between them.
fn joined(digits: &str) -> Option<String> {
    let well_placed = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    well_placed.then(|| digits.replace('_', "")).filter(|digits| !digits.starts_with(['+', '-']))
}

/// `12`, `1_000`, `1.5`, `.5`, `1e3`: exact, whatever the size.
fn decimal(text: &str) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits = joined(whole)? + &joined(fraction)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The number of digits before the point, which the exponent moves.
    let point = i32::try_from(joined(whole)?.len()).ok()?.checked_add(exponent)?;
    if point < 0 {
        return Some(0);
    }
    let point = usize::try_from(point).ok()?;
    if point > 40 {
        return digits.bytes().all(|byte| byte == b'0').then_some(0);
    }
    let padded = format!("{digits:0<point$}");
    let (kept, cut) = padded.split_at(point);
    let rounded_up = cut.starts_with(['5', '6', '7', '8', '9']);
    let kept: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    Some(kept + i128::from(rounded_up))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_in_every_notation() {
        for (text, number) in [
            (" 12 ", 12),
            ("-1_000", -1000),
            ("1e3", 1000),
            ("12e-1", 1),
            ("1.5", 2),
            ("-.5", -1),
            ("0x1F", 31),
            ("0b101", 5),
            ("5e-3", 0),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in ["", "-", ".", "1__0", "_1", "0b2", "0x", "12a", "1e", "0x-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
