//! How a value is written in the scripts, of which there are three kinds.
//!
//! Our own: `query` is followed by one letter for each column, and the letter says how much to print.
//!
//! ```text
//! R   numbers to six significant digits: 0.333333, 3.0, 1e-7      for what was computed
//! T   the shortest text that reads back as the same value: 0.1, 0.30000000000000004
//! I   the same, for integers, so that a fraction shows
//! ```
//!
//! NULL is `NULL`, an empty text `(empty)`, lists are `[1.0, NULL]`, structs `{'a': 1}`. White space counts
//! as one blank, so columns may be aligned.
//!
//! SQLite's: the letter is a conversion, for the scripts come from a dynamically typed engine. `I` cuts a
//! fraction and reads a number off the front of a text, `R` prints three decimals.
//!
//! DuckDB's: the value's own type decides; the letters only count the columns.

use std::fmt::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, IntervalDayTimeType, IntervalMonthDayNanoType,
    IntervalUnit, IntervalYearMonthType,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::ColumnType;

/// One letter of a record's type string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Letter(char);

impl Letter {
    /// The letter of a column that the script does not mention.
    pub(crate) const ANY: Self = Self('?');
}

impl ColumnType for Letter {
    fn from_char(value: char) -> Option<Self> {
        Some(Self(value))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

/// The kind of script that values are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Our own.
    Own,
    /// SQLite's suite.
    Sqlite,
    /// DuckDB's tests.
    DuckDb,
}

/// A value, reduced to what the styles tell apart.
enum Value {
    Null,
    Boolean(bool),
    Integer(i128),
    Float(f64),
    /// A 32-bit float, whose shortest text is shorter than that of the same number in 64 bits.
    Single(f32),
    /// A decimal as it is written, with all its places.
    Decimal(String),
    Text(String),
    /// A list, struct or map, written out.
    Nested(String),
}

impl Style {
    /// The texts of a batch, row by row.
    pub(crate) fn rows(self, batch: &RecordBatch, letters: &[Letter]) -> Vec<Vec<String>> {
        (0..batch.num_rows())
            .map(|row| {
                batch
                    .columns()
                    .iter()
                    .zip(letters)
                    .map(|(column, letter)| self.text(column, row, *letter))
                    .collect()
            })
            .collect()
    }

