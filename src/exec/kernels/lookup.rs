//! Rows by their keys: for a key, the rows of a table that have it, in their order.
//!
//! ```text
//! keys with few gaps   an array over their range: for each key its row
//! others               slots of open addressing: bits of the hash and a row; the keys themselves are beside them
//! rows of one key      beside each other in a list, the last one marked; instead of a row there is the place of the first
//! ```
//!
//! Half of the slots stay free, so a key that is not there costs one look at memory, mostly, and one that is there two.
//! What the looks of some keys read is asked for together: of a table beyond the processor's cache, none is waited for
//! alone. Of a large table, several threads make slots of their own each. Where most keys that are looked for are not there, bits of all keys that are come before the slots: they fit into
//! a nearer cache.
//!
//! Source: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13 (1970), with one bit for a key.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arrow::buffer::NullBuffer;

use super::threads::{THREAD_ROWS_MIN, in_parallel};
use super::word::{KEYS_AT_ONCE, Word};
use super::zeros::Zeros;

/// Where no row is. Rows, and places of rows, are counted from 1 inside of a table.
const NONE: u32 = 0;

/// Marks the last row of a key.
const LAST: u32 = 1 << 31;

/// Rows that a table may have.
pub const ROWS_MAX: usize = LAST as usize - 1;

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
    /// The rows of each key beside each other, in their order, counted from 0, the last of them marked; empty where no two
    /// rows have the same key, and each row is its own place.
    rows: Vec<u32>,
    keys: usize,
}

