//! `regexp_replace` whose pattern, replacement and flags are constants.
//!
//! Enters: the call as DataFusion has planned it, which compiles the pattern again for each batch. Leaves: the same, whose pattern
//! is compiled once. Not here: a pattern that cannot be compiled, of which DataFusion says what is wrong.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericStringBuilder, OffsetSizeTrait, StringViewBuilder,
};
use arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use regex::{CaptureLocations, Regex};

use super::compiled::Compiled;
use super::of_column::{CompiledExpr, OfColumn};
use super::patterns::{constant, is_text};

/// The expression that is a call with constants.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn ours(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let planned = expression.downcast_ref::<ScalarFunctionExpr>();
    let Some(call) = planned.filter(|call| call.fun().name() == "regexp_replace") else {
        return Ok(None);
    };
    let Some(constants) = call.args()[1..].iter().map(constant).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let (pattern, with, flags) = match constants[..] {
        [pattern, with] => (pattern, with, None),
        [pattern, with, flags] => (pattern, with, Some(flags)),
        _ => return Ok(None),
    };
    // The answer has the type of the text.
    let data_type = call.args()[0].data_type(schema)?;
    if !is_text(&data_type) || *call.return_type() != data_type {
        return Ok(None);
    }
    let constants = (pattern.to_owned(), with.to_owned(), flags.map(str::to_owned));
    let replacement = Compiled::by(move || {
        let (pattern, with, flags) = constants;
        Replacement::of(&pattern, &with, flags.as_deref())
    });
    Ok(Some(CompiledExpr::over(expression, replacement)))
}

/// What is replaced by what.
#[derive(Clone)]
struct Replacement {
    regular: Regex,
    /// Without what follows up to the end of a line, where all that is kept is the first group.
    beginning: Option<Regex>,
    with: String,
    is_of_all: bool,
}

impl Replacement {
    fn of(pattern: &str, with: &str, flags: Option<&str>) -> Option<Self> {
        let is_of_all = flags.is_some_and(|flags| flags.contains('g'));
        let pattern = match flags {
            None | Some("g") => pattern.to_owned(),
            Some(flags) => format!("(?{}){pattern}", flags.replace('g', "")),
        };
        let regular = Regex::new(&pattern).ok()?;
        let with = Regex::new(r"\\{1,2}(\d+)").ok()?.replace_all(with, "$${$1}").into_owned();
        let beginning = pattern.strip_suffix(".*$").filter(|_| pattern.starts_with('^'));
        let beginning = beginning.filter(|_| !is_of_all && with == "${1}");
        let beginning = beginning.and_then(|beginning| Regex::new(beginning).ok());
        let beginning = beginning.filter(|beginning| beginning.captures_len() == 2);
        Some(Self { regular, beginning, with, is_of_all })
    }

    /// Texts as they are then; nothing of what are no texts.
    fn of_texts(&self, texts: &dyn Array) -> Option<ArrayRef> {
        Some(match texts.data_type() {
            DataType::Utf8View => {
                let mut replaced = StringViewBuilder::with_capacity(texts.len());
                self.each(texts.as_string_view().iter(), |text| replaced.append_option(text));
                Arc::new(replaced.finish())
            }
            DataType::Utf8 => self.of_offsets::<i32>(texts),
            DataType::LargeUtf8 => self.of_offsets::<i64>(texts),
            _ => return None,
        })
    }

    fn of_offsets<O: OffsetSizeTrait>(&self, texts: &dyn Array) -> ArrayRef {
        let texts = texts.as_string::<O>();
        let ends = texts.value_offsets();
        let bytes = (ends[texts.len()] - ends[0]).as_usize();
        let mut replaced = GenericStringBuilder::<O>::with_capacity(texts.len(), bytes);
        self.each(texts.iter(), |text| replaced.append_option(text));
        Arc::new(replaced.finish())
    }

