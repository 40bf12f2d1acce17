//! Texts of a column that many rows share: a dictionary for all batches of a table, in the order of its texts, and codes of 32 bits.
//!
//! ```text
//! the column is read once     noted
//! it is read again            whoever reads a batch gives its texts codes, in the order in which they come
//! all batches have been       the dictionary is put in order, and the column is kept as codes of it
//! ```
//!
//! From then on groups and labels of matrices are told apart by codes, whichever statement asks; rows that come later are kept as they
//! come, until they are more than a few. Texts that are too many for a dictionary stay as they are. Not here: codes that a batch has
//! for itself, of few texts (`encoding`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, StringArray, StringViewArray, UInt32Array,
};
use arrow::datatypes::{DataType, UInt8Type, UInt32Type};
use arrow::error::ArrowError;
use datafusion::execution::memory_pool::MemoryReservation;
use rustc_hash::FxHashMap;

use super::batch::Batch;
use super::memory::{Batched, Version};
use crate::encoding::{self, shared_codes, unpacked};

/// More texts are kept as they are.
const TEXTS_MAX: usize = 1 << 20;

/// So many rows for each text, or it is kept as it is.
const ROWS_A_TEXT: usize = 8;

/// Of this many rows of a column one may have no code of the dictionary.
const OTHERS_SHARE: usize = 8;

/// How many times as many rows there must be for texts that were too many to be counted again.
const GROWTH: usize = 2;

/// What is known of the texts of a column.
#[derive(Debug)]
pub(super) enum Texts {
    /// They were read once.
    Read,
    Coded(Arc<Coding>),
    /// They were too many for a table of so many rows.
    TooMany {
        rows: usize,
    },
}

impl Texts {
    /// Whether texts of so many rows may turn out to be few.
    pub(super) fn may_be_few(&self, rows: usize) -> bool {
        match self {
            Self::TooMany { rows: before } => rows >= GROWTH * before,
            Self::Read | Self::Coded(_) => true,
        }
    }
}

/// Whether a column has more texts without codes of a dictionary than a few.
pub(super) fn are_plain(batches: &[Batch], column: usize) -> bool {
    let (mut rows, mut texts, mut others) = (0, 0, 0);
    for batch in batches {
        let (of_batch, kept) = (batch.num_rows(), batch.texts(column));
        rows += of_batch;
        if kept != encoding::Texts::SharedCodes {
            others += of_batch;
            texts += if kept == encoding::Texts::Plain { of_batch } else { 0 };
        }
    }
    // Of texts that differ little in every batch each batch has a dictionary.
    texts * OTHERS_SHARE > rows && others * OTHERS_SHARE > rows
}

/// Codes for the texts of a column, as its batches are read.
#[derive(Debug)]
pub(super) struct Coding {
    /// Some rows may have the number of the version that has all.
    batched: Arc<Batched>,
    pub(super) column: usize,
    rows: usize,
    known: RwLock<Known>,
    /// Of each batch, once it was read.
    codes: Vec<OnceLock<Vec<u32>>>,
    left: AtomicUsize,
    is_over: AtomicBool,
    bytes: MemoryReservation,
}

#[derive(Debug, Default)]
struct Known {
    texts: Vec<Arc<str>>,
    codes: FxHashMap<Arc<str>, u32>,
}

/// What came of the texts of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    GoesOn,
    /// All batches have codes.
    Done,
    /// There are too many texts, or there is no memory for their codes.
    Over,
}

impl Coding {
    pub(super) fn new(version: &Version, column: usize, bytes: MemoryReservation) -> Self {
        Self {
            batched: Arc::clone(version.batched()),
            column,
            rows: version.rows,
            known: RwLock::default(),
            codes: version.batches.iter().map(|_| OnceLock::new()).collect(),
            left: AtomicUsize::new(version.batches.len()),
            is_over: AtomicBool::new(false),
            bytes,
        }
    }

