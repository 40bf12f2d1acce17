//! Orders beside the best one: the one that comes next, and what any of them costs.
//!
//! ```text
//! next(S) = the cheapest of   best(A) + best(B) + join(A, B)     for other A, B that make up S
//!                             next(A) + best(B) + join(A, B)     for those of the best order, and
//!                             best(A) + next(B) + join(A, B)
//! ```
//!
//! An order is what sets it joins; which side of each is built is another choice. Only sets that the best order joins are
//! asked for the one that comes next, so what the search has met is all it takes.

use super::{Orders, Problem, Tree};
use crate::planner::joins::set::Set;

impl<P: Problem> Orders<'_, P> {
    /// The cheapest tree of another order than the best one has, and its cost; nothing where none was met.
    pub(in crate::planner::joins) fn runner_up(&self) -> Option<(Tree, f64)> {
        self.next(Set::first(self.problem.count()))
    }

    /// What a tree costs, whatever is built in each of its joins being the cheaper side.
    pub(in crate::planner::joins) fn cost(&self, tree: &Tree) -> f64 {
        match tree {
            Tree::Relation(_) => 0.0,
            Tree::Join(sides) => {
                let below = self.cost(&sides[0]) + self.cost(&sides[1]);
                let [one, other] = self.sides(sides.each_ref().map(Tree::set));
                below + one.min(other)
            }
        }
    }

    /// What a join of two sets costs by itself, with the first as the one that is built and with the second.
    pub(in crate::planner::joins) fn sides(&self, [one, other]: [Set; 2]) -> [f64; 2] {
        let [first, second, both] = [one, other, one.with(other)].map(|set| self.problem.rows(set));
        self.problem.costs([one, other], [first, second], both)
    }

    fn next(&self, set: Set) -> Option<(Tree, f64)> {
        let best = self.known(set).sides;
        if best[0].is_empty() {
            return None;
        }
        let known = |set: Set| (self.tree(set), self.known(set).cost);
        let mut all = Vec::new();
        for [part, rest] in [best, [best[1], best[0]]] {
            all.extend(self.next(part).map(|next| self.join_of([next, known(rest)])));
        }
        for part in self.best.sets() {
            let rest = set.without(part);
            let is_new = set.includes(part) && part.includes(set.only_least());
            if is_new && !best.contains(&part) && self.can_join(part, rest) {
                all.push(self.join_of([known(part), known(rest)]));
            }
        }
        // Sets come in no order: equal costs are decided by what they are.
        all.into_iter().min_by(|one, other| {
            one.1.total_cmp(&other.1).then_with(|| one.0.joined().cmp(&other.0.joined()))
        })
    }

    fn can_join(&self, one: Set, other: Set) -> bool {
        self.best.has(other) && self.are_connected(one, other)
    }

    fn join_of(&self, [(one, one_cost), (other, other_cost)]: [(Tree, f64); 2]) -> (Tree, f64) {
        let [own, turned] = self.sides([one.set(), other.set()]);
        let sides = if own <= turned { [one, other] } else { [other, one] };
        (Tree::Join(Box::new(sides)), one_cost + other_cost + own.min(turned))
    }
}

impl Tree {
    pub(in crate::planner::joins) fn set(&self) -> Set {
        self.relations().into_iter().copied().collect()
    }

    /// Whether another tree is of the same order.
    pub(in crate::planner::joins) fn is_like(&self, other: &Self) -> bool {
        self.joined() == other.joined()
    }

    /// The sets that are joined, in an order of their own.
    fn joined(&self) -> Vec<Set> {
        let mut sets = Vec::new();
        self.note_joined(&mut sets);
        sets.sort_unstable();
        sets
    }

    fn note_joined(&self, sets: &mut Vec<Set>) -> Set {
        match self {
            Self::Relation(relation) => Set::one(*relation),
            Self::Join(sides) => {
                let [one, other] = sides.each_ref().map(|side| side.note_joined(sets));
                sets.push(one.with(other));
                one.with(other)
            }
        }
    }
}

impl<R> Tree<R> {
    /// The relations, from left to right.
    pub(in crate::planner::joins) fn relations(&self) -> Vec<&R> {
        match self {
            Self::Relation(relation) => vec![relation],
            Self::Join(sides) => sides.iter().flat_map(Self::relations).collect(),
        }
    }

    /// The same tree of other things.
    pub(in crate::planner::joins) fn map<T>(&self, of: &impl Fn(&R) -> T) -> Tree<T> {
        match self {
            Self::Relation(relation) => Tree::Relation(of(relation)),
            Self::Join(sides) => Tree::Join(Box::new(sides.each_ref().map(|side| side.map(of)))),
        }
    }
}
