//! Where a frame begins or ends that does so some way before or after its row: it begins with the first row of the partition
//! whose place is not before a target, and ends before the first whose place is after one.
//!
//! ```text
//! ROWS      place: the number of the row             target: place ± offset; the place itself for the current row
//! GROUPS    place: the number of its peers                   NULL where the place is
//! RANGE     place: the key, in the order of ORDER BY
//! ```
//!
//! Frames are DataFusion's: where a target leaves the type of the key, the frame begins or ends where that of the row before
//! does, or after the partition; and before 0 of a key without signs there is 0.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int64Array, RecordBatch, make_comparator, new_empty_array, new_null_array,
};
use arrow::compute::kernels::numeric::{add, sub};
use arrow::compute::{SortOptions, concat};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;

use super::super::boundaries::Boundaries;

/// The two ends of a frame; without the first it begins with the partition.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Span {
    pub(super) start: Option<Offset>,
    pub(super) end: Offset,
}

/// How far from its row a frame begins or ends.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Offset {
    unit: Unit,
    /// Nothing for the current row.
    by: Option<ScalarValue>,
    is_after: bool,
    end: End,
}

/// Which end of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    First,
    Last,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq)]
enum Unit {
    Rows,
    /// Of these keys.
    Peers(Vec<Arc<dyn PhysicalExpr>>),
    Range(Arc<dyn PhysicalExpr>, SortOptions),
}

/// Of some rows, the place up to which others are before an end of their frame.
pub(super) struct Targets {
    places: ArrayRef,
    /// Whether they leave the type of the key, if some do.
    are_beyond: Option<Vec<bool>>,
}

impl Span {
    /// That of a window's frame; nothing where it ends with the partition, or where keys are not moved by its offsets.
    pub(in super::super) fn of(window: &Arc<dyn WindowExpr>, input: &SchemaRef) -> Option<Self> {
        let frame = window.get_window_frame();
        if frame.end_bound.is_unbounded() {
            return None;
        }
        let start = match frame.start_bound.is_unbounded() {
            true => None,
            false => Some(Offset::of(window, End::First, input)?),
        };
        Some(Self { start, end: Offset::of(window, End::Last, input)? })
    }
}

impl Offset {
    /// Where a window's frame begins; nothing where keys are not moved by it.
    pub(in super::super) fn of_start(
        window: &Arc<dyn WindowExpr>,
        input: &SchemaRef,
    ) -> Option<Self> {
        Self::of(window, End::First, input)
    }

    fn of(window: &Arc<dyn WindowExpr>, end: End, input: &SchemaRef) -> Option<Self> {
        let frame = window.get_window_frame();
        let bound = match end {
            End::First => &frame.start_bound,
            End::Last => &frame.end_bound,
        };
        let (by, is_after) = match bound {
            WindowFrameBound::Preceding(by) => (Some(by), false),
            WindowFrameBound::Following(by) => (Some(by), true),
            WindowFrameBound::CurrentRow => (None, false),
        };
        if by.is_some_and(ScalarValue::is_null) {
            return None;
        }
        let order_by = window.order_by();
        let unit = match (frame.units, order_by) {
            (WindowFrameUnits::Rows, _) => Unit::Rows,
            (WindowFrameUnits::Range, [key]) => Unit::Range(Arc::clone(&key.expr), key.options),
            // Of several keys, or none, only the current row is known.
            (WindowFrameUnits::Range, _) if by.is_some() => return None,
            (WindowFrameUnits::Groups | WindowFrameUnits::Range, _) => {
                Unit::Peers(order_by.iter().map(|key| Arc::clone(&key.expr)).collect())
            }
        };
        let by = match (&unit, by) {
            (_, None) => None,
            (Unit::Range(..), Some(by)) => Some(by.clone()),
            (Unit::Rows | Unit::Peers(_), Some(by)) => Some(count(by)?),
        };
        let offset = Self { unit, by, is_after, end };
        let none = new_empty_array(&offset.place_type(input).ok()?);
        let targets = offset.targets(&none).ok()?;
        let is_known = offset.is_before(&none, &targets).is_ok();
        is_known.then_some(offset)
    }

