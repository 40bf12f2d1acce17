//! Scripts of other projects: SQLite's suite and DuckDB's tests, as far as both are portable.
//!
//! They are not part of this package. `RELATRIX_CORPORA` names their folder (`sqlite/`, `duckdb/`), or
//! they lie at `../shared/corpora`; where neither is there, the run says so and passes.
//!
//! `corpora.tsv` holds the records passed in each folder. A lower score fails the run; a higher one is
//! printed, and `--bless` writes it. It knows two runs: all, and the slice that the test command takes,
//! which is every statement of every file, and of the queries in SQLite's files each [`SLICE_STEP`]th.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use relatrix::{Builder, Database};
use sqllogictest::Normalizer;

use crate::engine::{self, Expected};
use crate::own::{collect, same_column_count};
use crate::values::Style;
use crate::{Compared, Options, Report, in_parallel, run_script};

/// What the scripts may know about this engine:
///
/// - `pg_profile`: integer / integer is an integer, and NULL sorts as the largest value, as in PostgreSQL
/// - `strict_types`: a sign before a text is an error
/// - `strict_group_by`: so is a column that is neither grouped nor aggregated
/// - `div_zero_error`: so is x / 0
const LABELS: [&str; 4] = ["pg_profile", "strict_types", "strict_group_by", "div_zero_error"];

/// Of SQLite's 700,000 queries the slice takes one in so many.
const SLICE_STEP: usize = 20;

/// Runs the selected files; true if no folder lost a record.
pub(crate) fn run(options: &Options) -> bool {
    let root = match std::env::var_os("RELATRIX_CORPORA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpora"),
    };
    if !root.join("sqlite").is_dir() || !root.join("duckdb").is_dir() {
        println!("corpora: absent (RELATRIX_CORPORA names their folder), nothing to compare");
        return std::env::var_os("RELATRIX_CORPORA").is_none();
    }
    let root = root.canonicalize().expect("the folder was just seen");
    // DuckDB's scripts name their data relative to their own folder.
    std::env::set_current_dir(root.join("duckdb")).expect("the folder was just seen");

    let started = Instant::now();
    let files = files(&root, options);
    let reports = in_parallel(&files, |(name, path)| run_file(name, path, options));
    println!(
        "corpora: {} files in {:.0} s; labels {}",
        files.len(),
        started.elapsed().as_secs_f64(),
        LABELS.join(", ")
    );

    let mut scores = Scores::default();
    for ((name, _), report) in files.iter().zip(&reports) {
        scores.add(folder(name), report);
        for failure in report.failures.iter().filter(|_| options.failures) {
            println!("\n{failure}");
        }
    }
    println!("{scores}");
    let is_current = !options.verify || are_current(&reports);
    is_current && (options.filter.is_some() || compare(&scores, options))
}

/// Whether nothing that was remembered is other than what was computed; prints what is.
fn are_current(reports: &[Report]) -> bool {
    let mut compared = Compared::default();
    reports.iter().for_each(|report| compared += report.compared);
    let stale: Vec<&String> = reports.iter().flat_map(|report| &report.stale).collect();
    stale.iter().for_each(|text| println!("\n{text}"));
    let Compared { answers, groups } = compared;
    println!(
        "compared with what was remembered: {answers} answers, {groups} groups; {} stale",
        stale.len()
    );
    stale.is_empty()
}

/// The files of a run in the order of their names, each with its name from the root.
fn files(root: &Path, options: &Options) -> Vec<(String, PathBuf)> {
    let mut paths = Vec::new();
    collect(&root.join("sqlite"), &mut paths);
    collect(&root.join("duckdb"), &mut paths);
    paths
        .into_iter()
        .map(|path| (path.strip_prefix(root).unwrap_or(&path).display().to_string(), path))
        .filter(|(name, _)| options.selects(name))
        .collect()
}

/// `sqlite/index/between` of `sqlite/index/between/10/slt_good_1.test.zst`.
fn folder(name: &str) -> &str {
    let depth = name.matches('/').count().min(3);
    let end = name.match_indices('/').nth(depth - 1).map_or(0, |(at, _)| at);
    &name[..end]
}

