//! Rows that come to a device while others are added up, whole or a batch at a time.

use super::groups::{answer, assert_same, assert_survives, explained};
use super::{Pair, count, figure, left, standin};

/// Rows of a stretch, of which a batch is made.
const STRETCH: usize = 1 << 16;

/// Whole stretches and a part of one, in which the last pack is none.
const ROWS: usize = 4 * STRETCH + 20_003;

fn table(pair: &Pair, rows: usize) {
    pair.execute(&format!(
        "CREATE TABLE t AS SELECT
             CAST(CASE WHEN i % 7 = 0 THEN NULL ELSE i * 7919 % 23 - 5 END AS TINYINT) AS a,
             CAST(i * 104729 % 1000 - 500 AS SMALLINT) AS b,
             CASE WHEN i % 11 = 3 THEN NULL ELSE i * 15485863 % 1000003 END AS c,
             CASE WHEN i % 17 = 2 THEN NULL ELSE chr(CAST(65 + i * 31 % 5 AS INT)) END AS s,
             CASE WHEN i % 19 = 5 THEN NULL ELSE sin(CAST(i AS DOUBLE)) * 100 END AS x
         FROM generate_series(1, {rows}) AS g(i)"
    ));
}

/// In registers, in shared memory, in one table for all and in slots; texts, a join, and nothing that is counted.
const STATEMENTS: &[&str] = &[
    "SELECT count(*), count(a), sum(a), min(b), max(c) FROM t WHERE b < 300",
    "SELECT s, count(*), sum(b), max(c) FROM t GROUP BY s ORDER BY s",
    "SELECT a, s, count(*), sum(c) FROM t GROUP BY a, s ORDER BY a, s",
    "SELECT b, a, count(*), sum(c) FROM t GROUP BY b, a ORDER BY b, a",
    "SELECT c, b, a, count(*) FROM t WHERE b > 480 GROUP BY c, b, a ORDER BY c, b, a",
    "SELECT d.n, count(*), sum(t.c) FROM t JOIN d ON t.b = d.k GROUP BY d.n ORDER BY d.n",
    "SELECT s, round(sum(x), 6) FROM t GROUP BY s ORDER BY s",
    "SELECT count(*), sum(c) FROM t WHERE b > 900",
];

/// The bits of sums of doubles, which the order of additions decides.
const DOUBLES: &str = "SELECT s, sum(x), avg(x), max(c) FROM t GROUP BY s ORDER BY s";

fn joined(pair: &Pair) {
    pair.execute(
        "CREATE TABLE d AS SELECT i * 3 - 400 AS k, concat('n', CAST(i % 4 AS VARCHAR)) AS n
         FROM generate_series(0, 250) AS g(i);
         SET eager_groups = off; SET contractions = off",
    );
}

/// How many batches a statement's rows came in, how many rows the largest had, and by how many streams they came.
fn batches(pair: &Pair, statement: &str) -> [String; 3] {
    let measured = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    assert!(measured.contains("by_host=0"), "{measured}");
    let figure = |name: &str| {
        let behind = measured.split_once(&format!(", {name}=")).map(|(_, behind)| behind);
        let behind = behind.unwrap_or_else(|| panic!("no {name} in\n{measured}"));
        behind.split([',', ']']).next().unwrap_or_default().to_owned()
    };
    ["batches", "batch_rows", "streams"].map(figure)
}

#[test]
fn rows_that_have_no_room_come_in_batches() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, ROWS);
    joined(&pair);
    pair.device.execute("SET gpu_keep = off").unwrap();
    let whole = answer(&pair.device, DOUBLES);
    assert_eq!(batches(&pair, DOUBLES)[0], "5");
    // Doubles in eight bytes, numbers in four and codes in one, each with bits: for all rows there is no room, for two stretches there is.
    let limit = 44 * STRETCH;
    pair.device.execute(&format!("SET gpu_memory_limit = {limit}")).unwrap();
    for order in [0, 1, 3] {
        standin::set("order", order);
        assert_eq!(answer(&pair.device, DOUBLES), whole, "{order}");
    }
    let [batches, largest, streams] = batches(&pair, DOUBLES);
    assert_eq!([batches.as_str(), &largest], ["5", "65.54 K"]);
    // As many as there are rooms.
    assert_eq!(streams, "2");
    // All other statements read no more than these.
    for statement in STATEMENTS {
        let plan = explained(&pair.device, statement);
        assert!(plan.contains("OffloadedAggregateExec"), "{plan}");
        assert_same(&pair, statement);
        assert_eq!(left(&pair.device), 0, "{statement}");
    }
    assert_eq!(figure(&pair.device, "failure"), None);
    // Nothing of a table that has no room stays, and others are as they were.
    pair.device.execute("SET gpu_keep = on").unwrap();
    assert_eq!(answer(&pair.device, DOUBLES), whole);
    assert_same(&pair, "SELECT sum(a) FROM t");
    assert_eq!((count(&pair.device, "kept_columns"), left(&pair.device)), (1, 0));
    // Without room for two stretches it is the host's.
    pair.device.execute(&format!("SET gpu_memory_limit = {}", 11 * STRETCH)).unwrap();
    assert!(!explained(&pair.device, DOUBLES).contains("OffloadedAggregateExec"));
    assert_same(&pair, STATEMENTS[0]);
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}

