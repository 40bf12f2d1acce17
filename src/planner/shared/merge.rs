//! One plan in place of two that differ in names, and in the columns that are read of them.
//!
//! Two uses of a WITH query, say: each was optimized by itself, reads the columns that it needs, and has names of its own
//! for what the optimizer made up. The plan for both has the columns of either; those of the first keep their names.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, plan_datafusion_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, Projection, Sort, SubqueryAlias, TableScan,
    TableScanBuilder, Window,
};

/// A plan for two others.
pub(super) struct Merged {
    pub(super) plan: LogicalPlan,
    /// Its columns that are those of the second one, in the order of that.
    pub(super) columns: Vec<Column>,
}

/// The plan that has the columns of both, if the two differ in nothing else.
pub(super) fn merged(one: &LogicalPlan, other: &LogicalPlan) -> Option<Merged> {
    // Columns that nobody reads any more are no difference.
    if let Some((input, _)) = selection(one) {
        return merged(input, other);
    }
    if let Some((input, chosen)) = selection(other) {
        let Merged { plan, columns } = merged(one, input)?;
        let places = chosen.iter().map(|column| input.schema().maybe_index_of_column(column));
        let columns = places.map(|at| Some(columns[at?].clone())).collect::<Option<_>>()?;
        return Some(Merged { plan, columns });
    }
    match (one, other) {
        (LogicalPlan::TableScan(one), LogicalPlan::TableScan(other)) => scans(one, other),
        (LogicalPlan::SubqueryAlias(one), LogicalPlan::SubqueryAlias(other)) => aliases(one, other),
        (LogicalPlan::Filter(one), LogicalPlan::Filter(other)) => filters(one, other),
        (LogicalPlan::Projection(one), LogicalPlan::Projection(other)) => projections(one, other),
        (LogicalPlan::Aggregate(one), LogicalPlan::Aggregate(other)) => aggregates(one, other),
        (LogicalPlan::Join(one), LogicalPlan::Join(other)) => joins(one, other),
        (LogicalPlan::Window(one), LogicalPlan::Window(other)) => windows(one, other),
        (LogicalPlan::Sort(one), LogicalPlan::Sort(other)) => sorts(one, other),
        _ => None,
    }
}

/// What a projection of plain columns chooses from, and which.
pub(super) fn selection(plan: &LogicalPlan) -> Option<(&LogicalPlan, Vec<&Column>)> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let columns = projection.expr.iter().map(Expr::try_as_col).collect::<Option<_>>()?;
    Some((&projection.input, columns))
}

/// Whether two scans read the same rows, whatever columns of them.
fn are_of_one_table(one: &TableScan, other: &TableScan) -> bool {
    let providers = (source_as_provider(&one.source), source_as_provider(&other.source));
    matches!(providers, (Ok(one), Ok(other)) if Arc::ptr_eq(&one, &other))
}

