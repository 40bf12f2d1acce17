//! Runs statements and dot commands one after the other, and prints what they answer.

use std::fs;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use relatrix::matrix::Matrix;
use relatrix::{Connection, Database, Error, ErrorKind, Outcome, Statement};

use crate::allocator;
use crate::arguments::{Options, Resources, Timing};
use crate::command;
use crate::format::{Format, grouped};
use crate::input::{self, Piece, PieceKind};
use crate::interrupt::Interrupt;
use crate::progress::Watch;
use crate::report::{self, Origin};
use crate::terminal::Screen;

/// Why nothing more is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A statement failed, and its error is printed.
    Failed,
    /// Ctrl-C.
    Interrupted,
    /// `.quit`.
    Quit,
    /// Whoever read the answers has enough, as `head` does.
    PipeClosed,
}

/// A connection, and how its answers are written.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) format: Format,
    pub(crate) timing: Option<Timing>,
    /// Statements and commands that failed so far.
    pub(crate) failures: usize,
    /// Whether somebody sits at a prompt, and wants to hear what happened even if there are no rows.
    pub(crate) interactive: bool,
    keep_going: bool,
    resources: Resources,
    interrupt: Interrupt,
    statements: usize,
    /// Whether there was an answer before, from which formats without a frame keep the next one apart.
    answered: bool,
    /// How many `.read` are within each other.
    depth: usize,
}

/// `.read` within `.read` ends here: a file that reads itself would never.
const DEPTH_MAX: usize = 16;

/// Why a statement did not end well.
enum Failure {
    Statement(Error),
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Statement(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

/// What a statement did, for the line of its time.
struct Measured {
    rows: Option<u64>,
    total: Duration,
    /// From the text to a plan that is ready to run.
    planning: Duration,
}

impl Session {
    /// A session on a fresh database.
    pub(crate) fn new(options: Options) -> relatrix::Result<Self> {
        Ok(Self {
            connection: database(&options.resources)?.connect(),
            format: options.format,
            timing: options.timing,
            failures: 0,
            interactive: false,
            keep_going: options.keep_going,
            resources: options.resources,
            interrupt: Interrupt::default(),
            statements: 0,
            answered: false,
            depth: 0,
        })
    }

    /// Lets Ctrl-C stop what this session runs.
    pub(crate) fn watch_for(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// Leaves the database for a fresh one.
    pub(crate) fn open_fresh(&mut self) -> relatrix::Result<()> {
        self.connection = database(&self.resources)?.connect();
        Ok(())
    }

    /// Runs a file of statements.
    pub(crate) fn run_file(&mut self, path: &Path) -> Result<(), Stop> {
        if self.depth == DEPTH_MAX {
            report::message(&format!("{}: .read within .read, too deep", path.display()));
            return self.failed();
        }
        let text = match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                report::message(&format!("{}: not UTF-8 text", path.display()));
                return self.failed();
            }
            Err(error) => {
                report::message(&format!("{}: {error}", path.display()));
                return self.failed();
            }
        };
        self.depth += 1;
        let ran = self.run_text(&path.display().to_string(), &text);
        self.depth -= 1;
        ran
    }

    /// Runs the statements of a text that came from `name`.
    pub(crate) fn run_text(&mut self, name: &str, text: &str) -> Result<(), Stop> {
        self.run_pieces(Origin { name, text, first_line: 1 })
    }

    /// Runs statements as they come, so that another program can wait for each answer.
    pub(crate) fn run_lines(&mut self, name: &str, mut lines: impl BufRead) -> Result<(), Stop> {
        let mut text = String::new();
        let (mut first_line, mut line) = (1, 0);
        loop {
            let from = text.len();
            match lines.read_line(&mut text) {
                Ok(0) => return self.run_pieces(Origin { name, text: &text, first_line }),
                Ok(_) => line += 1,
                Err(error) => {
                    report::message(&format!("{name}: {error}"));
                    return self.failed();
                }
            }
            // Only such a line can complete what came before.
            let may_end = text[from..].contains(';') || text[from..].trim_start().starts_with('.');
            if may_end && input::is_complete(&text) {
                self.run_pieces(Origin { name, text: &text, first_line })?;
                text.clear();
                first_line = line + 1;
            }
        }
    }

    fn run_pieces(&mut self, origin: Origin<'_>) -> Result<(), Stop> {
        // The byte order mark that some editors begin a file with is no part of the text.
        let text = origin.text.strip_prefix('\u{feff}').unwrap_or(origin.text);
        let origin = Origin { text, ..origin };
        input::pieces(origin.text).iter().try_for_each(|piece| self.run_piece(origin, piece))
    }

    fn run_piece(&mut self, origin: Origin<'_>, piece: &Piece<'_>) -> Result<(), Stop> {
        let started = Instant::now();
        let ran = match piece.kind {
            PieceKind::Command => return command::run(self, piece.text),
            PieceKind::Statement => {
                self.statements += 1;
                self.run_statement(piece.text)
            }
        };
        match ran {
            Ok(measured) => {
                self.tell_time(&measured);
                Ok(())
            }
            Err(Failure::Output(error)) => self.output_failed(&error),
            Err(Failure::Statement(error)) => {
                let cancelled = matches!(error.kind(), ErrorKind::Cancelled);
                let start = input::place_of(origin.text, piece.start);
                let place = error.place().map(|place| input::place_within(start, place));
                report::error(origin, start, place, &report::message_of(&error));
                // Who reads lines of JSON counts on one for each statement; a person has read the error.
                if self.timing == Some(Timing::Json) {
                    let (rows, total, planning) = (Some(0), started.elapsed(), Duration::ZERO);
                    self.tell_time(&Measured { rows, total, planning });
                }
                self.failures += 1;
                if cancelled { Err(Stop::Interrupted) } else { self.go_on() }
            }
        }
    }

    /// Counts a failure that is printed already.
    pub(crate) fn failed(&mut self) -> Result<(), Stop> {
        self.failures += 1;
        self.go_on()
    }

    fn go_on(&self) -> Result<(), Stop> {
        if self.keep_going { Ok(()) } else { Err(Stop::Failed) }
    }

    fn output_failed(&mut self, error: &io::Error) -> Result<(), Stop> {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Err(Stop::PipeClosed);
        }
        report::message(&format!("cannot write the answer: {error}"));
        self.failed()
    }