#[derive(Debug)]
enum First<W> {
    /// The place of the first row of each key from the least one on, and none at the end.
    Range { least: u64, places: Zeros<u32> },
    /// The low bits of the hash above the place of the first row of a key; the words by these places.
    Slots { slots: Zeros<u64>, words: Vec<W>, seen: Seen },
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
    bits: Zeros<u64>,
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
        Self::by_threads(words, valid, 1)
    }

    /// As [`Lookup::new`], made by so many threads where there are rows for them.
    ///
    /// # Panics
    /// As [`Lookup::new`].
    pub fn by_threads(words: Vec<W>, valid: Option<&NullBuffer>, threads: usize) -> Self {
        assert!(words.len() <= ROWS_MAX, "a table of fewer rows");
        match range(&words, valid) {
            Some((least, places)) => Self::over_range(&words, valid, least, places),
            None => {
                let threads = threads.min(words.len() / THREAD_ROWS_MIN);
                Self::in_slots(words, valid, threads.max(1))
            }
        }
    }

    fn over_range(words: &[W], valid: Option<&NullBuffer>, least: u64, places: usize) -> Self {
        let rows = || valid_rows(words.len(), valid);
        let place = |row: usize| (words[row].bits(0) - least) as usize;
        let mut zeros = Zeros::new(places + 1);
        let firsts: &mut [u32] = &mut zeros;
        let mut keys = 0;
        let is_taken = |row: usize| {
            let first = &mut firsts[place(row)];
            let is_taken = *first != NONE;
            (*first, keys) = (row as u32 + 1, keys + 1);
            is_taken
        };
        if !rows().any(is_taken) {
            return Self { first: First::Range { least, places: zeros }, rows: Vec::new(), keys };
        }
        firsts.fill(0);
        rows().for_each(|row| firsts[place(row)] += 1);
        let mut by_key = vec![0; rows().count()];
        let (_, keys) = laid_out(firsts, &mut by_key, 0);
        rows().rev().for_each(|row| put(&mut by_key, &mut firsts[place(row)], row));
        Self { first: First::Range { least, places: zeros }, rows: by_key, keys }
    }

    fn in_slots(words: Vec<W>, valid: Option<&NullBuffer>, threads: usize) -> Self {
        let len = (SLOTS_A_ROW * words.len()).max(1);
        let mut zeros = Zeros::new(len);
        let slots: &mut [u64] = &mut zeros;
        let table = Filling { words: &words, valid, len, firsts: OnceLock::new() };
        // Which slot a row is looked for in first depends on its hash: so each thread has the rows of some slots, in their order.
        let part = len.div_ceil(threads);
        let fill = |(at, slots): (usize, &mut [u64])| table.fill(slots, at * part);
        let filled = in_parallel(slots.chunks_mut(part).enumerate().collect(), fill);
        let mut keys = filled.iter().map(|of| of.keys).sum();
        for row in filled.into_iter().flat_map(|of| of.beyond) {
            keys += usize::from(table.put(slots, row));
        }
        let (words, rows) = match table.firsts.into_inner() {
            None => (words, Vec::new()),
            Some(firsts) => {
                let firsts: Vec<u32> = firsts.into_iter().map(AtomicU32::into_inner).collect();
                beside_each_other(&words, valid, &firsts, slots, threads)
            }
        };
        Self { first: First::Slots { slots: zeros, words, seen: Seen::default() }, rows, keys }
    }

    /// Different keys.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// Whether rows are found in an array over the range of the keys.
    pub fn is_array(&self) -> bool {
        matches!(self.first, First::Range { .. })
    }

    /// Whether no two rows have the same key.
    pub fn is_unique(&self) -> bool {
        self.rows.is_empty()
    }

    /// The place of the first row of each key, counted from 1; 0 for keys that no row has, or that are not valid. Where keys
    /// are unique, a place is a row.
    pub fn first(&self, words: &[W], valid: Option<&NullBuffer>, places: &mut Vec<u32>) {
        places.clear();
        places.reserve(words.len());
        match &self.first {
            First::Range { least, places: firsts } => {
                let firsts: &[u32] = firsts;
                let (least, last) = (u128::from(*least), firsts.len() as u128 - 1);
                // What lies below the range wraps to above it.
                let at = |word: &W| word.wide().wrapping_sub(least).min(last) as usize;
                places.extend(words.iter().map(|word| firsts[at(word)]));
            }
            First::Slots { slots, words: keys, seen } => match seen.filter(slots, keys) {
                Some(filter) => {
                    let (passed, passing) = filter.passing(words);
                    let mut found = Vec::with_capacity(passing.len());
                    first_in_slots(slots, keys, &passing, &mut found);
                    places.resize(words.len(), NONE);
                    for (&at, &place) in passed.iter().zip(&found) {
                        places[at as usize] = place;
                    }
                }
                None => {
                    first_in_slots(slots, keys, words, places);
                    seen.note(places);
                }
            },
        }
        if let Some(valid) = valid {
            for (place, is_valid) in places.iter_mut().zip(valid.iter()) {
                *place = if is_valid { *place } else { NONE };
            }
        }
    }

    /// Appends rows of a key, counted from 0, from one on whose place is told, so many at most; the place of the one after them,
    /// or 0.
    #[inline]
    pub fn append(&self, place: u32, limit: usize, rows: &mut Vec<u32>) -> u32 {
        if self.is_unique() {
            rows.push(place - 1);
            return NONE;
        }
        let of_key = self.rows[place as usize - 1..].iter().take(limit);
        let before = rows.len();
        for &row in of_key {
            rows.push(row & !LAST);
            if row & LAST != 0 {
                return NONE;
            }
        }
        place + (rows.len() - before) as u32
    }

    /// Bytes of the largest table of so many rows while it is made, and of the keys that it is made of.
    pub fn bytes_max(rows: usize) -> usize {
        let [keys, places] = [size_of::<W>(), size_of::<u32>()].map(|bytes| rows * bytes);
        let range = (PLACES_A_ROW * rows).max(PLACES_MIN) * size_of::<u32>() + keys + places;
        let slots = SLOTS_A_ROW * rows * size_of::<u64>();
        let filter = FILTER_BITS_A_ROW * rows / 8;
        let in_order = slots + 2 * keys + 3 * places;
        range.max(in_order).max(slots + keys + places + filter)
    }
}

/// Slots while they are filled with rows.
struct Filling<'a, W> {
    words: &'a [W],
    valid: Option<&'a NullBuffer>,
    /// All slots.
    len: usize,
    /// Of each row the first of its key, once that is not the row itself for all.
    firsts: OnceLock<Vec<AtomicU32>>,
}

