//! `COPY … TO 'file' (FORMAT csv, HEADER)`: the options as DuckDB and PostgreSQL write them.
//!
//! DataFusion writes `STORED AS csv OPTIONS ('format.has_header' 'true')`, which it parses itself.

use datafusion::sql::parser::{CopyToSource, CopyToStatement};
use sqlparser::ast::{Statement, Value};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// A `COPY` whose options are in parentheses after the file; else nothing is consumed.
pub(super) fn parse(parser: &mut Parser) -> Result<Option<CopyToStatement>, ParserError> {
    let copy = parser.maybe_parse(|parser| {
        parser.expect_keyword_is(Keyword::COPY)?;
        let source = if parser.consume_token(&Token::LParen) {
            let query = parser.parse_query()?;
            parser.expect_token(&Token::RParen)?;
            CopyToSource::Query(query)
        } else {
            CopyToSource::Relation(parser.parse_object_name(true)?)
        };
        parser.expect_keyword_is(Keyword::TO)?;
        let target = parser.parse_literal_string()?;
        let _ = parser.parse_keyword(Keyword::WITH);
        parser.expect_token(&Token::LParen)?;
        Ok((source, target))
    })?;
    let Some((source, target)) = copy else { return Ok(None) };
    let mut stored_as = None;
    let mut options = Vec::new();
    let given = parser.parse_comma_separated(option)?;
    for (at, (name, value)) in given.iter().enumerate() {
        if given[..at].iter().any(|(other, _)| other == name) {
            return Err(ParserError::ParserError(format!("{name} is given twice")));
        }
        let value = value.clone();
        match name.as_str() {
            "format" => stored_as = Some(value.to_uppercase()),
            _ => options.push((setting(name), Value::SingleQuotedString(value))),
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Some(CopyToStatement { source, target, partitioned_by: vec![], stored_as, options }))
}

/// `COPY table FROM 'file'`, which DataFusion's parser takes for a `COPY … TO`; else nothing is consumed.
pub(super) fn parse_from(parser: &mut Parser) -> Result<Option<Statement>, ParserError> {
    parser.maybe_parse(|parser| {
        parser.expect_keyword_is(Keyword::COPY)?;
        match parser.parse_copy()? {
            copy @ Statement::Copy { to: false, .. } => Ok(copy),
            _ => parser.expected_ref("FROM", parser.peek_token_ref()),
        }
    })
}

/// `name [=] [value]`; an option without a value is switched on.
fn option(parser: &mut Parser) -> Result<(String, String), ParserError> {
    let name = parser.parse_identifier()?.value.to_lowercase();
    let _ = parser.consume_token(&Token::Eq);
    if matches!(parser.peek_token_ref().token, Token::Comma | Token::RParen) {
        return Ok((name, "true".to_owned()));
    }
    let value = parser.next_token();
    match value.token {
        Token::Word(word) => Ok((name, word.value)),
        Token::SingleQuotedString(value) | Token::Number(value, _) => Ok((name, value)),
        _ => parser.expected("a word, a string or a number", value),
    }
}

/// DataFusion's setting for an option.
fn setting(option: &str) -> String {
    let name = match option {
        "header" => "has_header",
        "delim" | "sep" => "delimiter",
        "null" | "nullstr" => "null_value",
        "row_group_size" => "max_row_group_size",
        same => same,
    };
    format!("format.{name}")
}

#[cfg(test)]
mod tests {
    use crate::sql::parse;

    #[test]
    fn options_in_parentheses_are_those_of_datafusion() {
        for (text, same) in [
            ("COPY t TO 'a.csv' (FORMAT csv)", "COPY t TO 'a.csv' STORED AS CSV"),
            (
                "COPY (SELECT 1) TO 'a' (format 'csv', HEADER, delim '|')",
                "COPY (SELECT 1) TO 'a' STORED AS CSV \
                 OPTIONS ('format.has_header' 'true', 'format.delimiter' '|')",
            ),
            (
                "COPY s.t TO 'a.csv' WITH (header = false)",
                "COPY s.t TO 'a.csv' OPTIONS ('format.has_header' 'false')",
            ),
        ] {
            assert_eq!(parse(text).unwrap()[0].kind(), parse(same).unwrap()[0].kind(), "{text}");
        }
        let error = parse("COPY t TO 'a.csv' (FORMAT csv").unwrap_err();
        assert_eq!(error.to_string(), "expected ), found the end of the text at line 1, column 30");
    }
}
