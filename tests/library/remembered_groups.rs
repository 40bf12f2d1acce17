//! Groups are remembered, answer other queries about them, and are brought up to date by the rows that have come since.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use relatrix::Connection;
use relatrix::arrow::array::RecordBatch;
use relatrix::arrow::compute::concat_batches;

use super::{builder, error, figure, number};

const SALES: &str = "CREATE TABLE sales (item TEXT NOT NULL, day INT, amount BIGINT, price DECIMAL(10, 2), rate DOUBLE);
     CREATE TABLE items (item TEXT, kind TEXT);
     INSERT INTO items VALUES ('a', 'fruit'), ('b', 'fruit'), ('c', 'tool'), ('c', 'toy'), (NULL, 'none');
     CREATE VIEW dear AS SELECT * FROM sales WHERE price > 20";

/// Whose groups can be remembered.
const MERGED: [&str; 22] = [
    "SELECT item, count(*), count(amount), sum(amount), min(day), max(rate) FROM sales GROUP BY item ORDER BY item",
    "SELECT day, avg(amount), avg(day), sum(price) FROM sales GROUP BY day ORDER BY day",
    "SELECT count(*), sum(amount), avg(amount), min(item), max(price), bool_or(amount > 3) FROM sales",
    "SELECT count(*), sum(amount), min(price), avg(day) FROM sales WHERE amount > 1000000",
    "SELECT item, sum(price) AS total FROM sales GROUP BY item HAVING sum(price) > 50 ORDER BY total DESC, item LIMIT 2",
    "SELECT item, day, bit_xor(amount) FROM sales WHERE rate > 0.5 GROUP BY item, day ORDER BY item, day OFFSET 2",
    "SELECT kind, count(*), sum(price * amount) FROM sales JOIN items USING (item) GROUP BY kind ORDER BY kind",
    "SELECT day % 3 AS third, sum(amount) + count(*) AS n FROM dear GROUP BY third ORDER BY third NULLS FIRST",
    "SELECT DISTINCT item, day FROM sales ORDER BY item, day",
    "SELECT item, day, count(*) FROM sales s GROUP BY item, s.day, day, s.item ORDER BY item, day",
    "SELECT a.item, count(*), max(b.amount) FROM sales a JOIN sales b ON a.day = b.day GROUP BY a.item ORDER BY a.item",
    "SELECT item, count(*) FILTER (WHERE amount > 3), sum(amount) FILTER (WHERE day = 100) FROM sales GROUP BY item ORDER BY item",
    "SELECT s.item, s.n FROM (SELECT item, count(*) AS n FROM sales GROUP BY item) s ORDER BY n, item",
    "SELECT price, sum(sum(amount)) OVER (ORDER BY price) FROM sales GROUP BY price ORDER BY price",
    "SELECT count(DISTINCT item), median(amount), sum(rate) FROM sales",
    "SELECT item, count(DISTINCT day) AS days FROM sales GROUP BY item ORDER BY item",
    "SELECT count(DISTINCT day), count(DISTINCT day) + 1 AS more FROM sales WHERE amount > 2",
    "SELECT day % 2 AS odd, count(DISTINCT item) FROM sales WHERE price > 3 GROUP BY odd HAVING count(DISTINCT item) > 1 ORDER BY odd NULLS FIRST",
    "SELECT item, n, sum(n) OVER (ORDER BY item) FROM (SELECT item, count(*) AS n FROM sales GROUP BY item) ORDER BY item",
    "SELECT * FROM sales WHERE amount = 2 ORDER BY price DESC NULLS LAST, item, day, rate, amount LIMIT 5",
    "SELECT item || 'x' AS i, amount * 2 AS a FROM dear d ORDER BY abs(a) DESC NULLS FIRST, i, a LIMIT 3 OFFSET 2",
    "SELECT kind, s.item AS i, amount FROM sales s JOIN items USING (item) ORDER BY amount, kind, i LIMIT 4",
];

fn connect(settings: &[(&str, &str)]) -> Connection {
    let mut builder = builder().threads(2);
    for (name, value) in settings {
        builder = builder.set(name, value).unwrap();
    }
    builder.build().unwrap().connect()
}

/// Everything is remembered, however quickly it came.
fn connection() -> Connection {
    connect(&[("result_cache_after_ms", "0")])
}

fn answer(connection: &Connection, query: &str) -> RecordBatch {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let schema = rows.schema();
    let rows = rows.collect().unwrap_or_else(|error| panic!("{query}: {error}"));
    concat_batches(&schema, &rows).unwrap()
}

