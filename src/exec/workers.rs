//! The threads that cells are computed on.

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::cores::{self, Cores};

/// Threads that steal work from each other, and the cores that they share with rows.
pub(crate) struct Workers {
    pool: ThreadPool,
    cores: Arc<Cores>,
}

impl Workers {
    /// So many threads, each of which begins with this.
    ///
    /// # Errors
    /// Where the operating system refuses threads.
    pub(crate) fn new(
        count: usize,
        begin: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, ThreadPoolBuildError> {
        let cores = Cores::new(count);
        let shared = Arc::clone(&cores);
        let begin = move |_thread| {
            begin();
            cores::compute_on(&shared);
        };
        let pool = ThreadPoolBuilder::new().num_threads(count).start_handler(begin).build()?;
        Ok(Self { pool, cores })
    }

    /// What rows are polled on too.
    pub(crate) fn cores(&self) -> &Arc<Cores> {
        &self.cores
    }

    pub(crate) fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Computes on these threads, while the caller's waits.
    pub(crate) fn compute<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let _all = self.cores.all();
        self.pool.install(|| {
            let result = work();
            cores::lend();
            result
        })
    }

    /// Computes on these threads, while the caller's does something else.
    pub(super) fn compute_beside<R: Send + Default, M>(
        &self,
        work: impl FnOnce() -> R + Send,
        meanwhile: impl FnOnce() -> M,
    ) -> (R, M) {
        let mut computed = R::default();
        let met = self.pool.in_place_scope(|scope| {
            let all = self.cores.all();
            scope.spawn(|_| {
                let _all = all;
                computed = work();
                cores::lend();
            });
            meanwhile()
        });
        (computed, met)
    }

    /// Computes on one of these threads; nobody waits.
    pub(super) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let all = self.cores.all();
        self.pool.spawn(move || {
            let _all = all;
            work();
            cores::lend();
        });
    }
}
