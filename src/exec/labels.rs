//! Labels of a result, before and after the relations that they come from have run.
//!
//! While planning, labels are known values or [`Deferred`]: a recipe over the keys of relations.
//! [`resolve`] follows the recipe once those keys are there. Cells never wait for labels.

use std::sync::Arc;

use arrow::datatypes::DataType;

use super::operation::{Axis, Span};
use crate::error::{ErrorKind, Place, Result};
use crate::matrix::Labels;

/// The labels of one dimension of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum AxisLabels {
    /// Indices count from 1.
    #[default]
    None,
    Known(Arc<Labels>),
    Deferred(Arc<Deferred>),
}

/// Labels whose values come with a relation's rows, while their names and types are known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deferred {
    pub(crate) fields: Vec<(String, DataType)>,
    pub(crate) recipe: Recipe,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Recipe {
    /// The keys of a relation.
    Relation { relation: usize, axis: Axis },
    /// A range of other labels.
    Slice { of: AxisLabels, range: Span },
    /// Labels one after another.
    Concat(Vec<AxisLabels>),
}

/// A promise that the planner could not check: two dimensions carry equal labels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LabelCheck {
    pub(crate) axis: Axis,
    pub(crate) left: AxisLabels,
    pub(crate) right: AxisLabels,
    pub(crate) place: Option<Place>,
}

/// The keys of a relation that has run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RelationLabels {
    pub(crate) rows: Option<Labels>,
    pub(crate) columns: Option<Labels>,
}

impl RelationLabels {
    /// The same labels, holding no more memory than they need.
    pub(crate) fn compacted(self) -> Self {
        let compact = |labels: Option<Labels>| labels.map(Labels::compacted);
        Self { rows: compact(self.rows), columns: compact(self.columns) }
    }
}

impl AxisLabels {
    /// Names and types of the key columns; empty without labels.
    pub(crate) fn fields(&self) -> Vec<(String, DataType)> {
        match self {
            AxisLabels::None => Vec::new(),
            AxisLabels::Known(labels) => {
                let field = |(name, keys): &(String, arrow::array::ArrayRef)| {
                    (name.clone(), keys.data_type().clone())
                };
                labels.fields().iter().map(field).collect()
            }
            AxisLabels::Deferred(deferred) => deferred.fields.clone(),
        }
    }

    /// Calls for each relation whose keys these are.
    pub(crate) fn each_relation(&self, visit: &mut impl FnMut(usize)) {
        let AxisLabels::Deferred(deferred) = self else { return };
        match &deferred.recipe {
            Recipe::Relation { relation, .. } => visit(*relation),
            Recipe::Slice { of, .. } => of.each_relation(visit),
            Recipe::Concat(parts) => parts.iter().for_each(|part| part.each_relation(visit)),
        }
    }

    /// Whether the two are sure to be equal without comparing values.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (AxisLabels::Known(a), AxisLabels::Known(b)) => Arc::ptr_eq(a, b),
            (AxisLabels::Deferred(a), AxisLabels::Deferred(b)) => a.recipe == b.recipe,
            _ => false,
        }
    }
}

/// The values of labels, from the keys of the relations that have run.
///
/// # Errors
/// Where key columns of different types come together.
pub(crate) fn resolve(labels: &AxisLabels, relations: &[RelationLabels]) -> Result<Option<Labels>> {
    let deferred = match labels {
        AxisLabels::None => return Ok(None),
        AxisLabels::Known(labels) => return Ok(Some(Labels::clone(labels))),
        AxisLabels::Deferred(deferred) => deferred,
    };
    Ok(match &deferred.recipe {
        Recipe::Relation { relation, axis: Axis::Rows } => relations[*relation].rows.clone(),
        Recipe::Relation { relation, axis: Axis::Columns } => relations[*relation].columns.clone(),
        Recipe::Slice { of, range } => resolve(of, relations)?
            .map(|labels| labels.slice(range.start..range.start + range.count)),
        Recipe::Concat(parts) => {
            let parts: Option<Vec<Labels>> =
                parts.iter().map(|part| resolve(part, relations)).collect::<Result<_>>()?;
            parts.map(|parts| Labels::concat(&parts)).transpose()?
        }
    })
}

impl LabelCheck {
    /// Compares what the planner could not.
    ///
    /// # Errors
    /// Where the labels differ: the first difference.
    pub(crate) fn run(&self, relations: &[RelationLabels]) -> Result<()> {
        let left = resolve(&self.left, relations)?;
        let right = resolve(&self.right, relations)?;
        match (left, right) {
            (Some(left), Some(right)) => compare(self.axis, &left, &right, self.place),
            _ => Ok(()),
        }
    }
}

/// Two labellings of one dimension must be equal.
///
/// # Errors
/// [`ErrorKind::Labels`] with the first difference.
pub(crate) fn compare(
    axis: Axis,
    left: &Labels,
    right: &Labels,
    place: Option<Place>,
) -> Result<()> {
    let Some(index) = left.first_difference(right) else { return Ok(()) };
    let text = |labels: &Labels| {
        if index < labels.len() { format!("'{}'", labels.text(index)) } else { "nothing".into() }
    };
    let kind = ErrorKind::Labels {
        dimension: axis.name(),
        index: index + 1,
        left: text(left),
        right: text(right),
    };
    Err(crate::error::Error::from(kind).at(place))
}
