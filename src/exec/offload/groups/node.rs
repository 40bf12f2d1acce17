//! An aggregation that a device may run: the operator over the plan by which the host does.
//!
//! Nothing is emitted before all totals have come, so where the device fails, the host's plan runs as if nobody had asked it. Where the
//! host is expected to be faster it runs that plan at once, and takes note of how long that took.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, StatisticsArgs,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};

use super::Asked;
use super::run::{self, Around, Groups, Missing};
use crate::config::Settings;
use crate::error::{Error, ErrorKind};
use crate::exec::offload::chosen::for_groups;
use crate::exec::offload::{Failed, falls, kept, observed};
use crate::exec::run::Cancel;
use crate::exec::{Engine, blocking, explain};
use crate::gpu;

/// Who is to run an aggregation, and why.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) by_device: bool,
    /// Whether doubles are added up as whole numbers.
    pub(crate) is_exact: bool,
    /// Whether who asks waits until a kernel is compiled.
    pub(crate) waits: bool,
    /// Whether columns stay for the next who reads them.
    pub(crate) keeps: bool,
    /// Seconds expected of either.
    pub(crate) device_seconds: f64,
    pub(crate) host_seconds: f64,
    /// Bytes that the device reads, and those of them that are to be brought first.
    pub(crate) read_bytes: usize,
    pub(crate) brought_bytes: usize,
    /// Bytes that it takes of the device's memory at once.
    pub(crate) held_bytes: usize,
    /// Why it is not for a device any more, where one has failed at it.
    pub(crate) fallen: Option<String>,
    /// By which the same aggregation is known, and the seconds expected of the host by rates alone.
    pub(crate) text: String,
    pub(crate) by_rates: f64,
    /// Columns whose absence kept the device from it, and the seconds that each would have saved.
    pub(crate) missed: Vec<(usize, f64)>,
}

/// The answers for each partition, and the memory that they are counted in.
type Dealt = Arc<(Vec<Vec<RecordBatch>>, MemoryReservation)>;

/// What a device has found; nothing where the host is to run its plan.
type Outcome = Shared<BoxFuture<'static, std::result::Result<Option<Dealt>, Arc<DataFusionError>>>>;

/// An aggregation that a device may run; see the header of this file.
pub(crate) struct OffloadedAggregateExec {
    asked: Arc<Asked>,
    calls: Vec<Arc<AggregateFunctionExpr>>,
    choice: Choice,
    host: Arc<dyn ExecutionPlan>,
    outcome: Mutex<Option<Outcome>>,
    /// Why the host did what was meant for the device.
    failure: Arc<Mutex<Option<String>>>,
    /// The device that did it, where there are several.
    on_device: Arc<OnceLock<usize>>,
    /// Partitions of the host's plan that have not ended, since when.
    left: Arc<(AtomicUsize, Instant)>,
    metrics: ExecutionPlanMetricsSet,
}

impl OffloadedAggregateExec {
    /// The operator over the host's plan of an aggregation by these aggregates.
    pub(crate) fn new(
        asked: Arc<Asked>,
        calls: Vec<Arc<AggregateFunctionExpr>>,
        choice: Choice,
        host: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let partitions = host.output_partitioning().partition_count();
        Self {
            asked,
            calls,
            choice,
            host,
            outcome: Mutex::default(),
            failure: Arc::default(),
            on_device: Arc::default(),
            left: Arc::new((AtomicUsize::new(partitions), Instant::now())),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// What the device finds, for whoever asks first and for all others.
    fn outcome(&self, context: &Arc<TaskContext>) -> Result<Outcome> {
        let mut known = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }
        let engine = Engine::of(context)?;
        let settings = context.session_config().get_extension::<Settings>();
        let among = settings.as_ref().map_or_else(Arc::default, |of| Arc::clone(&of.gpu_devices));
        let must_not_fail = settings.is_some_and(|settings| settings.gpu_must_not_fail);
        let cancel = Cancel::default();
        let (asked, stop) = (Arc::clone(&self.asked), cancel.clone());
        let choice = self.choice.clone();
        let time = MetricBuilder::new(&self.metrics).subset_time("by_device", 0);
        let [by_host, brought, batches, batch_rows, busy] =
            ["by_host", "brought_bytes", "batches", "batch_rows", "busy_percent"]
                .map(|name| MetricBuilder::new(&self.metrics).counter(name, 0));
        let bytes = MemoryConsumer::new("groups of a GPU").register(context.memory_pool());
        let (failure, on_device) = (Arc::clone(&self.failure), Arc::clone(&self.on_device));
        let work = move || {
            let _timer = time.timer();
            let around = Around { pool: &engine.pool, cancel: &stop, bytes: &bytes };
            let by_device = || {
                let assigned = for_groups(&asked, &choice, &among)?;
                let (device, how) = (assigned.device(), (choice.keeps, choice.waits));
                let groups = run::run(&asked, device, around, how)?;
                if gpu::are_several() {
                    on_device.get_or_init(|| device.ordinal());
                }
                Ok(groups)
            };
            match by_device() {
                Ok(groups) => {
                    brought.add(groups.brought_bytes);
                    batches.add(groups.log.batches);
                    batch_rows.add(groups.log.rows_max);
                    busy.add(groups.log.busy_percent());
                    Ok(Some((groups, bytes)))
                }
                Err(Missing::Compiling) => Ok(None),
                Err(Missing::Failed(Failed::Stopped(error))) => Err(error),
                // Nobody could know before.
                Err(Missing::Failed(Failed::Refused(why))) => {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    Ok(None)
                }
                Err(Missing::Failed(failed)) => {
                    let why = failed.to_string();
                    falls::note(&choice.text, &why);
                    if must_not_fail {
                        return Err(ErrorKind::Gpu(why).into());
                    }
                    engine.failures.note(&why);
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    Ok(None)
                }
            }
        };
        let answers = Answers {
            calls: self.calls.clone(),
            schema: self.schema(),
            partitioning: self.host.output_partitioning().clone(),
        };
        let outcome = async move {
            let groups = blocking(cancel, work).await.map_err(DataFusionError::from)?;
            if groups.is_none() {
                by_host.add(1);
            }
            let dealt = |(groups, bytes)| Ok(Arc::new((answers.of(groups)?, bytes)));
            groups.map(dealt).transpose()
        };
        let outcome = outcome.map_err(Arc::new).boxed().shared();
        *known = Some(outcome.clone());
        Ok(outcome)
    }

    /// The rows of the host's plan, which tells how long it took.
    fn by_host(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.host.execute(partition, context)?;
        let (left, text, by_rates) =
            (Arc::clone(&self.left), self.choice.text.clone(), self.choice.by_rates);
        let mut end = Some(move || {
            if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                observed::note(&text, by_rates, left.1.elapsed().as_secs_f64());
            }
        });
        let ended = stream::poll_fn(move |_| {
            end.take().into_iter().for_each(|end| end());
            Poll::Ready(None)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.chain(ended))))
    }
}

