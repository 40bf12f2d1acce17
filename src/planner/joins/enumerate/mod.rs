//! The order in which relations are joined: of all trees without needless cross products, the cheapest.
//!
//! Up to twelve relations all connected sub-graphs are met with all their connected complements, each pair once:
//! Moerkotte and Neumann, *Dynamic Programming Strikes Back*, SIGMOD 2008, whose edges may join several relations to
//! several. Beyond, the two sets are joined that yield the fewest rows, again and again: Fegaras, *A New
//! Heuristic for Optimizing Large Queries*, DEXA 1998.
//!
//! Equal costs are decided by the places of the relations, so the tree depends on nothing else.

mod compare;
mod known;

use self::known::{Best, Known};
use super::set::Set;

/// Relations up to which all orders are compared.
const COMPARED_MAX: usize = 12;

/// What the order is chosen by.
pub(super) trait Problem {
    fn count(&self) -> usize;

    /// Sets of relations that a condition joins to one another. Over all of them every relation is reached.
    fn edges(&self) -> &[[Set; 2]];

    /// Rows of a set of relations once they are joined.
    fn rows(&self, set: Set) -> f64;

    /// What a join of two sets costs by itself, with the first as the one that is built and with the second, by the rows of both
    /// and of the result.
    fn costs(&self, sides: [Set; 2], rows: [f64; 2], result: f64) -> [f64; 2];
}

/// An order of joins. The first side is the one that is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tree<R = usize> {
    Relation(R),
    Join(Box<[Tree<R>; 2]>),
}

/// Sets for which an order is known, and what joins them.
pub(super) struct Orders<'p, P> {
    problem: &'p P,
    best: Known,
    /// By relation, those that an edge between single relations leads to.
    adjacent: Vec<Set>,
    /// All other edges.
    wide: Vec<[Set; 2]>,
}

impl<'p, P: Problem> Orders<'p, P> {
    /// The orders of a problem that are worth knowing: of all relations the best one.
    pub(super) fn of(problem: &'p P) -> Self {
        let mut orders = Self::new(problem);
        if problem.count() <= COMPARED_MAX {
            orders.compare_all();
        } else {
            orders.join_fewest_first();
        }
        orders
    }

    /// The best tree for all relations, and its cost.
    pub(super) fn best(&self) -> (Tree, f64) {
        let all = Set::first(self.problem.count());
        (self.tree(all), self.known(all).cost)
    }

    fn new(problem: &'p P) -> Self {
        let mut adjacent = vec![Set::EMPTY; problem.count()];
        let mut wide = Vec::new();
        for &[one, other] in problem.edges() {
            match (one.least(), other.least()) {
                (Some(a), Some(b)) if one.count() == 1 && other.count() == 1 => {
                    adjacent[a] = adjacent[a].with(other);
                    adjacent[b] = adjacent[b].with(one);
                }
                _ => wide.push([one, other]),
            }
        }
        let mut best = Known::new(problem.count());
        for set in (0..problem.count()).map(Set::one) {
            best.put(set, Best { rows: problem.rows(set), cost: 0.0, sides: [Set::EMPTY; 2] });
        }
        Self { problem, best, adjacent, wide }
    }

    /// What is known of a set that was met.
    fn known(&self, set: Set) -> &Best {
        self.best.get(set).expect("a set that is asked for was met")
    }

    /// Where an edge leads from a set, but for what is left out: of several relations at its end, the first.
    fn neighbours(&self, set: Set, left_out: Set) -> Set {
        let outside = Set::first(self.problem.count()).without(set).without(left_out);
        let near = set.iter().fold(Set::EMPTY, |near, relation| near.with(self.adjacent[relation]));
        let mut near = near.within(outside);
        for &[one, other] in &self.wide {
            for [from, to] in [[one, other], [other, one]] {
                if set.includes(from) && outside.includes(to) {
                    near = near.with(to.only_least());
                }
            }
        }
        near
    }

