//! Windows over whole partitions become a join with what is aggregated of each partition, where that leaves few groups.
//!
//! ```text
//! Window: sum(v) PARTITION BY k      Projection: sales.*, windows.c1
//!   sales                       ──►    Inner Join: sales.k = windows.c0
//!                                        sales
//!                                        Aggregate: groupBy=[k], sum(v)
//!                                          sales
//! ```
//!
//! No row is put in order, and none is held: rows are read a second time, or kept where that is cheaper (`shared`). For windows
//! without ORDER BY and aggregates that ask for none.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunction, WindowFunctionParams,
};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Projection, Window,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::cost::rows::texts;
use super::evidence::Evidence;
use super::joins::choices::{Choice, Choices, RUNNER_UP, Way};
use super::joins::names::names;
use super::parts::{name, numbered};
use super::repeatable::{has_one_answer, is_repeatable};
use super::shared::{kept, work};
use super::statistics::Estimates;
use crate::config::ForRules;

/// What the aliases of groups begin with.
const WINDOWS: &str = "__windows";

/// What must be saved at least, in nanoseconds, and of what the window takes.
const SAVED_MIN: f64 = 1e6;
const SAVED_SHARE: f64 = 0.2;

/// Aggregates that come to the same whatever the order of their rows, but for the last digits of floating-point numbers.
const WITHOUT_ORDER: [&str; 7] = ["count", "sum", "avg", "min", "max", "bool_and", "bool_or"];

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct GroupedWindows {
    evidence: Evidence,
}

