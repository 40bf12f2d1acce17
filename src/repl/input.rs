//! Cuts text into words, and words into the statements and dot commands that a session runs.
//!
//! No grammar here: just enough of SQL's lexical rules to know where a statement ends, what the prompt
//! colours, and whether more lines are to come.

use std::ops::Range;

use relatrix::Place;

/// What a stretch of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword without quotes.
    Word,
    /// A number.
    Number,
    /// A string between single quotes or dollar signs.
    Text,
    /// A name between double quotes or backquotes.
    Name,
    /// `-- …` or `/* … */`.
    Comment,
    /// White space.
    Space,
    /// The end of a statement.
    Semicolon,
    /// Any other character.
    Symbol,
}

/// A stretch of text of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) range: Range<usize>,
    /// Whether a string, name or comment has its closing mark.
    pub(crate) closed: bool,
}

/// All of the text, cut into tokens without gaps.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let (kind, length, closed) = first_token(rest)?;
        let range = at..at + length;
        at = range.end;
        Some(Token { kind, range, closed })
    })
}

/// Kind, length in bytes and closedness of the token that the text begins with.
fn first_token(text: &str) -> Option<(Kind, usize, bool)> {
    let first = text.chars().next()?;
    let second = text[first.len_utf8()..].chars().next();
    let run = |belongs: fn(char) -> bool| text.find(|c| !belongs(c)).unwrap_or(text.len());
    Some(match (first, second) {
        (';', _) => (Kind::Semicolon, 1, true),
        ('-', Some('-')) => (Kind::Comment, text.find('\n').unwrap_or(text.len()), true),
        ('/', Some('*')) => closing(Kind::Comment, block_comment(text), text),
        ('\'', _) => closing(Kind::Text, quoted(text, 1, '\'', false), text),
        ('e' | 'E', Some('\'')) => closing(Kind::Text, quoted(text, 2, '\'', true), text),
        ('"' | '`', _) => closing(Kind::Name, quoted(text, 1, first, false), text),
        ('$', _) => match dollar_tag(text) {
            Some(tag) => {
                let end = text[tag.len()..].find(tag).map(|at| at + 2 * tag.len());
                closing(Kind::Text, end, text)
            }
            None => (Kind::Symbol, 1, true),
        },
        (c, _) if c.is_whitespace() => (Kind::Space, run(char::is_whitespace), true),
        (c, _) if c.is_ascii_digit() => {
            (Kind::Number, run(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'), true)
        }
        (c, _) if is_word(c) => (Kind::Word, run(is_word), true),
        (c, _) => (Kind::Symbol, c.len_utf8(), true),
    })
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn closing(kind: Kind, end: Option<usize>, text: &str) -> (Kind, usize, bool) {
    (kind, end.unwrap_or(text.len()), end.is_some())
}

/// The end of a string that begins before `from`; a doubled quote does not close it.
fn quoted(text: &str, from: usize, quote: char, backslash: bool) -> Option<usize> {
    let mut characters = text[from..].char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if backslash && c == '\\' {
            characters.next();
        } else if c == quote && characters.next_if(|&(_, next)| next == quote).is_none() {
            return Some(from + at + 1);
        }
    }
    None
}

/// The end of a block comment; they nest.
fn block_comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    loop {
        let mark = text[at..].find(['*', '/'])?;
        at += mark;
        match text.as_bytes().get(at..at + 2)? {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// `$$` or `$tag$`, which open a string that the same tag closes; `$1` and `$name` are parameters.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = 1 + text[1..].find('$')?;
    let tag = &text[1..end];
    let named = tag.chars().all(is_word) && !tag.starts_with(|c: char| c.is_ascii_digit());
    named.then(|| &text[..=end])
}

/// One thing for a session to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) kind: PieceKind,
    /// Without comments before it and the semicolon after it.
    pub(crate) text: &'a str,
    /// Where it begins, in bytes.
    pub(crate) start: usize,
    /// Whether it has its semicolon, or as a command its line end.
    pub(crate) complete: bool,
}

/// What a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Statement,
    /// A line that begins with a dot.
    Command,
}

/// The statements and dot commands of a text.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = 0;
    while let Some(piece) = first_piece(text, &mut rest) {
        pieces.push(piece);
    }
    pieces
}