    fn are_connected(&self, one: Set, other: Set) -> bool {
        let near = one.iter().any(|relation| self.adjacent[relation].meets(other));
        near || self.wide.iter().any(|&[from, to]| {
            (one.includes(from) && other.includes(to)) || (one.includes(to) && other.includes(from))
        })
    }

    fn compare_all(&mut self) {
        for relation in (0..self.problem.count()).rev() {
            let set = Set::one(relation);
            self.complements(set);
            self.grow(set, Set::first(relation + 1));
        }
    }

    /// Meets all connected sets that a set grows into, but for what is left out.
    fn grow(&mut self, set: Set, left_out: Set) {
        let near = self.neighbours(set, left_out);
        for more in near.subsets() {
            if self.best.has(set.with(more)) {
                self.complements(set.with(more));
            }
        }
        for more in near.subsets() {
            self.grow(set.with(more), left_out.with(near));
        }
    }

    /// Meets all connected sets that an edge joins to a set, of relations after its first.
    fn complements(&mut self, set: Set) {
        let before = set.least().map_or(Set::EMPTY, |least| Set::first(least + 1));
        let left_out = set.with(before);
        let near = self.neighbours(set, left_out);
        for relation in near.iter().rev() {
            let other = Set::one(relation);
            if self.are_connected(set, other) {
                self.join(set, other);
            }
            let tried = near.within(Set::first(relation + 1));
            self.grow_complement(set, other, left_out.with(tried));
        }
    }

    fn grow_complement(&mut self, set: Set, other: Set, left_out: Set) {
        let near = self.neighbours(other, left_out);
        for more in near.subsets() {
            let grown = other.with(more);
            if self.best.has(grown) && self.are_connected(set, grown) {
                self.join(set, grown);
            }
        }
        for more in near.subsets() {
            self.grow_complement(set, other.with(more), left_out.with(near));
        }
    }

    /// Notes the join of two sets, whichever is built, where it is the best for both together.
    fn join(&mut self, one: Set, other: Set) {
        let (Some(&first), Some(&second)) = (self.best.get(one), self.best.get(other)) else {
            return;
        };
        let both = one.with(other);
        let below = first.cost + second.cost;
        let mut known = self.best.get(both).copied();
        if known.is_some_and(|best| best.cost <= below) {
            return;
        }
        let rows = known.map_or_else(|| self.problem.rows(both), |best| best.rows);
        let [own, turned] = self.problem.costs([one, other], [first.rows, second.rows], rows);
        for (sides, own) in [([one, other], own), ([other, one], turned)] {
            let new = Best { rows, cost: below + own, sides };
            let is_better = |best: Best| {
                let order = new.cost.total_cmp(&best.cost).then(new.sides.cmp(&best.sides));
                order.is_lt()
            };
            if known.is_none_or(is_better) {
                known = Some(new);
                self.best.put(both, new);
            }
        }
    }

    fn join_fewest_first(&mut self) {
        let mut sets: Vec<Set> = (0..self.problem.count()).map(Set::one).collect();
        while sets.len() > 1 {
            let mut fewest: Option<(f64, Set, Set)> = None;
            for (at, &one) in sets.iter().enumerate() {
                for &other in &sets[at + 1..] {
                    if !self.are_connected(one, other) {
                        continue;
                    }
                    let rows = self.problem.rows(one.with(other));
                    if fewest.is_none_or(|(least, ..)| rows < least) {
                        fewest = Some((rows, one, other));
                    }
                }
            }
            let (_, one, other) = fewest.expect("every relation is reached over the edges");
            self.join(one, other);
            sets.retain(|&set| set != one && set != other);
            sets.push(one.with(other));
        }
    }

    fn tree(&self, set: Set) -> Tree {
        let [one, other] = self.known(set).sides;
        if let (Some(relation), true) = (set.least(), one.is_empty()) {
            return Tree::Relation(relation);
        }
        Tree::Join(Box::new([self.tree(one), self.tree(other)]))
    }
}

#[cfg(test)]
mod tests;
