//! Of rows that meet a condition, the few that are nearest to a vector: nothing but numbers is made of all others.
//!
//! ```text
//! SortExec: TopK(fetch=10), expr=[d]                    SortExec: …
//!   ProjectionExec: id, cosine_distance(v, […]) as d      ProjectionExec: …
//!     FilterExec: a > 0                            ──►      FirstRowsExec: 10 by cosine_distance(v, […]), where a > 0
//!       …                                                     …
//! ```
//!
//! A filter copies the lists of all rows that it keeps, and the sort wants few of them. Measured where they lie, a row that
//! is beyond the best so far is never copied. What decides is the sort, as before.
//!
//! Without a condition nothing is copied, and there is nothing to gain.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal, NegativeExpr};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::first_rows::COUNT_MAX;
use crate::config::ForRules;
use crate::exec::relational::first_rows::{First, FirstRowsExec};
use crate::functions::is_measure;

/// The rule; see the header of this file. After all rules that look for filters by type, but for ours.
#[derive(Debug)]
pub(crate) struct NearestRows;

impl PhysicalOptimizerRule for NearestRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<ForRules>();
        if !settings.is_some_and(|settings| settings.drops_rows) {
            return Ok(plan);
        }
        plan.transform_down(|plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(plan));
            };
            let count = sort.fetch().filter(|count| (1..=COUNT_MAX).contains(count));
            let rows = match count {
                Some(count) => nearest(sort.input(), count, sort.expr().first())?,
                None => None,
            };
            Ok(match rows {
                Some(rows) => Transformed::yes(replace_children_if_necessary(plan, vec![rows])?),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "nearest_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What a plan becomes of which the first few rows are asked for; `None` where it stays.
fn nearest(
    plan: &Arc<dyn ExecutionPlan>,
    count: usize,
    by: &PhysicalSortExpr,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return filtered(filter, count, by);
    }
    let below = match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => below(projection.projection_expr(), by),
        None if plan.is::<RepartitionExec>() => Some(by.clone()),
        None => None,
    };
    let (Some(by), [input]) = (below, &plan.children()[..]) else { return Ok(None) };
    let rows = nearest(input, count, &by)?;
    rows.map(|rows| replace_children_if_necessary(Arc::clone(plan), vec![rows])).transpose()
}

/// The order of what is projected, as that of what is below.
fn below(projection: &ProjectionExprs, by: &PhysicalSortExpr) -> Option<PhysicalSortExpr> {
    let expr = projection.unproject_expr(&by.expr).ok()?;
    Some(PhysicalSortExpr { expr, options: by.options })
}

fn filtered(
    filter: &FilterExec,
    count: usize,
    by: &PhysicalSortExpr,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let input = filter.input();
    let kept = filter.projection().as_ref();
    let kept = kept.map(|columns| ProjectionExprs::from_indices(columns, &input.schema()));
    let by = kept.as_ref().map_or_else(|| Some(by.clone()), |kept| below(kept, by));
    let by = by.filter(|by| is_measured(&by.expr) && filter.fetch().is_none());
    let Some(by) = by else { return Ok(None) };
    let condition = Some(Arc::clone(filter.predicate()));
    let first = First { count, keys: Vec::new(), by, condition };
    let rows: Arc<dyn ExecutionPlan> = Arc::new(FirstRowsExec::new(first, Arc::clone(input)));
    Ok(Some(match kept {
        Some(kept) => Arc::new(ProjectionExec::try_new(kept.iter().cloned(), rows)?),
        None => rows,
    }))
}

/// Whether an expression is about measures of lists, and can be computed whatever the rest of a row is.
fn is_measured(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let (mut measures, mut is_safe) = (false, true);
    let walked = expression.apply(|expression| {
        if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
            let is_read = |of: &Arc<dyn PhysicalExpr>| of.is::<Column>() || of.is::<Literal>();
            is_safe &= is_measure(function.fun()) && function.args().iter().all(is_read);
            measures = true;
            return Ok(TreeNodeRecursion::Jump);
        }
        is_safe &= match expression.downcast_ref::<BinaryExpr>() {
            Some(of) => matches!(of.op(), Operator::Plus | Operator::Minus | Operator::Multiply),
            None => expression.is::<NegativeExpr>() || is_double(expression),
        };
        Ok(TreeNodeRecursion::Continue)
    });
    measures && is_safe && walked.is_ok()
}

/// Whether an expression is a number of which no arithmetic fails.
fn is_double(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let literal = expression.downcast_ref::<Literal>();
    literal.is_some_and(|literal| literal.value().data_type() == DataType::Float64)
}
