//! Forms of SQL that DataFusion lacks, written in those it has.
//!
//! ```text
//! x = ANY (q)         x IN (q)
//! x < ANY (q)         (SELECT CASE WHEN bool_or(x < y) THEN true
//! (x, …) IN (q)                    WHEN count(*) > count(x < y) THEN NULL ELSE false END FROM q(y))
//! x < ALL (q)         NOT (x >= ANY (q))
//! x LIKE 'p' ESCAPE   x LIKE 'p', with the backslash as its escape
//! x[:b], x[a:]        x[1:b], x[a:-1]
//! INTERVAL (1) DAY    INTERVAL 1 DAY
//! FROM t              SELECT * FROM t
//! SELECT a … ROLLUP (1)   SELECT a … ROLLUP (a)
//! FROM RANGE(5)       FROM range(5)
//! FROM MATRIX(x)      FROM MATRIX(x) AS matrix, for columns are found by the name of their relation
//! {'t': 5}.t          {'t': 5}['t']
//! [x, 1]              make_array(x, 1), in which a name may be one of an outer query
//! JOIN … USING (k)    the same, with k as one of the tables has it (`using`)
//! ```
//!
//! Matrix expressions have rules of their own and are left alone, but for the queries in them.

use std::ops::ControlFlow;

use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query,
    Select, SelectFlavor, SelectItem, Subscript, TableAlias, TableFactor, TableWithJoins,
    UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use super::merged::KnownColumns;
use super::resolve::normalized;
use super::using;
use super::walk::walk_mut;
use crate::error::Result;

/// Rewrites every such form in a statement or query.
///
/// # Errors
/// As [`using::resolve`].
pub(super) fn desugar(syntax: &mut impl VisitMut, known: &KnownColumns) -> Result<()> {
    using::resolve(syntax, known)?;
    let _ = walk_mut(syntax, &mut Desugar::default());
    Ok(())
}

#[derive(Default)]
struct Desugar {
    /// The queries and matrix expressions that are open.
    contexts: Vec<Context>,
}

#[derive(PartialEq)]
enum Context {
    Query,
    Matrix,
}

impl VisitorMut for Desugar {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if reads_matrix(factor) {
            self.contexts.push(Context::Matrix);
        }
        if let TableFactor::Table { name, args: Some(_), .. } = factor
            && let [ObjectNamePart::Identifier(name)] = &mut name.0[..]
            && name.quote_style.is_none()
        {
            name.value = name.value.to_lowercase();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if reads_matrix(factor) {
            self.contexts.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.contexts.push(Context::Query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.contexts.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        name_readers(&mut select.from);
        name_positions(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.contexts.last() == Some(&Context::Matrix) {
            return ControlFlow::Continue(());
        }
        let replacement = match expr {
            Expr::AnyOp { left, compare_op, right, .. } => match right.as_ref() {
                Expr::Subquery(query) => Some(any(left, compare_op, query)),
                _ => None,
            },
            Expr::AllOp { left, compare_op, right } => {
                match (right.as_ref(), inverse(compare_op)) {
                    (Expr::Subquery(query), Some(inverse)) => Some(not(any(left, &inverse, query))),
                    _ => None,
                }
            }
            Expr::InSubquery { expr, subquery, negated } if row(expr).is_some() => {
                let member = any(expr, &BinaryOperator::Eq, subquery);
                Some(if *negated { not(member) } else { member })
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                if let Some(escape) = escape_char
                    && let Value::SingleQuotedString(text) = &escape.value
                    && let [escape] = text.chars().collect::<Vec<_>>()[..]
                    && escape != '\\'
                    && let Expr::Value(pattern) = pattern.as_mut()
                    && let Value::SingleQuotedString(text) = &mut pattern.value
                    && let Some(escaped) = with_backslashes(text, escape)
                {
                    *text = escaped;
                    *escape_char = None;
                }
                None
            }
            Expr::Interval(interval) => {
                while let Expr::Nested(inner) = interval.value.as_ref()
                    && matches!(inner.as_ref(), Expr::Value(_) | Expr::Nested(_))
                {
                    interval.value = inner.clone();
                }
                None
            }
            Expr::Array(Array { elem, .. }) if !elem.iter().all(is_literal) => {
                Some(call("make_array", std::mem::take(elem)))
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                access_chain.iter_mut().for_each(close_slice);
                let is_name = matches!(root.as_ref(), Expr::Identifier(_));
                quote_fields(access_chain, is_name);
                None
            }
            _ => None,
        };
        if let Some(replacement) = replacement {
            *expr = replacement;
        }
        ControlFlow::Continue(())
    }
}

/// What reads a matrix as a relation.
const MATRIX_READERS: [&str; 5] = ["matrix", "entries", "vectors", super::SCALAR, super::WHOLE];

fn reads_matrix(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: Some(_), .. } = factor else { return false };
    MATRIX_READERS.contains(&name.to_string().to_lowercase().as_str())
}

/// Positions in the sets of GROUP BY as what is selected there; DataFusion knows those that stand alone.
fn name_positions(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return };
    let selected = |position: &str| {
        let at = position.parse::<usize>().ok()?.checked_sub(1)?;
        // Behind a wildcard nobody knows which column a position is.
        let before = select.projection.get(..=at)?;
        let is_one = |item: &SelectItem| {
            matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
        };
        match before.last().filter(|_| before.iter().all(is_one))? {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                Some(expr.clone())
            }
            _ => None,
        }
    };
    for group in groups {
        let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = group else {
            continue;
        };
        for key in sets.iter_mut().flatten() {
            if let Expr::Value(value) = key
                && let Value::Number(position, _) = &value.value
                && let Some(expr) = selected(&position.to_string())
            {
                *key = expr;
            }
        }
    }
}

