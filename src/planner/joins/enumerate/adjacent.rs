//! Where edges between single relations lead to: of few relations that is known of each set of them.

use super::COMPARED_MAX;
use crate::planner::joins::set::Set;

/// The relations that others are joined to.
pub(super) struct Adjacent {
    to_relations: Vec<Set>,
    /// By the places of sets; empty where there are many relations.
    to_sets: Vec<Set>,
}

impl Adjacent {
    /// Those of pairs of so many relations.
    pub(super) fn new(relations: usize, pairs: impl Iterator<Item = [usize; 2]>) -> Self {
        let mut to_relations = vec![Set::EMPTY; relations];
        for [one, other] in pairs {
            to_relations[one] = to_relations[one].with(Set::one(other));
            to_relations[other] = to_relations[other].with(Set::one(one));
        }
        let mut to_sets = Vec::new();
        if relations <= COMPARED_MAX {
            to_sets.push(Set::EMPTY);
            for &to_relation in &to_relations {
                // Those of all sets without a relation, and then of the same sets with it.
                let without = to_sets.len();
                to_sets.extend_from_within(..);
                to_sets[without..].iter_mut().for_each(|to| *to = to.with(to_relation));
            }
        }
        Self { to_relations, to_sets }
    }

    /// Where edges lead to from the relations of a set, which may be some of the same.
    pub(super) fn to(&self, set: Set) -> Set {
        let all =
            || set.iter().fold(Set::EMPTY, |to, relation| to.with(self.to_relations[relation]));
        self.to_sets.get(set.place()).copied().unwrap_or_else(all)
    }
}
