//! Parts of some work, each by a thread of its own.
//!
//! For whoever holds up others that wait for it, on a thread of the executor: the rayon pool may wait for just these.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

/// Rows for each thread, at least: to begin one takes as long as some thousands of them.
pub const THREAD_ROWS_MIN: usize = 1 << 16;

/// What parts come to, in their order; where there is one, by who asks.
pub fn in_parallel<P: Send, R: Send>(parts: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    if parts.len() <= 1 {
        return parts.into_iter().map(work).collect();
    }
    thread::scope(|scope| {
        let work = &work;
        let begin = |part| scope.spawn(move || work(part));
        let running: Vec<_> = parts.into_iter().map(begin).collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended.map(|of| of.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[test]
    fn parts_are_in_their_order_and_one_is_here() {
        let doubled = in_parallel((0..9).collect(), |part| (part * 2, current().id()));
        assert!(doubled.iter().map(|of| of.0).eq((0..9).map(|part| part * 2)));
        assert!(doubled.iter().all(|of| of.1 != current().id()));
        assert_eq!(in_parallel(vec![()], |()| current().id()), [current().id()]);
        assert!(in_parallel(Vec::<()>::new(), |()| ()).is_empty());
    }

    #[test]
    #[should_panic(expected = "of a part")]
    fn a_panic_of_a_part_is_one_here() {
        in_parallel(vec![1, 2], |part| assert_eq!(part, 1, "of a part"));
    }
}
