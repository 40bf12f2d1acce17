//! What is aggregated of one side of a join alone is aggregated before the join, where that leaves few rows to join.
//!
//! ```text
//! Aggregate: groupBy=[item.name], sum(sales.price)      Aggregate: groupBy=[item.name], sum(parts.c1)
//!   Inner Join: sales.item = item.id             ──►      Inner Join: parts.c0 = item.id
//!     sales                                                 Aggregate: groupBy=[sales.item], sum(sales.price)
//!     item                                                    sales
//!                                                           item
//! ```
//!
//! Rows that are equal in what the join and the groups ask of them meet the same rows of the other side, so parts of their answers
//! (`parts`) do instead of them: Yan and Larson, *Eager Aggregation and Lazy Aggregation*, VLDB 1995. Where the side may be
//! missing, by an outer join, its keys and what is aggregated must be columns, which are NULL then.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::{
    Aggregate, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::choices::{Choice, Choices, RUNNER_UP, Way};
use super::names;
use crate::config::ForRules;
use crate::planner::cost::rows::texts;
use crate::planner::evidence::Evidence;
use crate::planner::parts::{Parts, Rounding, keys, name, numbered};
use crate::planner::remembered::has_query;
use crate::planner::statistics::Estimates;

/// What the aliases of parts begin with.
const PARTS: &str = "__parts";

/// What must be saved at least, in nanoseconds, and of what the join and the aggregation take.
const SAVED_MIN: f64 = 1e6;
const SAVED_SHARE: f64 = 0.2;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(in crate::planner) struct EagerGroups {
    evidence: Evidence,
}

impl EagerGroups {
    pub(in crate::planner) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl OptimizerRule for EagerGroups {
    fn name(&self) -> &str {
        "eager_groups"
    }

    /// What is aggregated before a join may be aggregated before the joins below that one.
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.groups_early);
        let aggregate = match &plan {
            LogicalPlan::Aggregate(aggregate) if is_on => aggregate,
            _ => return Ok(Transformed::no(plan)),
        };
        let Some(asked) = Asked::of(aggregate) else { return Ok(Transformed::no(plan)) };
        let estimates = self.evidence.estimates(&options);
        let mut all: Vec<(Costs, Early)> = Vec::new();
        for is_left in [true, false] {
            let Some(early) = asked.early(is_left)? else { continue };
            all.extend(asked.costs(&early, aggregate, &estimates)?.map(|costs| (costs, early)));
        }
        all.sort_by(|one, other| one.0.early.total_cmp(&other.0.early));
        let [mut taken, runner_up] = best_two(&all);
        if let Some(choices) = Choices::of(&options)
            && let Some(choice) = asked.choice(&all)
            && choices.add(choice)
        {
            taken = runner_up;
        }
        match taken.map(|at| all.swap_remove(at)) {
            Some((_, early)) => {
                let name = config.alias_generator().next(PARTS);
                asked.over(early, aggregate, &name).map(Transformed::yes)
            }
            None => Ok(Transformed::no(plan)),
        }
    }
}

/// An aggregation of a join: its keys and aggregates over what the join yields.
struct Asked<'p> {
    keys: Vec<Expr>,
    aggregates: Vec<Expr>,
    join: &'p Join,
}

/// What is aggregated of one side.
struct Early {
    is_left: bool,
    /// The keys of the join, and those of the groups that are of this side.
    keys: Vec<Expr>,
    groups: Aggregate,
    parts: Parts,
}

/// Nanoseconds that the join and the aggregations are estimated to take, with one before the join and without.
struct Costs {
    early: f64,
    late: f64,
}

impl Costs {
    /// Whether an aggregation before the join is worth it.
    fn are_worth_it(&self) -> bool {
        let saved = self.late - self.early;
        saved > SAVED_MIN && saved > self.late * SAVED_SHARE
    }
}

