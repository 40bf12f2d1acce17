//! What EXPLAIN shows of choices by cost: over generated snowflakes, the ways that were not taken.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use relatrix::Connection;

use crate::join_order::Snowflake;

use super::builder;

fn connect() -> Connection {
    // Plans are compared, of queries that were asked before.
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    builder.build().unwrap().connect()
}

/// The rows of a statement that shows a plan.
fn rows(connection: &Connection, statement: &str) -> Vec<(String, String)> {
    let rows = connection.query(statement);
    rows.unwrap_or_else(|error| panic!("{statement}: {error}")).rows().unwrap()
}

/// The choices that EXPLAIN shows, each on a line; none where it has no row for them.
fn choices(connection: &Connection, query: &str) -> Vec<String> {
    let rows = rows(connection, &format!("EXPLAIN {query}"));
    let text = rows.into_iter().find(|row| row.0 == "choices").map(|row| row.1);
    let lines = text.map(|text| text.replace("\n  ", "; "));
    lines.iter().flat_map(|lines| lines.lines().map(str::to_owned)).collect()
}

/// The ways of a choice, each with its nanoseconds, and whether it costs less than what it gains is worth.
fn ways(choice: &str) -> Vec<(String, f64, bool)> {
    let ways = choice.split_once(": ").unwrap().1.split("; ").map(|way| {
        let way = way.strip_suffix(", as written").unwrap_or(way);
        let saves_little = way.strip_suffix(", which saves too little");
        let is_little = saves_little.is_some();
        let mut words = saves_little.unwrap_or(way).rsplitn(3, ' ');
        let unit = match words.next().unwrap() {
            "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            other => panic!("{other}: {choice}"),
        };
        let number: f64 = words.next().unwrap().parse().unwrap();
        (words.next().unwrap().to_owned(), number * unit, is_little)
    });
    ways.collect()
}

#[test]
fn nothing_that_was_passed_over_costs_less_than_what_was_chosen() {
    let connection = connect();
    let mut shown = [0; 2];
    for seed in 0..50 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut snowflake = Snowflake::new(&connection, &mut random);
        for grouped in ["", " GROUP BY t1.v"] {
            let query = snowflake.query() + grouped;
            for choice in choices(&connection, &query) {
                let ways = ways(&choice);
                shown[usize::from(choice.starts_with("join order"))] += 1;
                assert!(ways.len() > 1, "seed {seed}: {choice}");
                for (_, nanoseconds, saves_little) in &ways[1..] {
                    let is_less = *nanoseconds < ways[0].1;
                    assert!(!is_less || *saves_little, "seed {seed}: {choice}: {query}");
                }
            }
            snowflake.shuffle(&mut random);
        }
    }
    assert!(shown[0] > 200 && shown[1] > 50, "{shown:?}");
}

#[test]
fn the_order_of_from_decides_only_what_was_written() {
    let without_written = |choices: Vec<String>| -> Vec<String> {
        let choices = choices.into_iter().map(|choice| {
            let parts = choice.split("; ").filter(|part| !part.starts_with("as written"));
            parts.collect::<Vec<_>>().join("; ").replace(", as written", "")
        });
        choices.collect()
    };
    let connection = connect();
    for seed in 0..20 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut snowflake = Snowflake::new(&connection, &mut random);
        let first = without_written(choices(&connection, &snowflake.query()));
        for _ in 0..4 {
            snowflake.shuffle(&mut random);
            let now = without_written(choices(&connection, &snowflake.query()));
            assert_eq!(now, first, "seed {seed}: {}", snowflake.query());
        }
    }
}

