//! Aggregates of no more groups than are asked for.
//!
//! ```text
//! Inner Join: part.k = sums.k               Inner Join: part.k = sums.k
//!   Filter: part.brand = …                    Filter: part.brand = …
//!     part                                      part
//!   Aggregate: groupBy=[k]          ──►       Aggregate: groupBy=[k]
//!     sales                                     LeftSemi Join: sales.k = keys.k
//!                                                 sales
//!                                                 Projection: part.k, of the same filter
//! ```
//!
//! A sub-query that depends on an outer row becomes such a join once it is unnested. A relation that is read twice must be a
//! scan, which is cheap, and hold few of the keys: Seshadri et al., *Complex Query Decorrelation*, ICDE 1996 (magic sets).

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Filter, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder,
    Projection, SubqueryAlias, col,
};
use datafusion::optimizer::OptimizerConfig;

use super::choices::{Choice, Choices, RUNNER_UP, Way};
use super::graph::{Attached, Attachment, Graph, Member, can_move};
use super::names;
use crate::planner::cost::rows::texts;
use crate::planner::statistics::{ASKED_KEYS, Estimates, share_of_matches};

/// Keys of a relation that decide which groups of an aggregate are asked for.
struct Restriction {
    /// The key of the aggregate, over its input.
    key: Expr,
    keys: Member,
    /// Nanoseconds that all groups are estimated to take, and those that are asked for.
    all: f64,
    asked: f64,
}

impl Restriction {
    fn saved(&self) -> f64 {
        self.all - self.asked
    }

    fn saves(&self) -> bool {
        self.saved() > 0.0
    }

    /// What EXPLAIN shows of it.
    fn choice(&self, graph: &Graph, at: usize) -> Choice {
        let [groups, keys] =
            [at, self.keys.relation].map(|relation| names::name(&graph.relations[relation].plan));
        let asked = Way::new(format!("those that {keys} asks for"), self.asked).for_good();
        let all = Way::new("all", self.all);
        let (taken, next) = if self.saves() { (asked, all) } else { (all, asked) };
        Choice::new(format!("groups of {groups}"), taken, vec![(RUNNER_UP, next)])
    }
}

/// Restricts the aggregates among the relations of a graph, where that is estimated to save time.
pub(super) fn restrict(
    graph: &mut Graph,
    estimates: &Estimates<'_>,
    config: &dyn OptimizerConfig,
    choices: Option<&Choices>,
) -> Result<()> {
    for at in 0..graph.relations.len() {
        let Some(best) = best_restriction(graph, at, estimates)? else { continue };
        let is_turned = choices.is_some_and(|choices| choices.add(best.choice(graph, at)));
        if best.saves() == is_turned {
            continue;
        }
        let keys = &graph.relations[best.keys.relation].plan;
        let name = config.alias_generator().next(ASKED_KEYS);
        let column = col(format!("{name}.key"));
        let keys = LogicalPlanBuilder::from(keys.clone())
            .project([best.keys.expr.alias("key")])?
            .alias(name)?
            .build()?;
        let plan = &graph.relations[at].plan;
        graph.relations[at].plan = with_input(plan, &|input| {
            let input = Arc::new(input.clone());
            let on = vec![(best.key.clone(), column.clone())];
            let nulls = NullEquality::NullEqualsNothing;
            let (keys, constraint) = (Arc::new(keys.clone()), JoinConstraint::On);
            Join::try_new(input, keys, on, None, JoinType::LeftSemi, constraint, nulls, false)
                .map(LogicalPlan::Join)
        })?;
    }
    Ok(())
}

/// The restriction of a relation that saves most, if anything; nothing where it is no aggregate or none asks for its keys.
fn best_restriction(
    graph: &Graph,
    at: usize,
    estimates: &Estimates<'_>,
) -> Result<Option<Restriction>> {
    let plan = &graph.relations[at].plan;
    let Some(aggregate) = aggregate_of(plan) else { return Ok(None) };
    if is_restricted(&aggregate.input)? {
        return Ok(None);
    }
    let rows = estimates.rows(&aggregate.input);
    let columns = aggregate.input.schema().fields().len() as f64;
    let mut best: Option<Restriction> = None;
    for (own, others) in links(graph, at) {
        let Some(key) = key_of(plan, &own) else { continue };
        let of = key.get_type(aggregate.input.schema())?;
        let domain = estimates.distinct(&aggregate.input, &key);
        let texts = texts(&aggregate.group_expr, aggregate.input.schema());
        for keys in others {
            let source = &graph.relations[keys.relation].plan;
            if !is_scan(source, estimates) || keys.expr.get_type(source.schema())? != of {
                continue;
            }
            let count = estimates.distinct(source, &keys.expr).min(estimates.rows(source));
            let kept = share_of_matches(domain, count);
            let costs = &estimates.costs;
            let spent = costs.read(estimates.rows_unfiltered(source))
                + costs.keyed(count, rows, rows * kept);
            // What is not asked for is not read by its columns either.
            let grouped = |share: f64| {
                let rows = rows * share;
                costs.kept(rows * columns) + costs.grouped(rows, domain * share, texts)
            };
            let [all, asked] = [1.0, kept].map(grouped);
            let one = Restriction { key: key.clone(), keys, all, asked: asked + spent };
            if best.as_ref().is_none_or(|best| one.saved() > best.saved()) {
                best = Some(one);
            }
        }
    }
    Ok(best)
}

