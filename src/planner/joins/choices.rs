//! What rules chose by their estimates, and what they passed over: EXPLAIN shows it, and what was passed over may be run.
//!
//! A rule answers with a plan and has no other way to say anything. So where a statement is explained, or asked again, its settings
//! hold a list to which rules add what they chose; no other statement has one, and pays for none. The list may say of one choice
//! that its runner-up is to be taken: whoever adds that choice is told.
//!
//! All rules run again until the plan stays as it is. A choice that changed the plan for good is made once; whatever else
//! was chosen is chosen anew each time, and the last time counts.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::config_err;
use datafusion::config::ConfigOptions;

use super::enumerate::Tree;
use crate::exec::explain::seconds;

/// Characters beyond which each way has a line of its own.
const LINE_MAX: usize = 120;

/// How many times as long as what was taken a runner-up may be estimated to take that is worth a try.
const TRIED_RATIO_MAX: f64 = 2.0;

/// What takes less, in nanoseconds, is not worth a try.
const TRIED_MIN: f64 = 1e6;

/// The list; see the header of this file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices {
    made: Arc<Mutex<Made>>,
    /// The runner-up that is to be taken.
    instead: Option<Arc<Alternative>>,
}

/// A choice whose runner-up could be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub(crate) of: String,
    pub(crate) taken: String,
    pub(crate) runner_up: String,
}

#[derive(Debug, Default)]
struct Made {
    choices: Vec<Choice>,
    /// Whether the runner-up that was to be taken was met.
    is_met: bool,
    /// The orders of joins before any rule changed them.
    written: Vec<Tree<String>>,
}

/// A choice between ways to come to the same rows.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::planner) struct Choice {
    pub(in crate::planner) of: String,
    pub(in crate::planner) taken: Way,
    /// By what they are called.
    pub(in crate::planner) others: Vec<(&'static str, Way)>,
}

/// One way, and what it is estimated to cost.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::planner) struct Way {
    pub(in crate::planner) text: String,
    pub(in crate::planner) nanoseconds: f64,
    pub(in crate::planner) remark: Option<&'static str>,
    /// Whether it changes the plan for good, so that nobody asks again.
    pub(in crate::planner) is_final: bool,
}

/// What the best of the ways not taken is called.
pub(in crate::planner) const RUNNER_UP: &str = "runner-up";

/// What the best way by cost is called where its runner-up was taken.
const BY_COST: &str = "by cost";

impl Choices {
    /// An empty list, with the runner-up that is to be taken.
    pub(crate) fn taking(instead: Option<Arc<Alternative>>) -> Self {
        Self { made: Arc::default(), instead }
    }