fn first_piece<'a>(text: &'a str, rest: &mut usize) -> Option<Piece<'a>> {
    let offset = *rest;
    let mut start = None;
    for token in tokens(&text[offset..]) {
        let range = token.range.start + offset..token.range.end + offset;
        *rest = range.end;
        match (token.kind, start) {
            (Kind::Space, _) | (Kind::Semicolon, None) => {}
            (Kind::Comment, _) if start.is_some() || token.closed => {}
            (Kind::Symbol, None) if text[range.clone()].starts_with('.') => {
                let line = text[range.start..].find('\n');
                let end = line.map_or(text.len(), |at| range.start + at);
                *rest = end;
                let command = text[range.start..end].trim_end();
                return Some(Piece {
                    kind: PieceKind::Command,
                    text: command,
                    start: range.start,
                    complete: line.is_some(),
                });
            }
            (Kind::Semicolon, Some(start)) => {
                let (text, kind) = (text[start..range.start].trim_end(), PieceKind::Statement);
                return Some(Piece { kind, text, start, complete: true });
            }
            (_, None) => start = Some(range.start),
            (_, Some(_)) => {}
        }
    }
    start.map(|start| {
        let (text, kind) = (text[start..].trim_end(), PieceKind::Statement);
        Piece { kind, text, start, complete: false }
    })
}

/// Whether the text can be run as it is: nothing in it waits for a semicolon or a closing mark.
pub(crate) fn is_complete(text: &str) -> bool {
    pieces(text).iter().all(|piece| piece.complete || piece.kind == PieceKind::Command)
        && tokens(text).last().is_none_or(|token| token.closed)
}

/// Line and column of a byte of the text.
pub(crate) fn place_of(text: &str, at: usize) -> Place {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place {
        line: before.matches('\n').count() as u64 + 1,
        column: before[line_start..].chars().count() as u64 + 1,
    }
}

/// A place within a text that itself begins at `start`.
pub(crate) fn place_within(start: Place, place: Place) -> Place {
    match place.line {
        1 => Place { line: start.line, column: start.column + place.column - 1 },
        line => Place { line: start.line + line - 1, column: place.column },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        pieces(text).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_semicolon_within_quotes_or_comments_ends_nothing() {
        let text =
            "SELECT ';', \";\", E'\\';', $$;$$, $a$;$$;$a$ /* ; /* ; */ ; */ -- ;\n + 1; SELECT 2";
        let found = texts(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1], "SELECT 2");
    }

    #[test]
    fn comments_and_empty_statements_are_no_pieces() {
        assert_eq!(texts("-- a comment\n;; /* another */ ;"), Vec::<&str>::new());
        assert_eq!(texts("-- why\nSELECT 1;\n-- end"), ["SELECT 1"]);
        assert!(is_complete("SELECT 1; -- and that is all"));
    }

    #[test]
    fn a_line_that_begins_with_a_dot_is_a_command() {
        let found = pieces(".mode csv\nSELECT .5;\n  .quit");
        let kinds: Vec<_> = found.iter().map(|piece| (piece.kind, piece.text)).collect();
        use PieceKind::{Command, Statement};
        assert_eq!(kinds, [(Command, ".mode csv"), (Statement, "SELECT .5"), (Command, ".quit")]);
    }

    #[test]
    fn parameters_are_no_strings() {
        assert_eq!(texts("SELECT $1; SELECT $a"), ["SELECT $1", "SELECT $a"]);
        assert_eq!(texts("SELECT $1$; SELECT 2").len(), 2);
    }

    #[test]
    fn what_is_open_is_incomplete() {
        for open in
            ["SELECT 1", "SELECT ';", "SELECT \";", "/* ;", "SELECT $$;", "SELECT 1; SELECT"]
        {
            assert!(!is_complete(open), "{open}");
        }
        for closed in ["", "SELECT 1;", ".help", "SELECT 'it''s';", "-- note"] {
            assert!(is_complete(closed), "{closed}");
        }
    }

    #[test]
    fn tokens_cover_the_text() {
        let text = "select Ünïcode,'a''b' from \"t\" where x@y>=1e3 -- ü";
        let joined: String = tokens(text).map(|token| &text[token.range]).collect();
        assert_eq!(joined, text);
    }

    #[test]
    fn places_count_characters_from_one() {
        let text = "SELECT 1;\n  SELECT 'é', x";
        let piece = pieces(text)[1].clone();
        let start = place_of(text, piece.start);
        assert_eq!(start, Place { line: 2, column: 3 });
        let inner = Place { line: 1, column: 13 };
        assert_eq!(place_within(start, inner), Place { line: 2, column: 15 });
        assert_eq!(place_within(start, Place { line: 2, column: 4 }), Place { line: 3, column: 4 });
    }
}
