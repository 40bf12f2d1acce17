//! Rows by their keys: for a key, the rows of a table that have it, in their order.
//!
//! ```text
//! keys with few gaps   an array over their range: each place has the first row of its key
//! others               slots of open addressing: bits of the hash and the first row; the keys themselves are beside them
//! rows of one key      a list: each row has the next one
//! ```
//!
//! Half of the slots stay free, so a key that is not there costs one look at memory, mostly, and one that is there two.
//! What the looks of some keys read is asked for together: of a table beyond the processor's cache, none is waited for
//! alone. Where most keys that are looked for are not there, bits of all keys that are come before the slots: they fit into
//! a nearer cache.
//!
//! Source: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13 (1970), with one bit for a key.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::buffer::NullBuffer;

use super::word::{KEYS_AT_ONCE, Word};

/// Where no row is. Rows are counted from 1 inside of a table.
const NONE: u32 = 0;

/// Rows that a table may have.
pub const ROWS_MAX: usize = u32::MAX as usize - 1;

/// Places of an array for each row, up to which an array is not larger than slots and keys.
const PLACES_A_ROW: usize = 6;

/// Places of an array that is always small enough.
const PLACES_MIN: usize = 1024;

/// Slots for each row.
const SLOTS_A_ROW: usize = 2;

/// Bits for each row that a filter has at most.
const FILTER_BITS_A_ROW: usize = 32;

/// Keys that have been looked for before it is decided whether a filter is worth its making.
const SEEN_MIN: usize = 32 << 10;

/// One in so many keys that is found makes a filter a waste: it is then read beside the slots, and not instead of them.
const FOUND_MAX: usize = 3;

/// The rows of a table by their keys.
#[derive(Debug)]
pub struct Lookup<W> {
    first: First<W>,
    /// The next row of the same key; empty where no two rows have one.
    next: Vec<u32>,
    keys: usize,
}

#[derive(Debug)]
enum First<W> {
    /// The first row of each key from the least one on, and none at the end.
    Range { least: u64, rows: Vec<u32> },
    /// The low bits of the hash above the first row of a key.
    Slots { slots: Vec<u64>, words: Vec<W>, seen: Seen },
}

/// How many keys were looked for and found, and what follows from that.
#[derive(Debug, Default)]
struct Seen {
    keys: AtomicUsize,
    found: AtomicUsize,
    /// Whether somebody decides, whom nobody waits for.
    is_deciding: AtomicBool,
    /// None once it has been decided against it.
    filter: OnceLock<Option<Filter>>,
}

/// Bits of which those are set that keys have.
#[derive(Debug)]
struct Filter {
    bits: Vec<u64>,
    by: By,
}

#[derive(Debug)]
enum By {
    /// A bit for each key from the least one on, and none at the end.
    Range { least: u128, places: usize },
    /// A bit for the hash of each key, and so for some others.
    Hash { mask: usize },
}

/// Where a hash is looked for first among so many slots.
#[inline]
fn home(hash: u64, slots: usize) -> usize {
    ((u128::from(hash) * slots as u128) >> u64::BITS) as usize
}

#[inline]
fn slot(hash: u64, row: u32) -> u64 {
    hash << u32::BITS | u64::from(row)
}

#[inline]
fn is_of(slot: u64, hash: u64) -> bool {
    (slot >> u32::BITS) as u32 == hash as u32
}

#[inline]
fn after(at: usize, slots: usize) -> usize {
    if at + 1 == slots { 0 } else { at + 1 }
}

impl<W: Word> Lookup<W> {
    /// The rows of these keys, but for those that are not valid.
    ///
    /// # Panics
    /// Where there are more than [`ROWS_MAX`].
    pub fn new(words: Vec<W>, valid: Option<&NullBuffer>) -> Self {
        assert!(words.len() <= ROWS_MAX, "a table of fewer rows");
        match range(&words, valid) {
            Some((least, places)) => Self::over_range(&words, valid, least, places),
            None => Self::in_slots(words, valid),
        }
    }

