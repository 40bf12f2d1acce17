//! Whole numbers as how far each is above the least of them, in as many bits as the farthest needs: Afroozeh and Boncz, *The
//! FastLanes Compression Layout: Decoding > 100 Billion Integers per Second with Scalar Code*, PVLDB 16, 2023.
//!
//! ```text
//! bytes   head     how many numbers, bits of each, whether some are NULL, the least, and the type that they have when they are read
//!         groups   128 bytes, which are lanes of the width of that type; of each 1,024 numbers as many groups as one has bits
//!         there    a bit for each number, where some are NULL
//! ```
//!
//! A number follows the one that is a group before it, in the same lane, so that all lanes are shifted alike and none needs bits of
//! another: what is read and written is whole vectors, whatever the width.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, LargeBinaryArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{max, min};
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::error::ArrowError;

use super::for_whole_numbers;

/// Numbers whose groups follow one another.
const BLOCK: usize = 1024;

/// Bytes of all lanes.
const GROUP_BYTES: usize = BLOCK / 8;

/// Bytes before the groups: as many numbers (4), bits, what is NULL, type, nothing, and the least (8).
const HEAD_BYTES: usize = 16;

/// Numbers that keep more of the bits of their type stay as they are.
const BITS_SHARE_MAX: f64 = 7.0 / 8.0;

/// The types that numbers are read in where these are not their own, by their number in the head.
const NARROWER: [DataType; 4] = [DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64];

/// A whole number as its bits.
trait Lane: ArrowNativeType + bytemuck::Pod {
    fn of(bits: u64) -> Self;

    /// Writes the groups of a block.
    fn pack(block: &[Self; BLOCK], bits: usize, groups: &mut Vec<u8>);

    /// The number of a row of all these groups.
    fn of_row(groups: &[Self], bits: usize, least: Self, row: usize) -> Self;

    /// Reads all numbers of a block, the least added to each.
    fn unpack(groups: &[Self], bits: usize, least: Self, numbers: &mut Vec<Self>);
}

macro_rules! lane {
    ($lane:ty) => {
        impl Lane for $lane {
            #[inline(always)]
            fn of(bits: u64) -> Self {
                bits as Self
            }

            #[inline(always)]
            fn pack(block: &[Self; BLOCK], bits: usize, groups: &mut Vec<u8>) {
                const LANES: usize = GROUP_BYTES / size_of::<$lane>();
                let (mut group, mut filled) = ([0; LANES], 0);
                for numbers in block.chunks_exact(LANES) {
                    let lanes = group.iter_mut().zip(numbers);
                    lanes.for_each(|(lane, number)| *lane |= number << filled);
                    filled += bits;
                    if filled < Self::BITS as usize {
                        continue;
                    }
                    groups.extend_from_slice(bytemuck::cast_slice(&group));
                    filled -= Self::BITS as usize;
                    let written = (bits - filled) as u32;
                    let rest = |number: &Self| number.checked_shr(written).unwrap_or(0);
                    group.iter_mut().zip(numbers).for_each(|(lane, of)| *lane = rest(of));
                }
            }

            #[inline(always)]
            fn of_row(groups: &[Self], bits: usize, least: Self, row: usize) -> Self {
                const LANES: usize = GROUP_BYTES / size_of::<$lane>();
                const BITS: usize = <$lane>::BITS as usize;
                if bits == 0 {
                    return least;
                }
                let (block, turn, lane) = (row / BLOCK, row % BLOCK / LANES, row % LANES);
                let (at, before) = (turn * bits / BITS, turn * bits % BITS);
                let at = (block * bits + at) * LANES + lane;
                let mut number = groups[at] >> before;
                if before + bits > BITS {
                    number |= groups[at + LANES] << (BITS - before);
                }
                (number & Self::MAX >> (BITS - bits)).wrapping_add(least)
            }

            #[inline(always)]
            fn unpack(groups: &[Self], bits: usize, least: Self, numbers: &mut Vec<Self>) {
                const LANES: usize = GROUP_BYTES / size_of::<$lane>();
                const BITS: usize = <$lane>::BITS as usize;
                if bits == 0 {
                    numbers.extend_from_slice(&[least; BLOCK]);
                    return;
                }
                let own = Self::MAX >> (BITS - bits);
                let above = |bits: Self| (bits & own).wrapping_add(least);
                for first in (0..BITS).map(|turn| turn * bits) {
                    let (at, before) = (first / BITS, first % BITS);
                    let group = groups[at * LANES..][..LANES].iter();
                    if before + bits <= BITS {
                        numbers.extend(group.map(|lane| above(lane >> before)));
                    } else {
                        let both = group.zip(&groups[(at + 1) * LANES..][..LANES]);
                        let whole = |(lane, rest): (&Self, &Self)| {
                            above(lane >> before | rest << (BITS - before))
                        };
                        numbers.extend(both.map(whole));
                    }
                }
            }
        }
    };
}

