//! ORDER BY on a device: rows of a table in memory, kept by conditions, in the order of their keys; all of them or the first few.
//!
//! Enters: what is asked of the columns of a table, and by which keys. Leaves: the rows in order, which the host gathers: a device has the columns
//! of keys and conditions alone, and gives back numbers of rows. Not here: which sorts are worth it, and which expressions are terms
//! (`planner::offloaded`).
//!
//! ```text
//! columns ─ upload ─► Column ─ run ─► codes ─ order ─► numbers of rows ─ download ─► gather ─► rows
//!               kept ┘        ranks ┘    └ the first few: select ┘
//! ```
//!
//! - **The host's order.** A row's code is a number that compares as its keys do: numbers above the least one, doubles by IEEE 754's total
//!   order, of texts and of what is computed of few values the rank, which the host finds out; NULL before or behind all. Rows with the same keys stay
//!   in the order of the table.
//! - **Few bits.** Keys share a code as long as it has room for them, digits by which no two rows differ are passed over, and codes of 32 bits
//!   move as such.

mod gather;
mod order;
mod run;
#[cfg(test)]
pub(super) mod tests;
mod text;
mod trial;

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

pub(crate) use self::order::is_few;
pub(crate) use self::trial::sorts;
use super::groups::{Asked, Term};
use super::operator::{Around, Done, Missing, Work};
use crate::gpu::Device;
use crate::storage::TableColumn;

/// Words of a code at most.
pub(crate) const WORDS_MAX: usize = 4;

/// A sort of the rows of a table.
#[derive(Debug)]
pub(crate) struct Sorting {
    /// The rows, of one table; what is looked up for a key is a key of theirs.
    pub(crate) asked: Asked,
    /// The first key decides first.
    pub(crate) by: Vec<By>,
    /// Rows that are asked for.
    pub(crate) fetch: Option<usize>,
    /// What leaves of each row, over columns that the host reads.
    pub(crate) given: Vec<Arc<dyn PhysicalExpr>>,
    pub(crate) read: Vec<TableColumn>,
    pub(crate) read_as: SchemaRef,
}

/// A sort key.
#[derive(Debug, Clone)]
pub(crate) struct By {
    pub(crate) of: Of,
    pub(crate) options: SortOptions,
}

/// Of what.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    /// A whole number within bounds.
    Whole(Term),
    /// A column of floating-point numbers.
    Real(usize),
    /// What this look-up has for its column, by its rank.
    Looked(usize),
}

impl Work for Sorting {
    fn name(&self) -> &'static str {
        "OffloadedSortExec"
    }

    fn held_as(&self) -> &'static str {
        "rows sorted by a GPU"
    }

    fn asked(&self) -> &Asked {
        &self.asked
    }

    fn is_right_on(&self, device: &Arc<Device>, waits: bool) -> bool {
        sorts(device, waits)
    }

    fn run(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        device: &Arc<Device>,
        around: Around<'_>,
    ) -> Result<Done, Missing> {
        let run::Sorted { rows, brought_bytes, log } = run::run(self, device, around)?;
        let rows = gather::Gather::new(self, plan.schema(), rows, around)?;
        Ok(Done { rows: Box::new(rows), brought_bytes, log })
    }
}
