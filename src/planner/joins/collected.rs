//! Which build sides are collected for all threads, and which are dealt out by key with their probe sides.
//!
//! By cost, where the rows are known: one thread collects a build side while the others wait, and all of them deal rows out, and then
//! build, each a smaller table. DataFusion has collected small build sides before this; what it knows of others are guesses
//! that are ten times too high or ten thousand times, or nothing. Sides of which nothing is known are those that `join_order` has
//! found small, and so it is with guesses where two threads work. Where it knows how many rows there are and they will not fit, they
//! are dealt out: to files, and by all threads.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use super::choices::{Choice, Choices, RUNNER_UP, Way};
use crate::config::ForRules;
use crate::planner::cost::rows::RowCosts;
use crate::planner::evidence::Evidence;

/// The part of the memory that may be reserved which one build side may be expected to take.
const MEMORY_SHARE: usize = 4;

/// Bytes of a value that is not of a fixed width, and of a row's place in a table of keys: about.
const VALUE_BYTES: usize = 32;
const PLACE_BYTES: usize = 32;

/// The rule; see the header of this file. After DataFusion's choice, before rows are dealt.
#[derive(Debug)]
pub(in crate::planner) struct CollectedBuilds {
    evidence: Evidence,
}

impl CollectedBuilds {
    pub(in crate::planner) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl PhysicalOptimizerRule for CollectedBuilds {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rules = options.extensions.get::<ForRules>().filter(|rules| rules.orders_joins);
        let Some(rules) = rules else { return Ok(plan) };
        let machine = Machine {
            costs: self.evidence.costs(options),
            threads: options.execution.target_partitions.max(2),
            bytes_max: rules.reservable_bytes / MEMORY_SHARE,
        };
        let choices = Choices::of(options);
        plan.transform_up(|node| {
            let join = node.downcast_ref::<HashJoinExec>();
            let dealt = join.filter(|join| *join.partition_mode() == PartitionMode::Partitioned);
            match dealt.filter(|join| machine.collects(join, choices)) {
                Some(join) => HashJoinExecBuilder::from(join)
                    .with_partition_mode(PartitionMode::CollectLeft)
                    .build_exec()
                    .map(Transformed::yes),
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "collected_builds"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What joins are run by.
struct Machine {
    costs: RowCosts,
    threads: usize,
    /// What a build side may take.
    bytes_max: usize,
}

impl Machine {
    /// Whether a build side is collected, which is noted where rows and costs say so.
    fn collects(&self, join: &HashJoinExec, choices: Option<&Choices>) -> bool {
        let rows = |side: &Arc<dyn ExecutionPlan>| {
            let statistics =
                StatisticsContext::new().compute(side.as_ref(), &StatisticsArgs::new());
            statistics.map_or(Precision::Absent, |known| known.num_rows)
        };
        let (build, probe) = (rows(join.left()), rows(join.right()));
        let bytes = |rows: usize| rows.saturating_mul(row_bytes(&join.left().schema()));
        if matches!(build, Precision::Exact(rows) if bytes(rows) > self.bytes_max) {
            return false;
        }
        match (build, probe.get_value()) {
            (Precision::Absent, _) => true,
            // That `join_order` has put it first says more than a guess.
            (Precision::Inexact(_), _) if self.threads == 2 => true,
            (Precision::Exact(build) | Precision::Inexact(build), Some(probe)) => {
                let costs @ [collected, dealt] =
                    self.costs([build, *probe].map(|rows| rows as f64));
                let is_collected = collected <= dealt;
                is_collected ^ choices.is_some_and(|all| all.add(choice(join, costs, is_collected)))
            }
            (Precision::Exact(_) | Precision::Inexact(_), None) => false,
        }
    }

    /// Nanoseconds until a join has ended whose build side is collected, and of one whose sides are dealt out.
    fn costs(&self, [build, probe]: [f64; 2]) -> [f64; 2] {
        let (costs, threads) = (&self.costs, self.threads as f64);
        let collected = costs.built(build) + costs.probed(build, probe) / threads;
        let all = costs.dealt(build + probe) + costs.built(build);
        [collected, (all + costs.probed(build / threads, probe)) / threads]
    }
}

/// What EXPLAIN shows.
fn choice(join: &HashJoinExec, [collected, dealt]: [f64; 2], is_collected: bool) -> Choice {
    let key = |key: &Arc<dyn PhysicalExpr>| match key.downcast_ref::<Column>() {
        Some(column) => column.name().to_owned(),
        None => key.to_string(),
    };
    let keys = join.on().iter().map(|(left, right)| format!("{} = {}", key(left), key(right)));
    let of = format!("rows joined by {}", keys.collect::<Vec<_>>().join(", "));
    let collected = Way::new("one table for all threads", collected);
    let dealt = Way::new("dealt out to a table for each", dealt);
    let (taken, next) = if is_collected { (collected, dealt) } else { (dealt, collected) };
    Choice::new(of, taken, vec![(RUNNER_UP, next)])
}

/// Bytes of a row of a build side and of its place among the keys.
fn row_bytes(schema: &Schema) -> usize {
    let widths = schema.fields().iter().map(|field| field.data_type().primitive_width());
    PLACE_BYTES + widths.map(|width| width.unwrap_or(VALUE_BYTES)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::common::{JoinType, NullEquality};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, lit};
    use datafusion::physical_plan::filter::FilterExec;

    use super::*;
    use crate::exec::costs::Constant;
    use crate::planner::cost::CostModel;

    fn table(rows: i64) -> Arc<dyn ExecutionPlan> {
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let rows = RecordBatch::try_from_iter([("k", k)]).unwrap();
        MemorySourceConfig::try_new_exec(&[vec![rows.clone()]], rows.schema(), None).unwrap()
    }

    fn join(build: Arc<dyn ExecutionPlan>, probe_rows: i64) -> HashJoinExec {
        let key = || Arc::new(Column::new("k", 0)) as _;
        HashJoinExec::try_new(
            build,
            table(probe_rows),
            vec![(key(), key())],
            None,
            &JoinType::Inner,
            None,
            PartitionMode::Partitioned,
            NullEquality::NullEqualsNothing,
            false,
        )
        .unwrap()
    }

    fn is_small(build: Arc<dyn ExecutionPlan>, probe_rows: i64, threads: usize) -> bool {
        let machine = Machine { costs: RowCosts::default(), threads, bytes_max: 4000 };
        machine.collects(&join(build, probe_rows), None)
    }

    #[test]
    fn a_build_side_is_collected_that_fits_and_is_smaller_by_the_threads_that_wait() {
        let is_small = |build, probe, threads| is_small(table(build), probe, threads);
        assert!(is_small(100, 110, 2) && !is_small(100, 90, 2));
        assert!(is_small(100, 330, 3) && !is_small(100, 270, 3));
        assert!(is_small(50, 55 * 15, 9) && !is_small(50, 45 * 15, 9));
        // Of 40 bytes a row, no more than a hundred fit.
        assert!(!is_small(101, 500, 2));
    }

    #[test]
    fn slow_dealing_and_slow_building_decide() {
        let costs = CostModel::default();
        let with = |constant: Constant, factor: f64| {
            let mut constants = Constant::ALL.map(|constant| costs.constant(constant));
            constants[constant.index()] *= factor;
            let costs = CostModel::of(constants).rows();
            let [collected, dealt] = Machine { costs, threads: 2, bytes_max: 0 }.costs([1e6, 1e6]);
            collected < dealt
        };
        assert!(with(Constant::Dealt, 0.5) && !with(Constant::Dealt, 2.0));
        assert!(with(Constant::Built, 2.0) && !with(Constant::Built, 0.5));
    }

    #[test]
    fn guesses_tell_nothing_of_memory() {
        let is_less = BinaryExpr::new(Arc::new(Column::new("k", 0)), Operator::Lt, lit(900_i64));
        let guessed = Arc::new(FilterExec::try_new(Arc::new(is_less), table(1000)).unwrap());
        let guessed = || Arc::clone(&guessed) as _;
        assert!(is_small(guessed(), 1000, 2));
        // Nor of which side is the smaller, where no more than one thread waits.
        assert!(is_small(guessed(), 5, 2) && !is_small(guessed(), 5, 3));
    }
}