    /// Runs a query of the session's own, such as the list of tables, and prints its rows.
    pub(crate) fn show(&mut self, text: &str) -> Result<(), Stop> {
        match self.run_statement(text) {
            Ok(_) => Ok(()),
            Err(Failure::Output(error)) => self.output_failed(&error),
            Err(Failure::Statement(error)) => {
                report::message(&report::message_of(&error));
                self.failed()
            }
        }
    }

    /// The matrix of a name or an expression; Ctrl-C stops this too.
    pub(crate) fn matrix(&self, expression: &str) -> relatrix::Result<Matrix> {
        let _guard = self.interrupt.watch(self.connection.cancel_handle());
        let _watch = Watch::start(self.connection.cancel_handle());
        self.connection.matrix(expression)
    }

    fn run_statement(&mut self, text: &str) -> Result<Measured, Failure> {
        let started = Instant::now();
        let _guard = self.interrupt.watch(self.connection.cancel_handle());
        let mut watch = Watch::start(self.connection.cancel_handle());
        let parsed = relatrix::parse(text)?;
        let parsing = started.elapsed();
        let statement = match <[Statement; 1]>::try_from(parsed) {
            Ok([statement]) => statement,
            Err(all) => {
                let message = format!("{} statements where one was found", all.len());
                return Err(Failure::Statement(ErrorKind::Internal(message).into()));
            }
        };
        let outcome = self.connection.run(&statement)?;
        let planning = parsing + self.connection.planning_time();
        let rows = match outcome {
            Outcome::Rows(rows) => rows,
            outcome => {
                let total = started.elapsed();
                watch.hide();
                let rows = if let Outcome::Count(count) = outcome { Some(count) } else { None };
                if self.interactive {
                    let said = rows.map_or("done".to_owned(), counted);
                    writeln!(io::stdout(), "{said}")?;
                }
                return Ok(Measured { rows, total, planning });
            }
        };
        let screen = Screen::standard_output();
        let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let mut writer = self.format.writer(rows.schema(), screen);
        let streams = self.format != Format::Table;
        let apart = self.answered && matches!(self.format, Format::Markdown | Format::Line);
        let mut count = 0;
        for batch in rows {
            let batch = batch?;
            if self.interrupt.pressed() {
                return Err(Failure::Statement(ErrorKind::Cancelled.into()));
            }
            if streams && screen.columns.is_some() {
                watch.hide();
            }
            if count == 0 && batch.num_rows() > 0 && apart {
                writeln!(output)?;
            }
            count += batch.num_rows() as u64;
            if batch.num_rows() > 0 {
                writer.push(&batch, &mut output)?;
            }
        }
        let total = started.elapsed();
        watch.hide();
        let is_headed = self.format != Format::Line;
        if count == 0 && apart && is_headed {
            writeln!(output)?;
        }
        writer.finish(&mut output)?;
        output.flush()?;
        self.answered |= count > 0 || is_headed;
        Ok(Measured { rows: Some(count), total, planning })
    }

    /// To standard error, so that the answers on standard output stay what they are.
    fn tell_time(&self, measured: &Measured) {
        match self.timing {
            None => {}
            Some(Timing::Text) => eprintln!("{}", measured.in_words()),
            Some(Timing::Json) => eprintln!("{}", measured.as_json(self.statements)),
        }
    }
}

impl Measured {
    fn in_words(&self) -> String {
        let rows = self.rows.map_or(String::new(), |rows| format!("{} in ", counted(rows)));
        let (total, planning) = (self.total.as_secs_f64(), self.planning.as_secs_f64());
        format!("{rows}{} ({} of it planning)", duration(total), duration(planning))
    }

    fn as_json(&self, statement: usize) -> String {
        let rows = self.rows.map_or("null".to_owned(), |rows| rows.to_string());
        let (total, planning) = (self.total.as_secs_f64(), self.planning.as_secs_f64());
        format!(
            "{{\"statement\":{statement},\"rows\":{rows},\"seconds\":{total:.6},\"planning_seconds\":{planning:.6}}}"
        )
    }
}

/// A fresh database, whose process is its own: what the system sees of it is what it holds.
pub(crate) fn database(resources: &Resources) -> relatrix::Result<Database> {
    let mut builder = Database::builder().set("memory_watch", "on")?.reclaim(allocator::collect);
    if let Some(threads) = resources.threads {
        builder = builder.threads(threads.get());
    }
    if let Some(bytes) = resources.memory_limit.filter(|&bytes| bytes > 0) {
        builder = builder.memory_limit(bytes);
    }
    if let Some(directories) = &resources.temp_directory {
        builder = builder.set("temp_directory", directories)?;
    }
    builder.build()
}

/// `1 row`, `1,234 rows`.
pub(crate) fn counted(rows: u64) -> String {
    format!("{} row{}", grouped(rows), if rows == 1 { "" } else { "s" })
}

/// Seconds with the unit that suits them.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..1e-3 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.1} ms", seconds * 1e3),
        ..120.0 => format!("{seconds:.2} s"),
        _ => format!("{} min {:.0} s", (seconds / 60.0) as u64, seconds % 60.0),
    }
}
