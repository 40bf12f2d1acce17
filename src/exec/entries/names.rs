//! Names for keys of any type, and the order of the keys that there are.
//!
//! Enters: keys as bytes that compare as they do, piece by piece. Leaves: for each a number, its name; and at the end of every
//! name the place of its key among all in their order, and these keys. While a table of them fits, a key has one name. A table
//! that memory has no more room for goes to a file in the order of its keys, and names are given anew: such a key has a name
//! in each run.
//!
//! ```text
//! keys ─ table: key → name ─ full ─ run: keys in order, and their names ─┐
//!                          └ full ─ run ─────────────────────────────────┴ merged: keys in order, places of names
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows};

use super::columns::{Columns, ROWS_AT_ONCE};
use super::places::Files;
use crate::error::Result;
use crate::matrix::CellBuffer;
use crate::memory;

/// Bytes of a key in a table beside three times its own: its name and where it is.
const TABLE_BYTES: usize = 96;

/// Bytes of the least table that goes to a file.
const RUN_BYTES_MIN: usize = 1 << 20;

/// Bytes of a run that are read before they are let go.
const READ_BYTES: usize = 1 << 20;

/// The names of the keys so far.
#[derive(Default)]
pub(super) struct Names {
    table: HashMap<Box<[u8]>, u32>,
    /// Of the table, and those that are counted.
    table_bytes: usize,
    counted_bytes: usize,
    runs: Vec<Run>,
    count: u32,
}

impl Names {
    /// The names of some keys.
    ///
    /// # Errors
    /// Where neither memory nor a disk has room for the keys.
    pub(super) fn of(&mut self, keys: &Rows, files: &mut Files<'_>) -> Result<Vec<u32>> {
        let mut new_bytes = 0;
        let mut names = Vec::with_capacity(keys.num_rows());
        for key in keys {
            names.push(match self.table.get(key.data()) {
                Some(&name) => name,
                None => {
                    new_bytes += 3 * key.data().len() + TABLE_BYTES;
                    self.table.insert(key.data().into(), self.count);
                    self.count += 1;
                    self.count - 1
                }
            });
        }
        self.table_bytes += new_bytes;
        if files.budget.grow_rows(new_bytes) {
            self.counted_bytes += new_bytes;
        } else if self.table_bytes >= RUN_BYTES_MIN {
            let run = Run::of(self.in_order(), |bytes| Ok(files.put(bytes)?.into_inner()))?;
            self.runs.push(run);
            files.budget.shrink(std::mem::take(&mut self.counted_bytes));
        }
        Ok(names)
    }

    /// The table's keys in order; another table is begun.
    fn in_order(&mut self) -> Vec<(Box<[u8]>, u32)> {
        let mut keys: Vec<_> = std::mem::take(&mut self.table).into_iter().collect();
        keys.sort_unstable();
        self.table_bytes = 0;
        keys
    }

    /// The place of each name's key among all keys in their order, and these, as columns of these types.
    ///
    /// # Errors
    /// Where a disk has no room, or a column more bytes than its type allows.
    pub(super) fn ranked(
        self,
        converter: &RowConverter,
        types: &[DataType],
        files: &mut Files<'_>,
    ) -> Result<(CellBuffer<u32>, Vec<ArrayRef>)> {
        let counted_bytes = self.counted_bytes;
        let ranked = self.merged(converter, types, files);
        files.budget.shrink(counted_bytes);
        ranked
    }

    fn merged(
        mut self,
        converter: &RowConverter,
        types: &[DataType],
        files: &mut Files<'_>,
    ) -> Result<(CellBuffer<u32>, Vec<ArrayRef>)> {
        let keys = self.in_order();
        let is_at_hand = self.runs.is_empty();
        self.runs.push(match is_at_hand {
            true => Run::of(keys, |bytes| Ok(Buffer::from(bytes)))?,
            false => Run::of(keys, |bytes| Ok(files.put(bytes)?.into_inner()))?,
        });
        let at_once = if is_at_hand { usize::MAX } else { ROWS_AT_ONCE };
        let parser = converter.parser();
        let mut columns = Columns::new(types);
        let mut places = CellBuffer::arbitrary(self.count as usize);
        let mut merged = Merged::of(&self.runs);
        let mut next = 0;
        loop {
            files.cancel.check()?;
            let mut keys: Vec<&[u8]> = Vec::new();
            while keys.len() < at_once
                && let Some((key, names)) = merged.next()
            {
                names.into_iter().for_each(|name| places[name as usize] = next);
                keys.push(key);
                next += 1;
            }
            // Keys of a dictionary come back as its values.
            let part = converter.convert_rows(keys.iter().map(|key| parser.parse(key)))?;
            let part = part.iter().zip(types).map(|(column, of)| cast(column, of));
            let part = part.collect::<std::result::Result<_, _>>()?;
            if is_at_hand {
                return Ok((places, part));
            }
            if keys.is_empty() {
                return Ok((places, columns.joined()?));
            }
            columns.push(part, files)?;
        }
    }
}

/// Keys in order, one after the other, and their names.
struct Run {
    keys: Buffer,
    /// Of each key, where it ends.
    ends: ScalarBuffer<u64>,
    names: ScalarBuffer<u32>,
}

impl Run {
    fn of(
        entries: Vec<(Box<[u8]>, u32)>,
        mut put: impl FnMut(&[u8]) -> Result<Buffer>,
    ) -> Result<Self> {
        let mut keys: Vec<u8> = Vec::new();
        let mut ends: Vec<u64> = Vec::with_capacity(entries.len());
        let mut names: Vec<u32> = Vec::with_capacity(entries.len());
        for (key, name) in entries {
            keys.extend_from_slice(&key);
            ends.push(keys.len() as u64);
            names.push(name);
        }
        Ok(Self {
            keys: put(&keys)?,
            ends: put(bytemuck::cast_slice(&ends))?.into(),
            names: put(bytemuck::cast_slice(&names))?.into(),
        })
    }

    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[at] as usize
    }
}

/// Runs that are read side by side.
struct Merged<'a> {
    runs: &'a [Run],
    /// The next key of each run that has one, which run that is, and which key of it.
    heads: BinaryHeap<Reverse<(&'a [u8], usize, usize)>>,
    /// Of each run, the bytes that have been let go.
    read: Vec<usize>,
}

impl<'a> Merged<'a> {
    fn of(runs: &'a [Run]) -> Self {
        let mut merged = Self { runs, heads: BinaryHeap::new(), read: vec![0; runs.len()] };
        (0..runs.len()).for_each(|run| merged.advance(run, 0));
        merged
    }

    /// Makes a key of a run its next.
    fn advance(&mut self, run: usize, at: usize) {
        let Run { keys, ends, .. } = &self.runs[run];
        if at < ends.len() {
            let range = self.runs[run].range(at);
            if range.start - self.read[run] >= READ_BYTES {
                memory::done_with(&keys[self.read[run]..range.start]);
                self.read[run] = range.start;
            }
            self.heads.push(Reverse((&keys[range], run, at)));
        }
    }

    /// The least key that has not been, and its names.
    fn next(&mut self) -> Option<(&'a [u8], Vec<u32>)> {
        let Reverse((key, ..)) = *self.heads.peek()?;
        let mut names = Vec::with_capacity(1);
        while let Some(&Reverse((other, run, at))) = self.heads.peek()
            && other == key
        {
            self.heads.pop();
            names.push(self.runs[run].names[at]);
            self.advance(run, at + 1);
        }
        Some((key, names))
    }
}