/// What came of filling some of the slots.
struct Filled {
    keys: usize,
    /// The rows that found no place there, in their order: they belong behind the last of those slots.
    beyond: Vec<usize>,
}

impl<W: Word> Filling<'_, W> {
    /// Fills those slots from `start` on with the rows that are looked for there first.
    fn fill(&self, slots: &mut [u64], start: usize) -> Filled {
        let mut filled = Filled { keys: 0, beyond: Vec::new() };
        let (mut hashes, mut rows) = ([0; KEYS_AT_ONCE], [0; KEYS_AT_ONCE]);
        for (chunk, words) in self.words.chunks(KEYS_AT_ONCE).enumerate() {
            let (mut seen, mut count) = (0, 0);
            for (at, word) in words.iter().enumerate() {
                let (hash, row) = (word.hash(), chunk * KEYS_AT_ONCE + at);
                let home = home(hash, self.len).wrapping_sub(start);
                if home < slots.len() && self.valid.is_none_or(|valid| valid.is_valid(row)) {
                    seen ^= slots[home];
                    (hashes[count], rows[count]) = (hash, row);
                    count += 1;
                }
            }
            black_box(seen);
            for (&hash, &row) in hashes[..count].iter().zip(&rows) {
                let home = home(hash, self.len) - start;
                match self.put_from(&mut slots[home..], hash, row) {
                    Some(is_new) => filled.keys += usize::from(is_new),
                    None => filled.beyond.push(row),
                }
            }
        }
        filled
    }

    /// Puts a row into any of all slots; says whether it is the first of its key.
    fn put(&self, slots: &mut [u64], row: usize) -> bool {
        let hash = self.words[row].hash();
        let home = home(hash, self.len);
        let (before, from_home) = slots.split_at_mut(home);
        // Half of all slots are free.
        let put = self.put_from(from_home, hash, row).or_else(|| self.put_from(before, hash, row));
        put.unwrap_or(false)
    }

    /// Puts a row into the first of these slots that is free, or to the first row of its key, and says whether it is that; `None`
    /// where all of them are others'.
    #[inline]
    fn put_from(&self, slots: &mut [u64], hash: u64, row: usize) -> Option<bool> {
        for at in slots {
            let first = *at as u32;
            if first == NONE {
                *at = slot(hash, row as u32 + 1);
                return Some(true);
            }
            if is_of(*at, hash) && self.words[first as usize - 1] == self.words[row] {
                let alone = || (0..self.words.len() as u32).map(AtomicU32::new).collect();
                self.firsts.get_or_init(alone)[row].store(first - 1, Ordering::Relaxed);
                return Some(false);
            }
        }
        None
    }
}

/// The rows that are valid.
fn valid_rows(rows: usize, valid: Option<&NullBuffer>) -> impl DoubleEndedIterator<Item = usize> {
    (0..rows).filter(move |&row| valid.is_none_or(|valid| valid.is_valid(row)))
}

/// Marks of rows by key, from a place on, the last of each, and says where they end and how many keys have rows. A count becomes
/// the place behind the last row of its key.
fn laid_out(counts: &mut [u32], rows: &mut [u32], mut end: u32) -> (u32, usize) {
    let mut keys = 0;
    for count in counts.iter_mut().filter(|count| **count > 0) {
        (end, keys) = (end + *count, keys + 1);
        rows[end as usize - 1] = LAST;
        *count = end + 1;
    }
    (end, keys)
}

/// Puts a row before those of its key, whose first place is told.
fn put(rows: &mut [u32], first: &mut u32, row: usize) {
    *first -= 1;
    rows[*first as usize - 1] |= row as u32;
}

