//! Beyond which value of the first key no row is among the first ones that a sort is asked for.
//!
//! Enters: the last of so many rows as are asked for, in order. Leaves: of rows that come later those that may be before it, by the
//! first key alone: what is equal there stays.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use arrow::compute::{filter_record_batch, is_null, or, prep_null_mask_filter};
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};

/// See the header of this file.
pub(super) struct Bound {
    by: PhysicalSortExpr,
    last: Last,
}

enum Last {
    /// With NULL where that comes first: all others come after it.
    Null,
    Value(Scalar<ArrayRef>),
}

impl Bound {
    /// That of rows in order, as many as are asked for; nothing where any row may be before the last of them, or values that differ
    /// may be one key.
    ///
    /// # Errors
    /// Those of computing the key.
    pub(super) fn of(rows: &RecordBatch, ordering: &LexOrdering) -> Result<Option<Self>> {
        let by = ordering.first().clone();
        let data_type = by.expr.data_type(&rows.schema())?;
        let Some(last) = rows.num_rows().checked_sub(1) else { return Ok(None) };
        if data_type.is_floating() || data_type.is_nested() || data_type == DataType::Null {
            return Ok(None);
        }
        let key = by.expr.evaluate(&rows.slice(last, 1))?.into_array(1)?;
        let last = match key.is_null(0) {
            true if by.options.nulls_first => Last::Null,
            true => return Ok(None),
            false => Last::Value(Scalar::new(key)),
        };
        Ok(Some(Self { by, last }))
    }

    /// The rows that may be before the last one.
    ///
    /// # Errors
    /// Those of computing the key.
    pub(super) fn within(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let keys = self.by.expr.evaluate(rows)?.into_array(rows.num_rows())?;
        Ok(filter_record_batch(rows, &self.met(&keys)?)?)
    }

    fn met(&self, keys: &ArrayRef) -> Result<BooleanArray> {
        let Last::Value(last) = &self.last else { return Ok(is_null(keys)?) };
        let met = if self.by.options.descending { gt_eq(keys, last) } else { lt_eq(keys, last) }?;
        let met = if met.null_count() > 0 { prep_null_mask_filter(&met) } else { met };
        match self.by.options.nulls_first && keys.null_count() > 0 {
            true => Ok(or(&met, &is_null(keys)?)?),
            false => Ok(met),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};
    use arrow::compute::SortOptions;
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn rows(keys: &[Option<i64>]) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("a", keys, true)]).unwrap()
    }

    fn ordering(rows: &RecordBatch, descending: bool, nulls_first: bool) -> LexOrdering {
        let options = SortOptions { descending, nulls_first };
        [PhysicalSortExpr::new(col("a", &rows.schema()).unwrap(), options)].into()
    }

    #[test]
    fn what_is_equal_stays_and_null_where_it_comes_first() {
        let come = rows(&[Some(1), None, Some(5), Some(9)]);
        for (last, descending, nulls_first, expected) in [
            (Some(5), false, false, vec![Some(1), Some(5)]),
            (Some(5), false, true, vec![Some(1), None, Some(5)]),
            (Some(5), true, false, vec![Some(5), Some(9)]),
            (Some(5), true, true, vec![None, Some(5), Some(9)]),
            (None, true, true, vec![None]),
        ] {
            let held = rows(&[Some(7), last]);
            let bound = Bound::of(&held, &ordering(&held, descending, nulls_first)).unwrap();
            let within = bound.unwrap().within(&come).unwrap();
            assert_eq!(within, rows(&expected), "{last:?}, {descending}, {nulls_first}");
        }
        let held = rows(&[None]);
        assert!(Bound::of(&held, &ordering(&held, false, false)).unwrap().is_none());
        let zeros: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0]));
        let zeros = RecordBatch::try_from_iter([("a", zeros)]).unwrap();
        assert!(Bound::of(&zeros, &ordering(&zeros, false, false)).unwrap().is_none());
    }
}
