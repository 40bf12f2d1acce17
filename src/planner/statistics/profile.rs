//! What ANALYZE keeps of a column once it has read all of its rows: about a kilobyte, and some of its rows.
//!
//! ```text
//! Reader    while rows are read   NULLs, a sketch of values that differ, counters of those that are common, samples
//! Profile   kept                  shares, a count, up to 16 values with their shares, 64 bounds, up to 1,024 rows
//! ```
//!
//! Values are known by their hashes, so that all types have common ones; those on the line of `axis` are cut into
//! parts of as many rows each, so that ranges know where values are dense. Common values: Misra and Gries, *Finding Repeated
//! Elements*, Science of Computer Programming 2(2), 1982.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{cast, concat, rank};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{HashMap, ScalarValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::axis;
use super::distinct::{Count, Occurrence, Occurrences};
use super::drawn::{self, DRAWN_BYTES, Draw};
use super::tried::Trials;
use crate::exec::kernels::distinct::DistinctSketch;

/// Bytes that a reader takes at most: its sketch, its samples and its counters.
pub(super) const READER_BYTES: usize = REGISTERS + 8 * SAMPLE + 96 * COUNTED + DRAWN_BYTES;

/// Common values that are kept.
const COMMON: usize = 16;

/// How much more often than the average a value is there that is kept as a common one.
const UNCOMMON: f64 = 1.25;

/// Rows of a sample that a value is met in at least to be kept: of fewer, a share is more than a third off.
const MET: f64 = 8.0;

/// Standard deviations that a count in a sample is above the average at least, for among thousands of values some are met
/// more often by chance.
const DEVIATIONS: f64 = 4.0;

/// How far from the middle of all values that of some may be, as a share of them: as far as the middle half of all goes. Of
/// four runs of a sorted table, those at both ends are further away.
const UNLIKE: f64 = 0.25;

/// Parts of as many rows each.
const PARTS: usize = 64;

/// Neighbouring texts of a run that are put in order beside those of others: the middle one of them is about that of the run.
const RANKED: usize = 256;

/// Registers of the sketch of values that differ: 0.8 % off in two cases of three.
const REGISTERS: usize = 1 << 14;

/// Values that are counted one by one: a count is too low by this part of all rows at most.
const COUNTED: usize = 512;

/// Rows that bounds are made of, each as likely as any other: a part is off by some 9 % of its rows, twice that rarely.
const SAMPLE: usize = 1 << 13;

/// What is known of a column.
#[derive(Debug)]
pub(super) struct Profile {
    /// The share of rows that are NULL.
    pub(super) nulls: f64,
    /// How many values differ; nothing for types that have no hash.
    pub(super) distinct: Option<Count>,
    /// The most common values by their hashes, with their shares of all rows.
    common: Vec<(u64, f64)>,
    /// Where the values lie: the least, the greatest, and what is between parts. Empty where they have no places.
    bounds: Vec<f64>,
    /// The share of a value that was not met where all others are common, at most: none if all rows were read.
    unseen: f64,
    /// Some rows, NULLs among them, for conditions of which nothing else here tells. None where they are not like all others.
    pub(super) drawn: Option<ArrayRef>,
    pub(super) trials: Trials,
}

