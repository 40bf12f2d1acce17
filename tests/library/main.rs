//! The library as its users see it.

mod analyze;
mod choices;
mod dictionaries;
mod eager_groups;
mod expected_rows;
mod fusion;
mod join_order;
mod memory;
mod outer_joins;
mod parquet;
mod partitions;
mod plans;
mod remembered;
mod remembered_groups;
mod remembered_matrices;
mod remembered_plans;
mod rows_in_order;
mod shared_plans;
mod strategies;
mod templates;
#[cfg(target_os = "linux")]
mod threads;
mod zones;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use relatrix::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use relatrix::arrow::datatypes::{Schema, SchemaRef};
use relatrix::datafusion::catalog::{Session, TableProvider};
use relatrix::datafusion::logical_expr::{Expr, TableType};
use relatrix::datafusion::physical_plan::ExecutionPlan;
use relatrix::{Builder, Connection, Database, ErrorKind, Outcome, Parameters, params};

/// A database of which plans are the same on every machine.
fn builder() -> Builder {
    // Tables are small here, and what threads do to their rows is to be seen.
    let builder = Database::builder().set("cost_model", "built_in").unwrap();
    builder.set("partitions", "threads").unwrap()
}

fn connection() -> Connection {
    builder().build().unwrap().connect()
}

/// The rows of one integer column.
fn numbers(connection: &Connection, query: &str) -> Vec<Option<i64>> {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.rows::<(Option<i64>,)>().unwrap().into_iter().map(|(value,)| value).collect()
}

fn number(connection: &Connection, query: &str) -> i64 {
    numbers(connection, query)[0].unwrap()
}

/// A figure of SHOW MEMORY.
fn figure(connection: &Connection, name: &str) -> u64 {
    let rows = connection.query("SHOW MEMORY").unwrap();
    let rows = rows.rows::<(String, Option<String>, String, String)>().unwrap();
    let value = rows.into_iter().find_map(|(found, value, ..)| (found == name).then_some(value));
    value.flatten().unwrap().parse().unwrap()
}