/// Expressions over a relation, and those over others that are equal to each in all rows that matter.
fn links(graph: &Graph, at: usize) -> Vec<(Expr, Vec<Member>)> {
    let mut links = Vec::new();
    let mut link = |own: &Expr, equal: Vec<Member>| {
        let mut others = equal.clone();
        for (relation, source) in graph.relations.iter().enumerate() {
            let keeps = |join: &&Attached| join.kind == Attachment::Semi;
            let Some(semi) = source.attached.as_ref().filter(keeps) else { continue };
            for (kept, other) in &semi.on {
                if equal.iter().any(|member| member.expr == *kept) {
                    others.push(Member { relation, expr: other.clone() });
                }
            }
        }
        others.retain(|member| member.relation != at);
        links.push((own.clone(), others));
    };
    match &graph.relations[at].attached {
        None => {
            for class in &graph.classes {
                if let Some(own) = class.iter().find(|member| member.relation == at) {
                    link(&own.expr, class.clone());
                }
            }
        }
        Some(join) => {
            for (kept, own) in &join.on {
                let class = graph.classes.iter();
                let mut class = class.filter(|class| class.iter().any(|one| one.expr == *kept));
                match (class.next(), join.required.least()) {
                    (Some(class), _) => link(own, class.clone()),
                    (None, Some(relation)) if join.required.count() == 1 => {
                        link(own, vec![Member { relation, expr: kept.clone() }]);
                    }
                    _ => (),
                }
            }
        }
    }
    links
}

/// The aggregate that a plan only names, filters and computes on.
fn aggregate_of(plan: &LogicalPlan) -> Option<&Aggregate> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Some(aggregate),
        LogicalPlan::SubqueryAlias(alias) => aggregate_of(&alias.input),
        LogicalPlan::Projection(projection) => aggregate_of(&projection.input),
        LogicalPlan::Filter(filter) => aggregate_of(&filter.input),
        _ => None,
    }
}

/// What a column is as a key of the aggregate, over its input; nothing where it is none.
fn key_of(plan: &LogicalPlan, expr: &Expr) -> Option<Expr> {
    let Expr::Column(column) = expr else { return None };
    let at = plan.schema().index_of_column(column).ok()?;
    key_at(plan, at)
}

fn key_at(plan: &LogicalPlan, at: usize) -> Option<Expr> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.get(at)? {
            Expr::GroupingSet(_) => None,
            key if key.is_volatile() => None,
            key => Some(key.clone().unalias()),
        },
        LogicalPlan::SubqueryAlias(alias) => key_at(&alias.input, at),
        LogicalPlan::Projection(projection) => {
            key_of(&projection.input, &projection.expr.get(at)?.clone().unalias())
        }
        LogicalPlan::Filter(filter) => key_at(&filter.input, at),
        _ => None,
    }
}

/// The plan with another input of its aggregate.
fn with_input(
    plan: &LogicalPlan,
    change: &dyn Fn(&LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let below = |input: &LogicalPlan| with_input(input, change).map(Arc::new);
    Ok(match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let (keys, calls) = (aggregate.group_expr.clone(), aggregate.aggr_expr.clone());
            let input = Arc::new(change(&aggregate.input)?);
            LogicalPlan::Aggregate(Aggregate::try_new(input, keys, calls)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let input = below(&alias.input)?;
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input, alias.alias.clone())?)
        }
        LogicalPlan::Projection(projection) => {
            let (exprs, input) = (projection.expr.clone(), below(&projection.input)?);
            LogicalPlan::Projection(Projection::try_new(exprs, input)?)
        }
        LogicalPlan::Filter(filter) => {
            let (predicate, input) = (filter.predicate.clone(), below(&filter.input)?);
            LogicalPlan::Filter(Filter::try_new(predicate, input)?)
        }
        other => other.clone(),
    })
}

/// Whether rows are restricted to some keys already.
fn is_restricted(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|plan| {
        Ok(match plan {
            LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(ASKED_KEYS),
            _ => false,
        })
    })
}

/// Whether a plan is a scan with filters that is sure to yield the same rows once more.
fn is_scan(plan: &LogicalPlan, estimates: &Estimates<'_>) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none() && estimates.can_repeat(scan),
        LogicalPlan::Filter(filter) => {
            can_move(&filter.predicate) && is_scan(&filter.input, estimates)
        }
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(can_move) && is_scan(&projection.input, estimates)
        }
        LogicalPlan::SubqueryAlias(alias) => is_scan(&alias.input, estimates),
        _ => false,
    }
}
