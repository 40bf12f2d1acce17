//! Runs of small whole numbers: the hybrid of run-length encoding and bit-packing in which levels and the
//! indices of a dictionary are written (Parquet format, Encodings, RLE).
//!
//! The bytes are the page's, which is handed in with each call.

use std::ops::Range;

use super::flaw::{Checked, Flaw};

/// What is not read yet of a sequence of runs.
pub(super) struct Runs {
    /// Where the next run begins, and all of them end.
    at: usize,
    end: usize,
    /// Bits of a number, 32 at most.
    width: usize,
    run: Run,
}

/// What is left of the run under way.
enum Run {
    Repeated { value: u32, left: usize },
    Packed { first_bit: usize, left: usize },
}

/// Some numbers of one run.
pub(super) enum Piece<'a> {
    Repeated { value: u32, count: usize },
    Packed(Packed<'a>),
}

/// Numbers written one after another, each in the same number of bits, the lowest bit first.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    bytes: &'a [u8],
    first_bit: usize,
    width: usize,
    pub(super) count: usize,
}

/// Numbers that are unpacked at once.
pub(super) const BLOCK: usize = 256;

/// Bytes that eight numbers of 32 bits are within, wherever in a byte they begin, and those that reading eight bytes at
/// once touches beyond.
const EIGHT_BYTES: usize = 40;

impl Piece<'_> {
    pub(super) fn count(&self) -> usize {
        match self {
            Piece::Repeated { count, .. } => *count,
            Piece::Packed(packed) => packed.count,
        }
    }
}

impl<'a> Packed<'a> {
    /// The number at this place.
    #[inline]
    pub(super) fn get(&self, at: usize) -> u32 {
        let bit = self.first_bit + at * self.width;
        let mask = (1_u64 << self.width) - 1;
        ((word(self.bytes, bit / 8) >> (bit % 8)) & mask) as u32
    }

    /// Every number, in order.
    #[inline]
    pub(super) fn iter(self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        (0..self.count).map(move |at| self.get(at))
    }

    /// Calls `each` with all numbers in order, [`BLOCK`] at a time, and the last of them.
    #[inline]
    pub(super) fn blocks(&self, mut each: impl FnMut(&[u32]) -> Checked<()>) -> Checked<()> {
        let mut block = [0; BLOCK];
        let mut done = 0;
        while done < self.count {
            let count = BLOCK.min(self.count - done);
            self.unpack(done, &mut block[..count]);
            each(&block[..count])?;
            done += count;
        }
        Ok(())
    }

    /// The numbers from this place on.
    fn unpack(&self, from: usize, into: &mut [u32]) {
        // Eight of them begin at the same bit of a byte as the eight before.
        let (bit, eights) = (self.first_bit + from * self.width, into.len() / 8);
        let (at, shift) = (bit / 8, bit % 8);
        let there = self.bytes.get(at..).unwrap_or_default();
        let whole = match (there.len().checked_sub(EIGHT_BYTES), self.width) {
            (None, _) | (_, 0) => 0,
            (Some(more), width) => (more / width + 1).min(eights),
        };
        let (first, rest) = into.split_at_mut(whole * 8);
        unpack_eights(self.width, there, shift, first);
        for (i, number) in rest.iter_mut().enumerate() {
            *number = self.get(from + whole * 8 + i);
        }
    }
}

/// Unpacks numbers of this width by eights, of which none reads beyond the bytes.
fn unpack_eights(width: usize, bytes: &[u8], shift: usize, into: &mut [u32]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => eights::<$width>(bytes, shift, into),)*
                _ => into.fill(0),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

fn eights<const WIDTH: usize>(bytes: &[u8], shift: usize, into: &mut [u32]) {
    let shift = shift % 8;
    let mask = (1_u64 << WIDTH) - 1;
    for (at, eight) in into.chunks_exact_mut(8).enumerate() {
        let from = bytes.get(at * WIDTH..).and_then(<[u8]>::first_chunk::<EIGHT_BYTES>);
        let Some(from) = from else { return };
        for (i, number) in eight.iter_mut().enumerate() {
            let bit = shift + i * WIDTH;
            let mut word = [0; 8];
            word.copy_from_slice(&from[bit / 8..bit / 8 + 8]);
            *number = ((u64::from_le_bytes(word) >> (bit % 8)) & mask) as u32;
        }
    }
}