/// Gives each reader of a matrix that has no alias one of its own, as functions in FROM have in PostgreSQL.
fn name_readers(from: &mut [TableWithJoins]) {
    let mut taken = Vec::new();
    let mut unnamed = Vec::new();
    for table in from {
        factors(table, &mut |factor| match factor {
            TableFactor::Table { name, alias: None, args: Some(_), .. } => {
                let name = name.to_string().to_lowercase();
                if MATRIX_READERS[..3].contains(&name.as_str()) {
                    unnamed.push((name, factor));
                }
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => {
                taken.push(alias.name.value.to_lowercase());
            }
            _ => {}
        });
    }
    for (function, factor) in unnamed {
        let numbered = (1..).map(|number| format!("{function}_{number}"));
        let mut names = [function.clone()].into_iter().chain(numbered);
        let name = names.find(|name| !taken.contains(name)).unwrap_or(function);
        taken.push(name.clone());
        if let TableFactor::Table { alias, .. } = factor {
            let name = Ident::new(name);
            *alias = Some(TableAlias { explicit: true, name, columns: vec![], at: None });
        }
    }
}

/// Every relation of a table with its joins.
fn factors<'a>(table: &'a mut TableWithJoins, each: &mut impl FnMut(&'a mut TableFactor)) {
    let joined = table.joins.iter_mut().map(|join| &mut join.relation);
    for factor in [&mut table.relation].into_iter().chain(joined) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => factors(table_with_joins, each),
            factor => each(factor),
        }
    }
}

/// A field of a value as DataFusion knows it, by its quoted name. The fields that follow a name are
/// parts of that name.
fn quote_fields(access_chain: &mut [AccessExpr], root_is_name: bool) {
    let is_field = |access: &AccessExpr| matches!(access, AccessExpr::Dot(Expr::Identifier(_)));
    let parts = access_chain.iter().take_while(|access| root_is_name && is_field(access)).count();
    for access in &mut access_chain[parts..] {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            let name = Value::SingleQuotedString(normalized(name));
            *access = AccessExpr::Dot(Expr::Value(name.into()));
        }
    }
}

/// A slice from the first element or to the last, with the bound written out.
fn close_slice(access: &mut AccessExpr) {
    let number = |text: &str| Some(Expr::value(Value::Number(text.to_owned(), false)));
    if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
        *lower_bound = lower_bound.take().or_else(|| number("1"));
        *upper_bound = upper_bound.take().or_else(|| number("-1"));
    }
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value, .. }) if !matches!(value, Value::Placeholder(_)))
}

/// A function of values.
fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let unnamed = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}

fn inverse(operator: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match operator {
        BinaryOperator::Eq => BinaryOperator::NotEq,
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    })
}

/// The elements of `(a, b)` and `row(a, b)`.
fn row(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(elements) if elements.len() > 1 => Some(elements.clone()),
        Expr::Nested(inner) => row(inner),
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &call.args else { return None };
            list.args
                .iter()
                .map(|argument| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                    _ => None,
                })
                .collect()
        }
        _ => None,
    }
}

/// `left operator ANY (query)`.
fn any(left: &Expr, operator: &BinaryOperator, query: &Query) -> Expr {
    let elements = row(left);
    if elements.is_none() && *operator == BinaryOperator::Eq {
        return Expr::InSubquery {
            expr: Box::new(left.clone()),
            subquery: Box::new(query.clone()),
            negated: false,
        };
    }
    let elements = elements.unwrap_or_else(|| vec![left.clone()]);
    // Rows are unlike where one element is; every other comparison is of single values or of all elements.
    let (operator, rows_differ) = match operator {
        BinaryOperator::NotEq if elements.len() > 1 => (&BinaryOperator::Eq, true),
        operator => (operator, false),
    };
    let names: Vec<String> = (1..=elements.len()).map(|n| format!("\"element {n}\"")).collect();
    let equal: Vec<String> = elements
        .iter()
        .zip(&names)
        .map(|(element, name)| format!("({element}) {operator} \"candidates\".{name}"))
        .collect();
    let mut test = equal.join(" AND ");
    if rows_differ {
        test = format!("NOT ({test})");
    }
    let text = format!(
        "(SELECT CASE WHEN bool_or({test}) THEN true WHEN count(*) > count({test}) THEN NULL \
         ELSE false END FROM ({query}) AS \"candidates\" ({}))",
        names.join(", ")
    );
    Parser::new(&GenericDialect {})
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_expr())
        .unwrap_or_else(|_| Expr::Identifier(Ident::new(text)))
}

/// A pattern with backslashes in place of another escape; `None` if it ends within one.
fn with_backslashes(pattern: &str, escape: char) -> Option<String> {
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let literal = if character == escape { characters.next()? } else { character };
        if character == escape || literal == '\\' {
            text.push('\\');
        }
        text.push(literal);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desugared(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        desugar(&mut statement, &KnownColumns::new()).unwrap();
        statement.to_string()
    }

    #[test]
    fn membership_stays_a_membership() {
        assert_eq!(
            desugared("SELECT * FROM t WHERE a = ANY (SELECT b FROM u)"),
            "SELECT * FROM t WHERE a IN (SELECT b FROM u)"
        );
    }

    #[test]
    fn a_row_is_compared_element_by_element() {
        let sql = desugared("SELECT (a, 2) IN (SELECT b, c FROM u)");
        let test = r#"(a) = "candidates"."element 1" AND (2) = "candidates"."element 2""#;
        assert!(sql.contains(&format!("bool_or({test})")), "{sql}");
    }

    #[test]
    fn an_escape_becomes_a_backslash() {
        assert_eq!(desugared(r"SELECT a LIKE 'x$%y\' ESCAPE '$'"), r"SELECT a LIKE 'x\%y\\'");
    }
}
