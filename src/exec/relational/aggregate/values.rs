//! The answers of few groups of which all values are known, and too many for a table.
//!
//! Enters: groups in a file, each in several rows, with their values as lists. Leaves: one row for each group. Of each
//! aggregate the values pass by as rows of a group's number and a value; the file is read once for each of them.
//!
//! ```text
//! groups ─ lists ─ (group, value) ─ once each, if DISTINCT ─┬─────────────────────── added up ─ answers
//!                                                           └ those that are chosen ─┘
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, filter, filter_record_batch, is_not_null};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use futures::StreamExt;

use super::SpillingAggregateExec;
use super::chosen::{at_place, most_frequent};
use super::spec::{Answer, Knows, Spec};
use crate::exec::relational::feed::{Feed, generated};
use crate::exec::relational::files::Rows;
use crate::exec::relational::groups::Groups;
use crate::exec::relational::memory::Memory;

/// The answers of all groups of a file.
///
/// # Errors
/// Those of aggregates and files.
pub(super) async fn answers(
    spec: &Arc<Spec>,
    rows: &Rows,
    context: &Arc<TaskContext>,
) -> Result<RecordBatch> {
    let accumulators = spec.calls.iter().map(|call| call.plain());
    let mut accumulators = accumulators.collect::<Result<Vec<_>>>()?;
    let (mut groups, mut numbers) = (Groups::new(&spec.groups)?, Vec::new());
    let mut states = rows.read();
    while let Some(states) = states.next().await.transpose()? {
        let (keys, own) = spec.parts_of(&states);
        groups.number(keys, states.num_rows(), &mut numbers)?;
        for ((call, accumulator), own) in spec.calls.iter().zip(&mut accumulators).zip(own) {
            if !call.knows_values() {
                accumulator.merge_batch(own, &numbers, groups.len())?;
            }
        }
    }
    for (at, (call, accumulator)) in spec.calls.iter().zip(&mut accumulators).enumerate() {
        let Knows::Values { are_distinct, answer } = call.knows else { continue };
        *accumulator = call.adder(groups.len())?;
        let mut values = values(spec, at, rows, context);
        if are_distinct {
            values = distinct(values, context)?;
        }
        values = match answer {
            Answer::All => values,
            Answer::At(place) => at_place(place, values, groups.len(), context).await?,
            Answer::Most => most_frequent(values, groups.len(), context).await?,
        };
        while let Some(values) = values.next().await.transpose()? {
            let (of, values) = (numbers_of(&values), cast(values.column(1), &call.data_types[0])?);
            numbers.clear();
            numbers.extend(of.iter().map(|&group| group as usize));
            accumulator.update_batch(&[values], &numbers, None, groups.len())?;
        }
    }
    let mut columns = groups.take()?;
    for accumulator in &mut accumulators {
        columns.push(accumulator.evaluate(EmitTo::All)?);
    }
    Ok(RecordBatch::try_new(Arc::clone(&spec.output), columns)?)
}

/// The groups of values.
pub(super) fn numbers_of(values: &RecordBatch) -> &[u32] {
    values.column(0).as_primitive::<UInt32Type>().values()
}

/// The values that an aggregate knows, with the numbers of their groups: as all other readers of the file number them.
fn values(
    spec: &Arc<Spec>,
    call: usize,
    rows: &Rows,
    context: &Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let first = spec.groups.fields().len();
    let first = first + spec.calls[..call].iter().map(|call| call.states).sum::<usize>();
    let lists = first..first + spec.calls[call].states;
    let mut fields = vec![Field::new("group", DataType::UInt32, false)];
    for list in &spec.states.fields()[lists.clone()] {
        if let DataType::List(item) = list.data_type() {
            fields.push(item.as_ref().clone().with_name(list.name()).with_nullable(true));
        }
    }
    let schema = Arc::new(Schema::new(fields));
    let (spec, mut rows) = (Arc::clone(spec), rows.read());
    let memory = Memory::new("SpillingAggregate", context.memory_pool());
    let batch_rows = context.session_config().batch_size();
    generated(Arc::clone(&schema), move |mut to| async move {
        let (mut groups, mut numbers) = (Groups::new(&spec.groups)?, Vec::new());
        while let Some(states) = rows.next().await.transpose()? {
            let bytes = get_record_batch_memory_size(&states);
            memory.grow(bytes);
            let (keys, _) = spec.parts_of(&states);
            groups.number(keys, states.num_rows(), &mut numbers)?;
            let values = unnested(&numbers, &states.columns()[lists.clone()], &schema)?;
            drop(states);
            for start in (0..values.num_rows()).step_by(batch_rows) {
                to.send(values.slice(start, batch_rows.min(values.num_rows() - start))).await?;
            }
            drop(values);
            memory.shrink(bytes);
        }
        Ok(())
    })
}

/// The values of lists, which are equally long in each row, with the number of their group.
pub(super) fn unnested(
    numbers: &[usize],
    lists: &[ArrayRef],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let of = UInt32Array::from_iter_values(numbers.iter().map(|&number| number as u32));
    let mut of: ArrayRef = Arc::new(of);
    let mut lists = lists.to_vec();
    if let Some(are_there) = lists.iter().find(|lists| lists.null_count() > 0) {
        let are_there = is_not_null(are_there)?;
        of = filter(&of, &are_there)?;
        lists = lists.iter().map(|lists| filter(lists, &are_there)).collect::<Result<_, _>>()?;
    }
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(1 + lists.len());
    for lists in lists.iter().map(|lists| lists.as_list::<i32>()) {
        let (offsets, of) = (lists.value_offsets(), of.as_primitive::<UInt32Type>().values());
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        if columns.is_empty() {
            let mut groups = Vec::with_capacity(last - first);
            for (&group, end) in of.iter().zip(&offsets[1..]) {
                groups.resize(*end as usize - first, group);
            }
            columns.push(Arc::new(UInt32Array::from(groups)));
        }
        columns.push(lists.values().slice(first, last - first));
    }
    let values = RecordBatch::try_new(Arc::clone(schema), columns)?;
    if values.column(1).null_count() == 0 {
        return Ok(values);
    }
    Ok(filter_record_batch(&values, &is_not_null(values.column(1))?)?)
}

/// Each value of a group once.
fn distinct(
    values: SendableRecordBatchStream,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    aggregated(values, Vec::new(), context)
}

/// Some aggregates of each value of a group.
pub(super) fn aggregated(
    values: SendableRecordBatchStream,
    aggregates: Vec<Arc<AggregateFunctionExpr>>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = values.schema();
    let key = |(at, field): (usize, &Arc<Field>)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        (column, field.name().clone())
    };
    let keys = schema.fields().iter().take(2).enumerate().map(key);
    let (keys, input) = (PhysicalGroupBy::new_single(keys.collect()), fed(values));
    let (mode, filters) = (AggregateMode::Single, vec![None; aggregates.len()]);
    let whole = AggregateExec::try_new(mode, keys, aggregates, filters, input, schema)?;
    let (schema, properties) = (whole.schema(), Arc::clone(whole.properties()));
    let adds_any_width = vec![false; whole.aggr_expr().len()];
    let whole = SpillingAggregateExec::new(whole, adds_any_width, schema, None, properties);
    whole.execute(0, Arc::clone(context))
}

/// Rows as what an operator reads.
pub(super) fn fed(rows: SendableRecordBatchStream) -> Arc<Feed> {
    let feed = Feed::of(rows.schema(), 1);
    feed.put(0, rows);
    feed
}
