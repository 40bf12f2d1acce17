//! What is left unread of Parquet files: pages that a condition rules out, and footers that are known.

use std::fs::{self, OpenOptions};
use std::io::Write;

use relatrix::Connection;

use super::builder;

/// Answers are not remembered: queries are to read again.
fn connection() -> Connection {
    let builder = builder().threads(2).set("result_cache", "off").unwrap();
    builder.build().unwrap().connect()
}

/// The line of a scan by pages that EXPLAIN ANALYZE shows.
fn scan(connection: &Connection, query: &str) -> String {
    let rows = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
    let plan: String =
        rows.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
    let line = plan.lines().find(|line| line.contains("reader=pages"));
    line.unwrap_or_else(|| panic!("{plan}")).to_owned()
}

#[test]
fn pages_that_a_range_rules_out_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sorted.parquet");
    let connection = connection();
    // One row group: its statistics rule nothing out.
    let rows = "SELECT value AS k, value * 0.5 AS x FROM range(20000)";
    let pages = "data_page_row_count_limit 1000, write_batch_size 500";
    connection
        .execute(&format!("COPY ({rows}) TO '{}' OPTIONS ({pages})", file.display()))
        .unwrap();
    let query = format!("SELECT sum(x) FROM '{}' WHERE k BETWEEN 4000 AND 4899", file.display());
    let sums = connection.query(&query).unwrap().rows::<(f64,)>().unwrap();
    assert_eq!(sums, [(0.5 * 900.0 * 4449.5,)]);
    let scan = scan(&connection, &query);
    assert!(scan.contains("page_index_pages_pruned=20 total → 1 matched"), "{scan}");
    // A page of which most rows meet the condition leaves as a whole, and nothing of others.
    assert!(scan.contains("output_rows=1.00 K,"), "{scan}");
}

#[test]
fn a_footer_is_read_once_while_its_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.parquet");
    let connection = connection();
    let rows = "SELECT value AS k, value % 7 AS x FROM range(1000)";
    connection.execute(&format!("COPY ({rows}) TO '{}'", path.display())).unwrap();
    let query = format!("SELECT sum(k), sum(x) FROM '{}'", path.display());
    let answer = |connection: &Connection| {
        let rows = connection.query(&query).and_then(|rows| rows.rows::<(i64, i64)>());
        rows.map_err(|error| error.to_string())
    };
    let expected = answer(&connection).unwrap();
    // The same file to all who look at its size and its time, without a footer.
    let (mut bytes, metadata) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
    let length: [u8; 4] = bytes[bytes.len() - 8..][..4].try_into().unwrap();
    let footer = bytes.len() - 8 - u32::from_le_bytes(length) as usize;
    bytes[footer..].fill(0);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
    drop(file);
    assert_eq!(answer(&connection), Ok(expected));
    // Another time is another file.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    drop(file);
    assert!(answer(&connection).unwrap_err().contains("kept.parquet"));
}