fn error(connection: &Connection, text: &str) -> String {
    match connection.execute(text) {
        Ok(count) => panic!("{text} wrote {count} rows"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn planning_time_is_that_of_the_statement() {
    let connection = connection();
    connection.query("SELECT 1").unwrap().collect().unwrap();
    assert!(connection.planning_time() > Duration::ZERO);
    connection.execute("SET batch_size = 100").unwrap();
    assert_eq!(connection.planning_time(), Duration::ZERO);
}

#[test]
fn a_query_yields_typed_rows() {
    let connection = connection();
    let count = connection
        .execute(
            "CREATE TABLE t (a INT, b TEXT, c DOUBLE);
             INSERT INTO t VALUES (1, 'x', NULL), (2, 'y', 2.5)",
        )
        .unwrap();
    assert_eq!(count, 2);
    let rows = connection
        .query("SELECT * FROM t ORDER BY a")
        .unwrap()
        .rows::<(i64, String, Option<f64>)>()
        .unwrap();
    assert_eq!(rows, [(1, "x".to_owned(), None), (2, "y".to_owned(), Some(2.5))]);
}

#[test]
fn a_null_in_a_type_without_it_is_an_error() {
    let connection = connection();
    let error = connection.query("SELECT NULL::INT AS a").unwrap().rows::<(i32,)>().unwrap_err();
    assert_eq!(error.to_string(), "column 'a': NULL cannot be read as i32, but as Option<i32>");
    let error = connection.query("SELECT 'x' AS a").unwrap().rows::<(i32,)>().unwrap_err();
    assert_eq!(error.to_string(), "column 'a': Utf8 cannot be read as i32");
}

#[test]
fn parameters_are_put_in_place() {
    let connection = connection();
    let rows = connection.query_with("SELECT $1 + $2, $3", params![1, 2, "x"]).unwrap();
    assert_eq!(rows.rows::<(i64, String)>().unwrap(), [(3, "x".to_owned())]);
    let named = Parameters::new().named("a", 5);
    let rows = connection.query_with("SELECT $a * 2", named).unwrap();
    assert_eq!(rows.rows::<(i64,)>().unwrap(), [(10,)]);
    let rows = connection.query_with("SELECT ? - ?", params![7, 4]).unwrap();
    assert_eq!(rows.rows::<(i64,)>().unwrap(), [(3,)]);
    let missing = connection.query_with("SELECT $1 + $2", params![1]).unwrap_err();
    assert_eq!(missing.to_string(), "there is no value for parameter '$2'");
}

#[test]
fn a_prepared_statement_sees_the_tables_of_its_time() {
    let connection = connection();
    connection.execute("CREATE TABLE t (a INT)").unwrap();
    let insert = connection.prepare("INSERT INTO t VALUES ($1)").unwrap();
    let sum = connection.prepare("SELECT sum(a) FROM t WHERE a < $1").unwrap();
    for value in 0..5 {
        assert_eq!(insert.execute(params![value]).unwrap(), 1);
    }
    assert_eq!(sum.query(params![4]).unwrap().rows::<(i64,)>().unwrap(), [(6,)]);
    connection.execute("PREPARE p(INT) AS SELECT count(*) FROM t WHERE a >= $1").unwrap();
    assert_eq!(number(&connection, "EXECUTE p(3)"), 2);
    connection.execute("DELETE FROM t WHERE a = 4").unwrap();
    assert_eq!(number(&connection, "EXECUTE p('3')"), 1);
    connection.execute("DEALLOCATE p").unwrap();
    assert_eq!(error(&connection, "EXECUTE p(3)"), "there is no prepared statement 'p'");
}

#[test]
fn a_blocking_call_works_inside_a_runtime() {
    let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
    outer.block_on(async {
        let connection = connection();
        assert_eq!(number(&connection, "SELECT 1"), 1);
        let mut stream = connection.query_async("SELECT 2").await.unwrap();
        let batch = futures::StreamExt::next(&mut stream).await.unwrap().unwrap();
        assert_eq!(batch.num_rows(), 1);
        assert_eq!(connection.execute_async("CREATE TABLE t AS SELECT 1 AS a").await.unwrap(), 1);
    });
}

/// A table that cannot be planned.
#[derive(Debug)]
struct Broken(SchemaRef);

#[async_trait]
impl TableProvider for Broken {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        _columns: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> relatrix::datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        panic!("a table is broken")
    }
}

#[test]
fn a_panic_is_an_error_of_its_statement() {
    let connection = connection();
    let broken: Arc<dyn TableProvider> = Arc::new(Broken(Arc::new(Schema::empty())));
    connection.register("broken", broken).unwrap();
    for _ in 0..2 {
        let error = connection.query("SELECT count(*) FROM broken").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Internal(said) if said.contains("a table is broken"))
        );
        assert_eq!(number(&connection, "SELECT 1"), 1);
    }
}

/// A name is short, and what it stands for may be as deep as it is long.
#[test]
fn who_names_deep_things_may_ask_for_them() {
    let asks = || {
        let connection = connection();
        let [sums, texts] = ["x + ", "'x' || "].map(|step| step.repeat(2500));
        connection.execute("CREATE MATRIX x = eye(1)").unwrap();
        for (named, query) in [
            (format!("CREATE VIEW v AS SELECT length({texts} '') AS n"), "SELECT n FROM v"),
            (format!("PREPARE p AS SELECT length({texts} '')"), "EXECUTE p"),
            (format!("CREATE MATRIX VIEW m = {sums} 0"), "SELECT CAST((MATRIX(m)) AS BIGINT)"),
        ] {
            connection.execute(&named).unwrap();
            assert_eq!(number(&connection, query), 2500);
        }
    };
    std::thread::Builder::new().stack_size(4608 << 10).spawn(asks).unwrap().join().unwrap();
}

