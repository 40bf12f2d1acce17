//! Sorts against a stable sort by Arrow's comparison, under limits from none to nearly all that there are.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arrow::array::UInt32Array;
use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StringViewArray,
};
use arrow::compute::{
    LexicographicalComparator, SortColumn, SortOptions, concat_batches, take_record_batch,
};
use datafusion::common::Result;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionConfig;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::SpillingSortExec;

/// Partitions of some rows: few distinct values, NULL, `NaN` and both zeros, texts that begin alike, and at last the
/// number of the row.
fn table(rows: usize, partitions: usize, random: &mut SmallRng) -> Vec<Vec<RecordBatch>> {
    let mut id = 0;
    let mut partition = |_| {
        let mut left = rows / partitions;
        let mut batches = Vec::new();
        while left > 0 {
            let count = random.random_range(1..=left.min(3000));
            left -= count;
            let mut column = |make: &mut dyn FnMut(&mut SmallRng) -> ArrayRef| make(random);
            batches.push(
                RecordBatch::try_from_iter_with_nullable([
                    (
                        "few",
                        column(&mut |random| {
                            let cell =
                                |_| random.random_bool(0.9).then(|| random.random_range(-3..3));
                            Arc::new((0..count).map(cell).collect::<Int32Array>())
                        }),
                        true,
                    ),
                    (
                        "real",
                        column(&mut |random| {
                            let special = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, -1.5];
                            let cell = |_| match random.random_range(0..10) {
                                0 => None,
                                at @ 1..=6 => Some(special[at - 1]),
                                _ => Some(random.random_range(-1.0..1.0)),
                            };
                            Arc::new((0..count).map(cell).collect::<Float64Array>())
                        }),
                        true,
                    ),
                    (
                        "text",
                        column(&mut |random| {
                            let cell = |_| match random.random_range(0..8) {
                                0 => None,
                                1 => Some(String::new()),
                                _ => Some(format!(
                                    "the same beginning {}",
                                    random.random_range(0..50)
                                )),
                            };
                            Arc::new((0..count).map(cell).collect::<StringArray>())
                        }),
                        true,
                    ),
                    (
                        "view",
                        column(&mut |random| {
                            let cell =
                                |_| Some(format!("common {:04}", random.random_range(0..2000)));
                            Arc::new((0..count).map(cell).collect::<StringViewArray>())
                        }),
                        true,
                    ),
                    (
                        "decimal",
                        column(&mut |random| {
                            let cell =
                                |_| random.random_bool(0.95).then(|| random.random::<i64>().into());
                            Arc::new((0..count).map(cell).collect::<Decimal128Array>())
                        }),
                        true,
                    ),
                    (
                        "id",
                        column(&mut |_| {
                            let ids = (id..).take(count).collect::<Vec<i64>>();
                            id += count as i64;
                            Arc::new(Int64Array::from(ids))
                        }),
                        true,
                    ),
                ])
                .unwrap(),
            );
        }
        batches
    };
    (0..partitions).map(&mut partition).collect()
}

fn ordering(keys: &[(usize, SortOptions)], names: &RecordBatch) -> LexOrdering {
    let key = |&(column, options): &(usize, SortOptions)| {
        let name = names.schema().field(column).name().clone();
        PhysicalSortExpr::new(Arc::new(Column::new(&name, column)), options)
    };
    LexOrdering::new(keys.iter().map(key)).unwrap()
}

/// The rows in order, equal ones as they came.
fn expected(
    rows: &RecordBatch,
    keys: &[(usize, SortOptions)],
    fetch: Option<usize>,
) -> RecordBatch {
    let columns: Vec<SortColumn> = keys
        .iter()
        .map(|&(at, options)| SortColumn {
            values: Arc::clone(rows.column(at)),
            options: Some(options),
        })
        .collect();
    let comparator = LexicographicalComparator::try_new(&columns).unwrap();
    let mut places: Vec<u32> = (0..rows.num_rows() as u32).collect();
    places.sort_by(|&left, &right| comparator.compare(left as usize, right as usize));
    places.truncate(fetch.unwrap_or(usize::MAX));
    take_record_batch(rows, &UInt32Array::from(places)).unwrap()
}

