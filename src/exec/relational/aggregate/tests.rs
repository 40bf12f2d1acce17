//! Aggregations against DataFusion's of the same rows, under limits from none to nearly all that there are.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int64Array,
    RecordBatch, StringArray, StringViewArray,
};
use arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::SpillingAggregateExec;
use super::worker::Given;
use crate::config::{ForRules, Fusion, Patterns, Settings};
use crate::memory::share_of;
use crate::planner::computed::ComputedExpressions;
use crate::planner::spilling::SpillingAggregates;
use crate::planner::transform::TransformFilter;
use crate::storage::testing::table_of;

/// Partitions of some rows. Keys have few values and many, NULL, `NaN` and both zeros, short texts and long ones.
fn table(rows: usize, partitions: usize, random: &mut SmallRng) -> Vec<Vec<RecordBatch>> {
    let long_texts = random.random_bool(0.5);
    let domain = [5, 300, 1 << 40][random.random_range(0..3)];
    let mut partition = |_| {
        let mut left = rows / partitions;
        let mut batches = Vec::new();
        while left > 0 {
            let count = random.random_range(1..=left.min(5000));
            left -= count;
            batches.push(batch(count, domain, long_texts, random));
        }
        batches
    };
    (0..partitions).map(&mut partition).collect()
}

fn batch(rows: usize, domain: i64, long_texts: bool, random: &mut SmallRng) -> RecordBatch {
    fn cells<T>(rows: usize, mut cell: impl FnMut() -> T) -> Vec<Option<T>> {
        (0..rows).map(|at| Some(cell()).filter(|_| at % 11 != 3)).collect()
    }
    let special = [f64::NAN, 0.0, -0.0, f64::INFINITY, -1.5];
    let text = |at: i64| match long_texts && at % 5 == 0 {
        true => format!("a text that is longer than a view has room for, {at}"),
        false => format!("t{}", at % 1000),
    };
    let mut number = || random.random_range(0..domain);
    let many: ArrayRef = Arc::new(Int64Array::from(cells(rows, &mut number)));
    let whole: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|_| number())));
    let few: ArrayRef = Arc::new(Int16Array::from(cells(rows, || number() as i16 % 7)));
    let view: ArrayRef =
        Arc::new(cells(rows, || text(number())).into_iter().collect::<StringViewArray>());
    let code: ArrayRef = Arc::new(
        cells(rows, || format!("c{}", number() % 3)).into_iter().collect::<StringViewArray>(),
    );
    let utf8: ArrayRef =
        Arc::new(cells(rows, || text(number())).into_iter().collect::<StringArray>());
    let truth: ArrayRef = Arc::new(BooleanArray::from(cells(rows, || number() % 2 == 0)));
    let day: ArrayRef = Arc::new(Date32Array::from(cells(rows, || number() as i32 % 40)));
    let price: ArrayRef = Arc::new(
        Decimal128Array::from(cells(rows, || i128::from(number()) - 2))
            .with_precision_and_scale(20, 2)
            .unwrap(),
    );
    let real: ArrayRef = Arc::new(Float64Array::from(cells(rows, || match number() % 9 {
        at @ 0..5 => special[at as usize],
        at => at as f64,
    })));
    // Whole numbers, whose sums are the same in any order.
    let exact: ArrayRef = Arc::new(Float64Array::from(cells(rows, || (number() % 100) as f64)));
    let columns = [
        ("many", many),
        ("few", few),
        ("short", view),
        ("code", code),
        ("utf8", utf8),
        ("truth", truth),
        ("day", day),
        ("price", price),
        ("real", real),
        ("exact", exact),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns.chain([("whole", whole, false)])).unwrap()
}

const KEYS: [&str; 10] =
    ["many", "whole", "few", "short", "code", "utf8", "truth", "day", "price", "real"];

