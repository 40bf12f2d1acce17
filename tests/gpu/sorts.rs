//! Sorts by a device: rows of a table in memory in the order of their keys, all of them or the first few.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::groups::{answer, assert_same, assert_survives, explained};
use super::{Pair, count, figure, left, standin};

/// More than a block has at once, in batches of which some are short.
const ROWS: usize = 3_001;

/// Numbers of several widths and either sign, decimals, days, times, texts, and doubles with zeros of both signs and NaN; some of most are
/// NULL, and most repeat.
fn table(pair: &Pair, name: &str, rows: usize) {
    let some = |from: usize, to: usize| {
        format!(
            "SELECT i,
                 CAST(CASE WHEN i % 7 = 0 THEN NULL ELSE i * 7919 % 23 - 5 END AS TINYINT) AS a,
                 CAST(i * 104729 % 1000 - 500 AS SMALLINT) AS b,
                 CASE WHEN i % 11 = 3 THEN NULL ELSE i * 15485863 % 1000003 END AS c,
                 (i * 32452843 % 999999937 - 400000000) * 9000000011 AS wide,
                 CAST(CASE WHEN i % 13 = 1 THEN NULL ELSE i * 6151 % 211 / 100.0 END AS DECIMAL(6, 3)) AS q,
                 CASE WHEN i % 17 = 2 THEN NULL ELSE chr(CAST(65 + i * 31 % 5 AS INT)) END AS s,
                 concat('name', CAST(i * 37 % 50 AS VARCHAR)) AS n,
                 DATE '1995-01-01' + CAST(i * 97 % 900 AS INT) AS e,
                 to_timestamp_seconds(i * 7907 % 10007 * 1000) AS t,
                 CASE WHEN i % 19 = 5 THEN NULL WHEN i % 23 = 1 THEN 0e0 WHEN i % 23 = 2 THEN -0e0
                     WHEN i % 23 = 3 THEN CAST('NaN' AS DOUBLE) WHEN i % 23 = 4 THEN -CAST('NaN' AS DOUBLE)
                     WHEN i % 23 = 5 THEN CAST('-Infinity' AS DOUBLE) ELSE round(sin(CAST(i AS DOUBLE)) * 100) END AS x,
                 CAST(CASE WHEN i % 29 = 5 THEN NULL WHEN i % 23 = 3 THEN CAST('NaN' AS DOUBLE) ELSE cos(CAST(i AS DOUBLE)) END AS REAL) AS y,
                 CAST(NULL AS BIGINT) AS none, [i, i + 1] AS list
             FROM generate_series({from}, {to}) AS g(i)"
        )
    };
    // In several batches.
    let third = rows / 3;
    pair.execute(&format!("CREATE TABLE {name} AS {}", some(1, third)));
    pair.execute(&format!("INSERT INTO {name} {}", some(third + 1, rows)));
}

/// What leaves, and by what: a device has the keys alone.
const SORTS: &[&str] = &[
    "SELECT i FROM t ORDER BY b",
    "SELECT i, s, n, list, x FROM t ORDER BY a",
    "SELECT i FROM t ORDER BY a DESC NULLS LAST, s NULLS FIRST, b DESC",
    "SELECT i, a, q, e FROM t ORDER BY e DESC, q, a",
    "SELECT i, wide FROM t ORDER BY wide",
    "SELECT i, wide FROM t ORDER BY wide DESC, b",
    "SELECT * FROM t ORDER BY n DESC, s",
    "SELECT i, t FROM t ORDER BY t, i DESC",
    "SELECT i, x FROM t ORDER BY x",
    "SELECT i, x, y FROM t ORDER BY y DESC NULLS LAST, x DESC",
    "SELECT i, x FROM t ORDER BY s, x DESC NULLS FIRST, b",
    // All alike.
    "SELECT i FROM t ORDER BY none",
    // Rows that are kept, some of which are none, and columns that are computed.
    "SELECT i, s FROM t WHERE b > 100 AND s <> 'C' ORDER BY s, c",
    "SELECT i, n FROM t WHERE n LIKE 'name1%' OR x < 0e0 ORDER BY c DESC",
    "SELECT i, q * 2 AS d, a + 1 AS f FROM t WHERE q > 1 ORDER BY q DESC",
    "SELECT i FROM t WHERE b > 1000 ORDER BY b",
    // What is computed: of whole numbers a number, and of few values a rank.
    "SELECT i FROM t ORDER BY CAST(a AS BIGINT) * 3 - b",
    "SELECT i, e FROM t ORDER BY extract(month FROM e), length(n) DESC, upper(s)",
    "SELECT i, q FROM t ORDER BY CASE WHEN b > 0 THEN q END NULLS FIRST, i",
    // Read on.
    "SELECT i, s, row_number() OVER (ORDER BY b, i) AS place FROM t ORDER BY place DESC",
    "SELECT count(*), sum(i * place) FROM (SELECT i, row_number() OVER (ORDER BY x, i DESC) AS place FROM t) AS g",
];

