//! The values of a group that are asked for: those at a place of their order, or the one that comes most often.
//!
//! Enters: values with the numbers of their groups, as they come. Leaves: of each group one of its values, or two.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::{SortOptions, cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, UInt64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions_aggregate::min_max::min_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, TryStreamExt};

use super::spec::Place;
use super::values::{aggregated, fed, numbers_of};
use crate::exec::relational::feed::{adapted, single};
use crate::exec::relational::sort::SpillingSortExec;

/// Steps in which DataFusion weighs two neighbours that a percentile lies between.
const WEIGHTS: f64 = 1e6;

impl Place {
    /// Where the values are that are asked for, of so many in order.
    fn of(self, count: u64) -> RangeInclusive<u64> {
        let last = count.saturating_sub(1);
        match self {
            Self::Middle => last / 2..=count / 2,
            Self::Share(share) => {
                let place = share * last as f64;
                place.floor() as u64..=place.ceil() as u64
            }
        }
    }
}

/// Of each of so many groups the values at a place of its order, or what lies between two.
///
/// # Errors
/// Those of files.
pub(super) async fn at_place(
    place: Place,
    values: SendableRecordBatchStream,
    groups: usize,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = values.schema();
    // Known as soon as the first row leaves the sort, for then the last has entered it.
    let counts = Arc::new(Mutex::new(vec![0_u64; groups]));
    let counted = Arc::clone(&counts);
    let values = values.inspect_ok(move |values| {
        let mut counts = counted.lock().unwrap_or_else(PoisonError::into_inner);
        numbers_of(values).iter().for_each(|&group| counts[group as usize] += 1);
    });
    let mut sorted = in_order(adapted(Arc::clone(&schema), values), groups == 1, context)?;
    let (mut found, mut of, mut passed) = (Vec::new(), None, 0);
    while let Some(values) = sorted.next().await.transpose()? {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rows, mut start) = (Vec::new(), 0);
        for group in numbers_of(&values).chunk_by(|one, next| one == next) {
            if of != Some(group[0]) {
                (of, passed) = (Some(group[0]), 0);
            }
            let here = passed..passed + group.len() as u64;
            let places = place.of(counts[group[0] as usize]).filter(|place| here.contains(place));
            rows.extend(places.map(|place| start + (place - passed) as u32));
            (passed, start) = (here.end, start + group.len() as u32);
        }
        if !rows.is_empty() {
            found.push(take_record_batch(&values, &UInt32Array::from(rows))?);
        }
    }
    let found = concat_batches(&schema, &found)?;
    Ok(single(match place {
        Place::Middle => found,
        Place::Share(share) => {
            between(&found, share, &counts.lock().unwrap_or_else(PoisonError::into_inner))?
        }
    }))
}

/// The values of each group in order, which are sorted alone where there is one group.
fn in_order(
    values: SendableRecordBatchStream,
    is_one: bool,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = values.schema();
    if !is_one {
        return sorted(values, context);
    }
    let alone = Arc::new(schema.project(&[1])?);
    let values = values.map(|values| Ok(values?.project(&[1])?));
    let values = sorted(adapted(alone, values), context)?;
    let with_group = Arc::clone(&schema);
    let values = values.map(move |values| {
        let values = values?;
        let groups: ArrayRef = Arc::new(UInt32Array::from(vec![0; values.num_rows()]));
        let columns = vec![groups, Arc::clone(values.column(0))];
        Ok(RecordBatch::try_new(Arc::clone(&with_group), columns)?)
    });
    Ok(adapted(schema, values))
}

/// Rows in the order of all their columns.
fn sorted(
    rows: SendableRecordBatchStream,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let options = SortOptions { descending: false, nulls_first: false };
    let schema = rows.schema();
    let by =
        schema.fields().iter().enumerate().map(|(at, field)| {
            PhysicalSortExpr::new(Arc::new(Column::new(field.name(), at)), options)
        });
    let ordering = LexOrdering::new(by)
        .ok_or_else(|| DataFusionError::Internal("rows without columns have no order".into()))?;
    let input = fed(rows);
    let properties = Arc::clone(input.properties());
    SpillingSortExec::new(input, ordering, None, true, properties).execute(0, Arc::clone(context))
}

