//! How many partitions a plan has: one where it takes less than to wake other threads, and never because of what is not known.

use relatrix::Connection;
use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;

use super::builder;

fn connect(partitions: &str) -> Connection {
    let builder = builder().threads(4).set("partitions", partitions).unwrap();
    let connection = builder.build().unwrap().connect();
    let make = "CREATE TABLE few AS SELECT value AS id, value % 10 AS k, 'n' || (value % 3) AS name FROM range(10000);
         CREATE TABLE many AS SELECT value AS id, value % 10 AS k, 'n' || (value % 3) AS name FROM range(1000000)";
    connection.execute(make).unwrap();
    connection
}

/// Whether a plan has one partition, and what EXPLAIN says of that.
fn partitions(connection: &Connection, query: &str) -> (bool, String) {
    let rows = connection.query(&format!("EXPLAIN {query}")).unwrap();
    let rows: Vec<(String, String)> = rows.rows().unwrap();
    let of = |kind: &str| rows.iter().find(|row| row.0 == kind).map(|row| row.1.as_str());
    let plan = of("physical_plan").unwrap();
    let is_dealt_out = [2, 3, 4].iter().any(|of| plan.contains(&format!("partitions={of}")));
    let is_dealt_out = is_dealt_out || plan.contains("RepartitionExec");
    let choices = of("choices").unwrap_or_default().lines().map(str::to_owned);
    let choice = choices.into_iter().find(|line| line.starts_with("partitions: "));
    (!is_dealt_out, choice.unwrap_or_default())
}

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    concat_batches(&schema, &rows.collect().unwrap()).unwrap()
}

/// Queries, and whether their plans have one partition by cost.
const QUERIES: [(&str, bool); 11] = [
    ("SELECT k, count(*), sum(id) FROM few GROUP BY k ORDER BY k", true),
    ("SELECT max(id) FROM few WHERE id % 7 > 3", true),
    (
        "SELECT a.k, count(*) FROM few a JOIN few b ON a.id = b.id WHERE b.id < 700 GROUP BY a.k ORDER BY 1",
        true,
    ),
    (
        "SELECT id FROM few WHERE k = (SELECT min(k) FROM few WHERE id > 5) ORDER BY id LIMIT 3",
        true,
    ),
    ("SELECT k, count(*), sum(id) FROM many GROUP BY k ORDER BY k", false),
    // Few are read, but there are many pairs of them.
    ("SELECT count(*) FROM few a JOIN few b ON a.k = b.k AND a.id < b.id", false),
    (
        "SELECT id FROM few WHERE k = (SELECT min(k) FROM many WHERE id > 5) ORDER BY id LIMIT 3",
        false,
    ),
    // Who knows what a function takes?
    ("SELECT count(*) FROM few WHERE regexp_like(name, '(1|2)$')", false),
    ("SELECT k, median(id) FROM few GROUP BY k ORDER BY k", false),
    // And what becomes of lists, and of matrices?
    ("SELECT sum(u) FROM (SELECT unnest([id, k]) AS u FROM few)", false),
    ("SELECT sum(value) FROM few, MATRIX(eye(3)) AS m(i, value) WHERE few.id = i", false),
];

#[test]
fn few_rows_are_the_work_of_one_thread() {
    let (by_cost, by_threads) = (connect("cost"), connect("threads"));
    for (query, expected) in QUERIES {
        let (is_one, choice) = partitions(&by_cost, query);
        assert_eq!(is_one, expected, "{query}: {choice}");
        assert_eq!(choice.starts_with("partitions: one in all "), expected, "{query}: {choice}");
        assert_eq!(partitions(&by_threads, query), (false, String::new()), "{query}");
        assert_eq!(answer(&by_cost, query), answer(&by_threads, query), "{query}");
    }
}

#[test]
fn one_small_file_is_the_work_of_one_thread_and_others_are_not_looked_at() {
    let connection = connect("cost");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    for (rows, name) in [("few", "few.parquet"), ("many", "many.parquet"), ("few", "few.csv")] {
        connection.execute(&format!("COPY {rows} TO '{}'", file(name))).unwrap();
    }
    let choice =
        |name: &str| partitions(&connection, &format!("SELECT max(k) FROM '{}'", file(name))).1;
    assert!(choice("few.parquet").starts_with("partitions: one in all "));
    for name in ["many.parquet", "f*.parquet", "few.csv"] {
        assert_eq!(choice(name), "", "{name}");
    }
}

#[test]
fn a_plan_that_is_known_is_for_as_many_rows_as_there_are() {
    let connection = connect("cost");
    connection
        .execute("SET result_cache = off; PREPARE p AS SELECT sum(id) FROM few WHERE id > $1")
        .unwrap();
    let run = |value: i64| answer(&connection, &format!("EXECUTE p({value})"));
    let sums: Vec<_> = (0..4).map(|_| run(9997)).collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    let few = "SELECT sum(id) FROM few WHERE id > 9997";
    assert!(partitions(&connection, few).0);
    connection.execute("INSERT INTO few SELECT id + 10000, k, name FROM many").unwrap();
    assert!(!partitions(&connection, few).0);
    let all = "SELECT sum(id) FROM few WHERE id > 1009997";
    assert_eq!(run(1_009_997), answer(&connection, all));
}
