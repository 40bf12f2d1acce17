//! Unlike names for the columns of one SELECT list.
//!
//! SQL lets a list hold the same expression or name several times; DataFusion wants each once. So every
//! repetition is given an alias before planning. In a sub-query that alias is the column's name, `a_1`
//! for the second `a`, as in DuckDB; in the outermost list it is taken off the result again. There an
//! expression without an alias is called as it was written, and not as DataFusion plans it.
//!
//! What a wildcard holds is not known here, nor what DataFusion calls a sub-query: beside them every column
//! and every sub-query that may repeat a name is given an alias.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Fields, Schema};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::{CopyToSource, Statement as SqlStatement};
use futures::StreamExt;
use sqlparser::ast::{
    AccessExpr, DuplicateTreatment, Expr, FunctionArguments, Ident, Query, Select, SelectItem,
    SetExpr, Statement, Subscript, UnaryOperator, Value, Visit, VisitorMut,
};

use super::desugar::desugar;
use super::merged::KnownColumns;
use super::walk::{walk_expressions, walk_mut};
use super::wildcards::Wildcards;
use crate::error::Result;

/// What to call the columns of a result.
#[derive(Debug, Default)]
pub(crate) struct DisplayNames {
    /// By the alias that is ours.
    by_alias: HashMap<String, String>,
    /// The texts of expressions, by their places in the list; of those that may be several columns, none.
    written: Vec<Option<String>>,
    /// The places of what may be several columns, as `*` is: the first and the last.
    spread: Option<(usize, usize)>,
}

impl DisplayNames {
    /// The names of a statement as it was written, for those columns that DataFusion would call otherwise.
    pub(crate) fn written(statement: &SqlStatement) -> Self {
        let mut names = Self::default();
        let SqlStatement::Statement(statement) = statement else { return names };
        let Statement::Query(query) = statement.as_ref() else { return names };
        let mut body = query.body.as_ref();
        let select = loop {
            match body {
                SetExpr::Select(select) => break select,
                SetExpr::Query(query) => body = query.body.as_ref(),
                SetExpr::SetOperation { left, .. } => body = left.as_ref(),
                _ => return names,
            }
        };
        for (at, item) in select.projection.iter().enumerate() {
            let is_single = match item {
                SelectItem::UnnamedExpr(expr) => !unnests(expr),
                SelectItem::ExprWithAlias { .. } => true,
                _ => false,
            };
            if !is_single {
                names.spread = Some((names.spread.map_or(at, |(first, _)| first), at));
            }
            names.written.push(match item {
                SelectItem::UnnamedExpr(expr) if is_single => match Name::of(item) {
                    Some(Name::Expression(_)) => Some(expr.to_string()),
                    _ => None,
                },
                _ => None,
            });
        }
        names
    }

    /// The text of the column at a place, of `count`.
    fn written_at(&self, at: usize, count: usize) -> Option<&str> {
        let items = self.written.len();
        let item = match self.spread {
            None => (items == count).then_some(at)?,
            Some((first, _)) if at < first => at,
            Some((_, last)) => (at + items).checked_sub(count).filter(|&item| item > last)?,
        };
        self.written[item].as_deref()
    }

