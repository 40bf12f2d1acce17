//! Where in the text: places of expressions, slices of the text, and syntax errors with both.
//!
//! sqlparser counts lines and columns from 1, columns in characters, as [`Place`] does.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, Spanned, TableFactor, ValueWithSpan, VisitMut,
    VisitorMut,
};
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Location, Span};

use super::walk::walk_mut;
use crate::error::{Error, Place};

/// Where an expression begins: an operator's left operand, a function's name. `None` where the
/// expression does not come from a text.
pub(crate) fn place_of(expr: &Expr) -> Option<Place> {
    place(expr.span().start)
}

/// Where a name stands.
pub(crate) fn place_of_name(name: &Ident) -> Option<Place> {
    place(name.span.start)
}

/// Takes the places out of syntax that outlives its text: they would point into whatever text is read then.
pub(crate) fn forget_places(syntax: &mut impl VisitMut) {
    let _ = walk_mut(syntax, &mut Unplaced);
}

struct Unplaced;

impl Unplaced {
    fn name(name: &mut ObjectName) {
        for part in &mut name.0 {
            if let ObjectNamePart::Identifier(part) = part {
                part.span = Span::empty();
            }
        }
    }
}

impl VisitorMut for Unplaced {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => name.span = Span::empty(),
            Expr::CompoundIdentifier(parts) => {
                parts.iter_mut().for_each(|part| part.span = Span::empty());
            }
            Expr::Function(function) => Self::name(&mut function.name),
            Expr::Case { case_token, end_token, .. } => {
                *case_token = AttachedToken::empty();
                *end_token = AttachedToken::empty();
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        Self::name(relation);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } = factor
        {
            alias.name.span = Span::empty();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.select_token = AttachedToken::empty();
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        value.span = Span::empty();
        ControlFlow::Continue(())
    }
}

/// sqlparser's location as a place; its line 0 is no location.
pub(super) fn place(location: Location) -> Option<Place> {
    (location.line > 0).then_some(Place { line: location.line, column: location.column })
}

/// The whole text, read from the front: offsets are asked for in ascending order.
pub(super) struct Source<'a> {
    text: &'a str,
    offset: usize,
    at: Location,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, offset: 0, at: Location { line: 1, column: 1 } }
    }

    /// The byte at a location, or the end of the text for the location of its end, which is none.
    pub(super) fn offset(&mut self, location: Location) -> usize {
        if location.line == 0 {
            return self.text.len();
        }
        assert!(self.at <= location, "the text is read from the front");
        for character in self.text[self.offset..].chars() {
            if self.at >= location {
                break;
            }
            self.offset += character.len_utf8();
            self.at = match character {
                '\n' => Location { line: self.at.line + 1, column: 1 },
                _ => Location { line: self.at.line, column: self.at.column + 1 },
            };
        }
        self.offset
    }

    /// The text from a byte up to a location, without white space at its end.
    pub(super) fn slice(&mut self, start: usize, end: Location) -> &'a str {
        let end = self.offset(end);
        self.text[start..end].trim_end()
    }

    /// Where the text ends.
    fn end(&self) -> Place {
        let text = self.text.trim_end();
        let line = text.rsplit('\n').next().unwrap_or(text);
        let column = line.chars().count() + 1;
        Place { line: text.matches('\n').count() as u64 + 1, column: column as u64 }
    }

    /// A parser's error as ours: the message without its wrapping, the place taken out of it.
    ///
    /// The end of the text and what has no place of its own are placed too, the latter at the start of
    /// the statement.
    pub(super) fn error(&self, error: DataFusionError, statement: Option<Place>) -> Error {
        let message = match parser_error(error) {
            Ok(ParserError::ParserError(message) | ParserError::TokenizerError(message)) => message,
            Ok(ParserError::RecursionLimitExceeded) => {
                return Error::syntax("the statement is nested too deeply").at(statement);
            }
            Err(other) => return Error::from(other).at(statement),
        };
        let (message, found_at) = split_place(&message);
        let (message, at_end) = in_our_words(message);
        Error::syntax(message).at(found_at).at(at_end.then(|| self.end())).at(statement)
    }
}

fn parser_error(error: DataFusionError) -> Result<ParserError, DataFusionError> {
    match error {
        DataFusionError::SQL(error, _) => Ok(*error),
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => {
            parser_error(*inner)
        }
        other => Err(other),
    }
}

/// `message at Line: 1, Column: 8` in its two halves.
fn split_place(message: &str) -> (&str, Option<Place>) {
    let read = || {
        let (before, place) = message.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((before, Place { line: line.parse().ok()?, column: column.parse().ok()? }))
    };
    read().map_or((message, None), |(before, place)| (before, Some(place)))
}

/// `Expected: x, found: y` as a clause, and whether what was found is the end of the text.
pub(super) fn in_our_words(message: &str) -> (String, bool) {
    let split = message.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: "));
    match split {
        Some((expected, "EOF")) => {
            (format!("expected {expected}, found the end of the text"), true)
        }
        Some((expected, found)) => (format!("expected {expected}, found {found}"), false),
        None => (uncapitalized(message), false),
    }
}

/// Our messages begin small; a keyword at the beginning stays as it is.
fn uncapitalized(message: &str) -> String {
    let mut characters = message.chars();
    match (characters.next(), characters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(characters).collect()
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse_expression;

    #[test]
    fn an_expression_begins_where_its_first_name_or_number_does() {
        for (text, column) in [
            ("a @ b", 1),
            ("  f(a, 1)", 3),
            (" x[1:2, 'a']", 2),
            ("(a + b) @ c", 2),
            (" 2 * a", 2),
            (" a.T", 2),
            (" (SELECT 1 ROWS BY a)", 3),
            (" CASE WHEN a THEN b END", 2),
            (" CAST(a AS DOUBLE)", 7),
        ] {
            let place = place_of(&parse_expression(text).unwrap()).unwrap();
            assert_eq!((place.line, place.column), (1, column), "{text}");
        }
    }

    #[test]
    fn offsets_count_characters_not_bytes() {
        let mut source = Source::new("é = 'ß'\nü;");
        assert_eq!(source.offset(Location { line: 1, column: 3 }), 3);
        assert_eq!(source.slice(5, Location { line: 2, column: 1 }), "'ß'");
        assert_eq!(source.slice(0, Location { line: 0, column: 0 }), "é = 'ß'\nü;");
        assert_eq!(source.end(), Place { line: 2, column: 3 });
    }
}
