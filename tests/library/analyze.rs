//! ANALYZE: better estimates, and the same answers.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use relatrix::Connection;

use crate::{connection, error, number};

use super::builder;

/// Pages are visited the more often the lower their number. What is returned lies together, where a sample of a table does not
/// meet it, and that of a file does too often.
const SKEWED: &str = "SET result_cache = off;
     CREATE TABLE visit AS SELECT value AS id,
         CAST(floor(power(value * 7919 % 100000 / 100000.0, 3) * 300) AS BIGINT) AS page,
         CASE WHEN value BETWEEN 200 AND 380 THEN 'return'
             WHEN value % 20 < 16 THEN 'view' WHEN value % 20 < 19 THEN 'buy' END AS kind
         FROM range(100000);
     CREATE TABLE few AS SELECT * FROM visit WHERE id % 100 = 0";

/// All that is returned.
const UNSEEN: &str = "SELECT id FROM visit WHERE kind = 'return'";

/// The worst q-error of a query.
fn q_error(connection: &Connection, query: &str) -> f64 {
    let rows = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
    let rows = rows.rows::<(String, String)>().unwrap();
    let (kind, text) = rows.last().unwrap();
    assert_eq!(kind, "Estimates", "{rows:?}");
    text["worst q-error ".len()..].split(':').next().unwrap().parse().unwrap()
}

#[test]
fn estimates_of_skewed_columns_are_good_and_better_once_all_rows_are_read() {
    let connection = connection();
    connection.execute(SKEWED).unwrap();
    let queries = [
        "SELECT id FROM visit WHERE page = 0",
        "SELECT id FROM visit WHERE page < 10",
        "SELECT id FROM visit WHERE page <> 0 AND kind = 'view'",
        "SELECT id FROM visit WHERE page IN (0, 1, 2)",
        "SELECT id FROM visit WHERE kind = 'buy'",
        "SELECT id FROM visit WHERE page NOT BETWEEN 0 AND 100",
        "SELECT visit.id FROM visit JOIN few ON visit.page = few.page",
        "SELECT visit.id FROM visit JOIN few ON visit.page = few.page AND few.page = 1",
    ];
    for query in queries {
        let error = q_error(&connection, query);
        assert!(error < 1.6, "{query}: {error}");
    }
    assert!(q_error(&connection, UNSEEN) > 10.0);
    connection.execute("ANALYZE visit").unwrap();
    // Whoever is connected knows it.
    let other = connection.clone();
    for query in queries.into_iter().chain([UNSEEN]) {
        let error = q_error(&other, query);
        assert!(error < 1.4, "{query}: {error}");
    }
}

#[test]
fn what_is_known_of_a_table_holds_until_it_has_grown_by_a_tenth_or_changed() {
    let connection = connection();
    connection.execute(SKEWED).unwrap();
    let insert = |rows: i64| {
        connection
            .execute(&format!("INSERT INTO visit SELECT value, -7, 'new' FROM range({rows})"))
            .unwrap();
    };
    connection.execute("ANALYZE visit").unwrap();
    insert(6_000);
    assert!(q_error(&connection, UNSEEN) < 1.4);
    let new = "SELECT id FROM visit WHERE kind = 'new'";
    assert!(q_error(&connection, new) > 10.0);
    insert(6_000);
    assert!(q_error(&connection, UNSEEN) > 10.0 && q_error(&connection, new) < 1.4);
    connection.execute("ANALYZE visit; UPDATE visit SET kind = 'old' WHERE kind = 'new'").unwrap();
    assert!(q_error(&connection, UNSEEN) > 10.0);
    assert!(q_error(&connection, "SELECT id FROM visit WHERE kind = 'old'") < 1.4);
}

#[test]
fn files_are_analyzed_until_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let connection = connection();
    connection.execute(SKEWED).unwrap();
    for format in ["parquet", "csv", "arrow"] {
        let path = folder.path().join("visit").with_extension(format);
        let path = path.to_str().unwrap();
        let copy = |rows| format!("COPY (SELECT * FROM visit WHERE id < {rows}) TO '{path}'");
        connection.execute(&copy(90_000)).unwrap();
        let query = UNSEEN.replace("visit", &format!("'{path}'"));
        let before = q_error(&connection, &query);
        connection.execute(&format!("ANALYZE '{path}'")).unwrap();
        let after = q_error(&connection, &query);
        assert!(before > 5.0 && after < 1.1, "{format}: {before} before, {after} after");
        connection.execute(&copy(95_000)).unwrap();
        assert!(q_error(&connection, &query) > 5.0, "{format}");
    }
}

#[test]
fn all_tables_are_analyzed_at_once() {
    let connection = connection();
    connection.execute(SKEWED).unwrap();
    connection
        .execute(
            "CREATE TEMPORARY TABLE own AS SELECT * FROM visit;
             CREATE SCHEMA other; CREATE TABLE other.visit AS SELECT * FROM visit;
             CREATE VIEW returns AS SELECT id, kind FROM visit; CREATE TABLE nothing (a INT, b TEXT);
             CREATE TABLE lists AS SELECT [1, 2] AS a, {'x': 1} AS b, NULL AS c, 0.5 AS d;
             ANALYZE",
        )
        .unwrap();
    for table in ["visit", "own", "other.visit", "returns"] {
        let error = q_error(&connection, &UNSEEN.replace("visit", table));
        assert!(error < 1.1, "{table}: {error}");
    }
    assert_eq!(number(&connection, "SELECT count(*) FROM nothing WHERE a = 1"), 0);
    assert_eq!(number(&connection, "SELECT count(*) FROM lists WHERE d < 1 AND c IS NULL"), 1);
}

