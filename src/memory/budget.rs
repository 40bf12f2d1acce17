//! One limit for all that a database holds: what is promised, to whom, and what nobody counted.
//!
//! Enters: requests, of DataFusion's operators and ours, by a [`Share`] for each statement. Leaves: a promise, or a
//! refusal on which the operator spills. Not here: the memory itself.
//!
//! ```text
//!   limit  ≥  reserved  +  uncounted                      +  margin      +  idle
//!             by operators  what the system sees beyond,     batches on     blocks kept for the next
//!             and matrices  where the process is watched     their way      matrix, which give way
//! ```
//!
//! Who can spill leaves room for the others: while less than a quarter is free, it gets no more than an equal part, among
//! the statements that run, and among those of the operators that can spill. So parts grow and shrink with the load.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use datafusion::common::{DataFusionError, resources_datafusion_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, TaskContext};

use super::place::asked_by;
use super::resident::Resident;
use super::watch::Watch;
use super::{Eviction, Pool};

/// Consumers that an error names.
const NAMED_CONSUMERS: usize = 3;

/// So little is never refused: who has no more could not free anything worth its files, and may not be able to.
const NEVER_REFUSED_BYTES: usize = 256 << 10;

/// Operators that hold a few batches for each of their inputs, and have no way to go on with less. An exchange that goes
/// to files may leave its reader waiting for ever (apache/datafusion#24883); a merge of sorted rows fails.
const MUST_HAVE: [&str; 2] = ["RepartitionExec", "SortPreservingMergeExec"];

/// What a budget may promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: usize,
    /// Whether the process is the database's: then the limit holds for all that the system sees of it.
    pub(crate) watched: bool,
    /// Whether it is remembered who asked.
    pub(crate) tracked: bool,
}

impl Limits {
    /// Of an unwatched limit, what is promised: operators count their large buffers only, and the batches on
    /// their way between them come on top. Measured on sorts and joins of several times the limit.
    const COUNTED_SHARE: f64 = 0.7;

    /// Of a watched limit, what is kept for what comes between two looks.
    fn margin(self) -> usize {
        (self.bytes / 8).clamp(2 << 20, 96 << 20)
    }

    /// What may be promised where nothing else is held.
    pub(crate) fn reservable_bytes(self) -> usize {
        self.available(0)
    }

    /// What may be promised beside so many bytes that nobody counted.
    fn available(self, uncounted_bytes: usize) -> usize {
        match self.watched {
            true => self.bytes.saturating_sub(self.margin()).saturating_sub(uncounted_bytes),
            false => (self.bytes as f64 * Self::COUNTED_SHARE) as usize,
        }
    }
}

/// One who holds memory, as `SHOW MEMORY` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// Who asked for it, where that is tracked.
    pub(crate) place: Option<String>,
    pub(crate) bytes: usize,
    pub(crate) peak_bytes: usize,
}

/// What is held of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) limit_bytes: usize,
    pub(crate) reserved_bytes: usize,
    /// The most that was reserved at once.
    pub(crate) peak_bytes: usize,
    /// What the process holds beyond; 0 where it is not watched.
    pub(crate) uncounted_bytes: usize,
    /// Requests that were refused, on most of which an operator spilled.
    pub(crate) refused: u64,
    /// The largest first.
    pub(crate) held: Vec<Held>,
}

/// The memory limit of a database, and who holds what of it.
pub(crate) struct Budget {
    state: Mutex<State>,
    blocks: Arc<Pool>,
    /// Asks whoever allocates to give back what it keeps.
    reclaim: Option<fn()>,
    /// The values that give way to who would be refused.
    eviction: OnceLock<Weak<Eviction>>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    limits: Limits,
    watch: Option<Watch>,
    consumers: HashMap<usize, Consumer>,
    /// Those that have consumers.
    statements: HashMap<u64, Statement>,
    reserved_bytes: usize,
    /// By those that can spill.
    spillable_bytes: usize,
    peak_bytes: usize,
    refused: u64,
}

/// Consumers of a statement, and those of them that can spill.
#[derive(Debug, Default)]
struct Statement {
    consumers: usize,
    spillers: usize,
}

