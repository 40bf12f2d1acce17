//! Aggregations by a device: rows of a table in memory, kept by a condition and added up by groups.

use relatrix::Connection;
use relatrix::arrow::util::pretty::pretty_format_batches;

use super::{Pair, count, figure, left, standin};

/// No multiple of what a block reads at a time, in batches of which the last is short.
const ROWS: usize = 20_011;

/// Numbers of several widths and either sign, decimals, days, texts and doubles; some of most are NULL.
pub(crate) fn table(pair: &Pair) {
    pair.execute(&format!(
        "CREATE TABLE t AS SELECT
             CAST(CASE WHEN i % 7 = 0 THEN NULL ELSE i * 7919 % 23 - 5 END AS TINYINT) AS a,
             CAST(i * 104729 % 1000 - 500 AS SMALLINT) AS b,
             CASE WHEN i % 11 = 3 THEN NULL ELSE i * 15485863 % 1000003 END AS c,
             (i * 32452843 % 999999937 - 400000000) * 9000000011 AS wide,
             CAST(i * 7907 % 10007 / 100.0 AS DECIMAL(12, 2)) AS p,
             CAST(CASE WHEN i % 13 = 1 THEN NULL ELSE i * 6151 % 11 / 100.0 END AS DECIMAL(6, 3)) AS q,
             CASE WHEN i % 17 = 2 THEN NULL ELSE chr(CAST(65 + i * 31 % 5 AS INT)) END AS s,
             concat('name', CAST(i * 37 % 50 AS VARCHAR)) AS n,
             DATE '1995-01-01' + CAST(i * 97 % 900 AS INT) AS e,
             CASE WHEN i % 19 = 5 THEN NULL ELSE sin(CAST(i AS DOUBLE)) * 100 END AS x,
             CAST(cos(CAST(i AS DOUBLE)) AS REAL) AS y,
             CAST(NULL AS BIGINT) AS none
         FROM generate_series(1, {ROWS}) AS g(i)"
    ));
}

