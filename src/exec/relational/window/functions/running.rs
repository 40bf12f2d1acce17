//! Functions of frames that begin with the partition: asked for their values at the ends of rows, peers or partitions.

use std::ops::Range;

use arrow::array::ArrayRef;
use datafusion::common::Result;

use super::ByRow;
use super::measures::Measure;

/// Rows that follow one another.
pub(in super::super) struct Piece<'a> {
    pub(in super::super) rows: usize,
    /// Where partitions begin, and where peers do.
    pub(in super::super) partitions: &'a [usize],
    pub(in super::super) peers: &'a [usize],
    /// Whether no row follows.
    pub(in super::super) is_last: bool,
}

impl Piece<'_> {
    /// The rows of each partition, first those of the one that has begun before, of which there may be none; and
    /// whether they begin it.
    pub(super) fn parts(&self) -> impl Iterator<Item = (bool, Range<usize>)> {
        let starts = self.partitions.iter().map(|&start| (true, start));
        let ends = self.partitions.iter().copied().chain([self.rows]);
        let parts = std::iter::once((false, 0)).chain(starts).zip(ends);
        parts.map(|((begins, start), end)| (begins, start..end))
    }
}

/// The rows after which a value is asked for.
#[derive(Clone, Copy)]
pub(in super::super) enum Ends<'a> {
    Every,
    /// After so many rows; where a partition begins, that of the one before.
    After(&'a [usize]),
}

/// A function of the rows from the first of a partition on, on its way through the rows.
pub(in super::super) trait Running: Send {
    /// The values at the ends, in their order.
    ///
    /// # Errors
    /// Where a value leaves its type, and those of Arrow.
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece, ends: Ends) -> Result<ArrayRef>;
}

/// A running function of each row.
pub(super) struct EachRow(pub(super) Box<dyn Running>);

impl ByRow for EachRow {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        self.0.push(arguments, piece, Ends::Every)
    }
}

/// A measure of the rows so far.
pub(super) struct Folded<M: Measure> {
    measure: M,
    state: M::State,
}

impl<M: Measure> Folded<M> {
    pub(super) fn new(measure: M) -> Self {
        Self { state: M::State::default(), measure }
    }
}

impl<M: Measure> Running for Folded<M> {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece, ends: Ends) -> Result<ArrayRef> {
        let column = self.measure.column(arguments)?;
        let with = |state, row| M::joined(state, M::of(&column, row));
        // Not in `self`, where each row would write it to memory.
        let mut state = self.state;
        let mut states = Vec::new();
        match ends {
            Ends::Every => {
                states.reserve(piece.rows);
                for (begins, part) in piece.parts() {
                    if begins {
                        state = M::State::default();
                    }
                    states.extend(part.map(|row| {
                        state = with(state, row);
                        state
                    }));
                }
            }
            Ends::After(ends) => {
                states.reserve(ends.len());
                let mut ends = ends.iter().copied().peekable();
                for (begins, part) in piece.parts() {
                    if begins {
                        state = M::State::default();
                    }
                    let mut row = part.start;
                    while let Some(end) = ends.next_if(|&end| end <= part.end) {
                        state = (row..end).fold(state, with);
                        states.push(state);
                        row = end;
                    }
                    state = (row..part.end).fold(state, with);
                }
            }
        }
        self.state = state;
        self.measure.values(&states)
    }
}
