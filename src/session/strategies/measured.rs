//! What the runs of a question took, by the way they were run, and by which way it is run next.
//!
//! ```text
//! way by cost     runs and is measured; once it has been a few times, the closest runner-ups stand beside it
//! runner-up       is tried once after every few runs, stopped at twice the time:
//!                   given up by the first try that takes as long as the runs of the way in use
//!                   in use once some tries take a tenth less (medians)
//! way in use      goes back to the one before if its runs take a tenth more than that one's did
//! ```
//!
//! A runner-up that was given up is not tried again, so that tries have an end, until the question has another estimated cost.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::planner::Alternative;

/// Runner-ups that stand beside the way by cost.
pub(super) const RUNNER_UPS: usize = 3;

/// Runs of which a median is one, and between two tries.
const RUNS_MIN: usize = 3;

/// Runs of a way that are remembered.
const RUNS_KEPT: usize = 7;

/// A way is better than another if it takes so much of its time.
const BETTER: f64 = 0.9;

/// Of the time of the way in use, what a try may take.
const TRY_MAX: f64 = 2.0;

/// What any try may take, for what is quick may wait for others that long.
const TRY_MIN: Duration = Duration::from_millis(10);

/// How many times another estimated cost may be that is taken for the same.
const COST_RATIO_MAX: f64 = 1.25;

/// A question: its ways, and what they took.
#[derive(Debug)]
pub(super) struct Measured {
    query: String,
    /// What is estimated for the way by cost, in nanoseconds, once it is known.
    cost: Option<f64>,
    /// The first is the way by cost.
    ways: Vec<Way>,
    in_use: usize,
    /// The way that was in use before.
    former: Option<usize>,
    /// Runs since the last try.
    since_try: usize,
    is_trying: bool,
}

/// A way to run a question.
#[derive(Debug)]
pub(super) struct Way {
    /// The runner-up that it takes; nothing where all is by cost.
    pub(super) alternative: Option<Arc<Alternative>>,
    /// Of the last runs.
    seconds: VecDeque<f64>,
    pub(super) runs: u64,
    pub(super) state: State,
    /// When it came to this state.
    pub(super) since: SystemTime,
}

/// What is known of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    InUse,
    Waiting,
    /// It was in use, until another was better.
    Replaced,
    /// It took as long once, or saved too little.
    NotBetter,
    /// It took too long, or more memory than there was, or its answer was too large to be kept until its end.
    Stopped,
    /// Its choice does not come up where it is planned.
    NotFound,
}

/// What is next for a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// It is run as it was.
    Run,
    /// It is planned anew, to know its runner-ups.
    Look,
    /// This is tried; it may take so long.
    Try(Arc<Alternative>, Duration),
}

impl Measured {
    /// A question of which nothing is known.
    pub(super) fn new(query: String) -> Self {
        let ways = vec![Way::new(None, State::InUse)];
        Self { query, cost: None, ways, in_use: 0, former: None, since_try: 0, is_trying: false }
    }

    pub(super) fn query(&self) -> &str {
        &self.query
    }

    pub(super) fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// The runner-up that runs take; nothing where all is by cost.
    pub(super) fn in_use(&self) -> Option<&Arc<Alternative>> {
        self.ways[self.in_use].alternative.as_ref()
    }

    /// Whether its runner-ups are known.
    pub(super) fn is_looked_at(&self) -> bool {
        self.cost.is_some()
    }

    /// What is next, where runs that take fewer seconds are not worth a try.
    pub(super) fn next(&mut self, seconds_min: f64) -> Next {
        let way = &self.ways[self.in_use];
        let median = way.median().filter(|median| *median >= seconds_min);
        let Some(median) = median.filter(|_| !self.is_trying) else { return Next::Run };
        if self.cost.is_none() {
            return Next::Look;
        }
        let waiting = self.ways.iter().find(|way| way.state == State::Waiting);
        match waiting.and_then(|way| way.alternative.as_ref()) {
            Some(alternative) if self.since_try >= RUNS_MIN => {
                self.is_trying = true;
                let most = Duration::from_secs_f64(median * TRY_MAX).max(TRY_MIN);
                Next::Try(Arc::clone(alternative), most)
            }
            _ => Next::Run,
        }
    }

