//! Which comparisons in a join's condition tell where in an order the rows lie that one row may meet.
//!
//! ```text
//! a.x BETWEEN b.least AND b.most AND a.note <> b.note
//! ─────────────────────────────
//! build side a    in the order of x: those from b.least to b.most
//! build side b    in the order of `least`: those up to a.x; of these, those whose `most` is no less than a.x
//! ```
//!
//! Enters: the condition, over columns of both sides. Leaves: one key of the build side with one or both ends, and perhaps a
//! second key with one. Every pair that the condition keeps lies within; of those that do, the condition decides, unless
//! the ends are all it says.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::JoinSide;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::utils::JoinFilter;

use crate::exec::relational::places::{is_placed, is_told_apart};
use crate::exec::stoppable::Stoppable;

/// A key of the build side, and what of the probe side it is compared with.
#[derive(Debug, Clone)]
pub(super) struct Band {
    pub(super) key: PhysicalExprRef,
    pub(super) least: Option<End>,
    pub(super) most: Option<End>,
}

/// Where the keys end that a row of the probe side may meet.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) of: PhysicalExprRef,
    /// Whether the end itself is met.
    pub(super) is_met: bool,
}

/// The bands in which rows meet.
#[derive(Debug, Clone)]
pub(super) struct Bands {
    /// That of the order.
    pub(super) first: Band,
    /// One of those within it, with one end.
    pub(super) second: Option<Band>,
    /// Whether all rows within meet.
    pub(super) is_exact: bool,
}

/// A comparison of a key of the build side with something of the probe side.
struct Comparison {
    key: PhysicalExprRef,
    /// Whether the key is the larger.
    is_least: bool,
    end: End,
    /// Whether it is all that a part of the condition says.
    is_exact: bool,
}

impl Bands {
    /// Those of a condition over rows of these schemas; none where no comparison is of that kind.
    ///
    /// # Errors
    /// None but DataFusion's, for a condition that does not fit the schemas.
    pub(super) fn of(filter: &JoinFilter, sides: [&Schema; 2]) -> Result<Option<Self>> {
        let condition = Stoppable::within(filter.expression());
        let parts = split_conjunction(condition);
        let mut comparisons = Vec::new();
        for part in &parts {
            comparisons.extend(Comparison::of(part, filter, sides)?);
        }
        // Other parts may keep rows away of which an expression cannot be computed.
        if comparisons.len() < parts.len() {
            let is_safe = |it: &Comparison| {
                Ok(never_fails(&it.key, sides[0])? && never_fails(&it.end.of, sides[1])?)
            };
            let safe = comparisons.iter().map(is_safe).collect::<Result<Vec<bool>>>()?;
            let mut safe = safe.into_iter();
            comparisons.retain(|_| safe.next().unwrap_or_default());
        }
        let mut bands: Vec<Band> = Vec::new();
        let mut exact = 0;
        for Comparison { key, is_least, end, is_exact } in comparisons {
            let at = bands.iter().position(|band| band.key.eq(&key)).unwrap_or_else(|| {
                bands.push(Band { key, least: None, most: None });
                bands.len() - 1
            });
            let place = if is_least { &mut bands[at].least } else { &mut bands[at].most };
            if place.is_none() {
                *place = Some(end);
                exact += usize::from(is_exact);
            }
        }
        // Both ends of one key leave the fewest.
        bands.sort_by_key(|band| band.least.is_none() || band.most.is_none());
        let ends: usize = bands.iter().map(Band::ends).sum();
        let mut bands = bands.into_iter();
        let Some(first) = bands.next() else { return Ok(None) };
        let second = bands.next().map(Band::with_one_end);
        let used = first.ends() + second.as_ref().map_or(0, Band::ends);
        let is_exact = used == ends && exact == parts.len();
        Ok(Some(Self { first, second, is_exact }))
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Band> {
        std::iter::once(&self.first).chain(&self.second)
    }
}

/// As `EXPLAIN` writes it.
impl fmt::Display for Bands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "build side in the order of {}", self.first.key)?;
        self.second.iter().try_for_each(|second| write!(f, " and by blocks of {}", second.key))
    }
}

impl Band {
    fn ends(&self) -> usize {
        usize::from(self.least.is_some()) + usize::from(self.most.is_some())
    }

    fn with_one_end(self) -> Self {
        match self.least {
            Some(_) => Self { most: None, ..self },
            None => self,
        }
    }
}

impl Comparison {
    fn of(
        part: &PhysicalExprRef,
        filter: &JoinFilter,
        sides: [&Schema; 2],
    ) -> Result<Option<Self>> {
        let Some(binary) = part.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        // Of the left side, whether it is the larger, and whether it may be equal.
        let (is_larger, is_met) = match binary.op() {
            Operator::Lt => (false, false),
            Operator::LtEq => (false, true),
            Operator::Gt => (true, false),
            Operator::GtEq => (true, true),
            _ => return Ok(None),
        };
        if is_volatile(part) {
            return Ok(None);
        }
        let (left, right) = (binary.left(), binary.right());
        let (key, of, is_least) = match [side(left, filter), side(right, filter)] {
            [Some(JoinSide::Left), Some(JoinSide::Right)] => (left, right, is_larger),
            [Some(JoinSide::Right), Some(JoinSide::Left)] => (right, left, !is_larger),
            _ => return Ok(None),
        };
        let (key, of) = (of_side(key, filter)?, of_side(of, filter)?);
        let data_type = key.data_type(sides[0])?;
        if data_type != of.data_type(sides[1])? {
            return Ok(None);
        }
        if !is_placed(&data_type) {
            return Ok(None);
        }
        let is_exact = is_told_apart(&data_type);
        let is_met = is_met || !is_exact;
        Ok(Some(Self { key, is_least, end: End { of, is_met }, is_exact }))
    }
}

/// The side of which all columns of an expression are.
fn side(expr: &PhysicalExprRef, filter: &JoinFilter) -> Option<JoinSide> {
    let columns = collect_columns(expr);
    let mut sides = columns.iter().map(|column| filter.column_indices()[column.index()].side);
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

/// An expression of a condition, over the columns of its side.
fn of_side(expr: &PhysicalExprRef, filter: &JoinFilter) -> Result<PhysicalExprRef> {
    let of_side = |node: Arc<dyn PhysicalExpr>| {
        Ok(match node.downcast_ref::<Column>() {
            Some(column) => {
                let at = filter.column_indices()[column.index()].index;
                Transformed::yes(Arc::new(Column::new(column.name(), at)) as _)
            }
            None => Transformed::no(node),
        })
    };
    Arc::clone(expr).transform_up(of_side).data()
}

/// Whether an expression is computed of any row: a column, or one as a wider number.
fn never_fails(expr: &PhysicalExprRef, schema: &Schema) -> Result<bool> {
    let Some(cast) = expr.downcast_ref::<CastExpr>() else { return Ok(expr.is::<Column>()) };
    let (from, to) = (cast.expr().data_type(schema)?, cast.cast_type());
    let is_wider = match (&from, to) {
        (DataType::Decimal128(p, s), DataType::Decimal128(to_p, to_s)) => {
            s <= to_s && i16::from(*p) - i16::from(*s) <= i16::from(*to_p) - i16::from(*to_s)
        }
        _ if from.is_numeric() => *to == DataType::Float64,
        _ => false,
    };
    Ok(cast.expr().is::<Column>() && is_wider)
}
