//! Sort keys of a fixed width in as few bits as tell them apart.
//!
//! Enters: the key columns of blocks. Leaves: for each row words that compare like its keys: of each key, how far it is from
//! the one that comes first of all, in as many bits as the farthest has, one key behind the other. Where they fit into one
//! word, keys are had of it again, and are not looked up where their rows lie.
//!
//! ```text
//! price DESC   90,000 … 10,494,950   24 bits ┐
//! order             1 …  6,000,000   23 bits ├ 50 bits of one word
//! line              1 …          7    3 bits ┘
//! ```

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};

use crate::error::{Error, ErrorKind};
use crate::exec::relational::cells::{Cell, Key, cells, with_cell};

const WORD_BITS: u32 = u64::BITS;

/// Whether keys of this type are packed.
pub(super) fn is_packed(data_type: &DataType) -> bool {
    with_cell!(data_type, _Cell => ()).is_some()
}

/// The keys of a block.
pub(super) struct Columns {
    keys: Vec<ArrayRef>,
    spans: Vec<Span>,
}

/// From where to where the keys of a column lie, and whether some are NULL.
#[derive(Clone, Copy)]
struct Span {
    least: u128,
    most: u128,
    has_nulls: bool,
}

impl Columns {
    /// # Errors
    /// Where a key's type is none that is packed.
    pub(super) fn new(keys: Vec<ArrayRef>) -> Result<Self> {
        let span = |key: &ArrayRef| {
            with_cell!(key.data_type(), C => Span::of::<C>(key))
                .ok_or_else(|| not_packed(key.data_type()))
        };
        let spans = keys.iter().map(span).collect::<Result<_>>()?;
        Ok(Self { keys, spans })
    }

    fn rows(&self) -> usize {
        self.keys.first().map_or(0, |key| key.len())
    }

    /// Bytes of keys that are none of the columns of a batch, and of the words of all at most.
    pub(super) fn bytes(&self, batch: &RecordBatch) -> usize {
        let is_own =
            |key: &&ArrayRef| !batch.columns().iter().any(|of| std::ptr::eq(&**of, &***key));
        let own: usize =
            self.keys.iter().filter(is_own).map(|key| key.get_array_memory_size()).sum();
        let widths = self.keys.iter().filter_map(|key| key.data_type().primitive_width());
        // One bit more tells whether it is NULL.
        let bits: usize = widths.map(|width| 8 * width + 1).sum();
        let words = bits.div_ceil(WORD_BITS as usize);
        own + self.rows() * words * size_of::<u64>()
    }
}

fn not_packed(of: &DataType) -> DataFusionError {
    let message = format!("keys of {of} are not sorted by their bits");
    Error::from(ErrorKind::Internal(message)).into()
}

impl Span {
    /// Of no keys.
    const NONE: Self = Self { least: u128::MAX, most: 0, has_nulls: false };

    fn of<C: Cell>(column: &ArrayRef) -> Self {
        let cells = cells::<C>(column);
        let ends = match column.nulls() {
            None => ends(cells.iter().map(|cell| cell.key())),
            Some(nulls) => ends(nulls.valid_indices().map(|row| cells[row].key())),
        };
        let has_nulls = column.null_count() > 0;
        match ends {
            Some((least, most)) => Self { least: least.wide(), most: most.wide(), has_nulls },
            None => Self { has_nulls, ..Self::NONE },
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            has_nulls: self.has_nulls || other.has_nulls,
        }
    }

    /// Bits of the farthest distance between two keys.
    fn bits(&self) -> u32 {
        u128::BITS - self.most.saturating_sub(self.least).leading_zeros()
    }
}

fn ends<K: Key>(mut keys: impl Iterator<Item = K>) -> Option<(K, K)> {
    let first = keys.next()?;
    Some(keys.fold((first, first), |(least, most), key| (least.min(key), most.max(key))))
}

/// How the keys of all blocks become words.
pub(super) struct Packing {
    columns: Vec<Packed>,
    /// Of a row.
    pub(super) words: usize,
}

/// How those of a column do.
struct Packed {
    span: Span,
    options: SortOptions,
    /// The first bit: it tells who is NULL, where some are.
    at: u32,
}

