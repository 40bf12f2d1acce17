//! Memory for cells that are being written. Frozen, they are shared and never change.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use arrow::buffer::ScalarBuffer;
use arrow::datatypes::ArrowNativeType;
use bytemuck::Pod;

use crate::memory::{self, Block, MAPPED_BYTES_MIN};

/// Cells that one owner writes before they become a matrix, aligned to 64 bytes.
///
/// On the threads of a database their memory is one of its kept blocks, and goes back there when the last
/// reader of the matrix lets it go.
///
/// ```
/// use relatrix::matrix::{CellBuffer, Dense, Shape};
/// let mut cells = CellBuffer::zeroed(4);
/// cells[3] = 1.0;
/// let x = Dense::<f64>::new(Shape::new(2, 2), cells.into());
/// assert_eq!(x.row(1), [0.0, 1.0]);
/// ```
#[derive(Debug)]
pub struct CellBuffer<T> {
    block: Block,
    cells: PhantomData<T>,
}

impl<T: Pod> CellBuffer<T> {
    /// So many zeros.
    ///
    /// ```
    /// let cells = relatrix::matrix::CellBuffer::<f32>::zeroed(3);
    /// assert_eq!(*cells, [0.0; 3]);
    /// ```
    pub fn zeroed(cells: usize) -> Self {
        let mut block = Block::new(Self::bytes(cells));
        if !block.is_zero() {
            block.bytes_mut().fill(0);
        }
        Self { block, cells: PhantomData }
    }

    /// So many cells of any value, for whoever writes every one of them: filling them with zeros first may
    /// take as long as that.
    ///
    /// ```
    /// let mut cells = relatrix::matrix::CellBuffer::<f64>::arbitrary(3);
    /// cells.copy_from_slice(&[1.0, 2.0, 3.0]);
    /// assert_eq!(cells[2], 3.0);
    /// ```
    pub fn arbitrary(cells: usize) -> Self {
        let block = Block::new(Self::bytes(cells));
        Self { block, cells: PhantomData }.poisoned()
    }

    /// The same, of which only those that are written take memory: none where they are too few for that or
    /// where the system refuses so many, as it does what a damaged file may claim to hold.
    pub(crate) fn mapped(cells: usize) -> Option<Self> {
        let bytes = cells.checked_mul(size_of::<T>()).filter(|bytes| *bytes >= MAPPED_BYTES_MIN)?;
        Some(Self { block: Block::try_new(bytes)?, cells: PhantomData })
    }

    /// So many zeros in a file; none where the disk has no room for them.
    pub(crate) fn in_file(cells: usize) -> Option<Self> {
        Some(Self { block: Block::in_file(Self::bytes(cells))?, cells: PhantomData })
    }

    /// The cells of a matrix, to be written again: by its last reader alone, for anybody else they stay.
    pub(crate) fn thawed(cells: ScalarBuffer<T>) -> Result<Self, ScalarBuffer<T>>
    where
        T: ArrowNativeType,
    {
        let block = Block::thawed(cells.into_inner()).map_err(ScalarBuffer::from)?;
        Ok(Self { block, cells: PhantomData })
    }

    /// The first so many cells; where they are few, in memory that is theirs alone.
    pub(crate) fn truncated(mut self, cells: usize) -> Self {
        if cells >= self.len() / 2 {
            self.block.truncate(Self::bytes(cells));
            return self;
        }
        let mut few = Self::arbitrary(cells);
        few.copy_from_slice(&self[..cells]);
        few
    }

    fn bytes(cells: usize) -> usize {
        cells
            .checked_mul(size_of::<T>())
            .expect("a matrix has fewer bytes than there are addresses")
    }

    /// Every bit one, a `NaN` of either size, where the pool is to show who reads before writing.
    fn poisoned(mut self) -> Self {
        if memory::poisons() {
            self.block.bytes_mut().fill(u8::MAX);
        }
        self
    }
}

impl<T: Pod> Deref for CellBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.block.bytes())
    }
}

impl<T: Pod> DerefMut for CellBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.block.bytes_mut())
    }
}

impl<T: Pod + ArrowNativeType> From<CellBuffer<T>> for ScalarBuffer<T> {
    fn from(cells: CellBuffer<T>) -> Self {
        cells.block.frozen().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_zero_then_written_then_shared_whatever_their_number() {
        for cells in [0, 1, 1000, MAPPED_BYTES_MIN / 8 - 1, MAPPED_BYTES_MIN / 8, 1 << 20] {
            let mut buffer = CellBuffer::<f64>::zeroed(cells);
            assert_eq!(buffer.len(), cells);
            assert!(buffer.iter().all(|&cell| cell == 0.0));
            buffer.iter_mut().enumerate().for_each(|(at, cell)| *cell = at as f64);
            let shared = ScalarBuffer::<f64>::from(buffer);
            let tail = shared.slice(cells / 2, cells - cells / 2);
            drop(shared);
            assert!(tail.iter().enumerate().all(|(at, &cell)| cell == (cells / 2 + at) as f64));
        }
    }

    #[test]
    fn the_first_cells_stay_whatever_their_number() {
        for cells in [0, 1, 1000, MAPPED_BYTES_MIN / 8 + 1] {
            for kept in [0, cells / 3, cells / 2, cells] {
                let mut buffer = CellBuffer::<f64>::zeroed(cells);
                buffer.iter_mut().enumerate().for_each(|(at, cell)| *cell = at as f64);
                let shared = ScalarBuffer::<f64>::from(buffer.truncated(kept));
                assert_eq!(shared.len(), kept);
                assert!(shared.iter().enumerate().all(|(at, &cell)| cell == at as f64));
            }
        }
    }
}
