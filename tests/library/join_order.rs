//! The order of joins: generated snowflakes, in every order of FROM.

use std::fmt::Write;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use relatrix::Connection;

use super::builder;

/// A query over tables that refer to one another as the branches of a tree do to its root.
pub(crate) struct Snowflake {
    pub(crate) tables: Vec<String>,
    pub(crate) conditions: Vec<String>,
}

impl Snowflake {
    /// Makes the tables: the first is the largest, the values of references are skewed in some of them.
    pub(crate) fn new(connection: &Connection, random: &mut SmallRng) -> Self {
        let count = random.random_range(3..8);
        let rows: Vec<usize> = (0..count)
            .map(|table| if table == 0 { 3000 } else { random.random_range(2..300) })
            .collect();
        let mut columns = vec![String::new(); count];
        let mut conditions = Vec::new();
        for (table, &target) in rows.iter().enumerate().skip(1) {
            let (parent, factor) = (random.random_range(0..table), random.random_range(1..50));
            let value = match random.random_range(0..3) {
                0 => format!("value * {factor} % {target}"),
                1 => format!("value * value % {} % {target}", target / 2 + 1),
                _ => format!("CASE WHEN value % 17 = 0 THEN NULL ELSE value / 3 % {target} END"),
            };
            write!(columns[parent], ", {value} AS to_{table}").unwrap();
            conditions.push(format!("t{parent}.to_{table} = t{table}.id"));
        }
        for (table, columns) in columns.iter().enumerate() {
            let rows = rows[table];
            let create = format!(
                "CREATE OR REPLACE TABLE t{table} AS SELECT value AS id, value % 10 AS v{columns} \
                 FROM range({rows}) AS r(value)"
            );
            connection.execute(&create).unwrap();
            match random.random_range(0..4) {
                0 => conditions.push(format!("t{table}.v < {}", random.random_range(1..9))),
                1 => conditions.push(format!("t{table}.v = {}", random.random_range(0..10))),
                2 => conditions.push(format!(
                    "EXISTS (SELECT 1 FROM t{} AS e WHERE e.id = t{table}.v)",
                    random.random_range(0..count)
                )),
                _ => (),
            }
        }
        Self { tables: (0..count).map(|table| format!("t{table}")).collect(), conditions }
    }

    /// A table that refers to three others, which are alike: orders of these cost the same.
    fn of_likes(connection: &Connection) -> Self {
        let mut create = "CREATE OR REPLACE TABLE t0 AS SELECT value AS id, value % 50 AS to_1, \
             value % 50 AS to_2, value % 50 AS to_3 FROM range(3000) AS r(value)"
            .to_owned();
        let mut conditions = Vec::new();
        for table in 1..4 {
            write!(
                create,
                "; CREATE OR REPLACE TABLE t{table} AS SELECT value AS id FROM range(50)"
            )
            .unwrap();
            conditions.push(format!("t0.to_{table} = t{table}.id"));
        }
        connection.execute(&create).unwrap();
        Self { tables: (0..4).map(|table| format!("t{table}")).collect(), conditions }
    }

    /// A table of which all rows meet those of three others, so that orders cost the same, and groups of it are few. One of the others
    /// has many columns that nobody asks for.
    fn of_a_wide_one(connection: &Connection) -> Self {
        let create = "CREATE TABLE t0 AS SELECT value AS id, value % 7 AS to_1, \
                      value % 20000 AS to_2, value % 10 AS to_3 FROM range(60000) AS r(value)";
        connection.execute(create).unwrap();
        let unasked: String = (0..40).map(|column| format!(", value AS c{column}")).collect();
        let mut conditions = Vec::new();
        for (table, rows, unasked) in [(1, 7, ""), (2, 20_000, unasked.as_str()), (3, 10, "")] {
            let create = format!(
                "CREATE TABLE t{table} AS SELECT value AS id, value % 5 AS v{unasked} \
                 FROM range({rows}) AS r(value)"
            );
            connection.execute(&create).unwrap();
            conditions.push(format!("t0.to_{table} = t{table}.id"));
        }
        Self { tables: (0..4).map(|table| format!("t{table}")).collect(), conditions }
    }

    /// Fourteen tables: of so many, not all orders are compared.
    fn of_fourteen(connection: &Connection) -> Self {
        let mut conditions = vec!["t2.v = 1".to_owned(), "t9.v < 4".to_owned()];
        for table in 0..14 {
            let rows = if table == 0 { 3000 } else { 10 * table + 3 };
            let mut columns = String::new();
            // The first six refer to two others each, the seventh to one.
            for target in [2 * table + 1, 2 * table + 2].into_iter().filter(|&target| target < 14) {
                write!(columns, ", value * 7 % {} AS to_{target}", 10 * target).unwrap();
                conditions.push(format!("t{table}.to_{target} = t{target}.id"));
            }
            let create = format!(
                "CREATE OR REPLACE TABLE t{table} AS SELECT value AS id, value % 10 AS v{columns} \
                 FROM range({rows}) AS r(value)"
            );
            connection.execute(&create).unwrap();
        }
        Self { tables: (0..14).map(|table| format!("t{table}")).collect(), conditions }
    }

