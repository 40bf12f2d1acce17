//! Bytes a second at most, for what goes to a disk and comes from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Waits shorter than this are saved up: a thread does not wake more exactly.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A rate that all readers and writers of a database share.
#[derive(Debug)]
pub(super) struct Rate {
    /// Zero is no limit.
    bytes_per_second: AtomicU64,
    /// When what has been asked for will have passed.
    passed: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let passed = Mutex::new(Instant::now());
        Self { bytes_per_second: AtomicU64::new(bytes_per_second), passed }
    }

    pub(super) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Waits until so many bytes more may pass.
    pub(super) fn pass(&self, bytes: usize) {
        let bytes_per_second = self.bytes_per_second.load(Ordering::Relaxed);
        if bytes_per_second == 0 {
            return;
        }
        let wait = self.wait(bytes as f64 / bytes_per_second as f64, Instant::now());
        if wait >= WAIT_MIN {
            thread::sleep(wait);
        }
    }

    /// How long who comes now waits for its turn.
    fn wait(&self, seconds: f64, now: Instant) -> Duration {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*passed).max(now);
        *passed = begin + Duration::from_secs_f64(seconds);
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_waits_for_those_before() {
        let rate = Rate::new(1000);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(rate.wait(0.5, now), Duration::ZERO);
        assert_eq!(rate.wait(0.5, now), Duration::from_millis(500));
        assert_eq!(rate.wait(0.5, now), Duration::from_secs(1));
        assert_eq!(rate.wait(0.5, now + Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let rate = Rate::new(0);
        rate.pass(usize::MAX);
        rate.set(1);
        assert!(rate.wait(0.0, Instant::now() + Duration::from_secs(1)).is_zero());
    }
}
