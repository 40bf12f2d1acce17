//! One data page: its levels and its values, decompressed but not decoded yet.

use std::ops::Range;

use arrow::buffer::Buffer;
use parquet::basic::Encoding;

use super::chunk::PageBytes;
use super::delta;
use super::flaw::{Checked, Flaw};
use super::header::{Header, Kind};
use super::runs::{BLOCK, Piece, Runs};
use super::values::{Dictionary, Stored};

/// How the levels and values of a column lie in its pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// The definition level of a value that is there.
    pub(super) present: u8,
    /// For a column of lists: the definition level from which on a list has an element.
    pub(super) element: Option<u8>,
    /// Bytes of a value, where its type leaves them open; else zero.
    pub(super) value_bytes: usize,
}

/// A data page.
pub(super) struct DataPage<S: Stored> {
    bytes: PageBytes,
    /// Levels, of which each is a value, a NULL or a list without elements.
    pub(super) count: usize,
    /// Where rows begin, counted in levels; of lists alone.
    pub(super) starts: Vec<u32>,
    pub(super) definitions: Definitions,
    /// Values that are there, and where they begin, after the levels.
    pub(super) there: usize,
    pub(super) values_at: usize,
    /// The definition level of a value that is there.
    present: u8,
    values: Values<S>,
}

/// Which levels are values that are there.
pub(super) enum Definitions {
    All,
    Each(Vec<u8>),
}

/// The values of a page that are not taken yet; places count bytes of the page, or values.
enum Values<S: Stored> {
    Plain {
        at: usize,
    },
    Indices(Runs),
    /// Each above the least of them.
    Offsets {
        runs: Runs,
        least: i64,
    },
    Split {
        part: Range<usize>,
        at: usize,
    },
    Decoded {
        cells: Vec<S::Cell>,
        at: usize,
    },
}

impl<S: Stored> DataPage<S> {
    /// Takes a page apart.
    ///
    /// # Errors
    /// Where it is no data page or not what its header says, or has more than `most` levels.
    pub(super) fn open(
        header: &Header,
        bytes: PageBytes,
        form: Form,
        most: usize,
    ) -> Checked<Self> {
        let parts = Parts::of(header, &bytes, form)?;
        let count = parts.levels;
        if count > most {
            return Err(Flaw::new(format!("a page of {count} values, where {most} are left")));
        }
        let starts = match parts.repetitions {
            Some(part) => row_starts(&bytes, Runs::new(part, 1)?, count)?,
            None => Vec::new(),
        };
        let definitions = match parts.definitions {
            Some(part) => {
                let width = (u8::BITS - form.present.leading_zeros()) as usize;
                definitions(&bytes, Runs::new(part, width)?, form.present, count)?
            }
            None => Definitions::All,
        };
        let there = match &definitions {
            Definitions::All => count,
            Definitions::Each(levels) => {
                levels.iter().filter(|&&level| level == form.present).count()
            }
        };
        let values_at = parts.values.start;
        let values = match Values::open(&bytes, parts.values, parts.encoding, there, form)? {
            Values::Indices(runs) if let Some(least) = header.least => {
                Values::Offsets { runs, least }
            }
            values => values,
        };
        let present = form.present;
        Ok(Self { bytes, count, starts, definitions, there, values_at, present, values })
    }

    /// Whether its values are indices of a dictionary.
    pub(super) fn has_indices(&self) -> bool {
        matches!(self.values, Values::Indices(_))
    }

    /// Which of these levels are values that are there.
    pub(super) fn are_there(&self, levels: Range<usize>) -> Vec<bool> {
        match &self.definitions {
            Definitions::All => vec![true; levels.len()],
            Definitions::Each(each) => {
                each[levels].iter().map(|&level| level == self.present).collect()
            }
        }
    }

    /// Its bytes, which others have from now on as well.
    pub(super) fn share_bytes(&mut self) -> Buffer {
        self.bytes.share()
    }

