//! A measure of so many rows before and after each: nothing is taken back, which would cost digits.
//!
//! Rows of a partition are cut into blocks as long as a frame, so a frame is the end of one block and the beginning of
//! the next; of each block the measures of all its ends are made once it is whole.
//!
//! ```text
//! rows      a b c d│e f g h│i j        frames of 4
//! frame         [c  d│e f]             (c d) + (e f): an end of the block before, and the block so far
//! ```

use arrow::array::ArrayRef;
use datafusion::common::Result;

use super::ByRow;
use super::measures::Measure;
use super::running::Piece;

/// A measure of each row's frame.
pub(super) struct Sliding<M: Measure> {
    measure: M,
    /// Rows of a frame before its own row, and after.
    before: usize,
    after: usize,
    /// Rows of the open partition, and those that have their values.
    rows: usize,
    given: usize,
    /// Of the open block each row by itself, and all of them.
    block: Vec<M::State>,
    whole: M::State,
    /// Of the block before, from each row to its end.
    ends: Vec<M::State>,
}

impl<M: Measure> Sliding<M> {
    pub(super) fn new(measure: M, before: usize, after: usize) -> Self {
        Self {
            measure,
            before,
            after,
            rows: 0,
            given: 0,
            block: Vec::new(),
            whole: M::State::default(),
            ends: Vec::new(),
        }
    }

    fn width(&self) -> usize {
        self.before + 1 + self.after
    }

    fn add(&mut self, state: M::State) {
        if self.block.len() == self.width() {
            self.close_block();
        }
        self.block.push(state);
        self.whole = M::joined(self.whole, state);
        self.rows += 1;
    }

    /// The block becomes the one before.
    fn close_block(&mut self) {
        std::mem::swap(&mut self.ends, &mut self.block);
        self.block.clear();
        self.whole = M::State::default();
        let mut end = M::State::default();
        for state in self.ends.iter_mut().rev() {
            end = M::joined(*state, end);
            *state = end;
        }
    }

    /// The frame of the next row, which ends with the last row so far and does not begin within the open block.
    fn frame(&mut self) -> M::State {
        let first = self.given.saturating_sub(self.before);
        self.given += 1;
        let block = self.rows - self.block.len();
        match first < block {
            true => M::joined(self.ends[first + self.ends.len() - block], self.whole),
            false => self.whole,
        }
    }

    /// The frames of the last rows, which end with the partition.
    fn close(&mut self, frames: &mut Vec<M::State>) {
        let block = self.rows - self.block.len();
        while self.given < self.rows && self.given.saturating_sub(self.before) <= block {
            frames.push(self.frame());
        }
        self.close_block();
        let rest = self.given..self.rows;
        frames.extend(rest.map(|row| self.ends[row - self.before - block]));
        self.ends.clear();
        (self.rows, self.given) = (0, 0);
    }
}

impl<M: Measure> ByRow for Sliding<M> {
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef> {
        let column = self.measure.column(arguments)?;
        let mut frames = Vec::with_capacity(piece.rows + self.after);
        for (begins, part) in piece.parts() {
            if begins {
                self.close(&mut frames);
            }
            for row in part {
                self.add(M::of(&column, row));
                if self.rows > self.after {
                    frames.push(self.frame());
                }
            }
        }
        if piece.is_last {
            self.close(&mut frames);
        }
        self.measure.values(&frames)
    }
}