/// Statements, each of which a device answers as the host does: whole numbers, decimals, days and texts to the bit.
const STATEMENTS: &[&str] = &[
    "SELECT count(*), count(a), count(s), sum(a), avg(a), min(a), max(a), sum(none), count(none), min(none) FROM t",
    "SELECT sum(p * q), sum(p * (1 - q)), avg(p), min(q), max(p) FROM t WHERE p > 20 AND q < 0.07",
    // Beyond 63 bits, and nothing at all.
    "SELECT sum(CAST(wide AS DECIMAL(38, 0))), min(wide), max(wide) FROM t",
    "SELECT count(*), sum(a), avg(p), min(e) FROM t WHERE b > 1000",
    "SELECT s, count(*), sum(p) FROM t WHERE b > 1000 GROUP BY s",
    // Logic of three values.
    "SELECT count(*) FROM t WHERE a > 3 OR q > 0.05",
    "SELECT count(*) FROM t WHERE NOT (a > 3 AND q > 0.05)",
    "SELECT count(*) FROM t WHERE a IN (1, 2, NULL) OR s IS NULL",
    "SELECT count(*) FROM t WHERE a NOT IN (1, 2, 3) AND (a < 3) IS NOT NULL",
    "SELECT count(*) FROM t WHERE a NOT IN (1, NULL)",
    "SELECT sum(CASE WHEN a > 3 THEN p WHEN s = 'A' THEN -p END), sum(CASE b WHEN 7 THEN 1 ELSE 0 END) FROM t",
    "SELECT count(*) FILTER (WHERE s = 'B'), sum(p) FILTER (WHERE a IS NULL), min(e) FILTER (WHERE b < 0) FROM t",
    // Texts, and what is computed of few values.
    "SELECT count(*) FROM t WHERE n LIKE 'name1%' AND s <> 'C'",
    "SELECT count(*) FROM t WHERE upper(s) IN ('A', 'D') AND extract(year FROM e) = 1996",
    "SELECT s, count(*), sum(a), min(e), max(p) FROM t GROUP BY s ORDER BY s",
    "SELECT a, s, count(*), sum(p * q) FROM t WHERE e >= DATE '1995-06-01' GROUP BY a, s ORDER BY a, s",
    "SELECT date_trunc('month', e) AS m, sum(p), max(e) FROM t GROUP BY m ORDER BY m",
    "SELECT substr(n, 5, 1) AS k, length(s) AS l, count(*) FROM t GROUP BY k, l ORDER BY k, l",
    "SELECT a % 3 AS k, sum(c), avg(q) FROM t WHERE c IS NOT NULL GROUP BY k ORDER BY k",
    // In shared memory, and in a table for all.
    "SELECT n, count(*), sum(p), avg(c), min(b), max(b) FROM t GROUP BY n ORDER BY n",
    "SELECT e, n, count(*), sum(p), min(wide), max(c) FROM t GROUP BY e, n ORDER BY e, n",
    // By more codes than there are rows.
    "SELECT c, e, count(*), sum(p), min(b), max(a) FROM t GROUP BY c, e ORDER BY c, e",
    "SELECT s, c, n, sum(q) FROM t WHERE b < -200 GROUP BY s, c, n ORDER BY s, c, n",
    "SELECT c, p, count(*) FROM t WHERE b > 1000 GROUP BY c, p",
    // Doubles, in the order that they have.
    "SELECT count(*) FROM t WHERE x < 12.5e0 AND y >= CAST(0.25 AS REAL)",
    "SELECT DISTINCT s FROM t WHERE x > 0e0 ORDER BY s",
    // Doubles by many groups, as whole numbers.
    "SELECT n, round(sum(x), 6), round(avg(y), 6), count(x) FROM t GROUP BY n ORDER BY n",
    "SELECT n, e, round(sum(x * CAST(a AS DOUBLE) - 0.5e0), 6) FROM t GROUP BY n, e ORDER BY n, e",
    "SELECT c, e, round(sum(CASE WHEN b > 0 THEN x END), 6) FROM t GROUP BY c, e ORDER BY c, e",
    "SELECT count(DISTINCT a), count(DISTINCT e) FROM t",
    // The answers are read on: by a condition, a join and a sort.
    "SELECT k, total FROM (SELECT n AS k, sum(p) AS total FROM t GROUP BY n) AS g WHERE total > 19000 ORDER BY total, k",
    "SELECT g.s, h.n, total + other FROM (SELECT s, sum(p) AS total FROM t GROUP BY s) AS g
         JOIN (SELECT s, n, sum(b) AS other FROM t GROUP BY s, n) AS h ON g.s = h.s ORDER BY 1, 2",
];

/// Tables that rows of `t` name: by a number that some have not, some name in vain, and some of them have not; and one that these name.
pub(crate) fn named_tables(pair: &Pair) {
    pair.execute(
        "CREATE TABLE d AS SELECT
             CASE WHEN i % 29 = 4 THEN NULL ELSE i * 37 % 800 * 2 - 700 END AS k,
             CASE WHEN i % 9 = 2 THEN NULL ELSE i * 7 % 90 + 1000 END AS l,
             CASE WHEN i % 8 = 1 THEN NULL ELSE chr(CAST(97 + i * 11 % 4 AS INT)) END AS s,
             CAST(CASE WHEN i % 5 = 3 THEN NULL ELSE i % 40 END AS TINYINT) AS w,
             CAST(i * 3 % 1000 / 10.0 AS DECIMAL(8, 2)) AS p,
             CASE WHEN i % 6 = 1 THEN NULL ELSE sqrt(i) END AS x,
             DATE '1995-01-01' + CAST(i % 700 AS INT) AS e
         FROM generate_series(0, 799) AS g(i);
         CREATE TABLE l AS SELECT i * 17 % 90 + 1000 AS k, concat('land', CAST(i % 6 AS VARCHAR)) AS n, i % 40 AS w
         FROM generate_series(0, 70) AS g(i);
         CREATE TABLE far AS SELECT (i * 37 % 800 * 2 - 700) * 3000000007 AS k, CASE WHEN i % 7 = 3 THEN NULL ELSE i % 25 END AS v
         FROM generate_series(0, 799) AS g(i);
         CREATE TABLE pairs AS SELECT i % 40 * 1000 AS x, i / 40 - 5 AS y, chr(CAST(97 + i * 3 % 5 AS INT)) AS s, i AS v
         FROM generate_series(0, 999) AS g(i);
         CREATE TABLE supplies AS SELECT 1000 + i / 4 AS x, i % 4 AS y, i AS v FROM generate_series(0, 359) AS g(i);
         CREATE TABLE twice AS SELECT i % 300 AS k, i AS v FROM generate_series(0, 599) AS g(i);
         CREATE TABLE none AS SELECT k, s FROM d WHERE false;
         SET eager_groups = off; SET contractions = off",
    );
}

