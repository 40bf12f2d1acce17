//! Clauses that the parser knows and nobody plans: an error, lest they be passed over in silence.
//!
//! ```text
//! SELECT       PREWHERE, CONNECT BY, START WITH, LATERAL VIEW, CLUSTER BY, DISTRIBUTE BY, SORT BY,
//!              GROUP BY … WITH ROLLUP | CUBE | TOTALS
//! a query      FORMAT, FOR XML | JSON | BROWSE, SETTINGS, LIMIT … BY
//! FROM         WITH ORDINALITY, PARTITION, WITH (…), USE INDEX and the like
//! a column     GENERATED, IDENTITY, AUTO_INCREMENT, COLLATE, all but NULL, DEFAULT, keys and comments
//! ```
//!
//! FOR UPDATE and FOR SHARE are none of these: nobody else changes the version that a statement reads.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as SqlStatement};
use sqlparser::ast::{
    ColumnDef, ColumnOption, ConnectByKind, CreateTable, Expr, GroupByExpr, LimitClause, Query,
    Select, Spanned, Statement, TableConstraint, TableFactor, TableFunctionArgs, Visit, Visitor,
};
use sqlparser::tokenizer::Span;

use super::place::place;
use super::statement::{MatrixSource, StatementKind};
use super::walk::walk;
use crate::error::{Error, Result};

