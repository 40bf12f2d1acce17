//! Against all trees there are, over random graphs.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;

use super::*;
use crate::planner::cost::rows::RowCosts;

/// Relations of so many rows; each edge keeps a share of the pairs of its ends.
#[derive(Debug, Clone)]
struct Random {
    rows: Vec<f64>,
    edges: Vec<[Set; 2]>,
    shares: Vec<f64>,
}

impl Random {
    /// A tree of edges, so that every relation is reached, and some more.
    fn new(count: usize, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let rows = (0..count).map(|_| 10_f64.powf(random.random_range(0.0..6.0)).round());
        let rows: Vec<f64> = rows.collect();
        let mut edges = Vec::new();
        for relation in 1..count {
            edges.push([Set::one(random.random_range(0..relation)), Set::one(relation)]);
        }
        for _ in 0..random.random_range(0..count) {
            let (one, other) = (random.random_range(0..count), random.random_range(0..count));
            if one != other {
                edges.push([Set::one(one), Set::one(other)]);
            }
        }
        // An edge that joins two relations to a third.
        if count > 3 && random.random_bool(0.5) {
            edges.push([Set::from_iter([0, 1]), Set::one(count - 1)]);
        }
        let shares = edges.iter().map(|_| 10_f64.powf(random.random_range(-5.0..0.0))).collect();
        Self { rows, edges, shares }
    }

    /// The same with its relations in another order: relation `i` is the old `order[i]`.
    fn permuted(&self, order: &[usize]) -> Self {
        let place = |set: Set| -> Set {
            set.iter().map(|old| order.iter().position(|&other| other == old).unwrap()).collect()
        };
        Self {
            rows: order.iter().map(|&old| self.rows[old]).collect(),
            edges: self.edges.iter().map(|&[one, other]| [place(one), place(other)]).collect(),
            shares: self.shares.clone(),
        }
    }

    fn are_connected(&self, one: Set, other: Set) -> bool {
        let joins = |from: Set, to: Set| one.includes(from) && other.includes(to);
        self.edges.iter().any(|&[from, to]| joins(from, to) || joins(to, from))
    }
}

impl Problem for Random {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn edges(&self) -> &[[Set; 2]] {
        &self.edges
    }

    fn rows(&self, set: Set) -> f64 {
        let rows: f64 = set.iter().map(|relation| self.rows[relation]).product();
        let within = self.edges.iter().zip(&self.shares);
        let within = within.filter(|([one, other], _)| set.includes(one.with(*other)));
        (rows * within.map(|(_, share)| share).product::<f64>()).max(1.0)
    }

    fn costs(&self, _: [Set; 2], [first, second]: [f64; 2], result: f64) -> [f64; 2] {
        let keyed = |build, probe| RowCosts::default().keyed(build, probe, result);
        [keyed(first, second), keyed(second, first)]
    }
}

/// The least cost for each set, by all ways to cut it in two: Vance and Maier, *Rapid Bushy Join-order
/// Optimization with Cartesian Products*, SIGMOD 1996.
fn least_cost(problem: &Random) -> f64 {
    let all = Set::first(problem.count());
    let mut least: FxHashMap<Set, f64> = FxHashMap::default();
    for set in all.subsets() {
        if set.count() == 1 {
            least.insert(set, 0.0);
            continue;
        }
        for one in set.subsets().filter(|one| *one != set) {
            let other = set.without(one);
            let (Some(&a), Some(&b)) = (least.get(&one), least.get(&other)) else { continue };
            if !problem.are_connected(one, other) {
                continue;
            }
            let rows = [problem.rows(one), problem.rows(other)];
            let [own, turned] = problem.costs([one, other], rows, problem.rows(set));
            let cost = a + b + own.min(turned);
            least.entry(set).and_modify(|least| *least = least.min(cost)).or_insert(cost);
        }
    }
    least[&all]
}

fn best(problem: &Random) -> (Tree, f64) {
    Orders::of(problem).best()
}