fn scans(one: &TableScan, other: &TableScan) -> Option<Merged> {
    if !are_of_one_table(one, other) || one.fetch.is_some() || other.fetch.is_some() {
        return None;
    }
    let all = || (0..one.source.schema().fields().len()).collect();
    let read = |scan: &TableScan| scan.projection.clone().unwrap_or_else(all);
    let (mut columns, others) = (read(one), read(other));
    for column in &others {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    let schema = one.source.schema();
    let named = |scan: &TableScan, at: usize| {
        Column::new(Some(scan.table_name.clone()), schema.field(at).name())
    };
    let ours: Vec<Column> = others.iter().map(|&at| named(one, at)).collect();
    // Filters may read what the scan does not yield.
    let all_ours: Vec<Column> = (0..schema.fields().len()).map(|at| named(one, at)).collect();
    let all_theirs: Vec<Column> = (0..schema.fields().len()).map(|at| named(other, at)).collect();
    let filters = other.filters.iter().map(|filter| {
        renamed(filter, &|column| {
            let at = all_theirs.iter().position(|theirs| theirs == column)?;
            Some(all_ours[at].clone())
        })
    });
    if filters.collect::<Option<Vec<_>>>()? != one.filters {
        return None;
    }
    let scan = TableScanBuilder::new(one.table_name.clone(), Arc::clone(&one.source))
        .with_projection(Some(columns))
        .with_filters(one.filters.clone())
        .build();
    let scan = scan.ok()?;
    Some(Merged { plan: LogicalPlan::TableScan(scan), columns: ours })
}

fn aliases(one: &SubqueryAlias, other: &SubqueryAlias) -> Option<Merged> {
    let Merged { plan, columns } = merged(&one.input, &other.input)?;
    let mut names: Vec<&String> = plan.schema().fields().iter().map(|field| field.name()).collect();
    names.sort_unstable();
    // Under one alias a name can stand for one column only.
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let rename = |column: Column| Column::new(Some(one.alias.clone()), column.name);
    let columns = columns.into_iter().map(rename).collect();
    let alias = SubqueryAlias::try_new(Arc::new(plan), one.alias.clone()).ok()?;
    Some(Merged { plan: LogicalPlan::SubqueryAlias(alias), columns })
}

fn filters(one: &Filter, other: &Filter) -> Option<Merged> {
    let Merged { plan, columns } = merged(&one.input, &other.input)?;
    let names = Names(vec![(other.input.schema(), &columns)]);
    if names.ours(&other.predicate)? != one.predicate {
        return None;
    }
    let filter = Filter::try_new(one.predicate.clone(), Arc::new(plan)).ok()?;
    Some(Merged { plan: LogicalPlan::Filter(filter), columns })
}

fn projections(one: &Projection, other: &Projection) -> Option<Merged> {
    let Merged { plan, columns } = merged(&one.input, &other.input)?;
    let names = Names(vec![(other.input.schema(), &columns)]);
    let (exprs, places) = names.united(&one.expr, &other.expr)?;
    let projection = Projection::try_new(exprs, Arc::new(plan)).ok()?;
    let columns = places.into_iter().map(|at| column_at(&projection.schema, at)).collect();
    Some(Merged { plan: LogicalPlan::Projection(projection), columns })
}

fn aggregates(one: &Aggregate, other: &Aggregate) -> Option<Merged> {
    let Merged { plan, columns } = merged(&one.input, &other.input)?;
    let names = Names(vec![(other.input.schema(), &columns)]);
    let has_sets = one.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)));
    let keys = other.group_expr.iter().map(|key| Some(names.ours(key)?.unalias()));
    let own = one.group_expr.iter().map(|key| key.clone().unalias()).collect::<Vec<_>>();
    if has_sets || keys.collect::<Option<Vec<_>>>()? != own {
        return None;
    }
    let (calls, places) = names.united(&one.aggr_expr, &other.aggr_expr)?;
    let aggregate = Aggregate::try_new(Arc::new(plan), one.group_expr.clone(), calls).ok()?;
    let keys = 0..one.group_expr.len();
    let places = keys.chain(places.into_iter().map(|at| one.group_expr.len() + at));
    let columns = places.map(|at| column_at(&aggregate.schema, at)).collect();
    Some(Merged { plan: LogicalPlan::Aggregate(aggregate), columns })
}

