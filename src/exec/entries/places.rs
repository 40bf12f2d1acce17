//! Places of keys that memory has no room for: the distinct keys in order, and where each key is among them.
//!
//! Enters: keys, piece by piece, as often as they are asked for. Leaves: for each piece the places of its keys, in a file,
//! and the distinct keys. It answers what [`keys::distinct`](crate::exec::keys::distinct) does of keys at hand.
//!
//! ```text
//! numbers of a narrow range    a bit for each number; a place is the number of bits before
//! all others                   a name for each of those there are, and their order (`names`)
//! ```

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Int64Array, make_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};

use super::names::Names;
use crate::error::Result;
use crate::exec::keys::{Index, converter, is_by_value, is_narrow};
use crate::exec::run::{Budget, Cancel};
use crate::matrix::CellBuffer;
use crate::memory::{self, Shelf};

/// Bits that one count stands before.
const WORDS: usize = 8;

/// Keys of a dimension, read piece by piece.
pub(super) struct Pieces<'a> {
    pub(super) count: usize,
    /// The key columns of a piece.
    pub(super) keys: &'a dyn Fn(usize) -> Result<Vec<ArrayRef>>,
}

impl Pieces<'_> {
    /// Key columns in their order, which are then let go.
    fn each(
        &self,
        cancel: &Cancel,
        mut see: impl FnMut(Vec<ArrayRef>) -> Result<()>,
    ) -> Result<()> {
        for piece in 0..self.count {
            cancel.check()?;
            let keys = (self.keys)(piece)?;
            see(keys.clone())?;
            keys.iter().for_each(done_with);
        }
        Ok(())
    }
}

/// Says that a column of a piece has been read.
pub(super) fn done_with(column: &ArrayRef) {
    column.to_data().buffers().iter().for_each(|bytes| memory::done_with(bytes));
}

/// Where places are put, and what tables are counted by.
pub(super) struct Files<'a> {
    pub(super) shelf: Shelf,
    pub(super) budget: &'a mut dyn Budget,
    pub(super) cancel: &'a Cancel,
}

impl Files<'_> {
    /// Values in a file.
    pub(super) fn put<T: bytemuck::Pod + arrow::datatypes::ArrowNativeType>(
        &mut self,
        values: &[T],
    ) -> Result<ScalarBuffer<T>> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let put = self.shelf.put(bytes).map(ScalarBuffer::from);
        put.ok_or_else(|| self.budget.disk_spent(super::WHAT, bytes.len()))
    }
}

/// The places of each piece's keys.
pub(super) type Places = Vec<ScalarBuffer<u32>>;

/// The distinct keys in ascending order, and the places of all keys among them.
pub(super) fn distinct(
    pieces: &Pieces<'_>,
    files: &mut Files<'_>,
) -> Result<(Places, Vec<ArrayRef>)> {
    match by_value(pieces, files)? {
        Some(found) => Ok(found),
        None => by_name(pieces, files),
    }
}

/// The places of all keys among those of an index, or the first that is not there: the keys of its piece, and where.
pub(super) fn among(
    index: &Index,
    pieces: &Pieces<'_>,
    files: &mut Files<'_>,
) -> Result<std::result::Result<Places, (Vec<ArrayRef>, usize)>> {
    let mut places = Vec::with_capacity(pieces.count);
    let mut absent = None;
    let cancel = files.cancel;
    pieces.each(cancel, |keys| {
        if absent.is_none() {
            let found = index.find(&keys)?;
            match found.iter().position(Option::is_none) {
                Some(at) => absent = Some((keys, at)),
                None => {
                    let found: Vec<u32> = found.into_iter().flatten().map(|at| at as u32).collect();
                    places.push(files.put(&found)?);
                }
            }
        }
        Ok(())
    })?;
    Ok(match absent {
        Some(absent) => Err(absent),
        None => Ok(places),
    })
}

/// Numbers in a range not much wider than they are many.
fn by_value(pieces: &Pieces<'_>, files: &mut Files<'_>) -> Result<Option<(Places, Vec<ArrayRef>)>> {
    let mut data_type = None;
    let (mut least, mut most, mut count, mut is_number) = (i64::MAX, i64::MIN, 0, true);
    let cancel = files.cancel;
    pieces.each(cancel, |keys| {
        is_number = is_number && matches!(keys.as_slice(), [keys] if is_by_value(keys));
        if is_number {
            data_type.get_or_insert_with(|| keys[0].data_type().clone());
            let numbers = numbers(&keys[0])?;
            count += numbers.len();
            for &number in numbers.values() {
                (least, most) = (least.min(number), most.max(number));
            }
        }
        Ok(())
    })?;
    let Some(data_type) = data_type.filter(|_| is_number && is_narrow(least, most, count)) else {
        return Ok(None);
    };
    let mut there = Numbers::none(least, most);
    pieces.each(cancel, |keys| {
        numbers(&keys[0])?.values().iter().for_each(|&number| there.insert(number));
        Ok(())
    })?;
    there.count();
    let mut places = Vec::with_capacity(pieces.count);
    let mut piece_places = Vec::new();
    pieces.each(cancel, |keys| {
        piece_places.clear();
        piece_places.extend(numbers(&keys[0])?.values().iter().map(|&number| there.place(number)));
        places.push(files.put(&piece_places)?);
        Ok(())
    })?;
    Ok(Some((places, vec![there.labels(&data_type)?])))
}

