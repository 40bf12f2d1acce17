//! The share of rows that conditions keep.
//!
//! Bounds of one column are one interval, cut out of where its values lie: as rows have shown them, else as if they were spread
//! evenly, and so it is with one value among all. Any other condition on one column is tried on rows that were drawn of it, and is as
//! conditions of its kind often are where there are none. Conditions are taken to be half independent of one another: the strongest
//! counts whole, each further one to a power less.

use std::collections::BTreeMap;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, LogicalPlan, Operator};

use super::axis;
use super::estimate::{Estimates, plain};

/// What each further condition's power is multiplied with.
const DAMPING: f64 = 0.85;

/// A bound of a column of which no range is known; Selinger's.
const BOUND: f64 = 1.0 / 3.0;

/// A comparison of two columns, or a condition of which nothing is known.
const OTHER: f64 = 1.0 / 3.0;

/// A pattern that any place of a text of which nothing is known may match, and one that its beginning must.
const PATTERN: f64 = 0.1;
const PREFIX: f64 = 0.05;

/// The least share: an estimate of no row would hide all that is done with them.
const LEAST: f64 = 1e-9;

/// Bounds of a column.
struct Interval<'e> {
    column: &'e Expr,
    from: f64,
    to: f64,
    bounds: i32,
}

impl Estimates<'_> {
    /// The share of the rows of plans, or of their pairs, for which all of these hold.
    pub(in crate::planner) fn kept(&self, conditions: &[&Expr], plans: &[&LogicalPlan]) -> f64 {
        match self.statistics.with_given(conditions) {
            Some(conditions) => self.kept_by_all(&conditions.iter().collect::<Vec<_>>(), plans),
            None => self.kept_by_all(conditions, plans),
        }
    }

    fn kept_by_all(&self, conditions: &[&Expr], plans: &[&LogicalPlan]) -> f64 {
        let mut intervals: BTreeMap<String, Interval<'_>> = BTreeMap::new();
        let mut shares = Vec::new();
        for condition in conditions {
            let bounds = bounds(condition);
            if bounds.is_empty() {
                shares.push(self.kept_by(condition, plans));
            }
            for (column, from, to) in bounds {
                let (from, to) = (from.unwrap_or(f64::NEG_INFINITY), to.unwrap_or(f64::INFINITY));
                let new =
                    Interval { column, from: f64::NEG_INFINITY, to: f64::INFINITY, bounds: 0 };
                let interval = intervals.entry(column.to_string()).or_insert(new);
                interval.from = interval.from.max(from);
                interval.to = interval.to.min(to);
                interval.bounds += i32::from(from.is_finite()) + i32::from(to.is_finite());
            }
        }
        shares.extend(intervals.values().map(|interval| self.within(interval, plans)));
        shares.sort_by(f64::total_cmp);
        let powers = std::iter::successors(Some(1.0), |power| Some(power * DAMPING));
        let product: f64 = shares
            .into_iter()
            .zip(powers)
            .map(|(share, power): (f64, f64)| share.powf(power))
            .product();
        product.clamp(LEAST, 1.0)
    }

    /// The share of a column's values that lie within bounds.
    fn within(&self, interval: &Interval<'_>, plans: &[&LogicalPlan]) -> f64 {
        let spread = self.spread(plans, interval.column);
        let Some((spread, [low, high])) = spread.and_then(|spread| Some((spread, spread.range?)))
        else {
            return BOUND.powi(interval.bounds);
        };
        let one = 1.0 / self.distinct_in(plans, interval.column).max(1.0);
        let found = self.profile(plans, interval.column);
        if let Some(share) =
            found.and_then(|(profile, _)| profile.within(interval.from, interval.to))
        {
            let is_beyond = interval.from > high || interval.to < low;
            let least = if is_beyond { LEAST } else { one * (1.0 - spread.nulls) };
            return share.max(least);
        }
        let length = interval.to.min(high) - interval.from.max(low);
        let share = match (length, high - low) {
            (length, _) if length < 0.0 => LEAST,
            (_, 0.0) => 1.0,
            (length, all) => (length / all).clamp(one.min(1.0), 1.0),
        };
        share * (1.0 - spread.nulls)
    }

    /// The column of an equality with a value, and the share of rows for which it holds, where that is known.
    fn share_of<'e>(
        &self,
        left: &'e Expr,
        right: &'e Expr,
        plans: &[&LogicalPlan],
    ) -> Option<(&'e Expr, f64)> {
        let (column, value) = match (plain(left), plain(right)) {
            (column @ Expr::Column(_), Expr::Literal(value, _))
            | (Expr::Literal(value, _), column @ Expr::Column(_)) => (column, value),
            _ => return None,
        };
        let (profile, of) = self.profile(plans, column)?;
        let place = value.cast_to(&of).ok().and_then(|value| axis::place(&value));
        let place = place.zip(self.spread(plans, column)?.range);
        let is_beyond = place.is_some_and(|(place, [low, high])| place < low || place > high);
        let share = if is_beyond { 0.0 } else { profile.share_of(value, &of)? };
        Some((column, share))
    }

    /// The share of rows for which a condition other than bounds holds.
    fn kept_by(&self, condition: &Expr, plans: &[&LogicalPlan]) -> f64 {
        let share = self.counted(condition, plans).unwrap_or_else(|| {
            let guess = self.guessed(condition, plans);
            self.tried(condition, plans).map_or(guess, |trial| trial.share(guess))
        });
        share.clamp(LEAST, 1.0)
    }

    /// The same where that follows of what is counted of columns.
    fn counted(&self, condition: &Expr, plans: &[&LogicalPlan]) -> Option<f64> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => Some(self.kept(&split_conjunction(condition), plans)),
                Operator::Or => {
                    let lost = |side| 1.0 - self.kept(&split_conjunction(side), plans);
                    Some(1.0 - lost(left) * lost(right))
                }
                Operator::Eq | Operator::IsNotDistinctFrom => {
                    self.share_of(left, right, plans).map(|(_, share)| share)
                }
                Operator::NotEq => {
                    let (column, share) = self.share_of(left, right, plans)?;
                    // A NULL is not unlike anything.
                    Some(1.0 - self.nulls(column, plans).unwrap_or(0.0) - share)
                }
                Operator::IsDistinctFrom => {
                    self.share_of(left, right, plans).map(|(_, share)| 1.0 - share)
                }
                _ => None,
            },
            Expr::InList(list) => {
                let known = list.list.iter().map(|value| self.share_of(&list.expr, value, plans));
                let known = known.map(|known| known.map(|(_, share)| share));
                let share = known.sum::<Option<f64>>()?.min(1.0);
                Some(match list.negated {
                    true => 1.0 - share - self.nulls(&list.expr, plans).unwrap_or(0.0),
                    false => share,
                })
            }
            Expr::IsNull(inner) => self.nulls(inner, plans),
            Expr::IsNotNull(inner) => self.nulls(inner, plans).map(|nulls| 1.0 - nulls),
            Expr::Between(between) if between.negated => {
                self.profile(plans, &between.expr)?;
                let inverse = Expr::Between(Between { negated: false, ..between.clone() });
                let bounds = bounds(&inverse);
                let [(column, Some(from), Some(to))] = bounds.as_slice() else { return None };
                let (column, from, to) = (*column, *from, *to);
                let within = self.within(&Interval { column, from, to, bounds: 2 }, plans);
                Some(1.0 - self.nulls(column, plans).unwrap_or(0.0) - within)
            }
            Expr::Literal(ScalarValue::Boolean(value), _) => {
                Some(f64::from(u8::from(*value == Some(true))))
            }
            _ => None,
        }
    }

    /// The same by how many values differ, where that tells anything, and by what conditions of a kind keep more often than not.
    fn guessed(&self, condition: &Expr, plans: &[&LogicalPlan]) -> f64 {
        let one_of = |expr: &Expr| {
            let nulls = self.nulls(expr, plans).unwrap_or(0.0);
            (1.0 - nulls) / self.distinct_in(plans, expr).max(1.0)
        };
        let unless = |negated: bool, share: f64| if negated { 1.0 - share } else { share };
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::Eq | Operator::IsNotDistinctFrom => one_of(left).min(one_of(right)),
                Operator::NotEq | Operator::IsDistinctFrom => 1.0 - one_of(left).min(one_of(right)),
                _ => OTHER,
            },
            Expr::Not(inner) => 1.0 - self.kept(&split_conjunction(inner), plans),
            Expr::InList(list) => {
                let share = one_of(&list.expr) * list.list.len() as f64;
                unless(list.negated, share.min(1.0))
            }
            Expr::Like(like) => {
                let anywhere = match plain(&like.pattern) {
                    Expr::Literal(text, _) => {
                        text.try_as_str().flatten().is_none_or(|text| text.starts_with(['%', '_']))
                    }
                    _ => true,
                };
                unless(like.negated, if anywhere { PATTERN } else { PREFIX })
            }
            Expr::IsNotNull(_) => 1.0,
            _ => OTHER,
        }
    }

    /// The share of a column's rows that are NULL.
    fn nulls(&self, column: &Expr, plans: &[&LogicalPlan]) -> Option<f64> {
        self.spread(plans, column).map(|spread| spread.nulls)
    }
}