/// The answer to a query, and whether it came from groups that were remembered.
fn reused(connection: &Connection, query: &str) -> (RecordBatch, bool) {
    let before = figure(connection, "cache_reused");
    let answer = answer(connection, query);
    (answer, figure(connection, "cache_reused") > before)
}

fn explained(connection: &Connection, query: &str) -> String {
    let rows = connection.query(&format!("EXPLAIN {query}")).unwrap();
    rows.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect()
}

/// Rows of sales, as VALUES has them.
fn rows(random: &mut SmallRng) -> String {
    let count = random.random_range(1..40);
    let row = |random: &mut SmallRng| {
        let item = ["a", "b", "c", "d"][random.random_range(0..4)];
        let mut value = |values: std::ops::Range<i64>, divisor: f64| match random.random_range(0..5)
        {
            0 => "NULL".to_owned(),
            _ => (random.random_range(values) as f64 / divisor).to_string(),
        };
        let (day, amount) = (value(0..8, 1.0), value(-5..9, 1.0));
        let (price, rate) = (value(0..5000, 100.0), value(0..16, 16.0));
        format!("('{item}', {day}, {amount}, {price}, {rate})")
    };
    (0..count).map(|_| row(random)).collect::<Vec<_>>().join(", ")
}

#[test]
fn answers_are_those_of_all_rows_whatever_has_happened_to_them() {
    let mut reuses = 0;
    for seed in 0..7 {
        let mut random = SmallRng::seed_from_u64(seed);
        // Those of the last are compared with what is computed before anybody has them.
        let verifies = [("result_cache", "verify")];
        let connection = if seed < 6 { connection() } else { connect(&verifies) };
        let asks_anew = connect(&[("result_cache", "off")]);
        for each in [&connection, &asks_anew] {
            each.execute(SALES).unwrap();
        }
        for step in 0..14 {
            let change = match random.random_range(0..12) {
                0 => "UPDATE sales SET amount = amount + 1 WHERE day = 3".to_owned(),
                1 => "DELETE FROM sales WHERE day = 5".to_owned(),
                2 => "DELETE FROM sales WHERE day > 1000".to_owned(),
                3 => "TRUNCATE TABLE sales".to_owned(),
                4 => "INSERT INTO items VALUES ('d', 'book')".to_owned(),
                5 => "INSERT INTO sales SELECT * FROM sales LIMIT 9".to_owned(),
                _ => format!("INSERT INTO sales VALUES {}", rows(&mut random)),
            };
            let changed = [&connection, &asks_anew].map(|each| each.execute(&change).unwrap());
            assert_eq!(changed[0], changed[1]);
            for query in MERGED {
                let (found, was_reused) = reused(&connection, query);
                let expected = answer(&asks_anew, query);
                // Names, types and what may be NULL are part of both.
                assert_eq!(found, expected, "seed {seed}, step {step}, {change}: {query}");
                reuses += u32::from(was_reused);
            }
        }
    }
    assert!(reuses > 400, "{reuses}");
}

#[test]
fn first_rows_are_found_among_those_that_were_and_those_that_have_come() {
    let connection = connection();
    connection.execute(SALES).unwrap();
    connection
        .execute("INSERT INTO sales SELECT 'a', value % 9, value, 2.5, 0.5 FROM range(1000)")
        .unwrap();
    let order = "FROM sales ORDER BY amount DESC, day LIMIT 3";
    for query in [format!("SELECT day, amount {order}"), format!("SELECT * {order} OFFSET 2")] {
        assert!(!reused(&connection, &query).1);
        connection.execute("INSERT INTO sales VALUES ('b', 3, 998, 1, 1)").unwrap();
        let plan = explained(&connection, &query);
        assert!(plan.contains("TableScan: remembered rows"), "{plan}");
        assert!(plan.contains("TableScan: sales, new rows"), "{plan}");
        assert!(reused(&connection, &query).1);
    }
}

