//! Plans within a query that are remembered: those that several places of it read, and whatever is equal to one of them.
//!
//! Where what is remembered is to be verified, what would be taken is compared with what is computed there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;

use super::groups::watch;
use super::remember::Asked;
use super::{Optimized, Session};
use crate::cache::{About, Answer, Kind, Question, Rows};
use crate::catalog::Scope;
use crate::error::Result;
use crate::planner::remembered::{Watch, Within, with_plans};

impl Session {
    /// An optimized query with what is known of plans within, or somebody to watch them where it is run to be answered; and whether
    /// all of it is computed.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn reusing_plans(
        &self,
        optimized: Optimized,
        asked: Option<&Asked>,
        scope: &Scope,
    ) -> Result<(Optimized, bool)> {
        let Some(is_taken) = self.takes_remembered(asked) else { return Ok((optimized, true)) };
        let cache = &self.shared.cache;
        let Some(reads) = scope.reads() else { return Ok((optimized, true)) };
        let Optimized { state, plan } = optimized;
        let mut is_whole = true;
        let mut found: HashMap<Question, (Option<LogicalPlan>, Watch)> = HashMap::new();
        let replaced = with_plans(plan, cache.has(Kind::Plan), |within| {
            let question = cache.part(within.computed(), self.asked_under());
            let (known, watch) = match found.entry(question) {
                Entry::Occupied(place) => place.into_mut(),
                Entry::Vacant(place) => {
                    let question = place.key();
                    let known = self.known_plan(question, scope)?;
                    if known.is_some() && asked.is_some() {
                        cache.reuse(question);
                    }
                    let is_recorded = known.is_none() && within.is_shared;
                    let recording = asked.filter(|_| is_recorded).and_then(|asked| {
                        let reads = reads.only(within.tables())?;
                        let about = About::new(Kind::Plan, asked.text.clone(), reads, 0.0);
                        Some(self.recording(question.clone(), about))
                    });
                    place.insert((known, watch(recording, Vec::new())))
                }
            };
            is_whole &= known.is_none();
            Ok(match known {
                Some(known) if is_taken => Some(within.answered(known.clone())?),
                Some(known) => Some(within.watched(Some(known.clone()), watch.clone())?),
                None if asked.is_some() && within.is_shared => {
                    Some(within.watched(None, watch.clone())?)
                }
                None => None,
            })
        })?;
        Ok((Optimized { state, plan: replaced.data }, is_whole))
    }

    /// The rows of a plan, where what they were made of is as it was.
    fn known_plan(
        &self,
        question: &Question,
        scope: &Scope,
    ) -> datafusion::error::Result<Option<LogicalPlan>> {
        let known = self.shared.cache.known(question);
        let is_current = |known: &Arc<Answer>| {
            scope.growth(&known.about().reads).is_some_and(|growth| growth.is_empty())
        };
        let rows = known.filter(is_current).and_then(|known| known.as_rows());
        rows.map(|Rows { schema, batches }| Within::known(schema, batches)).transpose()
    }
}
