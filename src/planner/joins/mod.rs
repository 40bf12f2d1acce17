//! The order of joins, and which side of each is built, by cost.
//!
//! ```text
//! LogicalPlan, predicates pushed down and sub-queries unnested
//!  ├ permutations  columns in no order where none is asked for
//!  ├ graph         relations and the conditions that join them
//!  ├ cardinality   rows of every set of relations, by planner::statistics
//!  ├ edges         which sets may be joined; cross products where nothing else joins them
//!  ├ values        what each row of a relation holds while others are looked up in it
//!  ├ enumerate     the cheapest tree, by cost
//!  ├ rebuild       the plan of the tree
//!  ├ restrict      aggregates of no more groups than a join asks for
//!  └ noted         what was chosen and what came next, for EXPLAIN and to be tried: choices
//! LogicalPlan, of the same columns
//! ```
//!
//! The tree does not depend on the order of FROM. The first side of each join is the one that is built; DataFusion's own
//! choice of it is off while this rule is on (`SET join_order = 'cost'`, the default). Whether all threads share what is built
//! is decided for the physical plan: `collected`. What is aggregated of one side may be before the join: `eager`.

mod cardinality;
pub(super) mod choices;
pub(super) mod collected;
pub(super) mod eager;
mod edges;
mod enumerate;
mod graph;
pub(super) mod names;
mod noted;
mod permutations;
mod rebuild;
mod restrict;
mod set;
mod values;

use std::cell::Cell;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Join, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use self::cardinality::Cardinality;
use self::choices::Choices;
use self::edges::Keys;
use self::enumerate::{Orders, Problem};
use self::graph::Graph;
use self::noted::Noted;
use self::set::Set;
use self::values::Asked;
use super::cost::rows::RowCosts;
use super::evidence::Evidence;
use super::statistics::Estimates;
use crate::config::ForRules;

/// The rule; see the header of this file.
#[derive(Debug)]
pub(super) struct JoinOrder {
    evidence: Evidence,
}

/// What joins are estimated to take, in nanoseconds by the built-in constants, from which on the measured ones are worth asking for.
const CALIBRATED_MIN: f64 = 1e9;

impl JoinOrder {
    pub(super) fn new(evidence: Evidence) -> Self {
        Self { evidence }
    }
}

impl OptimizerRule for JoinOrder {
    fn name(&self) -> &str {
        "join_order"
    }

    /// The rule itself goes down the plan: joins of one graph are looked at together.
    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let options = config.options();
        let is_on = options.extensions.get::<ForRules>().is_some_and(|rules| rules.orders_joins);
        let choices = Choices::of(&options);
        if let Some(choices) = choices {
            choices.begin();
        }
        if !(is_on || choices.is_some()) || !has_joins(&plan)? {
            return Ok(Transformed::no(plan));
        }
        // What is named there only for its place counts as asked for otherwise.
        let plan = permutations::dropped(plan)?.data;
        let asked = Asked::of(&plan)?;
        let ordered = |estimates: Estimates<'_>| {
            let (asked, dearest) = (&asked, Cell::new(0.0));
            let orderer = Orderer { estimates, asked, config, choices, is_on, dearest };
            Ok::<_, DataFusionError>((orderer.ordered(plan.clone())?, orderer.dearest.get()))
        };
        let (mut found, dearest) = ordered(self.evidence.estimates(&options))?;
        if dearest >= CALIBRATED_MIN
            && let Some(estimates) = self.evidence.measured(&options)
        {
            choices.iter().for_each(|choices| choices.forget());
            (found, _) = ordered(estimates)?;
        }
        // Where joins stay as they are written, what would be chosen is only shown.
        if is_on { found.transform_data(permutations::dropped) } else { Ok(Transformed::no(plan)) }
    }
}

fn has_joins(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        use datafusion::common::tree_node::TreeNodeRecursion as Next;
        found |= matches!(plan, LogicalPlan::Join(_));
        Ok(if found { Next::Stop } else { Next::Continue })
    })?;
    Ok(found)
}

/// Orders the joins of one statement.
struct Orderer<'a> {
    estimates: Estimates<'a>,
    asked: &'a Asked,
    config: &'a dyn OptimizerConfig,
    /// Where the statement is explained.
    choices: Option<&'a Choices>,
    /// Whether joins are ordered, and not only looked at.
    is_on: bool,
    /// What the dearest graph is estimated to take.
    dearest: Cell<f64>,
}

