//! Estimates of joins and filters against what they yield: over tables like those of TPC-H and skewed ones, over TPC-H and its
//! 22 queries at a hundredth of its scale, and over the data that is shipped with examples.
//!
//! The ratio of the two, whichever is larger, is their q-error: Moerkotte, Neumann and Steidl, *Preventing Bad Plans by
//! Bounding the Impact of Cardinality Estimation Errors*, VLDB 2009. `q_errors.txt` holds the largest of each query, over
//! files before they are analyzed and after, and over tables in memory, and may only get better.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{
    ColumnarValue, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Volatility, create_udf, lit,
};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

use crate::config::Settings;
use crate::exec::kernels::distinct::mixed;
use crate::memory::Kept;
use crate::planner::calibration::Calibration;
use crate::planner::evidence::Evidence;
use crate::planner::relational;
use crate::planner::statistics::{ASKED_KEYS, Analysis, Estimates, Statistics};
use crate::storage::{Batch, MemoryTable, Snapshot, TableDefinition};

/// Tables by name; multiplied by a prime, a row's number is as good as random.
const TABLES: [(&str, &str); 8] = [
    ("nation", "SELECT value AS nation, value % 5 AS region FROM range(25) AS t(value)"),
    (
        "supplier",
        "SELECT value AS supplier, value * 7919 % 25 AS nation FROM range(400) AS t(value)",
    ),
    (
        "customer",
        "SELECT value AS customer, value * 104729 % 25 AS nation, value * 31 % 5 AS segment \
         FROM range(6000) AS t(value)",
    ),
    (
        "part",
        "SELECT value AS part, value * 15485863 % 150 AS kind, value % 50 AS size \
         FROM range(8000) AS t(value)",
    ),
    (
        "orders",
        "SELECT value * 4 AS \"order\", value * 15485863 % 6000 AS customer, \
         date '1992-01-01' + CAST(value * 7919 % 2400 AS INTEGER) AS day FROM range(60000) AS t(value)",
    ),
    (
        "item",
        "SELECT value / 4 * 4 AS \"order\", value * 104729 % 8000 AS part, \
         (value * 104729 % 8000 + value % 4 * 100) % 400 AS supplier, \
         date '1992-01-05' + CAST(value / 4 * 7919 % 2400 AS INTEGER) AS shipped \
         FROM range(240000) AS t(value)",
    ),
    // The lower a page, the more often it is visited; prices are as many in each power of ten.
    (
        "visit",
        "SELECT CAST(floor(power(value * 7919 % 60000 / 60000.0, 3) * 500) AS BIGINT) AS page, \
         CAST(power(10, value * 104729 % 60000 / 15000.0) AS BIGINT) AS price, \
         CASE WHEN value % 50 < 40 THEN 'view' WHEN value % 50 < 44 THEN 'buy' \
         WHEN value % 50 < 45 THEN 'return' END AS kind FROM range(60000) AS t(value)",
    ),
    (
        "click",
        "SELECT CAST(floor(power(value * 104729 % 20000 / 20000.0, 4) * 500) AS BIGINT) AS page \
         FROM range(20000) AS t(value)",
    ),
];

/// Over skewed columns.
const SKEWED: [(&str, &str); 14] = [
    ("a common value", "visit WHERE page = 0"),
    ("a rare value", "visit WHERE page = 451"),
    ("all but a common value", "visit WHERE page <> 0 AND kind <> 'view'"),
    ("a common text", "visit WHERE kind = 'view'"),
    ("a list", "visit WHERE page IN (0, 1, 2, 400)"),
    ("below", "visit WHERE price < 100"),
    ("between", "visit WHERE price BETWEEN 200 AND 1000"),
    ("not between", "visit WHERE price NOT BETWEEN 10 AND 5000"),
    ("common keys", "visit, click WHERE visit.page = click.page"),
    ("one key", "visit, click WHERE visit.page = click.page AND visit.page = 2"),
    ("a pattern", "visit WHERE kind LIKE '%u%'"),
    ("a remainder", "visit WHERE price % 10 < 2"),
    ("a part of a text", "visit WHERE substr(kind, 1, 1) IN ('v', 'w')"),
    ("no row", "visit WHERE kind LIKE 'x%'"),
];

/// The data that is shipped with examples.
const EXAMPLES: [&str; 6] =
    ["airlines", "dependencies", "digits", "flights", "packages", "weather"];