/// Words and rows with those of one key beside each other, where it is told of each row which one is the first of its key, and
/// the slots say so. They say the places of these afterwards. Each thread has the keys whose first rows are some of all.
fn beside_each_other<W: Word>(
    words: &[W],
    valid: Option<&NullBuffer>,
    firsts: &[u32],
    slots: &mut [u64],
    threads: usize,
) -> (Vec<W>, Vec<u32>) {
    let part = words.len().div_ceil(threads);
    let mut places = vec![0; words.len()];
    let rows = || valid_rows(words.len(), valid);
    let count = |(at, counts): (usize, &mut [u32])| {
        for row in rows() {
            if let Some(count) = counts.get_mut((firsts[row] as usize).wrapping_sub(at * part)) {
                *count += 1;
            }
        }
    };
    in_parallel(places.chunks_mut(part).enumerate().collect(), count);
    let mut by_key = vec![0; rows().count()];
    let mut in_order = vec![W::default(); by_key.len()];
    let (mut parts, mut start) = (Vec::with_capacity(threads), 0);
    let (mut rows_left, mut words_left) = (by_key.as_mut_slice(), in_order.as_mut_slice());
    for (at, places) in places.chunks_mut(part).enumerate() {
        let (end, _) = laid_out(places, rows_left, 0);
        let (of_keys, words);
        (of_keys, rows_left) = rows_left.split_at_mut(end as usize);
        (words, words_left) = words_left.split_at_mut(end as usize);
        parts.push(SomeKeys { first_row: at * part, start, places, rows: of_keys, words });
        start += end;
    }
    let lay = |keys: SomeKeys<'_, W>| {
        let of_keys = &words[keys.first_row..];
        for row in rows().rev() {
            let key = (firsts[row] as usize).wrapping_sub(keys.first_row);
            if let Some(place) = keys.places.get_mut(key) {
                put(keys.rows, place, row);
            }
        }
        let places = keys.places.iter_mut().zip(of_keys);
        for (place, word) in places.filter(|(place, _)| **place > 0) {
            keys.words[*place as usize - 1] = *word;
            *place += keys.start;
        }
    };
    in_parallel(parts, lay);
    let tell = |slots: &mut [u64]| {
        for slot in slots.iter_mut().filter(|slot| **slot as u32 != NONE) {
            let row = *slot as u32 as usize - 1;
            *slot = *slot >> u32::BITS << u32::BITS | u64::from(places[row]);
        }
    };
    in_parallel(slots.chunks_mut(slots.len().div_ceil(threads)).collect(), tell);
    (in_order, by_key)
}

