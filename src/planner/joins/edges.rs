//! Which sets of relations the conditions of a graph join, and cross products where these leave parts apart.

use super::graph::{ConditionKind, Graph};
use super::set::Set;

impl Graph {
    /// Pairs of sets that a condition joins. Parts that none joins are joined whole, those with the fewest rows first.
    pub(super) fn edges(&self, rows: impl Fn(Set) -> f64) -> Vec<[Set; 2]> {
        let mut edges = Vec::new();
        for class in &self.classes {
            for (at, one) in class.iter().enumerate() {
                let others = class[at + 1..].iter();
                edges.extend(others.map(|other| [one, other].map(|one| Set::one(one.relation))));
            }
        }
        for condition in &self.conditions {
            let ends: Vec<usize> = condition.relations.iter().collect();
            match (&condition.kind, ends.as_slice()) {
                (ConditionKind::Equality([(one, _), (other, _)]), _) => edges.push([*one, *other]),
                (ConditionKind::Other(_), &[one, other]) => {
                    edges.push([Set::one(one), Set::one(other)]);
                }
                // Whatever joins more relations may be asked once they are there.
                (ConditionKind::Other(_), _) => (),
            }
        }
        for (at, relation) in self.relations.iter().enumerate() {
            edges.extend(relation.attached.iter().map(|join| [join.required, Set::one(at)]));
        }
        let mut parts: Vec<Set> = (0..self.relations.len()).map(Set::one).collect();
        loop {
            join_along(&edges, &mut parts);
            parts.sort_by(|one, other| rows(*one).total_cmp(&rows(*other)).then(one.cmp(other)));
            // What is attached is joined by its own condition, once all that it asks for is there.
            let mut apart = parts.iter().filter(|part| !self.is_attached(**part));
            match (apart.next(), apart.next()) {
                (Some(&one), Some(&other)) => edges.push([one, other]),
                _ => return edges,
            }
        }
    }

    fn is_attached(&self, part: Set) -> bool {
        part.iter().all(|relation| self.relations[relation].attached.is_some())
    }
}

/// Which relations have an equality that says what rows of them belong together.
pub(super) struct Keys {
    /// Any two of one of these.
    alike: Vec<Set>,
    /// All of one with all of the other.
    pairs: Vec<[Set; 2]>,
    /// Relations that are attached to others by such an equality.
    attached: Set,
}

impl Keys {
    pub(super) fn of(graph: &Graph) -> Self {
        let alike = graph.classes.iter();
        let alike = alike.map(|class| class.iter().map(|member| member.relation).collect());
        let pairs = graph.conditions.iter().filter_map(|condition| match &condition.kind {
            ConditionKind::Equality([(one, _), (other, _)]) => Some([*one, *other]),
            ConditionKind::Other(_) => None,
        });
        let attached = graph.relations.iter().enumerate();
        let attached = attached.filter(|(_, relation)| relation.attached.is_some());
        Self {
            alike: alike.collect(),
            pairs: pairs.collect(),
            attached: attached.map(|(at, _)| at).collect(),
        }
    }

    /// Whether an equality says which rows of two sets belong together.
    pub(super) fn join(&self, [left, right]: [Set; 2]) -> bool {
        let is_attached = |set: Set| set.count() == 1 && self.attached.includes(set);
        is_attached(left)
            || is_attached(right)
            || self.alike.iter().any(|alike| alike.meets(left) && alike.meets(right))
            || self.pairs.iter().any(|&[one, other]| {
                (left.includes(one) && right.includes(other))
                    || (left.includes(other) && right.includes(one))
            })
    }
}

/// Puts parts together as long as an edge joins two.
fn join_along(edges: &[[Set; 2]], parts: &mut Vec<Set>) {
    let holding = |parts: &[Set], end: Set| parts.iter().position(|part| part.includes(end));
    while let Some((one, other)) = edges.iter().find_map(|&[one, other]| {
        let (one, other) = (holding(parts, one)?, holding(parts, other)?);
        (one != other).then_some((one, other))
    }) {
        let part = parts[other];
        parts[one] = parts[one].with(part);
        parts.remove(other);
    }
}