impl Packing {
    /// Of keys that are ordered so.
    pub(super) fn new<'a>(
        options: &[SortOptions],
        blocks: impl Iterator<Item = &'a Columns>,
    ) -> Self {
        let mut spans = vec![Span::NONE; options.len()];
        for block in blocks {
            spans.iter_mut().zip(&block.spans).for_each(|(all, span)| *all = all.and(*span));
        }
        let mut end = 0;
        let columns = spans.into_iter().zip(options).map(|(span, &options)| {
            let at = end;
            end += u32::from(span.has_nulls) + span.bits();
            Packed { span, options, at }
        });
        let columns = columns.collect();
        Self { columns, words: end.div_ceil(WORD_BITS).max(1) as usize }
    }

    /// The words of a block, row by row.
    ///
    /// # Errors
    /// None where the block is one of those that the packing was made for.
    pub(super) fn words(&self, block: &Columns) -> Result<Vec<u64>> {
        let mut words = vec![0; block.rows() * self.words];
        for (packed, key) in self.columns.iter().zip(&block.keys) {
            with_cell!(key.data_type(), C => packed.put::<C>(key, &mut words, self.words))
                .ok_or_else(|| not_packed(key.data_type()))?;
        }
        Ok(words)
    }

    /// The cells of a key again, of the type of its column, where each row has one word.
    ///
    /// # Errors
    /// Where that is none that is packed.
    pub(super) fn cells(
        &self,
        key: usize,
        words: impl Iterator<Item = u64> + Clone,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let cells = with_cell!(data_type, C => self.columns[key].cells::<C>(words, data_type));
        cells.ok_or_else(|| not_packed(data_type))?
    }
}

impl Packed {
    fn cells<C: Cell>(
        &self,
        words: impl Iterator<Item = u64> + Clone,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let Span { least, most, has_nulls } = self.span;
        let at = self.at + u32::from(has_nulls);
        let cell = |word: u64| {
            let distance = match self.span.bits() {
                0 => 0,
                bits => u128::from(word << at >> (WORD_BITS - bits)),
            };
            let key = match self.options.descending {
                true => most.wrapping_sub(distance),
                false => least.wrapping_add(distance),
            };
            C::of(C::Key::of_wide(key))
        };
        let cells: Vec<C> = words.clone().map(cell).collect();
        let is_valid =
            |word: u64| (word << self.at >> (WORD_BITS - 1) == 1) == self.options.nulls_first;
        let nulls = has_nulls.then(|| NullBuffer::from_iter(words.map(is_valid)));
        let data = ArrayData::builder(data_type.clone())
            .len(cells.len())
            .add_buffer(Buffer::from_vec(cells))
            .nulls(nulls)
            .build()?;
        Ok(make_array(data))
    }

    /// Puts the keys of a column into the words of their rows.
    fn put<C: Cell>(&self, column: &ArrayRef, words: &mut [u64], of_row: usize) {
        let cells = cells::<C>(column);
        let rows = words.chunks_exact_mut(of_row).zip(cells.iter().copied());
        if !self.span.has_nulls {
            return self.put_values(rows, self.at);
        }
        // A bit is set for who comes later.
        let [of_value, of_null] = [self.options.nulls_first, !self.options.nulls_first];
        let nulls = column.nulls();
        let values = rows.enumerate().filter_map(|(row, of)| {
            let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
            put(of.0, self.at, 1, u64::from(if is_null { of_null } else { of_value }));
            (!is_null).then_some(of)
        });
        self.put_values(values, self.at + 1);
    }

    /// Puts how far cells are from the one that comes first into words, from a bit on.
    fn put_values<'a, C: Cell>(&self, cells: impl Iterator<Item = (&'a mut [u64], C)>, at: u32) {
        let Span { least, most, .. } = self.span;
        let distance = |cell: C| match self.options.descending {
            true => most.wrapping_sub(cell.key().wide()),
            false => cell.key().wide().wrapping_sub(least),
        };
        let bits = self.span.bits();
        match bits.checked_sub(WORD_BITS) {
            None | Some(0) => {
                cells.for_each(|(words, cell)| put(words, at, bits, distance(cell) as u64));
            }
            Some(above) => cells.for_each(|(words, cell)| {
                let distance = distance(cell);
                put(words, at, above, (distance >> WORD_BITS) as u64);
                put(words, at + above, WORD_BITS, distance as u64);
            }),
        }
    }
}

