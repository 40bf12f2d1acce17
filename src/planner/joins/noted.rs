//! What is noted of joins: their order, and which side of each is built.

use std::collections::HashMap;

use datafusion::logical_expr::{Join, LogicalPlan};

use super::choices::{Choice, Choices, RUNNER_UP, Way};
use super::enumerate::{Orders, Tree};
use super::values::Asked;
use super::{Query, names};
use crate::planner::statistics::Estimates;

/// What the order is called in which joins were written.
const AS_WRITTEN: &str = "as written";

/// The orders of a graph, by the names of its relations.
pub(super) struct Noted<'a> {
    query: &'a Query<'a>,
    orders: &'a Orders<'a, Query<'a>>,
    names: Vec<String>,
}

impl<'a> Noted<'a> {
    pub(super) fn new(query: &'a Query<'a>, orders: &'a Orders<'a, Query<'a>>) -> Self {
        let names = query.graph.relations.iter().map(|relation| relation.name()).collect();
        Self { query, orders, names }
    }

    /// Notes the choices for a plan that is joined in the best order; the order it is to be joined in.
    pub(super) fn note_best(&self, plan: &LogicalPlan, choices: &Choices) -> Tree {
        let (best, _) = self.orders.best();
        let next = self.orders.runner_up().map(|(next, _)| next);
        let written = self.written(plan, choices);
        let way = |tree: &Tree| {
            let is_written = written.as_ref().is_some_and(|written| written.is_like(tree));
            self.way(tree, is_written.then_some(AS_WRITTEN))
        };
        let mut others = Vec::new();
        others.extend(next.iter().map(|next| (RUNNER_UP, way(next))));
        let is_shown = |tree: &&Tree| {
            [Some(&best), next.as_ref()].iter().flatten().any(|shown| shown.is_like(tree))
        };
        let further = written.iter().filter(|written| !is_shown(written));
        others.extend(further.map(|written| (AS_WRITTEN, self.way(written, None))));
        let is_turned = choices.add(Choice::new("join order", way(&best), others));
        let taken = next.filter(|_| is_turned).unwrap_or(best);
        self.with_sides(taken, choices)
    }

    /// Notes what the order of a plan that stays as it was written costs beside the best one.
    pub(super) fn note_written(&self, plan: &LogicalPlan, choices: &Choices) {
        let (best, _) = self.orders.best();
        if let Some(written) = self.query.graph.written(plan)
            && !written.is_like(&best)
        {
            let taken = self.way(&written, Some(AS_WRITTEN));
            choices.add(Choice::new("join order", taken, vec![("by cost", self.way(&best, None))]));
        }
    }

    /// The order that the joins of a plan had before any rule changed it; nothing where two relations have one name.
    fn written(&self, plan: &LogicalPlan, choices: &Choices) -> Option<Tree> {
        let places: HashMap<&String, usize> = self.names.iter().zip(0..).collect();
        if places.len() < self.names.len() {
            return None;
        }
        let found = self.named(&self.query.graph.written(plan)?);
        Some(choices.written(found).map(&|name| places[name]))
    }

    fn way(&self, tree: &Tree, remark: Option<&'static str>) -> Way {
        let order = names::order(&self.named(tree));
        Way { remark, ..Way::new(order, self.orders.cost(tree)) }
    }

    fn named(&self, tree: &Tree) -> Tree<String> {
        tree.map(&|relation| self.names[*relation].clone())
    }

    /// Notes the sides of all joins of a tree, those that run first before the others; the tree with those that are to be built.
    fn with_sides(&self, tree: Tree, choices: &Choices) -> Tree {
        let Tree::Join(sides) = tree else { return tree };
        let [first, second] = sides.map(|side| self.with_sides(side, choices));
        let costs = self.orders.sides([first.set(), second.set()]);
        let is_turned = choices.add(built([self.list(&first), self.list(&second)], costs));
        Tree::Join(Box::new(if is_turned { [second, first] } else { [first, second] }))
    }

    fn list(&self, tree: &Tree) -> String {
        let names: Vec<String> = self.named(tree).relations().into_iter().cloned().collect();
        names::list(&names)
    }
}

/// Notes which side is built of a join that is not reordered: the first where the sides are kept. Whether it is to be the other.
pub(super) fn note_side(
    join: &Join,
    is_kept: bool,
    estimates: &Estimates<'_>,
    asked: &Asked,
    choices: &Choices,
) -> bool {
    let rows = |side: &LogicalPlan| estimates.rows(side);
    let result = rows(&LogicalPlan::Join(join.clone()));
    let cost = |build: &LogicalPlan, probe: &LogicalPlan| {
        let build = (rows(build), asked.values(build));
        estimates.costs.joined(!join.on.is_empty(), build, rows(probe), result)
    };
    let [left, right] = [join.left.as_ref(), &join.right];
    let [taken, other] = if is_kept { [left, right] } else { [right, left] };
    let costs = [cost(taken, other), cost(other, taken)];
    choices.add(built([taken, other].map(names::names), costs))
}

/// The choice of the first of two sides.
fn built([taken, other]: [String; 2], [cost, other_cost]: [f64; 2]) -> Choice {
    Choice::new("build side", Way::new(taken, cost), vec![(RUNNER_UP, Way::new(other, other_cost))])
}
