//! The least and the greatest value in each batch of a table, by which a scan leaves out what a condition rules out.
//!
//! They are found once, as a batch comes in, for columns of integers, decimals, dates and times: floating-point numbers
//! have more than one order. For 8,192 rows they take a quarter of a percent of what the rows take.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, UInt64Array,
    downcast_primitive_array,
};
use arrow::compute::{max, min};
use arrow::datatypes::{ArrowNativeTypeOp, DataType, Field, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::batch::Batch;
use crate::encoding::decoded;

/// Those of all batches of a table, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Zones {
    of_batches: Arc<[Arc<Zone>]>,
    /// The same by column, once a plan has asked.
    of_columns: Arc<[OnceLock<Figures>]>,
}

/// What is known of a column, a cell for each batch.
#[derive(Debug)]
struct Figures {
    /// Nothing where some batch has no such values.
    bounds: Option<[ArrayRef; 2]>,
    nulls: ArrayRef,
}

/// Those of a batch.
#[derive(Debug)]
struct Zone {
    rows: u64,
    /// Nothing where a column has no such values.
    columns: Vec<Option<Bounds>>,
}

#[derive(Debug)]
struct Bounds {
    least: ScalarValue,
    greatest: ScalarValue,
    nulls: u64,
}

impl Zones {
    /// Those of batches, some of which may be among others whose zones are these.
    pub(super) fn next(&self, others: &[Batch], batches: &[Batch]) -> Self {
        let known = || self.of_batches.iter().zip(others);
        // Most batches are where they were; after a deletion they are further ahead.
        let same = known().zip(batches).take_while(|((_, other), batch)| is_same(other, batch));
        let mut zones: Vec<_> = same.map(|((zone, _), _)| Arc::clone(zone)).collect();
        let first = zones.len();
        let rest: HashMap<_, _> =
            known().skip(first).map(|known| (place(known.1), known)).collect();
        zones.extend(batches[first..].iter().map(|batch| {
            let known = rest.get(&place(batch)).filter(|(_, other)| is_same(other, batch));
            known.map_or_else(|| Arc::new(Zone::of(batch)), |(zone, _)| Arc::clone(zone))
        }));
        let columns = batches.first().map_or(0, |batch| batch.schema().fields().len());
        let of_columns = (0..columns).map(|_| OnceLock::new()).collect();
        Self { of_batches: zones.into(), of_columns }
    }

    /// The least and the greatest value of a column in each batch; nothing where they are not known of all.
    pub(super) fn bounds(&self, column: usize) -> Option<[ArrayRef; 2]> {
        self.figures(column)?.bounds.clone()
    }

    fn figures(&self, column: usize) -> Option<&Figures> {
        let figures = || {
            let bounds = || self.of_batches.iter().map(|zone| zone.columns.get(column)?.as_ref());
            let values = |of: fn(&Bounds) -> &ScalarValue| {
                let values = bounds().map(|bounds| bounds.map(|bounds| of(bounds).clone()));
                ScalarValue::iter_to_array(values.collect::<Option<Vec<_>>>()?).ok()
            };
            let least = values(|bounds| &bounds.least);
            let nulls = bounds().map(|bounds| bounds.map(|bounds| bounds.nulls));
            Figures {
                bounds: least.zip(values(|bounds| &bounds.greatest)).map(<[_; 2]>::from),
                nulls: Arc::new(nulls.collect::<UInt64Array>()),
            }
        };
        Some(self.of_columns.get(column)?.get_or_init(figures))
    }

    /// Which batches of a table of this schema may have rows that meet all of the conditions; nothing where that cannot be told.
    pub(super) fn that_may_meet(
        &self,
        conditions: &[Arc<dyn PhysicalExpr>],
        schema: &SchemaRef,
    ) -> Option<Vec<bool>> {
        let statistics = Statistics { zones: self, schema };
        let mut all: Option<Vec<bool>> = None;
        for condition in conditions {
            let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
            let Some(predicate) = builder.build(Arc::clone(condition)) else { continue };
            let Ok(kept) = predicate.prune(&statistics) else { continue };
            match &mut all {
                Some(all) => all.iter_mut().zip(kept).for_each(|(all, kept)| *all &= kept),
                None => all = Some(kept),
            }
        }
        all
    }
}

