//! SHOW MEMORY: what is held, by whom, and where the rest is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::settings::{Row, table};
use super::{Session, Started};
use crate::error::Result;
use crate::memory::Resident;

/// Those who hold memory that are listed, the largest first.
const LISTED: usize = 20;

impl Session {
    /// The memory limit and what is held of it, the blocks of matrices, and the directories for the rest.
    pub(super) fn show_memory(&self) -> Result<Started> {
        let budget = self.shared.budget.usage();
        let mut rows = vec![
            bytes("limit", budget.limit_bytes, "memory_limit of the database"),
            bytes("reserved", budget.reserved_bytes, "counted of it by matrices and statements"),
            bytes("reserved_peak", budget.peak_bytes, "the most that was reserved at once"),
            bytes("uncounted", budget.uncounted_bytes, "held beyond, where memory_watch is on"),
            count(
                "refused",
                budget.refused,
                "requests",
                "on most of which an operator put rows on a disk",
            ),
        ];
        if let Some(Resident { private_bytes, file_bytes }) = Resident::now() {
            rows.extend([
                bytes(
                    "process",
                    private_bytes,
                    "what the process wrote to and the system keeps in memory",
                ),
                bytes(
                    "process_files",
                    file_bytes,
                    "pages of files in the process: code, and what is mapped",
                ),
            ]);
        }
        let blocks = self.shared.blocks.usage();
        rows.extend([
            bytes("used", blocks.used_bytes, "blocks in which matrices and results under way are"),
            bytes(
                "idle",
                blocks.idle_bytes,
                "blocks that wait for the next matrix, pool_limit at most",
            ),
            bytes("peak", blocks.peak_bytes, "the most that used and idle blocks were together"),
            count(
                "blocks",
                blocks.blocks,
                "blocks",
                "asked for since the database was made, from 64 KiB on",
            ),
            count(
                "reused",
                blocks.blocks_reused,
                "blocks",
                "of those, the ones that had been used before",
            ),
            row("reuse_rate", format!("{:.3}", blocks.reuse_rate()), "", "reused by asked for"),
        ]);
        let moved = self.shared.eviction.moved();
        rows.extend([
            count(
                "moved_down",
                moved.down_bytes,
                "bytes",
                "of stored matrices that went to a disk",
            ),
            count("moved_up", moved.up_bytes, "bytes", "of stored matrices that came back"),
        ]);
        let remembered = self.shared.cache.usage();
        rows.extend([
            bytes(
                "remembered",
                remembered.bytes,
                "answers, wherever they are; SHOW CACHE lists them",
            ),
            count("answers", remembered.answers as u64, "answers", "that are remembered"),
            count("cache_hits", remembered.hits, "queries", "that had an answer"),
            count("cache_misses", remembered.misses, "queries", "that had none"),
            count(
                "cache_outdated",
                remembered.outdated,
                "answers",
                "forgotten, for what they were made of had changed",
            ),
            count(
                "cache_reused",
                remembered.reused,
                "queries",
                "of those without an answer, the ones whose groups were remembered",
            ),
            count(
                "plan_hits",
                self.plan_hits.load(Ordering::Relaxed),
                "queries",
                "of this connection, whose plans were known from the time before",
            ),
        ]);
        for directory in self.shared.disk.usage() {
            let path = directory.path.display();
            rows.extend([
                count(format!("disk {path}"), directory.used_bytes, "bytes", "of files there"),
                count(
                    format!("disk_peak {path}"),
                    directory.peak_bytes,
                    "bytes",
                    "the most there were at once",
                ),
            ]);
        }
        let traffic = self.shared.disk.traffic();
        let milliseconds = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
        rows.extend([
            count("pages_written", traffic.pages_written, "pages", "put on a disk"),
            count("pages_read", traffic.pages_read, "pages", "read from one"),
            row(
                "page_write_p99",
                milliseconds(traffic.write_p99),
                "ms",
                "99 of 100 took no longer",
            ),
            row("page_read_p99", milliseconds(traffic.read_p99), "ms", "99 of 100 took no longer"),
            row(
                "read_hidden",
                format!("{:.3}", traffic.hidden),
                "",
                "of the time of reading, the share that nobody waited",
            ),
            count(
                "read_ahead",
                traffic.asked_ahead,
                "pages",
                format!("asked for before they were wanted; {} never were", traffic.wasted),
            ),
        ]);
        let mapped = self.shared.blocks.mapped();
        rows.extend([
            count(
                "mapped_in_order",
                mapped.in_order_bytes,
                "bytes",
                "of blocks in files, read or written one part after another",
            ),
            count(
                "mapped_scattered",
                mapped.scattered_bytes,
                "bytes",
                "of them, in parts among others",
            ),
            count(
                "mapped_ahead",
                mapped.ahead_bytes,
                "bytes",
                "of them, asked for before they were wanted",
            ),
        ]);
        let (columns_bytes, columns_read_bytes) = self.shared.columns.usage();
        rows.extend([
            count(
                "parquet_columns",
                columns_bytes as u64,
                "bytes",
                "of columns of Parquet files, kept decompressed",
            ),
            count(
                "parquet_columns_read",
                columns_read_bytes,
                "bytes",
                "of files that were read there instead",
            ),
        ]);
        for held in budget.held.into_iter().take(LISTED) {
            let mut description = format!("reserved by it; {} at most", held.peak_bytes);
            if let Some(place) = held.place {
                description.push_str(&format!("; asked for by {place}"));
            }
            rows.push(bytes(format!("held by {}", held.name), held.bytes, description));
        }
        table(rows)
    }
}

fn bytes(name: impl Into<String>, bytes: usize, description: impl Into<String>) -> Row {
    count(name, bytes as u64, "bytes", description)
}

fn count(
    name: impl Into<String>,
    count: u64,
    unit: &'static str,
    description: impl Into<String>,
) -> Row {
    row(name, count.to_string(), unit, description)
}

fn row(
    name: impl Into<String>,
    value: String,
    unit: &'static str,
    description: impl Into<String>,
) -> Row {
    Row { name: name.into(), value: Some(value), unit, description: description.into() }
}