/// What such a query reads may change while the rows that are grouped do not.
#[test]
fn groups_of_keys_and_calls_with_sub_queries_are_computed_anew() {
    let connection = connection();
    connection.execute(SALES).unwrap();
    let rows = "INSERT INTO sales SELECT 'a', value % 9, value, 2.5, 0.5 FROM range(1000)";
    connection.execute(&format!("{rows}; CREATE TABLE away (d INT)")).unwrap();
    let is_away = "EXISTS (SELECT 1 FROM away WHERE d = day)";
    let having = format!("SELECT day FROM sales GROUP BY day HAVING bool_or(NOT {is_away})");
    let argument = format!("SELECT day, bool_or({is_away}) AS b FROM sales GROUP BY day");
    let key = format!("SELECT {is_away} AS b, count(*) FROM sales GROUP BY b");
    let counts = [
        (having, [9, 8]),
        (format!("SELECT * FROM ({argument}) WHERE b"), [0, 1]),
        (format!("SELECT * FROM ({key}) WHERE b"), [0, 1]),
    ];
    for before_and_after in [0, 1] {
        for (query, expected) in &counts {
            let rows = answer(&connection, query).num_rows();
            assert_eq!(rows, expected[before_and_after], "{query}");
            assert_eq!(answer(&connection, query).num_rows(), rows, "{query}");
        }
        // By a row that comes as well what is remembered would be brought up to date.
        let change = "INSERT INTO away VALUES (3); INSERT INTO sales (item, day) VALUES ('b', 3)";
        connection.execute(change).unwrap();
    }
}

#[test]
fn only_what_has_come_is_read() {
    let connection = connection();
    connection.execute(SALES).unwrap();
    connection
        .execute("INSERT INTO sales SELECT 'a', value % 9, value, 2.5, 0.5 FROM range(1000)")
        .unwrap();
    let query = "SELECT day, sum(amount) FROM sales WHERE day > 2 GROUP BY day ORDER BY day";
    assert!(!reused(&connection, query).1);
    let plan = explained(&connection, query);
    assert!(plan.contains("TableScan: remembered groups"), "{plan}");
    assert!(!plan.contains("TableScan: sales"), "{plan}");
    connection.execute("INSERT INTO sales VALUES ('b', 3, 1, 1, 1), ('b', 1, 1, 1, 1)").unwrap();
    let plan = explained(&connection, query);
    assert!(plan.contains("TableScan: sales, new rows"), "{plan}");
    let plan = explained(&connection, &format!("ANALYZE {query}"));
    assert!(plan.contains("DataSourceExec: remembered groups, "), "{plan}");
    assert!(reused(&connection, query).1);
    // What was brought up to date is remembered in its turn.
    assert!(!explained(&connection, query).contains("TableScan: sales"));
    // Explaining is no use of what is remembered.
    let before = figure(&connection, "cache_reused");
    explained(&connection, query);
    assert_eq!(figure(&connection, "cache_reused"), before);
}

#[test]
fn other_queries_of_the_same_groups_are_answered() {
    let connection = connection();
    connection.execute(SALES).unwrap();
    connection
        .execute("INSERT INTO sales SELECT 'a', value % 9, value, 2.5, 0.5 FROM range(1000)")
        .unwrap();
    let groups = "SELECT day, sum(amount) AS total, count(*) AS n FROM sales GROUP BY day";
    assert!(!reused(&connection, groups).1);
    for query in [
        format!("{groups} ORDER BY total DESC LIMIT 3"),
        format!("{groups} HAVING count(*) > 111"),
        "SELECT sum(amount) * 2, day FROM sales GROUP BY day HAVING count(*) > 3".to_owned(),
    ] {
        let (found, was_reused) = reused(&connection, &query);
        connection.execute("SET result_cache = off").unwrap();
        assert_eq!(answer(&connection, &query).num_rows(), found.num_rows());
        connection.execute("SET result_cache = on").unwrap();
        assert!(was_reused, "{query}");
    }
    for other in [
        "SELECT day, max(amount) FROM sales GROUP BY day",
        &groups.replace("FROM sales", "FROM sales WHERE amount > 0"),
    ] {
        assert!(!reused(&connection, other).1, "{other}");
    }
}

/// A database that remembers, and one with the same rows that does not.
struct Both {
    remembers: Connection,
    asks_anew: Connection,
}

impl Both {
    fn with_sales() -> Self {
        let both = Self { remembers: connection(), asks_anew: connect(&[("result_cache", "off")]) };
        both.execute(SALES);
        both.execute(
            "INSERT INTO sales
             SELECT chr(97 + value % 4), value % 9, value, value / 7.0, 0.5 FROM range(1000)",
        );
        both
    }

    fn execute(&self, statement: &str) {
        for each in [&self.remembers, &self.asks_anew] {
            each.execute(statement).unwrap();
        }
    }

    /// Whether the answer, which is that of both, came from groups that were remembered.
    fn reused(&self, query: &str) -> bool {
        let (found, was_reused) = reused(&self.remembers, query);
        assert_eq!(found, answer(&self.asks_anew, query), "{query}");
        was_reused
    }
}

