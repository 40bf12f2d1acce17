//! What becomes of whole statements when the disk fails that they put rows on: the answer or an error that says what
//! to do, nothing that stays behind, and a next statement that works.

use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};

use super::Database;
use crate::connection::Connection;
use crate::memory::Fault;
use crate::query::ResultSet;

/// Statements whose rows do not fit into the limit, and go to a disk as pages.
const BY_PAGES: [(&str, &str); 4] = [
    (
        "sort",
        "SELECT sum(k) FROM (SELECT (value * 7919) % 3000017 AS k FROM range(3000000) ORDER BY k LIMIT 2900000)",
    ),
    (
        "aggregate",
        "SELECT count(*), max(n) FROM (SELECT value % 900007 AS k, count(*) AS n FROM range(1800000) GROUP BY 1)",
    ),
    (
        "join",
        "SELECT count(*), sum(a.value) FROM range(1200000) AS a JOIN range(1500000) AS b
         ON a.value = b.value * 7 % 1200000",
    ),
    (
        "window",
        "SELECT sum(s) FROM (SELECT sum(value) OVER (PARTITION BY value % 13 ORDER BY value DESC
         ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS s FROM range(1500000))",
    ),
];

/// Those whose blocks and rows are mapped.
const BY_BLOCKS: [(&str, &str); 2] = [
    ("tiled product", "SELECT (MATRIX(sum(rand(1500, 1500, 1) @ rand(1500, 1500, 2))))::BIGINT"),
    ("kept answer", "SELECT value, value * 2 FROM range(1500000)"),
];

fn database() -> (tempfile::TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let builder = Database::builder().threads(2).memory_limit(16 << 20);
    // Every answer is computed, and nothing of it stays.
    let builder = builder.set("result_cache", "off").unwrap();
    let database = builder.temp_directory(folder.path()).build().unwrap();
    (folder, database)
}

/// How many rows an answer has, and the sum of its first column, which does not depend on their order.
fn answer(connection: &Connection, text: &str) -> Result<(usize, i64), String> {
    let batches = connection.query(text).and_then(ResultSet::collect);
    let batches = batches.map_err(|error| error.to_string())?;
    let sum = |batch: &RecordBatch| {
        let numbers = cast(batch.column(0), &DataType::Int64).unwrap();
        numbers.as_primitive::<Int64Type>().values().iter().sum::<i64>()
    };
    Ok((batches.iter().map(RecordBatch::num_rows).sum(), batches.iter().map(sum).sum()))
}

fn reserved_bytes(database: &Database) -> usize {
    database.0.shared.budget.usage().reserved_bytes
}

/// Whether nothing is held any more, once threads that read have seen that nobody waits for them.
fn nothing_is_left(database: &Database) -> bool {
    let began = Instant::now();
    while reserved_bytes(database) > 0 || database.disk().used_bytes() > 0 {
        if began.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Runs statements while a disk fails, and says what became of each; after each the disk is sound again.
fn under(fault: Fault, statements: &[(&str, &str)]) -> Vec<(String, Result<(usize, i64), String>)> {
    let run = |(name, text): &(&str, &str)| {
        let (_folder, database) = database();
        let connection = database.connect();
        let expected = answer(&connection, text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let written = database.disk().usage()[0].peak_bytes;
        assert!(written > 0, "{name} has put nothing on a disk");
        database.disk().set_fault(Some(fault));
        let found = answer(&connection, text);
        database.disk().set_fault(None);
        if let Ok(found) = &found {
            assert_eq!(*found, expected, "{name} under {fault:?}");
        }
        assert!(nothing_is_left(&database), "{name} under {fault:?} leaves something");
        assert_eq!(answer(&connection, text), Ok(expected), "{name} after {fault:?}");
        assert!(nothing_is_left(&database), "{name} after {fault:?} leaves something");
        ((*name).to_owned(), found)
    };
    statements.iter().map(run).collect()
}

/// Each of them fails with a text that names the directory and has these words.
fn all_say(found: Vec<(String, Result<(usize, i64), String>)>, words: &[&str]) {
    for (name, found) in found {
        let error = found.expect_err(&name);
        for word in
            words.iter().chain(&["temp_directory", &*std::env::temp_dir().to_string_lossy()])
        {
            assert!(error.contains(word), "{name}: '{word}' is not in: {error}");
        }
    }
}

#[test]
fn a_slow_disk_is_waited_for() {
    let slow = Fault::SlowReads(Duration::from_millis(2));
    for (name, found) in under(slow, &BY_PAGES) {
        assert!(found.is_ok(), "{name}: {found:?}");
    }
}

#[test]
fn a_disk_that_does_not_read_is_named() {
    all_say(under(Fault::ReadsFail, &BY_PAGES), &["input/output error", "see to that disk"]);
}

#[test]
fn a_page_that_has_changed_is_an_error_and_no_answer() {
    all_say(under(Fault::BitsChange, &BY_PAGES), &["check sum", "see to that disk"]);
}

#[test]
fn a_full_disk_is_named() {
    all_say(under(Fault::IsFull, &BY_PAGES), &["make room"]);
}

#[test]
fn blocks_on_a_full_disk_are_an_error_or_stay_in_memory() {
    for (name, found) in under(Fault::IsFull, &BY_BLOCKS) {
        match found {
            Ok(_) => assert_eq!(name, "kept answer"),
            Err(error) => assert!(error.contains("memory"), "{name}: {error}"),
        }
    }
}
