//! Joins that spill against DataFusion's with all memory there is: the same rows, whatever is refused when.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int16Array, Int64Array, RecordBatch,
    StringArray, StringViewArray,
};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::Partitioning;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, JoinOn};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExecBuilder, NestedLoopJoinExecBuilder,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::prelude::SessionConfig;
use rand::Rng;
use rand::rngs::SmallRng;

use super::*;
use crate::config::Settings;
use crate::exec::kernels::testing::rng;
use crate::storage::testing::scan_of;

const TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::LeftAnti,
    JoinType::LeftMark,
    JoinType::RightSemi,
    JoinType::RightAnti,
    JoinType::RightMark,
];

/// Refuses what passes a limit, and one request out of many.
#[derive(Debug)]
struct Refusing {
    limit: usize,
    reserved: AtomicUsize,
    requests: AtomicUsize,
    refused: Refused,
}

#[derive(Debug, Clone, Copy)]
enum Refused {
    Never,
    Only(usize),
    From(usize),
}

impl Refusing {
    fn new(limit: usize, refused: Refused) -> Arc<Self> {
        let (reserved, requests) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { limit, reserved, requests, refused })
    }
}

impl fmt::Display for Refusing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusing")
    }
}

impl MemoryPool for Refusing {
    fn name(&self) -> &str {
        "Refusing"
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        self.reserved.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.reserved.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        // Whatever sorts the rows of a join has its own ways to do with little.
        if reservation.consumer().name() != "SpillingJoin" {
            self.grow(reservation, additional);
            return Ok(());
        }
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_refused = match self.refused {
            Refused::Never => false,
            Refused::Only(only) => request == only,
            Refused::From(from) => request >= from,
        };
        if is_refused || self.reserved() + additional > self.limit {
            return Err(DataFusionError::ResourcesExhausted("refused".into()));
        }
        self.grow(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// A table of keys `k` and `s`, and a number of its own for each row.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    keys: i64,
    /// Of ten rows, so many have the first key.
    skew: u32,
    nulls: bool,
}

const EVEN: Shape = Shape { rows: 1500, keys: 700, skew: 0, nulls: true };
const SKEWED: Shape = Shape { rows: 600, keys: 100, skew: 9, nulls: true };
const EMPTY: Shape = Shape { rows: 0, keys: 1, skew: 0, nulls: false };

fn table(rng: &mut SmallRng, shape: Shape) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("v", DataType::Int64, false),
    ]));
    let mut key = || {
        let is_skewed = rng.random_range(0..10) < shape.skew;
        let key = if is_skewed { 0 } else { rng.random_range(0..shape.keys) };
        let is_null = shape.nulls && rng.random_range(0..12) == 0;
        (!is_null).then_some(key)
    };
    let keys: Vec<Option<i64>> = (0..shape.rows).map(|_| key()).collect();
    let text = |key: &Option<i64>| key.map(|key| format!("a text that is not short {}", key % 7));
    let batches = (0..shape.rows).step_by(100).map(|from| {
        let keys = &keys[from..shape.rows.min(from + 100)];
        let k: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let s: ArrayRef = Arc::new(keys.iter().map(text).collect::<StringViewArray>());
        let v = (from..from + keys.len()).map(|row| row as i64);
        let v: ArrayRef = Arc::new(Int64Array::from_iter_values(v));
        RecordBatch::try_new(Arc::clone(&schema), vec![k, s, v]).unwrap()
    });
    let batches = batches.collect();
    (schema, batches)
}

/// The batches as a plan of so many partitions.
fn scan(table: &(SchemaRef, Vec<RecordBatch>), partitions: usize) -> Arc<dyn ExecutionPlan> {
    let mut parts = vec![Vec::new(); partitions];
    for (at, batch) in table.1.iter().enumerate() {
        parts[at % partitions].push(batch.clone());
    }
    MemorySourceConfig::try_new_exec(&parts, Arc::clone(&table.0), None).unwrap()
}

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

fn on(columns: usize) -> JoinOn {
    let all = [("k", 0), ("s", 1)];
    all[..columns].iter().map(|&(name, at)| (column(name, at), column(name, at))).collect()
}