    fn over_range(words: &[W], valid: Option<&NullBuffer>, least: u64, places: usize) -> Self {
        let mut rows = vec![NONE; places + 1];
        let (mut next, mut keys) = (Vec::new(), 0);
        for (row, word) in words.iter().enumerate().rev() {
            if valid.is_some_and(|valid| valid.is_null(row)) {
                continue;
            }
            let first = &mut rows[(word.bits(0) - least) as usize];
            match *first {
                NONE => keys += 1,
                later => link(&mut next, words.len(), row, later),
            }
            *first = row as u32 + 1;
        }
        Self { first: First::Range { least, rows }, next, keys }
    }

    fn in_slots(words: Vec<W>, valid: Option<&NullBuffer>) -> Self {
        let len = (SLOTS_A_ROW * words.len()).max(1);
        let mut slots = vec![0; len];
        let (mut next, mut keys) = (Vec::new(), 0);
        let mut hashes = [0; KEYS_AT_ONCE];
        for (chunk, those) in words.chunks(KEYS_AT_ONCE).enumerate().rev() {
            let mut seen = 0;
            for (hash, word) in hashes.iter_mut().zip(those) {
                *hash = word.hash();
                seen ^= slots[home(*hash, len)];
            }
            black_box(seen);
            for (at, (&hash, &word)) in hashes.iter().zip(those).enumerate().rev() {
                let row = chunk * KEYS_AT_ONCE + at;
                if valid.is_some_and(|valid| valid.is_null(row)) {
                    continue;
                }
                let mut place = home(hash, len);
                loop {
                    let later = slots[place] as u32;
                    if later == NONE {
                        keys += 1;
                        break;
                    }
                    if is_of(slots[place], hash) && words[later as usize - 1] == word {
                        link(&mut next, words.len(), row, later);
                        break;
                    }
                    place = after(place, len);
                }
                slots[place] = slot(hash, row as u32 + 1);
            }
        }
        Self { first: First::Slots { slots, words, seen: Seen::default() }, next, keys }
    }

    /// Different keys.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Whether no two rows have the same key.
    pub fn is_unique(&self) -> bool {
        self.next.is_empty()
    }

    /// The first row of each key, counted from 1; 0 for keys that no row has, or that are not valid.
    pub fn first(&self, words: &[W], valid: Option<&NullBuffer>, rows: &mut Vec<u32>) {
        rows.clear();
        rows.reserve(words.len());
        match &self.first {
            First::Range { least, rows: places } => {
                let (least, last) = (u128::from(*least), places.len() as u128 - 1);
                // What lies below the range wraps to above it.
                let place = |word: &W| word.wide().wrapping_sub(least).min(last) as usize;
                rows.extend(words.iter().map(|word| places[place(word)]));
            }
            First::Slots { slots, words: keys, seen } => match seen.filter(slots, keys) {
                Some(filter) => {
                    let (places, passing) = filter.passing(words);
                    let mut found = Vec::with_capacity(passing.len());
                    first_in_slots(slots, keys, &passing, &mut found);
                    rows.resize(words.len(), NONE);
                    for (&at, &row) in places.iter().zip(&found) {
                        rows[at as usize] = row;
                    }
                }
                None => {
                    first_in_slots(slots, keys, words, rows);
                    seen.note(rows);
                }
            },
        }
        if let Some(valid) = valid {
            for (row, is_valid) in rows.iter_mut().zip(valid.iter()) {
                *row = if is_valid { *row } else { NONE };
            }
        }
    }

    /// The row after one of the same key, both counted from 1; 0 after the last.
    #[inline]
    pub fn next(&self, row: u32) -> u32 {
        self.next.get(row as usize - 1).copied().unwrap_or(NONE)
    }