#[derive(Debug)]
struct Consumer {
    name: String,
    place: Option<String>,
    /// Whether it is never refused, but counted; see [`MUST_HAVE`].
    must_have: bool,
    /// Whether it holds half as much again when it spills, which it does not count: an aggregation puts its
    /// groups in order beside the table that they are in (measured on 50 million groups).
    doubles: bool,
    statement: u64,
    can_spill: bool,
    bytes: usize,
    peak_bytes: usize,
}

impl Consumer {
    fn new(consumer: &MemoryConsumer, statement: u64, place: Option<String>) -> Self {
        Self {
            name: consumer.name().to_owned(),
            place,
            must_have: MUST_HAVE.iter().any(|name| consumer.name().starts_with(name)),
            doubles: consumer.name().contains("HashAggregateStream"),
            statement,
            can_spill: consumer.can_spill(),
            bytes: 0,
            peak_bytes: 0,
        }
    }

    /// What so many bytes of its own count for.
    fn counted(&self, bytes: usize) -> usize {
        if self.doubles { bytes.saturating_add(bytes / 2) } else { bytes }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// There is no more.
    Spent,
    /// There is some, for others.
    PartSpent,
}

impl State {
    /// Bytes that may be promised, as far as a look a moment ago tells.
    fn available(&mut self, idle_bytes: usize) -> usize {
        let counted = self.reserved_bytes + idle_bytes;
        let uncounted = self.watch.as_mut().map_or(0, |watch| watch.uncounted(counted));
        self.limits.available(uncounted)
    }

    /// Whether so many bytes more may be promised to a reservation of so many.
    fn admits(&self, id: usize, held: usize, more: usize, available: usize) -> Result<(), Refusal> {
        let consumer = &self.consumers[&id];
        if consumer.must_have || held.saturating_add(more) <= NEVER_REFUSED_BYTES {
            return Ok(());
        }
        let after = consumer.counted(consumer.bytes.saturating_add(more));
        let others = self.reserved_bytes - consumer.counted(consumer.bytes);
        let free = others.checked_add(after).and_then(|reserved| available.checked_sub(reserved));
        let Some(free) = free else { return Err(Refusal::Spent) };
        if !consumer.can_spill || free >= available / 4 {
            return Ok(());
        }
        // Whoever has next to nothing could not spill anything worth its files: a merge of what was spilled, say.
        if held <= NEVER_REFUSED_BYTES && more <= (free + more) / 2 {
            return Ok(());
        }
        let parts = available.saturating_sub(self.reserved_bytes - self.spillable_bytes);
        let own = self.statements.get(&consumer.statement).map_or(1, |own| own.spillers);
        let spilling = self.statements.values().filter(|statement| statement.spillers > 0);
        let of_statement = parts / spilling.count().max(1);
        match after <= of_statement / own.max(1) {
            true => Ok(()),
            false => Err(Refusal::PartSpent),
        }
    }

    /// What may be promised, by a look now, and whether so many bytes more may.
    fn asked_again(
        &mut self,
        id: usize,
        held: usize,
        more: usize,
        idle_bytes: usize,
    ) -> (usize, Result<(), Refusal>) {
        let counted = self.reserved_bytes + idle_bytes;
        let uncounted = self.watch.as_mut().map_or(0, |watch| watch.look_again(counted));
        let available = self.limits.available(uncounted);
        (available, self.admits(id, held, more, available))
    }

    fn add(&mut self, id: usize, more: usize) {
        self.change(id, |bytes| bytes + more);
    }

    fn take(&mut self, id: usize, less: usize) {
        self.change(id, |bytes| bytes - less);
    }

    fn change(&mut self, id: usize, bytes: impl FnOnce(usize) -> usize) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let before = consumer.counted(consumer.bytes);
        consumer.bytes = bytes(consumer.bytes);
        consumer.peak_bytes = consumer.peak_bytes.max(consumer.bytes);
        let after = consumer.counted(consumer.bytes);
        self.reserved_bytes = self.reserved_bytes - before + after;
        if consumer.can_spill {
            self.spillable_bytes = self.spillable_bytes - before + after;
        }
        self.peak_bytes = self.peak_bytes.max(self.reserved_bytes);
    }

