//! `relatrix bench`: how long statements take.
//!
//! For a person, a table of mean, median, least, most and deviation per statement. For a harness, a line of
//! JSON per named query with the seconds of every run, and the answers as Arrow files beside. No answer is remembered:
//! a setup that says `SET result_cache = on` measures how long that takes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;
use relatrix::{Connection, Outcome, Result};

use crate::arguments::BenchOptions;
use crate::format::json_string;
use crate::input;
use crate::report::{self, Origin};
use crate::session::database;
use crate::terminal::{Screen, printable, shortened};

/// Characters of a statement that tell it from the others.
const TITLE_WIDTH: usize = 40;

/// Runs the benchmark that the command line asks for.
pub(crate) fn run(options: &BenchOptions) -> ExitCode {
    let connection = database(&options.resources).map(|database| database.connect());
    match connection
        .map_err(|error| error.to_string())
        .and_then(|connection| timed(&connection, options))
    {
        Ok(status) => status,
        Err(message) => {
            report::message(&message);
            ExitCode::FAILURE
        }
    }
}

fn timed(connection: &Connection, options: &BenchOptions) -> Result<ExitCode, String> {
    // What is measured is a run, unless the setup wants it otherwise.
    connection.execute("SET result_cache = off").map_err(|error| error.to_string())?;
    let started = Instant::now();
    if let Some(setup) = &options.setup {
        connection
            .execute(&read(setup)?)
            .map_err(|error| format!("{}: {error}", setup.display()))?;
    }
    let load_seconds = started.elapsed().as_secs_f64();
    match (&options.file, &options.queries) {
        (_, Some(queries)) => for_harness(connection, options, &read(queries)?, load_seconds),
        (Some(file), None) => for_person(connection, options, file),
        (None, None) => unreachable!("the command line has one of the two"),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A whole answer in memory.
struct Answer {
    /// None where the statement has no rows to give.
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    rows: u64,
}

/// Parses, plans and runs each statement of a text, and keeps the last answer.
fn answer(connection: &Connection, text: &str) -> Result<Answer> {
    let mut last = Answer { schema: None, batches: Vec::new(), rows: 0 };
    for statement in relatrix::parse(text)? {
        last = match connection.run(&statement)? {
            Outcome::Rows(rows) => {
                let schema = Some(rows.schema());
                let batches = rows.collect()?;
                let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
                Answer { schema, batches, rows }
            }
            Outcome::Count(rows) => Answer { schema: None, batches: Vec::new(), rows },
            Outcome::Done => Answer { schema: None, batches: Vec::new(), rows: 0 },
        };
    }
    Ok(last)
}

/// A piece of the queries' file: the text after a line `-- name: NAME [once]`.
#[derive(Debug, PartialEq)]
struct Query<'a> {
    name: &'a str,
    once: bool,
    text: &'a str,
}

fn queries<'a>(text: &'a str) -> Vec<Query<'a>> {
    // What follows the mark, where its line begins, and where the text after it begins.
    let mut marks = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(heading) = line.strip_prefix("-- name:") {
            marks.push((heading, at, at + line.len()));
        }
        at += line.len();
    }
    let ends = marks.iter().skip(1).map(|&(_, end, _)| end).chain([text.len()]);
    let query = |(&(heading, _, begin), end): (&(&'a str, usize, usize), usize)| {
        let mut words = heading.split_whitespace();
        let name = words.next().unwrap_or("unnamed");
        Query { name, once: words.any(|word| word == "once"), text: &text[begin..end] }
    };
    marks.iter().zip(ends).map(query).collect()
}