/// `left.v < right.v`.
fn filter() -> JoinFilter {
    let schema = Schema::new(vec![
        Field::new("l", DataType::Int64, false),
        Field::new("r", DataType::Int64, false),
    ]);
    let less = BinaryExpr::new(column("l", 0), Operator::Lt, column("r", 1));
    let columns = vec![
        ColumnIndex { index: 2, side: JoinSide::Left },
        ColumnIndex { index: 2, side: JoinSide::Right },
    ];
    JoinFilter::new(Arc::new(less), columns, Arc::new(schema))
}

/// All rows as text, in the order in which they come; partitions one after the other.
fn rows(plan: &Arc<dyn ExecutionPlan>, pool: Option<Arc<Refusing>>) -> Vec<String> {
    let mut builder = RuntimeEnvBuilder::new();
    if let Some(pool) = pool {
        builder = builder.with_memory_pool(pool);
    }
    let settings = Settings { reversible_rows: 64, ..Settings::default() };
    let mut config = SessionConfig::new();
    settings.apply(config.options_mut());
    let context = TaskContext::default()
        .with_runtime(builder.build_arc().unwrap())
        .with_session_config(config);
    let context = Arc::new(context);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    runtime.block_on(async move {
        let streams: Vec<_> = (0..plan.output_partitioning().partition_count())
            .map(|partition| plan.execute(partition, Arc::clone(&context)).unwrap())
            .collect();
        let mut rows = Vec::new();
        for stream in streams {
            let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
            for batch in &batches {
                let options = FormatOptions::new().with_null("NULL");
                let columns = batch.columns().iter();
                let columns: Vec<_> = columns
                    .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
                    .collect();
                rows.extend((0..batch.num_rows()).map(|row| {
                    let values = columns.iter().map(|column| column.value(row).to_string());
                    values.collect::<Vec<_>>().join("|")
                }));
            }
        }
        rows
    })
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

fn spilling(join: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(SpillingJoinExec::new(join).unwrap())
}

fn spilled_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.metrics().unwrap().spilled_rows().unwrap_or(0)
}

/// A join and the same one as DataFusion runs it in one partition.
struct Case<'a> {
    name: String,
    make: Box<dyn Fn() -> Arc<dyn ExecutionPlan> + 'a>,
    expected: Vec<String>,
}

impl Case<'_> {
    fn check(&self, pool: Arc<Refusing>, what: &str) -> usize {
        let plan = spilling((self.make)());
        let found = sorted(rows(&plan, Some(Arc::clone(&pool))));
        assert!(found == self.expected, "{}, {what}: {} rows", self.name, found.len());
        let spilled = spilled_rows(&plan);
        drop(plan);
        assert_eq!(pool.reserved(), 0, "{}, {what}", self.name);
        spilled
    }

    /// Under limits from none to enough; and refused once, and from then on, at each request in turn.
    fn check_all(&self, step: usize) {
        for limit in [0, 40 << 10, 150 << 10, 400 << 10] {
            self.check(Refusing::new(limit, Refused::Never), &format!("limit {limit}"));
        }
        let pool = Refusing::new(64 << 20, Refused::Never);
        assert_eq!(self.check(Arc::clone(&pool), "no limit"), 0, "{}", self.name);
        let requests = pool.requests.load(Ordering::Relaxed);
        // Few requests are made where all goes well; a refusal makes others.
        for at in (0..requests + 4).step_by(step) {
            let limit = 512 << 10;
            self.check(Refusing::new(limit, Refused::Only(at)), &format!("refused once at {at}"));
            self.check(Refusing::new(limit, Refused::From(at)), &format!("refused from {at}"));
        }
    }
}

/// How a hash join's sides are dealt out before it.
#[derive(Debug, Clone, Copy)]
enum Sides {
    /// The build side by one, the probe side by so many.
    Collected(usize),
    /// Both by so many, the rows of the build side gathered.
    Gathered(usize),
    /// As collected, the probe side by one: a table.
    Stored,
    /// Both by so many, by their keys.
    Dealt(usize),
}

struct Hash {
    join_type: JoinType,
    keys: usize,
    is_filtered: bool,
    null_equality: NullEquality,
    projection: Option<Vec<usize>>,
    null_aware: bool,
}