impl Orderer<'_> {
    fn ordered(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if matches!(plan, LogicalPlan::Join(_))
            && let Some(graph) = Graph::of(&plan)
        {
            return self.joined(&plan, graph).map(Transformed::yes);
        }
        let below = plan
            .map_uncorrelated_subqueries(|plan| self.ordered(plan))?
            .transform_sibling(|plan| plan.map_children(|plan| self.ordered(plan)))?;
        let below = match below.transformed {
            true => below.map_data(LogicalPlan::recompute_schema)?,
            false => below,
        };
        below.transform_data(|plan| match plan {
            LogicalPlan::Join(join) => self.with_smaller_side_first(join),
            plan => Ok(Transformed::no(plan)),
        })
    }

    /// The joins of a graph in the order that costs least.
    fn joined(&self, plan: &LogicalPlan, mut graph: Graph) -> Result<LogicalPlan> {
        if self.is_on {
            restrict::restrict(&mut graph, &self.estimates, self.config, self.choices)?;
        }
        for relation in &mut graph.relations {
            relation.plan = self.ordered(std::mem::take(&mut relation.plan))?.data;
        }
        let query = Query::new(&graph, &self.estimates, self.asked);
        let orders = Orders::of(&query);
        self.dearest.set(self.dearest.get().max(orders.best().1));
        let noted = self.choices.map(|choices| (Noted::new(&query, &orders), choices));
        let tree = match noted {
            Some((noted, choices)) if self.is_on => noted.note_best(plan, choices),
            Some((noted, choices)) => {
                noted.note_written(plan, choices);
                return Ok(plan.clone());
            }
            None => orders.best().0,
        };
        rebuild::with_columns_of(rebuild::plan(&graph, &tree)?, plan.schema())
    }

    /// A join of a kind that is not reordered, with the side as the one that is built which takes less to build.
    fn with_smaller_side_first(&self, join: Join) -> Result<Transformed<LogicalPlan>> {
        let held = |side: &LogicalPlan| {
            self.estimates.costs.held(self.estimates.rows(side), self.asked.values(side))
        };
        let mut is_kept = join.null_aware || held(&join.left) <= held(&join.right);
        if let Some(choices) = self.choices
            && self.is_on
            && !join.null_aware
        {
            is_kept ^= noted::note_side(&join, is_kept, &self.estimates, self.asked, choices);
        }
        if is_kept {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let Join { left, right, on, filter, join_type, join_constraint, schema, .. } = join;
        let on = on.into_iter().map(|(left, right)| (right, left)).collect();
        let swapped = Join::try_new(
            right,
            left,
            on,
            filter,
            join_type.swap(),
            join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        rebuild::with_columns_of(LogicalPlan::Join(swapped), &schema).map(Transformed::yes)
    }
}

/// A graph as the search for an order sees it.
struct Query<'g> {
    graph: &'g Graph,
    costs: &'g RowCosts,
    cardinality: Cardinality,
    /// By relation, values of its rows that are asked for.
    values: Vec<f64>,
    edges: Vec<[Set; 2]>,
    keys: Keys,
}

impl<'g> Query<'g> {
    fn new(graph: &'g Graph, estimates: &'g Estimates<'_>, asked: &Asked) -> Self {
        let cardinality = Cardinality::of(graph, estimates);
        let edges = graph.edges(|set| cardinality.rows(set));
        let values = graph.relations.iter().map(|relation| asked.values(&relation.plan)).collect();
        let keys = Keys::of(graph);
        Self { graph, costs: &estimates.costs, cardinality, values, edges, keys }
    }

    /// Values that are asked for of a row of a set.
    fn values(&self, set: Set) -> f64 {
        set.iter().map(|relation| self.values[relation]).sum()
    }
}

impl Problem for Query<'_> {
    fn count(&self) -> usize {
        self.graph.relations.len()
    }

    fn edges(&self) -> &[[Set; 2]] {
        &self.edges
    }

    fn rows(&self, set: Set) -> f64 {
        self.cardinality.rows(set)
    }

    fn costs(&self, sides: [Set; 2], [first, second]: [f64; 2], result: f64) -> [f64; 2] {
        let is_keyed = self.keys.join(sides);
        let [one, other] = sides.map(|side| self.values(side));
        let cost = |build, probe| self.costs.joined(is_keyed, build, probe, result);
        [cost((first, one), second), cost((second, other), first)]
    }
}

#[cfg(test)]
mod tests;
