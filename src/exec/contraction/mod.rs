//! A join whose pairs are summed up by keys of both sides, run as the matrix product that it is.
//!
//! Enters: the rows of both sides, each its join keys, its group keys and its values. Leaves: the groups.
//! No pair is ever a row: a join of two tables of 2000x2000 cells has 8,000,000,000.
//!
//! ```text
//! left   k, i, x   ─ keys ─ places ─┐           dense    where most pairs exist: a product of matrices
//! right  k, j, y   ─ keys ─ places ─┴ contract  sparse   else: row by row of the left side
//!                                                  └──── groups i, j, fold(term(x, y)) ─ batches
//! ```
//!
//! What SQL would answer is answered: the groups that a pair reaches and no others, NULL where no term is
//! a number, an error where one is too large. Where numbers might not fit, where a row fails that may join
//! nothing, where memory is short and where the join makes few pairs, the ordinary plan runs instead, before
//! anything has left.

mod dense;
mod groups;
mod sides;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::{EmptyRecordBatchStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements,
    Partitioning, PlanProperties,
};

use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::oneshot;

use self::sides::Entries;
use super::kernels::contract::Combine;
use super::run::{Budget, Cancel, Rows};
use super::{Batches, Engine, Reserved, Sender, streamed};
use crate::error::{Error, ErrorKind, Result};

/// What is computed of each group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) struct Contraction {
    /// How many leading columns of either input are join keys.
    pub(crate) join_keys: usize,
    /// How many of those that follow are group keys, by side; the rest are values.
    pub(crate) group_keys: [usize; 2],
    /// The group keys as the result has them: the side of each, and which of its keys it is.
    pub(crate) keys: Vec<(usize, usize)>,
    /// The columns that follow them.
    pub(crate) calls: Vec<Call>,
}

/// One aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) struct Call {
    pub(crate) function: Function,
    /// Which value of either side it reads.
    pub(crate) values: [Option<usize>; 2],
    pub(crate) combine: Combine,
    /// The type in which SQL computes the term: it must hold every one.
    pub(crate) term_type: DataType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) enum Function {
    Count,
    Sum,
    Average,
    Least,
    Greatest,
}

/// Why the ordinary plan runs.
#[derive(Debug, Clone, Copy)]
enum Ordinary {
    /// The join makes hardly more pairs than it reads rows.
    FewPairs,
    /// A number might not fit.
    Overflow,
    /// The limit would be passed.
    Memory,
    /// A row has no value, which only matters if it joins another.
    Error,
}

/// The contraction as an operator.
#[derive(Debug)]
pub(crate) struct ContractionExec {
    contraction: Arc<Contraction>,
    text: String,
    sides: [Arc<dyn ExecutionPlan>; 2],
    /// The side that is read first: the one of fewer rows, as far as anybody knows.
    first: usize,
    /// The join and the aggregation, in one partition.
    ordinary: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ContractionExec {
    pub(crate) fn new(
        contraction: Contraction,
        text: String,
        sides: [Arc<dyn ExecutionPlan>; 2],
        first: usize,
        ordinary: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(ordinary.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            contraction: Arc::new(contraction),
            text,
            sides,
            first,
            ordinary,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The join and the aggregation, which no parent sees.
    pub(crate) fn ordinary(&self) -> &Arc<dyn ExecutionPlan> {
        &self.ordinary
    }

    /// The same beside another plan for the join and the aggregation.
    pub(crate) fn with_ordinary(&self, ordinary: Arc<dyn ExecutionPlan>) -> Self {
        let sides = self.sides.each_ref().map(Arc::clone);
        let contraction = Contraction::clone(&self.contraction);
        Self::new(contraction, self.text.clone(), sides, self.first, ordinary)
    }
}

/// One run, on its way to a thread that may block.
struct Job {
    contraction: Arc<Contraction>,
    schema: SchemaRef,
    sides: [Batches; 2],
    first: usize,
    engine: Arc<Engine>,
    cancel: Cancel,
    budget: Reserved,
    metrics: Metrics,
}

/// What EXPLAIN ANALYZE tells.
struct Metrics {
    pairs: Count,
    groups: Count,
    /// How often a product of dense matrices answered, and how often the ordinary plan and why.
    dense: Count,
    few_pairs: Count,
    overflow: Count,
    memory: Count,
    error: Count,
}

impl Metrics {
    fn new(set: &ExecutionPlanMetricsSet) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, 0);
        Self {
            pairs: counter("pairs"),
            groups: counter("groups"),
            dense: counter("dense_products"),
            few_pairs: counter("joined_for_few_pairs"),
            overflow: counter("joined_for_large_numbers"),
            memory: counter("joined_for_memory"),
            error: counter("joined_for_errors"),
        }
    }

    fn count(&self, why: Ordinary) {
        match why {
            Ordinary::FewPairs => self.few_pairs.add(1),
            Ordinary::Overflow => self.overflow.add(1),
            Ordinary::Memory => self.memory.add(1),
            Ordinary::Error => self.error.add(1),
        }
    }
}

impl Job {
    /// Sends all groups, or none and why.
    fn run(&mut self, send: &Sender) -> Result<Option<Ordinary>> {
        use ErrorKind::{DiskSpent, MemorySpent};
        let spent = |error: &Error| matches!(error.kind(), MemorySpent { .. } | DiskSpent { .. });
        let read = match self.read() {
            Ok(read) => read,
            Err(error) if spent(&error) => return Ok(Some(Ordinary::Memory)),
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => return Err(error),
            Err(_) => return Ok(Some(Ordinary::Error)),
        };
        let sides = match read {
            Ok(sides) => sides,
            Err(why) => return Ok(Some(why)),
        };
        let Self { contraction, schema, engine, cancel, budget, metrics, .. } = self;
        let plan = match groups::plan(contraction, &sides, schema) {
            Ok(plan) => plan,
            Err(why) => return Ok(Some(why)),
        };
        if let Err(error) =
            budget.grow(plan.size_bytes(engine.pool.current_num_threads()), "groups")
        {
            return if spent(&error) { Ok(Some(Ordinary::Memory)) } else { Err(error) };
        }
        metrics.pairs.add(plan.pairs() as usize);
        metrics.dense.add(usize::from(plan.is_dense()));
        plan.run(sides, &engine.pool, cancel, &mut |batch| {
            metrics.groups.add(batch.num_rows());
            send.batch(batch)
        })?;
        Ok(None)
    }