    /// Bytes of the largest table of so many rows, and of the keys that it is made of.
    pub fn bytes_max(rows: usize) -> usize {
        let keys = rows * size_of::<W>();
        let range = (PLACES_A_ROW * rows).max(PLACES_MIN) * size_of::<u32>();
        let filter = FILTER_BITS_A_ROW * rows / 8;
        let slots = SLOTS_A_ROW * rows * size_of::<u64>() + filter;
        range.max(slots) + keys + rows * size_of::<u32>()
    }
}

fn link(next: &mut Vec<u32>, rows: usize, row: usize, later: u32) {
    if next.is_empty() {
        next.resize(rows, NONE);
    }
    next[row] = later;
}

/// The least key and how many places there are from it to the largest; none where most of them would be empty.
fn range<W: Word>(words: &[W], valid: Option<&NullBuffer>) -> Option<(u64, usize)> {
    let (mut least, mut largest) = (u128::MAX, 0);
    let mut see = |word: &W| {
        least = least.min(word.wide());
        largest = largest.max(word.wide());
    };
    match valid {
        None => words.iter().for_each(&mut see),
        Some(valid) => {
            let valid = words.iter().zip(valid.iter()).filter(|(_, is_valid)| *is_valid);
            valid.for_each(|(word, _)| see(word));
        }
    }
    let places = usize::try_from(largest.checked_sub(least)?).ok()?.checked_add(1)?;
    let is_dense = places <= (PLACES_A_ROW * words.len()).max(PLACES_MIN);
    is_dense.then_some((u64::try_from(least).ok()?, places))
}

impl Seen {
    fn note(&self, rows: &[u32]) {
        if self.filter.get().is_none() {
            let found = rows.iter().filter(|&&row| row != NONE).count();
            self.keys.fetch_add(rows.len(), Ordering::Relaxed);
            self.found.fetch_add(found, Ordering::Relaxed);
        }
    }

    /// The filter, made once enough keys have been looked for in vain.
    fn filter<W: Word>(&self, slots: &[u64], words: &[W]) -> Option<&Filter> {
        if let Some(decided) = self.filter.get() {
            return decided.as_ref();
        }
        let keys = self.keys.load(Ordering::Relaxed);
        if keys < SEEN_MIN.max(words.len() / 2) || self.is_deciding.swap(true, Ordering::Relaxed) {
            return None;
        }
        let is_worth_it = FOUND_MAX * self.found.load(Ordering::Relaxed) < keys;
        let filter = || is_worth_it.then(|| Filter::new(slots, words));
        self.filter.get_or_init(filter).as_ref()
    }
}

impl Filter {
    fn new<W: Word>(slots: &[u64], words: &[W]) -> Self {
        let words = || {
            let rows = slots.iter().map(|&slot| slot as u32).filter(|&row| row != NONE);
            rows.map(|row| words[row as usize - 1])
        };
        let bits_max = FILTER_BITS_A_ROW * slots.len() / SLOTS_A_ROW;
        let wide = || words().map(|word| word.wide());
        let (least, largest) = (wide().min().unwrap_or(0), wide().max().unwrap_or(0));
        let by = match usize::try_from(largest - least) {
            Ok(last) if last + 2 <= bits_max => By::Range { least, places: last + 1 },
            // Of half as many, most fit into a nearer cache and one in ten keys that are not there passes.
            _ => By::Hash { mask: (1 << (bits_max / 2).ilog2()) - 1 },
        };
        let bits = match by {
            By::Range { places, .. } => places + 1,
            By::Hash { mask } => mask + 1,
        };
        let mut filter = Self { bits: vec![0; bits.div_ceil(u64::BITS as usize)], by };
        for word in words() {
            let bit = filter.bit(word);
            filter.bits[bit / u64::BITS as usize] |= 1 << (bit % u64::BITS as usize);
        }
        filter
    }

