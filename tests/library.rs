//! The library as its users see it.

use relatrix::{Database, ErrorKind, Parameters, params};

#[test]
fn a_query_yields_typed_rows() {
    let connection = Database::memory().unwrap().connect();
    let count = connection
        .execute("CREATE TABLE t (a INT, b TEXT, c DOUBLE); INSERT INTO t VALUES (1, 'x', NULL), (2, 'y', 2.5)")
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
    let connection = Database::memory().unwrap().connect();
    let error = connection.query("SELECT NULL::INT AS a").unwrap().rows::<(i32,)>().unwrap_err();
    assert_eq!(error.to_string(), "column 'a': NULL cannot be read as i32, but as Option<i32>");
    let error = connection.query("SELECT 'x' AS a").unwrap().rows::<(i32,)>().unwrap_err();
    assert_eq!(error.to_string(), "column 'a': Utf8 cannot be read as i32");
}

#[test]
fn parameters_are_put_in_place() {
    let connection = Database::memory().unwrap().connect();
    let rows = connection.query_with("SELECT $1 + $2, $3", params![1, 2, "x"]).unwrap();
    assert_eq!(rows.rows::<(i64, String)>().unwrap(), [(3, "x".to_owned())]);
    let named = Parameters::new().named("a", 5);
    let rows = connection.query_with("SELECT $a * 2", named).unwrap();
    assert_eq!(rows.rows::<(i64,)>().unwrap(), [(10,)]);
}

#[test]
fn a_blocking_call_works_inside_a_runtime() {
    let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
    outer.block_on(async {
        let connection = Database::memory().unwrap().connect();
        assert_eq!(connection.query("SELECT 1").unwrap().rows::<(i64,)>().unwrap(), [(1,)]);
    });
}

#[test]
fn a_cancelled_statement_says_so() {
    let connection = Database::memory().unwrap().connect();
    let rows = connection.query("SELECT max(value % 7) FROM range(1000000000000)").unwrap();
    rows.cancel_handle().cancel();
    assert!(matches!(rows.collect().unwrap_err().kind(), ErrorKind::Cancelled));
}