/// Aggregations over joins by a key, which are a look at a place each.
const JOINED: &[&str] = &[
    "SELECT count(*), sum(d.w), min(d.e), max(t.c) FROM t JOIN d ON t.b = d.k",
    "SELECT d.s, count(*), sum(t.p * d.p), avg(d.w), count(d.w) FROM t JOIN d ON t.b = d.k GROUP BY d.s ORDER BY d.s",
    // Conditions on either, and on both: before the join, after it, and of a list or a text.
    "SELECT t.s, d.s, count(*) FROM d JOIN t ON t.b = d.k WHERE d.w > 7 AND t.a < 3 GROUP BY t.s, d.s ORDER BY 1, 2",
    "SELECT count(*), sum(t.p) FROM t, d WHERE t.b = d.k AND (d.w > 30 OR t.a > 10) AND t.e < d.e",
    "SELECT sum(CASE WHEN d.s LIKE '%a%' THEN t.p ELSE 0 END) FROM t JOIN d ON t.b = d.k WHERE t.n IN ('name7', 'name11')",
    "SELECT extract(year FROM d.e) AS year, count(*) FROM t JOIN d ON t.b = d.k WHERE d.s IS NULL GROUP BY year ORDER BY year",
    // One after the other, and beside each other; more equalities than the key's.
    "SELECT l.n, sum(t.p), count(*) FROM t JOIN d ON t.b = d.k JOIN l ON d.l = l.k WHERE d.w > 3 GROUP BY l.n ORDER BY l.n",
    "SELECT l.n, d.s, count(*) FROM t JOIN d ON t.b = d.k JOIN l ON t.a + 0 = l.w - 3 AND d.l = l.k GROUP BY l.n, d.s ORDER BY 1, 2",
    "SELECT x.s, y.s, count(*) FROM t JOIN d AS x ON t.b = x.k JOIN d AS y ON CAST(t.a AS BIGINT) * 2 = y.k GROUP BY x.s, y.s ORDER BY 1, 2",
    "SELECT count(*) FROM t JOIN d ON t.b = d.k AND d.w = t.a",
    // The larger table has the key where the other's numbers are those of several rows.
    "SELECT d.s, count(*), sum(v) FROM d JOIN twice ON d.k = twice.k GROUP BY d.s ORDER BY d.s",
    // By the row of another table, whose columns the host reads: texts, what is NULL, doubles, and what that row names.
    "SELECT d.k, d.s, d.w, d.x, sum(t.p) FROM t JOIN d ON t.b = d.k GROUP BY d.k, d.s, d.w, d.x ORDER BY d.k",
    "SELECT t.b, d.e, t.s, d.p, count(*) FROM t JOIN d ON t.b = d.k WHERE d.w < 9 GROUP BY t.b, d.e, t.s, d.p ORDER BY 1, 3",
    "SELECT l.n, d.l, l.w, count(*) FROM t JOIN d ON t.b = d.k JOIN l ON d.l = l.k GROUP BY l.n, d.l, l.w ORDER BY d.l",
    // By keys that are far apart, and by several numbers, whose row is a group, too.
    "SELECT v, count(*), sum(t.p) FROM t JOIN far ON t.b * 3000000007 = far.k GROUP BY v ORDER BY v",
    "SELECT pairs.s, count(*), sum(v) FROM t JOIN pairs ON t.b * 1000 = pairs.x AND t.a = pairs.y GROUP BY pairs.s ORDER BY 1",
    "SELECT l.n, sum(pairs.v) FROM t JOIN pairs ON t.a = pairs.y AND (t.b + 100) * 1000 = pairs.x JOIN l ON pairs.v = l.k GROUP BY l.n ORDER BY 1",
    "SELECT l.n, sum(supplies.v), count(*) FROM supplies JOIN l ON l.k = supplies.x JOIN t ON t.a + 1000 = l.k AND t.b = supplies.y
         GROUP BY l.n ORDER BY l.n",
    "SELECT x, y, s, count(*) FROM (SELECT (t.b - 3) * 1000 AS c, t.a FROM t) AS t JOIN pairs ON c = x AND a = y GROUP BY x, y, s ORDER BY x, y",
    // Who is there alone.
    "SELECT s, count(*) FROM t WHERE b IN (SELECT k FROM d WHERE w < 20) GROUP BY s ORDER BY s",
    "SELECT sum(p) FROM t WHERE EXISTS (SELECT 1 FROM d WHERE d.k = t.b AND d.w > t.a)",
];

