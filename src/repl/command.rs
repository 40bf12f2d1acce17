//! Dot commands: what the prompt can do that is no statement.

use std::path::Path;

use clap::ValueEnum;

use crate::arguments::Timing;
use crate::format::Format;
use crate::plot;
use crate::report;
use crate::session::{Session, Stop};
use crate::terminal::Screen;

/// A dot command: its name, what follows it, and what it does.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) argument: &'static str,
    pub(crate) does: &'static str,
    run: fn(&mut Session, &str) -> Result<(), Stop>,
}

/// All of them, in the order of `.help`.
pub(crate) const COMMANDS: &[Command] = &[
    Command { name: ".help", argument: "", does: "this list", run: help },
    Command { name: ".tables", argument: "", does: "tables and views", run: tables },
    Command {
        name: ".matrices",
        argument: "",
        does: "matrices: shape, layout, size",
        run: matrices,
    },
    Command { name: ".schema", argument: "[NAME]", does: "columns and their types", run: schema },
    Command { name: ".mode", argument: "[FORMAT]", does: "how answers are written", run: mode },
    Command {
        name: ".timer",
        argument: "on|off",
        does: "tell how long statements take",
        run: timer,
    },
    Command { name: ".read", argument: "FILE", does: "run the statements of a file", run: read },
    Command {
        name: ".plot",
        argument: "NAME",
        does: "draw a matrix, or what an expression yields",
        run: draw,
    },
    Command { name: ".open", argument: "", does: "begin anew with an empty database", run: open },
    Command { name: ".quit", argument: "", does: "leave, as Ctrl-D does", run: quit },
];

/// Runs a line that begins with a dot.
pub(crate) fn run(session: &mut Session, line: &str) -> Result<(), Stop> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // People end everything with a semicolon.
    let argument = argument.trim().trim_end_matches(';').trim_end();
    let name = name.trim_end_matches(';');
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) if command.argument.is_empty() && !argument.is_empty() && name != ".open" => {
            fail(session, &format!("{name} takes nothing after it"))
        }
        Some(command) => (command.run)(session, argument),
        None => fail(session, &format!("there is no command '{name}'; .help lists them")),
    }
}

fn fail(session: &mut Session, message: &str) -> Result<(), Stop> {
    report::message(message);
    session.failed()
}

/// Prints for the person who gave the command; a closed pipe ends the session as it does elsewhere.
fn say(text: &str) -> Result<(), Stop> {
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|_| Stop::PipeClosed)
}

fn help(_session: &mut Session, _argument: &str) -> Result<(), Stop> {
    let mut text = String::new();
    for command in COMMANDS {
        let usage = format!("{} {}", command.name, command.argument);
        text.push_str(&format!("{usage:<16}  {}\n", command.does));
    }
    text.push_str(
        "\nStatements end with a semicolon and may have several lines. Tab completes,\n\
         Ctrl-R searches the history, Ctrl-C stops a statement or clears the line.\n",
    );
    say(&text)
}

fn tables(session: &mut Session, _argument: &str) -> Result<(), Stop> {
    session.show(
        "SELECT table_name AS name, CASE table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS kind \
         FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY name",
    )
}

fn matrices(session: &mut Session, _argument: &str) -> Result<(), Stop> {
    session.show("SHOW MATRICES")
}

fn schema(session: &mut Session, name: &str) -> Result<(), Stop> {
    let columns = "information_schema.columns WHERE table_schema <> 'information_schema'";
    if name.is_empty() {
        return session.show(&format!(
            "SELECT table_name, column_name, data_type FROM {columns} \
             ORDER BY table_name, ordinal_position"
        ));
    }
    if session.connection.execute(&format!("DESCRIBE MATRIX {}", quoted(name))).is_ok() {
        return session.show(&format!("DESCRIBE MATRIX {}", quoted(name)));
    }
    let text = name.trim_matches('"').replace('\'', "''");
    let known = session
        .connection
        .query(&format!("SELECT 1 FROM {columns} AND table_name = '{text}' LIMIT 1"))
        .and_then(|rows| rows.collect())
        .is_ok_and(|batches| batches.iter().any(|batch| batch.num_rows() > 0));
    if !known {
        return fail(session, &format!("there is no table, view or matrix '{name}'"));
    }
    session.show(&format!(
        "SELECT column_name, data_type, is_nullable FROM {columns} AND table_name = '{text}' \
         ORDER BY ordinal_position"
    ))
}

fn mode(session: &mut Session, name: &str) -> Result<(), Stop> {
    if name.is_empty() {
        return say(&format!("{}\n", session.format.name()));
    }
    match Format::from_str(name, true) {
        Ok(format) => {
            session.format = format;
            Ok(())
        }
        Err(_) => {
            let all: Vec<String> = Format::value_variants().iter().map(|f| f.name()).collect();
            fail(session, &format!("there is no format '{name}'; use {}", all.join(", ")))
        }
    }
}

fn timer(session: &mut Session, argument: &str) -> Result<(), Stop> {
    session.timing = match argument {
        "on" => Some(Timing::Text),
        "off" => None,
        _ => return fail(session, ".timer is on or off"),
    };
    Ok(())
}

fn read(session: &mut Session, path: &str) -> Result<(), Stop> {
    match path.trim_matches(['\'', '"']) {
        "" => fail(session, ".read needs a file"),
        path => session.run_file(Path::new(path)),
    }
}

fn draw(session: &mut Session, expression: &str) -> Result<(), Stop> {
    if expression.is_empty() {
        return fail(session, ".plot needs a matrix: its name, or an expression");
    }
    match session.matrix(expression) {
        Ok(matrix) => say(&plot::plot(&matrix, Screen::standard_output())),
        Err(error) => fail(session, &report::message_of(&error)),
    }
}

fn open(session: &mut Session, path: &str) -> Result<(), Stop> {
    if !path.is_empty() {
        return fail(
            session,
            "databases live in memory: files come with durable storage; .open alone begins anew",
        );
    }
    match session.open_fresh() {
        Ok(()) => say("an empty database in memory; durable ones come with storage\n"),
        Err(error) => fail(session, &report::message_of(&error)),
    }
}

fn quit(_session: &mut Session, _argument: &str) -> Result<(), Stop> {
    Err(Stop::Quit)
}

/// A name between double quotes, unless it has them.
fn quoted(name: &str) -> String {
    if name.starts_with('"') {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}
