//! Tokens to statements: ours are recognized by their first words, the rest is DataFusion's to parse.

use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as SqlStatement};
use sqlparser::ast::{Analyze, Expr, Ident, Statement as SqlAst};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::copy;
use super::dialect::Dialect;
use super::place::{Source, place};
use super::relation::{self, Axes, DUPLICATES, NULLS, word_is};
use super::statement::{
    CopyMatrix, CreateMatrix, Explain, MatrixOptions, MatrixSource, Statement, StatementKind,
    Transaction,
};
use super::tokens::tokenize;
use crate::error::{Place, Result};
use crate::matrix::{Element, Layout};

/// Nested expressions and queries at most. The parser grows its stack as it needs, so this only keeps
/// hostile text from taking the memory; people and their tools nest some hundreds at most.
const NESTING_MAX: usize = 2_000;

/// Splits a text into its statements; empty ones are skipped.
///
/// Only the syntax is looked at. An error names the first thing that does not fit, and its place.
///
/// ```
/// let error = relatrix::parse("SELECT 1;\nSELECT )").unwrap_err();
/// assert_eq!(error.to_string(), "expected an expression, found ) at line 2, column 8");
/// ```
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    // The byte order mark that some editors begin a file with is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut source = Source::new(text);
    let mut parser = parser(tokenize(text)?)?;
    let mut statements = Vec::new();
    loop {
        while parser.parser.consume_token(&Token::SemiColon) {}
        let first = parser.parser.peek_token_ref();
        if first.token == Token::EOF {
            return Ok(statements);
        }
        let location = first.span.start;
        let start = source.offset(location);
        let begins = place(location).unwrap_or(Place { line: 1, column: 1 });
        let kind = statement(&mut parser, &mut source)
            .and_then(|kind| end_of(&mut parser.parser, "the end of the statement").map(|()| kind))
            .map_err(|error| source.error(error, Some(begins)))?;
        let end = parser.parser.peek_token_ref().span.start;
        let text = source.slice(start, end).to_owned();
        statements.push(Statement { text, place: begins, kind: Arc::new(kind) });
    }
}

/// Parses one matrix expression, as a caller of the library gives it.
pub(crate) fn parse_expression(text: &str) -> Result<Expr> {
    expression(text, tokenize(text)?)
}

/// Parses one matrix expression, as a view keeps it, all of which stands where the view's name does: its
/// own text is not the one that is read.
pub(crate) fn parse_view(text: &str, place: Span) -> Result<Expr> {
    let mut tokens = tokenize(text)?;
    tokens.iter_mut().for_each(|token| token.span = place);
    expression(text, tokens)
}

fn expression(text: &str, tokens: Vec<TokenWithSpan>) -> Result<Expr> {
    let source = Source::new(text);
    let mut parser = parser(tokens)?.parser;
    let expression = parser.parse_expr().map_err(DataFusionError::from);
    expression
        .and_then(|expr| end_of(&mut parser, "the end of the expression").map(|()| expr))
        .map_err(|error| source.error(error, None))
}

fn parser(tokens: Vec<TokenWithSpan>) -> Result<DFParser<'static>> {
    Ok(DFParserBuilder::new(tokens)
        .with_dialect(&Dialect)
        .with_recursion_limit(NESTING_MAX)
        .build()?)
}

fn end_of(parser: &mut Parser, what: &str) -> Result<(), DataFusionError> {
    match &parser.peek_token_ref().token {
        Token::SemiColon | Token::EOF => Ok(()),
        _ => Ok(parser.expected_ref(what, parser.peek_token_ref())?),
    }
}

