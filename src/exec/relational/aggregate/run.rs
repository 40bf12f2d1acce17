//! The way of an aggregation: workers gather groups of the inputs, then the groups of each output become answers.
//!
//! ```text
//! input ─ worker ─┬─ few groups in all ─ one table ───────── answers, dealt out
//! input ─ worker ─┘
//!          └ parts ┬ those of an output, one after another ─ a table ─ answers
//!            parts ┘                                             ├ refused ─ parts of the part, at the next level
//!                                                                └ refused, for the values of few groups ─ values ─ answers
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, SpillMetrics, Time,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::deal::Dealer;
use super::parts::{Files, HeldPart, PAGE_BYTES, Part};
use super::spec::Spec;
use super::values;
use super::worker::{GROUPS, Given, Worker};
use crate::exec::relational::feed::Output;
use crate::exec::relational::files::{Rows, files_of};
use crate::exec::relational::memory::Memory;
use crate::exec::relational::tasks::at_once;

/// Groups of all workers that one of them puts together.
const FEW_GROUPS: usize = GROUPS / 2;

/// Bytes of their values.
const FEW_VALUES: usize = 1 << 20;

/// Of the limit, what open files may take.
const FILES_SHARE: usize = 16;

/// Parts that one level deals to.
const PARTS: std::ops::RangeInclusive<usize> = 4..=128;

/// Levels of dealing, after which memory is taken as it is needed.
const LEVELS_MAX: usize = 16;

/// What EXPLAIN ANALYZE tells of a run.
#[derive(Clone)]
pub(super) struct Metrics {
    spills: SpillMetrics,
    elapsed: Time,
    /// Tables that were dealt out.
    dealt: Count,
    /// Rows whose groups were read at the places of codes, and those that were dealt out without a table, for hardly two were
    /// of one group.
    by_code: Count,
    passed: Count,
}

impl Metrics {
    pub(super) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            spills: SpillMetrics::new(set, partition),
            elapsed: MetricBuilder::new(set).elapsed_compute(partition),
            dealt: counter("tables_dealt"),
            by_code: counter("rows_by_code"),
            passed: counter("rows_not_grouped"),
        }
    }
}

/// The facts of one run of an aggregation.
pub(super) struct Run {
    spec: Arc<Spec>,
    context: Arc<TaskContext>,
    metrics: Metrics,
    manager: SpillManager,
    /// Outputs that groups leave at.
    outputs: usize,
    /// Parts that one level deals to.
    parts: usize,
}

/// What leaves at one output.
enum Leaving {
    Table(Box<Worker>),
    Answers(RecordBatch),
    Parts(Vec<Part>),
}

/// The groups of all inputs, by outputs.
pub(super) struct Gathered(Mutex<Vec<Option<Leaving>>>);

impl Gathered {
    fn of(outputs: impl IntoIterator<Item = Leaving>) -> Self {
        Self(Mutex::new(outputs.into_iter().map(Some).collect()))
    }

    fn take(&self, output: usize) -> Result<Leaving> {
        let mut outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outputs[output].take().ok_or_else(|| {
            DataFusionError::Internal(format!("output {output} of an aggregation was read before"))
        })
    }
}

