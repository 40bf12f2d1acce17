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

use std::collections::HashMap;
use std::ops::{ControlFlow, Not};

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as SqlStatement};
use sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableFactor, TableWithJoins, VisitMut,
    Visitor, VisitorMut, WildcardAdditionalOptions,
};

use super::place::place;
use super::relation::{call, unnamed};
use super::resolve::normalized;
use super::walk::{walk, walk_mut};
use crate::error::{Error, Result};

/// The columns of tables as far as the catalog knows them, by their names as a statement writes them.
pub(crate) type KnownColumns = HashMap<String, Vec<String>>;

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

/// Puts the value of each merged column in the place of its name, outside of queries within.
fn names(syntax: &mut impl VisitMut, merged: &[Merged]) -> Result<()> {
    match walk_mut(syntax, &mut Names { merged, depth: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Names<'a> {
    merged: &'a [Merged],
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.merged.iter().find(|column| column.is(name))
        {
            match column.value_at(name) {
                Ok(Some(value)) => *expr = value,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// A column that joins have merged.
#[derive(Clone)]
struct Merged {
    name: Ident,
    /// What it is, where the tables that have it are known.
    value: Option<Expr>,
    /// The tables that have it; none of those that are not known.
    tables: Vec<Option<Ident>>,
    /// Whether a right or a full join has merged it.
    is_outer: bool,
    /// Whether an outer join has merged it, and nobody knows which table has it on its left.
    is_unknown: bool,
}

impl Merged {
    fn is(&self, name: &Ident) -> bool {
        normalized(&self.name) == normalized(name)
    }

    /// What stands for the column where it is named; `None` where DataFusion is to find it.
    fn value_at(&self, name: &Ident) -> Result<Option<Expr>> {
        if self.is_unknown { Err(unknown(name)) } else { Ok(self.value.clone()) }
    }
}

fn unknown(name: &Ident) -> Error {
    let message = format!(
        "which table of an outer join has column '{}' is not known here; qualify it, and join ON a condition",
        name.value
    );
    Error::unsupported(message).at(place(name.span.start))
}

/// Tables that have been joined, and the columns that were merged.
struct Joined<'a> {
    known: &'a KnownColumns,
    tables: Vec<Table>,
    merged: Vec<Merged>,
    /// Whether joins have merged columns of which nothing is known here.
    is_open: bool,
}

/// A table in FROM.
#[derive(Clone)]
struct Table {
    /// What its columns are qualified by.
    name: Option<Ident>,
    columns: Option<Vec<String>>,
}

impl Table {
    fn of(factor: &TableFactor, known: &KnownColumns) -> Self {
        let (mut columns, alias) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                (known.get(&name.to_string()).cloned(), alias)
            }
            TableFactor::Derived { subquery, alias, .. } => (listed(&subquery.body), alias),
            _ => (None, &None),
        };
        if let (Some(columns), Some(alias)) = (&mut columns, alias) {
            for (column, alias) in columns.iter_mut().zip(&alias.columns) {
                *column = normalized(&alias.name);
            }
        }
        Self { name: table_name(factor), columns }
    }

    fn has(&self, name: &Ident) -> Option<bool> {
        self.columns.as_ref().map(|columns| columns.contains(&normalized(name)))
    }
}

impl<'a> Joined<'a> {
    fn of(from: &mut TableWithJoins, known: &'a KnownColumns) -> Result<Self> {
        let (tables, merged) = Default::default();
        let mut joined = Self { known, tables, merged, is_open: false };
        joined.add(&mut from.relation)?;
        for join in &mut from.joins {
            let (kind, constraint) = match &mut join.join_operator {
                JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
                    (Kind::Inner, constraint)
                }
                JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                    (Kind::Left, constraint)
                }
                JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                    (Kind::Right, constraint)
                }
                JoinOperator::FullOuter(constraint) => (Kind::Full, constraint),
                operator => {
                    joined.is_open |= !matches!(operator, JoinOperator::CrossJoin(_));
                    joined.add(&mut join.relation)?;
                    continue;
                }
            };
            let right = Table::of(&join.relation, known);
            if matches!(constraint, JoinConstraint::Natural) {
                match joined.common(&right) {
                    Some(names) if names.is_empty() => {}
                    Some(names) => {
                        let names = names.into_iter().map(ObjectName::from).collect();
                        *constraint = JoinConstraint::Using(names);
                    }
                    None if kind == Kind::Inner => joined.is_open = true,
                    None => {
                        let message = "what a NATURAL outer join merges is not known here: is there such a table? Of other relations, \
                                       write JOIN … USING (…)";
                        let place = place(join.relation.span().start);
                        return Err(Error::unsupported(message).at(place));
                    }
                }
            }
            match constraint {
                JoinConstraint::Using(columns) => {
                    let names: Option<Vec<Ident>> =
                        columns.iter().map(|name| name.0.last()?.as_ident().cloned()).collect();
                    let equal = joined.merge(kind, &right, &names.unwrap_or_default());
                    if let Some(equal) = equal {
                        *constraint = JoinConstraint::On(equal);
                    }
                }
                JoinConstraint::On(condition) => names(condition, &joined.merged)?,
                JoinConstraint::Natural | JoinConstraint::None => {}
            }
            joined.add(&mut join.relation)?;
        }
        Ok(joined)
    }

    /// The columns that a table has in common with those joined so far; `None` where that is not known.
    fn common(&self, right: &Table) -> Option<Vec<Ident>> {
        let mut names = Vec::new();
        for table in &self.tables {
            for name in table.columns.as_ref()? {
                let name = Ident::with_quote('"', name);
                if !right.has(&name)? || names.contains(&name) {
                    continue;
                }
                let owners = self.tables.iter().filter(|table| table.has(&name) == Some(true));
                let is_merged = self.merged.iter().any(|column| column.is(&name));
                if owners.count() > 1 && !is_merged {
                    return None;
                }
                names.push(name);
            }
        }
        self.is_open.not().then_some(names)
    }

    /// The one table that has a column.
    fn owner(&self, name: &Ident) -> Option<Ident> {
        if let [table] = self.tables.as_slice() {
            return table.name.clone();
        }
        let has: Option<Vec<bool>> = self.tables.iter().map(|table| table.has(name)).collect();
        let mut owners = self.tables.iter().zip(has?).filter(|(_, has)| *has);
        let (owner, _) = owners.next()?;
        owners.next().is_none().then(|| owner.name.clone())?
    }

    /// All columns, table by table, a merged one where it stands in the first table that has it; `None` where
    /// a table is not known.
    fn columns(&self) -> Option<Vec<SelectItem>> {
        let is_known = |column: &Merged| column.tables.iter().all(Option::is_some);
        if self.is_open || !self.merged.iter().all(is_known) {
            return None;
        }
        let item = |Table { name: table, .. }: &Table| {
            let (mut excluded, mut replaced) = (Vec::new(), Vec::new());
            for merged in &self.merged {
                let name = &merged.name;
                match merged.tables.iter().position(|other| other == table) {
                    None => {}
                    Some(0) if merged.value == Some(column(table.as_ref()?, name)) => {}
                    Some(0) => {
                        let (expr, column_name) = (merged.value.clone()?, name.clone());
                        let element = ReplaceSelectElement { expr, column_name, as_keyword: true };
                        replaced.push(Box::new(element));
                    }
                    Some(_) => excluded.push(ObjectName::from(name.clone())),
                }
            }
            let options = WildcardAdditionalOptions {
                opt_exclude: (!excluded.is_empty())
                    .then_some(ExcludeSelectItem::Multiple(excluded)),
                opt_replace: (!replaced.is_empty())
                    .then_some(ReplaceSelectItem { items: replaced }),
                ..Default::default()
            };
            let of = SelectItemQualifiedWildcardKind::ObjectName(table.clone()?.into());
            Some(SelectItem::QualifiedWildcard(of, options))
        };
        self.tables.iter().map(item).collect()
    }

    fn add(&mut self, factor: &mut TableFactor) -> Result<()> {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                let inner = Self::of(table_with_joins, self.known)?;
                self.tables.extend(inner.tables);
                self.merged.extend(inner.merged);
                self.is_open |= inner.is_open;
            }
            factor => self.tables.push(Table::of(factor, self.known)),
        }
        Ok(())
    }

    /// Merges columns with those of a table on the right; the condition that says so in the place of USING,
    /// where the left side is no column of one table.
    fn merge(&mut self, kind: Kind, right: &Table, columns: &[Ident]) -> Option<Expr> {
        let mut pairs = Vec::new();
        for name in columns {
            let right_table = right.name.clone();
            let right = right.name.as_ref().map(|table| column(table, name));
            let earlier = self.merged.iter().position(|column| column.is(name));
            let (left, mut tables, was_outer) = match earlier {
                Some(at) => {
                    let Merged { value, tables, is_outer, .. } = self.merged[at].clone();
                    (value, tables, is_outer)
                }
                None => match self.owner(name) {
                    Some(table) => (Some(column(&table, name)), vec![Some(table)], false),
                    None if kind == Kind::Inner => (right.clone(), vec![None], false),
                    None => (None, vec![None], false),
                },
            };
            tables.push(right_table);
            pairs.push((left.clone(), right.clone(), was_outer));
            let value = match kind {
                Kind::Inner => left.or(right),
                Kind::Left => left,
                Kind::Right => right,
                Kind::Full => match (left, right) {
                    (Some(left), Some(right)) => {
                        let both = vec![unnamed(left), unnamed(right)];
                        Some(call("coalesce", name.span, both))
                    }
                    _ => None,
                },
            };
            let is_outer = was_outer || matches!(kind, Kind::Right | Kind::Full);
            let is_unknown = value.is_none() && kind != Kind::Inner;
            let merged = Merged { name: name.clone(), value, tables, is_outer, is_unknown };
            match earlier {
                Some(at) => self.merged[at] = merged,
                None => self.merged.push(merged),
            }
        }
        if !pairs.iter().any(|(_, _, was_outer)| *was_outer) {
            return None;
        }
        let equal = pairs.into_iter().map(|(left, right, _)| {
            let (left, right) = (Box::new(left?), Box::new(right?));
            Some(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })
        });
        equal.collect::<Option<Vec<_>>>()?.into_iter().reduce(|left, right| {
            let (left, right) = (Box::new(left), Box::new(right));
            Expr::BinaryOp { left, op: BinaryOperator::And, right }
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

fn column(table: &Ident, name: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), name.clone()])
}

/// The columns of a query that names each.
fn listed(body: &SetExpr) -> Option<Vec<String>> {
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name))
        | SelectItem::ExprWithAlias { alias: name, .. } => Some(normalized(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(normalized),
        _ => None,
    };
    match body {
        SetExpr::Select(select) => select.projection.iter().map(name).collect(),
        SetExpr::SetOperation { left, .. } => listed(left),
        SetExpr::Query(query) => listed(&query.body),
        _ => None,
    }
}

/// What the columns of a table are qualified by.
fn table_name(factor: &TableFactor) -> Option<Ident> {
    let (alias, name) = match factor {
        TableFactor::Table { alias, name, .. } => (alias, name.0.last()?.as_ident()),
        TableFactor::Derived { alias, .. } | TableFactor::NestedJoin { alias, .. } => (alias, None),
        _ => return None,
    };
    alias.as_ref().map(|alias| &alias.name).or(name).cloned()
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