#[test]
fn what_cannot_be_analyzed_says_why() {
    let connection = connection();
    connection.execute("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT * FROM t").unwrap();
    assert_eq!(error(&connection, "ANALYZE nowhere"), "there is no table 'nowhere'");
    let message = error(&connection, "ANALYZE v");
    assert_eq!(message, "view 'v': it has no rows of its own; ANALYZE the tables that it reads");
    assert!(error(&connection, "ANALYZE 'nowhere.csv'").contains("no such file"));
    for clause in ["(a)", "FOR COLUMNS", "NOSCAN"] {
        let message = error(&connection, &format!("ANALYZE t {clause}"));
        assert!(message.starts_with("ANALYZE takes a table or none"), "{clause}: {message}");
    }
    connection.execute("SET memory_limit = '8MB'; ANALYZE TABLE t").unwrap();
}

/// A value that is the more likely the smaller it is, or none.
fn value(random: &mut SmallRng) -> String {
    match random.random_range(0..10) {
        0 => "NULL".to_owned(),
        _ => ((random.random::<f64>().powi(4) * 50.0) as i64).to_string(),
    }
}

/// A condition on a column.
fn condition(random: &mut SmallRng, column: &str) -> String {
    let mut value = || value(random);
    let (one, other) = (value(), value());
    match random.random_range(0..8) {
        0 => format!("{column} = {one}"),
        1 => format!("{column} <> {one}"),
        2 => format!("{column} IN ({one}, {other})"),
        3 => format!("{column} NOT IN ({one}, {other})"),
        4 => format!("{column} BETWEEN {one} AND {other}"),
        5 => format!("{column} NOT BETWEEN {one} AND {other}"),
        6 => format!("({column} < {one} OR {column} IS NULL)"),
        _ => format!("{column} >= {one}"),
    }
}

#[test]
fn no_answer_changes() {
    let connection = builder().threads(2).build().unwrap().connect();
    connection.execute("SET result_cache = off").unwrap();
    let mut found = 0;
    for seed in 0..12 {
        let random = &mut SmallRng::seed_from_u64(seed);
        for table in ["a", "b", "c"] {
            let rows: Vec<String> = (0..random.random_range(1..400))
                .map(|row| {
                    format!(
                        "({row}, {}, {}, 'x' || {})",
                        value(random),
                        value(random),
                        value(random)
                    )
                })
                .collect();
            let create = format!(
                "CREATE OR REPLACE TABLE {table} (id INT, k INT, v DOUBLE, t TEXT);
                 INSERT INTO {table} VALUES {}",
                rows.join(", ")
            );
            connection.execute(&create).unwrap();
        }
        let queries: Vec<String> = (0..20)
            .map(|_| {
                let conditions: Vec<String> = (0..random.random_range(1..4))
                    .map(|_| {
                        let table = ["a", "b", "c"][random.random_range(0..3)];
                        let column = ["k", "v"][random.random_range(0..2)];
                        condition(random, &format!("{table}.{column}"))
                    })
                    .collect();
                let join = [
                    "a.k = b.k AND b.t = c.t",
                    "a.k = b.k AND b.k = c.k",
                    "a.k = b.k AND a.t = b.t AND b.v = c.v",
                ];
                format!(
                    "SELECT count(*), sum(a.id + b.id * 3 + c.id * 7) FROM a, b, c WHERE {} AND {}",
                    join[random.random_range(0..3)],
                    conditions.join(" AND ")
                )
            })
            .collect();
        let answers = || -> Vec<(i64, Option<i64>)> {
            let answer = |query: &String| {
                let rows =
                    connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
                rows.rows().unwrap()[0]
            };
            queries.iter().map(answer).collect()
        };
        let before = answers();
        connection.execute("ANALYZE").unwrap();
        for ((query, before), after) in queries.iter().zip(&before).zip(answers()) {
            assert_eq!(*before, after, "{query}, seed {seed}");
        }
        found += before.iter().filter(|(count, _)| *count > 0).count();
    }
    assert!(found > 60, "{found}");
}

#[test]
fn groups_by_what_is_computed_are_no_more_than_it_can_be() {
    let connection = connection();
    let table = "SET result_cache = off;
         CREATE TABLE sale AS SELECT value AS id, DATE '2024-01-01' + CAST(value % 700 AS INT) AS day
             FROM range(100000)";
    connection.execute(table).unwrap();
    let queries = [
        // No more months of years than days; else there would be 700 times 12.
        ("date_part('year', day), date_part('month', day)", 700.0 / 23.0),
        ("date_part('month', day)", 1.0),
        ("id % 10", 2.0),
        ("CASE WHEN id < 7 THEN 'few' WHEN id % 2 = 0 THEN 'even' ELSE 'odd' END", 1.0),
        ("id > 50000, day IS NULL, id % 3 = 0", 2.0),
    ];
    for (keys, expected) in queries {
        let error = q_error(&connection, &format!("SELECT count(*) FROM sale GROUP BY {keys}"));
        assert!((error - expected).abs() < 0.01 * expected, "{keys}: {error}");
    }
}