    #[inline]
    fn bit<W: Word>(&self, word: W) -> usize {
        match self.by {
            // What lies below the range wraps to above it.
            By::Range { least, places } => {
                word.wide().wrapping_sub(least).min(places as u128) as usize
            }
            By::Hash { mask } => word.hash() as usize & mask,
        }
    }

    /// The keys that may be there, and their places among all.
    fn passing<W: Word>(&self, words: &[W]) -> (Vec<u32>, Vec<W>) {
        let (mut places, mut passing) = (vec![0; words.len()], vec![W::default(); words.len()]);
        let mut count = 0;
        for (at, &word) in words.iter().enumerate() {
            let bit = self.bit(word);
            (places[count], passing[count]) = (at as u32, word);
            count +=
                (self.bits[bit / u64::BITS as usize] >> (bit % u64::BITS as usize) & 1) as usize;
        }
        places.truncate(count);
        passing.truncate(count);
        (places, passing)
    }
}

/// Appends the first rows of keys.
fn first_in_slots<W: Word>(slots: &[u64], keys: &[W], words: &[W], rows: &mut Vec<u32>) {
    for words in words.chunks(KEYS_AT_ONCE) {
        let mut hashes = [0; KEYS_AT_ONCE];
        let mut homes = [0; KEYS_AT_ONCE];
        for ((hash, home_slot), word) in hashes.iter_mut().zip(&mut homes).zip(words) {
            *hash = word.hash();
            *home_slot = slots[home(*hash, slots.len())];
        }
        // Those that lie elsewhere are looked for one by one.
        let mut found = [NONE; KEYS_AT_ONCE];
        for at in 0..words.len() {
            found[at] = match homes[at] {
                0 => NONE,
                slot if is_of(slot, hashes[at]) => slot as u32,
                _ => search(slots, hashes[at], |_| true),
            };
        }
        let is_right = |row: u32, word: W| row == NONE || keys[row as usize - 1] == word;
        for ((row, &word), &hash) in found.iter_mut().zip(words).zip(&hashes) {
            // Another key may have the same bits of its hash.
            if !is_right(*row, word) {
                *row = search(slots, hash, |row| keys[row as usize - 1] == word);
            }
        }
        rows.extend_from_slice(&found[..words.len()]);
    }
}