lane!(u8);
lane!(u16);
lane!(u32);
lane!(u64);

/// What stands before the groups.
#[derive(Debug, Clone, Copy)]
struct Head {
    count: usize,
    bits: usize,
    has_nulls: bool,
    /// One more than the number of a narrower type; none of a type of its own.
    narrower: usize,
    least: u64,
}

impl Head {
    fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&(self.count as u32).to_le_bytes());
        bytes[4..7].copy_from_slice(&[
            self.bits as u8,
            u8::from(self.has_nulls),
            self.narrower as u8,
        ]);
        bytes[8..].copy_from_slice(&self.least.to_le_bytes());
        bytes
    }

    /// The head of these bytes; nothing where they are fewer than it says.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [a, b, c, d, bits, has_nulls, narrower, _, least @ ..] = *head;
        let head = Self {
            count: u32::from_le_bytes([a, b, c, d]) as usize,
            bits: usize::from(bits),
            has_nulls: has_nulls != 0,
            narrower: usize::from(narrower),
            least: u64::from_le_bytes(least),
        };
        let there = if head.has_nulls { head.count.div_ceil(8) } else { 0 };
        (rest.len() >= head.group_bytes(head.count) + there).then_some(head)
    }

    /// Bytes of the groups of so many numbers.
    fn group_bytes(self, numbers: usize) -> usize {
        numbers.div_ceil(BLOCK) * self.bits * GROUP_BYTES
    }
}

/// A column of whole numbers in fewer bits, as one cell; nothing where it is another, or takes as many. `own` is the type that it has
/// when it is decoded.
pub(super) fn packed(column: &ArrayRef, own: &DataType) -> Option<ArrayRef> {
    let narrower = match column.data_type() == own {
        true => 0,
        false => 1 + NARROWER.iter().position(|of| of == column.data_type())?,
    };
    for_whole_numbers!(column.data_type(), packed_as(column.as_ref(), narrower), _other => None)
}

fn packed_as<P: ArrowPrimitiveType<Native: Into<i128>>>(
    column: &dyn Array,
    narrower: usize,
) -> Option<ArrayRef> {
    let column = column.as_primitive_opt::<P>()?;
    let least: i128 = min(column).unwrap_or_default().into();
    let greatest: i128 = max(column).unwrap_or_default().into();
    let bits = (i128::BITS - (greatest.checked_sub(least)?).leading_zeros()) as usize;
    let width = size_of::<P::Native>();
    if width > size_of::<u64>() || bits as f64 > BITS_SHARE_MAX * (8 * width) as f64 {
        return None;
    }
    // Whoever reads them takes them for what they are: NULLs may be any number.
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let above = |at: usize| match nulls.is_none_or(|nulls| nulls.is_valid(at)) {
        true => (column.value(at).into() - least) as u64,
        false => 0,
    };
    let least = least as u64;
    let head = Head { count: column.len(), bits, has_nulls: nulls.is_some(), narrower, least };
    let there = nulls.map_or(0, |_| column.len().div_ceil(8));
    let mut bytes = Vec::with_capacity(HEAD_BYTES + head.group_bytes(column.len()) + there);
    bytes.extend_from_slice(&head.bytes());
    match width {
        1 => pack::<u8>(column.len(), above, bits, &mut bytes),
        2 => pack::<u16>(column.len(), above, bits, &mut bytes),
        4 => pack::<u32>(column.len(), above, bits, &mut bytes),
        _ => pack::<u64>(column.len(), above, bits, &mut bytes),
    }
    if let Some(nulls) = nulls {
        bytes.extend_from_slice(&nulls.inner().sliced()[..there]);
    }
    let offsets = OffsetBuffer::from_lengths([bytes.len()]);
    Some(Arc::new(LargeBinaryArray::new(offsets, Buffer::from_vec(bytes), None)))
}

fn pack<L: Lane>(count: usize, above: impl Fn(usize) -> u64, bits: usize, groups: &mut Vec<u8>) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            for first in (0..count).step_by(BLOCK) {
                let mut block = [L::default(); BLOCK];
                let rows = first..count.min(first + BLOCK);
                block.iter_mut().zip(rows).for_each(|(cell, row)| *cell = L::of(above(row)));
                L::pack(&block, bits, groups);
            }
        },
    );
}

