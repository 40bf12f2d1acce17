//! A dashboard: 1,000 queries over 60 templates, some of them asked far more often than others, while rows come in.
//!
//! Every query is asked of two databases with the same rows, one that remembers and one that does not; all answers are
//! compared. Printed are how often what was remembered answered, and the time of both.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Zipf};
use relatrix::arrow::compute::concat_batches;
use relatrix::arrow::record_batch::RecordBatch;
use relatrix::{Connection, Database, Parameters, params};

const QUERIES: usize = 1_000;
const QUERIES_BETWEEN_INSERTS: usize = 50;
const SALES: i64 = 1_000_000;

/// What is asked of the sales by each of the dimensions. `$1` is one of a few values that people choose from.
const SHAPES: [&str; 12] = [
    "SELECT {by}, count(*) AS n, sum(amount) AS total FROM sales GROUP BY {by} ORDER BY {by}",
    "SELECT {by}, sum(amount) AS total FROM sales WHERE region = $1 GROUP BY {by} ORDER BY total DESC, {by} LIMIT 10",
    "SELECT CAST(day / 30 AS BIGINT) AS month, {by}, sum(quantity) AS pieces FROM sales WHERE region = $1 GROUP BY month, {by} ORDER BY month, {by}",
    "SELECT {by}, avg(quantity) AS mean, max(amount) AS most FROM sales WHERE day >= 300 + $1 GROUP BY {by} ORDER BY {by}",
    "SELECT {by}, sum(amount * quantity) AS value FROM sales WHERE quantity > $1 GROUP BY {by} HAVING sum(quantity) > 100 ORDER BY {by}",
    "SELECT kind, {by}, sum(amount) AS total FROM sales JOIN products USING (product) WHERE region = $1 GROUP BY kind, {by} ORDER BY kind, {by}",
    "SELECT {by}, min(day) AS first, max(day) AS last FROM sales GROUP BY {by} ORDER BY {by}",
    "SELECT count(*) AS n, sum(amount) AS total, avg(quantity) AS mean FROM sales WHERE {by} = $1",
    "SELECT {by}, count(*) FILTER (WHERE quantity > 5) AS large, count(*) AS n FROM sales WHERE day >= 330 + $1 GROUP BY {by} ORDER BY {by}",
    "SELECT {by}, sum(total) OVER (ORDER BY {by}) AS so_far FROM (SELECT {by}, sum(amount) AS total FROM sales WHERE day > 10 * $1 GROUP BY {by}) ORDER BY {by}",
    "SELECT {by}, count(DISTINCT customer) AS customers FROM sales WHERE region = $1 GROUP BY {by} ORDER BY {by}",
    "SELECT id, {by}, amount FROM sales WHERE {by} = $1 ORDER BY id DESC LIMIT 20",
];
const DIMENSIONS: [&str; 5] = ["region", "channel", "product", "store", "day"];

/// How many values of a parameter are chosen from.
const VALUES: usize = 3;

fn connect(mode: &str) -> Connection {
    let builder = Database::builder().threads(2).set("result_cache", mode).expect("it is a mode");
    let builder = builder.set("result_cache_after_ms", "0").expect("it is a number");
    let connection = builder.build().expect("threads are to be had").connect();
    connection.execute(&insertion("CREATE TABLE sales AS", 0, SALES)).expect("it is a table");
    let products = "CREATE TABLE products AS SELECT value AS product, 'kind ' || (value % 12) AS kind FROM range(200)";
    connection.execute(products).expect("it is a table");
    connection
}

/// Sales from one number to another, the same each time.
fn insertion(into: &str, first: i64, end: i64) -> String {
    format!(
        "{into} SELECT value AS id, value * 7919 % 8 AS region, value * 31 % 5 AS channel, value * 104729 % 200 AS product,
           value * 17 % 64 AS store, value * 13 % 365 AS day, value * 1299709 % 50000 AS customer,
           CAST(value * 7 % 100000 AS DECIMAL(10, 2)) AS amount, 1 + value * 3 % 9 AS quantity
         FROM range({first}, {end})"
    )
}

/// The rows of a query and what they took.
fn asked(connection: &Connection, query: &str, parameters: Parameters) -> (RecordBatch, Duration) {
    let began = Instant::now();
    let rows = connection.query_with(query, parameters).expect("it is a query");
    let schema = rows.schema();
    let batches = rows.collect().expect("it runs");
    let taken = began.elapsed();
    (concat_batches(&schema, &batches).expect("they have one schema"), taken)
}

/// A figure of SHOW MEMORY.
fn figure(connection: &Connection, name: &str) -> u64 {
    let rows = connection.query("SHOW MEMORY").expect("it is shown");
    let rows =
        rows.rows::<(String, Option<String>, String, String)>().expect("it has four columns");
    let value = rows.into_iter().find_map(|(found, value, ..)| (found == name).then_some(value));
    value.flatten().and_then(|value| value.parse().ok()).expect("it is a figure")
}

fn main() {
    let mut templates: Vec<String> =
        SHAPES.iter().flat_map(|shape| DIMENSIONS.map(|by| shape.replace("{by}", by))).collect();
    let mut random = SmallRng::seed_from_u64(1);
    templates.shuffle(&mut random);
    let law = |count: usize| Zipf::new(count as f64, 1.0).expect("there are some");
    let (which, values) = (law(templates.len()), law(VALUES));

    let [remembers, computes] = ["on", "off"].map(connect);
    let (mut sales, mut stale) = (SALES, 0);
    let mut seconds = [Duration::ZERO; 2];
    let mut known = HashSet::new();
    for number in 0..QUERIES {
        if number > 0 && number % QUERIES_BETWEEN_INSERTS == 0 {
            let more = insertion("INSERT INTO sales", sales, sales + 1_000);
            for connection in [&remembers, &computes] {
                connection.execute(&more).expect("rows are added");
            }
            sales += 1_000;
        }
        let query = &templates[which.sample(&mut random) as usize - 1];
        let value = values.sample(&mut random) as i64;
        known.insert((query, query.contains('$').then_some(value)));
        let ask = |connection| match query.contains('$') {
            true => asked(connection, query, params![value]),
            false => asked(connection, query, Parameters::new()),
        };
        let (found, expected) = (ask(&remembers), ask(&computes));
        stale += usize::from(found.0 != expected.0);
        seconds[0] += found.1;
        seconds[1] += expected.1;
    }
    let (hits, reused) = (figure(&remembers, "cache_hits"), figure(&remembers, "cache_reused"));
    let [with, without] = seconds.map(|taken| taken.as_secs_f64());
    println!("queries                     {QUERIES}");
    println!("answers remembered          {hits}");
    println!("made of remembered groups   {reused}");
    println!(
        "together                    {:.1} %",
        100.0 * (hits + reused) as f64 / QUERIES as f64
    );
    println!("asked for the first time    {}", known.len());
    println!("stale                       {stale}");
    println!("seconds, and without        {with:.2}, {without:.2} ({:.2})", with / without);
    assert_eq!(stale, 0, "an answer was not that of the rows there are");
}
