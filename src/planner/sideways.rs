//! What joins, sorts and aggregates know of their rows while they run, handed down to the scans that these come of.
//!
//! ```text
//! HashJoinExec: on=[(k, k)]                       the probe side is told which keys were built
//!   a
//!   RepartitionExec                               column 2 above is column 2 below
//!     ProjectionExec: expr=[x@1, k@0 as x, …]     an expression, or a column of another name
//!       DataSourceExec: b                         drops rows whose key was not
//! ```
//!
//! Stands for DataFusion's rule of this purpose, which looks for a column below an operator by its name: of two that have one
//! name it takes the first, and rows are missing. Here a column is found by its place.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, PushedDown,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use super::operators::over;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct SidewaysConditions;

/// Its name.
pub(super) const SIDEWAYS: &str = "sideways_conditions";

/// What DataFusion calls the rule in whose place it is.
pub(super) const OF_DATAFUSION: &str = "FilterPushdown(Post)";

/// What operators are asked in DataFusion's terms.
const PHASE: FilterPushdownPhase = FilterPushdownPhase::Post;

impl PhysicalOptimizerRule for SidewaysConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        handed_down(plan, Vec::new(), config)
    }

    fn name(&self) -> &str {
        SIDEWAYS
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan whose scans know of these conditions on its rows, and of those that its own operators make.
fn handed_down(
    plan: Arc<dyn ExecutionPlan>,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.children().is_empty() {
        return with_conditions(plan, conditions, config);
    }
    let own = plan.gather_filters_for_pushdown(PHASE, Vec::new(), config)?.self_filters();
    let told = own.iter().enumerate().map(|(child, own)| {
        let passed = conditions.iter().filter_map(|condition| below(&plan, child, condition));
        own.iter().cloned().chain(passed).collect()
    });
    let mut told = told.collect::<Vec<Vec<_>>>().into_iter();
    // A scan promises no less for what it is told while it runs.
    let plan = over(plan, |child| handed_down(child, told.next().unwrap_or_default(), config))?;
    if own.iter().all(Vec::is_empty) {
        return Ok(plan);
    }
    let given = |own: Vec<_>| own.into_iter().map(|of| PushedDown::Yes.wrap_expression(of));
    let self_filters = own.into_iter().map(|own| given(own).collect()).collect();
    let done = ChildPushdownResult { parent_filters: Vec::new(), self_filters };
    let done = plan.handle_child_pushdown_result(PHASE, done, config)?;
    Ok(done.updated_node.unwrap_or(plan))
}

/// A scan that knows of conditions, as far as it can use them.
fn with_conditions(
    scan: Arc<dyn ExecutionPlan>,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    if conditions.is_empty() {
        return Ok(scan);
    }
    let given = |filter| ChildFilterPushdownResult { filter, child_results: Vec::new() };
    let parent_filters = conditions.into_iter().map(given).collect();
    let given = ChildPushdownResult { parent_filters, self_filters: Vec::new() };
    let done = scan.handle_child_pushdown_result(PHASE, given, config)?;
    Ok(done.updated_node.unwrap_or(scan))
}

/// The same condition over the rows of a child; nothing where one that does not meet it may matter, or where it reads what the
/// child does not have.
fn below(
    plan: &Arc<dyn ExecutionPlan>,
    child: usize,
    condition: &Arc<dyn PhysicalExpr>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let mut is_there = true;
    let moved = Arc::clone(condition).transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        Ok(match source(plan.as_ref(), child, column.index()) {
            Some(source) => Transformed::new(source, true, TreeNodeRecursion::Jump),
            None => {
                is_there = false;
                Transformed::new(expr, false, TreeNodeRecursion::Stop)
            }
        })
    });
    moved.ok().filter(|_| is_there).map(|moved| moved.data)
}

/// What a column of an operator's rows is in the rows of a child from which they are made, where the operator makes none of rows
/// whose value does not meet a condition.
fn source(plan: &dyn ExecutionPlan, child: usize, at: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let column = |at: usize| {
        let schema = plan.children().get(child)?.schema();
        let field = schema.fields().get(at)?;
        Some(Arc::new(Column::new(field.name(), at)) as Arc<dyn PhysicalExpr>)
    };
    let is_limited = plan.fetch().is_some();
    if plan.is::<RepartitionExec>() || plan.is::<CooperativeExec>() || plan.is::<UnionExec>() {
        return column(at);
    }
    if (plan.is::<CoalescePartitionsExec>() || plan.is::<SortExec>()) && !is_limited {
        return column(at);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>().filter(|_| !is_limited) {
        let projection = filter.projection().as_ref();
        return column(projection.map_or(Some(at), |columns| columns.get(at).copied())?);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let expr = &projection.expr().get(at)?.expr;
        return Some(Arc::clone(expr)).filter(|expr| !is_volatile(expr));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return key(aggregate, at);
    }
    let join = plan.downcast_ref::<HashJoinExec>().filter(|_| !is_limited)?;
    let (left, right) = (join.left().schema(), join.right().schema());
    let (_, columns) = build_join_schema(&left, &right, join.join_type());
    let at = join.projection.as_deref().map_or(Some(at), |columns| columns.get(at).copied())?;
    let of = columns.get(at)?;
    let is_own = of.side == [JoinSide::Left, JoinSide::Right][child];
    match join.join_type() {
        JoinType::Inner if is_own => column(of.index),
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark if is_own && child == 0 => {
            column(of.index)
        }
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark if is_own && child == 1 => {
            column(of.index)
        }
        JoinType::LeftSemi | JoinType::RightSemi if is_own => column(of.index),
        // Rows that are kept have equal keys on the other side.
        JoinType::LeftSemi => partner(join.on().iter().map(|(own, other)| [own, other]), of.index),
        JoinType::RightSemi => partner(join.on().iter().map(|(other, own)| [own, other]), of.index),
        _ => None,
    }
}

/// The expression that is held equal to a column.
fn partner<'a>(
    mut pairs: impl Iterator<Item = [&'a Arc<dyn PhysicalExpr>; 2]>,
    at: usize,
) -> Option<Arc<dyn PhysicalExpr>> {
    let is_column =
        |own: &dyn PhysicalExpr| own.downcast_ref::<Column>().is_some_and(|own| own.index() == at);
    let [_, other] = pairs.find(|[own, _]| is_column(own.as_ref()))?;
    Some(Arc::clone(other))
}

/// The key that a column of groups is, where groups are made of nothing but rows that have it.
fn key(aggregate: &AggregateExec, at: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let keys = aggregate.group_expr();
    let (expr, _) = keys.expr().get(at)?;
    // A total is there without any row, and has NULL for a key.
    let is_in_all = keys.groups().iter().all(|left_out| left_out.get(at) == Some(&false));
    (is_in_all && !is_volatile(expr)).then(|| Arc::clone(expr))
}