impl Hash {
    fn of(join_type: JoinType) -> Self {
        let null_equality = NullEquality::NullEqualsNothing;
        let (keys, is_filtered, projection, null_aware) = (1, false, None, false);
        Self { join_type, keys, is_filtered, null_equality, projection, null_aware }
    }

    fn join(
        &self,
        build: Arc<dyn ExecutionPlan>,
        probe: Arc<dyn ExecutionPlan>,
        mode: PartitionMode,
    ) -> Arc<dyn ExecutionPlan> {
        HashJoinExecBuilder::new(build, probe, on(self.keys), self.join_type)
            .with_filter(self.is_filtered.then(filter))
            .with_projection(self.projection.clone())
            .with_partition_mode(mode)
            .with_null_equality(self.null_equality)
            .with_null_aware(self.null_aware)
            .build_exec()
            .unwrap()
    }

    fn case(self, seed: u64, shapes: [Shape; 2], sides: Sides) -> Case<'static> {
        let rng = &mut rng(seed);
        let tables = shapes.map(|shape| table(rng, shape));
        let whole = self.join(scan(&tables[0], 1), scan(&tables[1], 1), PartitionMode::CollectLeft);
        let expected = sorted(rows(&whole, None));
        let name = format!(
            "{:?} by {} keys, {:?}, {sides:?}, {} x {} rows, skew {}, filtered {}, nulls not known {}",
            self.join_type,
            self.keys,
            self.null_equality,
            shapes[0].rows,
            shapes[1].rows,
            shapes[0].skew,
            self.is_filtered,
            self.null_aware,
        );
        let make = move || match sides {
            Sides::Collected(partitions) => self.join(
                scan(&tables[0], 1),
                scan(&tables[1], partitions),
                PartitionMode::CollectLeft,
            ),
            Sides::Gathered(partitions) => self.join(
                Arc::new(CoalescePartitionsExec::new(scan(&tables[0], partitions))),
                scan(&tables[1], partitions),
                PartitionMode::CollectLeft,
            ),
            Sides::Stored => {
                let (schema, batches) = &tables[1];
                let stored = scan_of(schema, batches);
                self.join(scan(&tables[0], 1), stored, PartitionMode::CollectLeft)
            }
            Sides::Dealt(partitions) => {
                let by_key = |table| -> Arc<dyn ExecutionPlan> {
                    let keys = on(self.keys).into_iter().map(|(key, _)| key).collect();
                    let by = Partitioning::Hash(keys, partitions);
                    Arc::new(RepartitionExec::try_new(scan(table, 2), by).unwrap())
                };
                self.join(by_key(&tables[0]), by_key(&tables[1]), PartitionMode::Partitioned)
            }
        };
        Case { name, make: Box::new(make), expected }
    }
}

#[test]
fn every_type_yields_the_same_rows_whatever_is_refused() {
    for (seed, join_type) in (0..).zip(TYPES) {
        let all = [
            ([EVEN, EVEN], Sides::Collected(1), false, 1),
            ([SKEWED, SKEWED], Sides::Collected(3), true, 2),
            ([EVEN, EVEN], Sides::Gathered(3), false, 1),
            ([EVEN, EVEN], Sides::Stored, true, 2),
            ([SKEWED, EVEN], Sides::Stored, false, 1),
            ([SKEWED, EVEN], Sides::Dealt(2), true, 2),
            ([EVEN, SKEWED], Sides::Dealt(1), false, 2),
        ];
        for (shapes, sides, is_filtered, keys) in all {
            let hash = Hash { is_filtered, keys, ..Hash::of(join_type) };
            hash.case(seed, shapes, sides).check_all(3);
        }
    }
}

#[test]
fn sides_that_are_exchanged_yield_the_same_rows() {
    const FEW: Shape = Shape { rows: 4, ..EVEN };
    let reversed = |plan: &Arc<dyn ExecutionPlan>| {
        let reversed = plan.metrics().unwrap().sum_by_name("reversed");
        reversed.map_or(0, |reversed| reversed.as_usize())
    };
    for (seed, join_type) in (0..).zip(TYPES) {
        for (is_filtered, sides) in
            [(false, Sides::Collected(1)), (true, Sides::Collected(3)), (false, Sides::Gathered(2))]
        {
            for (shapes, is_exchanged) in [
                ([EVEN, FEW], true),
                ([EVEN, EMPTY], true),
                ([FEW, FEW], false),
                ([EVEN, EVEN], false),
            ] {
                let hash = Hash { is_filtered, ..Hash::of(join_type) };
                let case = hash.case(seed, shapes, sides);
                let plan = spilling((case.make)());
                assert_eq!(sorted(rows(&plan, None)), case.expected, "{}", case.name);
                assert_eq!(reversed(&plan), usize::from(is_exchanged), "{}", case.name);
                case.check_all(2);
            }
        }
    }
}

