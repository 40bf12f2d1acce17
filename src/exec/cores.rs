//! The cores that two kinds of threads share: those that rows are polled on, and those that cells are computed on.
//!
//! There are as many threads of each kind as a database may use cores, and no more of both shall work at a time. Rows
//! have a core for a poll, and wait where there is none. Cells have all of them at once, for a computation is cut into
//! as many pieces as there are threads that take one; where rows wait, its threads lend their cores between two tiles:
//!
//! ```text
//! rows   poll poll .... poll ......... poll poll
//! cells            computation ···· computation           each thread, · while it lends its core
//! ```
//!
//! A computation never waits for a core, so it can hold up nobody who waits for it. Work beyond the cores are the polls
//! that are under way when it begins, and one poll every few milliseconds where it has no tiles.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread computes before it lends its core.
const SLICE: Duration = Duration::from_millis(2);

/// How long nobody is given a core before the first who waits goes on without one.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

/// Cores, and who waits for one.
#[derive(Debug)]
pub(crate) struct Cores {
    count: usize,
    /// Cores that nobody has; below zero where a computation has begun and polls are not over yet.
    free: AtomicIsize,
    /// Computations under way.
    computations: AtomicUsize,
    queue: Mutex<Queue>,
    /// Places in the queue, for those who look without a lock.
    waiting: AtomicUsize,
}

/// Who waits, and when a core was last given to one of them.
#[derive(Debug)]
struct Queue {
    places: VecDeque<Arc<Place>>,
    given: Instant,
}

impl Cores {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            count,
            free: AtomicIsize::new(count.cast_signed()),
            computations: AtomicUsize::new(0),
            queue: Mutex::new(Queue { places: VecDeque::new(), given: Instant::now() }),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Takes all cores, until the result is dropped.
    pub(super) fn all(self: &Arc<Self>) -> AllCores {
        if self.computations.fetch_add(1, Ordering::SeqCst) == 0 {
            self.free.fetch_sub(self.count.cast_signed(), Ordering::SeqCst);
        }
        AllCores(Arc::clone(self))
    }

    /// A core, once there is one; until then a place in the queue.
    pub(super) fn poll_one(
        self: &Arc<Self>,
        place: &mut Option<Arc<Place>>,
        context: &Context<'_>,
    ) -> Poll<Core> {
        if place.is_none() {
            if self.waiting.load(Ordering::SeqCst) == 0 && self.take() {
                return Poll::Ready(Core { cores: Arc::clone(self), loan: None });
            }
            let last = Arc::new(Place(Mutex::new(Standing::Waiting(context.waker().clone()))));
            *place = Some(Arc::clone(&last));
            let mut queue = self.queue();
            if queue.places.is_empty() {
                queue.given = Instant::now();
            }
            queue.places.push_back(last);
            self.waiting.store(queue.places.len(), Ordering::SeqCst);
            drop(queue);
            // One may have become free since it was looked for.
            self.admit();
        }
        let Some(loan) = place.as_ref().and_then(|place| place.given(context)) else {
            return Poll::Pending;
        };
        *place = None;
        Poll::Ready(Core { cores: Arc::clone(self), loan })
    }

    /// One more core than there are, for the first in the queue where patience has come to an end.
    pub(super) fn overdue(self: &Arc<Self>, place: &mut Option<Arc<Place>>) -> Option<Core> {
        let mut queue = self.queue();
        let is_first = match (queue.places.front(), &place) {
            (Some(first), Some(place)) => Arc::ptr_eq(first, place),
            _ => false,
        };
        if !is_first || queue.given.elapsed() < PATIENCE {
            return None;
        }
        queue.places.pop_front();
        queue.given = Instant::now();
        self.waiting.store(queue.places.len(), Ordering::SeqCst);
        drop(queue);
        *place = None;
        self.free.fetch_sub(1, Ordering::SeqCst);
        Some(Core { cores: Arc::clone(self), loan: None })
    }

