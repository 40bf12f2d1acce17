//! Whether texts are as a pattern says: `LIKE`, `ILIKE`, regular expressions and `regexp_like`, the pattern a constant.
//!
//! Enters: the expression as DataFusion has planned it, which compiles the pattern again for each batch. Leaves: the same, whose
//! pattern is compiled once. Of `LIKE`, parts are looked for one after another by [`kernels::parts`](crate::exec::kernels::parts).
//! Not here: a pattern that Arrow compares byte by byte, for which nothing is compiled, and one that cannot be compiled, of
//! which DataFusion says what is wrong.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::take;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, LikeExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::datum::apply_cmp;
use regex::{Regex, RegexBuilder};

use super::compiled::Compiled;
use super::of_column::{CompiledExpr, OfColumn};
use crate::exec::kernels::parts::Parts;

/// Parts from which on Arrow takes a regular expression.
const PARTS_MIN: usize = 2;

/// Whether a text is as a pattern says.
#[derive(Debug)]
struct Matching {
    pattern: Pattern,
    is_negated: bool,
}

/// What is known of a pattern before there are texts.
#[derive(Debug)]
enum Pattern {
    /// Looked for one after another.
    Parts(Parts),
    Regular(Compiled<Regex>),
    /// `ILIKE` that Arrow compares byte by byte where all texts are ASCII, with the pattern as it is written.
    Folded(Compiled<Regex>, ScalarValue),
}

/// The expression that is an expression with a constant pattern, where something is compiled for that.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn ours(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let found = if let Some(like) = expression.downcast_ref::<LikeExpr>() {
        of_like(like)
    } else if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        of_operator(binary)
    } else if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
        of_function(function)
    } else {
        None
    };
    let Some(matching) = found else { return Ok(None) };
    let is_function = expression.is::<ScalarFunctionExpr>();
    let is_ours = match expression.children()[0].data_type(schema)? {
        DataType::Dictionary(_, values) => !is_function && is_text(&values),
        data_type => is_text(&data_type),
    };
    Ok(is_ours.then(|| CompiledExpr::over(expression, matching)))
}

impl Matching {
    /// The answers of texts; nothing where DataFusion says why there are none.
    fn answers(&self, texts: &dyn Array) -> Result<Option<BooleanArray>> {
        let regular = match &self.pattern {
            Pattern::Parts(parts) => {
                return each(texts, &|text| parts.are_of(text.as_bytes()) != self.is_negated);
            }
            Pattern::Regular(regular) | Pattern::Folded(regular, _) => regular.own(),
        };
        match regular {
            Some(regular) => each(texts, &|text| regular.is_match(text) != self.is_negated),
            None => Ok(None),
        }
    }
}

/// Whether values are texts.
pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8)
}

/// A constant that is a text.
pub(super) fn constant(expression: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    expression.downcast_ref::<Literal>()?.value().try_as_str().flatten()
}

/// As Arrow takes them, but for parts.
fn of_like(like: &LikeExpr) -> Option<Matching> {
    let pattern = constant(like.pattern())?;
    let is_plain = |part: &str| !part.contains(['%', '_', '\\']);
    let is_edge = is_plain(pattern)
        || pattern.strip_suffix('%').is_some_and(is_plain)
        || pattern.strip_prefix('%').is_some_and(is_plain);
    let of_regular = |is_folded| {
        let pattern = pattern.to_owned();
        Compiled::by(move || regular_like(&pattern, is_folded))
    };
    let known = if like.case_insensitive() {
        let written = like.pattern().downcast_ref::<Literal>()?.value().clone();
        match is_edge && pattern.is_ascii() {
            true => Pattern::Folded(of_regular(true), written),
            false => Pattern::Regular(of_regular(true)),
        }
    } else {
        let inner = pattern.strip_prefix('%').and_then(|pattern| pattern.strip_suffix('%'));
        if is_edge || inner.is_some_and(is_plain) {
            return None;
        }
        let parts = Parts::of(pattern).filter(|parts| parts.count() >= PARTS_MIN);
        parts.map_or_else(|| Pattern::Regular(of_regular(false)), Pattern::Parts)
    };
    Some(Matching { pattern: known, is_negated: like.negated() })
}

