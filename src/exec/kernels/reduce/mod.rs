//! Reductions of all cells, of each row, of each column; dense and sparse.
//!
//! A row is reduced where it lies. All cells and columns need every row: an [`Accumulator`] takes
//! blocks of rows, and accumulators merge in the order of their blocks. A whole matrix is cut into
//! blocks by its shape alone and merged by halves; a sum within a block is pairwise above 256 cells.
//!
//! ```text
//! variance   mean and squares of a block in two passes, merged by Chan, Golub and LeVeque:
//!            δ = mean₂ - mean₁,  mean = mean₁ + δ·n₂/n,  squares = squares₁ + squares₂ + δ²·n₁·n₂/n
//! ```

mod block;

use block::{State, exceeds, max, min, of_cells, of_stored};

use super::{Real, add_into, dense, fold_blocks};
use crate::matrix::{CellBuffer, Dense, Shape, Storage};

/// What a reduction computes of its cells.
///
/// Of no cells, a sum and a norm are 0, all else is `NaN`. A `NaN` among the cells is the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Smallest cell.
    Min,
    /// Largest cell.
    Max,
    /// Sample variance, over n - 1 as SQL's `VAR_SAMP`; `NaN` of one cell.
    Variance,
    /// Square root of the sample variance, as SQL's `STDDEV_SAMP`.
    Deviation,
    /// The norm of the cells as one vector, `(Σ|x|ᵖ)^(1/p)` for p above 0; the largest |x| for infinity.
    Norm(f64),
    /// Place of the first largest cell, counted from 0, within its row or column (of all cells: in
    /// row-major order); the first `NaN` where there is one.
    ArgMax,
}

/// Which cells are reduced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// All of them: 1×1.
    All,
    /// Those of each row: m×1.
    Rows,
    /// Those of each column: 1×n.
    Columns,
}

/// Reduces a whole matrix, in parallel.
pub fn reduce<T: Real>(x: &Storage<T>, reduction: Reduction, axis: Axis) -> Dense<T> {
    let shape = x.shape();
    match (x, axis) {
        (_, Axis::Rows) => {
            let mut cells = CellBuffer::zeroed(shape.rows);
            fill_rows(x, reduction, &mut cells);
            dense(Shape::new(shape.rows, 1), cells)
        }
        // As one column, so that a wide matrix is cut into blocks like a tall one.
        (Storage::Dense(x), Axis::All) if shape.columns != 1 && shape.cells() > 0 => {
            let column = Dense::new(Shape::new(shape.cells(), 1), x.buffer().clone());
            reduce(&Storage::Dense(column), reduction, Axis::All)
        }
        _ => {
            let grain = block_rows(x, axis);
            let block = |rows| {
                let mut accumulator = Accumulator::new(reduction, axis, shape.columns);
                accumulator.push(&x.rows(rows));
                accumulator
            };
            fold_blocks(shape.rows, grain, &block, &Accumulator::merge)
                .unwrap_or_else(|| Accumulator::new(reduction, axis, shape.columns))
                .finish()
        }
    }
}

/// Rows of a block: enough stored cells to be worth a task and lanes of its own.
fn block_rows<T: Real>(x: &Storage<T>, axis: Axis) -> usize {
    let shape = x.shape();
    let lanes = if axis == Axis::All { 1 } else { shape.columns };
    let per_row = (x.stored() / shape.rows.max(1)).max(1);
    ((1 << 16).max(4 * lanes) / per_row).max(256)
}

/// Reduces each row of a block into one cell of `out`, on the calling thread.
///
/// # Panics
/// Unless `out` has a cell for each row.
pub fn reduce_rows_into<T: Real>(x: &Storage<T>, reduction: Reduction, out: &mut [T]) {
    assert_eq!(out.len(), x.shape().rows, "a cell for each row");
    match x {
        Storage::Dense(x) => {
            for (i, out) in out.iter_mut().enumerate() {
                *out = of_cells(x.row(i), reduction);
            }
        }
        Storage::Csr(x) => {
            for (i, out) in out.iter_mut().enumerate() {
                let (columns, values) = x.row(i);
                *out = of_stored(columns, values, x.shape().columns, reduction);
            }
        }
    }
}

/// Halves the rows until a part is worth a task; each row is reduced alone, so the cut is free.
fn fill_rows<T: Real>(x: &Storage<T>, reduction: Reduction, out: &mut [T]) {
    if x.stored() + out.len() <= 1 << 16 || out.len() < 2 {
        return reduce_rows_into(x, reduction, out);
    }
    let middle = out.len() / 2;
    let (top, bottom) = out.split_at_mut(middle);
    rayon::join(
        || fill_rows(&x.rows(0..middle), reduction, top),
        || fill_rows(&x.rows(middle..x.shape().rows), reduction, bottom),
    );
}

