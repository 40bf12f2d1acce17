//! Errors as a person reads them: where, what, and the line with a caret under the place.

use std::fmt::Write as _;

use relatrix::{Error, Place};

use crate::terminal::{printable, shortened, width};

/// Where a text came from, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// A file's path, `-c`, or nothing at the prompt.
    pub(crate) name: &'a str,
    /// The text itself.
    pub(crate) text: &'a str,
    /// The line of the origin that the text begins on, from 1.
    pub(crate) first_line: u64,
}

/// Prints an error of the statement that begins at `start`; both places count in the origin's text.
pub(crate) fn error(origin: Origin<'_>, start: Place, place: Option<Place>, message: &str) {
    let (columns, colour) = standard_error();
    eprint!("{}", described(origin, start, place, message, columns, colour));
}

/// Prints an error that has no place.
pub(crate) fn message(text: &str) {
    let (_, colour) = standard_error();
    eprintln!("{}: {text}", mark(colour));
}

/// What happened, without the place: that is shown by the caret.
pub(crate) fn message_of(error: &Error) -> String {
    error.kind().to_string()
}

fn standard_error() -> (usize, bool) {
    let terminal = console::Term::stderr();
    let columns = terminal.size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    (columns, terminal.is_term() && console::colors_enabled_stderr())
}

fn mark(colour: bool) -> &'static str {
    if colour { "\u{1b}[1;31merror\u{1b}[0m" } else { "error" }
}

/// The whole report; without a place, the statement's beginning is all that is told.
fn described(
    origin: Origin<'_>,
    start: Place,
    place: Option<Place>,
    message: &str,
    columns: usize,
    colour: bool,
) -> String {
    let told = place.unwrap_or(start);
    let mut report = String::new();
    if !origin.name.is_empty() {
        let line = told.line + origin.first_line - 1;
        let _ = write!(report, "{}:{line}:{}: ", origin.name, told.column);
    }
    let _ = writeln!(report, "{}: {message}", mark(colour));
    let line = usize::try_from(told.line - 1).ok().and_then(|at| origin.text.lines().nth(at));
    if let (Some(place), Some(line)) = (place, line) {
        let (line, caret) = excerpt(line, place.column, columns.saturating_sub(2));
        let (bold, plain) = if colour { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        let _ = writeln!(report, "  {line}\n  {}{bold}^{plain}", " ".repeat(caret));
    }
    report
}

/// The part of a line around a column that fits, and how many columns of it stand before the place.
fn excerpt(line: &str, column: u64, columns: usize) -> (String, usize) {
    let before: String = line.chars().take(column.saturating_sub(1) as usize).collect();
    let shown = |part: &str| printable(&part.replace('\t', " "));
    let (mut before, after) = (shown(&before), shown(&line[before.len()..]));
    let kept = columns.saturating_sub(width(&after).min(columns / 2)).max(2);
    if width(&before) > kept {
        while width(&before) >= kept {
            before.remove(0);
        }
        before.insert(0, '…');
    }
    let caret = width(&before);
    (shortened(&format!("{before}{after}"), columns), caret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, place: (u64, u64), columns: usize) -> String {
        let origin = Origin { name: "a.sql", text, first_line: 1 };
        let place = Place { line: place.0, column: place.1 };
        described(origin, Place { line: 1, column: 1 }, Some(place), "wrong", columns, false)
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        let text = "SELECT 1,\n\tfoo FROM t";
        assert_eq!(report(text, (2, 2), 80), "a.sql:2:2: error: wrong\n   foo FROM t\n   ^\n");
    }

    #[test]
    fn wide_characters_move_the_caret_by_their_width() {
        let expected = "a.sql:1:14: error: wrong\n  SELECT '日本', x\n                 ^\n";
        assert_eq!(report("SELECT '日本', x", (1, 14), 80), expected);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("SELECT {}, foo, {}", "a".repeat(100), "b".repeat(100));
        let shown = report(&text, (1, 110), 40);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(width(lines[1]) <= 40, "{shown}");
        let under: String = lines[1].chars().skip(width(lines[2]) - 1).take(3).collect();
        assert_eq!(under, "foo", "{shown}");
    }

    #[test]
    fn a_place_after_the_end_is_under_nothing() {
        assert_eq!(report("SELECT", (1, 7), 80), "a.sql:1:7: error: wrong\n  SELECT\n        ^\n");
    }

    #[test]
    fn without_a_place_the_statement_is_named() {
        let origin = Origin { name: "stdin", text: "a; b", first_line: 5 };
        let start = Place { line: 1, column: 4 };
        assert_eq!(described(origin, start, None, "wrong", 80, false), "stdin:5:4: error: wrong\n");
    }
}
