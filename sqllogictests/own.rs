//! Our own scripts, `<theme>/**/*.slt` beside this file.
//!
//! Each file runs under every setting below, from a fresh database each time, and must print the same
//! digits: neither threads, nor fusion, nor the size of a tile may change an answer. Paths in a script
//! are relative to the root of the package; `$__TEST_DIR__` (after `control substitution on`) is a
//! fresh folder for each run of a file.

use std::path::{Path, PathBuf};

use relatrix::{Connection, Database, Result};

use crate::engine::{self, Expected};
use crate::standin;
use crate::values::{Letter, Style};
use crate::{Figure, Options, Report, in_parallel, run_script};

/// The folders, from plain SQL to what must fail.
const THEMES: [&str; 6] = ["sql", "matrix", "mixed", "plan", "spill", "error"];

/// One way to run a script.
struct Setting {
    name: &'static str,
    threads: usize,
    /// How often each query is asked.
    times: usize,
    /// Run on each new connection.
    statements: &'static [&'static str],
}

/// All but the first with memory that is NaN where it must be overwritten, which then shows in an answer.
/// The last three with memory for a small part of what some scripts compute.
const SETTINGS: [Setting; 11] = [
    Setting { name: "one thread", threads: 1, times: 1, statements: &[] },
    Setting { name: "four threads", threads: 4, times: 1, statements: &[POISON] },
    Setting {
        name: "fusion off",
        threads: 2,
        times: 1,
        statements: &["SET fusion = false", POISON],
    },
    Setting {
        name: OTHER_PLANS,
        threads: 4,
        times: 1,
        statements: &[
            "SET spilling_groups = off; SET first_rows = off; SET eager_groups = off; SET grouped_windows = off",
            POISON,
        ],
    },
    Setting { name: DEVICE, threads: 2, times: 1, statements: &["SET gpu = 'force'", POISON] },
    Setting { name: REMEMBERED, threads: 2, times: 2, statements: &[ALL_REMEMBERED, POISON] },
    // The third time a plan is known.
    Setting { name: "answers compared", threads: 2, times: 3, statements: &[VERIFY, POISON] },
    Setting {
        name: "tiny tiles",
        threads: 2,
        times: 1,
        statements: &["SET tile_rows = 1; SET join_reversal_rows = 1", POISON],
    },
    Setting {
        name: "32 MiB",
        threads: 2,
        times: 1,
        statements: &["SET memory_limit = '32MB'", POISON],
    },
    Setting {
        name: "64 MiB",
        threads: 4,
        times: 1,
        statements: &["SET memory_limit = '64MB'", POISON],
    },
    Setting {
        name: "256 MiB",
        threads: 2,
        times: 1,
        statements: &["SET memory_limit = '256MB'", POISON],
    },
];

/// Aggregations as DataFusion runs them, and windows that are given all rows.
const OTHER_PLANS: &str = "other plans";

/// By a stand-in for a GPU, where that can be built, or by a GPU, whatever one can do.
const DEVICE: &str = "a GPU";

/// Answers that were remembered, and those from groups that were.
const REMEMBERED: &str = "answers remembered";

/// However quickly it came.
const ALL_REMEMBERED: &str = "SET result_cache_after_ms = 0";

/// Every answer is remembered, and compared with that of the next run.
const VERIFY: &str = "SET result_cache = 'verify'";

const POISON: &str = "SET pool_poison = true";

impl Setting {
    fn connect(&self, name: &str, options: &Options) -> Result<Connection> {
        // Plans must not depend on the machine, nor on how long it took for what was asked before.
        let mut builder =
            Database::builder().threads(self.threads).set("cost_model", "built_in")?;
        // Scripts have few rows, for which no other thread would be woken.
        let partitions = if self.name == REMEMBERED { "cost" } else { "threads" };
        builder = builder.set("partitions", partitions)?;
        if name.starts_with("plan") {
            builder = builder.set("result_cache", "off")?;
        }
        // Whoever runs by a device may be where none can be built.
        let is_standin = self.name == DEVICE && !options.device;
        let libraries = is_standin.then(standin::folder).flatten();
        let libraries = libraries.map_or("", |folder| folder.to_str().expect("a path of ours"));
        let builder = builder.set("gpu", "off")?.set("gpu_libraries", libraries)?;
        let connection = builder.build()?.connect();
        for statement in self.statements {
            connection.execute(statement)?;
        }
        Ok(connection)
    }
}

