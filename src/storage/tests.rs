//! Scans of tables against their rows, filtered one by one.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::compute::{SortOptions, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, binary, col, lit};
use datafusion::physical_plan::{ExecutionPlan, collect_partitioned};
use datafusion::prelude::SessionContext;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::first_by::FirstBy;
use crate::memory::Kept;
use crate::steps::ROWS_DROPPED;

fn schema() -> SchemaRef {
    let fields = [("a", DataType::Int64), ("b", DataType::Int64), ("s", DataType::Utf8View)];
    Arc::new(Schema::new(fields.map(|(name, of)| Field::new(name, of, true)).to_vec()))
}

/// Some rows: `a` grows, `b` does not, and some of both and of `s` are NULL.
fn batch(first: i64, rows: i64, random: &mut impl Rng) -> Batch {
    let mut number = |of: &dyn Fn(i64, i64) -> i64| -> ArrayRef {
        let numbers = (first..first + rows).map(|at| {
            let other = random.random_range(0..50);
            (other != 7).then(|| of(at, other))
        });
        Arc::new(numbers.collect::<Int64Array>())
    };
    let (a, b, s) = (number(&|at, _| at), number(&|_, other| other), number(&|_, other| other));
    let texts = s.as_primitive::<Int64Type>().iter();
    let texts: StringViewArray =
        texts.map(|of| of.map(|of| format!("a text of {of} that is no short one"))).collect();
    Batch::new(&RecordBatch::try_new(schema(), vec![a, b, Arc::new(texts)]).unwrap()).unwrap()
}

fn table(random: &mut impl Rng) -> Arc<MemoryTable> {
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let kept = Kept::new("test", &pool);
    let table = MemoryTable::new(&schema(), TableDefinition::default(), Vec::new(), kept).unwrap();
    let mut first = 0;
    for _ in 0..random.random_range(1..7) {
        let rows = random.random_range(1..9000);
        table.insert_kept(vec![batch(first, rows, random)]).unwrap();
        first += rows;
    }
    Arc::new(table)
}

/// A condition on a column or two.
fn condition(random: &mut impl Rng) -> Arc<dyn PhysicalExpr> {
    let schema = schema();
    let column = |name: &str| col(name, &schema).unwrap();
    let compared = |left, operator, right| binary(left, operator, right, &schema).unwrap();
    let text =
        |of: i64| lit(ScalarValue::Utf8View(Some(format!("a text of {of} that is no short one"))));
    match random.random_range(0..5) {
        0 => compared(column("a"), Operator::Lt, lit(random.random_range(0..40_000_i64))),
        1 => compared(column("a"), Operator::GtEq, lit(random.random_range(0..40_000_i64))),
        2 => compared(column("b"), Operator::Lt, lit(random.random_range(0..60_i64))),
        3 => compared(column("s"), Operator::Eq, text(random.random_range(0..9))),
        _ => compared(column("a"), Operator::Gt, column("b")),
    }
}

/// What an operator may tell of the first column.
fn told() -> Arc<DynamicFilterPhysicalExpr> {
    Arc::new(DynamicFilterPhysicalExpr::new(vec![col("a", &schema()).unwrap()], lit(true)))
}

/// The rows of a table that meet conditions, looked at one by one.
fn expected(all: &RecordBatch, conditions: &[Arc<dyn PhysicalExpr>]) -> RecordBatch {
    conditions.iter().fold(all.clone(), |rows, condition| {
        let met = condition.evaluate(&rows).unwrap().into_array(rows.num_rows()).unwrap();
        filter_record_batch(&rows, met.as_boolean()).unwrap()
    })
}

async fn scan(rows: &Snapshot, columns: &[usize]) -> TableScan {
    let state = SessionContext::new().state();
    let plan = rows.scan(&state, Some(&columns.to_vec()), &[], None).await.unwrap();
    let scan = plan.downcast_ref::<DataSourceExec>().unwrap();
    scan.data_source().downcast_ref::<TableScan>().unwrap().clone()
}

