//! A measure of frames whose ends both move forward: nothing is taken back, which would cost digits.
//!
//! Rows that enter make up the open piece, and pieces of so many rows are closed. Once the first row of a frame lies beyond the
//! front, the piece that it is in becomes the front: of that the measures of all its ends are made. Where it is a closed one, its
//! rows are given again, so that no more than two pieces are held row by row.
//!
//! ```text
//! rows      a b c d e│f g h i│j k l m│n o
//! frame         [c  d e│f  …        m│n o]       (c d e) + (f … m) + (n o): an end of the front, closed pieces, the open one
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use arrow::array::ArrayRef;
use datafusion::common::Result;

use super::measures::Measure;

/// A function of frames, on its way through the rows. Who calls knows where those lie.
pub(in super::super) trait Spanning: Send {
    /// Takes the arguments of rows that may enter.
    ///
    /// # Errors
    /// Those of Arrow.
    fn look(&mut self, arguments: &[ArrayRef]) -> Result<()>;

    /// Adds some of those rows to the open piece.
    fn enter(&mut self, rows: Range<usize>);

    /// Closes the open piece.
    fn close(&mut self);

    /// Forgets so many of the first rows of the front.
    fn leave(&mut self, rows: usize);

    /// Makes the open piece the front, but for so many of its first rows; closed pieces are forgotten.
    fn turn(&mut self, rows: usize);

    /// Makes the last rows of one of the closed pieces the front; those before it are forgotten.
    ///
    /// # Errors
    /// Those of Arrow.
    fn reopen(&mut self, piece: usize, arguments: &[ArrayRef], rows: Range<usize>) -> Result<()>;

    /// Makes a value of the rows that have entered and have not left.
    fn give(&mut self);

    /// The values that were made since the last call.
    ///
    /// # Errors
    /// Where one leaves its type.
    fn values(&mut self) -> Result<ArrayRef>;
}

/// A measure of each frame.
pub(super) struct Spanned<M: Measure> {
    measure: M,
    column: Option<M::Column>,
    /// From each row of the front to its end, the last row first.
    front: Vec<M::State>,
    /// The closed pieces, and all of them.
    closed: VecDeque<M::State>,
    middle: M::State,
    /// Of the open piece each row by itself, and all of them.
    open: Vec<M::State>,
    whole: M::State,
    frames: Vec<M::State>,
}

impl<M: Measure> Spanned<M> {
    pub(super) fn new(measure: M) -> Self {
        Self {
            measure,
            column: None,
            front: Vec::new(),
            closed: VecDeque::new(),
            middle: M::State::default(),
            open: Vec::new(),
            whole: M::State::default(),
            frames: Vec::new(),
        }
    }
}

impl<M: Measure> Spanning for Spanned<M> {
    fn look(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        self.column = Some(self.measure.column(arguments)?);
        Ok(())
    }

    fn enter(&mut self, rows: Range<usize>) {
        let column = self.column.as_ref().expect("rows are looked at before they enter");
        for row in rows {
            let state = M::of(column, row);
            self.whole = M::joined(self.whole, state);
            self.open.push(state);
        }
    }

    fn close(&mut self) {
        self.open.clear();
        let whole = std::mem::take(&mut self.whole);
        self.closed.push_back(whole);
        self.middle = M::joined(self.middle, whole);
    }

    fn leave(&mut self, rows: usize) {
        self.front.truncate(self.front.len() - rows);
    }

    fn turn(&mut self, rows: usize) {
        put_ends::<M>(&mut self.front, self.open.drain(rows..).rev());
        self.open.clear();
        self.whole = M::State::default();
        self.closed.clear();
        self.middle = M::State::default();
    }

    fn reopen(&mut self, piece: usize, arguments: &[ArrayRef], rows: Range<usize>) -> Result<()> {
        let column = self.measure.column(arguments)?;
        put_ends::<M>(&mut self.front, rows.rev().map(|row| M::of(&column, row)));
        self.closed.drain(..=piece);
        self.middle = self.closed.iter().copied().fold(M::State::default(), M::joined);
        Ok(())
    }

    fn give(&mut self) {
        let front = self.front.last().copied().unwrap_or_default();
        self.frames.push(M::joined(M::joined(front, self.middle), self.whole));
    }

    fn values(&mut self) -> Result<ArrayRef> {
        let values = self.measure.values(&self.frames);
        self.frames.clear();
        values
    }
}

/// Puts down all ends of some rows, of which each comes by itself, the last one first.
fn put_ends<M: Measure>(ends: &mut Vec<M::State>, rows: impl Iterator<Item = M::State>) {
    ends.clear();
    let mut end = M::State::default();
    ends.extend(rows.map(|row| {
        end = M::joined(row, end);
        end
    }));
}