pub(crate) fn answer(connection: &Connection, statement: &str) -> String {
    let query = connection.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    let batches = query.collect().unwrap_or_else(|error| panic!("{statement}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

pub(crate) fn assert_same(pair: &Pair, statement: &str) {
    assert_eq!(answer(&pair.device, statement), answer(&pair.host, statement), "{statement}");
}

pub(crate) fn explained(connection: &Connection, statement: &str) -> String {
    answer(connection, &format!("EXPLAIN {statement}"))
}

#[test]
fn a_device_adds_up_what_the_host_adds_up() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for statement in STATEMENTS {
        let plan = explained(&pair.device, statement);
        assert!(plan.contains("OffloadedAggregateExec: by the GPU"), "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    for order in 1..4 {
        standin::set("order", order);
        STATEMENTS.iter().step_by(3).for_each(|statement| assert_same(&pair, statement));
    }
    assert_eq!(left(&pair.device), 0);
}

#[test]
fn rows_of_other_tables_are_found_by_their_keys() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    named_tables(&pair);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for statement in JOINED {
        let plan = explained(&pair.device, statement);
        let [device, join] =
            ["OffloadedAggregateExec: by the GPU", "JoinExec"].map(|of| plan.find(of));
        assert!(device.is_some() && device < join, "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    for order in 1..4 {
        standin::set("order", order);
        JOINED.iter().step_by(3).for_each(|statement| assert_same(&pair, statement));
    }
    assert_eq!(left(&pair.device), 0);
    // A key is one as long as its rows have it alone, and what stays there of it goes with them.
    let statement = JOINED[1];
    assert!(brought(&pair, statement) == 0);
    pair.execute("INSERT INTO d (k, s, w, p) VALUES (20, 'new', 1, 1.5)");
    assert!(!explained(&pair.device, statement).contains("by the GPU"), "{statement}");
    assert_same(&pair, statement);
    pair.execute("DELETE FROM d WHERE s = 'new'; UPDATE d SET w = 5 WHERE k < 100");
    assert!(explained(&pair.device, statement).contains("by the GPU"), "{statement}");
    assert_same(&pair, statement);
}

/// A table of slots that is full is made again, larger; and of many groups those come back that there are.
#[test]
fn as_many_groups_as_rows_have_room() {
    let Some(pair) = Pair::new() else { return };
    pair.execute(
        "CREATE TABLE many AS SELECT i * 7919 % 1100009 * 1000003 AS k, i % 1000 AS v, i * 31 % 1100009 AS near
         FROM generate_series(0, 1100008) AS g(i)",
    );
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let launches = |statement: &str| {
        let before = count(&pair.device, "launches");
        assert_same(&pair, statement);
        count(&pair.device, "launches") - before
    };
    let total = |by: &str| {
        format!(
            "SELECT count(*), sum(k), max(s) FROM (SELECT {by} AS k, sum(v) AS s FROM many GROUP BY {by}) AS g"
        )
    };
    launches("SELECT sum(v), max(k), max(near) FROM many");
    // Cleared, added up, found full; then that again, counted, scanned, gathered: and the totals of all that.
    let by_slots = launches(&total("k"));
    assert_eq!(by_slots, 2 + 2 + 3, "a table, a larger one, and what is there");
    assert_eq!(launches(&total("near")), 2 + 3);
}

/// Where there is no room for all groups, the rows are gone through for a part of them at a time.
#[test]
fn groups_that_have_no_room_come_in_parts() {
    let Some(pair) = Pair::new() else { return };
    pair.execute(
        "CREATE TABLE many AS SELECT i * 7919 % 500009 * 1000003 AS k, i % 1000 AS v, i * 31 % 500009 AS near
         FROM generate_series(0, 500008) AS g(i)",
    );
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    // All groups in their order, and how many and how large they are.
    let statements = ["near", "k"].map(|by| {
        format!(
            "SELECT count(*), sum(k * 3 - s), min(place - k), max(s) FROM (SELECT {by} AS k, sum(v) AS s, min({by}) AS place
                 FROM many GROUP BY {by}) AS g"
        )
    });
    let launches = |statement: &str| {
        let before = count(&pair.device, "launches");
        assert_same(&pair, statement);
        count(&pair.device, "launches") - before
    };
    launches("SELECT sum(v), max(k), max(near) FROM many");
    let at_once = statements.each_ref().map(|statement| launches(statement));
    // Columns take some ten megabytes, three words of half a million groups twelve, and a million of slots beside their codes 32.
    for limit in ["24MiB", "20MiB"] {
        pair.device.execute(&format!("SET gpu_memory_limit = '{limit}'")).unwrap();
        for (statement, at_once) in statements.iter().zip(at_once) {
            assert!(launches(statement) > at_once, "{limit}: {statement}");
            assert_eq!(left(&pair.device), 0);
        }
    }
    pair.device.execute("SET gpu_memory_limit = '8MiB'").unwrap();
    statements.iter().for_each(|statement| assert_same(&pair, statement));
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}

#[test]
fn joins_that_are_no_look_are_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    named_tables(&pair);
    for statement in [
        // Rows that find nobody, keys that several rows have, and some that are far apart.
        "SELECT count(*), sum(d.w) FROM t LEFT JOIN d ON t.b = d.k",
        "SELECT sum(v) FROM t JOIN twice ON t.b = twice.k",
        "SELECT count(*) FROM t JOIN (SELECT k * 1000000 AS k FROM d) AS apart ON t.b * 1000000 = apart.k",
        // Other keys than whole numbers, and NULL as one.
        "SELECT count(*) FROM t JOIN d ON t.s = d.s",
        "SELECT count(*) FROM t JOIN d ON t.b IS NOT DISTINCT FROM d.k",
        "SELECT count(*) FROM t WHERE b NOT IN (SELECT k FROM d WHERE k IS NOT NULL)",
        // No rows at all.
        "SELECT count(*) FROM t JOIN none ON t.b = none.k",
    ] {
        let plan = explained(&pair.device, statement);
        assert!(!plan.contains("OffloadedAggregateExec"), "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    assert_eq!(figure(&pair.device, "failure"), None);
    // Of far keys the device finds out, and is not asked again.
    pair.execute("INSERT INTO far SELECT k, 7 FROM far LIMIT 1; SET gpu_on_failure = 'error'");
    let statement =
        "SELECT v, count(*) FROM t JOIN far ON t.b * 3000000007 = far.k GROUP BY v ORDER BY v";
    let measured = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    assert!(
        measured.contains("(done by the host: two rows of a table share the key"),
        "{measured}"
    );
    assert!(!explained(&pair.device, statement).contains("OffloadedAggregateExec"));
    assert_same(&pair, statement);
    assert_eq!((left(&pair.device), figure(&pair.device, "failure")), (0, None));
}

/// Sums of doubles keep what they lose to rounding: they are what exact arithmetic rounds to, whatever the order.
#[test]
fn sums_of_doubles_are_nearer_than_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    // 1e16, a thousand ones that it cannot hold one by one, and all of that taken away but for the ones.
    pair.execute(
        "CREATE TABLE d AS SELECT i % 2 AS k, CASE WHEN i < 2 THEN 1e16 WHEN i < 2002 THEN 1e0 WHEN i < 2004 THEN -1e16 END AS x
         FROM generate_series(0, 30000) AS g(i)",
    );
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let sums = |statement: &str| -> Vec<f64> {
        let rows = pair.device.query(statement).unwrap().rows::<(Option<f64>,)>().unwrap();
        rows.into_iter().filter_map(|(sum,)| sum).collect()
    };
    for order in 0..4 {
        standin::set("order", order);
        assert_eq!(sums("SELECT sum(x) FROM d"), [2000.0]);
        assert_eq!(sums("SELECT sum(x) AS s FROM d GROUP BY k ORDER BY k"), [1000.0, 1000.0]);
        assert_eq!(sums("SELECT avg(x) FROM d"), [2000.0 / 2004.0]);
        assert_eq!(sums("SELECT sum(x / 0e0) FROM d WHERE x > 1e0"), [f64::INFINITY]);
    }
}

/// By many groups they are exact: what is lost beside 1e16, one by one, is there in the end.
#[test]
fn sums_of_doubles_by_many_groups_are_exact() {
    let Some(pair) = Pair::new() else { return };
    pair.execute(
        "CREATE TABLE d AS SELECT i % 100 AS k, CASE WHEN i < 100 THEN 1e16 WHEN i < 20100 THEN 0.125e0 WHEN i < 20200 THEN -1e16 END AS x,
             CASE WHEN i < 100 THEN -1180591620717411303424e0 WHEN i < 200 THEN 590295810358705651712e0 ELSE 1e0 END AS far,
             CASE WHEN i = 7 THEN 1e300 ELSE 1e-5 END AS wide, CASE WHEN i = 7 THEN CAST('NaN' AS DOUBLE) ELSE 1e0 END AS odd
         FROM generate_series(0, 30000) AS g(i)",
    );
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let statement = "SELECT k, sum(x), -sum(-x), avg(x) FROM d GROUP BY k ORDER BY k";
    assert!(explained(&pair.device, statement).contains("by the GPU"));
    for order in 0..4 {
        standin::set("order", order);
        let rows = pair.device.query(statement).unwrap().rows::<(i64, f64, f64, f64)>().unwrap();
        let expected = (0..100).map(|k| (k, 25.0, 25.0, 25.0 / 202.0));
        assert_eq!(rows, Vec::from_iter(expected));
    }
    // Beyond 64 of their digits: 2^69 is taken away, and 298 or 299 ones are added.
    let rows = pair.device.query("SELECT k, sum(far) FROM d GROUP BY k ORDER BY k");
    let expected = (0..100).map(|k| (k, -2_f64.powi(69)));
    assert_eq!(rows.unwrap().rows::<(i64, f64)>().unwrap(), Vec::from_iter(expected));
    // Of too many digits, and of none.
    for statement in [
        "SELECT k, sum(wide) FROM d GROUP BY k ORDER BY k",
        "SELECT k, sum(odd) FROM d GROUP BY k ORDER BY k",
    ] {
        assert!(
            !explained(&pair.device, statement).contains("OffloadedAggregateExec"),
            "{statement}"
        );
        assert_same(&pair, statement);
    }
}

#[test]
fn what_is_none_for_devices_is_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    // How many texts there are is known once they were brought.
    assert_same(&pair, "SELECT n, count(*) FROM t GROUP BY n ORDER BY n");
    for statement in [
        // Which of two NaN is the least; texts; what may leave 64 bits.
        "SELECT min(x) FROM t",
        "SELECT min(s) FROM t",
        "SELECT sum(wide + wide) FROM t WHERE wide < 0 AND wide > -1000",
        // Doubles as keys, or of quotients, by more groups than a thread has registers for.
        "SELECT x, count(*) FROM t GROUP BY x ORDER BY x LIMIT 3",
        "SELECT n, round(sum(x / 3e0), 3) FROM t GROUP BY n ORDER BY n",
        // What arithmetic makes of NaN is above all numbers or below them, by who computes it.
        "SELECT count(*) FROM t WHERE -x < 0e0 OR x / (x - x) > 1e0",
        // Groups by numbers that are far apart.
        "SELECT wide, count(*) FROM t GROUP BY wide ORDER BY wide LIMIT 3",
        // Rows that are no table's, and some of them.
        "SELECT sum(i) FROM generate_series(1, 1000) AS g(i)",
        "SELECT sum(b * 0) FROM (SELECT b FROM t LIMIT 10) AS few",
        "SELECT sum(a) FROM t GROUP BY ROLLUP (s) ORDER BY 1 LIMIT 2",
    ] {
        let plan = explained(&pair.device, statement);
        assert!(!plan.contains("OffloadedAggregateExec"), "{statement}:\n{plan}");
        assert_same(&pair, statement);
    }
    assert_eq!(figure(&pair.device, "failure"), None);
}

/// What a statement brings to the device.
fn brought(pair: &Pair, statement: &str) -> u64 {
    let before = count(&pair.device, "uploaded");
    assert_same(pair, statement);
    count(&pair.device, "uploaded") - before
}

#[test]
fn a_column_stays_as_long_as_its_rows() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    let (packed, bits) = (ROWS.next_multiple_of(8) as u64, ROWS.div_ceil(8) as u64);
    // Whether it adds up is found out once.
    assert_same(&pair, "SELECT sum(b) FROM t");
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    // Of one byte and of two, the first with bits for what is NULL.
    assert_eq!(brought(&pair, "SELECT sum(a), min(b) FROM t"), ROWS as u64 * 3 + bits);
    assert_eq!(count(&pair.device, "kept_bytes"), packed * 3 + bits);
    assert_eq!(brought(&pair, "SELECT max(a), sum(b) FROM t WHERE b < 7"), 0);
    assert_eq!(brought(&pair, "SELECT sum(q) FROM t"), ROWS as u64 + bits);
    assert_eq!((count(&pair.device, "kept_columns"), left(&pair.device)), (3, 0));
    // Other rows are other columns, and those of before are no more.
    pair.execute("DELETE FROM t WHERE b = 7");
    assert!(brought(&pair, "SELECT sum(a) FROM t") > 0);
    assert_eq!(count(&pair.device, "kept_columns"), 1);
    pair.execute("INSERT INTO t (a, b) VALUES (100, 30000), (NULL, -30000)");
    assert_same(&pair, "SELECT sum(a), min(b), max(b) FROM t");
    pair.execute("UPDATE t SET a = 1 WHERE b > 0");
    assert_same(&pair, "SELECT sum(a), count(a) FROM t");
    pair.execute("DROP TABLE t");
    assert_eq!((count(&pair.device, "kept_columns"), count(&pair.device, "buffers")), (0, 0));
}