    /// Whether these are the batches that get codes.
    pub(super) fn is_of(&self, version: &Version) -> bool {
        Arc::ptr_eq(&self.batched, version.batched())
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Gives codes to the texts of a batch.
    pub(super) fn add(&self, at: usize, batch: &Batch) -> Progress {
        let Some(place) = self.codes.get(at) else { return Progress::GoesOn };
        if place.get().is_some() || self.is_over.load(Ordering::Relaxed) {
            return Progress::GoesOn;
        }
        let texts = batch.encoded(self.column, 0..batch.num_rows()).ok();
        let Some(codes) = texts.and_then(|texts| self.codes_of(&texts)) else {
            let was_over = self.is_over.swap(true, Ordering::Relaxed);
            return if was_over { Progress::GoesOn } else { Progress::Over };
        };
        // Another reader of the same rows may have been faster.
        let is_last = place.set(codes).is_ok() && self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last { Progress::Done } else { Progress::GoesOn }
    }

    /// The codes of some cells, zeros where these are NULL; nothing where there are too many texts.
    fn codes_of(&self, texts: &ArrayRef) -> Option<Vec<u32>> {
        self.bytes.try_grow(texts.len() * size_of::<u32>()).ok()?;
        if let Some(own) = texts.as_dictionary_opt::<UInt8Type>() {
            let codes = self.codes_of(own.values())?;
            let code = |own: &u8| codes.get(usize::from(*own)).copied().unwrap_or_default();
            return Some(own.keys().values().iter().map(code).collect());
        }
        if let Some(before) = shared_codes(texts) {
            let codes = self.codes_of(before.values())?;
            let code = |code: &u32| codes.get(*code as usize).copied().unwrap_or_default();
            return Some(before.keys().values().iter().map(code).collect());
        }
        let texts = &unpacked(texts).ok()?;
        let text = |at: usize| match texts.data_type() {
            DataType::Utf8 => texts.as_string::<i32>().value(at),
            _ => texts.as_string_view().value(at),
        };
        let mut codes = vec![0; texts.len()];
        let mut new = Vec::new();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            for (at, code) in codes.iter_mut().enumerate() {
                if texts.is_null(at) {
                    continue;
                }
                match known.codes.get(text(at)) {
                    Some(&of) => *code = of,
                    None => new.push(at),
                }
            }
        }
        if !new.is_empty() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            let mut bytes = 0;
            for at in new {
                let (of, more) = known.code(text(at));
                codes[at] = of;
                bytes += more;
            }
            let is_few = known.texts.len() <= TEXTS_MAX.min(self.rows / ROWS_A_TEXT);
            self.bytes.try_grow(bytes).ok().filter(|()| is_few)?;
        }
        Some(codes)
    }

    /// The column of each batch as codes of one dictionary; nothing where one has none.
    ///
    /// # Errors
    /// None, for each code is that of a text.
    pub(super) fn columns(&self, batches: &[Batch]) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut order: Vec<u32> = (0..known.texts.len() as u32).collect();
        order.sort_unstable_by_key(|&code| &known.texts[code as usize]);
        let mut ranks = vec![0; order.len().max(1)];
        for (rank, &code) in order.iter().enumerate() {
            ranks[code as usize] = rank as u32;
        }
        let texts = || order.iter().map(|&code| known.texts[code as usize].as_ref());
        let mut dictionary: Option<ArrayRef> = None;
        let mut columns = Vec::with_capacity(batches.len());
        for (batch, codes) in batches.iter().zip(&self.codes) {
            let Some(codes) = codes.get() else { return Ok(None) };
            let dictionary = dictionary.get_or_insert_with(|| {
                let is_view = *batch.schema().field(self.column).data_type() == DataType::Utf8View;
                match (known.texts.is_empty(), is_view) {
                    (true, true) => Arc::new(StringViewArray::from(vec![""])),
                    (true, false) => Arc::new(StringArray::from(vec![""])),
                    (false, true) => Arc::new(StringViewArray::from_iter_values(texts())),
                    (false, false) => Arc::new(StringArray::from_iter_values(texts())),
                }
            });
            let codes = codes.iter().map(|&code| ranks[code as usize]).collect();
            let nulls = batch.encoded(self.column, 0..batch.num_rows())?.nulls().cloned();
            let codes = UInt32Array::new(codes, nulls);
            let codes = DictionaryArray::<UInt32Type>::try_new(codes, Arc::clone(dictionary))?;
            columns.push(Arc::new(codes) as ArrayRef);
        }
        Ok(Some(columns))
    }
}

