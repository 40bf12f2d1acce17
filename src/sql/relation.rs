//! Relations inside matrix expressions, written as calls so that they are ordinary expressions.
//!
//! ```text
//! (SELECT id, a FROM t ROWS BY id)   relatrix_relation((SELECT id, a FROM t), rows_by => [id])
//! t, where t is a table              relatrix_table((SELECT * FROM t))
//! x WITH (nulls = 'zero')            relatrix_reading(x, nulls => 'zero')
//! ```
//!
//! Being calls around sub-queries, they print as SQL that reads back as the same tree, and DataFusion,
//! which collects tables from sub-queries but not from arguments, finds theirs.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Array, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Query, SelectItem, SetExpr, Spanned, Statement,
    TableFactor, Value, WildcardAdditionalOptions,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token};

use crate::matrix::{Duplicates, Nulls};

const RELATION: &str = "relatrix_relation";
const TABLE: &str = "relatrix_table";
const READING: &str = "relatrix_reading";

/// A query whose rows are a matrix.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatrixQuery {
    pub(crate) query: Box<Query>,
    pub(crate) axes: Axes,
}

/// What makes the rows and columns of a matrix from those of a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Axes {
    /// Rows in the order of the query, every column a matrix column.
    Unlabelled,
    /// `ROWS BY`: the remaining columns are the matrix columns.
    Wide { rows: Axis },
    /// `ROWS BY … COLUMNS BY`: the remaining column, if any, is the value.
    Entries { rows: Axis, columns: Axis },
    /// `NODES BY from, to`: square, both dimensions labelled by the union of the two, or by the one column
    /// of `OVER (…)`.
    Nodes { from: Ident, to: Ident, over: Option<Box<Query>> },
}

/// The key of one dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// Columns of the query.
    pub(crate) keys: Vec<Ident>,
    /// `OVER (…)`: the labels and their order from another query.
    pub(crate) over: Option<Box<Query>>,
}

/// How the relations of an expression become cells, where something is said about it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Reading {
    pub(crate) nulls: Option<Nulls>,
    pub(crate) duplicates: Option<Duplicates>,
}

impl Reading {
    /// What this says, and the other where this says nothing.
    pub(crate) fn or(self, other: Reading) -> Reading {
        Reading {
            nulls: self.nulls.or(other.nulls),
            duplicates: self.duplicates.or(other.duplicates),
        }
    }
}

/// The rules about NULLs, by name.
pub(super) const NULLS: [(&str, Nulls); 4] =
    [("error", Nulls::Error), ("zero", Nulls::Zero), ("nan", Nulls::Nan), ("drop", Nulls::Drop)];

/// The rules about entries given twice, by name.
pub(super) const DUPLICATES: [(&str, Duplicates); 3] =
    [("error", Duplicates::Error), ("sum", Duplicates::Sum), ("last", Duplicates::Last)];

