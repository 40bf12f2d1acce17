//! A condition without whose rows whoever asks for them can do: step by step, on the columns that each step is about.
//!
//! What is found out here saves reading the rest; whoever asked looks at the condition again. So a step that keeps most
//! rows is given up until an operator narrows it, and one that cannot be computed keeps all. A step about one column of texts that are of a
//! dictionary of few values is computed for these, once, and rows are kept by their codes. Numbers may be encoded.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, RecordBatch, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::{is_volatile, snapshot_generation};

use crate::encoding;

/// Windows in which a step may keep most rows before it is given up: to look at it costs time.
const TRIES: usize = 8;

/// What EXPLAIN ANALYZE calls rows that a scan has passed over by what it knows of a condition.
pub(crate) const ROWS_DROPPED: &str = "rows_dropped";

/// One of the conditions that all rows must meet.
pub(crate) struct Step {
    expression: Arc<dyn PhysicalExpr>,
    /// The places of its columns among those that are read.
    pub(crate) places: Vec<usize>,
    /// Those columns, as the expression counts them.
    schema: SchemaRef,
    /// Windows of which it has kept most rows, since it last did not.
    kept: usize,
    /// The state in which it was computed last.
    generation: u64,
    /// What it says of the dictionary that was seen last.
    of_values: Option<OfValues>,
}

/// What a step says of the values of a dictionary.
struct OfValues {
    values: ArrayRef,
    /// Which state of the step said it: an operator may narrow it.
    generation: u64,
    /// Rows that have been asked for.
    rows: usize,
    /// Which values meet it, and last whether NULL does.
    met: Option<Vec<bool>>,
}

/// The steps of a condition over columns that are read, the quickest first.
pub(crate) fn steps(condition: &Arc<dyn PhysicalExpr>, columns: &SchemaRef) -> Vec<Step> {
    let conjuncts = split_conjunction(condition).into_iter().map(settled);
    let conjuncts: Vec<_> = conjuncts.flat_map(|of| parts(&of)).collect();
    let mut steps: Vec<Step> =
        conjuncts.iter().filter_map(|conjunct| Step::of(conjunct, columns)).collect();
    let count = |step: &Step, is_such: fn(&DataType) -> bool| {
        step.places.iter().filter(|&&place| is_such(columns.field(place).data_type())).count()
    };
    let is_text = |of: &DataType| matches!(of, DataType::Utf8View | DataType::BinaryView);
    steps.sort_by_key(|step| {
        (count(step, DataType::is_list), count(step, is_text), step.places.len())
    });
    steps
}

fn parts(condition: &Arc<dyn PhysicalExpr>) -> Vec<Arc<dyn PhysicalExpr>> {
    split_conjunction(condition).into_iter().cloned().collect()
}

/// A condition as it is, where an operator has narrowed it and will not again.
fn settled(condition: &Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    let is_settled =
        matches!(DynamicFilterTracking::classify(condition), DynamicFilterTracking::AllComplete);
    let dynamic = condition.downcast_ref::<DynamicFilterPhysicalExpr>().filter(|_| is_settled);
    dynamic.and_then(|dynamic| dynamic.current().ok()).unwrap_or_else(|| Arc::clone(condition))
}

impl Step {
    fn of(conjunct: &Arc<dyn PhysicalExpr>, columns: &SchemaRef) -> Option<Self> {
        if is_volatile(conjunct) {
            return None;
        }
        let named = collect_columns(conjunct);
        let place = |name: &str| columns.index_of(name).ok();
        let mut places = named.iter().map(|of| place(of.name())).collect::<Option<Vec<_>>>()?;
        places.sort_unstable();
        if places.is_empty() {
            return None;
        }
        let schema = Arc::new(columns.project(&places).ok()?);
        let expression = reassign_expr_columns(Arc::clone(conjunct), &schema).ok()?;
        Some(Self { expression, places, schema, kept: 0, generation: 0, of_values: None })
    }

    /// Whether it can be computed for the values of a column's dictionary.
    pub(crate) fn is_of_one_column(&self) -> bool {
        self.places.len() == 1
    }

    /// Whether it has let many rows go lately, or has another state since.
    pub(crate) fn is_worth_it(&self) -> bool {
        self.kept < TRIES || snapshot_generation(&self.expression) != self.generation
    }

    /// The rows that may meet it; `None` where those are most, or it cannot be told: who asked will find out.
    pub(crate) fn kept(&mut self, columns: &[Option<ArrayRef>]) -> Option<BooleanArray> {
        self.generation = snapshot_generation(&self.expression);
        let kept = self.computed(columns).filter(|kept| kept.true_count() <= kept.len() / 4 * 3);
        self.kept = if kept.is_none() { self.kept + 1 } else { 0 };
        kept
    }

