//! Groups and what is known of them.
//!
//! Enters: rows, or states of groups that were aggregated before. Leaves: all groups at once, with their states or their
//! answers.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::spec::{Call, Set, Spec, meet};
use crate::exec::relational::groups::Groups;

/// Bytes that a new group takes in an accumulator, about.
const STATE_BYTES: usize = 32;

/// The groups that were met, and the aggregates of each.
pub(super) struct Table {
    spec: Arc<Spec>,
    groups: Groups,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// The group of each row of a batch.
    numbers: Vec<usize>,
    /// Rows whose groups were read at the places of codes, of each grouping set that rows are added to.
    pub(super) rows_by_code: usize,
}

impl Table {
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn new(spec: &Arc<Spec>) -> Result<Self> {
        let (groups, accumulators) = (Groups::new(&spec.groups)?, spec.accumulators()?);
        let spec = Arc::clone(spec);
        Ok(Self { spec, groups, accumulators, numbers: Vec::new(), rows_by_code: 0 })
    }

    /// Adds rows to their groups of each grouping set, or of the finest alone: those of others are made of these.
    ///
    /// # Errors
    /// Those of expressions and aggregates.
    pub(super) fn update(&mut self, rows: &RecordBatch) -> Result<()> {
        let rows = &self.spec.read(rows)?;
        let (keys, count) = (self.spec.keys(rows)?, rows.num_rows());
        let read = |call: &Call| Ok((call.added(rows)?, call.chosen(rows)?));
        let read = self.spec.calls.iter().map(read).collect::<Result<Vec<_>>>()?;
        for set in self.spec.sets_of_rows() {
            self.groups.number(&set.of(&keys, count)?, count, &mut self.numbers)?;
            self.rows_by_code += if self.groups.are_coded() { count } else { 0 };
            let groups = self.groups.len();
            for ((arguments, chosen), accumulator) in read.iter().zip(&mut self.accumulators) {
                accumulator.update_batch(arguments, &self.numbers, chosen.as_ref(), groups)?;
            }
        }
        Ok(())
    }

    /// Rows as groups of one row each, of each grouping set that rows are added to.
    ///
    /// # Errors
    /// Those of expressions and aggregates.
    pub(super) fn states_of(&self, rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let rows = &self.spec.read(rows)?;
        let keys = self.spec.decoded_keys(rows)?;
        let mut states = Vec::new();
        for (call, accumulator) in self.spec.calls.iter().zip(&self.accumulators) {
            let (arguments, chosen) = (call.arguments(rows)?, call.chosen(rows)?);
            states.extend(accumulator.convert_to_state(&arguments, chosen.as_ref())?);
        }
        let groups = |set: &Set| {
            let columns = [set.of(&keys, rows.num_rows())?, states.clone()].concat();
            Ok(RecordBatch::try_new(Arc::clone(&self.spec.states), columns)?)
        };
        self.spec.sets_of_rows().iter().map(groups).collect()
    }

    /// Meets the groups that are there without a row; the table is empty before.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn meet_totals(&mut self) -> Result<()> {
        for keys in self.spec.totals()? {
            self.groups.number(&keys, 1, &mut self.numbers)?;
        }
        self.meet_all()
    }

    /// Adds groups that were aggregated before.
    ///
    /// # Errors
    /// Those of aggregates.
    pub(super) fn merge(&mut self, states: &RecordBatch) -> Result<()> {
        let rows = states.num_rows();
        let (keys, states) = self.spec.parts_of(states);
        self.groups.number(keys, rows, &mut self.numbers)?;
        for (accumulator, own) in self.accumulators.iter_mut().zip(states) {
            accumulator.merge_batch(own, &self.numbers, self.groups.len())?;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Bytes of all there is.
    pub(super) fn bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|of| of.size()).sum();
        self.groups.bytes() + states
    }

    /// Bytes of the values that are known of groups.
    pub(super) fn value_bytes(&self) -> usize {
        let calls = self.spec.calls.iter().zip(&self.accumulators);
        calls.filter(|(call, _)| call.knows_values()).map(|(_, of)| of.size()).sum()
    }

    /// Bytes that so many more groups may take beside.
    pub(super) fn growth_bytes(&self, more: usize) -> usize {
        self.groups.growth_bytes(more) + more * STATE_BYTES * (1 + self.accumulators.len())
    }

    /// Gives the memory of an empty table back.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn release(&mut self) -> Result<()> {
        self.groups.release()?;
        self.accumulators = self.spec.accumulators()?;
        Ok(())
    }

    /// Shows the aggregates the groups that are there, which may be without a row.
    fn meet_all(&mut self) -> Result<()> {
        for (call, accumulator) in self.spec.calls.iter().zip(&mut self.accumulators) {
            meet(accumulator.as_mut(), &call.data_types, self.groups.len())?;
        }
        Ok(())
    }

    /// Shows them the one group that there is without keys.
    fn meet_only(&mut self) -> Result<()> {
        if self.spec.groups.fields().is_empty() { self.meet_all() } else { Ok(()) }
    }

    /// All groups and their states; the table is empty then.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn take_states(&mut self) -> Result<RecordBatch> {
        if self.len() == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.spec.states)));
        }
        self.meet_only()?;
        let mut columns = self.groups.take()?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.spec.states), columns)?)
    }

    /// All groups and their answers; the table is empty then.
    ///
    /// # Errors
    /// Where an answer is none of its type.
    pub(super) fn take_answers(&mut self) -> Result<RecordBatch> {
        if self.len() == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.spec.output)));
        }
        self.meet_only()?;
        let mut columns = self.groups.take()?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.evaluate(EmitTo::All)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.spec.output), columns)?)
    }
}