fn run_file(name: &str, path: &Path, options: &Options) -> Report {
    let script = match read(path) {
        Ok(script) => script,
        Err(error) => return Report::broken(error.to_string()),
    };
    // The files run beside each other, so one thread each is enough.
    let mut builder = Database::builder().threads(1);
    if let Some(bytes) = options.memory {
        builder = builder.memory_limit(bytes);
    }
    let mode = if options.verify { "verify" } else { "on" };
    let database = builder.set("result_cache", mode).and_then(Builder::build);
    let connection = match database {
        Ok(database) => database.connect(),
        Err(error) => return Report::broken(error.to_string()),
    };
    let times = if options.verify { 2 } else { 1 };
    let expected = Expected::default();
    let style = if name.starts_with("sqlite") { Style::Sqlite } else { Style::DuckDb };
    let mut runner = engine::runner(connection.clone(), &expected, style, times);
    for label in LABELS {
        runner.add_label(label);
    }
    runner.with_column_validator(same_column_count);
    let mut step = 1;
    match style {
        Style::Sqlite => {
            runner.with_normalizer(String::clone);
            if !options.all && options.filter.is_none() {
                step = SLICE_STEP;
            }
        }
        _ => runner.with_validator(same_tokens),
    }
    let report = run_script(name, &script, runner, &expected, step);
    match Compared::by(&connection) {
        Ok(compared) => Report { compared, ..report },
        Err(error) => Report::broken(error.to_string()),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::read(path)?;
    let bytes = if path.extension().is_some_and(|extension| extension == "zst") {
        zstd::decode_all(&bytes[..])?
    } else {
        bytes
    };
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

/// Rows are equal token by token; two numbers, one of which has a fraction, may differ by 1e-6 of their size.
fn same_tokens(_: Normalizer, actual: &[Vec<String>], expected: &[String]) -> bool {
    actual.len() == expected.len()
        && actual.iter().zip(expected).all(|(actual, expected)| {
            let actual = actual.join(" ");
            let mut left = actual.split_whitespace();
            let mut right = expected.split_whitespace();
            left.by_ref().zip(right.by_ref()).all(|(left, right)| same_token(left, right))
                && actual.split_whitespace().count() == expected.split_whitespace().count()
        })
}

fn same_token(left: &str, right: &str) -> bool {
    if left == right {
        return true;
    }
    let is_integer = |text: &str| text.parse::<i128>().is_ok();
    match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(_), Ok(_)) if is_integer(left) && is_integer(right) => {
            left.parse::<i128>() == right.parse::<i128>()
        }
        (Ok(left), Ok(right)) => {
            left == right
                || (left.is_nan() && right.is_nan())
                || (left - right).abs() <= (1e-6 * left.abs().max(right.abs())).max(1e-9)
        }
        _ => false,
    }
}

/// Records passed, of how many, by folder.
#[derive(Default)]
struct Scores(BTreeMap<String, Score>);

#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Score {
    passed: usize,
    total: usize,
    files: usize,
    clean_files: usize,
}

impl Scores {
    fn add(&mut self, folder: &str, report: &Report) {
        let corpus = &folder[..folder.find('/').unwrap_or(folder.len())];
        for name in [folder.to_string(), format!("{corpus} (all)")] {
            let score = self.0.entry(name).or_default();
            score.passed += report.passed;
            score.total += report.total;
            score.files += 1;
            score.clean_files += usize::from(report.passed == report.total);
        }
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:28}{:>9}{:>9}{:>9}  files without failure", "folder", "passed", "of", "%")?;
        for (folder, score) in &self.0 {
            let percent = 100.0 * score.passed as f64 / score.total.max(1) as f64;
            writeln!(
                f,
                "{folder:28}{:>9}{:>9}{percent:>9.2}  {} of {}",
                score.passed, score.total, score.clean_files, score.files
            )?;
        }
        Ok(())
    }
}

/// Holds the scores against `corpora.tsv`; true if none is lower.
fn compare(scores: &Scores, options: &Options) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sqllogictests/corpora.tsv");
    let run = if options.all { "all" } else { "slice" };
    let mut table = parse_table(&std::fs::read_to_string(&path).unwrap_or_default());
    let (mut lower, mut higher) = (0, 0);
    for (folder, score) in &scores.0 {
        let key = (run.to_string(), folder.clone());
        let (before, _) = table.get(&key).copied().unwrap_or_default();
        match score.passed.cmp(&before) {
            Ordering::Less => {
                lower += 1;
                println!("{folder}: {} records passed, {before} before", score.passed);
            }
            Ordering::Greater => {
                higher += 1;
                println!("{folder}: {} records passed, up from {before}", score.passed);
            }
            Ordering::Equal => {}
        }
        table.insert(key, (score.passed, score.total));
    }
    if options.bless {
        let lines: Vec<String> = table
            .iter()
            .map(|((run, folder), (passed, total))| format!("{run}\t{folder}\t{passed}\t{total}\n"))
            .collect();
        std::fs::write(&path, format!("run\tfolder\tpassed\ttotal\n{}", lines.concat()))
            .expect("the package's folder can be written");
    } else if higher > 0 {
        println!("{higher} folders are higher than corpora.tsv; --bless writes them");
    }
    lower == 0 || options.bless
}

/// (run, folder) → (passed, total).
fn parse_table(text: &str) -> BTreeMap<(String, String), (usize, usize)> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let key = (fields.next()?.to_string(), fields.next()?.to_string());
            Some((key, (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)))
        })
        .collect()
}
