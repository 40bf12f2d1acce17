//! What a device may do in place of a plan: the operator over the plan by which the host does it.
//!
//! Enters: work that a device can do ([`Work`]), who is to do it, and the host's plan. Leaves: the rows of that plan. Not here: what a device does, and
//! whether it is worth it (`planner::offloaded`).
//!
//! ```text
//! OffloadedAggregateExec: by the GPU (…)        Work ─ run ─► Rows ─ of each partition ─►
//!   AggregateExec: …                              └ failed: the plan below, from its beginning
//! ```
//!
//! Nothing is emitted before all has come, so where the device fails, the host's plan runs as if nobody had asked it. Where the
//! host is expected to be faster it runs that plan at once, and takes note of how long that took.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildStats, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, StatisticsArgs,
};
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};

use super::chosen::for_work;
use super::groups::{Asked, Log};
use super::observed::{self, By};
use super::{Failed, falls, kept};
use crate::config::Settings;
use crate::error::{Error, ErrorKind};
use crate::exec::run::Cancel;
use crate::exec::{Engine, blocking, explain};
use crate::gpu::{self, Device};

/// What a device may do in place of a plan.
pub(crate) trait Work: fmt::Debug + Send + Sync {
    /// The name of the operator.
    fn name(&self) -> &'static str;

    /// What its memory is counted as.
    fn held_as(&self) -> &'static str;

    /// What it asks of tables.
    fn asked(&self) -> &Asked;

    /// Whether a device does such work as it should; who does not wait for that is told so once somebody knows.
    fn is_right_on(&self, device: &Arc<Device>, waits: bool) -> bool;

    /// Does it, in place of this plan.
    ///
    /// # Errors
    /// Why the host is to do it.
    fn run(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        device: &Arc<Device>,
        around: Around<'_>,
    ) -> std::result::Result<Done, Missing>;
}

/// What a device has done.
pub(crate) struct Done {
    pub(super) rows: Box<dyn Rows>,
    /// Bytes of the columns that were brought for it, and how they came.
    pub(super) brought_bytes: usize,
    pub(super) log: Log,
}

/// Rows that have all been found.
pub(super) trait Rows: Send + Sync {
    /// Those of a partition of the plan.
    fn of(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> BoxStream<'static, Result<RecordBatch>>;
}

/// What work has of its statement.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// Threads that decode columns.
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) cancel: &'a Cancel,
    /// What its memory on this side is counted in.
    pub(super) bytes: &'a MemoryReservation,
    /// Whether columns that are brought stay for the next who reads them.
    pub(super) keeps: bool,
    /// Whether a kernel that there is none of yet is waited for.
    pub(super) waits: bool,
}

/// Why a device has not done its work.
pub(crate) enum Missing {
    Failed(Failed),
    /// Its kernel is being compiled, for who asks next.
    Compiling,
    /// What is wrong with the rows themselves.
    Wrong(DataFusionError),
}

impl<E: Into<Failed>> From<E> for Missing {
    fn from(failed: E) -> Self {
        Self::Failed(failed.into())
    }
}

impl From<ArrowError> for Failed {
    fn from(error: ArrowError) -> Self {
        Self::Unfit(error.to_string())
    }
}

impl From<DataFusionError> for Failed {
    fn from(error: DataFusionError) -> Self {
        Self::Unfit(error.to_string())
    }
}

/// Who is to do it, and why.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) by_device: bool,
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
    /// By which the same plan is known, and the seconds expected of the device and the host by rates alone.
    pub(crate) text: String,
    pub(crate) by_rates: [f64; 2],
    /// Columns whose absence kept the device from it, and the seconds that each would have saved.
    pub(crate) missed: Vec<(usize, f64)>,
}

/// The rows, and the memory that they are counted in.
type Held = Arc<(Box<dyn Rows>, MemoryReservation)>;

/// What a device has found; nothing where the host is to run its plan.
type Outcome = Shared<BoxFuture<'static, std::result::Result<Option<Held>, Arc<DataFusionError>>>>;

/// Work that a device may do; see the header of this file.
pub(crate) struct OffloadedExec {
    work: Arc<dyn Work>,
    choice: Choice,
    host: Arc<dyn ExecutionPlan>,
    outcome: Mutex<Option<Outcome>>,
    /// Why the host did what was meant for the device.
    failure: Arc<Mutex<Option<String>>>,
    /// The device that did it, where there are several.
    on_device: Arc<OnceLock<usize>>,
    /// Partitions of the host's plan that have not ended, since when.
    left: Arc<(AtomicUsize, OnceLock<Instant>)>,
    metrics: ExecutionPlanMetricsSet,
}

