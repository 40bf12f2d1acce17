//! What parts of expressions come to, for whoever remembers it.
//!
//! Enters: a [`Watch`] made by `planner::remembered`, and the values of a run. Leaves: those that it watches, each with the
//! time that it took. Not here: which parts are worth it (`planner`), and where they are kept (`cache`).

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use super::labels::RelationLabels;
use super::program::Slot;
use super::value::Value;
use crate::error::Result;

/// Tells a part of an expression, and all that it reads, from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(pub(crate) [u64; 2]);

impl Fingerprint {
    /// That of a matrix with a name, whose number no other one has had.
    pub(crate) fn of_matrix(number: u64) -> Self {
        Self([u64::MAX, number])
    }
}

/// What a part comes to.
#[derive(Debug, Clone)]
pub(crate) enum Remembered {
    Value(Value),
    /// Of the rows and the columns of a relation.
    Labels(RelationLabels),
}

/// Who remembers.
pub(crate) trait Recall: fmt::Debug + Send + Sync {
    /// The fingerprint of what is hashed.
    fn fingerprint(&self, what: &dyn Fn(&mut dyn Hasher)) -> Fingerprint;

    /// What is known of a part.
    fn known(&self, part: Fingerprint) -> Option<Remembered>;

    /// Takes note that what was known of a part is used.
    fn used(&self, part: Fingerprint);

    /// Seconds that a part must take to be worth remembering.
    fn seconds_min(&self) -> f64;

    /// What a part, written so, has come to in so many seconds.
    ///
    /// # Errors
    /// Where it is to be compared with what is known, and is something else.
    fn learn(&self, part: Fingerprint, text: &str, is: Remembered, seconds: f64) -> Result<()>;
}

/// The parts of a program that somebody wants to know.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) recall: Arc<dyn Recall>,
    pub(crate) parts: Vec<Watched>,
}

/// A part that is there once a step has run.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) part: Fingerprint,
    pub(crate) what: Made,
    /// The steps that it takes, the one that makes it the last of them.
    pub(crate) steps: Vec<usize>,
}

/// Where a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Value(Slot),
    /// The labels of a relation.
    Labels(usize),
}