impl Profile {
    /// That of a column in so many rows, by runs of them from all over the table; nothing where there are none. No more than
    /// so many values can differ.
    pub(super) fn of_runs(runs: &[ArrayRef], rows: f64, distinct_max: f64) -> Option<Self> {
        let seen: usize = runs.iter().map(|run| run.len()).sum();
        let nulls: usize = runs.iter().map(|run| run.logical_null_count()).sum();
        if seen == 0 {
            return None;
        }
        let nulls = nulls as f64 / seen as f64;
        let found = Occurrences::of(runs);
        let distinct = found.as_ref().and_then(|found| found.distinct(rows * (1.0 - nulls)));
        let distinct = distinct.map(|distinct| distinct.clamp(0.0, distinct_max));
        let alike = distinct.map(|distinct| distinct.alike);
        let mut common: Vec<(u64, f64)> = match found.as_ref().zip(alike) {
            Some((found, distinct)) => {
                let average = found.seen as f64 / distinct.max(1.0);
                let by_chance = average + DEVIATIONS * average.sqrt();
                let least = by_chance.max(UNCOMMON * average).max(MET);
                // What is common in one place only may be so nowhere else.
                let is_common = |value: &Occurrence| {
                    value.runs > 1 && (distinct <= COMMON as f64 || f64::from(value.rows) > least)
                };
                let common = found.values.iter().filter(|(_, value)| is_common(value));
                common.map(|(hash, value)| (*hash, f64::from(value.rows) / seen as f64)).collect()
            }
            None => Vec::new(),
        };
        common.sort_unstable_by(|(one, share), (other, of_other)| {
            of_other.total_cmp(share).then(one.cmp(other))
        });
        common.truncate(COMMON);
        let (bounds, drawn) = (bounds_of(runs), drawn::of_runs(runs));
        let (unseen, trials) = (0.5 / seen as f64, Trials::default());
        Some(Self { nulls, distinct, common, bounds, unseen, drawn, trials })
    }

    /// The same by so few runs that a table which is sorted is not met in all of its parts. Of such a column nothing is
    /// said about where its values lie nor which meet a condition, and a value that was not met may be as common as any other.
    pub(super) fn of_few_runs(runs: &[ArrayRef], rows: f64, distinct_max: f64) -> Option<Self> {
        let of_runs = Self::of_runs(runs, rows, distinct_max)?;
        let has_places = runs.iter().any(|run| axis::places(run).is_some());
        let is_alike = match has_places {
            true => are_alike(runs),
            false => ranks(runs).is_some_and(|ranks| are_alike(&ranks)),
        };
        let (bounds, drawn) =
            if is_alike { (of_runs.bounds, of_runs.drawn) } else { (Vec::new(), None) };
        Some(Self { bounds, drawn, unseen: 1.0, ..of_runs })
    }

    /// The least and the greatest place of values.
    pub(super) fn range(&self) -> Option<[f64; 2]> {
        Some([*self.bounds.first()?, *self.bounds.last()?])
    }

    /// The share of all rows whose value lies within bounds, these included.
    pub(super) fn within(&self, from: f64, to: f64) -> Option<f64> {
        self.bounds.first()?;
        let share = self.up_to(to) - self.up_to(from.next_down());
        Some(share.max(0.0) * (1.0 - self.nulls))
    }

    /// The share of values that are no greater. A value that fills parts is a bound more than once.
    fn up_to(&self, place: f64) -> f64 {
        let parts = self.bounds.len().saturating_sub(1).max(1) as f64;
        let after = self.bounds.partition_point(|bound| *bound <= place);
        match (after.checked_sub(1).map(|before| self.bounds[before]), self.bounds.get(after)) {
            (None, _) => 0.0,
            (Some(_), None) => 1.0,
            (Some(low), Some(high)) => ((after - 1) as f64 + (place - low) / (high - low)) / parts,
        }
    }

    /// The share of all rows that have a value of a column of this type; nothing where that is not known.
    pub(super) fn share_of(&self, value: &ScalarValue, of: &DataType) -> Option<f64> {
        let value = value.cast_to(of).ok()?;
        if value.is_null() {
            return Some(0.0);
        }
        let distinct = self.distinct?.alike;
        let hash = *hashes(&value.to_array().ok()?)?.first()?;
        let known = self.common.iter().find(|(common, _)| *common == hash);
        Some(match known {
            Some((_, share)) => *share,
            // All others are taken to be alike, and none of them is as common as those that are known.
            None => {
                let others = distinct - self.common.len() as f64;
                let share = if others < 1.0 { self.unseen } else { self.rest() / others };
                self.common.last().map_or(share, |(_, least)| share.min(*least))
            }
        })
    }

