//! Parts of some work, each by a thread of its own.
//!
//! For whoever holds up others that wait for it, on a thread of the executor: the rayon pool may wait for just these.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Rows for each thread, at least: to begin one takes as long as some thousands of them.
pub const THREAD_ROWS_MIN: usize = 1 << 16;

/// What parts come to, in their order, by as many threads as there are parts, of which one is who asks. Where the system refuses
/// a thread, the others do its part.
pub fn in_parallel<P: Send, R: Send>(parts: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    let others = 1..parts.len();
    let left = Mutex::new(parts.into_iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let mut done = Vec::new();
        while let Some((at, part)) = next() {
            done.push((at, work(part)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let begin = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let running: Vec<_> = others.filter_map(begin).collect();
        let mut done = run();
        for thread in running {
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::current;

    use super::*;

    #[test]
    fn parts_are_in_their_order_by_a_thread_each_and_one_is_here() {
        // None ends before all have begun.
        let all_run = Barrier::new(5);
        let work = |part| {
            all_run.wait();
            (part * 2, current().id())
        };
        let done = in_parallel((0..5).collect(), work);
        assert!(done.iter().map(|of| of.0).eq((0..5).map(|part| part * 2)));
        assert_eq!(done.iter().filter(|of| of.1 == current().id()).count(), 1);
        assert_eq!(in_parallel(vec![()], |()| current().id()), [current().id()]);
        assert!(in_parallel(Vec::<()>::new(), |()| ()).is_empty());
    }

    #[test]
    #[should_panic(expected = "of a part")]
    fn a_panic_of_a_part_is_one_here() {
        in_parallel(vec![1, 2], |part| assert_eq!(part, 1, "of a part"));
    }
}
