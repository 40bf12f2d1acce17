//! Keys as words of 64 or 128 bits: numbers, dates, truth values and short texts beside each other.
//!
//! ```text
//! one column       its cells; NULL is known apart from them
//! several          each cell in bits of its own, and a bit for NULL above it where there may be one
//! texts            up to 12 bytes alone, as their views have them; up to 7 beside other columns, and their length
//! ```
//!
//! A zero has no sign in a word, as in DataFusion's groups; each `NaN` is what its bits are.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, StringViewArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, SchemaRef};
use datafusion::error::Result;

use crate::exec::kernels::word::Word;
use crate::exec::relational::cells::cells;

/// Bytes of the longest text that is packed beside other columns.
const TEXT_BYTES: u32 = 7;

/// Bytes of the longest text within its view.
const VIEW_BYTES: u32 = 12;

/// What stands for the length of a text that is NULL.
const NULL_LENGTH: u64 = 0xff;

/// Where the cells of each column are in a word.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    places: Vec<Place>,
    /// Bits of all of them.
    pub(super) bits: u32,
}

#[derive(Debug, Clone)]
struct Place {
    cell: Cell,
    data_type: DataType,
    shift: u32,
    null: Null,
}

/// How a word says that a cell is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Null {
    /// By this bit.
    Bit(u32),
    /// By the length of a text.
    Length,
    /// It does not: the row is known apart from the words, or means nothing.
    Apart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Truth,
    /// So many bytes.
    Number(u32),
    /// The same, of which a zero may have a sign.
    Real(u32),
    /// Up to [`TEXT_BYTES`], then the length.
    Text,
    /// All of a view.
    View,
}

impl Cell {
    fn of(data_type: &DataType, is_alone: bool) -> Option<Self> {
        let bytes = || data_type.primitive_width().and_then(|bytes| u32::try_from(bytes).ok());
        match data_type {
            DataType::Boolean => Some(Self::Truth),
            DataType::Float32 | DataType::Float64 => bytes().map(Self::Real),
            DataType::Utf8View if is_alone => Some(Self::View),
            DataType::Utf8View => Some(Self::Text),
            DataType::Decimal128(..) if is_alone => Some(Self::Number(16)),
            DataType::Decimal32(..) | DataType::Decimal64(..) => bytes().map(Self::Number),
            DataType::Interval(_) => None,
            of if of.is_integer() || of.is_temporal() => bytes().map(Self::Number),
            _ => None,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::Truth => 1,
            Self::Number(bytes) | Self::Real(bytes) => 8 * bytes,
            Self::Text => u64::BITS,
            Self::View => u128::BITS,
        }
    }
}

impl Layout {
    /// None where columns are of other kinds, or too many.
    pub(super) fn of(keys: &SchemaRef) -> Option<Self> {
        Self::with(keys, Null::Bit)
    }

    /// As [`Layout::of`], for rows of which those with a NULL mean nothing.
    pub(super) fn of_valid_rows(keys: &SchemaRef) -> Option<Self> {
        Self::with(keys, |_| Null::Apart)
    }

    fn with(keys: &SchemaRef, null: impl Fn(u32) -> Null) -> Option<Self> {
        let is_alone = keys.fields().len() == 1;
        let mut bits = 0;
        let mut places = Vec::new();
        for field in keys.fields() {
            let cell = Cell::of(field.data_type(), is_alone)?;
            let shift = bits;
            bits += cell.bits();
            let null = match cell {
                _ if is_alone => Null::Apart,
                Cell::Text => Null::Length,
                _ => null(bits),
            };
            bits += u32::from(matches!(null, Null::Bit(_)));
            places.push(Place { cell, data_type: field.data_type().clone(), shift, null });
        }
        (bits <= u128::BITS && !places.is_empty()).then_some(Self { places, bits })
    }

    /// Whether NULL is known apart from the words.
    pub(super) fn is_alone(&self) -> bool {
        self.places.len() == 1
    }

    /// The words of a column that is alone and has them already, with any in place of NULL.
    pub(super) fn as_they_are<W: Word + ArrowNativeType>(
        &self,
        keys: &[ArrayRef],
    ) -> Option<ScalarBuffer<W>> {
        let ([place], [key]) = (self.places.as_slice(), keys) else { return None };
        if self.bits as usize != 8 * size_of::<W>() {
            return None;
        }
        match place.cell {
            Cell::Number(_) => Some(cells(key)),
            Cell::View => {
                let views = key.as_string_view().views();
                let longest = views.iter().fold(0, |longest, &view| longest.max(view as u32));
                let words = || ScalarBuffer::new(views.inner().clone(), 0, views.len());
                (longest <= VIEW_BYTES).then(words)
            }
            Cell::Truth | Cell::Real(_) | Cell::Text => None,
        }
    }

