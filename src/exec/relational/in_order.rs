//! Rows of several partitions as one, those of each before those of the next.
//!
//! ```text
//! partition 0 ─ its turn: the reader takes what it makes ─────┐
//! partition 1 ─ runs ahead: what it makes waits in memory ────┼─► reader
//! partition 2 ─ not begun ────────────────────────────────────┘
//! ```
//!
//! Enters: an input whose partitions follow one another. Leaves: its rows in that order, so that the first few are the same ones
//! each time. About as many partitions run at once as there are threads. What is not read yet waits, as far as there is room for it, and
//! then who makes it does; so partitions are many and small rather than one for each thread.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, EvaluationType, ReplaceChildrenOptions,
    SchedulingType,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::feed::adapted;
use super::memory::Memory;
use super::tasks::joined;

/// Partitions that run beside one for each thread, for a thread that waits for its reader.
const BEGUN_BESIDE: usize = 1;

/// Bytes of rows of a partition that may wait for their reader.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// The part of the memory limit that all rows which wait may take.
const WAITING_PART: usize = 8;

/// Bytes that room is counted in.
const ROOM_UNIT: usize = 1 << 10;

/// The operator; see the header of this file.
#[derive(Debug)]
pub(crate) struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    /// Rows after which no more are wanted.
    fetch: Option<usize>,
    /// Whether partitions may begin before it is their turn.
    runs_ahead: bool,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl InOrderExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        // What its partitions are sorted by, all rows are not.
        let mut promised = input.equivalence_properties().clone();
        promised.clear_orderings();
        promised.clear_per_partition_constants();
        let properties = PlanProperties::new(
            promised,
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_evaluation_type(EvaluationType::Eager)
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, fetch, runs_ahead: true, properties: Arc::new(properties), metrics }
    }

    /// The same, which begins no partition before its turn: rows come at once, and few are wanted.
    pub(crate) fn one_by_one(self) -> Self {
        Self { runs_ahead: false, ..self }
    }
}

impl ExecutionPlan for InOrderExec {
    fn name(&self) -> &str {
        "InOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else { return Ok(self) };
        let (fetch, runs_ahead) = (self.fetch, self.runs_ahead);
        Ok(Arc::new(match options.children_properties {
            ChildrenPropertiesMode::Keep => {
                let properties = Arc::clone(&self.properties);
                let metrics = ExecutionPlanMetricsSet::new();
                Self { input, fetch, runs_ahead, properties, metrics }
            }
            ChildrenPropertiesMode::Recompute => Self { runs_ahead, ..Self::new(input, fetch) },
        }))
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
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let threads = context.session_config().target_partitions();
        let turns = Turns {
            wanted: self.fetch.unwrap_or(usize::MAX),
            begun_max: if self.runs_ahead { threads + BEGUN_BESIDE } else { 1 },
            next: 0..self.input.output_partitioning().partition_count(),
            input: Arc::clone(&self.input),
            context,
            begun: VecDeque::new(),
        };
        let rows = stream::try_unfold(turns, |mut turns| async move {
            let batch = turns.next().await?;
            Ok(batch.map(|batch| (batch, turns)))
        });
        Ok(adapted(self.schema(), rows.map(move |batch| batch.record_output(&metrics))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn child_stats_requests(&self, _partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let known = inputs.first().map(|known| known.as_ref().clone());
        let known = known.unwrap_or_else(|| Statistics::new_unknown(&self.schema()));
        Ok(Arc::new(known.with_fetch(self.fetch, 0, 1)?))
    }
}

impl DisplayAs for InOrderExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (format, self.fetch) {
            (DisplayFormatType::TreeRender, None) => Ok(()),
            (DisplayFormatType::TreeRender, Some(fetch)) => write!(f, "limit: {fetch}"),
            (_, None) => f.write_str("InOrderExec"),
            (_, Some(fetch)) => write!(f, "InOrderExec: fetch={fetch}"),
        }
    }
}

/// One run: partitions that are begun one after another, and take their turns.
struct Turns {
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// Rows that are still wanted.
    wanted: usize,
    /// Partitions that run at once.
    begun_max: usize,
    /// Those that have not begun.
    next: Range<usize>,
    /// Those that have: the first is the one whose turn it is.
    begun: VecDeque<Begun>,
}

/// The rows of a partition, and who makes them.
type Begun = (mpsc::UnboundedReceiver<Result<Waiting>>, SpawnedTask<()>);

impl Turns {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.wanted > 0 {
            while self.begun.len() < self.begun_max
                && let Some(partition) = self.next.next()
            {
                let begun = self.begin(partition)?;
                self.begun.push_back(begun);
            }
            let Some((rows, _)) = self.begun.front_mut() else { break };
            if let Some(waiting) = rows.recv().await.transpose()? {
                let batch = &waiting.batch;
                let batch = batch.slice(0, batch.num_rows().min(self.wanted));
                self.wanted -= batch.num_rows();
                return Ok(Some(batch));
            }
            if let Some((_, task)) = self.begun.pop_front() {
                joined(task).await?;
            }
        }
        self.begun.clear();
        Ok(None)
    }