    /// Takes note of what the question is estimated to cost, and of its runner-ups: all begins anew where the cost is another.
    pub(super) fn consider(&mut self, cost: f64, runner_ups: Vec<Alternative>) {
        let is_same = |known: f64| cost.max(known) <= cost.min(known) * COST_RATIO_MAX;
        match self.cost {
            Some(known) if is_same(known) => {}
            known => {
                if known.is_some() {
                    *self = Self::new(std::mem::take(&mut self.query));
                }
                self.cost = Some(cost);
                let others = runner_ups.into_iter().map(|one| Some(Arc::new(one)));
                self.ways.extend(others.map(|one| Way::new(one, State::Waiting)));
            }
        }
    }

    /// Takes note of a run of the way that takes this runner-up.
    pub(super) fn ran(&mut self, alternative: Option<&Alternative>, time: Duration) {
        let Some(at) = self.at(alternative).filter(|at| *at == self.in_use) else { return };
        self.ways[at].took(time);
        self.since_try += 1;
        let Some(former) = self.former.filter(|_| self.since_try >= RUNS_MIN) else { return };
        if self.ways[former].is_better_than(&self.ways[at]) {
            self.ways[at].turn(State::NotBetter);
            self.ways[former].turn(State::InUse);
            self.in_use = former;
            self.former = None;
        }
    }

    /// Takes note of a try that came to its end.
    pub(super) fn tried(&mut self, alternative: &Alternative, time: Duration) {
        self.end_try();
        let Some(at) = self.at(Some(alternative)) else { return };
        self.ways[at].took(time);
        let is_slower =
            self.ways[self.in_use].median().is_some_and(|median| time.as_secs_f64() >= median);
        if is_slower {
            self.ways[at].turn(State::NotBetter);
        } else if self.ways[at].runs >= RUNS_MIN as u64 {
            if self.ways[at].is_better_than(&self.ways[self.in_use]) {
                self.ways[self.in_use].turn(State::Replaced);
                self.ways[at].turn(State::InUse);
                self.former = Some(self.in_use);
                self.in_use = at;
            } else {
                self.ways[at].turn(State::NotBetter);
            }
        }
    }

    /// Takes note that a way cannot be run, or not to its end.
    pub(super) fn give_up(&mut self, alternative: &Alternative, state: State) {
        self.end_try();
        let Some(at) = self.at(Some(alternative)) else { return };
        self.ways[at].turn(state);
        if self.in_use == at {
            self.in_use = self.former.take().unwrap_or(0);
            self.ways[self.in_use].turn(State::InUse);
        }
    }

    /// A try has ended, whatever became of it.
    pub(super) fn end_try(&mut self) {
        self.is_trying = false;
        self.since_try = 0;
    }

    fn at(&self, alternative: Option<&Alternative>) -> Option<usize> {
        self.ways.iter().position(|way| way.alternative.as_deref() == alternative)
    }
}

impl Way {
    fn new(alternative: Option<Arc<Alternative>>, state: State) -> Self {
        Self { alternative, seconds: VecDeque::new(), runs: 0, state, since: SystemTime::now() }
    }

    fn took(&mut self, time: Duration) {
        if self.seconds.len() == RUNS_KEPT {
            self.seconds.pop_front();
        }
        self.seconds.push_back(time.as_secs_f64());
        self.runs += 1;
    }

    fn turn(&mut self, state: State) {
        self.state = state;
        self.since = SystemTime::now();
    }

    /// Seconds, the median of the last runs; nothing where they are too few to have one.
    pub(super) fn median(&self) -> Option<f64> {
        let mut seconds: Vec<f64> = self.seconds.iter().copied().collect();
        seconds.sort_by(f64::total_cmp);
        (seconds.len() >= RUNS_MIN).then(|| seconds[seconds.len() / 2])
    }

    /// Seconds of the last run.
    pub(super) fn last(&self) -> Option<f64> {
        self.seconds.back().copied()
    }

