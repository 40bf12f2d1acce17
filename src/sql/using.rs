//! What the columns are that `JOIN … USING` merges, and in which order `*` lists them.
//!
//! DataFusion takes a merged column from the table whose name comes first in the alphabet, whatever the
//! join, and finds a name ambiguous that two joins merge. Here it is the left table's, as in DuckDB; in a
//! right join the right one's, in a full join that of whichever row is there.
//!
//! ```text
//! SELECT k FROM a JOIN b USING (k) JOIN c USING (k)    SELECT a.k FROM …
//! SELECT k FROM a FULL JOIN b USING (k)                SELECT coalesce(a.k, b.k) AS k FROM …
//! SELECT * FROM a RIGHT JOIN b USING (k)               SELECT a.* REPLACE (b.k AS k), b.* EXCLUDE (k) FROM …
//! FROM a FULL JOIN b USING (k) JOIN c USING (k)        FROM … JOIN c ON coalesce(a.k, b.k) = c.k
//! FROM a NATURAL JOIN b                                FROM a JOIN b USING (…), what both have
//! ```
//!
//! Which columns a table has is the catalog's to say. Where it cannot, as of `(SELECT * …)`, inner joins are
//! left to DataFusion, for whichever table it takes has the same value; other joins are an error.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as SqlStatement};
use sqlparser::ast::{
    Expr, Join, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};

use super::merged::{Joined, KnownColumns, Merged, names, unknown};
use super::walk::{walk, walk_mut};
use crate::error::{Error, Result};

/// The tables whose columns decide what the joins of a statement merge.
pub(crate) fn merged_tables(statement: &SqlStatement) -> Vec<ObjectName> {
    let mut tables = Tables::default();
    match statement {
        SqlStatement::Statement(statement) => {
            let _ = walk(statement.as_ref(), &mut tables);
        }
        SqlStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            let _ = walk(query.as_ref(), &mut tables);
        }
        SqlStatement::Explain(explain) => return merged_tables(&explain.statement),
        _ => {}
    }
    tables.names.retain(|name| !tables.queries.contains(name));
    tables.names
}

#[derive(Default)]
struct Tables {
    names: Vec<ObjectName>,
    /// Those of common table expressions.
    queries: Vec<ObjectName>,
}

impl Visitor for Tables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        self.queries.extend(ctes.map(|cte| ObjectName::from(cte.alias.name.clone())));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        select.from.iter().filter(|from| merges(from)).for_each(|from| self.add(from));
        ControlFlow::Continue(())
    }
}

impl Tables {
    fn add(&mut self, from: &TableWithJoins) {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            match factor {
                TableFactor::Table { name, args: None, .. } => self.names.push(name.clone()),
                TableFactor::NestedJoin { table_with_joins, .. } => self.add(table_with_joins),
                _ => {}
            }
        }
    }
}

/// Whether there is a USING or a NATURAL among joins.
fn merges(from: &TableWithJoins) -> bool {
    let is_nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => merges(table_with_joins),
        _ => false,
    };
    let constraint = |join: &Join| match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    };
    is_nested(&from.relation)
        || from.joins.iter().any(|join| constraint(join) || is_nested(&join.relation))
}

/// Says in every query what the merged columns are.
///
/// # Errors
/// Columns of outer joins of which nobody knows whose they are.
pub(super) fn resolve(syntax: &mut impl VisitMut, known: &KnownColumns) -> Result<()> {
    match walk_mut(syntax, &mut Queries { known }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Queries<'a> {
    known: &'a KnownColumns,
}

impl VisitorMut for Queries<'_> {
    type Break = Error;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let resolved = match query.body.as_mut() {
            SetExpr::Select(select) => self.select(select, query.order_by.as_mut()),
            body => self.body(body),
        };
        match resolved {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Queries<'_> {
    /// The lists of a set operation; queries within it come by themselves.
    fn body(&self, body: &mut SetExpr) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left)?;
                self.body(right)
            }
            _ => Ok(()),
        }
    }

    fn select(&self, select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
        // Where there are more tables beside the joins, the name may be one of theirs.
        match select.from.as_mut_slice() {
            [joined] => {
                let joined = Joined::of(joined, self.known)?;
                resolve_select(select, &joined, order)
            }
            _ => Ok(()),
        }
    }
}

