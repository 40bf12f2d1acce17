//! Batches of a table that a condition rules out are not read, and no row of the others is lost.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use relatrix::Connection;

use super::{builder, number};

/// Values that grow with the row numbers, that have nothing to do with them, and NULLs in long runs.
fn rows(first: i64, end: i64) -> String {
    format!(
        "SELECT value AS id, CAST(value / 100 AS SMALLINT) AS hundred, value * 7919 % 1009 AS scattered,
           CASE WHEN CAST(value / 9000 AS BIGINT) % 2 = 1 THEN value END AS often_null,
           CAST(value / 4.0 AS DECIMAL(12, 2)) AS price, DATE '2024-01-01' + CAST(value / 500 AS INT) AS day,
           CAST(value AS TIMESTAMP) AS at, value / 2.0 AS half, 'n' || CAST(value / 8000 AS BIGINT) AS text
         FROM range({first}, {end})"
    )
}

fn connection() -> Connection {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let connection = builder.build().unwrap().connect();
    connection.execute(&format!("CREATE TABLE t AS {}", rows(0, 60_000))).unwrap();
    connection
}

/// The number of batches that a query reads.
fn batches(connection: &Connection, query: &str) -> usize {
    let rows = connection.query(&format!("EXPLAIN {query}")).unwrap();
    let plan: String =
        rows.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
    let (_, sizes) = plan.split_once("partition_sizes=[").unwrap();
    let (sizes, _) = sizes.split_once(']').unwrap();
    sizes.split(", ").map(|size| size.parse::<usize>().unwrap()).sum()
}

#[test]
fn no_row_is_lost() {
    let connection = connection();
    let mut random = SmallRng::seed_from_u64(5);
    let terms = [
        "id = 31000",
        "id > 58000",
        "id BETWEEN 7000 AND 9000",
        "id IN (3, 30000, 59999)",
        "NOT id < 59000",
        "hundred = 12",
        "hundred >= 590",
        "scattered = 17",
        "scattered < 0",
        "often_null IS NULL",
        "often_null IS NOT NULL",
        "often_null > 50000",
        "often_null = 9001",
        "price = 250.25",
        "price < 12",
        "price > 14990.5",
        "day = DATE '2024-02-03'",
        "day > DATE '2024-04-20'",
        "day < '2023-12-31'",
        "at >= TIMESTAMP '1970-01-01 16:00:00'",
        "half = 12.5",
        "half > 29000",
        "text = 'n3'",
        "text LIKE 'n7%'",
        "id + 1 = 5",
        "id % 1000 = 7",
        "id <> 5",
        "id IS DISTINCT FROM 5",
        "id = often_null",
        "id < scattered",
        "abs(id) < 10",
        "NULL",
        "id = NULL",
        "true",
        "id > 1e9",
        "id = 12.5",
        "CAST(id AS TEXT) = '77'",
    ];
    let changes = [
        "DELETE FROM t WHERE id BETWEEN 10000 AND 30000",
        "UPDATE t SET often_null = id + 100000 WHERE id % 9000 = 0",
        "UPDATE t SET id = -id WHERE scattered = 17",
        &format!("INSERT INTO t {}", rows(100_000, 120_000)),
        "INSERT INTO t SELECT * FROM t WHERE id > 115000",
        "DELETE FROM t",
        &format!("INSERT INTO t {}", rows(-3_000, 20)),
    ];
    for change in [""].iter().chain(&changes) {
        if !change.is_empty() {
            connection.execute(change).unwrap();
        }
        let conjunctions = (0..150).map(|_| {
            let [one, other, third] = [(); 3].map(|()| *terms.choose(&mut random).unwrap());
            let join = *["AND", "OR", "AND NOT"].choose(&mut random).unwrap();
            format!("({one}) {join} (({other}) OR ({third}))")
        });
        for condition in terms.iter().map(|&term| term.to_owned()).chain(conjunctions) {
            let kept = format!("SELECT count(*) + coalesce(sum(id), 0) FROM t WHERE {condition}");
            // A FILTER reads all rows.
            let all = format!(
                "SELECT count(*) FILTER (WHERE {condition}) + coalesce(sum(id) FILTER (WHERE {condition}), 0) FROM t"
            );
            assert_eq!(
                number(&connection, &kept),
                number(&connection, &all),
                "{change}: {condition}"
            );
        }
    }
}