    /// Leaves the queue, or gives back the core that was waited for.
    pub(super) fn leave(self: &Arc<Self>, place: &Arc<Place>) {
        let left = std::mem::replace(&mut *place.standing(), Standing::Gone);
        if let Standing::Given(loan) = left {
            drop(Core { cores: Arc::clone(self), loan });
            return;
        }
        let mut queue = self.queue();
        queue.places.retain(|other| !Arc::ptr_eq(other, place));
        self.waiting.store(queue.places.len(), Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let less = |free: isize| (free > 0).then_some(free - 1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    fn give_back(&self, count: usize) {
        self.free.fetch_add(count.cast_signed(), Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.admit();
        }
    }

    /// Gives free cores to those who wait.
    fn admit(&self) {
        let mut wakers = Vec::new();
        let mut queue = self.queue();
        while !queue.places.is_empty() && self.take() {
            match self.next(&mut queue, None) {
                Some(waker) => wakers.push(waker),
                None => _ = self.free.fetch_add(1, Ordering::SeqCst),
            }
        }
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Gives a core to the first who waits still.
    fn next(&self, queue: &mut Queue, loan: Option<&Arc<Loan>>) -> Option<Waker> {
        let mut places = std::iter::from_fn(|| queue.places.pop_front());
        let waker = places.find_map(|place| place.give(loan));
        queue.given = Instant::now();
        self.waiting.store(queue.places.len(), Ordering::SeqCst);
        waker
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All cores, as long as a computation is under way.
pub(super) struct AllCores(Arc<Cores>);

impl Drop for AllCores {
    fn drop(&mut self) {
        if self.0.computations.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.give_back(self.0.count);
        }
    }
}

/// One core, as long as a poll takes.
pub(super) struct Core {
    cores: Arc<Cores>,
    loan: Option<Arc<Loan>>,
}

impl Drop for Core {
    fn drop(&mut self) {
        match &self.loan {
            Some(loan) => {
                loan.is_over.store(true, Ordering::Release);
                loan.lender.unpark();
            }
            None => self.cores.give_back(1),
        }
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Place(Mutex<Standing>);

#[derive(Debug)]
enum Standing {
    Waiting(Waker),
    /// A core, and whose it is if it is lent.
    Given(Option<Arc<Loan>>),
    Gone,
}

impl Place {
    /// Gives a core to whoever is to be woken, unless nobody waits here any more.
    fn give(&self, loan: Option<&Arc<Loan>>) -> Option<Waker> {
        let mut standing = self.standing();
        if !matches!(*standing, Standing::Waiting(_)) {
            return None;
        }
        match std::mem::replace(&mut *standing, Standing::Given(loan.cloned())) {
            Standing::Waiting(waker) => Some(waker),
            Standing::Given(_) | Standing::Gone => None,
        }
    }

    /// Takes the core that was given, else waits on.
    fn given(&self, context: &Context<'_>) -> Option<Option<Arc<Loan>>> {
        let mut standing = self.standing();
        match &mut *standing {
            Standing::Waiting(waker) => {
                waker.clone_from(context.waker());
                None
            }
            Standing::Given(loan) => {
                let loan = loan.take();
                *standing = Standing::Gone;
                Some(loan)
            }
            Standing::Gone => None,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A core that a computing thread waits to get back.
#[derive(Debug)]
struct Loan {
    lender: Thread,
    is_over: AtomicBool,
}

/// A thread that computes.
struct Lender {
    cores: Arc<Cores>,
    /// When it last got its core back.
    since: Instant,
}

thread_local! {
    static LENDER: RefCell<Option<Lender>> = const { RefCell::new(None) };
}

/// From now on this thread computes cells, and lends its core.
pub(super) fn compute_on(cores: &Arc<Cores>) {
    LENDER.set(Some(Lender { cores: Arc::clone(cores), since: Instant::now() }));
}

/// Lends the core of a computing thread for one poll, if it has computed for a while and rows wait. Between two tiles,
/// where no lock is held.
pub(super) fn lend() {
    LENDER.with_borrow_mut(|lender| {
        let Some(Lender { cores, since }) = lender else { return };
        if cores.waiting.load(Ordering::Relaxed) == 0 || since.elapsed() < SLICE {
            return;
        }
        let loan = Arc::new(Loan { lender: thread::current(), is_over: AtomicBool::new(false) });
        let waker = cores.next(&mut cores.queue(), Some(&loan));
        if let Some(waker) = waker {
            waker.wake();
            while !loan.is_over.load(Ordering::Acquire) {
                thread::park();
            }
        }
        *since = Instant::now();
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;

    use tokio::runtime::Runtime;

    use super::*;
    use crate::exec::Workers;
    use crate::exec::tasks::OnCore;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A task that asks for a core.
    struct Asking {
        cores: Arc<Cores>,
        place: Option<Arc<Place>>,
        woken: Arc<Woken>,
    }

    impl Asking {
        fn new(cores: &Arc<Cores>) -> Self {
            Self { cores: Arc::clone(cores), place: None, woken: Arc::default() }
        }

        fn poll(&mut self) -> Option<Core> {
            let waker = Waker::from(Arc::clone(&self.woken));
            match self.cores.poll_one(&mut self.place, &Context::from_waker(&waker)) {
                Poll::Ready(core) => Some(core),
                Poll::Pending => None,
            }
        }

        fn is_woken(&self) -> bool {
            self.woken.0.load(Ordering::SeqCst) > 0
        }
    }

    fn free(cores: &Cores) -> isize {
        cores.free.load(Ordering::SeqCst)
    }

    #[test]
    fn who_finds_no_core_is_woken_when_there_is_one_in_the_order_of_asking() {
        let cores = Cores::new(1);
        let [mut a, mut b, mut c] = std::array::from_fn(|_| Asking::new(&cores));
        let held = a.poll().unwrap();
        assert!(b.poll().is_none() && c.poll().is_none() && b.poll().is_none());
        drop(held);
        assert!(b.is_woken() && !c.is_woken());
        // Whoever comes now is behind those who wait.
        assert!(a.poll().is_none());
        let held = b.poll().unwrap();
        assert!(c.poll().is_none());
        drop(held);
        drop(c.poll().unwrap());
        drop(a.poll().unwrap());
        assert_eq!(free(&cores), 1);
    }

    #[test]
    fn who_leaves_the_queue_holds_up_nobody() {
        let cores = Cores::new(1);
        let [mut a, mut b, mut c, mut d] = std::array::from_fn(|_| Asking::new(&cores));
        let held = a.poll().unwrap();
        assert!(b.poll().is_none() && c.poll().is_none() && d.poll().is_none());
        cores.leave(b.place.as_ref().unwrap());
        drop(held);
        // It has a core and leaves before it is polled again.
        assert!(c.is_woken() && !d.is_woken());
        cores.leave(c.place.as_ref().unwrap());
        assert!(d.is_woken());
        drop(d.poll().unwrap());
        assert_eq!(free(&cores), 1);
    }

    #[test]
    fn computations_take_all_cores_at_once_and_give_them_back_with_the_last() {
        let cores = Cores::new(2);
        let [mut a, mut b] = std::array::from_fn(|_| Asking::new(&cores));
        let poll = a.poll().unwrap();
        let (first, second) = (cores.all(), cores.all());
        assert_eq!(free(&cores), -1);
        drop(poll);
        assert!(b.poll().is_none());
        drop(first);
        assert!(!b.is_woken());
        drop(second);
        assert!(b.is_woken());
        drop((a.poll().unwrap(), b.poll().unwrap()));
        assert_eq!(free(&cores), 2);
    }

    fn runtime() -> Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_time().build().unwrap()
    }

    #[test]
    fn who_waits_behind_a_computation_without_tiles_goes_on_without_a_core() {
        let cores = Cores::new(2);
        let all = cores.all();
        let tasks: Vec<_> =
            (0..3).map(|i| OnCore::new(Box::pin(async move { i }), &cores)).collect();
        let runtime = runtime();
        let tasks: Vec<_> = tasks.into_iter().map(|task| runtime.spawn(task)).collect();
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(runtime.block_on(task).unwrap(), i);
        }
        assert_eq!(free(&cores), 0);
        drop(all);
        assert_eq!(free(&cores), 2);
        assert!(cores.queue().places.is_empty());
    }

    #[test]
    fn a_computation_that_waits_for_rows_lends_them_its_core() {
        let workers = Workers::new(1, || ()).unwrap();
        let (send, rows) = mpsc::channel();
        let computes = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&computes);
        let task = async move { send.send(seen.load(Ordering::SeqCst)).unwrap() };
        let task = OnCore::new(Box::pin(task), workers.cores());
        let (began, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                has_begun.recv().unwrap();
                runtime().block_on(task);
            });
            // Only the task ends it, and there is one core.
            let computed_meanwhile = workers.compute(move || {
                began.send(()).unwrap();
                loop {
                    computes.store(false, Ordering::SeqCst);
                    lend();
                    computes.store(true, Ordering::SeqCst);
                    (0..1000).for_each(|_| std::hint::spin_loop());
                    if let Ok(seen) = rows.try_recv() {
                        break seen;
                    }
                }
            });
            assert!(!computed_meanwhile);
        });
        assert_eq!(free(workers.cores()), 1);
    }

    #[test]
    fn tasks_and_computations_of_many_threads_leave_all_cores_free() {
        let workers = Workers::new(2, || ()).unwrap();
        let runtime = runtime();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let polls = || async {
                            for _ in 0..20 {
                                tokio::task::yield_now().await;
                            }
                        };
                        let [kept, aborted] = std::array::from_fn(|_| {
                            runtime.spawn(OnCore::new(Box::pin(polls()), workers.cores()))
                        });
                        aborted.abort();
                        workers.compute(|| rayon::join(lend, lend));
                        runtime.block_on(kept).unwrap();
                    }
                });
            }
        });
        drop(runtime);
        assert_eq!(free(workers.cores()), 2);
        assert!(workers.cores().queue().places.is_empty());
    }
}