/// Looks at a whole statement.
///
/// # Errors
/// The first clause that nobody plans, at its place or at that of what it belongs to.
pub(super) fn refuse(statement: &StatementKind) -> Result<()> {
    match statement {
        StatementKind::Sql(statement) => sql(statement),
        StatementKind::Explain(explain) => refuse(&explain.inner),
        StatementKind::CreateMatrix(create) => match &create.source {
            MatrixSource::Relation(relation) => visit(&relation.clone().into_expr()),
            MatrixSource::Expression { expr, .. } => visit(expr),
            MatrixSource::File { .. } => Ok(()),
        },
        StatementKind::CopyMatrix(copy) => visit(&copy.source),
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

/// Looks at a matrix expression on its own.
///
/// # Errors
/// As [`refuse`].
pub(super) fn refuse_in_expression(expr: &Expr) -> Result<()> {
    visit(expr)
}

fn sql(statement: &SqlStatement) -> Result<()> {
    match statement {
        SqlStatement::Statement(statement) => visit(statement.as_ref()),
        SqlStatement::Explain(explain) => sql(&explain.statement),
        SqlStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => visit(query.as_ref()),
            CopyToSource::Relation(_) => Ok(()),
        },
        SqlStatement::CreateExternalTable(create) => create.columns.iter().try_for_each(column),
        SqlStatement::Reset(_) => Ok(()),
    }
}

fn visit(syntax: &impl Visit) -> Result<()> {
    match walk(syntax, &mut Refuse) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// A clause that was found: its span, its name, and what to write instead, or nothing.
type Found = (Span, &'static str, &'static str);

fn unsupported((span, clause, instead): Found) -> Error {
    Error::unsupported(format!("{clause} is not supported{instead}")).at(place(span.start))
}

struct Refuse;

impl Visitor for Refuse {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<Error> {
        match statement {
            Statement::CreateTable(create) => flow(table(create)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        flow(of_query(query).map_or(Ok(()), |found| Err(unsupported(found))))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        flow(of_select(select).map_or(Ok(()), |found| Err(unsupported(found))))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Error> {
        flow(of_factor(factor).map_or(Ok(()), |found| Err(unsupported(found))))
    }
}

fn flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

fn of_query(query: &Query) -> Option<Found> {
    let limit_by = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit_by, .. }) => limit_by.first(),
        _ => None,
    };
    let limit_by = limit_by.map(|expr| {
        (expr.span(), "LIMIT … BY", "; QUALIFY row_number() OVER (PARTITION BY …) <= n is")
    });
    let clauses = [
        (query.format_clause.is_some(), "FORMAT"),
        (query.for_clause.is_some(), "FOR XML, FOR JSON or FOR BROWSE"),
        (query.settings.is_some(), "SETTINGS of a query"),
    ];
    let found = clauses.into_iter().find(|(is_there, _)| *is_there);
    limit_by.or(found.map(|(_, clause)| (query.span(), clause, "")))
}

fn of_select(select: &Select) -> Option<Found> {
    fn first(clause: &[impl Spanned]) -> Option<Span> {
        clause.first().map(Spanned::span)
    }
    let connect_by = select.connect_by.first().map(|clause| match clause {
        ConnectByKind::ConnectBy { .. } => (clause.span(), "CONNECT BY", "; WITH RECURSIVE is"),
        ConnectByKind::StartWith { .. } => (clause.span(), "START WITH", "; WITH RECURSIVE is"),
    });
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
    let grouping = (!modifiers.is_empty()).then(|| {
        let span = match select.group_by.span() {
            Span { start, .. } if start.line == 0 => select.span(),
            span => span,
        };
        let instead = "; GROUP BY ROLLUP (…), CUBE (…) and GROUPING SETS (…) are";
        (span, "WITH ROLLUP, CUBE, TOTALS or GROUPING SETS after the columns of GROUP BY", instead)
    });
    let lateral = select.lateral_views.first().map(Spanned::span);
    let clauses = [
        (select.prewhere.as_ref().map(Spanned::span), "PREWHERE", "; WHERE is"),
        (lateral, "LATERAL VIEW", "; unnest(…) is"),
        (first(&select.cluster_by), "CLUSTER BY", "; ORDER BY is"),
        (first(&select.distribute_by), "DISTRIBUTE BY", "; ORDER BY is"),
        (first(&select.sort_by), "SORT BY", "; ORDER BY is"),
    ];
    let clauses =
        clauses.into_iter().find_map(|(span, name, instead)| Some((span?, name, instead)));
    connect_by.or(grouping).or(clauses)
}

fn of_factor(factor: &TableFactor) -> Option<Found> {
    let TableFactor::Table {
        args,
        with_hints,
        version,
        with_ordinality,
        partitions,
        index_hints,
        ..
    } = factor
    else {
        return None;
    };
    let settings = matches!(args, Some(TableFunctionArgs { settings: Some(_), .. }));
    // What stands behind a matrix is explained where it is planned.
    let hints = !with_hints.is_empty() && args.is_none();
    let clauses = [
        (*with_ordinality, "WITH ORDINALITY", "; row_number() OVER () is"),
        (settings, "SETTINGS of a function", ""),
        (hints, "WITH (…) of a table", ""),
        (version.is_some(), "reading an earlier version of a table", ""),
        (!partitions.is_empty(), "PARTITION of a table", ""),
        (!index_hints.is_empty(), "USE INDEX and the like", ""),
    ];
    let found = clauses.into_iter().find(|(is_there, ..)| *is_there);
    found.map(|(_, clause, instead)| (factor.span(), clause, instead))
}

fn table(create: &CreateTable) -> Result<()> {
    create.columns.iter().try_for_each(column)?;
    let is_key = |option: &ColumnOption| matches!(option, ColumnOption::PrimaryKey(_));
    let columns = create.columns.iter();
    let of_columns = columns.flat_map(|column| &column.options).filter(|def| is_key(&def.option));
    let of_table = create.constraints.iter();
    let of_table = of_table.filter(|one| matches!(one, TableConstraint::PrimaryKey(_)));
    if of_columns.count() + of_table.count() > 1 {
        let message = "a table has one PRIMARY KEY; PRIMARY KEY (a, b) is one of two columns";
        return Err(Error::unsupported(message).at(place(create.name.span().start)));
    }
    Ok(())
}

fn column(column: &ColumnDef) -> Result<()> {
    let mut options = column.options.iter().map(|def| &def.option);
    let Some(option) = options.find(|option| !is_planned(option)) else { return Ok(()) };
    let (name, instead) = match option {
        ColumnOption::Generated { .. } => ("GENERATED".to_owned(), "; a view computes columns"),
        ColumnOption::Collation(_) => ("COLLATE".to_owned(), ", text is ordered by its bytes"),
        other => (other.to_string(), ""),
    };
    let message = format!("column '{}': {name} is not supported{instead}", column.name);
    Err(Error::unsupported(message).at(place(column.name.span.start)))
}

/// Whether what is said of a column is kept, or refused by DataFusion, or changes nothing.
fn is_planned(option: &ColumnOption) -> bool {
    matches!(
        option,
        ColumnOption::Null
            | ColumnOption::NotNull
            | ColumnOption::Default(_)
            | ColumnOption::PrimaryKey(_)
            | ColumnOption::Unique(_)
            | ColumnOption::ForeignKey(_)
            | ColumnOption::Check(_)
            | ColumnOption::Comment(_)
    )
}