/// Some numbers of a column that was packed so, in the type that it had then.
///
/// # Errors
/// None, for what was packed is unpacked.
pub(super) fn unpacked(
    packed: &LargeBinaryArray,
    own: &DataType,
    rows: Range<usize>,
) -> Result<ArrayRef, ArrowError> {
    let (packed, data_type) = Packed::read(packed, own, rows.end)?;
    let cells = match data_type.primitive_width() {
        Some(1) => packed.cells::<u8>(&rows),
        Some(2) => packed.cells::<u16>(&rows),
        Some(4) => packed.cells::<u32>(&rows),
        _ => packed.cells::<u64>(&rows),
    };
    let nulls = packed
        .there()
        .map(|there| NullBuffer::new(BooleanBuffer::new(there, rows.start, rows.len())));
    let data = ArrayData::builder(data_type).len(rows.len()).add_buffer(cells);
    Ok(make_array(data.nulls(nulls).build()?))
}

/// The numbers of some rows by their places, in the type that they had.
///
/// # Errors
/// As of all.
pub(super) fn taken(
    packed: &LargeBinaryArray,
    own: &DataType,
    places: impl Iterator<Item = usize> + Clone,
) -> Result<ArrayRef, ArrowError> {
    let end = places.clone().max().map_or(0, |last| last + 1);
    let (packed, data_type) = Packed::read(packed, own, end)?;
    let (count, cells) = match data_type.primitive_width() {
        Some(1) => packed.taken::<u8>(places.clone()),
        Some(2) => packed.taken::<u16>(places.clone()),
        Some(4) => packed.taken::<u32>(places.clone()),
        _ => packed.taken::<u64>(places.clone()),
    };
    let nulls = packed.there().map(|there| {
        let there = BooleanBuffer::new(there, 0, packed.head.count);
        NullBuffer::from_iter(places.map(|place| there.value(place)))
    });
    let data = ArrayData::builder(data_type).len(count).add_buffer(cells);
    Ok(make_array(data.nulls(nulls).build()?))
}

/// Numbers that were packed.
struct Packed<'a> {
    head: Head,
    bytes: &'a Buffer,
}

impl<'a> Packed<'a> {
    /// At least so many of them, and the type that they had.
    fn read(
        packed: &'a LargeBinaryArray,
        own: &DataType,
        count: usize,
    ) -> Result<(Self, DataType), ArrowError> {
        let other = || ArrowError::InvalidArgumentError("no numbers are packed so".to_owned());
        let bytes = packed.values();
        let head = Head::read(bytes).filter(|head| count <= head.count).ok_or_else(other)?;
        let data_type = match head.narrower.checked_sub(1) {
            None => own,
            Some(of) => NARROWER.get(of).ok_or_else(other)?,
        };
        let has_room = |width: usize| width <= size_of::<u64>() && head.bits <= 8 * width;
        match data_type.primitive_width().is_some_and(has_room) {
            true => Ok((Self { head, bytes }, data_type.clone())),
            false => Err(other()),
        }
    }