const QUERIES: [(&str, &str); 7] = [
    ("two keys", "item, orders WHERE item.\"order\" = orders.\"order\""),
    (
        "a range",
        "item, orders, customer WHERE item.\"order\" = orders.\"order\" \
         AND orders.customer = customer.customer AND segment = 3 AND day < date '1995-03-15'",
    ),
    (
        "a chain",
        "nation, customer, orders, item WHERE nation.nation = customer.nation AND region = 2 \
         AND customer.customer = orders.customer AND orders.\"order\" = item.\"order\"",
    ),
    (
        "a cycle",
        "nation, customer, orders, item, supplier WHERE nation.nation = customer.nation \
         AND region = 2 AND customer.customer = orders.customer AND orders.\"order\" = item.\"order\" \
         AND item.supplier = supplier.supplier AND supplier.nation = customer.nation",
    ),
    (
        "a star",
        "item, part, supplier, orders WHERE item.part = part.part AND item.supplier = supplier.supplier \
         AND item.\"order\" = orders.\"order\" AND kind = 7 AND day BETWEEN date '1995-01-01' AND date '1996-12-31'",
    ),
    (
        "a semi join",
        "orders, customer WHERE orders.customer = customer.customer AND EXISTS \
         (SELECT 1 FROM item, part WHERE item.\"order\" = orders.\"order\" AND item.part = part.part AND size < 5)",
    ),
    (
        "groups",
        "part, item, (SELECT part AS p, count(*) AS n FROM item GROUP BY part) AS sums \
         WHERE part.part = item.part AND p = part.part AND kind = 9",
    ),
];

/// Tables, and queries over them.
struct DataSet {
    /// By their names: queries that make them, and files that have them already.
    made: Vec<(&'static str, &'static str)>,
    shipped: &'static [&'static str],
    queries: Vec<(&'static str, String)>,
    /// Whether filters are of interest, and not only joins.
    filters: bool,
}

/// The statements of a text by their names.
fn named(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split("-- name: ").skip(1).map(|part| {
        let (name, statement) = part.split_once('\n').unwrap();
        (name, statement.trim_end().trim_end_matches(';'))
    })
}