#[test]
fn who_has_a_small_stack_may_ask_for_deep_things() {
    let ask = || {
        let connection = connection();
        connection.execute("CREATE MATRIX m = ones(2, 2)").unwrap();
        let nest = (0..400).fold("m".to_owned(), |nest, _| format!("abs({nest})"));
        assert_eq!(connection.matrix(&nest).unwrap().cell(1, 1), 1.0);
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(ask).unwrap().join().unwrap();
}

#[test]
fn a_cancelled_statement_says_so() {
    let connection = connection();
    let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)").unwrap();
    rows.cancel_handle().cancel();
    assert!(matches!(rows.collect().unwrap_err().kind(), ErrorKind::Cancelled));
    // The connection goes on.
    assert_eq!(number(&connection, "SELECT 1"), 1);
}

#[test]
fn a_time_limit_stops_a_statement() {
    let connection = connection();
    connection.set_timeout(Some(Duration::from_millis(50)));
    let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)").unwrap();
    assert!(matches!(rows.collect().unwrap_err().kind(), ErrorKind::TimedOut { .. }));
    connection.execute("RESET statement_timeout_ms").unwrap();
    assert_eq!(number(&connection, "SELECT 1"), 1);
}

/// A skewed join under an aggregate yields nothing for long; its work must end all the same, which the
/// metrics of its plan show: nobody counts rows any more.
#[test]
fn a_join_stops_when_it_is_cancelled() {
    let connection = connection();
    connection
        .execute(
            "CREATE TABLE l AS SELECT 1 AS k, value AS v FROM range(200000);
             CREATE TABLE r AS SELECT 1 AS k, value AS v FROM range(200000)",
        )
        .unwrap();
    let joins = [
        "SELECT sum(l.v + r.v) FROM l JOIN r ON l.k = r.k",
        "SELECT sum(l.v + r.v) FROM l JOIN r ON l.v < r.v * 2",
        // Nothing matches, so nothing is handed on.
        "SELECT count(*) FROM l JOIN r ON l.v + r.v < 0",
        "SELECT count(*) FROM l JOIN r ON l.k = r.k AND l.v + r.v < 0",
    ];
    for join in joins {
        let rows = connection.query(join).unwrap();
        let handle = rows.cancel_handle();
        std::thread::sleep(Duration::from_millis(300));
        handle.cancel();
        let stopped = Instant::now();
        assert!(matches!(rows.collect().unwrap_err().kind(), ErrorKind::Cancelled));
        // Uncancelled, each takes minutes. A loaded machine may be slow, but not that slow.
        assert!(stopped.elapsed() < Duration::from_secs(5), "{join}");
        assert_eq!(number(&connection, "SELECT 1"), 1);
    }
}

#[test]
fn a_result_can_be_dropped_half_way() {
    let connection = connection();
    let mut rows = connection.query("SELECT value FROM range(1000000000000)").unwrap();
    rows.next().unwrap().unwrap();
    assert!(rows.progress().rows > 0);
    drop(rows);
    assert_eq!(number(&connection, "SELECT 1"), 1);
}

#[test]
fn progress_over_a_table_in_memory_is_known() {
    let connection = connection();
    connection.execute("CREATE TABLE t AS SELECT value AS x FROM range(100000)").unwrap();
    let mut rows =
        connection.query("SELECT a.x + b.x FROM t AS a JOIN t AS b ON a.x = b.x").unwrap();
    assert_eq!(rows.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 100_000);
    let progress = rows.progress();
    assert_eq!((progress.fraction, progress.rows), (Some(1.0), 200_000));
}

