//! Plans that several places of a query read, remembered whole.
//!
//! ```text
//! Join                          Join                              Join
//!   Shared ──────┐                remembered plan                   Shared ──────┐
//!   Aggregate    │      ──►       Aggregate               or        Aggregate    │
//!     Shared ──┐ │                  remembered plan                   Shared ──┐ │
//!              plan                                                          Watched
//!                                                                              plan
//! ```
//!
//! They are known once a query is optimized. What is remembered of one answers for an equal plan that a later query reads at one
//! place alone, too, whatever names it has there and whichever columns are read. Rows come back in any order, so a plan that sorts is
//! not among them.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::super::parts::numbered;
use super::super::shared::behind;
use super::node::{self, Watch};
use super::{is_named, tables};
use crate::catalog::TableName;

/// The scans of what is remembered, as EXPLAIN names them; no table is called so.
const PLAN: &str = "remembered plan";

/// A plan within an optimized query.
#[derive(Debug)]
pub(crate) struct Within<'p> {
    plan: &'p LogicalPlan,
    /// The plan below whatever only names and chooses columns, in columns that are named by their numbers.
    computed: LogicalPlan,
    /// The columns of the plan, by their numbers in that.
    columns: Vec<usize>,
    /// Whether several places read it.
    pub(crate) is_shared: bool,
}

/// What stands in the place of a plan.
#[derive(Debug, Clone)]
pub(crate) enum Instead {
    /// For each place that reads it.
    Rows(LogicalPlan),
    /// For all of them together.
    Plan(LogicalPlan),
}

impl<'p> Within<'p> {
    /// Nothing where its rows cannot be remembered by what they are of.
    fn of(plan: &'p LogicalPlan, is_shared: bool) -> Result<Option<Self>> {
        let mut is_told = true;
        plan.apply(|plan| {
            is_told &= match plan {
                LogicalPlan::TableScan(scan) => scan.fetch.is_none() && is_named(scan)?,
                LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Window(_) => true,
                _ => false,
            };
            is_told &= !plan.expressions().iter().any(super::has_query);
            Ok(if is_told { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        if !is_told {
            return Ok(None);
        }
        let (below, columns) = unnamed(plan);
        // What takes no longer than to read is not remembered.
        if matches!(below, LogicalPlan::TableScan(_)) {
            return Ok(None);
        }
        Ok(Some(Self { plan, computed: numbered(below.clone())?, columns, is_shared }))
    }

    /// The plan that makes what is remembered.
    pub(crate) fn computed(&self) -> &LogicalPlan {
        &self.computed
    }

    /// The tables that are read, whose names tell what that is.
    pub(crate) fn tables(&self) -> Vec<TableName> {
        tables(&self.computed)
    }

    /// What is remembered, in place of the plan.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn answered(&self, known: LogicalPlan) -> Result<Instead> {
        Ok(Instead::Rows(self.named(known)?))
    }

    /// The plan with somebody to watch its rows, beside what is known of it where both are to be compared.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn watched(&self, known: Option<LogicalPlan>, watch: Watch) -> Result<Instead> {
        let watched = node::watched(self.computed.clone(), known, watch);
        Ok(Instead::Plan(self.named(watched)?))
    }

    /// What is remembered, as a plan.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn known(schema: SchemaRef, rows: Vec<RecordBatch>) -> Result<LogicalPlan> {
        super::scan(PLAN, schema, rows)
    }

    /// The columns of the plan, of all that is computed.
    fn named(&self, computed: LogicalPlan) -> Result<LogicalPlan> {
        let columns = self.columns.iter().zip(self.plan.schema().iter());
        let columns = columns.map(|(&at, (table, field))| {
            let column = Expr::Column(Column::from(computed.schema().qualified_field(at)));
            column.alias_qualified(table.cloned(), field.name())
        });
        LogicalPlanBuilder::from(computed.clone()).project(columns.collect::<Vec<_>>())?.build()
    }
}

/// What is below names and choices of columns, and the columns that are left of it.
fn unnamed(plan: &LogicalPlan) -> (&LogicalPlan, Vec<usize>) {
    let mut below = plan;
    let mut columns: Vec<usize> = (0..plan.schema().fields().len()).collect();
    loop {
        below = match below {
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Projection(projection) => {
                let places = projection.expr.iter().map(|expr| match expr.clone().unalias() {
                    Expr::Column(column) => {
                        projection.input.schema().maybe_index_of_column(&column)
                    }
                    _ => None,
                });
                let Some(places) = places.collect::<Option<Vec<_>>>() else { break };
                columns = columns.into_iter().map(|at| places[at]).collect();
                &projection.input
            }
            _ => break,
        };
    }
    (below, columns)
}

/// An optimized query with something else in the place of plans within. `instead` is asked for each that is shared, and where
/// `asks_all` for all others.
///
/// # Errors
/// None but DataFusion's, and those of `instead`.
pub(crate) fn with_plans(
    plan: LogicalPlan,
    asks_all: bool,
    mut instead: impl FnMut(&Within<'_>) -> Result<Option<Instead>>,
) -> Result<Transformed<LogicalPlan>> {
    if !asks_all && !shares(&plan)? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_down_with_subqueries(|plan| {
        let shared = behind(&plan);
        let input = match shared {
            Some(input) => input,
            None if asks_all => &plan,
            None => return Ok(Transformed::no(plan)),
        };
        let within = Within::of(input, shared.is_some())?;
        let found = within.as_ref().map(&mut instead).transpose()?.flatten();
        let done = match (found, shared) {
            (Some(Instead::Plan(input)), Some(_)) => {
                plan.with_new_exprs(Vec::new(), vec![input])?
            }
            (Some(Instead::Rows(rows) | Instead::Plan(rows)), _) => rows,
            (None, Some(_)) => return Ok(Transformed::new(plan, false, TreeNodeRecursion::Jump)),
            (None, None) => return Ok(Transformed::no(plan)),
        };
        Ok(Transformed::new(done, true, TreeNodeRecursion::Jump))
    })
}

fn shares(plan: &LogicalPlan) -> Result<bool> {
    let mut shares = false;
    plan.apply_with_subqueries(|plan| {
        shares = behind(plan).is_some();
        Ok(if shares { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(shares)
}
