//! Texts that many rows share are kept as codes once they were read twice, which no answer shows.

use relatrix::Connection;
use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;

use super::{builder, figure};

const MAKE: &str = "CREATE TABLE t AS SELECT value AS id, 'customer number ' || ((value * 7919) % 700) AS who,
       CASE WHEN value % 11 > 0 THEN 'n' || ((value * 31) % 900) END AS item, value % 17 AS amount FROM range(40000)";

/// Over `t`; the texts are keys of groups, of joins and of matrices, sorted, compared and given.
const QUERIES: [&str; 20] = [
    "SELECT who, count(*), sum(amount) FROM t GROUP BY who ORDER BY who",
    "SELECT item, count(*), min(id) FROM t GROUP BY item ORDER BY item NULLS FIRST",
    "SELECT who, item, sum(amount) FROM t GROUP BY who, item ORDER BY 3 DESC, 1, 2 LIMIT 50",
    "SELECT who, amount, count(*) FROM t WHERE id % 100 = 3 GROUP BY who, amount ORDER BY 1, 2",
    "SELECT count(*) FROM t WHERE who = 'customer number 77'",
    "SELECT count(*) FROM t WHERE who = 'nobody' OR item = 'n9'",
    "SELECT count(*), sum(id) FROM t WHERE item LIKE 'n1%' AND who <> 'customer number 5'",
    "SELECT count(*) FROM t WHERE item IN ('n1', 'n2', 'n30') OR item IS NULL",
    "SELECT count(*) FROM t WHERE item > who",
    "SELECT min(who), max(item), count(DISTINCT item), count(item) FROM t",
    "SELECT amount, min(who), max(item) FROM t GROUP BY amount ORDER BY amount",
    "SELECT DISTINCT who FROM t ORDER BY who DESC LIMIT 7",
    "SELECT id, who, item FROM t WHERE amount = 3 ORDER BY who, item, id LIMIT 40",
    "SELECT count(*) FROM (SELECT * FROM t) AS a JOIN (SELECT item, max(id) AS m FROM t GROUP BY item) AS b ON a.item = b.item WHERE a.id < b.m",
    "SELECT upper(who) AS u, length(item) AS l, count(*) FROM t GROUP BY u, l ORDER BY u, l LIMIT 30",
    "SELECT who, row_number() OVER (PARTITION BY who ORDER BY id) AS place FROM t ORDER BY who, place LIMIT 20",
    "SELECT * FROM MATRIX(row_sums((SELECT who, id, amount FROM t ROWS BY who COLUMNS BY id)))",
    "SELECT * FROM ENTRIES((SELECT item, id, amount FROM t WHERE id < 300 AND item IS NOT NULL ROWS BY item COLUMNS BY id))",
    "SELECT * FROM MATRIX(col_sums((SELECT id, who, amount FROM t ROWS BY id COLUMNS BY who)))",
    "SELECT a.who, b.amount FROM (SELECT * FROM t) AS a JOIN (SELECT * FROM t) AS b ON a.id = b.id AND a.who = b.who WHERE a.id < 20 ORDER BY a.id",
];

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    let batches = rows.collect().unwrap_or_else(|error| panic!("{query}: {error}"));
    concat_batches(&schema, &batches).unwrap()
}

fn connect(memory_limit: &str) -> Connection {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    builder.set("memory_limit", memory_limit).unwrap().build().unwrap().connect()
}

/// Asks each query of tables whose texts become codes, and of one that was not read before.
fn ask_all(connection: &Connection, about: &str) {
    for query in QUERIES {
        let fresh = "CREATE OR REPLACE TABLE fresh AS SELECT * FROM t";
        connection.execute(fresh).unwrap();
        let expected = answer(connection, &query.replace("FROM t", "FROM fresh AS t"));
        for round in 0..2 {
            assert_eq!(answer(connection, query), expected, "{about}, round {round}: {query}");
        }
    }
}

#[test]
fn answers_are_the_same_whether_texts_are_codes_or_not() {
    let connection = connect("1GB");
    connection.execute(MAKE).unwrap();
    let before = figure(&connection, "reserved");
    ask_all(&connection, "as it was made");
    connection.execute("DROP TABLE fresh").unwrap();
    assert!(figure(&connection, "reserved") < before);
    for change in [
        "INSERT INTO t SELECT id + 40000, 'new ' || who, item, amount FROM t WHERE id < 900",
        "DELETE FROM t WHERE who = 'customer number 6' OR item = 'n7'",
        "UPDATE t SET who = 'customer number 6', item = NULL WHERE id BETWEEN 100 AND 200",
        "INSERT INTO t SELECT id + 80000, who, item, amount FROM t",
    ] {
        connection.execute(change).unwrap();
        ask_all(&connection, change);
    }
}