    /// Lets a task of its own read a partition.
    fn begin(&self, partition: usize) -> Result<Begun> {
        let rows = self.input.execute(partition, Arc::clone(&self.context))?;
        let memory = Memory::new("InOrderExec", self.context.memory_pool());
        let share = memory.limit_bytes / WAITING_PART / self.begun_max;
        let room = Arc::new(Room::new(memory, share.min(WAITING_BYTES_MAX)));
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = SpawnedTask::spawn(read(rows, self.wanted, room, sender));
        Ok((receiver, task))
    }
}

/// Sends the rows of a partition, until so many have been sent that nobody wants more.
async fn read(
    mut rows: SendableRecordBatchStream,
    mut wanted: usize,
    room: Arc<Room>,
    sender: mpsc::UnboundedSender<Result<Waiting>>,
) {
    while wanted > 0
        && let Some(batch) = rows.next().await
    {
        let item = match batch {
            Ok(batch) => {
                wanted = wanted.saturating_sub(batch.num_rows());
                Ok(room.waiting(batch).await)
            }
            Err(error) => {
                wanted = 0;
                Err(error)
            }
        };
        if sender.send(item).is_err() {
            return;
        }
    }
}

/// Room for rows of a partition that wait for their reader.
struct Room {
    memory: Memory,
    units: Arc<Semaphore>,
    units_max: u32,
}

impl Room {
    fn new(memory: Memory, bytes_max: usize) -> Self {
        let units_max = u32::try_from(bytes_max / ROOM_UNIT).unwrap_or(u32::MAX).max(1);
        let units = Arc::new(Semaphore::new(units_max as usize));
        Self { memory, units, units_max }
    }

    /// The batch, once there is room for it: where memory is refused, once no other one waits.
    async fn waiting(self: &Arc<Self>, batch: RecordBatch) -> Waiting {
        let bytes = get_record_batch_memory_size(&batch);
        let is_granted = self.memory.try_grow(bytes);
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX);
        let units = if is_granted { units.min(self.units_max) } else { self.units_max };
        // Nobody closes it.
        let units = Arc::clone(&self.units).acquire_many_owned(units).await.ok();
        if !is_granted {
            self.memory.grow(bytes);
        }
        Waiting { batch, bytes, room: Arc::clone(self), _units: units }
    }
}

/// Rows that wait for their reader.
struct Waiting {
    batch: RecordBatch,
    bytes: usize,
    room: Arc<Room>,
    _units: Option<OwnedSemaphorePermit>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.room.memory.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
    use datafusion::common::exec_err;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionConfig;
    use futures::{FutureExt, Stream};
    use tokio::sync::oneshot;

    use super::super::feed::Feed;
    use super::*;
    use crate::memory::share_of;

    const NEVER: Duration = Duration::from_secs(30);

