//! The order in which a join in memory yields its rows, for one whose rows have been in files.
//!
//! A join in memory yields the rows of the probe side in their order, and the planner relies on it where the
//! probe side has one that means something. So rows are numbered before they are dealt, and what is joined is
//! sorted by the numbers: those of the probe side first, then those of the build side.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;

use super::spec::{Spec, batch, with_number};
use crate::exec::relational::feed::{Feed, adapted};
use crate::exec::relational::sort::SpillingSortExec;

/// Whether the planner may rely on the order of a join's rows.
pub(super) fn is_relied_on(join: &dyn ExecutionPlan) -> bool {
    let maintained = join.maintains_input_order();
    let children = join.children();
    maintained.iter().zip(children).any(|(&is, child)| is && child.output_ordering().is_some())
}

/// The join of numbered rows, whose numbers leave at the end.
pub(super) fn numbered_spec(spec: &Spec) -> Spec {
    let (numbered, probe) = spec.with_numbers(1);
    let (numbered, build) = numbered.with_numbers(0);
    let mut output = spec.output.clone();
    output.push(probe);
    // Those in which rows of both sides leave together.
    if matches!(spec.join_type, JoinType::Inner | JoinType::Right) {
        output.push(build);
    }
    numbered.with_output(spec.join_type, output)
}

/// Numbers rows in their order, from 0.
#[derive(Default)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn number(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let schema = with_number(rows.schema_ref());
        let count = rows.num_rows() as u64;
        let numbers = UInt64Array::from_iter_values(self.0..self.0 + count);
        self.0 += count;
        let columns = rows.columns().iter().cloned().chain([Arc::new(numbers) as ArrayRef]);
        batch(&schema, columns.collect(), rows.num_rows())
    }
}

/// A stream with the number of each row.
pub(super) fn numbered(rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = with_number(&rows.schema());
    let mut numbers = Numbers::default();
    adapted(schema, rows.map(move |batch| numbers.number(batch?)))
}

/// What has been joined with numbers, by its numbers and without them.
pub(super) fn sorted(
    rows: SendableRecordBatchStream,
    spec: &Spec,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let numbered = rows.schema();
    let kept = spec.output.len();
    let by = (kept..numbered.fields().len()).map(|at| {
        PhysicalSortExpr::new_default(Arc::new(Column::new(numbered.field(at).name(), at)))
    });
    let Some(by) = LexOrdering::new(by) else { return Ok(rows) };
    let input = Feed::of(numbered, 1);
    input.put(0, rows);
    let properties = Arc::clone(input.properties());
    let sort = SpillingSortExec::new(input, by, None, false, properties);
    let sorted = sort.execute(0, Arc::clone(context))?;
    let schema = Arc::clone(&spec.schema);
    let unnumbered = move |rows: Result<RecordBatch>| {
        let rows = rows?;
        batch(&schema, rows.columns()[..kept].to_vec(), rows.num_rows())
    };
    Ok(adapted(Arc::clone(&spec.schema), sorted.map(unnumbered)))
}
