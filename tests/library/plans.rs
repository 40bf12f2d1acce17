//! Queries with parameters are planned once, and answer as if they were planned each time.

use std::path::Path;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;
use relatrix::{Connection, Database, Parameters, Value, params};

use super::{builder, figure, number};

const TABLES: &str = "CREATE TABLE t AS SELECT value AS id, CAST(value % 100 AS SMALLINT) AS small, 'n' || (value % 7) AS name,
       CAST(value / 4.0 AS DECIMAL(10, 2)) AS price, DATE '2024-01-01' + CAST(value % 50 AS INT) AS day,
       CASE WHEN value % 5 > 0 THEN value * 0.5 END AS half FROM range(20000);
     CREATE VIEW v AS SELECT id, half FROM t WHERE small < 50;
     CREATE TABLE names AS SELECT 'n' || value AS name, value AS number FROM range(7)";

/// Each of which takes the values in turn; the plan of those that are marked is kept.
const QUERIES: [(bool, &str); 23] = [
    (true, "SELECT * FROM t WHERE id = $1"),
    (true, "SELECT id, half FROM t WHERE small = $1 AND id < 300 ORDER BY id"),
    (true, "SELECT count(*), sum(price), min(day) FROM t WHERE id > $1"),
    (true, "SELECT small, count(*) FROM t WHERE id <= $1 GROUP BY small ORDER BY small"),
    (true, "SELECT id FROM v WHERE half > $1 ORDER BY half, id LIMIT 5"),
    (true, "SELECT DISTINCT name FROM t WHERE price < $1 ORDER BY name"),
    (
        true,
        "SELECT id FROM t WHERE id IN ($1, 7, 9) UNION ALL SELECT -id FROM t WHERE small = $1 AND id < 200 ORDER BY id",
    ),
    (false, "SELECT id, id * 2 AS double FROM t WHERE id BETWEEN $1 AND $1 + 3 ORDER BY id"),
    (true, "SELECT id FROM t WHERE id = $1 OR half IS NULL AND id < 20 ORDER BY id"),
    (
        true,
        "SELECT id, CASE WHEN id > $1 THEN 'more' ELSE 'less' END AS side FROM t WHERE id < 30 ORDER BY id",
    ),
    (false, "SELECT id FROM t ORDER BY id DESC LIMIT $1"),
    (true, "SELECT id, $1 FROM t WHERE id < 3 ORDER BY id"),
    (true, "SELECT id FROM t JOIN names USING (name) WHERE number = $1 ORDER BY id LIMIT 9"),
    (
        true,
        "SELECT number, count(*), sum(price) FROM t JOIN names USING (name) WHERE small = $1 GROUP BY number ORDER BY number",
    ),
    (
        true,
        "SELECT id, number FROM names JOIN t ON t.name = names.name AND t.id < $1 + 3 WHERE number > 1 ORDER BY id LIMIT 20",
    ),
    (
        true,
        "SELECT number, id FROM names LEFT JOIN (SELECT * FROM t WHERE id = $1) AS t USING (name) ORDER BY 1, 2",
    ),
    (true, "SELECT count(*) FROM t WHERE name IN (SELECT name FROM names WHERE number > $1)"),
    (
        true,
        "SELECT count(*), max(a.half) FROM t AS a JOIN t AS b ON a.id = b.small JOIN names ON names.name = a.name WHERE b.id <= $1",
    ),
    (
        false,
        "SELECT id FROM t WHERE half > (SELECT avg(half) FROM t WHERE id <> $1) ORDER BY id LIMIT 3",
    ),
    (
        false,
        "SELECT name, id FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY id) AS place FROM t) WHERE place = $1 ORDER BY name",
    ),
    (false, "SELECT CAST(random() < 2 AS INT), id FROM t WHERE id = $1"),
    (false, "SELECT value FROM range(10) WHERE value < $1 ORDER BY value"),
    (false, "SELECT * FROM MATRIX(ones(2, 2) * $1)"),
];

