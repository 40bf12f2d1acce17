//! Parts of matrix expressions are remembered, and stand in other expressions only while all that they read is as it was.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use relatrix::matrix::{Matrix, Shape};
use relatrix::{Connection, Parameters, params};

use super::{builder, figure, number};

/// A connection that remembers however quickly it came, and one that never does.
fn pair() -> [Connection; 2] {
    let with = |name: &str, value: &str| {
        let builder = builder().threads(2);
        builder.set(name, value).unwrap().build().unwrap().connect()
    };
    [with("result_cache_after_ms", "0"), with("result_cache", "off")]
}

/// The lines of a plan.
fn plan(connection: &Connection, query: &str) -> String {
    let rows = connection.query(&format!("EXPLAIN {query}")).unwrap();
    let rows = rows.rows::<(String, String)>().unwrap();
    rows.into_iter().map(|(_, plan)| plan).collect::<Vec<_>>().join("\n")
}

/// The entries of a matrix, each to its last bit.
fn entries(connection: &Connection, expression: &str) -> Vec<String> {
    let query = format!("SELECT * FROM ENTRIES({expression})");
    let batches = connection.query(&query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let batches = batches.collect().unwrap();
    let shown = |batch: &relatrix::arrow::array::RecordBatch| {
        let columns = batch.columns().iter();
        columns.map(|column| format!("{column:?}")).collect::<String>()
    };
    batches.iter().map(shown).collect()
}

/// Asks both for an expression, and whether what the first remembers was of use.
fn compared(pair: &[Connection; 2], expression: &str) -> bool {
    let [remembers, computes] = pair;
    let before = figure(remembers, "cache_reused");
    let found = entries(remembers, expression);
    assert_eq!(found, entries(computes, expression), "{expression}");
    figure(remembers, "cache_reused") > before
}

#[test]
fn what_one_expression_has_computed_is_not_computed_in_another() {
    let pair = pair();
    for connection in &pair {
        connection
            .execute("CREATE MATRIX g = rand(60, 60, 1); CREATE MATRIX s = g + t(g)")
            .unwrap();
    }
    for (first, second) in [
        ("inv(g)", "abs(inv(g)) + 1"),
        ("svd(g).s", "svd(g).u[:, 1:3]"),
        ("eigh(s).values", "t(eigh(s).vectors) * 2"),
        ("g @ s @ g", "row_sums(exp(g @ s @ g / 1000))"),
        (
            "ITERATE(r => ones(60, 1), g @ r / norm(g @ r), times => 9)",
            "-ITERATE(r => ones(60, 1), g @ r / norm(g @ r), times => 9)",
        ),
        ("expm(g / 60)", "trace(expm(g / 60) @ s)"),
    ] {
        assert!(!compared(&pair, first), "{first}");
        assert!(compared(&pair, second), "{second}");
    }
    // Other rounds are other values, though the steps of a round read alike.
    assert!(!compared(&pair, "ITERATE(r => ones(60, 1), g @ r / norm(g @ r), times => 8)"));
    let known = plan(&pair[0], "SELECT * FROM MATRIX(inv(g) + 1)");
    assert!(known.contains("remembered(inv(g))"), "{known}");
    // Who is explained, and how it ran, leaves nothing behind.
    for _ in 0..2 {
        let analyzed = plan(&pair[0], "ANALYZE SELECT * FROM MATRIX(det(3 * g) + 1)");
        assert!(!analyzed.contains("remembered"), "{analyzed}");
    }
    assert!(!plan(&pair[1], "SELECT * FROM MATRIX(inv(g) + 1)").contains("remembered"));
}

#[test]
fn a_part_of_what_has_changed_is_computed_again() {
    let pair = pair();
    let all = |statement: &str| {
        pair.iter().for_each(|connection| {
            connection.execute(statement).unwrap();
        });
    };
    all("CREATE TABLE p AS SELECT value AS id, sin(value) AS a, cos(value) AS b FROM range(500);
         CREATE VIEW v AS SELECT a, b FROM p; CREATE MATRIX g = rand(40, 40, 1)");
    let of_matrix = "det(g @ g) + sum(g @ g)";
    let of_table = "inv(t((SELECT a, b FROM p)) @ (SELECT a, b FROM p))";
    let of_view = "inv(t(v) @ v)";
    for (expression, part) in [
        (of_matrix, "g @ g"),
        (of_table, "t((SELECT a, b FROM p)) @ (SELECT a, b FROM p)"),
        (of_view, "t(v) @ v"),
    ] {
        compared(&pair, part);
        assert!(compared(&pair, expression), "{expression}");
    }
    all("CREATE OR REPLACE MATRIX g = rand(40, 40, 2)");
    assert!(!compared(&pair, of_matrix));
    all("INSERT INTO p VALUES (500, 1, 2)");
    assert!(!compared(&pair, of_table));
    all("UPDATE p SET b = 3 WHERE id = 7");
    assert!(!compared(&pair, of_table));
    all("DROP VIEW v; CREATE VIEW v AS SELECT b, a FROM p");
    assert!(!compared(&pair, of_view));
    // A temporary table of the same name is another one.
    all("CREATE TEMPORARY TABLE p AS SELECT 1.0 AS a, 2.0 AS b UNION ALL SELECT 3.0, 5.0");
    assert!(!compared(&pair, of_table));
    all("DROP TABLE p");
    assert!(compared(&pair, &format!("2 * {of_table}")));
    // So is what is asked under other settings, and what comes out otherwise each time.
    all("SET rewrites = off");
    assert!(!compared(&pair, of_table));
    let dice = "SELECT CAST(1e9 * x AS BIGINT) FROM MATRIX(trace(inv(rand(40, 40)))) AS d(i, x)";
    assert_ne!(number(&pair[0], dice), number(&pair[0], dice));
}

#[test]
fn parameters_tell_parts_from_one_another() {
    let pair = pair();
    let query = "SELECT * FROM MATRIX(1 + col_sums((SELECT x FROM p WHERE x < $1)))";
    let asked = |connection: &Connection, bound: f64| {
        let rows = connection.query_with(query, params![bound]).unwrap();
        rows.rows::<(i64, f64)>().unwrap()[0].1
    };
    let given = |connection: &Connection, cell: f64| {
        let x = Matrix::from_row_major(Shape::new(1, 1), vec![cell]).unwrap();
        let parameters = Parameters::new().matrix("x", x);
        let rows = connection.query_with("SELECT * FROM MATRIX(1 + inv($x))", parameters).unwrap();
        rows.rows::<(i64, f64)>().unwrap()[0].1
    };
    for connection in &pair {
        connection.execute("CREATE TABLE p AS SELECT value::DOUBLE AS x FROM range(100)").unwrap();
        assert_eq!([10.0, 20.0, 10.0].map(|bound| asked(connection, bound)), [46.0, 191.0, 46.0]);
        assert_eq!([2.0, 4.0, 2.0].map(|cell| given(connection, cell)), [1.5, 1.25, 1.5]);
    }
}

#[test]
fn labels_are_made_once_for_each_version_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stars.csv");
    fs::write(&path, "u,i,stars\nb,x,1\na,y,2\nb,y,3\n").unwrap();
    // A file that has just been written may change and keep its time.
    sleep(Duration::from_millis(120));
    let pair = pair();
    let ratings = format!("(SELECT * FROM '{}' ROWS BY u COLUMNS BY i)", path.display());
    assert!(!compared(&pair, &format!("row_sums({ratings})")));
    let other = format!("row_maxs({ratings}) * 10");
    let explained = plan(&pair[0], &format!("SELECT * FROM ENTRIES({other})"));
    assert!(explained.contains("remembered(query)"), "{explained}");
    assert!(!explained.contains("DataSourceExec"), "{explained}");
    assert!(compared(&pair, &other));
    let wide = format!("SELECT u, y FROM MATRIX({ratings}) ORDER BY u");
    for _ in 0..2 {
        let rows = pair[0].query(&wide).unwrap().rows::<(String, f64)>().unwrap();
        assert_eq!(rows, [("a".to_owned(), 2.0), ("b".to_owned(), 3.0)]);
    }
    fs::write(&path, "u,i,stars\nc,x,1\na,y,2\nb,y,3\n").unwrap();
    sleep(Duration::from_millis(120));
    assert!(!compared(&pair, &other));
    assert_eq!(number(&pair[0], &format!("SELECT count(*) FROM MATRIX({ratings})")), 3);
}

#[test]
fn a_matrix_that_is_kept_under_a_name_is_not_remembered_too() {
    let [connection, _] = pair();
    connection.execute("CREATE MATRIX g = rand(50, 50, 1); CREATE MATRIX w = inv(g)").unwrap();
    assert_eq!(figure(&connection, "answers"), 0);
    // Parts of it are.
    connection.execute("CREATE MATRIX h = inv(g @ g) + 1").unwrap();
    assert!(figure(&connection, "answers") > 0);
    connection.execute("SET result_cache = 'off'").unwrap();
    let explained = plan(&connection, "CREATE MATRIX v = inv(g @ g) + 2");
    assert!(!explained.contains("remembered"), "{explained}");
}