impl Run {
    pub(super) fn new(
        spec: &Arc<Spec>,
        outputs: usize,
        context: &Arc<TaskContext>,
        metrics: Metrics,
    ) -> Self {
        let manager = files_of(&spec.states, context, &metrics.spills);
        let limit_bytes = Memory::new("SpillingAggregate", context.memory_pool()).limit_bytes;
        let parts = (limit_bytes / FILES_SHARE / PAGE_BYTES).clamp(*PARTS.start(), *PARTS.end());
        let (spec, context) = (Arc::clone(spec), Arc::clone(context));
        Self { spec, context, metrics, manager, outputs, parts }
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    fn memory(&self) -> Memory {
        Memory::new("SpillingAggregate", self.context.memory_pool())
    }

    fn files(&self, dealer: &Dealer) -> Arc<Files> {
        Arc::new(Files::new(&self.manager, self.memory(), dealer.parts()))
    }

    /// Aggregates all inputs, at once.
    ///
    /// # Errors
    /// Those of the inputs, of expressions, aggregates and files.
    pub(super) async fn gather(
        self: Arc<Self>,
        inputs: Vec<SendableRecordBatchStream>,
    ) -> Result<Gathered> {
        // Without keys there is one group, in one part.
        let divides = !self.spec.groups.fields().is_empty();
        let divisions = if divides { self.parts.div_ceil(self.outputs) } else { 1 };
        let dealer = Dealer::new(&self.spec.dealt_by, self.outputs, divisions, 0);
        let files = self.files(&dealer);
        let mut workers = Vec::with_capacity(inputs.len());
        for input in inputs {
            let memory = self.memory().leaving_some();
            let worker = Worker::new(&self.spec, memory, &dealer, &files, Some(GROUPS))?;
            let run = Arc::clone(&self);
            workers.push(async move { run.aggregated(worker, input).await });
        }
        let mut workers = at_once(workers).await?;
        let Metrics { dealt, by_code, passed, .. } = &self.metrics;
        for worker in &workers {
            dealt.add(worker.dealings);
            by_code.add(worker.table.rows_by_code);
            passed.add(worker.rows_passed);
        }
        let groups: usize = workers.iter().map(|worker| worker.table.len()).sum();
        let is_whole = !workers.iter().any(Worker::has_dealt);
        let values: usize = workers.iter().map(|worker| worker.table.value_bytes()).sum();
        let are_few = groups <= FEW_GROUPS && (values <= FEW_VALUES || self.outputs == 1);
        if is_whole && (are_few || workers.len() == 1 && self.outputs == 1) {
            let mut first = workers.remove(0);
            for mut other in workers.drain(..) {
                first.push(Given::States(&other.table.take_states()?))?;
            }
            if !first.has_dealt() {
                return self.whole(first);
            }
            workers.push(first);
        }
        let dealt = workers.into_iter().map(|mut worker| async move {
            worker.deal()?;
            Ok(worker.into_parts())
        });
        let held = at_once(dealt.collect()).await?;
        let parts = parts_of(held, &files)?;
        let mut parts = parts.into_iter();
        let outputs =
            (0..self.outputs).map(|_| Leaving::Parts(parts.by_ref().take(divisions).collect()));
        Ok(Gathered::of(outputs.collect::<Vec<_>>()))
    }

    /// All groups of an input, as far as they are not dealt out.
    async fn aggregated(
        &self,
        mut worker: Worker,
        mut input: SendableRecordBatchStream,
    ) -> Result<Worker> {
        let mut is_empty = true;
        while let Some(rows) = input.next().await.transpose()? {
            if rows.num_rows() > 0 {
                let _timer = self.metrics.elapsed.timer();
                worker.push(Given::Rows(&rows))?;
                is_empty = false;
            }
        }
        match is_empty {
            true => worker.table.meet_totals()?,
            false => worker.end_rows()?,
        }
        Ok(worker)
    }

    /// All groups as one table, which leave where they belong.
    fn whole(&self, mut worker: Worker) -> Result<Gathered> {
        if self.outputs == 1 {
            return Ok(Gathered::of([Leaving::Table(Box::new(worker))]));
        }
        let answers = worker.table.take_answers()?;
        let dealer = Dealer::new(&self.spec.dealt_by, self.outputs, 1, 0);
        let dealt = dealer.deal(&answers, &dealer.hashes(&answers)?)?.into_iter();
        let leaving = |dealt: Option<RecordBatch>| {
            Leaving::Answers(dealt.unwrap_or_else(|| answers.slice(0, 0)))
        };
        Ok(Gathered::of(dealt.map(leaving).collect::<Vec<_>>()))
    }

    /// Hands on the answers of one output.
    ///
    /// # Errors
    /// Those of aggregates and files.
    pub(super) async fn finish(
        &self,
        gathered: &Gathered,
        output: usize,
        to: &mut Output,
    ) -> Result<()> {
        match gathered.take(output)? {
            Leaving::Table(mut worker) => self.answer(&mut worker, to).await,
            Leaving::Answers(answers) => self.send(&answers, to).await,
            Leaving::Parts(parts) => self.parts(parts, 1, to).await,
        }
    }

    /// One who aggregates a part of the level before, and its files.
    pub(super) fn worker(&self, level: usize) -> Result<(Worker, Arc<Files>)> {
        let divisions = if level < LEVELS_MAX { self.parts } else { 1 };
        let dealer = Dealer::new(&self.spec.dealt_by, 1, divisions, level);
        let files = self.files(&dealer);
        Ok((Worker::new(&self.spec, self.memory(), &dealer, &files, None)?, files))
    }

    /// The answers of parts, one after another, or of the parts of one that does not fit.
    fn parts<'a>(
        &'a self,
        parts: Vec<Part>,
        level: usize,
        to: &'a mut Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut idle = None;
            for part in parts {
                let (mut worker, files) = match idle.take() {
                    Some(idle) => idle,
                    None => self.worker(level)?,
                };
                if let Some(written) = self.fill(&mut worker, part).await? {
                    drop((worker, files));
                    let answers = values::answers(&self.spec, &written, &self.context).await?;
                    self.send(&answers, to).await?;
                } else if worker.has_dealt() {
                    worker.deal()?;
                    self.metrics.dealt.add(worker.dealings);
                    let parts = parts_of(vec![worker.into_parts()], &files)?;
                    self.parts(parts, level + 1, to).await?;
                } else {
                    self.answer(&mut worker, to).await?;
                    idle = Some((worker, files));
                }
            }
            Ok(())
        }
        .boxed()
    }

    /// Aggregates the groups of a part; yields them instead where they are few and too large for a table.
    async fn fill(&self, worker: &mut Worker, mut part: Part) -> Result<Option<Rows>> {
        // A file is read again from its beginning, and then there is nothing else.
        if self.spec.knows_values() && part.written.is_some() {
            part.write(None, &self.manager)?;
        }
        let mut held = part.held.into_iter();
        for one in held.by_ref() {
            let timer = self.metrics.elapsed.timer();
            for groups in &one.groups {
                worker.push(Given::States(groups))?;
            }
            drop((timer, one));
            if worker.is_overfull {
                let mut rest = Part { held: held.collect(), written: None };
                rest.write(Some(worker.table.take_states()?), &self.manager)?;
                return Ok(rest.written);
            }
            // Nothing is waited for here, and a statement that is to stop should not wait either.
            tokio::task::yield_now().await;
        }
        let Some(written) = part.written else { return Ok(None) };
        let mut groups = written.read();
        while let Some(groups) = groups.next().await.transpose()? {
            let _timer = self.metrics.elapsed.timer();
            worker.push(Given::States(&groups))?;
            if worker.is_overfull {
                return Ok(Some(written));
            }
        }
        Ok(None)
    }

    /// The answers of a table, whose memory stays reserved until the last has left.
    async fn answer(&self, worker: &mut Worker, to: &mut Output) -> Result<()> {
        let answers = worker.table.take_answers()?;
        self.send(&answers, to).await?;
        drop(answers);
        worker.settle();
        Ok(())
    }

    async fn send(&self, answers: &RecordBatch, to: &mut Output) -> Result<()> {
        let rows_max = self.context.session_config().batch_size();
        for start in (0..answers.num_rows()).step_by(rows_max) {
            let rows = rows_max.min(answers.num_rows() - start);
            to.send(answers.slice(start, rows)).await?;
        }
        Ok(())
    }
}

/// What workers dealt out, by parts; they write no more.
fn parts_of(workers: Vec<Vec<HeldPart>>, files: &Files) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for worker in workers {
        parts.resize_with(worker.len(), Part::default);
        parts.iter_mut().zip(worker).for_each(|(part, held)| part.held.push(held));
    }
    for (at, part) in parts.iter_mut().enumerate() {
        part.written = files.finish(at)?;
    }
    Ok(parts)
}
