//! One operator for a whole matrix graph, or one operator for each matrix operation?
//!
//! `solve(t(x) @ x, t(x) @ y)` over a join of five million rows, both ways:
//!
//! ```text
//! one    join ─► MatrixExec: two accumulators, then solve         the join runs once
//! many   join ─► ProductExec t(x)·x ─┐
//!        join ─► ProductExec t(x)·y ─┴► SolveExec                 it runs once for each reader
//! ```
//!
//! DataFusion's plans are trees and it has no common sub-plans, so a shared input is planned and run
//! again for each reader. The operators below are as good as that form allows: they stream batches, sum
//! within each partition, and store no row.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use datafusion::common::cast::as_primitive_array;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, collect,
};
use datafusion::prelude::SessionContext;
use faer::linalg::solvers::Solve;
use faer::{Accum, Mat, Par};
use futures::{StreamExt, TryStreamExt, stream};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use relatrix::{Connection, Database};

const FACT_ROWS: usize = 5_000_000;
const DIM_ROWS: usize = 100_000;
const BATCH_ROWS: usize = 8_192;
/// Columns of `x`: seven of the fact table, three of the dimension.
const FEATURES: usize = 10;

const JOIN: &str = "SELECT x0, x1, x2, x3, x4, x5, x6, z0, z1, z2, y
    FROM fact JOIN dim ON fact.dim_id = dim.dim_id WHERE grp < 8";

fn main() {
    let tables = Tables::new();
    let (one, many) = (One::new(&tables), Many::new(&tables));
    for (one, many) in one.coefficients().iter().zip(many.coefficients()) {
        assert!((one - many).abs() <= 1e-9 * many.abs(), "{one} is not {many}");
    }
    drop((one, many));
    divan::main();
}

/// The engine's way.
#[divan::bench(sample_count = 7)]
fn one(bencher: divan::Bencher) {
    let one = One::new(&Tables::new());
    bencher.bench_local(|| one.coefficients());
}

/// One DataFusion operator for each matrix operation.
#[divan::bench(sample_count = 7)]
fn many(bencher: divan::Bencher) {
    let many = Many::new(&Tables::new());
    bencher.bench_local(|| many.coefficients());
}

/// The join alone, its rows dropped: what no form can save.
#[divan::bench(sample_count = 7)]
fn join_alone(bencher: divan::Bencher) {
    let many = Many::new(&Tables::new());
    bencher.bench_local(|| many.join_rows());
}

// ------------------------------------------------------------------------------------------ data

/// Fact and dimension, as batches in memory.
struct Tables {
    fact: Vec<RecordBatch>,
    dim: Vec<RecordBatch>,
}

impl Tables {
    fn new() -> Self {
        let mut random = SmallRng::seed_from_u64(1);
        let mut fact = Vec::new();
        for first in (0..FACT_ROWS).step_by(BATCH_ROWS) {
            let rows = BATCH_ROWS.min(FACT_ROWS - first);
            let keys = Int32Array::from_iter_values(
                (0..rows).map(|_| random.random_range(0..DIM_ROWS as i32)),
            );
            let mut columns = vec![("dim_id".to_owned(), Arc::new(keys) as ArrayRef)];
            let names = (0..7).map(|j| format!("x{j}")).chain(["y".to_owned()]);
            columns.extend(names.map(|name| (name, uniform(&mut random, rows))));
            fact.push(RecordBatch::try_from_iter(columns).expect("columns of one length"));
        }
        let keys = Int32Array::from_iter_values(0..DIM_ROWS as i32);
        let groups =
            Int32Array::from_iter_values((0..DIM_ROWS).map(|_| random.random_range(0..10)));
        let mut columns =
            vec![("dim_id", Arc::new(keys) as ArrayRef), ("grp", Arc::new(groups) as ArrayRef)];
        columns.extend(["z0", "z1", "z2"].map(|name| (name, uniform(&mut random, DIM_ROWS))));
        let dim = RecordBatch::try_from_iter(columns).expect("columns of one length");
        Self { fact, dim: vec![dim] }
    }
}

fn uniform(random: &mut SmallRng, rows: usize) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values((0..rows).map(|_| random.random::<f64>() - 0.5)))
}

// ------------------------------------------------------------------------------------------- one

struct One(Connection);

