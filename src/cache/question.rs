//! What is asked: equal questions have equal answers, while what they read stays as it is.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{Query, Statement};

use crate::value::{Parameters, Scalars};

/// A query whose names are resolved, or a part of its plan, under some settings.
///
/// Of either only two hashes of its tree are kept, each under a key of its own that nobody knows: a tree takes hundreds
/// of times the memory of most answers, and two that differ have the same hashes once in 2¹²⁸.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    tree: [u64; 2],
    parameters: Scalars,
    /// Those under which it is asked, as a text.
    settings: Arc<str>,
}

impl Question {
    /// What is asked of a part of a matrix expression that has these hashes.
    pub(crate) fn of_part(hashes: [u64; 2], settings: Arc<str>) -> Self {
        Self { tree: hashes, parameters: Scalars::default(), settings }
    }

    /// Whether it is asked under these settings.
    pub(super) fn is_under(&self, settings: &str) -> bool {
        *self.settings == *settings
    }
}

/// What makes questions of statements.
#[derive(Debug, Default)]
pub(super) struct Hashes([RandomState; 2]);

impl Hashes {
    /// What is asked with these values; nothing where one is a matrix, which may be any.
    pub(super) fn question(
        &self,
        query: &Query,
        parameters: &Parameters,
        settings: Arc<str>,
    ) -> Option<Question> {
        let parameters = parameters.all_scalars()?.clone();
        Some(Question { tree: self.of(query), parameters, settings })
    }

    /// What is asked of a part of a plan, in which values stand for all parameters.
    pub(super) fn part(&self, plan: &LogicalPlan, settings: Arc<str>) -> Question {
        Question { tree: self.of(plan), parameters: Scalars::default(), settings }
    }

    /// Those of anything.
    pub(super) fn of_any(&self, what: &dyn Fn(&mut dyn Hasher)) -> [u64; 2] {
        self.0.each_ref().map(|hash| {
            let mut state = hash.build_hasher();
            what(&mut state);
            state.finish()
        })
    }

    fn of(&self, tree: &impl Hash) -> [u64; 2] {
        self.0.each_ref().map(|hash| hash.hash_one(tree))
    }
}

/// The query that a statement is.
pub(crate) fn query_of(statement: &SqlStatement) -> Option<&Query> {
    let SqlStatement::Statement(statement) = statement else { return None };
    let Statement::Query(query) = statement.as_ref() else { return None };
    Some(query)
}
