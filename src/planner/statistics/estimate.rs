//! Rows that a plan is estimated to yield, and values of its columns that differ.
//!
//! A column is followed down to the scan that it is read by; what a table says of it holds above too, for
//! the values that a filter leaves are of the same domain. Formulas: Selinger et al., *Access Path Selection in a
//! Relational Database Management System*, SIGMOD 1979.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, JoinType, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, FetchType, Join, LogicalPlan, Operator, SkipType,
    TableScan, TableSource,
};

use super::distinct::Count;
use super::pinned::is_pinned;
use super::profile::{Profile, comparable};
use super::{Relation, Spread, Statistics};
use crate::planner::cost::rows::RowCosts;
use crate::planner::shared::behind;

/// Rows of a relation at least: an estimate of none would hide all that is done with it.
pub(in crate::planner) const LEAST_ROWS: f64 = 1.0;

/// Begins the name of the keys that a sub-query is restricted to, for a join above asks for no others.
pub(in crate::planner) const ASKED_KEYS: &str = "__keys";

/// The share of rows that an anti join keeps at least.
pub(in crate::planner) const UNMATCHED_MIN: f64 = 0.2;

/// Rows of a relation of which nothing is known.
const UNKNOWN_ROWS: f64 = 1000.0;

/// Rows that a list is unnested into, where nothing is known of it.
const UNNESTED_ROWS: f64 = 10.0;

/// Estimates of the plans of one statement.
pub(in crate::planner) struct Estimates<'a> {
    pub(super) statistics: &'a Statistics,
    /// What is done to the rows costs.
    pub(in crate::planner) costs: RowCosts,
    /// By the address of a scan's source, which is held so that no other takes its place.
    relations: RefCell<HashMap<usize, (Arc<dyn TableSource>, Option<Rc<Relation>>)>>,
    /// Rows of the plans below the one that was asked about, by their addresses, while that is being estimated.
    below: RefCell<HashMap<usize, f64>>,
    depth: Cell<usize>,
}

impl<'a> Estimates<'a> {
    /// By the built-in costs.
    pub(in crate::planner) fn new(statistics: &'a Statistics) -> Self {
        let (costs, relations, below, depth) = Default::default();
        Self { statistics, costs, relations, below, depth }
    }

    pub(in crate::planner) fn at(self, costs: RowCosts) -> Self {
        Self { costs, ..self }
    }

    /// Rows that a plan yields.
    pub(in crate::planner) fn rows(&self, plan: &LogicalPlan) -> f64 {
        let address = std::ptr::from_ref(plan).addr();
        if let Some(rows) = self.below.borrow().get(&address) {
            return *rows;
        }
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        let rows = self.rows_of(plan).max(LEAST_ROWS);
        self.depth.set(depth);
        // Plans stay where they are as long as one above them is borrowed, and no longer.
        match depth {
            0 => self.below.borrow_mut().clear(),
            _ => _ = self.below.borrow_mut().insert(address, rows),
        }
        rows
    }