fn context(pool: Arc<dyn MemoryPool>, batch_rows: usize) -> Arc<TaskContext> {
    let config = SessionConfig::new().with_target_partitions(2).with_batch_size(batch_rows);
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    Arc::new(TaskContext::default().with_session_config(config).with_runtime(environment))
}

/// The rows as the sort hands them out, and how often it went to a file.
fn sorted(
    partitions: &[Vec<RecordBatch>],
    keys: &[(usize, SortOptions)],
    fetch: Option<usize>,
    context: Arc<TaskContext>,
) -> Result<(RecordBatch, usize)> {
    sorted_coming_by(0, partitions, keys, fetch, context)
}

/// The same of rows that come in the order of so many keys.
fn sorted_coming_by(
    come_by: usize,
    partitions: &[Vec<RecordBatch>],
    keys: &[(usize, SortOptions)],
    fetch: Option<usize>,
    context: Arc<TaskContext>,
) -> Result<(RecordBatch, usize)> {
    let schema = partitions[0][0].schema();
    let input = MemorySourceConfig::try_new_exec(partitions, Arc::clone(&schema), None)?;
    let ordering = ordering(keys, &partitions[0][0]);
    let properties = SortExec::new(ordering.clone(), Arc::clone(&input) as _);
    let properties = Arc::clone(properties.properties());
    let sort = SpillingSortExec::new(input, ordering, fetch, false, properties);
    let sort = sort.coming_by(come_by);
    assert!(sort.can_sort());
    let sort = Arc::new(sort);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let pool = Arc::clone(context.memory_pool());
    let batches = runtime.block_on(collect(Arc::clone(&sort) as _, context))?;
    assert_eq!(pool.reserved(), 0, "what was reserved is given back");
    let spills = sort.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
    Ok((concat_batches(&schema, &batches)?, spills))
}

fn random_keys(random: &mut SmallRng, columns: &[usize]) -> Vec<(usize, SortOptions)> {
    let mut keys: Vec<(usize, SortOptions)> = Vec::new();
    for _ in 0..random.random_range(1..=3) {
        let column = columns[random.random_range(0..columns.len())];
        let options = SortOptions { descending: random.random(), nulls_first: random.random() };
        if keys.iter().all(|&(at, _)| at != column) {
            keys.push((column, options));
        }
    }
    keys
}

#[test]
fn rows_of_any_kind_are_sorted_under_any_limit() {
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let partitions =
            table(random.random_range(1..20_000), random.random_range(1..4), &mut random);
        let partitions: Vec<_> = partitions.into_iter().filter(|rows| !rows.is_empty()).collect();
        let Some(first) = partitions.first() else { continue };
        let all = concat_batches(&first[0].schema(), partitions.iter().flatten()).unwrap();
        let keys = random_keys(&mut random, &[0, 1, 2, 3, 4]);
        let fetch = random.random_bool(0.3).then(|| random.random_range(0..all.num_rows() + 9));
        let expected = expected(&all, &keys, fetch);
        for limit_bytes in [1, 300_000, 3_000_000, usize::MAX] {
            let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(limit_bytes));
            let context = context(pool, random.random_range(1..9000));
            let (rows, spills) = sorted(&partitions, &keys, fetch, context).unwrap();
            assert_eq!(rows, expected, "seed {seed}, limit {limit_bytes}, {keys:?}, {fetch:?}");
            assert!(limit_bytes > 1 || spills > 0 || all.num_rows() < 5000, "seed {seed}");
        }
    }
}

