//! What is known of sets of relations: of few relations there is a place for each set, of many only those that were met are kept.

use rustc_hash::FxHashMap;

use super::COMPARED_MAX;
use crate::planner::joins::set::Set;

/// The best that is known for a set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Best {
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Both empty for a single relation.
    pub(super) sides: [Set; 2],
}

/// The best of each set that was met.
pub(super) enum Known {
    Placed(Vec<Option<Best>>),
    Met(FxHashMap<Set, Best>),
}

impl Known {
    /// Nothing yet, of so many relations.
    pub(super) fn new(relations: usize) -> Self {
        match relations <= COMPARED_MAX {
            true => Self::Placed(vec![None; 1 << relations]),
            false => Self::Met(FxHashMap::default()),
        }
    }

    pub(super) fn get(&self, set: Set) -> Option<&Best> {
        match self {
            Self::Placed(all) => all.get(set.place())?.as_ref(),
            Self::Met(all) => all.get(&set),
        }
    }

    pub(super) fn has(&self, set: Set) -> bool {
        self.get(set).is_some()
    }

    pub(super) fn put(&mut self, set: Set, best: Best) {
        match self {
            Self::Placed(all) => all[set.place()] = Some(best),
            Self::Met(all) => drop(all.insert(set, best)),
        }
    }

    /// All sets that were met, in no order.
    pub(super) fn sets(&self) -> Vec<Set> {
        match self {
            Self::Placed(all) => {
                let met = all.iter().enumerate().filter(|(_, best)| best.is_some());
                met.map(|(place, _)| Set::at(place)).collect()
            }
            Self::Met(all) => all.keys().copied().collect(),
        }
    }
}
