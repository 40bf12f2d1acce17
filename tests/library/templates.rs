//! Queries that are asked again are not planned again, and answer as if they were.

use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;
use relatrix::{Connection, Database};

use super::{builder, figure, number};

/// Rows of a table and of files, with keys that join them.
const MAKE: &str = "CREATE TABLE t AS SELECT value AS id, value % 97 AS k, 'n' || (value % 7) AS name,
       CAST(value / 4.0 AS DECIMAL(10, 2)) AS price, CASE WHEN value % 5 > 0 THEN value * 0.5 END AS half FROM range(20000);
     CREATE TABLE names AS SELECT 'n' || value AS name, value AS number FROM range(7);
     CREATE VIEW v AS SELECT id, half FROM t WHERE k < 50";

/// Each over `t` and `names`, which are tables in memory or files.
const QUERIES: [&str; 26] = [
    "SELECT * FROM t WHERE id = 17",
    "SELECT count(*), sum(price), min(half), max(id) FROM t WHERE id > 300",
    "SELECT max(id) FROM t",
    "SELECT max(id) FROM t WHERE k < 50",
    "SELECT min(half) FROM t WHERE name <> 'n1'",
    "SELECT name, count(*), sum(price) FROM t GROUP BY name ORDER BY name",
    "SELECT number, sum(t.price) FROM t JOIN names USING (name) WHERE number < 5 GROUP BY number ORDER BY number",
    "SELECT id, number FROM t LEFT JOIN names ON t.name = names.name AND number > 3 ORDER BY half DESC, id LIMIT 7",
    "SELECT id, half FROM t ORDER BY half DESC NULLS LAST, id LIMIT 10",
    "SELECT id, k FROM t WHERE name = 'n3' ORDER BY k, id LIMIT 5",
    "SELECT count(*) FROM t WHERE price > (SELECT avg(price) FROM t WHERE k = 5)",
    "SELECT id FROM t WHERE half > (SELECT avg(half) FROM t AS u WHERE u.name = t.name) ORDER BY id LIMIT 4",
    "SELECT count(*) FROM t WHERE name IN (SELECT name FROM names WHERE number > 4)",
    "SELECT count(*) FROM t WHERE NOT EXISTS (SELECT * FROM names WHERE names.name = t.name AND number = 2)",
    "SELECT name, id FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY half DESC, id) AS place FROM t) WHERE place <= 2 ORDER BY name, place",
    "SELECT id, sum(price) OVER (PARTITION BY k ORDER BY id) AS so_far FROM t WHERE k = 3 ORDER BY id LIMIT 6",
    "WITH sums AS (SELECT k, sum(price) AS s FROM t GROUP BY k) SELECT k, s FROM sums WHERE s = (SELECT max(s) FROM sums)",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.k = b.id WHERE a.id < b.price",
    "SELECT count(*) FROM names AS a, names AS b WHERE a.number < b.number",
    "SELECT DISTINCT k FROM t WHERE id < 400 ORDER BY k DESC LIMIT 3",
    "SELECT id FROM t WHERE id < 3 UNION ALL SELECT number FROM names ORDER BY 1",
    "SELECT name, k, count(DISTINCT id), median(half) FROM t WHERE k < 3 GROUP BY ROLLUP (name, k) ORDER BY 1, 2, 3",
    // A product of matrices, and what would be one if keys repeated.
    "SELECT a.name, b.name, sum(a.id * b.id) FROM t AS a JOIN t AS b ON a.k = b.k GROUP BY a.name, b.name ORDER BY 1, 2",
    "SELECT n.name, count(*), sum(t.id) FROM t, names AS n, names AS m WHERE t.k % 7 = n.number AND t.name = m.name GROUP BY n.name ORDER BY 1",
    "SELECT count(*) FROM v",
    "SELECT 1 AS one",
];

fn database() -> Database {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let database = builder.build().unwrap();
    database.connect().execute(MAKE).unwrap();
    database
}

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    let batches = rows.collect().unwrap_or_else(|error| panic!("{query}: {error}"));
    concat_batches(&schema, &batches).unwrap()
}

/// Waits until nobody could take files that were just written for later ones.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

/// `t` and `names` as files of a folder, in the place of the tables.
fn to_files(connection: &Connection, folder: &std::path::Path) {
    for name in ["t", "names"] {
        let path = folder.join(format!("{name}.parquet"));
        let path = path.display();
        connection.execute(&format!("COPY {name} TO '{path}'")).unwrap();
    }
    connection.execute("DROP VIEW v; DROP TABLE t; DROP TABLE names").unwrap();
    for name in ["t", "names"] {
        let path = folder.join(format!("{name}.parquet"));
        let path = path.display();
        connection.execute(&format!("CREATE VIEW {name} AS SELECT * FROM '{path}'")).unwrap();
    }
    connection.execute("CREATE VIEW v AS SELECT id, half FROM t WHERE k < 50").unwrap();
    settle();
}

/// Asks each query several times, each time compared with a connection that has planned nothing.
fn ask_all(database: &Database, connection: &Connection, about: &str) {
    for query in QUERIES {
        for round in 0..4 {
            let (found, expected) = (answer(connection, query), answer(&database.connect(), query));
            assert_eq!(found, expected, "{about}, round {round}: {query}");
        }
    }
}

