//! What rules chose by their estimates, and what they passed over: EXPLAIN shows it.
//!
//! A rule answers with a plan and has no other way to say anything. So where a statement is explained its settings hold a list
//! to which rules add what they chose; no other statement has one, and pays for none.
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

/// The list; see the header of this file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choices(Arc<Mutex<Made>>);

#[derive(Debug, Default)]
struct Made {
    choices: Vec<Choice>,
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
    /// Whether it changed the plan for good.
    pub(in crate::planner) is_final: bool,
}

/// One way, and what it is estimated to cost.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::planner) struct Way {
    pub(in crate::planner) text: String,
    pub(in crate::planner) nanoseconds: f64,
    pub(in crate::planner) remark: Option<&'static str>,
}

/// What the best of the ways not taken is called.
pub(in crate::planner) const RUNNER_UP: &str = "runner-up";

impl Choices {
    /// Those of a statement that is explained.
    pub(crate) fn of(options: &ConfigOptions) -> Option<&Self> {
        options.extensions.get()
    }

    /// To be told by the first of the rules that choose, each time they run.
    pub(super) fn begin(&self) {
        self.made().choices.retain(|choice| choice.is_final);
    }

    /// Adds a choice, which is none where all ways cost the same.
    pub(in crate::planner) fn add(&self, choice: Choice) {
        let mut made = self.made();
        // A plan that has two readers is looked at twice.
        if choice.is_one() && !made.choices.contains(&choice) {
            made.choices.push(choice);
        }
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Choice {
    /// One that is made anew each time.
    pub(in crate::planner) fn new(
        of: impl Into<String>,
        taken: Way,
        others: Vec<(&'static str, Way)>,
    ) -> Self {
        Self { of: of.into(), taken, others, is_final: false }
    }

    fn is_one(&self) -> bool {
        self.others.iter().any(|(_, other)| other.nanoseconds != self.taken.nanoseconds)
    }
}

impl Way {
    pub(in crate::planner) fn new(text: impl Into<String>, nanoseconds: f64) -> Self {
        Self { text: text.into(), nanoseconds, remark: None }
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
