//! Keys of few different values: the number of a group is read at the place that the codes of its keys make.
//!
//! ```text
//! whole numbers    how far they are above the least, and one
//! truths           one and two
//! texts            those of a dictionary that batches share, and one; else those that each batch has, in the order in which
//!                  they come
//! NULL             zero
//! ```
//!
//! Not here: keys of which more values differ, and texts most of which come without codes (`packed`).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, StringArray,
    StringViewArray, UInt32Array, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::{max, min, take};
use arrow::datatypes::{DataType, SchemaRef, UInt8Type};
use datafusion::error::Result;
use rustc_hash::FxHashMap;

use crate::encoding::{for_whole_numbers, has_plain_texts, shared_codes, unpacked};

/// What a place without a group has for a number.
const FREE: u32 = u32::MAX;

/// Bits of the codes of a row: more places than these leave a near cache.
const BITS_MAX: u32 = 18;

/// Places that are not too many for any rows, and for each row: 2,048 rows may have all places.
const PLACES_MIN: usize = 1 << 12;
const PLACES_A_ROW: usize = 128;

/// The groups that were met.
#[derive(Debug)]
pub(super) struct Codes {
    columns: Vec<Column>,
    /// By places, the numbers of groups.
    numbers: Vec<u32>,
    /// By numbers of groups, their places.
    places: Vec<u32>,
    /// Those of the rows of a batch.
    of_rows: Vec<u32>,
    /// Rows that came, and those whose texts had no codes.
    rows: usize,
    plain_rows: usize,
}

/// A key, and where its code lies in a place.
#[derive(Debug)]
struct Column {
    data_type: DataType,
    values: Values,
    shift: u32,
    bits: u32,
}

/// What codes stand for.
#[derive(Debug)]
enum Values {
    Numbers { least: i64 },
    Truths,
    Texts(Texts),
}

/// Texts by their codes.
#[derive(Debug, Default)]
struct Texts {
    /// A dictionary, whose codes these are as long as no other text comes.
    shared: Option<ArrayRef>,
    all: Vec<Arc<str>>,
    known: FxHashMap<Arc<str>, u32>,
    /// Those of the last batch that has codes.
    last: Option<ArrayRef>,
    /// The codes of those by its own, or of the rows of a batch without.
    codes: Vec<u32>,
    bytes: usize,
}

impl Column {
    fn of(data_type: &DataType) -> Option<Self> {
        let values = match data_type {
            DataType::Boolean => Values::Truths,
            DataType::Utf8 | DataType::Utf8View => Values::Texts(Texts::default()),
            whole => {
                fn bytes<T: ArrowPrimitiveType>() -> Option<usize> {
                    Some(size_of::<T::Native>())
                }
                for_whole_numbers!(whole, bytes(), _other => None)?;
                Values::Numbers { least: 0 }
            }
        };
        Some(Self { data_type: data_type.clone(), values, shift: 0, bits: 0 })
    }

    /// The code of a place.
    fn code(&self, place: u32) -> u32 {
        (place >> self.shift) & ((1 << self.bits) - 1)
    }
}

/// The least of numbers, and the bits of the codes of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    least: i64,
    bits: u32,
}

/// Bits of so many codes, and that of NULL.
fn bits_of(values: i128) -> u32 {
    i128::BITS - values.leading_zeros()
}

impl Column {
    fn range(&self) -> Range {
        let least = if let Values::Numbers { least } = self.values { least } else { 0 };
        Range { least, bits: self.bits }
    }

    /// What holds these cells beside those before; nothing where they have no codes.
    fn with(&mut self, key: &ArrayRef) -> Option<Range> {
        let bits = match &mut self.values {
            Values::Truths => bits_of(2),
            Values::Texts(texts) => {
                match (shared_codes(key), key.as_dictionary_opt::<UInt8Type>()) {
                    (Some(codes), _) => texts.share(codes.values()),
                    (None, Some(codes)) => texts.learn(codes.values()),
                    (None, None) => texts.learn_rows(&unpacked(key).ok()?),
                }
                bits_of(texts.count() as i128).max(self.bits)
            }
            Values::Numbers { least } => {
                let of_key =
                    for_whole_numbers!(key.data_type(), bounds(key.as_ref()), _other => None);
                let Some((low, high)) = of_key? else { return Some(self.range()) };
                // Before the first number there are codes of none.
                let (low, high) = match self.bits {
                    0 => (low, high),
                    bits => {
                        let greatest = i128::from(*least) + (1 << bits) - 2;
                        (low.min((*least).into()), high.max(greatest))
                    }
                };
                let least = i64::try_from(low).ok()?;
                return Some(Range { least, bits: bits_of(high - low + 1) });
            }
        };
        Some(Range { least: 0, bits })
    }

