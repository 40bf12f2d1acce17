//! A condition without whose rows whoever asks for them can do: step by step, on the columns that each step is about.
//!
//! What is found out here saves reading the rest; whoever asked looks at the condition again. So a step that keeps most
//! rows is given up, and one that cannot be computed keeps all.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;

/// Windows in which a step may keep most rows before it is given up: to look at it costs time.
const TRIES: usize = 8;

/// One of the conditions that all rows must meet.
pub(super) struct Step {
    expression: Arc<dyn PhysicalExpr>,
    /// The places of its columns among those that are read.
    pub(super) places: Vec<usize>,
    /// Those columns, as the expression counts them.
    schema: SchemaRef,
    /// Windows of which it has kept most rows, since it last did not.
    kept: usize,
}

/// The steps of a condition over columns that are read, the quickest first.
pub(super) fn steps(condition: &Arc<dyn PhysicalExpr>, columns: &SchemaRef) -> Vec<Step> {
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
        Some(Self { expression, places, schema, kept: 0 })
    }

    /// Whether it has let many rows go lately.
    pub(super) fn is_worth_it(&self) -> bool {
        self.kept < TRIES
    }

    /// The rows that may meet it; `None` where those are most, or it cannot be told: who asked will find out.
    pub(super) fn kept(&mut self, columns: &[Option<ArrayRef>]) -> Option<BooleanArray> {
        let kept = self.computed(columns).filter(|kept| kept.true_count() <= kept.len() / 4 * 3);
        self.kept = if kept.is_none() { self.kept + 1 } else { 0 };
        kept
    }

    fn computed(&self, columns: &[Option<ArrayRef>]) -> Option<BooleanArray> {
        let columns = self.places.iter().map(|&place| columns[place].clone());
        let columns = columns.collect::<Option<Vec<_>>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).ok()?;
        let kept = self.expression.evaluate(&batch).ok()?.into_array(batch.num_rows()).ok()?;
        let kept = kept.as_boolean_opt()?;
        Some(if kept.null_count() > 0 { prep_null_mask_filter(kept) } else { kept.clone() })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{Field, Schema};
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
}
