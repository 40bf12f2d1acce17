//! Parts of matrix expressions in the cache of a database, as runs and planning ask for them.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;

use super::{Optimized, Session, locked};
use crate::cache::{About, Cache, Content, Kind, Question, is_worth_it, stale, unlike};
use crate::catalog::{Reads, Scope};
use crate::config::ResultCache;
use crate::error::Result;
use crate::exec::labels::RelationLabels;
use crate::exec::recall::{Fingerprint, Recall, Remembered};
use crate::exec::value::Value;
use crate::planner::has_matrix;
use crate::planner::remembered::Remembering;

/// The cache, for a statement of one session.
struct Parts {
    cache: Arc<Cache>,
    /// The settings that the statement is run under.
    asked_under: Arc<str>,
    seconds_min: f64,
    /// Whether all is computed anew and compared.
    verifies: bool,
    /// Whether the statement is explained and not asked, so that nothing is learnt of it.
    is_explained: bool,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("verifies", &self.verifies).finish_non_exhaustive()
    }
}

impl Parts {
    fn question(&self, part: Fingerprint) -> Question {
        Question::of_part(part.0, Arc::clone(&self.asked_under))
    }

    fn content(&self, part: Fingerprint) -> Option<Content> {
        self.cache.known(&self.question(part))?.content()
    }
}

impl Recall for Parts {
    fn fingerprint(&self, what: &dyn Fn(&mut dyn Hasher)) -> Fingerprint {
        Fingerprint(self.cache.hashes(what))
    }

    fn known(&self, part: Fingerprint) -> Option<Remembered> {
        if self.verifies {
            return None;
        }
        Some(match self.content(part)? {
            Content::Matrices(mut matrices) => Remembered::Value(match matrices.pop() {
                Some(one) if matrices.is_empty() => Value::Matrix(one),
                last => Value::Parts(matrices.into_iter().chain(last).collect()),
            }),
            Content::Labels([rows, columns]) => {
                Remembered::Labels(RelationLabels { rows, columns })
            }
            Content::Rows(_) => return None,
        })
    }

    fn used(&self, part: Fingerprint) {
        if !self.is_explained {
            self.cache.reuse(&self.question(part));
        }
    }

    fn seconds_min(&self) -> f64 {
        self.seconds_min
    }

    fn learn(&self, part: Fingerprint, text: &str, is: Remembered, seconds: f64) -> Result<()> {
        let (kind, content) = match is {
            Remembered::Value(value) => (Kind::Matrix, Content::Matrices(value.into_all())),
            Remembered::Labels(RelationLabels { rows, columns }) => {
                (Kind::Labels, Content::Labels([rows, columns]))
            }
        };
        if self.is_explained || !is_worth_it(seconds, content.memory_bytes(), self.seconds_min) {
            return Ok(());
        }
        match self.content(part) {
            Some(known) if self.verifies => match unlike(&known, &content) {
                None => Ok(()),
                Some(unlike) => Err(stale(text, &unlike)),
            },
            Some(_) => Ok(()),
            None => {
                // What it was made of is in the question.
                let about = About::new(kind, text.to_owned(), Reads::default(), seconds);
                self.cache.keep_all(self.question(part), about, content);
                Ok(())
            }
        }
    }
}

impl Session {
    /// Who remembers what parts of matrix expressions come to; nobody where answers are not remembered.
    pub(super) fn recall(&self, is_explained: bool) -> Option<Arc<dyn Recall>> {
        let (mode, seconds_min) = {
            let settings = locked(&self.settings);
            (settings.result_cache, settings.remembered_seconds_min())
        };
        (mode != ResultCache::Off).then(|| {
            let (cache, asked_under) = (Arc::clone(&self.shared.cache), self.asked_under());
            let verifies = mode == ResultCache::Verify;
            Arc::new(Parts { cache, asked_under, seconds_min, verifies, is_explained }) as _
        })
    }

    /// A plan whose matrix expressions may have parts that are known; the same where it has none.
    pub(super) fn recalling(&self, optimized: Optimized, scope: &Scope) -> Optimized {
        if !has_matrix(&optimized.plan) {
            return optimized;
        }
        // What is explained is not computed, and what is analyzed takes longer than it would.
        let is_explained =
            matches!(optimized.plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let Some((recall, reads)) = self.recall(is_explained).zip(scope.reads()) else {
            return optimized;
        };
        let mut state = SessionState::clone(&optimized.state);
        let remembering = Remembering::new(recall, reads, false);
        state.config_mut().set_extension(Arc::new(remembering));
        Optimized { state: Arc::new(state), ..optimized }
    }
}