/// Each allocation, copy and launch in turn is refused, and the answers are the host's.
pub(crate) fn assert_survives(pair: &Pair, statements: &[&str]) {
    // Whether it does such work is found out once, while nothing fails.
    statements.iter().for_each(|statement| assert_same(pair, statement));
    for (fault, keep) in
        standin::FAULTS[..3].iter().flat_map(|fault| [(fault, "off"), (fault, "on")])
    {
        for statement in statements {
            let expected = answer(&pair.host, statement);
            for nth in 1.. {
                // What an earlier run has left there would hide a copy.
                pair.device.execute(&format!("SET gpu_keep = off; SET gpu_keep = {keep}")).unwrap();
                pair.try_again();
                standin::reset();
                standin::set(fault, nth);
                assert_eq!(answer(&pair.device, statement), expected, "{statement}, {fault} {nth}");
                let is_over = standin::get(fault) > 0;
                standin::reset();
                assert_eq!(left(&pair.device), 0, "{statement}, {fault} {nth}");
                if is_over {
                    break;
                }
            }
        }
    }
}

#[test]
fn whatever_fails_the_host_adds_up() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    named_tables(&pair);
    let statements = [
        JOINED[2],
        "SELECT v, count(*) FROM t JOIN far ON t.b * 3000000007 = far.k GROUP BY v ORDER BY v",
        "SELECT s, count(*), sum(p * q) FROM t WHERE n LIKE 'name1%' GROUP BY s ORDER BY s",
        "SELECT e, n, count(*), sum(a) FROM t GROUP BY e, n ORDER BY e, n",
    ];
    assert_survives(&pair, &statements);
    assert!(count(&pair.device, "failed") > 3);
    // A text that does not compile is not tried again.
    standin::set("fail_compile", 1);
    for _ in 0..2 {
        let before = count(&pair.device, "failed");
        assert_same(&pair, "SELECT max(b) - min(c) FROM t WHERE c > b");
        assert_eq!(count(&pair.device, "failed"), before + 1);
    }
    assert!(figure(&pair.device, "failure").unwrap().contains("does not compile"));
    let plan = answer(&pair.device, "EXPLAIN ANALYZE SELECT max(b) - min(c) FROM t WHERE c > b");
    assert!(plan.contains("(done by the host: kernel run does not compile"), "{plan}");
    standin::reset();
    pair.device.execute("SET gpu_on_failure = 'error'; SET gpu_keep = off").unwrap();
    standin::set("refuse_launch", 1);
    let error = pair.device.query(statements[2]).and_then(|query| query.collect()).unwrap_err();
    assert!(error.to_string().contains("the device"), "{error}");
}