#[test]
fn the_first_of_more_rows_than_are_held_are_those_of_all() {
    for seed in 0..3 {
        let mut random = SmallRng::seed_from_u64(seed);
        let partitions = table(700_000, 2, &mut random);
        let first = partitions.iter().flatten().next().unwrap();
        let all = concat_batches(&first.schema(), partitions.iter().flatten()).unwrap();
        let keys = random_keys(&mut random, &[0, 1, 2, 3, 4]);
        for fetch in [1, 300, 60_000] {
            for limit_bytes in [20_000_000, usize::MAX] {
                let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(limit_bytes));
                let (rows, _) =
                    sorted(&partitions, &keys, Some(fetch), context(pool, 8192)).unwrap();
                let expected = expected(&all, &keys, Some(fetch));
                assert_eq!(rows, expected, "seed {seed}, {limit_bytes}, {keys:?}, {fetch}");
            }
        }
    }
}

#[test]
fn rows_that_come_in_the_order_of_the_first_keys_are_sorted_by_all() {
    let mut spilled = 0;
    for seed in 0..6 {
        let mut random = SmallRng::seed_from_u64(seed);
        // Few values of the first key, so that stretches are long; now and then all have the same.
        let rows = table(random.random_range(1..200_000), 1, &mut random);
        let Some(first) = rows[0].first() else { continue };
        let all = concat_batches(&first.schema(), &rows[0]).unwrap();
        let options = |random: &mut SmallRng| SortOptions {
            descending: random.random(),
            nulls_first: random.random(),
        };
        let columns = [[0, 2, 1], [0, 1, 4], [2, 0, 4]][seed as usize % 3];
        let keys = columns.map(|column| (column, options(&mut random)));
        let come_by = random.random_range(1..3);
        let come = expected(&all, &keys[..come_by], None);
        let mut batches = Vec::new();
        let mut at = 0;
        while at < come.num_rows() {
            let count = random.random_range(0..30_000).min(come.num_rows() - at);
            batches.push(come.slice(at, count));
            at += count;
        }
        let fetch = random.random_bool(0.4).then(|| random.random_range(0..all.num_rows() + 9));
        let expected = expected(&come, &keys, fetch);
        for limit_bytes in [300_000, usize::MAX] {
            let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(limit_bytes));
            let context = context(pool, random.random_range(500..9000));
            let batches = std::slice::from_ref(&batches);
            let (rows, spills) = sorted_coming_by(come_by, batches, &keys, fetch, context).unwrap();
            same_rows(
                &rows,
                &expected,
                &format!("seed {seed}, limit {limit_bytes}, {keys:?}, {fetch:?}"),
            );
            spilled += spills;
        }
    }
    assert!(spilled > 0);
}

/// Equal rows, `NaN` by its bits.
#[test]
fn rows_are_dealt_out_by_words_that_differ_in_few_bytes() {
    let random = &mut SmallRng::seed_from_u64(3);
    let partitions = table(20_000, 1, random);
    let names = &partitions[0][0];
    // Integers of few values, and texts after what they all begin with; decimals differ in all of their bytes.
    for (column, expected) in [("few", 20_000), ("view", 20_000), ("decimal", 0)] {
        let column = names.schema().index_of(column).unwrap();
        let ordering = ordering(&[(column, SortOptions::default())], names);
        let input = MemorySourceConfig::try_new_exec(&partitions, names.schema(), None).unwrap();
        let sort = SortExec::new(ordering.clone(), Arc::clone(&input) as _);
        let properties = Arc::clone(sort.properties());
        let sort: Arc<dyn ExecutionPlan> =
            Arc::new(SpillingSortExec::new(input, ordering, None, false, properties));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let context = context(Arc::new(UnboundedMemoryPool::default()), 8192);
        runtime.block_on(collect(Arc::clone(&sort), context)).unwrap();
        let dealt = sort.metrics().unwrap().sum_by_name("rows_by_radix").unwrap().as_usize();
        assert_eq!(dealt, expected, "{column}");
    }
}

