//! One who aggregates rows as they come, and deals its groups out whenever there are too many.
//!
//! ```text
//! rows ─ table ─ fits ──────────────────────────────── answers
//!              └ many groups, or memory is refused ─── parts in memory ─ refused ─ parts in files
//! ```
//!
//! A table that deals its groups out begins anew, small enough for a processor's cache. Where a sketch of the groups shows
//! that the same ones come again, it may become as large as they are many: dealing them out once costs less then. Where
//! hardly two rows are of one group, rows are dealt out as they come. Groups of which all values are known may be few and
//! large: who reads rows deals them out all the same, and who reads groups says that they are too large.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::error::Result;
use datafusion::physical_plan::spill::get_record_batch_memory_size;

use super::deal::{Dealer, Sketch};
use super::parts::{Files, Held, HeldPart, PAGE_BYTES};
use super::spec::Spec;
use super::table::Table;
use crate::exec::relational::memory::Memory;

/// Groups of a table that deals them out, unless they come again.
pub(super) const GROUPS: usize = 1 << 17;

/// Groups of a table that is not emptied for want of memory: fewer are not worth their files.
const GROUPS_MIN: usize = 1024;

/// Groups of the largest table, which have numbers of 32 bits.
const GROUPS_MAX: usize = 1 << 31;

/// Rows of a group at least, on average, for which a table is worth while.
const ROWS_OF_GROUP: f64 = 1.25;

/// Rows that are dealt out at once where they are in no table.
const ROWS_DEALT: usize = 1 << 16;

/// Groups that are taken in at once where they are at hand.
const ROWS_PUSHED: usize = 1 << 13;

/// A table is there a second time when its groups are dealt out or leave.
const COPIES: usize = 2;

/// Values are there a third time while they move to where there is room for more.
const VALUE_COPIES: usize = 3;

/// Bytes of a value that a row adds, about.
const VALUE_BYTES: usize = 16;

/// Bytes of values that are worth a file, however few their groups are.
const VALUES_MIN: usize = PAGE_BYTES;