    /// Puts the codes of cells into places that have zeros there.
    fn put(&self, key: &ArrayRef, places: &mut [u32]) {
        let nulls = key.nulls().filter(|nulls| nulls.null_count() > 0);
        match &self.values {
            Values::Truths => {
                let truths = key.as_boolean().values().iter();
                put_codes(truths.map(|truth| 1 + u32::from(truth)), self.shift, nulls, places);
            }
            Values::Texts(texts) => {
                if let Some(codes) = shared_codes(key) {
                    let codes = codes.keys().values().iter();
                    return match &texts.shared {
                        Some(_) => put_codes(codes.map(|code| code + 1), self.shift, nulls, places),
                        None => {
                            let of = |code: &u32| texts.codes.get(*code as usize).copied();
                            let codes = codes.map(|code| of(code).unwrap_or_default());
                            put_codes(codes, self.shift, nulls, places);
                        }
                    };
                }
                let Some(codes) = key.as_dictionary_opt::<UInt8Type>() else {
                    return put_codes(texts.codes.iter().copied(), self.shift, nulls, places);
                };
                let codes = codes.keys().values().iter();
                // One of each that there may be: no code is looked at that has none.
                let of: [u32; 256] =
                    std::array::from_fn(|code| texts.codes.get(code).copied().unwrap_or_default());
                put_codes(codes.map(|&code| of[usize::from(code)]), self.shift, nulls, places);
            }
            Values::Numbers { least } => {
                let least = *least as u32;
                for_whole_numbers!(
                    key.data_type(), put_numbers(key.as_ref(), least, self.shift, nulls, places),
                    _other => ()
                );
            }
        }
    }

    /// The cells of some places.
    fn cells(&self, places: &[u32]) -> Result<ArrayRef> {
        let codes = || places.iter().map(|&place| self.code(place));
        let is_valid = BooleanBuffer::from_iter(codes().map(|code| code > 0));
        let nulls = Some(NullBuffer::new(is_valid)).filter(|nulls| nulls.null_count() > 0);
        match &self.values {
            Values::Truths => {
                let truths = BooleanBuffer::from_iter(codes().map(|code| code > 1));
                Ok(Arc::new(BooleanArray::new(truths, nulls)))
            }
            Values::Texts(texts) => {
                let own = texts.all.iter().map(AsRef::as_ref);
                let all: ArrayRef = match (&texts.shared, &self.data_type) {
                    (Some(shared), _) => Arc::clone(shared),
                    (_, DataType::Utf8) => Arc::new(StringArray::from_iter_values::<&str, _>(own)),
                    _ => Arc::new(StringViewArray::from_iter_values::<&str, _>(own)),
                };
                let at = UInt32Array::new(codes().map(|code| code.max(1) - 1).collect(), nulls);
                // Where all are NULL, there is no text.
                Ok(match all.len() {
                    0 => arrow::array::new_null_array(&self.data_type, places.len()),
                    _ => take(&all, &at, None)?,
                })
            }
            Values::Numbers { least } => {
                let numbers =
                    codes().map(|code| least.wrapping_add(i64::from(code)).wrapping_sub(1));
                let cells = match self.data_type.primitive_width() {
                    Some(1) => Buffer::from_iter(numbers.map(|number| number as i8)),
                    Some(2) => Buffer::from_iter(numbers.map(|number| number as i16)),
                    Some(4) => Buffer::from_iter(numbers.map(|number| number as i32)),
                    Some(8) => Buffer::from_iter(numbers),
                    _ => Buffer::from_iter(numbers.map(i128::from)),
                };
                let data = ArrayData::builder(self.data_type.clone()).len(places.len());
                Ok(make_array(data.add_buffer(cells).nulls(nulls).build()?))
            }
        }
    }
}

