//! Runs of small whole numbers: the hybrid of run-length encoding and bit-packing in which levels and the
//! indices of a dictionary are written (Parquet format, Encodings, RLE).

use bytes::Bytes;

use super::flaw::{Checked, Flaw};

/// What is not read yet of a sequence of runs.
pub(super) struct Runs {
    bytes: Bytes,
    /// Where the next run begins.
    at: usize,
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
pub(super) struct Packed<'a> {
    bytes: &'a [u8],
    first_bit: usize,
    width: usize,
    pub(super) count: usize,
}

impl Piece<'_> {
    pub(super) fn count(&self) -> usize {
        match self {
            Piece::Repeated { count, .. } => *count,
            Piece::Packed(packed) => packed.count,
        }
    }
}

impl Packed<'_> {
    /// Every number, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = u32> {
        let mask = (1_u64 << self.width) - 1;
        (0..self.count).map(move |i| {
            let bit = self.first_bit + i * self.width;
            ((word(self.bytes, bit / 8) >> (bit % 8)) & mask) as u32
        })
    }
}

/// The eight bytes from this place on, as far as there are any; the first is the lowest.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
        None => {
            let mut eight = [0; 8];
            let rest = bytes.get(at..).unwrap_or_default();
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(eight)
        }
    }
}

impl Runs {
    /// # Errors
    /// Where a number cannot have so many bits.
    pub(super) fn new(bytes: Bytes, width: usize) -> Checked<Self> {
        if width > 32 {
            return Err(Flaw::new(format!("numbers of {width} bits")));
        }
        Ok(Self { bytes, at: 0, width, run: Run::Repeated { value: 0, left: 0 } })
    }

    /// Some of the next numbers, one at least and `most` at most.
    ///
    /// # Errors
    /// Where there are none any more.
    pub(super) fn next(&mut self, most: usize) -> Checked<Piece<'_>> {
        while self.is_done() {
            self.run = self.next_run()?;
        }
        match &mut self.run {
            Run::Repeated { value, left } => {
                let count = most.min(*left);
                *left -= count;
                Ok(Piece::Repeated { value: *value, count })
            }
            Run::Packed { first_bit, left } => {
                let count = most.min(*left);
                let (bytes, width) = (&self.bytes[..], self.width);
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
    pub(super) fn skip(&mut self, mut count: usize) -> Checked<()> {
        while count > 0 {
            count -= self.next(count)?.count();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        matches!(self.run, Run::Repeated { left: 0, .. } | Run::Packed { left: 0, .. })
    }

    fn next_run(&mut self) -> Checked<Run> {
        let header = self.header()?;
        let count = header >> 1;
        if header & 1 == 0 {
            let bytes = self.width.div_ceil(8);
            let value = self.bytes.get(self.at..self.at + bytes).ok_or_else(cut_short)?;
            let value = value.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            self.at += bytes;
            return Ok(Run::Repeated { value, left: count });
        }
        // Some writers cut the last group where its numbers end.
        let (first_bit, there) = (self.at * 8, self.bytes.len() - self.at);
        let bytes = count.saturating_mul(self.width).min(there);
        let left = match self.width {
            0 => count.saturating_mul(8),
            width => (bytes * 8 / width).min(count.saturating_mul(8)),
        };
        self.at += bytes;
        Ok(Run::Packed { first_bit, left })
    }

    /// The number that begins a run, seven bits to a byte.
    fn header(&mut self) -> Checked<usize> {
        let mut header = 0;
        for shift in (0..35).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(cut_short)?;
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
