//! Plans that a statement contains more than once, and that run once.
//!
//! A WITH query or a view that is read twice, the same sub-query in two places:
//!
//! ```text
//! Join                                     Join
//!   Aggregate: groupBy=[k], sum(v)           Shared ──────┐
//!     sales                          ──►     Aggregate: max(sum)
//!   Aggregate: max(sum)                        Shared ──┐ │
//!     Aggregate: groupBy=[k], sum(v)                    Projection
//!       sales                                             Aggregate: groupBy=[k], sum(v)
//!                                                           sales
//! ```
//!
//! Plans that differ in the columns that are read of them are one with the columns of all (`merge`). One that is cheaper
//! to run again than to keep the rows of is left as it is: a filter, say, or a join of more rows than it reads. Late among
//! the rules, for two uses of a plan may have become unlike in between, by conditions that hold for one of them alone.

mod merge;
mod node;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use self::merge::{Merged, merged, selection};
use self::node::SharedNode;
use super::cost::rows::texts;
use super::evidence::Evidence;
use super::joins::choices::{Choice, Choices, RUNNER_UP, Way};
use super::joins::names::names;
use super::statistics::Estimates;
use crate::config::ForRules;

pub(super) use self::node::behind;
pub(crate) use self::node::{RunOnce, SharedPlanner};

/// What sharing must save at least, in nanoseconds.
const SAVED_MIN: f64 = 1e6;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct SharedPlans {
    evidence: Evidence,
}

impl SharedPlans {
    pub(super) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl OptimizerRule for SharedPlans {
    fn name(&self) -> &str {
        "shared_plans"
    }

    /// The rule itself goes down the plan: parts of it are looked at beside each other.
    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.shares_plans);
        if !is_on || !has_work_twice(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let mut parts = Parts::default();
        parts.add(&plan)?;
        let estimates = self.evidence.estimates(&options);
        let mut uses = parts.shared(&estimates, Choices::of(&options))?;
        if uses.is_empty() {
            return Ok(Transformed::no(plan));
        }
        with_uses(plan, &mut 0, &mut uses)
    }
}