#[test]
fn finer_groups_answer_for_coarser_ones() {
    let both = Both::with_sales();
    let finest =
        "SELECT item, day, day % 3 AS third, sum(amount), count(*), max(price), avg(amount)
                  FROM sales GROUP BY item, day, day % 3 ORDER BY item, day";
    let coarser = [
        "SELECT item, sum(amount), count(*) FROM sales GROUP BY item ORDER BY item",
        "SELECT day, item, max(price) FROM sales GROUP BY day, item ORDER BY day, item",
        "SELECT day % 3, avg(amount) FROM sales GROUP BY day % 3 ORDER BY 1 NULLS FIRST",
        "SELECT count(*), sum(amount), max(price) FROM sales",
        "SELECT count(*), sum(amount) FROM sales WHERE day = 77",
        "SELECT item, count(*) FROM sales WHERE day BETWEEN 2 AND 5 AND item <> 'b' GROUP BY item ORDER BY item",
        "SELECT day, sum(amount) AS n FROM sales WHERE item IN ('a', 'c') OR day IS NULL GROUP BY day ORDER BY n DESC LIMIT 4",
        "SELECT item, count(DISTINCT day) FROM sales GROUP BY item ORDER BY item",
    ];
    assert!(!both.reused(finest));
    for query in coarser {
        assert!(both.reused(query), "{query}");
    }
    both.execute("INSERT INTO sales VALUES ('a', NULL, NULL, 1, 1), ('e', 3, 7, NULL, 1)");
    // New groups of all rows, and of those that have come since.
    assert!(coarser.iter().all(|query| both.reused(query)));
    let plan = explained(
        &both.remembers,
        &coarser[0].replace("sum(amount), count(*)", "count(*), avg(amount)"),
    );
    assert!(plan.contains("TableScan: remembered groups"), "{plan}");
    assert!(plan.contains("TableScan: sales, new rows"), "{plan}");
    both.execute("UPDATE sales SET amount = 1 WHERE day = 3");
    assert!(!both.reused(coarser[0]));
}

#[test]
fn groups_answer_for_parts_of_bigger_queries() {
    let both = Both::with_sales();
    assert!(!both.reused(
        "SELECT item, day, sum(amount), count(*) FROM sales GROUP BY item, day ORDER BY item, day"
    ));
    let bigger = [
        "SELECT kind, n FROM items JOIN (SELECT item, count(*) AS n FROM sales GROUP BY item) s USING (item) ORDER BY kind, n",
        "SELECT item, amount FROM sales WHERE amount > (SELECT sum(amount) / count(*) * 1.99 FROM sales) ORDER BY amount",
        "SELECT day, sum(amount) AS n FROM sales GROUP BY day UNION ALL SELECT -1, sum(amount) FROM sales ORDER BY n",
        "WITH s AS (SELECT day, sum(amount) AS n FROM sales WHERE item = 'a' GROUP BY day)
         SELECT a.day, b.day FROM s a JOIN s b ON a.n > b.n ORDER BY a.day, b.day",
        "SELECT kind FROM items WHERE item IN (SELECT item FROM sales GROUP BY item HAVING sum(amount) > 125000) ORDER BY kind",
    ];
    for query in bigger {
        assert!(both.reused(query), "{query}");
    }
    let plan = explained(&both.remembers, &bigger[0].replace("count(*)", "sum(amount)"));
    assert!(plan.contains("TableScan: remembered groups"), "{plan}");
    assert!(!plan.contains("TableScan: sales"), "{plan}");
    both.execute("INSERT INTO sales VALUES ('a', 3, 100, 1, 1), ('e', 3, 7, NULL, 1)");
    assert!(bigger.iter().all(|query| both.reused(query)));
    both.execute("DELETE FROM sales WHERE day = 3");
    assert!(bigger.iter().all(|query| !both.reused(query)));
}

