//! Queries that are asked again and again are tried in other ways, and answer as they did.

use std::collections::BTreeSet;

use relatrix::Connection;
use relatrix::arrow::array::{AsArray, RecordBatch};
use relatrix::arrow::compute::concat_batches;

use super::builder;

const MAKE: &str = "CREATE TABLE sales AS SELECT value AS id, (value * 7919) % 1000 AS item, (value * 104729) % 5000 AS buyer, value % 365 AS day,
       CAST((value * 31) % 1000 / 4.0 AS DECIMAL(10, 2)) AS price, value * 0.5 AS weight FROM range(200000);
     CREATE TABLE item AS SELECT value AS id, 'i' || (value % 40) AS kind, value % 3 AS class FROM range(1000);
     CREATE TABLE buyer AS SELECT value AS id, 'r' || (value % 25) AS region, (value * 17) % 1000 AS favourite FROM range(5000)";

/// Of which each has one answer, whatever the plan.
const QUERIES: [&str; 7] = [
    "SELECT kind, region, count(*), sum(price) FROM sales JOIN item ON item = item.id JOIN buyer ON buyer = buyer.id
     WHERE class = 1 AND day < 200 GROUP BY kind, region ORDER BY kind, region",
    "SELECT region, sum(price), max(day) FROM sales JOIN buyer ON buyer = buyer.id GROUP BY region ORDER BY region",
    "SELECT count(*) FROM sales JOIN buyer ON buyer = buyer.id JOIN item ON favourite = item.id AND class = 2",
    "SELECT item, total FROM (SELECT item, sum(price) AS total FROM sales GROUP BY item) JOIN item ON item = id WHERE kind = 'i7' ORDER BY item",
    "WITH days AS (SELECT day, sum(price) AS total FROM sales GROUP BY day)
     SELECT day, total FROM days WHERE total = (SELECT max(total) FROM days) ORDER BY day",
    "SELECT count(*), sum(a.price) FROM sales AS a JOIN sales AS b ON a.id = b.id WHERE b.day < 300",
    "SELECT class, count(DISTINCT buyer) FROM sales RIGHT JOIN item ON item = item.id WHERE sales.id < 150000 GROUP BY class ORDER BY class",
];

fn connect() -> Connection {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let database = builder.set("strategies_after_ms", "0").unwrap().build().unwrap();
    let connection = database.connect();
    connection.execute(MAKE).unwrap();
    connection
}

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    let batches = rows.collect().unwrap_or_else(|error| panic!("{query}: {error}"));
    concat_batches(&schema, &batches).unwrap()
}

/// The ways of all questions: what is passed over, and what is known of it.
fn ways(connection: &Connection) -> Vec<(Option<String>, String)> {
    let rows = answer(connection, "SHOW STRATEGIES");
    let [choices, states] =
        ["choice", "state"].map(|name| rows.column_by_name(name).unwrap().as_string::<i32>());
    let text = |text: Option<&str>| text.map(str::to_owned);
    choices.iter().map(text).zip(states.iter().flatten().map(str::to_owned)).collect()
}

#[test]
fn answers_are_the_same_whatever_is_tried() {
    let connection = connect();
    let mut choices = BTreeSet::new();
    for query in QUERIES {
        let expected = answer(&connection, query);
        connection.execute("SET strategy = 'estimated'; SET strategy = 'measured'").unwrap();
        // Three runs to be measured by, and three tries of three ways with three runs before each.
        for _ in 0..44 {
            assert_eq!(answer(&connection, query), expected, "{query}");
        }
        let ways = ways(&connection);
        assert_eq!(ways[0].0, None);
        for (choice, state) in ways {
            assert!(!["to be tried", "not found"].contains(&state.as_str()), "{choice:?}: {query}");
            choices.extend(choice);
        }
    }
    let kinds = ["join order", "build side", "aggregation over", "plan over"];
    for kind in kinds {
        assert!(choices.iter().any(|choice| choice.starts_with(kind)), "{kind}: {choices:?}");
    }
}

#[test]
fn prepared_joins_with_the_same_values_are_tried_in_other_ways() {
    let connection = connect();
    connection
        .execute(
            "PREPARE early AS SELECT region, sum(price), max(day) FROM sales JOIN buyer ON buyer = buyer.id
             WHERE day < $1 GROUP BY region ORDER BY region",
        )
        .unwrap();
    let expected = answer(&connection, "EXECUTE early(360)");
    for _ in 0..44 {
        assert_eq!(answer(&connection, "EXECUTE early(360)"), expected);
    }
    let ways = ways(&connection);
    assert!(ways.iter().any(|(choice, _)| choice.is_some()), "{ways:?}");
    assert!(ways.iter().all(|(_, state)| state != "to be tried"), "{ways:?}");
}

#[test]
fn what_a_plan_would_show_in_is_run_by_cost() {
    let connection = connect();
    for query in [
        "SELECT sum(weight) FROM sales JOIN buyer ON buyer = buyer.id",
        "SELECT sales.id FROM sales JOIN buyer ON buyer = buyer.id ORDER BY day LIMIT 10",
        "SELECT region, row_number() OVER (PARTITION BY region) FROM sales JOIN buyer ON buyer = buyer.id LIMIT 10",
        "SELECT count(*) FROM sales JOIN buyer ON buyer = buyer.id WHERE random() < 0.5",
    ] {
        for _ in 0..9 {
            answer(&connection, query);
        }
    }
    assert_eq!(ways(&connection), vec![(None, "in use".to_owned()); 4]);
    connection.execute("SET strategy = 'estimated'").unwrap();
    assert_eq!(ways(&connection), []);
    answer(&connection, QUERIES[0]);
    answer(&connection, QUERIES[0]);
    assert_eq!(ways(&connection), []);
}