    /// Rows of a batch, and the bytes that they take.
    const ROWS: i64 = 1000;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("i", DataType::Int64, false)]))
    }

    fn batch(number: i64) -> RecordBatch {
        let rows = Int64Array::from_iter_values(number * ROWS..(number + 1) * ROWS);
        RecordBatch::try_new(schema(), vec![Arc::new(rows)]).unwrap()
    }

    type Batches = stream::BoxStream<'static, Result<RecordBatch>>;

    /// So many batches from one on.
    fn batches(from: i64, count: i64) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        stream::iter(from..from + count).map(|number| Ok(batch(number)))
    }

    /// What an operator over partitions yields, and whether all that it reserved is given back.
    fn run(partitions: Vec<Batches>, fetch: Option<usize>, limit_bytes: usize) -> Result<Vec<i64>> {
        let feed = Feed::of(schema(), partitions.len());
        for (at, rows) in partitions.into_iter().enumerate() {
            feed.put(at, adapted(schema(), rows));
        }
        let pool = share_of(limit_bytes);
        let environment =
            RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
        let config = SessionConfig::new().with_target_partitions(2);
        let context = TaskContext::default().with_session_config(config).with_runtime(environment);
        let rows = collect(Arc::new(InOrderExec::new(feed, fetch)), Arc::new(context));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
        let batches = runtime.block_on(async {
            tokio::time::timeout(NEVER, rows).await.expect("a partition waits for ever")
        })?;
        runtime.shutdown_timeout(NEVER);
        assert_eq!(pool.reserved(), 0);
        let values =
            |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        Ok(batches.iter().flat_map(values).collect())
    }

    /// The first partition goes on when the second has ended, whose rows come after it all the same.
    #[test]
    fn a_partition_runs_ahead_of_its_turn() {
        let (ends, has_ended) = oneshot::channel();
        let late = has_ended.into_stream().flat_map(|_| batches(0, 3)).boxed();
        let early = batches(3, 20)
            .chain(stream::once(async { ends.send(()).ok() }).filter_map(|_| async { None }));
        let rows =
            run(vec![late, early.boxed(), batches(23, 1).boxed()], None, usize::MAX).unwrap();
        assert_eq!(rows, (0..24 * ROWS).collect::<Vec<_>>());
    }

    /// The second partition has made a batch more than there is room for when the first one begins.
    #[test]
    fn a_partition_waits_for_its_turn_where_there_is_no_room() {
        const MADE: usize = 3;
        let made = Arc::new(AtomicUsize::new(0));
        let (waits, is_late) = (Arc::clone(&made), Arc::clone(&made));
        let early = batches(1, 50).inspect(move |_| {
            waits.fetch_add(1, Ordering::SeqCst);
        });
        let late = stream::once(async move {
            while is_late.load(Ordering::SeqCst) < MADE {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Time to make more, if it would.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(is_late.load(Ordering::SeqCst), MADE);
            Ok(batch(0))
        });
        // Of three partitions that may run at once each has the 24th part: two batches and a half.
        let limit_bytes = 24 * 5 / 2 * get_record_batch_memory_size(&batch(0));
        let rows = run(vec![late.boxed(), early.boxed()], None, limit_bytes).unwrap();
        assert_eq!(rows, (0..51 * ROWS).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_is_read_than_is_wanted() {
        let failing = |from, count| {
            let fails = stream::once(async { exec_err!("this row is not wanted") });
            batches(from, count).chain(fails).boxed()
        };
        let wanted = 4 * ROWS as usize + 1;
        for (first, second) in [(3, 2), (5, 0), (0, 5)] {
            let partitions = || vec![batches(0, first).boxed(), failing(first, second)];
            let rows = run(partitions(), Some(wanted), usize::MAX).unwrap();
            assert_eq!(rows, (0..wanted as i64).collect::<Vec<_>>());
            assert!(run(partitions(), None, usize::MAX).is_err());
            assert_eq!(run(partitions(), Some(0), usize::MAX).unwrap(), [0_i64; 0]);
        }
    }

    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_partition_that_panics_is_no_end() {
        let panics = batches(1, 1).inspect(|_| panic!("on purpose")).boxed();
        run(vec![batches(0, 1).boxed(), panics], None, usize::MAX).unwrap();
    }
}