    /// Those of a statement that is explained, or asked again.
    pub(crate) fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get()
    }

    /// To be told by the first of the rules that choose, each time they run.
    pub(super) fn begin(&self) {
        self.made().choices.retain(|choice| choice.taken.is_final);
    }

    /// Forgets all choices, for they are made anew by other costs.
    pub(super) fn forget(&self) {
        self.made().choices.clear();
    }

    /// Adds a choice, which is none where all ways cost the same; whether its runner-up is to be taken.
    pub(in crate::planner) fn add(&self, choice: Choice) -> bool {
        let mut made = self.made();
        let is_met = self.instead.as_ref().is_some_and(|instead| choice.is_of(instead));
        made.is_met |= is_met;
        let choice = if is_met { choice.turned() } else { choice };
        // A plan that has two readers is looked at twice.
        if (is_met || choice.is_one()) && !made.choices.contains(&choice) {
            made.choices.push(choice);
        }
        is_met
    }

    /// The runner-up that is to be taken.
    pub(crate) fn instead(&self) -> Option<Arc<Alternative>> {
        self.instead.clone()
    }

    /// Whether the runner-up that was to be taken was met, if one was.
    pub(crate) fn are_met(&self) -> bool {
        self.instead.is_none() || self.made().is_met
    }

    /// What the dearest choice is estimated to cost, in nanoseconds, and as many runner-ups, the closest first, as might take less.
    pub(crate) fn alternatives(&self, count: usize) -> (f64, Vec<Alternative>) {
        let made = self.made();
        let cost = made.choices.iter().map(Choice::nanoseconds).fold(0.0, f64::max);
        let mut close: Vec<(f64, &Choice, &Way)> = Vec::new();
        for choice in made.choices.iter().filter(|choice| choice.taken.nanoseconds >= TRIED_MIN) {
            let Some(next) = choice.runner_up() else { continue };
            let ratio = next.nanoseconds / choice.taken.nanoseconds;
            if ratio <= TRIED_RATIO_MAX {
                close.push((ratio, choice, next));
            }
        }
        close.sort_by(|one, other| one.0.total_cmp(&other.0));
        let close = close.into_iter().take(count).map(|(_, choice, next)| Alternative {
            of: choice.of.clone(),
            taken: choice.taken.text.clone(),
            runner_up: next.text.clone(),
        });
        (cost, close.collect())
    }

    /// The order in which these relations were written, by their names; this one, where that is asked for the first time.
    pub(super) fn written(&self, found: Tree<String>) -> Tree<String> {
        let sorted = |tree: &Tree<String>| {
            let mut names: Vec<String> = tree.relations().into_iter().cloned().collect();
            names.sort_unstable();
            names
        };
        let names = sorted(&found);
        let mut made = self.made();
        let known = made.written.iter().find(|tree| sorted(tree) == names).cloned();
        known.unwrap_or_else(|| {
            made.written.push(found.clone());
            found
        })
    }

    /// A line for each choice, or some for one of many relations; nothing where there was none.
    pub(crate) fn text(&self) -> Option<String> {
        let lines: Vec<String> = self.made().choices.iter().map(Choice::to_string).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Choice {
    pub(in crate::planner) fn new(
        of: impl Into<String>,
        taken: Way,
        others: Vec<(&'static str, Way)>,
    ) -> Self {
        Self { of: of.into(), taken, others }
    }

    fn is_one(&self) -> bool {
        self.others.iter().any(|(_, other)| other.nanoseconds != self.taken.nanoseconds)
    }

    fn runner_up(&self) -> Option<&Way> {
        let mut others = self.others.iter();
        others.find_map(|(name, way)| (*name == RUNNER_UP).then_some(way))
    }

    /// What the best way by cost is estimated to take.
    fn nanoseconds(&self) -> f64 {
        let mut others = self.others.iter();
        let by_cost = others.find_map(|(name, way)| (*name == BY_COST).then_some(way));
        by_cost.unwrap_or(&self.taken).nanoseconds
    }

    fn is_of(&self, alternative: &Alternative) -> bool {
        let Alternative { of, taken, runner_up } = alternative;
        let is_next = |next: &Way| next.text == *runner_up;
        self.of == *of && self.taken.text == *taken && self.runner_up().is_some_and(is_next)
    }

    /// The same with the runner-up taken.
    fn turned(mut self) -> Self {
        if let Some((name, next)) = self.others.iter_mut().find(|(name, _)| *name == RUNNER_UP) {
            *name = BY_COST;
            std::mem::swap(&mut self.taken, next);
            self.taken.remark = Some("by measured times");
            next.remark = None;
        }
        self
    }
}

impl Way {
    pub(in crate::planner) fn new(text: impl Into<String>, nanoseconds: f64) -> Self {
        Self { text: text.into(), nanoseconds, remark: None, is_final: false }
    }

    /// The same, which changes the plan for good.
    pub(in crate::planner) fn for_good(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// The same beside a way that was taken though it may cost a little more.
    pub(in crate::planner) fn beside(self, taken_nanoseconds: f64) -> Self {
        let is_cheaper = self.nanoseconds < taken_nanoseconds;
        Self { remark: is_cheaper.then_some("which saves too little"), ..self }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![format!("{}: {}", self.of, self.taken)];
        parts.extend(self.others.iter().map(|(name, way)| format!("{name} {way}")));
        let line = parts.join("; ");
        let is_long = line.chars().count() > LINE_MAX;
        f.write_str(&if is_long { parts.join("\n  ") } else { line })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.text, seconds(self.nanoseconds * 1e-9))?;
        self.remark.map_or(Ok(()), |remark| write!(f, ", {remark}"))
    }
}

impl ConfigExtension for Choices {
    const PREFIX: &'static str = "relatrix_choices";
}

impl ExtensionOptions for Choices {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> datafusion::error::Result<()> {
        config_err!("there is no setting relatrix_choices.{key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