/// Whether both have the same columns, and not only the same values.
fn is_same(one: &Batch, other: &Batch) -> bool {
    let mut columns = one.at_rest().columns().iter().zip(other.at_rest().columns());
    columns.all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Where the first column of a batch lies.
fn place(batch: &Batch) -> Option<usize> {
    batch.at_rest().columns().first().map(|column| Arc::as_ptr(column).addr())
}

impl Zone {
    fn of(batch: &Batch) -> Self {
        let bounds =
            |(place, field): (usize, &Arc<Field>)| Bounds::of(batch, place, field.data_type());
        let columns = batch.schema().fields().iter().enumerate().map(bounds);
        Self { rows: batch.num_rows() as u64, columns: columns.collect() }
    }
}

impl Bounds {
    /// Those of a column of this type.
    fn of(batch: &Batch, place: usize, data_type: &DataType) -> Option<Self> {
        use DataType::{Date32, Date64, Time32, Time64, Timestamp};
        let is_exact = data_type.is_integer() || data_type.is_decimal();
        if !is_exact
            && !matches!(data_type, Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..))
        {
            return None;
        }
        let column = batch.encoded(place, 0..batch.num_rows()).ok()?;
        let cells = column.as_ref();
        let ends = downcast_primitive_array!(
            cells => ends(cells),
            _ => return None
        );
        let ends = decoded(&ends, data_type).ok()?;
        let end = |at| ScalarValue::try_from_array(&ends, at).ok();
        Some(Self { least: end(0)?, greatest: end(1)?, nulls: column.null_count() as u64 })
    }
}

/// The least and the greatest value; NULL where there is none.
fn ends<T: ArrowPrimitiveType<Native: ArrowNativeTypeOp>>(column: &PrimitiveArray<T>) -> ArrayRef {
    let ends: PrimitiveArray<T> = [min(column), max(column)].into_iter().collect();
    Arc::new(ends.with_data_type(column.data_type().clone()))
}

/// The zones as DataFusion asks for them: a container is a batch.
struct Statistics<'a> {
    zones: &'a Zones,
    schema: &'a SchemaRef,
}

impl Statistics<'_> {
    fn figures(&self, column: &Column) -> Option<&Figures> {
        let (at, _) = self.schema.column_with_name(column.name())?;
        self.zones.figures(at)
    }

    fn bound(&self, column: &Column, which: usize) -> Option<ArrayRef> {
        let bounds = self.figures(column)?.bounds.as_ref()?;
        bounds.get(which).cloned()
    }
}

impl PruningStatistics for Statistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, 0)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bound(column, 1)
    }

    fn num_containers(&self) -> usize {
        self.zones.of_batches.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::clone(&self.figures(column)?.nulls))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(
            self.zones.of_batches.iter().map(|zone| zone.rows),
        )))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};

    use super::*;

    fn batch(values: &[Option<i64>]) -> Batch {
        let integers: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let floats = values.iter().map(|value| value.map(|value| value as f64));
        let floats: ArrayRef = Arc::new(floats.collect::<Float64Array>());
        let times: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(values.to_vec()).with_timezone("+02:00"));
        let columns = [("i", integers), ("f", floats), ("t", times)];
        Batch::new(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
    }

    fn all(zones: &Zones) -> Vec<*const Zone> {
        zones.of_batches.iter().map(Arc::as_ptr).collect()
    }

    #[test]
    fn what_stays_is_not_looked_at_again() {
        let batches: Vec<_> = (0..5).map(|value| batch(&[Some(value), None])).collect();
        let zones = Zones::default().next(&[], &batches);
        let known = all(&zones);
        let more = [&batches[..], &[batch(&[Some(9)])]].concat();
        let after = all(&zones.next(&batches, &more));
        assert_eq!(after[..5], known);
        // One is gone, one has a new column beside the old ones, and one is there twice.
        let kept = batches[3].at_rest();
        let mut columns = kept.columns().to_vec();
        columns[1] = Arc::clone(batches[4].at_rest().column(1));
        let changed = batches[3].moved(RecordBatch::try_new(kept.schema(), columns).unwrap());
        let left = [batches[0].clone(), batches[2].clone(), changed, batches[4].clone()];
        let left = [&left[..], &[batches[4].clone()]].concat();
        let after = all(&zones.next(&batches, &left));
        assert_eq!(
            [after[0], after[1], after[3], after[4]],
            [known[0], known[2], known[4], known[4]]
        );
        assert!(!known.contains(&after[2]));
    }

    #[test]
    fn bounds_are_those_of_exact_numbers_and_times() {
        let zone = Zone::of(&batch(&[Some(3), None, Some(-7), None]));
        assert_eq!(zone.rows, 4);
        let [Some(integers), None, Some(times)] = &zone.columns[..] else { panic!("{zone:?}") };
        assert_eq!((&integers.least, integers.nulls), (&ScalarValue::from(-7_i64), 2));
        let zone = Some("+02:00".into());
        assert_eq!(times.greatest, ScalarValue::TimestampMicrosecond(Some(3), zone));
        let empty = Zone::of(&batch(&[None, None]));
        assert!(empty.columns[0].as_ref().is_some_and(|bounds| bounds.least.is_null()));
    }
}