    /// All consumers, those of one name as one, the largest first.
    fn held(&self) -> Vec<Held> {
        let mut by_name: HashMap<(&str, Option<&str>), (usize, usize)> = HashMap::new();
        for consumer in self.consumers.values() {
            let key = (consumer.name.as_str(), consumer.place.as_deref());
            let (bytes, peak_bytes) = by_name.entry(key).or_default();
            *bytes += consumer.bytes;
            *peak_bytes += consumer.peak_bytes;
        }
        let held = |((name, place), (bytes, peak_bytes)): ((&str, Option<&str>), _)| Held {
            name: name.to_owned(),
            place: place.map(str::to_owned),
            bytes,
            peak_bytes,
        };
        let mut held: Vec<Held> = by_name.into_iter().map(held).collect();
        held.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
        held
    }
}

impl Budget {
    pub(crate) fn new(limits: Limits, blocks: Arc<Pool>, reclaim: Option<fn()>) -> Arc<Self> {
        let state = State {
            limits,
            watch: watch(limits),
            consumers: HashMap::new(),
            statements: HashMap::new(),
            reserved_bytes: 0,
            spillable_bytes: 0,
            peak_bytes: 0,
            refused: 0,
        };
        let eviction = OnceLock::new();
        Arc::new(Self { state: Mutex::new(state), blocks, reclaim, eviction })
    }

    /// Lets values that are held give way to who would be refused. Of one budget, the values are the same for ever.
    pub(crate) fn evict_from(&self, eviction: &Arc<Eviction>) {
        // Who comes second finds the first there.
        let _ = self.eviction.set(Arc::downgrade(eviction));
    }

