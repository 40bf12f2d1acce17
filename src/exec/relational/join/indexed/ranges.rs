//! The rows of a build side in the order of a key, and which of them lie between two ends.
//!
//! ```text
//! places of the first key   1  4  4  7  9 12 15     in order: an end is found by halving
//! places of the second      8  3  9  2  6  6  1     of the same rows
//! the largest of 16         9 ...                   and of 16 of those: what is too small is passed over by whole blocks
//! ```
//!
//! Of `n` rows, `k` of which meet one of the probe side, at most `log n` and `k log n` are looked at.
//! Source: the priority search tree of McCreight, SIAM Journal on Computing 14 (1985), kept as a heap of maxima over an array.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExprRef;

use super::evaluated;
use crate::exec::kernels::radix;
use crate::exec::relational::join::bands::{Band, Bands, End};
use crate::exec::relational::join::deal::valid_keys;
use crate::exec::relational::places::places;

/// Places of which the largest is known.
const BLOCK: usize = 16;

/// Bytes of what is made for a row of the build side at most: two places and a number; and, while they are sorted, twice a
/// place with a number.
pub(super) const ROW_BYTES: usize = 20 + 32;

/// The rows of a build side in the order of a key.
#[derive(Debug)]
pub(in crate::exec::relational::join) struct Ranges {
    bands: Bands,
    /// Those of the first key, in order, and whose they are.
    places: Vec<u64>,
    rows: Vec<u32>,
    /// Those of the second key.
    seconds: Option<Peaks>,
}

/// Places, and the largest of each 16 of them, of each 16 of those, and so on.
#[derive(Debug)]
struct Peaks(Vec<Vec<u64>>);

/// Where the rows lie that those of a batch of the probe side may meet.
#[derive(Debug)]
pub(super) struct Spans {
    ends: Vec<[u32; 2]>,
    /// What the second key must reach.
    seconds: Vec<u64>,
}

impl Ranges {
    /// # Errors
    /// Where a key cannot be computed.
    pub(super) fn new(bands: &Bands, build: &RecordBatch) -> Result<Self> {
        let bands = bands.clone();
        let keys: Vec<PhysicalExprRef> = bands.all().map(|band| Arc::clone(&band.key)).collect();
        let keys = match build.num_rows() {
            // Nothing is computed that nobody asks for.
            0 => Vec::new(),
            _ => evaluated(&keys, build)?,
        };
        let valid = valid_keys(&keys);
        let mut seconds = Vec::new();
        let mut order: Vec<(u64, u32)> = Vec::new();
        if let Some(first) = keys.first() {
            let rows = compared(first, SortOptions::default())?.into_iter().zip(0..);
            order.extend(rows.filter(|&(_, row)| {
                valid.as_ref().is_none_or(|valid| valid.is_valid(row as usize))
            }));
            radix::sort(&mut order, |&(place, _)| place);
        }
        let second = bands.second.as_ref();
        if let (Some(second), Some(key)) = (second, keys.get(1)) {
            let of_rows = second.heights(key)?;
            seconds.extend(order.iter().map(|&(_, row)| of_rows[row as usize]));
        }
        let seconds = second.map(|_| Peaks::new(seconds));
        let (places, rows) = order.into_iter().unzip();
        Ok(Self { bands, places, rows, seconds })
    }

    /// Whether no row of the build side can be met.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Where the rows lie that these of the probe side may meet.
    ///
    /// # Errors
    /// Where an end cannot be computed.
    pub(super) fn spans(&self, probe: &RecordBatch) -> Result<Spans> {
        let rows = probe.num_rows();
        if self.is_empty() {
            return Ok(Spans { ends: vec![[0; 2]; rows], seconds: Vec::new() });
        }
        let mut ends = vec![[0, self.rows.len() as u32]; rows];
        if let Some(least) = &self.bands.first.least {
            let values = value(least, probe)?;
            let is_below = |place: u64, end: u64| place < end || (place == end && !least.is_met);
            for (ends, end) in ends.iter_mut().zip(compared(&values, SortOptions::default())?) {
                ends[0] = self.places.partition_point(|&place| is_below(place, end)) as u32;
            }
            leave_nulls(&values, &mut ends);
        }
        if let Some(most) = &self.bands.first.most {
            let values = value(most, probe)?;
            let is_within = |place: u64, end: u64| place < end || (place == end && most.is_met);
            for (ends, end) in ends.iter_mut().zip(compared(&values, SortOptions::default())?) {
                ends[1] = self.places.partition_point(|&place| is_within(place, end)) as u32;
            }
            leave_nulls(&values, &mut ends);
        }
        let mut seconds = Vec::new();
        if let Some(second) = &self.bands.second
            && let Some(end) = second.least.as_ref().or(second.most.as_ref())
        {
            let values = value(end, probe)?;
            seconds = second.heights(&values)?;
            for (height, ends) in seconds.iter_mut().zip(&mut ends) {
                match height.checked_add(u64::from(!end.is_met)) {
                    Some(reached) => *height = reached,
                    None => *ends = [0; 2],
                }
            }
            leave_nulls(&values, &mut ends);
        }
        Ok(Spans { ends, seconds })
    }