/// Runs every selected file under every setting; true if all of it passed.
pub(crate) fn run(options: &Options) -> bool {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Whoever has the program alone, as a machine with a device may, starts it where the scripts are.
    if package.is_dir() {
        std::env::set_current_dir(package).expect("the folder was just seen");
    }
    let root = Path::new("sqllogictests");
    if !root.is_dir() {
        println!("there are no scripts: neither {} nor this folder has any", package.display());
        return false;
    }
    let mut files = Vec::new();
    for theme in THEMES {
        collect(&root.join(theme), &mut files);
    }
    let files: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|path| (path.strip_prefix(root).unwrap_or(&path).display().to_string(), path))
        .filter(|(name, _)| options.selects(name))
        .collect();
    let runs = files.iter().flat_map(|file| SETTINGS.iter().map(move |setting| (file, setting)));
    // What is planned may depend on the memory there is, on the operators and on what was asked before; what is answered may not.
    let is_of_interest = |(file, setting): &(&(String, PathBuf), &Setting)| {
        let plans_alike = ![OTHER_PLANS, DEVICE, REMEMBERED].contains(&setting.name)
            && !setting.name.ends_with("MiB");
        let is_there = match setting.name {
            // The stand-in is slow, and there are many rows.
            DEVICE if file.0.starts_with("spill") => options.device,
            DEVICE => options.device || standin::folder().is_some(),
            _ => !options.device,
        };
        is_there && (plans_alike || !file.0.starts_with("plan"))
    };
    let runs: Vec<_> = runs.filter(is_of_interest).collect();
    let reports =
        in_parallel(&runs, |((name, path), setting)| run_file(name, path, setting, options));

    let mut failed = 0;
    for (((name, _), setting), report) in runs.iter().zip(&reports) {
        for failure in &report.failures {
            println!("own files: {name} with {} failed\n{failure}", setting.name);
        }
        failed += report.failures.len();
    }
    println!(
        "own files: {} files under {} settings, {} records passed, {failed} failed",
        files.len(),
        SETTINGS.len(),
        reports.iter().map(|report| report.passed).sum::<usize>(),
    );
    let is_there = !options.device || says_what_it_did();
    failed == 0 && is_there
}

/// Whether there is a device, and all of its memory that was asked for was given back; prints what it did.
fn says_what_it_did() -> bool {
    let shown = || -> Result<Vec<Figure>> {
        let connection = Database::builder().set("gpu", "force")?.build()?.connect();
        connection.query("SHOW GPU")?.rows()
    };
    let shown = shown().expect("SHOW GPU asks for nothing");
    let said = |name: &str| shown.iter().find(|row| row.0 == name)?.1.as_deref();
    let what = ["absent", "name", "trial", "launches", "products", "buffers", "kept_buffers"];
    for name in what {
        said(name).into_iter().for_each(|value| println!("device: {name} {value}"));
    }
    said("name").is_some() && said("buffers") == said("kept_buffers")
}

fn run_file(name: &str, path: &Path, setting: &Setting, options: &Options) -> Report {
    let script = match std::fs::read_to_string(path) {
        Ok(script) => script,
        Err(error) => return Report::broken(error.to_string()),
    };
    // Else the folder would be one of this name, in the checkout.
    if script.contains("$__TEST_DIR__") && !script.contains("\ncontrol substitution on\n") {
        return Report::broken(format!("{name} names a folder without `control substitution on`"));
    }
    let connection = match setting.connect(name, options) {
        Ok(connection) => connection,
        Err(error) => return Report::broken(error.to_string()),
    };
    let expected = Expected::default();
    let mut runner = engine::runner(connection, &expected, Style::Own, setting.times);
    runner.with_column_validator(same_column_count);
    run_script(name, &script, runner, &expected, 1)
}

/// Files below a folder, in the order of their names.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "slt" || extension == "zst")
        {
            files.push(path);
        }
    }
}

/// A record's type string says how many columns there are.
#[expect(clippy::ptr_arg, reason = "the crate's signature")]
pub(crate) fn same_column_count(actual: &Vec<Letter>, expected: &Vec<Letter>) -> bool {
    actual.len() == expected.len()
}
