//! What a device has added up as the answers of an aggregation: its states become values, and these go to the partitions of the host's plan.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use super::run::{self, Groups};
use super::{Asked, adds_up};
use crate::exec::offload::operator::{Around, Done, Missing, Rows, Work};
use crate::gpu::Device;

/// An aggregation that a device may run.
#[derive(Debug)]
pub(crate) struct Aggregation {
    pub(crate) asked: Asked,
    pub(crate) calls: Vec<Arc<AggregateFunctionExpr>>,
}

/// The answers of each partition.
struct Answers(Vec<Vec<RecordBatch>>);

impl Rows for Answers {
    fn of(
        &self,
        partition: usize,
        _: &Arc<TaskContext>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let own = self.0.get(partition).cloned().unwrap_or_default();
        stream::iter(own.into_iter().map(Ok)).boxed()
    }
}

impl Work for Aggregation {
    fn name(&self) -> &'static str {
        "OffloadedAggregateExec"
    }

    fn held_as(&self) -> &'static str {
        "groups of a GPU"
    }

    fn asked(&self) -> &Asked {
        &self.asked
    }

    fn is_right_on(&self, device: &Arc<Device>, waits: bool) -> bool {
        adds_up(device, waits)
    }

    fn run(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        device: &Arc<Device>,
        around: Around<'_>,
    ) -> std::result::Result<Done, Missing> {
        let groups = run::run(&self.asked, device, around)?;
        let (brought_bytes, log) = (groups.brought_bytes, groups.log);
        let answers = self.answers(groups, plan).map_err(Missing::Wrong)?;
        Ok(Done { rows: Box::new(answers), brought_bytes, log })
    }
}

impl Aggregation {
    /// The answers for each partition of the host's plan.
    fn answers(&self, groups: Groups, plan: &Arc<dyn ExecutionPlan>) -> Result<Answers> {
        let Groups { keys, states, count, .. } = groups;
        let places: Vec<usize> = (0..count).collect();
        let (mut columns, mut states) = (keys, states.into_iter());
        for call in &self.calls {
            let own: Vec<ArrayRef> = states.by_ref().take(call.state_fields()?.len()).collect();
            let mut totals = call.create_groups_accumulator()?;
            totals.merge_batch(&own, &places, count)?;
            columns.push(totals.evaluate(EmitTo::All)?);
        }
        let all = RecordBatch::try_new(plan.schema(), columns)?;
        let partitioning = plan.output_partitioning();
        let mut partitions = vec![Vec::new(); partitioning.partition_count()];
        if count == 0 {
            return Ok(Answers(partitions));
        }
        match partitioning {
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
        Ok(Answers(partitions))
    }
}
