//! Short rows put in order by their columns, eight at a time: one row in each lane of a vector register.
//!
//! A cell's column and its place among the cells pushed are one number, and a sorting network compares those
//! of all lanes at once, so that nothing is guessed by a branch. Cells of one column keep their order
//! (Batcher's merge exchange: Knuth, *The Art of Computer Programming*, vol. 3, 2nd ed., §5.2.2, Algorithm M).
//!
//! ```text
//! place   lane 0    lane 1   …       place   lane 0    lane 1   …
//!   0     (7, 0)    (2, 0)             0     (1, 2)    (2, 0)
//!   1     (9, 1)    (5, 1)      ──►    1     (7, 0)    (5, 1)
//!   2     (1, 2)      ·                2     (9, 1)      ·
//! ```

use pulp::{Simd, WithSimd};

use super::super::arch::Arch;

/// Rows that are sorted at once.
pub(super) const LANES: usize = 8;
/// Bits of a cell's place in its row.
const PLACE_BITS: u32 = 8;
/// Cells of the longest row: beyond, a network compares more often than sorting does.
pub(super) const CELLS_MAX: usize = 1 << PLACE_BITS;
/// The number of a cell that is not there.
const NONE: u32 = u32::MAX;

/// Cells of [`LANES`] rows.
pub(super) struct Lanes<T> {
    keys: Vec<[u32; LANES]>,
    values: Vec<[T; CELLS_MAX]>,
    lengths: [usize; LANES],
}

impl<T: Copy + Default> Lanes<T> {
    /// Without cells.
    pub(super) fn new() -> Self {
        let (keys, values) =
            (vec![[NONE; LANES]; CELLS_MAX], vec![[T::default(); CELLS_MAX]; LANES]);
        Self { keys, values, lengths: [0; LANES] }
    }

    /// Whether a column and a place fit one number.
    pub(super) fn hold(columns: usize) -> bool {
        columns <= 1 << (u32::BITS - PLACE_BITS)
    }

    /// Adds cells behind those of a lane.
    ///
    /// # Panics
    /// Where there are more than [`CELLS_MAX`].
    #[inline(always)]
    pub(super) fn extend(&mut self, lane: usize, cells: impl ExactSizeIterator<Item = (u32, T)>) {
        let start = self.lengths[lane];
        let end = start + cells.len();
        let (keys, values) = (&mut self.keys[start..end], &mut self.values[lane][start..end]);
        for ((at, (column, cell)), (key, value)) in
            (start as u32..).zip(cells).zip(keys.iter_mut().zip(values))
        {
            key[lane] = column << PLACE_BITS | at;
            *value = cell;
        }
        self.lengths[lane] = end;
    }

    /// Puts the cells of every lane in order.
    pub(super) fn sort(&mut self) {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        for (lane, &length) in self.lengths.iter().enumerate() {
            self.keys[length..longest].iter_mut().for_each(|key| key[lane] = NONE);
        }
        Arch::new().dispatch(Network(&mut self.keys[..longest]));
    }

    /// The cells of a lane, sorted by column and then as they were added; it holds none afterwards.
    #[inline(always)]
    pub(super) fn take(&mut self, lane: usize) -> impl Iterator<Item = (u32, T)> + '_ {
        let values = &self.values[lane];
        let keys = &self.keys[..std::mem::take(&mut self.lengths[lane])];
        keys.iter()
            .map(move |key| (key[lane] >> PLACE_BITS, values[key[lane] as usize % CELLS_MAX]))
    }
}

/// Sorts each lane.
struct Network<'a>(&'a mut [[u32; LANES]]);

impl WithSimd for Network<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let keys = self.0;
        let top = keys.len().next_power_of_two() / 2;
        let mut p = top;
        while p > 0 {
            let (mut q, mut r, mut d) = (top, 0, p);
            loop {
                // Every i below n - d with i & p = r, in runs of p.
                let mut i = r;
                while i + d < keys.len() {
                    exchange(keys, i, d, p.min(keys.len() - d - i));
                    i += 2 * p;
                }
                if q == p {
                    break;
                }
                (d, q, r) = (q - p, q / 2, p);
            }
            p /= 2;
        }
    }
}

/// Puts the smaller of each pair `d` apart first, for `count` pairs from `i` on.
#[inline(always)]
fn exchange(keys: &mut [[u32; LANES]], i: usize, d: usize, count: usize) {
    let (left, right) = keys.split_at_mut(i + d);
    for (x, y) in left[i..i + count].iter_mut().zip(&mut right[..count]) {
        for lane in 0..LANES {
            (x[lane], y[lane]) = (x[lane].min(y[lane]), x[lane].max(y[lane]));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::super::super::testing::rng;
    use super::*;

    #[test]
    fn lanes_are_sorted_by_column_and_keep_their_order() {
        let mut rng = rng(1);
        let mut lanes = Lanes::<f64>::new();
        for longest in (0..70).chain([127, 128, 129, 200, 255, CELLS_MAX]) {
            let rows: Vec<Vec<(u32, f64)>> = (0..LANES)
                .map(|lane| {
                    let length = if lane == 3 { longest } else { rng.random_range(0..=longest) };
                    let column = |at: usize| (rng.random_range(0..1u32 << 24) >> (at % 3 * 9), at);
                    (0..length).map(column).map(|(column, at)| (column, at as f64)).collect()
                })
                .collect();
            for (lane, row) in rows.iter().enumerate() {
                let middle = row.len() / 2;
                lanes.extend(lane, row[..middle].iter().copied());
                lanes.extend(lane, row[middle..].iter().copied());
            }
            lanes.sort();
            for (lane, mut row) in rows.into_iter().enumerate() {
                row.sort_by_key(|cell| cell.0);
                assert_eq!(lanes.take(lane).collect::<Vec<_>>(), row, "longest {longest}");
                assert_eq!(lanes.take(lane).count(), 0);
            }
        }
    }
}