/// Keys of which the first rows follow one another, as one thread lays them out.
struct SomeKeys<'a, W> {
    first_row: usize,
    /// The places of all keys before.
    start: u32,
    /// By row from the first one on: of those that are the first of a key, its first place among these.
    places: &'a mut [u32],
    rows: &'a mut [u32],
    words: &'a mut [W],
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
    fn note(&self, places: &[u32]) {
        if self.filter.get().is_none() {
            let found = places.iter().filter(|&&place| place != NONE).count();
            self.keys.fetch_add(places.len(), Ordering::Relaxed);
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

impl By {
    #[inline]
    fn bit<W: Word>(&self, word: W) -> usize {
        match *self {
            // What lies below the range wraps to above it.
            Self::Range { least, places } => {
                word.wide().wrapping_sub(least).min(places as u128) as usize
            }
            Self::Hash { mask } => word.hash() as usize & mask,
        }
    }
}

impl Filter {
    fn new<W: Word>(slots: &[u64], words: &[W]) -> Self {
        let words = || {
            let places = slots.iter().map(|&slot| slot as u32).filter(|&place| place != NONE);
            places.map(|place| words[place as usize - 1])
        };
        let bits_max = FILTER_BITS_A_ROW * slots.len() / SLOTS_A_ROW;
        let ends = words().map(|word| (word.wide(), word.wide()));
        let ends = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (least, largest) = ends.unwrap_or_default();
        let by = match usize::try_from(largest - least) {
            Ok(last) if last + 2 <= bits_max => By::Range { least, places: last + 1 },
            // Of half as many, most fit into a nearer cache and one in ten keys that are not there passes.
            _ => By::Hash { mask: (1 << (bits_max / 2).ilog2()) - 1 },
        };
        let bits = match by {
            By::Range { places, .. } => places + 1,
            By::Hash { mask } => mask + 1,
        };
        let mut zeros = Zeros::new(bits.div_ceil(u64::BITS as usize));
        let bits: &mut [u64] = &mut zeros;
        for word in words() {
            let bit = by.bit(word);
            bits[bit / u64::BITS as usize] |= 1 << (bit % u64::BITS as usize);
        }
        Self { bits: zeros, by }
    }

    /// The keys that may be there, and their places among all.
    fn passing<W: Word>(&self, words: &[W]) -> (Vec<u32>, Vec<W>) {
        let (mut places, mut passing) = (vec![0; words.len()], vec![W::default(); words.len()]);
        let (bits, mut count): (&[u64], _) = (&self.bits, 0);
        for (at, &word) in words.iter().enumerate() {
            let bit = self.by.bit(word);
            (places[count], passing[count]) = (at as u32, word);
            count += (bits[bit / u64::BITS as usize] >> (bit % u64::BITS as usize) & 1) as usize;
        }
        places.truncate(count);
        passing.truncate(count);
        (places, passing)
    }
}

/// Appends the places of the first rows of keys.
fn first_in_slots<W: Word>(slots: &[u64], keys: &[W], words: &[W], places: &mut Vec<u32>) {
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
        let is_right = |place: u32, word: W| place == NONE || keys[place as usize - 1] == word;
        for ((place, &word), &hash) in found.iter_mut().zip(words).zip(&hashes) {
            // Another key may have the same bits of its hash.
            if !is_right(*place, word) {
                *place = search(slots, hash, |place| keys[place as usize - 1] == word);
            }
        }
        places.extend_from_slice(&found[..words.len()]);
    }
}

/// The place in the first slot that has the bits of a hash and that is the right one.
fn search(slots: &[u64], hash: u64, is_right: impl Fn(u32) -> bool) -> u32 {
    let mut at = home(hash, slots.len());
    loop {
        let place = slots[at] as u32;
        if place == NONE || (is_of(slots[at], hash) && is_right(place)) {
            return place;
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
        let list = |&first: &u32| {
            let (mut place, mut rows) = (first, Vec::new());
            while place != NONE {
                place = table.append(place, 3, &mut rows);
            }
            rows.into_iter().map(|row| row as usize).collect()
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
    fn threads_that_share_the_slots_make_the_table_of_one() {
        let mut rng = rng(14);
        for (rows, range) in [(40_usize, 1000), (300, 120), (5000, 100_000)] {
            let keys: Vec<u64> = (0..range).map(|key| key << 40).collect();
            // More that are looked for in the last slots than there are: some lie before the first of all.
            let is_last =
                |key: &&u64| home(key.hash(), SLOTS_A_ROW * rows) >= SLOTS_A_ROW * rows - 4;
            let last = (0..).map(|key| key << 40 | 1).filter(|key| is_last(&key)).take(8);
            let other = |_| keys[rng.random_range(0..keys.len())];
            let build: Vec<u64> = last.clone().chain((8..rows).map(other)).collect();
            let valid = NullBuffer::from_iter((0..rows).map(|row| row % 9 != 8));
            let probe: Vec<u64> = keys.iter().copied().chain(last).collect();
            let mut expected = HashMap::<u64, Vec<usize>>::new();
            for row in (0..rows).filter(|row| row % 9 != 8) {
                expected.entry(build[row]).or_default().push(row);
            }
            let rows_of = |key| expected.get(key).cloned().unwrap_or_default();
            let rows_expected: Vec<_> = probe.iter().map(rows_of).collect();
            // With few slots for each, many rows belong behind the last of them.
            for threads in [1, 2, 3, 20, 2 * rows.min(100)] {
                let table = Lookup::in_slots(build.clone(), Some(&valid), threads);
                assert_eq!(all(&table, &probe, None), rows_expected, "{rows}, {threads}");
                assert_eq!(table.keys(), expected.len());
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
