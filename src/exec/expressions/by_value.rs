//! Expressions of one column, computed once for each of its values: texts that are codes have few, and so have many columns of days
//! and of numbers.
//!
//! ```text
//! numbers ─ how far above the least ─ results of values that were met before
//!                                └─── others: the expression, once for each
//! codes ─ results of the texts that they stand for
//! ```
//!
//! Where values are many, and where one fails, the expression is computed for the rows as it is.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, DictionaryArray, Int64Array, PrimitiveArray,
    RecordBatch, UInt32Array, new_null_array,
};
use arrow::compute::{concat, max, min, take};
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, DataType, Field, Schema, SchemaRef, UInt8Type,
};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::{Column, LambdaExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;

use super::of_column::CompiledExpr;
use super::over_columns;
use crate::encoding::{
    as_they_are, decoded, encoded, for_whole_numbers, has_plain_texts, shared_codes,
};

/// Values of which results are kept.
const VALUES_MAX: usize = 1 << 12;

/// Numbers from the least to the greatest.
const SPAN_MAX: usize = 1 << 14;

/// Nodes of an expression, of which each is looked at for each that holds it: of a longer one the parts are taken.
const NODES_MAX: usize = 128;

/// Rows of a batch below which there is nothing to gain.
const ROWS_MIN: usize = 256;

/// Batches of too many values, after which numbers are not looked at any more.
const TRIES: usize = 8;

/// Expressions in which those of one column that are worth it are computed by value.
///
/// # Errors
/// None but DataFusion's, for an expression that does not fit the schema.
pub(super) fn with_values(
    expression: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_down(|node| {
        if node.is::<ByValueExpr>() || node.is::<LambdaExpr>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        Ok(match ByValueExpr::of(&node, schema)? {
            Some(by_value) => Transformed::new(Arc::new(by_value), true, TreeNodeRecursion::Jump),
            None => Transformed::no(node),
        })
    })
}

/// The expression; see the header of this file.
#[derive(Debug)]
pub(super) struct ByValueExpr {
    /// As it is computed for rows, which says all there is to know of it.
    planned: Arc<dyn PhysicalExpr>,
    /// The column that it reads.
    at: usize,
    /// Rows of that column alone, and the expression over these.
    of_value: SchemaRef,
    over_value: Arc<dyn PhysicalExpr>,
    /// Whether texts may be packed.
    reads_packed: bool,
    numbers: Mutex<Arc<OfNumbers>>,
    texts: Mutex<OfTexts>,
}

/// What comes of numbers that were met.
#[derive(Debug, Clone, Default)]
struct OfNumbers {
    least: i64,
    /// By how far they are above the least, the places of their results, counted from 1.
    places: Vec<u32>,
    /// That of NULL.
    of_null: u32,
    /// None before any.
    results: Option<Results>,
    /// Batches of too many values.
    tries: usize,
}

/// What comes of the texts of a dictionary.
#[derive(Debug, Default)]
struct OfTexts {
    /// The dictionary that was seen last: who keeps an expression keeps none.
    dictionary: Option<Weak<dyn Array>>,
    /// Rows that were asked for.
    rows: usize,
    /// Of its texts, and last of NULL; none where they are too many for the rows, or one fails.
    results: Option<Results>,
}

/// Results, and the same as codes of those that differ, where they are few texts.
#[derive(Debug, Clone)]
struct Results {
    all: ArrayRef,
    codes: Option<ArrayRef>,
}

impl Results {
    fn of(all: ArrayRef) -> Self {
        let is_text = *all.data_type() == DataType::Utf8View && all.len() <= VALUES_MAX;
        let codes = is_text.then(|| encoded(&all));
        let codes = codes.filter(|codes| codes.as_dictionary_opt::<UInt8Type>().is_some());
        Self { all, codes }
    }

    fn taken(&self, places: &UInt32Array, as_codes: bool) -> Result<ArrayRef> {
        let of = self.codes.as_ref().filter(|_| as_codes).unwrap_or(&self.all);
        Ok(take(of, places, None)?)
    }
}

impl ByValueExpr {
    /// The same expression by value; none where it reads not one column alone, or where a look at a result takes as long as it does.
    fn of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        if !is_short(expression)? {
            return Ok(None);
        }
        let columns = collect_columns(expression);
        let mut columns = columns.iter();
        let (Some(column), None) = (columns.next(), columns.next()) else { return Ok(None) };
        let at = column.index();
        if expression.is::<Column>() || at >= schema.fields().len() || is_volatile(expression) {
            return Ok(None);
        }
        // A parameter of a lambda is a place behind the columns of the rows that it is called beside, which are others here.
        if expression.exists(|node| Ok(node.is::<LambdaExpr>()))? {
            return Ok(None);
        }
        let field = schema.field(at);
        if !is_worth_it(expression, field.data_type(), schema)? {
            return Ok(None);
        }
        let field = Field::new(field.name(), field.data_type().clone(), true);
        Ok(Some(Self {
            planned: Arc::clone(expression),
            at,
            of_value: Arc::new(Schema::new(vec![field])),
            over_value: over_columns(expression, &[at])?,
            reads_packed: reads_packed(expression),
            numbers: Mutex::default(),
            texts: Mutex::default(),
        }))
    }

    /// Its values for rows whose columns may be encoded; texts of which few differ are codes of these.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn encoded(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        let column = rows.column(self.at);
        if let Some(values) = self.by_value(column, true)? {
            return Ok(values);
        }
        match self.reads_packed && has_plain_texts(column) {
            true => self.computed(column),
            false => self.computed(&decoded(column, self.of_value.field(0).data_type())?),
        }
    }

    /// Its values by those of a column; none where they are to be computed for each row.
    fn by_value(&self, column: &ArrayRef, as_codes: bool) -> Result<Option<ArrayRef>> {
        if let Some(codes) = column.as_dictionary_opt::<UInt8Type>() {
            return self.of_texts(codes, as_codes);
        }
        if let Some(codes) = shared_codes(column) {
            return self.of_texts(codes, as_codes);
        }
        if column.len() < ROWS_MIN {
            return Ok(None);
        }
        for_whole_numbers!(
            column.data_type(),
            numbers(self, column.as_ref(), as_codes),
            _other => Ok(None)
        )
    }

    fn computed(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let rows = as_they_are(&self.of_value, vec![Arc::clone(values)], values.len())?;
        self.over_value.evaluate(&rows)?.into_array(values.len())
    }

    fn of_texts<K: ArrowDictionaryKeyType>(
        &self,
        codes: &DictionaryArray<K>,
        as_codes: bool,
    ) -> Result<Option<ArrayRef>> {
        let own = self.of_value.field(0).data_type();
        let (keys, values) = (codes.keys(), codes.values());
        // A column whose own type is a dictionary is no other column's codes.
        if values.data_type() != own || values.len() > VALUES_MAX {
            return Ok(None);
        }
        let Some(results) = self.results_of(values, keys.len())? else { return Ok(None) };
        let null = values.len() as u32;
        let place = |key: Option<K::Native>| key.map_or(null, |key| key.as_usize() as u32);
        let places = match keys.null_count() {
            0 => keys.values().iter().map(|key| place(Some(*key))).collect::<UInt32Array>(),
            _ => keys.iter().map(place).collect(),
        };
        results.taken(&places, as_codes).map(Some)
    }

    /// What comes of the texts of a dictionary, where it has no more than there are rows to be asked for.
    fn results_of(&self, dictionary: &ArrayRef, rows: usize) -> Result<Option<Results>> {
        let mut known = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let last = known.dictionary.as_ref().and_then(Weak::upgrade);
        if !last.is_some_and(|last| Arc::ptr_eq(&last, dictionary)) {
            *known = OfTexts { dictionary: Some(Arc::downgrade(dictionary)), ..OfTexts::default() };
        }
        let before = known.rows;
        known.rows = known.rows.saturating_add(rows);
        // It may fail for a text that no row has, and would again.
        if before < dictionary.len() && known.rows >= dictionary.len() {
            let null = new_null_array(dictionary.data_type(), 1);
            let all = concat(&[dictionary, &null])?;
            known.results = self.computed(&all).ok().map(Results::of);
        }
        Ok(known.results.clone())
    }

    /// Its values of a column of numbers that lie near each other.
    fn of_numbers<P: ArrowPrimitiveType<Native: Into<i128>>>(
        &self,
        column: &PrimitiveArray<P>,
        as_codes: bool,
    ) -> Result<Option<ArrayRef>> {
        let mut known = Arc::clone(&self.numbers.lock().unwrap_or_else(PoisonError::into_inner));
        if known.tries >= TRIES {
            return Ok(None);
        }
        if known.places_of(column).is_none() {
            let mut current = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut wider = OfNumbers::clone(&current);
            if wider.add(column, |values| self.of_values(values)).is_none() {
                wider = OfNumbers { tries: current.tries + 1, ..OfNumbers::clone(&current) };
            }
            *current = Arc::new(wider);
            known = Arc::clone(&current);
        }
        match (known.places_of(column), &known.results) {
            (Some(places), Some(results)) => {
                results.taken(&UInt32Array::from(places), as_codes).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What comes of these numbers in the column's own unit; none where one fails.
    fn of_values(&self, values: Vec<Option<i64>>) -> Option<ArrayRef> {
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        let own = self.of_value.field(0).data_type();
        let values = decoded(&encoded(&values), own).ok()?;
        self.computed(&values).ok()
    }
}

/// Dispatches to the type of a column.
fn numbers<P: ArrowPrimitiveType<Native: Into<i128>>>(
    of: &ByValueExpr,
    column: &dyn Array,
    as_codes: bool,
) -> Result<Option<ArrayRef>> {
    column.as_primitive_opt::<P>().map_or(Ok(None), |column| of.of_numbers(column, as_codes))
}

impl OfNumbers {
    /// The places of the results of a column, counted from 0; none where a value has none.
    fn places_of<P: ArrowPrimitiveType<Native: Into<i128>>>(
        &self,
        column: &PrimitiveArray<P>,
    ) -> Option<Vec<u32>> {
        let least = i128::from(self.least);
        let place = |value: P::Native| {
            let above = value.into().wrapping_sub(least) as u128;
            let above = usize::try_from(above).unwrap_or(usize::MAX);
            self.places.get(above).copied().unwrap_or_default()
        };
        let mut are_all = true;
        let mut known = |place: u32| {
            are_all &= place != 0;
            place.wrapping_sub(1)
        };
        let places: Vec<u32> = match column.null_count() {
            0 => column.values().iter().map(|&value| known(place(value))).collect(),
            _ => column.iter().map(|value| known(value.map_or(self.of_null, place))).collect(),
        };
        are_all.then_some(places)
    }

    /// Adds the values of a column that have not been met; none where they are too many, or one fails.
    fn add<P: ArrowPrimitiveType<Native: Into<i128>>>(
        &mut self,
        column: &PrimitiveArray<P>,
        results: impl Fn(Vec<Option<i64>>) -> Option<ArrayRef>,
    ) -> Option<()> {
        self.widen(min(column)?.into(), max(column)?.into())?;
        let met = self.results.as_ref().map_or(0, |results| results.all.len());
        let mut new = Vec::new();
        for value in column {
            let place = match value {
                // Within the span, which begins at the least.
                Some(value) => {
                    self.places.get_mut((value.into() - i128::from(self.least)) as usize)?
                }
                None => &mut self.of_null,
            };
            if *place == 0 {
                new.push(value.map(|value| value.into() as i64));
                *place = (met + new.len()) as u32;
            }
        }
        if met + new.len() > VALUES_MAX || new.len() > column.len() / 2 {
            return None;
        }
        let new = results(new)?;
        let all = match &self.results {
            Some(before) => concat(&[&before.all, &new]).ok()?,
            None => new,
        };
        self.results = Some(Results::of(all));
        Some(())
    }

    /// Makes room for numbers between these ends; none where that is too much.
    fn widen(&mut self, least: i128, greatest: i128) -> Option<()> {
        let (mut from, mut to) = (i64::try_from(least).ok()?, i64::try_from(greatest).ok()?);
        if let Some(last) = self.places.len().checked_sub(1) {
            from = from.min(self.least);
            to = to.max(self.least + last as i64);
        }
        let span = usize::try_from(to.checked_sub(from)?).ok()?.checked_add(1)?;
        if span > SPAN_MAX {
            return None;
        }
        let mut places = vec![0; span];
        let before = if self.places.is_empty() { 0 } else { (self.least - from) as usize };
        places[before..before + self.places.len()].copy_from_slice(&self.places);
        (self.least, self.places) = (from, places);
        Some(())
    }
}

/// Whether an expression has few nodes.
fn is_short(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let mut nodes = 0;
    expression.apply(|_| {
        nodes += 1;
        let is_long = nodes > NODES_MAX;
        Ok(if is_long { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(nodes <= NODES_MAX)
}

/// Whether an expression asks of its column nothing but what packed texts tell.
fn reads_packed(expression: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(compiled) = expression.downcast_ref::<CompiledExpr>() {
        return compiled.reads_packed();
    }
    !expression.is::<Column>() && expression.children().into_iter().all(reads_packed)
}

/// Whether an expression of a column of this type takes longer than to look its result up: any of a text; of days functions, and of
/// numbers what makes texts of them.
fn is_worth_it(
    expression: &Arc<dyn PhysicalExpr>,
    column: &DataType,
    schema: &Schema,
) -> Result<bool> {
    let is_whole = matches!(column, DataType::Date32 | DataType::Decimal128(..))
        || column.is_integer() && *column != DataType::UInt64;
    let mut is_worth_it = matches!(column, DataType::Utf8View | DataType::Utf8);
    if !is_worth_it && is_whole {
        expression.apply(|node| {
            let is_function = *column == DataType::Date32 && node.is::<ScalarFunctionExpr>();
            is_worth_it |= is_function || node.data_type(schema)?.is_string();
            Ok(if is_worth_it { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
    }
    Ok(is_worth_it)
}

super::known_as_planned!(ByValueExpr);

impl PhysicalExpr for ByValueExpr {
    super::as_planned!();

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        // A choice asks of rows without a column whether it may be NULL.
        if let Some(column) = batch.columns().get(self.at)
            && let Some(values) = self.by_value(column, false)?
        {
            return Ok(ColumnarValue::Array(values));
        }
        self.planned.evaluate(batch)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        // Whoever changes what is below it may read another column.
        Arc::clone(&self.planned).with_new_children(children)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Decimal128Array, StringViewArray};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, cast, col, lit};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn by_value(
        own: &DataType,
        expression: impl Fn(Arc<dyn PhysicalExpr>, &Schema) -> Arc<dyn PhysicalExpr>,
    ) -> (Arc<dyn PhysicalExpr>, ByValueExpr) {
        let fields = [("other", DataType::Int64), ("value", own.clone())];
        let schema = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec());
        let expression = expression(col("value", &schema).unwrap(), &schema);
        let by_value = ByValueExpr::of(&expression, &schema).unwrap().unwrap();
        (expression, by_value)
    }

    fn spelled(column: Arc<dyn PhysicalExpr>, schema: &Schema) -> Arc<dyn PhysicalExpr> {
        cast(column, schema, DataType::Utf8View).unwrap()
    }

    /// Fails for what is no number.
    fn read(column: Arc<dyn PhysicalExpr>, schema: &Schema) -> Arc<dyn PhysicalExpr> {
        cast(column, schema, DataType::Int64).unwrap()
    }

    fn rows(value: &ArrayRef) -> RecordBatch {
        let other: ArrayRef = Arc::new(Int64Array::from_iter_values(0..value.len() as i64));
        RecordBatch::try_from_iter([("other", other), ("value", Arc::clone(value))]).unwrap()
    }

    /// Both forms of the values are those that the expression has for the rows.
    fn compared(planned: &Arc<dyn PhysicalExpr>, by_value: &ByValueExpr, value: &ArrayRef) {
        let expected = planned.evaluate(&rows(value)).unwrap().into_array(value.len()).unwrap();
        let plain = by_value.evaluate(&rows(value)).unwrap().into_array(value.len()).unwrap();
        assert_eq!(&plain, &expected);
        for value in [Arc::clone(value), encoded(value)] {
            let values = by_value.encoded(&rows(&value)).unwrap();
            assert_eq!(&decoded(&values, expected.data_type()).unwrap(), &expected);
        }
    }

    fn results(by_value: &ByValueExpr) -> usize {
        let known = by_value.numbers.lock().unwrap();
        known.results.as_ref().map_or(0, |results| results.all.len())
    }

    #[test]
    fn of_a_long_expression_the_parts_are_taken() {
        let schema = Schema::new(vec![Field::new("value", DataType::Utf8View, true)]);
        let value = || col("value", &schema).unwrap();
        let is_one = |of: usize| binary(value(), Operator::Eq, lit(format!("{of}")), &schema);
        let either = |one, other| binary(one, Operator::Or, other, &schema).unwrap();
        for (alternatives, is_short) in [(10, true), (100, false)] {
            let alternatives = (0..alternatives).map(|of| is_one(of).unwrap());
            let planned = alternatives.reduce(either).unwrap();
            let ours = with_values(Arc::clone(&planned), &schema).unwrap().data;
            assert_eq!(ours.is::<ByValueExpr>(), is_short);
            assert!(ours.exists(|node| Ok(node.is::<ByValueExpr>())).unwrap());
            assert_eq!(ours.to_string(), planned.to_string());
        }
    }

    #[test]
    fn numbers_and_days_are_computed_once_for_each_value() {
        let random = &mut SmallRng::seed_from_u64(56);
        let mut numbers = |from: i64, values: i64, nulls: f64| -> Vec<Option<i64>> {
            let number = |_| {
                let number = from + 7 * random.random_range(0..values);
                (!random.random_bool(nulls)).then_some(number)
            };
            (0..2000).map(number).collect()
        };
        let whole = |of: Vec<Option<i64>>| Arc::new(Int64Array::from(of)) as ArrayRef;
        let days = |of: Vec<Option<i64>>| {
            let days = of.into_iter().map(|of| of.map(|of| of as i32));
            Arc::new(days.collect::<Date32Array>()) as ArrayRef
        };
        let decimals = |of: Vec<Option<i64>>| {
            let decimals: Decimal128Array = of.into_iter().map(|of| of.map(i128::from)).collect();
            Arc::new(decimals.with_precision_and_scale(15, 2).unwrap()) as ArrayRef
        };
        let makers: [&dyn Fn(Vec<Option<i64>>) -> ArrayRef; 3] = [&whole, &days, &decimals];
        for make in makers {
            let first = make(numbers(-100, 30, 0.0));
            let (planned, by_value) = by_value(first.data_type(), spelled);
            compared(&planned, &by_value, &first);
            assert_eq!(results(&by_value), 30);
            // As codes, for they are few texts.
            let values = by_value.encoded(&rows(&first)).unwrap();
            assert!(values.as_dictionary_opt::<UInt8Type>().is_some());
            // Before the least, beyond the greatest, and NULL.
            compared(&planned, &by_value, &make(numbers(-310, 60, 0.1)));
            assert_eq!(results(&by_value), 61);
            compared(&planned, &by_value, &first.slice(77, 1000));
            compared(&planned, &by_value, &make(vec![None; 2000]));
            assert_eq!(results(&by_value), 61);
        }
    }

    #[test]
    fn many_values_are_computed_for_the_rows() {
        let (planned, by_value) = by_value(&DataType::Int64, spelled);
        let column = |step: i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..2000).map(|row| (row % 40) * step)))
        };
        compared(&planned, &by_value, &column(3));
        assert_eq!(results(&by_value), 40);
        // What is far apart is not looked up, nor what is far out.
        compared(&planned, &by_value, &column(100_000));
        compared(&planned, &by_value, &column(i64::MAX / 40));
        assert_eq!(results(&by_value), 40);
        compared(&planned, &by_value, &column(3));
        // Nor anything, after a while.
        for _ in 0..TRIES {
            let all: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2000));
            compared(&planned, &by_value, &all);
        }
        let tries = by_value.numbers.lock().unwrap().tries;
        assert_eq!((tries, results(&by_value)), (TRIES, 40));
        compared(&planned, &by_value, &column(3));
        assert!(by_value.by_value(&column(3), false).unwrap().is_none());
    }

    #[test]
    fn texts_that_are_codes_are_computed_once() {
        let texts = |of: &[Option<&str>]| -> ArrayRef {
            Arc::new((0..1000).map(|row| of[row % of.len()]).collect::<StringViewArray>())
        };
        let is_long = |column, schema: &Schema| {
            let bound = lit(ScalarValue::Utf8View(Some("17".to_owned())));
            binary(column, Operator::Gt, bound, schema).unwrap()
        };
        for text in [spelled_again, read, is_long] {
            let (planned, by_value) = by_value(&DataType::Utf8View, text);
            compared(&planned, &by_value, &texts(&[Some("7"), Some("12"), None, Some("345")]));
            assert!(by_value.texts.lock().unwrap().results.is_some());
            compared(&planned, &by_value, &texts(&[Some("8")]));
        }
    }

    /// A text of a text, of which two may be one.
    fn spelled_again(column: Arc<dyn PhysicalExpr>, schema: &Schema) -> Arc<dyn PhysicalExpr> {
        let number = cast(column, schema, DataType::Int64).unwrap();
        let half = binary(number, Operator::Divide, lit(10_i64), schema).unwrap();
        cast(half, schema, DataType::Utf8View).unwrap()
    }

    #[test]
    fn what_fails_for_a_text_that_no_row_has_fails_nobody() {
        let (_, by_value) = by_value(&DataType::Utf8View, read);
        let all: ArrayRef = Arc::new(StringViewArray::from_iter_values(
            (0..600).map(|row| if row == 599 { "no number" } else { ["4", "5"][row % 2] }),
        ));
        let codes = encoded(&all);
        let values = by_value.encoded(&rows(&codes.slice(0, 599))).unwrap();
        assert_eq!(values.null_count(), 0);
        assert!(by_value.encoded(&rows(&codes)).is_err());
        assert!(by_value.evaluate(&RecordBatch::new_empty(Arc::new(Schema::empty()))).is_err());
        assert!(by_value.encoded(&rows(&codes.slice(0, 599))).is_ok());
    }

    #[test]
    fn only_what_takes_longer_than_a_look_is_looked_up() {
        let fields = [("a", DataType::Int64), ("s", DataType::Utf8View), ("d", DataType::Date32)];
        let schema = Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec());
        let is_by_value = |expression: Arc<dyn PhysicalExpr>| {
            let with_values = with_values(expression, &schema).unwrap();
            let mut any = false;
            let walked = with_values.data.apply(|node| {
                any |= node.is::<ByValueExpr>();
                Ok(TreeNodeRecursion::Continue)
            });
            walked.unwrap();
            assert_eq!(any, with_values.transformed);
            any
        };
        let column = |name: &str| col(name, &schema).unwrap();
        let both = |left, operator, right| binary(left, operator, right, &schema).unwrap();
        assert!(!is_by_value(column("s")) && !is_by_value(lit(5_i64)));
        assert!(!is_by_value(both(column("a"), Operator::Plus, lit(5_i64))));
        assert!(is_by_value(both(column("s"), Operator::Eq, lit("x"))));
        assert!(is_by_value(spelled(column("d"), &schema)));
        // Within another one, too.
        let equal = both(spelled(column("a"), &schema), Operator::Eq, column("s"));
        assert!(is_by_value(equal));
    }
}