    /// The first place from this one on whose row meets a row of the probe side.
    #[inline]
    pub(super) fn next(&self, spans: &Spans, row: usize, from: Option<usize>) -> Option<usize> {
        let [start, end] = spans.ends[row].map(|end| end as usize);
        let from = from.unwrap_or(start);
        match &self.seconds {
            Some(peaks) if from < end => peaks.next(from, end, spans.seconds[row]),
            _ => (from < end).then_some(from),
        }
    }

    /// The row at a place.
    #[inline]
    pub(super) fn row(&self, place: usize) -> u32 {
        self.rows[place]
    }

    /// All places that rows of the probe side meet, each once, where no second key tells them apart.
    pub(super) fn covered(&self, spans: &Spans) -> Option<Vec<[u32; 2]>> {
        if self.seconds.is_some() {
            return None;
        }
        let mut ends: Vec<_> = spans.ends.iter().copied().filter(|[from, to]| from < to).collect();
        ends.sort_unstable();
        let mut covered: Vec<[u32; 2]> = Vec::new();
        for [from, to] in ends {
            match covered.last_mut() {
                Some(last) if from <= last[1] => last[1] = last[1].max(to),
                _ => covered.push([from, to]),
            }
        }
        Some(covered)
    }
}

impl Spans {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

impl Band {
    /// Places of keys, and of what is compared with them, in an order in which those that meet come last. Of a key with one end.
    fn heights(&self, values: &ArrayRef) -> Result<Vec<u64>> {
        let options = SortOptions { descending: self.least.is_none(), ..SortOptions::default() };
        compared(values, options)
    }
}

impl Peaks {
    fn new(places: Vec<u64>) -> Self {
        let mut levels = vec![places];
        while let Some(last) = levels.last().filter(|last| last.len() > BLOCK) {
            let peaks = last.chunks(BLOCK).map(|block| block.iter().copied().fold(0, u64::max));
            let peaks = peaks.collect();
            levels.push(peaks);
        }
        Self(levels)
    }

    /// The first of the places from one on, and before another, that reaches a height.
    fn next(&self, from: usize, end: usize, height: u64) -> Option<usize> {
        let (mut level, mut at) = (0, from);
        loop {
            // To the end of the block: a peak above stands for all of the next one.
            let places = &self.0[level];
            let stop = ((at / BLOCK + 1) * BLOCK).min(places.len());
            match places[at..stop].iter().position(|&peak| peak >= height) {
                Some(ahead) if level == 0 => return (at + ahead < end).then_some(at + ahead),
                Some(ahead) => (level, at) = (level - 1, (at + ahead) * BLOCK),
                None if stop == places.len() => return None,
                None if stop.checked_mul(BLOCK.pow(level as u32)).is_none_or(|at| at >= end) => {
                    return None;
                }
                None => (level, at) = (level + 1, stop / BLOCK),
            }
        }
    }
}

/// Places as comparisons see them, to which zeros of both signs are equal.
fn compared(values: &ArrayRef, options: SortOptions) -> Result<Vec<u64>> {
    let of_one_sign: ArrayRef = match values.data_type() {
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(|it| it + 0.0))
        }
        DataType::Float64 => {
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(|it| it + 0.0))
        }
        _ => Arc::clone(values),
    };
    places(&of_one_sign, options)
}

/// What a key is compared with.
fn value(end: &End, probe: &RecordBatch) -> Result<ArrayRef> {
    end.of.evaluate(probe)?.into_array(probe.num_rows())
}

/// A row that is compared with NULL meets nobody.
fn leave_nulls(values: &ArrayRef, ends: &mut [[u32; 2]]) {
    if let Some(valid) = valid_keys(std::slice::from_ref(values)) {
        let nulls = ends.iter_mut().zip(&valid).filter(|(_, is_valid)| !is_valid);
        nulls.for_each(|(ends, _)| *ends = [0; 2]);
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::exec::kernels::testing::rng;

    #[test]
    fn the_next_place_that_reaches_a_height_is_the_one_that_a_walk_finds() {
        let rng = &mut rng(7);
        for count in [0, 1, 15, 16, 17, 256, 257, 4096, 5000] {
            let places: Vec<u64> = (0..count).map(|_| rng.random_range(0..1 << 12)).collect();
            let peaks = Peaks::new(places.clone());
            for _ in 0..400 {
                let from = rng.random_range(0..=count);
                let end = rng.random_range(from..=count);
                // From heights that all reach to those that none does.
                let bits = rng.random_range(0..13);
                let height = (1 << 12) - rng.random_range(0..1 << bits);
                let walked = (from..end).find(|&at| places[at] >= height);
                let found = if from < end { peaks.next(from, end, height) } else { None };
                assert_eq!(found, walked, "{count}, {from}..{end}, {height}");
            }
        }
    }
}