    fn rows_of(&self, plan: &LogicalPlan) -> f64 {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let filters: Vec<&Expr> = scan.filters.iter().collect();
                let rows = self.table_rows(scan) * self.kept(&filters, &[plan]);
                scan.fetch.map_or(rows, |fetch| rows.min(fetch as f64))
            }
            LogicalPlan::Filter(filter) => {
                let mut conditions = split_conjunction(&filter.predicate);
                // A scan is told of filters that are applied above it all the same.
                if let LogicalPlan::TableScan(scan) = filter.input.as_ref() {
                    for told in &scan.filters {
                        if !conditions.contains(&told) {
                            conditions.push(told);
                        }
                    }
                    return self.table_rows(scan) * self.kept(&conditions, &[&filter.input]);
                }
                self.rows(&filter.input) * self.kept(&conditions, &[&filter.input])
            }
            LogicalPlan::Aggregate(aggregate) => self.groups(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let columns = input.schema().columns().into_iter().map(Expr::Column);
                self.combined(input, columns)
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                self.combined(&on.input, on.on_expr.iter().cloned())
            }
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Union(union) => union.inputs.iter().map(|input| self.rows(input)).sum(),
            LogicalPlan::Limit(limit) => {
                let rows = self.rows(&limit.input);
                let skipped = match limit.get_skip_type() {
                    Ok(SkipType::Literal(skip)) => skip as f64,
                    _ => 0.0,
                };
                match limit.get_fetch_type() {
                    Ok(FetchType::Literal(Some(fetch))) => (rows - skipped).min(fetch as f64),
                    _ => rows - skipped,
                }
            }
            LogicalPlan::Values(values) => values.values.len() as f64,
            LogicalPlan::EmptyRelation(empty) => f64::from(u8::from(empty.produce_one_row)),
            LogicalPlan::Unnest(unnest) => self.rows(&unnest.input) * UNNESTED_ROWS,
            other => {
                let inputs = other.inputs().into_iter().map(|input| self.rows(input));
                inputs.reduce(f64::max).unwrap_or(UNKNOWN_ROWS)
            }
        }
    }

    /// Rows that a plan yields, if all that it reads is known, and all that keeps rows from it is counted.
    pub(in crate::planner) fn known_rows(&self, plan: &LogicalPlan) -> Option<f64> {
        (self.is_known(plan) && !is_restricted(plan)).then(|| self.rows(plan))
    }

    /// Whether an estimate rests on what is known of all that a plan reads.
    pub(in crate::planner) fn is_known(&self, plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::TableScan(scan) => self.relation(scan).is_some(),
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => true,
            LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => false,
            LogicalPlan::Extension(_) => behind(plan).is_some_and(|plan| self.is_known(plan)),
            other => {
                let inputs = other.inputs();
                !inputs.is_empty() && inputs.into_iter().all(|input| self.is_known(input))
            }
        }
    }

    /// Rows that a plan would yield without its filters.
    pub(in crate::planner) fn rows_unfiltered(&self, plan: &LogicalPlan) -> f64 {
        match plan {
            LogicalPlan::TableScan(scan) => self.table_rows(scan).max(LEAST_ROWS),
            LogicalPlan::Filter(filter) => self.rows_unfiltered(&filter.input),
            LogicalPlan::Projection(projection) => self.rows_unfiltered(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => self.rows_unfiltered(&alias.input),
            // Most joins follow references: each row of the larger side meets one of the other.
            LogicalPlan::Join(join) => {
                let sides = [&join.left, &join.right].map(|side| self.rows_unfiltered(side));
                match join.join_type {
                    JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => sides[0],
                    JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => sides[1],
                    _ => sides[0].max(sides[1]),
                }
            }
            other => self.rows(other),
        }
    }

    /// Values of an expression over a plan that differ, of all that its tables hold: as many as if each were as common as any other.
    pub(in crate::planner) fn distinct(&self, plan: &LogicalPlan, expr: &Expr) -> f64 {
        self.distinct_in(&[plan], expr)
    }

    /// The same of an expression over several relations.
    pub(super) fn distinct_in(&self, plans: &[&LogicalPlan], expr: &Expr) -> f64 {
        self.values(plans, expr, |distinct| distinct.alike)
    }

    /// The same with all of those that are rare.
    fn all_distinct(&self, plan: &LogicalPlan, expr: &Expr) -> f64 {
        self.values(&[plan], expr, |distinct| distinct.all)
    }

    fn values(&self, plans: &[&LogicalPlan], expr: &Expr, of: fn(Count) -> f64) -> f64 {
        // Of what is filtered nothing is asked here: a filter's own share is computed by these numbers.
        if let Some((plan, scan, column)) = origin_in(plans, expr) {
            return match self.relation(scan) {
                Some(relation) => of(relation.distinct(&scan.source.schema(), column)),
                None => self.rows_unfiltered(plan),
            };
        }
        let rows =
            || plans.iter().map(|plan| self.rows_unfiltered(plan)).fold(LEAST_ROWS, f64::max);
        match plain(expr) {
            Expr::Literal(..) => 1.0,
            Expr::Column(_) => rows(),
            other => {
                let columns = other.column_refs().into_iter().cloned().map(Expr::Column);
                let distinct = columns.map(|column| self.values(plans, &column, of));
                distinct.product::<f64>().min(rows()).min(values_max(other))
            }
        }
    }

    /// Where the values of a column lie.
    pub(super) fn spread(&self, plans: &[&LogicalPlan], expr: &Expr) -> Option<Spread> {
        let (_, scan, column) = origin_in(plans, expr)?;
        Some(self.relation(scan)?.spread(&scan.source.schema(), column))
    }

    /// What rows say of a column, and its type.
    pub(super) fn profile(
        &self,
        plans: &[&LogicalPlan],
        expr: &Expr,
    ) -> Option<(Arc<Profile>, DataType)> {
        let (_, scan, column) = origin_in(plans, expr)?;
        let schema = scan.source.schema();
        let of = schema.field(column).data_type().clone();
        Some((self.relation(scan)?.profile(&schema, column)?, of))
    }

    /// The values of a key that rows of a join's side may have: one where a filter says which.
    pub(in crate::planner) fn keys_of(&self, side: &LogicalPlan, key: &Expr) -> f64 {
        if is_pinned(side, key) { 1.0 } else { self.distinct(side, key).max(1.0) }
    }

    /// The share of the pairs of rows of two sides that have the same key, where values that are common in both are known and
    /// no filter says which it is.
    pub(in crate::planner) fn share_of_pairs(
        &self,
        sides: [(&LogicalPlan, &Expr); 2],
    ) -> Option<f64> {
        if sides.iter().any(|(side, key)| is_pinned(side, key)) {
            return None;
        }
        let [one, other] = sides.map(|(side, key)| self.profile(&[side], key));
        let ((one, of_one), (other, of_other)) = (one?, other?);
        let is_like = comparable(&of_one) == comparable(&of_other);
        if is_like { one.share_of_pairs(&other) } else { None }
    }

    fn relation(&self, scan: &TableScan) -> Option<Rc<Relation>> {
        let address = Arc::as_ptr(&scan.source).addr();
        if let Some((_, known)) = self.relations.borrow().get(&address) {
            return known.clone();
        }
        let relation = self.statistics.relation(scan).map(Rc::new);
        let held = (Arc::clone(&scan.source), relation.clone());
        self.relations.borrow_mut().insert(address, held);
        relation
    }

    /// Whether a scan yields the same rows once more, as one of the rows of a recursion does not.
    pub(in crate::planner) fn can_repeat(&self, scan: &TableScan) -> bool {
        self.relation(scan).is_some_and(|relation| relation.is_stored())
    }

    fn table_rows(&self, scan: &TableScan) -> f64 {
        self.relation(scan).map_or(UNKNOWN_ROWS, |relation| relation.rows())
    }

    fn groups(&self, aggregate: &Aggregate) -> f64 {
        let keys = aggregate.group_expr.iter();
        // Sets of keys group once for each of them.
        let keys = keys.flat_map(|key| match key {
            Expr::GroupingSet(sets) => sets.distinct_expr().into_iter().cloned().collect(),
            key => vec![key.clone()],
        });
        self.combined(&aggregate.input, keys)
    }

    /// Combinations of values that differ, of which there are no more than rows, and than combinations of what they are
    /// computed of: year and month of one date, say.
    fn combined(&self, input: &LogicalPlan, keys: impl Iterator<Item = Expr>) -> f64 {
        let rows = self.rows(input);
        let (mut combinations, mut columns) = (1.0, Vec::new());
        for key in keys {
            combinations *= self.all_distinct(input, &key).max(1.0);
            columns.extend(key.column_refs().into_iter().cloned());
        }
        columns.sort_unstable();
        columns.dedup();
        let columns = columns.into_iter().map(Expr::Column);
        let of_columns = columns.map(|column| self.all_distinct(input, &column).max(1.0));
        rows.min(combinations).min(of_columns.product())
    }

    fn joined(&self, join: &Join) -> f64 {
        let (left, right) = (self.rows(&join.left), self.rows(&join.right));
        let sides = [join.left.as_ref(), join.right.as_ref()];
        let filters = join.filter.iter().flat_map(|filter| split_conjunction(filter));
        let kept = self.kept_of_pairs(&filters.collect::<Vec<_>>(), &sides);
        let keys = [self.keys(&join.left, &join.on, 0), self.keys(&join.right, &join.on, 1)];
        let all = sides.map(|side| self.rows_unfiltered(side));
        let share = match join.on.as_slice() {
            [(one, other)] => self.share_of_pairs([(&join.left, one), (&join.right, other)]),
            _ => None,
        };
        let share = share.unwrap_or(1.0 / domain([(keys[0], all[0]), (keys[1], all[1])]));
        let pairs = left * right * share * kept;
        let keys = [keys[0].min(all[0]), keys[1].min(all[1])];
        let semi = |rows: f64, own: f64, other: f64| match sides.iter().any(|side| are_keys(side)) {
            true => rows,
            false => rows * share_of_matches(own, other) * kept,
        };
        let unmatched = |rows: f64, matched: f64| (rows - matched).max(rows * UNMATCHED_MIN);
        match join.join_type {
            JoinType::Inner => pairs,
            JoinType::Left => pairs.max(left),
            JoinType::Right => pairs.max(right),
            JoinType::Full => pairs.max(left + right),
            JoinType::LeftSemi => semi(left, keys[0], keys[1].min(right)),
            JoinType::RightSemi => semi(right, keys[1], keys[0].min(left)),
            JoinType::LeftAnti => unmatched(left, semi(left, keys[0], keys[1].min(right))),
            JoinType::RightAnti => unmatched(right, semi(right, keys[1], keys[0].min(left))),
            JoinType::LeftMark => left,
            JoinType::RightMark => right,
        }
    }

    /// Combinations that there can be of the keys of one side.
    fn keys(&self, side: &LogicalPlan, on: &[(Expr, Expr)], at: usize) -> f64 {
        let keys = on.iter().map(|pair| if at == 0 { &pair.0 } else { &pair.1 });
        keys.map(|key| self.keys_of(side, key)).product()
    }
}