    /// Appends the next values to `taken`.
    ///
    /// # Errors
    /// Where the page has fewer, or one that is not in the dictionary.
    pub(super) fn take(
        &mut self,
        count: usize,
        dictionary: &Dictionary<S>,
        taken: &mut Vec<S::Cell>,
    ) -> Checked<()> {
        match &mut self.values {
            Values::Plain { at } => {
                let end = *at + count * S::BYTES;
                let cells = self.bytes.get(*at..end).ok_or_else(cut_short)?;
                taken.extend(cells.chunks_exact(S::BYTES).map(S::cell));
                *at = end;
            }
            Values::Indices(runs) => {
                let page = &self.bytes;
                let (most, bytes) = (dictionary.len(), dictionary.bytes());
                let cell = |at| S::cell(&bytes[at * S::BYTES..(at + 1) * S::BYTES]);
                return match dictionary.cells() {
                    Some(cells) => look_up(runs, page, count, most, |at| cells[at], taken),
                    None => look_up(runs, page, count, most, cell, taken),
                };
            }
            Values::Offsets { runs, least } => {
                let value = |offset: usize| whole::<S>(least.wrapping_add(offset as i64));
                return look_up(runs, &self.bytes, count, usize::MAX, value, taken);
            }
            Values::Split { part, at } => {
                let bytes = &self.bytes[part.clone()];
                let all = bytes.len() / S::BYTES;
                if *at + count > all {
                    return Err(cut_short());
                }
                taken.extend((*at..*at + count).map(|i| joined::<S>(bytes, all, i)));
                *at += count;
            }
            Values::Decoded { cells, at } => {
                taken.extend_from_slice(cells.get(*at..*at + count).ok_or_else(cut_short)?);
                *at += count;
            }
        }
        Ok(())
    }

    /// Appends those of the next `count` values whose places are chosen, in ascending order, from `first` on.
    ///
    /// # Errors
    /// As for [`DataPage::take`].
    pub(super) fn take_chosen(
        &mut self,
        count: usize,
        (chosen, first): (&[u32], usize),
        dictionary: &Dictionary<S>,
        taken: &mut Vec<S::Cell>,
    ) -> Checked<()> {
        let places = chosen.iter().map(|&place| place as usize - first);
        match &mut self.values {
            Values::Plain { at } => {
                let end = *at + count * S::BYTES;
                let cells = self.bytes.get(*at..end).ok_or_else(cut_short)?;
                taken.extend(places.map(|i| S::cell(&cells[i * S::BYTES..(i + 1) * S::BYTES])));
                *at = end;
            }
            Values::Indices(runs) => {
                let (page, wanted) = (&self.bytes, Wanted { count, chosen, first });
                let (most, bytes) = (dictionary.len(), dictionary.bytes());
                let cell = |at| S::cell(&bytes[at * S::BYTES..(at + 1) * S::BYTES]);
                return match dictionary.cells() {
                    Some(cells) => look_up_chosen(runs, page, wanted, most, |at| cells[at], taken),
                    None => look_up_chosen(runs, page, wanted, most, cell, taken),
                };
            }
            Values::Offsets { runs, least } => {
                let value = |offset: usize| whole::<S>(least.wrapping_add(offset as i64));
                let wanted = Wanted { count, chosen, first };
                return look_up_chosen(runs, &self.bytes, wanted, usize::MAX, value, taken);
            }
            Values::Split { part, at } => {
                let bytes = &self.bytes[part.clone()];
                let all = bytes.len() / S::BYTES;
                if *at + count > all {
                    return Err(cut_short());
                }
                taken.extend(places.map(|i| joined::<S>(bytes, all, *at + i)));
                *at += count;
            }
            Values::Decoded { cells, at } => {
                let cells = cells.get(*at..*at + count).ok_or_else(cut_short)?;
                taken.extend(places.map(|i| cells[i]));
                *at += count;
            }
        }
        Ok(())
    }

    /// Appends the next indices of a dictionary of `most` values, or of them those that are chosen, as for
    /// [`DataPage::take_chosen`].
    ///
    /// # Errors
    /// As for [`DataPage::take`], and where its values are none.
    pub(super) fn take_indices(
        &mut self,
        count: usize,
        chosen: Option<(&[u32], usize)>,
        most: usize,
        taken: &mut Vec<u32>,
    ) -> Checked<()> {
        let Values::Indices(runs) = &mut self.values else {
            return Err(Flaw::new("no indices where they should be"));
        };
        let (page, index) = (&self.bytes, |at: usize| at as u32);
        match chosen {
            None => look_up(runs, page, count, most, index, taken),
            Some((chosen, first)) => {
                look_up_chosen(runs, page, Wanted { count, chosen, first }, most, index, taken)
            }
        }
    }

