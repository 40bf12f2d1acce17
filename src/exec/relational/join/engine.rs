//! Who joins a build side that is in memory: by keys and within ends we do, each with each DataFusion.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::NestedLoopJoinExecBuilder;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};

use super::indexed::{Index, IndexedJoin, Keys};
use super::spec::Spec;
use crate::exec::encoded::decoded_rows;
use crate::exec::relational::feed::{Feed, single};

/// What engines are made with.
pub(super) struct Engines {
    /// One without a limit: what an engine holds has been reserved.
    pub(super) context: Arc<TaskContext>,
    pub(super) measures: Measures,
}

/// What EXPLAIN ANALYZE tells of engines.
#[derive(Clone)]
pub(super) struct Measures {
    /// What they take.
    pub(super) elapsed: Time,
    /// Build sides whose rows are found in an array over the range of the keys, under the name that DataFusion has for it.
    arrays: Count,
    /// Rows of the probe side of which it was known without their pairs whether they meet anybody.
    pub(super) without_pairs: Count,
}

impl Measures {
    pub(super) fn new(set: &ExecutionPlanMetricsSet, partition: usize, elapsed: Time) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        let (arrays, without_pairs) =
            (counter("array_map_created_count"), counter("rows_without_pairs"));
        Self { elapsed, arrays, without_pairs }
    }
}

/// A join over a build side in memory.
pub(super) enum Engine {
    Indexed(Arc<IndexedJoin>),
    Nested { operator: Arc<dyn ExecutionPlan>, probe: Arc<Feed>, context: Arc<TaskContext> },
}

impl Engines {
    /// The join of these rows and of a probe side of so many partitions.
    ///
    /// # Errors
    /// Where a key cannot be computed.
    pub(super) fn engine(
        &self,
        spec: &Spec,
        rows: RecordBatch,
        partitions: usize,
        is_null_aware: bool,
    ) -> Result<Engine> {
        let timer = self.measures.elapsed.timer();
        // Each partition of the probe side waits for it, and has a thread.
        let index = Index::new(spec, &rows, partitions)?;
        drop(timer);
        if let Some(index) = index {
            self.measures.arrays.add(usize::from(index.is_array()));
            let batch_rows = self.context.session_config().batch_size();
            let (measures, is_aware) = (self.measures.clone(), is_null_aware);
            let join =
                IndexedJoin::new(spec, index, rows, partitions, is_aware, batch_rows, measures)?;
            return Ok(Engine::Indexed(Arc::new(join)));
        }
        let build = Feed::of(Arc::clone(&spec.sides[0]), 1);
        build.put(0, single(rows));
        let probe = Feed::of(Arc::clone(&spec.sides[1]), partitions);
        let operator = nested(spec, build, Arc::clone(&probe) as _)?;
        Ok(Engine::Nested { operator, probe, context: Arc::clone(&self.context) })
    }
}

impl Engine {
    /// The keys of the build side, where it is joined by those.
    pub(super) fn keys(&self) -> Option<&Arc<Keys>> {
        match self {
            Self::Indexed(join) => join.keys(),
            Self::Nested { .. } => None,
        }
    }

    /// What a partition of the probe side joins, whose columns may be encoded.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn run(
        &self,
        partition: usize,
        probe: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        match self {
            Self::Indexed(join) => Ok(join.run(probe)),
            Self::Nested { operator, probe: feed, context } => {
                feed.put(partition, decoded_rows(probe, &feed.schema()));
                operator.execute(partition, Arc::clone(context))
            }
        }
    }
}

/// The operator that joins each row of one input with each of another.
fn nested(
    spec: &Spec,
    build: Arc<dyn ExecutionPlan>,
    probe: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let (_, columns) = build_join_schema(&spec.sides[0], &spec.sides[1], &spec.join_type);
    let places = spec.output.iter().map(|column| {
        let place = columns.iter().position(|of_join| of_join == column);
        place.ok_or_else(|| DataFusionError::Internal("a join lacks a column".into()))
    });
    let projection = Some(places.collect::<Result<Vec<_>>>()?);
    let join = NestedLoopJoinExecBuilder::new(build, probe, spec.join_type)
        .with_filter(spec.filter.clone())
        .with_projection(projection);
    Ok(Arc::new(join.build()?))
}
