//! `INTERSECT ALL` and `EXCEPT ALL` count how often a row is there: of n and m equal rows they keep the lesser of both, and n - m.
//!
//! DataFusion keeps every row of the left side that the right side has, or has not. So equal rows are numbered, on both sides:
//!
//! ```text
//! Projection: x
//!   LeftSemi Join: x, number                     LeftAnti for EXCEPT ALL
//!     Window: row_number() OVER (PARTITION BY x) AS number
//!     Window: row_number() OVER (PARTITION BY x) AS number
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, NullEquality, Result};
use datafusion::config::ConfigOptions;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Distinct, Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule. Before all that make such joins of anything else.
#[derive(Debug)]
pub(super) struct RepeatedRows;

impl AnalyzerRule for RepeatedRows {
    fn name(&self) -> &str {
        "repeated_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match &node {
            LogicalPlan::Join(join) if counts_rows(join) => {
                numbered_join(join).map(Transformed::yes)
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }
}

/// Whether a join stands for `INTERSECT ALL` or `EXCEPT ALL`: as a statement is planned, no other has keys of which NULLs are
/// equal, and of different rows each is there once.
fn counts_rows(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn numbered_join(join: &Join) -> Result<LogicalPlan> {
    let (left, left_number) = numbered(&join.left)?;
    let (right, right_number) = numbered(&join.right)?;
    let mut on = join.on.clone();
    on.push((Expr::Column(left_number), Expr::Column(right_number)));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined))
        .project(join.left.schema().columns().into_iter().map(Expr::Column))?
        .build()
}

/// Rows that have their number among equal ones beside them, and its column.
fn numbered(rows: &LogicalPlan) -> Result<(LogicalPlan, Column)> {
    let mut number =
        WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), Vec::new());
    number.params.partition_by = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let number = Expr::from(number);
    let column = Column::from_name(number.schema_name().to_string());
    Ok((LogicalPlanBuilder::window_plan(rows.clone(), vec![number])?, column))
}
