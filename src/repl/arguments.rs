//! The command line: what may be written, what it means, and what `--help` says about it.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use relatrix::parse_bytes;

use crate::format::Format;

const EXAMPLES: &str = "\
Examples:
  relatrix                          a prompt; .help tells what it can do
  relatrix tour.sql                 run a file
  relatrix -c \"SELECT count(*) FROM 'trips.parquet'\"
  relatrix --format csv -c \"SELECT * FROM 'a.json'\" > a.csv
  generate | relatrix --keep-going  statements from a pipe, past errors
  relatrix bench queries.sql        time each statement

The exit status is 0 where every statement succeeded, 1 where one failed,
2 for a wrong command line and 130 after Ctrl-C.";

/// SQL and matrices in one language and one plan.
///
/// Runs the files and -c texts in the order in which they are written; without any, the statements on
/// standard input; a prompt where that is a terminal.
#[derive(Debug, Parser)]
#[command(name = "relatrix", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    /// Files of statements; - is standard input
    #[arg(value_name = "FILE.sql")]
    files: Vec<PathBuf>,
    /// Statements to run; may be repeated
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    texts: Vec<String>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Times statements: warm-up, repetitions, mean, median, min, max, deviation
    Bench(BenchOptions),
}

/// How statements run and how their answers are written.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// How answers are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// Tell on standard error how long each statement took: as text, or as a line of JSON
    #[arg(
        long,
        value_enum,
        value_name = "text|json",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        hide_possible_values = true
    )]
    pub(crate) timing: Option<Timing>,
    /// Go on after a statement that failed; the exit status still tells
    #[arg(long)]
    pub(crate) keep_going: bool,
}

/// What a database may use.
#[derive(Debug, Clone, Args)]
pub(crate) struct Resources {
    /// Worker threads; as many as there are cores unless given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Memory of the process, as 2GB or 512MiB; 0 is seven tenths of the machine's
    #[arg(long, visible_alias = "memory", value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) memory_limit: Option<usize>,
    /// Where that goes which does not fit into memory: folders, the fastest first
    #[arg(long, visible_alias = "tmp", value_name = "DIR[; DIR]")]
    pub(crate) temp_directory: Option<String>,
}

/// How the time of a statement is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Timing {
    Text,
    Json,
}

/// What `relatrix bench` times, and how often.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
With a FILE, statements with an answer are warmed up and repeated; the others are run once, because
they change what the next ones see. Prints a table.

With --queries, the file's pieces after lines `-- name: NAME` are each run --runs times (once where the
line ends in `once`), and a line of JSON is printed for each: {\"query\":\"q1\",\"seconds\":[0.12],\"rows\":4}.
The clock covers parsing, planning, running and the whole answer in memory.")]
pub(crate) struct BenchOptions {
    /// Statements to time
    #[arg(
        value_name = "FILE.sql",
        required_unless_present = "queries",
        conflicts_with = "queries"
    )]
    pub(crate) file: Option<PathBuf>,
    /// Statements to run first, outside the clock
    #[arg(long, value_name = "FILE")]
    pub(crate) setup: Option<PathBuf>,
    /// Named statements to time, for a harness
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: Option<PathBuf>,
    /// Repetitions of each statement
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) runs: NonZeroUsize,
    /// Runs of each statement of FILE before the clock starts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) warm_up: usize,
    /// Folder for the answers, as NAME.arrow
    #[arg(long, value_name = "DIR", requires = "queries")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) resources: Resources,
    /// How the table of times is written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// Where statements come from.
#[derive(Debug, PartialEq)]
pub(crate) enum Input {
    File(PathBuf),
    Text(String),
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    Run,
    Bench(BenchOptions),
}

/// The command line, understood.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) inputs: Vec<Input>,
    pub(crate) task: Task,
    pub(crate) options: Options,
}

impl Arguments {
    /// Those of this process; leaves it where they are wrong, or ask for help only.
    pub(crate) fn from_command_line() -> Self {
        Self::from_matches(&CommandLine::command().get_matches())
            .unwrap_or_else(|error| error.exit())
    }

    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let line = CommandLine::from_arg_matches(matches)?;
        // Files and texts run in the order in which they are written, which clap tells only by index.
        let places = |name| matches.indices_of(name).into_iter().flatten();
        let files = places("files").zip(line.files.into_iter().map(Input::File));
        let texts = places("texts").zip(line.texts.into_iter().map(Input::Text));
        let mut inputs: Vec<(usize, Input)> = files.chain(texts).collect();
        inputs.sort_by_key(|(place, _)| *place);
        Ok(Self {
            inputs: inputs.into_iter().map(|(_, input)| input).collect(),
            task: line.command.map_or(Task::Run, |Command::Bench(bench)| Task::Bench(bench)),
            options: line.options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Arguments {
        let words = ["relatrix"].iter().chain(words);
        Arguments::from_matches(&CommandLine::command().try_get_matches_from(words).unwrap())
            .unwrap()
    }

    #[test]
    fn files_and_texts_keep_their_order() {
        let arguments = parsed(&["-c", "one", "two.sql", "--format", "csv", "-c", "three"]);
        let expected =
            [Input::Text("one".into()), Input::File("two.sql".into()), Input::Text("three".into())];
        assert_eq!(arguments.inputs, expected);
        assert_eq!(arguments.options.format, Format::Csv);
    }

    #[test]
    fn timing_is_text_unless_it_says_json() {
        assert_eq!(parsed(&["--timing", "a.sql"]).options.timing, Some(Timing::Text));
        assert_eq!(parsed(&["--timing=json", "a.sql"]).options.timing, Some(Timing::Json));
        assert_eq!(parsed(&["a.sql"]).options.timing, None);
    }

    #[test]
    fn bench_is_a_task_beside_files() {
        let arguments = parsed(&["bench", "a.sql", "--runs", "3"]);
        assert!(matches!(arguments.task, Task::Bench(bench) if bench.runs.get() == 3));
    }
}
