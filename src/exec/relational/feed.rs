//! What an operator of DataFusion's reads in place of its inputs: streams that it is handed.
//!
//! Enters: a stream for each partition, before the operator is run. Leaves: that stream. And the way back: what
//! a future sends while it runs becomes a stream.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt, future, stream};

/// An input whose rows are handed to it.
pub(super) struct Feed {
    properties: Arc<PlanProperties>,
    streams: Mutex<Vec<Option<SendableRecordBatchStream>>>,
}

impl Feed {
    /// One of so many partitions, in no order.
    pub(super) fn of(schema: SchemaRef, partitions: usize) -> Arc<Self> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self::new(Arc::new(properties))
    }

    /// One whose first partition has these rows, with the properties of those that they are a part of.
    pub(super) fn once(
        rows: SendableRecordBatchStream,
        properties: &Arc<PlanProperties>,
    ) -> Arc<Self> {
        let feed = Self::new(Arc::clone(properties));
        feed.put(0, rows);
        feed
    }

    fn new(properties: Arc<PlanProperties>) -> Arc<Self> {
        let partitions = properties.output_partitioning().partition_count();
        let streams = std::iter::repeat_with(|| None).take(partitions).collect();
        Arc::new(Self { properties, streams: Mutex::new(streams) })
    }

    /// What the next run of a partition reads.
    pub(super) fn put(&self, partition: usize, stream: SendableRecordBatchStream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams[partition] = Some(stream);
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl DisplayAs for Feed {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}

impl ExecutionPlan for Feed {
    fn name(&self) -> &str {
        "Feed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
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
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams[partition].take().ok_or_else(|| {
            DataFusionError::Internal(format!("nothing was put into partition {partition}"))
        })
    }
}

/// Where a future puts the batches that it makes.
pub(super) struct Output(mpsc::Sender<RecordBatch>);

impl Output {
    /// Hands on a batch, once the one before it has been taken; one without rows goes nowhere.
    pub(super) async fn send(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let sent = self.0.send(batch).await;
        sent.map_err(|_| DataFusionError::Internal("the reader of the rows has gone".into()))
    }

    /// Hands on all batches of a stream.
    pub(super) async fn send_all(&mut self, mut rows: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = rows.next().await.transpose()? {
            self.send(batch).await?;
        }
        Ok(())
    }
}

/// What a future sends, which runs as the stream is polled and ends with it.
pub(super) fn generated<F>(
    schema: SchemaRef,
    work: impl FnOnce(Output) -> F,
) -> SendableRecordBatchStream
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(0);
    let failure = stream::once(work(Output(sender)));
    let failure = failure.filter_map(|done| future::ready(done.err().map(Err)));
    adapted(schema, stream::select(receiver.map(Ok), failure))
}

/// One batch as a stream.
pub(super) fn single(batch: RecordBatch) -> SendableRecordBatchStream {
    adapted(batch.schema(), stream::once(future::ready(Ok(batch))))
}

/// Any stream as one that knows its schema.
pub(super) fn adapted(
    schema: SchemaRef,
    stream: impl stream::Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}