#[test]
fn batches_become_a_table_and_a_result_a_matrix() {
    let connection = connection();
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("a", a)]).unwrap();
    connection.register("t", vec![batch.clone(), batch]).unwrap();
    assert_eq!(number(&connection, "SELECT sum(a) FROM t"), 12);
    let x = connection.query("SELECT a, a * 0.5 AS h FROM t LIMIT 3").unwrap().matrix().unwrap();
    assert_eq!((x.shape().rows, x.shape().columns), (3, 2));
    assert_eq!(x.cell(2, 1), 1.5);
    let null = connection.query("SELECT NULLIF(a, 2) AS a FROM t").unwrap().matrix().unwrap_err();
    assert!(matches!(null.kind(), ErrorKind::NullCell { row: 2, .. }));
    let lists = connection.query("SELECT [1.0, 2.0] AS v UNION ALL SELECT [3.0]").unwrap();
    assert!(matches!(lists.matrix().unwrap_err().kind(), ErrorKind::RaggedList { .. }));
}

#[test]
fn a_view_may_hold_a_matrix_expression() {
    let connection = connection();
    connection
        .execute(
            "CREATE TABLE p (id INT PRIMARY KEY, a DOUBLE); INSERT INTO p VALUES (7, 1), (9, 2);
             CREATE MATRIX two = full(1, 1, 2);
             CREATE VIEW v AS SELECT * FROM MATRIX(p @ two) AS m(id, a)",
        )
        .unwrap();
    // The primary key labels the rows.
    let rows = connection.query("SELECT id, a FROM v").unwrap().rows::<(i64, f64)>().unwrap();
    assert_eq!(rows, [(7, 2.0), (9, 4.0)]);
    connection.execute("UPDATE p SET a = a + 1").unwrap();
    let rows = connection.query("SELECT id, a FROM v").unwrap().rows::<(i64, f64)>().unwrap();
    assert_eq!(rows, [(7, 4.0), (9, 6.0)]);
    assert_eq!(connection.matrix("two * 3").unwrap().cell(0, 0), 6.0);
}

#[test]
fn outcomes_tell_rows_from_counts() {
    let connection = connection();
    let outcome = |text: &str| {
        let statement = relatrix::parse(text).unwrap().remove(0);
        connection.run(&statement).unwrap()
    };
    assert!(matches!(outcome("CREATE TABLE t (a INT)"), Outcome::Done));
    assert!(matches!(outcome("INSERT INTO t VALUES (1), (2)"), Outcome::Count(2)));
    assert!(matches!(outcome("UPDATE t SET a = a + 1"), Outcome::Count(2)));
    assert!(matches!(outcome("SELECT * FROM t"), Outcome::Rows(_)));
    assert!(matches!(outcome("EXPLAIN DELETE FROM t"), Outcome::Rows(_)));
    assert!(matches!(outcome("DELETE FROM t WHERE a = 3"), Outcome::Count(1)));
    assert!(matches!(outcome("TRUNCATE TABLE t"), Outcome::Count(1)));
    assert!(matches!(outcome("DROP TABLE t"), Outcome::Done));
}

#[test]
fn settings_are_set_shown_and_reset() {
    let connection = connection();
    let show = |name: &str| {
        let rows = connection.query(&format!("SHOW {name}")).unwrap();
        rows.rows::<(String, String, String, String)>().unwrap().remove(0)
    };
    connection.execute("SET memory_limit = '64MB'; SET threads TO 3; SET fusion = off").unwrap();
    let (name, value, unit, _) = show("memory_limit");
    assert_eq!(
        (name.as_str(), value.as_str(), unit.as_str()),
        ("memory_limit", "67108864", "bytes")
    );
    assert_eq!(show("threads").1, "3");
    assert_eq!(show("fusion").1, "false");
    connection.execute("RESET fusion").unwrap();
    assert_eq!(show("fusion").1, "true");
    assert_eq!(error(&connection, "SET threads = many").split(':').next(), Some("threads"));
    connection.execute("SET datafusion.execution.coalesce_batches = false").unwrap();
    let all = connection.query("SHOW ALL").unwrap();
    let all = all.rows::<(String, Option<String>, String, String)>().unwrap();
    let find = |name: &str| all.iter().find(|row| row.0 == name).unwrap().1.clone().unwrap();
    assert_eq!(find("threads"), "3");
    assert_eq!(find("datafusion.execution.target_partitions"), "3");
    assert_eq!(find("datafusion.execution.coalesce_batches"), "false");
    // A memory limit is kept to: this sort goes through files.
    assert_eq!(
        number(
            &connection,
            "SELECT count(*) FROM (SELECT value, row_number() OVER (ORDER BY value * 7919 % 1000003)
             FROM range(3000000))"
        ),
        3_000_000
    );
    // Settings belong to the connection.
    assert!(connection.clone().query("SHOW threads").is_ok());
}