/// The lines of an answer that have rows.
fn lines(answer: &str) -> Vec<&str> {
    let lines: Vec<&str> = answer.lines().collect();
    // Of none there is no frame below them.
    lines.get(3..lines.len() - 1).unwrap_or_default().to_vec()
}

/// Whether the first rows of a sort are those that the host has first of all: of rows with the same keys the first.
fn assert_first(pair: &Pair, statement: &str, fetch: usize, offset: usize) {
    let all = answer(&pair.host, statement);
    let limited = format!("{statement} LIMIT {fetch} OFFSET {offset}");
    let found = answer(&pair.device, &limited);
    let expected: Vec<&str> = lines(&all).into_iter().skip(offset).take(fetch).collect();
    // Columns are as wide as their widest cell.
    let cells = |lines: Vec<&str>| -> Vec<Vec<String>> {
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        lines.into_iter().map(cells).collect()
    };
    assert_eq!(cells(lines(&found)), cells(expected), "{limited}");
}

#[test]
fn a_device_sorts_as_the_host_does() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", ROWS);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for statement in SORTS {
        let plan = explained(&pair.device, statement);
        assert!(plan.contains("OffloadedSortExec: by the GPU"), "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    for order in 1..4 {
        standin::set("order", order);
        SORTS.iter().step_by(4).for_each(|statement| assert_same(&pair, statement));
    }
    assert_eq!((left(&pair.device), figure(&pair.device, "failure")), (0, None));
}

#[test]
fn the_first_rows_are_the_first_of_all() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", ROWS);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (at, statement) in SORTS[..SORTS.len() - 2].iter().enumerate() {
        standin::set("order", (at % 4) as i64);
        let plan = explained(&pair.device, &format!("{statement} LIMIT 10"));
        assert!(plan.contains("OffloadedSortExec: by the GPU"), "{statement}:\n{plan}");
        for (fetch, offset) in [(1, 0), (10, 3), (1000, 0), (20, ROWS - 10)] {
            assert_first(&pair, statement, fetch, offset);
        }
    }
    assert_eq!((left(&pair.device), figure(&pair.device, "failure")), (0, None));
}

/// What a device brings are the keys and what conditions are about, and what comes back are numbers of rows.
#[test]
fn columns_that_only_leave_stay_with_the_host() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", ROWS);
    let statement = "SELECT * FROM t ORDER BY b";
    assert_same(&pair, statement);
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    let moved = || ["uploaded", "downloaded"].map(|name| count(&pair.device, name));
    let [up, down] = moved();
    assert_same(&pair, statement);
    let [up, down] = [moved()[0] - up, moved()[1] - down];
    // A number of two bytes; and a word for how many rows there are and two for their bits.
    assert_eq!((up, down), (ROWS as u64 * 2, ROWS as u64 * 4 + 24));
    let [before, _] = moved();
    assert_first(&pair, "SELECT i FROM t ORDER BY b DESC", 7, 0);
    // The threshold, and how many rows are left.
    assert_eq!(moved()[0] - before, 16);
    // Other rows are other columns.
    pair.execute("DELETE FROM t WHERE b = 7; INSERT INTO t (i, b, n) VALUES (-1, 3, 'new'), (-2, NULL, 'none')");
    assert_same(&pair, "SELECT i, n FROM t ORDER BY b NULLS FIRST, n");
    assert_eq!(left(&pair.device), 0);
}

