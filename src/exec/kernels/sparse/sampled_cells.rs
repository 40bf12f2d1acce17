//! A function of cells for the stored cells of a sparse matrix alone: the rest of it is never computed.
//!
//! Stored cells are dealt out in runs of equal length, wherever rows end. Of a run, the cells of each operand are
//! gathered at the stored places, then the function runs over them as over any others.

use std::ops::Range;

use rayon::prelude::*;

use super::super::fused::{Input, Program, Scratch};
use super::super::{Real, Stop};
use super::combine::{MAP_CELLS, with_values};
use super::rows::stored_values;
use crate::matrix::{CellBuffer, Csr, Shape, Storage};

/// `m·f(x, …)`, cell by cell, where `m` stores one, and nothing elsewhere. `f` is a program of one cell.
///
/// - Shapes: `m` m×n, each operand m×n, m×1, 1×n or 1×1.
/// - Work: nnz times that of `f`; of sparse operands, one look at the cells of their rows besides.
///
/// # Panics
/// Where the shapes do not fit.
pub fn sampled_cells<T: Real>(
    m: &Csr<T>,
    f: &Program,
    operands: &[Storage<T>],
    stop: Stop<'_>,
) -> Csr<T> {
    let Shape { rows, columns } = m.shape();
    let fits = |side: usize, of: usize| side == of || side == 1;
    for operand in operands.iter().map(Storage::shape) {
        assert!(fits(operand.rows, rows) && fits(operand.columns, columns), "shapes that fit");
    }
    let stored = stored_values(m);
    let mut values = CellBuffer::arbitrary(stored.len());
    values.par_chunks_mut(MAP_CELLS).enumerate().for_each(|(run, out)| {
        if stop.is_asked() {
            return;
        }
        let run = run * MAP_CELLS..run * MAP_CELLS + out.len();
        let gathered: Vec<Gathered<T>> =
            operands.iter().map(|operand| gathered(m, &run, operand)).collect();
        let inputs: Vec<Input<'_, T>> = gathered.iter().map(Gathered::input).collect();
        f.run(&inputs, 1, out.len(), &mut Scratch::new(), out);
        out.iter_mut().zip(&stored[run]).for_each(|(value, &m)| *value *= m);
    });
    with_values(m, values, stop)
}

/// The cells of an operand for a run of stored cells.
enum Gathered<T> {
    Each(Vec<T>),
    All(T),
}

impl<T: Real> Gathered<T> {
    fn input(&self) -> Input<'_, T> {
        match self {
            Gathered::Each(cells) => Input::Cells(cells),
            Gathered::All(cell) => Input::Scalar(*cell),
        }
    }
}

fn gathered<T: Real>(m: &Csr<T>, run: &Range<usize>, operand: &Storage<T>) -> Gathered<T> {
    let shape = operand.shape();
    let row_of = |row: usize| if shape.rows == 1 { 0 } else { row };
    let mut cells = Vec::with_capacity(run.len());
    match operand {
        Storage::Dense(x) if shape.cells() == 1 => return Gathered::All(x.cells()[0]),
        Storage::Dense(x) => each_row(m, run, |row, places| {
            let x = x.row(row_of(row));
            match x {
                [cell] => cells.extend(places.iter().map(|_| *cell)),
                _ => cells.extend(places.iter().map(|&place| x[place as usize])),
            }
        }),
        Storage::Csr(x) => each_row(m, run, |row, places| {
            let (columns, values) = x.row(row_of(row));
            let first = places.first().map_or(0, |first| columns.partition_point(|at| at < first));
            let mut left = columns[first..].iter().zip(&values[first..]).peekable();
            cells.extend(places.iter().map(|&place| {
                // A column that is stretched is all of its row.
                let place = if shape.columns == 1 { 0 } else { place };
                while left.next_if(|(column, _)| **column < place).is_some() {}
                left.peek()
                    .filter(|(column, _)| **column == place)
                    .map_or(T::ZERO, |(_, cell)| **cell)
            }));
        }),
    }
    Gathered::Each(cells)
}