/// A reduction over all cells or over columns that takes the rows block by block.
///
/// Holds one lane for all cells, or one for each column.
#[derive(Debug, Clone)]
pub struct Accumulator<T> {
    reduction: Reduction,
    axis: Axis,
    columns: usize,
    rows: usize,
    state: State<T>,
}

impl<T: Real> Accumulator<T> {
    /// An empty accumulator for matrices of `columns` columns.
    ///
    /// # Panics
    /// For [`Axis::Rows`], which [`reduce_rows_into`] reduces row by row, and for a norm whose p is
    /// not above 0.
    pub fn new(reduction: Reduction, axis: Axis, columns: usize) -> Self {
        assert!(axis != Axis::Rows, "rows are reduced one by one");
        assert!(!matches!(reduction, Reduction::Norm(p) if p.is_nan() || p <= 0.0), "p is above 0");
        let lanes = if axis == Axis::All { 1 } else { columns };
        Self { reduction, axis, columns, rows: 0, state: State::empty(reduction, lanes) }
    }

    /// Takes the next rows, on the calling thread.
    ///
    /// # Panics
    /// Unless they have as many columns as this was made for.
    pub fn push(&mut self, block: &Storage<T>) {
        assert_eq!(block.shape().columns, self.columns, "blocks of one matrix are equally wide");
        let part = match block {
            Storage::Dense(block) => State::of_dense(block, self.reduction, self.axis),
            Storage::Csr(block) => State::of_sparse(block, self.reduction, self.axis),
        };
        self.absorb(block.shape().rows, part);
    }

    /// The two parts as one: `next` holds the rows that follow.
    ///
    /// # Panics
    /// Where the two do not reduce the same.
    pub fn merge(mut self, next: Self) -> Self {
        assert!(
            (self.reduction, self.axis, self.columns) == (next.reduction, next.axis, next.columns),
            "parts of one reduction"
        );
        self.absorb(next.rows, next.state);
        self
    }

    fn absorb(&mut self, rows: usize, part: State<T>) {
        if self.rows == 0 || rows == 0 {
            if rows > 0 {
                (self.rows, self.state) = (rows, part);
            }
            return;
        }
        let before = self.cells_per_lane(self.rows);
        let after = self.cells_per_lane(rows);
        self.rows += rows;
        match (&mut self.state, part) {
            (State::Sums(sums), State::Sums(parts)) => add_into(sums, &parts),
            (State::Extremes(values), State::Extremes(parts)) => {
                let pick = if self.reduction == Reduction::Min { min } else { max };
                for (value, part) in values.iter_mut().zip(parts) {
                    *value = pick(*value, part);
                }
            }
            (State::Moments { means, squares }, State::Moments { means: m, squares: s }) => {
                let share = T::from_f64(after as f64 / (before + after) as f64);
                let weight = T::from_f64(before as f64) * share;
                for j in 0..means.len() {
                    let distance = m[j] - means[j];
                    means[j] += distance * share;
                    squares[j] += s[j] + distance * distance * weight;
                }
            }
            (State::Places { values, places }, State::Places { values: v, places: p }) => {
                for j in 0..values.len() {
                    if exceeds(v[j], values[j]) {
                        (values[j], places[j]) = (v[j], before + p[j]);
                    }
                }
            }
            _ => unreachable!("parts of one reduction are of one kind"),
        }
    }

    /// The result: 1×1 for all cells, 1×n for columns.
    pub fn finish(self) -> Dense<T> {
        let cells = self.cells_per_lane(self.rows);
        let values = self.state.finish(cells, self.reduction);
        dense(Shape::new(1, values.len()), values)
    }

    fn cells_per_lane(&self, rows: usize) -> usize {
        if self.axis == Axis::All { rows * self.columns } else { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sparse;
    use super::super::testing::*;
    use super::*;

    const ALL: [Reduction; 12] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Min,
        Reduction::Max,
        Reduction::Variance,
        Reduction::Deviation,
        Reduction::Norm(1.0),
        Reduction::Norm(2.0),
        Reduction::Norm(3.5),
        Reduction::Norm(0.5),
        Reduction::Norm(f64::INFINITY),
        Reduction::ArgMax,
    ];

    /// By the definition, in `f64`.
    fn naive(cells: &[f64], reduction: Reduction) -> f64 {
        let n = cells.len() as f64;
        let sum: f64 = cells.iter().sum();
        let squares: f64 = cells.iter().map(|x| (x - sum / n).powi(2)).sum();
        let poisoned = cells.iter().any(|x| x.is_nan());
        let fold = |pick: fn(f64, f64) -> f64| cells.iter().copied().reduce(pick);
        let or_nan = |value: Option<f64>| value.filter(|_| !poisoned).unwrap_or(f64::NAN);
        match reduction {
            Reduction::Sum => sum,
            Reduction::Mean => sum / n,
            Reduction::Min => or_nan(fold(f64::min)),
            Reduction::Max => or_nan(fold(f64::max)),
            Reduction::Variance if cells.len() < 2 => f64::NAN,
            Reduction::Variance => squares / (n - 1.0),
            Reduction::Deviation => naive(cells, Reduction::Variance).sqrt(),
            Reduction::Norm(_) if poisoned => f64::NAN,
            Reduction::Norm(f64::INFINITY) => cells.iter().fold(0.0, |m, x| m.max(x.abs())),
            Reduction::Norm(p) => cells.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p),
            Reduction::ArgMax => {
                let largest = fold(f64::max).filter(|_| !poisoned);
                let first = |x: &f64| largest.map_or(x.is_nan(), |largest| *x == largest);
                cells.iter().position(first).map_or(f64::NAN, |place| place as f64)
            }
        }
    }

