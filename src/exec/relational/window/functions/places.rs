//! `first_value`, `last_value` and `nth_value`: the value of one row of the frame. And that of a row's first peer.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array, new_null_array};
use arrow::compute::{concat, interleave};
use arrow::datatypes::DataType;
use datafusion::common::Result;

use super::ByRow;
use super::running::{Ends, Piece, Running};

/// Where a value is: in this batch, kept of those before, or nowhere.
const HERE: usize = 0;
const KEPT: usize = 1;
const NOWHERE: usize = 2;

/// A row of its own, for a slice would hold the whole batch.
fn single(values: &ArrayRef, row: usize) -> Result<ArrayRef> {
    Ok(concat(&[&values.slice(row, 1)])?)
}

/// The places at the ends of each part, which `place` tells of its start, whether it begins a partition, and its end.
fn at_ends(
    piece: &Piece,
    ends: Ends,
    mut place: impl FnMut(bool, usize, usize) -> (usize, usize),
) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    match ends {
        Ends::Every => {
            for (begins, part) in piece.parts() {
                places.extend(part.clone().map(|row| place(begins, part.start, row + 1)));
            }
        }
        Ends::After(ends) => {
            let mut ends = ends.iter().copied().peekable();
            for (begins, part) in piece.parts() {
                while let Some(end) = ends.next_if(|&end| end <= part.end) {
                    places.push(place(begins, part.start, end));
                }
            }
        }
    }
    places
}

/// The value of a row that is counted from the first of the partition.
pub(super) struct Nth {
    /// Rows before it.
    before: usize,
    null: ArrayRef,
    /// The value, where the open partition has it; and how many rows that has so far.
    kept: Option<ArrayRef>,
    rows: usize,
}

impl Nth {
    pub(super) fn new(n: usize, data_type: &DataType) -> Self {
        let null = new_null_array(data_type, 1);
        Self { before: n - 1, null, kept: None, rows: 0 }
    }
}

impl Running for Nth {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece, ends: Ends) -> Result<ArrayRef> {
        let values = &arguments[0];
        let (before, rows, is_kept) = (self.before, self.rows, self.kept.is_some());
        let places = at_ends(piece, ends, |begins, start, end| {
            if !begins && is_kept {
                return (KEPT, 0);
            }
            let row = start + before - if begins { 0 } else { rows };
            if row < end { (HERE, row) } else { (NOWHERE, 0) }
        });
        let kept = self.kept.as_ref().unwrap_or(&self.null);
        let column = interleave(&[values, kept, &self.null], &places)?;
        if let Some((begins, part)) = piece.parts().last() {
            if begins {
                (self.kept, self.rows) = (None, 0);
            }
            let until = self.rows + part.len();
            if self.kept.is_none() && until > before {
                self.kept = Some(single(values, part.start + before - self.rows)?);
            }
            self.rows = until;
        }
        Ok(column)
    }
}

/// The value of the last row.
pub(super) struct Last {
    null: ArrayRef,
    kept: Option<ArrayRef>,
}

impl Last {
    pub(super) fn new(data_type: &DataType) -> Self {
        Self { null: new_null_array(data_type, 1), kept: None }
    }
}

impl Running for Last {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece, ends: Ends) -> Result<ArrayRef> {
        let values = &arguments[0];
        let column = match ends {
            Ends::Every => Arc::clone(values),
            Ends::After([]) => new_empty_array(values.data_type()),
            Ends::After(_) => {
                let places = at_ends(piece, ends, |_, _, end| match end {
                    0 => (KEPT, 0),
                    end => (HERE, end - 1),
                });
                interleave(&[values, self.kept.as_ref().unwrap_or(&self.null)], &places)?
            }
        };
        if piece.rows > 0 {
            self.kept = Some(single(values, piece.rows - 1)?);
        }
        Ok(column)
    }
}

/// The value of the first of a row's peers.
#[derive(Default)]
pub(super) struct FirstPeer {
    /// That of the peers that have begun before.
    kept: Option<ArrayRef>,
}

impl ByRow for FirstPeer {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let values = &arguments[0];
        let kept = self.kept.take().unwrap_or_else(|| new_null_array(values.data_type(), 1));
        let mut places = vec![(KEPT, 0); piece.peers.first().copied().unwrap_or(piece.rows)];
        let ends = piece.peers.iter().skip(1).copied().chain([piece.rows]);
        for (&start, end) in piece.peers.iter().zip(ends) {
            places.resize(end, (HERE, start));
        }
        let column = interleave(&[values, &kept], &places)?;
        self.kept = Some(match piece.peers.last() {
            Some(&last) => single(values, last)?,
            None => kept,
        });
        Ok(column)
    }
}
