//! The sides of a join exchanged while it runs, where the one that is to be built turns out to be many times the other.
//!
//! ```text
//! build side ── many rows ── more ──┐        ┌─ all probe rows: a table of them
//! probe side ── a few rows ─ the end ┴──────►└─ build rows, those read and those to come: looked up
//! ```
//!
//! No estimate is asked, for those are what was wrong: once many rows of the build side have been read, a few of the probe side
//! are, and if these are all, they are built. Else they are the first that the join as planned looks up. Only a probe side that
//! filters and computes rows of a scan is looked at: one that joins would begin before the keys of this join could be told to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use futures::{StreamExt, stream};

use super::SpillingJoinExec;
use super::order::is_relied_on;
use crate::config::ForRules;
use crate::encoding::decoded_batch;
use crate::exec::encoded::encoded_rows;
use crate::exec::relational::feed::{Feed, adapted};
use crate::exec::relational::tasks::at_once;
use crate::exec::transform::TransformExec;

/// How many times the rows of the probe side those of the build side must be.
const TIMES: usize = 8;

/// The probe side of a join whose sides may be exchanged.
pub(super) struct Reversal {
    join: Arc<dyn ExecutionPlan>,
    /// By partition, until somebody reads it; they may be encoded.
    probes: Mutex<Vec<Option<SendableRecordBatchStream>>>,
    /// Rows of the build side from which on the probe side is looked at.
    many_rows: usize,
    context: Arc<TaskContext>,
}

/// Some rows of a partition, and the others if there are any.
struct Peeked {
    rows: Vec<RecordBatch>,
    rest: Option<SendableRecordBatchStream>,
}

impl Reversal {
    /// None where the join must be run as it was planned. All partitions of the probe side are opened, not read.
    ///
    /// # Errors
    /// Where one of them cannot be opened.
    pub(super) fn of(
        join: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<Option<Arc<Self>>> {
        let settings = context.session_config().options().extensions.get::<ForRules>();
        let many_rows = settings.map_or(0, |settings| settings.reversible_rows);
        if many_rows == 0 || !join.downcast_ref().is_some_and(can_be_reversed) {
            return Ok(None);
        }
        let probe = join.children()[1];
        let partitions = 0..probe.output_partitioning().partition_count();
        let probes = partitions.map(|at| encoded_rows(probe, at, Arc::clone(context)).map(Some));
        Ok(Some(Arc::new(Self {
            join: Arc::clone(join),
            probes: Mutex::new(probes.collect::<Result<_>>()?),
            many_rows,
            context: Arc::clone(context),
        })))
    }

    /// Rows of the build side that are worth a look at the probe side.
    pub(super) fn many_rows(&self) -> usize {
        self.many_rows
    }

    /// All rows of the probe side, if they are few beside so many of the build side.
    ///
    /// # Errors
    /// Whatever goes wrong while they are read.
    pub(super) async fn few(&self, build_rows: usize) -> Result<Option<Vec<RecordBatch>>> {
        let probes: Vec<_> = self.locked().iter_mut().filter_map(Option::take).collect();
        let rows_max = build_rows / TIMES / probes.len().max(1);
        let rows_max = rows_max.min(2 * self.context.session_config().batch_size());
        let peeked =
            at_once(probes.into_iter().map(|probe| peek(probe, rows_max)).collect()).await?;
        let schema = self.join.children()[1].schema();
        if peeked.iter().all(|peeked| peeked.rest.is_none()) {
            let rows = peeked.iter().flat_map(|peeked| &peeked.rows);
            let rows = rows.map(|rows| decoded_batch(rows, &schema));
            return Ok(Some(rows.collect::<Result<_, _>>()?));
        }
        let again = peeked.into_iter().map(|Peeked { rows, rest }| {
            let rows = stream::iter(rows.into_iter().map(Ok));
            let rest = stream::iter(rest).flatten();
            Some(adapted(Arc::clone(&schema), rows.chain(rest)))
        });
        *self.locked() = again.collect();
        Ok(None)
    }

    /// The join of a probe side that is built, and of the build side, of which some rows have been read.
    ///
    /// # Errors
    /// None but DataFusion's, for a join that cannot be made again.
    pub(super) fn reversed(
        &self,
        probe: Vec<RecordBatch>,
        read: Vec<RecordBatch>,
        rest: SendableRecordBatchStream,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join: &HashJoinExec = self.join.downcast_ref().ok_or_else(|| {
            DataFusionError::Internal("a join became another operator".to_owned())
        })?;
        let [left, right] = [join.left().schema(), join.right().schema()];
        let built = Feed::of(Arc::clone(&right), 1);
        built.put(0, adapted(right, stream::iter(probe.into_iter().map(Ok))));
        let looked_up = Feed::of(Arc::clone(&left), 1);
        looked_up.put(0, adapted(left, stream::iter(read.into_iter().map(Ok)).chain(rest)));
        let partitions = join.right().output_partitioning().partition_count();
        let dealt = RepartitionExec::try_new(looked_up, Partitioning::RoundRobinBatch(partitions))?;
        let planned = HashJoinExecBuilder::from(join)
            .reset_state()
            .with_new_children(vec![Arc::new(dealt), built])?
            .build()?;
        let spilling = |plan: Arc<dyn ExecutionPlan>| match plan.is::<HashJoinExec>() {
            true => SpillingJoinExec::new(Arc::clone(&plan))
                .map_or(Transformed::no(plan), |join| Transformed::yes(Arc::new(join) as _)),
            false => Transformed::no(plan),
        };
        let reversed = planned.swap_inputs(PartitionMode::CollectLeft)?;
        reversed.transform_up(|plan| Ok(spilling(plan))).data()
    }

    /// A partition of the probe side, for whoever looks its rows up; they may be encoded.
    ///
    /// # Errors
    /// Where it is read already.
    pub(super) fn probe(&self, partition: usize) -> Result<SendableRecordBatchStream> {
        let probe = self.locked().get_mut(partition).and_then(Option::take);
        probe.ok_or_else(|| {
            DataFusionError::Internal(format!("partition {partition} is read twice"))
        })
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Option<SendableRecordBatchStream>>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads so many rows, or all.
async fn peek(mut probe: SendableRecordBatchStream, rows_max: usize) -> Result<Peeked> {
    let (mut rows, mut count) = (Vec::new(), 0);
    while count <= rows_max {
        let Some(batch) = probe.next().await.transpose()? else {
            return Ok(Peeked { rows, rest: None });
        };
        count += batch.num_rows();
        rows.push(batch);
    }
    Ok(Peeked { rows, rest: Some(probe) })
}

/// Whether the sides of a join may be exchanged while it runs: all partitions share one build side, and nobody relies on the
/// order of the rows that leave, or on which partition they leave in.
fn can_be_reversed(join: &HashJoinExec) -> bool {
    let partitioning = join.properties().output_partitioning();
    *join.partition_mode() == PartitionMode::CollectLeft
        && !join.null_aware
        && join.join_type().supports_swap()
        && matches!(
            partitioning,
            Partitioning::UnknownPartitioning(_) | Partitioning::RoundRobinBatch(_)
        )
        && !is_relied_on(join)
        && is_of_a_scan(join.right())
}

/// Whether the rows of a plan are those of a scan, as far as conditions let them through.
fn is_of_a_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let hands_on = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<TransformExec>()
        || plan.is::<CooperativeExec>();
    match plan.children().as_slice() {
        [] => plan.is::<DataSourceExec>(),
        [input] => hands_on && is_of_a_scan(input),
        _ => false,
    }
}