    fn is_better_than(&self, other: &Self) -> bool {
        self.median().zip(other.median()).is_some_and(|(own, other)| own <= other * BETTER)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InUse => "in use",
            Self::Waiting => "to be tried",
            Self::Replaced => "replaced",
            Self::NotBetter => "not better",
            Self::Stopped => "stopped",
            Self::NotFound => "not found",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn runner_up(name: &str) -> Alternative {
        Alternative { of: "join order".into(), taken: "a".into(), runner_up: name.into() }
    }

    /// A question with runner-ups, whose runs took 100 ms.
    fn question(runner_ups: &[&str]) -> Measured {
        let mut measured = Measured::new("SELECT 1".to_owned());
        assert_eq!(measured.next(0.005), Next::Run);
        for _ in 0..3 {
            measured.ran(None, 100 * MS);
        }
        assert_eq!(measured.next(0.005), Next::Look);
        measured.consider(1e8, runner_ups.iter().map(|name| runner_up(name)).collect());
        measured
    }

    /// Runs in use until something is tried, at the most often that there is between two tries.
    fn next_try(measured: &mut Measured, time: Duration) -> Option<(Arc<Alternative>, Duration)> {
        for _ in 0..=RUNS_MIN {
            if let Next::Try(alternative, most) = measured.next(0.005) {
                return Some((alternative, most));
            }
            let in_use = measured.in_use().cloned();
            measured.ran(in_use.as_deref(), time);
        }
        None
    }

    #[test]
    fn a_way_that_takes_a_tenth_less_three_times_is_used() {
        let mut measured = question(&["b"]);
        for _ in 0..3 {
            assert_eq!(measured.in_use(), None);
            let (tried, most) = next_try(&mut measured, 100 * MS).unwrap();
            assert_eq!((tried.runner_up.as_str(), most), ("b", 200 * MS));
            // Nobody else tries meanwhile.
            assert_eq!(measured.next(0.005), Next::Run);
            measured.tried(&tried, 90 * MS);
        }
        assert_eq!(measured.in_use().unwrap().runner_up, "b");
        assert_eq!(measured.ways()[0].state, State::Replaced);
        assert_eq!(next_try(&mut measured, 90 * MS), None);
    }

    #[test]
    fn what_takes_as_long_once_or_saves_too_little_is_not_tried_again() {
        let mut measured = question(&["b", "c"]);
        let (b, _) = next_try(&mut measured, 100 * MS).unwrap();
        measured.tried(&b, 100 * MS);
        for _ in 0..3 {
            let (c, _) = next_try(&mut measured, 100 * MS).unwrap();
            assert_eq!(c.runner_up, "c");
            measured.tried(&c, 91 * MS);
        }
        assert_eq!(measured.in_use(), None);
        assert_eq!(
            measured.ways()[1..].iter().map(|way| way.state).collect::<Vec<_>>(),
            [State::NotBetter, State::NotBetter]
        );
        assert_eq!(next_try(&mut measured, 100 * MS), None);
    }

    #[test]
    fn a_way_that_turns_out_slower_gives_way_to_the_one_before() {
        let mut measured = question(&["b"]);
        for _ in 0..3 {
            let (b, _) = next_try(&mut measured, 100 * MS).unwrap();
            measured.tried(&b, 50 * MS);
        }
        let b = measured.in_use().cloned();
        for _ in 0..2 * RUNS_KEPT {
            // What ran before it was in use does not count.
            measured.ran(None, 10 * MS);
            measured.ran(b.as_deref(), 120 * MS);
        }
        assert_eq!(measured.in_use(), None);
        assert_eq!(measured.ways()[1].state, State::NotBetter);
        assert_eq!(next_try(&mut measured, 100 * MS), None);
    }

    #[test]
    fn what_cannot_be_run_is_given_up_even_if_it_is_in_use() {
        let mut measured = question(&["b", "c"]);
        let (b, _) = next_try(&mut measured, 100 * MS).unwrap();
        measured.give_up(&b, State::Stopped);
        for _ in 0..3 {
            let (c, _) = next_try(&mut measured, 100 * MS).unwrap();
            measured.tried(&c, 50 * MS);
        }
        let c = measured.in_use().cloned().unwrap();
        measured.give_up(&c, State::NotFound);
        assert_eq!(measured.in_use(), None);
        assert_eq!(measured.ways()[0].state, State::InUse);
        assert_eq!(measured.ways()[1].state, State::Stopped);
        assert_eq!(measured.ways()[2].state, State::NotFound);
    }

    #[test]
    fn another_cost_begins_anew_and_quick_runs_are_not_looked_at() {
        let mut measured = question(&["b"]);
        let (b, _) = next_try(&mut measured, 100 * MS).unwrap();
        measured.tried(&b, 100 * MS);
        measured.consider(1.2e8, vec![runner_up("c")]);
        assert_eq!(measured.ways()[1].state, State::NotBetter);
        measured.consider(1.3e8, vec![runner_up("c")]);
        let ways: Vec<u64> = measured.ways().iter().map(|way| way.runs).collect();
        assert_eq!((ways, measured.ways()[1].state), (vec![0, 0], State::Waiting));
        let mut quick = Measured::new("SELECT 1".to_owned());
        for _ in 0..9 {
            quick.ran(None, 4 * MS);
            assert_eq!(quick.next(0.005), Next::Run);
        }
        assert_eq!(quick.next(0.004), Next::Look);
    }
}
