//! What is done to rows, by the operators that do it: on one thread, over tables of two numbers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::kernels::cmp::lt;
use arrow::compute::{concat_batches, filter_record_batch, sum};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, lit};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionConfig;
use tokio::runtime::{Builder, Runtime};

use crate::config::Settings;
use crate::exec::costs::Constant;
use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::relational::sort::SpillingSortExec;
use crate::planner::cost::CostModel;
use crate::planner::cost::rows::missed;
use crate::planner::spilling::SpillingAggregates;

/// Repetitions of a task, of which the best counts.
const REPETITIONS: usize = 4;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Rows that are read, probed, dealt out and grouped.
const ROWS: usize = 1 << 16;

/// Rows of a table within the caches, and of one beyond most of them.
const NEAR: usize = 1 << 12;
const FAR: usize = 1 << 18;

/// Rows of each side of which all pairs are compared.
const PAIRED: usize = 1 << 10;

/// A constant is no more than so many times as fast or as slow as the built-in one: two measurements, one of which is a part
/// of the other, may come out alike.
const FACTOR_MAX: f64 = 30.0;

/// The constants that are about rows; nothing where an operator fails, as for want of memory. To be called where no other runtime is
/// at work.
pub(super) fn constants() -> Option<Vec<(Constant, f64)>> {
    let table = Tables::new()?;
    let of = |rows: usize, nanoseconds: f64| nanoseconds / rows as f64;
    let (near, far) = (missed(NEAR as f64), missed(FAR as f64));
    // What a near and a far look take, of two measurements that have some of each.
    let apart = |at_near: f64, at_far: f64| {
        let slope = (at_far - at_near) / (far - near);
        [at_near - slope * near, at_near + slope * (1.0 - near)]
    };

    let one_row = table.batches(1, 1);
    let built = best(|| table.joined(&table.far, &one_row))?;
    let unmatched = table.batches(ROWS, 1);
    let probed = best(|| table.joined(&table.near, &unmatched))?;
    let probed_far = best(|| table.joined(&table.far, &unmatched))? - built;
    let [probed, probed_far] = apart(of(ROWS, probed), of(ROWS, probed_far));
    let matched: Vec<RecordBatch> = (0..ROWS / NEAR).flat_map(|_| table.near.clone()).collect();
    let gathered = of(ROWS, best(|| table.joined(&table.near, &matched))?) - probed;
    let compared = best(|| table.compared())?;
    let grouped = of(ROWS, best(|| table.grouped(&matched))?);
    let grouped_far = of(FAR, best(|| table.grouped(&table.far))?);
    let [grouped, grouped_far] = apart(grouped, grouped_far);
    let all = [
        (Constant::Read, of(FAR, best(|| table.read())?)),
        (Constant::Kept, of(2 * FAR, best(|| table.kept())?)),
        (Constant::Built, of(FAR, built)),
        (Constant::Probed, probed),
        (Constant::ProbedFar, probed_far),
        (Constant::Gathered, gathered),
        (Constant::Compared, of(PAIRED * PAIRED, compared)),
        (Constant::Dealt, of(FAR, best(|| table.dealt())?)),
        (Constant::Grouped, grouped),
        (Constant::GroupedFar, grouped_far),
        (Constant::Sorted, of(FAR, best(|| table.sorted())?)),
    ];
    Some(all.map(|(constant, nanoseconds)| (constant, rate(constant, nanoseconds))).into())
}

/// By the second, what takes so many nanoseconds, as far as that is believed.
fn rate(constant: Constant, nanoseconds: f64) -> f64 {
    let built_in = CostModel::default().constant(constant);
    let rate = if nanoseconds > 0.0 { 1e9 / nanoseconds } else { f64::MAX };
    rate.clamp(built_in / FACTOR_MAX, built_in * FACTOR_MAX)
}

/// Nanoseconds of the best of some repetitions.
fn best(task: impl Fn() -> Result<()>) -> Option<f64> {
    let mut shortest = Duration::MAX;
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        task().ok()?;
        shortest = shortest.min(start.elapsed());
    }
    Some(shortest.as_nanos() as f64)
}

/// Tables of a key and a value, and what operators need to run over them.
struct Tables {
    schema: SchemaRef,
    near: Vec<RecordBatch>,
    far: Vec<RecordBatch>,
    context: Arc<TaskContext>,
    runtime: Runtime,
}

impl Tables {
    /// None where the system refuses what a runtime needs.
    fn new() -> Option<Self> {
        let mut config = SessionConfig::new();
        Settings::default().apply(config.options_mut());
        let context = TaskContext::default().with_session_config(config.with_target_partitions(1));
        let mut tables = Self {
            schema: rows(0, 0).schema(),
            near: Vec::new(),
            far: Vec::new(),
            context: Arc::new(context),
            runtime: Builder::new_current_thread().build().ok()?,
        };
        tables.near = tables.batches(NEAR, 0);
        tables.far = tables.batches(FAR, 0);
        Some(tables)
    }

