//! Windows against DataFusion's own: of a few rows in batches of any size, and of many rows under limits from none to all
//! that there are.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::distant::Queue;
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

/// A few rows with values of most types, of which many are equal or NULL.
fn few(rows: usize, seed: u64) -> RecordBatch {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut numbers = |below: i64, nulls: f64| -> ArrayRef {
        let number = |_| (!random.random_bool(nulls)).then(|| random.random_range(-1..below));
        Arc::new((0..rows).map(number).collect::<Int64Array>())
    };
    let (g, o, i) = (numbers(4, 0.1), numbers(6, 0.2), numbers(50, 0.2));
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let n = i.as_primitive::<Int64Type>().iter().map(|i| match i? {
        at @ 0..3 => Some(special[at as usize]),
        other => Some(other as f64 / 2.0),
    });
    let id = Int64Array::from_iter_values(0..rows as i64);
    RecordBatch::try_from_iter_with_nullable([
        ("g", g, true),
        ("o", o, true),
        ("v", cast(&i, &DataType::Float64).unwrap(), true),
        ("n", Arc::new(n.collect::<Float64Array>()) as ArrayRef, true),
        ("u", cast(&i, &DataType::UInt64).unwrap(), true),
        ("d", cast(&i, &DataType::Decimal128(10, 2)).unwrap(), true),
        ("t", cast(&i, &DataType::Date32).unwrap(), true),
        ("s", cast(&i, &DataType::Utf8).unwrap(), true),
        ("i", i, true),
        ("id", Arc::new(id), true),
    ])
    .unwrap()
}