/// More batches than there are blocks of pinned memory, of which each is used again before the device has come to it; and the
/// driver has less room than it is asked for.
#[test]
fn batches_are_halved_until_they_have_room() {
    let Some(pair) = Pair::new() else { return };
    let stretches = 24;
    table(&pair, stretches * STRETCH);
    let statement = "SELECT count(*), sum(b), min(b), max(b) FROM t";
    assert_same(&pair, statement);
    pair.device.execute("SET gpu_keep = off").unwrap();
    let all = count(&pair.device, "memory");
    // Two batches of three stretches have room beside the totals, and two of one.
    for (memory, thousands) in [(13 * STRETCH, 197.0), (5 * STRETCH, 66.0)] {
        standin::set("memory", memory as i64);
        assert_same(&pair, statement);
        let [batches, largest, _] = batches(&pair, statement);
        assert!(batches.parse::<usize>().unwrap() >= stretches / 3, "{batches}");
        // The first is one stretch, and larger ones come only where they are of use.
        let largest: f64 = largest.trim_end_matches(" K").parse().unwrap();
        assert!((65.0..=thousands).contains(&largest), "{largest}");
        assert_eq!(left(&pair.device), 0);
    }
    standin::set("memory", 2 * STRETCH as i64);
    assert_same(&pair, statement);
    standin::set("memory", all as i64);
    assert!(figure(&pair.device, "failure").is_some());
    assert_same(&pair, statement);
}

/// Where the host has memory for few decoded rows, batches are smaller and streams fewer; where it has for none, it does the rest itself.
#[test]
fn batches_fit_into_the_hosts_memory() {
    let Some(pair) = Pair::new() else { return };
    let stretches = 24;
    table(&pair, stretches * STRETCH);
    pair.device.execute("SET gpu_keep = off").unwrap();
    let whole = answer(&pair.device, DOUBLES);
    // Eight bytes, four and one of each row, with bits.
    let stretch = 13 * STRETCH + 3 * STRETCH / 8;
    let limit = |bytes: usize| {
        pair.device.execute(&format!("SET memory_limit = {}", bytes)).unwrap();
    };
    // Beside what is held of matrices there is room for one of them, and for none.
    limit(14 * stretch / 4);
    assert_eq!(batches(&pair, DOUBLES), [stretches.to_string(), "65.54 K".into(), "1".into()]);
    assert_eq!(answer(&pair.device, DOUBLES), whole);
    limit(2 * stretch);
    let measured = answer(&pair.device, &format!("EXPLAIN ANALYZE {DOUBLES}"));
    assert!(measured.contains("of memory_limit"), "{measured}");
    assert_same(&pair, STATEMENTS[1]);
    assert_eq!(left(&pair.device), 0);
}

/// What is sorted is all rows at once, but comes as others do.
#[test]
fn the_columns_of_a_sort_come_together() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, 3 * STRETCH - 9);
    pair.device.execute("SET gpu_keep = off").unwrap();
    let statement = "SELECT c, a, s, x FROM t WHERE b < 400 ORDER BY c DESC, a, b LIMIT 1000";
    assert!(explained(&pair.device, statement).contains("OffloadedSortExec"));
    assert_same(&pair, statement);
    assert_eq!(batches(&pair, statement)[..2], ["3".to_owned(), "65.54 K".into()]);
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// Each allocation, copy and launch in turn is refused in the middle of batches, and the answer is the host's.
#[test]
fn whatever_fails_no_batch_counts_twice() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, 3 * STRETCH - 9);
    let statement = "SELECT s, count(*), sum(a), min(b) FROM t GROUP BY s ORDER BY s";
    for limit in [0, 9 * STRETCH] {
        pair.device.execute(&format!("SET gpu_memory_limit = {limit}")).unwrap();
        assert_survives(&pair, &[statement]);
    }
    assert!(count(&pair.device, "failed") > 3);
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}