fn data_sets() -> [DataSet; 4] {
    let counted = |queries: &[(&'static str, &str)]| {
        queries.iter().map(|(name, from)| (*name, format!("SELECT 1 FROM {from}"))).collect()
    };
    let written = |queries| named(queries).map(|(name, query)| (name, query.to_owned())).collect();
    let (made, shipped, filters) = (TABLES.to_vec(), &[][..], true);
    let (examples, tpch) =
        (include_str!("q_errors/examples.sql"), include_str!("q_errors/tpch.sql"));
    let tpch_tables = named(include_str!("q_errors/tpch_tables.sql")).collect();
    [
        DataSet { made: made.clone(), shipped, queries: counted(&QUERIES), filters: false },
        DataSet { made, shipped, queries: counted(&SKEWED), filters },
        DataSet { made: tpch_tables, shipped, queries: written(tpch), filters },
        DataSet { made: Vec::new(), shipped: &EXAMPLES, queries: written(examples), filters },
    ]
}

/// A number below a third one that is as good as random, for a row and the number of a column.
fn draw() -> ScalarUDF {
    let of = DataType::Int64;
    let draw = |arguments: &[ColumnarValue]| {
        let arguments = ColumnarValue::values_to_arrays(arguments)?;
        let [rows, column, below] = [0, 1, 2].map(|at| arguments[at].as_primitive::<Int64Type>());
        let drawn = (0..rows.len()).map(|row| {
            let seed = mixed(rows.value(row) as u64 ^ mixed(column.value(row) as u64));
            (seed % below.value(row) as u64) as i64
        });
        let drawn: ArrayRef = Arc::new(Int64Array::from_iter_values(drawn));
        Ok(ColumnarValue::Array(drawn))
    };
    create_udf("draw", vec![of.clone(); 3], of, Volatility::Immutable, Arc::new(draw))
}

fn context() -> (SessionContext, Arc<Statistics>) {
    // One thread: files whose rows come in one order.
    let settings = Settings { threads: 1, measured_costs: false, ..Settings::default() };
    let mut config = SessionConfig::new();
    settings.apply(config.options_mut());
    let plain = SessionContext::new();
    let footers = plain.runtime_env().cache_manager.get_file_metadata_cache();
    let statistics = Arc::new(Statistics::new(footers));
    let evidence = Evidence::new(&statistics, &Arc::new(Calibration::of_user()));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_optimizer_rules(relational::optimizer_rules(&evidence))
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_udf(draw());
    (context, statistics)
}

/// Has the tables of a data set read from files, some of which are made in a folder.
async fn register(context: &SessionContext, of: &DataSet, folder: &Path) {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data");
    let mut files: Vec<_> = of.shipped.iter().map(|table| (*table, Path::new(examples))).collect();
    for (table, query) in &of.made {
        let path = folder.join(table).with_extension("parquet");
        let copy = format!("COPY ({query}) TO '{}' STORED AS PARQUET", path.display());
        context.sql(&copy).await.unwrap().collect().await.unwrap();
        files.push((table, folder));
    }
    for (table, folder) in files {
        let path = folder.join(table).with_extension("parquet");
        let options = ParquetReadOptions::default();
        context.register_parquet(table, path.to_str().unwrap(), options).await.unwrap();
    }
}

/// The same tables in memory.
async fn in_memory(files: &SessionContext) -> (SessionContext, Arc<Statistics>) {
    let (context, statistics) = context();
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    for table in tables(files) {
        let rows = files.table(&table).await.unwrap();
        let schema = rows.schema().as_arrow().clone();
        let (rows, kept) = (rows.collect().await.unwrap(), Kept::new("rows", &pool));
        let rows = rows.iter().map(|rows| Batch::new(rows).unwrap()).collect();
        let rows = MemoryTable::new(&schema, TableDefinition::default(), rows, kept).unwrap();
        context.register_table(&table, Arc::new(Snapshot::new(Arc::new(rows)))).unwrap();
    }
    (context, statistics)
}

fn tables(context: &SessionContext) -> Vec<String> {
    let catalog = context.catalog("datafusion").unwrap();
    catalog.schema("public").unwrap().table_names()
}

async fn row_count(context: &SessionContext, plan: &LogicalPlan) -> f64 {
    let counted = LogicalPlanBuilder::from(plan.clone());
    let counted = counted.aggregate(Vec::<datafusion::prelude::Expr>::new(), [count(lit(1))]);
    let plan = counted.unwrap().build().unwrap();
    let rows = context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
    rows[0].column(0).as_primitive::<Int64Type>().value(0) as f64
}

/// Whether a join keeps what one above asks for, which is where that is counted.
fn is_restriction(join: &LogicalPlan) -> bool {
    join.inputs().iter().any(|side| match side {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(ASKED_KEYS),
        _ => false,
    })
}

/// Reads all rows of all tables.
async fn analyze(context: &SessionContext, statistics: &Statistics) {
    for table in tables(context) {
        let provider = context.table_provider(&table).await.unwrap();
        let mut analysis = Analysis::of(provider.as_ref()).unwrap();
        for batch in context.table(&table).await.unwrap().collect().await.unwrap() {
            analysis.look(&batch);
        }
        statistics.keep(analysis);
    }
}

/// The largest q-error of the joins of a query, and of its filters if these are of interest.
async fn q_error(
    context: &SessionContext,
    statistics: &Statistics,
    query: &str,
    filters: bool,
) -> f64 {
    let estimates = Estimates::new(statistics);
    let plan = context.sql(query).await.unwrap();
    let plan = context.state().optimize(plan.logical_plan()).unwrap();
    let mut nodes = Vec::new();
    plan.apply(|plan| {
        let is_of_interest = match plan {
            LogicalPlan::Join(_) => !is_restriction(plan),
            LogicalPlan::Filter(_) => filters,
            _ => false,
        };
        nodes.extend(is_of_interest.then(|| plan.clone()));
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    assert!(!nodes.is_empty(), "{query}");
    let mut largest = 1.0_f64;
    for node in &nodes {
        let (estimated, actual) = (estimates.rows(node), row_count(context, node).await.max(1.0));
        largest = largest.max(estimated / actual).max(actual / estimated);
    }
    largest
}

/// A line for each query: over files before they are analyzed, after that, and over tables in memory.
async fn report() -> String {
    let mut report = String::new();
    for data in data_sets() {
        let folder = tempfile::tempdir().unwrap();
        let (files, of_files) = context();
        register(&files, &data, folder.path()).await;
        let (memory, of_memory) = in_memory(&files).await;
        for (suffix, context, statistics) in [
            ("", &files, &of_files),
            (", analyzed", &files, &of_files),
            (", in memory", &memory, &of_memory),
        ] {
            if suffix == ", analyzed" {
                analyze(context, statistics).await;
            }
            for (name, query) in &data.queries {
                let error = q_error(context, statistics, query, data.filters).await;
                report += &format!("{name}{suffix}: {error:.2}\n");
            }
        }
    }
    report
}

#[test]
fn estimates_are_no_worse_than_they_were() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let report = runtime.block_on(report());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/planner/joins/q_errors.txt");
    let reached = std::fs::read_to_string(path).unwrap();
    assert_eq!(report.lines().count(), reached.lines().count(), "{report}");
    for (now, before) in report.lines().zip(reached.lines()) {
        let (name, error) = now.split_once(": ").unwrap();
        let (before_name, before) = before.split_once(": ").unwrap();
        assert_eq!(name, before_name);
        let (error, before): (f64, f64) = (error.parse().unwrap(), before.parse().unwrap());
        assert!(error <= before, "{name}: {error}, which was {before}: {report}");
    }
}