    fn text(self, column: &dyn Array, row: usize, letter: Letter) -> String {
        match self {
            Self::Sqlite => sqlite(value(column, row), letter),
            Self::Own => plain(value(column, row), (letter.0 == 'R').then_some(6)),
            Self::DuckDb => match plain(value(column, row), None) {
                text if text.ends_with(".0") && is_float(column.data_type()) => {
                    text.trim_end_matches(".0").to_string()
                }
                text => text.chars().map(|c| if c.is_control() { '@' } else { c }).collect(),
            },
        }
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// The conversions of SQLite's C interface, which its suite prints through.
fn sqlite(value: Value, letter: Letter) -> String {
    let number = match &value {
        Value::Null => return "NULL".to_string(),
        Value::Boolean(value) => f64::from(u8::from(*value)),
        Value::Integer(value) if letter.0 == 'I' => return value.to_string(),
        Value::Integer(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Single(value) => f64::from(*value),
        Value::Decimal(text) | Value::Text(text) | Value::Nested(text) => leading_number(text),
    };
    match letter.0 {
        'I' => format!("{}", number as i64),
        'R' => format!("{number:.3}"),
        _ => match plain(value, None) {
            text if text == "(empty)" => text,
            text => text
                .chars()
                .map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '@' })
                .collect(),
        },
    }
}

/// The number a text begins with, else 0.
fn leading_number(text: &str) -> f64 {
    let text = text.trim_start();
    (1..=text.len())
        .rev()
        .filter(|end| text.is_char_boundary(*end))
        .find_map(|end| text[..end].parse().ok().filter(|number: &f64| number.is_finite()))
        .unwrap_or(0.0)
}

/// The text of a value of its own type; floats to `digits` significant digits, if given.
fn plain(value: Value, digits: Option<usize>) -> String {
    match value {
        Value::Null => "NULL".to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => float(value, digits),
        Value::Single(value) => match digits {
            Some(_) => float(f64::from(value), digits),
            None => named(f64::from(value)).unwrap_or_else(|| format!("{value:?}")),
        },
        Value::Text(text) if text.is_empty() => "(empty)".to_string(),
        Value::Decimal(text) | Value::Text(text) | Value::Nested(text) => text,
    }
}

fn float(value: f64, digits: Option<usize>) -> String {
    named(value).unwrap_or_else(|| match digits {
        None => format!("{value:?}"),
        Some(digits) => {
            let rounded: f64 = format!("{value:.*e}", digits - 1).parse().unwrap_or(value);
            // A zero that came out of rounding errors has no sign worth printing.
            format!("{:?}", rounded + 0.0)
        }
    })
}

/// The texts of the values that are not numbers.
fn named(value: f64) -> Option<String> {
    match value {
        _ if value.is_nan() => Some("nan".to_string()),
        f64::INFINITY => Some("inf".to_string()),
        f64::NEG_INFINITY => Some("-inf".to_string()),
        _ => None,
    }
}

fn value(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Boolean(column.as_boolean().value(row)),
        DataType::Float16 => {
            Value::Single(column.as_primitive::<Float16Type>().value(row).to_f32())
        }
        DataType::Float32 => Value::Single(column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Value::Float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            value(dictionary.values(), dictionary.normalized_keys()[row])
        }
        DataType::List(_) => list(&column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => list(&column.as_fixed_size_list().value(row)),
        DataType::Struct(fields) => {
            let mut text = String::from("{");
            for (field, column) in fields.iter().zip(column.as_struct().columns()) {
                let separator = if text.len() > 1 { ", " } else { "" };
                write!(text, "{separator}'{}': {}", field.name(), nested(value(column, row)))
                    .expect("a String takes every text");
            }
            Value::Nested(text + "}")
        }
        DataType::Map(_, _) => {
            let entries = column.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let texts: Vec<String> = (0..entries.len())
                .map(|row| format!("{}={}", nested(value(keys, row)), nested(value(values, row))))
                .collect();
            Value::Nested(format!("{{{}}}", texts.join(", ")))
        }
        DataType::Binary => Value::Text(blob(column.as_binary::<i32>().value(row))),
        DataType::LargeBinary => Value::Text(blob(column.as_binary::<i64>().value(row))),
        DataType::BinaryView => Value::Text(blob(column.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => Value::Text(blob(column.as_fixed_size_binary().value(row))),
        DataType::Interval(unit) => Value::Text(interval(column, row, *unit)),
        data_type => {
            let options = FormatOptions::new()
                .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
                .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
                .with_time_format(Some("%H:%M:%S%.f"));
            let text = ArrayFormatter::try_new(column, &options)
                .map(|formatter| formatter.value(row).to_string())
                .unwrap_or_else(|error| error.to_string());
            match data_type {
                _ if data_type.is_integer() => {
                    text.parse().map_or(Value::Text(text), Value::Integer)
                }
                _ if data_type.is_decimal() => Value::Decimal(text),
                DataType::Timestamp(_, zone) => Value::Text(timestamp(&text, zone.is_some())),
                DataType::Time32(_) | DataType::Time64(_) => Value::Text(timestamp(&text, false)),
                _ => Value::Text(text),
            }
        }
    }
}

/// A time without the zeros that end its fraction, and a zone without the minutes that are zero.
fn timestamp(text: &str, has_zone: bool) -> String {
    let (time, zone) =
        text.split_at(if has_zone { text.len().saturating_sub(6) } else { text.len() });
    format!("{}{}", trimmed(time), zone.trim_end_matches(":00"))
}

/// A number without the zeros that end its fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn list(elements: &dyn Array) -> Value {
    let texts: Vec<String> = (0..elements.len()).map(|row| nested(value(elements, row))).collect();
    Value::Nested(format!("[{}]", texts.join(", ")))
}

/// The text of a value within another: a text is quoted where it would not be told apart otherwise.
fn nested(value: Value) -> String {
    const SPECIAL: &str = ",[]{}()'\"=:";
    match value {
        Value::Text(text)
            if text.is_empty() || text.trim() != text || text.contains(|c| SPECIAL.contains(c)) =>
        {
            format!("'{}'", text.replace('\'', "\\'"))
        }
        Value::Text(text) => text,
        other => plain(other, None),
    }
}

/// Printable bytes as they are, others as `\xAA`.
fn blob(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        if (byte.is_ascii_graphic() || *byte == b' ') && !b"\\'\"".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "\\x{byte:02X}").expect("a String takes every text");
        }
        text
    })
}

/// An interval in words: `1 year 2 months 3 days 04:05:06.7`.
fn interval(column: &dyn Array, row: usize, unit: IntervalUnit) -> String {
    let (months, days, nanoseconds) = match unit {
        IntervalUnit::YearMonth => {
            (column.as_primitive::<IntervalYearMonthType>().value(row), 0, 0)
        }
        IntervalUnit::DayTime => {
            let value = column.as_primitive::<IntervalDayTimeType>().value(row);
            (0, value.days, i64::from(value.milliseconds) * 1_000_000)
        }
        IntervalUnit::MonthDayNano => {
            let value = column.as_primitive::<IntervalMonthDayNanoType>().value(row);
            (value.months, value.days, value.nanoseconds)
        }
    };
    let mut words = Vec::new();
    for (count, unit) in [(months / 12, "year"), (months % 12, "month"), (days, "day")] {
        if count != 0 {
            words.push(format!("{count} {unit}{}", if count.abs() == 1 { "" } else { "s" }));
        }
    }
    if nanoseconds != 0 || words.is_empty() {
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let microseconds = nanoseconds.unsigned_abs() / 1000;
        let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        words.push(trimmed(&format!("{sign}{clock}.{fraction:06}")).to_string());
    }
    words.join(" ")
}
