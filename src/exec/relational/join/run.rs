//! The way of a join whose build side does not fit.
//!
//! ```text
//! build side ─ dealt ─ parts in memory ─┐
//!                └ parts in files       ├ joined at once
//! probe side ─ dealt ─ rows for those ──┘
//!                └ parts in files
//! each pair of parts in files: the build side fits ─ joined
//!                              it does not ───────── dealt again, at the next level
//!                              it does not divide ── joined block by block
//! ```
//!
//! Several partitions of the probe side may share a build side. Where only rows of the probe side leave, each
//! partition joins its own pairs, and a row leaves where it came in. Where rows of the build side leave too,
//! whoever is the last to have dealt its rows joins the pairs of all. Nobody waits for another: partitions may
//! be read one after the other.
//!
//! Source: Shapiro, "Join Processing in Database Systems with Large Main Memories", ACM TODS 11 (1986), §3.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, SpillMetrics,
};
use datafusion::physical_plan::{ExecutionPlan, SpillManager};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::blocks::Blocks;
use super::bounds::Telling;
use super::build::{Collected, Dealing, Held, Parts, collect};
use super::engine::{Engine, Engines};
use super::indexed;
use super::order::{Numbers, numbered, numbered_spec, sorted};
use super::probe::{Probe, Seen, looked_at, with_keys};
use super::reverse::Reversal;
use super::share::{Share, working_bytes};
use super::spec::Spec;
use crate::exec::encoded::decoded_rows;
use crate::exec::relational::feed::{Output, adapted, generated};
use crate::exec::relational::files::{Rows, files_of};

/// Levels of dealing, after which parts are joined block by block: 4 to the power of 8 parts at least.
const LEVELS_MAX: usize = 8;

/// What EXPLAIN ANALYZE tells of build sides.
#[derive(Clone)]
pub(super) struct Metrics {
    /// Rows of a build side that was in memory from first to last.
    build_rows: Count,
    spills: SpillMetrics,
    /// Parts of the build side that went to files, of all levels.
    parts: Count,
    /// The deepest level at which rows were dealt.
    depth: Gauge,
    /// Blocks of parts that could not be divided.
    blocks: Count,
    /// Whether the sides were exchanged.
    reversed: Count,
}

impl Metrics {
    pub(super) fn new(set: &ExecutionPlanMetricsSet, partition: usize, depth: &Gauge) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            build_rows: counter("build_rows"),
            spills: SpillMetrics::new(set, partition),
            parts: counter("spilled_parts"),
            blocks: counter("blocks"),
            reversed: counter("reversed"),
            depth: depth.clone(),
        }
    }
}

/// The facts of one run of a join.
pub(super) struct Run {
    pub(super) spec: Arc<Spec>,
    /// The same of rows with numbers, where their order is to be found again.
    dealt: Arc<Spec>,
    is_ordered: bool,
    /// Whether the join is NOT IN, which is another thing where anything is NULL.
    pub(super) is_null_aware: bool,
    /// Partitions of the probe side that share a build side.
    pub(super) partitions: usize,
    pub(super) context: Arc<TaskContext>,
    /// For what has been reserved.
    engines: Engines,
    pub(super) metrics: Metrics,
    files: [SpillManager; 2],
    working_bytes: usize,
}

impl Run {
    pub(super) fn new(
        spec: Spec,
        is_ordered: bool,
        is_null_aware: bool,
        partitions: usize,
        context: &Arc<TaskContext>,
        engines: Engines,
        metrics: Metrics,
    ) -> Self {
        let spec = Arc::new(spec);
        let dealt = if is_ordered { Arc::new(numbered_spec(&spec)) } else { Arc::clone(&spec) };
        let files = dealt.sides.each_ref().map(|side| files_of(side, context, &metrics.spills));
        let working_bytes = working_bytes(context);
        let context = Arc::clone(context);
        Self {
            spec,
            dealt,
            is_ordered,
            is_null_aware,
            partitions,
            context,
            engines,
            metrics,
            files,
            working_bytes,
        }
    }
}

/// A build side that has been read.
pub(super) enum Build {
    /// It is in memory.
    Whole(Resident),
    /// It did not fit.
    Dealt(Arc<Shared>),
    /// It is the larger side: this join builds the other one.
    Larger(Arc<dyn ExecutionPlan>),
}

/// A build side in parts, shared by partitions of the probe side.
pub(super) struct Shared {
    /// The parts in memory, one for each partition to take: they go with the last that is done.
    residents: Mutex<Vec<Option<Arc<Resident>>>>,
    is_resident: Vec<bool>,
    spilled: Vec<Rows>,
    rows: usize,
    seen: Arc<Seen>,
    /// What the partitions of the probe side have dealt, where the last joins the pairs of all.
    gathered: Mutex<Option<Vec<Rows>>>,
    partitions_left: AtomicUsize,
}

/// What of a build side is in memory, which is reserved as long as this lives.
pub(super) struct Resident {
    engine: Engine,
    _share: Arc<Share>,
}