const CALLS: [&str; 25] = [
    "count(*)",
    "count(many)",
    "sum(few)",
    "sum(whole % 1000)",
    "sum(exact)",
    "avg(exact)",
    "sum(price)",
    "avg(price)",
    "sum(price * CAST(2.5 AS DECIMAL(5, 1)) - price)",
    "avg(price + 1) FILTER (WHERE code = 'c1')",
    "max(few)",
    "min(price)",
    "min(short)",
    "max(exact)",
    "bool_or(truth)",
    "sum(few) FILTER (WHERE day > DATE '1970-01-09')",
    "median(exact)",
    "median(price)",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY exact DESC)",
    "count(DISTINCT many)",
    "count(DISTINCT short) FILTER (WHERE few > 2)",
    "count(DISTINCT abs(real))",
    "sum(DISTINCT few)",
    "avg(DISTINCT few) FILTER (WHERE few > 4)",
    "min(DISTINCT utf8)",
];

fn random_query(random: &mut SmallRng) -> String {
    let mut choose = |from: &[&'static str], least: usize, most: usize| {
        let mut chosen = Vec::new();
        for _ in 0..random.random_range(least..=most) {
            let one = from[random.random_range(0..from.len())];
            if !chosen.contains(&one) {
                chosen.push(one);
            }
        }
        chosen
    };
    let keys = choose(&KEYS, 1, 3);
    let calls = choose(&CALLS, 0, 5);
    let columns = [keys.clone(), calls.clone()].concat();
    let (columns, first, keys) = (columns.join(", "), keys[0], keys.join(", "));
    let filter =
        [" WHERE few > 99", " WHERE few > 2", " WHERE code <> 'c1' AND day < DATE '1970-02-01'"];
    let filter = filter.get(random.random_range(0..10)).copied().unwrap_or_default();
    match random.random_range(0..8) {
        6.. => {
            let calls = [vec!["sum(whole % 99)", "avg(few)"], calls].concat();
            format!("SELECT {} FROM t{filter}", calls.join(", "))
        }
        0 => format!("SELECT {columns} FROM t{filter} GROUP BY ROLLUP ({keys})"),
        1 => format!("SELECT {columns}, grouping({first}) FROM t{filter} GROUP BY CUBE ({keys})"),
        2 => {
            let sets = format!("(), ({keys}), ({first}), (), ({first})");
            format!("SELECT {columns} FROM t{filter} GROUP BY GROUPING SETS ({sets})")
        }
        _ => format!("SELECT {columns} FROM t{filter} GROUP BY {keys}"),
    }
}

