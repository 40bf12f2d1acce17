//! GROUP BY on a device: rows of a table in memory, beside those of others that they name, are kept by conditions, and added up by
//! groups.
//!
//! Enters: what is asked of the columns of a table. Leaves: the states of aggregates of each group, as the first of two phases of an
//! aggregation has them, or why the host is to do it. Not here: which aggregations are worth it, and which expressions are terms
//! (`planner::offloaded`).
//!
//! ```text
//! columns ─ coded ─ batches ─► Column ─ run ─► totals ─ finish, download ─► states ─► answers
//!                       kept ┘       look-ups ┘
//! ```
//!
//! - **A join is a look at a place.** Another table is joined by a key that each of its rows has alone, so a row finds one of its rows
//!   or none, and reads its columns there; see `places`.
//! - **One text for all rows.** The condition, the keys and the sums are one kernel, which reads each column once.
//! - **What is not there comes while what has come is added up**, whole where there is room, else a batch at a time; see `batches`.
//! - **Few bytes.** A column lies there as what its values are above the least one; see `column`.
//! - **Groups by codes.** A group is known by the codes of its keys, one number. What is computed of a text, or of a number of few
//!   values, is looked up: the host computes it once for each value. Where a table is joined by one of the keys, its row is the code,
//!   and the host reads there what else it is grouped by.
//! - **The host's bits.** Whole numbers and decimals add up to what they are. Sums of floating-point numbers are added in another
//!   order, and keep what they lose to rounding, so they are as near as the host's or nearer. By many groups they are whole numbers of
//!   the last digit that any of them has, and exact.

mod answers;
mod batches;
mod coded;
mod column;
mod found;
mod pace;
mod pipeline;
mod places;
mod run;
mod term;
#[cfg(test)]
pub(super) mod tests;
mod text;
mod totals;
mod trial;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;

pub(crate) use self::answers::Aggregation;
pub(crate) use self::batches::rows_min;
pub(super) use self::batches::{Batches, Lies};
pub(crate) use self::column::{Column, expected_bytes};
pub(super) use self::column::{Form, PACK, Width};
pub(super) use self::pace::Log;
pub(super) use self::places::owner;
pub(crate) use self::places::{Places, places_bytes};
pub(super) use self::run::{Looked, Run, brought};
pub(crate) use self::term::{Kind, Term, Values};
pub(super) use self::text::{ENTRY, Facts, Parameter, Text};
pub(crate) use self::text::{REGISTERS_MAX, SHARED_MAX, is_hashed, words};
pub(crate) use self::totals::PARTS_MAX;
pub(crate) use self::trial::adds_up;
use crate::storage::{Digits, TableColumn};

/// Values of a number that are looked up at most.
pub(crate) const LOOKED_UP_MAX: u64 = 1 << 16;

/// Digits of a double that are added up as a whole number, beside its sign, in three words of which the lower two take 32 bits of each.
const DIGITS_MAX: u32 = 95;

/// What is asked of the rows of a table, the first, and of those of others that they are joined to.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Of the first table.
    pub(crate) rows: usize,
    /// The columns that are read.
    pub(crate) columns: Vec<TableColumn>,
    /// What is known of their values.
    pub(crate) values: Vec<Values>,
    /// Of which table each is.
    pub(crate) tables: Vec<usize>,
    /// The digits of those of doubles, where somebody has asked for them.
    pub(crate) digits: Vec<Option<Digits>>,
    /// How the tables after the first are found, each from those before it.
    pub(crate) joins: Vec<Join>,
    pub(crate) look_ups: Vec<LookUp>,
    /// Rows are kept for which all of these hold.
    pub(crate) conditions: Vec<Term>,
    /// By which rows are put into groups, and what of them leaves, in its order.
    pub(crate) keys: Vec<Key>,
    pub(crate) shown: Vec<Shown>,
    pub(crate) states: Vec<State>,
}

/// A row goes on with that of another table whose key it names, or not at all.
#[derive(Debug)]
pub(crate) struct Join {
    /// What names it, number by number.
    pub(crate) of: Vec<Term>,
    /// The columns that are the other table's key: no two of its rows have the same values.
    pub(crate) key: Vec<usize>,
    /// Whether it is one column, whose numbers are near enough for each to have a place.
    pub(crate) is_near: bool,
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
    /// The row of this table, where one of its keys, and so each of its columns, is among the keys.
    Row(usize),
}

/// What leaves of the keys of a group.
#[derive(Debug)]
pub(crate) enum Shown {
    /// The key of this number.
    Key(usize),
    /// What a column has in the row that the key of this number is; the device need not have it.
    OfRow(usize, TableColumn),
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
        let names = self.joins.iter().flat_map(|join| &join.of);
        let added = self.states.iter().filter_map(|state| state.of.as_ref());
        names.chain(&self.conditions).chain(added)
    }

    /// Terms of which there are sums that are rounded: whole numbers are added up before they are doubles.
    pub(crate) fn real_sums(&self) -> impl Iterator<Item = &Term> {
        let sums = self.states.iter().filter(|state| state.what == What::Sum);
        let of = sums.filter_map(|state| state.of.as_ref());
        of.filter(|of| {
            !matches!(of, Term::AsDouble(_)) && of.kind(&self.values) == Some(Kind::Double)
        })
    }

    /// The digits of a number of floating point; nothing where they are not known, or too many to be added up as whole numbers.
    pub(crate) fn digits(&self, term: &Term) -> Option<Digits> {
        let digits = term.digits(&self.values, &self.digits)?;
        (digits.count() <= DIGITS_MAX && digits.end <= f64::MAX_EXP).then_some(digits)
    }

    /// Rows of a table, the first being that whose rows are added up.
    pub(crate) fn rows_of(&self, table: usize) -> usize {
        let join = table.checked_sub(1).and_then(|join| self.joins.get(join));
        let key = join.and_then(|join| join.key.first());
        key.map_or(self.rows, |key| self.columns[*key].rows())
    }

    /// The last of the tables that a term reads.
    fn table(&self, term: &Term) -> usize {
        let own = match term {
            Term::Column(at) => self.tables[*at],
            Term::Looked(at) => self.tables[self.look_ups[*at].column],
            _ => 0,
        };
        term.parts().into_iter().map(|part| self.table(part)).fold(own, usize::max)
    }
}
