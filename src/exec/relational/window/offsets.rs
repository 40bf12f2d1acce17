//! Where a frame begins that does so some way before or after its row: with the first row of the partition whose place is not
//! before a target.
//!
//! ```text
//! ROWS      place: the number of the row             target: place ± offset
//! GROUPS    place: the number of its peers                   NULL where the place is
//! RANGE     place: the key, in the order of ORDER BY
//! ```
//!
//! Frames are DataFusion's: where a target leaves the type of the key, the frame begins where that of the row before does, or
//! after the partition; and before 0 of a key without signs there is 0.

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

use super::boundaries::Boundaries;

/// How far from its row a frame begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offset {
    unit: Unit,
    by: ScalarValue,
    is_after: bool,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq)]
enum Unit {
    Rows,
    /// Of these keys.
    Peers(Vec<Arc<dyn PhysicalExpr>>),
    Range(Arc<dyn PhysicalExpr>, SortOptions),
}

/// Of some rows, the place that the first of their frame must not be before.
pub(super) struct Targets {
    places: ArrayRef,
    /// Whether they leave the type of the key, if some do.
    are_beyond: Option<Vec<bool>>,
}

impl Offset {
    /// That of a window's frame; nothing where it begins without one, or keys are not moved by it.
    pub(super) fn of(window: &Arc<dyn WindowExpr>, input: &SchemaRef) -> Option<Self> {
        let frame = window.get_window_frame();
        let (by, is_after) = match &frame.start_bound {
            WindowFrameBound::Preceding(by) => (by, false),
            WindowFrameBound::Following(by) => (by, true),
            WindowFrameBound::CurrentRow => return None,
        };
        let order_by = window.order_by();
        let (unit, by) = match frame.units {
            WindowFrameUnits::Rows => (Unit::Rows, count(by)?),
            WindowFrameUnits::Groups => (
                Unit::Peers(order_by.iter().map(|key| Arc::clone(&key.expr)).collect()),
                count(by)?,
            ),
            WindowFrameUnits::Range => {
                let [key] = order_by else { return None };
                (Unit::Range(Arc::clone(&key.expr), key.options), by.clone())
            }
        };
        let offset = Self { unit, by, is_after };
        let none = new_empty_array(&offset.place_type(input).ok()?);
        let targets = offset.targets(&none).ok()?;
        let is_known = !offset.by.is_null() && offset.is_before(&none, &targets).is_ok();
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

    /// Tells of one of some rows, by its place, whether the frame of another one begins after it.
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
            _ => compared(one, of).is_lt(),
        })
    }

    fn moved(&self, places: &ArrayRef) -> Result<ArrayRef> {
        let by = self.by.to_scalar()?;
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