impl One {
    fn new(tables: &Tables) -> Self {
        let connection = Database::memory().expect("a database in memory").connect();
        for (name, batches) in [("fact", &tables.fact), ("dim", &tables.dim)] {
            connection.register(name, batches.clone()).expect("batches of one schema");
        }
        let views = format!(
            "CREATE MATRIX VIEW d = ({JOIN});
             CREATE MATRIX VIEW x = d[:, 'x0':'z2'];
             CREATE MATRIX VIEW y = d[:, 'y'];"
        );
        connection.execute(&views).expect("views over the join");
        Self(connection)
    }

    fn coefficients(&self) -> Vec<f64> {
        let rows: Vec<(String, f64)> = self
            .0
            .query("SELECT * FROM MATRIX(solve(t(x) @ x, t(x) @ y)) AS w(term, value)")
            .and_then(|rows| rows.rows())
            .expect("a regression that has a solution");
        rows.into_iter().map(|(_, value)| value).collect()
    }
}

// ------------------------------------------------------------------------------------------ many

struct Many {
    runtime: tokio::runtime::Runtime,
    context: SessionContext,
}

impl Many {
    fn new(tables: &Tables) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("threads to run on");
        let context = SessionContext::new();
        for (name, batches) in [("fact", &tables.fact), ("dim", &tables.dim)] {
            let table = MemTable::try_new(batches[0].schema(), vec![batches.clone()]);
            context
                .register_table(name, Arc::new(table.expect("batches of one schema")))
                .expect("a new name");
        }
        Self { runtime, context }
    }

    fn coefficients(&self) -> Vec<f64> {
        let x: Vec<usize> = (0..FEATURES).collect();
        let batches = self.runtime.block_on(async {
            let gram = ProductExec::new(self.join().await?, x.clone(), x.clone());
            let cross = ProductExec::new(self.join().await?, x, vec![FEATURES]);
            let solve = SolveExec::new(Arc::new(gram), Arc::new(cross));
            collect(Arc::new(solve), self.context.task_ctx()).await
        });
        let batches = batches.expect("a regression that has a solution");
        column(&batches[0], 0).expect("a column of numbers").to_vec()
    }

    fn join_rows(&self) -> usize {
        self.runtime
            .block_on(async {
                let join = self.join().await?;
                let mut rows = partitions(&join, self.context.task_ctx(), |stream| async move {
                    stream.try_fold(0, |sum, batch| async move { Ok(sum + batch.num_rows()) }).await
                })?;
                let mut sum = 0;
                for rows in &mut rows {
                    sum += rows.await.expect("a task that does not panic")?;
                }
                Ok::<_, DataFusionError>(sum)
            })
            .expect("a join")
    }

    async fn join(&self) -> Result<Arc<dyn ExecutionPlan>> {
        self.context.sql(JOIN).await?.create_physical_plan().await
    }
}

/// One task for each partition of `input`.
fn partitions<T, F>(
    input: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    work: impl Fn(SendableRecordBatchStream) -> F,
) -> Result<Vec<SpawnedTask<Result<T>>>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    (0..input.output_partitioning().partition_count())
        .map(|partition| {
            Ok(SpawnedTask::spawn(work(input.execute(partition, Arc::clone(&context))?)))
        })
        .collect()
}

fn column(batch: &RecordBatch, index: usize) -> Result<&[f64]> {
    Ok(as_primitive_array::<Float64Type>(batch.column(index))?.values())
}

/// A plan of one partition that yields one batch, a matrix with a field for each of its columns.
fn matrix_properties(columns: usize) -> Arc<PlanProperties> {
    let fields: Vec<_> =
        (1..=columns).map(|j| Field::new(format!("c{j}"), DataType::Float64, false)).collect();
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::new(Schema::new(fields))),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

fn matrix_batch(schema: SchemaRef, matrix: &Mat<f64>) -> Result<RecordBatch> {
    let columns = (0..matrix.ncols()).map(|j| {
        Arc::new(Float64Array::from_iter_values(matrix.col(j).iter().copied())) as ArrayRef
    });
    Ok(RecordBatch::try_new(schema, columns.collect())?)
}