fn same_rows(left: &RecordBatch, right: &RecordBatch, what: &str) {
    for column in 0..right.num_columns() {
        let project = |batch: &RecordBatch| batch.project(&[column]).unwrap();
        same_bits(&project(left), &project(right), what);
    }
}

#[test]
fn numbers_are_sorted_under_any_limit() {
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let partitions =
            table(random.random_range(1..200_000), random.random_range(1..4), &mut random);
        let column = [0, 1, 4, 5][seed as usize % 4];
        let narrow = |batch: &RecordBatch| batch.project(&[column]).unwrap();
        let partitions: Vec<Vec<_>> =
            partitions.iter().map(|batches| batches.iter().map(narrow).collect()).collect();
        let partitions: Vec<_> = partitions.into_iter().filter(|rows| !rows.is_empty()).collect();
        let Some(first) = partitions.first() else { continue };
        let all = concat_batches(&first[0].schema(), partitions.iter().flatten()).unwrap();
        let options = SortOptions { descending: random.random(), nulls_first: random.random() };
        let keys = [(0, options)];
        let fetch = random.random_bool(0.4).then(|| random.random_range(0..all.num_rows() + 9));
        let expected = expected(&all, &keys, fetch);
        for limit_bytes in [1, 300_000, 3_000_000, usize::MAX] {
            let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(limit_bytes));
            let context = context(pool, random.random_range(1..9000));
            let (rows, _) = sorted(&partitions, &keys, fetch, context).unwrap();
            same_bits(
                &rows,
                &expected,
                &format!("seed {seed}, {limit_bytes}, {keys:?}, {fetch:?}"),
            );
        }
    }
}

/// Equal rows, `NaN` and zeros of either sign by their bits.
fn same_bits(left: &RecordBatch, right: &RecordBatch, what: &str) {
    assert_eq!(left.num_rows(), right.num_rows(), "{what}");
    let comparator =
        arrow::array::make_comparator(left.column(0), right.column(0), SortOptions::default());
    let comparator = comparator.unwrap();
    let unlike = (0..left.num_rows()).find(|&row| comparator(row, row) != Ordering::Equal);
    assert_eq!(unlike, None, "{what}");
}

/// Refuses one request, the n-th that may be refused.
#[derive(Debug)]
struct RefusesOne {
    inner: UnboundedMemoryPool,
    until: AtomicUsize,
}

impl fmt::Display for RefusesOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pool that refuses one request")
    }
}

impl MemoryPool for RefusesOne {
    fn name(&self) -> &str {
        "refuses one"
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
    let mut random = SmallRng::seed_from_u64(7);
    let partitions = table(60_000, 2, &mut random);
    let all = concat_batches(&partitions[0][0].schema(), partitions.iter().flatten()).unwrap();
    let options = SortOptions { descending: true, nulls_first: false };
    let ids: Vec<Vec<_>> = partitions
        .iter()
        .map(|batches| batches.iter().map(|batch| batch.project(&[1]).unwrap()).collect())
        .collect();
    let id = all.project(&[1]).unwrap();
    let by_rows = expected(&all, &[(2, options), (1, options)], None);
    let by_keys = expected(&id, &[(0, options)], None);
    for until in 0..60 {
        let pool = || -> Arc<dyn MemoryPool> {
            let until = AtomicUsize::new(until);
            Arc::new(RefusesOne { inner: UnboundedMemoryPool::default(), until })
        };
        let keys = [(2, options), (1, options)];
        let (rows, _) = sorted(&partitions, &keys, None, context(pool(), 8192)).unwrap();
        assert_eq!(rows, by_rows, "request {until}");
        let (rows, _) = sorted(&ids, &[(0, options)], None, context(pool(), 8192)).unwrap();
        same_bits(&rows, &by_keys, &format!("request {until}"));
    }
}