/// The bounds that a condition sets to a column: a comparison with a number, date or time, or BETWEEN two.
fn bounds(condition: &Expr) -> Vec<(&Expr, Option<f64>, Option<f64>)> {
    let place = |expr: &Expr| match plain(expr) {
        Expr::Literal(value, _) => axis::place(value),
        _ => None,
    };
    let is_column = |expr: &Expr| matches!(plain(expr), Expr::Column(_));
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, value, op) = match (is_column(left), is_column(right)) {
                (true, false) => (left, place(right), Some(*op)),
                (false, true) => (right, place(left), op.swap()),
                _ => return Vec::new(),
            };
            match (op, value) {
                (Some(Operator::Lt), Some(value)) => {
                    vec![(plain(column), None, Some(value.next_down()))]
                }
                (Some(Operator::LtEq), Some(value)) => vec![(plain(column), None, Some(value))],
                (Some(Operator::Gt), Some(value)) => {
                    vec![(plain(column), Some(value.next_up()), None)]
                }
                (Some(Operator::GtEq), Some(value)) => vec![(plain(column), Some(value), None)],
                _ => Vec::new(),
            }
        }
        Expr::Between(between) if !between.negated && is_column(&between.expr) => {
            match (place(&between.low), place(&between.high)) {
                (Some(low), Some(high)) => vec![(plain(&between.expr), Some(low), Some(high))],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}
