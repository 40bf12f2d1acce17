//! Memory for cells that are being written. Frozen, they are shared and never change.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;
use bytemuck::Pod;
use memmap2::{Advice, MmapMut};

/// From this size on, cells are mapped in huge pages: two of them.
const MAPPED_BYTES_MIN: usize = 4 << 20;

/// Fresh cells, all zero, that one owner writes before they become a matrix.
///
/// Many of them are mapped straight from the operating system, in huge pages where it has them: a page
/// fault for every 4 KiB costs more than a fused loop needs to fill them.
///
/// ```
/// use relatrix::matrix::{CellBuffer, Dense, Shape};
/// let mut cells = CellBuffer::zeroed(4);
/// cells[3] = 1.0;
/// let x = Dense::<f64>::new(Shape::new(2, 2), cells.into());
/// assert_eq!(x.row(1), [0.0, 1.0]);
/// ```
#[derive(Debug)]
pub struct CellBuffer<T>(Memory<T>);

#[derive(Debug)]
enum Memory<T> {
    Heap(Vec<T>),
    /// As many bytes as there are cells; a mapping begins at a page, so cells are aligned.
    Mapped(MmapMut, PhantomData<T>),
}

impl<T: Pod> CellBuffer<T> {
    /// So many zeros.
    ///
    /// ```
    /// let cells = relatrix::matrix::CellBuffer::<f32>::zeroed(3);
    /// assert_eq!(*cells, [0.0; 3]);
    /// ```
    pub fn zeroed(cells: usize) -> Self {
        Self::mapped(cells).unwrap_or_else(|| Self(Memory::Heap(vec![T::zeroed(); cells])))
    }

    /// So many zeros, of which only those that are written take memory: none where they are too few for that
    /// or where the system refuses so many, as it does what a damaged file may claim to hold.
    pub(crate) fn mapped(cells: usize) -> Option<Self> {
        let bytes = cells.checked_mul(size_of::<T>()).filter(|bytes| *bytes >= MAPPED_BYTES_MIN)?;
        let map = MmapMut::map_anon(bytes).ok()?;
        // A hint: a system without huge pages gives small ones.
        let _ = map.advise(Advice::HugePage);
        Some(Self(Memory::Mapped(map, PhantomData)))
    }
}

impl<T: Pod> Deref for CellBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Memory::Heap(cells) => cells,
            Memory::Mapped(map, _) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> DerefMut for CellBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Memory::Heap(cells) => cells,
            Memory::Mapped(map, _) => bytemuck::cast_slice_mut(map),
        }
    }
}

impl<T: Pod + ArrowNativeType> From<CellBuffer<T>> for ScalarBuffer<T> {
    fn from(cells: CellBuffer<T>) -> Self {
        match cells.0 {
            Memory::Heap(cells) => cells.into(),
            Memory::Mapped(map, _) => Buffer::from(bytes::Bytes::from_owner(map)).into(),
        }
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
}