    fn computed(&mut self, columns: &[Option<ArrayRef>]) -> Option<BooleanArray> {
        let columns = self.places.iter().map(|&place| columns[place].clone());
        let mut columns = columns.collect::<Option<Vec<_>>>()?;
        if let [column] = &columns[..]
            && let Some(codes) = column.as_dictionary_opt()
            && let Some(met) = self.met(codes)
        {
            return Some(looked_up(codes, met));
        }
        for (column, field) in columns.iter_mut().zip(self.schema.fields()) {
            *column = match column.as_dictionary_opt() {
                Some(codes) => decoded(codes).ok()?,
                None => encoding::decoded(column, field.data_type()).ok()?,
            };
        }
        self.evaluated(columns)
    }

    /// Which values of a dictionary meet it, and last whether NULL does; `None` as long as fewer rows were asked for than there are
    /// values: most of a dictionary may be of rows that nobody asks for.
    fn met(&mut self, codes: &DictionaryArray<UInt32Type>) -> Option<&[bool]> {
        let (values, generation) = (codes.values(), snapshot_generation(&self.expression));
        let known = self
            .of_values
            .take()
            .filter(|known| Arc::ptr_eq(&known.values, values) && known.generation == generation);
        let mut known = known.unwrap_or_else(|| OfValues {
            values: Arc::clone(values),
            generation,
            rows: 0,
            met: None,
        });
        known.rows += codes.len();
        if known.met.is_none() && known.rows >= values.len() {
            known.met = Some(self.met_by(values));
        }
        self.of_values.insert(known).met.as_deref()
    }

    fn met_by(&self, values: &ArrayRef) -> Vec<bool> {
        let null = new_null_array(values.data_type(), 1);
        let all = match self.schema.field(0).is_nullable() {
            true => concat(&[values, &null]).ok(),
            false => Some(Arc::clone(values)),
        };
        let met = all.and_then(|all| self.evaluated(vec![all]));
        // It may fail for a value that no row has.
        met.map_or(vec![true; values.len() + 1], |met| met.values().iter().collect())
    }

    /// The rows that meet it.
    fn evaluated(&self, columns: Vec<ArrayRef>) -> Option<BooleanArray> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).ok()?;
        let kept = self.expression.evaluate(&batch).ok()?.into_array(batch.num_rows()).ok()?;
        let kept = kept.as_boolean_opt()?;
        Some(if kept.null_count() > 0 { prep_null_mask_filter(kept) } else { kept.clone() })
    }
}

/// Texts of which each is the value that its code names.
///
/// # Errors
/// Where a code names none.
pub(crate) fn decoded(codes: &DictionaryArray<UInt32Type>) -> Result<ArrayRef, ArrowError> {
    take(codes.values(), codes.keys(), None)
}

