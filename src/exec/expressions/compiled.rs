//! What is compiled once for a query, however many batches it has.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use rustc_hash::FxHashMap;

/// Compiled when it is first asked for: a plan that is only shown, or has no rows, takes nothing.
pub(super) struct Compiled<T> {
    first: LazyLock<Option<T>, Box<dyn FnOnce() -> Option<T> + Send>>,
    /// A copy shares what was compiled, and has scratch memory of its own: threads that share that wait for each other at
    /// every row, and whose it is not takes longer to find some.
    of_threads: Mutex<FxHashMap<ThreadId, Arc<T>>>,
}

impl<T: Clone> Compiled<T> {
    /// What is compiled so, or cannot be.
    pub(super) fn by(compile: impl FnOnce() -> Option<T> + Send + 'static) -> Self {
        Self { first: LazyLock::new(Box::new(compile)), of_threads: Mutex::default() }
    }

    /// The copy of this thread; nothing where it cannot be compiled.
    pub(super) fn own(&self) -> Option<Arc<T>> {
        let first = self.first.as_ref()?;
        let mut of_threads = self.of_threads.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of_threads.entry(thread::current().id());
        Some(Arc::clone(own.or_insert_with(|| Arc::new(first.clone()))))
    }
}

impl<T> fmt::Debug for Compiled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_have_copies_of_what_is_compiled_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let compiled = Compiled::by(move || Some(counted.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(count.load(Ordering::Relaxed), 0);
        let own = || compiled.own().unwrap();
        assert!(Arc::ptr_eq(&own(), &own()));
        let other = thread::scope(|scope| scope.spawn(own).join().unwrap());
        assert!(!Arc::ptr_eq(&own(), &other));
        assert_eq!((count.load(Ordering::Relaxed), *other), (1, 0));
    }

    #[test]
    fn what_cannot_be_compiled_is_tried_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let compiled = Compiled::<u8>::by(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            None
        });
        assert_eq!((compiled.own(), compiled.own()), (None, None));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
