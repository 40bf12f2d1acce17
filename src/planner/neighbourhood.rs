//! Values for which a plan with parameters is taken that was chosen for others.
//!
//! The order of joins, the sides that are built and what is aggregated before them are chosen by the rows that each relation is
//! estimated to have. So a plan is taken where those are about as many as they were, and to know that takes a look at each
//! relation, but none at the ways to join them. Of a plan without joins all values are near.

use std::collections::HashMap;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;

use super::generic;
use super::parameters::names_parameter;
use super::statistics::{Estimates, Statistics};
use crate::storage::Snapshot;

/// How many times as many rows are about as many. What a join costs grows as its sides do, so another order saves no more than
/// such a factor for each relation, of which most have no parameter; estimates of rows that were never looked at are as far off.
const RATIO_MAX: f64 = 2.0;

/// Fewer rows than so many are all alike: what another plan could save of them takes less than to make it.
const ROWS_FEW: f64 = 32.0;

/// Relations of a plan without their rows, and how many they were estimated to have when it was chosen.
#[derive(Debug)]
pub(crate) struct Neighbourhood {
    relations: Vec<(LogicalPlan, f64)>,
}

impl Neighbourhood {
    /// That of the values which are given for the parameters of a plan.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn of(plan: &LogicalPlan, statistics: &Statistics) -> Result<Self> {
        let estimates = Estimates::new(statistics);
        let relations = relations(plan)?.into_iter().map(|relation| {
            let rows = estimates.rows(relation);
            Ok((generic::without_rows(relation.clone())?, rows))
        });
        Ok(Self { relations: relations.collect::<Result<_>>()? })
    }

    /// Whether all values are near.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.relations.is_empty()
    }

    /// Whether the values that are given are near, over tables by their numbers.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn includes(
        &self,
        tables: &HashMap<u64, Snapshot>,
        statistics: &Statistics,
    ) -> Result<bool> {
        let estimates = Estimates::new(statistics);
        for (relation, rows) in &self.relations {
            let relation = generic::of_rows(relation.clone(), tables)?;
            if !are_near(estimates.rows(&relation), *rows) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What the rows of joins depend on: tables, those that meet a condition, and what else has a parameter that decides how many
/// rows there are.
fn relations(plan: &LogicalPlan) -> Result<Vec<&LogicalPlan>> {
    let mut found = Vec::new();
    if !plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(_))))? {
        return Ok(found);
    }
    plan.apply(|node| {
        let is_table = match node {
            LogicalPlan::TableScan(_) => true,
            LogicalPlan::Filter(filter) => matches!(*filter.input, LogicalPlan::TableScan(_)),
            _ => false,
        };
        if is_table || decides(node)? {
            found.push(node);
        }
        Ok(if is_table { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a node has a parameter that decides how many rows it yields.
fn decides(node: &LogicalPlan) -> Result<bool> {
    let mut has_parameter = false;
    if matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::Limit(_)) {
        node.apply_expressions(|expr| {
            has_parameter |= names_parameter(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(has_parameter)
}

fn are_near(rows: f64, other: f64) -> bool {
    let (rows, other) = (rows.max(ROWS_FEW), other.max(ROWS_FEW));
    rows <= RATIO_MAX * other && other <= RATIO_MAX * rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_near_within_a_factor_either_way_and_where_they_are_few() {
        assert!(are_near(1000.0, 2000.0) && are_near(2000.0, 1000.0));
        assert!(!are_near(1000.0, 2001.0) && !are_near(2001.0, 1000.0));
        assert!(are_near(1.0, 64.0) && !are_near(1.0, 65.0));
    }
}