fn database() -> Database {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let database = builder.build().unwrap();
    database.connect().execute(TABLES).unwrap();
    database
}

fn connect() -> Connection {
    database().connect()
}

fn answer(
    connection: &Connection,
    query: &str,
    parameters: Parameters,
) -> Result<RecordBatch, String> {
    let rows = connection.query_with(query, parameters).map_err(|error| error.to_string())?;
    let schema = rows.schema();
    let batches = rows.collect().map_err(|error| error.to_string())?;
    Ok(concat_batches(&schema, &batches).unwrap())
}

#[test]
fn answers_are_those_of_plans_that_are_made_each_time() {
    let mut random = SmallRng::seed_from_u64(3);
    let values: [Value; 9] = [
        Value::from(3_i64),
        Value::from(12_i64),
        Value::from(-1_i64),
        Value::from(50_000_i64),
        Value::from(5_i32),
        Value::from(7.5),
        Value::from(None::<i64>),
        Value::from(Some(9_i64)),
        Value::from(1_u8),
    ];
    let changes = [
        "INSERT INTO t SELECT id + 20000, small, name, price, day, half FROM t WHERE id < 500",
        "DELETE FROM t WHERE small = 12", "UPDATE t SET half = 1 WHERE id < 50",
        "CREATE OR REPLACE VIEW v AS SELECT id, price AS half FROM t",
        "CREATE OR REPLACE TABLE t AS SELECT CAST(value AS INT) AS id, CAST(value % 100 AS BIGINT) AS small,
           'm' || value AS name, CAST(value AS DECIMAL(20, 4)) AS price, DATE '2025-01-01' AS day, value * 2 AS half FROM range(3000)",
        "ANALYZE",
        "TRUNCATE TABLE t",
    ];
    let database = database();
    let keeps = database.connect();
    for change in [""].iter().chain(&changes) {
        if !change.is_empty() {
            keeps.execute(change).unwrap_or_else(|error| panic!("{change}: {error}"));
        }
        for (_, query) in QUERIES {
            for _ in 0..6 {
                let value = values.choose(&mut random).unwrap();
                let given = || Parameters::new().push(value.clone());
                let found = answer(&keeps, query, given());
                // A connection that has planned nothing yet.
                let expected = answer(&database.connect(), query, given());
                assert_eq!(found, expected, "{change}: {query} of {value}");
            }
        }
    }
    assert!(figure(&keeps, "plan_hits") > 100);
}

/// The tables as files in the place of them, whose groups of rows are small.
fn to_files(connection: &Connection, folder: &Path) {
    connection.execute("DROP VIEW v").unwrap();
    for name in ["t", "names"] {
        let path = folder.join(format!("{name}.parquet"));
        let path = path.display();
        let options = "OPTIONS ('format.max_row_group_size' '2000')";
        connection.execute(&format!("COPY {name} TO '{path}' {options}")).unwrap();
        connection.execute(&format!("DROP TABLE {name}")).unwrap();
        connection.execute(&format!("CREATE VIEW {name} AS SELECT * FROM '{path}'")).unwrap();
    }
    connection.execute("CREATE VIEW v AS SELECT id, half FROM t WHERE small < 50").unwrap();
    settle();
}