    fn expected<T: Real>(x: &Dense<T>, reduction: Reduction, axis: Axis) -> Dense<T> {
        let (m, n) = (x.shape().rows, x.shape().columns);
        let wide = |cells: Vec<T>| cells.into_iter().map(T::to_f64).collect::<Vec<_>>();
        let (rows, columns) = match axis {
            Axis::All => (1, 1),
            Axis::Rows => (m, 1),
            Axis::Columns => (1, n),
        };
        build(rows, columns, |i, j| {
            let cells = match axis {
                Axis::All => x.cells().to_vec(),
                Axis::Rows => x.row(i).to_vec(),
                Axis::Columns => (0..m).map(|i| x.row(i)[j]).collect(),
            };
            T::from_f64(naive(&wide(cells), reduction))
        })
    }

    fn check<T: Real>(x: &Storage<T>, dense: &Dense<T>) {
        for axis in [Axis::All, Axis::Rows, Axis::Columns] {
            for reduction in ALL {
                let expected = expected(dense, reduction, axis);
                assert_close(&reduce(x, reduction, axis), &expected, 1e4);
                if axis != Axis::Rows {
                    let mut parts = Accumulator::new(reduction, axis, x.shape().columns);
                    for start in (0..x.shape().rows).step_by(3) {
                        parts.push(&x.rows(start..x.shape().rows.min(start + 3)));
                    }
                    assert_close(&parts.finish(), &expected, 1e4);
                }
            }
        }
    }

    fn shapes_check<T: Real>() {
        let mut rng = rng(1);
        let sides = [0, 1, 2, 9, 40];
        for (m, n) in sides.iter().flat_map(|&m| sides.map(|n| (m, n))).chain([(700, 3), (2, 900)])
        {
            let x = random::<T>(&mut rng, m, n);
            check(&Storage::Dense(x.clone()), &x);
            for density in [0.0, 0.1, 0.9, 1.0] {
                let x = random_sparse::<T>(&mut rng, m, n, density);
                let negative = sparse::map(&x, |x| -x);
                check(&Storage::Csr(x.clone()), &sparse::to_dense(&x));
                check(&Storage::Csr(negative.clone()), &sparse::to_dense(&negative));
            }
        }
    }

    #[test]
    fn a_reduction_is_that_of_the_definition() {
        shapes_check::<f64>();
        shapes_check::<f32>();
    }

    #[test]
    fn a_nan_is_the_result_and_the_first_one_is_the_largest() {
        let cells = vec![1.0, f64::NAN, 3.0, f64::NAN, 0.0, 0.0, 5.0, 0.0];
        let x = dense(Shape::new(4, 2), cells);
        check(&Storage::Dense(x.clone()), &x);
        check(&Storage::Csr(sparse::from_dense(&x)), &x);
    }

    #[test]
    fn a_variance_far_from_zero_keeps_its_digits() {
        let x = build(10_000, 1, |i, _| 1e9 + (i % 2) as f64);
        let found = reduce(&Storage::Dense(x), Reduction::Variance, Axis::All).cells()[0];
        assert!((found - 0.25 * 10_000.0 / 9_999.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn the_bits_of_a_reduction_do_not_depend_on_threads() {
        let mut rng = rng(2);
        let x = Storage::Dense(random::<f64>(&mut rng, 200_000, 3));
        let y = Storage::Csr(random_sparse::<f64>(&mut rng, 20_000, 30, 0.3));
        for axis in [Axis::All, Axis::Rows, Axis::Columns] {
            for reduction in ALL {
                same_bits(|| reduce(&x, reduction, axis).cells().to_vec());
                same_bits(|| reduce(&y, reduction, axis).cells().to_vec());
            }
        }
    }
}
