//! Text to tokens, with `x[i, j]` written out as `x[i][j]`, and `@` and `^` as operators of our own.
//! `AS [NOT] MATERIALIZED (` is `AS (`: a hint about common table expressions, which changes no result.
//! `(a, b,)` is `(a, b)`. The type `STRUCT(a INT, b TEXT)` is `STRUCT<a INT, b TEXT>`, as sqlparser knows it.
//!
//! sqlparser reads one subscript per bracket. A comma at the top level of a subscript becomes `][` here,
//! both at the comma's place, so that errors still point into the text as written. A bracket is a
//! subscript where something with a value stands before it, else an array: `x[1, 2]` and `[1, 2]`.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};

use super::dialect::{Dialect, MULTIPLY, POWER};
use super::place::{in_our_words, place};
use crate::error::{Error, Result};

/// The tokens of a text, white space among them.
pub(super) fn tokenize(text: &str) -> Result<Vec<TokenWithSpan>> {
    raw(text)
        .map(named_operators)
        .map(without_hints)
        .map(struct_types)
        .map(without_last_commas)
        .map(split_subscripts)
        .map_err(|error| Error::syntax(in_our_words(&error.message).0).at(place(error.location)))
}

/// Whether a text needs no further line: its last statement is ended by `;`, or there is none.
///
/// A semicolon within quotes or a comment ends nothing. Text that cannot be read at all is complete
/// too, so that its error is shown instead of another line being asked for.
///
/// ```
/// assert!(relatrix::is_complete("SELECT 1; -- one"));
/// assert!(!relatrix::is_complete("SELECT ';'"));
/// ```
pub fn is_complete(text: &str) -> bool {
    let is_white = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    match raw(text) {
        Ok(tokens) => tokens
            .iter()
            .rfind(|token| !is_white(token))
            .is_none_or(|last| last.token == Token::SemiColon),
        Err(error) => !["Unterminated", "EOF"].iter().any(|open| error.message.contains(open)),
    }
}

fn raw(text: &str) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    Tokenizer::new(&Dialect, text).tokenize_with_location()
}

fn named_operators(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for token in &mut tokens {
        let operator = match token.token {
            Token::AtSign => MULTIPLY,
            Token::Caret => POWER,
            _ => continue,
        };
        token.token = Token::CustomBinaryOperator(operator.to_owned());
    }
    tokens
}

fn without_hints(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |token: &Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if token.token == Token::LParen {
            let last_words = |n: usize| {
                let words = kept.iter().enumerate().rev();
                words.filter(|(_, kept)| !matches!(kept.token, Token::Whitespace(_))).nth(n)
            };
            let last_is =
                |n, keyword| last_words(n).is_some_and(|(_, word)| is(&word.token, keyword));
            if last_is(0, Keyword::MATERIALIZED) {
                let negated = usize::from(last_is(1, Keyword::NOT));
                if last_is(1 + negated, Keyword::AS)
                    && let Some((first, _)) = last_words(negated)
                {
                    kept.truncate(first);
                }
            }
        }
        kept.push(token);
    }
    kept
}

/// A type's parentheses follow `STRUCT` and hold two words in a row, the first field's name and type; those
/// of the function `struct` hold expressions.
fn struct_types(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const WITHIN_EXPRESSIONS: [Keyword; 10] = [
        Keyword::AS,
        Keyword::AND,
        Keyword::BETWEEN,
        Keyword::COLLATE,
        Keyword::ILIKE,
        Keyword::IN,
        Keyword::IS,
        Keyword::LIKE,
        Keyword::NOT,
        Keyword::OR,
    ];
    let words: Vec<usize> = (0..tokens.len())
        .filter(|index| !matches!(tokens[*index].token, Token::Whitespace(_)))
        .collect();
    // For each open parenthesis, whether it is a type's.
    let mut open = Vec::new();
    for (at, index) in words.iter().enumerate() {
        let token = |at: usize| words.get(at).map(|index| &tokens[*index].token);
        match token(at) {
            Some(Token::LParen) => {
                let is_type = at > 0
                    && matches!(token(at - 1), Some(Token::Word(word)) if word.keyword == Keyword::STRUCT)
                    && matches!(token(at + 1), Some(Token::Word(word))
                        if ![Keyword::NOT, Keyword::CASE].contains(&word.keyword))
                    && matches!(token(at + 2), Some(Token::Word(word))
                        if !WITHIN_EXPRESSIONS.contains(&word.keyword));
                open.push(is_type);
                if is_type {
                    tokens[*index].token = Token::Lt;
                }
            }
            Some(Token::RParen) if open.pop() == Some(true) => tokens[*index].token = Token::Gt,
            _ => {}
        }
    }
    tokens
}

/// A comma before a closing parenthesis says nothing.
fn without_last_commas(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        if token.token == Token::RParen {
            let last = kept.iter().rposition(|kept| !matches!(kept.token, Token::Whitespace(_)));
            if let Some(last) = last
                && kept[last].token == Token::Comma
            {
                kept.remove(last);
            }
        }
        kept.push(token);
    }
    kept
}