    /// Passes over values; that there are too few is seen by whoever takes the next.
    pub(super) fn skip(&mut self, count: usize) -> Checked<()> {
        match &mut self.values {
            Values::Plain { at } => *at += count * S::BYTES,
            Values::Indices(runs) | Values::Offsets { runs, .. } => {
                runs.skip(&self.bytes, count)?
            }
            Values::Split { at, .. } | Values::Decoded { at, .. } => *at += count,
        }
        Ok(())
    }
}

/// What the bytes of a page are.
struct Parts {
    levels: usize,
    repetitions: Option<Range<usize>>,
    definitions: Option<Range<usize>>,
    values: Range<usize>,
    encoding: Encoding,
}

impl Parts {
    fn of(header: &Header, bytes: &[u8], form: Form) -> Checked<Self> {
        let mut left = 0..bytes.len();
        match header.kind {
            Kind::Data { levels, encoding } => {
                let mut part = |is_there: bool| -> Checked<Option<Range<usize>>> {
                    if !is_there {
                        return Ok(None);
                    }
                    let size = &bytes[split(&mut left, 4)?];
                    let size =
                        size.iter().rev().fold(0, |size, &byte| size << 8 | usize::from(byte));
                    split(&mut left, size).map(Some)
                };
                let repetitions = part(form.element.is_some())?;
                let definitions = part(form.present > 0)?;
                Ok(Self { levels, repetitions, definitions, values: left, encoding })
            }
            Kind::DataV2 { levels, encoding, definitions_bytes, repetitions_bytes, .. } => {
                let repetitions = split(&mut left, repetitions_bytes)?;
                let definitions = split(&mut left, definitions_bytes)?;
                Ok(Self {
                    levels,
                    repetitions: form.element.map(|_| repetitions),
                    definitions: (form.present > 0).then_some(definitions),
                    values: left,
                    encoding,
                })
            }
            Kind::Dictionary | Kind::Other => Err(Flaw::new("no data where data should be")),
        }
    }
}

/// Takes the first bytes away.
fn split(left: &mut Range<usize>, count: usize) -> Checked<Range<usize>> {
    if left.len() < count {
        return Err(Flaw::new("a page ends within its levels"));
    }
    let first = left.start..left.start + count;
    left.start = first.end;
    Ok(first)
}