fn resolve_select(
    select: &mut Select,
    joined: &Joined<'_>,
    order: Option<&mut OrderBy>,
) -> Result<()> {
    let merged = &joined.merged;
    if merged.is_empty() {
        return Ok(());
    }
    let from = std::mem::take(&mut select.from);
    let mut items = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
                let columns = joined.columns();
                if columns.is_none()
                    && let Some(column) = merged.iter().find(|column| column.is_unknown)
                {
                    return Err(unknown(&column.name));
                }
                items.extend(columns.unwrap_or(vec![SelectItem::Wildcard(options)]));
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                let column = merged.iter().find(|column| column.is(&name));
                let value = column.map(|column| column.value_at(&name)).transpose()?.flatten();
                items.push(match value {
                    Some(expr @ Expr::Function(_)) => {
                        SelectItem::ExprWithAlias { expr, alias: name }
                    }
                    Some(expr) => SelectItem::UnnamedExpr(expr),
                    None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
                });
            }
            item => items.push(item),
        }
    }
    select.projection = items;
    names(select, merged)?;
    select.from = from;
    // Where rows are distinct, they are ordered by columns of the list alone.
    let order = order.filter(|_| select.distinct.is_none());
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order {
        // Another column of the list under the same name is meant first.
        let is_listed = |column: &Merged| select.projection.iter().any(|item| lists(item, column));
        let hidden: Vec<Merged> =
            merged.iter().filter(|column| !is_listed(column)).cloned().collect();
        names(keys, &hidden)?;
    }
    Ok(())
}

