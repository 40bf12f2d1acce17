//! Outer joins among others: random trees of joins, in the order of cost and as they are written, in memory and in files.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use relatrix::Connection;

use super::builder;

/// Columns whose values meet in some rows, in others more than once, and are NULL now and then.
const TABLES: [&str; 5] = [
    "SELECT value AS id, value % 7 AS x, CASE WHEN value % 5 = 0 THEN NULL ELSE value % 4 END AS y FROM range(40)",
    "SELECT value AS id, value % 3 AS x, CASE WHEN value % 4 = 0 THEN NULL ELSE value % 9 END AS y FROM range(11)",
    "SELECT value AS id, CASE WHEN value = 2 THEN NULL ELSE value END AS x, value % 2 AS y FROM range(6)",
    "SELECT value AS id, value * 2 % 5 AS x, value + 3 AS y FROM range(8)",
    "SELECT value AS id, value AS x, value AS y FROM range(1) WHERE value > 0",
];

/// A column of one of the first tables of a query.
fn column(random: &mut SmallRng, tables: usize) -> String {
    let column = ["id", "x", "y"][random.random_range(0..3)];
    format!("r{}.{column}", random.random_range(0..tables))
}

/// A query over up to five tables, each joined to those before it.
fn query(random: &mut SmallRng) -> String {
    let table = |random: &mut SmallRng, at: usize| {
        format!("t{} AS r{at}", random.random_range(0..TABLES.len()))
    };
    let count = random.random_range(2..6);
    let mut from = table(random, 0);
    for at in 1..count {
        let kind = ["", "LEFT ", "LEFT ", "RIGHT ", "FULL "][random.random_range(0..5)];
        let own = ["id", "x", "y"][random.random_range(0..3)];
        let mut on = format!("{} = r{at}.{own}", column(random, at));
        match random.random_range(0..5) {
            0 => on += &format!(" AND r{at}.x < {}", random.random_range(0..6)),
            1 => on += &format!(" AND {} <> {}", column(random, at), column(random, at + 1)),
            2 => on += &format!(" AND {} > 1", column(random, at)),
            _ => (),
        }
        from += &format!(" {kind}JOIN {} ON {on}", table(random, at));
    }
    let mut conditions = vec!["true".to_owned()];
    for _ in 0..random.random_range(0..3) {
        let column = column(random, count);
        conditions.push(match random.random_range(0..6) {
            0 => format!("{column} IS NULL"),
            5 => format!("({column} IS NULL OR {column} > 2)"),
            1 => format!("coalesce({column}, 3) > 1"),
            2 => format!("{column} < 5"),
            3 => format!("EXISTS (SELECT 1 FROM t2 AS e WHERE e.x = {column})"),
            _ => format!("NOT EXISTS (SELECT 1 FROM t3 AS e WHERE e.x = {column} AND e.y > 4)"),
        });
    }
    let conditions = conditions.join(" AND ");
    if random.random() {
        let columns = [column(random, count), column(random, count)].join(", ");
        return format!("SELECT {columns} FROM {from} WHERE {conditions} ORDER BY 1, 2");
    }
    let sums = (0..count).map(|at| format!(", count(r{at}.x), sum(r{at}.id * {})", at + 2));
    format!("SELECT count(*){} FROM {from} WHERE {conditions}", sums.collect::<String>())
}

#[test]
fn rows_are_those_of_the_written_order() {
    let folder = tempfile::tempdir().unwrap();
    let [in_memory, in_files] = [false, true].map(|is_in_files| {
        let connection = builder().threads(2).build().unwrap().connect();
        connection.execute("SET result_cache = 'off'").unwrap();
        for (at, table) in TABLES.iter().enumerate() {
            let path = folder.path().join(format!("{at}.parquet"));
            let create = match is_in_files {
                true => format!("CREATE VIEW t{at} AS SELECT * FROM '{}'", path.display()),
                false => {
                    format!("CREATE TABLE t{at} AS {table}; COPY t{at} TO '{}'", path.display())
                }
            };
            connection.execute(&create).unwrap();
        }
        connection
    });
    let random = &mut SmallRng::seed_from_u64(46);
    let mut moved = 0;
    for _ in 0..120 {
        let query = query(random);
        let rows = |connection: &Connection, order: &str| {
            connection.execute(&format!("SET join_order = '{order}'")).unwrap();
            connection.query(&query).unwrap().rows::<Vec<relatrix::Value>>().unwrap()
        };
        let written = rows(&in_memory, "written");
        assert_eq!(rows(&in_memory, "cost"), written, "{query}");
        assert_eq!(rows(&in_files, "cost"), written, "{query}");
        let explained = in_memory.query(&format!("EXPLAIN {query}")).unwrap();
        let explained: Vec<(String, String)> = explained.rows().unwrap();
        // Several tables in an order of their own, an outer join among them.
        moved += usize::from(explained.iter().any(|(kind, choices)| {
            let order = choices.lines().next().unwrap_or_default();
            kind == "choices" && order.contains("outer r") && !order.contains("as written")
        }));
    }
    assert!(moved > 15, "outer joins are ordered: {moved}");
}