impl GroupedWindows {
    pub(super) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl OptimizerRule for GroupedWindows {
    fn name(&self) -> &str {
        "grouped_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.groups_windows);
        let window = match &plan {
            LogicalPlan::Window(window) if is_on => window,
            _ => return Ok(Transformed::no(plan)),
        };
        let Some(groups) = groups(window)? else { return Ok(Transformed::no(plan)) };
        let costs = costs(window, &groups, &self.evidence.estimates(&options))?;
        let Some([grouped, in_order]) = costs else { return Ok(Transformed::no(plan)) };
        let saved = in_order - grouped;
        let mut is_taken = saved > SAVED_MIN && saved > in_order * SAVED_SHARE;
        if let Some(choices) = Choices::of(&options)
            && choices.add(choice(window, is_taken, [grouped, in_order]))
        {
            is_taken = !is_taken;
        }
        if !is_taken {
            return Ok(Transformed::no(plan));
        }
        joined(window, groups, &config.alias_generator().next(WINDOWS)).map(Transformed::yes)
    }
}

/// What is aggregated of each partition; nothing where a window asks for anything else, or rows might be others when they are
/// read again.
fn groups(window: &Window) -> Result<Option<Aggregate>> {
    let mut keys: Option<Vec<Expr>> = None;
    let mut aggregates = Vec::with_capacity(window.window_expr.len());
    for expr in &window.window_expr {
        let Expr::WindowFunction(function) = expr.clone().unalias() else { return Ok(None) };
        let WindowFunction { fun: WindowFunctionDefinition::AggregateUDF(func), params } =
            *function
        else {
            return Ok(None);
        };
        let WindowFunctionParams {
            args,
            partition_by,
            order_by,
            window_frame,
            filter,
            null_treatment,
            distinct,
        } = params;
        let is_known = WITHOUT_ORDER.contains(&func.name()) && !distinct;
        let is_whole = order_by.is_empty() && is_whole(&window_frame);
        if !is_known
            || !is_whole
            || keys.get_or_insert_with(|| partition_by.clone()) != &partition_by
        {
            return Ok(None);
        }
        let params = AggregateFunctionParams { args, distinct, filter, order_by, null_treatment };
        aggregates.push(Expr::AggregateFunction(AggregateFunction { func, params }));
    }
    let Some(keys) = keys.filter(|keys| !keys.is_empty()) else { return Ok(None) };
    for key in &keys {
        // Zeros of either sign are one group and two partitions.
        let of = key.get_type(window.input.schema())?;
        if of.is_floating() || of.is_nested() {
            return Ok(None);
        }
    }
    // Rows that LIMIT takes of many may be others the next time.
    let is_same_again = has_one_answer(&window.input)?;
    if !is_same_again || !is_repeatable(&LogicalPlan::Window(window.clone()))? {
        return Ok(None);
    }
    Aggregate::try_new(Arc::clone(&window.input), keys, aggregates).map(Some)
}

/// Whether a frame without ORDER BY is all of its partition.
fn is_whole(frame: &WindowFrame) -> bool {
    let ends_there = match &frame.end_bound {
        WindowFrameBound::Following(rows) => rows.is_null(),
        // All rows are its peers.
        WindowFrameBound::CurrentRow => frame.units != WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(_) => false,
    };
    frame.start_bound.is_unbounded() && ends_there
}

/// Nanoseconds that it takes as a join and as a window; nothing where the rows are only guessed.
fn costs(
    window: &Window,
    groups: &Aggregate,
    estimates: &Estimates<'_>,
) -> Result<Option<[f64; 2]>> {
    let input = window.input.as_ref();
    if !estimates.is_known(input) {
        return Ok(None);
    }
    let rows = estimates.rows(input);
    let in_order = estimates.costs.sorted(rows);
    // Nothing to choose where there is so little to save.
    if in_order < SAVED_MIN {
        return Ok(None);
    }
    let count = estimates.rows(&LogicalPlan::Aggregate(groups.clone())).min(rows);
    let texts = texts(&groups.group_expr, input.schema());
    let again = work(input, estimates).min(2.0 * kept(input, estimates));
    let costs = &estimates.costs;
    let grouped = again + costs.grouped(rows, count, texts) + costs.keyed(count, rows, rows);
    Ok(Some([grouped, in_order]))
}

/// What EXPLAIN shows.
fn choice(window: &Window, is_grouped: bool, [grouped, in_order]: [f64; 2]) -> Choice {
    let of = format!("windows over {}", names(&window.input));
    let grouped = Way::new("joined with their groups", grouped).for_good();
    let in_order = Way::new("in the order of their keys", in_order);
    let (taken, next) = if is_grouped { (grouped, in_order) } else { (in_order, grouped) };
    let next = next.beside(taken.nanoseconds);
    Choice::new(of, taken, vec![(RUNNER_UP, next)])
}

/// The rows with what is aggregated of their partitions.
fn joined(window: &Window, groups: Aggregate, name_of: &str) -> Result<LogicalPlan> {
    let column = |at: usize| Expr::Column(Column::new(Some(name_of), name(at)));
    let keys = groups.group_expr.clone();
    let input = Arc::clone(&window.input);
    let mut has_nulls = false;
    for key in &keys {
        has_nulls |= key.nullable(input.schema())?;
    }
    let nulls = match has_nulls {
        true => NullEquality::NullEqualsNull,
        false => NullEquality::NullEqualsNothing,
    };
    let groups = numbered(LogicalPlan::Aggregate(groups))?;
    let groups = Arc::new(LogicalPlanBuilder::from(groups).alias(name_of)?.build()?);
    let own = input.schema().columns();
    let count = keys.len();
    let on = keys.into_iter().enumerate().map(|(at, key)| (key, column(at))).collect();
    let (inner, by) = (JoinType::Inner, JoinConstraint::On);
    let join = Join::try_new(input, groups, on, None, inner, by, nulls, false)?;
    let made = window.schema.iter().skip(own.len()).enumerate();
    let made =
        made.map(|(at, (of, field))| column(count + at).alias_qualified(of.cloned(), field.name()));
    let columns = own.into_iter().map(Expr::Column).chain(made).collect();
    let columns = Projection::try_new_with_schema(
        columns,
        Arc::new(LogicalPlan::Join(join)),
        Arc::clone(&window.schema),
    )?;
    Ok(LogicalPlan::Projection(columns))
}
