//! One data page: its levels and its values, decompressed but not decoded yet.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::delta;
use super::flaw::{Checked, Flaw};
use super::runs::{Piece, Runs};

/// A number as it lies in the file: its bits, whatever they mean.
pub(super) trait Lane: Copy + Default + Send + Sync + 'static {
    const BYTES: usize;

    /// From as many bytes as it has, the lowest first.
    fn of(bytes: &[u8]) -> Self;

    /// The lowest bits.
    fn cut(number: u64) -> Self;
}

impl Lane for u32 {
    const BYTES: usize = 4;

    fn of(bytes: &[u8]) -> Self {
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }

    fn cut(number: u64) -> Self {
        number as u32
    }
}

impl Lane for u64 {
    const BYTES: usize = 8;

    fn of(bytes: &[u8]) -> Self {
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn cut(number: u64) -> Self {
        number
    }
}

/// The numbers that bytes hold one after another; a rest too short for one is left out.
pub(super) fn lanes<L: Lane>(bytes: &[u8]) -> impl ExactSizeIterator<Item = L> {
    bytes.chunks_exact(L::BYTES).map(L::of)
}

/// How deep the levels of a column are, and what they mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Depths {
    /// The definition level of a number that is there.
    pub(super) present: u8,
    /// For a column of lists: the definition level from which on a list has an element.
    pub(super) element: Option<u8>,
}

/// A data page.
pub(super) struct DataPage<L> {
    /// Levels, of which each is a number, a NULL or a list without elements.
    pub(super) count: usize,
    /// Where rows begin, counted in levels; of lists alone.
    pub(super) starts: Vec<u32>,
    pub(super) definitions: Definitions,
    pub(super) values: Values<L>,
}

/// Which levels are numbers that are there.
pub(super) enum Definitions {
    All,
    Each(Vec<u8>),
}

/// The numbers of a page that are not taken yet.
pub(super) enum Values<L> {
    Plain { bytes: Bytes, at: usize },
    Indices(Runs),
    Split { bytes: Bytes, at: usize },
    Decoded { numbers: Vec<L>, at: usize },
}

impl<L: Lane> DataPage<L> {
    /// Takes a page apart.
    ///
    /// # Errors
    /// Where it is no data page or not what its header says, or has more than `most` levels.
    pub(super) fn open(page: Page, depths: Depths, most: usize) -> Checked<Self> {
        let count = page.num_values() as usize;
        if count > most {
            return Err(Flaw::new(format!("a page of {count} values, where {most} are left")));
        }
        let parts = Parts::of(page, depths)?;
        let starts = match parts.repetitions {
            Some(bytes) => row_starts(Runs::new(bytes, 1)?, count)?,
            None => Vec::new(),
        };
        let definitions = match parts.definitions {
            Some(bytes) => {
                let width = (u8::BITS - depths.present.leading_zeros()) as usize;
                definitions(Runs::new(bytes, width)?, depths.present, count)?
            }
            None => Definitions::All,
        };
        let values = Values::open(parts.values, parts.encoding, count)?;
        Ok(Self { count, starts, definitions, values })
    }
}

/// The bytes of a page, taken apart.
struct Parts {
    repetitions: Option<Bytes>,
    definitions: Option<Bytes>,
    values: Bytes,
    encoding: Encoding,
}

impl Parts {
    fn of(page: Page, depths: Depths) -> Checked<Self> {
        match page {
            Page::DataPage {
                mut buf, encoding, def_level_encoding, rep_level_encoding, ..
            } => {
                let mut levels = |is_there: bool, how: Encoding| -> Checked<Option<Bytes>> {
                    if !is_there {
                        return Ok(None);
                    }
                    if how != Encoding::RLE {
                        return Err(Flaw::new(format!("levels encoded as {how}")));
                    }
                    let bytes = split(&mut buf, 4)?;
                    Ok(Some(split(&mut buf, u32::of(&bytes) as usize)?))
                };
                let repetitions = levels(depths.element.is_some(), rep_level_encoding)?;
                let definitions = levels(depths.present > 0, def_level_encoding)?;
                Ok(Self { repetitions, definitions, values: buf, encoding })
            }
            Page::DataPageV2 {
                mut buf,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let repetitions = split(&mut buf, rep_levels_byte_len as usize)?;
                let definitions = split(&mut buf, def_levels_byte_len as usize)?;
                Ok(Self {
                    repetitions: depths.element.map(|_| repetitions),
                    definitions: (depths.present > 0).then_some(definitions),
                    values: buf,
                    encoding,
                })
            }
            Page::DictionaryPage { .. } => Err(Flaw::new("a dictionary among the data")),
        }
    }
}

/// Takes the first bytes away.
fn split(bytes: &mut Bytes, count: usize) -> Checked<Bytes> {
    match bytes.len() {
        there if there < count => Err(Flaw::new("a page ends within its levels")),
        _ => Ok(bytes.split_to(count)),
    }
}

/// Where rows begin: at each repetition level of zero.
fn row_starts(mut runs: Runs, count: usize) -> Checked<Vec<u32>> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < count {
        let piece = runs.next(count - at)?;
        match &piece {
            Piece::Repeated { value: 0, count } => starts.extend(at as u32..(at + count) as u32),
            Piece::Repeated { .. } => (),
            Piece::Packed(packed) => {
                let levels = packed.iter().zip(at as u32..);
                starts.extend(levels.filter_map(|(level, at)| (level == 0).then_some(at)));
            }
        }
        at += piece.count();
    }
    Ok(starts)
}

