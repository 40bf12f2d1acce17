//! Loads that share the cores: how long each statement of a database takes while others run beside it.
//!
//! Rows are work of DataFusion's threads and cells of our own, so what the system makes of both at once shows here, and
//! only here: alone, each of the statements has the machine for itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use relatrix::Database;

const THREADS: usize = 2;

/// How long each load goes on.
const LOAD: Duration = Duration::from_secs(3);

/// What is asked, and what it is called here. `{file}` is a file of five million rows, `x` a matrix of 600 a side, `v` one cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Statement {
    name: &'static str,
    text: &'static str,
}

const POINT: Statement = Statement { name: "point", text: "SELECT 1 + 1" };
const CELL: Statement = Statement { name: "cell", text: "SELECT (MATRIX(2 + v * 3))" };
const GROUPS: Statement = Statement {
    name: "groups",
    text: "SELECT sum(n) FROM (SELECT value % 1000 AS k, count(*) AS n FROM range(1000000) GROUP BY k)",
};
const SCAN: Statement = Statement {
    name: "scan",
    text: "SELECT k, sum(x), max(y) FROM '{file}' GROUP BY k ORDER BY k LIMIT 3",
};
const PRODUCT: Statement =
    Statement { name: "product", text: "SELECT (MATRIX(sum(x @ t(x) @ x)))" };
const SVD: Statement = Statement { name: "svd", text: "SELECT (MATRIX(sum(svd(x).s)))" };
const GRAM: Statement = Statement {
    name: "gram",
    text: "SELECT (MATRIX(sum(t((SELECT x, y, k, id FROM '{file}')) @ (SELECT x, y, k, id FROM '{file}'))))",
};

/// Milliseconds that each run of the statements of a load took, in order; each statement is repeated by a connection of its
/// own until the load ends.
fn times(database: &Database, load: &[Statement], file: &str) -> BTreeMap<Statement, Vec<f64>> {
    let end = Instant::now() + LOAD;
    let repeated = |statement: &Statement| {
        let connection = database.connect();
        connection.execute("SET result_cache = off").expect("it is a setting");
        let text = statement.text.replace("{file}", file);
        let mut times = Vec::new();
        while Instant::now() < end {
            let began = Instant::now();
            connection.query(&text).and_then(|rows| rows.collect()).expect("it runs");
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times
    };
    let mut times: BTreeMap<Statement, Vec<f64>> = BTreeMap::new();
    std::thread::scope(|threads| {
        let spawned =
            load.iter().map(|statement| (statement, threads.spawn(|| repeated(statement))));
        for (statement, thread) in spawned.collect::<Vec<_>>() {
            times.entry(*statement).or_default().extend(thread.join().expect("it does not panic"));
        }
    });
    times.values_mut().for_each(|times| times.sort_by(f64::total_cmp));
    times
}

fn main() {
    let folder = tempfile::tempdir().expect("there is a folder for what passes");
    let file = folder.path().join("rows.parquet").display().to_string();
    let database = Database::builder().threads(THREADS).build().expect("threads are to be had");
    let setup = format!(
        "CREATE MATRIX x = rand(600, 600);
         CREATE MATRIX v = rand(1, 1);
         COPY (SELECT value AS id, value % 1000 AS k, value * 0.5 AS x, value % 7 AS y FROM range(5000000)) TO '{file}'"
    );
    database.connect().execute(&setup).expect("it runs");

    println!("{:<32} {:<8} {:>6} {:>10} {:>10}", "load", "of it", "runs", "median ms", "95 % ms");
    let loads: [&[Statement]; 13] = [
        &[GROUPS],
        &[SCAN],
        &[PRODUCT],
        &[SVD],
        &[GRAM],
        &[PRODUCT, GROUPS].repeat(4),
        &[SCAN, PRODUCT].repeat(4),
        &[SVD, SCAN],
        &[SVD, GROUPS],
        &[SVD, GRAM],
        &[SVD, POINT],
        &[SCAN, CELL],
        &[GRAM, GRAM],
    ];
    for load in loads {
        let title = load.iter().map(|statement| statement.name).collect::<Vec<_>>().join(" ");
        for (Statement { name, .. }, times) in times(&database, load, &file) {
            let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
            let (runs, median, most) = (times.len(), at(0.5), at(0.95));
            println!("{title:<32.32} {name:<8} {runs:>6} {median:>10.2} {most:>10.2}");
        }
    }
}