fn lists(item: &SelectItem, column: &Merged) -> bool {
    let SelectItem::ExprWithAlias { alias, expr } = item else { return false };
    column.is(alias) && Some(expr) != column.value.as_ref()
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::GenericDialect;
    use sqlparser::parser::Parser;

    use super::*;

    /// With what the catalog knows of these tables.
    fn resolved_with(known: &[(&str, &[&str])], sql: &str) -> Result<String> {
        let columns = |columns: &[&str]| columns.iter().map(ToString::to_string).collect();
        let known =
            known.iter().map(|(table, names)| (table.to_string(), columns(names))).collect();
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        resolve(&mut statement, &known)?;
        Ok(statement.to_string())
    }

    fn resolved(sql: &str) -> String {
        resolved_with(&[], sql).unwrap()
    }

    #[test]
    fn what_the_catalog_does_not_know_is_left_alone_or_an_error() {
        for sql in [
            "SELECT k, * FROM a NATURAL JOIN b NATURAL JOIN c ORDER BY k",
            "SELECT k FROM a RIGHT JOIN b USING(k), c",
            "SELECT c.k FROM a CROSS JOIN b LEFT JOIN c USING(k)",
            "SELECT a.k FROM a JOIN b USING(k)",
        ] {
            assert_eq!(resolved(sql), sql);
        }
        for sql in [
            "SELECT 1 FROM a NATURAL LEFT JOIN b",
            "SELECT k FROM a CROSS JOIN b LEFT JOIN c USING(k)",
            "SELECT * FROM a CROSS JOIN b FULL JOIN c USING(k)",
        ] {
            let message = resolved_with(&[], sql).unwrap_err().to_string();
            assert!(message.contains("is not known here"), "{message}");
        }
    }

    #[test]
    fn what_the_catalog_knows_is_merged() {
        let known: &[(&str, &[&str])] =
            &[("a", &["i", "k"]), ("b", &["j", "k"]), ("c", &["J", "x"]), ("d", &["y"])];
        for (sql, expected) in [
            (
                "SELECT k, * FROM b NATURAL LEFT JOIN a",
                "SELECT b.\"k\", b.*, a.* EXCLUDE (\"k\") FROM b LEFT JOIN a USING(\"k\")",
            ),
            (
                "SELECT p FROM b AS c (q, p) NATURAL FULL JOIN a AS b (p)",
                "SELECT coalesce(c.\"p\", b.\"p\") AS p FROM b AS c (q, p) FULL JOIN a AS b (p) \
                 USING(\"p\")",
            ),
            ("SELECT 1 FROM b NATURAL LEFT JOIN c", "SELECT 1 FROM b NATURAL LEFT JOIN c"),
            (
                "SELECT j FROM (SELECT x AS i, a.y FROM a) AS q (k) NATURAL LEFT JOIN b",
                "SELECT j FROM (SELECT x AS i, a.y FROM a) AS q (k) LEFT JOIN b USING(\"k\")",
            ),
            (
                "SELECT k FROM d CROSS JOIN b LEFT JOIN a USING (k)",
                "SELECT b.k FROM d CROSS JOIN b LEFT JOIN a USING(k)",
            ),
        ] {
            assert_eq!(resolved_with(known, sql).unwrap(), expected);
        }
        // Both tables on the left have it, and are not joined by it.
        assert!(
            resolved_with(known, "SELECT 1 FROM a CROSS JOIN b NATURAL LEFT JOIN b c").is_err()
        );
    }

    #[test]
    fn the_tables_to_know_are_those_that_merge() {
        let sql = "WITH q AS (SELECT * FROM x) SELECT * FROM a, (SELECT 1 FROM (b JOIN c USING (k)) \
                   JOIN q ON true) WHERE EXISTS (SELECT 1 FROM d NATURAL JOIN 'e.csv')";
        let statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        let statement = SqlStatement::Statement(Box::new(statement));
        let names: Vec<_> = merged_tables(&statement).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b", "c", "d", "'e.csv'"]);
    }

    #[test]
    fn a_merged_name_is_that_of_the_first_table() {
        assert_eq!(
            resolved(
                "SELECT k, max(k + 1) FROM a JOIN b USING (k) LEFT JOIN c USING (k) GROUP BY k"
            ),
            "SELECT a.k, max(a.k + 1) FROM a JOIN b USING(k) LEFT JOIN c USING(k) GROUP BY a.k"
        );
        assert_eq!(
            resolved("SELECT * FROM (b AS x JOIN a USING (k)) JOIN c USING (j, k) WHERE k > 1"),
            "SELECT * FROM (b AS x JOIN a USING(k)) JOIN c USING(j, k) WHERE x.k > 1"
        );
        assert_eq!(
            resolved("SELECT * FROM (b AS x JOIN a USING (k)) JOIN c USING (k) ORDER BY k"),
            "SELECT x.*, a.* EXCLUDE (k), c.* EXCLUDE (k) FROM (b AS x JOIN a USING(k)) JOIN c \
             USING(k) ORDER BY x.k"
        );
    }

    #[test]
    fn outer_joins_take_the_side_that_is_there() {
        assert_eq!(
            resolved("SELECT k, x FROM a RIGHT JOIN b USING (k) WHERE k IN (SELECT k FROM c)"),
            "SELECT b.k, x FROM a RIGHT JOIN b USING(k) WHERE b.k IN (SELECT k FROM c)"
        );
        assert_eq!(
            resolved("SELECT * FROM a FULL JOIN b USING (k)"),
            "SELECT a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k) FROM a FULL JOIN b USING(k)"
        );
        assert_eq!(
            resolved("SELECT x AS k FROM a FULL JOIN b USING (k) ORDER BY k"),
            "SELECT x AS k FROM a FULL JOIN b USING(k) ORDER BY k"
        );
        assert_eq!(
            resolved("SELECT x FROM a FULL JOIN b USING (k) ORDER BY k"),
            "SELECT x FROM a FULL JOIN b USING(k) ORDER BY coalesce(a.k, b.k)"
        );
    }

    #[test]
    fn a_join_over_what_an_outer_join_has_merged_compares_that() {
        assert_eq!(
            resolved("SELECT k FROM a FULL JOIN b USING (k) JOIN c USING (k)"),
            "SELECT coalesce(a.k, b.k) AS k FROM a FULL JOIN b USING(k) JOIN c ON coalesce(a.k, b.k) \
             = c.k"
        );
    }
}