    /// Puts the rows of some columns into words; false where a text is too long for that.
    pub(super) fn pack<W: Word>(&self, keys: &[ArrayRef], words: &mut Vec<W>) -> bool {
        words.clear();
        words.resize(keys.first().map_or(0, |key| key.len()), W::default());
        let columns = self.places.iter().zip(keys);
        columns.fold(true, |fits, (place, key)| place.pack(key, words) && fits)
    }

    /// Which rows are in words wholly: all but those with a text that is too long.
    pub(super) fn fitting(&self, keys: &[ArrayRef]) -> NullBuffer {
        let columns: Vec<_> = self.places.iter().zip(keys).filter_map(Place::longest).collect();
        let fits = |at: usize| {
            columns
                .iter()
                .all(|(texts, longest)| texts.is_null(at) || texts.views()[at] as u32 <= *longest)
        };
        let rows = keys.first().map_or(0, |key| key.len());
        NullBuffer::new(BooleanBuffer::collect_bool(rows, fits))
    }

    /// The columns of words; the row of this number is NULL.
    pub(super) fn unpack<W: Word>(
        &self,
        words: Vec<W>,
        null: Option<usize>,
    ) -> Result<Vec<ArrayRef>> {
        let is_null = null.map(|null| {
            let valid = BooleanBuffer::collect_bool(words.len(), |at| at != null);
            NullBuffer::new(valid)
        });
        let column = |place: &Place| match self.is_alone() {
            true => place.unpack(&words, is_null.clone()),
            false => place.unpack(&words, place.nulls(&words)),
        };
        self.places.iter().map(column).collect()
    }
}