    /// The share of rows that are neither NULL nor common.
    fn rest(&self) -> f64 {
        let common: f64 = self.common.iter().map(|(_, share)| share).sum();
        (1.0 - self.nulls - common).max(0.0)
    }

    /// The share of all pairs of rows of two columns that have the same value: those that are common in both as they are, all
    /// others as if spread evenly. As in `eqjoinsel` of PostgreSQL.
    pub(super) fn share_of_pairs(&self, other: &Self) -> Option<f64> {
        let (distinct, other_distinct) = (self.distinct?.alike, other.distinct?.alike);
        let (mut pairs, mut matched) = (0.0, [0.0, 0.0]);
        let mut matches = 0.0;
        for (hash, share) in &self.common {
            if let Some((_, of_other)) = other.common.iter().find(|(common, _)| common == hash) {
                pairs += share * of_other;
                matched[0] += share;
                matched[1] += of_other;
                matches += 1.0;
            }
        }
        let unmatched = |of: &Self, matched: f64| 1.0 - of.nulls - of.rest() - matched;
        let unmatched = [unmatched(self, matched[0]), unmatched(other, matched[1])];
        let by = |of: [&Self; 2], unmatched: [f64; 2], distinct: f64| {
            let rare = distinct - of[1].common.len() as f64;
            let to_rare = if rare < 1.0 { 0.0 } else { unmatched[0] * of[1].rest() / rare };
            let all = distinct - matches;
            let of_rest = of[0].rest() * (of[1].rest() + unmatched[1]);
            pairs + to_rare + if all < 1.0 { 0.0 } else { of_rest / all }
        };
        let forward = by([self, other], unmatched, other_distinct);
        Some(forward.min(by([other, self], [unmatched[1], unmatched[0]], distinct)))
    }
}

