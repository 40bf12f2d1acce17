//! Makes every relation in a matrix expression a sub-query, given the names of the matrices.
//!
//! DataFusion collects the tables of a statement before it plans, and sees them in sub-queries but not
//! in arguments. So within the arguments of a matrix factor (`MATRIX`, `ENTRIES`, `VECTORS`) every name
//! of a relation becomes [`relation::named_relation`]. On the way:
//!
//! ```text
//! SELECT MATRIX(trace(x))    SELECT (SELECT * FROM relatrix_scalar(trace(x)))
//! x.T, svd(x).u.T            t(x), t(svd(x).u)
//! a ^ b, everywhere          the operator that DataFusion plans as power(a, b)
//! ```
//!
//! A name is a common table expression, a matrix, or a table, in this order; inside an iteration its
//! variable comes first. Column keys, fields, functions and names of arguments are left alone.

use std::mem;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as SqlStatement};
use sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, Query, SelectItem, SetExpr, Spanned, TableFactor, TableFunctionArgs, Value,
    VisitMut, VisitorMut,
};
use sqlparser::tokenizer::Span;

use super::dialect::{MULTIPLY, POWER};
use super::place::{place_of, place_of_name};
use super::refuse::refuse_in_expression;
use super::relation::{call, is_relation, named_relation, select_all, table, unnamed};
use super::statement::{MatrixSource, StatementKind};
use super::walk::{walk_expressions_mut, walk_mut};
use crate::error::{Error, Result};

/// The table factor of a one-by-one matrix read as a scalar: one row, one column.
pub(crate) const SCALAR: &str = "relatrix_scalar";

/// The table factor of a matrix that is not read as rows at all, for statements that store it.
pub(crate) const WHOLE: &str = "relatrix_whole";

/// The query whose plan computes a matrix for a statement that stores it.
pub(crate) fn whole(expr: Expr) -> SqlStatement {
    let mut factor = table(ObjectName::from(Ident::new(WHOLE)));
    if let TableFactor::Table { args, .. } = &mut factor {
        *args = Some(TableFunctionArgs { args: vec![unnamed(expr)], settings: None });
    }
    let Expr::Subquery(query) = select_all(factor) else {
        unreachable!("SELECT * is a sub-query");
    };
    SqlStatement::Statement(Box::new(sqlparser::ast::Statement::Query(query)))
}

/// What the catalog has under a name.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one for each name, and handed on at once")]
pub(crate) enum Named {
    /// A matrix, whose name stands for itself.
    Matrix,
    /// A matrix view: the expression it stands for, its names resolved.
    View(Expr),
}

/// Knows the matrices of the catalog by their [`normalized`] names. What a view stands for stands where its
/// name does.
pub(crate) type Names<'a> = dyn Fn(&Ident) -> Result<Option<Named>> + 'a;

/// Resolves the names of a statement.
pub(super) fn resolve(statement: &mut StatementKind, names: &Names<'_>) -> Result<()> {
    let mut resolver = Resolver { names, contexts: vec![] };
    match statement {
        StatementKind::Sql(statement) => resolver.sql(statement),
        StatementKind::Explain(explain) => resolve(&mut explain.inner, names),
        StatementKind::CreateMatrix(create) => match &mut create.source {
            MatrixSource::Relation(relation) => {
                relation.queries().try_for_each(|query| resolver.visit(query))
            }
            MatrixSource::Expression { expr, .. } => resolve_expression(expr, names),
            MatrixSource::File { .. } => Ok(()),
        },
        StatementKind::CopyMatrix(copy) => resolve_expression(&mut copy.source, names),
        StatementKind::DropMatrix { .. }
        | StatementKind::ShowMatrices
        | StatementKind::Calibrate
        | StatementKind::ShowCosts
        | StatementKind::ShowCache
        | StatementKind::ShowStrategies
        | StatementKind::DescribeMatrix { .. }
        | StatementKind::Transaction(_)
        | StatementKind::Analyze { .. } => Ok(()),
    }
}