/// Puts a number of so many bits into words from a bit on.
#[inline]
fn put(words: &mut [u64], at: u32, bits: u32, number: u64) {
    if bits == 0 {
        return;
    }
    let (word, end) = ((at / WORD_BITS) as usize, at % WORD_BITS + bits);
    match end.checked_sub(WORD_BITS) {
        None | Some(0) => words[word] |= number << (WORD_BITS - end),
        Some(over) => {
            words[word] |= number >> over;
            words[word + 1] |= number << (WORD_BITS - over);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::make_comparator;
    use arrow::array::{Decimal128Array, Float32Array, Int8Array, Int64Array, UInt64Array};
    use arrow::compute::{LexicographicalComparator, SortColumn};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Keys of every width, the ends of their types among them.
    fn keys(rows: usize, has_nulls: bool, random: &mut SmallRng) -> Vec<ArrayRef> {
        let mut cell = |choices: &[i128]| {
            let is_null = has_nulls && random.random_bool(0.2);
            let at = random.random_range(0..choices.len());
            (!is_null).then(|| choices[at])
        };
        let mut column =
            |choices: &[i128]| -> Vec<Option<i128>> { (0..rows).map(|_| cell(choices)).collect() };
        let [tiny, long, unsigned, wide, one] = [
            &[-128, -1, 0, 5, 127][..],
            &[i64::MIN.into(), -7, 0, 1, i64::MAX.into()],
            &[0, 3, u64::MAX.into()],
            &[i128::MIN, -(1 << 90), -1, 0, 1 << 70, i128::MAX],
            &[42],
        ]
        .map(&mut column);
        let real = column(&[0, 1, 2, 3, 4]);
        let reals = [f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, 2.5];
        vec![
            Arc::new(tiny.iter().map(|cell| cell.map(|cell| cell as i8)).collect::<Int8Array>()),
            Arc::new(long.iter().map(|cell| cell.map(|cell| cell as i64)).collect::<Int64Array>()),
            Arc::new(
                unsigned.iter().map(|cell| cell.map(|cell| cell as u64)).collect::<UInt64Array>(),
            ),
            Arc::new(wide.into_iter().collect::<Decimal128Array>()),
            Arc::new(one.iter().map(|cell| cell.map(|cell| cell as i64)).collect::<Int64Array>()),
            Arc::new(
                real.iter().map(|at| at.map(|at| reals[at as usize])).collect::<Float32Array>(),
            ),
        ]
    }

    #[test]
    fn words_compare_like_their_keys() {
        let mut random = SmallRng::seed_from_u64(45);
        let mut whole = 0;
        for round in 0..80 {
            let all = keys(40, round % 3 > 0, &mut random);
            let mut choice: Vec<ArrayRef> = Vec::new();
            for _ in 0..random.random_range(1..5) {
                choice.push(Arc::clone(&all[random.random_range(0..all.len())]));
            }
            let options: Vec<SortOptions> = (choice.iter())
                .map(|_| SortOptions::new(random.random(), random.random()))
                .collect();
            let sorted = choice.iter().zip(&options);
            let sorted: Vec<SortColumn> = sorted
                .map(|(values, &options)| SortColumn {
                    values: Arc::clone(values),
                    options: Some(options),
                })
                .collect();
            let comparator = LexicographicalComparator::try_new(&sorted).unwrap();
            // Two blocks, cut where it happens to be.
            let cut = random.random_range(0..=40);
            let part = |from: usize, rows: usize| {
                Columns::new(choice.iter().map(|key| key.slice(from, rows)).collect()).unwrap()
            };
            let blocks = [part(0, cut), part(cut, 40 - cut)];
            let packing = Packing::new(&options, blocks.iter());
            let words: Vec<u64> =
                blocks.iter().flat_map(|block| packing.words(block).unwrap()).collect();
            if packing.words == 1 {
                whole += 1;
                for (at, key) in choice.iter().enumerate() {
                    let cells = packing.cells(at, words.iter().copied(), key.data_type()).unwrap();
                    let by = make_comparator(&cells, key, options[0]).unwrap();
                    assert!((0..40).all(|row| by(row, row).is_eq()), "{key:?} {cells:?}");
                }
            }
            let words: Vec<&[u64]> = words.chunks(packing.words).collect();
            for left in 0..40 {
                for right in 0..40 {
                    let found = words[left].cmp(words[right]);
                    assert_eq!(found, comparator.compare(left, right), "{options:?} {sorted:?}");
                }
            }
        }
        assert!(whole > 10, "{whole}");
    }

    #[test]
    fn keys_take_as_few_bits_as_tell_them_apart() {
        let key = |from: i64, to: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![from, to])) };
        let words = |keys: Vec<ArrayRef>| {
            let options = vec![SortOptions::default(); keys.len()];
            Packing::new(&options, [Columns::new(keys).unwrap()].iter()).words
        };
        assert_eq!(words(vec![key(7, 7)]), 1);
        assert_eq!(words(vec![key(1 << 40, (1 << 40) + 0xffff), key(-1, 1 << 48)]), 2);
        assert_eq!(words(vec![key(1 << 40, (1 << 40) + 0xffff), key(0, (1 << 48) - 1)]), 1);
    }
}