#[test]
fn names_are_defined_once_and_dropped() {
    let connection = connection();
    connection.execute("CREATE TABLE t (a INT DEFAULT 7, b INT)").unwrap();
    assert_eq!(error(&connection, "CREATE TABLE t (a INT)"), "table 't' already exists");
    connection.execute("CREATE TABLE IF NOT EXISTS t (a INT)").unwrap();
    connection.execute("INSERT INTO t (b) VALUES (1)").unwrap();
    assert_eq!(number(&connection, "SELECT a FROM t"), 7);
    connection.execute("CREATE VIEW v AS SELECT a + b AS c FROM t").unwrap();
    assert_eq!(number(&connection, "SELECT c FROM v"), 8);
    // A view sees the table of the time it is read.
    connection.execute("CREATE OR REPLACE TABLE t AS SELECT 1 AS a, 2 AS b").unwrap();
    assert_eq!(number(&connection, "SELECT c FROM v"), 3);
    assert_eq!(error(&connection, "DROP TABLE v"), "DROP table v: it is a view: DROP view");
    assert!(!error(&connection, "INSERT INTO v VALUES (1)").is_empty());
    connection.execute("CREATE OR REPLACE VIEW v AS SELECT 5 AS c").unwrap();
    assert_eq!(number(&connection, "SELECT c FROM v"), 5);
    connection.execute("DROP VIEW v; DROP TABLE t; DROP TABLE IF EXISTS t").unwrap();
    assert_eq!(error(&connection, "DROP TABLE t"), "there is no table 't'");
    connection.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 3 AS a").unwrap();
    assert_eq!(number(&connection, "SELECT t.a FROM s.t"), 3);
    connection.execute("DELETE FROM s.t; DROP SCHEMA s CASCADE").unwrap();
    assert!(error(&connection, "SELECT * FROM s.t").contains("s.t"));
}

#[test]
fn temporary_names_belong_to_the_connection() {
    let database = Database::memory().unwrap();
    let (first, second) = (database.connect(), database.connect());
    first
        .execute("CREATE TABLE t AS SELECT 1 AS a; CREATE TEMPORARY TABLE t AS SELECT 2 AS a")
        .unwrap();
    assert_eq!(number(&first, "SELECT a FROM t"), 2);
    assert_eq!(number(&second, "SELECT a FROM t"), 1);
    first.execute("UPDATE t SET a = 3; DROP TABLE t").unwrap();
    assert_eq!(number(&first, "SELECT a FROM t"), 1);
}