/// A table for which a device has no room is the host's, and one that has room once others give way is not.
#[test]
fn columns_give_way_to_others() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    pair.device.execute(&format!("SET gpu_memory_limit = {}", 12 * ROWS)).unwrap();
    for _ in 0..2 {
        for column in ["wide", "c", "b", "p"] {
            assert_same(&pair, &format!("SELECT count({column}), max({column}) FROM t"));
            assert_eq!(left(&pair.device), 0, "{column}");
        }
    }
    assert!(count(&pair.device, "kept_bytes") <= 12 * ROWS as u64);
    assert_eq!(figure(&pair.device, "failure"), None);
    let statement = "SELECT max(wide), max(c), max(b), max(p) FROM t";
    assert!(!explained(&pair.device, statement).contains("OffloadedAggregateExec"));
    assert_same(&pair, statement);
    pair.device.execute("SET gpu_memory_limit = 0").unwrap();
}

/// Where a device saves next to nothing the host runs its plan, and says what a device would have taken.
#[test]
fn few_rows_are_not_worth_a_device() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    // So few rows that whatever a device may save of them is not worth it.
    let few = 400;
    pair.execute(&format!("CREATE TABLE few AS SELECT s, p FROM t LIMIT {few}"));
    let statement = "SELECT s, sum(p) FROM few GROUP BY s ORDER BY s";
    let plan = explained(&pair.device, statement);
    let shown = "OffloadedAggregateExec: by the GPU (GPU ";
    assert!(plan.contains(shown) && plan.contains("to bring; host "), "{plan}");
    assert!(plan.contains("SpillingAggregateExec"), "{plan}");
    let measured = answer(&pair.device, &format!("EXPLAIN ANALYZE {statement}"));
    // Of decimals in two bytes, and of codes in one beside bits.
    let bytes = few * 3 + few / 8;
    assert!(measured.contains("output_rows=6, "), "{measured}");
    let brought = format!("brought_bytes={:.2} K, ", bytes as f64 / 1000.0);
    assert!(measured.contains(&brought), "{brought} in\n{measured}");
    assert!(measured.contains("by_host=0"), "{measured}");
    pair.device.execute("SET gpu = 'auto'").unwrap();
    let before = count(&pair.device, "launches");
    let plan = explained(&pair.device, statement);
    assert!(!plan.contains("by the GPU"), "{plan}");
    assert_same(&pair, statement);
    assert_eq!(count(&pair.device, "launches"), before);
    pair.device.execute("SET gpu = 'off'").unwrap();
    assert!(!explained(&pair.device, statement).contains("Offloaded"));
}
