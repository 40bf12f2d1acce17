//! Pairs of rows that meet, piece by piece.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::{JoinSide, internal_err};
use datafusion::error::Result;
use datafusion::physical_plan::joins::utils::JoinFilter;

use super::Index;
use super::keys::{Keys, Matches};
use super::ranges::{Ranges, Spans};
use crate::encoding::decoded;
use crate::exec::relational::join::spec::batch;

/// In place of a row of the build side: the row of the probe side meets none.
pub(super) const ALONE: u32 = u32::MAX;

/// Rows of the probe side, in their order, and for each a row of the build side.
#[derive(Default)]
pub(super) struct Pairs {
    pub(super) probe: Vec<u32>,
    pub(super) build: Vec<u32>,
}

impl Pairs {
    fn clear(&mut self) {
        self.probe.clear();
        self.build.clear();
    }

    fn push(&mut self, probe: usize, build: u32) {
        self.probe.push(probe as u32);
        self.build.push(build);
    }

    /// Leaves the pairs whose places are told.
    fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut kept = 0;
        for at in 0..self.probe.len() {
            self.probe[kept] = self.probe[at];
            self.build[kept] = self.build[at];
            kept += usize::from(is_kept(at));
        }
        self.probe.truncate(kept);
        self.build.truncate(kept);
    }

    /// Leaves the pairs that meet a condition.
    fn filter(&mut self, by: &JoinFilter, build: &RecordBatch, probe: &RecordBatch) -> Result<()> {
        if self.probe.is_empty() {
            return Ok(());
        }
        let rows = [&self.build, &self.probe].map(|rows| UInt32Array::from(rows.clone()));
        let columns = by.column_indices().iter().map(|column| {
            let (of, rows) = match column.side {
                JoinSide::Left => (build, &rows[0]),
                JoinSide::Right | JoinSide::None => (probe, &rows[1]),
            };
            Ok(take(of.column(column.index), rows, None)?)
        });
        let columns = columns.zip(by.schema().fields()).map(|(column, field)| {
            column.and_then(|column: ArrayRef| Ok(decoded(&column, field.data_type())?))
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let pairs = batch(by.schema(), columns, self.probe.len())?;
        let met = by.expression().evaluate(&pairs)?.into_array(pairs.num_rows())?;
        let met = met.as_boolean();
        self.retain(|at| met.is_valid(at) && met.value(at));
        Ok(())
    }
}

/// Whom rows of the probe side have found.
pub(super) enum Found {
    ByKeys(Matches),
    Within(Spans),
}

/// A batch of the probe side on its way.
pub(super) struct Piece {
    pub(super) rows: RecordBatch,
    found: Found,
    /// The row whose pairs come next.
    row: usize,
    /// The place of whom it meets next, counted from 1; 0 where it has met none yet.
    next: u32,
    /// The rows before this one have met somebody, or left alone.
    settled: usize,
    /// Which rows have met somebody, once somebody has asked to take note of that.
    met: Vec<bool>,
}

impl Piece {
    pub(super) fn new(rows: RecordBatch, found: Found) -> Self {
        Self { rows, found, row: 0, next: 0, settled: 0, met: Vec::new() }
    }

    /// Whether some of its pairs have been made, and others have not.
    pub(super) fn has_begun(&self) -> bool {
        self.row > 0 || self.next > 0
    }

    /// The next pairs, about `limit` at most; true once these are the last.
    pub(super) fn pairs(
        &mut self,
        index: &Index,
        filter: Option<&JoinFilter>,
        build: &RecordBatch,
        limit: usize,
        pairs: &mut Pairs,
    ) -> Result<bool> {
        pairs.clear();
        let place = (self.row, self.next);
        let (is_last, place) = match (&self.found, index) {
            (Found::ByKeys(found), Index::Keys(keys)) => {
                let ended = match keys.is_unique() {
                    true => single(found, pairs),
                    false => several(found, keys, place, limit, pairs),
                };
                if !found.is_certain() {
                    let pair: Vec<bool> = (pairs.build.iter().zip(&pairs.probe))
                        .map(|(&build, &probe)| found.is_equal(build, probe))
                        .collect();
                    pairs.retain(|at| pair[at]);
                }
                ended
            }
            (Found::Within(found), Index::Ranges(ranges)) => {
                within(found, ranges, place, limit, pairs)
            }
            _ => return internal_err!("rows were found by another index"),
        };
        (self.row, self.next) = place;
        if let Some(filter) = filter {
            pairs.filter(filter, build, &self.rows)?;
        }
        Ok(is_last)
    }

    /// Which rows meet somebody, where that is known without the pairs.
    pub(super) fn met_at_once(&self, index: &Index) -> Option<BooleanBuffer> {
        match (&self.found, index) {
            (Found::ByKeys(found), _) if found.is_certain() => {
                let first = &found.first;
                Some(BooleanBuffer::collect_bool(first.len(), |row| first[row] != 0))
            }
            (Found::Within(found), Index::Ranges(ranges)) => {
                let meets = |row| ranges.next(found, row, None).is_some();
                Some(BooleanBuffer::collect_bool(found.len(), meets))
            }
            _ => None,
        }
    }

    /// Adds all rows of the build side that are met, `add` telling whether it is the first time; false where the pairs
    /// must be looked at.
    pub(super) fn add_met(&self, index: &Index, add: impl Fn(u32) -> bool) -> bool {
        match (&self.found, index) {
            (Found::ByKeys(found), Index::Keys(keys)) if found.is_certain() => {
                let mut rows = Vec::new();
                for &first in found.first.iter().filter(|&&first| first != 0) {
                    rows.clear();
                    let next = keys.append(first, 1, &mut rows);
                    // Rows of one key are met together: where the first has been, so have all.
                    if rows.iter().all(|&row| add(row)) && next != 0 {
                        rows.clear();
                        keys.append(next, usize::MAX, &mut rows);
                        rows.iter().for_each(|&row| _ = add(row));
                    }
                }
                true
            }
            (Found::Within(found), Index::Ranges(ranges)) => {
                let Some(covered) = ranges.covered(found) else { return false };
                for place in covered.into_iter().flat_map(|[from, to]| from..to) {
                    add(ranges.row(place as usize));
                }
                true
            }
            _ => false,
        }
    }

    /// The last pairs, with those rows between them that meet nobody.
    pub(super) fn with_alone(&mut self, pairs: &mut Pairs) {
        let met = std::mem::take(pairs);
        for (&probe, &build) in met.probe.iter().zip(&met.build) {
            self.leave_alone(probe as usize, pairs);
            pairs.push(probe as usize, build);
            self.settled = probe as usize + 1;
        }
        self.leave_alone(self.row, pairs);
    }

    /// Takes note of the rows that have met somebody.
    pub(super) fn take_note(&mut self, pairs: &Pairs) {
        self.met.resize(self.rows.num_rows(), false);
        pairs.probe.iter().for_each(|&row| self.met[row as usize] = true);
    }

    /// The rows of which note was taken.
    pub(super) fn met(&self) -> BooleanBuffer {
        BooleanBuffer::from(self.met.as_slice())
    }

    fn leave_alone(&mut self, before: usize, pairs: &mut Pairs) {
        for row in self.settled..before {
            pairs.push(row, ALONE);
        }
        self.settled = self.settled.max(before);
    }
}

/// Where the pairs go on, and whether these were the last.
type Ended = (bool, (usize, u32));

/// Of rows that find one at most.
fn single(found: &Matches, pairs: &mut Pairs) -> Ended {
    let first = &found.first;
    pairs.probe.resize(first.len(), 0);
    pairs.build.resize(first.len(), 0);
    let mut count = 0;
    for (row, &found) in first.iter().enumerate() {
        pairs.probe[count] = row as u32;
        pairs.build[count] = found.wrapping_sub(1);
        count += usize::from(found != 0);
    }
    pairs.probe.truncate(count);
    pairs.build.truncate(count);
    (true, (first.len(), 0))
}

/// Of rows that find several of the same keys, one after another.
fn several(
    found: &Matches,
    keys: &Keys,
    (mut row, mut next): (usize, u32),
    limit: usize,
    pairs: &mut Pairs,
) -> Ended {
    while let Some(&first) = found.first.get(row) {
        let place = if next == 0 { first } else { next };
        if place != 0 {
            let room = limit.saturating_sub(pairs.build.len());
            next = keys.append(place, room, &mut pairs.build);
            pairs.probe.resize(pairs.build.len(), row as u32);
            if next != 0 {
                return (false, (row, next));
            }
        }
        row += 1;
    }
    (true, (row, 0))
}

/// Of rows that find others within ends.
fn within(
    found: &Spans,
    ranges: &Ranges,
    (mut row, mut next): (usize, u32),
    limit: usize,
    pairs: &mut Pairs,
) -> Ended {
    while row < found.len() {
        let mut from = next.checked_sub(1).map(|place| place as usize);
        while let Some(place) = ranges.next(found, row, from) {
            if pairs.probe.len() >= limit {
                return (false, (row, place as u32 + 1));
            }
            pairs.push(row, ranges.row(place));
            from = Some(place + 1);
        }
        (row, next) = (row + 1, 0);
    }
    (true, (row, 0))
}