#[test]
fn keys_are_enforced() {
    let connection = connection();
    connection
        .execute("CREATE TABLE t (id INT PRIMARY KEY, name TEXT UNIQUE, n INT NOT NULL)")
        .unwrap();
    connection.execute("INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2), (3, NULL, 3)").unwrap();
    let duplicate = "primary key id = 2 appears twice; it holds each value once";
    assert_eq!(error(&connection, "INSERT INTO t VALUES (9, 'z', 9), (2, 'b', 2)"), duplicate);
    assert_eq!(
        error(&connection, "INSERT INTO t VALUES (4, 'a', 4)"),
        "unique key name = a appears twice; it holds each value once"
    );
    assert!(
        error(&connection, "INSERT INTO t VALUES (NULL, 'd', 4)").contains("'id': is NOT NULL")
    );
    assert!(error(&connection, "UPDATE t SET n = NULL").contains("'n': is NOT NULL"));
    assert!(error(&connection, "UPDATE t SET id = 1").contains("appears twice"));
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 3);
    assert_eq!(connection.execute("UPDATE t SET id = id + 1").unwrap(), 3);
    assert_eq!(number(&connection, "SELECT max(id) FROM t"), 4);
    connection.execute("CREATE UNIQUE INDEX i ON t (n)").unwrap();
    assert!(error(&connection, "INSERT INTO t VALUES (9, 'z', 3)").contains("n = 3"));
    assert_eq!(error(&connection, "CREATE INDEX i ON t (n)"), "index 'i' already exists");
    connection.execute("DROP INDEX i; INSERT INTO t VALUES (9, 'z', 3)").unwrap();
    assert!(error(&connection, "CREATE UNIQUE INDEX i ON t (n)").contains("n = 3"));
    connection.execute("CREATE INDEX i ON t (n DESC)").unwrap();
    // A key that is declared decides nothing about what a query means.
    connection
        .execute("CREATE TABLE d (a INT UNIQUE, b INT); INSERT INTO d VALUES (NULL, 1), (NULL, 2)")
        .unwrap();
    assert_eq!(numbers(&connection, "SELECT DISTINCT a FROM d"), [None]);
    assert_eq!(number(&connection, "SELECT count(*) FROM (SELECT a FROM d GROUP BY a)"), 1);
}

#[test]
fn files_are_written_and_read_by_their_extension() {
    let connection = connection();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    connection
        .execute("CREATE TABLE t AS SELECT value AS a, 'x' || value AS b FROM range(10)")
        .unwrap();
    for extension in ["parquet", "csv", "tsv", "json", "ndjson", "jsonl", "arrow", "feather", "ipc"]
    {
        let file = path(&format!("t1.{extension}"));
        assert_eq!(connection.execute(&format!("COPY t TO '{file}'")).unwrap(), 10, "{extension}");
        assert!(std::fs::metadata(&file).unwrap().is_file(), "{extension}");
        let read = format!("SELECT sum(a + length(b)) FROM '{file}'");
        assert_eq!(number(&connection, &read), 65, "{extension}");
        let second = path(&format!("t2.{extension}"));
        connection.execute(&format!("COPY (SELECT * FROM t LIMIT 3) TO '{second}'")).unwrap();
        let glob = path(&format!("t?.{extension}"));
        let read = format!("SELECT count(*) FROM '{glob}'");
        assert_eq!(number(&connection, &read), 13, "{extension}");
        connection.execute("CREATE OR REPLACE TABLE u (a BIGINT, b TEXT)").unwrap();
        assert_eq!(
            connection.execute(&format!("COPY u FROM '{file}'")).unwrap(),
            10,
            "{extension}"
        );
        // Written anew, it is read anew.
        connection.execute(&format!("COPY (SELECT * FROM t LIMIT 2) TO '{file}'")).unwrap();
        assert_eq!(
            number(&connection, &format!("SELECT count(*) FROM '{file}'")),
            2,
            "{extension}"
        );
    }
    std::fs::write(path("array.json"), " [{\"a\": 1}, {\"a\": 2}]").unwrap();
    assert_eq!(number(&connection, &format!("SELECT sum(a) FROM '{}'", path("array.json"))), 3);
    std::fs::write(path("quoted.csv"), "a,b\n1,\"two\nlines\"\n2,one\n").unwrap();
    assert_eq!(number(&connection, &format!("SELECT count(*) FROM '{}'", path("quoted.csv"))), 2);
    let missing = path("missing.parquet");
    assert_eq!(
        error(&connection, &format!("SELECT * FROM '{missing}'")),
        format!("{missing}: no such file")
    );
    let missing = path("missing*.csv");
    assert_eq!(
        error(&connection, &format!("SELECT * FROM '{missing}'")),
        format!("{missing}: no file matches")
    );
    assert!(error(&connection, "COPY t TO 'x.docx'").starts_with("x.docx: its extension"));
}