/// What a comma belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Enclosure {
    Subscript,
    Other,
}

fn split_subscripts(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut split = Vec::with_capacity(tokens.len());
    let mut open = Vec::new();
    let mut value_before = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => {
                split.push(token);
                continue;
            }
            Token::LBracket if value_before => open.push(Enclosure::Subscript),
            Token::LBracket | Token::LParen | Token::LBrace => open.push(Enclosure::Other),
            Token::RBracket | Token::RParen | Token::RBrace => {
                open.pop();
            }
            Token::Comma if open.last() == Some(&Enclosure::Subscript) => {
                split.push(TokenWithSpan::new(Token::RBracket, token.span));
                split.push(TokenWithSpan::new(Token::LBracket, token.span));
                value_before = false;
                continue;
            }
            _ => {}
        }
        value_before = ends_value(&token.token);
        split.push(token);
    }
    split
}

/// Whether a value may end with this token, so that a bracket after it is a subscript.
fn ends_value(token: &Token) -> bool {
    match token {
        Token::RParen | Token::RBracket | Token::RBrace | Token::Placeholder(_) => true,
        Token::Word(word) => !matches!(
            word.keyword,
            Keyword::ALL
                | Keyword::AND
                | Keyword::ANY
                | Keyword::ARRAY
                | Keyword::AS
                | Keyword::BETWEEN
                | Keyword::BY
                | Keyword::CASE
                | Keyword::DEFAULT
                | Keyword::DISTINCT
                | Keyword::DIV
                | Keyword::ELSE
                | Keyword::FROM
                | Keyword::HAVING
                | Keyword::ILIKE
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::LIMIT
                | Keyword::NOT
                | Keyword::OFFSET
                | Keyword::ON
                | Keyword::OR
                | Keyword::QUALIFY
                | Keyword::RETURN
                | Keyword::RETURNING
                | Keyword::SELECT
                | Keyword::SOME
                | Keyword::THEN
                | Keyword::TO
                | Keyword::USING
                | Keyword::WHEN
                | Keyword::WHERE
                | Keyword::XOR
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_out(text: &str) -> String {
        tokenize(text).unwrap().iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn a_comma_splits_a_subscript_only_at_its_top_level() {
        for (text, expected) in [
            ("x[i, j]", "x[i][ j]"),
            ("x[:, 'name']", "x[:][ 'name']"),
            ("x[a:b, c:d]", "x[a:b][ c:d]"),
            ("f(x)[1, 2]", "f(x)[1][ 2]"),
            ("x[1][2, 3]", "x[1][2][ 3]"),
            ("$1[1, 2]", "$1[1][ 2]"),
            ("x[f([1, 2], 3), y[4, 5]]", "x[f([1, 2], 3)][ y[4][ 5]]"),
            ("[1, 2]", "[1, 2]"),
            ("[[1, 2], [3, 4]][1, 2]", "[[1, 2], [3, 4]][1][ 2]"),
            ("ARRAY[1, 2]", "ARRAY[1, 2]"),
            ("SELECT [1, 2], x [1, 2]", "SELECT [1, 2], x [1][ 2]"),
            ("a IN [1, 2] AND [1, 2] = b", "a IN [1, 2] AND [1, 2] = b"),
            ("CASE WHEN a THEN b END[1, 2]", "CASE WHEN a THEN b END[1][ 2]"),
            ("f(a => [1, 2])", "f(a => [1, 2])"),
            ("\"select\"[1, 2]", "\"select\"[1][ 2]"),
        ] {
            assert_eq!(written_out(text), expected);
        }
    }

    #[test]
    fn the_hint_of_a_common_table_expression_is_skipped() {
        for (text, expected) in [
            ("WITH a AS MATERIALIZED (SELECT 1)", "WITH a AS (SELECT 1)"),
            ("WITH a AS NOT  MATERIALIZED(SELECT 1)", "WITH a AS (SELECT 1)"),
            ("SELECT a AS materialized", "SELECT a AS materialized"),
            ("SELECT materialized(1)", "SELECT materialized(1)"),
        ] {
            assert_eq!(written_out(text), expected);
        }
    }

    #[test]
    fn both_halves_of_a_split_comma_keep_its_place() {
        let tokens = tokenize("x[i,\n j]").unwrap();
        let halves: Vec<_> = tokens.iter().filter(|token| token.span == tokens[3].span).collect();
        assert_eq!(halves.len(), 2);
        assert_eq!((halves[0].span.start.line, halves[0].span.start.column), (1, 4));
        assert_eq!(tokens.last().map(|token| token.span.start.line), Some(2));
    }

    #[test]
    fn a_text_is_complete_where_a_semicolon_ends_it() {
        for complete in ["", "  -- nothing", "SELECT 1;", "SELECT 1; ", "SELECT 1; -- ;", "a; b;"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in [
            "SELECT 1",
            "SELECT ';",
            "SELECT 1 -- ;",
            "/* ; ",
            "SELECT \"a;",
            "$$ a;",
            "a; b",
            "E'a;",
        ] {
            assert!(!is_complete(open), "{open}");
        }
    }
}
