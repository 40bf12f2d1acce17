//! Tables that hold rows of their own: in memory, as a row of versions that never change.
//!
//! Enters: Arrow batches and row numbers. Leaves: [`Snapshot`], one version of a table as DataFusion's
//! `TableProvider`. Not here: names (`catalog`), how UPDATE and DELETE find their rows (`planner::modify`).
//!
//! ```text
//! MemoryTable ─ current Version ─ Snapshot ─► scan            a statement reads one version throughout
//!      ▲                                        │
//!      └──── insert, change (all or nothing) ◄──┘ rows         a writer makes the next one
//!
//! batch     some rows, in few bytes
//! keys      PRIMARY KEY and UNIQUE           zones     bounds of each batch, by which a scan leaves some out
//! scan      which batches, columns, rows     read      their rows: what a condition is about first, of all else what it leaves
//! column    all rows of one, for who takes them elsewhere
//! ```

mod batch;
mod column;
mod counted;
mod dictionary;
mod digits;
mod keys;
mod memory;
mod read;
mod scan;
mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use batch::Batch;
pub(crate) use column::{SameColumn, TableColumn, number};
pub(crate) use counted::Counted;
pub(crate) use digits::Digits;
pub(crate) use keys::Key;
pub(crate) use memory::{MemoryTable, TableDefinition};
pub(crate) use scan::TableScan;
pub(crate) use snapshot::{ContiguousParts, ROW_NUMBER, Snapshot};