#[test]
fn a_statement_reads_one_version() {
    let connection = connection();
    connection.execute("CREATE TABLE t AS SELECT value AS a FROM range(3)").unwrap();
    assert_eq!(connection.execute("INSERT INTO t SELECT a + 10 FROM t").unwrap(), 3);
    assert_eq!(connection.execute("INSERT INTO t SELECT x.a FROM t x, t y").unwrap(), 36);
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 42);
    // A statement that fails leaves nothing behind.
    assert!(!error(&connection, "INSERT INTO t SELECT 1 / (a - 11) FROM t").is_empty());
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 42);
}

#[test]
fn writers_take_turns() {
    let database = Database::memory().unwrap();
    database.connect().execute("CREATE TABLE t AS SELECT 0 AS a").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let connection = database.connect();
                for _ in 0..10 {
                    assert_eq!(connection.execute("UPDATE t SET a = a + 1").unwrap(), 1);
                }
            });
        }
    });
    assert_eq!(number(&database.connect(), "SELECT a FROM t"), 40);
}

#[test]
fn update_reads_other_tables() {
    let connection = connection();
    connection
        .execute(
            "CREATE TABLE t (id INT, v INT, w INT); INSERT INTO t VALUES (1, 10, 0), (2, 20, 0), (3, 30, 0);
             CREATE TABLE u (id INT, d INT); INSERT INTO u VALUES (1, 5), (3, 7), (4, 9)",
        )
        .unwrap();
    let update = "UPDATE t SET v = t.v + u.d, w = 1 FROM u WHERE t.id = u.id";
    assert_eq!(connection.execute(update).unwrap(), 2);
    assert_eq!(numbers(&connection, "SELECT v FROM t ORDER BY id"), [Some(15), Some(20), Some(37)]);
    let update = "UPDATE t AS x SET v = (SELECT max(d) FROM u WHERE u.id = x.id + 1) WHERE x.w = 0";
    assert_eq!(connection.execute(update).unwrap(), 1);
    assert_eq!(number(&connection, "SELECT v FROM t WHERE id = 2"), 7);
    assert_eq!(connection.execute("UPDATE t SET (v, w) = (w, v)").unwrap(), 3);
    assert_eq!(numbers(&connection, "SELECT w FROM t ORDER BY id"), [Some(15), Some(7), Some(37)]);
    assert_eq!(
        connection.execute("DELETE FROM t USING u WHERE u.id = t.id AND u.d > 5").unwrap(),
        1
    );
    assert_eq!(numbers(&connection, "SELECT id FROM t ORDER BY id"), [Some(1), Some(2)]);
    assert_eq!(error(&connection, "UPDATE t SET z = 1"), "there is no column 'z'");
    assert_eq!(error(&connection, "DELETE FROM nowhere"), "there is no table 'nowhere'");
}