/// The least and the greatest number, if there is one; nothing where they are beyond any code.
fn bounds<T: ArrowPrimitiveType<Native: Into<i128>>>(
    key: &dyn Array,
) -> Option<Option<(i128, i128)>> {
    let key = key.as_primitive::<T>();
    let Some((low, high)) = min(key).zip(max(key)) else { return Some(None) };
    let (low, high) = (low.into(), high.into());
    let is_near = |number: i128| number.unsigned_abs() < 1 << 62;
    (is_near(low) && is_near(high)).then_some(Some((low, high)))
}

fn put_numbers<T: ArrowPrimitiveType<Native: Into<i128>>>(
    key: &dyn Array,
    least: u32,
    shift: u32,
    nulls: Option<&NullBuffer>,
    places: &mut [u32],
) {
    let numbers = key.as_primitive::<T>().values().iter();
    // How far a number is above the least fits into 32 bits, of which no others matter.
    let code = |&number: &T::Native| {
        let number: i128 = number.into();
        (number as u32).wrapping_sub(least).wrapping_add(1)
    };
    put_codes(numbers.map(code), shift, nulls, places);
}

fn put_codes(
    codes: impl Iterator<Item = u32>,
    shift: u32,
    nulls: Option<&NullBuffer>,
    places: &mut [u32],
) {
    match nulls {
        None => places.iter_mut().zip(codes).for_each(|(place, code)| *place |= code << shift),
        // What a cell that is NULL holds means nothing.
        Some(nulls) => {
            for ((place, code), is_valid) in places.iter_mut().zip(codes).zip(nulls.iter()) {
                *place |= if is_valid { code << shift } else { 0 };
            }
        }
    }
}

impl Texts {
    fn count(&self) -> usize {
        self.shared.as_ref().map_or(self.all.len(), |shared| shared.len())
    }

    /// Takes the codes of a dictionary that batches share, if it is the first and the only one.
    fn share(&mut self, of: &ArrayRef) {
        if self.all.is_empty() && self.shared.is_none() {
            self.shared = Some(Arc::clone(of));
        }
        if self.shared.as_ref().is_none_or(|shared| !Arc::ptr_eq(shared, of)) {
            self.learn(of);
        }
    }

    /// Makes the codes of the dictionary its own.
    fn stop_sharing(&mut self) {
        if let Some(shared) = self.shared.take() {
            self.learn_rows(&shared);
        }
    }

    /// Gives codes to the texts of a batch.
    fn learn(&mut self, of: &ArrayRef) {
        self.stop_sharing();
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, of)) {
            return;
        }
        self.learn_rows(of);
        self.last = Some(Arc::clone(of));
    }

    /// The same of texts as they are.
    fn learn_rows(&mut self, of: &ArrayRef) {
        let text = |at: usize| match of.data_type() {
            DataType::Utf8 => of.as_string::<i32>().value(at),
            _ => of.as_string_view().value(at),
        };
        self.stop_sharing();
        self.last = None;
        self.codes.clear();
        for at in 0..of.len() {
            let code = if of.is_null(at) { 0 } else { self.code(text(at)) };
            self.codes.push(code);
        }
    }

    fn code(&mut self, text: &str) -> u32 {
        if let Some(&code) = self.known.get(text) {
            return code;
        }
        let (text, code) = (Arc::<str>::from(text), self.all.len() as u32 + 1);
        self.bytes += text.len() + 3 * size_of::<Arc<str>>() + size_of::<u32>();
        self.all.push(Arc::clone(&text));
        self.known.insert(text, code);
        code
    }
}

impl Codes {
    /// None where some key has no codes.
    pub(super) fn new(keys: &SchemaRef) -> Option<Self> {
        let columns = keys.fields().iter().map(|key| Column::of(key.data_type()));
        let columns: Vec<Column> = columns.collect::<Option<_>>()?;
        let (numbers, places, of_rows) = (Vec::new(), Vec::new(), Vec::new());
        let (rows, plain_rows) = (0, 0);
        let codes = Self { columns, numbers, places, of_rows, rows, plain_rows };
        (!codes.columns.is_empty()).then_some(codes)
    }

