//! The reduction of one block of rows, on one thread: slices, columns, stored cells.
//!
//! A sum over a slice runs in eight lanes and is pairwise above [`LANE_CELLS`] cells; a sum down
//! columns is row by row within [`LANE_CELLS`] rows. What is not stored counts as zeros at the end.

use super::{Axis, Reduction};
use crate::exec::kernels::{Real, add_into};
use crate::matrix::{Csr, Dense};

/// Cells that are added one after another before partial sums are combined: error against speed.
const LANE_CELLS: usize = 256;

/// What an accumulator holds, a value for each lane.
#[derive(Debug, Clone)]
pub(super) enum State<T> {
    /// Sums of the cells, or of their powers.
    Sums(Vec<T>),
    /// Smallest, largest, or largest absolute values.
    Extremes(Vec<T>),
    /// Means, and sums of squared distances from them.
    Moments { means: Vec<T>, squares: Vec<T> },
    /// Largest values, and their places within the lane.
    Places { values: Vec<T>, places: Vec<usize> },
}

impl<T: Real> State<T> {
    /// Of no cells.
    pub(super) fn empty(reduction: Reduction, lanes: usize) -> Self {
        let all = |value: T| vec![value; lanes];
        match reduction {
            Reduction::Min => State::Extremes(all(T::INFINITY)),
            Reduction::Max => State::Extremes(all(-T::INFINITY)),
            Reduction::Norm(f64::INFINITY) => State::Extremes(all(T::ZERO)),
            Reduction::Sum | Reduction::Mean | Reduction::Norm(_) => State::Sums(all(T::ZERO)),
            Reduction::Variance | Reduction::Deviation => {
                State::Moments { means: all(T::ZERO), squares: all(T::ZERO) }
            }
            Reduction::ArgMax => {
                State::Places { values: all(-T::INFINITY), places: vec![0; lanes] }
            }
        }
    }

    /// The results, of lanes of `cells` cells each.
    pub(super) fn finish(self, cells: usize, reduction: Reduction) -> Vec<T> {
        let of = |lane: Lane<T>| lane.finish(cells, reduction);
        match self {
            State::Sums(sums) => sums.into_iter().map(|sum| of(Lane::Sum(sum))).collect(),
            State::Extremes(values) => values.into_iter().map(|x| of(Lane::Extreme(x))).collect(),
            State::Moments { means, squares } => {
                means.into_iter().zip(squares).map(|(m, s)| of(Lane::Moments(m, s))).collect()
            }
            State::Places { values, places } => {
                values.into_iter().zip(places).map(|(x, at)| of(Lane::Place(x, at))).collect()
            }
        }
    }

    /// Of a dense block.
    pub(super) fn of_dense(x: &Dense<T>, reduction: Reduction, axis: Axis) -> Self {
        // One lane, or columns of one cell each: the cells are contiguous.
        if axis == Axis::All || x.shape().columns == 1 {
            return Lane::of(x.cells(), reduction).into();
        }
        let (m, n) = (x.shape().rows, x.shape().columns);
        match reduction {
            Reduction::Sum | Reduction::Mean => State::Sums(column_sums(x, |x, _| x)),
            Reduction::Norm(f64::INFINITY) => {
                State::Extremes(column_extremes(x, T::ZERO, T::abs, |a, b| a > b))
            }
            Reduction::Norm(p) => {
                let p = T::from_f64(p);
                State::Sums(column_sums(x, |x, _| power(x, p)))
            }
            Reduction::Min => State::Extremes(column_extremes(x, T::INFINITY, |x| x, |a, b| a < b)),
            Reduction::Max => {
                State::Extremes(column_extremes(x, -T::INFINITY, |x| x, |a, b| a > b))
            }
            Reduction::Variance | Reduction::Deviation => {
                let count = T::from_f64(m as f64);
                let mut means = column_sums(x, |x, _| x);
                means.iter_mut().for_each(|mean| *mean /= count);
                let squares = column_sums(x, |x, j| (x - means[j]) * (x - means[j]));
                State::Moments { means, squares }
            }
            Reduction::ArgMax => {
                let (mut values, mut places) = (vec![-T::INFINITY; n], vec![0; n]);
                for i in 0..m {
                    for (j, &x) in x.row(i).iter().enumerate() {
                        if exceeds(x, values[j]) {
                            (values[j], places[j]) = (x, i);
                        }
                    }
                }
                State::Places { values, places }
            }
        }
    }

