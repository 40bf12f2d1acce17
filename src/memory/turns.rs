//! How many statements work at once: as many as have a part of the memory that they can work with.
//!
//! Enters: a statement that would begin. Leaves: its [`Turn`], when there is room. A statement whose rows nobody reads
//! at the moment does not work, and so takes nobody's turn: whoever reads one answer may ask for others meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes of the limit for each statement that works: what a sort and a join of small pages need.
const PART_BYTES_MIN: usize = 16 << 20;

/// The turns of a database.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    working: usize,
    most: usize,
}

impl Turns {
    pub(crate) fn new(limit_bytes: usize) -> Arc<Self> {
        let state = State { working: 0, most: Self::most(limit_bytes) };
        Arc::new(Self { state: Mutex::new(state), freed: Notify::new() })
    }

    fn most(limit_bytes: usize) -> usize {
        (limit_bytes / PART_BYTES_MIN).max(1)
    }

    pub(crate) fn set_limit(&self, bytes: usize) {
        self.state().most = Self::most(bytes);
        self.freed.notify_waiters();
    }

    /// Waits until fewer work than may.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Who ends between the look and the wait is heard.
            freed.as_mut().enable();
            if self.begin_if_free() {
                return Turn { turns: Arc::clone(self), works: AtomicBool::new(true) };
            }
            freed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_if_free(&self) -> bool {
        let mut state = self.state();
        let free = state.working < state.most;
        state.working += usize::from(free);
        free
    }
}

/// One statement's turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    works: AtomicBool,
}

impl Turn {
    /// From now on it only waits for its reader.
    pub(crate) fn pause(&self) {
        if self.works.swap(false, Ordering::Relaxed) {
            self.turns.state().working -= 1;
            self.turns.freed.notify_one();
        }
    }

    /// It works again, whether there is room or not: what it holds it holds.
    pub(crate) fn resume(&self) {
        if !self.works.swap(true, Ordering::Relaxed) {
            self.turns.state().working += 1;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pause();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn as_many_work_as_the_limit_has_parts() {
        let turns = Turns::new(2 * PART_BYTES_MIN);
        let (first, second) = (turns.turn().now_or_never().unwrap(), turns.turn().now_or_never());
        let mut third = std::pin::pin!(turns.turn());
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        let third = third.now_or_never().unwrap();
        assert!(turns.turn().now_or_never().is_none());
        turns.set_limit(3 * PART_BYTES_MIN);
        let fourth = turns.turn().now_or_never().unwrap();
        drop((first, third, fourth));
        assert_eq!(turns.state().working, 0);
    }

    #[test]
    fn whoever_waits_for_a_reader_takes_nobodys_turn() {
        let turns = Turns::new(0);
        let first = turns.turn().now_or_never().unwrap();
        assert!(turns.turn().now_or_never().is_none());
        first.pause();
        first.pause();
        let second = turns.turn().now_or_never().unwrap();
        // Both work now, and whoever comes waits for both.
        first.resume();
        first.resume();
        drop(second);
        assert!(turns.turn().now_or_never().is_none());
        drop(first);
        assert!(turns.turn().now_or_never().is_some());
        assert_eq!(turns.state().working, 0);
    }
}