    /// The rows under the names that the statement asked for.
    pub(crate) fn renamed(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        if self.by_alias.is_empty() && self.written.iter().all(Option::is_none) {
            return rows;
        }
        let given = rows.schema();
        let count = given.fields().len();
        let name = |at: usize, field: &Field| {
            let alias = || self.by_alias.get(field.name()).map(String::as_str);
            self.written_at(at, count).or_else(alias)
        };
        let fields: Fields = given
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| match name(at, field) {
                Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
                None => Arc::clone(field),
            })
            .collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, given.metadata().clone()));
        let shown = Arc::clone(&schema);
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let (_, columns, _) = batch.into_parts();
            Ok(RecordBatch::try_new_with_options(Arc::clone(&shown), columns, &options)?)
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// Whether an expression may be several columns.
fn unnests(expr: &Expr) -> bool {
    let found = walk_expressions(expr, |part| match part {
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("unnest") => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Gives repeated columns of every SELECT list an alias, and DataFusion its own forms of what it lacks.
/// The aliases are added to `names`; `known` says what the [`merged_tables`](super::merged_tables) have.
///
/// # Errors
/// Columns that outer joins merge, and nobody knows whose they are.
pub(crate) fn distinguish(
    statement: &mut SqlStatement,
    names: &mut DisplayNames,
    known: &KnownColumns,
) -> Result<()> {
    match statement {
        SqlStatement::Statement(statement) => {
            desugar(statement.as_mut(), known)?;
            if let Statement::Query(query) = statement.as_mut() {
                let sorted = query.order_by.as_ref().map(mentioned);
                outermost(&mut query.body, sorted, false, names);
            }
            let _ = walk_mut(statement.as_mut(), &mut Inner);
        }
        SqlStatement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                desugar(query.as_mut(), known)?;
                let _ = walk_mut(query.as_mut(), &mut Inner);
            }
        }
        SqlStatement::Explain(explain) => distinguish(&mut explain.statement, names, known)?,
        _ => {}
    }
    Ok(())
}

/// The list that names the result's columns: the first of a set operation.
///
/// If the result is sorted, by a column that the list holds converted, as in
/// `SELECT a::TEXT FROM t ORDER BY a`, DataFusion adds that column to the list; so it must have an alias.
fn outermost(
    body: &mut SetExpr,
    sorted_by: Option<Vec<String>>,
    united: bool,
    names: &mut DisplayNames,
) {
    match body {
        SetExpr::Select(select) => {
            rename(select, &List::Outermost { sorted_by, united }, |name, position| {
                let alias = format!("{name} ({position})");
                names.by_alias.insert(alias.clone(), name.to_owned());
                alias
            });
        }
        SetExpr::Query(query) => {
            let sorted_by = sorted_by.or(query.order_by.as_ref().map(mentioned));
            outermost(&mut query.body, sorted_by, united, names);
        }
        SetExpr::SetOperation { left, .. } => outermost(left, None, true, names),
        _ => {}
    }
}

/// The names of no more than one part in some syntax.
fn mentioned(syntax: &impl Visit) -> Vec<String> {
    let mut names = Vec::new();
    let _ = walk_expressions(syntax, |part| {
        if let Expr::Identifier(name) = part {
            names.push(folded(name));
        }
        ControlFlow::<()>::Continue(())
    });
    names
}

/// Every other list. The outermost one comes by again, with nothing left to rename.
struct Inner;

impl VisitorMut for Inner {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        lists(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn lists(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            rename(select, &List::Inner, |name, position| match position {
                0 => name.to_owned(),
                position => format!("{name}_{position}"),
            });
        }
        SetExpr::SetOperation { left, right, .. } => {
            lists(left);
            lists(right);
        }
        _ => {}
    }
}

/// Which list it is whose columns are told apart.
enum List {
    /// That of the result, which is shown without our aliases; the first of several where `united`.
    Outermost { sorted_by: Option<Vec<String>>, united: bool },
    /// Any other: its names may be referred to.
    Inner,
}

/// Aliases the items of a list that are or may be ambiguous beside the others, and converted columns where
/// the list is sorted. The position counts the earlier ones of the same name; at 0 there is none, but what
/// DataFusion would call the item is not known.
fn rename(select: &mut Select, list: &List, mut alias: impl FnMut(&str, usize) -> String) {
    let wildcards = Wildcards::of(select);
    let is_alone = select.projection.len() == 1;
    let sorted_by = match list {
        List::Outermost { sorted_by, .. } => sorted_by.as_deref(),
        List::Inner => None,
    };
    // An alias that a clause refers to is needed.
    let mut kept = sorted_by.unwrap_or_default().to_vec();
    kept.extend(mentioned(&select.group_by));
    kept.extend([&select.having, &select.qualify].into_iter().flat_map(mentioned));
    let mut earlier: Vec<Name> = Vec::new();
    for item in &mut select.projection {
        let Some(mut name) = Name::of(item) else { continue };
        let converted = sorted_by.is_some()
            && matches!(name, Name::Column { .. })
            && matches!(item, SelectItem::UnnamedExpr(expr)
                if !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
        let clashes = earlier.iter().any(|other| other.clashes_with(&name));
        let repeats = match (&name, list) {
            (Name::Column { relation, .. }, List::Outermost { united: false, .. }) => {
                wildcards.may_hold(relation.as_deref())
            }
            (Name::Alias(alias), List::Outermost { united: false, .. }) => {
                wildcards.any() && !kept.contains(alias)
            }
            // The rows of a set operation are sorted by these names, and those of a sub-query are used.
            (Name::Column { relation, .. }, _) => wildcards.hold(relation.as_deref()),
            (Name::Alias(_) | Name::Expression(_), _) => false,
        };
        let is_named_by_query = match item {
            SelectItem::UnnamedExpr(expr) => !is_alone && holds_query(expr) && !unnests(expr),
            _ => false,
        };
        if converted || clashes || repeats || is_named_by_query {
            let shown = match list {
                List::Inner => sub_query_name(item).unwrap_or_else(|| name.shown(item)),
                List::Outermost { .. } => name.shown(item),
            };
            let is_inner = matches!(list, List::Inner);
            let first = usize::from(converted || clashes || repeats || !is_inner);
            let mut positions = first..;
            let new = loop {
                let new = alias(&shown, positions.next().expect("there is always a next one"));
                let candidate = Name::Alias(new);
                if !earlier.iter().any(|other| other.clashes_with(&candidate)) {
                    break candidate;
                }
            };
            let Name::Alias(text) = &new else { unreachable!("the candidates are aliases") };
            let expr = match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
                _ => continue,
            };
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', text),
            };
            name = new;
        }
        earlier.push(name);
    }
}

