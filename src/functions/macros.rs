//! Functions whose body is SQL, put in place of their calls before a statement is planned.
//!
//! A call with `DISTINCT`, `FILTER` or `OVER` is left alone, as is one with another number of arguments:
//! the planner then says that there is no such function. An argument that the body names twice is
//! computed once, as any repeated expression is.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::parser::{CopyToSource, Statement as SqlStatement};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, VisitorMut};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use crate::sql::walk_mut;

/// Each function as `name(parameters) = body`.
const MACROS: [&str; 22] = [
    "if(c, a, b) = CASE WHEN c THEN a ELSE b END",
    "mod(a, b) = a % b",
    "add(a, b) = a + b",
    "subtract(a, b) = a - b",
    "multiply(a, b) = a * b",
    "divide(a, b) = a / b",
    // Parts of a date or time.
    "year(x) = date_part('year', x)",
    "quarter(x) = date_part('quarter', x)",
    "month(x) = date_part('month', x)",
    "week(x) = date_part('week', x)",
    "day(x) = date_part('day', x)",
    "dayofmonth(x) = date_part('day', x)",
    "dayofweek(x) = date_part('dow', x)",
    "dayofyear(x) = date_part('doy', x)",
    "hour(x) = date_part('hour', x)",
    "minute(x) = date_part('minute', x)",
    "epoch(x) = date_part('epoch', x)",
    "last_day(x) = CAST(date_trunc('month', x) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    "hex(x) = upper(encode(x, 'hex'))",
    "from_hex(x) = decode(x, 'hex')",
    "unhex(x) = decode(x, 'hex')",
    "wavg(x, w) = sum(x * w) / sum(w)",
];

struct Macro {
    parameters: Vec<String>,
    body: Expr,
}

static BY_NAME: LazyLock<HashMap<&str, Macro>> =
    LazyLock::new(|| MACROS.iter().map(|text| parse(text)).collect());

fn parse(text: &'static str) -> (&'static str, Macro) {
    let (call, body) = text.split_once(") = ").expect("a macro is `name(parameters) = body`");
    let (name, parameters) = call.split_once('(').expect("a macro has parameters");
    let parameters = parameters.split(", ").map(str::to_owned).collect();
    let body = Parser::new(&GenericDialect {})
        .try_with_sql(body)
        .and_then(|mut parser| parser.parse_expr())
        .expect("the body of a macro is an expression");
    (name, Macro { parameters, body })
}

/// Replaces every call of a macro in a statement by its body.
pub(crate) fn expand(statement: &mut SqlStatement) {
    match statement {
        SqlStatement::Statement(statement) => {
            let _ = walk_mut(statement.as_mut(), &mut Expander);
        }
        SqlStatement::Explain(explain) => expand(&mut explain.statement),
        SqlStatement::CopyTo(copy) => {
            if let CopyToSource::Query(query) = &mut copy.source {
                let _ = walk_mut(query.as_mut(), &mut Expander);
            }
        }
        _ => {}
    }
}

struct Expander;

impl VisitorMut for Expander {
    type Break = ();

    /// After the arguments, so that a macro's arguments may call macros.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr
            && let Some(body) = body(call)
        {
            *expr = Expr::Nested(Box::new(body));
        }
        ControlFlow::Continue(())
    }
}

fn body(call: &Function) -> Option<Expr> {
    let [name] = &call.name.0[..] else { return None };
    let found = BY_NAME.get(name.as_ident()?.value.to_lowercase().as_str())?;
    let FunctionArguments::List(list) = &call.args else { return None };
    if call.over.is_some() || call.filter.is_some() || list.duplicate_treatment.is_some() {
        return None;
    }
    let arguments: Vec<&Expr> = list
        .args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        })
        .collect::<Option<_>>()?;
    if arguments.len() != found.parameters.len() {
        return None;
    }
    let mut body = found.body.clone();
    let _ = walk_mut(&mut body, &mut Substitute { parameters: &found.parameters, arguments });
    Some(body)
}

/// Puts arguments in the place of parameters.
struct Substitute<'a> {
    parameters: &'a [String],
    arguments: Vec<&'a Expr>,
}

impl VisitorMut for Substitute<'_> {
    type Break = ();

    /// On the way up, for an argument may hold a name that a parameter has too.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(at) = self.parameters.iter().position(|parameter| *parameter == name.value)
        {
            *expr = Expr::Nested(Box::new(self.arguments[at].clone()));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        let _ = walk_mut(&mut statement, &mut Expander);
        statement.to_string()
    }

    #[test]
    fn every_macro_parses() {
        assert_eq!(BY_NAME.len(), MACROS.len());
    }

    #[test]
    fn arguments_replace_parameters_once() {
        assert_eq!(expanded("SELECT mod(b, a)"), "SELECT ((b) % (a))");
        assert_eq!(
            expanded("SELECT IF(mod(x, 2) = 0, 'even', 'odd')"),
            "SELECT (CASE WHEN (((x) % (2)) = 0) THEN ('even') ELSE ('odd') END)"
        );
    }

    #[test]
    fn another_number_of_arguments_is_another_function() {
        assert_eq!(expanded("SELECT year(a, b)"), "SELECT year(a, b)");
    }
}
