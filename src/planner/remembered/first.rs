//! The first rows of a query by some order, which are among those that were the first and those that have come since.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{
    Expr, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, Sort, SortExpr,
};

use super::{has_query, is_linear};
use crate::planner::parts::column;
use crate::storage::Snapshot;

/// More rows are not remembered.
const ROWS_MAX: usize = 10_000;

/// So many rows of an order, after some of them.
#[derive(Debug)]
pub(super) struct FirstRows {
    pub(super) sort: Sort,
    skip: usize,
    fetch: usize,
}

impl FirstRows {
    /// Nothing where a plan is none that more rows of a table only add rows to, or all its tables have fewer rows than these: to plan
    /// that anew takes longer than to run what is planned.
    pub(super) fn of(plan: &LogicalPlan, rows_min: usize) -> Result<Option<Self>> {
        let LogicalPlan::Limit(limit) = plan else { return Ok(None) };
        let LogicalPlan::Sort(sort) = limit.input.as_ref() else { return Ok(None) };
        let (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let is_simple = sort.fetch.is_none() && !sort.expr.iter().any(|key| has_query(&key.expr));
        let is_few = skip.saturating_add(fetch) <= ROWS_MAX;
        let is_such =
            is_simple && is_few && is_linear(&sort.input)? && has_rows(&sort.input, rows_min)?;
        Ok(is_such.then(|| Self { sort: sort.clone(), skip, fetch }))
    }

    /// Of these rows, which have the columns of the query, as many as are needed.
    pub(super) fn rows(&self, of: LogicalPlan) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::from(of).sort(self.sort.expr.clone())?;
        rows.limit(0, Some(self.skip + self.fetch))?.build()
    }

    /// The order of rows whose columns are named by their numbers.
    pub(super) fn numbered_order(&self) -> Result<Vec<SortExpr>> {
        let schema = self.sort.input.schema();
        let numbered = |key: &SortExpr| {
            let expr = key.expr.clone().transform_up(|expr| match &expr {
                Expr::Column(of) => Ok(Transformed::yes(column(schema.index_of_column(of)?))),
                _ => Ok(Transformed::no(expr)),
            });
            Ok(SortExpr { expr: expr?.data, ..key.clone() })
        };
        self.sort.expr.iter().map(numbered).collect()
    }

    /// The same of rows whose columns are named by their numbers.
    pub(super) fn of_numbered(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::from(rows).sort(self.numbered_order()?)?;
        rows.limit(0, Some(self.skip + self.fetch))?.build()
    }

    /// What was asked, of as many rows as are needed, whose columns are named by their numbers. Who takes the last of them without
    /// asking for more would keep them from being remembered, so only those before what is asked are counted.
    pub(super) fn answered(&self, rows: LogicalPlan) -> Result<LogicalPlan> {
        let rows = LogicalPlanBuilder::from(rows).sort(self.numbered_order()?)?;
        let rows = if self.skip > 0 { rows.limit(self.skip, None)? } else { rows }.build()?;
        let named = self.sort.input.schema().iter().enumerate();
        let named = named
            .map(|(at, (table, field))| column(at).alias_qualified(table.cloned(), field.name()));
        LogicalPlanBuilder::from(rows).project(named.collect::<Vec<_>>())?.build()
    }
}

/// Whether a table that is read has so many rows, or who knows how many.
fn has_rows(plan: &LogicalPlan, rows_min: usize) -> Result<bool> {
    plan.exists(|plan| {
        let LogicalPlan::TableScan(scan) = plan else { return Ok(false) };
        let table = source_as_provider(&scan.source)?;
        let rows = table.downcast_ref::<Snapshot>().map(Snapshot::row_count);
        Ok(rows.is_none_or(|rows| rows >= rows_min))
    })
}
