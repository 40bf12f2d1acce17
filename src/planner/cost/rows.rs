//! What is done to rows of tables, in nanoseconds of one thread.
//!
//! Joins and groups are those by hash. A row to build is hashed, dealt out and written to a table; one to probe is hashed and
//! looked up, which takes longer where the table is beyond the caches; and so it is with groups.

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::CostModel;
use crate::exec::costs::Constant;

/// Rows of a table, or groups, of which half the looks miss the caches.
const CACHED_ROWS: f64 = 200_000.0;

/// Rows whose bits take as much of the caches as a row of a table.
const ROWS_OF_BITS: f64 = 8.0;

/// What is done to rows costs on a machine.
#[derive(Debug, Clone, Copy)]
pub(in crate::planner) struct RowCosts {
    /// Nanoseconds that one takes of what a constant counts by the second.
    nanoseconds: [f64; Constant::COUNT],
}

/// How many of some keys are texts.
pub(in crate::planner) fn texts(keys: &[Expr], schema: &DFSchema) -> usize {
    let is_text = |key: &&Expr| key.get_type(schema).is_ok_and(|of| of.is_string());
    keys.iter().filter(is_text).count()
}

/// Of so many rows of a table, or groups, the share of looks that miss the caches.
pub(in crate::planner) fn missed(rows: f64) -> f64 {
    rows / (rows + CACHED_ROWS)
}

impl Default for RowCosts {
    fn default() -> Self {
        CostModel::default().rows()
    }
}

impl CostModel {
    /// What it says of rows.
    pub(in crate::planner) fn rows(&self) -> RowCosts {
        RowCosts { nanoseconds: self.constants.map(|rate| 1e9 / rate) }
    }
}

impl RowCosts {
    /// A join by keys: the rows of its table, those that are looked up in it, and those that leave.
    pub(in crate::planner) fn keyed(&self, build: f64, probe: f64, result: f64) -> f64 {
        let gathered = result * self.each(Constant::Gathered);
        self.built(build) + self.looked_up(build, probe, result) + gathered
    }

    /// Rows looked up in a table of so many others, of which so many pairs come: where most rows meet nobody, bits of all keys say
    /// so before the table is looked at, in a scan or by the table itself.
    fn looked_up(&self, build: f64, probe: f64, pairs: f64) -> f64 {
        let by_bits = self.probed(build / ROWS_OF_BITS, probe) + self.probed(build, pairs);
        self.probed(build, probe).min(by_bits)
    }

    /// A join that looks at all pairs. The side that is kept is worked through for each row of the other.
    pub(in crate::planner) fn paired(&self, kept: f64, other: f64, result: f64) -> f64 {
        self.built(kept)
            + other * self.each(Constant::Probed)
            + kept * other * self.each(Constant::Compared)
            + result * self.each(Constant::Gathered)
    }

    /// A join by keys, or one that looks at all pairs, whose table holds so many values of each row.
    pub(in crate::planner) fn joined(
        &self,
        is_keyed: bool,
        (build, values): (f64, f64),
        probe: f64,
        result: f64,
    ) -> f64 {
        let joined = match is_keyed {
            true => self.keyed(build, probe, result),
            false => self.paired(build, probe, result),
        };
        joined + self.kept(build * values)
    }

    /// Rows put into the table of a join, which holds so many values of each.
    pub(in crate::planner) fn held(&self, rows: f64, values: f64) -> f64 {
        self.built(rows) + self.kept(rows * values)
    }

    /// Rows put into the table of a join.
    pub(in crate::planner) fn built(&self, rows: f64) -> f64 {
        rows * self.each(Constant::Built)
    }

    /// Rows looked up in a table of so many others.
    pub(in crate::planner) fn probed(&self, build: f64, probe: f64) -> f64 {
        probe * self.between(Constant::Probed, Constant::ProbedFar, missed(build))
    }

    /// Rows dealt out to threads by their keys.
    pub(in crate::planner) fn dealt(&self, rows: f64) -> f64 {
        rows * self.each(Constant::Dealt)
    }

    /// Rows added to so many groups, of whose keys so many are texts ([`texts`]): each is a further look.
    pub(in crate::planner) fn grouped(&self, rows: f64, groups: f64, texts: usize) -> f64 {
        let far = missed(groups) * (1.0 + texts as f64);
        rows * self.between(Constant::Grouped, Constant::GroupedFar, far)
    }

    /// Rows read by a scan.
    pub(in crate::planner) fn read(&self, rows: f64) -> f64 {
        rows * self.each(Constant::Read)
    }

    /// Values kept, and read again.
    pub(in crate::planner) fn kept(&self, values: f64) -> f64 {
        values * self.each(Constant::Kept)
    }

    /// Values read here and there, and written one after the other.
    pub(in crate::planner) fn gathered(&self, values: f64) -> f64 {
        values * self.each(Constant::Gathered)
    }

    /// Values compared with one.
    pub(in crate::planner) fn compared(&self, values: f64) -> f64 {
        values * self.each(Constant::Compared)
    }

    /// Rows put in order.
    pub(in crate::planner) fn sorted(&self, rows: f64) -> f64 {
        rows * self.each(Constant::Sorted)
    }

    /// What one takes of what a constant counts.
    fn each(&self, constant: Constant) -> f64 {
        self.nanoseconds[constant.index()]
    }

    fn between(&self, near: Constant, far: Constant, share: f64) -> f64 {
        let near = self.each(near);
        near + (self.each(far) - near).max(0.0) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_caches_takes_longer_and_texts_count() {
        let costs = RowCosts::default();
        let probed = |build| costs.probed(build, 1e6);
        let [near, far] = [Constant::Probed, Constant::ProbedFar].map(|of| 1e6 * costs.each(of));
        assert!(near < probed(1e3) && probed(1e3) < probed(1e6) && probed(1e9) < far);
        assert!((probed(CACHED_ROWS) - (near + far) / 2.0).abs() < 1.0);
        let grouped = |texts| costs.grouped(1e6, CACHED_ROWS, texts);
        let [near, far] = [Constant::Grouped, Constant::GroupedFar].map(|of| 1e6 * costs.each(of));
        assert!((grouped(0) - (near + far) / 2.0).abs() < 1.0 && (grouped(1) - far).abs() < 1.0);
        // A machine that says it is faster where nothing is in its caches says nothing.
        let mut strange = costs;
        strange.nanoseconds[Constant::ProbedFar.index()] = 1e-3;
        assert_eq!(strange.probed(1e9, 1e6), costs.probed(0.0, 1e6));
    }

    #[test]
    fn rows_that_meet_nobody_are_told_by_bits() {
        let costs = RowCosts::default();
        let looked_up = |pairs| costs.looked_up(1e6, 1e7, pairs);
        assert!(looked_up(1e5) < looked_up(1e6) && looked_up(1e6) < costs.probed(1e6, 1e7));
        // Where most meet somebody, the table is looked at alone.
        assert_eq!(looked_up(1e7), costs.probed(1e6, 1e7));
        assert_eq!(looked_up(1e9), costs.probed(1e6, 1e7));
    }

    #[test]
    fn the_smaller_side_is_cheaper_to_build() {
        let costs = RowCosts::default();
        assert!(costs.keyed(1e3, 1e6, 1e3) < costs.keyed(1e6, 1e3, 1e3));
        assert!(costs.keyed(1e3, 1e3, 1e3) < costs.paired(1e3, 1e3, 1e3));
    }
}