/// Of each group that has two values what lies between them, as DataFusion weighs them.
fn between(found: &RecordBatch, share: f64, counts: &[u64]) -> Result<RecordBatch> {
    let real = cast(found.column(1), &DataType::Float64)?;
    let mut values = real.as_primitive::<Float64Type>().values().as_ref();
    let (mut of, mut answers) = (Vec::new(), Vec::new());
    for group in numbers_of(found).chunk_by(|one, next| one == next) {
        let (own, others) = values.split_at(group.len());
        values = others;
        let place = share * (counts[group[0] as usize] - 1) as f64;
        let weight = ((place - place.floor()) * WEIGHTS).trunc() / WEIGHTS;
        of.push(group[0]);
        answers.push(match own {
            [lower, upper] => lower + (upper - lower) * weight,
            _ => own[0],
        });
    }
    let answers = cast(&Float64Array::from(answers), found.column(1).data_type())?;
    Ok(RecordBatch::try_new(found.schema(), vec![Arc::new(UInt32Array::from(of)), answers])?)
}

/// Of each of so many groups the value that comes most often: of values, how often each was seen, and those seen first first.
///
/// # Errors
/// Those of files.
pub(super) async fn most_frequent(
    values: SendableRecordBatchStream,
    groups: usize,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let counted = values.schema();
    let fields = counted.fields().iter().map(|field| field.as_ref().clone());
    let place = Field::new("place", DataType::UInt64, false);
    let schema = Arc::new(Schema::new(fields.chain([place]).collect::<Vec<_>>()));
    let (placed, mut passed) = (Arc::clone(&schema), 0);
    let values = values.map(move |values| {
        let values = values?;
        let places = passed..passed + values.num_rows() as u64;
        passed = places.end;
        let places: ArrayRef = Arc::new(UInt64Array::from_iter_values(places));
        let columns = values.columns().iter().cloned().chain([places]).collect();
        Ok(RecordBatch::try_new(Arc::clone(&placed), columns)?)
    });
    let of = [(sum_udaf(), 2, "count"), (min_udaf(), 3, "first")].map(|(function, at, name)| {
        let column = Arc::new(Column::new(schema.field(at).name(), at));
        let aggregate = AggregateExprBuilder::new(function, vec![column]).alias(name);
        aggregate.schema(Arc::clone(&schema)).build().map(Arc::new)
    });
    let of = of.into_iter().collect::<Result<Vec<_>>>()?;
    let mut each = aggregated(adapted(Arc::clone(&schema), values), of, context)?;
    let (mut best, mut found) = (vec![None; groups], Vec::new());
    while let Some(values) = each.next().await.transpose()? {
        found.push(best_of(&values, &mut best)?);
    }
    // Values that were the best when they came, and are no more, are left behind.
    let found = concat_batches(&each.schema(), &found)?;
    Ok(single(best_of(&found, &mut best)?.project(&[0, 1])?))
}

/// How often a value was seen, and where first: more and earlier is better.
type Standing = (u64, Reverse<u64>);

/// The values that are the best of their groups, among those here and those that were the best before.
fn best_of(values: &RecordBatch, best: &mut [Option<Standing>]) -> Result<RecordBatch> {
    let [counts, places] = [2, 3].map(|at| values.column(at).as_primitive::<UInt64Type>().values());
    let standing = |row: usize| Some((counts[row], Reverse(places[row])));
    let groups = || numbers_of(values).iter().map(|&group| group as usize).enumerate();
    for (row, group) in groups() {
        best[group] = best[group].max(standing(row));
    }
    let rows = groups().filter(|&(row, group)| best[group] == standing(row));
    let rows: Vec<u32> = rows.map(|(row, _)| row as u32).collect();
    Ok(take_record_batch(values, &UInt32Array::from(rows))?)
}