/// Whether ours makes what DataFusion does of the same rows in batches of other sizes.
async fn agree_in_batches(query: &str, batch: &RecordBatch, must_be_ours: bool) {
    for batch_rows in [1, 3, 50] {
        let config = SessionConfig::new().with_target_partitions(1).with_batch_size(batch_rows);
        let context = SessionContext::new_with_config(config);
        let starts = (0..batch.num_rows()).step_by(batch_rows);
        let batches = starts.map(|at| batch.slice(at, batch_rows.min(batch.num_rows() - at)));
        let table = MemTable::try_new(batch.schema(), vec![batches.collect()]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
        let expected = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let ours = SpillingOperators.optimize(plan, &ConfigOptions::new()).unwrap();
        let text = displayable(ours.as_ref()).indent(false).to_string();
        if must_be_ours {
            assert!(text.contains("column by column"), "{query}: {text}");
            assert_eq!(
                text.matches("WindowAggExec").count(),
                text.matches("SpillingWindow").count()
            );
        }
        let schema = ours.schema();
        let ours = collect(Arc::clone(&ours), context.task_ctx()).await.unwrap();
        let ours = concat_batches(&schema, &ours).unwrap();
        let expected = concat_batches(&schema, &expected).unwrap();
        for (at, field) in schema.fields().iter().enumerate() {
            let (ours, expected) = (ours.column(at), expected.column(at));
            let name = field.name();
            assert_eq!(ours, expected, "{name} of {query} in batches of {batch_rows}");
        }
    }
}

/// Aggregates of all types, of any frame.
const AGGREGATES: &str = "count(*) OVER w, count(i) OVER w, sum(i) OVER w, sum(u) OVER w,
    sum(v) OVER w, sum(d) OVER w, avg(v) OVER w, avg(d) OVER w, min(i) OVER w,
    max(t) OVER w, min(d) OVER w, max(v) OVER w, max(u) OVER w, count(i, v) OVER w";

/// What is known of frames that begin with their partition.
const OF_RUNNING: &str = "min(n) OVER w, max(n) OVER w, sum(n) OVER w, max(s) OVER w,
    stddev(i) OVER w, count(DISTINCT i) OVER w, first_value(s) OVER w, last_value(d) OVER w,
    nth_value(i, 3) OVER w, nth_value(s, 1) OVER w, bool_or(i > 3) OVER w, avg(i + 1) OVER w";

/// Values of some row of a frame.
const OF_ONE_ROW: &str = "first_value(s) OVER w, last_value(d) OVER w, nth_value(i, 3) OVER w,
    nth_value(s, 1) OVER w, last_value(i + 1) OVER w, nth_value(v, 2) OVER w";

#[tokio::test]
async fn frames_agree_with_those_of_datafusion() {
    let running = [
        "",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    ];
    let bounded = [
        "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING",
        "ROWS BETWEEN 4 PRECEDING AND 2 FOLLOWING",
        "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
        "ROWS BETWEEN 100 PRECEDING AND 70 FOLLOWING",
    ];
    for seed in 0..3 {
        let batch = few([0, 1, 120][seed as usize], seed);
        for partition in ["", "PARTITION BY g"] {
            for order in ["", "ORDER BY o", "ORDER BY o DESC NULLS LAST, id"] {
                for frame in running {
                    if frame.starts_with("GROUPS") && order.is_empty() {
                        continue;
                    }
                    let query = format!(
                        "SELECT *, {AGGREGATES}, {OF_RUNNING} FROM t WINDOW w AS ({partition} {order} {frame})"
                    );
                    agree_in_batches(&query, &batch, true).await;
                }
                for frame in bounded {
                    let query = format!(
                        "SELECT *, {AGGREGATES} FROM t WINDOW w AS ({partition} {order} {frame})"
                    );
                    agree_in_batches(&query, &batch, true).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn ranks_and_other_rows_agree_with_those_of_datafusion() {
    for seed in 0..4 {
        let batch = few([0, 1, 9, 150][seed as usize], seed);
        for window in [
            "PARTITION BY g ORDER BY o",
            "PARTITION BY g ORDER BY o, id",
            "ORDER BY o NULLS FIRST",
            "ORDER BY id DESC",
            "PARTITION BY g, o ORDER BY i DESC",
            "PARTITION BY g",
        ] {
            let query = format!(
                "SELECT *, row_number() OVER w, rank() OVER w, dense_rank() OVER w,
                 percent_rank() OVER w, cume_dist() OVER w, ntile(3) OVER w, ntile(1000) OVER w,
                 lag(i) OVER w, lag(s, 2, 'none') OVER w, lead(d) OVER w, lead(v, 4, -1) OVER w,
                 lag(i, 0) OVER w, lead(i, -2) OVER w, lag(i, 200) OVER w
                 FROM t WINDOW w AS ({window})"
            );
            agree_in_batches(&query, &batch, true).await;
        }
    }
}

#[tokio::test]
async fn what_is_not_ours_stays_beside_what_is() {
    let batch = few(100, 7);
    let queries = [
        "SELECT *, sum(i) OVER w, lag(i) IGNORE NULLS OVER w, last_value(s) IGNORE NULLS OVER w
         FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
        "SELECT *, sum(i) FILTER (WHERE v > 3) OVER w, max(i) OVER w, count(*) OVER (PARTITION BY g)
         FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
        "SELECT *, sum(i) OVER w, nth_value(i, -2) OVER w, row_number() OVER w
         FROM t WINDOW w AS (PARTITION BY g ORDER BY id)",
        "SELECT *, sum(i) OVER a, row_number() OVER w, sum(i) OVER r, avg(v) OVER b FROM t
         WINDOW w AS (PARTITION BY g ORDER BY id), b AS (PARTITION BY g ORDER BY id ROWS 2 PRECEDING),
         a AS (PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING),
         r AS (PARTITION BY g ORDER BY id RANGE BETWEEN 3 PRECEDING AND 1 PRECEDING)",
    ];
    for query in queries {
        agree_in_batches(query, &batch, true).await;
    }
    let query = "SELECT *, array_agg(i) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)
                 FROM t";
    agree_in_batches(query, &batch, false).await;
}

#[tokio::test]
async fn frames_that_end_with_the_partition_agree_with_those_of_datafusion() {
    let by_row = [
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 7 PRECEDING AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING",
        "ROWS BETWEEN 9 FOLLOWING AND UNBOUNDED FOLLOWING",
    ];
    let by_peers = [
        "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "GROUPS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    ];
    for seed in 0..3 {
        let batch = few([0, 1, 120][seed as usize], seed);
        for partition in ["", "PARTITION BY g"] {
            for order in ["", "ORDER BY o", "ORDER BY o DESC NULLS LAST, id"] {
                for frame in by_row.iter().chain(&by_peers) {
                    if frame.starts_with("GROUPS") && order.is_empty() {
                        continue;
                    }
                    let query = format!(
                        "SELECT *, {AGGREGATES}, {OF_ONE_ROW}, row_number() OVER w, sum(i) OVER ({partition})
                         FROM t WINDOW w AS ({partition} {order} {frame})"
                    );
                    agree_in_batches(&query, &batch, true).await;
                }
            }
        }
    }
}

/// Whether a frame from this bound on agrees, in all orders of a key.
async fn agree_from(bound: &str, key: &str) {
    let batch = few(120, 2);
    for (partition, order) in [
        ("", ""),
        ("PARTITION BY g", "NULLS FIRST"),
        ("PARTITION BY g", "DESC"),
        ("", "DESC NULLS LAST"),
    ] {
        let query = format!(
            "SELECT *, {AGGREGATES}, {OF_ONE_ROW}, sum(i) OVER ({partition} ORDER BY {key} {order})
             FROM t WINDOW w AS ({partition} ORDER BY {key} {order} {bound} AND UNBOUNDED FOLLOWING)"
        );
        agree_in_batches(&query, &batch, true).await;
    }
}

#[tokio::test]
async fn frames_that_begin_some_peers_or_many_rows_off_agree_with_those_of_datafusion() {
    for bound in [
        "GROUPS BETWEEN 0 PRECEDING",
        "GROUPS BETWEEN 2 PRECEDING",
        "GROUPS BETWEEN 1 FOLLOWING",
        "GROUPS BETWEEN 3 FOLLOWING",
        "GROUPS BETWEEN 9000000000 FOLLOWING",
        "ROWS BETWEEN 70000 PRECEDING",
        "ROWS BETWEEN 70000 FOLLOWING",
    ] {
        agree_from(bound, "o").await;
    }
}

#[tokio::test]
async fn frames_that_begin_with_another_key_agree_with_those_of_datafusion() {
    for (key, offsets) in [
        ("o", ["0", "2", "1000"]),
        ("i - 9223372036854775800", ["3", "20", "9000000000000000000"]),
        ("9223372036854775790 + i", ["3", "20", "9000000000000000000"]),
        ("u", ["1", "7", "60"]),
        ("v", ["0.5", "3", "1e300"]),
        ("n", ["0.5", "3", "1e300"]),
        ("d", ["0.01", "2.5", "40"]),
        ("CAST(o AS TINYINT)", ["1", "125", "127"]),
        ("t", ["INTERVAL '3 days'", "INTERVAL '1 month'", "INTERVAL '2 hours'"]),
        (
            "CAST(t AS TIMESTAMP)",
            ["INTERVAL '36 hours'", "INTERVAL '1 month'", "INTERVAL '300 years'"],
        ),
    ] {
        for offset in offsets {
            agree_from(&format!("RANGE BETWEEN {offset} PRECEDING"), key).await;
            agree_from(&format!("RANGE BETWEEN {offset} FOLLOWING"), key).await;
        }
    }
}

/// Whether frames with ends one and another offset away agree, in all orders of a key.
async fn agree_between(units: &str, [less, more]: [&str; 2], key: &str) {
    let batch = few(120, 2);
    for (partition, order) in [
        ("", ""),
        ("PARTITION BY g", "NULLS FIRST"),
        ("PARTITION BY g", "DESC"),
        ("", "DESC NULLS LAST"),
    ] {
        for frame in [
            format!("{less} PRECEDING AND CURRENT ROW"),
            format!("CURRENT ROW AND {more} FOLLOWING"),
            format!("{more} PRECEDING AND {less} PRECEDING"),
            format!("{less} FOLLOWING AND {more} FOLLOWING"),
            format!("{more} PRECEDING AND {less} FOLLOWING"),
            format!("UNBOUNDED PRECEDING AND {less} PRECEDING"),
            format!("UNBOUNDED PRECEDING AND {more} FOLLOWING"),
        ] {
            // DataFusion ends the frames of a row whose key is not moved, as NULL, before its peers in later batches.
            let rows = match units == "RANGE" && frame.ends_with(" PRECEDING") {
                true => format!(
                    "(SELECT * FROM t WHERE {key} IS NOT NULL AND i NOT BETWEEN 0 AND 2) AS t"
                ),
                false => "t".to_owned(),
            };
            let query = format!(
                "SELECT *, {AGGREGATES}, sum(i) OVER ({partition} ORDER BY {key} {order})
                 FROM {rows} WINDOW w AS ({partition} ORDER BY {key} {order} {units} BETWEEN {frame})"
            );
            agree_in_batches(&query, &batch, true).await;
        }
    }
}

#[tokio::test]
async fn frames_between_keys_agree_with_those_of_datafusion() {
    for (key, offsets) in [
        ("o", ["0", "2"]),
        ("i - 9223372036854775800", ["3", "20"]),
        ("9223372036854775790 + i", ["20", "9000000000000000000"]),
        ("u", ["1", "7"]),
        ("v", ["0.5", "3"]),
        ("n", ["3", "1e300"]),
        ("d", ["0.01", "2.5"]),
        ("CAST(o AS TINYINT)", ["2", "126"]),
        ("t", ["INTERVAL '3 days'", "INTERVAL '1 month'"]),
        ("CAST(t AS TIMESTAMP)", ["INTERVAL '36 hours'", "INTERVAL '300 years'"]),
    ] {
        agree_between("RANGE", offsets, key).await;
    }
}

#[tokio::test]
async fn frames_between_peers_or_rows_agree_with_those_of_datafusion() {
    for offsets in [["0", "1"], ["2", "3"], ["1", "9000000000"]] {
        agree_between("GROUPS", offsets, "o").await;
    }
    // Other frames by rows slide, or begin with the partition.
    for frame in [
        "5 PRECEDING AND 2 PRECEDING",
        "2 FOLLOWING AND 4 FOLLOWING",
        "70000 PRECEDING AND 3 FOLLOWING",
        "CURRENT ROW AND 70000 FOLLOWING",
        "UNBOUNDED PRECEDING AND 1 PRECEDING",
    ] {
        let query = format!(
            "SELECT *, {AGGREGATES} FROM t WINDOW w AS (PARTITION BY g ORDER BY o, id ROWS BETWEEN {frame})"
        );
        agree_in_batches(&query, &few(120, 3), true).await;
    }
    for keys in ["", "ORDER BY o, i"] {
        let query = format!(
            "SELECT *, {AGGREGATES} FROM t
             WINDOW w AS (PARTITION BY g {keys} RANGE BETWEEN CURRENT ROW AND CURRENT ROW)"
        );
        agree_in_batches(&query, &few(120, 4), true).await;
    }
}

/// A frame that begins after its end, for months are no days, has no rows.
#[tokio::test]
async fn a_frame_that_begins_after_its_end_is_empty() {
    let context = SessionContext::new();
    let query = "SELECT count(*) OVER (ORDER BY at RANGE BETWEEN INTERVAL '1 month' PRECEDING
                 AND INTERVAL '30 days' PRECEDING) FROM (VALUES (DATE '2023-02-13'),
                 (DATE '2023-02-14'), (DATE '2023-02-15'), (DATE '2023-03-15')) AS t (at)";
    let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
    let plan = SpillingOperators.optimize(plan, &ConfigOptions::new()).unwrap();
    let rows = collect(plan, context.task_ctx()).await.unwrap();
    let counts = rows.iter().flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().values());
    assert_eq!(counts.copied().collect::<Vec<_>>(), [0; 4]);
}

#[tokio::test]
async fn sums_of_frames_have_the_same_digits_however_rows_come() {
    let batches = table(40_000, 0);
    let query = "SELECT id, sum(v / 3) OVER (PARTITION BY g ORDER BY id
                 RANGE BETWEEN 30000 PRECEDING AND 7 FOLLOWING) FROM t ORDER BY id";
    let mut sums = Vec::new();
    for batch_rows in [70, 1000, 8192] {
        let config = SessionConfig::new().with_target_partitions(1).with_batch_size(batch_rows);
        let context = SessionContext::new_with_config(config);
        let table = MemTable::try_new(batches[0].schema(), vec![batches.clone()]).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
        let plan = spilling(plan);
        let rows = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        sums.push(concat_batches(&plan.schema(), &rows).unwrap());
    }
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[1], sums[2]);
}

/// Random portions go in and come out, in memory of any size.
#[tokio::test]
async fn a_queue_hands_on_what_it_was_given_in_its_order() {
    for limit_bytes in [0, 3_000_000, usize::MAX] {
        let pool = share_of(limit_bytes);
        let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc();
        let context = TaskContext::default().with_runtime(environment.unwrap());
        let spills = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let mut random = SmallRng::seed_from_u64(5);
        let batches: Vec<_> = (0..100).flat_map(|seed| table(5000, seed)).collect();
        let mut queue = Queue::new(&batches[0].schema(), &context, &spills);
        let mut left = batches.iter();
        for (at, batch) in batches.iter().enumerate() {
            queue.push(batch.clone()).unwrap();
            for _ in 0..random.random_range(0..=[1, 3][at / 50]) {
                let Some(batch) = queue.pop().await.unwrap() else { break };
                assert_eq!(Some(&batch), left.next(), "within {limit_bytes}");
            }
        }
        while let Some(batch) = queue.pop().await.unwrap() {
            assert_eq!(Some(&batch), left.next(), "within {limit_bytes}");
        }
        assert_eq!(left.next(), None);
        assert_eq!(pool.reserved(), 0);
        assert_eq!(spills.spill_file_count.value() > 0, limit_bytes < usize::MAX);
    }
}

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
        "SELECT *, first_value(id) OVER w, last_value(v) OVER w, nth_value(id, 70000) OVER w, lead(id, 3) OVER w
         FROM t WINDOW w AS (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY id",
        &LIMITS,
    );
    agree(
        "SELECT *, sum(v) OVER w, dense_rank() OVER w, count(v) OVER (PARTITION BY g)
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
fn frames_that_end_with_the_partition_are_answered_under_any_limit() {
    agree(
        "SELECT *, sum(v) OVER w, last_value(id) OVER w, count(*) OVER (PARTITION BY g ORDER BY v, id)
         FROM t WINDOW w AS (PARTITION BY g ORDER BY v, id ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING)
         ORDER BY g, id",
        &LIMITS,
    );
    agree(
        "SELECT *, min(id) OVER w, count(v) OVER w, sum(v) OVER () FROM t
         WINDOW w AS (ORDER BY v RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) ORDER BY id",
        &[1_000_000, 8_000_000, usize::MAX],
    );
    agree(
        "SELECT *, first_value(v) OVER w, nth_value(id, 4) OVER w FROM t
         WINDOW w AS (ORDER BY v, id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY id",
        &[1_000_000, 8_000_000, usize::MAX],
    );
}

#[test]
fn frames_that_begin_any_way_off_are_answered_under_any_limit() {
    for bound in [
        "ORDER BY id RANGE BETWEEN 3 PRECEDING",
        "ORDER BY id DESC RANGE BETWEEN 50000 PRECEDING",
        "ORDER BY id RANGE BETWEEN 50000 FOLLOWING",
        "PARTITION BY g ORDER BY id RANGE BETWEEN 50000 FOLLOWING",
        "PARTITION BY g ORDER BY id DESC RANGE BETWEEN 50000 PRECEDING",
        "ORDER BY id GROUPS BETWEEN 7 PRECEDING",
        "PARTITION BY g ORDER BY id GROUPS BETWEEN 30000 FOLLOWING",
        "ORDER BY id ROWS BETWEEN 70000 PRECEDING",
        "ORDER BY id ROWS BETWEEN 70000 FOLLOWING",
    ] {
        agree(
            &format!(
                "SELECT *, sum(v) OVER w, first_value(id) OVER w, last_value(v) OVER w, count(*) OVER w FROM t
                 WINDOW w AS ({bound} AND UNBOUNDED FOLLOWING) ORDER BY id"
            ),
            &[1_000_000, 8_000_000, usize::MAX],
        );
    }
}

#[test]
fn frames_between_any_rows_are_answered_under_any_limit() {
    for frame in [
        "ORDER BY id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW",
        "ORDER BY id DESC RANGE BETWEEN 50000 PRECEDING AND 10 PRECEDING",
        "PARTITION BY g ORDER BY id RANGE BETWEEN 40000 PRECEDING AND 50000 FOLLOWING",
        "PARTITION BY g ORDER BY v RANGE BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
        "ORDER BY id GROUPS BETWEEN 30000 PRECEDING AND 7 PRECEDING",
        "ORDER BY id ROWS BETWEEN 70000 PRECEDING AND 20 FOLLOWING",
        "ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND 20000 FOLLOWING",
    ] {
        agree(
            &format!(
                "SELECT *, sum(v) OVER w, count(*) OVER w, max(id) OVER w, min(v) OVER w FROM t
                 WINDOW w AS ({frame}) ORDER BY id"
            ),
            &[1_000_000, 8_000_000, usize::MAX],
        );
    }
}

#[test]
fn a_function_that_needs_all_rows_is_named_where_they_do_not_fit() {
    let query = "SELECT id, nth_value(v, 70000) OVER w FROM t
                 WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) ORDER BY id";
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
    assert!(message.contains("nth_value(t.v,Int64(70000))"), "{message}");
}