    /// What one statement sees of the budget, as DataFusion's memory pool.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<dyn MemoryPool> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let statement = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Share { budget: Arc::clone(self), statement })
    }

    /// Takes new limits; what was promised stays promised.
    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut state = self.state();
        if limits.watched != state.limits.watched {
            state.watch = watch(limits);
        }
        state.limits = limits;
    }

    pub(crate) fn usage(&self) -> Usage {
        let idle_bytes = self.blocks.usage().idle_bytes;
        let mut state = self.state();
        let counted = state.reserved_bytes + idle_bytes;
        Usage {
            limit_bytes: state.limits.bytes,
            reserved_bytes: state.reserved_bytes,
            peak_bytes: state.peak_bytes,
            uncounted_bytes: state.watch.as_mut().map_or(0, |watch| watch.uncounted(counted)),
            refused: state.refused,
            held: state.held(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves to blocks what is not reserved.
    fn leave_room(&self, mut state: MutexGuard<'_, State>) {
        let idle_bytes = self.blocks.usage().idle_bytes;
        let room = state.available(idle_bytes).saturating_sub(state.reserved_bytes);
        drop(state);
        self.blocks.leave(room);
    }

    /// Promises bytes where there are any left.
    fn reserve(&self, reservation: &MemoryReservation, more: usize) -> Result<(), DataFusionError> {
        let id = reservation.consumer().id();
        let idle_bytes = self.blocks.usage().idle_bytes;
        let mut state = self.state();
        let mut available = state.available(idle_bytes);
        let mut admitted = state.admits(id, reservation.size(), more, available);
        if admitted.is_err() && state.watch.is_some() {
            // What was freed may still be with the allocator.
            drop(state);
            if let Some(reclaim) = self.reclaim {
                reclaim();
            }
            state = self.state();
            (available, admitted) = state.asked_again(id, reservation.size(), more, idle_bytes);
        }
        if admitted.is_err()
            && let Some(eviction) = self.eviction.get().and_then(Weak::upgrade)
        {
            drop(state);
            let freed = eviction.give_way(more);
            state = self.state();
            if freed > 0 {
                (available, admitted) = state.asked_again(id, reservation.size(), more, idle_bytes);
            }
        }
        match admitted {
            Ok(()) => {
                state.add(id, more);
                self.leave_room(state);
                Ok(())
            }
            Err(refusal) => {
                state.refused += 1;
                let error = refused(&state, reservation, more, available, refusal);
                self.leave_room(state);
                Err(error)
            }
        }
    }
}

/// Who looks at the process, where the limit is for all of it.
fn watch(limits: Limits) -> Option<Watch> {
    limits.watched.then(|| Watch::begin(Resident::now)).flatten()
}

fn refused(
    state: &State,
    reservation: &MemoryReservation,
    more: usize,
    available: usize,
    refusal: Refusal,
) -> DataFusionError {
    let size = human_readable_size;
    let free = available.saturating_sub(state.reserved_bytes);
    let why = match refusal {
        Refusal::Spent => "",
        Refusal::PartSpent => ", kept for others",
    };
    let held = state.held();
    let named: Vec<String> = held
        .iter()
        .filter(|held| held.bytes > 0)
        .take(NAMED_CONSUMERS)
        .map(|held| format!("{} {}", held.name, size(held.bytes)))
        .collect();
    let held =
        if named.is_empty() { String::new() } else { format!("; held by {}", named.join(", ")) };
    resources_datafusion_err!(
        "{} needs {} more than its {}, and of memory_limit ({}) {} are free{why}{held}",
        reservation.consumer().name(),
        size(more),
        size(reservation.size()),
        size(state.limits.bytes),
        size(free)
    )
}

/// A share of a budget that promises so many bytes.
#[cfg(test)]
pub(crate) fn share_of(bytes: usize) -> Arc<dyn MemoryPool> {
    let whole = (bytes as f64 / Limits::COUNTED_SHARE) as usize;
    let limits = Limits { bytes: whole, watched: false, tracked: false };
    let blocks = super::PoolLimits {
        idle_bytes: 0,
        total_bytes: usize::MAX,
        resident_bytes: usize::MAX,
        poison: false,
    };
    Budget::new(limits, Pool::new(blocks), None).share()
}

/// The environment for one more statement: its own share of the budget, all else as it is.
fn statement_share(environment: &RuntimeEnv) -> Arc<RuntimeEnv> {
    let budget = environment.memory_pool.downcast_ref::<Share>().map(|share| &share.budget);
    let memory_pool =
        budget.map_or_else(|| Arc::clone(&environment.memory_pool), |budget| budget.share());
    Arc::new(RuntimeEnv { memory_pool, ..environment.clone() })
}

/// What one statement's plan runs in: the session's settings, and memory of its own.
pub(crate) fn task(state: &SessionState) -> Arc<TaskContext> {
    let (id, config) = (state.session_id().to_owned(), state.config().clone());
    let runtime = statement_share(state.runtime_env());
    // Operators have the functions that they call; a session has hundreds of them to copy.
    let none = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    Arc::new(TaskContext::new(None, id, config, none.0, none.1, none.2, none.3, runtime))
}

/// The part of one statement in a [`Budget`].
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    statement: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl MemoryPool for Share {
    fn name(&self) -> &str {
        "memory_limit"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let is_tracked = self.budget.state().limits.tracked;
        let entry = Consumer::new(consumer, self.statement, is_tracked.then(asked_by));
        let mut state = self.budget.state();
        state.consumers.insert(consumer.id(), entry);
        let statement = state.statements.entry(self.statement).or_default();
        statement.consumers += 1;
        statement.spillers += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.budget.state();
        state.consumers.remove(&consumer.id());
        if let Some(statement) = state.statements.get_mut(&self.statement) {
            statement.consumers -= 1;
            statement.spillers -= usize::from(consumer.can_spill());
            if statement.consumers == 0 {
                state.statements.remove(&self.statement);
            }
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.budget.state().add(reservation.consumer().id(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.budget.state();
        state.take(reservation.consumer().id(), shrink);
        self.budget.leave_room(state);
    }

    fn try_grow(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
    ) -> datafusion::error::Result<()> {
        self.budget.reserve(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.budget.state().reserved_bytes
    }

    fn memory_limit(&self) -> MemoryLimit {
        // The same whatever others hold, for plans are made by it.
        MemoryLimit::Finite(self.budget.state().limits.reservable_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::memory::{Block, PoolLimits};

    const MIB: usize = 1 << 20;

    /// A budget that promises 70 MiB, and keeps as many bytes of idle blocks.
    fn budget() -> Arc<Budget> {
        let limits = Limits { bytes: 100 * MIB, watched: false, tracked: false };
        let blocks = PoolLimits {
            idle_bytes: 70 * MIB,
            total_bytes: 70 * MIB,
            resident_bytes: usize::MAX,
            poison: false,
        };
        Budget::new(limits, Pool::new(blocks), None)
    }

    fn consumer(name: &str, can_spill: bool, share: &Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(can_spill).register(share)
    }

    #[test]
    fn a_reservation_takes_the_place_of_kept_blocks() {
        let budget = budget();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                budget.blocks.serve_this_thread();
                drop(Block::new(40 * MIB));
            });
        });
        let reservation = consumer("test", false, &budget.share());
        reservation.try_grow(30 * MIB).unwrap();
        assert_eq!(budget.blocks.usage().idle_bytes, 40 * MIB);
        assert!(reservation.try_grow(41 * MIB).is_err());
        reservation.try_grow(MIB).unwrap();
        assert_eq!(budget.blocks.usage().idle_bytes, 0);
        assert_eq!(budget.usage().reserved_bytes, 31 * MIB);
    }

    #[test]
    fn what_is_refused_tells_who_holds_what() {
        let budget = budget();
        let share = budget.share();
        let (sort, join) = (consumer("sort", true, &share), consumer("join", false, &share));
        sort.try_grow(20 * MIB).unwrap();
        let error = join.try_grow(60 * MIB).unwrap_err().to_string();
        assert!(error.contains("join needs 60.0 MB more than its 0.0 B"), "{error}");
        assert!(error.contains("memory_limit (100.0 MB) 50.0 MB are free; held by sort 20.0 MB"));
        assert_eq!((budget.usage().refused, budget.usage().peak_bytes), (1, 20 * MIB));
        drop((sort, join));
        let usage = budget.usage();
        assert_eq!((usage.reserved_bytes, usage.held), (0, Vec::new()));
        let state = budget.state();
        assert_eq!((state.statements.len(), state.spillable_bytes), (0, 0));
    }

    #[test]
    fn one_alone_may_take_most_and_leaves_the_rest_to_newcomers() {
        let budget = budget();
        let share = budget.share();
        let (first, second) = (consumer("first", true, &share), consumer("second", true, &share));
        first.try_grow(52 * MIB).unwrap();
        // Less than a quarter would be free.
        assert!(first.try_grow(MIB).is_err());
        second.try_grow(9 * MIB).unwrap();
        // It stays below its half, and so may go on.
        second.try_grow(9 * MIB).unwrap();
        assert!(second.try_grow(MIB).is_err());
        first.shrink(40 * MIB);
        second.try_grow(20 * MIB).unwrap();
    }

    #[test]
    fn parts_are_equal_among_statements_whatever_their_number_of_operators() {
        let budget = budget();
        let (one, other) = (budget.share(), budget.share());
        let alone = consumer("alone", true, &one);
        let many: Vec<_> = (0..4).map(|_| consumer("one of many", true, &other)).collect();
        for reservation in &many {
            reservation.try_grow(8 * MIB).unwrap();
        }
        alone.try_grow(30 * MIB).unwrap();
        many[0].try_grow(MIB / 2).unwrap();
        assert!(many[0].try_grow(MIB).is_err());
        alone.try_grow(5 * MIB).unwrap();
        assert!(alone.try_grow(MIB).is_err());
        drop((many, other));
        // Now it is alone.
        alone.try_grow(15 * MIB).unwrap();
    }

    #[test]
    fn what_cannot_spill_gets_what_there_is_and_what_must_be_is_counted() {
        let budget = budget();
        let reservation = consumer("must", false, &budget.share());
        reservation.try_grow(69 * MIB).unwrap();
        assert!(reservation.try_grow(2 * MIB).is_err());
        reservation.grow(2 * MIB);
        assert_eq!(budget.usage().reserved_bytes, 71 * MIB);
        reservation.try_grow(0).unwrap_err();
        consumer("small", false, &budget.share()).try_grow(NEVER_REFUSED_BYTES).unwrap();
        budget.set_limits(Limits { bytes: 200 * MIB, watched: false, tracked: false });
        reservation.try_grow(60 * MIB).unwrap();
    }

    #[test]
    fn who_asked_is_remembered_where_that_is_wanted() {
        let budget = budget();
        let reservation = consumer("before", false, &budget.share());
        budget.set_limits(Limits { bytes: 100 * MIB, watched: false, tracked: true });
        let tracked = consumer("after", false, &budget.share());
        let held = budget.usage().held;
        let place = |name: &str| held.iter().find(|held| held.name == name).unwrap().place.clone();
        assert_eq!(place("before"), None);
        assert!(place("after").is_some());
        drop((reservation, tracked));
        assert_eq!(budget.usage().held, []);
    }

    #[test]
    fn a_merge_of_what_was_spilled_begins_beside_a_consumer_that_has_its_part() {
        let budget = budget();
        let share = budget.share();
        let (sort, other) = (consumer("sort", true, &share), consumer("other", true, &share));
        sort.try_grow(50 * MIB).unwrap();
        other.try_grow(MIB).unwrap();
        assert!(sort.try_grow(4 * MIB).is_err());
        let merge = sort.new_empty();
        merge.try_grow(4 * MIB).unwrap();
        assert_eq!(budget.usage().reserved_bytes, 55 * MIB);
    }

    #[test]
    fn exchanges_and_merges_are_counted_and_never_refused() {
        let budget = budget();
        let exchange = consumer("RepartitionExec[0]", true, &budget.share());
        exchange.try_grow(80 * MIB).unwrap();
        let merge = consumer("SortPreservingMergeExec[0]", false, &budget.share());
        merge.try_grow(MIB).unwrap();
        let usage = budget.usage();
        assert_eq!((usage.reserved_bytes, usage.refused), (81 * MIB, 0));
        assert!(consumer("other", true, &budget.share()).try_grow(MIB).is_err());
    }

    #[test]
    fn an_aggregation_counts_for_half_as_much_again() {
        let budget = budget();
        let groups = consumer("FinalHashAggregateStream[0]", true, &budget.share());
        groups.try_grow(30 * MIB + 1).unwrap();
        assert_eq!(budget.usage().reserved_bytes, 45 * MIB + 1);
        assert!(groups.try_grow(20 * MIB).is_err());
        groups.shrink(15 * MIB);
        groups.shrink(15 * MIB + 1);
        assert_eq!(budget.usage().reserved_bytes, 0);
    }

    #[test]
    fn a_watched_limit_counts_what_nobody_counted() {
        thread_local! {
            static PRIVATE_BYTES: Cell<usize> = const { Cell::new(20 * MIB) };
        }
        fn resident() -> Option<Resident> {
            Some(Resident { private_bytes: PRIVATE_BYTES.get(), file_bytes: 0 })
        }
        fn collect() {
            PRIVATE_BYTES.set(PRIVATE_BYTES.get().min(200 * MIB));
        }
        let pool =
            PoolLimits { idle_bytes: 0, total_bytes: 0, resident_bytes: usize::MAX, poison: false };
        let limits = Limits { bytes: 344 * MIB, watched: false, tracked: false };
        let budget = Budget::new(limits, Pool::new(pool), Some(collect));
        budget.set_limits(Limits { watched: true, ..limits });
        budget.state().watch = Watch::begin(resident);
        let reservation = consumer("test", false, &budget.share());
        // 43 of 344 are kept as the margin, and 20 there were before.
        assert!(reservation.try_grow(282 * MIB).is_err());
        reservation.try_grow(100 * MIB).unwrap();
        // Of 260, 160 are uncounted; what the allocator kept, it has given back.
        PRIVATE_BYTES.set(260 * MIB);
        budget.state().watch.as_mut().unwrap().look_again(100 * MIB);
        assert!(reservation.try_grow(102 * MIB).is_err());
        assert_eq!(budget.usage().uncounted_bytes, 100 * MIB);
        PRIVATE_BYTES.set(120 * MIB);
        budget.state().watch.as_mut().unwrap().look_again(100 * MIB);
        reservation.try_grow(180 * MIB).unwrap();
    }
}
