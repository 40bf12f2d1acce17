//! Answers that are remembered.
//!
//! Enters: a question, and the rows that answered it. Leaves: the same rows for an equal question, while all that was
//! read for them is as it was. Not here: what a statement reads ([`Reads`]), and which statements ask (`session`).
//!
//! ```text
//! Question      a query, the values of its parameters, the settings that it is asked under
//! Cache         questions and their answers: which are worth their bytes
//! Answer        what is remembered of a question, in memory or in files when memory gets short
//! Content       rows, matrices or labels
//! Durable       answers of queries over files and views of them, in files that outlive the process
//! Recording     the rows of a run on their way to its reader, to be kept
//! RecordedExec  the rows of an operator within a run, likewise
//! Comparison    the rows of a run, compared with what is remembered
//! ComparedExec  the rows of an operator within a run, likewise
//! ```
//!
//! A part of a query is a question too: the groups that it makes (`planner::remembered`) answer others, and those that are
//! asked once there are more rows. So is a part of a matrix expression, whose question names the versions that it reads.

mod answer;
mod compare;
mod compared;
mod content;
mod durable;
mod question;
mod record;
mod recorded;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::LogicalPlan;
use sqlparser::ast::Query;

use crate::anew::Folder;
use crate::catalog::Reads;
use crate::config::CacheLimits;
use crate::memory::{Eviction, Pool, Shelf};
use crate::value::Parameters;

use self::answer::Counted;
pub(crate) use self::answer::{About, Answer, Grouped, Kind};
pub(crate) use self::compare::{Comparison, stale, unlike};
pub(crate) use self::compared::ComparedExec;
pub(crate) use self::content::{Content, Rows};
use self::durable::DurableAnswer;
pub(crate) use self::durable::DurableQuestion;
use self::question::Hashes;
pub(crate) use self::question::{Question, query_of};
pub(crate) use self::record::{Recording, is_worth_it};
pub(crate) use self::recorded::{RecordedExec, Recorder};

/// The answers that a database remembers.
#[derive(Debug)]
pub(crate) struct Cache {
    pool: Arc<dyn MemoryPool>,
    blocks: Arc<Pool>,
    eviction: Arc<Eviction>,
    shelf: Arc<Mutex<Shelf>>,
    durable: RwLock<Option<Arc<Folder>>>,
    hashes: Hashes,
    state: Mutex<State>,
    hits: AtomicU64,
    misses: AtomicU64,
    outdated: AtomicU64,
    reused: AtomicU64,
}

struct State {
    answers: HashMap<Question, Slot>,
    /// Of all answers, wherever they are.
    bytes: usize,
    limits: CacheLimits,
    /// The worth of the last answer that was forgotten: what is used now is worth more than what was used long ago.
    clock: f64,
}

/// An answer, and what it is worth.
struct Slot {
    answer: Arc<Answer>,
    uses: u64,
    worth: f64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

/// What the cache has been good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheUsage {
    /// Of all answers, wherever they are.
    pub(crate) bytes: usize,
    pub(crate) answers: usize,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Answers that were forgotten because what they were made of had changed.
    pub(crate) outdated: u64,
    /// Queries without an answer that were computed from groups, as they were or with those of more rows.
    pub(crate) reused: u64,
}

impl Cache {
    /// One in which nothing is remembered yet. What is in memory is counted here, and cells are in these blocks.
    pub(crate) fn new(
        pool: &Arc<dyn MemoryPool>,
        blocks: &Arc<Pool>,
        eviction: &Arc<Eviction>,
        limits: CacheLimits,
    ) -> Arc<Self> {
        let (answers, clock) = Default::default();
        let state = State { answers, bytes: 0, limits, clock };
        Arc::new(Self {
            pool: Arc::clone(pool),
            blocks: Arc::clone(blocks),
            eviction: Arc::clone(eviction),
            shelf: Arc::default(),
            durable: RwLock::default(),
            hashes: Hashes::default(),
            state: Mutex::new(state),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            outdated: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        })
    }

    /// How much is remembered from now on.
    pub(crate) fn set_limits(&self, limits: CacheLimits) {
        let mut state = self.state();
        state.limits = limits;
        state.make_room(0);
    }

