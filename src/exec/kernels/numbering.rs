//! Numbers for keys of a fixed width: equal keys get the same number, new ones the next.
//!
//! A hash table of open addressing, whose slots hold the keys themselves: a look-up reads one place in memory, mostly.
//! Half of the slots stay free, and most of a table that a near cache holds anyway: keys that lie where they are looked for
//! first are found without a guess of the processor's going wrong. Hashes are products of 64 bits folded together, so keys that differ in a few bits
//! anywhere lie far apart. The first places of some keys are read together before one of them is decided on: of a table
//! beyond the processor's cache, none is waited for alone.

use super::word::{KEYS_AT_ONCE, Word};
use super::zeros::Zeros;

/// A key, and one more than its number; nothing where it is free.
type Slot<W> = [W; 2];

/// What a free slot has in the place of a number.
const FREE: u32 = 0;

/// What a slot has in the place of a number.
#[inline]
fn tag<W: Word>(slot: &Slot<W>) -> u32 {
    slot[1].bits(0) as u32
}

/// Slots of the smallest table.
const SLOTS_MIN: usize = 1024;

/// Slots of the largest table of which most stay free.
const SPARSE_SLOTS_MAX: usize = 16 << 10;

/// Slots for each key of such a table, and of larger ones.
const SPARSE_SLOTS_A_KEY: usize = 8;
const SLOTS_A_KEY: usize = 2;

/// Slots of a table of so many keys.
fn slots_for(keys: usize) -> usize {
    let sparse = (SPARSE_SLOTS_A_KEY * keys).min(SPARSE_SLOTS_MAX);
    sparse.max(SLOTS_A_KEY * keys).next_power_of_two().max(SLOTS_MIN)
}

/// The keys that have a number.
#[derive(Debug)]
pub struct Numbering<W> {
    /// A power of two.
    slots: Zeros<Slot<W>>,
    /// Of a hash, the bits that are no slot.
    shift: u32,
    /// The keys by their numbers.
    words: Vec<W>,
    /// The number of NULL, whose place among the keys means nothing.
    null: Option<u32>,
}

impl<W: Word> Default for Numbering<W> {
    fn default() -> Self {
        let (slots, shift) = free(SLOTS_MIN);
        Self { slots, shift, words: Vec::new(), null: None }
    }
}

fn free<W: Word>(slots: usize) -> (Zeros<Slot<W>>, u32) {
    (Zeros::new(slots), u64::BITS - slots.ilog2())
}

impl<W: Word> Numbering<W> {
    /// Keys that have a number.
    pub fn count(&self) -> usize {
        self.words.len()
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot<W>>() + self.words.capacity() * size_of::<W>()
    }

    /// Bytes that so many more keys may take beside.
    pub fn growth_bytes(&self, more: usize) -> usize {
        let len = self.words.len() + more;
        let slots = slots_for(len);
        let grown = if slots > self.slots.len() { slots * size_of::<Slot<W>>() } else { 0 };
        let moved = if len > self.words.capacity() { 2 * len * size_of::<W>() } else { 0 };
        grown + moved
    }

    /// The numbers of keys, after those that are there.
    ///
    /// # Panics
    /// Where there are more than 2³² - 1 different ones.
    pub fn number(&mut self, words: &[W], numbers: &mut Vec<usize>) {
        for words in words.chunks(KEYS_AT_ONCE) {
            let first = self.at_first_places(words);
            numbers.extend(words.iter().zip(first).map(|(&word, number)| match number {
                FREE => self.number_of(word),
                tag => tag as usize - 1,
            }));
        }
    }

    /// The same where some keys are NULL, whatever their words are.
    ///
    /// # Panics
    /// Where there are more than 2³² - 1 different ones.
    pub fn number_with_nulls(
        &mut self,
        words: &[W],
        is_valid: impl Fn(usize) -> bool,
        numbers: &mut Vec<usize>,
    ) {
        for (chunk, words) in words.chunks(KEYS_AT_ONCE).enumerate() {
            let first = self.at_first_places(words).into_iter().enumerate();
            numbers.extend(words.iter().zip(first).map(|(&word, (at, number))| {
                match (is_valid(chunk * KEYS_AT_ONCE + at), number) {
                    (false, _) => self.number_of_null(),
                    (true, FREE) => self.number_of(word),
                    (true, tag) => tag as usize - 1,
                }
            }));
        }
    }

