//! What joins have merged so far: the columns, the tables that have each, and what stands for it.

use std::collections::HashMap;
use std::ops::{ControlFlow, Not};

use sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName,
    Query, ReplaceSelectElement, ReplaceSelectItem, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, Spanned, TableFactor, TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use super::place::place;
use super::relation::{call, unnamed};
use super::resolve::normalized;
use super::walk::walk_mut;
use crate::error::{Error, Result};

/// The columns of tables as far as the catalog knows them, by their names as a statement writes them.
pub(crate) type KnownColumns = HashMap<String, Vec<String>>;

/// Puts the value of each merged column in the place of its name, outside of queries within.
pub(super) fn names(syntax: &mut impl VisitMut, merged: &[Merged]) -> Result<()> {
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
pub(super) struct Merged {
    pub(super) name: Ident,
    /// What it is, where the tables that have it are known.
    pub(super) value: Option<Expr>,
    /// The tables that have it; none of those that are not known.
    tables: Vec<Option<Ident>>,
    /// Whether a right or a full join has merged it.
    is_outer: bool,
    /// Whether an outer join has merged it, and nobody knows which table has it on its left.
    pub(super) is_unknown: bool,
}

impl Merged {
    pub(super) fn is(&self, name: &Ident) -> bool {
        normalized(&self.name) == normalized(name)
    }

    /// What stands for the column where it is named; `None` where DataFusion is to find it.
    pub(super) fn value_at(&self, name: &Ident) -> Result<Option<Expr>> {
        if self.is_unknown { Err(unknown(name)) } else { Ok(self.value.clone()) }
    }
}

pub(super) fn unknown(name: &Ident) -> Error {
    let message = format!(
        "which table of an outer join has column '{}' is not known here; qualify it, and join ON a condition",
        name.value
    );
    Error::unsupported(message).at(place(name.span.start))
}

/// Tables that have been joined, and the columns that were merged.
pub(super) struct Joined<'a> {
    known: &'a KnownColumns,
    tables: Vec<Table>,
    pub(super) merged: Vec<Merged>,
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
    pub(super) fn of(from: &mut TableWithJoins, known: &'a KnownColumns) -> Result<Self> {
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
    pub(super) fn columns(&self) -> Option<Vec<SelectItem>> {
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
