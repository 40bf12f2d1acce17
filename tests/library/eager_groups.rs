//! What is aggregated before a join comes to what is aggregated after it.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use relatrix::Connection;

use super::builder;

/// Sales of items, some of which are not there, some twice, some without a key.
const TABLES: &str = "CREATE TABLE sales AS SELECT CASE WHEN value % 11 = 0 THEN NULL ELSE value * 7919 % 900 END AS item,
       value % 13 AS day, 's' || (value % 5) AS shop, CAST(value % 1000 AS DECIMAL(10, 2)) AS price,
       CASE WHEN value % 3 > 0 THEN value % 50 END AS pieces, (value % 64) / 8.0 AS weight FROM range(200000);
     CREATE TABLE items AS SELECT CASE WHEN value % 17 = 0 THEN NULL ELSE value % 800 END AS id, 'name ' || (value % 90) AS name,
       value % 7 AS kind, 'group ' || (value % 3) AS grouping FROM range(1000)";

const JOINS: [&str; 6] = [
    "sales JOIN items ON item = id",
    "items JOIN sales ON item = id",
    "items LEFT JOIN sales ON item = id",
    "sales LEFT JOIN items ON item = id",
    "sales RIGHT JOIN items ON item = id AND kind < 5",
    "sales JOIN items ON item = id AND kind <> 2 JOIN (SELECT DISTINCT kind AS k FROM items WHERE kind > 0) AS kinds ON kind = k",
];

const KEYS: [&str; 8] =
    ["name", "kind", "grouping", "shop", "day", "item", "kind + 1", "coalesce(day, 100) % 4"];

const AGGREGATES: [&str; 15] = [
    "count(*)",
    "count(pieces)",
    "sum(pieces)",
    "sum(price)",
    "min(price)",
    "max(shop)",
    "avg(weight)",
    "sum(weight)",
    "avg(pieces)",
    "sum(pieces * 2 + day)",
    "count(*) FILTER (WHERE day < 4)",
    "sum(price) FILTER (WHERE shop = 's1')",
    "count(coalesce(pieces, 0))",
    "bool_and(day < 12)",
    "count(DISTINCT pieces)",
];

fn connect() -> Connection {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let connection = builder.build().unwrap().connect();
    connection.execute(TABLES).unwrap();
    connection
}

fn rows(connection: &Connection, query: &str) -> Vec<String> {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let batches = rows.collect().unwrap_or_else(|error| panic!("{query}: {error}"));
    let text = relatrix::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<_> = text.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

fn is_early(connection: &Connection, query: &str) -> bool {
    rows(connection, &format!("EXPLAIN {query}")).iter().any(|line| line.contains("__parts"))
}

#[test]
fn answers_are_those_of_aggregating_after_the_join() {
    let connection = connect();
    let mut random = SmallRng::seed_from_u64(5);
    let mut early = 0;
    for _ in 0..80 {
        let join = JOINS.choose(&mut random).unwrap();
        let key_count = (0..3).choose(&mut random).unwrap();
        let keys = KEYS.choose_multiple(&mut random, key_count).copied().collect::<Vec<_>>();
        let aggregates = AGGREGATES.choose_multiple(&mut random, 4).copied();
        let columns = keys.iter().copied().chain(aggregates).collect::<Vec<_>>().join(", ");
        let mut query = format!("SELECT {columns} FROM {join}");
        if !keys.is_empty() {
            query += &format!(" GROUP BY {}", keys.join(", "));
        }
        connection.execute("SET eager_groups = off").unwrap();
        let expected = rows(&connection, &query);
        assert!(!is_early(&connection, &query));
        connection.execute("SET eager_groups = on").unwrap();
        assert_eq!(rows(&connection, &query), expected, "{query}");
        early += usize::from(is_early(&connection, &query));
    }
    assert!(early > 20, "{early}");
}

#[test]
fn what_asks_for_rows_one_by_one_stays_after_the_join() {
    let connection = connect();
    for query in [
        // A row that meets none is a row.
        "SELECT name, count(*) FROM items LEFT JOIN sales ON item = id GROUP BY name",
        "SELECT name, count(coalesce(pieces, 0)) FROM items LEFT JOIN sales ON item = id GROUP BY name",
        // Both sides, other totals, all values.
        "SELECT name, sum(pieces * kind) FROM sales JOIN items ON item = id GROUP BY name",
        "SELECT name, sum(pieces) FROM sales JOIN items ON item = id AND day < kind GROUP BY name",
        "SELECT name, sum(pieces) FROM sales JOIN items ON item = id GROUP BY ROLLUP (name)",
        "SELECT name, median(pieces) FROM sales JOIN items ON item = id GROUP BY name",
    ] {
        assert!(!is_early(&connection, query), "{query}");
    }
    assert!(is_early(
        &connection,
        "SELECT name, sum(pieces) FROM sales JOIN items ON item = id GROUP BY name"
    ));
}
