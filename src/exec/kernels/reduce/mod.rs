//! Reductions of all cells, of each row, of each column; dense and sparse.
//!
//! Each is a loop of [`fused`](super::fused): a function of each cell, a sum or an extreme of that, and
//! what becomes of it at the end. So a reduction has the same bits whether its cells come from memory or
//! from the chain of operations before it.
//!
//! ```text
//! norm(x, 3)   |x|³  summed, then the cube root
//! max(x)       x     the largest
//! ```
//!
//! All cells and columns need every row: [`Totals`] of blocks merge in the order of the blocks. A whole
//! matrix is cut into blocks by its shape alone and merged by halves. What is not stored counts as zeros.

mod places;

use std::ops::Range;

use rayon::prelude::*;

use super::elementwise::{BinaryFunction, UnaryFunction};
use super::fused::{self, Builder, Input, Program, Scratch, Value};
use super::{Real, Stop, dense, fold_blocks, sparse};
use crate::matrix::{CellBuffer, Csr, Dense, Scalar, Shape, Storage};
use crate::memory;

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
    /// Variance over n, as SQL's `VAR_POP`.
    PopulationVariance,
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

impl Reduction {
    /// The loop over the cells that `cell` yields: what is accumulated, and how.
    ///
    /// # Panics
    /// For [`Reduction::ArgMax`], which no loop computes, and for a norm whose p is not above 0.
    pub fn looped(self, builder: &mut Builder, cell: Value) -> (Value, fused::Reduction) {
        let plain = |reduction| (cell, reduction);
        match self {
            Reduction::Sum => plain(fused::Reduction::Sum),
            Reduction::Mean => plain(fused::Reduction::Mean),
            Reduction::Min => plain(fused::Reduction::Min),
            Reduction::Max => plain(fused::Reduction::Max),
            Reduction::Variance => plain(fused::Reduction::Variance),
            Reduction::PopulationVariance => plain(fused::Reduction::PopulationVariance),
            Reduction::Deviation => plain(fused::Reduction::Deviation),
            Reduction::Norm(2.0) => plain(fused::Reduction::SumOfSquares),
            Reduction::Norm(p) => {
                assert!(p > 0.0, "the planner lets norms with p above 0 through only");
                let size = builder.unary(UnaryFunction::Abs, cell);
                if p == 1.0 {
                    (size, fused::Reduction::Sum)
                } else if p.is_infinite() {
                    (size, fused::Reduction::Max)
                } else {
                    let p = builder.constant(p);
                    (builder.binary(BinaryFunction::Power, size, p), fused::Reduction::Sum)
                }
            }
            Reduction::ArgMax => unreachable!("places are found by `places`"),
        }
    }

    /// The loop over stored cells.
    fn identity(self) -> (Program, fused::Reduction) {
        let mut builder = Builder::new();
        let cell = builder.input(0);
        let (value, reduction) = self.looped(&mut builder, cell);
        (builder.finish(value), reduction)
    }

    /// What one cell adds: the loop for a single one.
    fn term(self, x: f64) -> f64 {
        match self {
            Reduction::Norm(2.0) => x,
            Reduction::Norm(p) if p == 1.0 || p.is_infinite() => x.abs(),
            Reduction::Norm(p) => BinaryFunction::Power.apply(x.abs(), p),
            _ => x,
        }
    }

    /// The result for what a loop has accumulated.
    fn finished(self, total: &fused::Accumulator) -> f64 {
        match self {
            Reduction::Norm(_) if total.count() == 0 => 0.0,
            Reduction::Norm(_) => self.root(total.value()),
            _ => total.value(),
        }
    }

    fn root(self, sum: f64) -> f64 {
        match self {
            Reduction::Norm(2.0) => sum.sqrt(),
            Reduction::Norm(p) if p != 1.0 && p.is_finite() => sum.powf(1.0 / p),
            _ => sum,
        }
    }
}

/// A reduction under way over all cells, or over each column: one accumulator for each result.
#[derive(Debug, Clone)]
pub struct Totals {
    reduction: Reduction,
    lanes: Vec<fused::Accumulator>,
}

