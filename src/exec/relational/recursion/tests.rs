//! Recursive queries against DataFusion's own, which hold a round, under limits from next to nothing to all.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::memory::share_of;
use crate::planner::spilling::SpillingOperators;

/// Edges of a graph, with a NULL here and there and a text.
fn edges(nodes: i64, count: usize, seed: u64) -> RecordBatch {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut node = |_| random.random_bool(0.98).then(|| random.random_range(0..nodes));
    let from: Int64Array = (0..count).map(&mut node).collect();
    let to: Int64Array = (0..count).map(&mut node).collect();
    let name = |node: Option<i64>| node.map(|node| format!("node {}", node % 7));
    let names: StringArray = to.iter().map(name).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("a", Arc::new(from) as _, true),
        ("b", Arc::new(to) as _, true),
        ("name", Arc::new(names) as _, true),
    ])
    .unwrap()
}

/// The rows of a query, in one order of all columns: by DataFusion alone, and by ours under each limit.
fn agree(query: &str, limits: &[usize]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for seed in 0..3 {
            let config = SessionConfig::new().with_target_partitions(2);
            let context = SessionContext::new_with_config(config);
            let edges = edges(3000, 6000, seed);
            let table = MemTable::try_new(edges.schema(), vec![vec![edges]]).unwrap();
            context.register_table("edges", Arc::new(table)).unwrap();
            let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
            let expected = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
            let expected = in_order(&concat_batches(&plan.schema(), &expected).unwrap());
            let plan = SpillingOperators.optimize(plan, &ConfigOptions::new()).unwrap();
            let name =
                format!("{}", datafusion::physical_plan::displayable(plan.as_ref()).indent(false));
            assert!(name.contains("SpillingRecursionExec"), "{name}");
            for &limit_bytes in limits {
                let rows = run(Arc::clone(&plan), limit_bytes).await.unwrap();
                assert_eq!(in_order(&rows), expected, "{query} of {seed} within {limit_bytes}");
            }
        }
    });
}

fn in_order(rows: &RecordBatch) -> RecordBatch {
    let column = |values: &Arc<dyn arrow::array::Array>| SortColumn {
        values: Arc::clone(values),
        options: None,
    };
    let columns: Vec<SortColumn> = rows.columns().iter().map(column).collect();
    take_record_batch(rows, &lexsort_to_indices(&columns, None).unwrap()).unwrap()
}

async fn run(plan: Arc<dyn ExecutionPlan>, limit_bytes: usize) -> Result<RecordBatch> {
    let plan = reset_plan_states(plan)?;
    let pool = share_of(limit_bytes);
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
    let config = SessionConfig::new().with_target_partitions(2).with_batch_size(512);
    let context = TaskContext::default().with_session_config(config).with_runtime(environment);
    let batches = collect(Arc::clone(&plan), Arc::new(context)).await?;
    assert_eq!(pool.reserved(), 0, "what was reserved is given back");
    concat_batches(&plan.schema(), &batches).map_err(Into::into)
}

/// The first are less than any round takes.
const LIMITS: [usize; 3] = [100_000, 1_000_000, usize::MAX >> 1];

#[test]
fn all_rows_of_all_rounds_are_made_under_any_limit() {
    agree(
        "WITH RECURSIVE r AS (SELECT a, b, 0 AS n FROM edges
         UNION ALL SELECT a * 7 % 3001, b, n + 1 FROM r WHERE n < 9) SELECT * FROM r",
        &LIMITS,
    );
}

#[test]
fn a_union_ends_where_no_row_is_new_under_any_limit() {
    agree(
        "WITH RECURSIVE r AS (SELECT a, name FROM edges WHERE a < 9 UNION
         SELECT edges.b, edges.name FROM r JOIN edges ON r.a = edges.a) SELECT * FROM r",
        &LIMITS,
    );
    agree(
        "WITH RECURSIVE r AS (SELECT a FROM edges UNION SELECT (a * 7 + 1) % 60000 FROM r) SELECT * FROM r",
        &LIMITS,
    );
}

#[test]
fn a_recursion_reads_some_of_its_columns_and_may_hold_another() {
    agree(
        "WITH RECURSIVE r AS (SELECT 1 AS one, a AS x, name FROM edges UNION ALL
         SELECT 2, x - 1000, 'again' FROM r WHERE x > 1000) SELECT * FROM r",
        &LIMITS,
    );
    agree(
        "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4),
         s AS (SELECT n FROM r UNION ALL SELECT s.n + 10 FROM s JOIN edges ON edges.a = s.n WHERE s.n < 100)
         SELECT n, count(*) FROM s GROUP BY n",
        &LIMITS,
    );
}