/// Keys that differ of two sides together, by the combinations that each side's could have and its rows. Where both
/// have fewer rows than combinations, the smaller is taken to hold each key once, and the larger to refer to it.
pub(in crate::planner) fn domain(sides: [(f64, f64); 2]) -> f64 {
    let [(one, one_rows), (other, other_rows)] = sides;
    let domain = match (one_rows < one, other_rows < other) {
        (true, true) => one_rows.min(other_rows),
        (true, false) => other,
        (false, true) => one,
        (false, false) => one.max(other),
    };
    domain.max(1.0)
}

/// Whether a relation is the keys that a join above asks for. What they keep is not counted here, for that join counts it.
fn are_keys(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().starts_with(ASKED_KEYS),
        _ => false,
    }
}

/// Whether rows of a plan are restricted to the keys that a join above asks for.
fn is_restricted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => are_keys(&join.left) || are_keys(&join.right),
        other => other.inputs().into_iter().any(is_restricted),
    }
}

/// The share of rows whose key is among `others`, of a domain of so many.
pub(in crate::planner) fn share_of_matches(domain: f64, others: f64) -> f64 {
    (others / domain.max(1.0)).min(1.0)
}

/// Values that an expression has at most, whatever it is computed of.
fn values_max(expr: &Expr) -> f64 {
    match expr {
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, value)| value);
            values.chain(&case.else_expr).map(|value| values_max(plain(value))).sum()
        }
        Expr::Literal(..) => 1.0,
        Expr::BinaryExpr(binary) if binary.op == Operator::Modulo => {
            match plain(&binary.right) {
                // Remainders of numbers below zero are below zero.
                Expr::Literal(ScalarValue::Int64(Some(of)), _) => 2.0 * of.unsigned_abs() as f64,
                _ => f64::INFINITY,
            }
        }
        Expr::ScalarFunction(call) if call.name() == "date_part" => {
            let part = call.args.first().and_then(|part| part.as_literal());
            let part = part.and_then(|part| part.try_as_str().flatten()).unwrap_or_default();
            match part.to_lowercase().as_str() {
                "quarter" => 4.0,
                "dow" | "isodow" => 7.0,
                "month" => 12.0,
                "hour" => 24.0,
                "day" => 31.0,
                "week" => 53.0,
                "minute" => 60.0,
                "doy" => 366.0,
                _ => f64::INFINITY,
            }
        }
        Expr::BinaryExpr(BinaryExpr { op, .. }) if is_asked(*op) => 2.0,
        Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => 2.0,
        Expr::Between(_) | Expr::InList(_) | Expr::Like(_) => 2.0,
        _ => f64::INFINITY,
    }
}