impl Totals {
    /// Of the cells that `program`, made with [`Reduction::looped`], computes of one block of rows, on the
    /// calling thread: of all of them, or of each column.
    ///
    /// # Panics
    /// Where an input is missing or does not fit `rows` times `columns`; for [`Axis::Rows`].
    pub fn of<T: Scalar>(
        (reduction, looped): (Reduction, fused::Reduction),
        axis: Axis,
        program: &Program,
        inputs: &[Input<'_, T>],
        (rows, columns): (usize, usize),
    ) -> Self {
        let mut scratch = Scratch::new();
        let lanes = match axis {
            Axis::All => vec![program.reduce(inputs, rows, columns, looped, &mut scratch)],
            Axis::Columns => {
                let mut lanes = vec![fused::Accumulator::new(looped); columns];
                program.reduce_columns(inputs, rows, columns, looped, &mut scratch, &mut lanes);
                lanes
            }
            Axis::Rows => unreachable!("a row is reduced where it lies"),
        };
        Self { reduction, lanes }
    }

    /// The two as one: `next` has the rows that follow.
    pub fn merge(mut self, next: &Self) -> Self {
        for (lane, next) in self.lanes.iter_mut().zip(&next.lanes) {
            lane.merge(next);
        }
        self
    }

    /// The results: 1×1 for all cells, 1×n for columns.
    pub fn finish<T: Scalar>(&self) -> Dense<T> {
        let cells = self.lanes.iter().map(|lane| T::from_f64(self.reduction.finished(lane)));
        dense(Shape::new(1, self.lanes.len()), cells.collect::<Vec<_>>())
    }
}

/// Reduces a whole matrix, in parallel.
pub fn reduce<T: Real>(x: &Storage<T>, reduction: Reduction, axis: Axis) -> Dense<T> {
    match x {
        _ if reduction == Reduction::ArgMax => places::of_largest(x, axis),
        Storage::Dense(x) => reduce_dense(x, reduction, axis),
        Storage::Csr(x) => reduce_sparse(x, reduction, axis),
    }
}

/// Stored cells in a block: enough to be worth a task.
const BLOCK_CELLS: usize = 1 << 16;
/// Stored cells for each lane of a block, at least: a lane takes as long as some cells.
const LANE_CELLS: usize = 4;

fn reduce_dense<T: Real>(x: &Dense<T>, reduction: Reduction, axis: Axis) -> Dense<T> {
    let (m, n) = (x.shape().rows, x.shape().columns);
    let (program, looped) = reduction.identity();
    match axis {
        Axis::Rows => {
            let mut cells = CellBuffer::arbitrary(m);
            let rows_per_task = (BLOCK_CELLS / n.max(1)).max(1);
            cells.par_chunks_mut(rows_per_task).enumerate().for_each(|(task, out)| {
                let first = task * rows_per_task;
                let block = x.rows(first..first + out.len());
                let inputs = [Input::Cells(block.cells())];
                program.reduce_rows(&inputs, out.len(), n, looped, &mut Scratch::new(), out);
                if matches!(reduction, Reduction::Norm(_)) {
                    let root = |x: T| T::from_f64(reduction.root(x.to_f64()));
                    let finished = |x: T| if n == 0 { T::ZERO } else { root(x) };
                    out.iter_mut().for_each(|x| *x = finished(*x));
                }
            });
            dense(Shape::new(m, 1), cells)
        }
        // As one column, so that a wide matrix is cut into blocks like a tall one.
        Axis::All if n != 1 && m * n > 0 => {
            let column = Dense::new(Shape::new(m * n, 1), x.buffer().clone());
            reduce_dense(&column, reduction, axis)
        }
        Axis::All | Axis::Columns => {
            // At least as much work to a block as its lanes take to merge.
            let grain = (BLOCK_CELLS / n.max(1)).max(256);
            let of_block = |cells: &[T], rows: usize| {
                let inputs = [Input::Cells(cells)];
                Totals::of((reduction, looped), axis, &program, &inputs, (rows, n))
            };
            let block =
                |rows: Range<usize>| of_block(&x.cells()[rows.start * n..rows.end * n], rows.len());
            let merge = |sum: Totals, next: Totals| sum.merge(&next);
            let nothing = || of_block(&[], 0);
            fold_blocks(m, grain, &block, &merge).unwrap_or_else(nothing).finish()
        }
    }
}

fn reduce_sparse<T: Real>(x: &Csr<T>, reduction: Reduction, axis: Axis) -> Dense<T> {
    let (m, n) = (x.shape().rows, x.shape().columns);
    let (_, looped) = reduction.identity();
    let first = x.offsets()[0] as usize;
    let (columns, values) = (&x.columns()[first..], sparse::stored_values(x));
    let (lanes, cells) = match axis {
        Axis::Rows => return reduce_sparse_rows(x, reduction),
        // Few cells of each: a lane for each would be most of the work, and all of it in one block. Or many lanes: the
        // transpose may be in a file, and they are in memory.
        Axis::Columns
            if values.len() > BLOCK_CELLS
                && (values.len() <= LANE_CELLS * n || !memory::has_room(lane_bytes(n))) =>
        {
            let sums = reduce_sparse_rows(&sparse::transpose(x, Stop::NEVER), reduction);
            return dense::reshape(&sums, Shape::new(1, n));
        }
        Axis::All => (1, m * n),
        Axis::Columns => (n, m),
    };
    let block = |stored: Range<usize>| {
        let (columns, values) = (&columns[stored.clone()], &values[stored]);
        let lanes = if lanes == 1 {
            vec![of_stored(values, reduction, looped)]
        } else {
            let mut totals = vec![fused::Accumulator::new(looped); lanes];
            for (&column, &x) in columns.iter().zip(values) {
                totals[column as usize].push(reduction.term(x.to_f64()));
            }
            memory::done_with(bytemuck::cast_slice(columns));
            totals
        };
        memory::done_with(bytemuck::cast_slice(values));
        Totals { reduction, lanes }
    };
    let merge = |sum: Totals, next: Totals| sum.merge(&next);
    let total = fold_blocks(values.len(), BLOCK_CELLS.max(LANE_CELLS * lanes), &block, &merge);
    let mut total = total.unwrap_or_else(|| block(0..0));
    for lane in &mut total.lanes {
        lane.push_zeros(cells as u64 - lane.count());
    }
    total.finish()
}

/// Bytes of so many lanes, of the block that a thread is at and of those before, on all threads.
fn lane_bytes(lanes: usize) -> usize {
    2 * rayon::current_num_threads() * size_of::<fused::Accumulator>() * lanes
}

/// Each row of a sparse matrix. A long one is reduced piece by piece, wherever its part ends.
fn reduce_sparse_rows<T: Real>(x: &Csr<T>, reduction: Reduction) -> Dense<T> {
    let (m, n) = (x.shape().rows, x.shape().columns);
    let (_, looped) = reduction.identity();
    let (offsets, values) = (x.offsets(), x.values());
    let of_pieces = |cells: Range<usize>| {
        sparse::pieces(cells).map(|cells| of_stored(&values[cells], reduction, looped))
    };
    // Most rows are one piece.
    let of_cells = |cells: Range<usize>| match cells.len() {
        0..=sparse::PIECE_CELLS => of_stored(&values[cells], reduction, looped),
        _ => of_pieces(cells).reduce(merged).unwrap_or(fused::Accumulator::new(looped)),
    };
    let finish = |row: usize, mut total: fused::Accumulator| {
        total.push_zeros(n as u64 - (offsets[row + 1] - offsets[row]) as u64);
        T::from_f64(reduction.finished(&total))
    };
    let mut cells = CellBuffer::arbitrary(m);
    let mut left = &mut cells[..];
    let mut parts = Vec::new();
    for part in sparse::piece_cuts(x, 1) {
        let begun = sparse::begun(offsets, &part);
        let (out, rest) = left.split_at_mut(begun.len());
        left = rest;
        parts.push((part, begun, out));
    }
    // Of each part the pieces of the row that it begins within, and what it has of the row that it ends within.
    let made = parts.into_par_iter().map(|(part, begun, out)| {
        let (first, last) = (part.start.row, part.end.row);
        for (row, out) in (begun.start..begun.end.min(last)).zip(out) {
            *out = finish(row, of_cells(offsets[row] as usize..offsets[row + 1] as usize));
        }
        let continued = (begun.start > first).then(|| {
            let end = part.end.cell.min(offsets[first + 1] as usize);
            of_pieces(part.start.cell..end).collect()
        });
        let open = begun.contains(&last).then(|| of_cells(offsets[last] as usize..part.end.cell));
        memory::done_with(bytemuck::cast_slice(&values[part.start.cell..part.end.cell]));
        (part, continued.unwrap_or_else(Vec::new), open)
    });
    let mut open = None;
    for (part, continued, begun) in made.collect::<Vec<_>>() {
        open = open.into_iter().chain(continued).reduce(merged);
        if part.start.row < part.end.row
            && let Some(total) = open.take()
        {
            cells[part.start.row] = finish(part.start.row, total);
        }
        open = open.or(begun);
    }
    dense(Shape::new(m, 1), cells)
}

/// Stored cells, one after the other.
fn of_stored<T: Real>(
    cells: &[T],
    reduction: Reduction,
    looped: fused::Reduction,
) -> fused::Accumulator {
    let mut total = fused::Accumulator::new(looped);
    cells.iter().for_each(|&x| total.push(reduction.term(x.to_f64())));
    total
}

/// The cells of one accumulator and then those of another.
fn merged(mut total: fused::Accumulator, next: fused::Accumulator) -> fused::Accumulator {
    total.merge(&next);
    total
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const ALL: [Reduction; 13] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Min,
        Reduction::Max,
        Reduction::Variance,
        Reduction::PopulationVariance,
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
            Reduction::PopulationVariance => squares / n,
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
                let negative = sparse::map(&x, UnaryFunction::Negate, Stop::NEVER);
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
    fn a_row_that_is_cut_is_reduced_like_one_that_is_not() {
        for x in [power_law(30, 90_000, 3), one_long_row(30, 200_000, 4)] {
            let x = x.rows(1..30);
            let n = x.shape().columns;
            for reduction in ALL {
                let found = reduce(&Storage::Csr(x.clone()), reduction, Axis::Rows);
                for (i, &found) in found.cells().iter().enumerate() {
                    let (columns, values) = x.row(i);
                    if reduction == Reduction::ArgMax {
                        let gap = (0..columns.len()).find(|&at| columns[at] as usize != at);
                        let zero = (0.0, gap.unwrap_or(columns.len()));
                        let stored = columns.iter().zip(values).map(|(&j, &x)| (x, j as usize));
                        let largest = stored.chain((columns.len() < n).then_some(zero));
                        let largest = largest.reduce(|a, b| if b.0 > a.0 { b } else { a });
                        assert_eq!(found, largest.unwrap().1 as f64, "row {i}");
                        continue;
                    }
                    let pieces = values.chunks(1 << 10).map(|piece| {
                        let mut total = fused::Accumulator::new(reduction.identity().1);
                        piece.iter().for_each(|&x| total.push(reduction.term(x)));
                        total
                    });
                    let mut total = pieces.reduce(merged).unwrap();
                    total.push_zeros((n - values.len()) as u64);
                    assert_eq!(found.to_bits(), reduction.finished(&total).to_bits(), "row {i}");
                }
                for axis in [Axis::All, Axis::Rows, Axis::Columns] {
                    same_bits(|| {
                        reduce(&Storage::Csr(x.clone()), reduction, axis).cells().to_vec()
                    });
                }
            }
            let full = Storage::Dense(sparse::to_dense(&x));
            for reduction in ALL {
                let found = reduce(&Storage::Csr(x.clone()), reduction, Axis::Columns);
                assert_close(&found, &reduce(&full, reduction, Axis::Columns), 1e3);
            }
            let zeros = vec![0.0; x.shape().cells() - x.stored()];
            let all = [sparse::stored_values(&x).to_vec(), zeros].concat();
            for reduction in [Reduction::Sum, Reduction::Variance, Reduction::Norm(2.0)] {
                let found = reduce(&Storage::Csr(x.clone()), reduction, Axis::All);
                let expected = Dense::scalar(naive(&all, reduction));
                assert_close(&found, &expected, 1e6);
            }
        }
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
