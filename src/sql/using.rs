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
//! ```
//!
//! Left alone: what NATURAL merges, and a left side of several tables of which only the catalog knows
//! which has the column.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use super::relation::{call, unnamed};
use super::resolve::normalized;

/// Says in every query what the merged columns are.
pub(super) fn resolve(syntax: &mut impl VisitMut) {
    let _ = VisitMut::visit(syntax, &mut Queries);
}

struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        match query.body.as_mut() {
            SetExpr::Select(select) => resolve_select(select, query.order_by.as_mut()),
            body => resolve_body(body),
        }
        ControlFlow::Continue(())
    }
}

/// The lists of a set operation; queries within it come by themselves.
fn resolve_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => resolve_select(select, None),
        SetExpr::SetOperation { left, right, .. } => {
            resolve_body(left);
            resolve_body(right);
        }
        _ => {}
    }
}

fn resolve_select(select: &mut Select, order: Option<&mut OrderBy>) {
    // Where there are more tables beside the joins, the name may be one of theirs.
    let [joined] = select.from.as_mut_slice() else { return };
    let joined = Joined::of(joined);
    let merged = &joined.merged;
    if merged.is_empty() {
        return;
    }
    let from = std::mem::take(&mut select.from);
    let mut items = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
                items.extend(joined.columns().unwrap_or(vec![SelectItem::Wildcard(options)]));
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                let column = merged.iter().find(|column| column.is(&name));
                items.push(match column.and_then(|column| column.value.clone()) {
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
    let _ = VisitMut::visit(select, &mut Names { merged, depth: 0 });
    select.from = from;
    // Where rows are distinct, they are ordered by columns of the list alone.
    let order = order.filter(|_| select.distinct.is_none());
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order {
        // Another column of the list under the same name is meant first.
        let is_listed = |column: &Merged| select.projection.iter().any(|item| lists(item, column));
        let hidden: Vec<Merged> =
            merged.iter().filter(|column| !is_listed(column)).cloned().collect();
        let _ = VisitMut::visit(keys, &mut Names { merged: &hidden, depth: 0 });
    }
}

fn lists(item: &SelectItem, column: &Merged) -> bool {
    let SelectItem::ExprWithAlias { alias, expr } = item else { return false };
    column.is(alias) && Some(expr) != column.value.as_ref()
}

/// Puts the value of each merged column in the place of its name, outside of queries within.
struct Names<'a> {
    merged: &'a [Merged],
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(column) = self.merged.iter().find(|column| column.is(name))
            && let Some(value) = &column.value
        {
            *expr = value.clone();
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
}

impl Merged {
    fn is(&self, name: &Ident) -> bool {
        normalized(&self.name) == normalized(name)
    }
}

/// Tables that have been joined, and the columns that were merged.
#[derive(Default)]
struct Joined {
    /// Their names; none of a table without one.
    tables: Vec<Option<Ident>>,
    merged: Vec<Merged>,
    /// Whether there are columns of which nothing is known here.
    is_open: bool,
}

impl Joined {
    fn of(from: &mut TableWithJoins) -> Self {
        let mut joined = Self::default();
        joined.add(&mut from.relation);
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
                    joined.add(&mut join.relation);
                    continue;
                }
            };
            match constraint {
                JoinConstraint::Using(columns) => {
                    let right = table_name(&join.relation);
                    let names: Option<Vec<Ident>> =
                        columns.iter().map(|name| name.0.last()?.as_ident().cloned()).collect();
                    let equal = joined.merge(kind, right.as_ref(), &names.unwrap_or_default());
                    if let Some(equal) = equal {
                        *constraint = JoinConstraint::On(equal);
                    }
                }
                JoinConstraint::On(condition) => {
                    let _ =
                        VisitMut::visit(condition, &mut Names { merged: &joined.merged, depth: 0 });
                }
                JoinConstraint::Natural => joined.is_open = true,
                JoinConstraint::None => {}
            }
            joined.add(&mut join.relation);
        }
        joined
    }

    /// All columns, table by table, a merged one where it stands in the first table that has it; `None` where
    /// a table is not known.
    fn columns(&self) -> Option<Vec<SelectItem>> {
        let is_known = |column: &Merged| column.tables.iter().all(Option::is_some);
        if self.is_open || !self.merged.iter().all(is_known) {
            return None;
        }
        let item = |table: &Option<Ident>| {
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

    fn add(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                let inner = Self::of(table_with_joins);
                self.tables.extend(inner.tables);
                self.merged.extend(inner.merged);
                self.is_open |= inner.is_open;
            }
            factor => self.tables.push(table_name(factor)),
        }
    }

    /// Merges columns with those of a table on the right; the condition that says so in the place of USING,
    /// where the left side is no column of one table.
    fn merge(&mut self, kind: Kind, right: Option<&Ident>, columns: &[Ident]) -> Option<Expr> {
        let mut pairs = Vec::new();
        for name in columns {
            let right_table = right.cloned();
            let right = right.map(|table| column(table, name));
            let earlier = self.merged.iter().position(|column| column.is(name));
            let (left, mut tables, was_outer) = match earlier {
                Some(at) => {
                    let Merged { value, tables, is_outer, .. } = self.merged[at].clone();
                    (value, tables, is_outer)
                }
                None => match self.tables.as_slice() {
                    [Some(table)] => (Some(column(table, name)), vec![Some(table.clone())], false),
                    _ if kind == Kind::Inner => (right.clone(), vec![None], false),
                    _ => (None, vec![None], false),
                },
            };
            tables.push(right_table);
            pairs.push((left.clone(), right.clone(), was_outer));
            let value = match kind {
                Kind::Inner | Kind::Left => left,
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
            let merged = Merged { name: name.clone(), value, tables, is_outer };
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

    fn resolved(sql: &str) -> String {
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        resolve(&mut statement);
        statement.to_string()
    }

    #[test]
    fn what_only_the_catalog_knows_is_left_alone() {
        for sql in [
            "SELECT k, * FROM a NATURAL JOIN b NATURAL JOIN c ORDER BY k",
            "SELECT k FROM a RIGHT JOIN b USING(k), c",
            "SELECT k, * FROM a CROSS JOIN b LEFT JOIN c USING(k)",
            "SELECT a.k FROM a JOIN b USING(k)",
        ] {
            assert_eq!(resolved(sql), sql);
        }
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