fn statement(parser: &mut DFParser, source: &mut Source) -> Result<StatementKind, DataFusionError> {
    if let Some(ours) = matrix_statement(&mut parser.parser, source)? {
        return Ok(ours);
    }
    if let Some((analyze, verbose, format)) = explained(&mut parser.parser)?
        && let Some(inner) = matrix_statement(&mut parser.parser, source)?
    {
        let inner = Box::new(inner);
        return Ok(StatementKind::Explain(Explain { analyze, verbose, format, inner }));
    }
    if let Some(copy) = copy::parse(&mut parser.parser)? {
        return Ok(StatementKind::Sql(Box::new(SqlStatement::CopyTo(copy))));
    }
    if let Some(copy) = copy::parse_from(&mut parser.parser)? {
        return Ok(StatementKind::Sql(Box::new(SqlStatement::Statement(Box::new(copy)))));
    }
    let parsed = parser.parse_statement()?;
    let SqlStatement::Statement(sql) = &parsed else {
        return Ok(StatementKind::Sql(Box::new(parsed)));
    };
    Ok(match sql.as_ref() {
        SqlAst::StartTransaction { .. } => StatementKind::Transaction(Transaction::Begin),
        SqlAst::Commit { .. } => StatementKind::Transaction(Transaction::Commit),
        SqlAst::Rollback { .. } => StatementKind::Transaction(Transaction::Rollback),
        SqlAst::Savepoint { .. } => StatementKind::Transaction(Transaction::Savepoint),
        SqlAst::ReleaseSavepoint { .. } => StatementKind::Transaction(Transaction::Release),
        SqlAst::Analyze(analyze) => {
            let table = analyze.table_name.clone();
            let (partitions, columns, compute_statistics) = (None, Vec::new(), false);
            let plain = Analyze {
                table_name: table.clone(),
                partitions,
                for_columns: false,
                columns,
                cache_metadata: false,
                noscan: false,
                compute_statistics,
                has_table_keyword: analyze.has_table_keyword,
            };
            if *analyze != plain {
                let message = "ANALYZE takes a table or none: it reads all rows and columns";
                return Err(ParserError::ParserError(message.to_owned()).into());
            }
            StatementKind::Analyze { table }
        }
        _ => StatementKind::Sql(Box::new(parsed)),
    })
}

/// The statements about matrices and what they cost, by their first words.
#[derive(Clone, Copy)]
enum Verb {
    Create,
    Drop,
    Show,
    Describe,
    Copy,
    Calibrate,
    Costs,
    Cache,
    Strategies,
}

/// Which of our statements comes next. `matrix` is still a name where no word follows it, or the one
/// that belongs to SQL: `DESCRIBE matrix`, `COPY matrix TO 'file'`.
fn verb(parser: &Parser) -> Option<Verb> {
    let at = |n: usize, word: &str| word_is(&parser.peek_nth_token_ref(n).token, word);
    let name_at = |n: usize| matches!(parser.peek_nth_token_ref(n).token, Token::Word(_));
    if at(0, "CREATE") {
        let mut n = 1;
        if at(n, "OR") && at(n + 1, "REPLACE") {
            n += 2;
        }
        if at(n, "TEMPORARY") || at(n, "TEMP") {
            n += 1;
        }
        return (at(n, "MATRIX") && name_at(n + 1)).then_some(Verb::Create);
    }
    if at(0, "SHOW") && at(1, "MATRICES") {
        return Some(Verb::Show);
    }
    if at(0, "SHOW") && at(1, "COSTS") {
        return Some(Verb::Costs);
    }
    if at(0, "SHOW") && at(1, "CACHE") {
        return Some(Verb::Cache);
    }
    if at(0, "SHOW") && at(1, "STRATEGIES") {
        return Some(Verb::Strategies);
    }
    if at(0, "CALIBRATE") {
        return Some(Verb::Calibrate);
    }
    if !at(1, "MATRIX") {
        return None;
    }
    if at(0, "DROP") {
        Some(Verb::Drop)
    } else if at(0, "DESCRIBE") || at(0, "DESC") {
        name_at(2).then_some(Verb::Describe)
    } else if at(0, "COPY") {
        let of_sql = ["TO", "STORED", "PARTITIONED", "OPTIONS"].iter().any(|word| at(2, word));
        (!of_sql).then_some(Verb::Copy)
    } else {
        None
    }
}