fn joins(one: &Join, other: &Join) -> Option<Merged> {
    let is_same = one.join_type == other.join_type
        && one.join_constraint == other.join_constraint
        && one.null_equality == other.null_equality
        && one.null_aware == other.null_aware;
    if !is_same {
        return None;
    }
    let (left, right) = (merged(&one.left, &other.left)?, merged(&one.right, &other.right)?);
    let of_left = (other.left.schema().as_ref(), &left.columns);
    let of_right = (other.right.schema().as_ref(), &right.columns);
    let keys = other
        .on
        .iter()
        .map(|(key, of)| Some((Names(vec![of_left]).ours(key)?, Names(vec![of_right]).ours(of)?)));
    let both = Names(vec![of_left, of_right]);
    let filter = match &other.filter {
        Some(filter) => Some(both.ours(filter)?),
        None => None,
    };
    if keys.collect::<Option<Vec<_>>>()? != one.on || filter != one.filter {
        return None;
    }
    let columns = match one.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            [left.columns, right.columns].concat()
        }
        JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
        JoinType::RightSemi | JoinType::RightAnti => right.columns,
        JoinType::LeftMark | JoinType::RightMark => return None,
    };
    let join = Join::try_new(
        Arc::new(left.plan),
        Arc::new(right.plan),
        one.on.clone(),
        filter,
        one.join_type,
        one.join_constraint,
        one.null_equality,
        one.null_aware,
    );
    Some(Merged { plan: LogicalPlan::Join(join.ok()?), columns })
}

fn windows(one: &Window, other: &Window) -> Option<Merged> {
    let Merged { plan, mut columns } = merged(&one.input, &other.input)?;
    let inputs = plan.schema().fields().len();
    let names = Names(vec![(other.input.schema(), &columns)]);
    let (calls, places) = names.united(&one.window_expr, &other.window_expr)?;
    let window = Window::try_new(calls, Arc::new(plan)).ok()?;
    columns.extend(places.into_iter().map(|at| column_at(&window.schema, inputs + at)));
    Some(Merged { plan: LogicalPlan::Window(window), columns })
}

fn sorts(one: &Sort, other: &Sort) -> Option<Merged> {
    let Merged { plan, columns } = merged(&one.input, &other.input)?;
    let names = Names(vec![(other.input.schema(), &columns)]);
    let keys = other.expr.iter().map(|key| Some(key.with_expr(names.ours(&key.expr)?)));
    if one.fetch != other.fetch || keys.collect::<Option<Vec<_>>>()? != one.expr {
        return None;
    }
    let sort = Sort { expr: one.expr.clone(), input: Arc::new(plan), fetch: one.fetch };
    Some(Merged { plan: LogicalPlan::Sort(sort), columns })
}

/// The names that columns of the second plan's inputs have in those of the plan for both.
struct Names<'a>(Vec<(&'a DFSchema, &'a Vec<Column>)>);

impl Names<'_> {
    fn of(&self, column: &Column) -> Option<Column> {
        self.0.iter().find_map(|(schema, columns)| {
            schema.maybe_index_of_column(column).map(|at| columns[at].clone())
        })
    }

    /// An expression of the second plan, by the names of the plan for both.
    fn ours(&self, expr: &Expr) -> Option<Expr> {
        renamed(expr, &|column| self.of(column))
    }

    /// The expressions of one plan, those of the other that it lacks, and where all of the other's are.
    fn united(&self, one: &[Expr], other: &[Expr]) -> Option<(Vec<Expr>, Vec<usize>)> {
        let mut all = one.to_vec();
        let mut places = Vec::with_capacity(other.len());
        for expr in other {
            let ours = self.ours(expr)?;
            let value = ours.clone().unalias();
            let known = all.iter().position(|known| known.clone().unalias() == value);
            places.push(known.unwrap_or(all.len()));
            if known.is_none() {
                all.push(ours);
            }
        }
        Some((all, places))
    }
}

/// An expression with other names for its columns; nothing where one has none.
fn renamed(expr: &Expr, name: &dyn Fn(&Column) -> Option<Column>) -> Option<Expr> {
    let renamed = expr.clone().transform(|expr| match &expr {
        Expr::Column(column) => {
            let column = name(column).ok_or_else(|| plan_datafusion_err!("no column {column}"))?;
            Ok(Transformed::yes(Expr::Column(column)))
        }
        _ => Ok(Transformed::no(expr)),
    });
    renamed.data().ok()
}

fn column_at(schema: &DFSchema, at: usize) -> Column {
    Column::from(schema.qualified_field(at))
}