/// Reads a build side, all of its inputs, and tells its keys to who wants to know.
pub(super) async fn read(
    run: Arc<Run>,
    inputs: Vec<SendableRecordBatchStream>,
    telling: Option<Telling>,
    reversal: Option<Arc<Reversal>>,
) -> Result<Build> {
    let share = Arc::new(Share::new(&run.context));
    match collect(inputs, &run.spec, &share, reversal.as_deref(), run.partitions).await? {
        Collected::Whole(rows) => {
            run.metrics.build_rows.add(rows.num_rows());
            let keys = match &telling {
                Some(_) => indexed::evaluated(&run.spec.keys(0), &rows)?,
                None => Vec::new(),
            };
            let (partitions, is_null_aware) = (run.partitions, run.is_null_aware);
            let engine = run.engines.engine(&run.spec, rows, partitions, is_null_aware)?;
            if let Some(telling) = telling {
                telling.tell(&keys, engine.keys()).await;
            }
            Ok(Build::Whole(Resident { engine, _share: share }))
        }
        Collected::Larger(probe, held, input) => {
            drop(telling);
            run.metrics.reversed.add(1);
            let reversal = reversal.ok_or_else(|| internal_datafusion_err!("a side is missing"))?;
            Ok(Build::Larger(reversal.reversed(probe, held.into_batches(), input)?))
        }
        Collected::Refused(held, input) => {
            // Others wait for what this join says of its keys: it says that it will not.
            drop(telling);
            let mut numbers = run.is_ordered.then(Numbers::default);
            let prepare = move |batch| match &mut numbers {
                Some(numbers) => numbers.number(batch),
                None => Ok(batch),
            };
            // NOT IN must have seen all of the probe side before anything leaves.
            let keeps_parts = !run.is_null_aware;
            let (parts, share) =
                run.deal_build(share, held, input, 0, keeps_parts, prepare).await?;
            Ok(Build::Dealt(Arc::new(Shared::new(&run, parts, share)?)))
        }
    }
}

/// What a partition of the probe side, the columns of which may be encoded, makes with a build side.
pub(super) fn joined(
    run: &Arc<Run>,
    build: Arc<Build>,
    partition: usize,
    probe: impl FnOnce() -> Result<SendableRecordBatchStream>,
) -> Result<SendableRecordBatchStream> {
    // A build side that is not shared is that of one partition, whatever its number.
    let partition = if run.partitions == 1 { 0 } else { partition };
    match build.as_ref() {
        Build::Larger(reversed) => reversed.execute(partition, Arc::clone(&run.context)),
        Build::Whole(resident) => {
            let rows = resident.engine.run(partition, probe()?)?;
            let schema = rows.schema();
            // What has been reserved stays so until the last row has left.
            let held = rows.inspect(move |_| {
                let _held = &build;
            });
            Ok(adapted(schema, held))
        }
        Build::Dealt(shared) => {
            let probe = decoded_rows(probe()?, &run.spec.sides[1]);
            shared.join(run, partition, probe)
        }
    }
}

impl Run {
    async fn deal_build(
        &self,
        share: Arc<Share>,
        held: Held,
        input: SendableRecordBatchStream,
        level: usize,
        keeps_parts: bool,
        prepare: impl FnMut(RecordBatch) -> Result<RecordBatch>,
    ) -> Result<(Parts, Arc<Share>)> {
        let dealing = Dealing {
            spec: &self.dealt,
            share: &share,
            files: &self.files[0],
            working_bytes: self.working_bytes,
            level,
            keeps_parts: keeps_parts && !self.dealt.keys(0).is_empty(),
        };
        let parts = dealing.run(held, input, prepare).await?;
        self.metrics.depth.set_max(level + 1);
        self.metrics.parts.add(parts.is_resident.iter().filter(|&&is| !is).count());
        Ok((parts, share))
    }

    /// The join of parts in memory; none where there are none, and their memory is free again.
    fn resident(
        &self,
        rows: Option<RecordBatch>,
        share: Arc<Share>,
        partitions: usize,
    ) -> Result<Option<Arc<Resident>>> {
        let Some(rows) = rows else { return Ok(None) };
        let engine = self.engines.engine(&self.dealt, rows, partitions, false)?;
        Ok(Some(Arc::new(Resident { engine, _share: share })))
    }

    /// Deals a probe side, joins what meets parts in memory, and yields the others.
    async fn deal_probe(
        &self,
        input: SendableRecordBatchStream,
        resident: Option<Arc<Resident>>,
        is_resident: Vec<bool>,
        partition: usize,
        level: usize,
        output: &mut Output,
    ) -> Result<Vec<Rows>> {
        let share = Share::new(&self.context);
        share.set_base(self.working_bytes);
        let (files, bytes) = (&self.files[1], self.working_bytes);
        let probe = Probe::new(input, &self.dealt, files, bytes, level, is_resident);
        if let Some(resident) = resident {
            let joined = resident.engine.run(partition, probe.kept(&self.dealt))?;
            output.send_all(joined).await?;
        }
        probe.parts().await
    }

