//! Algebra: a graph becomes one that computes the same for less, by equality saturation.
//!
//! ```text
//! graph
//!   │  chain, order    long products begin in their cheapest order
//!   ▼
//! classes, each with all terms that are known to be equal
//!   │  rules, shifts   terms are added and classes joined, until nothing is new or it is enough
//!   ▼
//! extract: the cheapest term of each class that the root needs ─► graph
//! ```
//!
//! A rewrite need not be right at the time it is made: `t(x) @ (x @ w)` and `gram(x) @ w` stand side by
//! side until costs decide, with what is shared paid once and what an iteration repeats paid in each
//! round. Source: Willsey et al., *egg: Fast and Extensible Equality Saturation*, POPL 2021.
//!
//! Not here: what anything costs (`estimate`).

mod chain;
mod changes;
mod extract;
mod facts;
mod filled;
mod notation;
mod order;
mod rules;
mod sampling;
mod shifts;
mod slices;
mod term;
#[cfg(test)]
mod tests;
mod triangles;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use egg::{Id, Subst};
use rustc_hash::FxHashMap;

use self::changes::Changes;
use self::facts::{Facts, Workbench, hold};
use self::notation::Rule;
use self::rules::{RULES, SPARSE_DRIVEN_RULES};
use self::term::Term;
use super::cost::CostModel;
use super::estimate::rounds;
use super::graph::{Graph, Node, NodeId};
use super::written::Written;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::Operation as Op;

/// Terms after which no more are added, beyond those that are written: a few milliseconds.
const TERMS_MAX: usize = 500;

/// Times that all rules are tried.
const ROUNDS_MAX: usize = 8;

/// Time after which no rule is tried any more: ten times what the terms take, for what is thousands of
/// operations long as written, and for a machine that is busy.
const TIME_MAX: Duration = Duration::from_millis(50);

/// All terms that are known, in classes of equal values.
type Classes<'a> = egg::EGraph<Term, Workbench<'a>>;

/// A graph that computes what another one does.
pub(super) struct Rewritten {
    pub(super) graph: Graph,
    pub(super) root: NodeId,
    /// The next best expression that makes the root in another way, and its seconds.
    pub(super) runner_up: Option<(String, f64)>,
}

