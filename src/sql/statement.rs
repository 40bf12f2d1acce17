//! What a statement says: SQL as DataFusion's tree, everything about matrices and transactions as ours.
//!
//! A closed set. Names are identifiers as written; what they stand for is the planner's concern.

use std::sync::Arc;

use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{Expr, Ident, ObjectName, Spanned, Statement as Syntax};

use super::refuse::refuse;
use super::relation::{MatrixQuery, Reading, call, read_as, text, unnamed};
use super::resolve::{Names, resolve};
use crate::error::{Place, Result};
use crate::matrix::{Element, Layout};

/// One statement of a text, with its own text and its place in the whole.
///
/// ```
/// let statements = relatrix::parse("SELECT 1; SHOW MATRICES")?;
/// assert_eq!(statements[1].text(), "SHOW MATRICES");
/// assert_eq!(statements[1].place().column, 11);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub(super) text: String,
    pub(super) place: Place,
    /// Shared, so that a clone of a statement copies no tree.
    pub(super) kind: Arc<StatementKind>,
}

impl Statement {
    /// The statement as written, without its semicolon.
    ///
    /// ```
    /// let statements = relatrix::parse("SELECT 1; SELECT 2;")?;
    /// assert_eq!(statements[1].text(), "SELECT 2");
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it begins in the text given to [`parse`](super::parse), in which its errors are placed too.
    ///
    /// ```
    /// let statements = relatrix::parse("SELECT 1;\n  SELECT 2;")?;
    /// assert_eq!((statements[1].place().line, statements[1].place().column), (2, 3));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn place(&self) -> Place {
        self.place
    }

    /// What to do, as written.
    pub(crate) fn kind(&self) -> &StatementKind {
        &self.kind
    }

    /// Whether it gives a name to a text that later statements may have in place of the name.
    pub(crate) fn names_text(&self) -> bool {
        match self.kind() {
            StatementKind::Sql(syntax) => {
                let SqlStatement::Statement(syntax) = syntax.as_ref() else { return false };
                matches!(**syntax, Syntax::CreateView(_) | Syntax::Prepare { .. })
            }
            StatementKind::CreateMatrix(create) => {
                matches!(create.source, MatrixSource::Expression { view: true, .. })
            }
            _ => false,
        }
    }

    /// What to do, every relation in a matrix expression a sub-query and every matrix view what it
    /// stands for.
    ///
    /// # Errors
    /// Clauses that nobody plans, and names where they mean nothing.
    pub(crate) fn resolved(&self, names: &Names<'_>) -> Result<StatementKind> {
        refuse(&self.kind)?;
        let mut kind = StatementKind::clone(&self.kind);
        resolve(&mut kind, names)?;
        Ok(kind)
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one for each statement, never many")]
pub(crate) enum StatementKind {
    /// Anything that is SQL alone, `EXPLAIN` of it, and `SET`, `SHOW` and `RESET` of a setting.
    Sql(Box<SqlStatement>),
    Explain(Explain),
    CreateMatrix(Box<CreateMatrix>),
    DropMatrix {
        name: Ident,
        if_exists: bool,
    },
    ShowMatrices,
    /// `CALIBRATE`: measures what plans are chosen by.
    Calibrate,
    /// `SHOW COSTS`: what was measured, and what runs show.
    ShowCosts,
    /// `SHOW CACHE`: the answers that are remembered.
    ShowCache,
    /// `SHOW STRATEGIES`: how questions that are asked again are run, and what that takes.
    ShowStrategies,
    DescribeMatrix {
        name: Ident,
    },
    CopyMatrix(CopyMatrix),
    Transaction(Transaction),
    /// `ANALYZE`, of one table or of all.
    Analyze {
        table: Option<ObjectName>,
    },
}

/// `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT format]` of a statement that is not SQL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Explain {
    pub(crate) analyze: bool,
    pub(crate) verbose: bool,
    /// As written: `tree`, `indent` …
    pub(crate) format: Option<String>,
    pub(crate) inner: Box<StatementKind>,
}

/// `CREATE [OR REPLACE] [TEMPORARY] MATRIX [VIEW] [IF NOT EXISTS] name [WITH (…)] source`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CreateMatrix {
    pub(crate) name: Ident,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) temporary: bool,
    pub(crate) options: MatrixOptions,
    pub(crate) source: MatrixSource,
}

/// `WITH (layout = …, dtype = …, nulls = …, duplicates = …)`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct MatrixOptions {
    /// The optimizer's choice where none is given.
    pub(crate) layout: Option<Layout>,
    /// That of the source where none is given.
    pub(crate) dtype: Option<Element>,
    pub(crate) reading: Reading,
}

impl MatrixOptions {
    /// The expression whose value is that of `expr` as the options want it.
    pub(crate) fn around(&self, expr: Expr) -> Expr {
        let apply = |function, arguments: Vec<Expr>| {
            call(function, arguments[0].span(), arguments.into_iter().map(unnamed).collect())
        };
        let mut expr = read_as(expr, self.reading);
        if let Some(element) = self.dtype {
            expr = apply("cast", vec![expr, text(&element.to_string())]);
        }
        match self.layout {
            Some(Layout::Dense) => apply("dense", vec![expr]),
            Some(Layout::Csr) => apply("sparse", vec![expr]),
            None => expr,
        }
    }
}

/// Where a matrix comes from.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one for each statement, never many")]
pub(crate) enum MatrixSource {
    /// `AS SELECT … [ROWS BY …]`, and `FROM 'file' ROWS BY …`.
    Relation(MatrixQuery),
    /// `= expression`; a view is kept as its text. The view of a query is one, in parentheses.
    Expression { expr: Expr, view: bool, text: String },
    /// `FROM 'file' [OPTIONS (…)]`.
    File { path: String, options: Vec<(String, String)> },
}

/// `COPY MATRIX expression TO 'file' [OPTIONS (…)]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CopyMatrix {
    /// A name, usually.
    pub(crate) source: Expr,
    pub(crate) path: String,
    pub(crate) options: Vec<(String, String)>,
}

/// Statements that group others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transaction {
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
}
