//! Plans for any values and any rows: parameters stand for the values, numbers of tables for their versions.
//!
//! Enters: an optimized plan, with parameters or without. Leaves: the same without rows, and later, once values are in it, a
//! plan to be run. Not here: for which statements such plans are kept (`session::plans`, `session::templates`).

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableType};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerConfig};
use datafusion::physical_plan::ExecutionPlan;

use super::evidence::Evidence;
use super::{contraction, first_rows, relational, shared};
use crate::storage::Snapshot;

/// The place of a table's rows in a plan.
#[derive(Debug)]
struct Rows {
    /// The table's number.
    of: u64,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("table number {} has no rows in a plan for any", self.of)
    }
}

/// Whether other values and other rows are likely to ask for the same plan: joins have an order, which is looked at apart
/// (`neighbourhood`). Files are those of their names, which may be kept.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn is_for_any(plan: &LogicalPlan) -> Result<bool> {
    let mut is_for_any = true;
    plan.apply(|node| {
        is_for_any &= match node {
            LogicalPlan::TableScan(scan) => snapshot(scan)?.is_some() || is_of_files(scan)?,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_) => true,
            _ => false,
        };
        node.apply_subqueries(|_| {
            is_for_any = false;
            Ok(TreeNodeRecursion::Stop)
        })
    })?;
    Ok(is_for_any)
}

/// What a plan holds of all that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holds {
    /// Names of files, if anything.
    Names,
    /// Rows of tables, which it can be had without.
    Rows,
    /// Rows also in a contraction's join, where nobody takes them out of a plan; out of its operators they are taken.
    HiddenRows,
    /// What is of one run: groups that are remembered, matrices, rows that a function makes.
    Others,
}

/// What an optimized plan holds.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn held(plan: &LogicalPlan) -> Result<Holds> {
    let mut held = Holds::Names;
    plan.apply_with_subqueries(|node| {
        let of_node = match node {
            LogicalPlan::TableScan(scan) if snapshot(scan)?.is_some() => Holds::Rows,
            LogicalPlan::TableScan(scan) if is_of_files(scan)? => Holds::Names,
            LogicalPlan::TableScan(_) => Holds::Others,
            LogicalPlan::Extension(_)
                if shared::behind(node).is_some() || first_rows::is_node(node) =>
            {
                Holds::Names
            }
            LogicalPlan::Extension(_) if contraction::is_node(node) => Holds::HiddenRows,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::EmptyRelation(_) => Holds::Names,
            _ => Holds::Others,
        };
        held = held.max(of_node);
        Ok(match held {
            Holds::Others => TreeNodeRecursion::Stop,
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(held)
}

/// A plan with parameters, optimized as for the values that statistics are given for these.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn optimized(
    plan: LogicalPlan,
    state: &SessionState,
    evidence: &Evidence,
) -> Result<LogicalPlan> {
    let analyzed = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| ())?;
    let optimizer = Optimizer::with_rules(relational::optimizer_rules(evidence));
    let mut state = state.clone();
    // What was a sub-query is called by a number, which begins anew.
    state.execution_props_mut().alias_generator = Arc::default();
    optimizer.optimize(analyzed, &state, |_, _| ())
}

/// The plan without the rows of its tables.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn without_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let without = plan.transform_up_with_subqueries(|node| {
        with_rows(node, |scan| {
            let rows = snapshot(scan)?.map(|snapshot| {
                let (of, schema) = (snapshot.table().id(), snapshot.schema());
                Arc::new(Rows { of, schema }) as _
            });
            Ok(rows)
        })
    })?;
    Ok(without.data)
}

/// The plan of tables as they are, by their numbers, once values stand for its parameters.
///
/// # Errors
/// None but DataFusion's: where a constant cannot be computed.
pub(crate) fn of_values(
    plan: LogicalPlan,
    tables: &HashMap<u64, Snapshot>,
    config: &dyn OptimizerConfig,
) -> Result<LogicalPlan> {
    // What is computed of values alone is a value, as it would be had they been there before.
    let simplify = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())]);
    simplify.optimize(of_rows(plan, tables)?, config, |_, _| ())
}

/// The plan of tables as they are, by their numbers.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn of_rows(plan: LogicalPlan, tables: &HashMap<u64, Snapshot>) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        with_rows(node, |scan| {
            let place = source_as_provider(&scan.source)?;
            let place = (place.as_ref() as &dyn Any).downcast_ref::<Rows>();
            let snapshot = place.and_then(|place| tables.get(&place.of));
            Ok(snapshot.map(|snapshot| Arc::new(snapshot.clone()) as _))
        })
    })?;
    Ok(plan.data)
}

/// The rows of a table as a statement sees them, where a scan has such.
fn snapshot(scan: &TableScan) -> Result<Option<Snapshot>> {
    Ok(source_as_provider(&scan.source)?.downcast_ref::<Snapshot>().cloned())
}

fn is_of_files(scan: &TableScan) -> Result<bool> {
    Ok(source_as_provider(&scan.source)?.is::<ListingTable>())
}

/// A node, with other rows if it is a scan for which there are some.
fn with_rows(
    node: LogicalPlan,
    rows: impl Fn(&TableScan) -> Result<Option<Arc<dyn TableProvider>>>,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
    Ok(match rows(&scan)? {
        Some(rows) => {
            let source = provider_as_source(rows);
            Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan }))
        }
        None => Transformed::no(LogicalPlan::TableScan(scan)),
    })
}
