//! Groups that are remembered, and the first rows of an order: those that a query is about, and those within a query.
//!
//! ```text
//! the query is about one aggregation     what is known of its groups, or somebody who watches them
//! it has aggregations within             what is known of them; else nothing changes, for who is watched is not
//!                                        optimized together with the rest
//! ```

use std::hash::Hasher;
use std::sync::{Arc, Mutex};

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::logical_expr::{Analyze, Explain, LogicalPlan};

use super::remember::Asked;
use super::{Session, locked};
use crate::cache::{About, Answer, Grouped, Kind, Question, RecordedExec};
use crate::catalog::Scope;
use crate::config::ResultCache;
use crate::error::Result;
use crate::planner::remembered::{Finer, Groups, Wanted, Watch};

/// Of fewer rows the first ones are found as quickly as those that are remembered.
const SORTED_ROWS_MIN: usize = 1 << 16;

impl Session {
    /// A query whose groups are remembered, or come from what is remembered of them; the same plan where neither can be. And whether
    /// all of it is computed.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn reusing_groups(
        &self,
        plan: LogicalPlan,
        asked: Option<&Asked>,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        if locked(&self.settings).result_cache != ResultCache::On {
            return Ok((plan, true));
        }
        // What is explained is not computed, and what is analyzed takes longer than it would.
        match plan {
            LogicalPlan::Explain(explain) => {
                let inner = LogicalPlan::clone(&explain.plan);
                let (plan, is_whole) = self.with_groups(inner, None, scope)?;
                let plan = Arc::new(plan);
                Ok((LogicalPlan::Explain(Explain { plan, ..explain }), is_whole))
            }
            LogicalPlan::Analyze(analyze) => {
                let inner = LogicalPlan::clone(&analyze.input);
                let (input, is_whole) = self.with_groups(inner, None, scope)?;
                let input = Arc::new(input);
                Ok((LogicalPlan::Analyze(Analyze { input, ..analyze }), is_whole))
            }
            plan if asked.is_some() => self.with_groups(plan, asked, scope),
            plan => Ok((plan, true)),
        }
    }

    /// The plan of a query, with somebody to watch its groups where it is run to be answered, and whether all is computed.
    fn with_groups(
        &self,
        plan: LogicalPlan,
        asked: Option<&Asked>,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        let Some(reads) = scope.reads() else { return Ok((plan, true)) };
        let rows_min = match locked(&self.settings).remembered_seconds_min() {
            0.0 => 0,
            _ => SORTED_ROWS_MIN,
        };
        let Some(groups) = Groups::of(&plan, rows_min)? else {
            return self.with_groups_within(plan, asked.is_some(), scope);
        };
        let looked_for = self.looked_for(&groups);
        let kind = if groups.are_rows() { Kind::Rows } else { Kind::Groups };
        // What the groups would take without what is known of them.
        let watch = |seconds| {
            let query = asked?.text.clone();
            let grouped = looked_for.wanted.first();
            let grouped = grouped
                .map(|wanted| Grouped { rows: wanted.rows, columns: wanted.columns.clone() });
            let reads = reads.only(groups.tables())?;
            let about = About { grouped, ..About::new(kind, query, reads, seconds) };
            let recording = self.recording(looked_for.question.clone(), about);
            let recording = Mutex::new(Some(recording));
            Some(Watch::new(move |input| match locked(&recording).take() {
                Some(recording) => Arc::new(RecordedExec::new(input, recording)) as _,
                None => input,
            }))
        };
        if let Some(found) =
            self.known_groups(&groups, &looked_for, &watch, asked.is_some(), scope)?
        {
            return Ok((found, false));
        }
        let plan = match watch(0.0) {
            Some(watch) => groups.watched(watch)?,
            None => plan,
        };
        Ok((plan, true))
    }

    /// A query whose aggregations are remembered, as far as they are. `is_run` tells whether that is of use to it.
    fn with_groups_within(
        &self,
        plan: LogicalPlan,
        is_run: bool,
        scope: &Scope,
    ) -> Result<(LogicalPlan, bool)> {
        if !self.shared.cache.has_groups() {
            return Ok((plan, true));
        }
        let mut is_whole = true;
        let replaced = plan.transform_down_with_subqueries(|plan| {
            if !matches!(plan, LogicalPlan::Aggregate(_)) {
                return Ok(Transformed::no(plan));
            }
            let Some(groups) = Groups::of(&plan, usize::MAX)? else {
                return Ok(Transformed::no(plan));
            };
            let looked_for = self.looked_for(&groups);
            Ok(match self.known_groups(&groups, &looked_for, &|_| None, is_run, scope)? {
                Some(found) => {
                    is_whole = false;
                    Transformed::new(found, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(plan),
            })
        });
        Ok((replaced.data()?, is_whole))
    }

    fn looked_for<'g>(&self, groups: &'g Groups) -> LookedFor<'g> {
        let cache = &self.shared.cache;
        let question = cache.part(groups.computed(), self.asked_under());
        LookedFor { question, wanted: groups.wanted(&|what| cache.hashes(what)) }
    }

    /// Groups as they are remembered, or made of what is; nothing where nothing is known of them.
    fn known_groups(
        &self,
        groups: &Groups,
        looked_for: &LookedFor<'_>,
        watch: &dyn Fn(f64) -> Option<Watch>,
        is_run: bool,
        scope: &Scope,
    ) -> Result<Option<LogicalPlan>> {
        let cache = &self.shared.cache;
        let hash = |what: &dyn Fn(&mut dyn Hasher)| cache.hashes(what);
        let answered = |known: &Answer, finer: Option<&Finer>| -> Result<Option<LogicalPlan>> {
            let growth = scope.growth(&known.about().reads);
            let (Some(growth), Some(rows)) = (growth, known.as_rows()) else { return Ok(None) };
            let rows = groups.known(rows.schema, rows.batches, finer)?;
            let watch = || watch(known.about().seconds);
            Ok(match &growth[..] {
                [] if finer.is_some() => Some(groups.rolled_up(rows, watch())?),
                [] => Some(groups.remembered(rows)?),
                [growth] => groups.updated(rows, growth, watch())?,
                _ => None,
            })
        };
        let LookedFor { question, wanted } = looked_for;
        let known = cache.known(question);
        let known = known.map(|known| Ok((question.clone(), known, None)));
        let finer = wanted.iter().flat_map(|wanted| {
            let there = cache.groups_of(wanted.rows, &self.asked_under()).into_iter();
            there.filter_map(|(question, there)| {
                let columns = &there.about().grouped.as_ref()?.columns;
                let finer = wanted.from(columns, &hash).transpose()?;
                Some(finer.map(|finer| (question, there, Some(finer))))
            })
        });
        for known in known.into_iter().chain(finer) {
            let (question, known, finer) = known?;
            let Some(plan) = answered(&known, finer.as_ref())? else { continue };
            if is_run {
                cache.reuse(&question);
            }
            return Ok(Some(plan));
        }
        Ok(None)
    }
}

/// What is looked for of groups: as they are, and as they could be made of others.
struct LookedFor<'g> {
    question: Question,
    wanted: Vec<Wanted<'g>>,
}