/// A figure of EXPLAIN ANALYZE.
fn figure(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    plan.metrics().unwrap().sum_by_name(name).unwrap().as_usize()
}

#[test]
fn keys_that_lie_close_are_an_array_and_others_are_not() {
    let rng = &mut rng(5);
    for (kind, arrays) in [(KINDS[0], 1), (KINDS[1], 0), (KINDS[6], 0)] {
        let sides = [(); 2].map(|()| table_of(rng, [kind, KINDS[0]], 500, (120, true)));
        let join = Hash::of(JoinType::Inner).join(
            scan(&sides[0], 1),
            scan(&sides[1], 1),
            PartitionMode::CollectLeft,
        );
        let plan = spilling(join);
        assert!(!rows(&plan, None).is_empty());
        assert_eq!(figure(&plan, "array_map_created_count"), arrays);
    }
}

#[test]
fn rows_that_only_meet_somebody_or_nobody_make_no_pairs() {
    let rng = &mut rng(6);
    let sides = [(); 2].map(|()| table_of(rng, [KINDS[0]; 2], 500, (120, true)));
    for join_type in TYPES {
        let joins_both = [JoinType::Inner, JoinType::Left, JoinType::Right, JoinType::Full];
        for is_filtered in [false, true] {
            let join = Hash { is_filtered, ..Hash::of(join_type) }.join(
                scan(&sides[0], 1),
                scan(&sides[1], 1),
                PartitionMode::CollectLeft,
            );
            let plan = spilling(join);
            rows(&plan, None);
            let expected = if is_filtered || joins_both.contains(&join_type) { 0 } else { 500 };
            let found = figure(&plan, "rows_without_pairs");
            assert_eq!(found, expected, "{join_type:?}, filtered {is_filtered}");
        }
    }
}

/// Makes keys of numbers.
type Kind = fn(&[Option<i64>]) -> ArrayRef;

/// Keys of one column.
const KINDS: [Kind; 10] = [
    |keys| Arc::new(keys.iter().copied().collect::<Int64Array>()),
    // Far apart, so that they are looked for by a hash; and below zero.
    |keys| {
        Arc::new(
            keys.iter().map(|key| key.map(|key| (key - 50) * 1_000_003)).collect::<Int64Array>(),
        )
    },
    |keys| Arc::new(keys.iter().map(|key| key.map(|key| key as i16)).collect::<Int16Array>()),
    |keys| Arc::new(keys.iter().map(|key| key.map(|key| key % 2 == 0)).collect::<BooleanArray>()),
    |keys| {
        let real = |key: i64| match key % 9 {
            0 => 0.0,
            1 => -0.0,
            2 => f64::NAN,
            _ => key as f64 / 3.0,
        };
        Arc::new(keys.iter().map(|key| key.map(real)).collect::<Float64Array>())
    },
    |keys| {
        let wide = keys.iter().map(|key| key.map(|key| i128::from(key) << 80 | 5));
        Arc::new(wide.collect::<Decimal128Array>().with_precision_and_scale(38, 2).unwrap())
    },
    |keys| {
        Arc::new(
            keys.iter().map(|key| key.map(|key| format!("{key}"))).collect::<StringViewArray>(),
        )
    },
    // Some too long for a word.
    |keys| {
        let text =
            |key: i64| if key < 90 { format!("{key}") } else { format!("a text: {key} of many") };
        Arc::new(keys.iter().map(|key| key.map(text)).collect::<StringViewArray>())
    },
    // Some so long that the lowest byte of their length is that of a short one.
    |keys| {
        let text = |key: i64| {
            if key < 90 { format!("{key}") } else { format!("{}{}", key - 90, "\0".repeat(256)) }
        };
        Arc::new(keys.iter().map(|key| key.map(text)).collect::<StringViewArray>())
    },
    // No words at all.
    |keys| {
        Arc::new(keys.iter().map(|key| key.map(|key| format!("{key}"))).collect::<StringArray>())
    },
];