/// The eight bytes from this place on, as far as there are any; the first is the lowest.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => {
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    }
}

impl Runs {
    /// Those in this part of a page.
    ///
    /// # Errors
    /// Where a number cannot have so many bits.
    pub(super) fn new(part: Range<usize>, width: usize) -> Checked<Self> {
        if width > 32 {
            return Err(Flaw::new(format!("numbers of {width} bits")));
        }
        let run = Run::Repeated { value: 0, left: 0 };
        Ok(Self { at: part.start, end: part.end, width, run })
    }

    /// Some of the next numbers, one at least and `most` at most.
    ///
    /// # Errors
    /// Where there are none any more.
    pub(super) fn next<'a>(&mut self, page: &'a [u8], most: usize) -> Checked<Piece<'a>> {
        let bytes = page.get(..self.end).ok_or_else(cut_short)?;
        while self.is_done() {
            self.run = self.next_run(bytes)?;
        }
        match &mut self.run {
            Run::Repeated { value, left } => {
                let count = most.min(*left);
                *left -= count;
                Ok(Piece::Repeated { value: *value, count })
            }
            Run::Packed { first_bit, left } => {
                let count = most.min(*left);
                let width = self.width;
                let packed = Packed { bytes, first_bit: *first_bit, width, count };
                *first_bit += count * width;
                *left -= count;
                Ok(Piece::Packed(packed))
            }
        }
    }

    /// Passes over numbers.
    ///
    /// # Errors
    /// Where there are fewer.
    pub(super) fn skip(&mut self, page: &[u8], mut count: usize) -> Checked<()> {
        while count > 0 {
            count -= self.next(page, count)?.count();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        matches!(self.run, Run::Repeated { left: 0, .. } | Run::Packed { left: 0, .. })
    }

    fn next_run(&mut self, page: &[u8]) -> Checked<Run> {
        let header = self.header(page)?;
        let count = header >> 1;
        if header & 1 == 0 {
            let bytes = self.width.div_ceil(8);
            let value = page.get(self.at..self.at + bytes).ok_or_else(cut_short)?;
            let value = value.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            self.at += bytes;
            return Ok(Run::Repeated { value, left: count });
        }
        // Some writers cut the last group where its numbers end.
        let (first_bit, there) = (self.at * 8, page.len() - self.at);
        let bytes = count.saturating_mul(self.width).min(there);
        let left = match self.width {
            0 => count.saturating_mul(8),
            width => (bytes * 8 / width).min(count.saturating_mul(8)),
        };
        self.at += bytes;
        Ok(Run::Packed { first_bit, left })
    }

    /// The number that begins a run, seven bits to a byte.
    fn header(&mut self, page: &[u8]) -> Checked<usize> {
        let mut header = 0;
        for shift in (0..35).step_by(7) {
            let byte = *page.get(self.at).ok_or_else(cut_short)?;
            self.at += 1;
            header |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(header);
            }
        }
        Err(Flaw::new("the length of a run is no number"))
    }
}

fn cut_short() -> Flaw {
    Flaw::new("a page ends before its numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without an order that could hide anything.
    fn bytes(count: usize) -> Vec<u8> {
        (0..count as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
    }

    #[test]
    fn numbers_of_every_width_are_unpacked_wherever_they_begin() {
        for width in 0..=32_usize {
            for (first, count) in [(0, 1000), (3, 257), (8, 256), (61, 700), (100, 5)] {
                // No byte beyond the last number, and some.
                for more in [0, 3, 50] {
                    let bytes = bytes(((first + count) * width).div_ceil(8) + more);
                    let packed = Packed { bytes: &bytes, first_bit: first * width, width, count };
                    let bit = |bit: usize| u32::from(bytes[bit / 8] >> (bit % 8) & 1);
                    let expected = (first..first + count).map(|at| {
                        (0..width).fold(0, |number, i| number | bit(at * width + i) << i)
                    });
                    let expected: Vec<u32> = expected.collect();
                    let mut found = Vec::new();
                    let push = |block: &[u32]| {
                        found.extend_from_slice(block);
                        Ok(())
                    };
                    packed.blocks(push).unwrap();
                    assert_eq!(found, expected, "{width} bits from {first}, {more} bytes more");
                    assert!(packed.iter().eq(expected.iter().copied()));
                }
            }
        }
    }
}