/// The cost of every order there is, by the sets that it joins; of each, with the cheaper sides built.
fn all_orders(problem: &Random, set: Set) -> Vec<(Tree, f64)> {
    if let (1, Some(relation)) = (set.count(), set.least()) {
        return vec![(Tree::Relation(relation), 0.0)];
    }
    let mut all = Vec::new();
    for one in set.subsets().filter(|one| *one != set && one.includes(set.only_least())) {
        let other = set.without(one);
        if !problem.are_connected(one, other) {
            continue;
        }
        let [a, b] = [one, other].map(|side| problem.rows(side));
        let rows = problem.rows(set);
        let [own, turned] = problem.costs([one, other], [a, b], rows);
        let own = own.min(turned);
        for (left, left_cost) in all_orders(problem, one) {
            for (right, right_cost) in all_orders(problem, other) {
                let sides = Box::new([left.clone(), right]);
                all.push((Tree::Join(sides), left_cost + right_cost + own));
            }
        }
    }
    all
}

#[test]
fn the_best_tree_costs_what_the_best_of_all_trees_costs() {
    for seed in 0..300 {
        let problem = Random::new(2 + seed as usize % 8, seed);
        let (tree, cost) = best(&problem);
        let least = least_cost(&problem);
        assert!((cost - least).abs() <= 1e-9 * least, "seed {seed}: {cost}, not {least}: {tree:?}");
        let mut all: Vec<usize> = tree.relations().into_iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..problem.count()).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn the_places_of_relations_do_not_change_the_cost() {
    for seed in 0..100 {
        let problem = Random::new(3 + seed as usize % 7, seed);
        let mut order: Vec<usize> = (0..problem.count()).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(seed));
        let (cost, permuted) = (best(&problem).1, best(&problem.permuted(&order)).1);
        assert!((cost - permuted).abs() <= 1e-9 * cost, "seed {seed}: {cost}, {permuted}");
    }
}

#[test]
fn many_relations_are_joined_by_a_rule_of_thumb_that_comes_close() {
    let mut ratios = Vec::new();
    for seed in 0..40 {
        let problem = Random::new(10, seed);
        let mut orders = Orders::new(&problem);
        orders.join_fewest_first();
        ratios.push(orders.known(Set::first(10)).cost / best(&problem).1);
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[0] >= 1.0 - 1e-9 && ratios[20] < 1.5 && ratios[39] < 20.0, "{ratios:?}");
    let many = Random::new(50, 3);
    assert_eq!(best(&many).0.relations().len(), 50);
    assert_eq!(Orders::of(&many).runner_up(), None);
}

#[test]
fn the_runner_up_is_the_best_of_all_other_orders() {
    let mut alone = 0;
    for seed in 0..300 {
        let problem = Random::new(2 + seed as usize % 5, seed);
        let orders = Orders::of(&problem);
        let (tree, cost) = orders.best();
        let all = all_orders(&problem, Set::first(problem.count()));
        let others = all.iter().filter(|(other, _)| !other.is_like(&tree));
        let least = others.map(|(_, cost)| *cost).min_by(f64::total_cmp);
        let Some((next, next_cost)) = orders.runner_up() else {
            assert_eq!(least, None, "seed {seed}");
            alone += 1;
            continue;
        };
        assert!(!next.is_like(&tree), "seed {seed}: {next:?}");
        assert!(next_cost >= cost, "seed {seed}: {next_cost}, below {cost}");
        let least = least.unwrap();
        assert!((next_cost - least).abs() <= 1e-9 * least, "seed {seed}: {next_cost}, not {least}");
        for (tree, cost) in [(tree, cost), (next, next_cost)] {
            let again = orders.cost(&tree);
            assert!((again - cost).abs() <= 1e-9 * cost, "seed {seed}: {again}, not {cost}");
        }
    }
    // Of two relations, and where an edge wants both of its relations first.
    assert!((60..100).contains(&alone), "{alone}");
}