/// The first row whose slot has the bits of a hash and that is the right one.
fn search(slots: &[u64], hash: u64, is_right: impl Fn(u32) -> bool) -> u32 {
    let mut at = home(hash, slots.len());
    loop {
        let row = slots[at] as u32;
        if row == NONE || (is_of(slots[at], hash) && is_right(row)) {
            return row;
        }
        at = after(at, slots.len());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::Rng;

    use super::super::testing::rng;
    use super::*;

    /// All rows of each key, counted from 0.
    fn all<W: Word>(table: &Lookup<W>, words: &[W], valid: Option<&NullBuffer>) -> Vec<Vec<usize>> {
        let mut first = vec![7; 3];
        table.first(words, valid, &mut first);
        let list = |&row: &u32| {
            let rows = std::iter::successors(Some(row), |&row| Some(table.next(row)));
            rows.take_while(|&row| row != NONE).map(|row| row as usize - 1).collect()
        };
        first.iter().map(list).collect()
    }

    #[test]
    fn a_key_has_its_rows_in_their_order() {
        let mut rng = rng(12);
        // Of few gaps, of many, and of more than 64 bits.
        for (range, step, above) in [
            (1, 1, 0),
            (700, 1, 0),
            (700, 1, 1 << 40),
            (900, 1 << 20, 0),
            (u64::from(u32::MAX), 977, 0),
            (700, 1, 1 << 90),
        ] {
            for rows in [0, 1, 31, 32, 33, 1000] {
                let mut keys = |rows: usize| -> Vec<u128> {
                    (0..rows)
                        .map(|_| above + u128::from(rng.random_range(0..range) * step))
                        .collect()
                };
                let (build, probe) = (keys(rows), keys(500));
                let mut bits =
                    |rows| NullBuffer::from_iter((0..rows).map(|_| rng.random_bool(0.9)));
                let (valid, valid_probe) = (bits(rows), bits(500));
                let mut expected = HashMap::<u128, Vec<usize>>::new();
                for row in (0..rows).filter(|&row| valid.is_valid(row)) {
                    expected.entry(build[row]).or_default().push(row);
                }
                let rows_of = |(at, key): (usize, &u128)| match valid_probe.is_valid(at) {
                    true => expected.get(key).cloned().unwrap_or_default(),
                    false => Vec::new(),
                };
                let rows_expected: Vec<_> = probe.iter().enumerate().map(rows_of).collect();
                let table = Lookup::new(build.clone(), Some(&valid));
                assert_eq!(all(&table, &probe, Some(&valid_probe)), rows_expected);
                assert_eq!(table.keys(), expected.len());
                assert_eq!(table.is_unique(), expected.values().all(|rows| rows.len() == 1));
                if above >> 64 == 0 {
                    let narrow = |keys: &[u128]| -> Vec<u64> {
                        keys.iter().map(|&key| key as u64).collect()
                    };
                    let table = Lookup::new(narrow(&build), Some(&valid));
                    assert_eq!(all(&table, &narrow(&probe), Some(&valid_probe)), rows_expected);
                }
            }
        }
    }

    #[test]
    fn a_filter_is_made_where_most_keys_are_not_there_and_lets_all_others_pass() {
        let mut rng = rng(13);
        for (step, is_range) in [(7, true), (1 << 30, false)] {
            let build: Vec<u64> = (0..5000).map(|row| 99 + row * step).collect();
            let table = Lookup::new(build.clone(), None);
            let First::Slots { seen, .. } = &table.first else { panic!("{table:?}") };
            for _ in 0..20 {
                let mut key = |_| 99 + rng.random_range(0..40_000) * step;
                let probe: Vec<u64> =
                    (0..4000).map(&mut key).chain([0, 98, 99, u64::MAX]).collect();
                let expected = |&key: &u64| -> Vec<usize> {
                    let row =
                        key.checked_sub(99).filter(|key| key % step == 0).map(|key| key / step);
                    row.filter(|&row| row < 5000).map(|row| row as usize).into_iter().collect()
                };
                let expected: Vec<_> = probe.iter().map(expected).collect();
                assert_eq!(all(&table, &probe, None), expected);
            }
            let made = seen.filter.get().unwrap().as_ref().unwrap();
            assert_eq!(matches!(made.by, By::Range { .. }), is_range);
        }
        let build: Vec<u64> = (0..5000).map(|row| row << 30).collect();
        let table = Lookup::new(build.clone(), None);
        let First::Slots { seen, .. } = &table.first else { panic!("{table:?}") };
        for _ in 0..20 {
            assert!(
                all(&table, &build, None).iter().enumerate().all(|(row, found)| *found == [row])
            );
        }
        assert!(seen.filter.get().unwrap().is_none());
    }

    #[test]
    fn keys_whose_hashes_share_their_bits_are_told_apart() {
        // Words that a table of the same bits of a hash would take for one another: found by trying.
        let mut seen = HashMap::new();
        let pair = (0..).find_map(|key: u64| {
            let key = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            seen.insert(key.hash() as u32, key).map(|other| (other, key))
        });
        let (one, other) = pair.unwrap();
        assert_ne!(one, other);
        for words in [vec![one, other], vec![other, one, one]] {
            let table = Lookup::new(words.clone(), None);
            let rows =
                |key| -> Vec<usize> { (0..words.len()).filter(|&row| words[row] == key).collect() };
            assert_eq!(all(&table, &[one, other], None), [rows(one), rows(other)]);
            let alone = Lookup::new(vec![one], None);
            assert_eq!(all(&alone, &[other], None), [Vec::<usize>::new()]);
        }
    }
}
