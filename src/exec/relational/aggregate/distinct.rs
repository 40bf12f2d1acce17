//! An aggregate of the different values of each group: a value counts once, with whichever rows it comes.
//!
//! All groups share one table, of the number of a group and a value. What they come to is added up at the end, by the
//! aggregate without DISTINCT.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{and, cast, filter, is_not_null, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt32Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::spec::meet;
use super::values::unnested;
use crate::exec::relational::groups::Groups;

/// The different values of each group.
pub(super) struct DistinctValues {
    /// The number of a group, and a value.
    pairs: Groups,
    schema: SchemaRef,
    /// The values, as what is known of a group has them.
    item: FieldRef,
    /// What adds them up, as values of this type.
    plain: Box<dyn GroupsAccumulator>,
    data_types: Vec<DataType>,
    groups: usize,
    /// The pairs of a batch.
    numbers: Vec<usize>,
}

impl DistinctValues {
    /// # Errors
    /// Where such values cannot be compared.
    pub(super) fn new(
        plain: Box<dyn GroupsAccumulator>,
        data_types: &[DataType],
        item: &FieldRef,
    ) -> Result<Self> {
        let group = Field::new("group", DataType::UInt32, false);
        let value = Field::new("value", item.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![group, value]));
        Ok(Self {
            pairs: Groups::new(&schema)?,
            schema,
            item: Arc::clone(item),
            plain,
            data_types: data_types.to_vec(),
            groups: 0,
            numbers: Vec::new(),
        })
    }

    fn add(&mut self, groups: ArrayRef, values: ArrayRef) -> Result<()> {
        let rows = groups.len();
        self.pairs.number(&[groups, values], rows, &mut self.numbers)
    }

    /// The groups and the values, of which none is known any more.
    fn take(&mut self, emit_to: EmitTo) -> Result<(ArrayRef, ArrayRef)> {
        if let EmitTo::First(_) = emit_to {
            return Err(DataFusionError::Internal("different values leave all at once".into()));
        }
        let pairs = self.pairs.take()?;
        self.pairs.release()?;
        Ok((Arc::clone(&pairs[0]), Arc::clone(&pairs[1])))
    }
}

fn numbers_of(groups: &ArrayRef) -> impl Iterator<Item = usize> {
    groups.as_primitive::<UInt32Type>().values().iter().map(|&group| group as usize)
}

/// The rows that count: those with a value, and as the filter says.
fn counted(values: &ArrayRef, chosen: Option<&BooleanArray>) -> Result<Option<BooleanArray>> {
    let chosen = chosen.map(|chosen| match chosen.null_count() {
        0 => chosen.clone(),
        _ => prep_null_mask_filter(chosen),
    });
    let are_there = (values.null_count() > 0).then(|| is_not_null(values)).transpose()?;
    Ok(match (are_there, chosen) {
        (Some(are_there), Some(chosen)) => Some(and(&are_there, &chosen)?),
        (one, other) => one.or(other),
    })
}

impl GroupsAccumulator for DistinctValues {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups = total_num_groups;
        let mut values = cast(&values[0], self.item.data_type())?;
        let groups = group_indices.iter().map(|&group| group as u32);
        let mut groups: ArrayRef = Arc::new(UInt32Array::from_iter_values(groups));
        if let Some(counted) = counted(&values, opt_filter)? {
            (groups, values) = (filter(&groups, &counted)?, filter(&values, &counted)?);
        }
        self.add(groups, values)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups = total_num_groups;
        let pairs = unnested(group_indices, values, &self.schema)?;
        self.add(Arc::clone(pairs.column(0)), Arc::clone(pairs.column(1)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (groups, values) = self.take(emit_to)?;
        let mut counts = vec![0; self.groups];
        numbers_of(&groups).for_each(|group| counts[group] += 1);
        let offsets = OffsetBuffer::<i32>::from_lengths(counts.iter().copied());
        // The places of each group's values, beside one another.
        let mut next: Vec<usize> = offsets.iter().map(|&offset| offset as usize).collect();
        let mut places = vec![0_u32; groups.len()];
        for (row, group) in numbers_of(&groups).enumerate() {
            places[next[group]] = row as u32;
            next[group] += 1;
        }
        let values = take(&values, &UInt32Array::from(places), None)?;
        self.groups = 0;
        Ok(vec![Arc::new(ListArray::try_new(Arc::clone(&self.item), offsets, values, None)?)])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (groups, values) = self.take(emit_to)?;
        let values = cast(&values, &self.data_types[0])?;
        let groups: Vec<usize> = numbers_of(&groups).collect();
        let count = std::mem::take(&mut self.groups);
        meet(self.plain.as_mut(), &self.data_types, count)?;
        self.plain.update_batch(&[values], &groups, None, count)?;
        self.plain.evaluate(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = cast(&values[0], self.item.data_type())?;
        let counted = counted(&values, opt_filter)?;
        let nulls = counted.map(|counted| NullBuffer::new(counted.values().clone()));
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, values.len()));
        Ok(vec![Arc::new(ListArray::try_new(Arc::clone(&self.item), offsets, values, nulls)?)])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.bytes() + self.plain.size()
    }
}
