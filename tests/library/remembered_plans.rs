//! Plans that several places of a query read are remembered, and answer for equal ones in other queries.

use relatrix::Connection;
use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;

use super::{builder, figure};

const MAKE: &str = "CREATE TABLE sales AS SELECT value AS id, value % 997 AS item, value * 0.25 AS price FROM range(100000);
     CREATE TABLE items AS SELECT value AS item, value % 10 AS kind FROM range(997);
     CREATE VIEW prices AS SELECT item, median(price) AS mid, max(price) AS highest FROM sales GROUP BY item";

/// Reads a view twice, so that its rows are remembered.
const FIRST: &str = "SELECT a.item, a.mid - b.mid, a.highest FROM prices a JOIN prices b ON a.item = b.item + 1 ORDER BY 1";

/// Whose plans have the same within, under whatever names and with whichever columns.
const OTHERS: [&str; 6] = [
    "SELECT x.item, x.mid + y.mid, y.highest FROM prices AS x, prices AS y WHERE x.item = y.item + 2 ORDER BY x.item",
    "SELECT max(mid), min(highest) FROM prices",
    "SELECT highest, mid, item FROM prices ORDER BY 3",
    "SELECT kind, sum(mid), max(highest) FROM items JOIN prices ON prices.item = items.item GROUP BY kind ORDER BY kind",
    "SELECT count(*) FROM items WHERE (SELECT max(highest) FROM prices WHERE mid > 5000) > item",
    "WITH p AS (SELECT item, median(price) AS mid, max(price) AS highest FROM sales GROUP BY item) \
     SELECT a.item FROM p a JOIN p b ON a.item = b.item WHERE a.mid < b.highest ORDER BY 1",
];

fn connect(cache: &str) -> Connection {
    let builder = builder().threads(2).set("result_cache", cache).unwrap();
    let builder = builder.set("result_cache_after_ms", "0").unwrap();
    let connection = builder.build().unwrap().connect();
    connection.execute(MAKE).unwrap();
    connection
}

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    concat_batches(&schema, &rows.collect().unwrap()).unwrap()
}

fn takes_a_remembered_plan(connection: &Connection, query: &str) -> bool {
    let rows = connection.query(&format!("EXPLAIN {query}")).unwrap();
    let rows: Vec<(String, String)> = rows.rows().unwrap();
    rows.iter().any(|(_, text)| text.contains("DataSourceExec: remembered plan"))
}

fn kinds(connection: &Connection) -> Vec<String> {
    let rows = connection.query("SHOW CACHE").unwrap().collect().unwrap();
    let kinds = rows.iter().flat_map(|batch| {
        let kinds = batch.column(0).as_any().downcast_ref::<relatrix::arrow::array::StringArray>();
        kinds.unwrap().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    });
    kinds.collect()
}

#[test]
fn a_plan_that_was_read_twice_answers_for_equal_ones() {
    let (connection, anew) = (connect("on"), connect("off"));
    assert_eq!(answer(&connection, FIRST), answer(&anew, FIRST));
    assert_eq!(kinds(&connection).iter().filter(|kind| *kind == "plan").count(), 1);
    for query in OTHERS {
        assert!(takes_a_remembered_plan(&connection, query), "{query}");
        let reused = figure(&connection, "cache_reused");
        assert_eq!(answer(&connection, query), answer(&anew, query), "{query}");
        assert_eq!(figure(&connection, "cache_reused"), reused + 1, "{query}");
    }
    // A condition that holds for one of its columns is part of the plan by then.
    assert!(!takes_a_remembered_plan(&connection, "SELECT * FROM prices WHERE item = 3"));
    // To explain a query is no use of what it would take.
    assert_eq!(kinds(&connection).iter().filter(|kind| *kind == "plan").count(), 1);
}

#[test]
fn it_is_made_anew_once_what_it_reads_has_changed() {
    let (connection, anew) = (connect("on"), connect("off"));
    answer(&connection, FIRST);
    for change in [
        "INSERT INTO sales VALUES (1, 1, 1000000)",
        "UPDATE sales SET price = 0 WHERE item = 2",
        "CREATE OR REPLACE VIEW prices AS SELECT item, median(price) AS mid, min(price) AS highest FROM sales GROUP BY item",
        "CREATE OR REPLACE TABLE sales AS SELECT value AS id, value % 997 AS item, value * 1.5 AS price FROM range(90000)",
    ] {
        for connection in [&connection, &anew] {
            connection.execute(change).unwrap();
        }
        for query in OTHERS {
            assert_eq!(answer(&connection, query), answer(&anew, query), "{change}: {query}");
        }
    }
}

#[test]
fn an_order_and_what_comes_out_otherwise_are_not_remembered() {
    let connection = connect("on");
    for query in [
        "WITH r AS (SELECT item, median(price) AS m FROM sales GROUP BY item ORDER BY m LIMIT 50) \
         SELECT a.item FROM r a JOIN r b ON a.item = b.item + 1",
        "WITH r AS (SELECT item, median(price + random()) AS m FROM sales GROUP BY item) \
         SELECT a.item FROM r a JOIN r b ON a.m = b.m",
    ] {
        answer(&connection, query);
        assert!(!kinds(&connection).contains(&"plan".to_owned()), "{query}");
    }
}

#[test]
fn what_is_not_read_to_its_end_is_not_remembered() {
    let connection = connect("on");
    let fails = "WITH r AS (SELECT item, sum(id * 9000000000000000000) AS s FROM sales GROUP BY item) \
                 SELECT a.item FROM r AS a JOIN r AS b ON a.item = b.item AND a.s = b.s";
    assert!(connection.query(fails).and_then(|rows| rows.collect()).is_err());
    assert!(kinds(&connection).is_empty());
}