fn matrix_statement(
    parser: &mut Parser,
    source: &mut Source,
) -> Result<Option<StatementKind>, ParserError> {
    let Some(verb) = verb(parser) else { return Ok(None) };
    parser.advance_token();
    Ok(Some(match verb {
        Verb::Create => StatementKind::CreateMatrix(Box::new(create(parser, source)?)),
        Verb::Drop => {
            parser.advance_token();
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            StatementKind::DropMatrix { name: parser.parse_identifier()?, if_exists }
        }
        Verb::Show => {
            parser.advance_token();
            StatementKind::ShowMatrices
        }
        Verb::Costs => {
            parser.advance_token();
            StatementKind::ShowCosts
        }
        Verb::Cache => {
            parser.advance_token();
            StatementKind::ShowCache
        }
        Verb::Strategies => {
            parser.advance_token();
            StatementKind::ShowStrategies
        }
        Verb::Calibrate => StatementKind::Calibrate,
        Verb::Describe => {
            parser.advance_token();
            StatementKind::DescribeMatrix { name: parser.parse_identifier()? }
        }
        Verb::Copy => {
            parser.advance_token();
            let source = parser.parse_expr()?;
            parser.expect_keyword_is(Keyword::TO)?;
            let path = parser.parse_literal_string()?;
            StatementKind::CopyMatrix(CopyMatrix { source, path, options: file_options(parser)? })
        }
    }))
}

/// The options of `EXPLAIN` (analyze, verbose, format) where one of our statements follows; else nothing
/// is consumed.
fn explained(parser: &mut Parser) -> Result<Option<(bool, bool, Option<String>)>, ParserError> {
    parser.maybe_parse(|parser| {
        parser.expect_keyword_is(Keyword::EXPLAIN)?;
        let analyze = parser.parse_keyword(Keyword::ANALYZE);
        let verbose = parser.parse_keyword(Keyword::VERBOSE);
        let format = match parser.parse_keyword(Keyword::FORMAT) {
            true => Some(parser.parse_identifier()?.value),
            false => None,
        };
        match verb(parser) {
            Some(_) => Ok((analyze, verbose, format)),
            None => parser.expected_ref("a matrix statement", parser.peek_token_ref()),
        }
    })
}

/// `CREATE` is behind us.
fn create(parser: &mut Parser, source: &mut Source) -> Result<CreateMatrix, ParserError> {
    let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
    let temporary = parser.parse_one_of_keywords(&[Keyword::TEMPORARY, Keyword::TEMP]).is_some();
    parser.advance_token();
    let view = parser.parse_keyword(Keyword::VIEW);
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parser.parse_identifier()?;
    let options = match parser.parse_keyword(Keyword::WITH) {
        true => matrix_options(parser)?,
        false => MatrixOptions::default(),
    };
    let source = match view {
        true => view_source(parser, source)?,
        false => matrix_source(parser, source)?,
    };
    Ok(CreateMatrix { name, or_replace, if_not_exists, temporary, options, source })
}

fn matrix_source(parser: &mut Parser, source: &mut Source) -> Result<MatrixSource, ParserError> {
    if parser.parse_keyword(Keyword::AS) {
        return relation::parse(parser).map(MatrixSource::Relation);
    }
    if parser.parse_keyword(Keyword::FROM) {
        let place = parser.peek_token_ref().span;
        let path = parser.parse_literal_string()?;
        let rows = relation::file_rows(Ident::with_quote_and_span('\'', place, path.as_str()));
        let rows = relation::parse_axes(parser, rows)?;
        return Ok(match rows.axes {
            Axes::Unlabelled => MatrixSource::File { path, options: file_options(parser)? },
            _ => MatrixSource::Relation(rows),
        });
    }
    if parser.consume_token(&Token::Eq) {
        let (expr, text) = with_text(parser, source, Parser::parse_expr)?;
        return Ok(MatrixSource::Expression { expr, view: false, text });
    }
    parser.expected_ref("AS query, = expression or FROM 'file'", parser.peek_token_ref())
}

