//! How many rows come at a time, and by how many streams: as few of both as keep the link at work nine tenths of the time.
//!
//! The first batches are the smallest, for nobody has anything to do before one is there. What a batch takes beside its rows, as calls, is
//! the less of the whole the more rows it has; and while one stream waits for what the host decodes, another may bring. So while the link
//! is not busy, batches become twice as large, and then there is one more stream, as long as more rows a second come of it. What was of
//! no use is taken back, and not tried again.

/// Share of the time that the link is to be at work.
const BUSY_MIN: f64 = 0.9;

/// By how many times more rows a second a change is of use.
const GAIN_MIN: f64 = 1.05;

/// Streams at first: one brings what has been decoded while the host decodes for the other.
const STREAMS_FIRST: usize = 2;

/// What may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knob {
    Stretches,
    Streams,
}

/// A knob, as it is and may be.
#[derive(Debug, Clone, Copy)]
struct Setting {
    is: usize,
    most: usize,
    /// What it was before the last change.
    was: usize,
}

impl Setting {
    fn new(is: usize, most: usize) -> Self {
        let most = most.max(1);
        Self { is: is.clamp(1, most), most, was: is }
    }

    fn set(&mut self, to: usize) {
        self.was = self.is;
        self.is = to.min(self.most);
    }
}

/// How the next batch comes, and what is known of those before it.
#[derive(Debug)]
pub(super) struct Pace {
    stretches: Setting,
    streams: Setting,
    /// Counts changes: what is taken before one tells nothing of it.
    turn: usize,
    /// Batches of this turn.
    seen: Seen,
    /// The last change, and how many rows a second there were before it.
    tried: Option<(Knob, f64)>,
    pub(super) log: Log,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    batches: usize,
    rows: usize,
    link_seconds: f64,
    seconds: f64,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) batches: usize,
    /// Rows of the largest.
    pub(crate) rows_max: usize,
    /// Streams at most.
    pub(crate) streams: usize,
    /// Seconds that the host and the link were at work, and all.
    busy_seconds: [f64; 2],
    seconds: f64,
}

impl Log {
    /// Share of the time that the busier of host and link was at work, in percent.
    pub(crate) fn busy_percent(&self) -> usize {
        let [host, link] = self.busy_seconds;
        match self.seconds > 0.0 {
            true => (100.0 * host.max(link) / self.seconds) as usize,
            false => 0,
        }
    }
}

impl Pace {
    /// Batches of so many stretches at most, by so many streams.
    pub(super) fn new(stretches_max: usize, streams_max: usize) -> Self {
        Self {
            stretches: Setting::new(1, stretches_max),
            streams: Setting::new(STREAMS_FIRST, streams_max),
            turn: 0,
            seen: Seen::default(),
            tried: None,
            log: Log::default(),
        }
    }

    /// Stretches of the next batch.
    pub(super) fn stretches(&self) -> usize {
        self.stretches.is
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.is
    }

    /// Which a batch is of that is taken now.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// Batches have no room in the host's memory, and are half as large from now on; false where they are the smallest.
    pub(super) fn halve(&mut self) -> bool {
        let is_larger = self.stretches.is > 1;
        self.stretches = Setting::new(self.stretches.is / 2, self.stretches.is / 2);
        self.change(None);
        is_larger
    }

    /// So many streams have room in the host's memory.
    pub(super) fn limit_streams(&mut self, most: usize) {
        self.streams = Setting::new(self.streams.is.min(most), most);
        self.change(None);
    }

    /// A batch of so many rows, taken in a turn, is there so many seconds after the last, in which the host and the link were at work
    /// for so many.
    pub(super) fn took(&mut self, turn: usize, rows: usize, busy: [f64; 2], seconds: f64) {
        self.log.batches += 1;
        self.log.rows_max = self.log.rows_max.max(rows);
        self.log.seconds += seconds;
        self.log.busy_seconds.iter_mut().zip(busy).for_each(|(all, own)| *all += own);
        if turn != self.turn {
            return;
        }
        self.seen.batches += 1;
        self.seen.rows += rows;
        self.seen.link_seconds += busy[1];
        self.seen.seconds += seconds;
        if self.seen.batches >= self.streams.is {
            self.look();
        }
    }

    /// Changes something, or takes it back, by what was seen.
    fn look(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        let rate = seen.rows as f64 / seen.seconds;
        if let Some((knob, before)) = self.tried.take()
            && rate < before * GAIN_MIN
        {
            let setting = self.setting(knob);
            *setting = Setting::new(setting.was, setting.was);
            self.change(None);
            return;
        }
        if seen.link_seconds >= BUSY_MIN * seen.seconds {
            return;
        }
        let knobs = [Knob::Stretches, Knob::Streams];
        let may_grow = |knob: &Knob| {
            let setting = self.get(*knob);
            setting.is < setting.most
        };
        if let Some(knob) = knobs.into_iter().find(may_grow) {
            let is = self.get(knob).is;
            self.setting(knob).set(if knob == Knob::Stretches { 2 * is } else { is + 1 });
            self.change(Some((knob, rate)));
        }
    }

