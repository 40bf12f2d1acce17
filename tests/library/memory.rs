//! Memory: it comes back, is used again, has limits, and is written over by those who may.

use std::time::{Duration, Instant};

use relatrix::{Connection, Database, Value};

use super::{builder, connection, error, number};

/// Waits for what a statement still holds that has ended.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// For who counts how often a value was used, and all that is held.
const FORGET: &str = "SET result_cache = off";

fn settles(database: &Database, used_bytes: usize) -> bool {
    comes_true(|| database.memory_usage().used_bytes == used_bytes)
}

#[test]
fn memory_comes_back_whatever_becomes_of_a_statement() {
    let database = builder().threads(2).memory_limit(256 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute("CREATE MATRIX x = rand(2000, 500)").unwrap();
    let used_bytes = database.memory_usage().used_bytes;
    assert!(used_bytes >= 8_000_000);

    connection.query("SELECT (MATRIX(sum((x - 1) @ t(x) + 3)))").unwrap().collect().unwrap();
    assert!(settles(&database, used_bytes), "after a query");
    error(&connection, "SELECT * FROM MATRIX(cholesky(1 - 2 * x @ t(x)))");
    assert!(settles(&database, used_bytes), "after an error");
    error(&connection, "CREATE MATRIX y = ones(10000000, 10000000)");
    assert!(settles(&database, used_bytes), "after one that asked for too much");
    connection.execute("SET statement_timeout_ms = 50").unwrap();
    error(&connection, "SELECT * FROM MATRIX(svd(x).s)");
    assert!(settles(&database, used_bytes), "after one that took too long");
    connection.execute("RESET statement_timeout_ms").unwrap();
    let mut rows = connection.query("SELECT * FROM MATRIX(x + 1)").unwrap();
    assert!(rows.next().unwrap().unwrap().num_rows() > 0);
    drop(rows);
    assert!(settles(&database, used_bytes), "after a result that was dropped half-way");
    connection.execute("DROP MATRIX x").unwrap();
    assert!(settles(&database, 0), "after the last matrix");
    assert!(database.memory_usage().idle_bytes > 0);
}

#[test]
fn a_result_is_written_where_an_earlier_one_was() {
    let database = builder().threads(2).build().unwrap();
    let connection = database.connect();
    for _round in 0..10 {
        connection.execute("CREATE OR REPLACE MATRIX x = 2 * ones(1000, 1000)").unwrap();
    }
    let usage = database.memory_usage();
    assert!(usage.reuse_rate() > 0.5, "{usage:?}");
    assert!(usage.peak_bytes < 4 * 8_400_000, "{usage:?}");
    let shown = connection.query("SHOW MEMORY").unwrap();
    let names: Vec<String> = shown
        .rows::<Vec<relatrix::Value>>()
        .unwrap()
        .into_iter()
        .map(|row| row[0].to_string())
        .collect();
    for name in
        ["reserved", "used", "idle", "peak", "blocks", "reused", "reuse_rate", "held by matrix x"]
    {
        assert!(names.iter().any(|shown| shown == name), "{name} in {names:?}");
    }
}

/// Blocks of at least 64 KiB that a statement asks for.
fn blocks(setup: &str, statement: &str) -> (u64, usize) {
    let database = builder().threads(2).build().unwrap();
    let connection = database.connect();
    // A loop is written beside what is remembered.
    connection.execute(&format!("SET pool_limit = '0 B'; {FORGET}")).unwrap();
    connection.execute(setup).unwrap();
    let before = database.memory_usage().blocks;
    connection.execute(statement).unwrap();
    let usage = database.memory_usage();
    (usage.blocks - before, usage.peak_bytes)
}

#[test]
fn a_loop_is_written_over_what_nobody_else_reads() {
    let setup = "CREATE MATRIX a = rand(300, 300, 1) + 20 * eye(300)";
    let (inverse, inverse_bytes) = blocks(setup, "CREATE MATRIX b = inv(a)");
    let (scaled, peak_bytes) = blocks(setup, "CREATE MATRIX b = inv(a) * 2 + 1");
    assert_eq!((scaled, peak_bytes), (inverse, inverse_bytes));
    // What an iteration carries from round to round, too: the beginning alone stays.
    let rounds =
        |times| format!("CREATE MATRIX b = ITERATE(r => a, r * 0.5 + a, times => {times})");
    let (once, least_bytes) = blocks(setup, &rounds(1));
    let (often, peak_bytes) = blocks(setup, &rounds(30));
    assert_eq!((often, peak_bytes), (once, least_bytes));
    let (_, peak_bytes) = blocks(setup, "CREATE MATRIX b = inv(a) * 2 + inv(a) ^ 3");
    assert_eq!(peak_bytes, inverse_bytes);
}

#[test]
fn what_somebody_else_reads_is_never_written_over() {
    let connection = connection();
    connection
        .execute(
            "SET rewrites = off;
             CREATE MATRIX a = rand(300, 300, 1) + 20 * eye(300);
             CREATE MATRIX inverse = inv(a);
             CREATE MATRIX kept = inverse + 0;
             CREATE MATRIX half = a * 0.5;
             CREATE MATRIX scaled = inverse * 2 + 1",
        )
        .unwrap();
    let differs = |left: &str, right: &str| {
        let text = format!("SELECT MATRIX(sum(({left}) <> ({right})))::BIGINT");
        number(&connection, &text)
    };
    // A matrix by its name, and one under another name that has its cells.
    connection.execute("CREATE MATRIX b = inverse * 3; CREATE MATRIX same = inverse").unwrap();
    connection.execute("CREATE MATRIX c = same * 3; CREATE MATRIX d = same[1:300, :] - 1").unwrap();
    assert_eq!(differs("inverse", "kept") + differs("same", "kept"), 0);
    // One that another operation of the same expression reads, before or after, whole or in part.
    for (expression, expected) in [
        ("hstack(inv(a) * 2 + 1, inv(a))", "hstack(scaled, inverse)"),
        ("hstack(inv(a), inv(a) * 2 + 1)", "hstack(inverse, scaled)"),
        (
            "hstack(inv(a)[1:200, :], (inv(a) * 2 + 1)[1:200, :])",
            "hstack(inverse[1:200, :], scaled[1:200, :])",
        ),
        ("(inv(a) * 2 + 1) @ inv(a)", "scaled @ inverse"),
        (
            "reshape(inv(a), 90000, 1) * 2 + reshape(inv(a) * 2 + 1, 90000, 1)",
            "reshape(inverse, 90000, 1) * 2 + reshape(scaled, 90000, 1)",
        ),
        // What an iteration began with, the value before the last, and what its condition reads.
        ("hstack(ITERATE(r => inv(a), r * 2 + 1, times => 1), inv(a))", "hstack(scaled, inverse)"),
        ("ITERATE(r => a, r + prior(r) * 0.25, times => 2)", "(a + a * 0.25) + a * 0.25"),
        ("ITERATE(r => a, r * 0.5, until => max(abs(r - prior(r))) < 1e3, times => 9)", "half"),
        ("ITERATE(r => a, r * 0.5, until => sum(r) < 1e9, times => 9)", "half"),
        ("ITERATE(r => a, r * 0.5, until => sum(r * 0.5) < 1e9, times => 9)", "half"),
        ("ITERATE(r => a, ITERATE(s => r, s * 0.5, times => 2) + r, times => 1)", "half * 0.5 + a"),
    ] {
        assert_eq!(differs(expression, expected), 0, "{expression}");
    }
    // Results that their reader still holds.
    let first = connection.matrix("inv(a)").unwrap();
    let second = connection.matrix("inv(a) * 2 + 1").unwrap();
    let kept = connection.matrix("kept").unwrap();
    assert!((0..300).all(|at| first.cell(at, 7) == kept.cell(at, 7)));
    assert!((0..300).all(|at| second.cell(at, 7) == kept.cell(at, 7) * 2.0 + 1.0));
}

#[test]
fn kept_memory_has_a_limit_of_its_own_and_makes_room() {
    let database = builder().threads(1).memory_limit(100 << 20).build().unwrap();
    let connection = database.connect();
    let idle_bytes = || database.memory_usage().idle_bytes;
    let make = |name: &str, rows: usize| {
        connection.execute(&format!("CREATE MATRIX {name} = ones({rows}, 1000)")).unwrap();
    };
    make("a", 4000);
    connection.execute("DROP MATRIX a").unwrap();
    assert!(idle_bytes() >= 32_000_000);
    // 48 MB beside 32 are more than the limit counts: 70 MiB.
    make("b", 6000);
    let usage = database.memory_usage();
    assert!(usage.used_bytes + usage.idle_bytes <= 70 << 20, "{usage:?}");
    connection.execute("DROP MATRIX b; SET pool_limit = '1MB'").unwrap();
    assert!(idle_bytes() <= 1 << 20);
    make("c", 1000);
    connection.execute("DROP MATRIX c").unwrap();
    assert!(idle_bytes() <= 1 << 20);
}

/// Of `SHOW MEMORY`, the figure of this name.
fn figure(connection: &Connection, name: &str) -> u64 {
    let rows = connection.query("SHOW MEMORY").unwrap().rows::<Vec<Value>>().unwrap();
    let row = rows.iter().find(|row| row[0].to_string() == name).expect(name);
    row[1].to_string().parse().unwrap()
}

const HEAVY: [&str; 5] = [
    "SELECT sum(k) FROM (SELECT (value * 7919) % 500009 AS k FROM range(500000) ORDER BY k LIMIT 400000)",
    "SELECT count(*) FROM (SELECT value % 300007, count(*) FROM range(600000) GROUP BY 1)",
    "SELECT count(*) FROM range(400000) AS a JOIN range(600000) AS b ON a.value = b.value % 400000",
    "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY value % 13 ORDER BY value DESC) AS r FROM range(400000))",
    "SELECT sum(s) FROM (SELECT (MATRIX(sum(a @ a))) AS s FROM range(1))",
];

#[test]
fn twenty_statements_at_once_share_one_small_limit() {
    let free = builder().threads(2).build().unwrap().connect();
    let bound = builder().threads(2).memory_limit(64 << 20).build().unwrap();
    for connection in [&free, &bound.connect()] {
        connection.execute("CREATE MATRIX a = rand(500, 500, 7)").unwrap();
    }
    let answer = |connection: &Connection, text: &str| {
        let rows = connection.query(text).and_then(|rows| rows.rows::<Vec<Value>>());
        rows.unwrap_or_else(|error| panic!("{text}: {error}"))[0][0].to_string()
    };
    let expected = HEAVY.map(|text| answer(&free, text));
    std::thread::scope(|scope| {
        for at in 0..20 {
            let (text, expected) = (HEAVY[at % HEAVY.len()], &expected[at % HEAVY.len()]);
            let connection = bound.connect();
            scope.spawn(move || assert_eq!(answer(&connection, text), *expected, "{text}"));
        }
    });
    bound.connect().execute("DROP MATRIX a; SET result_cache_limit = 0").unwrap();
    assert!(comes_true(|| figure(&bound.connect(), "reserved") == 0));
}

#[test]
fn whoever_reads_one_answer_may_ask_for_others() {
    // The limit has a part for one statement.
    let database = builder().threads(2).memory_limit(16 << 20).build().unwrap();
    let connection = database.connect();
    let mut open: Vec<_> =
        (0..5).map(|_| connection.query("SELECT value FROM range(1000000)").unwrap()).collect();
    for rows in &mut open {
        assert!(rows.next().unwrap().unwrap().num_rows() > 0);
    }
    assert_eq!(number(&connection, "SELECT sum(value) FROM range(1000)"), 499_500);
    for rows in open {
        let rows: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
        assert!(rows > 900_000);
    }
}

#[test]
fn nothing_is_left_of_ten_thousand_statements() {
    let database = builder().threads(2).memory_limit(64 << 20).build().unwrap();
    let connection = database.connect();
    connection
        .execute("CREATE TABLE t AS SELECT value AS k, value * 0.5 AS v FROM range(100)")
        .unwrap();
    let mixed = [
        "SELECT k FROM t ORDER BY v DESC",
        "SELECT k % 7, sum(v) FROM t GROUP BY 1",
        "SELECT count(*) FROM t AS a JOIN t AS b USING (k)",
        "SELECT (MATRIX(sum(t(t) @ t)))",
        "SELECT k FROM t LIMIT 1",
        "SELECT CAST('no number' AS INT) FROM t",
        "SELECT sum(v) OVER (ORDER BY k) FROM t",
        "SELECT * FROM ENTRIES(eye(30)) WHERE value > 0",
    ];
    for at in 0..10_000 {
        let rows = connection.query(mixed[at % mixed.len()]).and_then(|rows| rows.collect());
        assert_eq!(rows.is_err(), at % mixed.len() == 5);
    }
    connection.execute("DROP TABLE t; SET result_cache_limit = 0").unwrap();
    assert!(settles(&database, 0));
    assert!(comes_true(|| figure(&connection, "reserved") == 0));
}

/// Where DESCRIBE MATRIX says that a matrix is.
fn tier(connection: &Connection, name: &str) -> String {
    let rows = connection.query(&format!("DESCRIBE MATRIX {name}")).unwrap();
    let rows = rows.rows::<Vec<Value>>().unwrap();
    rows.iter().find(|row| row[0].to_string() == "tier").expect("a tier")[1].to_string()
}

#[test]
fn stored_matrices_move_to_a_disk_when_they_are_not_used_and_come_back_when_they_are() {
    const BYTES: u64 = 2000 * 2000 * 8;
    let database = builder().threads(2).memory_limit(200 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute(FORGET).unwrap();
    // Chance cannot be compressed.
    let make = |name: &str| {
        connection.execute(&format!("CREATE MATRIX {name} = rand(2000, 2000, 3)")).unwrap();
    };
    connection.execute("SET memory_threshold = 85; SET compressed_threshold = 85").unwrap();
    let sum = |name: &str| {
        number(&connection, &format!("SELECT (MATRIX(round(sum({name}) * 1e6)))::BIGINT"))
    };
    let tiers =
        |names: &[&str]| names.iter().map(|name| tier(&connection, name)).collect::<Vec<_>>();
    ["a", "b", "c"].into_iter().for_each(make);
    let expected = sum("a");
    // 85 % of the 140 MiB that are counted of the limit are less than four of them take.
    make("d");
    assert_eq!(tiers(&["a", "b", "c", "d"]), ["memory", "disk", "memory", "memory"]);
    assert_eq!((figure(&connection, "moved_down"), figure(&connection, "moved_up")), (BYTES, 0));
    assert!(figure(&connection, "held by matrix b") < 1000);
    connection.execute("DROP MATRIX c; DROP MATRIX d").unwrap();
    for tier in ["disk", "disk", "memory"] {
        assert_eq!(sum("b"), expected);
        assert_eq!(tiers(&["b"]), [tier]);
    }
    assert_eq!(figure(&connection, "moved_up"), BYTES);
    // Twice from the disk.
    assert!(figure(&connection, "mapped_in_order") >= 2 * BYTES);
    connection.execute("SET compressed_threshold = 10").unwrap();
    connection.execute("SELECT 1").unwrap();
    assert_eq!(tiers(&["a", "b"]), ["disk", "disk"]);
    assert_eq!((sum("a"), sum("b")), (expected, expected));
    connection.execute("DROP MATRIX a; DROP MATRIX b").unwrap();
    assert!(settles(&database, 0));
    assert_eq!(figure(&connection, "reserved"), 0);
}

#[test]
fn columns_of_files_that_are_read_again_stay_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.parquet");
    let path = path.to_str().unwrap();
    let database = builder().threads(2).memory_limit(400 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute(FORGET).unwrap();
    let write = |numbers: &str| {
        let copy = format!(
            "COPY (SELECT {numbers} AS k, value % 1000 * 0.5 AS x FROM range(300000)) TO '{path}'"
        );
        connection.execute(&copy).unwrap();
        // A file may change again and look the same for some time.
        std::thread::sleep(Duration::from_millis(60));
    };
    let sum = || number(&connection, &format!("SELECT (sum(k) + sum(x))::BIGINT FROM '{path}'"));
    write("value");
    for _ in 0..4 {
        assert_eq!(sum(), 44_999_850_000 + 74_925_000);
    }
    // Of `k` the 19 bits that it needs, and not the 64 that its file has.
    let bytes = 700_000..2_400_000;
    let kept = figure(&connection, "parquet_columns");
    assert!(bytes.contains(&kept) && figure(&connection, "parquet_columns_read") > 0, "{kept}");
    assert_eq!(figure(&connection, "reserved"), kept);
    write("value * 2");
    for _ in 0..4 {
        assert_eq!(sum(), 89_999_700_000 + 74_925_000);
    }
    // Of the file that was nothing is left.
    let kept = figure(&connection, "parquet_columns");
    assert!(bytes.contains(&kept), "{kept}");
    connection.execute("SET parquet_cache_limit = 0").unwrap();
    assert_eq!(sum(), 89_999_700_000 + 74_925_000);
    assert!(settles(&database, 0));
    assert_eq!(figure(&connection, "parquet_columns"), 0);
}

#[test]
fn stored_matrices_are_compressed_before_they_move_to_a_disk() {
    let database = builder().threads(2).memory_limit(200 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute(FORGET).unwrap();
    for (name, expression) in [
        ("whole", "CREATE MATRIX whole = round(100 * rand(2000, 1000, 1))"),
        ("chance", "CREATE MATRIX chance = rand(2000, 1000, 2)"),
        (
            "sparse",
            "CREATE MATRIX sparse AS SELECT value AS r, value % 700 AS c, value % 9 AS v FROM range(400000) ROWS BY r COLUMNS BY c",
        ),
    ] {
        connection.execute(expression).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let names = ["chance", "sparse", "whole"];
    let sums = || {
        names.map(|name| {
            number(&connection, &format!("SELECT (MATRIX(round(sum({name}) * 1e6)))::BIGINT"))
        })
    };
    let tiers = || names.map(|name| tier(&connection, name));
    let described = || {
        let rows = connection.query("SHOW MATRICES").unwrap().rows::<Vec<Value>>().unwrap();
        rows.iter()
            .map(|row| row[..7].iter().map(Value::to_string).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let (expected, text) = (sums(), described());
    assert_eq!(tiers(), ["memory"; 3]);
    let whole_bytes = figure(&connection, "held by matrix whole");
    connection.execute("SET memory_threshold = 1").unwrap();
    connection.execute("SELECT 1").unwrap();
    assert_eq!(tiers(), ["memory", "compressed", "compressed"]);
    assert_eq!(described(), text);
    assert!(figure(&connection, "held by matrix whole") * 3 < whole_bytes);
    // What is used is whole again, until the next statement.
    assert_eq!(sums(), expected);
    connection.execute("SET memory_threshold = 90").unwrap();
    assert_eq!(sums(), expected);
    assert_eq!(tiers(), ["memory"; 3]);
    assert_eq!(figure(&connection, "held by matrix whole"), whole_bytes);
    // From memory and from the compressed tier to files.
    connection.execute("SET memory_threshold = 1").unwrap();
    connection.execute("SELECT 1").unwrap();
    connection.execute("SET compressed_threshold = 0").unwrap();
    connection.execute("SELECT 1").unwrap();
    assert_eq!(tiers(), ["disk"; 3]);
    assert_eq!(described(), text);
    assert_eq!(sums(), expected);
    connection.execute("SET memory_compression = 'none'; SET memory_threshold = 90; SET compressed_threshold = 95").unwrap();
    connection.execute("DROP MATRIX whole; DROP MATRIX chance; DROP MATRIX sparse").unwrap();
    assert!(settles(&database, 0));
    assert_eq!(figure(&connection, "reserved"), 0);
}

#[test]
fn tables_that_nobody_reads_move_to_a_disk_and_answer_from_there() {
    let database = builder().threads(2).memory_limit(200 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute(FORGET).unwrap();
    let create = "CREATE TABLE t AS SELECT value AS k, concat('row number ', value) AS text FROM range(500000)";
    connection.execute(create).unwrap();
    let answer = || {
        let rows =
            connection.query("SELECT count(*), sum(k), min(text), max(text) FROM t").unwrap();
        rows.rows::<Vec<Value>>().unwrap()[0].iter().map(Value::to_string).collect::<Vec<_>>()
    };
    let held = || figure(&connection, "reserved");
    let (expected, before) = (answer(), held());
    assert!(before > 10 << 20);
    let mut reader = connection.query("SELECT k, text FROM t").unwrap();
    let first = reader.next().unwrap().unwrap();
    connection.execute("SET compressed_threshold = 2").unwrap();
    connection.execute("SELECT 1").unwrap();
    // Who reads rows has them in memory, wherever the table's are.
    assert_eq!(figure(&connection, "moved_down"), 0);
    assert!(held() >= before);
    drop((reader, first));
    assert!(comes_true(|| {
        connection.execute("SELECT 1").unwrap();
        held() < before / 10
    }));
    assert!(figure(&connection, "moved_down") > before / 2);
    assert_eq!(answer(), expected);
    connection.execute("INSERT INTO t VALUES (-1, 'a')").unwrap();
    connection.execute("UPDATE t SET k = 0 WHERE k = 7").unwrap();
    connection.execute("DELETE FROM t WHERE k >= 10").unwrap();
    assert_eq!(answer(), ["11", "37", "a", "row number 9"]);
    connection.execute("DROP TABLE t").unwrap();
    assert!(comes_true(|| held() == 0));
}

#[test]
fn stored_values_give_way_to_who_would_be_refused() {
    let database = builder().threads(2).memory_limit(200 << 20).build().unwrap();
    let connection = database.connect();
    connection.execute(FORGET).unwrap();
    connection.execute("CREATE MATRIX x = rand(2000, 4000, 1)").unwrap();
    let sum = "SELECT (MATRIX(round(sum(x) * 1e6)))::BIGINT";
    let expected = number(&connection, sum);
    assert_eq!(tier(&connection, "x"), "memory");
    // Its 61 MiB and those of the groups are more than the 140 that are counted of the limit.
    let groups = "SELECT count(*), sum(n) FROM (SELECT value % 1500000 AS k, count(*) AS n FROM range(3000000) GROUP BY k)";
    let rows = connection.query(groups).unwrap().rows::<Vec<Value>>().unwrap();
    assert_eq!(rows[0].iter().map(Value::to_string).collect::<Vec<_>>(), ["1500000", "3000000"]);
    assert_eq!(tier(&connection, "x"), "disk");
    assert_eq!(number(&connection, sum), expected);
}
