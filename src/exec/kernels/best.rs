//! The largest or smallest few of many cells.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;

use crate::matrix::Scalar;

/// Which cells to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Best {
    /// How many, at most.
    pub count: usize,
    /// The largest, else the smallest.
    pub largest: bool,
}

/// A cell that is kept, the worst of them at the top of a heap.
struct Kept {
    /// Larger is better.
    rank: f64,
    place: usize,
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.total_cmp(&self.rank).then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}

/// As EXPLAIN says it: `the 10 largest in each row of`.
impl fmt::Display for Best {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.largest { "largest" } else { "smallest" };
        write!(f, "the {} {which} in each row of", self.count)
    }
}

impl Best {
    /// The places of the best cells, ascending; of equal ones the first.
    ///
    /// Cells are in SQL's order: `NaN`, whatever its sign, above infinity, and -0 below 0.
    pub fn places<T: Scalar>(self, cells: &[T]) -> Vec<usize> {
        if cells.len() <= self.count {
            return (0..cells.len()).collect();
        }
        let rank = |cell: T| {
            let cell = cell.to_f64();
            let above = if cell.is_nan() { f64::NAN } else { cell };
            if self.largest { above } else { -above }
        };
        let mut kept: BinaryHeap<Kept> = BinaryHeap::with_capacity(self.count + 1);
        for (place, &cell) in cells.iter().enumerate() {
            let rank = rank(cell);
            if kept.len() == self.count {
                let Some(worst) = kept.peek() else { break };
                if rank.total_cmp(&worst.rank) != Ordering::Greater {
                    continue;
                }
                kept.pop();
            }
            kept.push(Kept { rank, place });
        }
        let mut places: Vec<usize> = kept.into_iter().map(|kept| kept.place).collect();
        places.sort_unstable();
        places
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::super::testing::rng;
    use super::*;

    /// A whole sort, the best first and of equals the first.
    fn sorted(cells: &[f64], best: Best) -> Vec<usize> {
        let mut places: Vec<usize> = (0..cells.len()).collect();
        let one_nan = |place: usize| if cells[place].is_nan() { f64::NAN } else { cells[place] };
        places.sort_by(|&a, &b| {
            let order = one_nan(a).total_cmp(&one_nan(b));
            if best.largest { order.reverse() } else { order }
        });
        places.truncate(best.count);
        places.sort_unstable();
        places
    }

    #[test]
    fn the_best_few_are_those_of_a_whole_sort() {
        let mut rng = rng(11);
        for length in [0, 1, 5, 100, 1000] {
            let mut cells: Vec<f64> =
                (0..length).map(|_| f64::from(rng.random_range(-20..20))).collect();
            if length == 100 {
                cells[3] = f64::NAN;
                cells[50] = f64::INFINITY;
                cells[70] = -f64::NAN;
                cells[71] = -0.0;
            }
            for count in [0, 1, 7, 99, 100, 2000] {
                for largest in [true, false] {
                    let best = Best { count, largest };
                    assert_eq!(best.places(&cells), sorted(&cells, best), "{best:?} of {length}");
                }
            }
        }
    }
}