/// Conditions of DELETE and UPDATE against a model: the rows that SELECT finds with the same condition,
/// taken out of a list or changed in it.
#[test]
fn conditions_choose_the_rows_that_a_select_would() {
    let conditions = [
        "a IN (SELECT b FROM u)",
        "a NOT IN (SELECT b FROM u)",
        "a NOT IN (SELECT b FROM u WHERE b IS NOT NULL)",
        "EXISTS (SELECT 1 FROM u WHERE u.b = t.a)",
        "NOT EXISTS (SELECT 1 FROM u WHERE u.b = t.a)",
        "1 = 2",
        "1 = 1",
        "NULL",
        "a > 2",
        "a > 2 OR NULL",
        "a IS NULL",
        "a = (SELECT max(b) FROM u)",
        "a = (SELECT max(a) FROM t)",
        "a > (SELECT avg(a) FROM t x WHERE x.c = t.c)",
        "c = 'x' AND a IN (SELECT a FROM t WHERE c = 'y')",
        "a + 0 = a",
        "a BETWEEN 1 AND 3 AND NOT (c = 'x')",
        "c LIKE '%x%'",
        "a IN (1, NULL)",
        "a NOT IN (1, NULL)",
        "a IN (SELECT b FROM u) OR c = 'y'",
        "(SELECT count(*) FROM u WHERE u.b = t.a) = 2",
    ];
    type Row = (i64, Option<i64>, Option<String>);
    let rows = "(0, 1, 'x'), (1, 2, 'y'), (2, 3, NULL), (3, NULL, 'x'), (4, 2, 'x'), (5, 5, 'y'),
                (6, NULL, NULL), (7, 1, 'xy')";
    for threads in [1, 3] {
        let connection = builder().threads(threads).build().unwrap().connect();
        connection
            .execute("CREATE TABLE u (b INT); INSERT INTO u VALUES (2), (2), (3), (NULL)")
            .unwrap();
        let table = || connection.query("SELECT * FROM t").unwrap().rows::<Row>().unwrap();
        for condition in conditions {
            let fresh = || {
                let create = format!(
                    "CREATE OR REPLACE TABLE t (id INT, a INT, c TEXT); INSERT INTO t VALUES {rows}"
                );
                connection.execute(&create).unwrap();
            };
            fresh();
            let before = table();
            let hits = numbers(&connection, &format!("SELECT id FROM t WHERE {condition}"));
            let hit = |row: &Row| hits.contains(&Some(row.0));
            let count = connection.execute(&format!("DELETE FROM t WHERE {condition}")).unwrap();
            assert_eq!(count, hits.len() as u64, "DELETE WHERE {condition}");
            let kept: Vec<_> = before.iter().filter(|row| !hit(row)).cloned().collect();
            assert_eq!(table(), kept, "DELETE WHERE {condition}");

            fresh();
            let update = format!("UPDATE t SET a = -1 WHERE {condition}");
            assert_eq!(connection.execute(&update).unwrap(), count, "{update}");
            let change = |row: &Row| {
                let a = if hit(row) { Some(-1) } else { row.1 };
                (row.0, a, row.2.clone())
            };
            assert_eq!(table(), before.iter().map(change).collect::<Vec<_>>(), "{update}");
        }
    }
}

#[test]
fn a_damaged_file_is_named() {
    let (connection, folder) = (connection(), tempfile::tempdir().unwrap());
    for name in ["cut.parquet", "cut.arrow", "cut.json"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "PAR1 and no more").unwrap();
        let message = error(&connection, &format!("SELECT * FROM '{}'", path.display()));
        assert!(message.contains(name), "{message}");
    }
}

/// Sums over a table or a file have the same bits for any number of threads, and in every run.
#[test]
fn bits_do_not_depend_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let setup = "CREATE TABLE r AS SELECT value AS k, sin(value) * 1e3 AS x, cos(value * 7) AS y
                 FROM generate_series(1, 1200000)";
    let mut bits = Vec::new();
    for threads in [1, 2, 5, 2] {
        let connection = builder().threads(threads).build().unwrap().connect();
        connection.execute(setup).unwrap();
        if bits.is_empty() {
            connection.execute(&format!("COPY r TO '{}'", path.display())).unwrap();
        }
        for source in ["r".to_owned(), format!("'{}'", path.display())] {
            for (columns, by) in [("x, y", ""), ("k, x, y", "ROWS BY k")] {
                let relation = format!("(SELECT {columns} FROM {source} WHERE x > -900 {by})");
                let query = format!(
                    "SELECT (MATRIX(sum({relation}))) AS s, (MATRIX(det(t({relation}) @ {relation}))) AS d,
                            (MATRIX(stddev({relation} * 3 + 1))) AS v"
                );
                let rows = connection.query(&query).unwrap().rows::<(f64, f64, f64)>().unwrap();
                let (sum, det, deviation) = rows[0];
                bits.push((source.clone(), by, [sum, det, deviation].map(f64::to_bits)));
            }
        }
    }
    for (source, by, found) in &bits[4..] {
        let first = bits.iter().find(|(s, b, _)| (s, b) == (source, by)).unwrap();
        assert_eq!(&first.2, found, "{source} {by}");
    }
}
