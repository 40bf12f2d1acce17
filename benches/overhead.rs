//! What a statement costs that has next to nothing to compute: names, plans and operators, through the library.

use divan::Bencher;
use relatrix::{Connection, Database};

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