fn view_source(parser: &mut Parser, source: &mut Source) -> Result<MatrixSource, ParserError> {
    let (expr, text) = if parser.parse_keyword(Keyword::AS) {
        let (relation, text) = with_text(parser, source, relation::parse)?;
        (relation.into_expr(), format!("({text})"))
    } else if parser.consume_token(&Token::Eq) {
        with_text(parser, source, Parser::parse_expr)?
    } else {
        return parser.expected_ref("= expression or AS query", parser.peek_token_ref());
    };
    Ok(MatrixSource::Expression { expr, view: true, text })
}

/// What `parse` makes of the text from here on, and that text.
fn with_text<'p, T>(
    parser: &mut Parser<'p>,
    source: &mut Source,
    parse: impl FnOnce(&mut Parser<'p>) -> Result<T, ParserError>,
) -> Result<(T, String), ParserError> {
    let start = source.offset(parser.peek_token_ref().span.start);
    let parsed = parse(parser)?;
    let end = parser.peek_token_ref().span.start;
    Ok((parsed, source.slice(start, end).to_owned()))
}

fn matrix_options(parser: &mut Parser) -> Result<MatrixOptions, ParserError> {
    let mut options = MatrixOptions::default();
    for (name, value) in option_list(parser)? {
        match name.value.to_ascii_lowercase().as_str() {
            "layout" => {
                let layouts =
                    [("dense", Layout::Dense), ("csr", Layout::Csr), ("sparse", Layout::Csr)];
                options.layout = Some(choice(&name, &value, &layouts)?);
            }
            "dtype" => {
                let types = [
                    ("float64", Element::Float64),
                    ("double", Element::Float64),
                    ("float32", Element::Float32),
                    ("real", Element::Float32),
                ];
                options.dtype = Some(choice(&name, &value, &types)?);
            }
            "nulls" => {
                options.reading.nulls = Some(choice(&name, &value, &NULLS)?);
            }
            "duplicates" => {
                options.reading.duplicates = Some(choice(&name, &value, &DUPLICATES)?);
            }
            _ => {
                let known = "layout, dtype, nulls or duplicates";
                return Err(error_at(format!("expected {known}, found {name}"), &name));
            }
        }
    }
    Ok(options)
}

/// The choice that a value names, in any case.
fn choice<T: Copy>(name: &Ident, value: &str, choices: &[(&str, T)]) -> Result<T, ParserError> {
    let found = choices.iter().find(|(choice, _)| choice.eq_ignore_ascii_case(value));
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(choice, _)| format!("'{choice}'")).collect();
        error_at(format!("{name} is {}, not '{value}'", names.join(" or ")), name)
    })
}

fn error_at(message: String, name: &Ident) -> ParserError {
    ParserError::ParserError(format!("{message}{}", name.span.start))
}

/// `[OPTIONS | WITH] (…)` after a file.
fn file_options(parser: &mut Parser) -> Result<Vec<(String, String)>, ParserError> {
    let announced = parser.parse_one_of_keywords(&[Keyword::OPTIONS, Keyword::WITH]).is_some();
    if !announced && parser.peek_token_ref().token != Token::LParen {
        return Ok(vec![]);
    }
    let options = option_list(parser)?.into_iter();
    Ok(options.map(|(name, value)| (name.value.to_ascii_lowercase(), value)).collect())
}

/// `(name [=] value, …)`, where a value is a word, a string or a number.
fn option_list(parser: &mut Parser) -> Result<Vec<(Ident, String)>, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let options = parser.parse_comma_separated(|parser| {
        let name = parser.parse_identifier()?;
        let _ = parser.consume_token(&Token::Eq);
        let value = parser.next_token();
        match value.token {
            Token::Word(word) => Ok((name, word.value)),
            Token::SingleQuotedString(value) | Token::Number(value, _) => Ok((name, value)),
            _ => parser.expected("a word, a string or a number", value),
        }
    })?;
    parser.expect_token(&Token::RParen)?;
    for (at, (name, _)) in options.iter().enumerate() {
        if options[..at].iter().any(|(other, _)| other.value.eq_ignore_ascii_case(&name.value)) {
            return Err(error_at(format!("{name} is given twice"), name));
        }
    }
    Ok(options)
}