/// Resolves the names of a matrix expression on its own.
///
/// # Errors
/// Clauses that nobody plans, and names where they mean nothing.
pub(crate) fn resolve_expression(expr: &mut Expr, names: &Names<'_>) -> Result<()> {
    refuse_in_expression(expr)?;
    Resolver { names, contexts: vec![Context::Matrix] }.visit(expr)
}

/// A name as the catalog knows it: in lower case unless quoted, as DataFusion has it.
pub(crate) fn normalized(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// What surrounds a node: each query, matrix factor and expression around it, innermost last.
enum Context {
    /// A query, where names are columns. Of its common table expressions, those that come before the
    /// one being visited are in scope.
    Query { ctes: Vec<String>, visible: usize },
    /// An expression of SQL.
    Sql,
    /// A matrix expression, where names are matrices and relations.
    Matrix,
    /// The same, an iteration with this variable.
    Iteration(String),
    /// Names that are none of ours: keys of a relation, or what has been resolved already.
    Settled,
}

struct Resolver<'a> {
    names: &'a Names<'a>,
    contexts: Vec<Context>,
}

impl Resolver<'_> {
    fn sql(&mut self, statement: &mut SqlStatement) -> Result<()> {
        match statement {
            SqlStatement::Statement(statement) => self.visit(statement.as_mut()),
            SqlStatement::Explain(explain) => self.sql(&mut explain.statement),
            SqlStatement::CopyTo(copy) => match &mut copy.source {
                CopyToSource::Query(query) => self.visit(query.as_mut()),
                CopyToSource::Relation(_) => Ok(()),
            },
            SqlStatement::CreateExternalTable(_) | SqlStatement::Reset(_) => Ok(()),
        }
    }

    fn visit(&mut self, node: &mut impl VisitMut) -> Result<()> {
        match walk_mut(node, self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// What a single name stands for, where it is the variable of an iteration around it or a matrix.
    fn matrix(&self, name: &Ident) -> Result<Option<Named>> {
        let text = normalized(name);
        let is_variable = self
            .contexts
            .iter()
            .rev()
            .take_while(|context| matches!(context, Context::Matrix | Context::Iteration(_)))
            .any(|context| matches!(context, Context::Iteration(variable) if *variable == text));
        let is_cte = || {
            self.contexts.iter().any(|context| match context {
                Context::Query { ctes, visible } => ctes[..*visible].contains(&text),
                _ => false,
            })
        };
        if is_variable {
            return Ok(Some(Named::Matrix));
        }
        if is_cte() { Ok(None) } else { (self.names)(name) }
    }

    /// A name of one or more parts as the expression it stands for.
    fn named(&self, mut parts: Vec<Ident>) -> Result<Expr> {
        let fields = parts.iter().skip(1).rev();
        let transposes =
            parts.split_off(parts.len() - fields.take_while(|part| is_transpose(part)).count());
        let matrix = match parts.as_slice() {
            [name] => self.matrix(name).map_err(|error| error.at(place_of_name(name)))?,
            _ => None,
        };
        let named = match matrix {
            Some(Named::Matrix) => Expr::Identifier(parts.remove(0)),
            Some(Named::View(expr)) => Expr::Nested(Box::new(expr)),
            None => named_relation(ObjectName::from(parts)),
        };
        Ok(transposes.into_iter().fold(named, |expr, suffix| transpose(expr, suffix.span)))
    }

    /// `root.a[1].T` with its names resolved and each `.T` a call around what stands before it.
    fn access(&mut self, mut root: Expr, chain: Vec<AccessExpr>) -> ControlFlow<Error, Expr> {
        let mut chain = chain.into_iter().peekable();
        // `schema.table[1]` arrives as the field `table` of `schema`.
        if let Expr::Identifier(first) = root {
            let mut parts = vec![first];
            while let Some(AccessExpr::Dot(Expr::Identifier(part))) =
                chain.next_if(|access| matches!(access, AccessExpr::Dot(Expr::Identifier(_))))
            {
                parts.push(part);
            }
            root = flow(self.named(parts))?;
        } else {
            walk_mut(&mut root, self)?;
        }
        let mut fields = Vec::new();
        for mut access in chain {
            match &mut access {
                AccessExpr::Dot(Expr::Identifier(name)) if is_transpose(name) => {
                    root = transpose(with_fields(root, mem::take(&mut fields)), name.span);
                    continue;
                }
                AccessExpr::Dot(_) => {}
                AccessExpr::Subscript(subscript) => walk_mut(subscript, self)?,
            }
            fields.push(access);
        }
        ControlFlow::Continue(with_fields(root, fields))
    }
}

impl VisitorMut for Resolver<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let (ctes, recursive) = match &query.with {
            Some(with) => {
                let names = with.cte_tables.iter().map(|cte| normalized(&cte.alias.name));
                (names.collect(), with.recursive)
            }
            None => (vec![], false),
        };
        name_matrix_columns(&mut query.body);
        let visible = if recursive { ctes.len() } else { 0 };
        self.contexts.push(Context::Query { ctes, visible });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        self.contexts.pop();
        // The first queries within a query are its common table expressions, in order.
        if let Some(Context::Query { ctes, visible }) = self.contexts.last_mut() {
            *visible = (*visible + 1).min(ctes.len());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if is_matrix_factor(factor) {
            self.contexts.push(Context::Matrix);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if is_matrix_factor(factor) {
            self.contexts.pop();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let context = match self.contexts.last() {
            Some(Context::Settled) => Context::Settled,
            Some(Context::Matrix | Context::Iteration(_)) => match expr {
                Expr::CompoundFieldAccess { root, access_chain } => {
                    let root = mem::replace(root.as_mut(), Expr::Value(Value::Null.into()));
                    *expr = self.access(root, mem::take(access_chain))?;
                    Context::Settled
                }
                _ if is_relation(expr) => Context::Settled,
                _ => match iteration(expr) {
                    Some((variable, init)) => {
                        // The initial value is outside the variable's scope.
                        walk_mut(init, self)?;
                        Context::Iteration(variable)
                    }
                    None => Context::Matrix,
                },
            },
            Some(Context::Query { .. } | Context::Sql) | None => {
                if is_relation(expr) {
                    let message = "ROWS BY and NODES BY make a matrix of a query, \
                                   so they stand in MATRIX(…), ENTRIES(…) or VECTORS(…)";
                    return ControlFlow::Break(Error::syntax(message).at(place_of(expr)));
                }
                if matrix_call(expr).is_some() { Context::Matrix } else { Context::Sql }
            }
        };
        self.contexts.push(context);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.contexts.pop();
        if let Expr::BinaryOp { op, .. } = expr
            && matches!(op, BinaryOperator::Custom(name) if name == POWER)
        {
            *op = BinaryOperator::PGExp;
        }
        match self.contexts.last() {
            Some(Context::Settled) => {}
            Some(Context::Matrix | Context::Iteration(_)) => match expr {
                Expr::Identifier(name) => *expr = flow(self.named(vec![name.clone()]))?,
                Expr::CompoundIdentifier(parts) => *expr = flow(self.named(mem::take(parts)))?,
                _ => {}
            },
            Some(Context::Query { .. } | Context::Sql) | None => {
                if let Expr::BinaryOp { op: BinaryOperator::Custom(name), .. } = expr
                    && name == MULTIPLY
                {
                    let message = "@ is the matrix product, which stands in MATRIX(…), ENTRIES(…) or \
                                   VECTORS(…)";
                    return ControlFlow::Break(Error::unsupported(message).at(place_of(expr)));
                }
                if let Some((span, args)) = matrix_call(expr) {
                    *expr = scalar(span, mem::take(args));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// A result as a visitor's way on.
fn flow<T>(result: Result<T>) -> ControlFlow<Error, T> {
    match result {
        Ok(value) => ControlFlow::Continue(value),
        Err(error) => ControlFlow::Break(error),
    }
}

fn is_matrix_factor(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: Some(_), .. } = factor else { return false };
    ["matrix", "entries", "vectors", SCALAR, WHOLE].iter().any(|factor| is_name(name, factor))
}

/// The place and arguments of `MATRIX(…)` where SQL expects a scalar.
fn matrix_call(expr: &mut Expr) -> Option<(Span, &mut Vec<FunctionArg>)> {
    match expr {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if is_name(name, "matrix") =>
        {
            Some((name.span(), &mut list.args))
        }
        _ => None,
    }
}

/// Calls a column with a matrix expression in it as it is written: by that alone, if it is nothing else.
fn name_matrix_columns(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                let SelectItem::UnnamedExpr(expr) = item else { continue };
                if !holds_matrix(expr) {
                    continue;
                }
                let mut inner = &mut *expr;
                while let Expr::Nested(nested) = inner {
                    inner = nested;
                }
                let alone = match matrix_call(inner).map(|(_, args)| &args[..]) {
                    Some([matrix]) => Some(matrix.to_string()),
                    _ => None,
                };
                let text = alone.unwrap_or_else(|| expr.to_string());
                let alias = Ident::with_quote('"', text);
                let expr = mem::replace(expr, Expr::Value(Value::Null.into()));
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_matrix_columns(left);
            name_matrix_columns(right);
        }
        _ => {}
    }
}

/// Whether `MATRIX(…)` stands somewhere in an expression of SQL.
fn holds_matrix(expr: &mut Expr) -> bool {
    let found = walk_expressions_mut(expr, |part| match matrix_call(part) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// The variable of `ITERATE(variable => init, …)`, and its initial value.
fn iteration(expr: &mut Expr) -> Option<(String, &mut Expr)> {
    match expr {
        Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
            if is_name(name, "iterate") =>
        {
            match list.args.first_mut()? {
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(init), .. } => {
                    Some((normalized(name), init))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_name(name: &ObjectName, expected: &str) -> bool {
    match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|part| normalized(part) == expected),
        _ => false,
    }
}

/// `.T` is the transpose; a column or table called `t` is written so, or quoted.
fn is_transpose(field: &Ident) -> bool {
    field.quote_style.is_none() && field.value == "T"
}

fn transpose(expr: Expr, span: Span) -> Expr {
    call("t", span, vec![unnamed(expr)])
}

fn with_fields(root: Expr, access_chain: Vec<AccessExpr>) -> Expr {
    match access_chain.is_empty() {
        true => root,
        false => Expr::CompoundFieldAccess { root: Box::new(root), access_chain },
    }
}

fn scalar(span: Span, args: Vec<FunctionArg>) -> Expr {
    let mut factor = table(ObjectName::from(Ident::with_span(span, SCALAR)));
    if let TableFactor::Table { args: taken, .. } = &mut factor {
        *taken = Some(TableFunctionArgs { args, settings: None });
    }
    select_all(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{as_named_relation, parse, parse_expression, place_of};

    fn known(name: &Ident) -> Result<Option<Named>> {
        Ok(["a", "b", "r"].contains(&normalized(name).as_str()).then_some(Named::Matrix))
    }

    /// The statement printed after resolution, where `a`, `b` and `r` are matrices.
    fn resolved(text: &str) -> String {
        let once = parse(text).unwrap()[0].resolved(&known).unwrap();
        let mut twice = once.clone();
        resolve(&mut twice, &known).unwrap();
        assert_eq!(twice, once, "{text} is resolved once");
        match once {
            StatementKind::Sql(sql) => sql.to_string(),
            other => panic!("{text} is {other:?}"),
        }
    }

    fn expression(text: &str) -> String {
        let mut expr = parse_expression(text).unwrap();
        resolve_expression(&mut expr, &known).unwrap();
        let printed = expr.to_string();
        let mut pieces = printed.split("relatrix_table((SELECT * FROM ");
        let first = pieces.next().unwrap().to_owned();
        pieces.fold(first, |short, piece| short + "<" + &piece.replacen("))", ">", 1))
    }

    #[test]
    fn names_that_are_no_matrices_become_relations() {
        for (text, expected) in [
            ("a @ b", "a @ b"),
            ("A @ t1", "a @ <t1>"),
            ("\"A\"", "<\"A\">"),
            ("t1", "<t1>"),
            ("s.a", "<s.a>"),
            ("2 * f(t1, k => t2)", "2 * f(<t1>, k => <t2>)"),
            (
                "CASE WHEN t1 > 0 THEN a ELSE t2::DOUBLE END",
                "CASE WHEN <t1> > 0 THEN a ELSE <t2>::DOUBLE END",
            ),
            ("t1 BETWEEN a AND t2", "<t1> BETWEEN a AND <t2>"),
            ("$1 @ t1", "$1 @ <t1>"),
            ("(SELECT c FROM t1)", "(SELECT c FROM t1)"),
        ] {
            assert_eq!(expression(text).to_lowercase(), expected.to_lowercase(), "{text}");
        }
    }

    #[test]
    fn transposes_become_calls_and_fields_stay() {
        for (text, expected) in [
            ("a.T", "t(a)"),
            ("t1.T", "t(<t1>)"),
            ("s.t1.T", "t(<s.t1>)"),
            ("s.t", "<s.t>"),
            ("(a @ b).T", "t((a @ b))"),
            ("a.T.T", "t(t(a))"),
            ("a.T[1:2, t1]", "t(a)[1:2][<t1>]"),
            ("t1[:, 'c']", "<t1>[:]['c']"),
            ("s.t1[1]", "<s.t1>[1]"),
            ("svd(t1).u", "svd(<t1>).u"),
            ("svd(t1).u.T[1, 2]", "t(svd(<t1>).u)[1][2]"),
            ("a[1, 2].T @ t1", "t(a[1][2]) @ <t1>"),
        ] {
            assert_eq!(expression(text), expected, "{text}");
        }
    }

    #[test]
    fn an_iteration_binds_its_variable_after_its_initial_value() {
        for (text, expected) in [
            (
                "ITERATE(v => a, v @ v, until => sum(prior(v)) < 1)",
                "ITERATE(v => a, v @ v, until => sum(prior(v)) < 1)",
            ),
            ("ITERATE(v => v, v @ u)", "ITERATE(v => <v>, v @ <u>)"),
            ("ITERATE(v => a, v) @ v", "ITERATE(v => a, v) @ <v>"),
            (
                "ITERATE(v => a, ITERATE(w => v, w @ v) @ w)",
                "ITERATE(v => a, ITERATE(w => v, w @ v) @ <w>)",
            ),
            ("ITERATE(v => a, v.T[1] @ v[:, t1])", "ITERATE(v => a, t(v)[1] @ v[:][<t1>])"),
        ] {
            assert_eq!(expression(text), expected, "{text}");
        }
    }

    #[test]
    fn common_table_expressions_hide_matrices_in_their_scope() {
        for (text, expected) in [
            (
                "WITH a AS (SELECT 1) SELECT * FROM MATRIX(a @ b)",
                "WITH a AS (SELECT 1) SELECT * FROM MATRIX(relatrix_table((SELECT * FROM a)) @ b)",
            ),
            (
                "WITH c AS (SELECT * FROM MATRIX(a)), a AS (SELECT 1) SELECT * FROM MATRIX(b)",
                "WITH c AS (SELECT * FROM MATRIX(a)), a AS (SELECT 1) SELECT * FROM MATRIX(b)",
            ),
            (
                "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM MATRIX(a)), MATRIX(a)",
                "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM \
                 MATRIX(relatrix_table((SELECT * FROM a)))), MATRIX(a)",
            ),
            (
                "WITH a AS (SELECT 1) SELECT (SELECT sum(v) FROM VECTORS(a)) FROM u",
                "WITH a AS (SELECT 1) SELECT (SELECT sum(v) FROM \
                 VECTORS(relatrix_table((SELECT * FROM a)))) FROM u",
            ),
        ] {
            assert_eq!(resolved(text), expected);
        }
    }

    #[test]
    fn a_matrix_is_a_scalar_where_sql_expects_one() {
        for (text, expected) in [
            (
                "SELECT (MATRIX(trace(a @ t1))), a FROM t",
                "SELECT ((SELECT * FROM relatrix_scalar(trace(a @ \
                 relatrix_table((SELECT * FROM t1)))))) AS \"trace(a @ t1)\", a FROM t",
            ),
            (
                "UPDATE t SET x = MATRIX(sum(a)) WHERE y > 1",
                "UPDATE t SET x = (SELECT * FROM relatrix_scalar(sum(a))) WHERE y > 1",
            ),
            (
                "SELECT * FROM MATRIX((SELECT x * MATRIX(det(a)) FROM t ROWS BY x) @ b)",
                "SELECT * FROM MATRIX(relatrix_relation((SELECT x * (SELECT * FROM \
                 relatrix_scalar(det(a))) AS \"x * MATRIX(det(a))\" FROM t), rows_by => [x]) @ b)",
            ),
            (
                "EXPLAIN COPY (SELECT MATRIX(a)) TO 'x.csv'",
                "EXPLAIN COPY (SELECT (SELECT * FROM relatrix_scalar(a)) AS \"a\") TO x.csv",
            ),
        ] {
            assert_eq!(resolved(text), expected);
        }
    }

    #[test]
    fn powers_are_what_datafusion_plans_as_powers() {
        let mut expr = parse_expression("a ^ t1 ^ 2").unwrap();
        resolve_expression(&mut expr, &|_| Ok(Some(Named::Matrix))).unwrap();
        let Expr::BinaryOp { left, op: BinaryOperator::PGExp, .. } = expr else { panic!("{expr}") };
        assert!(matches!(*left, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }), "{left}");
        let kind = parse("SELECT 2 ^ x").unwrap()[0].resolved(&|_| Ok(None)).unwrap();
        assert!(format!("{kind:?}").contains("PGExp"));
    }

    #[test]
    fn columns_of_plain_sql_are_left_alone() {
        for text in [
            "SELECT c, x.t, x.T, x[1] FROM x WHERE c IN (SELECT y FROM z)",
            "SELECT * FROM UNNEST([c, d])",
            "SELECT \"matrix\".c FROM \"matrix\"",
        ] {
            assert_eq!(resolved(text), text);
        }
    }

    #[test]
    fn matrix_statements_are_resolved_too() {
        let sources = |text: &str| {
            let kind = parse(text).unwrap()[0].resolved(&|_| Ok(None)).unwrap();
            format!("{kind:?}").matches("relatrix_table").count()
        };
        assert_eq!(sources("CREATE MATRIX w = x @ y"), 2);
        assert_eq!(sources("EXPLAIN CREATE MATRIX w = x @ y"), 2);
        assert_eq!(sources("COPY MATRIX x.T TO 'x.npy'"), 1);
        assert_eq!(
            sources(
                "CREATE MATRIX w AS SELECT * FROM MATRIX(x) ROWS BY c OVER (SELECT * FROM ENTRIES(y))"
            ),
            2
        );
    }

    #[test]
    fn a_relation_keeps_the_place_of_its_name() {
        let mut expr = parse_expression("a +\n  t1").unwrap();
        resolve_expression(&mut expr, &known).unwrap();
        let Expr::BinaryOp { right, .. } = expr else { panic!("a sum") };
        assert_eq!(as_named_relation(&right).map(ToString::to_string), Some("t1".to_owned()));
        let place = place_of(&right).unwrap();
        assert_eq!((place.line, place.column), (2, 3));
    }

    #[test]
    fn keys_outside_a_matrix_expression_are_an_error() {
        let statements = parse("SELECT (SELECT x FROM t ROWS BY x)").unwrap();
        let error = statements[0].resolved(&|_| Ok(None)).unwrap_err();
        assert!(error.to_string().ends_with("VECTORS(…) at line 1, column 9"), "{error}");
    }
}