    /// The numbers of the groups of some rows, after those that are there; false where too many values differ, or most have no codes.
    pub(super) fn number(&mut self, keys: &[ArrayRef], numbers: &mut Vec<usize>) -> bool {
        let rows = keys.first().map_or(0, |key| key.len());
        if rows == 0 {
            return true;
        }
        self.rows = self.rows.saturating_add(rows);
        if keys.iter().any(has_plain_texts) {
            self.plain_rows += rows;
            if self.plain_rows > self.rows / 2 {
                return false;
            }
        }
        let ranges = self.columns.iter_mut().zip(keys).map(|(column, key)| column.with(key));
        let Some(ranges) = ranges.collect::<Option<Vec<Range>>>() else { return false };
        let is_same = self.columns.iter().zip(&ranges).all(|(column, to)| column.range() == *to);
        let is_laid_out = is_same && !self.numbers.is_empty();
        if !is_laid_out && !self.lay_out(&ranges) {
            return false;
        }
        self.of_rows.clear();
        self.of_rows.resize(rows, 0);
        for (column, key) in self.columns.iter().zip(keys) {
            column.put(key, &mut self.of_rows);
        }
        let (groups, places) = (&mut self.numbers, &mut self.places);
        numbers.extend(self.of_rows.iter().map(|&place| {
            let number = &mut groups[place as usize];
            if *number == FREE {
                *number = places.len() as u32;
                places.push(place);
            }
            *number as usize
        }));
        true
    }

    /// Moves all groups to where these ranges have them; false where there would be too many places.
    fn lay_out(&mut self, ranges: &[Range]) -> bool {
        let bits: u32 = ranges.iter().map(|range| range.bits).sum();
        let most = PLACES_MIN.max(PLACES_A_ROW.saturating_mul(self.rows));
        if bits > BITS_MAX || 1 << bits > most {
            return false;
        }
        let mut moved = vec![0; self.places.len()];
        let mut shift = 0;
        for (column, range) in self.columns.iter_mut().zip(ranges) {
            let Range { least: before, .. } = column.range();
            let raised = if let Values::Numbers { least } = &mut column.values {
                *least = range.least;
                before.wrapping_sub(range.least) as u32
            } else {
                0
            };
            for (to, &place) in moved.iter_mut().zip(&self.places) {
                let code = column.code(place);
                *to |= if code == 0 { 0 } else { code.wrapping_add(raised) << shift };
            }
            (column.shift, column.bits) = (shift, range.bits);
            shift += range.bits;
        }
        self.places = moved;
        self.numbers.clear();
        self.numbers.resize(1 << bits, FREE);
        for (number, &place) in self.places.iter().enumerate() {
            self.numbers[place as usize] = number as u32;
        }
        true
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let texts = self.columns.iter().map(|column| match &column.values {
            Values::Texts(texts) => texts.bytes,
            Values::Numbers { .. } | Values::Truths => 0,
        });
        let places = self.numbers.capacity() + self.places.capacity() + self.of_rows.capacity();
        places * size_of::<u32>() + texts.sum::<usize>()
    }

    /// Bytes that so many more rows may take beside.
    pub(super) fn growth_bytes(&self, more: usize) -> usize {
        let rows = self.rows.saturating_add(more).saturating_mul(PLACES_A_ROW);
        let most = rows.clamp(PLACES_MIN, 1 << BITS_MAX);
        (most.saturating_sub(self.numbers.len()) + 3 * more) * size_of::<u32>()
    }