/// Calls `take` with each row that has cells in a run, and with their columns.
fn each_row<T: Real>(m: &Csr<T>, run: &Range<usize>, mut take: impl FnMut(usize, &[u32])) {
    let offsets = m.offsets();
    let first = offsets[0] as usize;
    let (mut at, end) = (first + run.start, first + run.end);
    let mut row = offsets.partition_point(|&offset| offset as usize <= at) - 1;
    while at < end {
        let row_end = (offsets[row + 1] as usize).min(end);
        if row_end > at {
            take(row, &m.columns()[at..row_end]);
            at = row_end;
        }
        row += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::elementwise::BinaryFunction;
    use super::super::super::fused::Builder;
    use super::super::super::testing::*;
    use super::super::to_dense;
    use super::*;
    use crate::matrix::Dense;

    #[test]
    fn a_function_is_that_of_the_cells_where_one_is_stored() {
        let mut rng = rng(41);
        for (rows, columns, density) in [
            (0, 3, 0.5),
            (3, 0, 0.5),
            (1, 1, 1.0),
            (40, 31, 0.3),
            (3, 60_000, 0.7),
            (900, 300, 0.4),
        ] {
            let m = random_sparse::<f64>(&mut rng, rows, columns, density);
            let cells = to_dense(&m);
            let sparse = random_sparse::<f64>(&mut rng, rows, columns, 0.3);
            let operands = [(rows, columns), (rows, 1), (1, columns), (1, 1)]
                .map(|(rows, columns)| Storage::Dense(random::<f64>(&mut rng, rows, columns)));
            let operands = operands.into_iter().chain([Storage::Csr(sparse)]);
            for y in operands {
                let x = Storage::Dense(random::<f64>(&mut rng, rows, columns));
                let mut builder = Builder::new();
                let [left, right] = [builder.input(0), builder.input(1)];
                let sum = builder.binary(BinaryFunction::Add, left, right);
                let one = builder.constant(1.0);
                let f = builder.binary(BinaryFunction::Subtract, sum, one);
                let program = builder.finish(f);
                let found = sampled_cells(&m, &program, &[x.clone(), y.clone()], Stop::NEVER);
                let of = |of: &Storage<f64>, i: usize, j: usize| {
                    let shape = of.shape();
                    of.cell(i.min(shape.rows - 1), j.min(shape.columns - 1))
                };
                let expected = build(rows, columns, |i, j| {
                    let m = cells.row(i)[j];
                    if m == 0.0 { 0.0 } else { m * (of(&x, i, j) + of(&y, i, j) - 1.0) }
                });
                assert_close(&to_dense(&found), &expected, 4.0);
                // A part of a larger matrix begins within its cells.
                if rows > 2 {
                    let part = |of: &Storage<f64>| of.clone().rows(1..rows);
                    let y = if y.shape().rows == rows { part(&y) } else { y };
                    let found =
                        sampled_cells(&m.rows(1..rows), &program, &[part(&x), y], Stop::NEVER);
                    let expected: Vec<f64> = expected.cells()[columns..].to_vec();
                    let expected = Dense::new(Shape::new(rows - 1, columns), expected.into());
                    assert_close(&to_dense(&found), &expected, 4.0);
                }
            }
        }
    }

    #[test]
    fn what_is_not_stored_is_not_looked_at() {
        let mut rng = rng(42);
        let m = random_sparse::<f64>(&mut rng, 200, 100, 0.1);
        let cells = to_dense(&m);
        let poisoned = build(200, 100, |i, j| if cells.row(i)[j] == 0.0 { f64::NAN } else { 2.0 });
        let mut builder = Builder::new();
        let x = builder.input(0);
        let f = builder.binary(BinaryFunction::Multiply, x, x);
        let program = builder.finish(f);
        let found = sampled_cells(&m, &program, &[Storage::Dense(poisoned)], Stop::NEVER);
        assert_close(&to_dense(&found), &build(200, 100, |i, j| 4.0 * cells.row(i)[j]), 0.0);
        same_bits(|| stored_values(&found).to_vec());
    }
}