fn for_harness(
    connection: &Connection,
    options: &BenchOptions,
    text: &str,
    load_seconds: f64,
) -> Result<ExitCode, String> {
    let say = |line: String| {
        let mut output = io::stdout().lock();
        writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| error.to_string())
    };
    let version = json_string(&format!("relatrix {}", env!("CARGO_PKG_VERSION")));
    say(format!("{{\"version\":{version},\"load_seconds\":{load_seconds:.6}}}"))?;
    if let Some(out) = &options.out {
        fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    for query in queries(text) {
        let runs = if query.once { 1 } else { options.runs.get() };
        let mut seconds = Vec::new();
        let mut last = Ok(Answer { schema: None, batches: Vec::new(), rows: 0 });
        while seconds.len() < runs && last.is_ok() {
            // Freed before the clock starts: two answers at once would be no fair use of memory.
            drop(last);
            let started = Instant::now();
            last = answer(connection, query.text);
            seconds.push(format!("{:.9}", started.elapsed().as_secs_f64()));
        }
        let written = last.map_err(|error| error.to_string()).and_then(|answer| {
            if let (Some(out), Some(schema)) = (&options.out, &answer.schema) {
                let path = out.join(format!("{}.arrow", query.name));
                keep(&path, schema, &answer.batches)
                    .map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Ok(answer.rows)
        });
        let name = json_string(query.name);
        say(match written {
            Ok(rows) => {
                format!("{{\"query\":{name},\"seconds\":[{}],\"rows\":{rows}}}", seconds.join(","))
            }
            Err(error) => {
                format!("{{\"query\":{name},\"seconds\":[],\"error\":{}}}", json_string(&error))
            }
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn keep(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<()> {
    let file = File::create(path).map_err(arrow::error::ArrowError::from)?;
    let mut writer = FileWriter::try_new_buffered(file, schema)?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.finish()?)
}

/// The times of one statement.
#[derive(Debug, PartialEq)]
struct Times {
    mean: f64,
    median: f64,
    min: f64,
    max: f64,
    /// Of the sample; 0 of a single run.
    deviation: f64,
}

impl Times {
    /// # Panics
    /// Without any run.
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len();
        let mean = seconds.iter().sum::<f64>() / count as f64;
        let squares: f64 = seconds.iter().map(|s| (s - mean).powi(2)).sum();
        Self {
            mean,
            median: (seconds[(count - 1) / 2] + seconds[count / 2]) / 2.0,
            min: seconds[0],
            max: seconds[count - 1],
            deviation: (squares / (count.max(2) - 1) as f64).sqrt(),
        }
    }
}

fn for_person(
    connection: &Connection,
    options: &BenchOptions,
    file: &Path,
) -> Result<ExitCode, String> {
    let text = read(file)?;
    let name = file.display().to_string();
    let mut measured = Vec::new();
    for piece in input::pieces(&text) {
        match repeated(connection, options, piece.text) {
            Ok((seconds, rows)) => {
                let title =
                    shortened(&printable(&piece.text.replace(['\n', '\t'], " ")), TITLE_WIDTH);
                measured.push((title, seconds.len(), rows, Times::of(seconds)));
            }
            Err(error) => {
                let start = input::place_of(&text, piece.start);
                let place = error.place().map(|place| input::place_within(start, place));
                let origin = Origin { name: &name, text: &text, first_line: 1 };
                report::error(origin, start, place, &report::message_of(&error));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    print(options, &measured).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Seconds of each run, and the rows of the last.
fn repeated(
    connection: &Connection,
    options: &BenchOptions,
    text: &str,
) -> Result<(Vec<f64>, u64)> {
    let clock = || -> Result<_> {
        let started = Instant::now();
        let answer = answer(connection, text)?;
        Ok((started.elapsed().as_secs_f64(), answer.schema.is_some(), answer.rows))
    };
    let (first, is_query, mut rows) = clock()?;
    if !is_query {
        return Ok((vec![first], rows));
    }
    // The first run was the first of the warm-up, or of those that count.
    let mut seconds = if options.warm_up == 0 { vec![first] } else { Vec::new() };
    for _ in 1..options.warm_up {
        clock()?;
    }
    while seconds.len() < options.runs.get() {
        let (again, _, count) = clock()?;
        seconds.push(again);
        rows = count;
    }
    Ok((seconds, rows))
}

/// The table is an answer like any other, and has all of its formats.
fn print(options: &BenchOptions, measured: &[(String, usize, u64, Times)]) -> io::Result<()> {
    let count = |of: fn(&(String, usize, u64, Times)) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(measured.iter().map(of)))
    };
    // Three digits of a microsecond are noise.
    let milliseconds = |of: fn(&Times) -> f64| -> ArrayRef {
        let rounded = measured.iter().map(|(_, _, _, times)| (of(times) * 1e6).round() / 1e3);
        Arc::new(Float64Array::from_iter_values(rounded))
    };
    let titles = StringArray::from_iter_values(measured.iter().map(|(title, ..)| title));
    let table = RecordBatch::try_from_iter([
        ("statement", Arc::new(titles) as ArrayRef),
        ("rows", count(|one| one.2)),
        ("runs", count(|one| one.1 as u64)),
        ("mean ms", milliseconds(|times| times.mean)),
        ("median ms", milliseconds(|times| times.median)),
        ("min ms", milliseconds(|times| times.min)),
        ("max ms", milliseconds(|times| times.max)),
        ("deviation ms", milliseconds(|times| times.deviation)),
    ])
    .map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    let mut rows = options.format.writer(table.schema(), Screen::standard_output());
    rows.push(&table, &mut output)?;
    rows.finish(&mut output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_named_pieces() {
        let text = "-- TPC-H\n-- name: q1\nSELECT 1;\n\n-- name: sum once\nSELECT '\n-- name';\n";
        let expected = [
            Query { name: "q1", once: false, text: "SELECT 1;\n\n" },
            Query { name: "sum", once: true, text: "SELECT '\n-- name';\n" },
        ];
        assert_eq!(queries(text), expected);
    }

    #[test]
    fn times_are_summed_up() {
        let times = Times::of(vec![3.0, 1.0, 2.0, 6.0]);
        assert_eq!((times.mean, times.median, times.min, times.max), (3.0, 2.5, 1.0, 6.0));
        assert!((times.deviation - (14.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Times::of(vec![1.5]).deviation, 0.0);
    }
}