    /// The keys of all groups by number; none is known any more.
    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>> {
        let places = std::mem::take(&mut self.places);
        places.iter().for_each(|&place| self.numbers[place as usize] = FREE);
        self.columns.iter().map(|column| column.cells(&places)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::array::{Date32Array, Decimal128Array, Int64Array, RecordBatch};
    use arrow::compute::concat_batches;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::encoding::encoded;

    /// Keys of all kinds in batches of few rows and of many, encoded mostly, with NULLs and without; ranges widen on the way.
    fn batch(random: &mut SmallRng, rows: usize, width: i64) -> RecordBatch {
        fn cells<T>(
            random: &mut SmallRng,
            rows: usize,
            cell: impl Fn(&mut SmallRng) -> T,
        ) -> Vec<Option<T>> {
            let nulls = [0.0, 0.1][random.random_range(0..2)];
            (0..rows).map(|_| Some(cell(random)).filter(|_| !random.random_bool(nulls))).collect()
        }
        let number = move |random: &mut SmallRng| random.random_range(-width..width);
        let text = move |random: &mut SmallRng| format!("text {}", number(random) / 2);
        let texts = cells(random, rows, text).into_iter();
        let views: ArrayRef = Arc::new(texts.collect::<StringViewArray>());
        let texts = cells(random, rows, text).into_iter();
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let integers: ArrayRef = Arc::new(Int64Array::from(cells(random, rows, number)));
        let days = cells(random, rows, move |random| number(random) as i32 + 9000);
        let days: ArrayRef = Arc::new(Date32Array::from(days));
        let truths = cells(random, rows, |random| random.random_bool(0.5));
        let truths: ArrayRef = Arc::new(BooleanArray::from(truths));
        let decimals = cells(random, rows, move |random| i128::from(number(random)));
        let decimals = Decimal128Array::from(decimals).with_precision_and_scale(20, 2).unwrap();
        let columns: [(&str, ArrayRef); 6] = [
            ("views", views),
            ("texts", texts),
            ("integers", integers),
            ("days", days),
            ("truths", truths),
            ("decimals", Arc::new(decimals)),
        ];
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    #[test]
    fn equal_keys_have_one_number_and_new_ones_the_next() {
        let random = &mut SmallRng::seed_from_u64(3);
        let (mut batches_numbered, mut refusals) = (0, 0);
        for _ in 0..300 {
            let count = random.random_range(1..4);
            let chosen: Vec<usize> = (0..count).map(|_| random.random_range(0..6)).collect();
            let schema = batch(random, 1, 1).project(&chosen).unwrap().schema();
            let mut codes = Codes::new(&schema).unwrap();
            let mut expected: HashMap<Vec<String>, usize> = HashMap::new();
            let mut firsts = Vec::new();
            for round in 0..6 {
                let rows = [0, 1, 40, 3000][random.random_range(0..4)];
                let width = [1, 3, 60][random.random_range(0..3)];
                let whole = batch(random, rows, width).project(&chosen).unwrap();
                // A batch of few rows may come as it is.
                let is_plain = round > 0 && rows <= 40 && random.random_bool(0.5);
                let key = |key: &ArrayRef| if is_plain { Arc::clone(key) } else { encoded(key) };
                let keys: Vec<ArrayRef> = whole.columns().iter().map(key).collect();
                let mut numbers = Vec::new();
                if !codes.number(&keys, &mut numbers) {
                    refusals += 1;
                    break;
                }
                batches_numbered += usize::from(rows > 0);
                let before = expected.len();
                let texts = |at: usize| {
                    let cell = |column: &ArrayRef| format!("{:?}", column.slice(at, 1));
                    whole.columns().iter().map(cell).collect::<Vec<_>>()
                };
                let of_rows: Vec<usize> = (0..rows)
                    .map(|at| {
                        let next = expected.len();
                        *expected.entry(texts(at)).or_insert(next)
                    })
                    .collect();
                assert_eq!(numbers, of_rows);
                for group in before..expected.len() {
                    let at = of_rows.iter().position(|&of| of == group).unwrap();
                    firsts.push(whole.slice(at, 1));
                }
            }
            // Whatever was refused, the groups that are known leave as they came.
            assert_eq!(codes.count(), expected.len());
            let found = RecordBatch::try_new(Arc::clone(&schema), codes.take().unwrap()).unwrap();
            assert_eq!(found, concat_batches(&schema, &firsts).unwrap());
            assert_eq!((codes.count(), codes.take().unwrap()[0].len()), (0, 0));
        }
        assert!(batches_numbered > 300 && refusals > 20, "{batches_numbered}, {refusals}");
    }

    #[test]
    fn texts_without_codes_are_refused() {
        let random = &mut SmallRng::seed_from_u64(4);
        let keys = batch(random, 500, 3).project(&[0]).unwrap();
        let mut codes = Codes::new(&keys.schema()).unwrap();
        assert!(!codes.number(keys.columns(), &mut Vec::new()));
    }
}
