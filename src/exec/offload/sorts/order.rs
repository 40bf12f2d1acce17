//! The numbers of rows in the order of their codes: what is launched, and what lies where meanwhile.
//!
//! ```text
//! all      numbers of all rows that are kept ─┐
//! few      threshold ─ below it, at it ───────┴─ by the last word, digit by digit ─ … ─ by the first ─► numbers in order
//! ```
//!
//! A sort by a digit keeps the order of rows that have the same, so one by each digit, the last first, is one by all of them. A code of
//! which only some bits differ has fewer digits.
//!
//! Source: Merrill and Grimshaw, *High Performance and Scalable Radix Sorting*, Parallel Processing Letters 21 (2011).

use std::borrow::Cow;
use std::mem::swap;

use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::exec::offload::{Failed, Queue};
use crate::gpu::{Argument, Buffer, Source, Work};

/// What sorts, whatever the codes are.
pub(super) const TEXT: &str = include_str!("../../../../kernels/sort.cu");

/// Digits of a code, and rows of a tile: what the kernels say.
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;
const TILE_ROWS: usize = THREADS * 8;

/// Blocks that have a share of the rows at most: one block scans what as many have counted.
const BLOCKS_MAX: usize = 1024;

/// The share of the rows that are few: for these the others are left out before anything is sorted.
const FEW_SHARE: usize = 16;

/// Whether so many of so many rows are found without sorting all.
pub(crate) fn is_few(asked: usize, rows: usize) -> bool {
    asked.saturating_mul(FEW_SHARE) <= rows
}

/// The codes of rows.
pub(super) struct Codes {
    /// Word by word, the first of which decides first.
    pub(super) cells: Buffer,
    pub(super) words: usize,
    /// Whether words have 64 bits, and not 32.
    pub(super) is_wide: bool,
    pub(super) rows: usize,
    /// From a word of a row to the next.
    pub(super) stride: usize,
    /// A bit for each row that is kept, where some are not.
    pub(super) kept: Option<Buffer>,
    pub(super) told: Told,
}

/// What is known of the codes of rows that are kept.
pub(super) struct Told {
    pub(super) rows: usize,
    /// Of each word: bits that are one in some row, and that are zero in some.
    pub(super) bits: Vec<[u64; 2]>,
}

impl Told {
    /// The places of digits by which rows differ, from the last on.
    fn shifts(&self, word: usize) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let [ones, zeros] = self.bits[word];
        let differ = ones & zeros;
        let shifts = (0..u64::BITS / DIGIT_BITS).map(|digit| digit * DIGIT_BITS);
        shifts.filter(move |shift| (differ >> shift) & (DIGITS as u64 - 1) != 0)
    }
}

/// Rows that are gathered: what the kernels say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Below,
    Ties,
}

/// The code that the last of the rows has that are asked for, and how many of those that have it are wanted.
struct Threshold {
    left: Buffer,
    words: Buffer,
}

impl Codes {
    /// Bytes of a word of a row.
    fn word_bytes(&self) -> usize {
        if self.is_wide { size_of::<u64>() } else { size_of::<u32>() }
    }

    fn entries(&self) -> &'static Entries {
        if self.is_wide { &WIDE } else { &NARROW }
    }
}

