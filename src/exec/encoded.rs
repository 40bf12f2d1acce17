//! Rows whose columns are encoded, between a scan that keeps them so and an operator that drops most of them first, or needs few
//! of their bits.
//!
//! Such batches have the names of the plan's columns, and other types for some of them; whoever asks for them decodes what it
//! uses. Nobody else sees any: a plan that is executed gives the columns that it says it does.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{BoxStream, StreamExt};

use crate::encoding::{Waking, as_they_are, decoded, decoded_batch, shared_codes};
use crate::exec::relational::aggregate::SpillingAggregateExec;
use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::transform::TransformExec;
use crate::storage::TableScan;

/// The rows of a partition of a plan; those of a table are encoded, and those that a transformation leaves of them. A scan of
/// files gives them so where it was told to while the plan was made.
///
/// # Errors
/// Those of executing it.
pub(super) fn encoded_rows(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    if let Some(transform) = plan.downcast_ref::<TransformExec>() {
        return transform.encoded_rows(partition, context);
    }
    let source = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
    match source.and_then(|source| source.downcast_ref::<TableScan>()) {
        Some(scan) => scan.encoded_rows(partition),
        None => plan.execute(partition, context),
    }
}

/// The rows of a partition of a plan, encoded where they may be: those of a table wake as they are asked for.
///
/// # Errors
/// Those of executing it.
pub(super) fn waking_rows(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<BoxStream<'static, Result<Waking>>> {
    let source = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
    if let Some(scan) = source.and_then(|source| source.downcast_ref::<TableScan>()) {
        return scan.waking_rows(partition);
    }
    let rows = encoded_rows(plan, partition, context)?;
    Ok(rows.map(|batch| batch.map(|batch| Waking::from(&batch))).boxed())
}

/// The rows of a partition of a plan with all columns that its schema has, but that so many at the front may be codes of a dictionary
/// that they share.
///
/// # Errors
/// Those of executing it.
pub(super) fn coded_rows(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
    coded: usize,
) -> Result<SendableRecordBatchStream> {
    let schema = plan.schema();
    let of = Arc::clone(&schema);
    let rows = encoded_rows(plan, partition, context)?.map(move |batch| {
        let batch = batch?;
        let stays = |at: usize| at < coded && shared_codes(batch.column(at)).is_some();
        let decoded: Vec<usize> = (0..batch.num_columns()).filter(|at| !stays(*at)).collect();
        with_decoded(batch, &decoded, &of)
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// The input of an operator whose rows it takes encoded.
pub(crate) fn takes_encoded(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if plan.is::<TransformExec>() || plan.is::<SpillingAggregateExec>() {
        return Some(0);
    }
    // The build side is kept as it is read.
    plan.is::<SpillingJoinExec>().then_some(1)
}

/// Rows that may be encoded, with all columns that this schema has.
pub(super) fn decoded_rows(
    rows: SendableRecordBatchStream,
    schema: &SchemaRef,
) -> SendableRecordBatchStream {
    let of = Arc::clone(schema);
    let rows = rows.map(move |batch| Ok(decoded_batch(&batch?, &of)?));
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
}

/// The same batch in which some columns have the types that they have in this schema.
///
/// # Errors
/// None, for what was encoded was such a column.
pub(super) fn with_decoded(
    batch: RecordBatch,
    places: &[usize],
    schema: &Schema,
) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    for &at in places {
        columns[at] = decoded(&columns[at], schema.field(at).data_type())?;
    }
    let is_same = columns.iter().zip(batch.columns()).all(|(one, other)| Arc::ptr_eq(one, other));
    Ok(if is_same { batch } else { as_they_are(schema, columns, batch.num_rows())? })
}