fn numbers(keys: &ArrayRef) -> Result<Int64Array> {
    Ok(cast(keys, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// Which numbers of a range there are.
struct Numbers {
    least: i64,
    bits: CellBuffer<u64>,
    /// Bits before every so many words.
    before: Vec<u32>,
    total: usize,
}

impl Numbers {
    /// None of those from the least to the most.
    fn none(least: i64, most: i64) -> Self {
        let words = (most.wrapping_sub(least) as u64 as usize / 64 + 1).next_multiple_of(WORDS);
        Self { least, bits: CellBuffer::zeroed(words), before: Vec::new(), total: 0 }
    }

    fn slot(&self, number: i64) -> usize {
        number.wrapping_sub(self.least) as usize
    }

    fn insert(&mut self, number: i64) {
        let slot = self.slot(number);
        self.bits[slot / 64] |= 1 << (slot % 64);
    }

    /// Counts those before each.
    fn count(&mut self) {
        let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
        let mut total = 0;
        self.before = self
            .bits
            .chunks(WORDS)
            .map(|words| {
                let before = total;
                total += ones(words);
                before
            })
            .collect();
        self.total = total as usize;
    }

    /// How many there are before one that is there.
    fn place(&self, number: i64) -> u32 {
        let slot = self.slot(number);
        let word = slot / 64;
        let first = word / WORDS * WORDS;
        let whole: u32 = self.bits[first..word].iter().map(|word| word.count_ones()).sum();
        let below = self.bits[word] & ((1 << (slot % 64)) - 1);
        self.before[word / WORDS] + whole + below.count_ones()
    }

    /// All of them in order, as numbers of this type.
    fn labels(&self, data_type: &DataType) -> Result<ArrayRef> {
        /// Bits whose numbers are cast together.
        const WORDS_AT_ONCE: usize = 1 << 10;
        let width = data_type.primitive_width().unwrap_or(size_of::<i64>());
        let mut labels = CellBuffer::<u8>::arbitrary(self.total * width);
        let mut filled = 0;
        let mut numbers = Vec::new();
        for (at, words) in self.bits.chunks(WORDS_AT_ONCE).enumerate() {
            numbers.clear();
            for (word, &bits) in words.iter().enumerate() {
                let first = ((at * WORDS_AT_ONCE + word) * 64) as i64;
                let mut bits = bits;
                while bits != 0 {
                    numbers.push(self.least.wrapping_add(first + i64::from(bits.trailing_zeros())));
                    bits &= bits - 1;
                }
            }
            let typed = cast(&Int64Array::from(numbers.clone()), data_type)?.to_data();
            let bytes = &typed.buffers()[0].as_slice()[..numbers.len() * width];
            let target = filled..filled + bytes.len();
            labels[target.clone()].copy_from_slice(bytes);
            memory::done_with(&labels[target.clone()]);
            filled = target.end;
        }
        let labels = ScalarBuffer::from(labels).into_inner();
        let data = ArrayData::builder(data_type.clone()).len(self.total).add_buffer(labels);
        Ok(make_array(data.build()?))
    }
}

/// Keys of any type, by the bytes that compare as they do.
fn by_name(pieces: &Pieces<'_>, files: &mut Files<'_>) -> Result<(Places, Vec<ArrayRef>)> {
    let none = (pieces.keys)(0)?;
    let Some(converter) = converter(&none)? else { return Ok((Vec::new(), none)) };
    let mut names = Names::default();
    let mut named: Places = Vec::with_capacity(pieces.count);
    let cancel = files.cancel;
    pieces.each(cancel, |keys| {
        let piece = names.of(&converter.convert_columns(&keys)?, files)?;
        named.push(files.put(&piece)?);
        Ok(())
    })?;
    let types: Vec<DataType> = none.iter().map(|keys| keys.data_type().clone()).collect();
    let (ranks, labels) = names.ranked(&converter, &types, files)?;
    let mut places = Vec::with_capacity(named.len());
    for names in named {
        cancel.check()?;
        let ranked: Vec<u32> = names.iter().map(|&name| ranks[name as usize]).collect();
        memory::done_with(bytemuck::cast_slice(&names));
        places.push(files.put(&ranked)?);
    }
    Ok((places, labels))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, StringArray};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::testing::with_files;
    use super::*;
    use crate::exec::keys;

    /// Keys cut into pieces, whose places and labels are those of all at once.
    fn assert_same(all: Vec<ArrayRef>) {
        let (expected_places, expected_labels) = keys::distinct(&all).unwrap();
        let count = keys::length(&all);
        let cuts = [0, 0, count / 3, count / 3 + 1, count].map(|cut: usize| cut.min(count));
        let piece = |at: usize| {
            let (from, to) = (cuts[at], cuts[at + 1]);
            Ok(all.iter().map(|keys| keys.slice(from, to - from)).collect())
        };
        let (places, labels) = with_files(|files, _| {
            let pieces = Pieces { count: cuts.len() - 1, keys: &piece };
            let (places, labels) = distinct(&pieces, files).unwrap();
            (places.iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u32>>(), labels)
        });
        assert_eq!(places, expected_places);
        assert_eq!(labels, expected_labels);
    }

    #[test]
    fn places_and_labels_are_those_of_keys_at_hand() {
        let mut rng = SmallRng::seed_from_u64(5);
        let numbers = |of: &mut dyn FnMut() -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values((0..40_000).map(|_| of())))
        };
        let narrow = numbers(&mut || rng.random_range(-70_000..90_000));
        let ends = numbers(&mut || if rng.random() { i64::MIN } else { i64::MAX });
        let wide = numbers(&mut || rng.random_range(0..1000_i64).wrapping_mul(7_777_777_777_777));
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..40_000).map(|at| format!("{}", at % 777))));
        let one = cast(&numbers(&mut || -3), &DataType::Int16).unwrap();
        assert_same(vec![one]);
        assert_same(vec![cast(&narrow, &DataType::Int32).unwrap()]);
        assert_same(vec![cast(&wide, &DataType::Float64).unwrap()]);
        assert_same(vec![cast(&texts, &DataType::Utf8View).unwrap(), Arc::clone(&wide)]);
        assert_same(vec![texts.slice(0, 0)]);
        assert_same(vec![narrow.slice(0, 0)]);
        for keys in [narrow, ends, wide, texts] {
            assert_same(vec![keys]);
        }
    }

    #[test]
    fn keys_that_memory_has_no_table_for_have_the_places_of_keys_at_hand() {
        let count = 60_000;
        let key = |at: i64| at * 7_919 % 23_011;
        let keys = || (0..count).map(key);
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(keys().map(|key| {
            let long = "as long as no view has room for ".repeat(key as usize % 3);
            format!("{long}{key}")
        })));
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter_values(keys().map(|key| key * 7_777_777_777_777)));
        let as_type = |keys: &ArrayRef, of: &DataType| cast(keys, of).unwrap();
        assert_same(vec![as_type(&texts, &DataType::Utf8View)]);
        assert_same(vec![as_type(&texts, &DataType::LargeUtf8)]);
        assert_same(vec![
            as_type(&texts, &DataType::BinaryView),
            as_type(&texts, &DataType::Binary),
        ]);
        assert_same(vec![as_type(&numbers, &DataType::Float64)]);
        assert_same(vec![as_type(&numbers, &DataType::Decimal128(30, 2)), texts.slice(0, 60_000)]);
        let even: ArrayRef =
            Arc::new(BooleanArray::from_iter(keys().map(|key| Some(key % 2 == 0))));
        assert_same(vec![even, Arc::clone(&texts)]);
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        assert_same(vec![as_type(&texts, &dictionary)]);
        assert_same(vec![texts]);
        assert_same(vec![numbers]);
    }

    #[test]
    fn a_key_that_is_not_among_the_given_ones_is_found_in_its_piece() {
        let given: ArrayRef = Arc::new(Int64Array::from(vec![9, 3, 7]));
        let index = Index::new(&[given]).unwrap();
        let keys = [vec![3, 9, 9], vec![7], vec![3, 4, 5]];
        let piece = |at: usize| Ok(vec![Arc::new(Int64Array::from(keys[at].clone())) as ArrayRef]);
        let found = |count: usize| {
            with_files(|files, _| {
                let pieces = Pieces { count, keys: &piece };
                among(&index, &pieces, files).unwrap()
            })
        };
        let places = found(2).unwrap();
        assert_eq!(
            places.iter().map(|piece| piece.to_vec()).collect::<Vec<_>>(),
            [vec![1, 0, 0], vec![2]]
        );
        let (keys, at) = found(3).unwrap_err();
        assert_eq!((keys[0].as_primitive::<Int64Type>().value(at), at), (4, 1));
    }
}
