//! Filters, handed down to the scans that the rows come of: those that a query has, and what joins, sorts and aggregates know of
//! their rows while they run.
//!
//! ```text
//! HashJoinExec: on=[(k, k)]                       the probe side is told which keys were built
//!   a
//!   RepartitionExec                               column 2 above is column 2 below
//!     ProjectionExec: expr=[x@1, k@0 as x, …]     an expression, or a column of another name
//!       DataSourceExec: b                         drops rows whose key was not
//! ```
//!
//! Stands for DataFusion's rules of this purpose, which look for a column below an operator by its name: of two that have one
//! name they take the first, and rows are missing. Here a column is found by its place. What an operator has to hand down,
//! and what it does with the scans' answers, is DataFusion's.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
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
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::operators::with_children;
use crate::exec::relational::no_constants::NoConstantsExec;

/// The rules in the places of two of DataFusion's.
pub(super) const RULES: [FiltersByPlace; 2] = [
    FiltersByPlace {
        name: "filters_by_place",
        of_datafusion: "FilterPushdown",
        phase: FilterPushdownPhase::Pre,
    },
    FiltersByPlace {
        name: TYING,
        of_datafusion: "FilterPushdown(Post)",
        phase: FilterPushdownPhase::Post,
    },
];

/// The rule that ties joins, sorts and aggregates to the scans below them.
pub(super) const TYING: &str = "filters_by_place(Post)";

/// A rule; see the header of this file.
#[derive(Debug)]
pub(super) struct FiltersByPlace {
    name: &'static str,
    /// What the rule is called in whose place it is.
    pub(super) of_datafusion: &'static str,
    /// Whether filters of the query are handed down, or those that are known while it runs.
    phase: FilterPushdownPhase,
}

impl PhysicalOptimizerRule for FiltersByPlace {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.handed_down(plan, Vec::new(), config).map(|(_, plan)| plan)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl FiltersByPlace {
    /// The plan whose scans know of these filters of its rows, as far as they can use them, and of those that its own operators
    /// have. Of each of these filters, whether nobody above need apply it.
    fn handed_down(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<(Vec<PushedDown>, Arc<dyn ExecutionPlan>)> {
        let own = plan.gather_filters_for_pushdown(self.phase, Vec::new(), config)?.self_filters();
        let mut answers = vec![Vec::new(); filters.len()];
        let (mut own_answers, mut children) = (Vec::new(), Vec::new());
        for (at, (child, own)) in plan.children().into_iter().zip(own).enumerate() {
            let passed = filters.iter().map(|filter| below(&plan, at, filter));
            let passed: Vec<_> = passed.collect();
            let can_move = |filter: &Arc<dyn PhysicalExpr>| !is_volatile(filter);
            let moved = own.iter().filter(|filter| can_move(filter));
            let told = moved.chain(passed.iter().flatten()).cloned().collect();
            let (told, child) = self.handed_down(Arc::clone(child), told, config)?;
            children.push(child);
            let mut told = told.into_iter();
            let mut answer =
                |was_told: bool| was_told.then(|| told.next()).flatten().unwrap_or(PushedDown::No);
            let of_own = own.into_iter().map(|own| answer(can_move(&own)).wrap_expression(own));
            own_answers.push(of_own.collect());
            for (answers, passed) in answers.iter_mut().zip(passed) {
                answers.push(answer(passed.is_some()));
            }
        }
        let plan = match self.phase {
            FilterPushdownPhase::Pre => replace_children_if_necessary(plan, children)?,
            // A scan promises no less for what it is told while it runs.
            FilterPushdownPhase::Post => with_children(plan, children)?,
        };
        let answered =
            |(filter, child_results)| ChildFilterPushdownResult { filter, child_results };
        let parent_filters = filters.into_iter().zip(answers).map(answered).collect();
        let done = ChildPushdownResult { parent_filters, self_filters: own_answers };
        let done = plan.handle_child_pushdown_result(self.phase, done, config)?;
        Ok((done.filters, done.updated_node.unwrap_or(plan)))
    }
}

/// The same filter over the rows of a child; nothing where one that does not meet it may matter, or where it reads what the
/// child does not have. One that reads no column goes where one that reads some could.
fn below(
    plan: &Arc<dyn ExecutionPlan>,
    child: usize,
    filter: &Arc<dyn PhysicalExpr>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let columns = 0..plan.schema().fields().len();
    let mut is_there = !collect_columns(filter).is_empty()
        || columns.into_iter().any(|at| source(plan.as_ref(), child, at).is_some());
    let moved = Arc::clone(filter).transform_down(|expr| {
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
/// whose value does not meet a filter.
fn source(plan: &dyn ExecutionPlan, child: usize, at: usize) -> Option<Arc<dyn PhysicalExpr>> {
    let column = |at: usize| {
        let schema = plan.children().get(child)?.schema();
        let field = schema.fields().get(at)?;
        Some(Arc::new(Column::new(field.name(), at)) as Arc<dyn PhysicalExpr>)
    };
    let is_limited = plan.fetch().is_some();
    let is_as_below = plan.is::<CooperativeExec>() || plan.is::<NoConstantsExec>();
    if is_as_below || plan.is::<RepartitionExec>() || plan.is::<UnionExec>() {
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
