//! Which build sides are collected for all threads, and which are dealt out by key with their probe sides.
//!
//! To deal a row out is taken to cost half of what it costs to put it into a table. Where two threads work, a build side that is
//! smaller than its probe side is collected: what one of them builds while the other waits, both need not deal. With more
//! threads, more of them wait. DataFusion has collected small build sides before this; what it knows of others are guesses
//! that are ten times too high or ten thousand times, or nothing. Sides of which nothing is known are
//! those that `join_order` has found small, and so it is with guesses where two threads work. Where it knows how many rows there are and they will not fit, they are dealt out:
//! to files, and by all threads.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use crate::config::ForRules;

/// The part of the memory that may be reserved which one build side may be expected to take.
const MEMORY_SHARE: usize = 4;

/// Bytes of a value that is not of a fixed width, and of a row's place in a table of keys: about.
const VALUE_BYTES: usize = 32;
const PLACE_BYTES: usize = 32;

/// The rule; see the header of this file. After DataFusion's choice, before rows are dealt.
#[derive(Debug)]
pub(in crate::planner) struct CollectedBuilds;

impl PhysicalOptimizerRule for CollectedBuilds {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rules = options.extensions.get::<ForRules>().filter(|rules| rules.orders_joins);
        let Some(rules) = rules else { return Ok(plan) };
        let waiting = options.execution.target_partitions.saturating_sub(1).max(1);
        let bytes_max = rules.reservable_bytes / MEMORY_SHARE;
        plan.transform_up(|node| {
            let join = node.downcast_ref::<HashJoinExec>();
            let dealt = join.filter(|join| *join.partition_mode() == PartitionMode::Partitioned);
            match dealt.filter(|join| is_small(join, waiting, bytes_max)) {
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

/// Whether a build side fits into so many bytes, as far as is known, and is worth collecting while so many threads wait: for
/// each but the first, two more rows of the probe side need not be dealt.
fn is_small(join: &HashJoinExec, waiting: usize, bytes_max: usize) -> bool {
    let rows = |side: &Arc<dyn ExecutionPlan>| {
        let statistics = StatisticsContext::new().compute(side.as_ref(), &StatisticsArgs::new());
        statistics.map_or(Precision::Absent, |known| known.num_rows)
    };
    let (build, probe) = (rows(join.left()), rows(join.right()));
    let bytes = |rows: usize| rows.saturating_mul(row_bytes(&join.left().schema()));
    if matches!(build, Precision::Exact(rows) if bytes(rows) > bytes_max) {
        return false;
    }
    match (build, probe.get_value()) {
        (Precision::Absent, _) => true,
        // That `join_order` has put it first says more than a guess.
        (Precision::Inexact(_), _) if waiting == 1 => true,
        (Precision::Exact(build) | Precision::Inexact(build), Some(probe)) => {
            build.saturating_mul(2 * waiting - 1) <= *probe
        }
        (Precision::Exact(_) | Precision::Inexact(_), None) => false,
    }
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
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
    use datafusion::physical_plan::filter::FilterExec;

    use super::*;

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

    #[test]
    fn a_build_side_is_collected_that_fits_and_is_smaller_by_the_threads_that_wait() {
        let is_small = |build, probe, waiting| is_small(&join(table(build), probe), waiting, 4000);
        assert!(is_small(100, 100, 1) && !is_small(100, 99, 1));
        assert!(is_small(100, 300, 2) && !is_small(100, 299, 2));
        assert!(is_small(50, 50 * 15, 8) && !is_small(50, 50 * 15 - 1, 8));
        // Of 40 bytes a row, no more than a hundred fit.
        assert!(!is_small(101, 500, 1));
    }

    #[test]
    fn guesses_tell_nothing_of_memory() {
        let is_less = BinaryExpr::new(Arc::new(Column::new("k", 0)), Operator::Lt, lit(900_i64));
        let guessed = Arc::new(FilterExec::try_new(Arc::new(is_less), table(1000)).unwrap());
        let guessed = || Arc::clone(&guessed) as _;
        assert!(is_small(&join(guessed(), 1000), 1, 4000));
        // Nor of which side is the smaller, where no more than one thread waits.
        assert!(is_small(&join(guessed(), 5), 1, 4000) && !is_small(&join(guessed(), 5), 2, 4000));
    }
}
