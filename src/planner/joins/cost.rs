//! What joins and what they are made of cost, in nanoseconds of one thread, by the rows that they build, probe and yield.
//!
//! The constants are those of hash joins over keys of eight bytes on a common processor: what counts is their
//! ratio. A row to build is hashed, dealt out and written to a table; a row to probe is hashed and looked up, which
//! takes longer where the table is beyond the caches.

/// Reading a row of a scan.
pub(in crate::planner) const READ: f64 = 5.0;

/// Adding a row to its group.
pub(in crate::planner) const AGGREGATE: f64 = 60.0;

/// Putting a row in order among others.
pub(in crate::planner) const SORT: f64 = 100.0;

/// Hashing a row, dealing it out and putting it into a table.
const BUILD: f64 = 40.0;

/// Hashing a row and looking it up in a table within the caches.
const PROBE: f64 = 12.0;

/// What a look into a table far beyond the caches takes longer.
const MISS: f64 = 20.0;

/// Rows of a table of which half the looks miss the caches.
const CACHED_ROWS: f64 = 200_000.0;

/// Adding a row to a group that is in the caches.
const ADD: f64 = 8.0;

/// What a group takes longer that is far beyond the caches, and again as much for each of its keys that is a text.
const GROUP_MISS: f64 = 40.0;

/// Gathering the columns of a row.
const YIELD: f64 = 10.0;

/// Comparing a pair of rows where no key says which belong together.
const COMPARE: f64 = 2.0;

/// A join by keys: the rows of its table, those that are looked up in it, and those that leave.
pub(in crate::planner) fn keyed(build: f64, probe: f64, result: f64) -> f64 {
    let missed = build / (build + CACHED_ROWS);
    build * BUILD + probe * (PROBE + MISS * missed) + result * YIELD
}

/// A join that looks at all pairs. The side that is kept is worked through for each row of the other.
pub(in crate::planner) fn paired(kept: f64, other: f64, result: f64) -> f64 {
    kept * BUILD + other * PROBE + kept * other * COMPARE + result * YIELD
}

/// Rows added to so many groups, of whose keys some are texts.
pub(in crate::planner) fn grouped(rows: f64, groups: f64, texts: usize) -> f64 {
    let missed = groups / (groups + CACHED_ROWS);
    rows * (ADD + GROUP_MISS * missed * (1.0 + texts as f64))
}