/// What a worker is handed.
pub(super) enum Given<'a> {
    /// Rows of the input.
    Rows(&'a RecordBatch),
    /// Groups that were aggregated before.
    States(&'a RecordBatch),
}

/// One who aggregates; see the header of this file.
pub(super) struct Worker {
    pub(super) table: Table,
    memory: Arc<Memory>,
    reserved_bytes: usize,
    dealer: Dealer,
    files: Arc<Files>,
    held: Held,
    /// Groups at which the table is dealt out.
    groups_max: usize,
    /// Whether groups may be dealt out at all, and whether also few of them.
    divides: bool,
    divides_few: bool,
    /// Of aggregates, those that know all values of a group.
    valued: usize,
    spec: Arc<Spec>,
    /// Whether the table holds groups of the finest grouping set, of which those of others are still to be made.
    is_finest: bool,
    /// Bytes of groups that others are made of.
    finest_bytes: usize,
    /// Whether memory was refused for the values of few groups; not once groups were dealt out, for then they are here and there.
    pub(super) is_overfull: bool,
    sketch: Sketch,
    /// Rows of the input that the table holds, as often as they are in a group.
    rows: usize,
    /// Rows that are dealt out as they are; none where a table is worth while.
    waiting: Option<Vec<RecordBatch>>,
    waiting_bytes: usize,
    /// How many rows of the input were dealt out as they were.
    pub(super) rows_passed: usize,
    /// How often groups were dealt out.
    pub(super) dealings: usize,
}

impl Worker {
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn new(
        spec: &Arc<Spec>,
        memory: Memory,
        dealer: &Dealer,
        files: &Arc<Files>,
        groups_max: Option<usize>,
    ) -> Result<Self> {
        Ok(Self {
            table: Table::new(spec)?,
            memory: Arc::new(memory),
            reserved_bytes: 0,
            dealer: dealer.clone(),
            files: Arc::clone(files),
            held: Held::new(dealer.parts()),
            groups_max: groups_max.unwrap_or(GROUPS_MAX),
            divides: dealer.parts() > 1,
            divides_few: groups_max.is_some(),
            valued: spec.calls.iter().filter(|call| call.knows_values()).count(),
            spec: Arc::clone(spec),
            is_finest: false,
            finest_bytes: 0,
            is_overfull: false,
            sketch: Sketch::default(),
            rows: 0,
            waiting: None,
            waiting_bytes: 0,
            rows_passed: 0,
            dealings: 0,
        })
    }

    /// Takes rows or groups in.
    ///
    /// # Errors
    /// Those of expressions, aggregates and files.
    pub(super) fn push(&mut self, given: Given<'_>) -> Result<()> {
        // Each of a batch may be a group, or several by grouping sets.
        let groups = match given {
            Given::Rows(rows) => rows.num_rows() * self.spec.sets_of_rows().len(),
            Given::States(states) => states.num_rows(),
        };
        let value_bytes = match given {
            _ if self.valued == 0 => 0,
            Given::Rows(_) => groups * self.valued * VALUE_BYTES,
            Given::States(states) => get_record_batch_memory_size(states),
        };
        self.make_room(groups, value_bytes)?;
        match given {
            Given::Rows(rows) if self.waiting.is_some() => return self.wait(rows),
            Given::Rows(rows) => {
                self.table.update(rows)?;
                self.is_finest = self.spec.has_finest();
            }
            Given::States(states) => self.table.merge(states)?,
        }
        self.rows += groups;
        if self.table.len() >= self.groups_max {
            let few = (self.rows as f64) < ROWS_OF_GROUP * self.table.len() as f64;
            self.deal()?;
            if few && !self.sketch.recurs() {
                self.waiting = Some(Vec::new());
            }
        }
        Ok(())
    }

    /// Deals rows out as groups of one row each, once there are enough of them.
    fn wait(&mut self, rows: &RecordBatch) -> Result<()> {
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        self.rows_passed += rows.num_rows();
        for states in self.table.states_of(rows)? {
            self.waiting_bytes += get_record_batch_memory_size(&states);
            self.rows += states.num_rows();
            waiting.push(states);
        }
        if self.rows >= ROWS_DEALT { self.deal_waiting() } else { Ok(()) }
    }

    fn deal_waiting(&mut self) -> Result<()> {
        let Some(waiting) = self.waiting.as_mut().map(std::mem::take) else { return Ok(()) };
        let Some(first) = waiting.first() else { return Ok(()) };
        let states = concat_batches(first.schema_ref(), &waiting)?;
        drop(waiting);
        (self.rows, self.waiting_bytes) = (0, 0);
        match self.spec.has_finest() {
            true => self.deal_finest(states),
            false => self.deal_groups(states),
        }
    }

    /// Takes what was the last row: the groups of all grouping sets are there, or dealt out.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn end_rows(&mut self) -> Result<()> {
        if !self.is_finest || self.has_dealt() {
            return Ok(());
        }
        self.is_finest = false;
        let finest = self.table.take_states()?;
        self.push_parts(&finest)?;
        self.push_coarser(&finest)
    }

    /// Makes the groups of the other grouping sets of those of the finest, and deals all of them out.
    fn deal_finest(&mut self, finest: RecordBatch) -> Result<()> {
        self.push_coarser(&finest)?;
        self.deal_groups(finest)?;
        match self.table.len() {
            0 => Ok(()),
            _ => {
                let coarser = self.table.take_states()?;
                self.deal_groups(coarser)
            }
        }
    }

    fn push_coarser(&mut self, finest: &RecordBatch) -> Result<()> {
        self.finest_bytes = get_record_batch_memory_size(finest);
        let spec = Arc::clone(&self.spec);
        for set in spec.coarser_sets() {
            self.push_parts(&spec.coarser(set, finest)?)?;
        }
        self.finest_bytes = 0;
        Ok(())
    }

    /// Takes groups in, some at a time: there is room for few.
    fn push_parts(&mut self, groups: &RecordBatch) -> Result<()> {
        // A part of lists would be taken for as large as all of them.
        let rows_max = if self.valued == 0 { ROWS_PUSHED } else { groups.num_rows() };
        for start in (0..groups.num_rows()).step_by(rows_max.max(1)) {
            let rows = rows_max.min(groups.num_rows() - start);
            self.push(Given::States(&groups.slice(start, rows)))?;
        }
        Ok(())
    }

    /// Whether groups have been dealt out.
    pub(super) fn has_dealt(&self) -> bool {
        self.dealings > 0
    }

    /// Bytes of all there is, and of what it becomes when it is dealt out.
    fn bytes(&self) -> usize {
        let values = (VALUE_COPIES - COPIES) * self.value_bytes();
        COPIES * (self.table.bytes() + self.waiting_bytes)
            + values
            + self.finest_bytes
            + self.held.bytes()
    }

    fn value_bytes(&self) -> usize {
        if self.valued == 0 { 0 } else { self.table.value_bytes() }
    }

    /// Reserves what the table may take with so many groups more and bytes of values; deals groups out and writes them
    /// where that is refused.
    fn make_room(&mut self, more: usize, value_bytes: usize) -> Result<()> {
        loop {
            let growth = self.table.growth_bytes(more) + VALUE_COPIES * value_bytes;
            let needed = self.bytes() + growth;
            let more_bytes = needed.saturating_sub(self.reserved_bytes);
            if more_bytes == 0 || self.memory.try_grow(more_bytes) {
                self.reserved_bytes += more_bytes;
                return Ok(());
            }
            if self.held.bytes() > 0 {
                self.held.write(&self.files)?;
                self.settle();
            } else if self.has_some_to_deal() {
                self.deal()?;
                self.table.release()?;
                self.settle();
            } else {
                self.is_overfull |= self.value_bytes() >= VALUES_MIN;
                self.memory.grow(more_bytes);
                self.reserved_bytes += more_bytes;
                return Ok(());
            }
        }
    }

    /// Whether groups are worth their files.
    fn has_some_to_deal(&self) -> bool {
        let are_many = self.table.len() >= GROUPS_MIN || self.waiting_bytes > 0;
        let divides_few = self.divides_few || self.has_dealt();
        self.divides && are_many || divides_few && self.value_bytes() >= VALUES_MIN
    }

    /// Gives back what is reserved and not needed.
    pub(super) fn settle(&mut self) {
        if let Some(less) = self.reserved_bytes.checked_sub(self.bytes()) {
            self.memory.shrink(less);
            self.reserved_bytes -= less;
        }
    }

    /// Deals all groups of the table out.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn deal(&mut self) -> Result<()> {
        self.deal_waiting()?;
        self.rows = 0;
        if self.table.len() == 0 {
            self.dealings += 1;
            return Ok(());
        }
        let groups = self.table.take_states()?;
        match std::mem::take(&mut self.is_finest) {
            true => self.deal_finest(groups),
            false => self.deal_groups(groups),
        }
    }

    fn deal_groups(&mut self, groups: RecordBatch) -> Result<()> {
        let hashes = self.dealer.hashes(&groups)?;
        for (part, groups) in self.dealer.deal(&groups, &hashes)?.into_iter().enumerate() {
            if let Some(groups) = groups {
                self.held.push(part, groups);
            }
        }
        self.dealings += 1;
        // The groups before, which were few and large, are not in the table alone any more.
        self.is_overfull = false;
        self.sketch.add(&hashes);
        if self.sketch.recurs() {
            let different = self.sketch.different();
            self.groups_max = self.groups_max.max(different + different / 2).min(GROUPS_MAX);
            self.waiting = None;
        }
        drop(groups);
        // What was dealt out is there already; it is counted, or written where there is no room for it.
        let more = self.bytes().saturating_sub(self.reserved_bytes);
        match more == 0 || self.memory.try_grow(more) {
            true => self.reserved_bytes += more,
            false => self.held.write(&self.files)?,
        }
        self.settle();
        Ok(())
    }

    /// The groups that are held, of each part, once all are dealt out.
    pub(super) fn into_parts(self) -> Vec<HeldPart> {
        let Self { memory, held, reserved_bytes, .. } = self;
        memory.shrink(reserved_bytes.saturating_sub(held.bytes()));
        held.take(&memory)
    }
}
