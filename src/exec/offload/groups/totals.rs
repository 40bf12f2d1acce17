//! How rows become totals: what is launched, where totals lie meanwhile, and which of them come back.
//!
//! ```text
//! few groups    each block its own ─ finish ─► all of them
//! more          one table for all ─ count, scan, gather ─► those that have rows
//! ```
//!
//! Rows come at once or in batches, whose totals lie in the same places.
//!
//! A table by slots of codes is made larger until all codes have one. Where that, or one for all codes, has no room, it is made for half of the
//! codes, a fourth, and so on, and the rows are gone through for each part.

use std::borrow::Cow;
use std::ops::Range;

use datafusion::execution::memory_pool::MemoryReservation;

use super::batches::stretch;
use super::column::PACK;
use super::run::{Looked, Run};
use super::text::{CLEAR, COUNT, ENTRY, FINISH, GATHER, Kernel, SCAN, Space};
use crate::exec::offload::Failed;
use crate::exec::offload::loops::{HEADERS, THREADS};
use crate::gpu::{Argument, Buffer, Fault, Launch, Source, Work};

/// Rows that a block reads at a time.
const BLOCK_ROWS: usize = THREADS * PACK;

/// Blocks that go through groups at most, and about as many as go through rows: by these alone, for they decide the order of additions.
const BLOCKS_MAX: usize = 1024;

/// Words of groups that all come back, whether they have rows or not.
const WORDS_BACK_MAX: usize = 1 << 16;

/// Slots of a table that is made first, and by how much one is larger that is made after it was full.
const SLOTS_FIRST: usize = 1 << 20;
const SLOTS_GROWTH: usize = 8;

/// Parts of all groups at most that the rows are gone through for one by one.
pub(crate) const PARTS_MAX: usize = 16;

/// The totals of the groups that there are.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) codes: Vec<u64>,
    /// Those of a group side by side.
    pub(super) words: Vec<u64>,
}

/// The texts of all that is launched for a kernel.
pub(super) fn sources(kernel: &Kernel) -> Vec<Source> {
    let entries: &[&'static str] = match kernel.space {
        Space::Registers | Space::Shared => &[ENTRY, FINISH],
        Space::Global | Space::Hashed => &[ENTRY, CLEAR, COUNT, SCAN, GATHER],
    };
    let source = |entry: &&'static str| Source {
        text: Cow::Owned(kernel.text.clone()),
        headers: HEADERS,
        entry: Cow::Borrowed(*entry),
        contracts: false,
    };
    entries.iter().map(source).collect()
}

/// Rows on their way to totals.
pub(super) struct Adding<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) kernel: &'a Kernel,
    pub(super) sources: &'a [Source],
    pub(super) looked: &'a [Looked],
    /// How many codes each key has.
    pub(super) codes: &'a [usize],
    /// What memory on this side is counted in.
    pub(super) bytes: &'a MemoryReservation,
}