impl Known {
    /// The code of a text, and the bytes that it takes if it is new.
    fn code(&mut self, text: &str) -> (u32, usize) {
        if let Some(&code) = self.codes.get(text) {
            return (code, 0);
        }
        let (text, code) = (Arc::<str>::from(text), self.texts.len() as u32);
        let bytes = text.len() + 4 * size_of::<Arc<str>>() + 2 * size_of::<u32>();
        self.texts.push(Arc::clone(&text));
        self.codes.insert(text, code);
        (code, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use arrow::array::RecordBatch;
    use arrow::compute::concat;
    use arrow::datatypes::{Field, Schema};
    use datafusion::datasource::source::DataSource;
    use datafusion::execution::SendableRecordBatchStream;
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use futures::StreamExt;
    use futures::executor::block_on;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::encoding::decoded;
    use crate::memory::Kept;
    use crate::storage::scan::TableScan;
    use crate::storage::{MemoryTable, TableDefinition};

    /// Texts of so many rows in batches, some of few values, most of many, and some NULL.
    fn batches(random: &mut SmallRng, rows: usize, of: &DataType) -> Vec<Batch> {
        let width = [2, 300, 2000, 30_000][random.random_range(0..4)];
        let schema = Arc::new(Schema::new(vec![Field::new("s", of.clone(), true)]));
        let mut batches = Vec::new();
        let mut left = rows;
        while left > 0 {
            let rows = random.random_range(1..=8192).min(left);
            left -= rows;
            let width = if random.random_bool(0.2) { 3 } else { width };
            let texts = (0..rows).map(|_| {
                let text =
                    format!("a text of number {}", random.random_range(0..width) * 7 % 30_011);
                (!random.random_bool(0.1)).then_some(text)
            });
            let column: ArrayRef = match of {
                DataType::Utf8 => Arc::new(texts.collect::<StringArray>()),
                _ => Arc::new(texts.collect::<StringViewArray>()),
            };
            batches.push(
                Batch::new(&RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap())
                    .unwrap(),
            );
        }
        batches
    }

    fn table(batches: Vec<Batch>) -> Arc<MemoryTable> {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut kept = Kept::new("test", &pool);
        let schema = Arc::clone(batches[0].schema());
        let batches = batches.into_iter().map(|batch| batch.kept(&mut kept)).collect();
        Arc::new(MemoryTable::new(&schema, TableDefinition::default(), batches, kept).unwrap())
    }

    /// The first column of a batch, encoded.
    fn whole(batch: &Batch) -> ArrayRef {
        batch.encoded(0, 0..batch.num_rows()).unwrap()
    }

    /// The column as two threads read it, encoded.
    fn read(table: &Arc<MemoryTable>, of: &DataType) -> ArrayRef {
        read_as(table, of, TableScan::encoded_rows)
    }

    fn read_as(
        table: &Arc<MemoryTable>,
        of: &DataType,
        rows: impl Fn(&TableScan, usize) -> datafusion::error::Result<SendableRecordBatchStream>,
    ) -> ArrayRef {
        let version = table.current();
        let half = version.batches.len() / 2;
        let parts = vec![(0..half).collect(), (half..version.batches.len()).collect()];
        let scan = TableScan::new(table, &version, table.schema(), None, parts, false).unwrap();
        let streams = [0, 1].map(|partition| rows(&scan, partition).unwrap());
        let threads = streams.map(|rows| {
            let of = of.clone();
            thread::spawn(move || {
                let column = rows.map(|batch| decoded(batch.unwrap().column(0), &of).unwrap());
                block_on(column.collect::<Vec<_>>())
            })
        });
        let columns: Vec<ArrayRef> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        concat(&columns.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_column_that_is_read_again_is_kept_as_codes_in_the_order_of_its_texts() {
        let random = &mut SmallRng::seed_from_u64(39);
        let (mut coded, mut plain) = (0, 0);
        for round in 0..40 {
            let of = [DataType::Utf8View, DataType::Utf8][round % 2].clone();
            let rows = random.random_range(1..60_000);
            let batches = batches(random, rows, &of);
            let was_plain = are_plain(&batches, 0);
            let table = table(batches);
            let version = table.current().number;
            let expected = read(&table, &of);
            assert_eq!(expected.len(), rows);
            assert_eq!(are_plain(&table.current().batches, 0), was_plain);
            let before = table.kept_bytes();
            for _ in 0..3 {
                assert_eq!(&read(&table, &of), &expected);
            }
            let current = table.current();
            assert_eq!(current.number, version);
            let columns = current.batches.iter().map(whole);
            let dictionaries: Vec<ArrayRef> = columns
                .filter_map(|column| Some(Arc::clone(shared_codes(&column)?.values())))
                .collect();
            let Some(dictionary) = dictionaries.first().filter(|_| was_plain) else {
                assert_eq!(dictionaries.len(), 0);
                continue;
            };
            coded += 1;
            plain += usize::from(are_plain(&current.batches, 0));
            assert_eq!(dictionaries.len(), current.batches.len());
            assert!(dictionaries.iter().all(|one| Arc::ptr_eq(one, dictionary)));
            let texts = decoded(dictionary, &of).unwrap();
            let texts: Vec<String> = (0..texts.len())
                .map(|at| match of {
                    DataType::Utf8 => texts.as_string::<i32>().value(at).to_owned(),
                    _ => texts.as_string_view().value(at).to_owned(),
                })
                .collect();
            assert!(texts.is_sorted() && texts.windows(2).all(|pair| pair[0] != pair[1]));
            assert!(table.kept_bytes() < before, "{} {before}", table.kept_bytes());
            for batch in &current.batches {
                let alone = batch.moved(batch.alone().unwrap());
                assert_ne!(alone.texts(0), encoding::Texts::SharedCodes);
                assert_eq!(&alone.column(0).unwrap(), &batch.column(0).unwrap());
            }
            // Rows that come later are read beside.
            let more = current.batches[0].clone();
            table.insert_kept(vec![more.clone()]).unwrap();
            let expected = concat(&[expected.as_ref(), more.column(0).unwrap().as_ref()]).unwrap();
            for _ in 0..3 {
                assert_eq!(&read(&table, &of), &expected);
            }
        }
        assert!(coded > 10 && plain == 0, "{coded}, {plain}");
    }

    #[test]
    fn columns_that_are_read_together_are_coded_together() {
        let random = &mut SmallRng::seed_from_u64(41);
        let texts = |random: &mut SmallRng, width: i64| -> ArrayRef {
            let texts = (0..5000).map(|_| Some(format!("t{}", random.random_range(0..width))));
            Arc::new(texts.collect::<StringViewArray>())
        };
        let batches = (0..6).map(|_| {
            let columns = [("a", texts(random, 500)), ("b", texts(random, 900))];
            Batch::new(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
        });
        let table = table(batches.collect());
        for _ in 0..2 {
            read(&table, &DataType::Utf8View);
        }
        let current = table.current();
        let shared = |batch: &Batch| {
            [0, 1].iter().all(|&place| batch.texts(place) == encoding::Texts::SharedCodes)
        };
        assert!(current.batches.iter().all(shared));
    }

    #[test]
    fn texts_that_are_too_many_stay_as_they_are() {
        let texts = |first: u32| -> ArrayRef {
            let texts = (first..first + 5000).map(|at| Some(format!("the text of number {at:06}")));
            Arc::new(texts.collect::<StringViewArray>())
        };
        let batches = (0..4).map(|at| RecordBatch::try_from_iter([("s", texts(5000 * at))]));
        let table = table(batches.map(|batch| Batch::new(&batch.unwrap()).unwrap()).collect());
        let expected: Vec<ArrayRef> = (0..4).map(|at| texts(5000 * at)).collect();
        let expected = concat(&expected.iter().map(AsRef::as_ref).collect::<Vec<_>>()).unwrap();
        let before: Vec<ArrayRef> =
            table.current().at_rest().map(|of| Arc::clone(of.column(0))).collect();
        let decoded = |scan: &TableScan, partition| scan.open(partition, Arc::default());
        for is_encoded in [true, false, true, true] {
            let texts = match is_encoded {
                true => read(&table, &DataType::Utf8View),
                false => read_as(&table, &DataType::Utf8View, decoded),
            };
            assert_eq!(&texts, &expected);
        }
        let current = table.current();
        assert!(
            current.at_rest().zip(&before).all(|(now, before)| Arc::ptr_eq(now.column(0), before))
        );
    }

    #[test]
    fn a_writer_between_makes_codes_those_of_no_version() {
        let random = &mut SmallRng::seed_from_u64(40);
        let of = DataType::Utf8View;
        let table = table((0..4).flat_map(|_| batches(random, 9000, &of)).collect());
        let version = table.current();
        for _ in 0..2 {
            table.note_read(&version, 0, true);
        }
        if let Some(coding) = table.coding(&version, 0) {
            let first = version.batches[0].clone();
            table.insert_kept(vec![first]).unwrap();
            for (at, batch) in version.batches.iter().enumerate() {
                let progress = coding.add(at, batch);
                table.coded(&coding, progress).unwrap();
            }
            assert_ne!(table.current().batches[0].texts(0), encoding::Texts::SharedCodes);
        }
        assert!(table.coding(&table.current(), 0).is_none());
    }
}
