//! The order of rows by what compares like their sort keys: words, of eight bytes or of packed bits.
//!
//! Enters: blocks of rows, each row with its keys. Leaves: the rows' places in order. A place is sorted together with the
//! first word of its row; only rows that agree in it look at their next ones. Rows whose words are all equal stay in the
//! order of their places.
//!
//! ```text
//! keys of a fixed width   packed into words, once it is known from where to where they lie (`packing`)
//! others                  bytes of Arrow's row format, eight at a time, behind those that all begin with
//! ```
//!
//! Source: Ng and Kakehi, *Cache Efficient Radix Sort for String Sorting*, IEICE Trans. Fundamentals E90-A (2007), for
//! keeping characters beside the pointers.

use std::ops::Range;
use std::sync::OnceLock;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{SortOptions, interleave};
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::Count;

use super::packing::{Columns, Packing, is_packed};
use crate::exec::kernels::radix;

/// Bytes that are compared at once.
const WORD_BYTES: usize = 8;

/// A row, and a word of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    word: u64,
    /// The block and the row in it.
    place: (u32, u32),
}

/// Rows that came one after another.
pub(super) struct Block {
    pub(super) batch: RecordBatch,
    keys: Keys,
}

/// What the rows of a block are sorted by.
enum Keys {
    Bytes(Rows),
    /// Their words, once the entries of the block have been made, where they have more than one.
    Packed(Columns, OnceLock<Vec<u64>>),
}

/// How rows become blocks.
pub(super) struct Encoder {
    ordering: LexOrdering,
    /// None where keys are packed.
    converter: Option<RowConverter>,
}

impl Encoder {
    /// # Errors
    /// Where a key has a type that cannot be compared as bytes.
    pub(super) fn new(ordering: &LexOrdering, schema: &Schema) -> Result<Self> {
        let mut is_all_packed = true;
        for key in ordering {
            is_all_packed &= is_packed(&key.expr.data_type(schema)?);
        }
        let converter = match is_all_packed {
            true => None,
            false => Some(RowConverter::new(sort_fields(ordering, schema)?)?),
        };
        Ok(Self { ordering: ordering.clone(), converter })
    }

