//! Bytes that are held in less memory than they are.
//!
//! Enters: numbers of one width. Leaves: the same, once somebody wants them. Pages are compressed by themselves, each with
//! the first bytes of all its numbers before the second ones: signs and exponents lie together then, and so do the zeros
//! of numbers that are whole (the shuffle of Alted, *Why modern CPUs are starving and what can be done about it*,
//! Computing in Science & Engineering 12, 2010).

use super::codec::{compressed, decompressed};
use crate::config::Compression;

/// Bytes of a page before compression.
const PAGE_BYTES: usize = 256 << 10;

/// Pages that are tried before all are packed.
const TRIED: usize = 8;

/// Numbers that take more than this share of their bytes stay as they are.
const SHARE_MAX: f64 = 0.75;

/// Bytes that are held compressed.
#[derive(Debug)]
pub(crate) struct Packed {
    pages: Vec<Page>,
    bytes: usize,
    width: usize,
    compression: Compression,
}

#[derive(Debug)]
enum Page {
    Smaller(Box<[u8]>),
    AsItWas(Box<[u8]>),
}

impl Page {
    fn of(bytes: &[u8], width: usize, compression: Compression) -> Self {
        match compressed(compression, &shuffled(bytes, width)) {
            Ok(Some(smaller)) => Self::Smaller(smaller.into()),
            Ok(None) | Err(_) => Self::AsItWas(bytes.into()),
        }
    }

    fn size_bytes(&self) -> usize {
        let (Self::Smaller(bytes) | Self::AsItWas(bytes)) = self;
        bytes.len()
    }
}

impl Packed {
    /// Numbers of so many bytes each; none where they would hardly take less memory.
    pub(crate) fn of(bytes: &[u8], width: usize, compression: Compression) -> Option<Self> {
        let pages: Vec<&[u8]> = bytes.chunks(PAGE_BYTES).collect();
        let page = |bytes: &&[u8]| Page::of(bytes, width, compression);
        let is_worth_it = |pages: &[Page], of: &[&[u8]]| {
            let packed: usize = pages.iter().map(Page::size_bytes).sum();
            let whole: usize = of.iter().map(|bytes| bytes.len()).sum();
            packed as f64 <= whole as f64 * SHARE_MAX
        };
        let tried: Vec<&[u8]> =
            pages.iter().step_by(pages.len().div_ceil(TRIED).max(1)).copied().collect();
        if !is_worth_it(&tried.iter().map(page).collect::<Vec<_>>(), &tried) {
            return None;
        }
        let packed: Vec<Page> = pages.iter().map(page).collect();
        let is_small = is_worth_it(&packed, &pages);
        is_small.then_some(Self { pages: packed, bytes: bytes.len(), width, compression })
    }

    /// Bytes that are taken.
    pub(crate) fn size_bytes(&self) -> usize {
        self.pages.iter().map(|page| page.size_bytes() + size_of::<Page>()).sum()
    }

    /// Bytes that there are once they are unpacked.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the bytes to where there is room for them and no more; none where there is not.
    pub(crate) fn unpack(&self, into: &mut [u8]) -> Option<()> {
        if into.len() != self.bytes {
            return None;
        }
        let mut page_bytes = vec![0; PAGE_BYTES.min(self.bytes)];
        for (page, into) in self.pages.iter().zip(into.chunks_mut(PAGE_BYTES)) {
            match page {
                Page::AsItWas(bytes) => into.copy_from_slice(bytes),
                Page::Smaller(bytes) => {
                    let page_bytes = &mut page_bytes[..into.len()];
                    let read = decompressed(self.compression, bytes, page_bytes).ok()?;
                    if read != into.len() {
                        return None;
                    }
                    unshuffle(page_bytes, self.width, into);
                }
            }
        }
        Some(())
    }
}

/// The first bytes of all numbers, then the second ones, and so on; what is left over comes last.
fn shuffled(bytes: &[u8], width: usize) -> Vec<u8> {
    let (numbers, rest) = bytes.split_at(bytes.len() - bytes.len() % width);
    let count = numbers.len() / width;
    let mut shuffled = vec![0; bytes.len()];
    for (at, number) in numbers.chunks_exact(width).enumerate() {
        for (byte, value) in number.iter().enumerate() {
            shuffled[byte * count + at] = *value;
        }
    }
    shuffled[numbers.len()..].copy_from_slice(rest);
    shuffled
}

/// The way back from [`shuffled`].
fn unshuffle(shuffled: &[u8], width: usize, into: &mut [u8]) {
    let (bytes, rest) = shuffled.split_at(shuffled.len() - shuffled.len() % width);
    let count = bytes.len() / width;
    let (numbers, last) = into.split_at_mut(bytes.len());
    for (at, number) in numbers.chunks_exact_mut(width).enumerate() {
        for (byte, value) in number.iter_mut().enumerate() {
            *value = bytes[byte * count + at];
        }
    }
    last.copy_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const METHODS: [Compression; 2] = [Compression::Lz4, Compression::Zstd(3)];

    fn unpacked(packed: &Packed) -> Vec<u8> {
        let mut bytes = vec![1; packed.bytes()];
        packed.unpack(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn whole_numbers_take_less_and_come_back_as_they_were() {
        for numbers in [1, 100, PAGE_BYTES / 8, PAGE_BYTES / 8 + 1, 1_000_003] {
            let cells: Vec<f64> = (0..numbers).map(|at| (at % 1000) as f64).collect();
            let bytes: &[u8] = bytemuck::cast_slice(&cells);
            for method in METHODS {
                let packed = Packed::of(bytes, 8, method);
                // Few bytes do not get fewer.
                assert!(packed.is_some() || numbers == 1);
                let Some(packed) = packed else { continue };
                assert!(packed.size_bytes() * 2 < bytes.len() + 1000, "{}", packed.size_bytes());
                assert_eq!(unpacked(&packed), bytes);
                assert!(packed.unpack(&mut vec![0; bytes.len() + 1]).is_none());
                assert!(packed.unpack(&mut vec![0; bytes.len() - 1]).is_none());
            }
        }
    }

    #[test]
    fn chance_stays_as_it_is() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut bytes: Vec<u8> = (0..10 * PAGE_BYTES).map(|_| random.random()).collect();
        for method in METHODS {
            assert!(Packed::of(&bytes, 4, method).is_none());
        }
        assert!(Packed::of(&[], 4, Compression::None).is_none_or(|packed| packed.bytes() == 0));
        // Half of it: pages that do not get smaller lie among those that do.
        bytes[..5 * PAGE_BYTES].fill(7);
        let packed = Packed::of(&bytes, 4, Compression::Lz4).unwrap();
        assert_eq!(unpacked(&packed), bytes);
        assert!(Packed::of(&bytes, 4, Compression::None).is_none());
    }

    #[test]
    fn numbers_are_taken_apart_and_put_together() {
        for (length, width) in [(0, 8), (7, 8), (8, 8), (9, 4), (24, 8), (31, 4)] {
            let bytes: Vec<u8> = (0..length).collect();
            let apart = shuffled(&bytes, width);
            let mut together = vec![0; bytes.len()];
            unshuffle(&apart, width, &mut together);
            assert_eq!(together, bytes);
        }
        assert_eq!(shuffled(&[1, 2, 3, 4, 5, 6, 7], 3), [1, 4, 2, 5, 3, 6, 7]);
    }
}
