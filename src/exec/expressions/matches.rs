//! What a regular expression finds in texts: `regexp_match`, `regexp_count` and `regexp_instr`, all but the texts constants.
//!
//! Enters: the call as DataFusion has planned it, which compiles the pattern again for each batch. Leaves: the same, whose pattern
//! is compiled once. Not here: a pattern that cannot be compiled and a number out of its range, of which DataFusion says what is
//! wrong.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, AsArray, GenericStringBuilder, Int64Array, ListBuilder,
    OffsetSizeTrait, StringViewBuilder,
};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use regex::Regex;

use super::compiled::Compiled;
use super::of_column::{CompiledExpr, OfColumn};
use super::patterns::{constant, is_text, regular};

/// What is looked for, and what is told of it.
#[derive(Debug)]
struct Search {
    regular: Compiled<Regex>,
    told: Told,
}

#[derive(Debug, Clone, Copy)]
enum Told {
    /// The first match, or the texts of its groups.
    Texts,
    /// How many matches there are.
    Count { skipped: usize },
    /// The sign at which a match begins, or a group of the first one, from 1; 0 where there is none.
    Place { skipped: usize, before: usize, group: Option<usize> },
}

/// The expression that is a call with constants.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn ours(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let call = expression.downcast_ref::<ScalarFunctionExpr>();
    let Some((call, search)) = call.and_then(|call| Some((call, Search::of(call)?))) else {
        return Ok(None);
    };
    let is_ours = is_text(&call.args()[0].data_type(schema)?);
    Ok(is_ours.then(|| CompiledExpr::over(expression, search)))
}

impl Search {
    /// That of a call whose constants are in their ranges.
    fn of(call: &ScalarFunctionExpr) -> Option<Self> {
        let [_, pattern, others @ ..] = call.args() else { return None };
        let (told, flags) = match (call.fun().name(), others) {
            ("regexp_match", [] | [_]) => (Told::Texts, others.first()),
            ("regexp_count", [] | [_] | [_, _]) => {
                (Told::Count { skipped: before(others.first())? }, others.get(1))
            }
            ("regexp_instr", [] | [_] | [_, _] | [_, _, _] | [_, _, _, _]) => {
                let (skipped, before) = (before(others.first())?, before(others.get(1))?);
                let group = others.get(3).map_or(Some(0), number)?;
                let group = usize::try_from(group).ok().filter(|&group| group > 0);
                (Told::Place { skipped, before, group }, others.get(2))
            }
            _ => return None,
        };
        let flags = match flags {
            None => None,
            Some(flags) => Some(constant(flags)?),
        };
        // No flags at all are none to these.
        let is_number = !matches!(told, Told::Texts);
        let flags = flags.filter(|flags| !(is_number && flags.is_empty()));
        Some(Self { regular: regular(constant(pattern)?, flags), told })
    }
}

/// A constant that is a number.
fn number(expression: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match expression.downcast_ref::<Literal>()?.value() {
        ScalarValue::Int64(number) => *number,
        _ => None,
    }
}

/// How many come before what a number from 1 says, which is the first where there is no number.
fn before(number_of: Option<&Arc<dyn PhysicalExpr>>) -> Option<usize> {
    let number = number_of.map_or(Some(1), number)?;
    usize::try_from(number).ok()?.checked_sub(1)
}

/// The bytes of so many signs; nothing where a text has fewer.
fn bytes_of(text: &str, signs: usize) -> Option<usize> {
    let mut rest = text.chars();
    for _ in 0..signs {
        rest.next()?;
    }
    Some(text.len() - rest.as_str().len())
}

fn count(regular: &Regex, text: &str, skipped: usize) -> usize {
    bytes_of(text, skipped).map_or(0, |from| regular.find_iter(&text[from..]).count())
}

fn place(
    regular: &Regex,
    text: &str,
    skipped: usize,
    before: usize,
    group: Option<usize>,
) -> Option<usize> {
    let from = bytes_of(text, skipped)?;
    let rest = &text[from..];
    let found = match group {
        Some(group) => regular.captures(rest)?.get(group)?,
        None => regular.find_iter(rest).nth(before)?,
    };
    Some(text[..from + found.start()].chars().count() + 1)
}