/// Whether anything is done at two places that takes longer than to read: most statements are done with here.
fn has_work_twice(plan: &LogicalPlan) -> Result<bool> {
    let mut places = 0;
    plan.apply_with_subqueries(|plan| {
        places += usize::from(is_work(plan));
        Ok(if places < 2 { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(places >= 2)
}

/// A plan and all that is below it, which are the parts of these numbers.
struct Part {
    plan: LogicalPlan,
    parts: Range<usize>,
    /// The same for plans that may be alike; none where a part of it is never shared.
    shape: Option<u64>,
    /// Whether anything is done in it that takes longer than to read.
    works: bool,
}

/// All parts of a plan: each before those below it, sub-queries before inputs, as [`with_uses`] goes too.
#[derive(Default)]
struct Parts(Vec<Part>);

impl Parts {
    /// Takes in a plan and all below it.
    fn add(&mut self, plan: &LogicalPlan) -> Result<()> {
        let at = self.0.len();
        self.0.push(Part { plan: plan.clone(), parts: at..at + 1, shape: None, works: false });
        if is_apart(plan) {
            return Ok(());
        }
        plan.apply_subqueries(|query| {
            if is_uncorrelated(query) {
                self.add(query)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut inputs = Vec::new();
        for input in plan.inputs() {
            inputs.push(self.0.len());
            self.add(input)?;
        }
        let shapes = inputs.iter().map(|&input| self.0[input].shape);
        let shape = shape(plan, shapes.collect())?;
        let works = inputs.iter().any(|&input| self.0[input].works);
        let end = self.0.len();
        let part = &mut self.0[at];
        part.shape = shape;
        part.works = works || is_work(plan);
        part.parts.end = end;
        Ok(())
    }

    /// What stands in the place of the parts that are shared, by their numbers.
    fn shared(
        &self,
        estimates: &Estimates<'_>,
        choices: Option<&Choices>,
    ) -> Result<HashMap<usize, Use>> {
        let mut alike: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, part) in self.0.iter().enumerate().filter(|(_, part)| part.works) {
            if let Some(shape) = part.shape {
                alike.entry(shape).or_default().push(at);
            }
        }
        let mut uses = HashMap::new();
        let mut is_taken = vec![false; self.0.len()];
        for (first, part) in self.0.iter().enumerate() {
            let Some(others) = part.shape.and_then(|shape| alike.get(&shape)) else { continue };
            // What chooses columns of a plan is like the plan, which is below it.
            let mut end = first;
            let mut is_free = |at: usize| {
                let is_free = at >= end && !is_taken[at];
                if is_free {
                    end = self.0[at].parts.end;
                }
                is_free
            };
            let free: Vec<usize> = others.iter().copied().filter(|at| is_free(*at)).collect();
            if free.first() != Some(&first) {
                continue;
            }
            for (at, plan) in self.readers(&free, estimates, choices)? {
                let parts = self.0[at].parts.clone();
                is_taken[parts.clone()].fill(true);
                uses.insert(at, Use { plan, parts: parts.len() });
            }
        }
        Ok(uses)
    }

    /// What stands in the place of the first of some parts and those that are one plan with it; nothing where to share that
    /// does not pay.
    fn readers(
        &self,
        parts: &[usize],
        estimates: &Estimates<'_>,
        choices: Option<&Choices>,
    ) -> Result<Vec<(usize, LogicalPlan)>> {
        let [first, others @ ..] = parts else { return Ok(Vec::new()) };
        let mut whole = self.0[*first].plan.clone();
        let mut columns = vec![(*first, whole.schema().columns())];
        for &other in others {
            if let Some(Merged { plan, columns: read }) = merged(&whole, &self.0[other].plan) {
                whole = plan;
                columns.push((other, read));
            }
        }
        if columns.len() < 2 {
            return Ok(Vec::new());
        }
        let read = |column: &Column| columns.iter().any(|(_, read)| read.contains(column));
        let all = whole.schema().columns().into_iter().filter(read).collect();
        let whole = selected(whole, all)?;
        let times = columns.len() as f64;
        let keep = kept(&whole, estimates);
        let once = work(&whole, estimates);
        let costs = [once + times * keep, times * once];
        let is_shared = costs[1] - costs[0] >= SAVED_MIN;
        let made = || choice(&whole, columns.len(), costs, is_shared);
        let is_turned = choices.is_some_and(|choices| choices.add(made()));
        if is_shared == is_turned {
            return Ok(Vec::new());
        }
        let shared = SharedNode::new(whole).plan();
        let readers = columns.into_iter().map(|(at, columns)| {
            Ok((at, renamed(selected(shared.clone(), columns)?, &self.0[at].plan)?))
        });
        readers.collect()
    }
}

/// What stands in the place of so many parts.
struct Use {
    plan: LogicalPlan,
    parts: usize,
}

/// A plan with other parts in places of its own, counted as [`Parts`] does.
fn with_uses(
    plan: LogicalPlan,
    next: &mut usize,
    uses: &mut HashMap<usize, Use>,
) -> Result<Transformed<LogicalPlan>> {
    if let Some(read) = uses.remove(next) {
        *next += read.parts;
        return Ok(Transformed::yes(read.plan));
    }
    *next += 1;
    if is_apart(&plan) {
        return Ok(Transformed::no(plan));
    }
    plan.map_uncorrelated_subqueries(|query| with_uses(query, next, uses))?
        .transform_sibling(|plan| plan.map_children(|input| with_uses(input, next, uses)))
}

/// Whether nothing in a plan is shared with what is outside: what is shared already, and the terms of a recursion, whose
/// rows change from round to round.
fn is_apart(plan: &LogicalPlan) -> bool {
    behind(plan).is_some() || matches!(plan, LogicalPlan::RecursiveQuery(_))
}

fn is_uncorrelated(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Subquery(query) if query.outer_ref_columns.is_empty())
}

fn is_work(plan: &LogicalPlan) -> bool {
    use LogicalPlan as Of;
    matches!(plan, Of::Aggregate(_) | Of::Join(_) | Of::Window(_))
}

/// Something that is the same for all plans that [`merged`] makes one of; nothing for one that it does not know, or that might
/// answer otherwise the next time.
fn shape(plan: &LogicalPlan, inputs: Vec<Option<u64>>) -> Result<Option<u64>> {
    let mut can_repeat = true;
    plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            let is_outside = matches!(
                expr,
                Expr::OuterReferenceColumn(..)
                    | Expr::ScalarSubquery(_)
                    | Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
            );
            can_repeat &= !is_outside && !expr.is_volatile_node();
            Ok(if can_repeat { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })
    })?;
    let Some(inputs) = inputs.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    if !can_repeat {
        return Ok(None);
    }
    // Columns that are merely chosen are no difference.
    if let (Some(_), [input]) = (selection(plan), inputs.as_slice()) {
        return Ok(Some(*input));
    }
    let mut hasher = DefaultHasher::new();
    (discriminant(plan), &inputs).hash(&mut hasher);
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            (Arc::as_ptr(&provider).addr(), scan.filters.len()).hash(&mut hasher);
        }
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.len().hash(&mut hasher),
        LogicalPlan::Join(join) => (join.join_type, join.on.len()).hash(&mut hasher),
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => {}
        _ => return Ok(None),
    }
    Ok(Some(hasher.finish()))
}

/// What EXPLAIN shows of a plan that is read so many times: what it costs to run once, and to run for each reader.
fn choice(plan: &LogicalPlan, times: usize, [once, each]: [f64; 2], is_shared: bool) -> Choice {
    let once = Way::new("run once", once).for_good();
    let each = Way::new("run for each", each);
    let (taken, next) = match is_shared {
        true => (once, each),
        false => {
            let next = once.beside(each.nanoseconds);
            (each, next)
        }
    };
    let of = format!("plan over {} with {times} readers", names(plan));
    Choice::new(of, taken, vec![(RUNNER_UP, next)])
}

/// What a plan takes to run, in nanoseconds of one thread.
pub(super) fn work(plan: &LogicalPlan, estimates: &Estimates<'_>) -> f64 {
    let below = plan.inputs().into_iter().map(|input| work(input, estimates)).sum::<f64>();
    own_work(plan, estimates) + below
}

/// The same without what is below it.
pub(super) fn own_work(plan: &LogicalPlan, estimates: &Estimates<'_>) -> f64 {
    let (costs, rows) = (&estimates.costs, |plan: &LogicalPlan| estimates.rows(plan));
    match plan {
        LogicalPlan::TableScan(_) => costs.read(estimates.rows_unfiltered(plan)),
        LogicalPlan::Aggregate(aggregate) => {
            let texts = texts(&aggregate.group_expr, aggregate.input.schema());
            costs.grouped(rows(&aggregate.input), rows(plan), texts)
        }
        LogicalPlan::Join(join) if join.on.is_empty() => {
            costs.paired(rows(&join.left), rows(&join.right), rows(plan))
        }
        LogicalPlan::Join(join) => costs.keyed(rows(&join.left), rows(&join.right), rows(plan)),
        LogicalPlan::Window(window) => costs.sorted(rows(&window.input)),
        LogicalPlan::Sort(sort) => costs.sorted(rows(&sort.input)),
        _ => 0.0,
    }
}

/// What keeping the rows of a plan and reading them once again takes.
pub(super) fn kept(plan: &LogicalPlan, estimates: &Estimates<'_>) -> f64 {
    estimates.costs.kept(estimates.rows(plan) * plan.schema().fields().len() as f64)
}

/// These columns of a plan, in this order.
fn selected(plan: LogicalPlan, columns: Vec<Column>) -> Result<LogicalPlan> {
    if plan.schema().columns() == columns {
        return Ok(plan);
    }
    let columns = columns.into_iter().map(Expr::Column).collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// The columns of a plan, under the names that another has for them.
fn renamed(plan: LogicalPlan, like: &LogicalPlan) -> Result<LogicalPlan> {
    let (own, names) = (plan.schema().columns(), like.schema().columns());
    if own == names {
        return Ok(plan);
    }
    let columns = own.into_iter().zip(names).map(|(column, name)| {
        if column == name {
            return Expr::Column(column);
        }
        Expr::Column(column).alias_qualified(name.relation, name.name)
    });
    Projection::try_new(columns.collect(), Arc::new(plan)).map(LogicalPlan::Projection)
}