/// What a sub-query encoded by [`MatrixQuery::into_expr`] was written as.
pub(crate) fn as_relation(expr: &Expr) -> Option<MatrixQuery> {
    let query = sub_query(first_argument(expr, RELATION)?)?.clone();
    let argument = |wanted: &str| named_argument(expr, wanted);
    let keys = |name: &str| match argument(name)? {
        Expr::Array(keys) => keys
            .elem
            .iter()
            .map(|key| match key {
                Expr::Identifier(key) => Some(key.clone()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let axis = |by: &str, over: &str| {
        Some(Axis { keys: keys(by)?, over: argument(over).and_then(sub_query).cloned() })
    };
    let rows = axis("rows_by", "rows_over");
    let columns = axis("columns_by", "columns_over");
    let axes = match (rows, columns, axis("nodes_by", "nodes_over")) {
        (Some(rows), Some(columns), None) => Axes::Entries { rows, columns },
        (Some(rows), None, None) => Axes::Wide { rows },
        (None, None, Some(Axis { keys, over })) => {
            let [from, to] = keys.try_into().ok()?;
            Axes::Nodes { from, to, over }
        }
        (None, None, None) => Axes::Unlabelled,
        _ => return None,
    };
    Some(MatrixQuery { query, axes })
}

/// The table that a name in a matrix expression stands for, with the place where it was written.
pub(crate) fn as_named_relation(expr: &Expr) -> Option<&ObjectName> {
    let query = sub_query(first_argument(expr, TABLE)?)?;
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match &select.from.first()?.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// The expression within [`read_as`], and how its relations are read.
pub(crate) fn as_reading(expr: &Expr) -> Option<(&Expr, Reading)> {
    let inner = first_argument(expr, READING)?;
    let text = |name| match named_argument(expr, name)? {
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    };
    let rule = text("nulls").and_then(|rule| NULLS.into_iter().find(|(name, _)| *name == rule));
    let nulls = rule.map(|(_, nulls)| nulls);
    let rule =
        text("duplicates").and_then(|rule| DUPLICATES.into_iter().find(|(name, _)| *name == rule));
    let duplicates = rule.map(|(_, duplicates)| duplicates);
    Some((inner, Reading { nulls, duplicates }))
}

/// An expression whose relations are read so; itself where nothing is said about it.
pub(super) fn read_as(expr: Expr, reading: Reading) -> Expr {
    let Reading { nulls, duplicates } = reading;
    let nulls = nulls.and_then(|nulls| NULLS.into_iter().find(|(_, rule)| *rule == nulls));
    let duplicates = duplicates
        .and_then(|duplicates| DUPLICATES.into_iter().find(|(_, rule)| *rule == duplicates));
    let rules =
        [nulls.map(|(rule, _)| ("nulls", rule)), duplicates.map(|(rule, _)| ("duplicates", rule))];
    let rules: Vec<FunctionArg> =
        rules.into_iter().flatten().map(|(name, rule)| named(name, text(rule))).collect();
    if rules.is_empty() {
        return expr;
    }
    call(READING, expr.span(), [vec![unnamed(expr)], rules].concat())
}

/// The expression that [`as_named_relation`] reads back.
pub(super) fn named_relation(name: ObjectName) -> Expr {
    let span = name.span();
    call(TABLE, span, vec![unnamed(select_all(table(name)))])
}

/// All rows of a file, whose path is quoted as a string is.
pub(super) fn file_rows(path: Ident) -> Box<Query> {
    query_all(table(ObjectName::from(path)))
}

/// `SELECT * FROM factor` as an expression.
pub(super) fn select_all(factor: TableFactor) -> Expr {
    Expr::Subquery(query_all(factor))
}

fn query_all(factor: TableFactor) -> Box<Query> {
    let parsed = Parser::parse_sql(&GenericDialect, "SELECT * FROM factor");
    let Some(Statement::Query(mut query)) = parsed.expect("the template is SQL").pop() else {
        unreachable!("the template is a query");
    };
    let SetExpr::Select(select) = query.body.as_mut() else {
        unreachable!("the template is a SELECT");
    };
    // The template's places are none in the text.
    select.select_token = AttachedToken::empty();
    select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    select.from[0].relation = factor;
    query
}

/// A table factor of this name alone.
pub(super) fn table(name: ObjectName) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

/// `function(arguments)`, standing where `span` is in the text.
pub(super) fn call(function: &str, span: Span, args: Vec<FunctionArg>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(Ident::with_span(span, function)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// An argument without a name.
pub(super) fn unnamed(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

/// An argument with a name.
fn named(name: &str, expr: Expr) -> FunctionArg {
    FunctionArg::Named {
        name: Ident::new(name),
        arg: FunctionArgExpr::Expr(expr),
        operator: FunctionArgOperator::RightArrow,
    }
}

/// A literal.
pub(super) fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

/// Whether an expression is a relation with axes: its keys are column names, not matrices.
pub(super) fn is_relation(expr: &Expr) -> bool {
    first_argument(expr, RELATION).is_some()
}

fn first_argument<'a>(expr: &'a Expr, function: &str) -> Option<&'a Expr> {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    let [name] = name.0.as_slice() else { return None };
    match list.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
            if name.as_ident().is_some_and(|name| name.value == function) =>
        {
            Some(expr)
        }
        _ => None,
    }
}

fn named_argument<'a>(expr: &'a Expr, wanted: &str) -> Option<&'a Expr> {
    let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    list.args.iter().find_map(|argument| match argument {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. }
            if name.value == wanted =>
        {
            Some(expr)
        }
        _ => None,
    })
}

#[allow(clippy::borrowed_box, reason = "its readers keep a clone of the box")]
fn sub_query(expr: &Expr) -> Option<&Box<Query>> {
    match expr {
        Expr::Subquery(query) => Some(query),
        _ => None,
    }
}

impl MatrixQuery {
    /// The query and those that its labels come from.
    pub(super) fn queries(&mut self) -> impl Iterator<Item = &mut Query> {
        let axes = match &mut self.axes {
            Axes::Unlabelled => [None, None],
            Axes::Wide { rows } => [rows.over.as_deref_mut(), None],
            Axes::Nodes { over, .. } => [over.as_deref_mut(), None],
            Axes::Entries { rows, columns } => {
                [rows.over.as_deref_mut(), columns.over.as_deref_mut()]
            }
        };
        [Some(self.query.as_mut())].into_iter().chain(axes).flatten()
    }

    /// The call that [`as_relation`] reads back.
    pub(crate) fn into_expr(self) -> Expr {
        let span = self.query.span();
        let mut args = vec![unnamed(Expr::Subquery(self.query))];
        let mut name = |name: &str, expr| args.push(named(name, expr));
        let mut axis = |by: &str, over: &str, axis: Axis| {
            name(by, identifiers(axis.keys));
            if let Some(query) = axis.over {
                name(over, Expr::Subquery(query));
            }
        };
        match self.axes {
            Axes::Unlabelled => {}
            Axes::Wide { rows } => axis("rows_by", "rows_over", rows),
            Axes::Entries { rows, columns } => {
                axis("rows_by", "rows_over", rows);
                axis("columns_by", "columns_over", columns);
            }
            Axes::Nodes { from, to, over } => {
                axis("nodes_by", "nodes_over", Axis { keys: vec![from, to], over });
            }
        }
        call(RELATION, span, args)
    }
}

fn identifiers(names: Vec<Ident>) -> Expr {
    Expr::Array(Array { elem: names.into_iter().map(Expr::Identifier).collect(), named: false })
}

/// `(SELECT … [ROWS BY …])`, from its opening parenthesis; a sub-query where no axis is given.
pub(super) fn parse_parenthesized(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let relation = parse(parser)?;
    parser.expect_token(&Token::RParen)?;
    Ok(match relation.axes {
        Axes::Unlabelled => Expr::Subquery(relation.query),
        _ => relation.into_expr(),
    })
}

/// A query and its axes.
pub(super) fn parse(parser: &mut Parser) -> Result<MatrixQuery, ParserError> {
    let query = parser.parse_query()?;
    // In `OFFSET 5 ROWS BY id` the query has taken the word that begins the axis.
    let taken = matches!(&parser.get_current_token().token, Token::Word(word) if word.keyword == Keyword::ROWS);
    if taken && parser.peek_keyword(Keyword::BY) {
        parser.prev_token();
    }
    parse_axes(parser, query)
}

/// The axes that stand behind a query.
pub(super) fn parse_axes(
    parser: &mut Parser,
    query: Box<Query>,
) -> Result<MatrixQuery, ParserError> {
    let axes = if consume_axis(parser, "ROWS") {
        let rows = parse_axis(parser)?;
        match consume_axis(parser, "COLUMNS") {
            true => Axes::Entries { rows, columns: parse_axis(parser)? },
            false => Axes::Wide { rows },
        }
    } else if consume_axis(parser, "NODES") {
        let from = parser.parse_identifier()?;
        parser.expect_token(&Token::Comma)?;
        Axes::Nodes { from, to: parser.parse_identifier()?, over: parse_over(parser)? }
    } else if word_is(&parser.peek_token_ref().token, "COLUMNS") {
        return parser.expected_ref("ROWS BY before COLUMNS BY", parser.peek_token_ref());
    } else {
        Axes::Unlabelled
    };
    Ok(MatrixQuery { query, axes })
}

fn parse_axis(parser: &mut Parser) -> Result<Axis, ParserError> {
    let keys = parser.parse_comma_separated(Parser::parse_identifier)?;
    Ok(Axis { keys, over: parse_over(parser)? })
}

fn parse_over(parser: &mut Parser) -> Result<Option<Box<Query>>, ParserError> {
    if !parser.parse_keyword(Keyword::OVER) {
        return Ok(None);
    }
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Some(query))
}

fn consume_axis(parser: &mut Parser, word: &str) -> bool {
    let begins = word_is(&parser.peek_token_ref().token, word)
        && word_is(&parser.peek_nth_token_ref(1).token, "BY");
    if begins {
        parser.advance_token();
        parser.advance_token();
    }
    begins
}

/// Whether the word just read begins `ROWS BY`, `COLUMNS BY` or `NODES BY`, and so is no alias.
pub(super) fn begins_axis(parser: &Parser) -> bool {
    let word = &parser.get_current_token().token;
    ["ROWS", "COLUMNS", "NODES"].iter().any(|axis| word_is(word, axis))
        && word_is(&parser.peek_token_ref().token, "BY")
}

/// Whether a token is this word, in any case and without quotes.
pub(super) fn word_is(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found)
        if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse_expression;

    fn axes(text: &str) -> Axes {
        let expr = parse_expression(&format!("({text})")).unwrap();
        let relation = as_relation(&expr).unwrap_or_else(|| panic!("{text}: {expr:?}"));
        let again = parse_expression(&expr.to_string()).unwrap();
        assert_eq!(again, expr, "{text} prints as {expr}");
        assert_eq!(as_relation(&again), Some(relation.clone()));
        relation.axes
    }

    fn axis(keys: &[&str], over: Option<&str>) -> Axis {
        let over = over.map(|text| {
            let expr = parse_expression(&format!("({text})")).unwrap();
            sub_query(&expr).unwrap().clone()
        });
        Axis { keys: keys.iter().map(|key| Ident::new(*key)).collect(), over }
    }

    #[test]
    fn a_query_with_axes_is_a_relation() {
        let wide = Axes::Wide { rows: axis(&["id"], None) };
        for text in [
            "SELECT id, a FROM t ROWS BY id",
            "SELECT id, a FROM t rows by id",
            "SELECT id, a FROM t AS u ROWS BY id",
            "SELECT id, a FROM t u ROWS BY id",
            "SELECT id, a ROWS BY id",
            "SELECT id, a FROM t WHERE a > 0 ROWS BY id",
            "SELECT id, a FROM t JOIN s ON t.a = s.a ROWS BY id",
            "SELECT id, a FROM t JOIN s USING (a) ROWS BY id",
            "SELECT id, a FROM (SELECT * FROM t) ROWS BY id",
            "SELECT id, sum(a) FROM t GROUP BY id ROWS BY id",
            "SELECT id, a FROM t ORDER BY a DESC ROWS BY id",
            "SELECT id, a FROM t LIMIT 5 ROWS BY id",
            "SELECT id, a FROM t OFFSET 5 ROWS BY id",
            "SELECT id, a FROM t OFFSET 5 ROWS ROWS BY id",
            "SELECT id, a FROM MATRIX(x) ROWS BY id",
            "SELECT id, a FROM t UNION ALL SELECT id, a FROM s ROWS BY id",
            "WITH s AS (SELECT * FROM t) SELECT * FROM s ROWS BY id",
            "SELECT id, sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t \
             ROWS BY id",
        ] {
            assert_eq!(axes(text), wide, "{text}");
        }
        assert_eq!(
            axes("SELECT * FROM t ROWS BY a, \"B\" OVER (SELECT a, b FROM s) COLUMNS BY c"),
            Axes::Entries {
                rows: Axis {
                    keys: vec![Ident::new("a"), Ident::with_quote('"', "B")],
                    ..axis(&[], Some("SELECT a, b FROM s"))
                },
                columns: axis(&["c"], None),
            }
        );
        assert_eq!(
            axes("SELECT * FROM t ROWS BY a COLUMNS BY b, c OVER (SELECT * FROM s ORDER BY 1)"),
            Axes::Entries {
                rows: axis(&["a"], None),
                columns: axis(&["b", "c"], Some("SELECT * FROM s ORDER BY 1")),
            }
        );
        assert_eq!(
            axes("SELECT a, b FROM t NODES BY a, b"),
            Axes::Nodes { from: Ident::new("a"), to: Ident::new("b"), over: None }
        );
        assert_eq!(
            axes("SELECT a, b FROM t NODES BY a, b OVER (SELECT c FROM u)"),
            Axes::Nodes {
                from: Ident::new("a"),
                to: Ident::new("b"),
                over: axis(&[], Some("SELECT c FROM u")).over,
            }
        );
    }

    #[test]
    fn a_query_without_axes_stays_a_sub_query() {
        for text in
            ["(SELECT 1)", "(SELECT a rows FROM t nodes)", "(WITH s AS (SELECT 1) SELECT * FROM s)"]
        {
            assert!(matches!(parse_expression(text).unwrap(), Expr::Subquery(_)), "{text}");
        }
    }

    #[test]
    fn a_named_relation_keeps_its_name_and_place() {
        let name = Ident::with_span(Span::new((2, 5).into(), (2, 6).into()), "t");
        let expr = named_relation(ObjectName::from(name));
        assert_eq!(expr.to_string(), "relatrix_table((SELECT * FROM t))");
        let read = as_named_relation(&expr).unwrap();
        assert_eq!((read.to_string(), read.span().start.column), ("t".to_owned(), 5));
        assert_eq!(expr.span().start.line, 2);
        assert_eq!(as_named_relation(&parse_expression(&expr.to_string()).unwrap()), Some(read));
    }
}
