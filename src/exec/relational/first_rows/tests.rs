//! What leaves, against how many rows of its group each row comes after.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array,
    Int64Array, ListArray, RecordBatch, StringArray, StringViewArray, UInt64Array, make_comparator,
};
use arrow::compute::{SortOptions, concat_batches, filter_record_batch};
use arrow::datatypes::{Float64Type, UInt64Type};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{binary, col, lit};
use datafusion::physical_plan::collect;
use futures::StreamExt;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Numbered rows with keys that have few values and NULLs, and with values of all kinds that have a place.
fn batch(first: u64, rows: usize, random: &mut SmallRng) -> RecordBatch {
    fn cells<T>(
        rows: usize,
        random: &mut SmallRng,
        cell: impl Fn(&mut SmallRng) -> T,
    ) -> Vec<Option<T>> {
        let mut one = || random.random_ratio(9, 10).then(|| cell(random));
        (0..rows).map(|_| one()).collect()
    }
    let special = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY];
    let text = |random: &mut SmallRng| {
        let many = random.random_range(0..50);
        ["", "short", "the same eight bytes", "the same and "][many % 4].to_owned()
            + &"m".repeat(many / 4)
    };
    let wide = |random: &mut SmallRng| {
        let small = i128::from(random.random_range(-9_i64..9));
        small + [0, i128::from(i64::MAX), i128::from(i64::MIN)][random.random_range(0..3)] * 3
    };
    let columns: [(&str, ArrayRef); 10] = [
        ("id", Arc::new(UInt64Array::from_iter_values(first..first + rows as u64))),
        ("few", Arc::new(Int16Array::from(cells(rows, random, |r| r.random_range(0..5_i16))))),
        ("name", Arc::new(cells(rows, random, text).into_iter().collect::<StringViewArray>())),
        ("truth", Arc::new(BooleanArray::from(cells(rows, random, |r| r.random_bool(0.5))))),
        ("whole", Arc::new(Int64Array::from(cells(rows, random, |r| r.random_range(-20..20))))),
        (
            "real",
            Arc::new(Float64Array::from(cells(rows, random, |r| match r.random_range(0..9) {
                at @ 0..6 => special[at],
                _ => r.random_range(-2.0..2.0),
            }))),
        ),
        ("day", Arc::new(Date32Array::from(cells(rows, random, |r| r.random_range(-9..9))))),
        ("wide", Arc::new(Decimal128Array::from(cells(rows, random, wide)))),
        ("view", Arc::new(cells(rows, random, text).into_iter().collect::<StringViewArray>())),
        ("text", Arc::new(cells(rows, random, text).into_iter().collect::<StringArray>())),
    ];
    let columns = columns.map(|(name, column)| (name, column, name != "id"));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn batches(rows: usize, random: &mut SmallRng) -> Vec<RecordBatch> {
    let (mut first, mut batches) = (0, Vec::new());
    while first < rows {
        let count = random.random_range(0..=(rows - first).min(700));
        batches.push(batch(first as u64, count, random));
        first += count;
    }
    batches
}

fn first(schema: &Schema, count: usize, keys: &[&str], by: &str, options: SortOptions) -> First {
    let keys = keys.iter().map(|key| col(key, schema).unwrap()).collect();
    let by = PhysicalSortExpr { expr: col(by, schema).unwrap(), options };
    First { count, keys, by, condition: None }
}

fn operator(first: First, batches: Vec<RecordBatch>) -> FirstRowsExec {
    let schema = batches[0].schema();
    FirstRowsExec::new(first, MemorySourceConfig::try_new_exec(&[batches], schema, None).unwrap())
}

fn context(pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool)).build_arc();
    Arc::new(TaskContext::default().with_runtime(environment.unwrap()))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// The numbers of the rows that leave.
fn leaving(first: First, batches: &[RecordBatch], pool: &Arc<dyn MemoryPool>) -> Vec<u64> {
    let plan = Arc::new(operator(first, batches.to_vec()));
    let schema = plan.schema();
    let left = runtime().block_on(collect(plan, context(pool))).unwrap();
    assert_eq!(pool.reserved(), 0, "what was reserved is given back");
    let left = concat_batches(&schema, &left).unwrap();
    left.column(0).as_primitive::<UInt64Type>().values().to_vec()
}

/// Of each row, how many of its group come before it.
fn ranks(batch: &RecordBatch, keys: &[&str], by: &str, options: SortOptions) -> Vec<usize> {
    let compared = |name: &str, options| {
        let column = batch.column_by_name(name).unwrap();
        make_comparator(column, column, options).unwrap()
    };
    let keys: Vec<_> = keys.iter().map(|key| compared(key, SortOptions::default())).collect();
    let by = compared(by, options);
    let rows = 0..batch.num_rows();
    let comes_before = |one: usize, other: usize| {
        by(one, other).is_lt() && keys.iter().all(|key| key(one, other).is_eq())
    };
    rows.clone().map(|row| rows.clone().filter(|&one| comes_before(one, row)).count()).collect()
}