/// Whether the value of a query is part of an expression.
fn holds_query(expr: &Expr) -> bool {
    let found = walk_expressions(expr, |part| match part {
        Expr::Subquery(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// The name of the column of an item that is a query.
fn sub_query_name(item: &SelectItem) -> Option<String> {
    let SelectItem::UnnamedExpr(expr) = item else { return None };
    let mut expr = expr;
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    let Expr::Subquery(query) = expr else { return None };
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => {
                let item = select.projection.first()?;
                return Name::of(item).map(|name| name.shown(item));
            }
            SetExpr::Query(query) => body = query.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return None,
        }
    }
}

/// What a column of a list is called, in as far as DataFusion compares it.
enum Name {
    Column {
        relation: Option<String>,
        column: String,
    },
    Alias(String),
    /// The text of an expression, without what DataFusion leaves out of names.
    Expression(String),
}

impl Name {
    fn of(item: &SelectItem) -> Option<Self> {
        Some(match item {
            SelectItem::ExprWithAlias { alias, .. } => Self::Alias(folded(alias)),
            SelectItem::UnnamedExpr(expr) => match canonical(expr) {
                Expr::Identifier(column) => {
                    Self::Column { relation: None, column: folded(&column) }
                }
                Expr::CompoundIdentifier(mut parts) => {
                    let column = folded(&parts.pop()?);
                    Self::Column { relation: parts.last().map(folded), column }
                }
                expr => Self::Expression(expr.to_string().to_lowercase()),
            },
            _ => return None,
        })
    }

    fn clashes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Column { relation: left, column: a },
                Self::Column { relation: right, column: b },
            ) => a == b && (left.is_none() || right.is_none() || left == right),
            (Self::Alias(a) | Self::Expression(a), Self::Alias(b) | Self::Expression(b))
            | (Self::Column { column: a, .. }, Self::Alias(b))
            | (Self::Alias(a), Self::Column { column: b, .. }) => a == b,
            _ => false,
        }
    }

    /// The name that a result shows for the item.
    fn shown(&self, item: &SelectItem) -> String {
        match self {
            Self::Column { column, .. } => column.clone(),
            Self::Alias(alias) => alias.clone(),
            Self::Expression(text) => match item {
                SelectItem::UnnamedExpr(expr) => expr.to_string(),
                _ => text.clone(),
            },
        }
    }
}

/// A name as DataFusion compares it: lower case unless quoted.
pub(super) fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn placeholder(name: &str) -> Expr {
    Expr::Value(Value::Placeholder(name.to_owned()).into())
}