    /// What a pair of parts in files makes.
    fn pair<'a>(
        &'a self,
        build: Rows,
        probe: Rows,
        seen: &'a Seen,
        level: usize,
        rows_above: usize,
        output: &'a mut Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            if self.dealt.is_empty_for(build.count, probe.count) {
                return Ok(());
            }
            let share = Arc::new(Share::new(&self.context));
            share.set_base(self.working_bytes);
            share.grant(self.working_bytes / 2);
            let divides = level < LEVELS_MAX
                && build.count < rows_above / 4 * 3
                && !self.dealt.keys(0).is_empty();
            let rows = vec![self.build_rows(&build, seen)];
            match collect(rows, &self.dealt, &share, None, 1).await? {
                Collected::Whole(rows) => {
                    let engine = self.engines.engine(&self.dealt, rows, 1, false)?;
                    output.send_all(engine.run(0, probe.read())?).await
                }
                Collected::Refused(held, input) if divides => {
                    let (parts, share) =
                        self.deal_build(share, held, input, level, true, Ok).await?;
                    let rows_above = build.count;
                    drop(build);
                    let Parts { resident, is_resident, spilled, .. } = parts;
                    let resident = self.resident(resident, share, 1)?;
                    let input = probe.read();
                    drop(probe);
                    let dealt =
                        self.deal_probe(input, resident, is_resident, 0, level, output).await?;
                    for (build, probe) in spilled.into_iter().zip(dealt) {
                        self.pair(build, probe, seen, level + 1, rows_above, output).await?;
                    }
                    Ok(())
                }
                // Nobody looks at the other side of a pair.
                Collected::Refused(held, input) | Collected::Larger(_, held, input) => {
                    drop((held, input));
                    let (spec, engines) = (&self.dealt, &self.engines);
                    let working_bytes = self.working_bytes;
                    let blocks = Blocks { spec, engines, share: &share, working_bytes };
                    let build = self.build_rows(&build, seen);
                    self.metrics.blocks.add(blocks.join(build, &probe, output).await?);
                    Ok(())
                }
            }
        }
        .boxed()
    }

    /// Rows of the build side, as they take part: `NULL NOT IN (…)` is unknown unless there is nothing in it.
    fn build_rows(&self, rows: &Rows, seen: &Seen) -> SendableRecordBatchStream {
        if self.is_null_aware && seen.any_row.load(Ordering::Relaxed) {
            return with_keys(rows.read(), self.dealt.keys(0));
        }
        rows.read()
    }
}

impl Shared {
    fn new(run: &Run, parts: Parts, share: Arc<Share>) -> Result<Self> {
        let Parts { resident, is_resident, spilled, rows } = parts;
        let resident = run.resident(resident, share, run.partitions)?;
        Ok(Self {
            residents: Mutex::new(vec![resident; run.partitions]),
            is_resident,
            spilled,
            rows,
            seen: Arc::default(),
            gathered: Mutex::default(),
            partitions_left: AtomicUsize::new(run.partitions),
        })
    }

    /// What a partition of the probe side makes, or the last one of all.
    fn join(
        self: &Arc<Self>,
        run: &Arc<Run>,
        partition: usize,
        probe: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        let probe = match run.is_null_aware {
            true => looked_at(probe, run.spec.keys(1), Arc::clone(&self.seen)),
            false => probe,
        };
        let probe = if run.is_ordered { numbered(probe) } else { probe };
        let (shared, by) = (Arc::clone(self), Arc::clone(run));
        let rows = generated(Arc::clone(&run.dealt.schema), move |output| async move {
            shared.join_to(&by, partition, probe, output).await
        });
        if run.is_ordered { sorted(rows, &run.spec, &run.context) } else { Ok(rows) }
    }

    async fn join_to(
        &self,
        run: &Run,
        partition: usize,
        probe: SendableRecordBatchStream,
        mut output: Output,
    ) -> Result<()> {
        let resident = locked(&self.residents)[partition].take();
        let is_resident = self.is_resident.clone();
        let dealt = run.deal_probe(probe, resident, is_resident, partition, 0, &mut output).await?;
        let Some(dealt) = self.gather(run, dealt) else { return Ok(()) };
        // Whatever is compared with a NULL among others is not known to be none of them.
        if run.is_null_aware && self.seen.any_null.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (build, probe) in self.spilled.iter().cloned().zip(dealt) {
            run.pair(build, probe, &self.seen, 1, self.rows, &mut output).await?;
        }
        Ok(())
    }

    /// The rows of the probe side that this partition is to join: none where another will.
    fn gather(&self, run: &Run, dealt: Vec<Rows>) -> Option<Vec<Rows>> {
        if run.partitions == 1 || !run.spec.ends_with_build_rows() {
            return Some(dealt);
        }
        let mut gathered = locked(&self.gathered);
        match gathered.as_mut() {
            Some(gathered) => {
                for (all, rows) in gathered.iter_mut().zip(dealt) {
                    all.append(rows);
                }
            }
            None => *gathered = Some(dealt),
        }
        let is_last = self.partitions_left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last { gathered.take() } else { None }
    }
}

/// The value behind a lock whose holders never leave it half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
