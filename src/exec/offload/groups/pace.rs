//! How many stretches of rows come at a time: as few as keep the busier of the host and the link at work nine tenths of the time.
//!
//! The first batch is the smallest, for nobody has anything to do before it is there. What a batch takes beside its rows, as threads and
//! calls, is the less of the whole the more rows it has: so batches become twice as large while neither side is busy, and go back where
//! that was of no use.

/// Share of the time that one side is to be at work.
const BUSY_MIN: f64 = 0.9;

/// How large the next batch is, and what is known of those before it.
#[derive(Debug)]
pub(super) struct Pace {
    stretches: usize,
    most: usize,
    /// How busy it was with batches half as large, while larger ones are tried.
    before: Option<f64>,
    is_settled: bool,
    pub(super) log: Log,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) batches: usize,
    /// Rows of the largest.
    pub(crate) rows_max: usize,
    /// Seconds that the busier side was at work, and all.
    busy_seconds: f64,
    seconds: f64,
}

impl Log {
    /// Share of the time that the busier side was at work, in percent.
    pub(crate) fn busy_percent(&self) -> usize {
        match self.seconds > 0.0 {
            true => (100.0 * self.busy_seconds / self.seconds) as usize,
            false => 0,
        }
    }
}

impl Pace {
    /// Batches of so many stretches at most.
    pub(super) fn new(most: usize) -> Self {
        Self { stretches: 1, most, before: None, is_settled: false, log: Log::default() }
    }

    /// Stretches of the next batch.
    pub(super) fn stretches(&self) -> usize {
        self.stretches
    }

    /// A batch of so many rows took so many seconds, of which the busier side worked so many.
    pub(super) fn took(&mut self, rows: usize, busy_seconds: f64, seconds: f64) {
        self.log.batches += 1;
        self.log.rows_max = self.log.rows_max.max(rows);
        self.log.busy_seconds += busy_seconds;
        self.log.seconds += seconds;
        let busy = busy_seconds / seconds;
        if self.is_settled || busy >= BUSY_MIN {
            return;
        }
        match self.before {
            Some(before) if busy <= before => {
                self.stretches = (self.stretches / 2).max(1);
                self.is_settled = true;
            }
            _ if self.stretches < self.most => {
                self.before = Some(busy);
                self.stretches = (self.stretches * 2).min(self.most);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches whose seconds are those of their rows beside some that each takes.
    fn run(most: usize, beside: f64, batches: usize) -> Pace {
        let mut pace = Pace::new(most);
        for _ in 0..batches {
            let busy = pace.stretches() as f64;
            pace.took(pace.stretches(), busy, busy + beside);
        }
        pace
    }

    #[test]
    fn batches_grow_until_one_side_is_busy() {
        assert_eq!(run(64, 0.05, 10).stretches(), 1);
        assert_eq!(run(64, 1.0, 10).stretches(), 16);
        assert_eq!(run(8, 1.0, 10).stretches(), 8);
        let pace = run(64, 1.0, 3);
        assert_eq!(pace.log.batches, 3);
        assert_eq!(pace.log.rows_max, 4);
        assert_eq!(pace.log.busy_percent(), 70);
    }

    /// Where both sides wait for each other, larger batches do not help.
    #[test]
    fn batches_that_were_of_no_use_are_given_up() {
        let mut pace = Pace::new(64);
        pace.took(1, 0.5, 1.0);
        assert_eq!(pace.stretches(), 2);
        pace.took(2, 0.9, 2.0);
        assert_eq!(pace.stretches(), 1);
        (0..5).for_each(|_| pace.took(1, 0.5, 1.0));
        assert_eq!(pace.stretches(), 1);
    }
}
