//! What a word at the cursor may become: keywords, tables, columns, matrices, functions, dot commands.

use clap::ValueEnum;
use relatrix::{Connection, Result};

use super::words::{KEYWORDS, MATRIX_FUNCTIONS};
use crate::command::COMMANDS;
use crate::format::Format;
use crate::input::{self, Kind, PieceKind, is_word};

/// What the database has names for, as of now.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) tables: Vec<String>,
    /// Table and column.
    pub(super) columns: Vec<(String, String)>,
    pub(super) matrices: Vec<String>,
    pub(super) functions: Vec<String>,
}

impl Names {
    /// Asks the database; what it cannot tell is left out, as completion is a convenience.
    pub(super) fn of(connection: &Connection) -> Self {
        let columns = pairs(
            connection,
            "SELECT table_name, column_name FROM information_schema.columns \
             WHERE table_schema <> 'information_schema'",
        );
        let tables = pairs(
            connection,
            "SELECT table_name, '' FROM information_schema.tables \
             WHERE table_schema <> 'information_schema'",
        );
        let functions =
            pairs(connection, "SELECT DISTINCT routine_name, '' FROM information_schema.routines");
        let firsts = |pairs: Result<Vec<(String, String)>>| {
            pairs.unwrap_or_default().into_iter().map(|(first, _)| first).collect()
        };
        Self {
            tables: firsts(tables),
            columns: columns.unwrap_or_default(),
            matrices: matrices(connection).unwrap_or_default(),
            functions: firsts(functions),
        }
    }
}

fn pairs(connection: &Connection, query: &str) -> Result<Vec<(String, String)>> {
    connection.query(query)?.rows()
}

fn matrices(connection: &Connection) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for batch in connection.query("SHOW MATRICES")? {
        let batch = batch?;
        let first = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8)?;
        let first = arrow::array::AsArray::as_string::<i32>(&first);
        names.extend(first.iter().flatten().map(str::to_owned));
    }
    Ok(names)
}

/// Whether the cursor is where the name of a file is expected: within a string, or after `.read`.
pub(super) fn wants_file(before: &str) -> bool {
    let last = input::tokens(before).last();
    let in_text = last.is_some_and(|token| token.kind == Kind::Text && !token.closed);
    in_text || command_of(before).is_some_and(|(name, _)| name == ".read")
}

/// The dot command being typed and what follows it, once its name is finished.
fn command_of(before: &str) -> Option<(&str, &str)> {
    let piece = input::pieces(before).pop()?;
    let typed = &before[piece.start..];
    let (name, argument) = typed.split_once(char::is_whitespace)?;
    (piece.kind == PieceKind::Command).then_some((name, argument))
}

