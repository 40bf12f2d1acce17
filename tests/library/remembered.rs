//! Answers are remembered, and given again only while all that they were made of is as it was.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use relatrix::{Connection, Parameters, params};

use super::{builder, connection, error, figure, number};

/// The answer to a query, and whether it was remembered.
fn answered(connection: &Connection, query: &str) -> (i64, bool) {
    let hits = figure(connection, "cache_hits");
    let answer = number(connection, query);
    (answer, figure(connection, "cache_hits") > hits)
}

/// A query over `relation` that takes long enough to be remembered.
fn slow(relation: &str) -> String {
    format!("SELECT sum(x) + max(value % 7) FROM {relation}, range(2000000)")
}

/// Two answers to a query, of which the second was remembered and the first was not.
fn twice(connection: &Connection, query: &str) -> i64 {
    let (first, second) = (answered(connection, query), answered(connection, query));
    assert_eq!((first.1, second.1), (false, true), "{query}");
    assert_eq!(first.0, second.0, "{query}");
    first.0
}

#[test]
fn rows_that_change_are_asked_for_again() {
    let connection = connection();
    let million = 2_000_000;
    connection.execute("CREATE TABLE t (x BIGINT); INSERT INTO t VALUES (1), (2)").unwrap();
    let query = slow("t");
    assert_eq!(twice(&connection, &query), 3 * million + 6);
    // However it is spelled, and over whichever connection of the database.
    assert!(answered(&connection, &query.replace("SELECT", "select -- the same\n")).1);
    for (change, expected) in [
        ("INSERT INTO t VALUES (3)", 6),
        ("UPDATE t SET x = 10 WHERE x = 1", 15),
        ("DELETE FROM t WHERE x = 2", 13),
        ("DROP TABLE t; CREATE TABLE t AS SELECT 5 AS x", 5),
        ("CREATE TEMPORARY TABLE t AS SELECT 7 AS x", 7),
        ("DROP TABLE t", 5),
    ] {
        connection.execute(change).unwrap();
        assert_eq!(twice(&connection, &query), expected * million + 6, "{change}");
    }
    connection.execute("TRUNCATE TABLE t; INSERT INTO t VALUES (5)").unwrap();
    assert_eq!(twice(&connection, &query), 5 * million + 6);
}

#[test]
fn names_that_stand_for_something_else_are_asked_for_again() {
    let connection = connection();
    connection
        .execute(
            "CREATE TABLE one AS SELECT 1 AS x; CREATE TABLE two AS SELECT 2 AS x;
             CREATE VIEW v AS SELECT * FROM one; CREATE MATRIX m = ones(1, 3)",
        )
        .unwrap();
    assert_eq!(twice(&connection, &slow("v")), 2_000_006);
    connection.execute("CREATE OR REPLACE VIEW v AS SELECT * FROM two").unwrap();
    assert_eq!(twice(&connection, &slow("v")), 4_000_006);
    connection.execute("INSERT INTO two VALUES (1)").unwrap();
    assert_eq!(twice(&connection, &slow("v")), 6_000_006);

    let sum = "SELECT CAST(MATRIX(sum(m)) AS BIGINT) + max(value % 7) FROM range(2000000)";
    assert_eq!(twice(&connection, sum), 9);
    connection.execute("CREATE OR REPLACE MATRIX m = ones(1, 4)").unwrap();
    assert_eq!(twice(&connection, sum), 10);
    // A temporary matrix is that of one connection alone.
    connection.execute("CREATE TEMPORARY MATRIX m = ones(1, 5)").unwrap();
    assert_eq!(twice(&connection, sum), 11);
    connection.execute("DROP MATRIX m").unwrap();
    assert_eq!(twice(&connection, sum), 10);
}