/// Whether an operator is true or false of its sides.
fn is_asked(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    operator.is_logic_operator() || matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// An expression without what leaves its values as they are, or almost.
pub(super) fn plain(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => plain(&cast.expr),
        Expr::TryCast(cast) => plain(&cast.expr),
        Expr::Alias(alias) => plain(&alias.expr),
        other => other,
    }
}

/// The scan that a column of one of several plans is read by, and its place in the table.
fn origin_in<'p>(
    plans: &[&'p LogicalPlan],
    expr: &Expr,
) -> Option<(&'p LogicalPlan, &'p TableScan, usize)> {
    plans.iter().find_map(|plan| {
        let (scan, column) = origin(plan, expr)?;
        Some((*plan, scan, column))
    })
}

fn origin<'p>(plan: &'p LogicalPlan, expr: &Expr) -> Option<(&'p TableScan, usize)> {
    let Expr::Column(column) = plain(expr) else { return None };
    match place_of(plan.schema(), column) {
        Some(at) => origin_at(plan, at),
        // A filter that a scan has been told of reads columns that the scan need not yield.
        None => match plan {
            LogicalPlan::TableScan(scan) => {
                Some((scan, scan.source.schema().index_of(&column.name).ok()?))
            }
            _ => None,
        },
    }
}

