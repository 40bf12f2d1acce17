//! Whole numbers as how far each is above the least of its page, in as many bits as the farthest needs: how columns are kept
//! whose files have them in more.
//!
//! Enters: the pages of a column, decompressed. Leaves: the same pages without their dictionary, where that takes fewer bytes.
//! Levels stay as they are. What most files have of numbers that differ, a dictionary of nearly as many and the index of each,
//! takes two to three times as many bytes, and longer to read.

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};

use super::chunk::PageBytes;
use super::flaw::Checked;
use super::header::{Header, Kind};
use super::page::{DataPage, Form};
use super::values::{Bits32, Bits64, Dictionary, Stored};

/// Pages that take no fewer bytes than this share stay as they are.
const WORTH_PACKING: f64 = 0.9;

/// The most bits of a number.
const BITS_MAX: u32 = 32;

/// A page, decompressed.
pub(super) type Page = (Header, Bytes);

/// How the values of a column lie in its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) physical: Physical,
    pub(super) form: Form,
    /// Levels of all pages.
    pub(super) count: usize,
}

impl Numbers {
    /// Bytes of them while pages are packed, at most.
    pub(super) fn packed_bytes_max(&self) -> usize {
        self.count.saturating_mul(BITS_MAX as usize / 8)
    }
}

/// All pages of a column in fewer bytes; `None` where they are no whole numbers, or it would not save any.
///
/// # Errors
/// Where the pages are not what their headers say.
pub(super) fn of_pages(pages: &[Page], numbers: Numbers) -> Checked<Option<Vec<Page>>> {
    let bytes: usize = pages.iter().map(|(_, bytes)| bytes.len()).sum();
    let dictionary = pages.iter().find(|(header, _)| header.kind == Kind::Dictionary);
    let is_by_indices = |(header, _): &Page| header.encoding().is_none_or(is_of_indices);
    // An index of few values takes no more bits than a number: without the dictionary there would be as many bytes.
    let dictionary_bytes = dictionary.map_or(0, |(_, bytes)| bytes.len());
    let most_bytes = (bytes as f64 * WORTH_PACKING) as usize;
    if pages.iter().all(is_by_indices) && bytes - dictionary_bytes > most_bytes {
        return Ok(None);
    }
    let packed = match numbers.physical {
        Physical::INT32 => all::<Bits32>(pages, numbers, |bits| i64::from(bits as i32)),
        Physical::INT64 => all::<Bits64>(pages, numbers, |bits| bits as i64),
        _ => return Ok(None),
    }?;
    Ok(packed.filter(|of| of.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= most_bytes))
}

fn is_of_indices(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY)
}

/// All data pages; `None` where one has numbers too far apart.
fn all<S: Stored>(
    pages: &[Page],
    numbers: Numbers,
    number: impl Fn(S::Cell) -> i64,
) -> Checked<Option<Vec<Page>>> {
    let mut dictionary = Dictionary::<S>::none();
    let (mut cells, mut packed) = (Vec::new(), Vec::with_capacity(pages.len()));
    for (header, bytes) in pages {
        let stored = PageBytes::Stored(bytes.clone());
        if header.kind == Kind::Dictionary {
            dictionary = Dictionary::new(stored, numbers.form.value_bytes)?;
            continue;
        }
        let mut page = DataPage::<S>::open(header, stored, numbers.form, numbers.count)?;
        cells.clear();
        page.take(page.there, &dictionary, &mut cells)?;
        let whole: Vec<i64> = cells.iter().map(|&cell| number(cell)).collect();
        let levels = &bytes[..page.values_at];
        let Some((least, bytes)) = offsets(levels, &whole) else { return Ok(None) };
        packed.push((header.of_offsets(least, bytes.len()), bytes.into()));
    }
    Ok(Some(packed))
}

/// The least number, and after what stands before them: how many bits an offset has, and all of them in one run
/// ([`super::runs`]).
fn offsets(before: &[u8], numbers: &[i64]) -> Option<(i64, Vec<u8>)> {
    let least = numbers.iter().copied().min().unwrap_or(0);
    let most = numbers.iter().copied().max().unwrap_or(0);
    let width = u64::BITS - most.abs_diff(least).leading_zeros();
    if width > BITS_MAX {
        return None;
    }
    let eights = numbers.len().div_ceil(8);
    let mut bytes = Vec::with_capacity(before.len() + 6 + eights * width as usize);
    bytes.extend_from_slice(before);
    bytes.push(width as u8);
    let mut run = eights << 1 | 1;
    while run >= 0x80 {
        bytes.push(run as u8 | 0x80);
        run >>= 7;
    }
    bytes.push(run as u8);
    let end = bytes.len() + eights * width as usize;
    let (mut word, mut filled) = (0_u64, 0);
    for &number in numbers {
        word |= number.abs_diff(least) << filled;
        filled += width;
        if filled >= u32::BITS {
            bytes.extend_from_slice(&(word as u32).to_le_bytes());
            word >>= u32::BITS;
            filled -= u32::BITS;
        }
    }
    bytes.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
    // The last eight are whole.
    bytes.resize(end, 0);
    Some((least, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_every_width_are_the_numbers_again() {
        let form = Form { present: 0, element: None, value_bytes: 0 };
        for width in 0..=BITS_MAX {
            for (count, least) in [(0, 0), (1, -5), (7, i64::MIN), (8, 3), (1000, -1 << 40)] {
                // Bits without an order, of which one has all.
                let bits = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let most = (1_u64 << width) - 1;
                let offset = |at| if at == 1 { most } else { bits(at) & most };
                let numbers: Vec<i64> = (0..count)
                    .map(|at| least + if at == 0 { 0 } else { offset(at) as i64 })
                    .collect();
                let (found_least, bytes) = offsets(&[], &numbers).unwrap();
                let kind = Kind::Data { levels: numbers.len(), encoding: Encoding::PLAIN };
                let header =
                    Header { kind, stored_bytes: 0, bytes: 0, header_bytes: 0, least: None };
                let header = header.of_offsets(found_least, bytes.len());
                let stored = PageBytes::Stored(bytes.into());
                let mut page =
                    DataPage::<Bits64>::open(&header, stored, form, numbers.len()).unwrap();
                let mut cells = Vec::new();
                page.take(page.there, &Dictionary::none(), &mut cells).unwrap();
                assert!(cells.iter().map(|&cell| cell as i64).eq(numbers), "{width} bits, {count}");
            }
        }
        assert!(
            offsets(&[], &[0, 1 << 32]).is_none() && offsets(&[], &[i64::MIN, i64::MAX]).is_none()
        );
    }
}