    /// What the slots have in which keys are looked for first, where it is theirs; `FREE` for others, which may have a number too.
    #[inline]
    fn at_first_places(&self, words: &[W]) -> [u32; KEYS_AT_ONCE] {
        let slots = &self.slots[..];
        let mask = slots.len() - 1;
        let mut tags = [FREE; KEYS_AT_ONCE];
        for (found, &word) in tags.iter_mut().zip(words) {
            let slot = &slots[(word.hash() >> self.shift) as usize & mask];
            *found = if slot[0] == word { tag(slot) } else { FREE };
        }
        tags
    }

    #[inline]
    fn number_of(&mut self, word: W) -> usize {
        let slots = &self.slots[..];
        let mask = slots.len() - 1;
        let mut at = (word.hash() >> self.shift) as usize;
        loop {
            let slot = &slots[at & mask];
            match tag(slot) {
                FREE => return self.add(word, at & mask),
                tag if slot[0] == word => return tag as usize - 1,
                _ => at += 1,
            }
        }
    }

    fn number_of_null(&mut self) -> usize {
        if let Some(number) = self.null {
            return number as usize;
        }
        self.null = Some(self.next());
        self.words.push(W::default());
        self.words.len() - 1
    }

    fn next(&self) -> u32 {
        let next = u32::try_from(self.words.len()).ok().filter(|&next| next != u32::MAX);
        next.expect("a table holds fewer groups")
    }

    fn add(&mut self, word: W, at: usize) -> usize {
        let number = self.next();
        self.words.push(word);
        self.slots[at] = [word, W::of_wide(u128::from(number + 1))];
        if slots_for(self.words.len()) > self.slots.len() {
            self.grow();
        }
        number as usize
    }

    fn grow(&mut self) {
        let (mut grown, shift) = free(2 * self.slots.len());
        let slots = &mut grown[..];
        let mask = slots.len() - 1;
        for slot in self.slots.iter().filter(|slot| tag(slot) != FREE) {
            let mut at = (slot[0].hash() >> shift) as usize;
            while tag(&slots[at & mask]) != FREE {
                at += 1;
            }
            slots[at & mask] = *slot;
        }
        (self.slots, self.shift) = (grown, shift);
    }

    /// The keys by their numbers, and the number of NULL; the table is empty then, and as large as before.
    pub fn take(&mut self) -> (Vec<W>, Option<usize>) {
        self.slots.fill([W::default(); 2]);
        (std::mem::take(&mut self.words), self.null.take().map(|number| number as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::Rng;

    use super::super::testing::rng;
    use super::*;

    #[test]
    fn equal_keys_have_one_number_and_new_ones_the_next() {
        let mut rng = rng(11);
        for range in [1, 7, 1000, 1_u64 << 40] {
            let (mut narrow, mut wide) =
                (Numbering::<u64>::default(), Numbering::<u128>::default());
            let mut expected = HashMap::new();
            for _ in 0..20 {
                let keys: Vec<Option<u64>> = (0..rng.random_range(0..900))
                    .map(|_| rng.random_bool(0.95).then(|| rng.random_range(0..range) << 9))
                    .collect();
                let numbers: Vec<usize> = keys
                    .iter()
                    .map(|key| {
                        let next = expected.len();
                        *expected.entry(*key).or_insert(next)
                    })
                    .collect();
                let words: Vec<u64> = keys.iter().map(|key| key.unwrap_or(77)).collect();
                let wides: Vec<u128> =
                    words.iter().map(|&word| u128::from(word) << 50 | 5).collect();
                let (mut found, mut found_wide) = (Vec::new(), Vec::new());
                narrow.number_with_nulls(&words, |at| keys[at].is_some(), &mut found);
                wide.number_with_nulls(&wides, |at| keys[at].is_some(), &mut found_wide);
                assert_eq!((&found, &found_wide), (&numbers, &numbers));
            }
            assert_eq!(narrow.count(), expected.len());
            let (words, null) = narrow.take();
            assert_eq!(null, expected.get(&None).copied());
            for (key, number) in expected.iter().filter_map(|(key, at)| Some(((*key)?, *at))) {
                assert_eq!(words[number], key);
            }
            assert_eq!((narrow.count(), narrow.take().1), (0, None));
        }
    }
}