/// The place of exactly this column.
pub(super) fn place_of(schema: &DFSchema, column: &Column) -> Option<usize> {
    schema.iter().position(|(relation, field)| {
        relation == column.relation.as_ref() && *field.name() == column.name
    })
}

fn origin_at(plan: &LogicalPlan, at: usize) -> Option<(&TableScan, usize)> {
    match plan {
        LogicalPlan::TableScan(scan) => match &scan.projection {
            Some(projection) => Some((scan, *projection.get(at)?)),
            None => Some((scan, at)),
        },
        LogicalPlan::SubqueryAlias(alias) => origin_at(&alias.input, at),
        LogicalPlan::Projection(projection) => origin(&projection.input, projection.expr.get(at)?),
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.get(at)? {
            Expr::GroupingSet(_) => None,
            key => origin(&aggregate.input, key),
        },
        LogicalPlan::Filter(filter) => origin_at(&filter.input, at),
        LogicalPlan::Sort(sort) => origin_at(&sort.input, at),
        LogicalPlan::Limit(limit) => origin_at(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => origin_at(input, at),
        LogicalPlan::Window(window) => origin_at(&window.input, at),
        LogicalPlan::Extension(_) => origin_at(behind(plan)?, at),
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    origin_at(&join.right, at)
                }
                _ if at < left => origin_at(&join.left, at),
                _ => origin_at(&join.right, at - left),
            }
        }
        _ => None,
    }
    .filter(|(scan, column)| *column < scan.source.schema().fields().len())
}