fn definitions(mut runs: Runs, present: u8, count: usize) -> Checked<Definitions> {
    let mut levels = Vec::new();
    let mut all = 0;
    while all + levels.len() < count {
        let piece = runs.next(count - all - levels.len())?;
        match &piece {
            // As long as nothing is missing, nothing is written down.
            Piece::Repeated { value, count }
                if levels.is_empty() && *value == u32::from(present) =>
            {
                all += count;
            }
            Piece::Repeated { value, count } => {
                levels.resize(std::mem::take(&mut all) + levels.len(), present);
                levels.resize(levels.len() + count, level(*value, present)?);
            }
            Piece::Packed(packed) => {
                levels.resize(std::mem::take(&mut all) + levels.len(), present);
                let mut highest = 0;
                levels.extend(packed.iter().map(|value| {
                    highest = highest.max(value);
                    value as u8
                }));
                level(highest, present)?;
            }
        }
    }
    if levels.iter().all(|&level| level == present) {
        return Ok(Definitions::All);
    }
    Ok(Definitions::Each(levels))
}

fn level(value: u32, present: u8) -> Checked<u8> {
    match u8::try_from(value) {
        Ok(level) if level <= present => Ok(level),
        Ok(_) | Err(_) => Err(Flaw::new(format!("a level of {value}, where {present} is highest"))),
    }
}

impl<L: Lane> Values<L> {
    fn open(mut bytes: Bytes, encoding: Encoding, most: usize) -> Checked<Self> {
        match encoding {
            Encoding::PLAIN => Ok(Values::Plain { bytes, at: 0 }),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                // A page in which all is NULL may have no bytes at all.
                let width = if bytes.is_empty() { 0 } else { split(&mut bytes, 1)?[0] };
                Ok(Values::Indices(Runs::new(bytes, usize::from(width))?))
            }
            Encoding::BYTE_STREAM_SPLIT => Ok(Values::Split { bytes, at: 0 }),
            Encoding::DELTA_BINARY_PACKED => {
                let numbers = delta::numbers(&bytes, most)?;
                let numbers = numbers.into_iter().map(L::cut).collect();
                Ok(Values::Decoded { numbers, at: 0 })
            }
            other => Err(Flaw::new(format!("numbers encoded as {other}"))),
        }
    }

    /// Whether they are indices of a dictionary.
    pub(super) fn are_indices(&self) -> bool {
        matches!(self, Values::Indices(_))
    }

    /// Appends the next numbers to `taken`.
    ///
    /// # Errors
    /// Where the page has fewer, or one that is not in the dictionary.
    pub(super) fn take(
        &mut self,
        count: usize,
        dictionary: &[L],
        taken: &mut Vec<L>,
    ) -> Checked<()> {
        match self {
            Values::Plain { bytes, at } => {
                let end = *at + count * L::BYTES;
                let numbers = bytes.get(*at..end).ok_or_else(cut_short)?;
                taken.extend(lanes::<L>(numbers));
                *at = end;
            }
            Values::Indices(runs) => return look_up(runs, count, dictionary, taken),
            Values::Split { bytes, at } => {
                let all = bytes.len() / L::BYTES;
                if *at + count > all {
                    return Err(cut_short());
                }
                taken.extend((*at..*at + count).map(|i| joined::<L>(bytes, all, i)));
                *at += count;
            }
            Values::Decoded { numbers, at } => {
                taken.extend(numbers.get(*at..*at + count).ok_or_else(cut_short)?);
                *at += count;
            }
        }
        Ok(())
    }

    /// Passes over numbers; that there are too few is seen by whoever takes the next.
    pub(super) fn skip(&mut self, count: usize) -> Checked<()> {
        match self {
            Values::Plain { at, .. } => *at += count * L::BYTES,
            Values::Indices(runs) => runs.skip(count)?,
            Values::Split { at, .. } | Values::Decoded { at, .. } => *at += count,
        }
        Ok(())
    }
}

fn look_up<L: Lane>(
    runs: &mut Runs,
    mut count: usize,
    dictionary: &[L],
    taken: &mut Vec<L>,
) -> Checked<()> {
    let missing =
        || Flaw::new(format!("a number that is not in its dictionary of {}", dictionary.len()));
    while count > 0 {
        let piece = runs.next(count)?;
        count -= piece.count();
        match piece {
            Piece::Repeated { value, count } => {
                let number = *dictionary.get(value as usize).ok_or_else(missing)?;
                taken.resize(taken.len() + count, number);
            }
            Piece::Packed(packed) => {
                let mut highest = 0;
                taken.extend(packed.iter().map(|index| {
                    highest = highest.max(index);
                    dictionary.get(index as usize).copied().unwrap_or_default()
                }));
                if highest as usize >= dictionary.len() {
                    return Err(missing());
                }
            }
        }
    }
    Ok(())
}

/// The number whose bytes lie apart: all first bytes, then all second ones, and so on.
fn joined<L: Lane>(bytes: &[u8], all: usize, i: usize) -> L {
    let mut number = [0; 8];
    for (k, byte) in number.iter_mut().take(L::BYTES).enumerate() {
        *byte = bytes[k * all + i];
    }
    L::of(&number[..L::BYTES])
}

fn cut_short() -> Flaw {
    Flaw::new("a page ends before its numbers")
}
