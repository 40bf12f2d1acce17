//! Whether a plan comes to the same each time, as long as what it reads is the same.

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{
    Expr, LogicalPlan, TableScan, Volatility, WindowFunctionDefinition,
};

use crate::storage::Snapshot;

/// Whether a plan that is not optimized yet comes to the same each time: `random()` and `now()` do not, nor do tables
/// of which nobody knows.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let mut repeats = true;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            repeats &= is_known(scan);
        }
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                repeats &= is_immutable(expr);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(repeats)
}

/// Whether all that a scan reads is told by its name and version, or by the statement itself.
fn is_known(scan: &TableScan) -> bool {
    source_as_provider(&scan.source).is_ok_and(|table| {
        table.is::<Snapshot>()
            || table.is::<ListingTable>()
            || table.is::<GenerateSeriesTable>()
            || table.is::<CteWorkTable>()
    })
}

fn is_immutable(expr: &Expr) -> bool {
    let volatility = match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility,
        Expr::AggregateFunction(call) => call.func.signature().volatility,
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => function.signature().volatility,
            WindowFunctionDefinition::WindowUDF(function) => function.signature().volatility,
        },
        Expr::ScalarVariable(..) => Volatility::Volatile,
        _ => Volatility::Immutable,
    };
    volatility == Volatility::Immutable
}
