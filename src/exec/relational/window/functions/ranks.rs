//! What numbers rows and peers: `row_number`, `rank`, `dense_rank`, `percent_rank`, `cume_dist`, `ntile`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, UInt64Array};
use arrow::datatypes::{Int64Type, UInt64Type};
use datafusion::common::Result;

use super::ByRow;
use super::running::Piece;

/// The place of a row in its partition, from 1.
#[derive(Default)]
pub(super) struct RowNumber {
    rows: u64,
}

impl ByRow for RowNumber {
    fn push(&mut self, _arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let mut numbers = Vec::with_capacity(piece.rows);
        for (begins, part) in piece.parts() {
            let first = if begins { 0 } else { self.rows };
            self.rows = first + part.len() as u64;
            numbers.extend(first + 1..=self.rows);
        }
        Ok(Arc::new(UInt64Array::from(numbers)))
    }
}

/// What a rank counts.
enum Counted {
    /// Rows before the first peer.
    Rows,
    /// Peers that came before.
    Peers,
    /// Rows before the first peer, as a part of all other rows.
    Share,
}

/// The same number for all peers.
pub(super) struct Rank {
    counted: Counted,
    /// Rows of the partition so far, those before the last of the peers, and how many peers there are.
    rows: u64,
    before: u64,
    peers: u64,
}

impl Rank {
    fn new(counted: Counted) -> Self {
        Self { counted, rows: 0, before: 0, peers: 1 }
    }

    pub(super) fn gapped() -> Self {
        Self::new(Counted::Rows)
    }

    pub(super) fn dense() -> Self {
        Self::new(Counted::Peers)
    }

    /// Of the number of rows in the partition.
    pub(super) fn relative() -> Self {
        Self::new(Counted::Share)
    }
}

impl ByRow for Rank {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let mut ranks = Vec::with_capacity(piece.rows);
        let mut starts = piece.peers.iter().copied().peekable();
        for (begins, part) in piece.parts() {
            if begins {
                (self.rows, self.before, self.peers) = (0, 0, 1);
            }
            let mut row = part.start;
            while row < part.end {
                // The first row of a partition begins its first peers.
                if starts.next_if_eq(&row).is_some() && self.rows > 0 {
                    self.before = self.rows;
                    self.peers += 1;
                }
                let end = starts.peek().map_or(part.end, |&next| next.min(part.end));
                let rank = match self.counted {
                    Counted::Peers => self.peers,
                    Counted::Rows | Counted::Share => self.before + 1,
                };
                ranks.resize(end, rank);
                self.rows += (end - row) as u64;
                row = end;
            }
        }
        let Counted::Share = self.counted else { return Ok(Arc::new(UInt64Array::from(ranks))) };
        let counts = arguments[0].as_primitive::<Int64Type>().values();
        let share = |(rank, &count): (u64, &i64)| (rank - 1) as f64 / (count - 1).max(1) as f64;
        Ok(Arc::new(Float64Array::from_iter_values(ranks.into_iter().zip(counts).map(share))))
    }
}

/// The part of all rows that do not come after the last peer.
pub(super) struct CumeDist;

impl ByRow for CumeDist {
    fn push(&mut self, arguments: &[ArrayRef], _piece: &Piece) -> Result<ArrayRef> {
        let [until, all] = [0, 1].map(|at| arguments[at].as_primitive::<Int64Type>().values());
        let share = |(&until, &all): (&i64, &i64)| until as f64 / all as f64;
        Ok(Arc::new(Float64Array::from_iter_values(until.iter().zip(all).map(share))))
    }
}

/// The group, from 1: groups are as equally large as can be, the larger ones first.
pub(super) struct Ntile {
    groups: u64,
    numbers: RowNumber,
}

impl Ntile {
    pub(super) fn new(groups: u64) -> Self {
        Self { groups, numbers: RowNumber::default() }
    }
}

impl ByRow for Ntile {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let numbers = self.numbers.push(&[], piece)?;
        let numbers = numbers.as_primitive::<UInt64Type>().values();
        let counts = arguments[0].as_primitive::<Int64Type>().values();
        let groups = numbers.iter().zip(counts);
        let groups = groups.map(|(number, &count)| ntile(number - 1, count as u64, self.groups));
        Ok(Arc::new(UInt64Array::from_iter_values(groups)))
    }
}

fn ntile(row: u64, count: u64, groups: u64) -> u64 {
    let (small, larger) = (count / groups, count % groups);
    let in_larger = larger * (small + 1);
    match row < in_larger {
        true => row / (small + 1) + 1,
        // There is a row beyond the larger groups, so the others are not empty.
        false => larger + (row - in_larger) / small + 1,
    }
}
