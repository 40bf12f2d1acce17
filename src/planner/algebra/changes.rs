//! Where rules may find what they have not found before: in classes that have changed, and above them as far as a rule looks down.
//!
//! Everything else was found in an earlier round, and applied or refused. Most rounds change little, and to look everywhere
//! again would take most of the time of planning.

use std::hash::BuildHasher;

use egg::{Id, SearchMatches, Searcher};
use rustc_hash::FxBuildHasher;

use super::Classes;
use super::notation::Rule;
use super::term::Term;
use crate::exec::operation::Operation;

/// How far above a change each class is, and what is in it.
pub(super) struct Changes {
    /// Steps from a class, by its number, down to the nearest that has changed.
    steps: Vec<usize>,
    /// The marks of the operations of a class, by its number.
    marks: Vec<u128>,
}

/// Of a class that is above no change, or too far for any rule.
const FAR: usize = usize::MAX;

impl Changes {
    /// Those since this was last called, as far up as these rules look down.
    pub(super) fn take<'r>(
        classes: &mut Classes<'_>,
        rules: impl Iterator<Item = &'r Rule>,
    ) -> Self {
        let depth_max = rules.map(|rule| rule.depth).max().unwrap_or(0);
        let changed = std::mem::take(&mut classes.analysis.changed);
        let mut near: Vec<Id> = changed.into_iter().map(|class| classes.find(class)).collect();
        let mut steps = vec![FAR; classes.nodes().len()];
        near.iter().for_each(|&class| steps[usize::from(class)] = 0);
        for step in 1..=depth_max {
            let above = near.iter().flat_map(|&class| classes[class].parents());
            let mut above: Vec<Id> = above.map(|parent| classes.find(parent)).collect();
            above.retain(|&class| {
                let of_class = &mut steps[usize::from(class)];
                let is_first = *of_class == FAR;
                *of_class = step.min(*of_class);
                is_first
            });
            near = above;
        }
        let mut marks = vec![0; steps.len()];
        for class in classes.classes() {
            let of_terms = class.nodes.iter().map(|term| mark(&term.operation));
            marks[usize::from(class.id)] = of_terms.fold(0, |all, mark| all | mark);
        }
        Self { steps, marks }
    }

    /// What the left side of a rule matches for the first time.
    pub(super) fn matches<'r>(
        &self,
        classes: &Classes<'_>,
        rule: &'r Rule,
    ) -> Vec<SearchMatches<'r, Term>> {
        let Some((root, below)) = rule.operations.split_last() else { return Vec::new() };
        let of = |operation: &Operation| classes.classes_for_op(operation).into_iter().flatten();
        if below.iter().any(|operation| of(operation).next().is_none()) {
            return Vec::new();
        }
        let may_be_new = |class: &Id| self.steps[usize::from(*class)] <= rule.depth;
        let searched =
            of(root).filter(|class| may_be_new(class) && self.may_be(classes, rule, *class));
        searched.filter_map(|class| rule.left.search_eclass(classes, class)).collect()
    }

    /// Whether a term of a class begins as the left side of a rule does: most do not, which shows without a search.
    fn may_be(&self, classes: &Classes<'_>, rule: &Rule, class: Id) -> bool {
        let Some(root) = rule.operations.last() else { return false };
        let holds = |(&input, mark): (&Id, &u128)| {
            self.marks[usize::from(classes.find(input))] & mark == *mark
        };
        let begins = |term: &Term| {
            term.operation == *root && term.inputs.iter().zip(&rule.input_marks).all(holds)
        };
        rule.input_marks.iter().all(|&mark| mark == 0) || classes[class].nodes.iter().any(begins)
    }
}

/// One of 128 bits for an operation. Where two share theirs, a search is made that finds nothing.
pub(super) fn mark(operation: &Operation) -> u128 {
    1 << (FxBuildHasher.hash_one(operation) >> (u64::BITS - 7))
}