/// Waits until nobody could take files that were just written for later ones.
fn settle() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn answers_over_files_are_those_of_plans_that_are_made_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let database = database();
    let keeps = database.connect();
    to_files(&keeps, folder.path());
    let path = folder.path().join("t.parquet").display().to_string();
    let other = format!(
        "COPY (SELECT id + 1 AS id, small, name, price, day, half FROM t WHERE id % 3 > 0) TO '{path}.new' STORED AS PARQUET"
    );
    let values = [3_i64, 12, 50_000, -1, 4000, 7, 9, 19_000].map(|value| Value::from(Some(value)));
    let values = values.into_iter().chain([Value::from(None::<i64>), Value::from(7.5)]);
    let values: Vec<Value> = values.collect();
    for round in ["as written", "replaced", "analyzed"] {
        match round {
            "replaced" => {
                keeps.execute(&other).unwrap();
                std::fs::rename(format!("{path}.new"), &path).unwrap();
                settle();
            }
            "analyzed" => keeps.execute(&format!("ANALYZE '{path}'")).map(drop).unwrap(),
            _ => {}
        }
        for (_, query) in QUERIES {
            for value in &values {
                let given = || Parameters::new().push(value.clone());
                let found = answer(&keeps, query, given());
                let expected = answer(&database.connect(), query, given());
                assert_eq!(found, expected, "{round}: {query} of {value}");
            }
        }
    }
    assert!(figure(&keeps, "plan_hits") > 200);
}

#[test]
fn plans_over_files_are_kept_where_no_value_would_change_them() {
    let folder = tempfile::tempdir().unwrap();
    let database = database();
    to_files(&database.connect(), folder.path());
    for (is_kept, query) in QUERIES {
        let connection = database.connect();
        for value in 1..=4_i64 {
            answer(&connection, query, params![value])
                .unwrap_or_else(|error| panic!("{query}: {error}"));
        }
        assert_eq!(figure(&connection, "plan_hits"), if is_kept { 2 } else { 0 }, "{query}");
    }
}

#[test]
fn a_join_is_planned_anew_for_values_that_keep_far_more_rows_or_fewer() {
    let connection = connect();
    connection.execute("CREATE TABLE others AS SELECT id AS other, small FROM t").unwrap();
    let query = "SELECT count(*) FROM t JOIN others ON t.id = other WHERE t.id < $1";
    let mut hits = 0;
    let mut ask = |value: i64, is_known: bool| {
        let found = connection.query_with(query, params![value]).unwrap();
        assert_eq!(found.rows::<(i64,)>().unwrap(), [(value,)]);
        hits += u64::from(is_known);
        assert_eq!(figure(&connection, "plan_hits"), hits, "{value}");
    };
    ask(1000, false);
    ask(1100, false);
    for value in [1000, 900, 2000, 600] {
        ask(value, true);
    }
    // Each neighbourhood is learnt by the first value that is near no other.
    ask(15_000, false);
    ask(12_000, true);
    ask(1000, true);
    ask(100, false);
    ask(150, true);
    connection.execute("ANALYZE").unwrap();
    ask(1000, false);
    ask(900, true);
    ask(100, false);
    // All that is near few rows is alike.
    ask(10, false);
    ask(1, true);
}

#[test]
fn a_join_is_planned_anew_once_its_tables_have_far_more_rows() {
    let connection = connect();
    let query = "SELECT count(*) FROM t JOIN names USING (name) WHERE id < $1";
    let ask = |value: i64| {
        let found = connection.query_with(query, params![value]).unwrap();
        found.rows::<(i64,)>().unwrap()[0].0
    };
    for value in [300, 310, 320, 330] {
        assert_eq!(ask(value), value);
    }
    assert_eq!(figure(&connection, "plan_hits"), 2);
    connection.execute("INSERT INTO names SELECT 'n0', value FROM range(3)").unwrap();
    assert_eq!(ask(7), 10);
    assert_eq!(figure(&connection, "plan_hits"), 2, "another plan is learnt");
    assert_eq!(ask(300), 300 + 3 * 43);
    assert_eq!(figure(&connection, "plan_hits"), 3);
    connection.execute("INSERT INTO names SELECT 'm' || value, value FROM range(10000)").unwrap();
    assert_eq!(ask(300), 300 + 3 * 43);
    assert_eq!(figure(&connection, "plan_hits"), 3, "another plan is learnt");
    assert_eq!(ask(320), 320 + 3 * 46);
    assert_eq!(figure(&connection, "plan_hits"), 4);
}