impl<'p> Asked<'p> {
    /// Nothing where it is of no join, or has grouping sets.
    fn of(aggregate: &'p Aggregate) -> Option<Self> {
        let all = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
        let is_plain = |expr: &Expr| !matches!(expr, Expr::GroupingSet(_)) && !has_query(expr);
        if !all.clone().all(is_plain) || keys(aggregate) != aggregate.group_expr.len() {
            return None;
        }
        let mut exprs: Vec<Expr> = all.map(|expr| expr.clone().unalias()).collect();
        let mut input = aggregate.input.as_ref();
        while let LogicalPlan::Projection(projection) = input {
            exprs = exprs
                .into_iter()
                .map(|expr| over_input(expr, projection))
                .collect::<Result<_>>()
                .ok()?;
            input = &projection.input;
        }
        let LogicalPlan::Join(join) = input else { return None };
        if exprs.iter().any(|expr| expr.is_volatile() || has_query(expr)) {
            return None;
        }
        let aggregates = exprs.split_off(aggregate.group_expr.len());
        Some(Self { keys: exprs, aggregates, join })
    }

    /// What can be aggregated of a side; nothing where something asks for its rows one by one.
    fn early(&self, is_left: bool) -> Result<Option<Early>> {
        let may_be_missing = match self.join.join_type {
            JoinType::Inner => false,
            JoinType::Left => !is_left,
            JoinType::Right => is_left,
            _ => return Ok(None),
        };
        let (own, other) = self.sides(is_left);
        let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
        if self.join.on.is_empty() || !self.join.filter.iter().all(|filter| is_of(filter, other)) {
            return Ok(None);
        }
        let mut early: Vec<Expr> = Vec::new();
        let joined = self.join.on.iter().map(|(left, right)| if is_left { left } else { right });
        let grouped = self.keys.iter().filter(|key| !is_of(key, other));
        for key in joined.chain(grouped.clone()) {
            if !early.contains(key) {
                early.push(key.clone());
            }
        }
        let is_own = |key: &Expr| is_of(key, own) && (!may_be_missing || is_column(key));
        let are_own = grouped.clone().all(is_own)
            && self.aggregates.iter().all(|aggregate| {
                let Expr::AggregateFunction(call) = aggregate else { return false };
                let of_columns = call.params.filter.is_none()
                    && !call.params.args.is_empty()
                    && call.params.args.iter().all(is_column);
                is_of(aggregate, own) && (!may_be_missing || of_columns)
            });
        if !are_own {
            return Ok(None);
        }
        // A column that is converted has the name of the column still.
        let named = early.iter().enumerate().map(|(at, key)| match is_column(key) {
            true => key.clone(),
            false => key.clone().alias(format!("__key_{at}")),
        });
        let named: Vec<Expr> = named.collect();
        let asked =
            Aggregate::try_new(Arc::new(own.clone()), named.clone(), self.aggregates.clone())?;
        let Some(parts) = Parts::of(&asked, Rounding::Any)? else { return Ok(None) };
        let parts_of = parts.expressions().collect();
        let groups = Aggregate::try_new(Arc::clone(&asked.input), named, parts_of)?;
        Ok(Some(Early { is_left, keys: early, groups, parts }))
    }

    /// The side, and the other one.
    fn sides(&self, is_left: bool) -> (&'p LogicalPlan, &'p LogicalPlan) {
        let Join { left, right, .. } = self.join;
        if is_left { (left, right) } else { (right, left) }
    }

    /// What it is estimated to cost; nothing where that is only guessed, or the join lets few rows through.
    fn costs(
        &self,
        early: &Early,
        aggregate: &Aggregate,
        estimates: &Estimates<'_>,
    ) -> Result<Option<Costs>> {
        let (own, other) = self.sides(early.is_left);
        if !estimates.is_known(own) || !estimates.is_known(other) {
            return Ok(None);
        }
        let (own_rows, other_rows) = (estimates.rows(own), estimates.rows(other));
        let early_rows = estimates.rows(&LogicalPlan::Aggregate(early.groups.clone()));
        let joined = estimates.rows(&LogicalPlan::Join(self.join.clone()));
        // A join that lets few rows through hands its keys down, so that the others are hardly read.
        if joined < own_rows / 2.0 {
            return Ok(None);
        }
        let joined_early = joined * (early_rows / own_rows).min(1.0);
        let groups = estimates.rows(&LogicalPlan::Aggregate(aggregate.clone()));
        let costs = &estimates.costs;
        let key_texts = texts(&aggregate.group_expr, aggregate.input.schema());
        let rest = |own: f64, joined: f64| {
            let (build, probe) = (own.min(other_rows), own.max(other_rows));
            let joining = costs.keyed(build, probe, joined);
            joining + costs.grouped(joined, groups.min(joined), key_texts)
        };
        let late = rest(own_rows, joined);
        let before = costs.grouped(own_rows, early_rows, texts(&early.keys, own.schema()));
        Ok(Some(Costs { early: before + rest(early_rows, joined_early), late }))
    }

