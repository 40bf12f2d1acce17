//! What is known of the queries that were asked last.

use std::collections::HashMap;

use crate::cache::Question;

/// So many queries have plans that are kept, which take some tens of KiB each.
pub(super) const PLANS_MAX: usize = 64;

/// Something about each of at most so many queries; who was asked for longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct Recent<T, const MAX: usize = PLANS_MAX> {
    known: HashMap<Question, (T, u64)>,
    /// Counts questions.
    clock: u64,
}

impl<T, const MAX: usize> Default for Recent<T, MAX> {
    fn default() -> Self {
        Self { known: HashMap::new(), clock: 0 }
    }
}

impl<T: Clone, const MAX: usize> Recent<T, MAX> {
    pub(super) fn get(&mut self, query: &Question) -> Option<T> {
        self.clock += 1;
        let (known, used) = self.known.get_mut(query)?;
        *used = self.clock;
        Some(known.clone())
    }

    pub(super) fn keep(&mut self, query: Question, known: T) {
        if self.known.len() >= MAX && !self.known.contains_key(&query) {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(query, _)| query.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(query, (known, self.clock));
    }

    /// All that is known, of the query that was asked last first.
    pub(super) fn all(&self) -> Vec<T> {
        let mut all: Vec<&(T, u64)> = self.known.values().collect();
        all.sort_by_key(|(_, used)| std::cmp::Reverse(*used));
        all.into_iter().map(|(known, _)| known.clone()).collect()
    }

    pub(super) fn forget_all(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_asked_for_longest_ago_is_forgotten_first() {
        let question = |number: u64| Question::of_part([number, 0], "".into());
        let mut recent = Recent::<u64, 3>::default();
        for number in 0..3 {
            assert_eq!(recent.get(&question(number)), None);
            recent.keep(question(number), number);
        }
        assert_eq!(recent.get(&question(0)), Some(0));
        recent.keep(question(3), 3);
        assert_eq!(recent.get(&question(1)), None);
        assert_eq!(
            [0, 2, 3].map(|number| recent.get(&question(number))),
            [Some(0), Some(2), Some(3)]
        );
        // What is there already takes nobody's place.
        recent.keep(question(2), 7);
        assert_eq!(recent.all().len(), 3);
        assert_eq!(recent.get(&question(2)), Some(7));
    }
}
