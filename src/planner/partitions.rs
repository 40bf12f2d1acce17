//! Whether a plan has one partition, for it takes less than to wake the other threads.
//!
//! Enters: an optimized plan. Leaves: an answer, and a choice for EXPLAIN. A scan is cut by its rows and everything above it is dealt
//! out again for each join and each aggregation; of few rows that is most of the work. What takes how long is estimated as for all
//! other choices, and what is not known to be cheap is taken to be dear.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, TableScan};

use super::evidence::Evidence;
use super::joins::choices::{Choice, Choices, RUNNER_UP, Way};
use super::shared::{behind, own_work};
use super::statistics::Estimates;
use crate::config::ForRules;
use crate::storage::Snapshot;

/// A plan that reads more rows than these has as many partitions as there are threads, and nothing is estimated.
const ROWS_MAX: f64 = 262_144.0;

/// Nanoseconds to wake threads and deal rows out to them, in the costs that plans are chosen by. Those are of many rows: of groups,
/// filters and joins that one thread is said to take 0.65 ms for it takes 0.8 to 0.9 of the time of two, and of 1.3 ms as long.
const DEALT_OUT: f64 = 400e3;

/// What an operator on numbers takes of a row, in nanoseconds.
const SIMPLE: f64 = 2.0;

/// What a function takes of a row, or whatever else is not known.
const UNKNOWN: f64 = 300.0;

/// Aggregates that take of a row what grouping is said to take.
const PLAIN_AGGREGATES: [&str; 5] = ["avg", "count", "max", "min", "sum"];

/// Whether an optimized plan has one partition, rather than one for each thread.
///
/// # Errors
/// None but DataFusion's.
pub(crate) fn is_one(
    plan: &LogicalPlan,
    options: &ConfigOptions,
    evidence: &Evidence,
) -> Result<bool> {
    let threads = options.execution.target_partitions;
    let is_asked =
        options.extensions.get::<ForRules>().is_some_and(|rules| rules.partitions_by_cost);
    if !is_asked || threads < 2 {
        return Ok(false);
    }
    let estimates = evidence.estimates(options);
    if !reads_few_rows(plan, &estimates)? {
        return Ok(false);
    }
    let one = nanoseconds(plan, &estimates)?;
    if one.is_infinite() {
        return Ok(false);
    }
    let several = one / threads as f64 + DEALT_OUT;
    let is_one = one <= several;
    let is_turned = Choices::of(options)
        .is_some_and(|choices| choices.add(choice(threads, [one, several], is_one)));
    Ok(is_one != is_turned)
}

/// Whether a plan reads no more than few rows, and it is known of all.
fn reads_few_rows(plan: &LogicalPlan, estimates: &Estimates<'_>) -> Result<bool> {
    let mut rows = 0.0;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan {
            rows += match can_be_counted(scan)? && estimates.is_known(plan) {
                true => estimates.rows_unfiltered(plan),
                false => f64::INFINITY,
            };
        }
        Ok(if rows > ROWS_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(rows <= ROWS_MAX)
}

/// Whether a scan is one of a table in memory, or of a file that says how many rows it has: to look at many files takes longer than
/// is gained here.
fn can_be_counted(scan: &TableScan) -> Result<bool> {
    let provider = source_as_provider(&scan.source)?;
    let Some(files) = provider.downcast_ref::<ListingTable>() else {
        return Ok(provider.is::<Snapshot>());
    };
    let is_parquet = files.options().format.is::<ParquetFormat>();
    let is_one = |path: &ListingTableUrl| !path.is_collection() && path.get_glob().is_none();
    Ok(is_parquet && matches!(files.table_paths().as_slice(), [path] if is_one(path)))
}

/// What a plan takes on one thread; infinitely long where nobody knows.
fn nanoseconds(plan: &LogicalPlan, estimates: &Estimates<'_>) -> Result<f64> {
    let is_known = match plan {
        LogicalPlan::Extension(_) => behind(plan).is_some(),
        LogicalPlan::TableScan(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Explain(_)
        | LogicalPlan::Analyze(_) => true,
        _ => false,
    };
    if !is_known {
        return Ok(f64::INFINITY);
    }
    let mut all = own_work(plan, estimates);
    let rows = match plan {
        LogicalPlan::TableScan(scan) => {
            let rows = estimates.rows_unfiltered(plan);
            all += decoding(scan, rows, estimates)?;
            rows
        }
        _ => plan.inputs().into_iter().map(|input| estimates.rows(input)).fold(0.0, f64::max),
    };
    all += rows * of_each_row(plan)?;
    for input in plan.inputs() {
        all += nanoseconds(input, estimates)?;
    }
    plan.apply_subqueries(|query| {
        all += nanoseconds(query, estimates)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(all)
}

/// What a file takes beside what a table in memory does: each of its columns is read by itself.
fn decoding(scan: &TableScan, rows: f64, estimates: &Estimates<'_>) -> Result<f64> {
    if source_as_provider(&scan.source)?.is::<Snapshot>() {
        return Ok(0.0);
    }
    Ok(estimates.costs.read(rows * scan.projected_schema.fields().len() as f64))
}

/// What the expressions of a node take of a row.
fn of_each_row(plan: &LogicalPlan) -> Result<f64> {
    let mut nanoseconds = 0.0;
    plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            nanoseconds += of_node(expr);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(nanoseconds)
}

fn of_node(expr: &Expr) -> f64 {
    match expr {
        Expr::Column(_)
        | Expr::Literal(..)
        | Expr::Alias(_)
        | Expr::Placeholder(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::ScalarSubquery(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_) => 0.0,
        Expr::AggregateFunction(call) if PLAIN_AGGREGATES.contains(&call.func.name()) => 0.0,
        Expr::BinaryExpr(binary) if is_simple(binary.op) => SIMPLE,
        Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::Case(_) => SIMPLE,
        _ => UNKNOWN,
    }
}

fn is_simple(op: Operator) -> bool {
    use Operator as Of;
    let compares = matches!(op, Of::Eq | Of::NotEq | Of::Lt | Of::LtEq | Of::Gt | Of::GtEq);
    compares || op.is_numerical_operators() || op.is_logic_operator()
}

/// What EXPLAIN shows: what one partition takes, and several.
fn choice(threads: usize, [one, several]: [f64; 2], is_one: bool) -> Choice {
    let of_threads = format!("one for each of {threads} threads");
    let mut ways = [Way::new(of_threads, several), Way::new("one in all", one)];
    if is_one {
        ways.reverse();
    }
    let [taken, next] = ways;
    Choice::new("partitions", taken, vec![(RUNNER_UP, next)])
}
