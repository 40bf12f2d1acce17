//! What is known of all rows, as of the one group that there is without keys.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// An accumulator of all rows, which looks no group up; see the header of this file.
#[derive(Debug)]
pub(super) struct OnlyGroup(pub(super) Box<dyn Accumulator>);

impl GroupsAccumulator for OnlyGroup {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        _groups: &[usize],
        chosen: Option<&BooleanArray>,
        _group_count: usize,
    ) -> Result<()> {
        let Some(chosen) = chosen else { return self.0.update_batch(values) };
        let values = values.iter().map(|values| filter(values, chosen));
        self.0.update_batch(&values.collect::<std::result::Result<Vec<_>, _>>()?)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], _: &[usize], _: usize) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn state(&mut self, _: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state()?.iter().map(|state| state.to_array_of_size(1)).collect()
    }

    fn evaluate(&mut self, _: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate()?.to_array_of_size(1)
    }

    fn convert_to_state(&self, _: &[ArrayRef], _: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        internal_err!("there is one group, and rows are groups")
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
