//! What a statement costs that has next to nothing to compute: names, plans and operators, through the library.

use std::sync::Arc;

use divan::Bencher;
use relatrix::datafusion::catalog::MemTable;
use relatrix::datafusion::common::ScalarValue;
use relatrix::datafusion::prelude::{SessionConfig, SessionContext};
use relatrix::{Connection, Database, params};

fn main() {
    divan::main();
}

/// A database with a 1x1 matrix.
fn connection() -> Connection {
    let connection = Database::memory().expect("threads are to be had").connect();
    connection.execute("CREATE MATRIX v AS VALUES (0.5)").expect("it is a matrix");
    connection
}

/// The expression's value as a matrix.
#[divan::bench(args = ["v", "2 + v * 3", "inv(v) @ (v + 1) - exp(v)"])]
fn matrix(bencher: Bencher<'_, '_>, expression: &str) {
    let connection = connection();
    bencher.bench(|| connection.matrix(expression).expect("it is computed"));
}

/// A statement and its rows.
#[divan::bench(args = [
    "SELECT 1",
    "SELECT (MATRIX(2 + v * 3))",
    "SELECT * FROM MATRIX(2 + v * 3)",
    "CREATE OR REPLACE MATRIX r = 2 + v * 3",
])]
fn statement(bencher: Bencher<'_, '_>, statement: &str) {
    let connection = connection();
    let run = || connection.execute(statement).expect("it runs");
    bencher.bench(run);
}

/// The same small query, remembered and not, and one whose answer takes 5 ms to compute.
#[divan::bench(args = [
    ("on", "SELECT 1"),
    ("off", "SELECT 1"),
    ("on", "SELECT max(value % 7) FROM range(1000000)"),
    ("off", "SELECT max(value % 7) FROM range(1000000)"),
])]
fn result_cache(bencher: Bencher<'_, '_>, (mode, query): (&str, &str)) {
    let connection = connection();
    connection.execute(&format!("SET result_cache = '{mode}'")).expect("it is a mode");
    bencher.bench(|| connection.query(query).and_then(|rows| rows.collect()).expect("it runs"));
}

/// `sum` of a nest of products, sums and scales, fifty operations deep; and of a product of 25 factors.
fn nested() -> String {
    let names = ["a", "b", "c"];
    let step = |nest: String, at: usize| {
        let (name, next) = (names[at % 3], names[(at + 1) % 3]);
        format!("(({nest} + {name}) @ t({next}) * 2)")
    };
    format!("sum({})", (0..12).fold("a".to_owned(), step))
}

fn product() -> String {
    format!("sum({})", ["a @ b @ c @ a @ t(b)"; 5].join(" @ "))
}

/// What a long expression over small matrices takes, nearly all of it to plan: with algebra, and as it is written.
#[divan::bench(args = [("nested", "on"), ("nested", "off"), ("product", "on"), ("product", "off")])]
fn planning(bencher: Bencher<'_, '_>, (expression, rewrites): (&str, &str)) {
    let connection = connection();
    for name in ["a", "b", "c"] {
        let matrix = format!("CREATE MATRIX {name} = rand(60, 60)");
        connection.execute(&matrix).expect("it is a matrix");
    }
    connection.execute("SET result_cache = 'off'").expect("it is a mode");
    connection.execute(&format!("SET rewrites = {rewrites}")).expect("it is a mode");
    let expression = if expression == "nested" { nested() } else { product() };
    bencher.bench(|| connection.matrix(&expression).expect("it is computed"));
}

/// The table of the point queries: a million rows.
const POINTS: &str =
    "SELECT value AS id, value * 7 % 1000 AS a, value * 0.5 AS x FROM range(1000000)";

/// One row of them, by a number that is another one each time, and through DataFusion alone with a plan that is prepared.
#[divan::bench]
fn point(bencher: Bencher<'_, '_>) {
    let connection = connection();
    connection.execute(&format!("CREATE TABLE points AS {POINTS}")).expect("it is a table");
    let mut id = 0_i64;
    bencher.bench_local(|| {
        id = (id + 104_729) % 1_000_000;
        let rows = connection.query_with("SELECT id, a, x FROM points WHERE id = $1", params![id]);
        let batches = rows.and_then(|rows| rows.collect()).expect("it runs");
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    });
}

#[divan::bench]
fn point_in_datafusion(bencher: Bencher<'_, '_>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.expect("threads are to be had");
    let rows = connection().query(POINTS).and_then(|rows| rows.collect()).expect("it runs");
    let table = MemTable::try_new(rows[0].schema(), vec![rows]).expect("they have one schema");
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    context.register_table("points", Arc::new(table)).expect("it is new");
    let query = context.sql("SELECT id, a, x FROM points WHERE id = $1");
    let query = runtime.block_on(query).expect("it is a query");
    let mut id = 0_i64;
    bencher.bench_local(|| {
        id = (id + 104_729) % 1_000_000;
        let query = query.clone().with_param_values(vec![ScalarValue::from(id)]);
        let rows = runtime.block_on(query.expect("it has one parameter").collect());
        assert_eq!(rows.expect("it runs").iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    });
}