    /// The groups. They lie where numbers may, but for who has put them elsewhere.
    fn groups<L: Lane>(&self) -> Cow<'a, [L]> {
        let groups = &self.bytes[HEAD_BYTES..][..self.head.group_bytes(self.head.count)];
        match bytemuck::try_cast_slice(groups) {
            Ok(groups) => Cow::Borrowed(groups),
            Err(_) => {
                let lanes = groups.chunks_exact(size_of::<L>()).map(bytemuck::pod_read_unaligned);
                Cow::Owned(lanes.collect())
            }
        }
    }

    /// A bit for each number, where some are NULL.
    fn there(&self) -> Option<Buffer> {
        let at = HEAD_BYTES + self.head.group_bytes(self.head.count);
        self.head.has_nulls.then(|| self.bytes.slice(at))
    }

    /// The cells of some rows, of the blocks that have them.
    fn cells<L: Lane>(&self, rows: &Range<usize>) -> Buffer {
        let Head { bits, least, .. } = self.head;
        let blocks = rows.start / BLOCK..rows.end.div_ceil(BLOCK).max(rows.start / BLOCK);
        let (groups, of_block) = (self.groups::<L>(), bits * GROUP_BYTES / size_of::<L>());
        let least = L::of(least);
        let mut numbers: Vec<L> = Vec::with_capacity(blocks.len() * BLOCK);
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for block in blocks.clone() {
                    let groups = &groups[block * of_block..][..of_block];
                    L::unpack(groups, bits, least, &mut numbers);
                }
            },
        );
        let before = rows.start - blocks.start * BLOCK;
        ScalarBuffer::from(numbers).slice(before, rows.len()).into_inner()
    }

    /// The cells of rows by their places, and how many they are.
    fn taken<L: Lane>(&self, places: impl Iterator<Item = usize>) -> (usize, Buffer) {
        let Head { bits, least, .. } = self.head;
        let (groups, least) = (self.groups::<L>(), L::of(least));
        let numbers = places.map(|place| L::of_row(&groups, bits, least, place));
        let numbers: Vec<L> = numbers.collect();
        (numbers.len(), Buffer::from_vec(numbers))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int16Array, Int32Array, Int64Array, UInt8Array, UInt64Array};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn bits(column: &ArrayRef) -> Option<usize> {
        let packed = packed(column, column.data_type())?;
        Some(Head::read(packed.as_binary::<i64>().values()).unwrap().bits)
    }

    #[test]
    fn numbers_of_every_width_are_what_they_were() {
        let random = &mut SmallRng::seed_from_u64(54);
        for round in 0..600 {
            let width = [1, 2, 4, 8][round % 4];
            let wide = random.random_range(0..=7 * width);
            let count = random.random_range(0..5000);
            let share = [0.0, 0.3][round % 2];
            let room = (1_i128 << (8 * width - 1)) - (1_i128 << wide);
            let least = random.random_range(-room - 1..=room) as i64;
            let mut number = |_| {
                let above = (1_u64 << wide) - 1;
                let above =
                    if random.random_bool(0.1) { above } else { random.random_range(0..=above) };
                (!random.random_bool(share)).then(|| least.wrapping_add_unsigned(above))
            };
            let numbers: Vec<_> = (0..count).map(&mut number).collect();
            let columns: [ArrayRef; 2] = match width {
                1 => {
                    let moved = numbers.iter().map(|of| of.map(|of| (of as u8) ^ 0x80));
                    let cells = numbers.iter().map(|of| of.map(|of| of as i8));
                    [
                        Arc::new(moved.collect::<UInt8Array>()),
                        Arc::new(cells.collect::<arrow::array::Int8Array>()),
                    ]
                }
                2 => [(); 2].map(|()| {
                    let cells = numbers.iter().map(|of| of.map(|of| of as i16));
                    Arc::new(cells.collect::<Int16Array>()) as _
                }),
                4 => [(); 2].map(|()| {
                    let cells = numbers.iter().map(|of| of.map(|of| of as i32));
                    Arc::new(cells.collect::<Int32Array>()) as _
                }),
                _ => {
                    let moved = numbers.iter().map(|of| of.map(|of| of.cast_unsigned() ^ 1 << 63));
                    [
                        Arc::new(moved.collect::<UInt64Array>()),
                        Arc::new(Int64Array::from(numbers.clone())),
                    ]
                }
            };
            for column in &columns {
                let packed = packed(column, column.data_type()).unwrap();
                assert_eq!(packed.len(), 1);
                let packed = packed.as_binary::<i64>();
                let back = |rows| unpacked(packed, column.data_type(), rows).unwrap();
                assert_eq!(&back(0..count), column, "{width} bytes, {wide} bits");
                let start = random.random_range(0..=count);
                let end = random.random_range(start..=count);
                assert_eq!(&back(start..end), &column.slice(start, end - start));
                assert!(unpacked(packed, column.data_type(), 0..count + 1).is_err());
            }
        }
    }

    #[test]
    fn as_many_bits_are_taken_as_the_farthest_needs() {
        let column = |of: &[Option<i32>]| Arc::new(Int32Array::from(of.to_vec())) as ArrayRef;
        assert_eq!(bits(&column(&[Some(7), Some(7), None])), Some(0));
        assert_eq!(bits(&column(&[Some(-1), Some(0)])), Some(1));
        assert_eq!(bits(&column(&[Some(1000), Some(1255), Some(1256)])), Some(9));
        assert_eq!(bits(&column(&[None])), Some(0));
        assert_eq!(bits(&column(&[Some(0), Some((1 << 28) - 1)])), Some(28));
        assert_eq!(bits(&column(&[Some(0), Some(1 << 28)])), None);
        assert_eq!(bits(&column(&[Some(i32::MIN), Some(i32::MAX)])), None);
        // What a NULL hides does not count.
        let hidden = Int32Array::new(vec![i32::MAX, 3].into(), Some(vec![false, true].into()));
        assert_eq!(bits(&(Arc::new(hidden) as _)), Some(0));
        let floats: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![1.0, 1.0]));
        assert_eq!(bits(&floats), None);
    }

    #[test]
    fn bytes_that_are_none_of_its_own_are_refused() {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..3000));
        let packed = packed(&column, &DataType::Int32).unwrap();
        let bytes = packed.as_binary::<i64>().value(0).to_vec();
        let of = |bytes: &[u8]| LargeBinaryArray::from_vec(vec![bytes]);
        for end in [0, HEAD_BYTES - 1, HEAD_BYTES, bytes.len() - 1] {
            assert!(unpacked(&of(&bytes[..end]), &DataType::Int32, 0..1).is_err());
        }
        let mut other = bytes.clone();
        other[6] = 9;
        assert!(unpacked(&of(&other), &DataType::Int32, 0..1).is_err());
        // Of a type that has no room for as many bits.
        assert!(unpacked(&of(&bytes), &DataType::Int8, 0..1).is_err());
        assert!(unpacked(&of(&bytes), &DataType::Utf8, 0..1).is_err());
    }
}