/// Where rows begin: at each repetition level of zero.
fn row_starts(page: &[u8], mut runs: Runs, count: usize) -> Checked<Vec<u32>> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < count {
        let piece = runs.next(page, count - at)?;
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

fn definitions(page: &[u8], mut runs: Runs, present: u8, count: usize) -> Checked<Definitions> {
    let mut levels = Vec::new();
    let mut all = 0;
    while all + levels.len() < count {
        let piece = runs.next(page, count - all - levels.len())?;
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

impl<S: Stored> Values<S> {
    fn open(
        bytes: &[u8],
        mut part: Range<usize>,
        encoding: Encoding,
        count: usize,
        form: Form,
    ) -> Checked<Self> {
        match encoding {
            Encoding::PLAIN => match S::cells(bytes, part.clone(), form.value_bytes)? {
                Some(cells) => Ok(Values::Decoded { cells, at: 0 }),
                None => Ok(Values::Plain { at: part.start }),
            },
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                // A page in which all is NULL may have no bytes at all.
                let width = if part.is_empty() { 0 } else { bytes[split(&mut part, 1)?.start] };
                Ok(Values::Indices(Runs::new(part, usize::from(width))?))
            }
            Encoding::BYTE_STREAM_SPLIT if S::ARE_NUMBERS => Ok(Values::Split { part, at: 0 }),
            Encoding::DELTA_BINARY_PACKED if S::ARE_NUMBERS => {
                let numbers = delta::numbers(&bytes[part], count)?;
                let cells = numbers.into_iter().map(|number| whole::<S>(number as i64)).collect();
                Ok(Values::Decoded { cells, at: 0 })
            }
            Encoding::RLE if S::MAY_BE_RUNS => {
                // After their length in bytes.
                split(&mut part, 4)?;
                let (mut runs, mut cells) = (Runs::new(part, 1)?, Vec::with_capacity(count));
                look_up(&mut runs, bytes, count, 2, |bit| S::cell(&[bit as u8]), &mut cells)?;
                Ok(Values::Decoded { cells, at: 0 })
            }
            other => Err(Flaw::new(format!("values encoded as {other}"))),
        }
    }
}

/// Appends the values that the next indices name; `value` is told no place beyond `most`.
fn look_up<C: Copy>(
    runs: &mut Runs,
    page: &[u8],
    mut count: usize,
    most: usize,
    value: impl Fn(usize) -> C,
    taken: &mut Vec<C>,
) -> Checked<()> {
    while count > 0 {
        let piece = runs.next(page, count)?;
        count -= piece.count();
        match piece {
            Piece::Repeated { value: index, count } => {
                check(&[index], most)?;
                taken.resize(taken.len() + count, value(index as usize));
            }
            Piece::Packed(packed) => packed.blocks(|indices| {
                check(indices, most)?;
                taken.extend(indices.iter().map(|&index| value(index as usize)));
                Ok(())
            })?,
        }
    }
    Ok(())
}

/// Of the next `count` values, those that are chosen, by places from `first` on in ascending order.
struct Wanted<'a> {
    count: usize,
    chosen: &'a [u32],
    first: usize,
}

/// As [`look_up`], for values that are chosen.
fn look_up_chosen<C: Copy>(
    runs: &mut Runs,
    page: &[u8],
    Wanted { mut count, mut chosen, mut first }: Wanted<'_>,
    most: usize,
    value: impl Fn(usize) -> C,
    taken: &mut Vec<C>,
) -> Checked<()> {
    while count > 0 {
        let piece = runs.next(page, count.min(BLOCK))?;
        let within = chosen.partition_point(|&place| (place as usize) < first + piece.count());
        let (here, rest) = chosen.split_at(within);
        match piece {
            _ if here.is_empty() => (),
            Piece::Repeated { value: index, .. } => {
                check(&[index], most)?;
                taken.resize(taken.len() + here.len(), value(index as usize));
            }
            // Unpacking one takes as long as unpacking several together.
            Piece::Packed(packed) if here.len() * 4 < packed.count => {
                for &place in here {
                    let index = packed.get(place as usize - first);
                    check(&[index], most)?;
                    taken.push(value(index as usize));
                }
            }
            Piece::Packed(packed) => packed.blocks(|indices| {
                check(indices, most)?;
                taken.extend(
                    here.iter().map(|&place| value(indices[place as usize - first] as usize)),
                );
                Ok(())
            })?,
        }
        first += piece.count();
        count -= piece.count();
        chosen = rest;
    }
    Ok(())
}

/// # Errors
/// Where an index names no value of a dictionary of so many.
#[inline]
fn check(indices: &[u32], most: usize) -> Checked<()> {
    let highest = indices.iter().fold(0, |highest, &index| highest.max(index));
    match (highest as usize) < most {
        true => Ok(()),
        false => Err(Flaw::new(format!("a value that is not in its dictionary of {most}"))),
    }
}

/// A whole number of as many bits as the column has.
#[inline]
fn whole<S: Stored>(number: i64) -> S::Cell {
    S::cell(&number.to_le_bytes()[..S::BYTES.min(size_of::<i64>())])
}

/// The number whose bytes lie apart: all first bytes, then all second ones, and so on.
fn joined<S: Stored>(bytes: &[u8], all: usize, i: usize) -> S::Cell {
    let mut number = [0; 8];
    for (k, byte) in number.iter_mut().take(S::BYTES).enumerate() {
        *byte = bytes[k * all + i];
    }
    S::cell(&number[..S::BYTES])
}

fn cut_short() -> Flaw {
    Flaw::new("a page ends before its values")
}