#[test]
fn plans_are_kept_where_no_value_would_change_them() {
    for (is_kept, query) in QUERIES {
        let connection = connect();
        for value in 1..=4_i64 {
            answer(&connection, query, params![value])
                .unwrap_or_else(|error| panic!("{query}: {error}"));
        }
        // Asked, learnt, and then known.
        assert_eq!(figure(&connection, "plan_hits"), if is_kept { 2 } else { 0 }, "{query}");
    }
}

#[test]
fn prepared_statements_are_planned_once() {
    let connection = connect();
    connection
        .execute("PREPARE p AS SELECT count(*) FROM t WHERE small = $1 AND id >= $2")
        .unwrap();
    for (at, first) in [0, 5000, 10_000, 15_000].into_iter().enumerate() {
        assert_eq!(number(&connection, &format!("EXECUTE p(7, {first})")), (20_000 - first) / 100);
        assert_eq!(figure(&connection, "plan_hits"), (at as u64).saturating_sub(1));
    }
    // Values of other types are another question.
    assert_eq!(number(&connection, "EXECUTE p(7.0, 15000)"), 50);
    assert_eq!(figure(&connection, "plan_hits"), 2);
    // A value that must be computed, and one of a type that was declared.
    assert_eq!(number(&connection, "EXECUTE p(3 + 4, (SELECT 15000))"), 50);
    connection.execute("PREPARE d(SMALLINT) AS SELECT count(*) FROM t WHERE small = $1").unwrap();
    assert_eq!(number(&connection, "EXECUTE d('7')"), 200);
    assert_eq!(number(&connection, "EXECUTE d(7)"), 200);
}

#[test]
fn values_that_are_written_are_what_they_would_be_if_computed() {
    let connection = connect();
    connection.execute("PREPARE v AS SELECT CAST($1 AS TEXT), typeof($1)").unwrap();
    let texts = |query: &str| {
        let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        rows.rows::<(Option<String>, String)>().unwrap()
    };
    for value in [
        "0",
        "7",
        "-7",
        "- 7",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "1.50",
        "-1.5",
        "1e3",
        "'seven'",
        "'it''s'",
        "''",
        "true",
        "NULL",
        "DATE '2024-02-03'",
        "3 + 4",
    ] {
        let written = texts(&format!("EXECUTE v({value})"));
        assert_eq!(written, texts(&format!("EXECUTE v((SELECT {value}))")), "{value}");
    }
}

#[test]
fn names_are_looked_up_each_time() {
    let connection = connect();
    let query = "SELECT half FROM t WHERE id = $1";
    let half = || {
        let rows = connection.query_with(query, params![3]).unwrap();
        rows.rows::<(Option<f64>,)>().unwrap()[0].0
    };
    for _ in 0..3 {
        assert_eq!(half(), Some(1.5));
    }
    connection.execute("CREATE TEMPORARY TABLE t AS SELECT 3 AS id, 0.25 AS half").unwrap();
    for _ in 0..3 {
        assert_eq!(half(), Some(0.25));
    }
    connection.execute("DROP TABLE t").unwrap();
    assert_eq!(half(), Some(1.5));
    // The third time of the first table, the second and the third of the other.
    assert_eq!(figure(&connection, "plan_hits"), 3);
}

#[test]
fn a_plan_that_is_kept_keeps_no_rows() {
    let connection = connect();
    let query = "SELECT count(*) FROM t WHERE id > $1";
    for _ in 0..3 {
        answer(&connection, query, params![5]).unwrap();
    }
    let before = figure(&connection, "reserved");
    connection.execute("DROP VIEW v; DROP TABLE t").unwrap();
    assert!(figure(&connection, "reserved") + 250_000 < before);
    assert!(answer(&connection, query, params![5]).unwrap_err().contains("table 't'"));
}