impl Place {
    /// Texts, and how many bytes of one a word holds at most.
    fn longest<'a>((place, key): (&Self, &'a ArrayRef)) -> Option<(&'a StringViewArray, u32)> {
        match place.cell {
            Cell::Text => Some((key.as_string_view(), TEXT_BYTES)),
            Cell::View => Some((key.as_string_view(), VIEW_BYTES)),
            Cell::Truth | Cell::Number(_) | Cell::Real(_) => None,
        }
    }

    fn pack<W: Word>(&self, key: &ArrayRef, words: &mut [W]) -> bool {
        let nulls = key.nulls().filter(|nulls| nulls.null_count() > 0);
        match self.cell {
            Cell::View => return pack_views(key, words),
            Cell::Text => return self.pack_texts(key, words),
            Cell::Truth => {
                let truths = key.as_boolean().values();
                self.put(truths.iter().map(u64::from), nulls, words);
            }
            Cell::Number(1) => self.put(cells::<u8>(key).iter().map(|&x| x.into()), nulls, words),
            Cell::Number(2) => self.put(cells::<u16>(key).iter().map(|&x| x.into()), nulls, words),
            Cell::Number(4) => self.put(cells::<u32>(key).iter().map(|&x| x.into()), nulls, words),
            Cell::Number(8) => self.put(cells::<u64>(key).iter().copied(), nulls, words),
            Cell::Number(_) => {
                for (word, &cell) in words.iter_mut().zip(cells::<i128>(key).iter()) {
                    *word = W::of_wide(cell as u128);
                }
            }
            // Twice the bits of a zero are none, whatever its sign.
            Cell::Real(4) => {
                let unsigned = |&x: &u32| u64::from(if x << 1 == 0 { 0 } else { x });
                self.put(cells::<u32>(key).iter().map(unsigned), nulls, words);
            }
            Cell::Real(_) => {
                let unsigned = |&x: &u64| if x << 1 == 0 { 0 } else { x };
                self.put(cells::<u64>(key).iter().map(unsigned), nulls, words);
            }
        }
        if let (Null::Bit(bit), Some(nulls)) = (self.null, nulls) {
            for (word, is_valid) in words.iter_mut().zip(nulls.iter()) {
                word.put(u64::from(!is_valid), bit);
            }
        }
        true
    }

    fn put<W: Word>(
        &self,
        cells: impl Iterator<Item = u64>,
        nulls: Option<&NullBuffer>,
        words: &mut [W],
    ) {
        match nulls {
            None => words.iter_mut().zip(cells).for_each(|(word, bits)| word.put(bits, self.shift)),
            // What a place that is NULL holds means nothing.
            Some(nulls) => {
                for ((word, bits), is_valid) in words.iter_mut().zip(cells).zip(nulls.iter()) {
                    word.put(if is_valid { bits } else { 0 }, self.shift);
                }
            }
        }
    }

    fn pack_texts<W: Word>(&self, key: &ArrayRef, words: &mut [W]) -> bool {
        let texts = key.as_string_view();
        let mut fits = true;
        let mut put = |word: &mut W, view: u128| {
            let length = view as u32;
            fits &= length <= TEXT_BYTES;
            let text = (view >> u32::BITS) as u64 & text_mask();
            word.put(text | u64::from(length) << (8 * TEXT_BYTES), self.shift);
        };
        let views = words.iter_mut().zip(texts.views().iter().copied());
        match texts.nulls() {
            None => views.for_each(|(word, view)| put(word, view)),
            Some(nulls) => {
                for ((word, view), is_valid) in views.zip(nulls.iter()) {
                    match is_valid {
                        true => put(word, view),
                        false => word.put(NULL_LENGTH << (8 * TEXT_BYTES), self.shift),
                    }
                }
            }
        }
        fits
    }

    /// Which rows are not NULL, where columns stand beside each other.
    fn nulls<W: Word>(&self, words: &[W]) -> Option<NullBuffer> {
        let (bit, null) = match self.null {
            Null::Length => (self.shift + 8 * TEXT_BYTES, NULL_LENGTH),
            Null::Bit(bit) => (bit, 1),
            Null::Apart => return None,
        };
        let is_valid = |at: usize| words[at].bits(bit) & null != null;
        let nulls = NullBuffer::new(BooleanBuffer::collect_bool(words.len(), is_valid));
        (nulls.null_count() > 0).then_some(nulls)
    }

    fn unpack<W: Word>(&self, words: &[W], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let bits = words.iter().map(|word| word.bits(self.shift));
        let cells = match self.cell {
            Cell::Truth => {
                let truths = BooleanBuffer::collect_bool(words.len(), |at| {
                    words[at].bits(self.shift) & 1 == 1
                });
                return Ok(Arc::new(BooleanArray::new(truths, nulls)));
            }
            Cell::View => {
                let views: Vec<u128> = words.iter().map(|word| word.wide()).collect();
                return texts(views, nulls);
            }
            Cell::Text => {
                let view = |cell: u64| {
                    let length = u128::from(cell >> (8 * TEXT_BYTES));
                    let text = u128::from(cell & text_mask());
                    if length == u128::from(NULL_LENGTH) { 0 } else { length | text << u32::BITS }
                };
                return texts(bits.map(view).collect(), nulls);
            }
            Cell::Number(1) => Buffer::from_vec(bits.map(|x| x as u8).collect::<Vec<_>>()),
            Cell::Number(2) => Buffer::from_vec(bits.map(|x| x as u16).collect::<Vec<_>>()),
            Cell::Number(4) | Cell::Real(4) => {
                Buffer::from_vec(bits.map(|x| x as u32).collect::<Vec<_>>())
            }
            Cell::Number(8) | Cell::Real(_) => Buffer::from_vec(bits.collect::<Vec<_>>()),
            Cell::Number(_) => {
                let cells = words.iter().map(|word| word.wide() as i128);
                Buffer::from_vec(cells.collect::<Vec<_>>())
            }
        };
        let data = ArrayData::builder(self.data_type.clone())
            .len(words.len())
            .add_buffer(cells)
            .nulls(nulls)
            .build()?;
        Ok(make_array(data))
    }
}

fn text_mask() -> u64 {
    (1 << (8 * TEXT_BYTES)) - 1
}

/// Views as they are, as long as they hold their texts.
fn pack_views<W: Word>(key: &ArrayRef, words: &mut [W]) -> bool {
    let texts = key.as_string_view();
    for (word, &view) in words.iter_mut().zip(texts.views().iter()) {
        *word = W::of_wide(view);
    }
    let is_short = |(at, &view): (usize, &u128)| view as u32 <= VIEW_BYTES || texts.is_null(at);
    texts.views().iter().enumerate().all(is_short)
}

fn texts(views: Vec<u128>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    Ok(Arc::new(StringViewArray::try_new(ScalarBuffer::from(views), Vec::new(), nulls)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn numbers(of: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(of.to_vec()))
    }

    #[test]
    fn two_numbers_of_64_bits_are_a_word_where_rows_with_a_null_mean_nothing() {
        let keys = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        let keys = Arc::new(Schema::new(keys.to_vec()));
        assert!(Layout::of(&keys).is_none());
        let layout = Layout::of_valid_rows(&keys).unwrap();
        let some = [numbers(&[Some(1), Some(-1)]), numbers(&[Some(i64::MIN), Some(7)])];
        let mut words = Vec::<u128>::new();
        assert!(layout.pack(&some, &mut words));
        assert_eq!(layout.unpack(words.clone(), None).unwrap(), some);
        // All others are as they were.
        let holed = [numbers(&[Some(1), None]), numbers(&[Some(i64::MIN), Some(7)])];
        let first = words[0];
        assert!(layout.pack(&holed, &mut words) && words[0] == first);
    }
}
