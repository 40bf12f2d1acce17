//! Zeros that are read and written in no order.
//!
//! Many of them are mapped in huge pages: where a processor remembers the places of two thousand pages, each look at memory
//! beyond so many asks for its place as well, and of small ones there are five hundred times as many.

use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::{Advice, MmapMut};

use crate::memory::MAPPED_BYTES_MIN;

/// Numbers that are zero at first.
#[derive(Debug)]
pub(super) struct Zeros<T>(Memory<T>);

#[derive(Debug)]
enum Memory<T> {
    Heap(Vec<T>),
    Mapped(MmapMut),
}

impl<T: Pod> Zeros<T> {
    pub(super) fn new(count: usize) -> Self {
        let bytes = count.saturating_mul(size_of::<T>());
        let map = (bytes >= MAPPED_BYTES_MIN).then(|| MmapMut::map_anon(bytes));
        match map {
            Some(Ok(map)) => {
                // A hint: a system without huge pages gives small ones.
                let _ = map.advise(Advice::HugePage);
                Self(Memory::Mapped(map))
            }
            _ => Self(Memory::Heap(vec![T::zeroed(); count])),
        }
    }
}

impl<T: Pod> Deref for Zeros<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Memory::Heap(numbers) => numbers,
            Memory::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> DerefMut for Zeros<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Memory::Heap(numbers) => numbers,
            Memory::Mapped(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_zero_and_written() {
        for count in [0, 1, 1000, MAPPED_BYTES_MIN / 8 - 1, MAPPED_BYTES_MIN / 8 + 3] {
            let mut zeros = Zeros::<u64>::new(count);
            assert!(zeros.len() == count && zeros.iter().all(|&number| number == 0));
            zeros.iter_mut().zip(1..).for_each(|(number, at)| *number = at);
            assert!(zeros.iter().copied().eq(1..=count as u64));
        }
    }
}
