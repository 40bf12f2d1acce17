//! Tasks that make rows: each of their polls has a core of those that cells are computed on too.

use std::any::Any;
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::future::BoxFuture;
use tokio::time::{Sleep, sleep};

use super::cores::{Core, Cores, PATIENCE, Place};

/// A future that is polled while it has a core.
pub(crate) struct OnCore<F> {
    future: F,
    cores: Arc<Cores>,
    place: Option<Arc<Place>>,
    /// Runs while it waits for a core.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<F> OnCore<F> {
    pub(crate) fn new(future: F, cores: &Arc<Cores>) -> Self {
        Self { future, cores: Arc::clone(cores), place: None, patience: None }
    }
}

impl<F> OnCore<F> {
    fn poll_core(&mut self, context: &mut Context<'_>) -> Poll<Core> {
        let Self { cores, place, patience, .. } = self;
        let mut core = cores.poll_one(place, context);
        while core.is_pending() {
            let timer = patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
            ready!(timer.as_mut().poll(context));
            *patience = None;
            core = cores.overdue(place).map_or(Poll::Pending, Poll::Ready);
        }
        *patience = None;
        core
    }
}

impl<F: Future + Unpin> Future for OnCore<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _core = ready!(self.poll_core(context));
        Pin::new(&mut self.future).poll(context)
    }
}

impl<F> Drop for OnCore<F> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.cores.leave(place);
        }
    }
}

thread_local! {
    static CORES: RefCell<Option<Arc<Cores>>> = const { RefCell::new(None) };
}

/// From now on the tasks that DataFusion spawns on this thread have cores of these.
pub(crate) fn spawn_on(cores: &Arc<Cores>) {
    CORES.set(Some(Arc::clone(cores)));
}

/// DataFusion's operators spawn tasks of their own, and have one hook for all of a process. It leaves
/// those of others alone, who spawn on threads of theirs; where another has taken it, the tasks of operators do not wait for cores.
pub(crate) fn follow_spawned_tasks() {
    let _taken = set_join_set_tracer(&Spawned);
}

struct Spawned;

type Output = Box<dyn Any + Send>;

impl JoinSetTracer for Spawned {
    fn trace_future(&self, future: BoxFuture<'static, Output>) -> BoxFuture<'static, Output> {
        match CORES.with_borrow(Clone::clone) {
            Some(cores) => Box::pin(OnCore::new(future, &cores)),
            None => future,
        }
    }

    /// What may block is left alone: it waits more than it works.
    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Output + Send>,
    ) -> Box<dyn FnOnce() -> Output + Send> {
        work
    }
}