    /// Where answers are from now on that outlive the process; nowhere without a directory.
    pub(crate) fn set_directory(&self, directory: Option<&Path>) {
        let folder = |path: &Path| Arc::new(Folder::new(Some(path.to_owned())));
        let mut durable = self.durable.write().unwrap_or_else(PoisonError::into_inner);
        *durable = directory.map(folder);
    }

    fn durable(&self) -> Option<Arc<Folder>> {
        self.durable.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a query asks, for another process too; nothing where nobody would answer there.
    pub(crate) fn durable_question(
        &self,
        query: &Query,
        parameters: &Parameters,
        settings: &str,
    ) -> Option<DurableQuestion> {
        self.durable()?;
        DurableQuestion::of((query, parameters.all_scalars()?, settings))
    }

    /// The answer of another process to a question, which becomes one of this. `reads` is what it was made of as this
    /// one reads that, if it is as it was.
    pub(crate) fn durable_answer(
        &self,
        question: &Question,
        durable: DurableQuestion,
        reads: impl FnOnce(&[(String, String)]) -> Option<Reads>,
    ) -> Option<Arc<Answer>> {
        let mut now = None;
        let found = DurableAnswer::get(&*self.durable()?, durable, |read| {
            now = reads(read);
            now.is_some()
        })?;
        let DurableAnswer { rows, query, seconds, .. } = found;
        let about = About::new(Kind::Answer, query, now?, seconds);
        self.keep_all(question.clone(), about, Content::Rows(rows));
        let known = self.known(question)?;
        self.state().used(question);
        self.misses.fetch_sub(1, Ordering::Relaxed);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(known)
    }

    /// Writes an answer down for other processes.
    fn write(&self, question: DurableQuestion, answer: &DurableAnswer) {
        if let Some(folder) = self.durable() {
            answer.put(&folder, question, self.state().limits.bytes);
        }
    }

    /// What a query asks with these values under these settings; nothing where a value is a matrix.
    pub(crate) fn question(
        &self,
        query: &Query,
        parameters: &Parameters,
        settings: Arc<str>,
    ) -> Option<Question> {
        self.hashes.question(query, parameters, settings)
    }

    /// The answer to a question, if what it was made of is as it was; else it is forgotten.
    pub(crate) fn answer(
        &self,
        question: &Question,
        is_current: impl Fn(&Reads) -> bool,
    ) -> Option<Arc<Answer>> {
        let known = self.state().answers.get(question).map(|slot| Arc::clone(&slot.answer));
        let Some(answer) = known else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // Files are looked at while nobody waits for the lock.
        let is_current = is_current(&answer.about().reads);
        let mut state = self.state();
        if !is_current {
            let is_it = |slot: &Slot| Arc::ptr_eq(&slot.answer, &answer);
            if state.answers.get(question).is_some_and(is_it) {
                state.forget(question);
            }
            self.outdated.fetch_add(1, Ordering::Relaxed);
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        state.used(question);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }

    /// What is asked of a part of a plan under these settings.
    pub(crate) fn part(&self, plan: &LogicalPlan, settings: Arc<str>) -> Question {
        self.hashes.part(plan, settings)
    }

    /// Whether anything of a kind is remembered.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.state().answers.values().any(|slot| slot.answer.about().kind == kind)
    }

    /// The groups that are remembered of these rows under these settings, those of the fewest first.
    pub(crate) fn groups_of(&self, rows: [u64; 2], settings: &str) -> Vec<(Question, Arc<Answer>)> {
        let state = self.state();
        let is_of_rows = |question: &Question, answer: &Answer| {
            let grouped = answer.about().grouped.as_ref();
            grouped.is_some_and(|grouped| grouped.rows == rows) && question.is_under(settings)
        };
        let all =
            state.answers.iter().filter(|(question, slot)| is_of_rows(question, &slot.answer));
        let mut found: Vec<_> =
            all.map(|(question, slot)| (question.clone(), Arc::clone(&slot.answer))).collect();
        found.sort_by_key(|(_, answer)| answer.rows());
        found
    }

    /// The hashes of a plan or an expression.
    pub(crate) fn hashes(&self, what: &dyn Fn(&mut dyn Hasher)) -> [u64; 2] {
        self.hashes.of_any(what)
    }

    /// What is remembered of a question, whatever has become of what it was made of.
    pub(crate) fn known(&self, question: &Question) -> Option<Arc<Answer>> {
        let mut state = self.state();
        let known = state.answers.get(question).map(|slot| Arc::clone(&slot.answer))?;
        if known.is_gone() {
            state.forget(question);
            return None;
        }
        Some(known)
    }

    /// Takes note that what is known of a question was of use to another.
    pub(crate) fn reuse(&self, question: &Question) {
        self.state().used(question);
        self.reused.fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers what is there as a whole, where there is room.
    pub(crate) fn keep_all(&self, question: Question, about: About, content: Content) {
        let bytes = content.memory_bytes();
        let in_memory = MemoryConsumer::new("remembered answer").register(&self.pool);
        let fits = bytes <= self.answer_bytes_max() && !content.is_away();
        if fits && in_memory.try_grow(bytes).is_ok() {
            let in_memory = match content {
                Content::Matrices(_) => Counted::cells(in_memory, &self.blocks),
                Content::Rows(_) | Content::Labels(_) => Counted::rows(in_memory),
            };
            self.keep(question, Answer::new(about, content, in_memory, &self.shelf));
        }
    }

    /// Bytes that an answer may have.
    fn answer_bytes_max(&self) -> usize {
        self.state().limits.answer_bytes
    }

    /// Remembers the answer to a question, and forgets what is worth least in its place.
    fn keep(&self, question: Question, answer: Answer) {
        let mut state = self.state();
        state.forget(&question);
        if answer.bytes() > state.limits.answer_bytes {
            return;
        }
        state.make_room(answer.bytes());
        let answer = Arc::new(answer);
        self.eviction.add(&answer);
        state.bytes += answer.bytes();
        let worth = state.clock + worth(&answer, 1);
        state.answers.insert(question, Slot { answer, uses: 0, worth });
    }

    pub(crate) fn usage(&self) -> CacheUsage {
        let state = self.state();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheUsage {
            bytes: state.bytes,
            answers: state.answers.len(),
            hits: count(&self.hits),
            misses: count(&self.misses),
            outdated: count(&self.outdated),
            reused: count(&self.reused),
        }
    }

    /// All answers and how often each was used, what is worth most first.
    pub(crate) fn all(&self) -> Vec<(Arc<Answer>, u64)> {
        let state = self.state();
        let mut all: Vec<_> = state.answers.values().collect();
        all.sort_by(|one, other| other.worth.total_cmp(&one.worth));
        all.into_iter().map(|slot| (Arc::clone(&slot.answer), slot.uses)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counts and answers change together, and nothing in between can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used(&mut self, question: &Question) {
        if let Some(slot) = self.answers.get_mut(question) {
            slot.uses += 1;
            slot.worth = self.clock + worth(&slot.answer, slot.uses);
        }
    }

    fn forget(&mut self, question: &Question) {
        if let Some(slot) = self.answers.remove(question) {
            self.bytes -= slot.answer.bytes();
        }
    }

    /// Forgets answers, those that are worth least first, until so many bytes more may be remembered.
    fn make_room(&mut self, more_bytes: usize) {
        let has_room = |state: &Self| state.bytes.saturating_add(more_bytes) <= state.limits.bytes;
        if has_room(self) {
            return;
        }
        let mut all: Vec<(Arc<Answer>, f64)> =
            self.answers.values().map(|slot| (Arc::clone(&slot.answer), slot.worth)).collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut gone = Vec::new();
        for (answer, worth) in all {
            if has_room(self) {
                break;
            }
            self.bytes -= answer.bytes();
            self.clock = worth;
            gone.push(answer);
        }
        self.answers.retain(|_, slot| !gone.iter().any(|gone| Arc::ptr_eq(gone, &slot.answer)));
    }
}

/// Seconds that an answer saves for each of its bytes, as often as it was used (as in Cherkasova, *Improving WWW proxies
/// performance with Greedy-Dual-Size-Frequency caching policy*, HP Laboratories, 1998).
fn worth(answer: &Answer, uses: u64) -> f64 {
    uses as f64 * answer.about().seconds / answer.bytes().max(1) as f64
}

#[cfg(test)]
mod tests;