    fn each<'t>(
        &self,
        texts: impl Iterator<Item = Option<&'t str>>,
        mut append: impl FnMut(Option<&str>),
    ) {
        let mut groups = self.beginning.as_ref().map(Regex::capture_locations);
        for text in texts {
            let replaced = text.map(|text| self.of_text(text, groups.as_mut()));
            append(replaced.as_deref());
        }
    }

    fn of_text<'t>(&self, text: &'t str, groups: Option<&mut CaptureLocations>) -> Cow<'t, str> {
        if let (Some(beginning), Some(groups)) = (&self.beginning, groups) {
            let Some(found) = beginning.captures_read(groups, text) else { return text.into() };
            // Another line is not matched by what follows.
            if !text[found.end()..].contains('\n') {
                return groups.get(1).map_or("", |(start, end)| &text[start..end]).into();
            }
        }
        match self.is_of_all {
            true => self.regular.replace_all(text, self.with.as_str()),
            false => self.regular.replace(text, self.with.as_str()),
        }
    }
}

impl OfColumn for Compiled<Replacement> {
    fn values(&self, texts: &ArrayRef) -> Result<Option<ArrayRef>> {
        Ok(self.own().and_then(|replacement| replacement.of_texts(texts.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{RecordBatch, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::functions::regex::regexp_replace;
    use datafusion::physical_expr::expressions::{col, lit};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const LETTERS: [&str; 8] = ["a", "b", "B", "/", "ß", "中", "\n", "\\"];
    const PATTERNS: [&str; 12] = [
        "^([^/]+)/.*$",
        "^(a|b)?.*$",
        "^a.*$",
        "^(a)(b).*$",
        "(a)|(b)",
        "a*",
        "",
        "[aß]",
        "^(?:a|中)(b*).*$",
        "(",
        "^(.*$",
        "(?P<n>b)/",
    ];
    const WITH: [&str; 8] = [r"\1", r"\\1", "$1", "", "x", r"<\2-\1>", "${n}", r"\0\0"];
    const FLAGS: [Option<&str>; 7] =
        [None, Some(""), Some("g"), Some("i"), Some("gi"), Some("s"), Some("q")];

    fn texts(random: &mut SmallRng, data_type: &DataType) -> RecordBatch {
        let text = |random: &mut SmallRng| -> String {
            let count = random.random_range(0..7);
            (0..count).map(|_| LETTERS[random.random_range(0..LETTERS.len())]).collect()
        };
        let count = random.random_range(0..20);
        let texts = (0..count).map(|_| random.random_bool(0.8).then(|| text(random)));
        let texts = cast(&texts.collect::<StringArray>(), data_type).unwrap();
        let part = texts.slice(texts.len() / 4, texts.len() - texts.len() / 4);
        RecordBatch::try_new(Arc::new(schema(data_type)), vec![part]).unwrap()
    }

    fn schema(data_type: &DataType) -> Schema {
        Schema::new(vec![Field::new("s", data_type.clone(), true)])
    }

    fn called(constants: &[&str], data_type: &DataType) -> Arc<dyn PhysicalExpr> {
        let schema = schema(data_type);
        let constant = |text: &&str| {
            lit(ScalarValue::Utf8(Some((*text).to_owned())).cast_to(data_type).unwrap())
        };
        let mut arguments = vec![col("s", &schema).unwrap()];
        arguments.extend(constants.iter().map(constant));
        let call =
            ScalarFunctionExpr::try_new(regexp_replace(), arguments, &schema, Arc::default());
        Arc::new(call.unwrap())
    }

    fn answer(of: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let answer = of.evaluate(batch).and_then(|answer| answer.into_array(batch.num_rows()));
        answer.map_err(|error| error.to_string())
    }

    #[test]
    fn replaced_texts_and_errors_are_those_of_datafusion() {
        let mut random = SmallRng::seed_from_u64(5);
        for pattern in PATTERNS {
            for with in WITH {
                for flags in FLAGS {
                    for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
                        let constants: Vec<_> =
                            [Some(pattern), Some(with), flags].into_iter().flatten().collect();
                        let planned = called(&constants, &data_type);
                        let ours = ours(&planned, &schema(&data_type)).unwrap().unwrap();
                        assert_eq!(ours.to_string(), planned.to_string());
                        let batch = texts(&mut random, &data_type);
                        let expected = answer(&planned, &batch);
                        assert_eq!(answer(&ours, &batch), expected, "{planned} of {batch:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_replaced_is_compiled_once_for_all_batches() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let replacement = Compiled::by(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Replacement::of("(a)|(b)", r"<\1>", Some("g"))
        });
        let view = &DataType::Utf8View;
        let planned = called(&["(a)|(b)", r"<\1>", "g"], view);
        let expression = CompiledExpr::over(&planned, replacement);
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..3 {
            answer(&expression, &texts(&mut random, view)).unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