    /// Of a sparse block.
    pub(super) fn of_sparse(x: &Csr<T>, reduction: Reduction, axis: Axis) -> Self {
        let (m, n) = (x.shape().rows, x.shape().columns);
        let lanes = if axis == Axis::All { 1 } else { n };
        let lane = |column: u32| if axis == Axis::All { 0 } else { column as usize };
        let cells = if axis == Axis::All { m * n } else { m };
        let each = |visit: &mut dyn FnMut(usize, T)| {
            for i in 0..m {
                let (columns, values) = x.row(i);
                columns.iter().zip(values).for_each(|(&column, &x)| visit(lane(column), x));
            }
        };
        let sums = |of: &dyn Fn(usize, T) -> T| {
            let mut sums = vec![T::ZERO; lanes];
            each(&mut |j, x| sums[j] += of(j, x));
            sums
        };
        let counts = || {
            let mut counts = vec![0; lanes];
            each(&mut |j, _| counts[j] += 1);
            counts
        };
        match (reduction, Self::empty(reduction, lanes)) {
            (Reduction::Norm(p), State::Sums(_)) => {
                let p = T::from_f64(p);
                State::Sums(sums(&|_, x| power(x, p)))
            }
            (_, State::Sums(_)) => State::Sums(sums(&|_, x| x)),
            (_, State::Extremes(mut values)) => {
                let pick = if reduction == Reduction::Min { min } else { max };
                let of = if matches!(reduction, Reduction::Norm(_)) { T::abs } else { |x| x };
                each(&mut |j, x| values[j] = pick(values[j], of(x)));
                for (value, count) in values.iter_mut().zip(counts()) {
                    if count < cells {
                        *value = pick(*value, T::ZERO);
                    }
                }
                State::Extremes(values)
            }
            (_, State::Moments { .. }) => {
                let n = T::from_f64(cells as f64);
                let means: Vec<T> = sums(&|_, x| x).into_iter().map(|sum| sum / n).collect();
                let mut squares = sums(&|j, x| (x - means[j]) * (x - means[j]));
                for (j, count) in counts().into_iter().enumerate() {
                    squares[j] += T::from_f64((cells - count) as f64) * means[j] * means[j];
                }
                State::Moments { means, squares }
            }
            (_, State::Places { mut values, mut places }) => {
                // The first cell of each lane that is not stored, as far as the rows were read.
                let mut gaps = vec![0; lanes];
                for i in 0..m {
                    let (columns, stored) = x.row(i);
                    for (&column, &x) in columns.iter().zip(stored) {
                        let j = lane(column);
                        let place = if axis == Axis::All { i * n + column as usize } else { i };
                        if exceeds(x, values[j]) {
                            (values[j], places[j]) = (x, place);
                        }
                        if gaps[j] == place {
                            gaps[j] += 1;
                        }
                    }
                }
                for j in 0..lanes {
                    if gaps[j] < cells {
                        (values[j], places[j]) = with_gap(values[j], places[j], gaps[j]);
                    }
                }
                State::Places { values, places }
            }
        }
    }
}

/// What one lane holds: a row reduced alone needs no vectors.
#[derive(Clone, Copy)]
enum Lane<T> {
    Sum(T),
    Extreme(T),
    /// Mean, and the sum of squared distances from it.
    Moments(T, T),
    /// Largest value, and its place.
    Place(T, usize),
}