    pub(crate) fn query(&self) -> String {
        format!("SELECT count(*), sum(t0.id + t1.id) {}", self.joined())
    }

    /// A query that asks for a column of either of two tables.
    fn groups(&self) -> String {
        format!("SELECT t1.v, count(*), sum(t0.id) {} GROUP BY t1.v", self.joined())
    }

    fn joined(&self) -> String {
        format!("FROM {} WHERE {}", self.tables.join(", "), self.conditions.join(" AND "))
    }

    pub(crate) fn shuffle(&mut self, random: &mut SmallRng) {
        self.tables.shuffle(random);
        self.conditions.shuffle(random);
    }
}

fn answer(connection: &Connection, query: &str) -> (i64, Option<i64>) {
    let rows = connection.query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    rows.rows::<(i64, Option<i64>)>().unwrap()[0]
}

/// The operators of the plan.
fn plan(connection: &Connection, query: &str) -> String {
    let rows = connection.query(&format!("EXPLAIN FORMAT indent {query}")).unwrap();
    rows.rows::<(String, String)>().unwrap().remove(1).1
}

#[test]
fn every_order_of_from_has_one_plan_and_the_answer_of_the_written_order() {
    // Plans are compared, of queries that were asked before.
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    let connection = builder.build().unwrap().connect();
    for seed in 0..50 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut snowflake = Snowflake::new(&connection, &mut random);
        connection.execute("SET join_order = 'written'").unwrap();
        let written = answer(&connection, &snowflake.query());
        connection.execute("SET join_order = 'cost'").unwrap();
        let first = plan(&connection, &snowflake.query());
        let groups = plan(&connection, &snowflake.groups());
        for _ in 0..4 {
            let query = snowflake.query();
            assert_eq!(answer(&connection, &query), written, "seed {seed}: {query}");
            assert_eq!(plan(&connection, &query), first, "seed {seed}: {query}");
            assert_eq!(plan(&connection, &snowflake.groups()), groups, "seed {seed}: {query}");
            snowflake.shuffle(&mut random);
        }
    }
}

/// Calls with the tables in each of their orders.
fn permuted(tables: &mut [String], from: usize, call: &mut impl FnMut(&[String])) {
    if from + 1 >= tables.len() {
        return call(tables);
    }
    for at in from..tables.len() {
        tables.swap(from, at);
        permuted(tables, from + 1, call);
        tables.swap(from, at);
    }
}

#[test]
fn all_orders_of_few_tables_have_one_plan() {
    let connection = builder().threads(2).build().unwrap().connect();
    let mut orders = 0;
    for seed in 0..20 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut snowflake = match seed {
            0 => Snowflake::of_likes(&connection),
            _ => Snowflake::new(&connection, &mut random),
        };
        if snowflake.tables.len() > 4 {
            continue;
        }
        let first = plan(&connection, &snowflake.query());
        let mut tables = std::mem::take(&mut snowflake.tables);
        permuted(&mut tables, 0, &mut |tables| {
            snowflake.tables = tables.to_vec();
            let query = snowflake.query();
            assert_eq!(plan(&connection, &query), first, "seed {seed}: {query}");
            orders += 1;
        });
    }
    assert!(orders > 60, "{orders}");
}

#[test]
fn groups_before_joins_of_equal_cost_are_the_same_in_all_orders() {
    let connection = builder().threads(2).build().unwrap().connect();
    let mut snowflake = Snowflake::of_a_wide_one(&connection);
    let first = plan(&connection, &snowflake.groups());
    assert!(first.contains("part 0"), "{first}");
    let mut tables = std::mem::take(&mut snowflake.tables);
    permuted(&mut tables, 0, &mut |tables| {
        snowflake.tables = tables.to_vec();
        let query = snowflake.groups();
        assert_eq!(plan(&connection, &query), first, "{query}");
    });
}

#[test]
fn every_order_of_fourteen_tables_has_one_plan() {
    let connection = builder().threads(2).build().unwrap().connect();
    let mut snowflake = Snowflake::of_fourteen(&connection);
    let first = plan(&connection, &snowflake.query());
    let mut random = SmallRng::seed_from_u64(14);
    for _ in 0..20 {
        snowflake.shuffle(&mut random);
        let query = snowflake.query();
        assert_eq!(plan(&connection, &query), first, "{query}");
    }
}

#[test]
fn the_smallest_relation_decides_where_the_largest_was_written_first() {
    let connection = builder().threads(1).build().unwrap().connect();
    let create = "CREATE TABLE large AS SELECT value AS id, value % 100 AS k FROM range(20000) AS r(value); \
                  CREATE TABLE other AS SELECT value AS id, value % 100 AS k FROM range(20000) AS r(value); \
                  CREATE TABLE one AS SELECT 7 AS id";
    connection.execute(create).unwrap();
    let query =
        "SELECT count(*) FROM large, other, one WHERE large.k = other.k AND large.id = one.id";
    let text = plan(&connection, query);
    // Of the pairs of both tables there are four million.
    let (inner, outer) = (text.rfind("HashJoinExec").unwrap(), text.find("HashJoinExec").unwrap());
    assert!(text[outer..inner].contains("(k@0, k@0)"), "{text}");
    assert!(text[inner..].contains("id@"), "{text}");
}
