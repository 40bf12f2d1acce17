//! Memory of one owner: in the allocator's heap, mapped, or in a file.
//!
//! Enters: a number of bytes, to the pool of the thread ([`served`](super::served)). Leaves: bytes to be written, and once they
//! are frozen, to be read by many. A block goes back to its pool when its last reader lets it go.

use std::fs::File;
use std::panic::resume_unwind;
use std::sync::{Arc, Weak};

use arrow::buffer::{Buffer, MutableBuffer};
use memmap2::{Advice, MmapMut};

use super::mapping::Mapping;
use super::pool::Pool;
use super::served;

/// From this size on, blocks are kept: a lock is nothing beside filling so many bytes.
pub(super) const KEPT_BYTES_MIN: usize = 64 << 10;

/// From this size on, blocks are mapped in huge pages: two of them.
pub(crate) const MAPPED_BYTES_MIN: usize = 4 << 20;

/// What a block is made of.
#[derive(Debug)]
pub(super) enum Memory {
    Heap(MutableBuffer),
    Mapped(MmapMut),
    File(Mapping),
}

impl Memory {
    /// So many zeros; none where the system refuses so many.
    pub(super) fn fresh(bytes: usize) -> Option<Self> {
        if bytes < MAPPED_BYTES_MIN {
            return Some(Self::heap(bytes));
        }
        let map = MmapMut::map_anon(bytes).ok()?;
        // A hint: a system without huge pages gives small ones.
        let _ = map.advise(Advice::HugePage);
        Some(Self::Mapped(map))
    }

    fn heap(bytes: usize) -> Self {
        Self::Heap(MutableBuffer::from_len_zeroed(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Heap(buffer) => buffer,
            Memory::Mapped(map) => map,
            Memory::File(mapping) => mapping.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Heap(buffer) => buffer,
            Memory::Mapped(map) => map,
            Memory::File(mapping) => mapping.bytes_mut(),
        }
    }
}
/// Memory of one owner, aligned to 64 bytes.
#[derive(Debug)]
pub(crate) struct Block {
    /// `None` only while it is being dropped.
    memory: Option<Memory>,
    /// Bytes that were asked for.
    length: usize,
    /// Where it goes back to, if that is still there.
    home: Weak<Pool>,
    /// Whether nobody has written to it yet.
    is_zero: bool,
}

impl Block {
    /// So many bytes from the pool of this thread, zero or not; the system's where the thread has none.
    ///
    /// Where neither memory nor disk has room it unwinds with a [`Refused`]: kernels ask for memory in many places,
    /// and none of them could go on.
    pub(crate) fn new(bytes: usize) -> Self {
        Self::try_new(bytes).unwrap_or_else(|| resume_unwind(Box::new(Refused { bytes })))
    }

    /// The same in a file; none where the disk has no room, or the pool of this thread no files.
    pub(crate) fn in_file(bytes: usize) -> Option<Self> {
        served::pool()?.take_file(bytes)
    }

    /// The same; none where neither memory nor disk has room.
    pub(crate) fn try_new(bytes: usize) -> Option<Self> {
        match (served::pool(), class(bytes)) {
            (Some(pool), Some(class)) if bytes >= KEPT_BYTES_MIN => pool.take(bytes, class),
            _ => Memory::fresh(bytes).map(|memory| Self::plain(memory, bytes)),
        }
    }

    fn plain(memory: Memory, length: usize) -> Self {
        Self::of(Weak::new(), memory, length, true)
    }

    /// Memory of a pool.
    pub(super) fn of(home: Weak<Pool>, memory: Memory, length: usize, is_zero: bool) -> Self {
        Self { memory: Some(memory), length, home, is_zero }
    }

    /// The bytes that were asked for.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Forgets the bytes behind the first so many of those that were asked for.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.length = self.length.min(bytes);
    }

    /// A handle of the file that it is in.
    pub(super) fn file(&self) -> Option<File> {
        match self.memory.as_ref()? {
            Memory::File(mapping) => mapping.file().ok(),
            Memory::Heap(_) | Memory::Mapped(_) => None,
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.is_zero
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory.as_ref().expect(PRESENT).bytes()[..self.length]
    }

    /// The bytes that were asked for, never to be written again.
    pub(crate) fn frozen(mut self) -> Buffer {
        match self.memory.take() {
            Some(Memory::Heap(mut buffer)) if self.home.strong_count() == 0 => {
                buffer.truncate(self.length);
                buffer.into()
            }
            memory => {
                self.memory = memory;
                let block = Arc::new(self);
                if let Some(pool) = block.home.upgrade() {
                    pool.note_frozen(&block);
                }
                bytes::Bytes::from_owner(Frozen(block)).into()
            }
        }
    }

    /// The block that was frozen into these bytes, to be written again; the bytes themselves where somebody
    /// else reads them, where they are a part of a block, or of none that the pool of this thread keeps.
    pub(crate) fn thawed(bytes: Buffer) -> Result<Self, Buffer> {
        let Some(pool) = served::pool() else { return Err(bytes) };
        if bytes.strong_count() > 1 {
            return Err(bytes);
        }
        let address = bytes.as_ptr() as usize;
        let Some(block) = pool.thawed(address, bytes.len()) else { return Err(bytes) };
        drop(bytes);
        Ok(Arc::into_inner(block).expect("the last reader has let it go"))
    }

    pub(super) fn address(&self) -> usize {
        self.bytes().as_ptr() as usize
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut().expect(PRESENT).bytes_mut()[..self.length]
    }
}

/// What a block that nobody has room for unwinds with.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) bytes: usize,
}
/// Why a block has memory.
const PRESENT: &str = "memory leaves its block only when that is dropped";

/// A block that is read.
struct Frozen(Arc<Block>);

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Some(pool), Some(memory)) = (self.home.upgrade(), self.memory.take()) {
            pool.give_back(memory);
        }
    }
}
/// The size of the block for so many bytes: the next multiple of a quarter of a power of two. None where
/// there are not so many.
pub(super) fn class(bytes: usize) -> Option<usize> {
    let quarter = (1_usize << bytes.max(4).ilog2()) / 4;
    bytes.checked_next_multiple_of(quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_at_most_a_quarter_too_long() {
        for bytes in (1..70_000).chain([(1 << 40) - 1, 1 << 40, (1 << 40) + 1]) {
            let class = class(bytes).unwrap();
            assert!(bytes <= class && class <= bytes.max(4) / 4 * 5 + 4, "{class} for {bytes}");
        }
        assert_eq!(class(400_000_000), Some(384 << 20));
        assert_eq!(class(usize::MAX), None);
    }
}