#[test]
fn files_that_change_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let connection = connection();
    let query = slow(&format!("'{}'", path.display()));
    // One that was written a moment ago may be written again without a trace: its answer may be remembered now or not.
    let settled = |query: &str| {
        sleep(Duration::from_millis(120));
        let first = number(&connection, query);
        assert_eq!(answered(&connection, query), (first, true), "{query}");
        first
    };
    fs::write(&path, "x\n1\n").unwrap();
    assert_eq!(answered(&connection, &query), (2_000_006, false));
    assert_eq!(settled(&query), 2_000_006);
    // As long as it was, and as old.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "x\n2\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(answered(&connection, &query), (4_000_006, false));
    assert_eq!(settled(&query), 4_000_006);
    // Another file of the same pattern.
    let all = slow(&format!("'{}/*.csv'", folder.path().display()));
    assert_eq!(settled(&all), 4_000_006);
    fs::write(folder.path().join("u.csv"), "x\n3\n").unwrap();
    assert_eq!(answered(&connection, &all), (10_000_006, false));
    let table = format!(
        "CREATE EXTERNAL TABLE u STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')",
        folder.path().join("u.csv").display()
    );
    connection.execute(&table).unwrap();
    assert_eq!(settled(&slow("u")), 6_000_006);
    fs::write(folder.path().join("u.csv"), "x\n4\n").unwrap();
    assert_eq!(answered(&connection, &slow("u")), (8_000_006, false));
}

#[test]
fn what_comes_out_otherwise_each_time_is_computed_each_time() {
    let connection = connection();
    connection.execute("CREATE VIEW dice AS SELECT CAST(random() * 1e15 AS BIGINT) AS x").unwrap();
    for query in [
        "SELECT CAST(sum(random()) * 1e9 AS BIGINT) FROM range(1000000)",
        "SELECT CAST(epoch(now()) * 1e6 AS BIGINT) + max(value) FROM range(2000000)",
        "SELECT CAST(MATRIX(sum(rand(900, 900)) * 1e9) AS BIGINT)",
        "SELECT (SELECT max(CAST(random() * 1e15 AS BIGINT))) + max(value) FROM range(1000000)",
        "SELECT CAST(MATRIX(sum((SELECT random() FROM range(500000)))) * 1e9 AS BIGINT)",
        &slow("dice").replace("sum(x)", "max(x)"),
    ] {
        let (first, second) = (answered(&connection, query), answered(&connection, query));
        assert!(first.0 != second.0 && !second.1, "{query}: {first:?} {second:?}");
    }
    // With a seed of its own it comes out the same.
    twice(&connection, "SELECT CAST(MATRIX(sum(rand(900, 900, 7)) * 1e6) AS BIGINT)");
}

#[test]
fn parameters_and_settings_are_part_of_a_question() {
    let connection = connection();
    let query = "SELECT sum(value % $1) FROM range(2000000)";
    let ask = |divisor: i64| {
        let hits = figure(&connection, "cache_hits");
        let rows = connection.query_with(query, params![divisor]).unwrap();
        let answer = rows.rows::<(i64,)>().unwrap()[0].0;
        (answer, figure(&connection, "cache_hits") > hits)
    };
    assert_eq!(
        [ask(2), ask(3), ask(2)],
        [(1_000_000, false), (1_999_999, false), (1_000_000, true)]
    );
    connection.execute("SET tile_rows = 100").unwrap();
    assert!(!ask(2).1);
    connection.execute("RESET tile_rows; SET datafusion.execution.time_zone = '+01:00'").unwrap();
    assert!(!ask(2).1);
    connection.execute("RESET datafusion.execution.time_zone").unwrap();
    assert!(ask(2).1);
    // A matrix may be any.
    let x = relatrix::matrix::Matrix::from_row_major(relatrix::matrix::Shape::new(1, 1), vec![2.0]);
    let x = Parameters::new().matrix("x", x.unwrap());
    let given = "SELECT sum(value) + (MATRIX(sum($x))) FROM range(2000000)";
    let hits = figure(&connection, "cache_hits");
    for _ in 0..2 {
        connection.query_with(given, x.clone()).unwrap().collect().unwrap();
    }
    assert_eq!(figure(&connection, "cache_hits"), hits);
}