    fn change(&mut self, tried: Option<(Knob, f64)>) {
        self.tried = tried;
        self.seen = Seen::default();
        self.turn += 1;
    }

    fn get(&self, knob: Knob) -> Setting {
        match knob {
            Knob::Stretches => self.stretches,
            Knob::Streams => self.streams,
        }
    }

    fn setting(&mut self, knob: Knob) -> &mut Setting {
        match knob {
            Knob::Stretches => &mut self.stretches,
            Knob::Streams => &mut self.streams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of which each takes the host and the link some seconds a row, and so many beside them; as many are decoded at once
    /// as there are streams.
    struct Model {
        host: f64,
        link: f64,
        beside: f64,
    }

    impl Model {
        fn run(&self, mut pace: Pace, batches: usize) -> Pace {
            for _ in 0..batches {
                let (rows, streams) = (pace.stretches(), pace.streams() as f64);
                let [host, link] = [self.host, self.link].map(|each| each * rows as f64);
                let seconds = ((host + link + self.beside) / streams).max(link);
                pace.took(pace.turn(), rows, [host.min(seconds), link], seconds);
            }
            pace
        }
    }

    #[test]
    fn a_busy_link_is_left_alone() {
        let pace = Model { host: 0.5, link: 1.0, beside: 0.0 }.run(Pace::new(64, 4), 20);
        assert_eq!((pace.stretches(), pace.streams()), (1, 2));
        assert_eq!((pace.log.batches, pace.log.rows_max), (20, 1));
        assert_eq!(pace.log.busy_percent(), 100);
    }

    #[test]
    fn batches_grow_until_the_link_is_busy() {
        let model = Model { host: 0.5, link: 1.0, beside: 4.0 };
        assert_eq!(model.run(Pace::new(64, 4), 60).stretches(), 8);
        let pace = model.run(Pace::new(4, 2), 60);
        assert_eq!((pace.stretches(), pace.streams(), pace.log.rows_max), (4, 2, 4));
    }

    /// A host that decodes for longer than the way takes is none the faster for larger batches.
    #[test]
    fn a_slow_host_gets_more_streams() {
        let model = Model { host: 3.0, link: 1.0, beside: 0.0 };
        let pace = model.run(Pace::new(64, 8), 60);
        assert_eq!((pace.stretches(), pace.streams()), (1, 4));
        assert_eq!(pace.log.rows_max, 2);
        assert_eq!(model.run(Pace::new(64, 3), 60).streams(), 3);
    }

    /// Where all wait for something else, what there was at first is as good.
    #[test]
    fn what_is_of_no_use_is_taken_back() {
        let mut pace = Pace::new(64, 8);
        for _ in 0..40 {
            let rows = pace.stretches();
            pace.took(pace.turn(), rows, [0.2, 0.1], rows as f64);
        }
        assert_eq!((pace.stretches(), pace.streams()), (1, 2));
        assert_eq!((pace.log.rows_max, pace.log.busy_percent()), (2, 19));
    }

    #[test]
    fn batches_of_before_a_change_do_not_count() {
        let mut pace = Pace::new(64, 2);
        let first = pace.turn();
        (0..2).for_each(|_| pace.took(first, 1, [0.5, 0.1], 1.0));
        assert_eq!(pace.stretches(), 2);
        (0..9).for_each(|_| pace.took(first, 1, [0.5, 0.1], 9.0));
        assert_eq!(pace.stretches(), 2);
        let second = pace.turn();
        (0..2).for_each(|_| pace.took(second, 2, [0.5, 0.1], 1.0));
        assert_eq!(pace.stretches(), 4);
    }

    #[test]
    fn the_hosts_memory_is_a_limit() {
        let mut pace = Pace::new(64, 4);
        (0..2).for_each(|_| pace.took(pace.turn(), 1, [0.5, 0.1], 1.0));
        assert!(pace.halve());
        let pace = Model { host: 0.5, link: 1.0, beside: 4.0 }.run(pace, 60);
        assert_eq!(pace.stretches(), 1);
        let mut pace = Pace::new(64, 4);
        assert!(!pace.halve());
        pace.limit_streams(1);
        assert_eq!(pace.streams(), 1);
        let pace = Model { host: 3.0, link: 1.0, beside: 0.0 }.run(pace, 60);
        assert_eq!((pace.stretches(), pace.streams()), (1, 1));
    }
}