fn filtered(scan: &TableScan, conditions: &[Arc<dyn PhysicalExpr>]) -> TableScan {
    let pushed = scan.try_pushdown_filters(conditions.to_vec(), &ConfigOptions::new()).unwrap();
    pushed.updated_node.unwrap().downcast_ref::<TableScan>().unwrap().clone()
}

/// What all partitions of a scan give, and how many rows it has passed over.
async fn given(scan: TableScan, schema: &SchemaRef) -> (RecordBatch, usize) {
    let plan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(scan);
    let context = SessionContext::new().task_ctx();
    let parts = collect_partitioned(Arc::clone(&plan), context).await.unwrap();
    let batches = parts.concat();
    let dropped = plan.metrics().unwrap().sum_by_name(ROWS_DROPPED).unwrap().as_usize();
    (concat_batches(schema, &batches).unwrap(), dropped)
}

#[tokio::test]
async fn a_scan_gives_all_rows_that_meet_its_conditions_in_their_order() {
    for seed in 0..150 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let table = table(random);
        let snapshot = Snapshot::new(Arc::clone(&table)).with_row_numbers();
        let batches = &snapshot.rows().batches;
        let all: Vec<_> = batches.iter().map(|batch| batch.rows().unwrap()).collect();
        let all = concat_batches(&schema(), &all).unwrap();
        let conditions: Vec<_> =
            (0..random.random_range(0..4)).map(|_| condition(random)).collect();
        let mut scan = scan(&snapshot, &[0, 1, 2, 3]).await;
        if !conditions.is_empty() {
            scan = filtered(&scan, &conditions);
        }
        if let Some(parts) = scan.repartitioned(2, 0, None).unwrap() {
            scan = parts.downcast_ref::<TableScan>().unwrap().clone();
        }
        let (given, _) = given(scan, &snapshot.schema()).await;
        // The numbers are those of the rows, and each comes once, in order.
        let numbers = given.column(3).as_primitive::<UInt64Type>().values();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}");
        for (at, &number) in numbers.iter().enumerate() {
            let row = |of: &RecordBatch, at: usize| -> Vec<ScalarValue> {
                (0..3).map(|on| ScalarValue::try_from_array(of.column(on), at).unwrap()).collect()
            };
            if at % 97 == 0 {
                assert_eq!(row(&given, at), row(&all, number as usize), "seed {seed}");
            }
        }
        let again = expected(&given.project(&[0, 1, 2]).unwrap(), &conditions);
        assert_eq!(again, expected(&all, &conditions), "seed {seed}");
    }
}

#[tokio::test]
async fn what_is_told_while_a_query_runs_is_looked_at_when_it_begins() {
    let random = &mut SmallRng::seed_from_u64(3);
    let table = table(random);
    table.insert_kept(vec![batch(50_000, 8192, random)]).unwrap();
    let snapshot = Snapshot::new(Arc::clone(&table));
    let told = told();
    let condition: Arc<dyn PhysicalExpr> = Arc::clone(&told) as _;
    let scan = filtered(&scan(&snapshot, &[2, 0]).await, &[condition]);
    let narrow = binary(col("a", &schema()).unwrap(), Operator::Lt, lit(5_i64), &schema()).unwrap();
    told.update(narrow).unwrap();
    told.mark_complete();
    let given_schema: SchemaRef = Arc::new(schema().project(&[2, 0]).unwrap());
    let (rows, dropped) = given(scan, &given_schema).await;
    assert!(rows.num_rows() <= 5 && rows.column(1).null_count() == 0);
    assert_eq!(rows.num_rows() + dropped, snapshot.row_count());
}

