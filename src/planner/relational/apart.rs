//! Several distinct counts of all rows are computed apart: a GROUP BY each, whose groups are dealt out to threads.
//!
//! ```text
//! Aggregate: count(DISTINCT a), count(DISTINCT b), sum(c)        CrossJoin
//!   t                                                     ──►      Aggregate: sum(c)
//!                                                                    t
//!                                                                  Aggregate: count(DISTINCT a)
//!                                                                    t
//!                                                                  …
//! ```
//!
//! An aggregation that has only one argument with DISTINCT becomes a GROUP BY of it (DataFusion's rule). What is aggregated is
//! read once for each part; a join or an aggregation below them runs once where that is cheaper (`shared`). With keys the
//! groups themselves are dealt out to threads, and one reading does.

use std::sync::Arc;

use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::OptimizerConfig;

use crate::config::ForRules;
use crate::planner::is_repeatable;

/// Aggregates whose answer over different values does not depend on the order of these.
const OF_DISTINCT: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// Those that DataFusion's rule takes without DISTINCT beside the argument that has it.
const BESIDE_DISTINCT: [&str; 3] = ["sum", "min", "max"];

/// The rewrite; see the header of this file.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn rewrite(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let options = config.options();
    let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.spills_groups);
    if !is_on || !aggregate.group_expr.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let parts = Parts::of(aggregate);
    if !parts.are_apart() || !can_be_read_again(&plan)? {
        return Ok(Transformed::no(plan));
    }
    Ok(match parts.joined(aggregate)? {
        Some(joined) => Transformed::yes(joined),
        None => Transformed::no(plan),
    })
}

/// The different values of an expression, where a condition holds.
#[derive(PartialEq)]
struct Distinct {
    value: Expr,
    condition: Option<Expr>,
}

/// Aggregates by what they are computed of, all rows or different values, each with its place in the aggregation.
struct Parts(Vec<(Option<Distinct>, Vec<(usize, AggregateFunction)>)>);

impl Parts {
    /// Those of an aggregation; none where one of its expressions is not an aggregate alone.
    fn of(aggregate: &Aggregate) -> Self {
        let mut parts: Vec<(Option<Distinct>, Vec<(usize, AggregateFunction)>)> = Vec::new();
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let Expr::AggregateFunction(function) = expr else { return Self(Vec::new()) };
            let (of, function) = (Distinct::of(function), (at, function.clone()));
            match parts.iter_mut().find(|(other, _)| *other == of) {
                Some((_, functions)) => functions.push(function),
                None => parts.push((of, vec![function])),
            }
        }
        Self(parts)
    }

    /// Whether they cannot stay in one aggregation.
    fn are_apart(&self) -> bool {
        let plain = |(_, function): &(usize, AggregateFunction)| {
            let params = &function.params;
            let is_beside = BESIDE_DISTINCT.contains(&function.func.name());
            is_beside && !params.distinct && params.filter.is_none()
        };
        let (mut distinct, mut others_fit) = (0, true);
        for (of, functions) in &self.0 {
            match of {
                None => others_fit &= functions.iter().all(plain),
                Some(Distinct { condition: None, .. }) => distinct += 1,
                Some(Distinct { condition: Some(_), .. }) => return true,
            }
        }
        distinct > 1 || distinct == 1 && !others_fit
    }

    /// The answers of all parts, under the names that the aggregation has for them; nothing where there is no part.
    fn joined(self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
        let answer = |at: usize| format!("__apart_{at}");
        let mut joined: Option<LogicalPlanBuilder> = None;
        for (of, functions) in self.0 {
            let (places, functions): (Vec<usize>, Vec<AggregateFunction>) =
                functions.into_iter().unzip();
            let part = aggregated(of, &aggregate.input, functions)?;
            let columns = part.schema().columns().into_iter().map(Expr::Column);
            let named = columns.zip(places).map(|(column, at)| column.alias(answer(at)));
            let named: Vec<Expr> = named.collect();
            let part = LogicalPlanBuilder::from(part).project(named)?;
            joined = Some(match joined {
                Some(before) => before.cross_join(part.build()?)?,
                None => part,
            });
        }
        let columns = aggregate.schema.iter().enumerate().map(|(at, (qualifier, field))| {
            let answer = Expr::Column(Column::from_name(answer(at)));
            answer.alias_qualified(qualifier.cloned(), field.name())
        });
        joined.map(|joined| joined.project(columns)?.build()).transpose()
    }
}

impl Distinct {
    /// What an aggregate is computed of, if not of all rows.
    fn of(function: &AggregateFunction) -> Option<Self> {
        let params = &function.params;
        let is_plain = params.order_by.is_empty() && params.null_treatment.is_none();
        let is_one = params.distinct && is_plain && OF_DISTINCT.contains(&function.func.name());
        let [value] = params.args.as_slice() else { return None };
        let condition = params.filter.as_deref().cloned();
        is_one.then(|| Self { value: value.clone(), condition })
    }
}

/// The aggregates of what they are computed of.
fn aggregated(
    of: Option<Distinct>,
    input: &Arc<LogicalPlan>,
    mut functions: Vec<AggregateFunction>,
) -> Result<LogicalPlan> {
    let mut rows = LogicalPlanBuilder::from(Arc::clone(input));
    if let Some(condition) = of.and_then(|of| of.condition) {
        functions.iter_mut().for_each(|function| function.params.filter = None);
        rows = rows.filter(condition)?;
    }
    let functions = functions.into_iter().map(Expr::AggregateFunction);
    rows.aggregate(Vec::<Expr>::new(), functions)?.build()
}

/// Whether a plan comes to the same rows when it is read again, by itself.
fn can_be_read_again(plan: &LogicalPlan) -> Result<bool> {
    let mut can = is_repeatable(plan)?;
    plan.apply_with_subqueries(|plan| {
        use LogicalPlan as Of;
        can &= match plan {
            Of::TableScan(scan) => {
                scan.fetch.is_none() && !source_as_provider(&scan.source)?.is::<CteWorkTable>()
            }
            // Without an order, which rows are the first is another matter each time.
            Of::Sort(sort) => sort.fetch.is_none(),
            Of::Filter(_)
            | Of::Projection(_)
            | Of::SubqueryAlias(_)
            | Of::Join(_)
            | Of::Aggregate(_)
            | Of::Window(_) => true,
            _ => false,
        };
        plan.apply_expressions(|expr| {
            can &= !expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(can)
}