#[test]
fn answers_are_those_of_plans_that_are_made_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let database = database();
    let connection = database.connect();
    ask_all(&database, &connection, "tables");
    // Asked, kept, and known twice.
    let count = QUERIES.len() as u64;
    assert_eq!(figure(&connection, "plan_hits"), 2 * count);
    for change in [
        "INSERT INTO t SELECT id + 20000, k, name, price, half FROM t WHERE id < 500",
        "DELETE FROM t WHERE k = 12",
        "UPDATE t SET half = 90000 WHERE id < 50",
        "CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE k = 7",
        "ANALYZE",
        "SET join_order = 'written'",
        "SET threads = 1",
    ] {
        connection.execute(change).unwrap_or_else(|error| panic!("{change}: {error}"));
        ask_all(&database, &connection, change);
    }
    to_files(&connection, folder.path());
    let before = figure(&connection, "plan_hits");
    ask_all(&database, &connection, "files");
    assert!(figure(&connection, "plan_hits") >= before + 2 * count - 2);
    // The same names, other rows.
    let path = folder.path().join("t.parquet");
    let other = format!(
        "COPY (SELECT id + 1 AS id, k, name, price, half FROM t WHERE id % 3 > 0) TO '{0}.new'",
        path.display()
    );
    connection.execute(&other.replace(".new'", ".new' STORED AS PARQUET")).unwrap();
    std::fs::rename(format!("{}.new", path.display()), &path).unwrap();
    settle();
    ask_all(&database, &connection, "another file");
}

/// A file of more rows than are read at once.
fn make_many(connection: &Connection, folder: &std::path::Path) {
    let path = folder.join("many.parquet");
    let path = path.display();
    let rows = "SELECT value AS id, value % 1000 AS k FROM range(3000000)";
    connection.execute(&format!("COPY ({rows}) TO '{path}'")).unwrap();
    connection.execute(&format!("CREATE VIEW many AS SELECT * FROM '{path}'")).unwrap();
    settle();
}

#[test]
fn an_extreme_value_is_looked_for_anew() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database().connect();
    make_many(&connection, folder.path());
    // What is beyond those seen so far is asked of the scan.
    for _ in 0..4 {
        assert_eq!(number(&connection, "SELECT max(id) FROM many WHERE k < 30"), 2_999_029);
        assert_eq!(number(&connection, "SELECT min(-id) FROM many WHERE k > 30"), -2_999_999);
    }
    assert_eq!(figure(&connection, "plan_hits"), 4);
}

#[test]
fn two_runs_of_a_query_at_once_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database().connect();
    let path = folder.path().join("many.parquet");
    let path = path.display();
    let copy =
        format!("COPY (SELECT value AS id, value % 1000 AS k FROM range(3000000)) TO '{path}'");
    connection.execute(&copy).unwrap();
    connection.execute(&format!("CREATE VIEW many AS SELECT * FROM '{path}'")).unwrap();
    settle();
    let query = "SELECT id FROM many WHERE k > (SELECT avg(k) FROM many WHERE id % 7 = 5)";
    let count = answer(&connection, query).num_rows();
    for _ in 0..2 {
        assert_eq!(answer(&connection, query).num_rows(), count);
    }
    let mut first = connection.query(query).unwrap();
    let batch = first.next().unwrap().unwrap();
    assert_eq!(answer(&connection, query).num_rows(), count);
    let rest = first.collect().unwrap();
    let rows = batch.num_rows() + rest.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(rows, count);
    // The last run but one was another's time.
    assert_eq!(figure(&connection, "plan_hits"), 2);
}

#[test]
fn progress_is_that_of_the_last_run() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database().connect();
    to_files(&connection, folder.path());
    for _ in 0..4 {
        let mut rows = connection.query("SELECT id, half FROM t").unwrap();
        assert_eq!(rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 20_000);
        assert_eq!(rows.progress().rows, 20_000);
    }
    assert_eq!(figure(&connection, "plan_hits"), 2);
}

#[test]
fn what_comes_out_otherwise_each_time_is_computed_each_time() {
    let connection = database().connect();
    let query = "SELECT now() AS now, random() AS random";
    let answers: Vec<_> = (0..4).map(|_| answer(&connection, query)).collect();
    for pair in answers.windows(2) {
        assert_ne!(pair[0].column(0), pair[1].column(0));
        assert_ne!(pair[0].column(1), pair[1].column(1));
    }
    assert_eq!(figure(&connection, "plan_hits"), 0);
}

#[test]
fn a_function_that_was_dropped_is_not_called() {
    for remembers in ["off", "on"] {
        let connection = database().connect();
        connection
            .execute(&format!("SET result_cache = '{remembers}'; SET result_cache_after_ms = 0"))
            .unwrap();
        let queries = ["SELECT abs(-7)", "SELECT max(abs(id)) FROM t"];
        for query in queries {
            (0..3).for_each(|_| _ = answer(&connection, query));
        }
        connection.execute("DROP FUNCTION abs").unwrap();
        for query in queries {
            let error = connection.query(query).unwrap_err().to_string();
            assert!(error.contains("abs"), "{error}");
        }
    }
}