    /// The entries of both sides.
    fn read(&mut self) -> Result<Result<[Entries; 2], Ordinary>> {
        let mut batches = [Vec::new(), Vec::new()];
        let rows =
            |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        for side in [self.first, 1 - self.first] {
            batches[side] = self.batches(side)?;
            if side == self.first
                && !sides::keys_repeat(&batches[side], self.contraction.join_keys)?
            {
                return Ok(Err(Ordinary::FewPairs));
            }
        }
        // Places are numbers of 32 bits.
        if batches.iter().map(|batches| rows(batches)).sum::<usize>() > u32::MAX as usize {
            return Ok(Err(Ordinary::Memory));
        }
        let contraction = Arc::clone(&self.contraction);
        self.engine.pool.install(|| sides::entries(&contraction, batches)).map(Ok)
    }

    fn batches(&mut self, side: usize) -> Result<Vec<RecordBatch>> {
        let rows = &mut self.sides[side];
        // Keys of no rows at all have types too.
        let mut batches = vec![RecordBatch::new_empty(rows.schema())];
        while let Some(batch) = rows.next()? {
            self.cancel.check()?;
            let bytes = batch.get_array_memory_size() + sides::ROW_BYTES * batch.num_rows();
            self.budget.grow(bytes, "the rows of a join")?;
            batches.push(batch);
        }
        Ok(batches)
    }
}

impl ExecutionPlan for ContractionExec {
    fn name(&self) -> &str {
        "ContractionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sides.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        let sides = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children)
            .map_err(|_| Error::from(ErrorKind::Internal("a contraction has two inputs".into())))?;
        let contraction = Contraction::clone(&self.contraction);
        let (text, ordinary) = (self.text.clone(), Arc::clone(&self.ordinary));
        Ok(Arc::new(Self::new(contraction, text, sides, self.first, ordinary)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(
            &Arc<dyn PhysicalExpr>,
        ) -> datafusion::error::Result<
            datafusion::common::tree_node::TreeNodeRecursion,
        >,
    ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> datafusion::error::Result<SendableRecordBatchStream> {
        let (cancel, engine) = (Cancel::default(), Engine::of(&context)?);
        let mut job = Job {
            contraction: Arc::clone(&self.contraction),
            schema: self.schema(),
            sides: self.sides.each_ref().map(|side| Batches::new(side, 0, &context)),
            first: self.first,
            budget: Reserved::new(&context, &engine.blocks),
            engine,
            cancel: cancel.clone(),
            metrics: Metrics::new(&self.metrics),
        };
        let (decide, decided) = oneshot::channel();
        let groups = streamed(self.schema(), cancel, move |send| {
            if let Some(why) = job.run(send)? {
                job.metrics.count(why);
                // What has been read is read anew, and its memory may be what the join needs.
                drop(job);
                let _reader_has_gone = decide.send(());
            }
            Ok(())
        });
        let ordinary = Arc::clone(&self.ordinary);
        let otherwise = stream::once(async move {
            match decided.await {
                Ok(()) => ordinary.execute(0, context),
                Err(_) => Ok(Box::pin(EmptyRecordBatchStream::new(ordinary.schema())) as _),
            }
        });
        let batches = groups.chain(otherwise.try_flatten());
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

impl DisplayAs for ContractionExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContractionExec: {}", self.text)
    }
}
