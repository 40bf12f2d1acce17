//! What the line editor asks while a person types: is it complete, what colours, what may follow.

use std::borrow::Cow;
use std::env;

use relatrix::Connection;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Result};

use super::complete::{Names, candidates, wants_file};
use super::words::is_keyword;
use crate::command::COMMANDS;
use crate::input::{self, Kind};

const KEYWORD: &str = "\u{1b}[1;34m";
const TEXT: &str = "\u{1b}[32m";
const NUMBER: &str = "\u{1b}[36m";
const FUNCTION: &str = "\u{1b}[35m";
const FAINT: &str = "\u{1b}[2m";
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// The editor's helper.
pub(super) struct Helper {
    connection: Connection,
    files: FilenameCompleter,
    colour: bool,
}

impl Helper {
    pub(super) fn new(connection: &Connection) -> Self {
        let colour = console::colors_enabled() && env::var_os("NO_COLOR").is_none();
        Self { connection: connection.clone(), files: FilenameCompleter::new(), colour }
    }

    /// Completes names of this connection from now on.
    pub(super) fn follow(&mut self, connection: &Connection) {
        self.connection = connection.clone();
    }
}

impl rustyline::Helper for Helper {}

impl Validator for Helper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        Ok(match input::is_complete(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        if wants_file(before) {
            return self.files.complete(line, at, context);
        }
        let (start, found) = candidates(before, || Names::of(&self.connection));
        let pair = |name: String| Pair { display: name.clone(), replacement: name };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {
    fn highlight<'l>(&self, line: &'l str, _at: usize) -> Cow<'l, str> {
        if self.colour { Cow::Owned(coloured(line)) } else { Cow::Borrowed(line) }
    }

    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(
        &'s self,
        prompt: &'p str,
        _default: bool,
    ) -> Cow<'b, str> {
        if self.colour {
            Cow::Owned(format!("{BOLD}{prompt}{PLAIN}"))
        } else {
            Cow::Borrowed(prompt)
        }
    }

    fn highlight_char(&self, _line: &str, _at: usize, kind: CmdKind) -> bool {
        self.colour && kind != CmdKind::MoveCursor
    }
}

/// The line with its words coloured by what they are.
fn coloured(line: &str) -> String {
    if let Some(rest) = COMMANDS.iter().find_map(|command| line.strip_prefix(command.name)) {
        let name = &line[..line.len() - rest.len()];
        return format!("{BOLD}{name}{PLAIN}{rest}");
    }
    let mut shown = String::with_capacity(line.len() * 2);
    for token in input::tokens(line) {
        let text = &line[token.range.clone()];
        let called = || line[token.range.end..].trim_start().starts_with('(');
        let colour = match token.kind {
            Kind::Word if is_keyword(text) => KEYWORD,
            Kind::Word if called() => FUNCTION,
            Kind::Text | Kind::Name => TEXT,
            Kind::Number => NUMBER,
            Kind::Comment => FAINT,
            Kind::Word | Kind::Space | Kind::Semicolon | Kind::Symbol => {
                shown.push_str(text);
                continue;
            }
        };
        shown.extend([colour, text, PLAIN]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_leave_the_text_as_it_is() {
        for line in ["SELECT sum (x), 'a', \"b\" FROM t -- 1", ".mode csv", "", "sélect '日本"] {
            assert_eq!(console::strip_ansi_codes(&coloured(line)), line);
        }
    }

    #[test]
    fn words_are_coloured_by_what_they_are() {
        let shown = coloured("select name, abs(1)");
        let expected =
            format!("{KEYWORD}select{PLAIN} name, {FUNCTION}abs{PLAIN}({NUMBER}1{PLAIN})");
        assert_eq!(shown, expected);
    }
}
