//! Whether a plan comes to the same each time, as long as what it reads is the same, and whether any way to run it does.

use arrow::datatypes::DataType;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::source_as_provider;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, TableScan, Volatility, WindowFunctionDefinition,
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

/// Whether a plan that is not optimized yet has one answer, whatever the order in which its operators come to rows: nothing takes
/// some of them by their order, and nothing is rounded. Whole numbers are averaged as if none were rounded.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn has_one_answer(plan: &LogicalPlan) -> Result<bool> {
    let mut is_one = is_repeatable(plan)?;
    plan.apply_with_subqueries(|plan| {
        is_one &= match plan {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Values(_) => true,
            LogicalPlan::Aggregate(aggregate) => is_exact(aggregate),
            LogicalPlan::Distinct(_) => {
                plan.schema().fields().iter().all(|field| has_one_form(field.data_type()))
            }
            LogicalPlan::Limit(limit) => takes_by_all_columns(&limit.input),
            _ => false,
        };
        Ok(if is_one { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_one)
}

/// Whether equal values of a type cannot be told from one another: zeros of either sign can.
fn has_one_form(of: &DataType) -> bool {
    !of.is_floating() && !of.is_nested()
}

/// Whether an aggregation comes to the same bits whatever the order of its rows.
fn is_exact(aggregate: &Aggregate) -> bool {
    let fields = aggregate.schema.fields();
    let keys = fields.len() - aggregate.aggr_expr.len().min(fields.len());
    let has_keys = fields[..keys].iter().all(|field| has_one_form(field.data_type()));
    has_keys
        && aggregate.aggr_expr.iter().all(|expr| {
            let Expr::AggregateFunction(call) = expr.clone().unalias() else { return false };
            let schema = aggregate.input.schema();
            let is_exact = |of: &Expr| of.get_type(schema).is_ok_and(|of| has_one_form(&of));
            match call.func.name() {
                "count" => true,
                "min" | "max" | "sum" | "avg" | "bool_and" | "bool_or" => {
                    call.params.args.iter().all(is_exact)
                }
                _ => false,
            }
        })
}

/// Whether rows are in an order that leaves none open: one by all columns that they have.
fn takes_by_all_columns(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(sort) => sort.input.schema().columns().into_iter().all(|column| {
            sort.expr.iter().any(|key| matches!(&key.expr, Expr::Column(of) if *of == column))
        }),
        _ => false,
    }
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

/// Whether an expression, whatever it is made of, comes to the same each time.
pub(super) fn is_immutable(expr: &Expr) -> bool {
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
