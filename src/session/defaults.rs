//! DEFAULT as a value in INSERT and UPDATE: what the column was defined with, else NULL.

use datafusion::sql::parser::Statement as SqlStatement;
use datafusion::sql::unparser::expr_to_sql;
use sqlparser::ast::{
    AssignmentTarget, Expr, Ident, Insert, ObjectName, SelectItem, SetExpr, Statement, Value,
};

use crate::catalog::normalized;
use crate::error::Result;
use crate::planner::modify;
use crate::storage::MemoryTable;

/// Puts the value in the place of every such word.
///
/// # Errors
/// A default that is no longer SQL, which would be a mistake of ours.
pub(super) fn fill(syntax: &mut SqlStatement, table: &MemoryTable) -> Result<()> {
    let SqlStatement::Statement(statement) = syntax else { return Ok(()) };
    match statement.as_mut() {
        Statement::Insert(insert) => fill_insert(insert, table),
        Statement::Update(update) => {
            for assignment in &mut update.assignments {
                if is_default(&assignment.value)
                    && let AssignmentTarget::ColumnName(name) = &assignment.target
                {
                    assignment.value = default_of(table, &column_name(name))?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn fill_insert(insert: &mut Insert, table: &MemoryTable) -> Result<()> {
    let columns: Vec<String> = match insert.columns.as_slice() {
        [] => table.schema().fields().iter().map(|field| field.name().clone()).collect(),
        named => named.iter().map(column_name).collect(),
    };
    let Some(source) = &mut insert.source else {
        // DEFAULT VALUES.
        let value = |column: &String| {
            let (expr, alias) = (default_of(table, column)?, Ident::with_quote('"', column));
            Ok(SelectItem::ExprWithAlias { expr, alias })
        };
        let row = columns.iter().map(value).collect::<Result<_>>()?;
        insert.source = Some(Box::new(modify::query(row, Vec::new(), None)));
        return Ok(());
    };
    let SetExpr::Values(values) = source.body.as_mut() else { return Ok(()) };
    for row in &mut values.rows {
        for (value, column) in row.content.iter_mut().zip(&columns) {
            if is_default(value) {
                *value = default_of(table, column)?;
            }
        }
    }
    Ok(())
}

fn is_default(value: &Expr) -> bool {
    let Expr::Identifier(word) = value else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default")
}

fn column_name(name: &ObjectName) -> String {
    let column = name.0.last().and_then(|part| part.as_ident());
    column.map_or_else(|| name.to_string(), normalized)
}

fn default_of(table: &MemoryTable, column: &str) -> Result<Expr> {
    match table.default_of(column) {
        Some(default) => Ok(expr_to_sql(default)?),
        None => Ok(Expr::value(Value::Null)),
    }
}