    /// So many rows of keys that begin at a number: no two tables of different beginnings have one in common.
    fn batches(&self, count: usize, begin: usize) -> Vec<RecordBatch> {
        let starts = (0..count).step_by(BATCH_ROWS);
        starts.map(|at| rows(begin * FAR + at, BATCH_ROWS.min(count - at))).collect()
    }

    fn scan(&self, batches: &[RecordBatch]) -> Result<Arc<dyn ExecutionPlan>> {
        let (partitions, schema) = ([batches.to_vec()], Arc::clone(&self.schema));
        Ok(MemorySourceConfig::try_new_exec(&partitions, schema, None)?)
    }

    /// Runs an operator to its end.
    fn run(&self, operator: Arc<dyn ExecutionPlan>) -> Result<()> {
        self.runtime.block_on(collect(operator, Arc::clone(&self.context))).map(drop)
    }

    /// The rows of one table, each joined with that of its key in another.
    fn joined(&self, build: &[RecordBatch], probe: &[RecordBatch]) -> Result<()> {
        let join = HashJoinExec::try_new(
            self.scan(build)?,
            self.scan(probe)?,
            vec![(column(0), column(0))],
            None,
            &JoinType::Inner,
            None,
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        self.run(spilling(Arc::new(join)))
    }

    /// All pairs of two tables, by a condition that none meets and that says nothing of keys.
    fn compared(&self) -> Result<()> {
        let side = |side| ColumnIndex { index: 1, side };
        let sum = BinaryExpr::new(column(0), Operator::Plus, column(1));
        let condition = BinaryExpr::new(Arc::new(sum), Operator::Lt, lit(0_i64));
        let filter = JoinFilter::new(
            Arc::new(condition),
            vec![side(JoinSide::Left), side(JoinSide::Right)],
            Arc::clone(&self.schema),
        );
        let side = || self.scan(&self.batches(PAIRED, 0));
        let join =
            NestedLoopJoinExec::try_new(side()?, side()?, Some(filter), &JoinType::Inner, None)?;
        self.run(spilling(Arc::new(join)))
    }

    /// The sums of the values of each key.
    fn grouped(&self, batches: &[RecordBatch]) -> Result<()> {
        let sum = AggregateExprBuilder::new(sum_udaf(), vec![column(1)])
            .schema(Arc::clone(&self.schema))
            .alias("sum")
            .build()?;
        let groups = AggregateExec::try_new(
            AggregateMode::Single,
            Arc::new(PhysicalGroupBy::new_single(vec![(column(0), "key".to_owned())])),
            vec![Arc::new(sum)],
            vec![None],
            self.scan(batches)?,
            Arc::clone(&self.schema),
        )?;
        let options = self.context.session_config().options();
        self.run(SpillingAggregates.optimize(Arc::new(groups), options)?)
    }

    /// Half of the rows.
    fn read(&self) -> Result<()> {
        let middle = Int64Array::new_scalar(BATCH_ROWS as i64 / 2);
        for rows in &self.far {
            filter_record_batch(rows, &lt(rows.column(1), &middle)?)?;
        }
        Ok(())
    }

    /// Copies of all values, which are read again.
    fn kept(&self) -> Result<()> {
        let copies = concat_batches(&self.schema, &self.far)?;
        for column in copies.columns() {
            black_box(sum(column.as_primitive::<Int64Type>()));
        }
        Ok(())
    }

    fn dealt(&self) -> Result<()> {
        let keys = vec![column(0)];
        let mut dealer = BatchPartitioner::new_hash_partitioner(keys, 2, Time::new())?;
        let mut far = self.far.iter();
        far.try_for_each(|rows| dealer.partition(rows.clone(), |_, _| Ok(())))
    }

    fn sorted(&self) -> Result<()> {
        let keys = LexOrdering::from([PhysicalSortExpr::new_default(column(0))]);
        let input = self.scan(&self.far)?;
        let properties = Arc::clone(SortExec::new(keys.clone(), Arc::clone(&input)).properties());
        self.run(Arc::new(SpillingSortExec::new(input, keys, None, false, properties)))
    }
}

/// So many rows from a number on: the key is that number, far from those beside it, and the value its place in a batch.
fn rows(begin: usize, count: usize) -> RecordBatch {
    // Odd, so that no two products are alike.
    const SPREAD: i64 = 0x9e37_79b9_7f4a_7c15_u64 as i64;
    let numbers = begin as i64..(begin + count) as i64;
    let keys = Int64Array::from_iter_values(numbers.clone().map(|at| at.wrapping_mul(SPREAD)));
    let values = Int64Array::from_iter_values(numbers.map(|at| at % BATCH_ROWS as i64));
    let columns =
        [("key", keys), ("value", values)].map(|(name, of)| (name, Arc::new(of) as ArrayRef));
    RecordBatch::try_from_iter(columns).expect("two columns of one length")
}

fn column(index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(["key", "value"][index], index))
}

/// The operator that stands for a join.
fn spilling(join: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match SpillingJoinExec::new(Arc::clone(&join)) {
        Some(ours) => Arc::new(ours),
        None => join,
    }
}
