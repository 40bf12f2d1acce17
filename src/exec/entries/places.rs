//! Places of keys that memory has no room for: the distinct keys in order, and where each key is among them.
//!
//! Enters: keys, piece by piece, as often as they are asked for. Leaves: for each piece the places of its keys, in a file,
//! and the distinct keys. It answers what [`keys::distinct`](crate::exec::keys::distinct) does of keys at hand.
//!
//! ```text
//! numbers of a narrow range    a bit for each number; a place is the number of bits before
//! all others                   a table of those there are, which has to fit into memory
//! ```

use std::collections::HashMap;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Int64Array, UInt32Array, make_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Int64Type};

use crate::error::Result;
use crate::exec::keys::{Index, converter, is_by_value, is_narrow};
use crate::exec::run::{Budget, Cancel};
use crate::matrix::CellBuffer;
use crate::memory::{self, Shelf};

/// Bytes of a key in a table beside its own: where it is, what it is called, and its place.
const TABLE_BYTES: usize = 96;

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
        None => by_table(pieces, files),
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
fn by_table(pieces: &Pieces<'_>, files: &mut Files<'_>) -> Result<(Places, Vec<ArrayRef>)> {
    let types = (pieces.keys)(0)?;
    let Some(converter) = converter(&types)? else { return Ok((Vec::new(), types)) };
    let mut names: HashMap<Box<[u8]>, u32> = HashMap::new();
    let mut firsts: Vec<Vec<ArrayRef>> = vec![types.iter().map(|keys| keys.slice(0, 0)).collect()];
    let mut named: Places = Vec::with_capacity(pieces.count);
    let mut counted_bytes = 0;
    let cancel = files.cancel;
    pieces.each(cancel, |keys| {
        let rows = converter.convert_columns(&keys)?;
        let (mut new, mut new_bytes) = (Vec::new(), 0);
        let mut piece = Vec::with_capacity(rows.num_rows());
        for (at, row) in rows.iter().enumerate() {
            let next = names.len() as u32;
            let name = match names.get(row.data()) {
                Some(&name) => name,
                None => {
                    new.push(at as u32);
                    new_bytes += 3 * row.data().len() + TABLE_BYTES;
                    names.insert(row.data().into(), next);
                    next
                }
            };
            piece.push(name);
        }
        if !new.is_empty() {
            files.budget.grow(new_bytes, "the labels of a relation")?;
            counted_bytes += new_bytes;
            firsts.push(taken(&keys, new)?);
        }
        named.push(files.put(&piece)?);
        Ok(())
    })?;
    let mut order: Vec<(Box<[u8]>, u32)> = names.into_iter().collect();
    order.sort_unstable();
    let mut ranks = vec![0; order.len()];
    for (at, (_, name)) in order.iter().enumerate() {
        ranks[*name as usize] = at as u32;
    }
    let order = order.into_iter().map(|(_, name)| name).collect();
    let column = |at: usize| {
        let parts: Vec<&dyn Array> = firsts.iter().map(|keys| keys[at].as_ref()).collect();
        Ok(concat(&parts)?)
    };
    let all: Vec<ArrayRef> = (0..types.len()).map(column).collect::<Result<_>>()?;
    drop(firsts);
    let labels = taken(&all, order)?;
    let mut places = Vec::with_capacity(named.len());
    for names in named {
        cancel.check()?;
        let ranked: Vec<u32> = names.iter().map(|&name| ranks[name as usize]).collect();
        memory::done_with(bytemuck::cast_slice(&names));
        places.push(files.put(&ranked)?);
    }
    files.budget.shrink(counted_bytes);
    Ok((places, labels))
}

fn taken(keys: &[ArrayRef], places: Vec<u32>) -> Result<Vec<ArrayRef>> {
    let places = UInt32Array::from(places);
    keys.iter().map(|keys| Ok(take(keys, &places, None)?)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
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