/// How totals become answers.
struct Answers {
    calls: Vec<Arc<AggregateFunctionExpr>>,
    schema: SchemaRef,
    partitioning: Partitioning,
}

impl Answers {
    /// The answers of each partition.
    fn of(&self, groups: Groups) -> Result<Vec<Vec<RecordBatch>>> {
        let Groups { keys, states, count, .. } = groups;
        let places: Vec<usize> = (0..count).collect();
        let (mut columns, mut states) = (keys, states.into_iter());
        for call in &self.calls {
            let own: Vec<ArrayRef> = states.by_ref().take(call.state_fields()?.len()).collect();
            let mut totals = call.create_groups_accumulator()?;
            totals.merge_batch(&own, &places, count)?;
            columns.push(totals.evaluate(EmitTo::All)?);
        }
        let all = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let mut partitions = vec![Vec::new(); self.partitioning.partition_count()];
        if count == 0 {
            return Ok(partitions);
        }
        match &self.partitioning {
            Partitioning::Hash(keys, count) if *count > 1 => {
                let mut dealt = BatchPartitioner::new_hash_partitioner(
                    keys.clone(),
                    *count,
                    Default::default(),
                )?;
                dealt.partition(all, |partition, rows| {
                    partitions[partition].push(rows);
                    Ok(())
                })?;
            }
            _ => partitions[0].push(all),
        }
        Ok(partitions)
    }
}

impl fmt::Debug for OffloadedAggregateExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OffloadedAggregateExec");
        shown.field("asked", &self.asked).field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl ExecutionPlan for OffloadedAggregateExec {
    fn name(&self) -> &str {
        "OffloadedAggregateExec"
    }

    fn schema(&self) -> SchemaRef {
        self.host.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.host.properties()
    }

    /// A device has its groups in an order of its own.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.host]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [host] = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children).map_err(|_| {
            Error::from(ErrorKind::Internal("an offloaded aggregation has one input".into()))
        })?;
        let (asked, calls) = (Arc::clone(&self.asked), self.calls.clone());
        Ok(Arc::new(Self::new(asked, calls, self.choice.clone(), host)))
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
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if !self.choice.by_device {
            if partition == 0 {
                for &(column, seconds) in &self.choice.missed {
                    kept::owe(&self.asked.columns[column], seconds);
                }
            }
            return self.by_host(partition, context);
        }
        let (outcome, host) = (self.outcome(&context)?, Arc::clone(&self.host));
        let rows = async move {
            let answers = outcome.await.map_err(|error| DataFusionError::from(&error))?;
            Ok::<_, DataFusionError>(match answers {
                Some(answers) => {
                    let own = answers.0.get(partition).cloned().unwrap_or_default();
                    stream::iter(own.into_iter().map(Ok)).boxed()
                }
                None => host.execute(partition, context)?,
            })
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = stream::once(rows).try_flatten();
        let rows = rows.map(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}

impl DisplayAs for OffloadedAggregateExec {
    /// Who runs it, what is moved, and what is expected of both sides; after a run why the host did it. Below is the host's plan.
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { by_device, device_seconds, host_seconds, read_bytes, brought_bytes, .. } =
            self.choice;
        let who = if by_device { "by the GPU" } else { "by the host" };
        if format != DisplayFormatType::TreeRender {
            f.write_str("OffloadedAggregateExec: ")?;
        }
        let [read, brought] = [read_bytes, brought_bytes].map(|of| explain::bytes(of as f64));
        let [device, host] = [device_seconds, host_seconds].map(explain::seconds);
        write!(f, "{who} (GPU {device}, reads {read}, {brought} to bring; host {host})")?;
        self.choice.fallen.iter().try_for_each(|why| write!(f, " ({why})"))?;
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.iter().try_for_each(|why| write!(f, " (done by the host: {why})"))?;
        self.on_device.get().map_or(Ok(()), |device| write!(f, " (by GPU {device})"))
    }
}