/// Rewrites what `root` needs. Labels have been checked, and the new graph has none.
pub(super) fn rewrite(
    graph: &Graph,
    root: NodeId,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> Rewritten {
    let (graph, root) = order::ordered(graph, root, relation_rows, cost);
    simplified(&graph, root, relation_rows, cost)
}

fn simplified(
    graph: &Graph,
    root: NodeId,
    relation_rows: &[Option<f64>],
    cost: &CostModel,
) -> Rewritten {
    let needed = graph.needed(root);
    let mut workbench = Workbench::new(graph.unlabelled(), relation_rows, cost);
    workbench.looks_at_cells =
        needed.iter().any(|&id| triangles::are_used_by(&graph.node(id).operation));
    workbench.looks_at_mirrors = needed.iter().any(|&id| uses_mirrors(graph.node(id)));
    let mut classes = Classes::new(workbench);
    let mut class_of: FxHashMap<NodeId, Id> = FxHashMap::default();
    let mut written = Vec::new();
    let mut repeated = BTreeMap::new();
    for (id, node) in graph.nodes().filter(|(id, _)| needed.contains(id)) {
        let inputs: Vec<Id> = node.inputs.iter().map(|input| class_of[input]).collect();
        class_of.insert(id, adopt(&mut classes, graph, id, &inputs));
        written.push((class_of[&id], Term::new(node.operation.clone(), inputs)));
        if let Op::Iterate(iteration) = node.operation {
            repeated.insert(iteration.variable.number, rounds(&iteration));
        }
    }
    // Of single cells any form is as good, and their sizes fit every rule.
    let is_scalar = needed.iter().all(|&id| graph.node(id).is_scalar());
    if !is_scalar && needed.iter().any(|&id| is_algebraic(graph, id)) {
        let bounds = Bounds { terms: written.len() + TERMS_MAX, until: Instant::now() + TIME_MAX };
        saturate(&mut classes, &bounds);
    }
    let root = class_of[&root];
    let (chosen, next) = match extract::cheapest(&mut classes, root, &written, &repeated) {
        Some((cheapest, next)) => (cheapest.terms, next),
        None => (written, None),
    };
    let runner_up = next.map(|next| {
        let (graph, root) = built(&classes, root, &next.terms);
        (Written(&graph, root).to_string(), next.seconds)
    });
    let (graph, root) = built(&classes, root, &chosen);
    Rewritten { graph, root, runner_up }
}

/// Whether it may be worth to know that a matrix at hand is symmetric.
fn uses_mirrors(node: &Node) -> bool {
    match node.operation {
        Op::Transpose => true,
        Op::Product => node.inputs[0] == node.inputs[1],
        _ => false,
    }
}

/// Whether there are rules about an operation, other than how it meets those of which this holds.
fn is_algebraic(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let is_constant = |value: f64| {
        let is_it = |&input: &NodeId| graph.as_constant(input) == Some(value);
        node.inputs.iter().any(is_it)
    };
    match node.operation {
        Op::Stored(_) | Op::Relation(_) | Op::Constant(_) | Op::Random { .. } | Op::Select => false,
        // Twice is not at all.
        Op::Unary(UnaryFunction::Negate) => {
            let input = &graph.node(node.inputs[0]).operation;
            *input == Op::Unary(UnaryFunction::Negate)
        }
        Op::Unary(_) => false,
        Op::Binary(BinaryFunction::Add | BinaryFunction::Subtract) => is_constant(0.0),
        Op::Binary(BinaryFunction::Multiply | BinaryFunction::Divide | BinaryFunction::Power) => {
            is_constant(1.0)
        }
        Op::Binary(_) => false,
        _ => true,
    }
}

/// Brings a node of the graph that is rewritten, over these classes.
fn adopt(classes: &mut Classes<'_>, graph: &Graph, id: NodeId, inputs: &[Id]) -> Id {
    let facts = |input: &Id| classes[*input].data.as_ref().expect("what is written fits").node;
    let nodes = inputs.iter().map(facts).collect();
    classes.analysis.adopt(graph, id, nodes);
    classes.add(Term::new(graph.node(id).operation.clone(), inputs))
}

/// What ends the search for equal terms. Whatever ends it, all that has been found holds.
struct Bounds {
    terms: usize,
    until: Instant,
}

impl Bounds {
    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// Tries all rules until they find nothing new, or it is enough.
fn saturate(classes: &mut Classes<'_>, bounds: &Bounds) {
    classes.rebuild();
    for _ in 0..ROUNDS_MAX {
        let is_new = try_all(classes, bounds);
        if !is_new || classes.total_size() >= bounds.terms || bounds.is_late() {
            break;
        }
    }
}

/// Tries all rules once, where something has changed; whether they find anything new.
fn try_all(classes: &mut Classes<'_>, bounds: &Bounds) -> bool {
    let changes = Changes::take(classes, RULES.iter().chain(&*SPARSE_DRIVEN_RULES));
    let driven = SPARSE_DRIVEN_RULES.iter().filter(|_| classes.analysis.samples());
    let rules = RULES.iter().chain(driven).take_while(|_| !bounds.is_late());
    let found: Vec<_> = rules.map(|rule| (rule, changes.matches(classes, rule))).collect();
    let shifts = shifts::all(classes);
    let mut is_new = false;
    for (rule, matches) in found {
        for found in &matches {
            for names in &found.substs {
                if classes.total_size() < bounds.terms {
                    is_new |= apply(classes, rule, found.eclass, names);
                }
            }
        }
    }
    for (class, form) in shifts {
        let other = form.add(classes);
        is_new |= join(classes, class, other);
    }
    classes.rebuild();
    is_new
}

/// Joins a class with the right side of a rule, if its conditions hold; whether that is new.
fn apply(classes: &mut Classes<'_>, rule: &Rule, class: Id, names: &Subst) -> bool {
    let facts: Option<Vec<(egg::Var, &Facts)>> =
        rule.names.iter().map(|&name| Some((name, classes[names[name]].data.as_ref()?))).collect();
    if !facts.is_some_and(|facts| hold(&rule.conditions, &facts)) {
        return false;
    }
    let right = classes.add_instantiation(&rule.right, names);
    join(classes, class, right)
}

/// Makes two classes one, which they can only be with equal sizes; whether that is new.
fn join(classes: &mut Classes<'_>, class: Id, other: Id) -> bool {
    let fits = match (&classes[class].data, &classes[other].data) {
        (Some(facts), Some(other)) => facts.is_like(other),
        _ => false,
    };
    fits && classes.union(class, other)
}

/// The graph of the chosen terms, inputs before users.
fn built(classes: &Classes<'_>, root: Id, chosen: &[(Id, Term)]) -> (Graph, NodeId) {
    let mut graph = classes.analysis.graph.unlabelled();
    let mut moved: FxHashMap<Id, NodeId> = FxHashMap::default();
    for (class, term) in chosen {
        let facts = |id: Id| classes[id].data.as_ref().expect("what is chosen can be computed");
        let inputs: Vec<Id> = term.inputs.iter().map(|&input| classes.find(input)).collect();
        let behind = inputs.iter().map(|&input| facts(input).node).collect();
        let node = classes.analysis.known(&term.operation, behind);
        let inputs = inputs.iter().map(|input| moved[input]).collect();
        let id = graph.adopt(node, inputs);
        graph.stands_at(id, facts(*class).place);
        moved.insert(classes.find(*class), id);
    }
    (graph, moved[&classes.find(root)])
}