/// The rows whose value meets a step, of values and then of NULL.
fn looked_up(codes: &DictionaryArray<UInt32Type>, met: &[bool]) -> BooleanArray {
    let (keys, null) = (codes.keys().values(), codes.values().len());
    let rows = match codes.nulls() {
        None => BooleanBuffer::collect_bool(keys.len(), |row| met[keys[row] as usize]),
        Some(nulls) => BooleanBuffer::collect_bool(keys.len(), |row| {
            met[if nulls.is_valid(row) { keys[row] as usize } else { null }]
        }),
    };
    BooleanArray::new(rows, None)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray, UInt32Array};
    use arrow::datatypes::{Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    fn columns() -> SchemaRef {
        let fields = [("s", DataType::Utf8View), ("a", DataType::Int64), ("b", DataType::Int64)];
        Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec()))
    }

    fn of(
        left: Arc<dyn PhysicalExpr>,
        operator: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        binary(left, operator, right, &columns()).unwrap()
    }

    fn column(name: &str) -> Arc<dyn PhysicalExpr> {
        col(name, &columns()).unwrap()
    }

    #[test]
    fn numbers_come_before_texts_and_one_column_before_two() {
        let text = of(column("s"), Operator::Eq, column("s"));
        let both = of(column("a"), Operator::Lt, column("b"));
        let one = of(column("b"), Operator::Lt, lit(5_i64));
        let condition = of(of(text, Operator::And, both), Operator::And, one);
        let places: Vec<_> =
            steps(&condition, &columns()).into_iter().map(|step| step.places).collect();
        assert_eq!(places, [vec![2], vec![1, 2], vec![0]]);
    }

    #[test]
    fn a_filter_that_is_complete_is_taken_apart_and_one_that_is_not_stays() {
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![column("a")], lit(true)));
        let condition: Arc<dyn PhysicalExpr> = Arc::clone(&dynamic) as _;
        assert_eq!(steps(&condition, &columns()).len(), 1);
        let bounds = of(
            of(column("a"), Operator::GtEq, lit(1_i64)),
            Operator::And,
            of(column("a"), Operator::LtEq, lit(7_i64)),
        );
        dynamic.update(bounds).unwrap();
        dynamic.mark_complete();
        assert_eq!(steps(&condition, &columns()).len(), 2);
    }

    #[test]
    fn a_step_that_keeps_most_or_cannot_be_computed_is_given_up() {
        let numbers = |numbers: [i64; 4]| -> Vec<Option<ArrayRef>> {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["x"; 4]));
            let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
            vec![Some(texts), Some(Arc::clone(&numbers)), Some(numbers)]
        };
        let kept = |step: &mut Step, columns: &[Option<ArrayRef>]| {
            step.kept(columns).map(|kept| kept.values().set_indices().collect::<Vec<_>>())
        };
        let less = of(column("a"), Operator::Lt, lit(5_i64));
        let step = &mut steps(&less, &columns())[0];
        assert_eq!(kept(step, &numbers([1, 9, 2, 9])), Some(vec![0, 2]));
        for _ in 0..TRIES {
            assert!(step.is_worth_it());
            assert_eq!(kept(step, &numbers([1, 2, 3, 4])), None);
        }
        assert!(!step.is_worth_it());
        let wrong = of(of(lit(1_i64), Operator::Divide, column("b")), Operator::Eq, lit(7_i64));
        let step = &mut steps(&wrong, &columns())[0];
        assert_eq!(kept(step, &numbers([1, 0, 2, 3])), None);
        assert_eq!(kept(step, &numbers([1, 1, 2, 3])), Some(vec![]));
    }

    /// Rows of texts by their places in a dictionary.
    fn by_codes(values: &ArrayRef, codes: &[Option<u32>]) -> Vec<Option<ArrayRef>> {
        let codes = UInt32Array::from(codes.to_vec());
        vec![Some(Arc::new(DictionaryArray::new(codes, Arc::clone(values)))), None, None]
    }

    fn text(text: &str) -> Arc<dyn PhysicalExpr> {
        lit(ScalarValue::Utf8View(Some(text.to_owned())))
    }

    #[test]
    fn a_step_is_computed_for_the_values_of_a_dictionary_once() {
        let values = || Arc::new(StringViewArray::from(vec!["a", "b", "c", "d", "e"])) as ArrayRef;
        let codes = [Some(1), None, Some(0), Some(1)];
        let met = Some(BooleanArray::from(vec![true, false, false, true]));
        let step = &mut steps(&of(column("s"), Operator::Eq, text("b")), &columns())[0];
        let rows = by_codes(&values(), &codes);
        let known = |step: &Step| step.of_values.as_ref().and_then(|known| known.met.clone());
        // As long as fewer rows were asked for than there are values, each is computed by itself.
        assert_eq!((step.kept(&rows), known(step)), (met.clone(), None));
        let of_values = Some(vec![false, true, false, false, false, false]);
        assert_eq!((step.kept(&rows), known(step)), (met.clone(), of_values));
        // What is known is not computed again, but for another dictionary.
        step.of_values.as_mut().unwrap().met = Some(vec![true, false, false, false, false, true]);
        assert_eq!(step.kept(&rows), Some(BooleanArray::from(vec![false, true, true, false])));
        assert_eq!(step.kept(&by_codes(&values(), &codes)), met);
    }

    #[test]
    fn a_filter_that_is_narrowed_is_computed_for_the_values_again() {
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
        let rows = by_codes(&values, &[Some(0), Some(1), None, Some(0)]);
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![column("s")], lit(true)));
        let step = &mut steps(&(Arc::clone(&dynamic) as _), &columns())[0];
        assert_eq!(step.kept(&rows), None);
        dynamic.update(of(column("s"), Operator::Eq, text("b"))).unwrap();
        let met = BooleanArray::from(vec![false, true, false, false]);
        assert_eq!(step.kept(&rows), Some(met));
    }

    #[test]
    fn a_step_that_was_given_up_is_worth_it_once_it_is_narrowed() {
        let columns_of = |number: i64| -> Vec<Option<ArrayRef>> {
            vec![None, Some(Arc::new(Int64Array::from(vec![number; 4]))), None]
        };
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![column("a")], lit(true)));
        let step = &mut steps(&(Arc::clone(&dynamic) as _), &columns())[0];
        for _ in 0..TRIES {
            assert!(step.is_worth_it());
            assert_eq!(step.kept(&columns_of(3)), None);
        }
        assert!(!step.is_worth_it());
        dynamic.update(of(column("a"), Operator::Lt, lit(5_i64))).unwrap();
        assert!(step.is_worth_it());
        assert_eq!(step.kept(&columns_of(3)), None);
        assert!(!step.is_worth_it());
        dynamic.update(of(column("a"), Operator::Lt, lit(2_i64))).unwrap();
        assert_eq!(step.kept(&columns_of(3)), Some(BooleanArray::from(vec![false; 4])));
        assert!(step.is_worth_it());
    }
}