/// Numbers of texts; nothing of what are no texts.
fn numbers(texts: &dyn Array, of: impl Fn(&str) -> usize) -> Option<ArrayRef> {
    let number = |text: Option<&str>| text.map(|text| of(text) as i64);
    let numbers: Int64Array = match texts.data_type() {
        DataType::Utf8View => texts.as_string_view().iter().map(number).collect(),
        DataType::Utf8 => texts.as_string::<i32>().iter().map(number).collect(),
        DataType::LargeUtf8 => texts.as_string::<i64>().iter().map(number).collect(),
        _ => return None,
    };
    Some(Arc::new(numbers))
}

/// What is found in texts; nothing of what are no texts.
fn found(texts: &dyn Array, regular: &Regex) -> Option<ArrayRef> {
    fn of_offsets<O: OffsetSizeTrait>(texts: &dyn Array, regular: &Regex) -> ArrayRef {
        let found = GenericStringBuilder::<O>::new();
        lists(texts.as_string::<O>().iter(), regular, found, GenericStringBuilder::append_value)
    }
    Some(match texts.data_type() {
        DataType::Utf8View => {
            let texts = texts.as_string_view().iter();
            lists(texts, regular, StringViewBuilder::new(), StringViewBuilder::append_value)
        }
        DataType::Utf8 => of_offsets::<i32>(texts, regular),
        DataType::LargeUtf8 => of_offsets::<i64>(texts, regular),
        _ => return None,
    })
}

/// A list for each text in which something is found. A group that takes no part in that is left out.
fn lists<'t, B: ArrayBuilder>(
    texts: impl Iterator<Item = Option<&'t str>>,
    regular: &Regex,
    found: B,
    append: impl Fn(&mut B, &'t str),
) -> ArrayRef {
    let mut lists = ListBuilder::new(found);
    let mut groups = regular.capture_locations();
    let told = usize::from(groups.len() > 1)..groups.len();
    for text in texts {
        let text = text.filter(|text| regular.captures_read(&mut groups, text).is_some());
        if let Some(text) = text {
            for (start, end) in told.clone().filter_map(|group| groups.get(group)) {
                append(lists.values(), &text[start..end]);
            }
        }
        lists.append(text.is_some());
    }
    Arc::new(lists.finish())
}

