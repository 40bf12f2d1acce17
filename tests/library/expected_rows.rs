//! What EXPLAIN ANALYZE says of estimates.

use relatrix::Connection;

use super::builder;

/// Orders refer to customers and these to regions, evenly, and values are spread evenly too.
fn evenly(threads: usize) -> Connection {
    let connection = builder().threads(threads).build().unwrap().connect();
    connection
        .execute(
            "SET result_cache = off;
             CREATE TABLE region AS SELECT value AS region, value * 10 AS r FROM range(5);
             CREATE TABLE customer AS SELECT value AS customer, value % 5 AS region FROM range(200);
             CREATE TABLE orders AS SELECT value AS id, value % 200 AS customer, value % 10 AS kind
                 FROM range(4000)",
        )
        .unwrap();
    connection
}

/// The rows of EXPLAIN ANALYZE.
fn analyzed(connection: &Connection, query: &str) -> Vec<(String, String)> {
    let rows = connection.query(&format!("EXPLAIN ANALYZE {query}"));
    rows.unwrap_or_else(|error| panic!("{query}: {error}")).rows().unwrap()
}

/// Of each operator of which something is expected: its name, the rows expected, and those that came.
fn operators(rows: &[(String, String)]) -> Vec<(String, String, String)> {
    let lines = rows[0].1.lines().filter_map(|line| {
        let (operator, rest) = line.split_once(", expected_rows=")?;
        let (expected, rest) = rest.split_once(", metrics=[output_rows=")?;
        let (actual, _) = rest.split_once(", ")?;
        let name = operator.trim().split([':', ',']).next()?;
        Some((name.to_owned(), expected.to_owned(), actual.to_owned()))
    });
    lines.collect()
}

/// The last row, if it is that of the worst estimate.
fn worst(rows: &[(String, String)]) -> Option<&str> {
    rows.last().filter(|row| row.0 == "Estimates").map(|row| row.1.as_str())
}

/// Where each estimate is right, an operator with that of another would show: no two of these have as many rows.
#[test]
fn each_operator_is_shown_with_its_own_estimate() {
    let queries = [
        ("SELECT kind, count(*) FROM orders GROUP BY kind", 2),
        ("SELECT id + 1 FROM orders WHERE kind = 3 ORDER BY id", 2),
        ("SELECT region, count(*) FROM orders JOIN customer USING (customer) GROUP BY region", 4),
        (
            "SELECT o.id FROM orders AS o, customer AS c, region AS r
             WHERE o.customer = c.customer AND c.region = r.region",
            5,
        ),
        ("SELECT * FROM customer LEFT JOIN region ON customer.region = region.region", 3),
        ("SELECT * FROM orders WHERE customer IN (SELECT customer FROM customer)", 3),
        (
            "SELECT o.id, rank() OVER (PARTITION BY kind ORDER BY id) FROM orders AS o
             JOIN (SELECT customer AS c, count(*) AS n FROM orders GROUP BY customer) AS s
             ON o.customer = s.c",
            4,
        ),
        ("SELECT id FROM orders UNION ALL SELECT customer FROM customer", 3),
        (
            "WITH few AS (SELECT customer, count(*) AS n FROM orders GROUP BY customer)
             SELECT a.n FROM few AS a JOIN few AS b ON a.customer = b.customer + 0 * b.n",
            1,
        ),
    ];
    let settings = [
        "SET join_order = 'cost'",
        "SET spilling_groups = off",
        "SET join_order = 'written'",
        "SET join_order = 'cost'; SET memory_limit = '32MB'",
        "SET shared_plans = off",
    ];
    for threads in [1, 4] {
        let connection = evenly(threads);
        for setting in settings {
            connection.execute(setting).unwrap();
            for (query, least) in queries {
                let rows = analyzed(&connection, query);
                let operators = operators(&rows);
                assert!(operators.len() >= least, "{query}, {setting}: {}", rows[0].1);
                for (name, expected, actual) in &operators {
                    assert_eq!(expected, actual, "{name} of {query}, {setting}: {}", rows[0].1);
                }
                let worst = worst(&rows).unwrap();
                assert!(worst.starts_with("worst q-error 1.00: "), "{query}: {worst}");
            }
        }
    }
}

#[test]
fn the_worst_estimate_is_named() {
    let connection = evenly(2);
    connection
        .execute("CREATE TABLE alike AS SELECT value % 50 AS a, value % 50 AS b FROM range(5000)")
        .unwrap();
    // Taken for half independent of one another, which they are not.
    let rows = analyzed(&connection, "SELECT a FROM alike WHERE a = 7 AND b = 7");
    let worst = worst(&rows).unwrap();
    let (error, rest) = worst["worst q-error ".len()..].split_once(": ").unwrap();
    assert!(error.parse::<f64>().unwrap() > 10.0, "{worst}");
    assert!(rest.contains(" rows expected, 100 came of "), "{worst}");
    assert!(rest.contains("= 7"), "{worst}");
}

#[test]
fn rows_that_nobody_asked_for_are_no_error() {
    let connection = evenly(2);
    // A batch is enough; all were expected.
    let rows = analyzed(&connection, "SELECT id FROM orders LIMIT 3");
    assert_eq!(worst(&rows), None, "{rows:?}");
    // Rows that were not expected are one all the same.
    connection.execute("CREATE TABLE many AS SELECT value % 2 AS a FROM range(5000)").unwrap();
    let rows =
        analyzed(&connection, "SELECT * FROM (SELECT * FROM many WHERE a + a = 2) LIMIT 2400");
    assert!(operators(&rows).len() == 2, "{rows:?}");
    // Nobody reads the second side where the first is empty, nor pages that the first one's keys rule out.
    for from in [
        "(SELECT * FROM customer WHERE customer % 7 = 9) AS c JOIN orders USING (customer)",
        "'examples/data/airlines.parquet' AS a JOIN 'examples/data/flights.parquet' AS f USING (carrier)
         WHERE a.carrier = 'OO'",
    ] {
        let rows = analyzed(&connection, &format!("SELECT count(*) FROM {from}"));
        let worst = worst(&rows).unwrap();
        assert!(!worst.contains("of DataSourceExec"), "{worst}: {}", rows[0].1);
    }
}

#[test]
fn nothing_is_expected_where_nothing_is_known() {
    let connection = evenly(2);
    for query in [
        "SELECT value FROM range(10) AS t(value) WHERE value > 3",
        "SELECT unnest([1, 2, 3])",
        "SELECT * FROM MATRIX(ones(2, 2))",
        "WITH RECURSIVE n AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM n WHERE a < 5) SELECT * FROM n",
    ] {
        let rows = analyzed(&connection, query);
        assert!(!rows[0].1.contains("expected_rows"), "{}", rows[0].1);
        assert_eq!(worst(&rows), None, "{query}");
    }
}

#[test]
fn json_shows_what_was_expected_too() {
    let connection = evenly(2);
    let rows = connection
        .query("EXPLAIN ANALYZE FORMAT pgjson SELECT kind, count(*) FROM orders GROUP BY kind");
    let rows = rows.unwrap().rows::<(String, String)>().unwrap();
    let plan: serde_json::Value = serde_json::from_str(&rows[0].1).unwrap();
    assert!(plan.to_string().contains("expected_rows=10\""), "{plan}");
    assert!(worst(&rows).is_some());
}