impl<T: Real> Lane<T> {
    /// Of contiguous cells.
    fn of(x: &[T], reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum | Reduction::Mean => Lane::Sum(sum(x, |x| x)),
            Reduction::Norm(1.0) => Lane::Sum(sum(x, T::abs)),
            Reduction::Norm(2.0) => Lane::Sum(sum(x, |x| x * x)),
            Reduction::Norm(f64::INFINITY) => {
                Lane::Extreme(extreme(x, T::ZERO, T::abs, |a, b| a > b))
            }
            Reduction::Norm(p) => {
                let p = T::from_f64(p);
                Lane::Sum(sum(x, |x| power(x, p)))
            }
            Reduction::Min => Lane::Extreme(extreme(x, T::INFINITY, |x| x, |a, b| a < b)),
            Reduction::Max => Lane::Extreme(extreme(x, -T::INFINITY, |x| x, |a, b| a > b)),
            Reduction::Variance | Reduction::Deviation => {
                let (mean, squares) = moments(x, x.len());
                Lane::Moments(mean, squares)
            }
            Reduction::ArgMax => {
                // Two passes, the first without a branch.
                let value = extreme(x, -T::INFINITY, |x| x, |a, b| a > b);
                let is_it = |&x: &T| x == value || (x.is_nan() && value.is_nan());
                Lane::Place(value, x.iter().position(is_it).unwrap_or(0))
            }
        }
    }

    fn finish(self, cells: usize, reduction: Reduction) -> T {
        match (reduction, self) {
            (Reduction::Mean, Lane::Sum(sum)) => sum / T::from_f64(cells as f64),
            (Reduction::Norm(p), Lane::Sum(sum)) => root(sum, p),
            (_, Lane::Sum(sum)) => sum,
            (Reduction::Norm(_), Lane::Extreme(value)) => value,
            (_, Lane::Moments(_, squares)) => spread(squares, cells, reduction),
            (_, Lane::Extreme(_) | Lane::Place(..)) if cells == 0 => T::NAN,
            (_, Lane::Extreme(value)) => value,
            (_, Lane::Place(_, place)) => T::from_f64(place as f64),
        }
    }
}

impl<T> From<Lane<T>> for State<T> {
    fn from(lane: Lane<T>) -> Self {
        match lane {
            Lane::Sum(sum) => State::Sums(vec![sum]),
            Lane::Extreme(value) => State::Extremes(vec![value]),
            Lane::Moments(mean, squares) => {
                State::Moments { means: vec![mean], squares: vec![squares] }
            }
            Lane::Place(value, place) => State::Places { values: vec![value], places: vec![place] },
        }
    }
}

/// Reduces contiguous cells.
pub(super) fn of_cells<T: Real>(x: &[T], reduction: Reduction) -> T {
    Lane::of(x, reduction).finish(x.len(), reduction)
}

/// Reduces a row of which only some cells are stored.
pub(super) fn of_stored<T: Real>(
    columns: &[u32],
    x: &[T],
    cells: usize,
    reduction: Reduction,
) -> T {
    let zeros = cells - x.len();
    let lane = match (reduction, Lane::of(x, reduction)) {
        (_, Lane::Moments(..)) => {
            let (mean, squares) = moments(x, cells);
            Lane::Moments(mean, squares + T::from_f64(zeros as f64) * mean * mean)
        }
        (Reduction::Min, Lane::Extreme(value)) if zeros > 0 => Lane::Extreme(min(value, T::ZERO)),
        (_, Lane::Extreme(value)) if zeros > 0 => Lane::Extreme(max(value, T::ZERO)),
        (_, Lane::Place(value, at)) => {
            let gap = (0..x.len()).find(|&i| columns[i] as usize != i).unwrap_or(x.len());
            let place = columns.get(at).map_or(0, |&column| column as usize);
            let (value, place) =
                if zeros > 0 { with_gap(value, place, gap) } else { (value, place) };
            Lane::Place(value, place)
        }
        (_, lane) => lane,
    };
    lane.finish(cells, reduction)
}

/// The smaller; `NaN` where one is.
pub(super) fn min<T: Real>(a: T, b: T) -> T {
    if (b < a) | b.is_nan() { b } else { a }
}

/// The larger; `NaN` where one is.
pub(super) fn max<T: Real>(a: T, b: T) -> T {
    if (b > a) | b.is_nan() { b } else { a }
}

/// Whether `a` replaces `b` as the largest so far: a `NaN` does unless there is one already.
pub(super) fn exceeds<T: Real>(a: T, b: T) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

/// The largest cell and its place, given those of the stored cells and the first that is not stored.
fn with_gap<T: Real>(value: T, place: usize, gap: usize) -> (T, usize) {
    if exceeds(T::ZERO, value) || (value == T::ZERO && gap < place) {
        (T::ZERO, gap)
    } else {
        (value, place)
    }
}

/// One term of the sum under a norm.
fn power<T: Real>(x: T, p: T) -> T {
    if p == T::ONE {
        x.abs()
    } else if p == T::ONE + T::ONE {
        x * x
    } else {
        x.abs().powf(p)
    }
}

