//! Where rules may find what they have not found before: in classes that have changed, and above them as far as a rule looks down.
//!
//! Everything else was found in an earlier round, and applied or refused. Most rounds change little, and to look everywhere
//! again would take most of the time of planning.

use std::collections::HashMap;

use egg::{ENodeOrVar, Id, SearchMatches, Searcher};

use super::Classes;
use super::notation::Rule;
use super::term::Term;

/// How far above a change each class is.
pub(super) struct Changes {
    /// Steps from a class down to the nearest that has changed, where there is one that rules look at.
    steps: HashMap<Id, usize>,
}

impl Changes {
    /// Those since this was last called, as far up as these rules look down.
    pub(super) fn take<'r>(
        classes: &mut Classes<'_>,
        rules: impl Iterator<Item = &'r Rule>,
    ) -> Self {
        let depth_max = rules.map(|rule| rule.depth).max().unwrap_or(0);
        let changed = std::mem::take(&mut classes.analysis.changed);
        let mut near: Vec<Id> = changed.into_iter().map(|class| classes.find(class)).collect();
        let mut steps: HashMap<Id, usize> = near.iter().map(|&class| (class, 0)).collect();
        for step in 1..=depth_max {
            let above = near.iter().flat_map(|&class| classes[class].parents());
            let above: Vec<Id> = above.map(|parent| classes.find(parent)).collect();
            near.clear();
            for class in above {
                steps.entry(class).or_insert_with(|| {
                    near.push(class);
                    step
                });
            }
        }
        Self { steps }
    }

    /// What the left side of a rule matches for the first time.
    pub(super) fn matches<'r>(
        &self,
        classes: &Classes<'_>,
        rule: &'r Rule,
    ) -> Vec<SearchMatches<'r, Term>> {
        let Some(ENodeOrVar::ENode(root)) = rule.left.ast.last() else { return Vec::new() };
        let of_root = classes.classes_for_op(&root.operation);
        let may_be_new = |class: &Id| self.steps.get(class).is_some_and(|&it| it <= rule.depth);
        let searched = of_root.into_iter().flatten().filter(may_be_new);
        searched.filter_map(|class| rule.left.search_eclass(classes, class)).collect()
    }
}