impl Queue<'_> {
    /// The numbers of rows in the order of their codes, the first so many where not all are asked for.
    pub(super) fn in_order(&self, codes: &Codes, fetch: Option<usize>) -> Result<Vec<u32>, Failed> {
        let asked = fetch.map_or(codes.told.rows, |fetch| fetch.min(codes.told.rows));
        let mut numbers = vec![0_u32; asked];
        if asked == 0 {
            return Ok(numbers);
        }
        let (mut rows, count) = match is_few(asked, codes.told.rows) {
            true => (self.first_rows(codes, asked)?, asked),
            false => (self.all_rows(codes)?, codes.told.rows),
        };
        for word in (0..codes.words).rev() {
            rows = self.by_word(codes, word, rows, count)?;
        }
        self.back(&rows, &mut numbers)?;
        Ok(numbers)
    }

    /// The numbers of rows that are kept.
    fn all_rows(&self, codes: &Codes) -> Result<Buffer, Failed> {
        let out = self.row_numbers(codes.told.rows)?;
        match codes.kept {
            None => {
                let given = [Argument::Buffer(&out), number(codes.rows)];
                self.run_sort(NUMBER_ROWS, Work::Threads(codes.rows as u64), &given)?;
            }
            Some(_) => self.gather(codes, None, Which::All, &out, codes.told.rows)?,
        }
        Ok(out)
    }

    /// The numbers of so many rows of which none has a greater code than any other row, fewer than all: in the order of the table those
    /// below the threshold, and then the first of those at it.
    fn first_rows(&self, codes: &Codes, asked: usize) -> Result<Buffer, Failed> {
        let what = "the last of the first rows";
        // Bits that all have in common are those of the threshold.
        let common = codes.told.bits.iter().map(|[ones, zeros]| ones & !zeros);
        let common: Vec<u64> = common.collect();
        let left = self.stream.upload(&(asked as u64).to_ne_bytes(), what)?;
        let words = self.stream.upload(bytemuck::cast_slice(&common), what)?;
        let counts = self.room(DIGITS * size_of::<u32>(), what)?;
        self.stream.clear(&counts)?;
        for word in 0..codes.words {
            for shift in codes.told.shifts(word).rev() {
                let place = [Argument::U32(word as u32), Argument::U32(shift)];
                let given = [
                    &[Argument::Buffer(&counts), Argument::Buffer(&codes.cells), kept(codes)],
                    &[number(codes.rows), number(codes.stride), Argument::Buffer(&words)],
                    &place[..],
                ];
                self.run_sort(
                    codes.entries().count_prefix,
                    Work::Threads(codes.rows as u64),
                    &given.concat(),
                )?;
                let buffers = [&left, &words, &counts].map(Argument::Buffer);
                let given = [&buffers, &place[..]].concat();
                self.run_sort("narrow_threshold", Work::Blocks(1), &given)?;
            }
        }
        let (out, threshold) = (self.row_numbers(asked)?, Threshold { left, words });
        for which in [Which::Below, Which::Ties] {
            self.gather(codes, Some(&threshold), which, &out, asked)?;
        }
        Ok(out)
    }

    /// Those rows in the order of the table.
    fn gather(
        &self,
        codes: &Codes,
        threshold: Option<&Threshold>,
        which: Which,
        out: &Buffer,
        most: usize,
    ) -> Result<(), Failed> {
        let blocks = codes.rows.div_ceil(TILE_ROWS).clamp(1, BLOCKS_MAX);
        let counts = self.room((blocks + 1) * size_of::<u64>(), "how many rows are kept")?;
        let none = Argument::U64(0);
        let [left, words] = match threshold {
            Some(Threshold { left, words }) => [left, words].map(Argument::Buffer),
            None => [none; 2],
        };
        let wanted = [
            number(codes.rows),
            Argument::Buffer(&codes.cells),
            kept(codes),
            number(codes.stride),
            words,
            Argument::U32(codes.words as u32),
            Argument::U32(which as u32),
        ];
        let own = [Argument::Buffer(&counts)];
        let work = Work::Blocks(blocks as u32);
        self.run_sort(codes.entries().count_rows, work, &[&own[..], &wanted].concat())?;
        self.run_sort("scan_rows", Work::Blocks(1), &[own[0], number(blocks)])?;
        let given = [Argument::Buffer(out), number(most), left, own[0]];
        self.run_sort(codes.entries().gather_rows, work, &[&given[..], &wanted].concat())
    }

    /// So many rows in the order of a word, and else in that which they have.
    fn by_word(
        &self,
        codes: &Codes,
        word: usize,
        mut rows: Buffer,
        count: usize,
    ) -> Result<Buffer, Failed> {
        if codes.told.shifts(word).next().is_none() {
            return Ok(rows);
        }
        let what = "codes that are sorted";
        let bytes = count * codes.word_bytes();
        let (mut own, mut other) = (self.room(bytes, what)?, self.room(bytes, what)?);
        let given = [
            Argument::Buffer(&own),
            Argument::Buffer(&codes.cells),
            Argument::Buffer(&rows),
            number(count),
            number(word * codes.stride),
        ];
        self.run_sort(codes.entries().gather_codes, Work::Threads(count as u64), &given)?;
        let blocks = count.div_ceil(TILE_ROWS).clamp(1, BLOCKS_MAX);
        let counts =
            self.room(DIGITS * (blocks + 1) * size_of::<u64>(), "how many have a digit")?;
        let mut other_rows = self.row_numbers(count)?;
        let Entries { count_digits, move_digits, .. } = codes.entries();
        for shift in codes.told.shifts(word) {
            let work = Work::Blocks(blocks as u32);
            let place = [number(count), Argument::U32(shift)];
            let given = [&[&counts, &own].map(Argument::Buffer), &place[..]].concat();
            self.run_sort(count_digits, work, &given)?;
            let given = [Argument::Buffer(&counts), number(blocks)];
            self.run_sort("scan_digits", Work::Blocks(DIGITS as u32), &given)?;
            let buffers = [&other, &other_rows, &own, &rows, &counts].map(Argument::Buffer);
            self.run_sort(move_digits, work, &[&buffers, &place[..]].concat())?;
            swap(&mut own, &mut other);
            swap(&mut rows, &mut other_rows);
        }
        Ok(rows)
    }

    fn row_numbers(&self, count: usize) -> Result<Buffer, Failed> {
        self.room(count * size_of::<u32>(), "numbers of rows")
    }

    pub(super) fn room(&self, bytes: usize, what: &str) -> Result<Buffer, Failed> {
        self.with_room(bytes, || self.stream.alloc(bytes, what))
    }

    fn run_sort(
        &self,
        entry: &'static str,
        work: Work,
        given: &[Argument<'_>],
    ) -> Result<(), Failed> {
        self.cancel.check().map_err(Failed::Stopped)?;
        self.launch(TEXT, entry, work, given)
    }
}

/// What is launched for codes of one kind.
struct Entries {
    count_prefix: &'static str,
    count_rows: &'static str,
    gather_rows: &'static str,
    gather_codes: &'static str,
    count_digits: &'static str,
    move_digits: &'static str,
}

const NARROW: Entries = Entries {
    count_prefix: "count_prefix_u32",
    count_rows: "count_rows_u32",
    gather_rows: "gather_rows_u32",
    gather_codes: "gather_codes_u32",
    count_digits: "count_digits_u32",
    move_digits: "move_digits_u32",
};

const WIDE: Entries = Entries {
    count_prefix: "count_prefix_u64",
    count_rows: "count_rows_u64",
    gather_rows: "gather_rows_u64",
    gather_codes: "gather_codes_u64",
    count_digits: "count_digits_u64",
    move_digits: "move_digits_u64",
};

/// What sorts is one text, so that who has one entry has all.
pub(super) fn source() -> Source {
    Source {
        text: Cow::Borrowed(TEXT),
        headers: HEADERS,
        entry: Cow::Borrowed(NUMBER_ROWS),
        contracts: false,
    }
}

const NUMBER_ROWS: &str = "number_rows";

fn kept(codes: &Codes) -> Argument<'_> {
    codes.kept.as_ref().map_or(Argument::U64(0), Argument::Buffer)
}

fn number(of: usize) -> Argument<'static> {
    Argument::U64(of as u64)
}