/// Over rows as they are, or as a table keeps them, which gives them encoded to who takes them so.
fn session(
    threads: usize,
    batch_rows: usize,
    partitions: &[Vec<RecordBatch>],
    is_kept: bool,
) -> SessionContext {
    let mut config =
        SessionConfig::new().with_target_partitions(threads).with_batch_size(batch_rows);
    let fusion = Fusion { patterns: Patterns::all(), operations_min: 2, depth_max: 64 };
    let rules = ForRules {
        fusion,
        reads_pages: false,
        threads,
        orders_joins: true,
        measured_costs: false,
        groups_early: false,
        groups_windows: false,
        reversible_rows: 0,
        shares_plans: false,
        partitions_by_cost: false,
        drops_rows: false,
        spills_groups: true,
        reservable_bytes: 1 << 30,
        gpu: Settings::default().gpu_use(),
    };
    config.options_mut().extensions.insert(rules);
    let session = SessionContext::new_with_config(config);
    let mut registry = session.state();
    crate::functions::register(&mut registry).unwrap();
    let session = SessionContext::new_with_state(registry);
    let schema = partitions[0][0].schema();
    let table: Arc<dyn TableProvider> = match is_kept {
        true => table_of(&schema, &partitions.concat()),
        false => Arc::new(MemTable::try_new(schema, partitions.to_vec()).unwrap()),
    };
    session.register_table("t", table).unwrap();
    session
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// DataFusion's plan.
fn planned(session: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    let plan = async { session.sql(query).await.unwrap().create_physical_plan().await.unwrap() };
    runtime().block_on(plan)
}

/// The same by the operator of this module.
fn ours(session: &SessionContext, plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let state = session.state();
    let rules: [&dyn PhysicalOptimizerRule; 3] =
        [&TransformFilter, &ComputedExpressions, &SpillingAggregates];
    rules
        .into_iter()
        .fold(Arc::clone(plan), |plan, rule| rule.optimize(plan, state.config_options()).unwrap())
}

fn context(session: &SessionContext, pool: Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    Arc::new(TaskContext::from(&session.state()).with_runtime(environment))
}

/// The rows as text, in order.
fn rows(plan: &Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Vec<String>> {
    let pool = Arc::clone(context.memory_pool());
    let batches = runtime().block_on(collect(Arc::clone(plan), context));
    assert!(batches.is_err() || pool.reserved() == 0, "what was reserved is given back");
    let table = pretty_format_batches(&batches?)?.to_string();
    let mut rows: Vec<String> = table.lines().map(str::to_owned).collect();
    rows.sort();
    Ok(rows)
}

/// The operator in a plan.
fn found(plan: &Arc<dyn ExecutionPlan>) -> Option<&SpillingAggregateExec> {
    let here = plan.downcast_ref::<SpillingAggregateExec>();
    here.or_else(|| plan.children().into_iter().find_map(found))
}

#[test]
fn groups_of_any_kind_are_datafusions_under_any_limit() {
    let mut spilled = 0;
    for seed in 0..160 {
        let mut random = SmallRng::seed_from_u64(seed);
        let partitions = random.random_range(1..4);
        let partitions = table(random.random_range(50..30_000), partitions, &mut random);
        let threads = [1, 2, 4, 8][seed as usize % 4];
        let batch_rows = random.random_range(100..9000);
        let session = session(threads, batch_rows, &partitions, seed % 3 > 0);
        let query = random_query(&mut random);
        let plan = planned(&session, &query);
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let expected = rows(&plan, context(&session, unlimited)).unwrap();
        for limit_bytes in [1, 400_000, 4_000_000, 1 << 40] {
            let plan = ours(&session, &planned(&session, &query));
            let shown = || displayable(plan.as_ref()).indent(false).to_string();
            let operator = found(&plan).unwrap_or_else(|| panic!("{query}: {}", shown()));
            let answer = rows(&plan, context(&session, share_of(limit_bytes))).unwrap();
            assert_eq!(answer, expected, "seed {seed}, limit {limit_bytes}, {query}");
            spilled += operator.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
        }
    }
    assert!(spilled > 100, "{spilled}");
}

#[test]
fn many_groups_are_dealt_out_and_come_back() {
    let mut random = SmallRng::seed_from_u64(1);
    let row = |at: i64| (at * 7919) % 400_009;
    let batches = |partition: i64| {
        let numbers = move |first: i64| (first..first + 5000).map(row);
        let batch = |first: i64| {
            let columns: [(&str, ArrayRef); 2] = [
                ("k", Arc::new(Int64Array::from_iter_values(numbers(first)))),
                ("v", Arc::new(Int64Array::from_iter_values(first..first + 5000))),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        (0..80).map(|at| batch(partition * 400_000 + at * 5000)).collect::<Vec<_>>()
    };
    let partitions = [batches(0), batches(1), batches(2)];
    let alone = "SELECT k, count(*), sum(v), min(v), max(v) FROM t GROUP BY k";
    let rolled_up = "SELECT k % 1000, k, count(*), sum(v) FROM t GROUP BY ROLLUP (k % 1000, k)";
    for (query, threads, limit_bytes) in [
        (alone, 2, 1 << 40),
        (alone, 1, 1 << 40),
        (alone, 3, 6 << 20),
        (alone, 2, 1 << 20),
        (rolled_up, 2, 1 << 40),
        (rolled_up, 3, 6 << 20),
    ] {
        let session = session(threads, random.random_range(3000..9000), &partitions, false);
        let plan = planned(&session, query);
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let expected = rows(&plan, context(&session, unlimited)).unwrap();
        let plan = ours(&session, &planned(&session, query));
        let answer = rows(&plan, context(&session, share_of(limit_bytes))).unwrap();
        assert!(answer == expected, "{threads} threads, {limit_bytes} bytes");
        let metrics = found(&plan).and_then(ExecutionPlan::metrics).unwrap();
        let dealt = metrics.sum_by_name("tables_dealt").unwrap().as_usize();
        assert!(dealt > 0, "{threads} threads, {limit_bytes} bytes");
        assert_eq!(metrics.spill_count().unwrap() > 0, limit_bytes < 1 << 40);
    }
}

/// Rows with one number each, in two partitions.
fn numbered(rows: i64, number: impl Fn(i64) -> i64 + Copy) -> Vec<Vec<RecordBatch>> {
    let batch = |first: i64| {
        let at = || first..first + 5000;
        let code = |at| format!("c{}", number(at) % 3);
        let columns: [(&str, ArrayRef); 2] = [
            ("k", Arc::new(Int64Array::from_iter_values(at().map(number)))),
            ("code", Arc::new(StringViewArray::from_iter_values(at().map(code)))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let partition = |first: i64| {
        (first..first + rows / 2).step_by(5000).map(batch).collect::<Vec<RecordBatch>>()
    };
    vec![partition(0), partition(rows / 2)]
}

/// Figures of EXPLAIN ANALYZE of the aggregation of a query.
fn figures<const N: usize>(
    partitions: &[Vec<RecordBatch>],
    is_kept: bool,
    query: &str,
    names: [&str; N],
) -> [usize; N] {
    let session = session(2, 8192, partitions, is_kept);
    let plan = ours(&session, &planned(&session, query));
    rows(&plan, context(&session, Arc::new(UnboundedMemoryPool::default()))).unwrap();
    let metrics = found(&plan).and_then(ExecutionPlan::metrics).unwrap();
    names.map(|name| metrics.sum_by_name(name).unwrap().as_usize())
}

#[test]
fn groups_of_few_values_are_read_at_the_places_of_their_codes() {
    let near = numbered(20_000, |at| 1_000_000 + at * 7919 % 500);
    let far = numbered(20_000, |at| at * 7919 % 500 * 1_000_003);
    for (partitions, is_kept, keys, rows) in [
        (&near, false, "k", 20_000),
        (&near, true, "k", 20_000),
        // Texts have codes where a table keeps them so.
        (&near, true, "code", 20_000),
        (&near, true, "k, code", 20_000),
        (&near, false, "code", 0),
        (&far, true, "k", 0),
    ] {
        let query = format!("SELECT {keys}, count(*) FROM t GROUP BY {keys}");
        let found = figures(partitions, is_kept, &query, ["rows_by_code"]);
        assert_eq!(found, [rows], "{keys}, kept {is_kept}");
    }
}

#[test]
fn rows_of_which_hardly_two_are_of_one_group_are_not_grouped_before_they_are_dealt_out() {
    let query = "SELECT k, count(*) FROM t GROUP BY k";
    let apart: fn(i64) -> i64 = |at| at * 1_000_003;
    // Each comes twice, one after the other.
    let in_pairs: fn(i64) -> i64 = |at| at / 2 * 1_000_003;
    for (number, is_passed) in [(apart, true), (in_pairs, false)] {
        let partitions = numbered(600_000, number);
        let [passed, dealt] =
            figures(&partitions, false, query, ["rows_not_grouped", "tables_dealt"]);
        assert!(dealt > 0, "{is_passed}");
        assert_eq!(passed > 0, is_passed, "{passed}");
    }
}

#[test]
fn values_of_few_groups_are_datafusions_under_any_limit() {
    // Values of all kinds, those without NULL among them, in an order that is not theirs.
    let batch = |first: i64| {
        let at = || first..first + 8000;
        let number = |at: i64| (at * 7919) % 150_001;
        let real = |at: i64| match number(at) % 1000 {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f64::NEG_INFINITY,
            _ => number(at) as f64 / 8.0,
        };
        let text = |at: i64| format!("the text of the number {}", number(at) % 5000);
        let some = |at: i64| (at % 7 > 0).then(|| number(at));
        let columns: [(&str, ArrayRef); 6] = [
            (
                "k",
                Arc::new(StringViewArray::from_iter_values(
                    at().map(|at| format!("group {}", at % 3)),
                )),
            ),
            ("v", Arc::new(Int64Array::from_iter(at().map(some)))),
            ("x", Arc::new(Float64Array::from_iter_values(at().map(real)))),
            ("t", Arc::new(StringViewArray::from_iter_values(at().map(text)))),
            (
                "d",
                Arc::new(
                    Decimal128Array::from_iter_values(at().map(|at| i128::from(number(at)) - 500))
                        .with_precision_and_scale(20, 2)
                        .unwrap(),
                ),
            ),
            ("none", Arc::new(Float64Array::from(vec![None; 8000]))),
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    };
    let batches = |partition: i64| (0..20).map(|at| batch((partition * 20 + at) * 8000)).collect();
    let partitions: Vec<Vec<RecordBatch>> = (0..2).map(batches).collect();
    let session = session(2, 4000, &partitions, false);
    for query in [
        "SELECT k, median(v), count(*), sum(v), median(x) FROM t GROUP BY k",
        "SELECT median(d), median(v) FILTER (WHERE v < 100), median(none), count(v) FROM t",
        "SELECT k, count(DISTINCT v), count(DISTINCT t), sum(DISTINCT d), count(DISTINCT none), sum(DISTINCT none), \
         avg(DISTINCT CASE WHEN k = 'group 1' THEN x END) IS NULL FROM t GROUP BY k",
        "SELECT k, percentile_cont(0.9) WITHIN GROUP (ORDER BY v), \
         percentile_cont(0.123) WITHIN GROUP (ORDER BY x DESC), median(DISTINCT d), avg(DISTINCT v) FROM t GROUP BY k",
        "SELECT k, mode(CASE WHEN v % 3 > 0 THEN v ELSE -1 END), mode(CASE WHEN v % 2 = 0 THEN 'a' ELSE t END), mode(none) FROM t GROUP BY k",
        "SELECT v % 2, count(DISTINCT abs(x)), count(DISTINCT k), max(t) FROM t GROUP BY v % 2",
        "SELECT median(v), count(DISTINCT abs(x)), sum(v), sum(DISTINCT d), corr(v, x), max(t), count(*) FROM t WHERE v < 0",
        "SELECT k, median(v) FROM t WHERE v < 0 GROUP BY k",
        "SELECT k, grouping(k), median(v), count(DISTINCT t), sum(v) FROM t GROUP BY ROLLUP (k)",
        "SELECT k, median(v), count(DISTINCT abs(x)), count(*) FROM t WHERE v < 0 GROUP BY GROUPING SETS ((k), (), ())",
    ] {
        let plan = planned(&session, query);
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let expected = rows(&plan, context(&session, unlimited)).unwrap();
        for limit_bytes in [1, 4 << 20, 1 << 40] {
            let plan = ours(&session, &planned(&session, query));
            let shown = || displayable(plan.as_ref()).indent(false).to_string();
            let operator = found(&plan).unwrap_or_else(|| panic!("{query}: {}", shown()));
            let answer = rows(&plan, context(&session, share_of(limit_bytes))).unwrap();
            assert_eq!(answer, expected, "limit {limit_bytes}, {query}");
            let spilled = operator.metrics().and_then(|metrics| metrics.spill_count()).unwrap();
            let has_rows = !query.contains("v < 0");
            assert_eq!(spilled > 0, has_rows && limit_bytes < 1 << 40, "{limit_bytes}, {query}");
        }
    }
}

#[test]
fn a_sum_that_leaves_its_type_is_an_error_in_any_group() {
    let batch = |value: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("k", Arc::new(Int64Array::from_iter_values(0..100))),
            ("v", Arc::new(Int64Array::from_iter_values((0..100).map(|k| k / 99 * value)))),
        ];
        vec![RecordBatch::try_from_iter(columns).unwrap()]
    };
    for others in [1, -1, i64::MIN] {
        let session = session(2, 8192, &[batch(i64::MAX), batch(others)], false);
        let query = "SELECT sum(s) FROM (SELECT k, sum(v) AS s FROM t GROUP BY k) AS s";
        let plan = ours(&session, &planned(&session, query));
        let answer = rows(&plan, context(&session, share_of(1 << 20)));
        match others {
            1 => {
                let error = answer.unwrap_err().to_string();
                assert!(error.contains("9223372036854775808 is no BIGINT"), "{error}");
            }
            _ => assert!(answer.is_ok()),
        }
    }
}

#[test]
fn what_grows_with_rows_stays_datafusions() {
    let mut random = SmallRng::seed_from_u64(3);
    let session = session(2, 8192, &table(3000, 2, &mut random), false);
    for (query, is_ours) in [
        ("SELECT few, count(*) FROM t GROUP BY few", true),
        ("SELECT DISTINCT few, short FROM t", true),
        ("SELECT sum(few), count(*) FROM t", true),
        ("SELECT max(few), count(*) FROM t", true),
        ("SELECT few, median(exact) FROM t GROUP BY few", true),
        ("SELECT median(exact), count(*) FROM t", true),
        ("SELECT few, array_agg(exact) FROM t GROUP BY few", false),
        ("SELECT few, first_value(exact ORDER BY many) FROM t GROUP BY few", false),
        ("SELECT few, count(DISTINCT many), count(DISTINCT short) FROM t GROUP BY few", true),
        ("SELECT few, code, count(*) FROM t GROUP BY ROLLUP (few, code)", true),
    ] {
        let plan = ours(&session, &planned(&session, query));
        assert_eq!(found(&plan).is_some(), is_ours, "{query}");
    }
}

/// Refuses one request, the n-th that may be refused, or each n-th.
#[derive(Debug)]
struct Refuses {
    inner: UnboundedMemoryPool,
    until: AtomicUsize,
    again: Option<usize>,
}

impl fmt::Display for Refuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pool that refuses some requests")
    }
}

impl MemoryPool for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if self.until.fetch_sub(1, Relaxed) == 0 {
            self.again.inspect(|&again| self.until.store(again, Relaxed));
            return datafusion::common::exec_err!("refused");
        }
        self.inner.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(8 << 20)
    }
}

#[test]
fn any_refusal_is_survived() {
    let mut random = SmallRng::seed_from_u64(5);
    let partitions = table(40_000, 2, &mut random);
    let session = session(2, 4000, &partitions, false);
    let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    for query in [
        "SELECT whole, short, sum(price), count(*) FROM t GROUP BY whole, short",
        "SELECT whole, count(DISTINCT short), count(DISTINCT many), median(price), count(*) FROM t GROUP BY whole",
    ] {
        let pool = Arc::clone(&unlimited);
        let expected = rows(&planned(&session, query), context(&session, pool)).unwrap();
        let once = (0..40).map(|until| (until, None));
        for (until, again) in once.chain((0..12).map(|again| (again, Some(again)))) {
            let (inner, until) = (UnboundedMemoryPool::default(), AtomicUsize::new(until));
            let pool: Arc<dyn MemoryPool> = Arc::new(Refuses { inner, until, again });
            let plan = ours(&session, &planned(&session, query));
            let answer = rows(&plan, context(&session, Arc::clone(&pool))).unwrap();
            assert!(answer == expected, "{query}: {pool:?}");
        }
    }
}

#[test]
fn who_has_dealt_out_is_never_overfull() {
    let rows = |keys: i64, rows: i64| {
        let columns: [(&str, ArrayRef); 2] = [
            ("k", Arc::new(Int64Array::from_iter_values((0..rows).map(|at| at % keys)))),
            (
                "t",
                Arc::new(StringViewArray::from_iter_values(
                    (0..rows).map(|at| format!("text {at}")),
                )),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let (many, few) = (rows(5000, 5000), rows(50, 20_000));
    // Who was overfull and then met more groups deals them all out.
    let met = [
        (vec![&many, &few, &few], true),
        (vec![&few, &few, &few], false),
        (vec![&few, &few, &many, &few], true),
    ];
    for (batches, has_dealt) in met {
        let session = session(2, 8192, &[vec![many.clone()]], false);
        let query = "SELECT k, count(DISTINCT t), count(*) FROM t GROUP BY k";
        let plan = ours(&session, &planned(&session, query));
        let inner = UnboundedMemoryPool::default();
        let pool = Arc::new(Refuses { inner, until: AtomicUsize::new(usize::MAX), again: None });
        let context = context(&session, Arc::clone(&pool) as Arc<dyn MemoryPool>);
        let run = found(&plan).unwrap().run(0, &context).unwrap();
        let (mut worker, _files) = run.worker(1).unwrap();
        for rows in batches {
            pool.until.store(0, Relaxed);
            worker.push(Given::Rows(rows)).unwrap();
        }
        assert_eq!((worker.has_dealt(), worker.is_overfull), (has_dealt, !has_dealt));
    }
}