impl Adding<'_> {
    /// The totals of all rows, of groups with so many codes. Where there is no room for those of all groups at once, the rows are gone
    /// through for a part of them at a time.
    pub(super) fn totals(&self, codes: usize) -> Result<Totals, Failed> {
        if let Space::Registers | Space::Shared = self.kernel.space {
            return self.by_blocks(codes);
        }
        let mut parts = 1;
        loop {
            let counted = self.bytes.size();
            match self.by_parts(codes, parts) {
                Err(Failed::Device(Fault::Memory { .. })) if parts < PARTS_MAX => {
                    self.bytes.shrink(self.bytes.size() - counted);
                    parts *= 2;
                }
                totals => return totals,
            }
        }
    }

    fn by_parts(&self, codes: usize, parts: usize) -> Result<Totals, Failed> {
        let mut all = Totals::default();
        for part in 0..parts {
            let own = match self.kernel.space {
                Space::Hashed => self.by_slots(part, parts)?,
                _ => {
                    let each = codes.div_ceil(parts);
                    self.by_codes(each * part..codes.min(each * (part + 1)))?
                }
            };
            if part == 0 {
                all = own;
                continue;
            }
            all.codes.extend(own.codes);
            all.words.extend(own.words);
        }
        Ok(all)
    }

    /// One table, of all of these codes.
    fn by_codes(&self, codes: Range<usize>) -> Result<Totals, Failed> {
        if codes.is_empty() {
            return Ok(Totals::default());
        }
        let table = self.table(codes.len(), None)?;
        self.add(&table, 0, &[number(codes.start), number(codes.len())])?;
        let mut own = self.there(&table, codes.len(), None)?;
        own.codes.iter_mut().for_each(|code| *code += codes.start as u64);
        Ok(own)
    }

    /// Each block has totals of all groups, which are then put together.
    fn by_blocks(&self, groups: usize) -> Result<Totals, Failed> {
        let words = groups * self.kernel.words;
        let blocks = self.run.asked.rows.div_ceil(self.stretch()) * self.blocks();
        let (out, parts) = (self.words(words)?, self.words(words * blocks)?);
        self.add(&parts, words, &[])?;
        let given = [Argument::Buffer(&out), Argument::Buffer(&parts), number(blocks)];
        self.launch(FINISH, Work::Blocks(groups as u32), &given)?;
        self.all(&out, groups)
    }

    /// One table, of the codes that there are of a part of all.
    fn by_slots(&self, part: usize, parts: usize) -> Result<Totals, Failed> {
        let too_many = || Failed::Unfit("more groups than a device has room for".into());
        let most = (self.run.asked.rows / parts).saturating_mul(2).next_power_of_two();
        let mut slots = SLOTS_FIRST.min(most);
        loop {
            if u32::try_from(slots).is_err() {
                return Err(too_many());
            }
            let (codes, full) = (self.words(slots)?, self.words(1)?);
            self.run.queue.stream.clear(&full)?;
            let table = self.table(slots, Some(&codes))?;
            let whole = [Argument::Buffer(&codes), number(slots), Argument::Buffer(&full)];
            let given = [&whole[..], &[number(part), number(parts)]].concat();
            self.add(&table, 0, &given)?;
            let mut is_full = [0_u64];
            self.run.queue.back(&full, &mut is_full)?;
            if is_full == [0] {
                return self.there(&table, slots, Some(&codes));
            }
            if slots == most {
                return Err(too_many());
            }
            slots = slots.saturating_mul(SLOTS_GROWTH).min(most);
        }
    }

    /// Totals of so many groups, to which nothing was added; and the codes of their slots, which have none.
    fn table(&self, groups: usize, codes: Option<&Buffer>) -> Result<Buffer, Failed> {
        let words = groups * self.kernel.words;
        let table = self.words(words)?;
        let mut given = vec![Argument::Buffer(&table), number(groups)];
        given.extend(codes.map(Argument::Buffer));
        self.launch(CLEAR, Work::Threads(words as u64), &given)?;
        Ok(table)
    }

    /// Adds all rows up. Each block has so many words of its own.
    fn add(&self, to: &Buffer, words: usize, slots: &[Argument<'_>]) -> Result<(), Failed> {
        let (stretch, blocks) = (self.stretch(), self.blocks());
        self.run.rows.each(&self.run.queue, self.bytes, |batch| {
            let own = batch.rows.start / stretch * blocks * words * size_of::<u64>();
            let head = [Argument::From(to, own), number(batch.rows.len()), number(stretch)];
            let mut given = Vec::from(head);
            given.push(number(blocks));
            given.extend(slots);
            let of = self.kernel.parameters.iter();
            given.extend(of.map(|of| self.run.argument(*of, batch, (self.looked, self.codes))));
            let blocks = batch.rows.len().div_ceil(stretch) * blocks;
            self.launch(ENTRY, Work::Blocks(blocks as u32), &given)
        })
    }

    fn stretch(&self) -> usize {
        stretch(self.run.asked.rows)
    }

    /// Those of a stretch.
    fn blocks(&self) -> usize {
        let (rows, stretch) = (self.run.asked.rows, self.stretch());
        let share = BLOCKS_MAX.div_ceil(rows.div_ceil(stretch));
        share.min(rows.min(stretch).div_ceil(BLOCK_ROWS)).max(1)
    }

    /// Those of so many groups that have rows.
    fn there(
        &self,
        table: &Buffer,
        groups: usize,
        codes: Option<&Buffer>,
    ) -> Result<Totals, Failed> {
        if codes.is_none() && groups * self.kernel.words <= WORDS_BACK_MAX {
            return self.all(table, groups);
        }
        let blocks = groups.div_ceil(THREADS).clamp(1, BLOCKS_MAX);
        let counts = self.words(blocks + 1)?;
        let given = [Argument::Buffer(&counts), Argument::Buffer(table), number(groups)];
        self.launch(COUNT, Work::Blocks(blocks as u32), &given)?;
        self.launch(SCAN, Work::Blocks(1), &[Argument::Buffer(&counts), number(blocks)])?;
        let mut sums = vec![0_u64; blocks + 1];
        self.run.queue.back(&counts, &mut sums)?;
        let count = sums.last().map_or(0, |count| *count as usize);
        let (out_codes, out) = (self.words(count)?, self.words(count * self.kernel.words)?);
        let given = [
            Argument::Buffer(&out_codes),
            Argument::Buffer(&out),
            Argument::Buffer(&counts),
            Argument::Buffer(table),
            number(groups),
            codes.map_or(Argument::U64(0), Argument::Buffer),
        ];
        self.launch(GATHER, Work::Blocks(blocks as u32), &given)?;
        let mut totals = self.empty(count)?;
        self.run.queue.back(&out, &mut totals.words)?;
        self.run.queue.back(&out_codes, &mut totals.codes)?;
        Ok(totals)
    }

    /// All groups; those that have no rows are left out here, but for the only one where there are no keys.
    fn all(&self, table: &Buffer, groups: usize) -> Result<Totals, Failed> {
        let words = self.kernel.words;
        let mut all = self.empty(groups)?;
        self.run.queue.back(table, &mut all.words)?;
        let is_one = self.run.asked.keys.is_empty();
        let groups = all.words.chunks_exact(words).enumerate();
        let there = groups.filter(|(_, words)| is_one || words[0] > 0);
        all.codes = there.clone().map(|(group, _)| group as u64).collect();
        let there = there.flat_map(|(_, words)| words).copied().collect();
        Ok(Totals { words: there, ..all })
    }

    /// Room for so many groups, as totals and as the arrays that are made of them.
    fn empty(&self, groups: usize) -> Result<Totals, Failed> {
        let words = groups * self.kernel.words;
        self.bytes.try_grow(2 * (groups + words) * size_of::<u64>())?;
        Ok(Totals { codes: vec![0_u64; groups], words: vec![0_u64; words] })
    }

    fn words(&self, count: usize) -> Result<Buffer, Failed> {
        let (queue, bytes) = (&self.run.queue, count * size_of::<u64>());
        queue.with_room(bytes, || queue.stream.alloc(bytes, "totals of groups"))
    }

    fn launch(&self, entry: &str, work: Work, given: &[Argument<'_>]) -> Result<(), Failed> {
        let source = self.sources.iter().find(|source| source.entry == entry);
        let source = source.ok_or_else(|| Failed::Unfit(format!("no text for {entry}")))?;
        let kernel = self.run.queue.device.kernel(source)?;
        let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
        self.run.queue.stream.launch(&kernel, launch, given)?;
        Ok(())
    }
}

fn number(of: usize) -> Argument<'static> {
    Argument::U64(of as u64)
}
