//! Plans that a statement contains more than once: they run once, and the answer is that of running them each time.

use relatrix::Connection;
use relatrix::arrow::util::pretty::pretty_format_batches;

use super::builder;

fn connect(threads: usize, sharing: &str) -> Connection {
    // What was remembered of another statement would not be shared in the next one.
    let builder = builder().threads(threads).set("shared_plans", sharing).unwrap();
    let builder = builder.set("result_cache", "off").unwrap();
    let connection = builder.build().unwrap().connect();
    for statement in [
        "CREATE TABLE sales AS SELECT value AS id, value % 997 AS item, value % 31 AS shop, value % 7 AS n \
         FROM range(200000)",
        "CREATE TABLE items AS SELECT value AS item, value % 10 AS kind FROM range(997)",
    ] {
        connection.execute(statement).unwrap();
    }
    connection
}

/// Statements, and how many shared plans there are in the plan of each.
const STATEMENTS: &[(&str, usize)] = &[
    // Each use reads columns of its own.
    (
        "WITH r AS (SELECT item, sum(n) AS total, count(*) AS rows FROM sales GROUP BY item) \
         SELECT item, total FROM r WHERE total = (SELECT max(total) FROM r) ORDER BY item",
        1,
    ),
    (
        "WITH r AS (SELECT item, sum(n) AS total, avg(id) AS mean FROM sales GROUP BY item) \
         SELECT a.item, a.total, b.mean FROM r AS a JOIN r AS b ON a.item = b.item + 1 ORDER BY 1",
        1,
    ),
    // The same under other names.
    (
        "SELECT a.item, a.s - b.s FROM (SELECT item, sum(id) AS s FROM sales AS x GROUP BY item) AS a JOIN \
         (SELECT y.item AS k, sum(y.id) AS s FROM sales AS y GROUP BY k) AS b ON a.item = b.k ORDER BY 1",
        1,
    ),
    // A join, of which one use groups and the other sums up.
    (
        "SELECT kind, sum(n) FROM sales, items WHERE sales.item = items.item AND shop < 3 GROUP BY kind \
         HAVING sum(n) > (SELECT sum(n) * 0.1 FROM sales, items WHERE sales.item = items.item AND shop < 3) ORDER BY kind",
        1,
    ),
    // Three readers, and one of them wants few rows.
    (
        "WITH r AS (SELECT id % 5000 AS k, count(*) AS c FROM sales GROUP BY id % 5000) \
         SELECT * FROM (SELECT k FROM r ORDER BY k LIMIT 2) UNION ALL SELECT sum(c) FROM r UNION ALL \
         SELECT count(*) FROM r WHERE k < 0 ORDER BY 1",
        1,
    ),
    (
        "WITH r AS (SELECT item, id, row_number() OVER (PARTITION BY item ORDER BY id) AS place FROM sales) \
         SELECT a.id, b.id FROM r AS a JOIN r AS b ON a.item = b.item AND a.place = 1 AND b.place = 2 ORDER BY 1 LIMIT 5",
        1,
    ),
    // One shared plan in another: only the outer one is shared.
    (
        "WITH r AS (SELECT item, sum(n) AS total FROM sales GROUP BY item), \
         t AS (SELECT r.item, r.total, m.most FROM r, (SELECT max(total) AS most FROM r) AS m) \
         SELECT count(*), sum(a.total), max(b.most) FROM t AS a JOIN t AS b ON a.item = b.item",
        1,
    ),
    // Nothing to share: unlike filters, unlike groups, chance.
    (
        "SELECT count(*) FROM (SELECT item, sum(n) AS s FROM sales WHERE shop = 1 GROUP BY item) AS a, \
         (SELECT item, sum(n) AS s FROM sales WHERE shop = 2 GROUP BY item) AS b WHERE a.s = b.s",
        0,
    ),
    (
        "SELECT count(*) FROM (SELECT item, sum(n) AS s FROM sales GROUP BY item) AS a, \
         (SELECT shop, sum(n) AS s FROM sales GROUP BY shop) AS b WHERE a.s = b.s",
        0,
    ),
    (
        "SELECT count(*) FROM (SELECT item, count(random() * 0) AS s FROM sales GROUP BY item) AS a JOIN \
         (SELECT item, count(random() * 0) AS s FROM sales GROUP BY item) AS b ON a.item = b.item AND a.s = b.s",
        0,
    ),
    // The rounds of a recursion are each of other rows.
    (
        "WITH RECURSIVE r AS (SELECT item, count(*) AS c, 0 AS round FROM sales GROUP BY item UNION ALL \
         SELECT item, max(c) + 1, max(round) + 1 FROM r WHERE round < 2 GROUP BY item) \
         SELECT a.n, b.s FROM (SELECT count(*) AS n FROM r) AS a, (SELECT sum(c) AS s FROM r) AS b",
        0,
    ),
    // A table of no rows of its own name within.
    (
        "WITH sales AS (SELECT * FROM sales WHERE id < 0) SELECT (SELECT count(*) FROM sales), \
         (SELECT sum(n) FROM (SELECT DISTINCT n FROM sales))",
        0,
    ),
];

fn text(connection: &Connection, statement: &str) -> String {
    let rows = connection.query(statement).and_then(|rows| rows.collect());
    let rows = rows.unwrap_or_else(|error| panic!("{statement}: {error}"));
    pretty_format_batches(&rows).unwrap().to_string()
}

fn shared_plans(connection: &Connection, statement: &str) -> usize {
    let plan = text(connection, &format!("EXPLAIN {statement}"));
    (1..).take_while(|number| plan.contains(&format!("SharedExec: #{number}"))).count()
}

#[test]
fn the_answer_is_that_of_running_them_each_time() {
    let apart = connect(2, "off");
    for threads in [1, 2, 5] {
        let shared = connect(threads, "on");
        for (statement, plans) in STATEMENTS {
            assert_eq!(shared_plans(&apart, statement), 0, "{statement}");
            assert_eq!(shared_plans(&shared, statement), *plans, "{statement}");
            let answers = [&apart, &shared].map(|connection| text(connection, statement));
            assert_eq!(answers[0], answers[1], "{statement}");
        }
    }
}

#[test]
fn what_is_shared_runs_once_and_its_rows_are_shown_once() {
    let connection = connect(2, "on");
    let (statement, _) = STATEMENTS[0];
    let plan = text(&connection, &format!("EXPLAIN ANALYZE {statement}"));
    assert_eq!(plan.matches("SharedExec: #1").count(), 2, "{plan}");
    assert_eq!(plan.matches("SharedExec: #1, as above").count(), 1, "{plan}");
    assert_eq!(plan.matches("DataSourceExec").count(), 1, "{plan}");
}

#[test]
fn an_error_in_what_is_shared_is_that_of_the_statement() {
    let connection = connect(2, "on");
    let statement = "WITH r AS (SELECT item, sum(id * 9000000000000000000) AS s FROM sales GROUP BY item) \
                     SELECT a.item FROM r AS a JOIN r AS b ON a.item = b.item AND a.s = b.s";
    assert!(shared_plans(&connection, statement) == 1);
    let error =
        connection.query(statement).and_then(|rows| rows.collect()).unwrap_err().to_string();
    assert!(error.contains("overflow"), "{error}");
    text(&connection, STATEMENTS[0].0);
}