#[test]
fn a_runner_up_that_is_written_costs_what_was_shown() {
    let connection = connect();
    let order_of = |query: &str| {
        let choices = choices(&connection, query);
        choices.into_iter().find(|choice| choice.starts_with("join order: "))
    };
    let mut forced = 0;
    for seed in 0..80 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut snowflake = Snowflake::new(&connection, &mut random);
        // What only filters has no place in FROM.
        snowflake.conditions.retain(|condition| !condition.starts_with("EXISTS"));
        let Some(choice) = order_of(&snowflake.query()) else { continue };
        let [(best, best_cost, _), (next, next_cost, _)] =
            [0, 1].map(|at| ways(&choice)[at].clone());
        let next = next.strip_prefix("runner-up ").unwrap();
        // FROM says nothing of joins with joins, and what costs the same is no choice.
        if next.contains('(') || best_cost == next_cost {
            continue;
        }
        snowflake.tables = next.split(", ").map(str::to_owned).collect();
        connection.execute("SET join_order = 'written'").unwrap();
        let kept = order_of(&snowflake.query()).unwrap();
        connection.execute("SET join_order = 'cost'").unwrap();
        let expected =
            [(next.to_owned(), next_cost, false), (format!("by cost {best}"), best_cost, false)];
        assert_eq!(ways(&kept), expected, "seed {seed}: {kept}, not {choice}");
        // And it is known as what was written.
        let again = order_of(&snowflake.query()).unwrap();
        assert!(again.ends_with(", as written"), "seed {seed}: {again}");
        assert_eq!(ways(&again), ways(&choice)[..2], "seed {seed}: {again}, not {choice}");
        forced += 1;
    }
    assert!(forced > 20, "{forced}");
}

#[test]
fn formats_that_machines_read_have_no_row_for_choices() {
    let connection = connect();
    let mut random = SmallRng::seed_from_u64(3);
    let query = Snowflake::new(&connection, &mut random).query();
    assert!(!choices(&connection, &query).is_empty());
    for format in ["indent", "tree", "pgjson", "graphviz"] {
        let rows = rows(&connection, &format!("EXPLAIN FORMAT {format} {query}"));
        assert!(rows.iter().all(|row| row.0 != "choices"), "{format}: {rows:?}");
    }
    connection.execute("SET datafusion.explain.format = 'tree'").unwrap();
    assert!(choices(&connection, &query).is_empty());
    connection.execute("SET datafusion.explain.format = 'indent'").unwrap();
    let analyzed = rows(&connection, &format!("EXPLAIN ANALYZE {query}"));
    let titles: Vec<&str> = analyzed.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(titles, ["Plan with Metrics", "Choices", "Estimates"]);
    let analyzed = rows(&connection, &format!("EXPLAIN ANALYZE FORMAT pgjson {query}"));
    assert!(analyzed.iter().all(|row| row.0 != "Choices"), "{analyzed:?}");
}

#[test]
fn where_nothing_is_chosen_nothing_is_shown() {
    let connection = connect();
    connection.execute("CREATE TABLE t AS SELECT value AS a FROM range(100)").unwrap();
    // Of two sides that cost the same neither is chosen.
    for query in ["SELECT 1", "SELECT a FROM t", "SELECT 1 FROM t AS x JOIN t AS y USING (a)"] {
        assert_eq!(choices(&connection, query), [""; 0], "{query}");
    }
}

#[test]
fn an_order_of_many_relations_can_be_read() {
    let connection = connect();
    let mut conditions = vec!["t0.a >= 0".to_owned()];
    for table in 0..14 {
        let rows = 20 + 10 * table;
        let create = format!("CREATE TABLE t{table} AS SELECT value AS a FROM range({rows})");
        connection.execute(&create).unwrap();
        if table > 0 {
            conditions.push(format!("t{}.a = t{table}.a", table - 1));
        }
    }
    let tables: Vec<String> = (0..14).rev().map(|table| format!("t{table}")).collect();
    let query = format!("SELECT 1 FROM {} WHERE {}", tables.join(", "), conditions.join(" AND "));
    let rows = rows(&connection, &format!("EXPLAIN {query}"));
    let lines: Vec<&str> = rows[2].1.lines().collect();
    assert!(lines[0].starts_with("join order: t0, t1, "), "{lines:?}");
    assert!(lines[1].starts_with("  as written t13, t12, "), "{lines:?}");
    assert!(lines.iter().all(|line| line.len() < 120), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(" and 9 more")), "{lines:?}");
}
