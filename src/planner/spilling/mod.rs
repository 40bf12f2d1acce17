//! Operators that finish whatever the memory, in place of those of DataFusion's that fail.
//!
//! - `operators`: joins, windows, recursive queries
//! - `sorts`: sorts, the best rows where they are many
//! - `aggregates`: GROUP BY and DISTINCT

mod aggregates;
mod operators;
mod sorts;

pub(crate) use aggregates::SpillingAggregates;
pub(super) use aggregates::phases;
pub(crate) use operators::SpillingOperators;
pub(crate) use sorts::SpillingSorts;
pub(super) use sorts::merge_below;