/// What both operators share: they have no expressions, and show their name.
macro_rules! plain_operator {
    ($operator:ident, $($child:ident),+) => {
        impl DisplayAs for $operator {
            fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(stringify!($operator))
            }
        }

        impl ExecutionPlan for $operator {
            fn name(&self) -> &str {
                stringify!($operator)
            }

            fn properties(&self) -> &Arc<PlanProperties> {
                &self.properties
            }

            fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
                vec![$(&self.$child),+]
            }

            fn apply_expressions(
                &self,
                _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
            ) -> Result<TreeNodeRecursion> {
                Ok(TreeNodeRecursion::Continue)
            }

            fn with_new_children(
                self: Arc<Self>,
                children: Vec<Arc<dyn ExecutionPlan>>,
            ) -> Result<Arc<dyn ExecutionPlan>> {
                let mut children = children.into_iter();
                $(let $child = children.next().expect("as many children as before");)+
                Ok(Arc::new(Self { $($child,)+ ..Self::clone(&self) }))
            }

            fn execute(
                &self,
                _partition: usize,
                context: Arc<TaskContext>,
            ) -> Result<SendableRecordBatchStream> {
                let matrix = self.clone().matrix(context);
                let schema = self.schema();
                let batch = {
                    let schema = Arc::clone(&schema);
                    async move { matrix_batch(schema, &matrix.await?) }
                };
                Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(batch).boxed())))
            }
        }
    };
}

/// `t(left) @ right` of two column sets of its input.
#[derive(Debug, Clone)]
struct ProductExec {
    input: Arc<dyn ExecutionPlan>,
    left: Vec<usize>,
    right: Vec<usize>,
    properties: Arc<PlanProperties>,
}

plain_operator!(ProductExec, input);

impl ProductExec {
    fn new(input: Arc<dyn ExecutionPlan>, left: Vec<usize>, right: Vec<usize>) -> Self {
        let properties = matrix_properties(right.len());
        Self { input, left, right, properties }
    }

    async fn matrix(self, context: Arc<TaskContext>) -> Result<Mat<f64>> {
        let (rows, columns) = (self.left.len(), self.right.len());
        let partial = |mut stream: SendableRecordBatchStream| {
            let (left, right) = (self.left.clone(), self.right.clone());
            async move {
                let mut sum = Mat::<f64>::zeros(rows, columns);
                while let Some(batch) = stream.try_next().await? {
                    add_product(&mut sum, &block(&batch, &left)?, &block(&batch, &right)?);
                }
                Ok(sum)
            }
        };
        let mut sum = Mat::zeros(rows, columns);
        for task in partitions(&self.input, context, partial)? {
            sum += task.await.map_err(|error| DataFusionError::External(Box::new(error)))??;
        }
        Ok(sum)
    }
}

/// The columns of a batch as a matrix: column after column, as they lie in the batch.
fn block(batch: &RecordBatch, columns: &[usize]) -> Result<Mat<f64>> {
    let mut block = Mat::zeros(batch.num_rows(), columns.len());
    for (j, &index) in columns.iter().enumerate() {
        for (cell, value) in block.col_mut(j).iter_mut().zip(column(batch, index)?) {
            *cell = *value;
        }
    }
    Ok(block)
}

fn add_product(sum: &mut Mat<f64>, left: &Mat<f64>, right: &Mat<f64>) {
    faer::linalg::matmul::matmul(sum, Accum::Add, left.transpose(), right, 1.0, Par::Seq);
}

/// `solve(a, b)` of its two inputs.
#[derive(Debug, Clone)]
struct SolveExec {
    a: Arc<dyn ExecutionPlan>,
    b: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

plain_operator!(SolveExec, a, b);

impl SolveExec {
    fn new(a: Arc<dyn ExecutionPlan>, b: Arc<dyn ExecutionPlan>) -> Self {
        let properties = matrix_properties(b.schema().fields().len());
        Self { a, b, properties }
    }

    async fn matrix(self, context: Arc<TaskContext>) -> Result<Mat<f64>> {
        let whole = |input: Arc<dyn ExecutionPlan>| {
            let context = Arc::clone(&context);
            async move {
                let batches = collect(input, context).await?;
                block(&batches[0], &(0..batches[0].num_columns()).collect::<Vec<_>>())
            }
        };
        let (a, b) = futures::try_join!(whole(self.a), whole(self.b))?;
        Ok(a.partial_piv_lu().solve(&b))
    }
}