#[test]
fn the_names_of_columns_are_those_that_were_asked_for() {
    let connection = connection();
    let name = |query: &str| {
        let rows = connection.query(query).unwrap();
        let name = rows.schema().field(0).name().clone();
        rows.collect().unwrap();
        name
    };
    let written = |sum: &str| format!("SELECT {sum}, max(value) FROM range(2000000)");
    for _ in 0..2 {
        assert_eq!(name(&written("mod(sum(value), 7)")), "mod(sum(value), 7)");
        assert_eq!(name(&written("((sum(value)) % (7))")), "((sum(value)) % (7))");
    }
}

#[test]
fn nothing_is_remembered_when_it_is_off_and_all_is_compared_when_it_is_to_be_verified() {
    let connection = builder().set("result_cache", "off").unwrap().build().unwrap().connect();
    connection.execute("CREATE TABLE t (x BIGINT); INSERT INTO t VALUES (1), (2)").unwrap();
    let query = slow("t");
    assert!(!answered(&connection, &query).1 && !answered(&connection, &query).1);
    assert_eq!(figure(&connection, "answers"), 0);
    connection.execute("SET result_cache = 'verify'").unwrap();
    // Also what takes no time.
    for query in [query.as_str(), "SELECT max(x) FROM t"] {
        number(&connection, query);
        assert!(answered(&connection, query).1);
    }
    // Those of both queries, and the groups of the second.
    assert_eq!(figure(&connection, "answers"), 3);
    connection.execute("INSERT INTO t VALUES (3)").unwrap();
    assert_eq!(number(&connection, "SELECT max(x) FROM t"), 3);
    assert_eq!(figure(&connection, "cache_outdated"), 1);
    connection.execute("SET result_cache_limit = 0").unwrap();
    assert_eq!((figure(&connection, "answers"), figure(&connection, "remembered")), (0, 0));
    let message = error(&connection, "SET result_cache = 'perhaps'");
    assert_eq!(message, "result_cache: 'perhaps' is none of off, on, verify");
}

#[test]
fn an_answer_that_nobody_reads_to_its_end_is_none() {
    let connection = connection();
    let query = "SELECT value FROM range(2000000) ORDER BY value % 1000, value";
    let mut rows = connection.query(query).unwrap();
    rows.next().unwrap().unwrap();
    drop(rows);
    assert_eq!(figure(&connection, "answers"), 0);
    // Nor one that fails on its way.
    let failing = "SELECT 1 / (1999999 - value) FROM range(2000000)";
    connection.query(failing).unwrap().collect().unwrap_err();
    assert_eq!(figure(&connection, "answers"), 0);
}

#[test]
fn explain_analyze_tells_what_is_remembered() {
    let connection = connection();
    let query =
        "SELECT max(value % 7) + CAST(MATRIX(sum(ones(2, 2))) AS BIGINT) FROM range(2000000)";
    let explained = || {
        let rows = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
        rows.rows::<(String, String)>().unwrap()[0].1.clone()
    };
    assert!(explained().contains("Aggregat"));
    number(&connection, query);
    let plan = explained();
    assert!(plan.starts_with("RememberedAnswer: rows=1, bytes="), "{plan}");
    let listed = connection.query("SELECT * FROM range(1)").unwrap().collect().unwrap();
    assert_eq!(listed[0].num_rows(), 1);
    let rows = connection.query("SHOW CACHE").unwrap();
    let rows = rows.rows::<(String, String, u64, u64, String, u64, f64)>().unwrap();
    let (kind, text, count, bytes, tier, uses, seconds) = &rows[0];
    assert_eq!((kind.as_str(), text.as_str(), *count), ("answer", query, 1));
    assert_eq!((tier.as_str(), *uses), ("memory", 1));
    assert!(*bytes > 0 && *seconds >= 1e-3);
    connection.execute("SET result_cache = off").unwrap();
    assert!(explained().contains("Aggregat"));
}