impl OfColumn for Search {
    fn values(&self, texts: &ArrayRef) -> Result<Option<ArrayRef>> {
        Ok(self.regular.own().and_then(|regular| match self.told {
            Told::Texts => found(texts, &regular),
            Told::Count { skipped } => numbers(texts, |text| count(&regular, text, skipped)),
            Told::Place { skipped, before, group } => numbers(texts, |text| {
                place(&regular, text, skipped, before, group).unwrap_or_default()
            }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{RecordBatch, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::Field;
    use datafusion::functions::regex::{regexp_count, regexp_instr, regexp_match};
    use datafusion::logical_expr::ScalarUDF;
    use datafusion::physical_expr::expressions::{col, lit};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const LETTERS: [&str; 9] = ["a", "A", "b", "k", "\u{212a}", "ß", "中", "\n", "."];
    const REGULAR: [&str; 20] = [
        "a",
        "b",
        "k",
        "ß",
        ".",
        ".*",
        "a*",
        "^",
        "$",
        "[a-k]",
        "[^a]",
        "(",
        ")",
        "(a)",
        "(b)?",
        "(?:ß)",
        "|",
        "+",
        "\\b",
        "(?P<n>中)",
    ];
    const FLAGS: [&str; 7] = ["", "i", "s", "m", "is", "g", "z"];

    fn of_any(random: &mut SmallRng, words: &[&'static str], count_max: usize) -> String {
        let count = random.random_range(0..=count_max);
        (0..count).map(|_| words[random.random_range(0..words.len())]).collect()
    }

    fn texts(random: &mut SmallRng, data_type: &DataType) -> RecordBatch {
        let count = random.random_range(0..30);
        let texts =
            (0..count).map(|_| random.random_bool(0.8).then(|| of_any(random, &LETTERS, 7)));
        let texts = cast(&texts.collect::<StringArray>(), data_type).unwrap();
        let part = texts.slice(texts.len() / 4, texts.len() - texts.len() / 4);
        RecordBatch::try_new(Arc::new(schema(data_type)), vec![part]).unwrap()
    }

    fn schema(data_type: &DataType) -> Schema {
        Schema::new(vec![Field::new("s", data_type.clone(), true)])
    }

    fn called(
        function: Arc<ScalarUDF>,
        constants: Vec<ScalarValue>,
        data_type: &DataType,
    ) -> Arc<dyn PhysicalExpr> {
        let schema = schema(data_type);
        let mut arguments = vec![col("s", &schema).unwrap()];
        arguments.extend(constants.into_iter().map(lit));
        Arc::new(ScalarFunctionExpr::try_new(function, arguments, &schema, Arc::default()).unwrap())
    }

    /// A call with as many constants as there happen to be, NULL and numbers out of their ranges among them.
    fn call(random: &mut SmallRng, data_type: &DataType) -> Arc<dyn PhysicalExpr> {
        let text = |text: Option<String>| ScalarValue::Utf8(text).cast_to(data_type).unwrap();
        let number = |random: &mut SmallRng| match random.random_range(0..30) {
            0 => ScalarValue::Int64(None),
            1 => ScalarValue::Int64(Some(i64::MAX)),
            2 => ScalarValue::Int64(Some(random.random_range(-2..1))),
            _ => ScalarValue::Int64(Some(random.random_range(1..4))),
        };
        let pattern = of_any(random, &REGULAR, 5);
        let pattern = text(random.random_bool(0.95).then_some(pattern));
        let flags = FLAGS[random.random_range(0..FLAGS.len())].to_owned();
        let flags = text(random.random_bool(0.95).then_some(flags));
        let (function, mut constants) = match random.random_range(0..3) {
            0 => (regexp_match(), vec![pattern, flags]),
            1 => (regexp_count(), vec![pattern, number(random), flags]),
            _ => {
                let numbers = [number(random), number(random), number(random)];
                let [start, nth, group] = numbers;
                (regexp_instr(), vec![pattern, start, nth, flags, group])
            }
        };
        constants.truncate(random.random_range(1..=constants.len()));
        called(function, constants, data_type)
    }

    fn answer(of: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let answer = of.evaluate(batch).and_then(|answer| answer.into_array(batch.num_rows()));
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_found_and_errors_are_those_of_datafusion() {
        let (mut ours_count, mut error_count) = (0, 0);
        let mut random = SmallRng::seed_from_u64(11);
        let data_types = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];
        for _ in 0..6000 {
            let data_type = &data_types[random.random_range(0..data_types.len())];
            let planned = call(&mut random, data_type);
            let Some(ours) = ours(&planned, &schema(data_type)).unwrap() else { continue };
            assert_eq!(ours.to_string(), planned.to_string());
            let batch = texts(&mut random, data_type);
            let expected = answer(&planned, &batch);
            error_count += usize::from(expected.is_err());
            ours_count += usize::from(expected.is_ok());
            assert_eq!(answer(&ours, &batch), expected, "{planned} of {batch:?}");
        }
        assert!(ours_count > 2000 && error_count > 500, "{ours_count} {error_count}");
    }

    #[test]
    fn constants_out_of_their_ranges_and_other_functions_are_left_to_datafusion() {
        let view = &DataType::Utf8View;
        let text = |text: &str| ScalarValue::Utf8View(Some(text.to_owned()));
        let is_ours = |function: Arc<ScalarUDF>, constants: &[ScalarValue]| {
            let planned = called(function, constants.to_vec(), view);
            ours(&planned, &schema(view)).unwrap().is_some()
        };
        assert!(is_ours(regexp_count(), &[text("a"), ScalarValue::from(2_i64)]));
        assert!(!is_ours(regexp_count(), &[text("a"), ScalarValue::from(0_i64)]));
        assert!(!is_ours(regexp_count(), &[text("a"), ScalarValue::Int64(None)]));
        assert!(!is_ours(regexp_match(), &[ScalarValue::Utf8View(None)]));
        assert!(!is_ours(datafusion::functions::string::starts_with(), &[text("a")]));
    }

    #[test]
    fn what_is_looked_for_is_compiled_once_for_all_batches() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let regular = Compiled::by(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Regex::new("(a)|(b)").ok()
        });
        let view = &DataType::Utf8View;
        let pattern = ScalarValue::Utf8View(Some("(a)|(b)".to_owned()));
        let planned = called(regexp_match(), vec![pattern], view);
        let expression = CompiledExpr::over(&planned, Search { regular, told: Told::Texts });
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..3 {
            answer(&expression, &texts(&mut random, view)).unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