    /// What EXPLAIN shows of the ways to aggregate early, the cheapest first; nothing where one side was aggregated before.
    fn choice(&self, all: &[(Costs, Early)]) -> Option<Choice> {
        let (costs, _) = all.first()?;
        if are_parts(&self.join.left) || are_parts(&self.join.right) {
            return None;
        }
        let way = |at: Option<usize>| match at.map(|at| &all[at]) {
            None => Way::new("after the join", costs.late),
            Some((costs, early)) => {
                let own = names::names(self.sides(early.is_left).0);
                Way::new(format!("{own} before the join"), costs.early).for_good()
            }
        };
        let [taken, next] = best_two(all).map(way);
        let next = next.beside(taken.nanoseconds);
        let joined = names::names(&LogicalPlan::Join(self.join.clone()));
        let of = format!("aggregation over {joined}");
        Some(Choice::new(of, taken, vec![(RUNNER_UP, next)]))
    }

    /// The plan with the aggregation before the join.
    fn over(self, early: Early, aggregate: &Aggregate, name_of: &str) -> Result<LogicalPlan> {
        let column = |at: usize| Expr::Column(Column::new(Some(name_of), name(at)));
        let of_parts = |expr: &Expr| {
            early.keys.iter().position(|key| key == expr).map_or_else(|| expr.clone(), column)
        };
        let groups = numbered(LogicalPlan::Aggregate(early.groups))?;
        let count = early.keys.len();
        let fields = groups.schema().fields().clone();
        let groups = LogicalPlanBuilder::from(groups).alias(name_of)?.build()?;
        let Join { left, right, on, filter, join_type, join_constraint, .. } = self.join.clone();
        let (nulls, aware) = (self.join.null_equality, self.join.null_aware);
        let on = on.into_iter().map(|(left, right)| match early.is_left {
            true => (of_parts(&left), right),
            false => (left, of_parts(&right)),
        });
        let (left, right) = match early.is_left {
            true => (Arc::new(groups), right),
            false => (left, Arc::new(groups)),
        };
        let on = on.collect();
        let join =
            Join::try_new(left, right, on, filter, join_type, join_constraint, nulls, aware)?;
        let keys: Vec<Expr> = self.keys.iter().map(of_parts).collect();
        let own = aggregate.schema.fields()[..keys.len()].iter();
        let types = own.chain(&fields[count..]).map(|field| field.data_type());
        let part = |at: usize| column(count + at);
        let merged = early.parts.merged(LogicalPlan::Join(join), keys, part, types)?;
        early.parts.answered(&aggregate.schema, merged)
    }
}

/// Which of the ways to aggregate early, the cheapest first, is taken and which comes next; none is to aggregate after the join.
fn best_two(all: &[(Costs, Early)]) -> [Option<usize>; 2] {
    let pays = |at: usize| all.get(at).is_some_and(|(costs, _)| costs.early < costs.late);
    match all.first() {
        Some((costs, _)) if costs.are_worth_it() => [Some(0), pays(1).then_some(1)],
        Some(_) => [None, Some(0)],
        None => [None, None],
    }
}

/// An expression over a projection as one over its input.
fn over_input(expr: Expr, projection: &Projection) -> Result<Expr> {
    let over = expr.transform_up(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let at = projection.schema.index_of_column(column)?;
        Ok(Transformed::yes(projection.expr[at].clone().unalias()))
    });
    over.map(|over| over.data)
}

/// Whether an expression names columns of a plan alone.
fn is_of(expr: &Expr, plan: &LogicalPlan) -> bool {
    expr.column_refs().iter().all(|column| plan.schema().has_column(column))
}

/// Whether a plan is what was aggregated before a join.
fn are_parts(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(PARTS),
        LogicalPlan::Projection(projection) => are_parts(&projection.input),
        _ => false,
    }
}
