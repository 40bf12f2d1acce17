//! GROUP BY on a device: rows of a table in memory are kept by a condition, and added up by groups.
//!
//! Enters: what is asked of the columns of a table. Leaves: the states of aggregates of each group, as the first of two phases of an
//! aggregation has them, or why the host is to do it. Not here: which aggregations are worth it, and which expressions are terms
//! (`planner::offloaded`).
//!
//! ```text
//! columns ─ upload ─► Column ─ run ─► totals ─ finish, download ─► states ─► answers
//!               kept ┘        look-ups ┘
//! ```
//!
//! - **One text for all rows.** The condition, the keys and the sums are one kernel, which reads each column once.
//! - **Few bytes.** A column lies there as what its values are above the least one; see `column`.
//! - **Keys of few values.** A group is known by the codes of its keys. What is computed of a text, or of a number of few values, is
//!   looked up: the host computes it once for each value.
//! - **The host's bits.** Whole numbers and decimals add up to what they are. Sums of floating-point numbers are added in another
//!   order, and keep what they lose to rounding, so they are as near as the host's or nearer.

mod column;
mod node;
mod run;
mod term;
#[cfg(test)]
pub(super) mod tests;
mod text;
mod trial;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;

pub(crate) use self::column::{Column, expected_bytes};
pub(crate) use self::node::{Choice, OffloadedAggregateExec};
pub(crate) use self::term::{Kind, Term, Values};
pub(crate) use self::text::{REGISTERS_MAX, words};
pub(crate) use self::trial::adds_up;
use crate::storage::TableColumn;

/// Values of a number that are looked up at most.
pub(crate) const LOOKED_UP_MAX: u64 = 1 << 16;

/// What is asked of the rows of a table.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) rows: usize,
    /// The columns that are read.
    pub(crate) columns: Vec<TableColumn>,
    /// What is known of their values.
    pub(crate) values: Vec<Values>,
    pub(crate) look_ups: Vec<LookUp>,
    /// Which rows are kept; all where there is none.
    pub(crate) condition: Option<Term>,
    pub(crate) keys: Vec<Key>,
    pub(crate) states: Vec<State>,
}

/// What is computed of each value of a column.
#[derive(Debug)]
pub(crate) struct LookUp {
    pub(crate) column: usize,
    /// Over that column alone.
    pub(crate) of: Arc<dyn PhysicalExpr>,
}

/// By what rows are put into groups.
#[derive(Debug)]
pub(crate) enum Key {
    Column(usize),
    /// What this look-up has for its column.
    LookedUp(usize),
}

/// What a state of an aggregate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Count,
    Sum,
    Least,
    Greatest,
}

/// A column of what the first phase of an aggregation gives.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) what: What,
    /// Of which values; all rows where there is none.
    pub(crate) of: Option<Term>,
    pub(crate) data_type: DataType,
}

impl Asked {
    /// All terms.
    pub(crate) fn terms(&self) -> impl Iterator<Item = &Term> {
        self.condition.iter().chain(self.states.iter().filter_map(|state| state.of.as_ref()))
    }
}