/// Where the word before the cursor begins, and what it may become.
pub(super) fn candidates(before: &str, names: impl FnOnce() -> Names) -> (usize, Vec<String>) {
    let start = before
        .rfind(|c| !is_word(c))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let word = &before[start..];
    let earlier = &before[..start];
    let mut found: Vec<String> = Vec::new();
    let mut offer = |name: &str| {
        if starts_with(name, word) && name.len() >= word.len() {
            found.push(name.to_owned());
        }
    };
    if let Some((command, _)) = command_of(before) {
        match command {
            ".mode" => Format::value_variants().iter().for_each(|format| offer(&format.name())),
            ".timer" => ["on", "off"].into_iter().for_each(offer),
            ".plot" => names().matrices.iter().for_each(|name| offer(name)),
            ".schema" => {
                let names = names();
                names.tables.iter().chain(&names.matrices).for_each(|name| offer(name));
            }
            _ => {}
        }
    } else if earlier.ends_with('.')
        && input::pieces(before).pop().is_some_and(|piece| piece.kind == PieceKind::Command)
    {
        let commands = COMMANDS.iter().filter(|command| starts_with(&command.name[1..], word));
        return (start - 1, commands.map(|command| command.name.to_owned()).collect());
    } else if let Some(table) = earlier.strip_suffix('.').map(last_word).filter(|t| !t.is_empty()) {
        let names = names();
        // An alias is not resolved: after one, every column is offered.
        let known = names.tables.iter().any(|name| name.eq_ignore_ascii_case(table));
        let of_table = |name: &str| !known || name.eq_ignore_ascii_case(table);
        names.columns.iter().filter(|(t, _)| of_table(t)).for_each(|(_, column)| offer(column));
    } else if !word.is_empty() || names_a_relation(earlier) {
        let names = names();
        names.tables.iter().chain(&names.matrices).for_each(|name| offer(name));
        if !names_a_relation(earlier) || !word.is_empty() {
            names.columns.iter().for_each(|(_, column)| offer(column));
            names.functions.iter().for_each(|name| offer(name));
            MATRIX_FUNCTIONS.iter().for_each(|name| offer(name));
            let lower = word.starts_with(|c: char| c.is_lowercase());
            for keyword in KEYWORDS {
                offer(&if lower { keyword.to_ascii_lowercase() } else { (*keyword).to_owned() });
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    (start, found)
}

/// Whether a table or matrix is expected next.
fn names_a_relation(earlier: &str) -> bool {
    let last = last_word(earlier.trim_end()).to_ascii_uppercase();
    matches!(last.as_str(), "FROM" | "JOIN" | "INTO" | "UPDATE" | "TABLE" | "MATRIX" | "DESCRIBE")
}

fn last_word(text: &str) -> &str {
    let start = text.char_indices().rev().take_while(|(_, c)| is_word(*c)).last();
    start.map_or("", |(at, _)| &text[at..])
}

fn starts_with(name: &str, word: &str) -> bool {
    let mut name = name.chars().flat_map(char::to_lowercase);
    word.chars().flat_map(char::to_lowercase).all(|c| name.next() == Some(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let columns = [("flights", "origin"), ("flights", "delay"), ("weather", "wind")];
        Names {
            tables: owned(&["flights", "weather"]),
            columns: columns.map(|(t, c)| (t.to_owned(), c.to_owned())).to_vec(),
            matrices: owned(&["links"]),
            functions: owned(&["sum", "strpos"]),
        }
    }

    fn completed(before: &str) -> Vec<String> {
        let (start, found) = candidates(before, names);
        found.iter().map(|name| format!("{}{name}", &before[..start])).collect()
    }

    #[test]
    fn keywords_keep_the_case_they_are_typed_in() {
        assert_eq!(completed("SEL"), ["SELECT"]);
        assert_eq!(completed("sel"), ["select"]);
    }

    #[test]
    fn tables_follow_from_and_columns_their_table() {
        assert_eq!(
            completed("SELECT * FROM "),
            ["flights", "links", "weather"].map(|n| format!("SELECT * FROM {n}"))
        );
        assert_eq!(completed("SELECT flights."), ["SELECT flights.delay", "SELECT flights.origin"]);
        assert_eq!(completed("SELECT f.").len(), 3);
        assert_eq!(completed("SELECT del"), ["SELECT delay", "SELECT delete"]);
        assert_eq!(completed("SELECT * FROM MATRIX(lin"), ["SELECT * FROM MATRIX(links"]);
    }

    #[test]
    fn dot_commands_and_their_arguments() {
        assert_eq!(completed(".ma"), [".matrices"]);
        assert_eq!(completed(".mode js"), [".mode json"]);
        assert_eq!(completed(".plot "), [".plot links"]);
        assert_eq!(completed("SELECT 1;\n.ti"), ["SELECT 1;\n.timer"]);
    }

    #[test]
    fn files_within_strings_and_after_read() {
        assert!(wants_file("SELECT * FROM 'exa"));
        assert!(wants_file(".read exa"));
        assert!(!wants_file("SELECT 'a' FROM fl"));
    }

    #[test]
    fn nothing_typed_offers_nothing() {
        assert!(completed("").is_empty());
        assert!(completed("SELECT 1; ").is_empty());
    }
}
