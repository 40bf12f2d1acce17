//! What a session knows of the queries that it was asked last.

use std::collections::HashMap;

use crate::cache::Question;

/// So many queries are known; a plan takes some tens of KiB.
const KNOWN_MAX: usize = 64;

/// Something about each of some queries; who was asked for longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct Recent<T> {
    known: HashMap<Question, (T, u64)>,
    /// Counts questions.
    clock: u64,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), clock: 0 }
    }
}

impl<T: Clone> Recent<T> {
    pub(super) fn get(&mut self, query: &Question) -> Option<T> {
        self.clock += 1;
        let (known, used) = self.known.get_mut(query)?;
        *used = self.clock;
        Some(known.clone())
    }

    pub(super) fn keep(&mut self, query: Question, known: T) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&query) {
            let oldest = self.known.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(query, _)| query.clone()) {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(query, (known, self.clock));
    }
}