/// An expression without casts, parentheses, plus signs, `ALL`, the order of an aggregate, and with every sub-query the same: that
/// much at least DataFusion leaves out of an expression's name.
fn canonical(expr: &Expr) -> Expr {
    struct Canonical;
    impl VisitorMut for Canonical {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::Nested(inner)
                | Expr::Cast { expr: inner, .. }
                | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => {
                    *expr = inner.as_ref().clone();
                }
                Expr::Subquery(_) => *expr = placeholder("subquery"),
                Expr::Exists { .. } => *expr = placeholder("exists"),
                Expr::InSubquery { .. } => *expr = placeholder("in"),
                Expr::CompoundFieldAccess { access_chain, .. } => {
                    for access in access_chain {
                        if let AccessExpr::Dot(field @ Expr::Value(_)) = access {
                            let index = field.clone();
                            *access = AccessExpr::Subscript(Subscript::Index { index });
                        }
                    }
                }
                Expr::Function(function) => {
                    if let FunctionArguments::List(list) = &mut function.args {
                        list.clauses.clear();
                        if list.duplicate_treatment == Some(DuplicateTreatment::All) {
                            list.duplicate_treatment = None;
                        }
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    let _ = walk_mut(&mut expr, &mut Canonical);
    expr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{StatementKind, parse};

    fn distinguished(sql: &str) -> String {
        let statement = parse(sql).unwrap().remove(0);
        let StatementKind::Sql(mut sql) = statement.kind().clone() else {
            panic!("{sql} is not SQL")
        };
        distinguish(&mut sql, &mut DisplayNames::default(), &KnownColumns::new()).unwrap();
        sql.to_string()
    }

    #[test]
    fn a_list_without_repetitions_stays_as_it_is() {
        for sql in
            ["SELECT a, b + 1, t.c AS d FROM t", "SELECT x.a, y.a FROM t AS x CROSS JOIN t AS y"]
        {
            assert_eq!(distinguished(sql), sql);
        }
    }

    #[test]
    fn what_datafusion_calls_the_same_is_told_apart() {
        assert_eq!(distinguished("SELECT a, A FROM t"), r#"SELECT a, A AS "a (1)" FROM t"#);
        assert_eq!(
            distinguished("SELECT a, + t.a, CAST(a AS INT) FROM t"),
            r#"SELECT a, +t.a AS "a (1)", CAST(a AS INT) AS "a (2)" FROM t"#
        );
        assert_eq!(
            distinguished("SELECT a AS b, b FROM t"),
            r#"SELECT a AS b, b AS "b (1)" FROM t"#
        );
    }

    #[test]
    fn a_column_is_called_as_it_was_written() {
        let names = |sql: &str| {
            let statement = parse(sql).unwrap().remove(0);
            let StatementKind::Sql(sql) = statement.kind() else { panic!("SQL") };
            DisplayNames::written(sql)
        };
        let list = names("SELECT a, sum(a), a AS b, a::INT, count(*) + 1 FROM t");
        let found: Vec<_> = (0..5).map(|at| list.written_at(at, 5)).collect();
        assert_eq!(found, [None, Some("sum(a)"), None, None, Some("count(*) + 1")]);
        let list = names("SELECT 1, *, unnest(b), 2, 3 FROM t");
        let found: Vec<_> = (0..6).map(|at| list.written_at(at, 6)).collect();
        assert_eq!(found, [Some("1"), None, None, None, Some("2"), Some("3")]);
    }

    #[test]
    fn what_a_wildcard_holds_is_told_apart() {
        assert_eq!(distinguished("SELECT *, a FROM t"), r#"SELECT *, a AS "a (1)" FROM t"#);
        assert_eq!(
            distinguished("SELECT u.a, u.* FROM t AS u"),
            r#"SELECT u.a AS "a (1)", u.* FROM t AS u"#
        );
        assert_eq!(distinguished("SELECT u.*, s.a FROM t u, s"), "SELECT u.*, s.a FROM t u, s");
        assert_eq!(
            distinguished("SELECT *, a + 1 AS b, 2 AS c FROM t ORDER BY c"),
            r#"SELECT *, a + 1 AS "b (1)", 2 AS c FROM t ORDER BY c"#
        );
        assert_eq!(
            distinguished("SELECT * FROM (SELECT *, a FROM t)"),
            r#"SELECT * FROM (SELECT *, a AS "a_1" FROM t)"#
        );
        let sql = "SELECT * FROM (SELECT * EXCLUDE (a), a, u.b FROM t)";
        assert_eq!(distinguished(sql), sql);
    }

    #[test]
    fn a_sub_query_beside_others_has_a_name() {
        assert_eq!(
            distinguished("SELECT count(*), (SELECT count(*) FROM t) FROM u"),
            "SELECT count(*), (SELECT count(*) FROM t) AS \"(SELECT count(*) FROM t) (1)\" FROM u"
        );
        assert_eq!(
            distinguished("SELECT * FROM (SELECT 1, (SELECT a FROM t), (SELECT a FROM u))"),
            "SELECT * FROM (SELECT 1, (SELECT a FROM t) AS \"a\", (SELECT a FROM u) AS \"a_1\")"
        );
    }

    #[test]
    fn a_sub_query_keeps_its_new_names() {
        assert_eq!(
            distinguished("SELECT * FROM (SELECT a, a, a AS a_1 FROM t) AS u"),
            r#"SELECT * FROM (SELECT a, a AS "a_1", a AS "a_1_1" FROM t) AS u"#
        );
    }
}
