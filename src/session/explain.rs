//! EXPLAIN of a statement about matrices; of one that is SQL what was chosen by cost, and what EXPLAIN ANALYZE expected. All
//! else of SQL's is DataFusion's.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::format::ExplainFormat;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Analyze, ExplainOption, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt, stream};

use super::Session;
use crate::error::{Error, Result};
use crate::matrices;
use crate::planner::{self, Choices};
use crate::sql::{Explain, StatementKind};

/// What EXPLAIN is asked to explain, and what becomes of it.
pub(super) enum Explained {
    /// A plan to be shown.
    Plan(LogicalPlan),
    /// What making a matrix took; it is made.
    Analyzed(RecordBatch),
}

/// Explains a statement about matrices.
///
/// # Errors
/// Where nothing is computed, and whatever keeps the statement from being planned or run.
pub(super) async fn explain(
    matrices: &matrices::Statements,
    explain: Explain,
) -> Result<Explained> {
    let StatementKind::CreateMatrix(create) = *explain.inner else {
        return Err(Error::unsupported("EXPLAIN takes a query or CREATE MATRIX"));
    };
    if explain.analyze {
        if explain.format.is_some() {
            return Err(Error::unsupported("EXPLAIN ANALYZE CREATE MATRIX has one format"));
        }
        let plan = matrices.create(*create).await?;
        return Ok(Explained::Analyzed(analyzed(plan, explain.verbose)?));
    }
    let format = explain.format.as_deref().unwrap_or("indent").parse::<ExplainFormat>()?;
    let option = ExplainOption::default().with_verbose(explain.verbose).with_format(format);
    let plan = matrices.plan_of(*create).await?;
    let plan = LogicalPlanBuilder::from(plan).explain_option_format(option)?.build()?;
    Ok(Explained::Plan(plan))
}

/// Operators with what they measured, under the columns that DataFusion's EXPLAIN ANALYZE has. There are
/// none for a view or a file, nor where the matrix was there already.
fn analyzed(plan: Option<Arc<dyn ExecutionPlan>>, verbose: bool) -> Result<RecordBatch> {
    let text = plan.map_or_else(
        || "nothing was computed".to_owned(),
        |plan| DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(verbose).to_string(),
    );
    let column = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    Ok(RecordBatch::try_from_iter([
        ("plan_type", column("Plan with Metrics")),
        ("plan", column(&text)),
    ])?)
}

/// The rows of EXPLAIN, and one more with what was chosen by cost, if anything was.
pub(super) fn with_choices(
    rows: SendableRecordBatchStream,
    title: &'static str,
    format: &ExplainFormat,
    context: &TaskContext,
) -> SendableRecordBatchStream {
    let choices = Choices::of(context.session_config().options());
    let text = choices.filter(|_| *format == ExplainFormat::Indent).and_then(Choices::text);
    let Some(text) = text else { return rows };
    let schema = rows.schema();
    let columns = [title, &text].map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef);
    let row = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec());
    let row = stream::once(std::future::ready(row.map_err(DataFusionError::from)));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(row)))
}

impl Session {
    /// The rows of EXPLAIN ANALYZE, in which operators show how many rows they were expected to yield, what was chosen, and
    /// the worst estimate.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn beside_estimates(
        &self,
        explained: &Analyze,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(analyze) = plan.downcast_ref::<AnalyzeExec>() else {
            return Ok(execute_stream(plan, context)?);
        };
        let sides_are_kept = !context.session_config().options().optimizer.join_reordering;
        let (statistics, input) = (&self.shared.statistics, Arc::clone(analyze.input()));
        let expected = planner::expected(&explained.input, input, statistics, sides_are_kept);
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let shown = Arc::clone(&plan).replace_children(vec![expected.shown()], options)?;
        let rows = execute_stream(shown, Arc::clone(&context))?;
        Ok(expected.with_worst(with_choices(rows, "Choices", &explained.format, &context)))
    }
}