#[tokio::test]
async fn rows_that_nobody_needs_by_what_is_told_are_dropped_and_no_others() {
    let mut all_dropped = 0;
    for seed in 0..150 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let table = table(random);
        let snapshot = Snapshot::new(Arc::clone(&table));
        let batches = &snapshot.rows().batches;
        let all: Vec<_> = batches.iter().map(|batch| batch.rows().unwrap()).collect();
        let all = concat_batches(&schema(), &all).unwrap();
        let conditions: Vec<_> =
            (0..random.random_range(1..4)).map(|_| condition(random)).collect();
        let columns = ["a", "b", "s"].map(|name| col(name, &schema()).unwrap());
        let told = || Arc::new(DynamicFilterPhysicalExpr::new(columns.to_vec(), lit(true)));
        let told: Vec<_> = conditions.iter().map(|_| told()).collect();
        let all_told: Vec<_> = told.iter().map(|told| Arc::clone(told) as _).collect();
        let scan = filtered(&scan(&snapshot, &[0, 1, 2]).await, &all_told);
        for (told, condition) in told.iter().zip(&conditions) {
            told.update(Arc::clone(condition)).unwrap();
        }
        let (given, dropped) = given(scan, &schema()).await;
        assert_eq!(given.num_rows() + dropped, all.num_rows(), "seed {seed}");
        assert_eq!(expected(&given, &conditions), expected(&all, &conditions), "seed {seed}");
        all_dropped += dropped;
    }
    assert!(all_dropped > 0);
}

#[tokio::test]
async fn batches_that_may_have_the_first_rows_are_read_first() {
    let random = &mut SmallRng::seed_from_u64(4);
    let table = table(random);
    table.insert_kept(vec![batch(50_000, 8192, random), batch(60_000, 8192, random)]).unwrap();
    let snapshot = Snapshot::new(Arc::clone(&table));
    let scan = filtered(&scan(&snapshot, &[0]).await, &[told() as _]);
    let in_order = |descending| {
        let options = SortOptions { descending, nulls_first: true };
        let by = FirstBy { column: Column::new("a", 0), options };
        scan.first_by(&|_| Some(by.clone())).unwrap()
    };
    let given_schema: SchemaRef = Arc::new(schema().project(&[0]).unwrap());
    for (descending, expected) in [(true, 60_000), (false, 0)] {
        let (rows, _) = given(in_order(descending), &given_schema).await;
        assert_eq!(rows.num_rows(), snapshot.row_count());
        let first = rows.column(0).as_primitive::<Int64Type>().iter().flatten().next().unwrap();
        assert!((expected..expected + 50).contains(&first), "{first}");
    }
    assert!(scan.first_by(&|_| None).is_none());
}

#[tokio::test]
async fn rows_that_a_limit_counts_are_not_dropped() {
    let random = &mut SmallRng::seed_from_u64(8);
    let table = table(random);
    let snapshot = Snapshot::new(Arc::clone(&table));
    let scan = scan(&snapshot, &[0]).await.with_fetch(Some(3)).unwrap();
    let pushed = scan.try_pushdown_filters(vec![condition(random)], &ConfigOptions::new()).unwrap();
    assert!(pushed.updated_node.is_none());
    let scan = scan.downcast_ref::<TableScan>().unwrap();
    let (rows, _) = given(scan.clone(), &Arc::new(schema().project(&[0]).unwrap())).await;
    assert_eq!(rows.num_rows(), 3);
    let scan = filtered(&self::scan(&snapshot, &[0]).await, &[told() as _]);
    assert!(scan.with_fetch(Some(1)).is_none());
}

#[tokio::test]
async fn rows_are_put_back_only_if_they_are_those_that_were_there() {
    let random = &mut SmallRng::seed_from_u64(1);
    let table = table(random);
    let snapshot = Snapshot::new(Arc::clone(&table));
    let scan = scan(&snapshot, &[1, 0]).await;
    let schema: SchemaRef = Arc::new(schema().project(&[1, 0]).unwrap());
    let (before, _) = given(scan.clone(), &schema).await;
    let kept = scan.without_rows();
    drop((scan, snapshot));
    let again = kept.with_rows(&Snapshot::new(Arc::clone(&table))).unwrap();
    assert_eq!(given(again, &schema).await.0, before);
    let row = batch(0, 1, random);
    table.insert_kept(vec![row]).unwrap();
    assert!(kept.with_rows(&Snapshot::new(Arc::clone(&table))).is_none());
    assert!(kept.with_rows(&Snapshot::new(self::table(random))).is_none());
}
