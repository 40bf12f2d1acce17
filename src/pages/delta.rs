//! Whole numbers as differences, bit-packed in blocks (Parquet format, Encodings, DELTA_BINARY_PACKED).
//!
//! ```text
//! header   numbers of a block, parts of a block, count, first number
//! block    least difference, the bits of each part, then its differences less the least
//! ```

use super::flaw::{Checked, Flaw};

/// All numbers of a page, in two's complement of 64 bits.
///
/// # Errors
/// Where the page says that they are more than `most`, ends before them, or is made of parts that no
/// writer may make.
pub(super) fn numbers(bytes: &[u8], most: usize) -> Checked<Vec<u64>> {
    let mut rest = Rest { bytes, at: 0 };
    let (block, parts, count) = (rest.size()?, rest.size()?, rest.size()?);
    if parts == 0 || block == 0 || block % parts != 0 || !(block / parts).is_multiple_of(32) {
        return Err(Flaw::new(format!("blocks of {block} numbers in {parts} parts")));
    }
    if count > most {
        return Err(Flaw::new(format!("{count} numbers in a page of {most}")));
    }
    let mut last = rest.signed()?;
    let mut numbers = Vec::with_capacity(count.min(bytes.len().saturating_mul(8)));
    if count > 0 {
        numbers.push(last);
    }
    while numbers.len() < count {
        let least = rest.signed()?;
        let widths = rest.take(parts)?;
        for &width in widths {
            // The parts after the last number are not written.
            if numbers.len() == count {
                break;
            }
            let width = usize::from(width);
            if width > 64 {
                return Err(Flaw::new(format!("differences of {width} bits")));
            }
            let in_part = block / parts;
            let packed = rest.take((in_part / 8).saturating_mul(width))?;
            for i in 0..in_part.min(count - numbers.len()) {
                last = last.wrapping_add(least).wrapping_add(bits(packed, i * width, width));
                numbers.push(last);
            }
        }
    }
    Ok(numbers)
}

/// The number in these bits, the lowest first.
fn bits(bytes: &[u8], first: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let there = bytes.len().min(first / 8 + 16);
    let mut sixteen = [0; 16];
    sixteen[..there - first / 8].copy_from_slice(&bytes[first / 8..there]);
    let word = u128::from_le_bytes(sixteen) >> (first % 8);
    (word & ((1_u128 << width) - 1)) as u64
}

/// What is not read yet.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        let end = self.at.saturating_add(count);
        let taken = self.bytes.get(self.at..end).ok_or_else(cut_short)?;
        self.at = end;
        Ok(taken)
    }

    /// Seven bits to a byte, the lowest first.
    fn unsigned(&mut self) -> Checked<u64> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Flaw::new("a number of more than 64 bits"))
    }

    fn size(&mut self) -> Checked<usize> {
        usize::try_from(self.unsigned()?).map_err(Flaw::new)
    }

    /// The sign is the lowest bit, so that small numbers of either sign are short.
    fn signed(&mut self) -> Checked<u64> {
        let zigzag = self.unsigned()?;
        Ok((zigzag >> 1) ^ (zigzag & 1).wrapping_neg())
    }
}

fn cut_short() -> Flaw {
    Flaw::new("a page ends before its numbers")
}
