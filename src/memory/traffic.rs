//! How long pages take to a disk and back, how long somebody waited for them, and what reading ahead has gained.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps of a power of two: a time is known within a quarter.
const STEPS: usize = 4;

/// Times of one kind, as counts of those that are about as long as each other.
#[derive(Debug)]
pub(super) struct Times {
    counts: [AtomicU64; 64 * STEPS],
    total_ns: AtomicU64,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; 64 * STEPS], total_ns: AtomicU64::new(0) }
    }
}

impl Times {
    pub(super) fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.counts[step(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns.load(Ordering::Relaxed))
    }

    /// The time that so large a part of all does not pass, at most a quarter too long.
    fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count.load(Ordering::Relaxed);
            seen >= wanted && seen > 0
        });
        at.map_or(Duration::ZERO, |at| Duration::from_nanos(longest(at)))
    }
}

/// The step in which so many nanoseconds are.
fn step(ns: u64) -> usize {
    let power = ns.ilog2() as usize;
    let within = ((u128::from(ns) * STEPS as u128) >> power) as usize - STEPS;
    power * STEPS + within
}

/// The longest time of a step.
fn longest(step: usize) -> u64 {
    let (power, within) = (step / STEPS, step % STEPS);
    let next = (((STEPS + within + 1) as u128) << power).div_ceil(STEPS as u128);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

/// Pages that were asked for before they were wanted.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) asked: AtomicU64,
    /// Those that nobody wanted in the end.
    pub(super) wasted: AtomicU64,
}

/// What passed between memory and the disks of a database.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) written: Times,
    pub(super) read: Times,
    /// How long readers waited for pages that were not there yet.
    pub(super) waited: Times,
    pub(super) ahead: Ahead,
}

/// What passed between memory and the disks, as figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrafficUsage {
    pub(crate) pages_written: u64,
    pub(crate) pages_read: u64,
    /// 99 of 100 pages took no longer.
    pub(crate) write_p99: Duration,
    pub(crate) read_p99: Duration,
    /// Of the time that reading took, the share that no reader waited.
    pub(crate) hidden: f64,
    /// Pages that were asked for before they were wanted, and those of them that nobody wanted in the end.
    pub(crate) asked_ahead: u64,
    pub(crate) wasted: u64,
}

impl Traffic {
    pub(super) fn usage(&self) -> TrafficUsage {
        let (read, waited) = (self.read.total().as_secs_f64(), self.waited.total().as_secs_f64());
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        TrafficUsage {
            pages_written: self.written.count(),
            pages_read: self.read.count(),
            write_p99: self.written.quantile(0.99),
            read_p99: self.read.quantile(0.99),
            hidden: if read > 0.0 { (1.0 - waited / read).max(0.0) } else { 1.0 },
            asked_ahead: count(&self.ahead.asked),
            wasted: count(&self.ahead.wasted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_within_a_quarter() {
        for ns in (1..5000).chain([1 << 40, u64::MAX - 1, u64::MAX]) {
            let longest = longest(step(ns));
            assert!(ns <= longest && longest - ns <= ns / 4, "{longest} for {ns}");
        }
    }

    #[test]
    fn quantiles_are_of_all_times() {
        let times = Times::default();
        assert_eq!(times.quantile(0.99), Duration::ZERO);
        (0..99).for_each(|_| times.add(Duration::from_micros(100)));
        times.add(Duration::from_secs(1));
        let near = |time: Duration, micros: u64| {
            let expected = Duration::from_micros(micros);
            expected <= time && time <= expected * 5 / 4
        };
        assert!(near(times.quantile(0.5), 100) && near(times.quantile(0.99), 100));
        assert!(near(times.quantile(1.0), 1_000_000));
        assert_eq!(times.count(), 100);
    }
}