/// A table whose keys are of such kinds, up to a largest one.
fn table_of(
    rng: &mut SmallRng,
    kinds: [Kind; 2],
    rows: usize,
    (largest, nulls): (i64, bool),
) -> (SchemaRef, Vec<RecordBatch>) {
    let mut keys = || -> Vec<Option<i64>> {
        (0..rows)
            .map(|_| {
                let is_null = rng.random_ratio(1, 12) && nulls;
                (!is_null).then(|| rng.random_range(0..=largest))
            })
            .collect()
    };
    let columns: Vec<ArrayRef> = kinds.iter().map(|kind| kind(&keys())).collect();
    let v: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let columns = [("k", &columns[0], true), ("s", &columns[1], true), ("v", &v, false)];
    let columns = columns.map(|(name, column, nullable)| (name, Arc::clone(column), nullable));
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let batches = (0..rows.num_rows())
        .step_by(100)
        .map(|from| rows.slice(from, 100.min(rows.num_rows() - from)));
    (rows.schema(), batches.collect())
}

#[test]
fn keys_of_every_kind_find_the_rows_that_have_them() {
    let alone = KINDS.map(|kind| ([kind, KINDS[0]], 1));
    let together = KINDS.map(|kind| ([kind, KINDS[1]], 2));
    for (seed, (kinds, keys)) in (900..).zip(alone.into_iter().chain(together)) {
        let rng = &mut rng(seed);
        // Of the build side all texts may be short, and those of the probe side are not.
        for of_build in [(60, true), (60, false), (120, true)] {
            let tables =
                [table_of(rng, kinds, 400, of_build), table_of(rng, kinds, 500, (120, true))];
            for (join_type, is_filtered) in
                TYPES.into_iter().flat_map(|of| [(of, false), (of, true)])
            {
                for null_equality in [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull]
                {
                    let hash = Hash { keys, is_filtered, null_equality, ..Hash::of(join_type) };
                    let join = || {
                        let (build, probe) = (scan(&tables[0], 1), scan(&tables[1], 1));
                        hash.join(build, probe, PartitionMode::CollectLeft)
                    };
                    let expected = sorted(rows(&join(), None));
                    let found = sorted(rows(&spilling(join()), None));
                    assert!(
                        found == expected,
                        "{join_type:?}, {is_filtered}, {null_equality:?}, case {seed}"
                    );
                }
            }
        }
    }
}

#[test]
fn empty_sides_and_keys_that_are_null_meet_as_they_do_in_memory() {
    for (seed, join_type) in (100..).zip(TYPES) {
        for shapes in [[EVEN, EMPTY], [EMPTY, EVEN], [EMPTY, EMPTY]] {
            Hash::of(join_type).case(seed, shapes, Sides::Collected(2)).check_all(5);
        }
        let null_equality = NullEquality::NullEqualsNull;
        let hash = Hash { null_equality, keys: 2, ..Hash::of(join_type) };
        hash.case(seed, [EVEN, EVEN], Sides::Collected(2)).check_all(5);
    }
}

#[test]
fn what_is_projected_leaves_and_nothing_else() {
    for projection in [vec![], vec![5, 0], vec![2, 2]] {
        for join_type in [JoinType::Inner, JoinType::Right, JoinType::Full] {
            let projection = Some(projection.clone());
            let hash = Hash { projection, ..Hash::of(join_type) };
            hash.case(200, [EVEN, SKEWED], Sides::Collected(2)).check_all(5);
        }
    }
    let hash = Hash { projection: Some(vec![3, 1]), ..Hash::of(JoinType::RightMark) };
    hash.case(201, [EVEN, SKEWED], Sides::Collected(2)).check_all(5);
}

#[test]
fn membership_that_is_unknown_for_null_stays_so() {
    let known = Shape { nulls: false, ..EVEN };
    for (seed, shapes) in (300..).zip([[EVEN, known], [EVEN, EVEN], [known, known], [EVEN, EMPTY]])
    {
        for partitions in [1, 3] {
            let hash = Hash { null_aware: true, ..Hash::of(JoinType::LeftAnti) };
            hash.case(seed, shapes, Sides::Collected(partitions)).check_all(2);
        }
    }
}