/// The norm of which this is the sum.
fn root<T: Real>(sum: T, p: f64) -> T {
    match p {
        1.0 => sum,
        2.0 => sum.sqrt(),
        _ => sum.powf(T::from_f64(1.0 / p)),
    }
}

/// The variance or deviation of which this is the sum of squares.
fn spread<T: Real>(squares: T, cells: usize, reduction: Reduction) -> T {
    let variance = match cells {
        0 | 1 => T::NAN,
        _ => squares / T::from_f64((cells - 1) as f64),
    };
    if reduction == Reduction::Deviation { variance.sqrt() } else { variance }
}

/// Sums down the columns of `of(cell, column)`.
fn column_sums<T: Real>(x: &Dense<T>, of: impl Fn(T, usize) -> T) -> Vec<T> {
    let n = x.shape().columns;
    let (mut sums, mut part) = (vec![T::ZERO; n], vec![T::ZERO; n]);
    for rows in x.cells().chunks(LANE_CELLS * n.max(1)) {
        part.fill(T::ZERO);
        for row in rows.chunks_exact(n) {
            for (j, (part, &x)) in part.iter_mut().zip(row).enumerate() {
                *part += of(x, j);
            }
        }
        add_into(&mut sums, &part);
    }
    sums
}

/// The extreme `of(cell)` of each column, where `beats` compares two.
///
/// `x · 0` is zero but for infinities and `NaN`; where it never was anything else, no cell is `NaN`,
/// and the loop that looks for them, which is slower, can be spared. So too in [`extreme`].
fn column_extremes<T: Real>(
    x: &Dense<T>,
    start: T,
    of: impl Fn(T) -> T,
    beats: impl Fn(T, T) -> bool,
) -> Vec<T> {
    let (m, n) = (x.shape().rows, x.shape().columns);
    let (mut values, mut poison) = (vec![start; n], vec![T::ZERO; n]);
    for i in 0..m {
        for ((value, poison), &x) in values.iter_mut().zip(&mut poison).zip(x.row(i)) {
            let x = of(x);
            *value = if beats(x, *value) { x } else { *value };
            *poison += x * T::ZERO;
        }
    }
    if poison.iter().any(|&poison| poison != T::ZERO) {
        values.fill(start);
        for i in 0..m {
            for (value, &x) in values.iter_mut().zip(x.row(i)) {
                let x = of(x);
                *value = if beats(x, *value) | x.is_nan() { x } else { *value };
            }
        }
    }
    values
}

/// Pairwise sum of `of(cell)`, in eight lanes.
fn sum<T: Real>(x: &[T], of: impl Fn(T) -> T + Copy) -> T {
    if x.len() > LANE_CELLS {
        let (left, right) = x.split_at((x.len() / 2).next_multiple_of(8));
        return sum(left, of) + sum(right, of);
    }
    let mut lanes = [T::ZERO; 8];
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += of(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += of(x);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// The mean of `cells` cells of which `x` are not zero, and the squared distances of `x` from it.
fn moments<T: Real>(x: &[T], cells: usize) -> (T, T) {
    if cells == 0 {
        return (T::ZERO, T::ZERO);
    }
    let mean = sum(x, |x| x) / T::from_f64(cells as f64);
    (mean, sum(x, |x| (x - mean) * (x - mean)))
}

/// The extreme `of(cell)` of contiguous cells.
fn extreme<T: Real>(x: &[T], start: T, of: impl Fn(T) -> T, beats: impl Fn(T, T) -> bool) -> T {
    let (mut lanes, mut poison) = ([start; 8], [T::ZERO; 8]);
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..8 {
            let x = of(chunk[i]);
            lanes[i] = if beats(x, lanes[i]) { x } else { lanes[i] };
            poison[i] += x * T::ZERO;
        }
    }
    let pick = |m: T, x: T| if beats(x, m) | x.is_nan() { x } else { m };
    if poison.iter().all(|&poison| poison == T::ZERO) {
        let of_lanes = lanes.into_iter().fold(start, pick);
        rest.iter().fold(of_lanes, |m, &x| pick(m, of(x)))
    } else {
        x.iter().fold(start, |m, &x| pick(m, of(x)))
    }
}
