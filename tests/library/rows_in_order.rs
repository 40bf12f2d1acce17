//! Answers come in the order of the rows that they are read from, whatever the threads and the memory.

use super::{builder, numbers};

const ROWS: i64 = 1_000_000;

#[test]
fn an_answer_comes_in_the_order_of_its_rows() {
    for limit_bytes in [48 << 20, usize::MAX >> 1] {
        for threads in [1, 2, 3, 8] {
            let database = builder().threads(threads).memory_limit(limit_bytes).build().unwrap();
            let connection = database.connect();
            let made = format!("CREATE TABLE t AS SELECT value * 2 AS i FROM range({ROWS})");
            connection.execute(&made).unwrap();
            let all = |from: i64, to: i64| (from..to).map(|i| Some(i * 2));

            let answer = numbers(&connection, "SELECT i FROM t");
            assert!(answer.into_iter().eq(all(0, ROWS)), "{threads} threads");
            let answer = numbers(&connection, "SELECT i - 2 FROM t WHERE i % 3 = 2");
            let expected = all(0, ROWS).flatten().filter(|i| i % 3 == 0).map(Some);
            assert!(answer.into_iter().eq(expected.take_while(|i| *i < Some(2 * ROWS - 2))));
            let both =
                "SELECT i FROM t WHERE i >= 100000 UNION ALL SELECT i FROM t WHERE i < 100000";
            let answer = numbers(&connection, both);
            assert!(answer.into_iter().eq(all(50_000, ROWS).chain(all(0, 50_000))));
            let answer = numbers(&connection, "SELECT i FROM t LIMIT 70000 OFFSET 345678");
            assert!(answer.into_iter().eq(all(345_678, 415_678)));
            drop(connection);
        }
    }
}

#[test]
fn an_error_in_an_answer_is_no_end() {
    let connection = builder().threads(2).build().unwrap().connect();
    let made = format!("CREATE TABLE t AS SELECT value AS i FROM range({ROWS})");
    connection.execute(&made).unwrap();
    let text = "CASE WHEN i = 900000 THEN 'x' ELSE CAST(i AS VARCHAR) END";
    let rows = connection.query(&format!("SELECT CAST({text} AS BIGINT) FROM t")).unwrap();
    let error = rows.collect().unwrap_err().to_string();
    assert!(error.contains("'x'"), "{error}");
}