fn of_operator(binary: &BinaryExpr) -> Option<Matching> {
    let (flags, is_negated) = match binary.op() {
        Operator::RegexMatch => (None, false),
        Operator::RegexIMatch => (Some("i"), false),
        Operator::RegexNotMatch => (None, true),
        Operator::RegexNotIMatch => (Some("i"), true),
        _ => return None,
    };
    let pattern = Pattern::Regular(regular(constant(binary.right())?, flags));
    Some(Matching { pattern, is_negated })
}

fn of_function(function: &ScalarFunctionExpr) -> Option<Matching> {
    let [_, pattern, flags @ ..] = function.args() else { return None };
    let flags = match flags {
        [] => None,
        // A flag for all matches is refused as the function is called.
        [flags] => Some(constant(flags).filter(|flags| !flags.contains('g'))?),
        _ => return None,
    };
    if function.fun().name() != "regexp_like" {
        return None;
    }
    let pattern = Pattern::Regular(regular(constant(pattern)?, flags));
    Some(Matching { pattern, is_negated: false })
}

/// A regular expression with flags before it.
pub(super) fn regular(pattern: &str, flags: Option<&str>) -> Compiled<Regex> {
    let pattern = match flags {
        Some(flags) => format!("(?{flags}){pattern}"),
        None => pattern.to_owned(),
    };
    Compiled::by(move || Regex::new(&pattern).ok())
}

/// The regular expression that Arrow takes for a pattern of `LIKE`: `%` at an end is none, and a sign after `\` is itself.
fn regular_like(pattern: &str, is_folded: bool) -> Option<Regex> {
    let rest = pattern.strip_prefix('%');
    let mut regular = String::from(if rest.is_some() { "" } else { "^" });
    let mut signs = rest.unwrap_or(pattern).chars();
    let mut literally = [0; 4];
    let mut has_end = true;
    while let Some(sign) = signs.next() {
        has_end = sign != '%';
        match sign {
            '%' => regular.push_str(".*"),
            '_' => regular.push('.'),
            _ => {
                let sign = if sign == '\\' { signs.next().unwrap_or('\\') } else { sign };
                regular.push_str(&regex::escape(sign.encode_utf8(&mut literally)));
            }
        }
    }
    match has_end {
        true => regular.push('$'),
        false => regular.truncate(regular.len() - ".*".len()),
    }
    let mut regular = RegexBuilder::new(&regular);
    regular.case_insensitive(is_folded).dot_matches_new_line(true).build().ok()
}

/// What holds of each text, those of a dictionary once; nothing of what are no texts.
fn each(texts: &dyn Array, holds: &impl Fn(&str) -> bool) -> Result<Option<BooleanArray>> {
    Ok(Some(match texts.data_type() {
        DataType::Utf8View => BooleanArray::from_unary(texts.as_string_view(), holds),
        DataType::Utf8 => BooleanArray::from_unary(texts.as_string::<i32>(), holds),
        DataType::LargeUtf8 => BooleanArray::from_unary(texts.as_string::<i64>(), holds),
        DataType::Dictionary(..) => {
            let codes = texts.as_any_dictionary();
            let Some(of_values) = each(codes.values().as_ref(), holds)? else { return Ok(None) };
            take(&of_values, codes.keys(), None)?.as_boolean().clone()
        }
        _ => return Ok(None),
    }))
}

fn is_ascii(texts: &dyn Array) -> bool {
    match texts.data_type() {
        DataType::Utf8View => texts.as_string_view().is_ascii(),
        DataType::Utf8 => texts.as_string::<i32>().is_ascii(),
        DataType::LargeUtf8 => texts.as_string::<i64>().is_ascii(),
        DataType::Dictionary(..) => is_ascii(texts.as_any_dictionary().values().as_ref()),
        _ => false,
    }
}

impl OfColumn for Matching {
    fn values(&self, texts: &ArrayRef) -> Result<Option<ArrayRef>> {
        if let Pattern::Folded(_, pattern) = &self.pattern
            && is_ascii(texts)
        {
            let negated = self.is_negated;
            let compare = if negated { Operator::NotILikeMatch } else { Operator::ILikeMatch };
            let (of_rows, pattern) =
                (ColumnarValue::Array(Arc::clone(texts)), ColumnarValue::Scalar(pattern.clone()));
            return apply_cmp(compare, &of_rows, &pattern)?.into_array(texts.len()).map(Some);
        }
        Ok(self.answers(texts)?.map(|answers| Arc::new(answers) as ArrayRef))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use arrow::array::{DictionaryArray, RecordBatch, StringArray, UInt8Array};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, UInt8Type};
    use datafusion::functions::regex::regexp_like;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Letters that fold within ASCII, beyond it, into it from outside, and not at all.
    const LETTERS: [&str; 12] =
        ["a", "A", "k", "K", "\u{212a}", "s", "ſ", "ß", "中", ".", "\n", "("];
    const SIGNS: [&str; 8] = ["%", "%", "_", "\\", "a", "k", "S", "\u{212a}"];
    const REGULAR: [&str; 18] = [
        "a", "k", "ſ", ".", ".*", "^", "$", "[a-k]", "[^a]", "(", ")", "|", "+", "?", "\\w", "\\b",
        "\\n", "中",
    ];