/// Comparisons of columns of `k`, `s`, `v` of the left side and the same of the right one, by their places among the six.
fn compared(parts: &[(usize, Operator, usize)]) -> JoinFilter {
    let fields = |side: &str| {
        [("k", DataType::Int64), ("s", DataType::Utf8View), ("v", DataType::Int64)]
            .map(|(name, of)| Field::new(format!("{side}.{name}"), of, name != "v"))
    };
    let schema = Schema::new([fields("l"), fields("r")].concat());
    let part = |&(left, operator, right): &(usize, Operator, usize)| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(column("", left), operator, column("", right)))
    };
    let all = parts
        .iter()
        .map(part)
        .reduce(|all, part| Arc::new(BinaryExpr::new(all, Operator::And, part)));
    let columns = [JoinSide::Left, JoinSide::Right]
        .into_iter()
        .flat_map(|side| (0..3).map(move |index| ColumnIndex { index, side }));
    JoinFilter::new(all.unwrap(), columns.collect(), Arc::new(schema))
}

fn check_without_keys(seed: u64, what: &str, step: usize, filter: impl Fn() -> Option<JoinFilter>) {
    let filter = &filter;
    let small = Shape { rows: 150, ..EVEN };
    for (seed, join_type) in (seed..).zip(TYPES) {
        for partitions in [1, 3] {
            let rng = &mut rng(seed);
            let tables = [table(rng, small), table(rng, Shape { rows: 320, ..EVEN })];
            let join = |partitions| -> Arc<dyn ExecutionPlan> {
                let (build, probe) = (scan(&tables[0], 1), scan(&tables[1], partitions));
                let builder = NestedLoopJoinExecBuilder::new(build, probe, join_type);
                Arc::new(builder.with_filter(filter()).build().unwrap())
            };
            let expected = sorted(rows(&join(1), None));
            let name = format!("{what}: {join_type:?} in {partitions}");
            Case { name, make: Box::new(|| join(partitions)), expected }.check_all(step);
        }
    }
}

#[test]
fn joins_without_keys_yield_the_same_rows_block_by_block() {
    check_without_keys(400, "all", 1, || None);
    // Either side of the comparison has columns of both: nothing that an order could tell.
    let sum = || -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(column("", 2), Operator::Plus, column("", 5)))
    };
    check_without_keys(410, "sums", 1, || {
        let columns = compared(&[(0, Operator::Lt, 3)]);
        let least = BinaryExpr::new(column("", 0), Operator::Lt, sum());
        let places = columns.column_indices().to_vec();
        Some(JoinFilter::new(Arc::new(least), places, Arc::clone(columns.schema())))
    });
}

#[test]
fn rows_within_ends_are_found_by_their_order() {
    use Operator::{Gt, GtEq, Lt, LtEq, NotEq};
    let [lk, ls, lv, rk, rs, rv] = [0, 1, 2, 3, 4, 5];
    let conditions: [(&str, bool, &[_]); 10] = [
        ("one end", true, &[(lv, Lt, rv)]),
        ("one end, from the right", true, &[(rk, GtEq, lk)]),
        ("both ends", true, &[(lv, LtEq, rk), (lv, Gt, rv)]),
        ("two keys", true, &[(lk, LtEq, rv), (lv, Gt, rk)]),
        ("two keys, the other way", true, &[(lk, Gt, rv), (rk, GtEq, lv)]),
        ("three ends of two keys", true, &[(lv, Lt, rk), (lk, Gt, rk), (lk, LtEq, rv)]),
        ("all ends", false, &[(lv, Lt, rk), (lk, Gt, rk), (lk, LtEq, rv), (lv, Gt, rk)]),
        ("the same end twice", false, &[(lv, Lt, rk), (lv, LtEq, rv)]),
        ("texts", false, &[(ls, Lt, rs)]),
        ("and another condition", false, &[(ls, NotEq, rs), (lk, LtEq, rk), (lv, GtEq, rk)]),
    ];
    for (seed, (what, is_exact, parts)) in (420..).step_by(10).zip(conditions) {
        let table = table(&mut rng(seed), EMPTY).0;
        let bands = bands::Bands::of(&compared(parts), [&table, &table]).unwrap().unwrap();
        assert_eq!(bands.is_exact, is_exact, "{what}");
        check_without_keys(seed, what, 9, || Some(compared(parts)));
    }
}

