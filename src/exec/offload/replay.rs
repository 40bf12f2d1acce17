//! Rounds of an iteration that are recorded once, and then replayed by one call each.
//!
//! Enters: an iteration of which a round has run. Leaves: the value after its last round; or nothing, where rounds are to go on one by
//! one, and then nothing has happened. Not here: how work is recorded (`gpu`).
//!
//! ```text
//! round 1   steps, one by one: kernels are compiled, constants brought and converted
//! graph     variable ─► steps ─► next, which is copied over the variable, and that over the one before it, where somebody
//!              ▲                  │   reads it; then what decides whether it is the last, which the host reads
//!              └──────────────────┘
//! ```
//!
//! A graph has the addresses of the buffers that it was recorded with, so all that a round makes stays for all rounds, and the variable has
//! a place of its own. Rounds in which the host has to see a number, as in decompositions, are not recorded.

use std::sync::Arc;

use super::decompose::taken;
use super::matrix::Matrix;
use super::{Failed, Run};
use crate::config::GpuGraphs;
use crate::exec::program::{Rounds, Step};
use crate::gpu::{Fault, Graph, Rates};

/// What recording takes for each launch, until the graph is ready: tens of microseconds, as others have measured.
const RECORDED_SECONDS: f64 = 50e-6;

/// A round that can be replayed.
struct Recorded {
    graph: Graph,
    /// Where the variable is, before and after.
    variable: Matrix,
    /// The number by which the host knows the last round.
    decides: Option<Matrix>,
}

/// What a round is like that has run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    /// Rounds so far.
    pub(super) done: usize,
    /// Kernels and products of this one.
    pub(super) launches: u64,
}

impl Run<'_> {
    /// Whether the rounds that are left are to be recorded.
    pub(super) fn is_worth_recording(&self, rounds: &Rounds, last: &Matrix, ran: Ran) -> bool {
        let left = rounds.iteration.times.map(|times| times - ran.done);
        if left == Some(0) || !is_recordable(rounds) {
            return false;
        }
        match self.graphs {
            GpuGraphs::Off => false,
            GpuGraphs::Force => true,
            GpuGraphs::Auto => {
                // As many are to come as have come, where nobody knows.
                let guessed = rounds.until.is_some().then_some(ran.done);
                let left = left.into_iter().chain(guessed).min().unwrap_or(ran.done);
                let copies = 1 + usize::from(rounds.prior.is_some());
                pays(left, ran.launches, copies * last.bytes(), self.queue.device.rates())
            }
        }
    }

    /// The value after the last round, of which all that are left are replayed; none where they could not be recorded.
    pub(super) fn replayed(
        &mut self,
        rounds: &Rounds,
        [last, prior]: [&Matrix; 2],
        mut done: usize,
    ) -> Result<Option<Matrix>, Failed> {
        let held = self.held.clone();
        let Recorded { graph, variable, decides } = match self.recorded(rounds, [last, prior]) {
            Ok(recorded) => recorded,
            Err(failed @ (Failed::Stopped(_) | Failed::Device(Fault::Lost { .. }))) => {
                return Err(failed);
            }
            Err(_) => {
                self.held = held;
                self.queue.device.note_unrecorded();
                return Ok(None);
            }
        };
        drop(held);
        while rounds.iteration.times.is_none_or(|times| done < times) {
            self.queue.cancel.check().map_err(Failed::Stopped)?;
            self.queue.stream.replay(&graph)?;
            done += 1;
            if let Some(decides) = &decides
                && self.queue.download(decides)?.cell(0, 0) != 0.0
            {
                break;
            }
        }
        Ok(Some(variable))
    }

    fn recorded(
        &mut self,
        rounds: &Rounds,
        [last, prior]: [&Matrix; 2],
    ) -> Result<Recorded, Failed> {
        let variable = self.queue.own(last)?;
        let before = rounds.prior.map(|_| self.queue.own(prior)).transpose()?;
        self.bind(rounds, &variable, before.as_ref().unwrap_or(&variable));
        let stream = Arc::clone(&self.queue.stream);
        let (decides, graph) = stream.record(|| self.round(rounds, &variable, before.as_ref()))?;
        Ok(Recorded { graph, variable: variable.changed(), decides })
    }

    /// A round from and to the place of the variable, and what decides whether it is the last.
    fn round(
        &mut self,
        rounds: &Rounds,
        variable: &Matrix,
        before: Option<&Matrix>,
    ) -> Result<Option<Matrix>, Failed> {
        self.steps(&rounds.step.steps)?;
        let next = self.matrix(rounds.step.result)?;
        let is_in = |place: &Matrix| Arc::ptr_eq(&next.buffer, &place.buffer);
        let is_alike = (next.shape, next.element) == (variable.shape, variable.element);
        if !is_alike || before.is_some_and(is_in) {
            return Err(Failed::Unfit("a round whose result has no place".into()));
        }
        let stream = &self.queue.stream;
        if let Some(before) = before {
            stream.overwrite(&before.buffer, &variable.buffer)?;
        }
        if !is_in(variable) {
            stream.overwrite(&variable.buffer, &next.buffer)?;
        }
        let Some(until) = &rounds.until else { return Ok(None) };
        self.bind(rounds, &variable.changed(), &before.unwrap_or(variable).changed());
        self.steps(&until.steps)?;
        self.matrix(until.result).map(Some)
    }
}

/// Whether a device runs a round without the host.
fn is_recordable(rounds: &Rounds) -> bool {
    let all = [Some(&rounds.step), rounds.until.as_ref()].into_iter().flatten();
    all.flat_map(|round| &round.steps).all(|step| match step {
        Step::Evaluate { operation, .. } => taken(operation).is_none(),
        Step::Multiply { .. } | Step::Pass(_) | Step::Release(_) => true,
        Step::Part { .. } | Step::Iterate(_) => false,
        Step::Gather { .. } | Step::Align { .. } | Step::Offload(_) => false,
    })
}

/// Whether so many rounds save more than recording takes: a launch each, but for what is copied within the device.
fn pays(rounds: usize, launches: u64, copied_bytes: usize, rates: &Rates) -> bool {
    let launches = launches as f64;
    let copying = 2.0 * copied_bytes as f64 / rates.memory;
    let saved = launches * rates.launch_seconds - copying;
    rounds as f64 * saved > launches * RECORDED_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rounds_of_short_launches_are_recorded() {
        let rates = Rates { launch_seconds: 5e-6, memory: 1e12, ..Rates::default() };
        assert!(pays(11, 6, 0, &rates) && pays(11, 1, 0, &rates));
        assert!(!pays(10, 6, 0, &rates));
        // A state that is large is copied for as long as its round is launched.
        assert!(pays(100, 6, 1_000_000, &rates));
        assert!(!pays(1_000_000, 6, 15_000_000, &rates));
        // What launches nothing has nothing to save.
        assert!(!pays(1_000_000, 0, 8, &rates));
    }
}