    pub(super) fn block(&self, batch: RecordBatch) -> Result<Block> {
        let columns = self.ordering.iter().map(|key| {
            let column = key.expr.evaluate(&batch)?;
            column.into_array(batch.num_rows())
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let keys = match &self.converter {
            Some(converter) => Keys::Bytes(converter.convert_columns(&columns)?),
            None => Keys::Packed(Columns::new(columns)?, OnceLock::new()),
        };
        Ok(Block { batch, keys })
    }
}

/// The types of the keys, and how each is ordered.
pub(super) fn sort_fields(ordering: &LexOrdering, schema: &Schema) -> Result<Vec<SortField>> {
    let field = |key: &PhysicalSortExpr| {
        Ok(SortField::new_with_options(key.expr.data_type(schema)?, key.options))
    };
    ordering.iter().map(field).collect()
}

impl Block {
    fn packed(&self) -> Option<&Columns> {
        match &self.keys {
            Keys::Packed(columns, _) => Some(columns),
            Keys::Bytes(_) => None,
        }
    }

    fn as_bytes(&self) -> Option<&Rows> {
        match &self.keys {
            Keys::Bytes(keys) => Some(keys),
            Keys::Packed(..) => None,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Bytes of the rows, of their keys, and of their places while those are sorted.
    pub(super) fn bytes(&self) -> usize {
        let places = self.batch.num_rows() * size_of::<Entry>() * 2;
        let keys = match &self.keys {
            Keys::Bytes(keys) => keys.size(),
            Keys::Packed(columns, _) => columns.bytes(&self.batch),
        };
        self.batch.get_array_memory_size() + keys + places
    }
}

/// How many bytes all keys begin with.
fn shared<'a>(mut blocks: impl Iterator<Item = &'a Rows>) -> usize {
    let Some(begin) = blocks.by_ref().find(|keys| keys.num_rows() > 0) else { return 0 };
    let first = begin.row(0);
    let (first, mut shared) = (first.data(), first.data().len());
    for key in std::iter::once(begin).chain(blocks).flatten() {
        let key = key.data();
        if !key.starts_with(&first[..shared]) {
            shared = first.iter().zip(key).take_while(|(left, right)| left == right).count();
            if shared == 0 {
                break;
            }
        }
    }
    shared
}

/// All rows that are sorted together.
pub(super) struct Blocks {
    blocks: Vec<Block>,
    packing: Packing,
    /// For each column of the rows the key that it is, where that is had of a word.
    of_words: Vec<Option<usize>>,
    /// Bytes that all keys begin with which are bytes.
    shared: usize,
    /// Rows that were dealt out by their words, and not compared.
    dealt: Count,
}

impl Blocks {
    pub(super) fn new(blocks: Vec<Block>, ordering: &LexOrdering, dealt: Count) -> Self {
        let options: Vec<SortOptions> = ordering.iter().map(|key| key.options).collect();
        let packing = Packing::new(&options, blocks.iter().filter_map(Block::packed));
        let is_whole = packing.words == 1 && blocks.iter().all(|block| block.packed().is_some());
        let columns = blocks.first().map_or(0, |block| block.batch.num_columns());
        let key = |at: usize| {
            let is_it = |key: &PhysicalSortExpr| {
                key.expr.downcast_ref::<Column>().is_some_and(|column| column.index() == at)
            };
            ordering.iter().position(is_it).filter(|_| is_whole)
        };
        let of_words = (0..columns).map(key).collect();
        let shared = shared(blocks.iter().filter_map(Block::as_bytes));
        Self { blocks, packing, of_words, shared, dealt }
    }

    /// Ranges of blocks of about so many rows each.
    pub(super) fn parts(&self, rows: usize) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let (mut start, mut count) = (0, 0);
        for (at, block) in self.blocks.iter().enumerate() {
            count += block.batch.num_rows();
            if count >= rows || at + 1 == self.blocks.len() {
                parts.push(start..at + 1);
                (start, count) = (at + 1, 0);
            }
        }
        parts
    }

    /// The rows of some blocks, sorted by their first words.
    ///
    /// # Errors
    /// Where keys are not what they were when the blocks were made.
    pub(super) fn entries(&self, blocks: Range<usize>) -> Result<Vec<Entry>> {
        let rows = self.blocks[blocks.clone()].iter().map(|block| block.batch.num_rows()).sum();
        let mut entries = Vec::with_capacity(rows);
        for at in blocks {
            let entry = |(row, word)| Entry { word, place: (at as u32, row as u32) };
            match &self.blocks[at].keys {
                Keys::Bytes(keys) => {
                    let words = keys.iter().map(|key| word(key.data(), self.shared));
                    entries.extend(words.enumerate().map(entry));
                }
                Keys::Packed(columns, later) => {
                    let words = self.packing.words(columns)?;
                    let first = words.iter().step_by(self.packing.words).copied();
                    entries.extend(first.enumerate().map(entry));
                    if self.packing.words > 1 {
                        later.get_or_init(|| words);
                    }
                }
            }
        }
        // They come in the order of their places.
        if radix::sort(&mut entries, |entry| entry.word) {
            self.dealt.add(entries.len());
        }
        Ok(entries)
    }

    /// Puts into order what is sorted by its first words: every word that occurs is there with all its rows.
    pub(super) fn order(&self, entries: &mut [Entry]) {
        // Groups of equal words, and how many words their rows agree in.
        let mut open = Vec::new();
        groups(entries, 0, 1, &mut open);
        while let Some((group, depth)) = open.pop() {
            let (start, group) = (group.start, &mut entries[group]);
            // No key is the beginning of another: where one ends, all do.
            if self.word(&group[0], depth).is_none() {
                continue;
            }
            for entry in group.iter_mut() {
                entry.word = self.word(entry, depth).unwrap_or_default();
            }
            group.sort_unstable();
            groups(group, start, depth + 1, &mut open);
        }
    }

    /// The word of a row that follows so many; none where its keys have ended.
    fn word(&self, entry: &Entry, depth: usize) -> Option<u64> {
        let (block, row) = (entry.place.0 as usize, entry.place.1 as usize);
        match &self.blocks[block].keys {
            Keys::Bytes(keys) => {
                let (key, depth) = (keys.row(row), self.shared + depth * WORD_BYTES);
                (depth < key.data().len()).then(|| word(key.data(), depth))
            }
            Keys::Packed(_, later) => {
                let words = (depth < self.packing.words).then(|| later.get()).flatten()?;
                words.get(row * self.packing.words + depth).copied()
            }
        }
    }

    /// The rows at these places.
    pub(super) fn rows(&self, entries: &[Entry]) -> Result<RecordBatch> {
        let place = |entry: &Entry| (entry.place.0 as usize, entry.place.1 as usize);
        let places: Vec<(usize, usize)> = entries.iter().map(place).collect();
        let words = entries.iter().map(|entry| entry.word);
        let Some(first) = self.blocks.first() else { return internal_err!("rows of no block") };
        let schema = first.batch.schema();
        let columns = self.of_words.iter().enumerate().map(|(at, key)| match key {
            Some(key) => self.packing.cells(*key, words.clone(), schema.field(at).data_type()),
            None => {
                let columns = self.blocks.iter().map(|block| block.batch.column(at).as_ref());
                Ok(interleave(&columns.collect::<Vec<_>>(), &places)?)
            }
        });
        let columns = columns.collect::<Result<_>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(entries.len()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
    }
}

/// Eight bytes from a depth on as a number, zeros where the key has ended.
fn word(key: &[u8], depth: usize) -> u64 {
    let rest = key.get(depth..).unwrap_or_default();
    match rest.first_chunk::<WORD_BYTES>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; WORD_BYTES];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Adds the ranges of more than one entry with the same word.
fn groups(entries: &[Entry], start: usize, depth: usize, open: &mut Vec<(Range<usize>, usize)>) {
    let mut at = start;
    for group in entries.chunk_by(|left, right| left.word == right.word) {
        if group.len() > 1 {
            open.push((at..at + group.len(), depth));
        }
        at += group.len();
    }
}

/// Parts that are sorted by their words, cut into pieces of which each has all rows of its words.
pub(super) struct Cuts {
    parts: Vec<Vec<Entry>>,
    taken: Vec<usize>,
    piece_rows: usize,
}

impl Cuts {
    pub(super) fn new(parts: Vec<Vec<Entry>>, piece_rows: usize) -> Self {
        let taken = vec![0; parts.len()];
        Self { parts, taken, piece_rows }
    }
}

impl Iterator for Cuts {
    type Item = Vec<Entry>;

    /// The rows of the least words that are left, at least one of each part's next `piece_rows` to its end.
    fn next(&mut self) -> Option<Vec<Entry>> {
        let step = (self.piece_rows / self.parts.len().max(1)).max(1);
        let ahead = self.parts.iter().zip(&self.taken);
        let cut = ahead.filter_map(|(part, &taken)| part.get(taken + step)).map(|at| at.word).min();
        let mut piece = Vec::new();
        for (part, taken) in self.parts.iter_mut().zip(&mut self.taken) {
            let rest = &part[*taken..];
            let count =
                cut.map_or(rest.len(), |cut| rest.partition_point(|entry| entry.word <= cut));
            piece.extend_from_slice(&rest[..count]);
            *taken += count;
            if *taken == part.len() {
                *part = Vec::new();
                *taken = 0;
            }
        }
        (!piece.is_empty()).then_some(piece)
    }
}