#[test]
fn sorts_that_are_none_for_devices_are_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", 500);
    for statement in [
        // Doubles that are computed, lists, and what may leave 64 bits.
        "SELECT i FROM t ORDER BY x * 2, i",
        "SELECT i FROM t ORDER BY list",
        "SELECT i FROM t WHERE wide < 0 AND wide > -1000 ORDER BY wide + wide, i",
        // Columns that may fail, rows that are no table's, and those of two.
        "SELECT 100 / b AS d, i FROM t WHERE b <> 0 ORDER BY i",
        "SELECT i FROM generate_series(1, 1000) AS g(i) ORDER BY i % 7, i",
        "SELECT t.i FROM t JOIN t AS u ON t.i = u.b ORDER BY t.i + u.c, t.i",
        // More words than a code has.
        "SELECT i FROM t ORDER BY x, wide, y, t, c, x DESC, b",
    ] {
        let plan = explained(&pair.device, statement);
        let is_last = statement.contains("x, wide, y");
        assert!(is_last || !plan.contains("OffloadedSortExec"), "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    assert_eq!(figure(&pair.device, "failure"), None);
}

/// A random sort: some keys, and sometimes a condition.
fn statement(rng: &mut SmallRng) -> String {
    let keys = ["a", "b", "c", "wide", "q", "s", "n", "e", "t", "x", "y", "a + b", "none"];
    let keys = (0..rng.random_range(1..4)).map(|_| {
        let key = keys[rng.random_range(0..keys.len())];
        let order = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"][rng.random_range(0..4)];
        format!("{key}{order}")
    });
    let keys: Vec<String> = keys.collect();
    let kept =
        ["", " WHERE a > 3", " WHERE s = 'B' OR x > 5e0", " WHERE n <> 'name7' AND c > 1000"];
    let kept = kept[rng.random_range(0..kept.len())];
    format!("SELECT i, s, x FROM t{kept} ORDER BY {}", keys.join(", "))
}

#[test]
fn random_sorts_are_what_the_host_answers() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", 2_100);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    for at in 0..24 {
        standin::set("order", at % 4);
        let statement = statement(&mut rng);
        assert!(explained(&pair.device, &statement).contains("OffloadedSortExec: by the GPU"));
        assert_same(&pair, &statement);
        assert_first(&pair, &statement, rng.random_range(1..200), rng.random_range(0..50));
    }
    assert_eq!((left(&pair.device), figure(&pair.device, "failure")), (0, None));
}

#[test]
fn whatever_fails_the_host_sorts() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", 300);
    let statements = [
        "SELECT i, n FROM t WHERE s <> 'C' ORDER BY s, b, i",
        "SELECT i, list FROM t ORDER BY x DESC, i LIMIT 5",
    ];
    assert_survives(&pair, &statements);
    assert!(count(&pair.device, "failed") > 3);
    // A text that does not compile is not tried again.
    let statement = "SELECT i FROM t WHERE c > b ORDER BY c - b, i";
    standin::set("fail_compile", 1);
    for _ in 0..2 {
        let before = count(&pair.device, "failed");
        assert_same(&pair, statement);
        assert_eq!(count(&pair.device, "failed"), before + 1);
    }
    let plan = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    assert!(plan.contains("(done by the host: kernel run does not compile"), "{plan}");
    standin::reset();
    pair.device.execute("SET gpu_on_failure = 'error'; SET gpu_keep = off").unwrap();
    standin::set("refuse_launch", 1);
    let error = pair.device.query(statements[0]).and_then(|query| query.collect()).unwrap_err();
    assert!(error.to_string().contains("the device"), "{error}");
}

/// EXPLAIN shows both sides of a sort, and one that has no device, or no room there, is the host's alone.
#[test]
fn plans_show_sorts_of_a_device() {
    let Some(pair) = Pair::new() else { return };
    table(&pair, "t", 20_000);
    let statement = "SELECT i FROM t ORDER BY c, i";
    let plan = explained(&pair.device, statement);
    let shown = "OffloadedSortExec: by the GPU (GPU ";
    assert!(plan.contains(shown) && plan.contains("to bring; host "), "{plan}");
    assert!(plan.contains("SpillingSortExec"), "{plan}");
    let measured = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    assert!(measured.contains("output_rows=20.00 K"), "{measured}");
    assert!(measured.contains("by_host=0"), "{measured}");
    pair.device.execute("SET gpu = 'off'").unwrap();
    assert!(!explained(&pair.device, statement).contains("Offloaded"));
    // A table for which a device has no room is the host's.
    pair.device.execute("SET gpu = 'force'; SET gpu_memory_limit = '100KB'").unwrap();
    assert!(!explained(&pair.device, statement).contains("Offloaded"));
    assert_same(&pair, statement);
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}