#[test]
fn batches_without_such_rows_are_not_read() {
    let connection = connection();
    let all = batches(&connection, "SELECT * FROM t");
    assert!(all >= 7, "{all}");
    for (condition, count) in [
        ("id = 31000", 1),
        ("31000 = id", 1),
        ("price = 250.25 AND scattered < 2000", 1),
        ("id < 0", 0),
        ("at < TIMESTAMP '1970-01-01 00:00:05'", 1),
        ("half = 12.5", all),
        ("id = 31000 OR half = 12.5", all),
    ] {
        let query = format!("SELECT half FROM t WHERE {condition}");
        assert_eq!(batches(&connection, &query), count, "{condition}");
    }
    // Of a table that has changed, too.
    connection
        .execute("DELETE FROM t WHERE id = 5; UPDATE t SET half = 0 WHERE id = 50000")
        .unwrap();
    connection.execute("INSERT INTO t (id) VALUES (31000)").unwrap();
    assert_eq!(batches(&connection, "SELECT half FROM t WHERE id = 31000"), 2);
    assert_eq!(batches(&connection, "SELECT half FROM t WHERE id = 5"), 1);
    let prepared = "PREPARE p AS SELECT count(*) FROM t WHERE id = $1; EXECUTE p(31000)";
    connection.execute(prepared).unwrap();
    assert_eq!(number(&connection, "EXECUTE p(31000)"), 2);
}

/// `rows_dropped` of the operators of a query that have this in their line, added up.
fn dropped(connection: &Connection, query: &str, operator: &str) -> f64 {
    let rows = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
    let plan: String =
        rows.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
    let metric = plan.lines().filter(|line| line.contains(operator)).map(|line| {
        let (_, figure) = line.split_once("rows_dropped=").unwrap_or_else(|| panic!("{plan}"));
        let figure = figure.split([',', ']']).next().unwrap();
        match figure.split_once(' ') {
            Some((figure, "K")) => figure.parse::<f64>().unwrap() * 1e3,
            _ => figure.parse().unwrap(),
        }
    });
    metric.sum()
}

#[test]
fn rows_that_no_join_needs_are_dropped_and_no_others() {
    let connection = connection();
    connection
        .execute(
            "CREATE TABLE few AS SELECT id AS few_id, scattered AS s, often_null AS n, text AS x FROM t WHERE id % 977 = 5;
             CREATE TABLE none AS SELECT id AS none_id FROM t WHERE id < 0",
        )
        .unwrap();
    let joins = [
        "t JOIN few ON id = few_id",
        "t JOIN few ON scattered = s",
        "t JOIN few ON often_null = n",
        "t JOIN few ON text = x AND id = few_id",
        "t JOIN few ON often_null IS NOT DISTINCT FROM n AND hundred = few_id / 100",
        "t LEFT JOIN few ON id = few_id",
        "few LEFT JOIN t ON id = few_id",
        "t FULL JOIN few ON id = few_id AND few_id > 900",
        "t JOIN few ON id = few_id JOIN t AS u ON u.id = few.s",
        "t JOIN none ON id = none_id",
    ];
    let conditions = [
        "t.scattered < 500",
        "t.scattered < 900 AND t.often_null > 3",
        "t.price > 70 OR t.hundred = 3",
    ];
    for join in joins {
        for condition in conditions {
            let query =
                format!("SELECT count(*) + coalesce(sum(t.id), 0) FROM {join} WHERE {condition}");
            let found = number(&connection, &query);
            connection.execute("SET fusion = off").unwrap();
            assert_eq!(found, number(&connection, &query), "{query}");
            connection.execute("RESET fusion").unwrap();
        }
    }
    let query = "SELECT sum(price) FROM t JOIN few ON scattered = s WHERE often_null > 5";
    assert!(dropped(&connection, query, "FilterExec: ") > 10_000.0);
    // Below a join without a filter the scan itself looks.
    let query = "SELECT sum(price) FROM t JOIN few ON scattered = s";
    assert!(dropped(&connection, query, "DataSourceExec: ") > 50_000.0);
    // By the keys of the few rows, batches are left out as well, and by what is first.
    let query = "SELECT sum(price) FROM t JOIN few ON id = few_id WHERE x = 'n7'";
    assert!(dropped(&connection, query, "DataSourceExec: ") > 30_000.0);
    let query = "SELECT * FROM t ORDER BY id LIMIT 3";
    assert!(dropped(&connection, query, "DataSourceExec: ") > 30_000.0);
}

#[test]
fn a_build_side_that_is_dealt_out_tells_its_keys_too() {
    let connection = connection();
    let query =
        "SELECT count(*) + sum(t.hundred) FROM t JOIN (SELECT id * 3 AS k FROM t) AS u ON t.id = k";
    let expected = number(&connection, query);
    let collected = "SET datafusion.optimizer.hash_join_single_partition_threshold";
    connection.execute(&format!("SET threads = 4; {collected} = 0; {collected}_rows = 0")).unwrap();
    assert_eq!(number(&connection, query), expected);
    let plan = connection.query(&format!("EXPLAIN {query}")).unwrap();
    let plan = plan.rows::<(String, String)>().unwrap();
    assert!(plan.iter().any(|(_, plan)| plan.contains("mode=Partitioned")), "{plan:?}");
    assert_eq!(dropped(&connection, query, "DataSourceExec: "), 40_000.0);
}
