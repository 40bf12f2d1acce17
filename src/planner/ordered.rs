//! A query planned so that its rows come in the order in which they are stored.
//!
//! DataFusion's own plan of a scan deals rows out to as many partitions as there are threads and gathers
//! them as they come. Sums over such rows would differ in their last bits from run to run.

use std::any::Any;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_planner::PhysicalPlanner;

use super::relation::RowOrder;
use crate::exec::transform::TransformExec;
use crate::storage::ContiguousParts;

/// Parts that a file or table is cut into where its rows are read in their stored order. A constant, for
/// partial sums begin anew at each part, and bits must not depend on the number of threads.
const PARTS: usize = 16;

/// An optimized plan's operators, whose partitions, one after another, are its rows in their stored order: cut into parts where
/// all that happens to rows happens to each by itself, else as one.
pub(super) async fn ordered_input(
    planner: &dyn PhysicalPlanner,
    plan: &LogicalPlan,
    session: &dyn Session,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
        return planner.create_physical_plan(plan, session).await;
    };
    let physical = planner.create_physical_plan(plan, &in_parts(state, plan)).await?;
    if is_row_by_row(&physical) {
        return file_order_kept(physical);
    }
    file_order_kept(planner.create_physical_plan(plan, &serial(state)).await?)
}

/// A session in which a scan is cut into runs of rows.
fn in_parts(state: &SessionState, plan: &LogicalPlan) -> SessionState {
    let mut parts = state.clone();
    parts.config_mut().set_extension(Arc::new(ContiguousParts(PARTS)));
    let options = parts.config_mut().options_mut();
    options.execution.target_partitions = PARTS;
    options.optimizer.enable_round_robin_repartition = false;
    // Files are cut where they lie; DataFusion would deal out the batches of a table by their size.
    options.optimizer.repartition_file_scans = reads_files(plan);
    parts
}

/// A session in which everything happens in one partition, to rows in their order.
pub(crate) fn serial(state: &SessionState) -> SessionState {
    let mut serial = state.clone();
    make_serial(&mut serial);
    serial
}

/// From now on everything happens in one partition.
pub(crate) fn make_serial(state: &mut SessionState) {
    state.config_mut().options_mut().execution.target_partitions = 1;
}

/// Whether the rows of a plan come in an order that means something.
pub(super) fn query_order(plan: &LogicalPlan) -> RowOrder {
    match plan {
        LogicalPlan::Sort(_) | LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => {
            RowOrder::Query
        }
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Extension(_) => RowOrder::Query,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Unnest(_) => query_order(plan.inputs()[0]),
        _ => RowOrder::Undefined,
    }
}

/// Whether an ORDER BY decides the order of a plan's rows.
pub(super) fn has_sort(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_) => has_sort(plan.inputs()[0]),
        _ => false,
    }
}

/// The plan with scans whose partitions keep to their own files; else one takes files from another that
/// is slower.
fn file_order_kept(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let kept = plan.transform_up(|node| {
        let kept = (node.as_ref() as &dyn Any).downcast_ref::<DataSourceExec>();
        let kept = kept.and_then(|scan| scan.with_preserve_order(true));
        Ok(kept.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(kept.data)
}

/// Whether a plan reads files alone.
fn reads_files(plan: &LogicalPlan) -> bool {
    let mut only_files = true;
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source);
            only_files &=
                provider.is_ok_and(|table| (table.as_ref() as &dyn Any).is::<ListingTable>());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .is_ok_and(|_| only_files)
}

/// Whether a plan is a scan of files or of a table of ours, filtered and computed row by row.
fn is_row_by_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match handles_each_row(plan.as_ref()) {
        true => plan.children().into_iter().all(is_row_by_row),
        false => plan.is::<DataSourceExec>(),
    }
}

/// Whether an operator makes of each row by itself another one, or none, in their order.
pub(super) fn handles_each_row(operator: &dyn ExecutionPlan) -> bool {
    operator.is::<FilterExec>()
        || operator.is::<ProjectionExec>()
        || operator.is::<TransformExec>()
        || operator.is::<CooperativeExec>()
}