#[test]
fn finer_groups_do_not_answer_what_they_do_not_know() {
    let connection = connection();
    connection.execute(SALES).unwrap();
    connection
        .execute("INSERT INTO sales SELECT 'a', value % 9, value, 2.5, value % 2 FROM range(1000)")
        .unwrap();
    answer(&connection, "SELECT item, day, sum(amount) FROM sales GROUP BY item, day");
    answer(&connection, "SELECT day, count(*) FROM sales WHERE item = 'a' GROUP BY day");
    for query in [
        // Other keys, other parts, a condition on what is no key, other rows, another expression of a key.
        "SELECT price, sum(amount) FROM sales GROUP BY price",
        "SELECT item, sum(price) FROM sales GROUP BY item",
        "SELECT item, sum(amount) FROM sales WHERE amount > 3 GROUP BY item",
        "SELECT item, sum(amount) FROM sales JOIN items USING (item) GROUP BY item",
        "SELECT day + 1, sum(amount) FROM sales GROUP BY day + 1",
        "SELECT day, count(*) FROM sales WHERE item = 'b' GROUP BY day",
        "SELECT day, count(*) FROM sales GROUP BY day",
        // Sums of floating-point numbers come to other last digits.
        "SELECT item, sum(rate) FROM sales GROUP BY item",
    ] {
        assert!(!reused(&connection, query).1, "{query}");
    }
    connection.execute("SET datafusion.execution.time_zone = '+01:00'").unwrap();
    assert!(!reused(&connection, "SELECT item, sum(amount) FROM sales GROUP BY item").1);
}

#[test]
fn what_only_looks_the_same_is_computed() {
    let connection = connection();
    for (query, count) in [
        ("SELECT count(*) FROM range(10)", 10),
        ("SELECT count(*) FROM range(20)", 20),
        ("SELECT count(*) FROM (VALUES (1), (2)) AS t(x)", 2),
        ("SELECT count(*) FROM (VALUES (1), (2), (3)) AS t(x)", 3),
    ] {
        assert_eq!(number(&connection, query), count, "{query}");
    }
    // A table of the same name, of one connection.
    connection.execute("CREATE TABLE t AS SELECT value AS x FROM range(5)").unwrap();
    let query = "SELECT sum(x) FROM t";
    assert_eq!(number(&connection, query), 10);
    connection.execute("CREATE TEMPORARY TABLE t AS SELECT value AS x FROM range(7)").unwrap();
    assert_eq!(number(&connection, query), 21);
    connection.execute("INSERT INTO t VALUES (100)").unwrap();
    assert_eq!(number(&connection, query), 121);
    connection.execute("DROP TABLE t; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(number(&connection, query), 11);
    // Values of parameters, and settings.
    let query = "SELECT sum(x) FROM t WHERE x > $1";
    for (bound, sum) in [(0, 11), (2, 7), (0, 11)] {
        let rows = connection.query_with(query, relatrix::params![bound]).unwrap();
        assert_eq!(rows.rows::<(i64,)>().unwrap(), [(sum,)]);
        connection.execute("INSERT INTO t VALUES (0)").unwrap();
    }
}

#[test]
fn a_sum_that_leaves_its_range_is_an_error_from_groups_too() {
    let connection = connection();
    connection.execute("CREATE TABLE t (k INT, x BIGINT)").unwrap();
    connection.execute("INSERT INTO t VALUES (1, 9000000000000000000), (2, 1)").unwrap();
    let query = "SELECT k, sum(x) FROM t GROUP BY k ORDER BY k";
    answer(&connection, query);
    connection.execute("INSERT INTO t VALUES (1, 9000000000000000000)").unwrap();
    let message = connection.query(query).and_then(|rows| rows.collect()).unwrap_err().to_string();
    assert!(message.contains("18000000000000000000 is no BIGINT"), "{message}");
    connection.execute("DELETE FROM t WHERE k = 1").unwrap();
    assert_eq!(answer(&connection, query).num_rows(), 1);
    assert!(error(&connection, "SET result_cache_after_ms = -1").contains("result_cache_after_ms"));
}

#[test]
fn groups_that_nobody_reads_to_their_end_are_none() {
    let connection = connection();
    connection.execute("CREATE TABLE t AS SELECT value % 100000 AS k FROM range(300000)").unwrap();
    let query = "SELECT k, count(*) FROM t GROUP BY k";
    let mut rows = connection.query(query).unwrap();
    rows.next().unwrap().unwrap();
    drop(rows);
    assert_eq!(figure(&connection, "answers"), 0);
    assert!(!reused(&connection, &format!("{query} LIMIT 3")).1);
    // Fewer of them were asked for, and the answer is complete; what is remembered of the groups must be, too.
    connection.execute("INSERT INTO t VALUES (-1)").unwrap();
    assert_eq!(
        number(&connection, "SELECT count(*) FROM (SELECT k, count(*) FROM t GROUP BY k)"),
        100_001
    );
    let (all, _) = reused(&connection, query);
    assert_eq!(all.num_rows(), 100_001);
}
