//! Windows against DataFusion's own, which hold all rows, under limits from none to all that there are.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::memory::share_of;
use crate::planner::spilling::{SpillingOperators, SpillingSorts};

/// Groups of very unlike sizes, one of them NULL, with values of which many are equal.
fn table(rows: usize, seed: u64) -> Vec<RecordBatch> {
    let mut random = SmallRng::seed_from_u64(seed);
    let batch = |at: usize, count: usize, random: &mut SmallRng| {
        let group = |_| match random.random_range(0..10) {
            0 => None,
            1..7 => Some(0),
            _ => Some(random.random_range(0..3000)),
        };
        let groups: ArrayRef = Arc::new((0..count).map(group).collect::<Int64Array>());
        let value = |_| random.random_bool(0.9).then(|| f64::from(random.random_range(0..20)));
        let values: ArrayRef = Arc::new((0..count).map(value).collect::<Float64Array>());
        let ids: ArrayRef =
            Arc::new(Int64Array::from_iter_values((at..at + count).map(|id| id as i64)));
        RecordBatch::try_from_iter_with_nullable([
            ("g", groups, true),
            ("v", values, true),
            ("id", ids, true),
        ])
    };
    let starts = (0..rows).step_by(5000);
    starts.map(|at| batch(at, 5000.min(rows - at), &mut random).unwrap()).collect()
}

/// The rows of a query by DataFusion alone, and by ours under each limit.
fn agree(query: &str, limits: &[usize]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for seed in 0..3 {
        let batches = table(120_000, seed);
        let (ours, ordinary) = runtime.block_on(async {
            let context =
                SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
            let table = MemTable::try_new(batches[0].schema(), vec![batches.clone()]).unwrap();
            context.register_table("t", Arc::new(table)).unwrap();
            let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
            let expected = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
            let plan = spilling(plan);
            let mut ours = Vec::new();
            for &limit in limits {
                ours.push(run(Arc::clone(&plan), limit).await.unwrap());
            }
            (ours, concat_batches(&plan.schema(), &expected).unwrap())
        });
        for (rows, limit) in ours.into_iter().zip(limits) {
            assert_eq!(rows, ordinary, "{query} of {seed} within {limit}");
        }
    }
}

fn spilling(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let options = ConfigOptions::new();
    SpillingSorts.optimize(SpillingOperators.optimize(plan, &options).unwrap(), &options).unwrap()
}

async fn run(plan: Arc<dyn ExecutionPlan>, limit_bytes: usize) -> Result<RecordBatch> {
    let plan = datafusion::physical_plan::execution_plan::reset_plan_states(plan)?;
    let pool = share_of(limit_bytes);
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
    let config = SessionConfig::new().with_target_partitions(2);
    let context = TaskContext::default().with_session_config(config).with_runtime(environment);
    let batches = collect(Arc::clone(&plan), Arc::new(context)).await?;
    assert_eq!(pool.reserved(), 0, "what was reserved is given back");
    Ok(concat_batches(&plan.schema(), &batches)?)
}

const LIMITS: [usize; 3] = [8_000_000, 8_000_000, usize::MAX];

#[test]
fn whole_partitions_are_answered_under_any_limit() {
    agree(
        "SELECT *, sum(v) OVER (PARTITION BY g), count(*) OVER (PARTITION BY g) FROM t ORDER BY g, id",
        &LIMITS,
    );
    agree("SELECT *, max(v) OVER (), count(v) OVER () FROM t ORDER BY id", &LIMITS);
}

#[test]
fn ranks_and_groups_are_answered_under_any_limit() {
    agree(
        "SELECT *, row_number() OVER w, rank() OVER w, ntile(7) OVER w, avg(id) OVER (PARTITION BY g)
         FROM t WINDOW w AS (PARTITION BY g ORDER BY id) ORDER BY g, id",
        &LIMITS,
    );
    agree(
        "SELECT *, percent_rank() OVER w, rank() OVER w, count(*) OVER (PARTITION BY g)
         FROM t WINDOW w AS (PARTITION BY g ORDER BY v) ORDER BY g, id",
        &LIMITS,
    );
    agree(
        "SELECT *, cume_dist() OVER w, cume_dist() OVER (PARTITION BY g), percent_rank() OVER w
         FROM t WINDOW w AS (PARTITION BY g ORDER BY v) ORDER BY g, id",
        &LIMITS,
    );
    agree(
        "SELECT id, cume_dist() OVER (ORDER BY v), lag(id) OVER (ORDER BY v, id) FROM t ORDER BY id",
        &[1_000_000],
    );
    agree("SELECT id, cume_dist() OVER (ORDER BY id) FROM t ORDER BY id", &[1_000_000]);
    agree(
        "SELECT *, ntile(1000000) OVER (ORDER BY id), lag(v) OVER (ORDER BY id) FROM t ORDER BY id",
        &LIMITS,
    );
}

#[test]
fn rows_without_columns_are_counted_by_what_is_made_of_them() {
    agree("SELECT sum(n) FROM (SELECT count(*) OVER () AS n FROM t)", &LIMITS);
    agree("SELECT sum(n) FROM (SELECT count(*) OVER () AS n FROM t)", &[100_000]);
}

#[test]
fn a_function_that_needs_all_rows_is_named_where_they_do_not_fit() {
    let query = "SELECT id, first_value(v) OVER w FROM t
                 WINDOW w AS (ORDER BY v, id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY id";
    agree(query, &[200_000_000, usize::MAX]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let error = runtime.block_on(async {
        let context = SessionContext::new();
        let batches = table(120_000, 0);
        let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
        let plan = spilling(plan);
        run(plan, 1_000_000).await.unwrap_err()
    });
    let message = crate::error::Error::from(error).to_string();
    assert!(message.contains("first_value(t.v)"), "{message}");
}