/// A column whose rows are being read.
pub(super) struct Reader {
    rows: u64,
    nulls: u64,
    /// False once a batch had no hashes.
    has_hashes: bool,
    sketch: DistinctSketch,
    /// Counts by hash, of which each is too low by `lost` at most, as are those that are not here.
    counts: HashMap<u64, u64>,
    lost: u64,
    /// Of the places seen, some; which is a matter of chance, but the same in each run.
    sample: Vec<f64>,
    places: u64,
    range: Option<[f64; 2]>,
    random: SmallRng,
    draw: Draw,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            rows: 0,
            nulls: 0,
            has_hashes: true,
            sketch: DistinctSketch::new(REGISTERS),
            counts: HashMap::default(),
            lost: 0,
            sample: Vec::new(),
            places: 0,
            range: None,
            random: SmallRng::seed_from_u64(0),
            draw: Draw::new(),
        }
    }

    /// Looks at some rows.
    pub(super) fn look(&mut self, values: &ArrayRef) {
        self.draw.look(values);
        let nulls = values.logical_nulls();
        let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        self.rows += values.len() as u64;
        self.nulls += nulls.as_ref().map_or(0, |nulls| nulls.null_count()) as u64;
        match hashes(values) {
            Some(hashes) => {
                for row in (0..values.len()).filter(|&row| is_there(row)) {
                    self.sketch.add(hashes[row]);
                    self.count(hashes[row]);
                }
            }
            None => self.has_hashes = false,
        }
        if let Some(places) = axis::places(values) {
            for place in places.as_primitive::<Float64Type>().iter().flatten() {
                self.place(place);
            }
        }
    }

    fn count(&mut self, hash: u64) {
        *self.counts.entry(hash).or_default() += 1;
        if self.counts.len() <= 2 * COUNTED {
            return;
        }
        let mut all: Vec<u64> = self.counts.values().copied().collect();
        let (_, least, _) = all.select_nth_unstable_by(COUNTED, |one, other| other.cmp(one));
        let least = *least;
        self.lost += least;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(least);
            *count > 0
        });
    }

    fn place(&mut self, place: f64) {
        if place.is_nan() {
            return;
        }
        self.range = axis::joined(self.range, Some([place, place]));
        self.places += 1;
        if self.sample.len() < SAMPLE {
            self.sample.push(place);
            return;
        }
        let at = self.random.random_range(0..self.places);
        if let Some(place_of) = usize::try_from(at).ok().and_then(|at| self.sample.get_mut(at)) {
            *place_of = place;
        }
    }

    /// That of all rows of some batches.
    pub(super) fn of_all<'v>(batches: impl IntoIterator<Item = &'v ArrayRef>) -> Profile {
        let mut reader = Self::new();
        batches.into_iter().for_each(|values| reader.look(values));
        reader.profile()
    }

    /// What is kept.
    pub(super) fn profile(self) -> Profile {
        let rows = self.rows.max(1) as f64;
        let values = (self.rows - self.nulls) as f64;
        let distinct = match self.lost {
            0 => self.counts.len() as f64,
            _ => self.sketch.count().clamp(self.counts.len() as f64, values),
        };
        let mut common: Vec<(u64, u64)> = self.counts.into_iter().collect();
        common.sort_unstable_by_key(|&(hash, count)| (std::cmp::Reverse(count), hash));
        if distinct > COMMON as f64 {
            let least = (UNCOMMON * values / distinct.max(1.0)).max(self.lost as f64);
            common.retain(|&(_, count)| count as f64 > least);
        }
        // Between the count and the most that it may be.
        let share = |count: u64| (count as f64 + self.lost as f64 / 2.0) / rows;
        let common = common.into_iter().take(COMMON).map(|(hash, count)| (hash, share(count)));
        Profile {
            nulls: self.nulls as f64 / rows,
            distinct: self.has_hashes.then_some(Count::counted(distinct)),
            common: if self.has_hashes { common.collect() } else { Vec::new() },
            bounds: self.range.map_or_else(Vec::new, |range| bounds(self.sample, range)),
            unseen: 0.0,
            drawn: self.draw.drawn(),
            trials: Trials::default(),
        }
    }
}

/// The least and the greatest value, and between them those that cut a sample into parts.
fn bounds(mut sample: Vec<f64>, [least, greatest]: [f64; 2]) -> Vec<f64> {
    sample.sort_unstable_by(f64::total_cmp);
    let last = sample.len() - 1;
    let cuts = (1..PARTS).map(|part| sample[part * last / PARTS]);
    std::iter::once(least).chain(cuts).chain([greatest]).collect()
}

/// The bounds of values of which some runs are known.
fn bounds_of(runs: &[ArrayRef]) -> Vec<f64> {
    let sample = sorted(runs);
    match (sample.first(), sample.last()) {
        (Some(&least), Some(&greatest)) => bounds(sample, [least, greatest]),
        _ => Vec::new(),
    }
}

/// The places of values in runs, of as many as bounds are made of.
fn sorted(runs: &[ArrayRef]) -> Vec<f64> {
    let rows: usize = runs.iter().map(|run| run.len()).sum();
    let step = rows.div_ceil(SAMPLE).max(1);
    let mut sample = Vec::with_capacity(SAMPLE);
    for places in runs.iter().filter_map(axis::places) {
        let places = places.as_primitive::<Float64Type>().iter().step_by(step).flatten();
        sample.extend(places.filter(|place| !place.is_nan()));
    }
    sample.sort_unstable_by(f64::total_cmp);
    sample
}

/// Whether runs have values from one distribution: the middle one of each is about that of all.
fn are_alike(runs: &[ArrayRef]) -> bool {
    let all = sorted(runs);
    let share = |count: usize| count as f64 / all.len() as f64;
    runs.iter().all(|run| {
        let own = sorted(std::slice::from_ref(run));
        let Some(middle) = own.get(own.len() / 2) else { return false };
        let below = share(all.partition_point(|place| place < middle));
        let up_to = share(all.partition_point(|place| place <= middle));
        below < 0.5 + UNLIKE && up_to > 0.5 - UNLIKE
    })
}

