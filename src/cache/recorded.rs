//! An operator whose rows are kept as they pass, if all of them do.
//!
//! Each of its streams gives what comes by to the same recording. It ends when the last of them has; one that is not read
//! to its end leaves nothing. Of several operators that are to be recorded as one, for they yield the same rows and one alone will
//! run, that one is.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt};

use super::Recording;

/// The operator; see the header of this file.
#[derive(Debug)]
pub(crate) struct RecordedExec {
    input: Arc<dyn ExecutionPlan>,
    recorder: Recorder,
    shared: Arc<Mutex<Shared>>,
}

/// A recording, until the first operator that it is for is run.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Arc<Mutex<Option<Recording>>>);

impl Recorder {
    pub(crate) fn new(recording: Recording) -> Self {
        Self(Arc::new(Mutex::new(Some(recording))))
    }
}

/// What the streams have in common.
#[derive(Debug, Default)]
struct Shared {
    /// Until the rows turn out to be too many, or one of them cannot be computed.
    recording: Option<Recording>,
    /// When the first stream was opened, and how many are not at their end.
    open: Option<(Instant, usize)>,
}

impl RecordedExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, recorder: Recorder) -> Self {
        Self { input, recorder, shared: Arc::default() }
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A recording is taken out before anything is done with it that might panic.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn see(&mut self, item: Option<&Result<RecordBatch>>, schema: impl FnOnce() -> SchemaRef) {
        let Some(mut recording) = self.recording.take() else { return };
        match item {
            Some(Ok(batch)) => {
                if recording.push(batch) {
                    self.recording = Some(recording);
                }
            }
            Some(Err(_)) => {}
            None => match &mut self.open {
                Some((_, open)) if *open > 1 => {
                    *open -= 1;
                    self.recording = Some(recording);
                }
                Some((began, _)) => {
                    recording.took(began.elapsed());
                    recording.finish(schema());
                }
                None => {}
            },
        }
    }
}

impl ExecutionPlan for RecordedExec {
    fn name(&self) -> &str {
        "RecordedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(input) => {
                let (recorder, shared) = (self.recorder.clone(), Arc::clone(&self.shared));
                Arc::new(Self { input, recorder, shared })
            }
            None => self,
        })
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut shared = locked(&self.shared);
        if shared.open.is_none() {
            shared.recording = locked(&self.recorder.0).take();
            shared.open =
                Some((Instant::now(), self.input.output_partitioning().partition_count()));
        }
        drop(shared);
        let rows = self.input.execute(partition, context)?;
        Ok(Box::pin(Recorded { rows, shared: Some(Arc::clone(&self.shared)) }))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let input = inputs.first().map(Arc::clone);
        Ok(input.unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
    }
}

impl DisplayAs for RecordedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordedExec")
    }
}

struct Recorded {
    rows: SendableRecordBatchStream,
    /// Until the end.
    shared: Option<Arc<Mutex<Shared>>>,
}

impl Stream for Recorded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(self.rows.poll_next_unpin(context));
        if let Some(shared) = self.shared.take() {
            locked(&shared).see(item.as_ref(), || self.rows.schema());
            self.shared = item.is_some().then_some(shared);
        }
        Poll::Ready(item)
    }
}

impl RecordBatchStream for Recorded {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
