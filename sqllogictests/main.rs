//! SQL as scripts: our own files under several settings, then public corpora against a table of scores.
//!
//! ```text
//! cargo test --release --test sqllogictests                 own files, and a slice of the corpora
//! cargo test --release --test sqllogictests -- joins        only files whose path holds `joins`
//! cargo test --release --test sqllogictests -- --all        the whole of the corpora: about 8 minutes on two cores
//! cargo test --release --test sqllogictests -- --failures   the same runs, with every failed record
//! cargo test --release --test sqllogictests -- --bless      writes the scores reached to corpora.tsv
//! cargo test --release --test sqllogictests -- --memory=32MB      the corpora under a memory limit, with the same scores
//! cargo test --release --test sqllogictests -- --verify           the corpora with every query asked twice, and all that is remembered compared
//! cargo test --release --test sqllogictests -- --device           own files, by this machine's GPU for whatever it can do
//! ```
//!
//! - `own`: the scripts of this folder, by theme `sql`, `matrix`, `mixed`, `plan`, `spill`, `error`
//! - `corpora`: scripts of other projects, read where they lie; `corpora.tsv` may only rise
//! - `engine`: a connection as the crate `sqllogictest` sees it; a panic is a failed record
//! - `values`: how values are written, which differs between the three kinds of script

mod corpora;
mod engine;
mod own;
#[path = "../tests/standin/built.rs"]
mod standin;
mod values;

use std::num::NonZero;
use std::ops::AddAssign;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use relatrix::{Connection, Result};
use sqllogictest::{MakeConnection, Record, RecordOutput, Runner, parse_with_name};

use crate::engine::{Engine, Expected};
use crate::values::Letter;

/// What the command line asks for.
#[derive(Default)]
pub(crate) struct Options {
    /// Only files whose path contains this.
    filter: Option<String>,
    /// The whole of the corpora rather than a slice.
    all: bool,
    /// Print every failed record rather than the first few.
    failures: bool,
    /// Write the scores reached.
    bless: bool,
    /// The memory limit of the corpora's databases, in bytes.
    memory: Option<usize>,
    /// The corpora alone, with what is remembered compared with what is computed.
    verify: bool,
    /// Only what a GPU does, by that of this machine.
    device: bool,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> std::result::Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--all" => options.all = true,
                "--failures" => options.failures = true,
                "--bless" => options.bless = true,
                "--verify" => options.verify = true,
                "--device" => options.device = true,
                // What cargo passes to every test target of a package at once.
                "--nocapture" | "--include-ignored" | "--quiet" | "-q" => {}
                flag if flag.starts_with("--test-threads") => {}
                flag if flag.starts_with("--memory=") => {
                    options.memory = Some(relatrix::parse_bytes(&flag["--memory=".len()..])?);
                }
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                filter => options.filter = Some(filter.to_string()),
            }
        }
        Ok(options)
    }

    fn selects(&self, path: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| path.contains(filter))
    }
}

/// A row of SHOW MEMORY or SHOW GPU: name, value, unit, description.
type Figure = (String, Option<String>, String, String);

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    // A panic becomes the message of a failed record; its default report would drown ours.
    std::panic::set_hook(Box::new(|_| {}));
    // Own files are compared in each of their runs.
    let own = options.verify || own::run(&options);
    let corpora = options.device || corpora::run(&options);
    if own && corpora { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What came of one script.
#[derive(Default)]
pub(crate) struct Report {
    /// Records that did what the script says.
    passed: usize,
    /// Records that were run; what a label skips is not counted.
    total: usize,
    /// One text for each failed record.
    failures: Vec<String>,
    /// Of these, the texts of records whose answers had been remembered as others.
    stale: Vec<String>,
    /// How often something remembered was compared with what was computed.
    compared: Compared,
}

/// What was compared with what had been remembered of it.
#[derive(Default, Clone, Copy)]
pub(crate) struct Compared {
    answers: u64,
    groups: u64,
}

impl Compared {
    /// What a database has counted.
    fn by(connection: &Connection) -> Result<Self> {
        let counts: Vec<Figure> = connection.query("SHOW MEMORY")?.rows()?;
        let count = |name: &str| {
            let (_, value, ..) = counts.iter().find(|figure| figure.0 == name)?;
            value.as_ref()?.parse().ok()
        };
        let count = |name| count(name).expect("SHOW MEMORY counts what was of use");
        Ok(Self { answers: count("cache_hits"), groups: count("cache_reused") })
    }
}

impl AddAssign for Compared {
    fn add_assign(&mut self, other: Self) {
        self.answers += other.answers;
        self.groups += other.groups;
    }
}

impl Report {
    /// A script that could not be run at all.
    fn broken(message: String) -> Self {
        Self { total: 1, failures: vec![message], ..Self::default() }
    }
}

/// Runs a script, going on after a failed record; of its queries, every `step`-th.
pub(crate) fn run_script<M>(
    name: &str,
    script: &str,
    mut runner: Runner<Engine, M>,
    expected: &Expected,
    step: usize,
) -> Report
where
    M: MakeConnection<Conn = Engine>,
{
    let records = match parse_with_name::<Letter>(script, name) {
        Ok(records) => records,
        Err(error) => return Report::broken(error.to_string()),
    };
    let mut report = Report::default();
    let mut queries = 0..;
    for record in records {
        if !matches!(record, Record::Statement { .. } | Record::Query { .. } | Record::Control(_))
            && !matches!(record, Record::HashThreshold { .. })
        {
            continue;
        }
        if matches!(record, Record::Query { .. }) && queries.next().is_some_and(|n| n % step != 0) {
            continue;
        }
        expected.announce(&record);
        match runner.run(record) {
            Ok(RecordOutput::Nothing) => {}
            Ok(_) => {
                report.passed += 1;
                report.total += 1;
            }
            Err(error) => {
                report.total += 1;
                let text = error.display(false).to_string();
                if text.contains(engine::STALE) {
                    report.stale.push(text.clone());
                }
                report.failures.push(text);
            }
        }
    }
    report
}

/// Does `work` for each item on as many threads as there are cores; the results keep the items' order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some(item) = items.get(index)
                {
                    let result = work(item);
                    results
                        .lock()
                        .expect("no result is computed under the lock")
                        .push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("every thread has ended");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