#[test]
fn answers_over_files_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (path, answers) = (folder.path().join("t.csv"), folder.path().join("answers"));
    let connect = || {
        let builder = builder().set("result_cache_after_ms", "0").unwrap();
        let builder = builder.set("result_cache_directory", answers.to_str().unwrap()).unwrap();
        builder.build().unwrap().connect()
    };
    fs::write(&path, "x\n1\n2\n").unwrap();
    sleep(Duration::from_millis(120));
    let query = format!("SELECT sum(x) FROM '{}'", path.display());
    assert_eq!(answered(&connect(), &query), (3, false));
    // Another database knows it, and its own memory after that.
    let other = connect();
    assert_eq!([answered(&other, &query), answered(&other, &query)], [(3, true), (3, true)]);
    assert_eq!(figure(&other, "cache_misses"), 0);
    // Other settings, parameters and names are other questions.
    other.execute("SET tile_rows = 7").unwrap();
    assert!(!answered(&other, &query).1);
    let beyond = |bound: i64| {
        let connection = connect();
        let query = query.replace("sum(x)", "count(*) FILTER (WHERE x > $1)");
        let rows = connection.query_with(&query, params![bound]).unwrap();
        let count = rows.rows::<(i64,)>().unwrap()[0].0;
        (count, figure(&connection, "cache_hits"))
    };
    assert_eq!([beyond(0), beyond(1), beyond(0)], [(2, 0), (1, 0), (2, 1)]);
    let hides = connect();
    hides.execute(&format!("CREATE TABLE \"{}\" AS SELECT 10 AS x", path.display())).unwrap();
    assert_eq!(answered(&hides, &query), (10, false));
    // What reads tables or matrices stays in its process.
    let both = format!("SELECT sum(x) + (SELECT max(y) FROM own) FROM '{}'", path.display());
    for own in [5, 6] {
        let connection = connect();
        connection.execute(&format!("CREATE TABLE own AS SELECT {own} AS y")).unwrap();
        assert_eq!(answered(&connection, &both), (3 + own, false));
    }
    // A view is the same where it is defined by the same text, of names that stand for the same.
    let viewing = |view: &str, inner: &str| {
        let connection = connect();
        let files = path.display();
        connection
            .execute(&format!("CREATE VIEW f AS SELECT x {inner} AS x FROM '{files}'"))
            .unwrap();
        connection.execute(&format!("CREATE SCHEMA a; CREATE VIEW a.v AS {view}")).unwrap();
        answered(&connection, "SELECT sum(y) FROM a.v")
    };
    assert_eq!(viewing("SELECT x AS y FROM f", ""), (3, false));
    assert_eq!(viewing("SELECT x AS y FROM f", ""), (3, true));
    assert_eq!(viewing("SELECT x + 1 AS y FROM f", ""), (5, false));
    assert_eq!(viewing("SELECT x + 1 AS y FROM f", "* 2"), (8, false));
    assert_eq!(viewing("SELECT x + 1 AS y FROM f", "* 2"), (8, true));
    fs::write(&path, "x\n1\n5\n").unwrap();
    sleep(Duration::from_millis(120));
    assert_eq!(viewing("SELECT x + 1 AS y FROM f", "* 2"), (14, false));
    assert_eq!(answered(&connect(), &query), (6, false));
    assert_eq!(answered(&connect(), &query), (6, true));
    // Compared with what is computed, it is the same.
    let verifies = connect();
    verifies.execute("SET result_cache = verify").unwrap();
    assert_eq!(answered(&verifies, &query), (6, true));
    // Without a directory nobody is asked.
    let alone = connect();
    alone.execute("SET result_cache_directory = ''").unwrap();
    assert!(!answered(&alone, &query).1);
    let message = error(&alone, &format!("SET result_cache_directory = '{}/x'", path.display()));
    assert!(message.starts_with("result_cache_directory: there is no directory"), "{message}");
}