/// Some rows of each run by their ranks among those of all, NULLs aside; nothing of types that have no order.
fn ranks(runs: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
    let texts = runs.iter().map(|run| {
        let rows = run.len().min(RANKED);
        cast(&run.slice(0, rows), &DataType::LargeUtf8).ok()
    });
    let texts = texts.collect::<Option<Vec<_>>>()?;
    let all = concat(&texts.iter().map(AsRef::as_ref).collect::<Vec<_>>()).ok()?;
    let ranks = UInt32Array::new(rank(&all, None).ok()?.into(), all.logical_nulls());
    let mut before = 0;
    let ranks = texts.iter().map(|run| {
        let ranks: ArrayRef = Arc::new(ranks.slice(before, run.len()));
        before += run.len();
        ranks
    });
    Some(ranks.collect())
}

/// The hashes of values, the same for equal ones of types that are compared without a loss.
pub(super) fn hashes(values: &ArrayRef) -> Option<Vec<u64>> {
    let values = match comparable(values.data_type()) {
        of if of == *values.data_type() => ArrayRef::clone(values),
        of => cast(values, &of).ok()?,
    };
    let mut hashes = vec![0; values.len()];
    create_hashes([&values], &RandomState::with_seed(0), &mut hashes).ok()?;
    Some(hashes)
}