    fn of_any(random: &mut SmallRng, words: &[&'static str], count_max: usize) -> String {
        let count = random.random_range(0..=count_max);
        (0..count).map(|_| words[random.random_range(0..words.len())]).collect()
    }

    /// Some of the letters, of all of ASCII in one of three batches.
    fn texts(random: &mut SmallRng) -> Vec<Option<String>> {
        let letters = match random.random_range(0..3) {
            0 => &["a", "A", "k", "S", ".", "\n"],
            _ => &LETTERS[..],
        };
        let count = random.random_range(0..40);
        let text = |_| (random.random_range(0..6) > 0).then(|| of_any(random, letters, 5));
        (0..count).map(text).collect()
    }

    fn dictionary() -> DataType {
        DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8))
    }

    fn batch(texts: &[Option<String>], data_type: &DataType) -> RecordBatch {
        let plain = StringArray::from_iter(texts);
        let column: ArrayRef = match data_type {
            // Texts twice, NULL by its code and by its value.
            DataType::Dictionary(..) => {
                let codes = (0..2 * texts.len()).map(|row| match row % 7 {
                    0 => None,
                    _ => u8::try_from(row / 2).ok(),
                });
                let codes = codes.collect::<UInt8Array>();
                Arc::new(DictionaryArray::<UInt8Type>::new(codes, Arc::new(plain)))
            }
            _ => cast(&plain, data_type).unwrap(),
        };
        // Part of a column, whose bits begin within a byte.
        let part = column.slice(column.len() / 5, column.len() - column.len() / 5);
        RecordBatch::try_new(Arc::new(schema(data_type)), vec![part]).unwrap()
    }

    fn schema(data_type: &DataType) -> Schema {
        Schema::new(vec![Field::new("s", data_type.clone(), true)])
    }

    /// A text as it stands beside texts of a type.
    fn beside(text: Option<&str>, data_type: &DataType) -> Arc<dyn PhysicalExpr> {
        let plain = ScalarValue::Utf8(text.map(str::to_owned));
        lit(match data_type {
            DataType::Dictionary(..) => plain,
            _ => plain.cast_to(data_type).unwrap(),
        })
    }

    fn like(negated: bool, folded: bool, of: &str, data_type: &DataType) -> Arc<dyn PhysicalExpr> {
        let text = col("s", &schema(data_type)).unwrap();
        Arc::new(LikeExpr::new(negated, folded, text, beside(Some(of), data_type)))
    }

    fn matched(operator: Operator, of: &str, data_type: &DataType) -> Arc<dyn PhysicalExpr> {
        let text = col("s", &schema(data_type)).unwrap();
        Arc::new(BinaryExpr::new(text, operator, beside(Some(of), data_type)))
    }

    fn called(
        pattern: Option<&str>,
        flags: Option<Option<&str>>,
        data_type: &DataType,
    ) -> Arc<dyn PhysicalExpr> {
        let schema = schema(data_type);
        let mut arguments = vec![col("s", &schema).unwrap(), beside(pattern, data_type)];
        arguments.extend(flags.map(|flags| beside(flags, data_type)));
        let function =
            ScalarFunctionExpr::try_new(regexp_like(), arguments, &schema, Arc::default());
        Arc::new(function.unwrap())
    }

    fn answer(of: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let answer = of.evaluate(batch).and_then(|answer| answer.into_array(batch.num_rows()));
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn answers_and_errors_are_those_of_datafusion() {
        let (mut ours_count, mut error_count) = (0, 0);
        let mut random = SmallRng::seed_from_u64(7);
        let data_types = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View, dictionary()];
        for _ in 0..4000 {
            let data_type = &data_types[random.random_range(0..data_types.len())];
            let negated = random.random();
            let planned = match random.random_range(0..4) {
                0 => like(negated, false, &of_any(&mut random, &SIGNS, 6), data_type),
                1 => like(negated, true, &of_any(&mut random, &SIGNS, 6), data_type),
                2 => {
                    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
                    let of = [RegexMatch, RegexIMatch, RegexNotMatch, RegexNotIMatch];
                    let operator = of[random.random_range(0..of.len())];
                    matched(operator, &of_any(&mut random, &REGULAR, 6), data_type)
                }
                _ => {
                    let pattern = of_any(&mut random, &REGULAR, 6);
                    let pattern = random.random_bool(0.95).then_some(&pattern[..]);
                    let flags = ["", "i", "s", "m", "is", "ig", "z"];
                    let flags = random.random_bool(0.9).then(|| flags[random.random_range(0..7)]);
                    let flags = random.random_bool(0.8).then_some(flags);
                    called(pattern, flags, data_type)
                }
            };
            let Some(ours) = ours(&planned, &schema(data_type)).unwrap() else { continue };
            assert_eq!(ours.to_string(), planned.to_string());
            for _ in 0..2 {
                let batch = batch(&texts(&mut random), data_type);
                let expected = answer(&planned, &batch);
                error_count += usize::from(expected.is_err());
                ours_count += usize::from(expected.is_ok());
                assert_eq!(answer(&ours, &batch), expected, "{planned} of {batch:?}");
            }
        }
        assert!(ours_count > 3000 && error_count > 500, "{ours_count} {error_count}");
    }

    #[test]
    fn patterns_for_which_arrow_compiles_nothing_are_left_to_it() {
        let is_ours = |planned: Arc<dyn PhysicalExpr>| {
            ours(&planned, &schema(&DataType::Utf8View)).unwrap().is_some()
        };
        let view = &DataType::Utf8View;
        for pattern in ["", "a", "%", "a%", "%a", "%a%", "%%"] {
            assert!(!is_ours(like(false, false, pattern, view)), "{pattern}");
        }
        for pattern in ["_", "a_%", "a\\%", "a%b", "%a%b%", "\\", "a%%"] {
            assert!(is_ours(like(false, false, pattern, view)), "{pattern}");
        }
        let texts = || col("s", &schema(view)).unwrap();
        let by_column = LikeExpr::new(false, false, texts(), texts());
        let by_null = BinaryExpr::new(texts(), Operator::RegexMatch, beside(None, view));
        let text = lit(ScalarValue::Utf8View(Some("a".to_owned())));
        let equal = binary(texts(), Operator::Eq, text, &schema(view)).unwrap();
        let others = [Arc::new(by_column) as _, Arc::new(by_null) as _, equal];
        assert!(!others.into_iter().any(is_ours));
        assert!(!is_ours(called(Some("a"), Some(Some("g")), view)));
    }

    #[test]
    fn a_pattern_is_compiled_once_for_all_batches_and_threads() {
        let view = &DataType::Utf8View;
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let compiled = Compiled::by(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Regex::new("a.k").ok()
        });
        let planned = matched(Operator::RegexMatch, "a.k", view);
        let pattern = Pattern::Regular(compiled);
        let ours = CompiledExpr::over(&planned, Matching { pattern, is_negated: false });
        let batch = batch(&["ask", "no", "ark"].map(|text| Some(text.to_owned())), view);
        let expected: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
        let again = Arc::clone(&ours)
            .with_new_children(vec![col("s", &schema(view)).unwrap(), beside(Some("a.k"), view)]);
        for of in [ours, again.unwrap()] {
            assert_eq!(answer(&of, &batch).as_ref(), Ok(&expected));
            assert_eq!(answer(&of, &batch).as_ref(), Ok(&expected));
            thread::scope(|scope| scope.spawn(|| answer(&of, &batch)).join().unwrap()).unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn another_pattern_in_its_place_is_another_expression() {
        let view = &DataType::Utf8View;
        let planned = like(false, false, "a_k", view);
        let ours = ours(&planned, &schema(view)).unwrap().unwrap();
        let children = vec![col("s", &schema(view)).unwrap(), beside(Some("n_"), view)];
        let other = ours.with_new_children(children).unwrap();
        let batch = batch(&["ask", "no"].map(|text| Some(text.to_owned())), view);
        let expected: ArrayRef = Arc::new(BooleanArray::from(vec![false, true]));
        assert_eq!(answer(&other, &batch), Ok(expected));
    }
}