#[test]
fn a_product_yields_all_pairs_block_by_block() {
    let rng = &mut rng(500);
    let tables = [table(rng, Shape { rows: 350, ..EVEN }), table(rng, Shape { rows: 150, ..EVEN })];
    let join = |tables: &[_; 2], partitions| -> Arc<dyn ExecutionPlan> {
        Arc::new(CrossJoinExec::new(scan(&tables[0], 1), scan(&tables[1], partitions)))
    };
    let expected = sorted(rows(&join(&tables, 1), None));
    assert_eq!(expected.len(), 350 * 150);
    let make = Box::new(move || join(&tables, 2));
    Case { name: "product".into(), make, expected }.check_all(1);
}

/// A scan whose rows are known to be in the order of `v`.
fn ordered(table: &(SchemaRef, Vec<RecordBatch>)) -> Arc<dyn ExecutionPlan> {
    let by = PhysicalSortExpr::new(column("v", 2), SortOptions::default());
    let source =
        MemorySourceConfig::try_new(std::slice::from_ref(&table.1), Arc::clone(&table.0), None)
            .unwrap();
    let order = vec![LexOrdering::new([by]).unwrap()];
    DataSourceExec::from_data_source(source.try_with_sort_information(order).unwrap())
}

#[test]
fn the_order_of_the_probe_side_is_found_again() {
    let types = [
        JoinType::Inner,
        JoinType::Right,
        JoinType::RightSemi,
        JoinType::RightAnti,
        JoinType::RightMark,
    ];
    for join_type in types {
        let rng = &mut rng(600);
        let tables = [table(rng, EVEN), table(rng, SKEWED)];
        let hash = Hash::of(join_type);
        let join =
            || hash.join(ordered(&tables[0]), ordered(&tables[1]), PartitionMode::CollectLeft);
        assert!(join().output_ordering().is_some(), "{join_type:?}");
        let expected = rows(&join(), None);
        for limit in [0, 60 << 10, 100 << 10] {
            let plan = spilling(join());
            let found = rows(&plan, Some(Refusing::new(limit, Refused::Never)));
            assert!(spilled_rows(&plan) > 0);
            assert!(found == expected, "{join_type:?} under {limit}");
        }
    }
}

#[test]
fn a_limit_is_a_number_of_rows_of_each_partition() {
    let rng = &mut rng(700);
    let tables = [table(rng, EVEN), table(rng, EVEN)];
    let join = Hash::of(JoinType::Inner).join(
        scan(&tables[0], 1),
        scan(&tables[1], 1),
        PartitionMode::CollectLeft,
    );
    let limited = spilling(join.with_fetch(Some(17)).unwrap());
    assert_eq!(rows(&limited, Some(Refusing::new(0, Refused::Never))).len(), 17);
    assert!(spilled_rows(&limited) > 0);
}

#[test]
fn what_was_spilled_is_told() {
    let rng = &mut rng(800);
    let tables = [table(rng, EVEN), table(rng, EVEN)];
    let scans = || (scan(&tables[0], 1), scan(&tables[1], 1));
    let (build, probe) = scans();
    let plan = spilling(Hash::of(JoinType::Full).join(build, probe, PartitionMode::CollectLeft));
    let text = datafusion::physical_plan::displayable(plan.as_ref()).one_line().to_string();
    assert!(
        text.starts_with("SpillingHashJoinExec: mode=CollectLeft, join_type=Full, on=[(k@0, k@0)]"),
        "{text}"
    );
    let found = rows(&plan, Some(Refusing::new(0, Refused::Never)));
    let metrics = plan.metrics().unwrap().aggregate_by_name();
    let sum = |name| metrics.sum_by_name(name).unwrap().as_usize();
    assert_eq!(metrics.output_rows(), Some(found.len()));
    assert!(sum("spilled_parts") > 4 && sum("spill_depth") > 1);
    assert!(metrics.spilled_bytes() > Some(0));
}
