//! The language as a whole: what plain SQL means is unchanged, what is ours parses and prints.

use datafusion::sql::parser::DFParserBuilder;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sqlparser::ast::{Expr, Ident, UnaryOperator};
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use super::statement::*;
use super::*;
use crate::error::{ErrorKind, Place};
use crate::matrix::{Duplicates, Element, Layout, Nulls};

fn corpus() -> impl Iterator<Item = &'static str> {
    include_str!("corpus.sql").lines().filter(|line| !line.starts_with("--"))
}

fn kind(text: &str) -> StatementKind {
    let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0).kind().clone()
}

fn expr(text: &str) -> Expr {
    parse_expression(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn plain_sql_means_what_the_generic_dialect_says() {
    for text in corpus() {
        let mut generic = DFParserBuilder::new(text).with_dialect(&GenericDialect).build().unwrap();
        let expected = generic.parse_statements().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(StatementKind::Sql(Box::new(expected[0].clone())), kind(text), "{text}");
    }
}

#[test]
fn random_expressions_mean_what_the_generic_dialect_says() {
    for seed in 0..2_000 {
        let text = random_expression(&mut SmallRng::seed_from_u64(seed), 5);
        let generic = Parser::new(&GenericDialect).try_with_sql(&text).unwrap().parse_expr();
        let generic = generic.unwrap_or_else(|error| panic!("seed {seed}: {text}: {error}"));
        assert_eq!(expr(&text), generic, "seed {seed}: {text}");
        assert_eq!(expr(&generic.to_string()), generic, "seed {seed}: {text} prints as {generic}");
    }
}

#[test]
fn random_matrix_expressions_print_as_they_read() {
    for seed in 0..2_000 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let operands: Vec<_> = (0..3).map(|_| random_expression(random, 3)).collect();
        let [a, b, c] = operands.as_slice() else { unreachable!("three operands") };
        for text in [
            format!("({a}) @ ({b}) ^ 2 @ -({c})"),
            format!("f(({a})[({b}), :]) @ x['key', ({c}):2] ^ ({b})"),
            format!("ITERATE(r => {a}, r @ ({b}), until => {c})"),
            format!("t((SELECT {a} FROM t ROWS BY x)) * (SELECT {b} NODES BY x, y)"),
        ] {
            let first = expr(&text);
            assert_eq!(expr(&first.to_string()), first, "seed {seed}: {text}");
        }
    }
}

/// SQL without `@`, `^` and subscript commas.
fn random_expression(random: &mut SmallRng, depth: usize) -> String {
    if depth == 0 || random.random_ratio(1, 8) {
        let leaves = ["a", "b.c", "rows", "\"Q\"", "1", "2.5", "'s'", "NULL", "TRUE", "$1", "x[1]"];
        return leaves[random.random_range(0..leaves.len())].to_owned();
    }
    let operators =
        ["+", "-", "*", "/", "%", "||", "=", "<>", "<", ">=", "AND", "OR", "&", "|", "<<"];
    let operator = operators[random.random_range(0..operators.len())];
    let mut sub = || random_expression(random, depth - 1);
    let (a, b, c) = (sub(), sub(), sub());
    match random.random_range(0..17) {
        0..=4 => format!("{a} {operator} {b}"),
        5 => format!("({a} {operator} {b}) {operator} {c}"),
        6 => format!("-({a})"),
        7 => format!("NOT ({a})"),
        8 => format!("f({a}, {b}, k => {c})"),
        9 => format!("CASE WHEN {a} THEN {b} ELSE {c} END"),
        10 => format!("CAST({a} AS DOUBLE) + ({b})::INT"),
        11 => format!("({a}) BETWEEN ({b}) AND ({c})"),
        12 => format!("({a}) IN (1, {b}, {c})"),
        13 => format!("({a})[({b})] + f(x)[({b}):({c})].y"),
        14 => format!("[{a}, {b}, {c}]"),
        15 => format!("(SELECT {a} FROM t WHERE {b})"),
        _ => format!("({a}) IS NOT NULL"),
    }
}

/// The tree of an expression, every operation in parentheses.
fn grouped(expr: &Expr) -> String {
    match expr {
        Expr::BinaryOp { left, op, right } => {
            format!("({} {op} {})", grouped(left), grouped(right))
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("(-{})", grouped(expr)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", grouped(expr)),
        Expr::Cast { expr, data_type, .. } => format!("({}::{data_type})", grouped(expr)),
        Expr::Nested(expr) => grouped(expr),
        other => other.to_string(),
    }
}

#[test]
fn operators_bind_as_the_language_says() {
    for (text, expected) in [
        ("a @ b @ c", "((a @ b) @ c)"),
        ("a@b@c", "((a @ b) @ c)"),
        ("a @b", "(a @ b)"),
        ("a * b @ c / d", "(((a * b) @ c) / d)"),
        ("a @ b + c @ d", "((a @ b) + (c @ d))"),
        ("a + b @ c - d", "((a + (b @ c)) - d)"),
        ("-a @ b", "((-a) @ b)"),
        ("a @ -b @ c", "((a @ (-b)) @ c)"),
        ("a ^ b ^ c", "((a ^ b) ^ c)"),
        ("a ^ b @ c ^ d", "((a ^ b) @ (c ^ d))"),
        ("a * b ^ c", "(a * (b ^ c))"),
        ("-a ^ b", "(-(a ^ b))"),
        ("a ^ -b", "(a ^ (-b))"),
        ("a ^ -b @ c", "((a ^ (-b)) @ c)"),
        ("2^3", "(2 ^ 3)"),
        ("a.T ^ b[1]", "(a.T ^ b[1])"),
        ("-f(a)[1, 2].T ^ b", "(-(f(a)[1][2].T ^ b))"),
        ("a.T @ a", "(a.T @ a)"),
        ("a ^ b::INT", "(a ^ (b::INT))"),
        ("a @ b > c @ d", "((a @ b) > (c @ d))"),
        ("a @ b = c AND NOT d ^ 2 > 1 OR e", "((((a @ b) = c) AND (NOT ((d ^ 2) > 1))) OR e)"),
        ("a @ $1", "(a @ $1)"),
        ("a @ 2", "(a @ 2)"),
        ("a @> b", "(a @> b)"),
        ("a @ b || c", "((a @ b) || c)"),
    ] {
        assert_eq!(grouped(&expr(text)), expected, "{text}");
    }
}

#[test]
fn every_form_of_a_matrix_in_from_parses_and_prints() {
    for text in [
        "SELECT * FROM MATRIX(x)",
        "SELECT s.id, s.score FROM MATRIX(x @ w) AS s(id, score)",
        "SELECT * FROM ENTRIES(t(x) @ x) AS e, VECTORS(x.T) v WHERE e.value > 0",
        "SELECT * FROM t JOIN MATRIX(a @ b) m ON m.id = t.id",
        "SELECT (MATRIX(trace(a @ b)))",
        "SELECT MATRIX(trace(a @ b)) + 1",
        "SELECT * FROM MATRIX(x[:, 'name'])",
        "SELECT * FROM MATRIX(x[i, j])",
        "SELECT * FROM MATRIX(x[1:2, 3:4])",
        "SELECT * FROM MATRIX(x[a:b, c:d])",
        "SELECT * FROM MATRIX(x[:, j])",
        "SELECT * FROM MATRIX(x[:, 'first':'last'])",
        "SELECT * FROM MATRIX(x['key', :])",
        "SELECT * FROM MATRIX(x[nrow(x) - 1:nrow(x), :])",
        "SELECT * FROM MATRIX(svd(a).u @ diag(svd(a, k => 10).s) @ svd(a).vt)",
        "SELECT * FROM MATRIX(eigh(a).values)",
        "SELECT * FROM MATRIX(f(x)[1:2, :])",
        "SELECT * FROM MATRIX((a @ b)[1:2, :].T)",
        "SELECT * FROM MATRIX(ITERATE(r => full(nrow(m), 1, 1.0/nrow(m)), 0.85*(m @ r) + 0.15/nrow(m), \
         times => 50, until => sum(abs(r - prior(r))) < 1e-9))",
        "SELECT * FROM MATRIX(x::DOUBLE + CAST(y AS REAL) + cast(z, 'float32'))",
        "SELECT * FROM MATRIX(CASE WHEN c > 0 THEN a ELSE b END)",
        "SELECT * FROM MATRIX(where(c, a, b) + (x BETWEEN a AND b) + (x IN (1, 2, 3)))",
        "SELECT * FROM MATRIX((SELECT id, f1, f2 FROM t ROWS BY id) @ w)",
        "SELECT * FROM MATRIX(t((SELECT a, b FROM e NODES BY a, b)) @ $1)",
        "SELECT * FROM MATRIX((SELECT a, b, v FROM e ROWS BY a COLUMNS BY b OVER (SELECT b FROM c)))",
        "SELECT * FROM MATRIX((SELECT f1 FROM t))",
        "SELECT * FROM MATRIX(max(x) - min(x) + ceil(x) + floor(y) + round(z, 2) + abs(-x))",
        "SELECT * FROM MATRIX(range(1, 10, 2) @ ones(1, 3) + rand(5, 3, 42) + least(a, b))",
        "SELECT * FROM MATRIX(relu(x @ w + b) >= 0 AND NOT y <> 1)",
        "SELECT * FROM MATRIX(lu(a).p.T @ lu(a).l @ lu(a).u)",
        "WITH x AS (SELECT 1 AS a) SELECT * FROM MATRIX(x)",
    ] {
        let StatementKind::Sql(sql) = kind(text) else { panic!("{text} is SQL") };
        assert_eq!(
            kind(&sql.to_string()),
            StatementKind::Sql(sql.clone()),
            "{text} prints as {sql}"
        );
    }
}

#[test]
fn subscripts_with_commas_are_subscripts_one_after_another() {
    for (short, long) in [
        ("x[i, j]", "x[i][j]"),
        ("x[:, 'a':'b']", "x[:]['a':'b']"),
        ("f(x)[1:2, :] @ y[1, 2]", "f(x)[1:2][:] @ y[1][2]"),
        ("x[f(1, [2, 3]), y[4, 5]]", "x[f(1, [2, 3])][y[4][5]]"),
    ] {
        assert_eq!(expr(short), expr(long), "{short}");
    }
}

fn create(text: &str) -> CreateMatrix {
    match kind(text) {
        StatementKind::CreateMatrix(create) => *create,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn a_matrix_is_created_from_a_query() {
    for (text, rows, columns) in [
        ("CREATE MATRIX x AS SELECT id, age, income FROM people ROWS BY id", 1, 0),
        ("CREATE MATRIX x AS SELECT u, i, stars FROM reviews ROWS BY u COLUMNS BY i", 1, 1),
        (
            "CREATE MATRIX x AS SELECT * FROM r ROWS BY u, v COLUMNS BY i OVER (SELECT i FROM s)",
            2,
            1,
        ),
        ("CREATE MATRIX x AS SELECT a FROM t ORDER BY a", 0, 0),
        ("CREATE MATRIX x AS (SELECT id, a FROM t) ROWS BY id", 1, 0),
        ("CREATE MATRIX x AS WITH s AS (SELECT 1 AS id) SELECT * FROM s ROWS BY id", 1, 0),
        ("CREATE MATRIX x AS VALUES (1, 2), (3, 4)", 0, 0),
    ] {
        let MatrixSource::Relation(relation) = create(text).source else { panic!("{text}") };
        let found = match relation.axes {
            Axes::Unlabelled => (0, 0),
            Axes::Wide { rows } => (rows.keys.len(), 0),
            Axes::Entries { rows, columns } => (rows.keys.len(), columns.keys.len()),
            Axes::Nodes { .. } => panic!("{text}"),
        };
        assert_eq!(found, (rows, columns), "{text}");
    }
    let links = create("CREATE MATRIX links AS SELECT p, d FROM deps NODES BY p, d");
    let MatrixSource::Relation(relation) = links.source else { panic!("a relation") };
    assert_eq!(
        relation.axes,
        Axes::Nodes { from: Ident::new("p"), to: Ident::new("d"), over: None }
    );
}

#[test]
fn a_matrix_is_created_from_an_expression_or_a_file() {
    let plain = create("CREATE MATRIX w = inv(t(x) @ x) @ t(x) @ y");
    assert_eq!(plain.name, Ident::new("w"));
    assert!(!plain.or_replace && !plain.if_not_exists && !plain.temporary);
    let MatrixSource::Expression { expr: found, view: false, text } = plain.source else {
        panic!("an expression")
    };
    assert_eq!(text, "inv(t(x) @ x) @ t(x) @ y");
    assert_eq!(found, expr(&text));

    let view = "CREATE MATRIX VIEW ß =\n  x @ w -- by hand\n; SELECT 1";
    let statements = parse(view).unwrap();
    let StatementKind::CreateMatrix(view) = statements[0].kind() else { panic!("create") };
    let MatrixSource::Expression { view: true, text, .. } = &view.source else { panic!("a view") };
    assert_eq!(text, "x @ w -- by hand");

    let view = create("CREATE MATRIX VIEW v AS SELECT id, a FROM t ROWS BY id");
    let MatrixSource::Expression { expr: found, view: true, text } = view.source else {
        panic!("a view")
    };
    assert_eq!(text, "(SELECT id, a FROM t ROWS BY id)");
    assert_eq!(found, expr(&text));

    let file = create("CREATE MATRIX g FROM 'web.mtx' OPTIONS (name 'x', Header = false, skip 1)");
    let MatrixSource::File { path, options } = file.source else { panic!("a file") };
    assert_eq!(path, "web.mtx");
    let options: Vec<_> = options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(options, [("name", "x"), ("header", "false"), ("skip", "1")]);
}

#[test]
fn the_words_around_create_matrix_are_read() {
    let all = create(
        "CREATE OR REPLACE TEMPORARY MATRIX IF NOT EXISTS \"X\" \
         WITH (layout = csr, dtype = 'FLOAT32', nulls = 'zero', duplicates = 'sum') = a",
    );
    assert_eq!(all.name, Ident::with_quote('"', "X"));
    assert!(all.or_replace && all.if_not_exists && all.temporary);
    assert_eq!(
        all.options,
        MatrixOptions {
            layout: Some(Layout::Csr),
            dtype: Some(Element::Float32),
            reading: Reading { nulls: Some(Nulls::Zero), duplicates: Some(Duplicates::Sum) },
        }
    );
    assert!(create("CREATE TEMP MATRIX x = a").temporary);
    assert!(create("create or replace matrix x from 'a.npy'").or_replace);
}

#[test]
fn the_other_matrix_statements_are_read() {
    let name = Ident::new("w");
    for (text, expected) in [
        ("DROP MATRIX w", StatementKind::DropMatrix { name: name.clone(), if_exists: false }),
        (
            "DROP MATRIX IF EXISTS w",
            StatementKind::DropMatrix { name: name.clone(), if_exists: true },
        ),
        ("SHOW MATRICES", StatementKind::ShowMatrices),
        ("SHOW COSTS", StatementKind::ShowCosts),
        ("SHOW CACHE", StatementKind::ShowCache),
        ("SHOW STRATEGIES", StatementKind::ShowStrategies),
        ("calibrate", StatementKind::Calibrate),
        ("DESCRIBE MATRIX w", StatementKind::DescribeMatrix { name: name.clone() }),
        ("DESC MATRIX w", StatementKind::DescribeMatrix { name }),
        ("BEGIN", StatementKind::Transaction(Transaction::Begin)),
        ("START TRANSACTION", StatementKind::Transaction(Transaction::Begin)),
        ("COMMIT", StatementKind::Transaction(Transaction::Commit)),
        ("ROLLBACK TO SAVEPOINT s", StatementKind::Transaction(Transaction::Rollback)),
        ("SAVEPOINT s", StatementKind::Transaction(Transaction::Savepoint)),
        ("RELEASE SAVEPOINT s", StatementKind::Transaction(Transaction::Release)),
        ("ANALYZE", StatementKind::Analyze { table: None }),
        ("ANALYZE t", StatementKind::Analyze { table: Some(Ident::new("t").into()) }),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
    for (text, source) in [
        ("COPY MATRIX w TO 'w.npy'", "w"),
        ("COPY MATRIX a @ b TO 'w.npy' (compression = 'none')", "a @ b"),
        ("COPY MATRIX (a @ b) TO 'w.npy' OPTIONS (compression none)", "(a @ b)"),
    ] {
        let StatementKind::CopyMatrix(copy) = kind(text) else { panic!("{text}") };
        assert_eq!((copy.source.to_string().as_str(), copy.path.as_str()), (source, "w.npy"));
        assert_eq!(copy.options.len(), usize::from(text.contains("none")), "{text}");
    }
    for (text, expected) in [
        ("EXPLAIN CREATE MATRIX w = a @ b", (false, false, None)),
        ("EXPLAIN ANALYZE CREATE MATRIX w = a @ b", (true, false, None)),
        (
            "EXPLAIN ANALYZE VERBOSE FORMAT tree COPY MATRIX w TO 'w.npy'",
            (true, true, Some("tree")),
        ),
    ] {
        let StatementKind::Explain(explain) = kind(text) else { panic!("{text}") };
        let found = (explain.analyze, explain.verbose, explain.format.as_deref());
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_text_is_split_into_statements_with_their_places() {
    let text = ";; SELECT ';' ;\n  -- a comment; with a semicolon\n  CREATE MATRIX w =\n a @ b;;\nSELECT 2";
    let statements = parse(text).unwrap();
    let found: Vec<_> = statements.iter().map(|s| (s.text(), s.place())).collect();
    assert_eq!(
        found,
        [
            ("SELECT ';'", Place { line: 1, column: 4 }),
            ("CREATE MATRIX w =\n a @ b", Place { line: 3, column: 3 }),
            ("SELECT 2", Place { line: 5, column: 1 }),
        ]
    );
    assert!(parse(" ; -- nothing\n").unwrap().is_empty());
}

#[test]
fn syntax_errors_say_what_was_expected_and_where() {
    for (text, expected) in [
        ("SELECT )", "expected an expression, found ) at line 1, column 8"),
        (
            "SELECT 1;\nSELECT 2 +",
            "expected an expression, found the end of the text at line 2, column 11",
        ),
        ("SELECT 1 2", "expected the end of the statement, found 2 at line 1, column 10"),
        ("SELECT 'abc", "unterminated string literal at line 1, column 8"),
        ("SELECT * FROM MATRIX(a @)", "expected an expression, found ) at line 1, column 25"),
        ("SELECT * FROM MATRIX(a[1, ])", "expected an expression, found ] at line 1, column 27"),
        (
            "CREATE MATRIX x",
            "expected AS query, = expression or FROM 'file', found the end of the text at line 1, column 16",
        ),
        (
            "CREATE MATRIX VIEW x FROM 'y'",
            "expected = expression or AS query, found FROM at line 1, column 22",
        ),
        (
            "CREATE MATRIX x WITH (shape = 3) = y",
            "expected layout, dtype, nulls or duplicates, found shape at line 1, column 23",
        ),
        (
            "CREATE MATRIX x WITH (nulls = none) = y",
            "nulls is 'error' or 'zero' or 'nan' or 'drop', not 'none' at line 1, column 23",
        ),
        (
            "CREATE MATRIX x AS SELECT a FROM t COLUMNS BY a",
            "expected ROWS BY before COLUMNS BY, found COLUMNS at line 1, column 36",
        ),
        (
            "CREATE MATRIX x AS SELECT a FROM t NODES BY a",
            "expected ,, found the end of the text at line 1, column 46",
        ),
        ("DROP MATRIX", "expected identifier, found the end of the text at line 1, column 12"),
        ("COPY MATRIX w", "expected TO, found the end of the text at line 1, column 14"),
        (
            "EXPLAIN CREATE MATRIX w = a +",
            "expected an expression, found the end of the text at line 1, column 30",
        ),
        ("NONSENSE", "expected an SQL statement, found NONSENSE at line 1, column 1"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Syntax(_)), "{text}: {error:?}");
        assert_eq!(error.to_string(), expected, "{text}");
    }
    let error = parse_expression("a @ b c").unwrap_err();
    let expected = "expected the end of the expression, found c at line 1, column 7";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn deep_nesting_parses_and_deeper_is_an_error() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    let statements = parse(&nested(900)).unwrap();
    let StatementKind::Sql(sql) = statements[0].kind() else { panic!("SQL") };
    assert_eq!(sql.to_string(), nested(900));
    let error = parse(&nested(100_000)).unwrap_err();
    assert_eq!(error.to_string(), "the statement is nested too deeply at line 1, column 1");
    for operator in [" @ ", " ^ ", " + "] {
        let chain = ["a"; 5_000].join(operator);
        assert_eq!(expr(&chain).to_string(), chain);
    }
}
