//! How far ahead readers of files read: each by what it has waited, all together by what memory leaves.
//!
//! Enters: how long a reader waited for a page. Leaves: how many pages it asks for, and room for their bytes.
//!
//! The reach doubles when a page that was asked for is wanted before it is there, as in Linux's read-ahead (Wu, Xi and
//! Xu, *On the design of a new Linux readahead framework*, SIGOPS Operating Systems Review 42, 2008): of a disk that
//! answers at once one page is read ahead, and eight, or what `read_ahead` says, of one that takes five times as long as the work on a page. A
//! merge reads a hundred files at once: the next page of each is free, and what is further ahead shares one small part
//! of the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A page that takes no longer to come was there, as far as a thread that wakes another can tell.
const LATE_MIN: Duration = Duration::from_micros(50);

/// How many pages ahead one reader asks for.
#[derive(Debug)]
pub(super) struct Reach(usize);

impl Reach {
    /// One page: there is always something to do meanwhile.
    pub(super) fn new() -> Self {
        Self(1)
    }

    pub(super) fn pages(&self) -> usize {
        self.0
    }

    /// Notes how long it was waited for a page that had been asked for; so many are asked for at most.
    pub(super) fn waited(&mut self, time: Duration, most: usize) {
        if time > LATE_MIN {
            self.0 = (self.0 * 2).min(most.max(1));
        }
    }
}

/// Bytes ahead, and how many there may be.
#[derive(Debug, Default)]
pub(super) struct AheadLimit {
    bytes_max: AtomicUsize,
    pages_max: AtomicUsize,
    bytes: AtomicUsize,
}

/// Bytes that may be read ahead, until this is dropped.
#[derive(Debug)]
pub(super) struct AheadBytes {
    limit: Arc<AheadLimit>,
    bytes: usize,
}

impl AheadLimit {
    pub(super) fn set(&self, bytes_max: usize, pages_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.pages_max.store(pages_max, Ordering::Relaxed);
    }

    /// Pages that one reader asks for at most.
    pub(super) fn pages_max(&self) -> usize {
        self.pages_max.load(Ordering::Relaxed)
    }

    /// So many bytes; none where others have them.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<AheadBytes> {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let taken = |held: usize| held.checked_add(bytes).filter(|held| *held <= bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok()?;
        Some(AheadBytes { limit: Arc::clone(self), bytes })
    }
}

impl Drop for AheadBytes {
    fn drop(&mut self) {
        self.limit.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_reads_further_ahead_and_who_never_does_no_further() {
        let mut reach = Reach::new();
        let reaches: Vec<usize> = [0, 40, 60, 0, 1000, 1000, 1000]
            .into_iter()
            .map(|micros| {
                reach.waited(Duration::from_micros(micros), 8);
                reach.pages()
            })
            .collect();
        assert_eq!(reaches, [1, 1, 2, 2, 4, 8, 8]);
        reach.waited(Duration::from_secs(1), 0);
        assert_eq!(reach.pages(), 1);
    }

    #[test]
    fn what_is_let_go_may_be_taken_again() {
        let limit = Arc::new(AheadLimit::default());
        assert!(limit.take(1).is_none());
        limit.set(10, 1);
        let (first, second) = (limit.take(6).unwrap(), limit.take(4).unwrap());
        assert!(limit.take(1).is_none());
        drop(second);
        assert!(limit.take(5).is_none() && limit.take(4).is_some());
        drop(first);
        assert!(limit.take(10).is_some() && limit.take(usize::MAX).is_none());
    }
}