    /// # Errors
    /// Where the key is none of these columns.
    pub(super) fn place_type(&self, input: &SchemaRef) -> Result<DataType> {
        match &self.unit {
            Unit::Rows | Unit::Peers(_) => Ok(DataType::Int64),
            Unit::Range(key, _) => key.data_type(input),
        }
    }

    /// What tells places, before any row.
    pub(super) fn places(&self) -> Places {
        match &self.unit {
            Unit::Rows => Places::Rows(0),
            Unit::Peers(keys) => Places::Peers(Boundaries::new(keys.clone())),
            Unit::Range(key, _) => Places::Keys(Arc::clone(key)),
        }
    }

    /// # Errors
    /// Where the key has a type that is not moved by the offset.
    pub(super) fn targets(&self, places: &ArrayRef) -> Result<Targets> {
        if let Ok(places) = self.moved(places) {
            return Ok(Targets { places, are_beyond: None });
        }
        let none = new_null_array(self.moved(&places.slice(0, 0))?.data_type(), 1);
        let (targets, are_beyond) = (0..places.len())
            .map(|row| {
                let place = places.slice(row, 1);
                match self.moved(&place) {
                    Ok(target) => Ok((target, false)),
                    Err(_) if place.data_type().is_unsigned_integer() && !self.adds() => {
                        Ok((sub(&place, &place)?, false))
                    }
                    Err(_) => Ok((Arc::clone(&none), true)),
                }
            })
            .collect::<Result<(Vec<_>, Vec<_>)>>()?;
        let targets: Vec<&dyn Array> = targets.iter().map(AsRef::as_ref).collect();
        Ok(Targets { places: concat(&targets)?, are_beyond: Some(are_beyond) })
    }

    /// Tells of one of some rows, by its place, whether the frame of another one begins after it, or does not end before it.
    ///
    /// # Errors
    /// Where places have no order.
    pub(super) fn is_before(
        &self,
        places: &ArrayRef,
        targets: &Targets,
    ) -> Result<impl Fn(usize, usize) -> bool> {
        let compared = make_comparator(places, &targets.places, self.order())?;
        Ok(move |one: usize, of: usize| match &targets.are_beyond {
            Some(are_beyond) if are_beyond[of] => self.is_after,
            _ => match self.end {
                End::First => compared(one, of).is_lt(),
                End::Last => compared(one, of).is_le(),
            },
        })
    }

    fn moved(&self, places: &ArrayRef) -> Result<ArrayRef> {
        let Some(by) = &self.by else { return Ok(Arc::clone(places)) };
        let by = by.to_scalar()?;
        Ok(if self.adds() { add(places, &by)? } else { sub(places, &by)? })
    }

    /// Whether places that come later are greater, or those before.
    fn adds(&self) -> bool {
        self.is_after != self.order().descending
    }

    fn order(&self) -> SortOptions {
        match self.unit {
            Unit::Rows | Unit::Peers(_) => SortOptions::default(),
            Unit::Range(_, order) => order,
        }
    }
}

/// A number of rows or of peers, of which there are fewer than the greatest.
fn count(by: &ScalarValue) -> Option<ScalarValue> {
    let ScalarValue::UInt64(Some(by)) = by else { return None };
    Some(ScalarValue::Int64(Some(i64::try_from(*by).unwrap_or(i64::MAX))))
}

/// Tells the places of rows that follow one another. Within a partition these are in order.
pub(super) enum Places {
    /// With the number of those before.
    Rows(i64),
    Peers(Boundaries),
    Keys(Arc<dyn PhysicalExpr>),
}

impl Places {
    /// # Errors
    /// Those of evaluating the keys.
    pub(super) fn of(&mut self, batch: &RecordBatch) -> Result<ArrayRef> {
        let rows = batch.num_rows();
        Ok(match self {
            Self::Rows(before) => {
                let first = *before;
                *before += rows as i64;
                Arc::new(Int64Array::from_iter_values(first..*before))
            }
            Self::Peers(peers) => Arc::new(peers.numbers(batch)?),
            Self::Keys(key) => key.evaluate(batch)?.into_array(rows)?,
        })
    }
}