impl OffloadedExec {
    /// The operator over the host's plan of some work.
    pub(crate) fn new(work: Arc<dyn Work>, choice: Choice, host: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = host.output_partitioning().partition_count();
        Self {
            work,
            choice,
            host,
            outcome: Mutex::default(),
            failure: Arc::default(),
            on_device: Arc::default(),
            left: Arc::new((AtomicUsize::new(partitions), OnceLock::new())),
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
        let (own, plan, stop) = (Arc::clone(&self.work), Arc::clone(&self.host), cancel.clone());
        let choice = self.choice.clone();
        let time = MetricBuilder::new(&self.metrics).subset_time("by_device", 0);
        let [by_host, brought, batches, batch_rows, streams, busy] =
            ["by_host", "brought_bytes", "batches", "batch_rows", "streams", "busy_percent"]
                .map(|name| MetricBuilder::new(&self.metrics).counter(name, 0));
        let bytes = MemoryConsumer::new(self.work.held_as()).register(context.memory_pool());
        let (failure, on_device) = (Arc::clone(&self.failure), Arc::clone(&self.on_device));
        let work = move || {
            let _timer = time.timer();
            let Choice { keeps, waits, .. } = choice;
            let around = Around { pool: &engine.pool, cancel: &stop, bytes: &bytes, keeps, waits };
            let by_device = || {
                let assigned = for_work(own.as_ref(), &choice, &among)?;
                let device = assigned.device();
                let (began, loaded) = (Instant::now(), device.usage().loaded());
                let done = own.run(&plan, device, around)?;
                // What had to be compiled first tells nothing of the next run.
                if device.usage().loaded() == loaded {
                    let seconds = began.elapsed().as_secs_f64();
                    observed::note(By::Device, &choice.text, choice.by_rates[0], seconds);
                }
                if gpu::are_several() {
                    on_device.get_or_init(|| device.ordinal());
                }
                Ok(done)
            };
            match by_device() {
                Ok(done) => {
                    brought.add(done.brought_bytes);
                    batches.add(done.log.batches);
                    batch_rows.add(done.log.rows_max);
                    streams.add(done.log.streams);
                    busy.add(done.log.busy_percent());
                    Ok(Some(Arc::new((done.rows, bytes))))
                }
                Err(Missing::Compiling) => Ok(None),
                Err(Missing::Wrong(error)) => Err(error.into()),
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
        let outcome = async move {
            let found = blocking(cancel, work).await.map_err(DataFusionError::from)?;
            if found.is_none() {
                by_host.add(1);
            }
            Ok(found)
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
        // Not before a device has given up, and not when it was planned.
        let began = *self.left.1.get_or_init(Instant::now);
        let rows = self.host.execute(partition, context)?;
        let (left, text, by_rates) =
            (Arc::clone(&self.left), self.choice.text.clone(), self.choice.by_rates[1]);
        let mut end = Some(move || {
            if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                observed::note(By::Host, &text, by_rates, began.elapsed().as_secs_f64());
            }
        });
        let ended = stream::poll_fn(move |_| {
            end.take().into_iter().for_each(|end| end());
            Poll::Ready(None)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.chain(ended))))
    }
}

impl fmt::Debug for OffloadedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OffloadedExec");
        shown.field("work", &self.work).field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl ExecutionPlan for OffloadedExec {
    fn name(&self) -> &str {
        self.work.name()
    }

    fn schema(&self) -> SchemaRef {
        self.host.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.host.properties()
    }

    /// A device keeps to the order that the host's plan promises, if it promises one.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.host.output_ordering().is_some()]
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
            Error::from(ErrorKind::Internal("what is offloaded has one plan".into()))
        })?;
        Ok(Arc::new(Self::new(Arc::clone(&self.work), self.choice.clone(), host)))
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
                    kept::owe(&self.work.asked().columns[column], seconds);
                }
            }
            return self.by_host(partition, context);
        }
        let (outcome, host) = (self.outcome(&context)?, Arc::clone(&self.host));
        let rows = async move {
            let found = outcome.await.map_err(|error| DataFusionError::from(&error))?;
            Ok::<_, DataFusionError>(match found {
                Some(found) => {
                    let rows = found.0.of(partition, &context);
                    let rows = rows.map(move |batch| {
                        // The reservation lives as long as this closure.
                        let _held = &found;
                        batch
                    });
                    rows.boxed()
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

impl DisplayAs for OffloadedExec {
    /// Who runs it, what is moved, and what is expected of both sides; after a run why the host did it. Below is the host's plan.
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { by_device, device_seconds, host_seconds, read_bytes, brought_bytes, .. } =
            self.choice;
        let who = if by_device { "by the GPU" } else { "by the host" };
        if format != DisplayFormatType::TreeRender {
            write!(f, "{}: ", self.work.name())?;
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