#[test]
fn those_that_leave_are_in_order_and_the_first_of_each_group_are_among_them() {
    let mut dropped = 0;
    for seed in 0..150 {
        let mut random = SmallRng::seed_from_u64(seed);
        let rows = random.random_range(1..1500);
        let batches = batches(rows, &mut random);
        let all = concat_batches(&batches[0].schema(), &batches).unwrap();
        let keys = [&[][..], &["few"], &["name"], &["truth", "few"]][random.random_range(0..4)];
        let by = ["whole", "real", "day", "wide", "view", "text"][seed as usize % 6];
        let options = SortOptions {
            descending: random.random_bool(0.5),
            nulls_first: random.random_bool(0.5),
        };
        let count = random.random_range(1..12);
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let left = leaving(first(&all.schema(), count, keys, by, options), &batches, &pool);
        assert!(left.is_sorted_by(|one, next| one < next), "seed {seed}");
        dropped += rows - left.len();
        for (row, rank) in ranks(&all, keys, by, options).into_iter().enumerate() {
            let leaves = left.binary_search(&(row as u64)).is_ok();
            assert!(leaves || rank >= count, "seed {seed}: row {row} comes after {rank} by {by}");
        }
    }
    assert!(dropped > 50_000, "{dropped}");
}

#[test]
fn rows_that_do_not_meet_the_condition_never_leave_and_are_before_nobody() {
    let mut dropped = 0;
    for seed in 0..60 {
        let mut random = SmallRng::seed_from_u64(seed);
        let rows = random.random_range(1..1500);
        let batches = batches(rows, &mut random);
        let schema = batches[0].schema();
        let all = concat_batches(&schema, &batches).unwrap();
        let keys = [&[][..], &["name"]][random.random_range(0..2)];
        let (by, count) =
            (["whole", "real", "view"][seed as usize % 3], random.random_range(1..12));
        let options = SortOptions::default();
        // NULL where the number is.
        let few = col("few", &schema).unwrap();
        let condition = binary(few, Operator::Gt, lit(2_i16), &schema).unwrap();
        let mut asked = first(&schema, count, keys, by, options);
        asked.condition = Some(Arc::clone(&condition));
        let limit = if seed % 5 == 0 { 100 } else { usize::MAX };
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
        let left = leaving(asked, &batches, &pool);
        let met = condition.evaluate(&all).unwrap().into_array(rows).unwrap();
        let met = filter_record_batch(&all, met.as_boolean()).unwrap();
        dropped += met.num_rows() - left.len();
        let ids = met.column(0).as_primitive::<UInt64Type>().values();
        assert!(left.iter().all(|row| ids.contains(row)), "seed {seed}");
        for (row, rank) in ids.iter().zip(ranks(&met, keys, by, options)) {
            assert!(left.contains(row) || rank >= count, "seed {seed}: row {row} by {by}");
        }
    }
    assert!(dropped > 5_000, "{dropped}");
}

/// An element that is NULL would be an error.
#[test]
fn lists_of_rows_that_do_not_meet_the_condition_are_null() {
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([
        Some(vec![Some(1.0)]),
        Some(vec![None]),
        Some(vec![Some(2.0)]),
    ]);
    let truth = BooleanArray::from(vec![true, false, false]);
    let columns: [(&str, ArrayRef); 2] = [("truth", Arc::new(truth)), ("v", Arc::new(lists))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let asked = without_lists(&batch, batch.column(0).as_boolean()).unwrap();
    assert_eq!(asked.column(0), batch.column(0));
    let validity: Vec<bool> = (0..3).map(|row| asked.column(1).is_valid(row)).collect();
    assert_eq!(validity, [true, false, false]);
    assert_eq!(asked.column(1).as_list::<i32>().value(0).len(), 1);
}

#[test]
fn where_the_first_come_first_no_others_leave() {
    let (mut id, mut key, mut by) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..300 {
        id.push(row);
        key.push((row % 3) as i64);
        by.push((row / 3) as i64);
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(UInt64Array::from(id))),
        ("key", Arc::new(Int64Array::from(key))),
        ("by", Arc::new(Int64Array::from(by))),
    ];
    let rows = [RecordBatch::try_from_iter(columns).unwrap()];
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let left = |count, keys: &[&str]| {
        leaving(first(&rows[0].schema(), count, keys, "by", SortOptions::default()), &rows, &pool)
    };
    assert_eq!(left(2, &["key"]), (0..6).collect::<Vec<u64>>());
    // Ties stay.
    assert_eq!(left(4, &[]), (0..6).collect::<Vec<u64>>());
}

#[test]
fn without_memory_all_rows_leave() {
    let batches = batches(1000, &mut SmallRng::seed_from_u64(0));
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
    let first = first(&batches[0].schema(), 1, &["few"], "whole", SortOptions::default());
    assert_eq!(leaving(first, &batches, &pool), (0..1000).collect::<Vec<u64>>());
}

#[test]
fn where_few_rows_go_the_places_go_instead() {
    let rows = TRIAL_ROWS as u64 + 100_000;
    let batch = |first: u64| {
        let id: ArrayRef = Arc::new(UInt64Array::from_iter_values(first..rows.min(first + 8192)));
        RecordBatch::try_from_iter([("id", id)]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..rows).step_by(8192).map(batch).collect();
    let first = first(&batches[0].schema(), 1, &["id"], "id", SortOptions::default());
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let plan = operator(first, batches);
    runtime().block_on(async {
        let mut left = plan.execute(0, context(&pool)).unwrap();
        let mut seen = 0;
        while let Some(batch) = left.next().await {
            seen += batch.unwrap().num_rows() as u64;
            assert_eq!(pool.reserved() > 0, seen < TRIAL_ROWS as u64, "after {seen} rows");
        }
        assert_eq!(seen, rows);
    });
}