/// The type in which values of another are compared.
pub(super) fn comparable(of: &DataType) -> DataType {
    match of {
        DataType::UInt64 => DataType::UInt64,
        of if of.is_integer() => DataType::Int64,
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Dictionary(_, values) => comparable(values),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray};

    use super::*;

    fn profile(columns: &[ArrayRef]) -> Profile {
        Reader::of_all(columns)
    }

    /// Half of the rows are 0, a quarter are 1 and so on, below ten times as many that come once; every tenth is NULL.
    fn skewed(rows: i64) -> ArrayRef {
        let value = |row: i64| match row % 10 {
            0 => None,
            1..=5 => Some(i64::from((row / 10).trailing_ones())),
            _ => Some(1000 + row),
        };
        Arc::new(Int64Array::from_iter((0..rows).map(value)))
    }

    #[test]
    fn common_values_stand_out_of_many_that_come_once() {
        let profile = profile(&[skewed(100_000), skewed(100_000)]);
        assert!((profile.nulls - 0.1).abs() < 1e-9);
        let distinct = profile.distinct.unwrap().all;
        assert!((38_000.0..42_000.0).contains(&distinct), "{distinct}");
        for (value, share) in [(0, 0.25), (1, 0.125), (2, 0.0625), (3, 0.03125)] {
            // In another type than that of the column.
            let found = profile.share_of(&ScalarValue::from(value), &DataType::Int64).unwrap();
            assert!((found - share).abs() < 0.003, "{value}: {found}");
        }
        let rare = profile.share_of(&ScalarValue::from(5006_i64), &DataType::Int64).unwrap();
        assert!(rare < 1e-4, "{rare}");
        let low = profile.within(f64::NEG_INFINITY, 999.0).unwrap();
        assert!((low - 0.5).abs() < 0.02, "{low}");
        let zero = profile.within(0.0, 0.0).unwrap();
        assert!((zero - 0.25).abs() < 0.02, "{zero}");
        assert!(profile.common.len() <= COMMON && profile.bounds.len() == PARTS + 1);
    }

    #[test]
    fn few_values_are_all_known() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "a"]));
        let profile = profile(&[texts]);
        let share = |text: &str| profile.share_of(&ScalarValue::from(text), &DataType::Utf8);
        assert_eq!((profile.distinct, profile.range()), (Some(Count::counted(2.0)), None));
        assert_eq!((share("a"), share("b"), share("c")), (Some(0.75), Some(0.25), Some(0.0)));
        assert_eq!(profile.within(0.0, 1.0), None);
    }

    #[test]
    fn pairs_are_those_of_common_values_and_of_an_even_rest() {
        let small: ArrayRef =
            Arc::new(Int32Array::from_iter_values((0..1000).map(|row| row % 40 * (row % 2))));
        let wide = cast(&small, &DataType::Int64).unwrap();
        let mut counts = std::collections::HashMap::<i32, f64>::new();
        for row in 0..1000 {
            *counts.entry(row % 40 * (row % 2)).or_default() += 1.0;
        }
        let actual: f64 = counts.values().map(|count| count * count / 1e6).sum();
        let share = profile(&[small]).share_of_pairs(&profile(&[wide])).unwrap();
        assert!((0.9..1.1).contains(&(share / actual)), "{share} {actual}");
        // Of keys that differ all, each row meets one.
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5000));
        let share = profile(&[skewed(1000)]).share_of_pairs(&profile(&[keys])).unwrap();
        assert!((0.85..1.0).contains(&(share * 5000.0)), "{share}");
    }

    #[test]
    fn few_runs_say_where_values_lie_only_if_they_are_alike() {
        let runs = |distinct_max: f64, value: fn(i64) -> i64| {
            let runs = (0..4).map(|run| {
                let rows = run * 250_000..run * 250_000 + 2048;
                Arc::new(Int64Array::from_iter_values(rows.map(value))) as ArrayRef
            });
            Profile::of_few_runs(&runs.collect::<Vec<_>>(), 1e6, distinct_max).unwrap()
        };
        assert_eq!(runs(1e6, |row| row).within(0.0, 1000.0), None);
        let share = runs(1e6, |row| row * 7919 % 1000 / 10 * 10).within(0.0, 99.0).unwrap();
        assert!((share - 0.1).abs() < 0.02, "{share}");
        // What is common in one run may be so nowhere else, and what none has may be common elsewhere.
        let share_of = |profile: &Profile, value: i64| {
            profile.share_of(&ScalarValue::from(value), &DataType::Int64).unwrap()
        };
        let sorted = runs(4.0, |row| row / 250_000);
        assert!((share_of(&sorted, 0) - 0.25).abs() < 0.01 && share_of(&sorted, 9) > 0.2);
        let common = runs(1e6, |row| row * 7919 % 10 / 9);
        assert!((share_of(&common, 0) - 0.9).abs() < 0.01 && share_of(&common, 9) > 0.05);
    }

    #[test]
    fn rows_of_few_runs_are_tried_only_if_these_are_alike() {
        let runs = |text: fn(i64) -> Option<String>| {
            let runs = (0..4).map(|run| {
                let rows = run * 250_000..run * 250_000 + 2048;
                Arc::new(rows.map(text).collect::<StringArray>()) as ArrayRef
            });
            Profile::of_few_runs(&runs.collect::<Vec<_>>(), 1e6, 1e6).unwrap().drawn
        };
        assert_eq!(runs(|row| Some(format!("{row:09}"))), None);
        let mixed = runs(|row| Some(format!("{:09}", row * 7919 % 1_000_000)));
        assert_eq!(mixed.map(|drawn| drawn.len()), Some(1024));
        let few = runs(|row| (row % 3 > 0).then(|| ["view", "buy"][row as usize % 2].to_owned()));
        assert_eq!(few.map(|drawn| drawn.len()), Some(1024));
    }

    #[test]
    fn nothing_read_is_nothing_known() {
        let profile = profile(&[]);
        assert_eq!(
            (profile.nulls, profile.distinct, profile.range()),
            (0.0, Some(Count::counted(0.0)), None)
        );
        assert_eq!(profile.share_of(&ScalarValue::from(1_i64), &DataType::Int64), Some(0.0));
    }
}
