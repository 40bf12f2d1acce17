//! The best places of each group.
//!
//! A group has as many as are asked for in a heap, the last of them on top: a row whose place is beyond that has as many before
//! it. As long as there are fewer, the others are the last place of all, which no row is beyond.

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use crate::exec::relational::groups::Groups;
use crate::exec::relational::memory::Memory;

/// The places so far.
pub(super) struct Standings {
    /// Places of a group.
    count: usize,
    /// Nothing where all rows are one group.
    groups: Option<Groups>,
    /// The heaps, one after the other.
    places: Vec<u64>,
    /// The groups of a batch.
    numbers: Vec<usize>,
    /// What is reserved, of `memory`.
    reserved_bytes: usize,
    memory: Memory,
}

impl Standings {
    /// # Errors
    /// Where such keys cannot be compared.
    pub(super) fn new(count: usize, keys: &SchemaRef, memory: Memory) -> Result<Self> {
        let groups = (!keys.fields().is_empty()).then(|| Groups::new(keys)).transpose()?;
        let places = if groups.is_none() { vec![u64::MAX; count] } else { Vec::new() };
        Ok(Self { count, groups, places, numbers: Vec::new(), reserved_bytes: 0, memory })
    }

    /// Rows come: which of them may be among the first. Nothing where there is no memory for their places.
    ///
    /// # Errors
    /// None but those of numbering groups.
    pub(super) fn enter(
        &mut self,
        keys: &[ArrayRef],
        places: &[u64],
    ) -> Result<Option<BooleanBuffer>> {
        if !self.has_room(places.len()) {
            return Ok(None);
        }
        match &mut self.groups {
            Some(groups) => {
                groups.number(keys, places.len(), &mut self.numbers)?;
                self.places.resize(self.count * groups.len(), u64::MAX);
            }
            None => {
                self.numbers.clear();
                self.numbers.resize(places.len(), 0);
            }
        }
        let count = self.count;
        Ok(Some(BooleanBuffer::collect_bool(places.len(), |row| {
            let first = count * self.numbers[row];
            enter(&mut self.places[first..first + count], places[row])
        })))
    }

    /// Reserves what so many more rows may take.
    fn has_room(&mut self, rows: usize) -> bool {
        let groups = self.groups.as_ref();
        let groups_bytes = groups.map_or(0, |groups| groups.bytes() + groups.growth_bytes(rows));
        let known = groups.map_or(0, Groups::len);
        let places = self.count.saturating_mul(known + rows);
        let places_bytes = match places > self.places.capacity() {
            // Both the old ones and the new ones, while they move.
            true => places.saturating_mul(3 * size_of::<u64>()),
            false => self.places.capacity() * size_of::<u64>(),
        };
        let needed = groups_bytes.saturating_add(places_bytes);
        let more = needed.saturating_sub(self.reserved_bytes);
        if !self.memory.try_grow(more) {
            return false;
        }
        self.memory.shrink(self.reserved_bytes.saturating_sub(needed));
        self.reserved_bytes = needed;
        true
    }
}

/// Whether a place is not beyond those of a heap, which has it then in place of its last.
fn enter(heap: &mut [u64], place: u64) -> bool {
    let last = heap[0];
    if place < last {
        sink(heap, place);
    }
    place <= last
}

/// Puts a place in that of the top.
fn sink(heap: &mut [u64], place: u64) {
    let mut at = 0;
    loop {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        let Some(&of_left) = heap.get(left) else { break };
        let (child, of_child) = match heap.get(right) {
            Some(&of_right) if of_right > of_left => (right, of_right),
            _ => (left, of_left),
        };
        if of_child <= place {
            break;
        }
        heap[at] = of_child;
        at = child;
    }
    heap[at] = place;
}
