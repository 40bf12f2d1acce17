//! Cell by cell: functions of the stored cells, of two sparse matrices, of a sparse and a dense one.
//!
//! Only what maps zero to zero leaves a matrix sparse; that is the caller's promise, except beside a
//! dense operand, where each of its cells decides.

use rayon::prelude::*;

use super::super::elementwise::UnaryFunction;
use super::super::fused::{Builder, Input, Scratch};
use super::super::{Real, Stop};
use super::cuts::cuts;
use super::rows::{by_rows, piece, stored_before, stored_values};
use crate::matrix::{CellBuffer, Csr, Dense, Scalar, Shape};

/// `function` of each stored cell, of a function that maps zero to zero.
pub fn map<T: Scalar>(x: &Csr<T>, function: UnaryFunction, stop: Stop<'_>) -> Csr<T> {
    let mut builder = Builder::new();
    let cell = builder.input(0);
    let value = builder.unary(function, cell);
    let program = builder.finish(value);
    let stored = stored_values(x);
    let mut values = CellBuffer::arbitrary(stored.len());
    values.par_chunks_mut(MAP_CELLS).zip(stored.par_chunks(MAP_CELLS)).for_each(|(out, cells)| {
        if !stop.is_asked() {
            let inputs = [Input::Cells(cells)];
            program.run(&inputs, 1, cells.len(), &mut Scratch::new(), out);
        }
    });
    with_values(x, values, stop)
}

/// The same places with other values, of which those that are zero are left out.
pub(super) fn with_values<T: Scalar>(x: &Csr<T>, values: CellBuffer<T>, stop: Stop<'_>) -> Csr<T> {
    let first = x.offsets()[0];
    let has_zeros = values.par_iter().any(|&value| value == T::ZERO);
    let offsets = x.offsets().iter().map(|&offset| offset - first).collect::<Vec<_>>();
    let columns = x.columns().slice(first as usize, values.len());
    let x = Csr::new(x.shape(), offsets.into(), columns, values.into());
    if !has_zeros {
        return x;
    }
    by_rows(
        x.shape(),
        stored_before(&x),
        || (),
        stop,
        |(), i, columns, rows| {
            let (columns, values) = piece(&x, i, &columns);
            columns.iter().zip(values).for_each(|(&j, &value)| rows.push(j, value));
        },
    )
}

/// Stored cells that a thread maps at a time.
pub(super) const MAP_CELLS: usize = 1 << 16;

/// `f` of the cells of two matrices of one shape, where `f(0, 0)` is 0.
///
/// # Panics
/// Where the shapes differ.
pub fn zip<T: Scalar>(
    x: &Csr<T>,
    y: &Csr<T>,
    f: impl Fn(T, T) -> T + Sync,
    stop: Stop<'_>,
) -> Csr<T> {
    assert_eq!(x.shape(), y.shape(), "equal shapes");
    let (x_before, y_before) = (stored_before(x), stored_before(y));
    by_rows(
        x.shape(),
        |row, column| x_before(row, column) + y_before(row, column),
        || (),
        stop,
        |(), i, columns, rows| {
            let (x_columns, x_values) = piece(x, i, &columns);
            let (y_columns, y_values) = piece(y, i, &columns);
            let (mut at, mut bt) = (0, 0);
            while at < x_columns.len() && bt < y_columns.len() {
                let (a, b) = (x_columns[at], y_columns[bt]);
                let left = if a <= b { x_values[at] } else { T::ZERO };
                let right = if b <= a { y_values[bt] } else { T::ZERO };
                rows.push(a.min(b), f(left, right));
                at += usize::from(a <= b);
                bt += usize::from(b <= a);
            }
            for (&j, &x) in x_columns[at..].iter().zip(&x_values[at..]) {
                rows.push(j, f(x, T::ZERO));
            }
            for (&j, &y) in y_columns[bt..].iter().zip(&y_values[bt..]) {
                rows.push(j, f(T::ZERO, y));
            }
        },
    )
}

/// `f` of the cells of a sparse and a dense matrix, of one shape or with a dense row, column or cell
/// that is repeated as NumPy does.
///
/// A row is as sparse as that of `x` where `f(0, y)` is 0 for each of its cells `y`; elsewhere, as for
/// a product with `NaN` or a division by zero, its cells are computed one by one.
///
/// # Panics
/// Where the shapes do not fit.
pub fn zip_dense<T: Scalar>(
    x: &Csr<T>,
    y: &Dense<T>,
    f: impl Fn(T, T) -> T + Sync,
    stop: Stop<'_>,
) -> Csr<T> {
    let (shape, width) = (x.shape(), y.shape().columns);
    let fits = |side: usize, of: usize| side == of || side == 1;
    assert!(fits(y.shape().rows, shape.rows) && fits(width, shape.columns), "shapes that fit");
    let keeps_zeros = |cells: &[T]| cells.iter().all(|&y| f(T::ZERO, y) == T::ZERO);
    let is_one_row = y.shape().rows == 1;
    // Asked once where there is one row or one column, else of each row.
    if (is_one_row || width == 1) && keeps_zeros(y.cells()) {
        return zip_stored(x, y, f, stop);
    }
    let stored_before = stored_before(x);
    let read = if is_one_row { shape.columns } else { width };
    by_rows(
        shape,
        |row, column| stored_before(row, column) + row * read + column.min(read),
        || (),
        stop,
        |(), i, columns, rows| {
            let right = y.row(if is_one_row { 0 } else { i });
            let right = if width == 1 { right } else { &right[columns.clone()] };
            let y = |j: usize| right[if width == 1 { 0 } else { j - columns.start }];
            let (places, values) = piece(x, i, &columns);
            let mut stored = places.iter().zip(values).peekable();
            if keeps_zeros(right) {
                stored.for_each(|(&j, &x)| rows.push(j, f(x, y(j as usize))));
            } else {
                for j in columns.clone() {
                    let x = stored.next_if(|(column, _)| **column as usize == j);
                    rows.push(j as u32, f(x.map_or(T::ZERO, |(_, &x)| x), y(j)));
                }
            }
        },
    )
}

/// `f` of each stored cell and the cell of its row or column, or of all.
fn zip_stored<T: Scalar>(
    x: &Csr<T>,
    y: &Dense<T>,
    f: impl Fn(T, T) -> T + Sync,
    stop: Stop<'_>,
) -> Csr<T> {
    let (shape, before) = (x.shape(), stored_before(x));
    let mut values = CellBuffer::arbitrary(x.stored());
    let mut left = &mut values[..];
    let mut parts = Vec::new();
    for part in cuts(shape, &before) {
        let [start, end] = [part.start, part.end].map(|at| before(at.row, at.column));
        let (out, rest) = left.split_at_mut(end - start);
        left = rest;
        parts.push((part, out));
    }
    let width = y.shape().columns;
    parts.into_par_iter().for_each(|(part, mut left)| {
        for (row, columns) in part.rows(shape.columns).take_while(|_| !stop.is_asked()) {
            let (columns, cells) = piece(x, row, &columns);
            let (out, rest) = left.split_at_mut(cells.len());
            left = rest;
            let right = y.row(if y.shape().rows == 1 { 0 } else { row });
            if width == 1 {
                out.iter_mut().zip(cells).for_each(|(out, &x)| *out = f(x, right[0]));
            } else {
                let cells = columns.iter().zip(cells);
                out.iter_mut()
                    .zip(cells)
                    .for_each(|(out, (&j, &x))| *out = f(x, right[j as usize]));
            }
        }
    });
    with_values(x, values, stop)
}

/// Number of cells that are not zero; a matrix made elsewhere may store some that are.
pub fn non_zeros<T: Scalar>(x: &Csr<T>) -> usize {
    super::super::non_zeros(stored_values(x))
}

/// The cells on the diagonal, as a column.
pub fn diagonal<T: Real>(x: &Csr<T>) -> Dense<T> {
    let n = x.shape().rows.min(x.shape().columns);
    let cell = |i: usize| {
        let (columns, values) = x.row(i);
        columns.binary_search(&(i as u32)).map_or(T::ZERO, |at| values[at])
    };
    Dense::new(Shape::new(n, 1), (0..n).map(cell).collect::<Vec<_>>().into())
}

/// The square matrix with these cells on its diagonal.
pub fn diagonal_matrix<T: Scalar>(values: &[T]) -> Csr<T> {
    let n = values.len();
    by_rows(
        Shape::new(n, n),
        |row, column| row + usize::from(column > row),
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            if columns.contains(&i) {
                rows.push(i as u32, values[i]);
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;
    use super::super::{from_dense, to_dense};
    use super::*;

    const SHAPES: [(usize, usize); 6] = [(0, 0), (3, 0), (0, 3), (1, 1), (20, 31), (500, 90)];

    #[test]
    fn sparse_matrices_combine_cell_by_cell() {
        let mut rng = rng(1);
        for (m, n) in SHAPES {
            let x = random_sparse::<f64>(&mut rng, m, n, 0.3);
            let y = random_sparse::<f64>(&mut rng, m, n, 0.3);
            let (dx, dy) = (to_dense(&x), to_dense(&y));
            for f in [|x: f64, y: f64| x + y, |x, y| x - y, |x, y| x * y] {
                let expected = build(m, n, |i, j| f(dx.row(i)[j], dy.row(i)[j]));
                assert_close(&to_dense(&zip(&x, &y, f, Stop::NEVER)), &expected, 0.0);
            }
            assert_eq!(zip(&x, &x, |x, y| x - y, Stop::NEVER).stored(), 0);
            let halved = zip_dense(&x, &Dense::scalar(0.5), |x, half| x * half, Stop::NEVER);
            assert_close(&to_dense(&halved), &build(m, n, |i, j| dx.row(i)[j] * 0.5), 0.0);
            assert_eq!(non_zeros(&x), x.stored());
        }
    }

    #[test]
    fn nan_times_a_zero_is_nan_stored_or_not() {
        let mut rng = rng(2);
        for (m, n) in SHAPES {
            let x = random_sparse::<f64>(&mut rng, m, n, 0.3);
            let dx = to_dense(&x);
            for (rows, columns) in [(m, n), (1, n), (m, 1), (1, 1)] {
                for (poison, every) in [(1.0, 3), (f64::NAN, 7), (f64::INFINITY, 11), (0.0, 2)] {
                    let y = build(
                        rows,
                        columns,
                        |i, j| if (i + j) % every == 0 { poison } else { 2.0 },
                    );
                    for f in [|x: f64, y: f64| x * y, |x, y| x / y] {
                        let at = |i: usize, j: usize| y.row(i.min(rows - 1))[j.min(columns - 1)];
                        let expected = build(m, n, |i, j| f(dx.row(i)[j], at(i, j)));
                        assert_close(&to_dense(&zip_dense(&x, &y, f, Stop::NEVER)), &expected, 0.0);
                    }
                }
            }
        }
        let x = from_dense(&build(2, 2, |i, j| if i == j { f64::NAN } else { 0.0 }));
        let y = from_dense(&build(2, 2, |i, _| i as f64));
        let found = to_dense(&zip(&x, &y, |x, y| x * y, Stop::NEVER));
        assert!(found.row(0)[0].is_nan() && found.row(1)[1].is_nan() && found.row(0)[1] == 0.0);
    }

    #[test]
    fn a_function_of_stored_cells_is_that_of_each_and_keeps_no_zero() {
        let mut rng = rng(6);
        let x = random_sparse::<f64>(&mut rng, 60, 50, 0.2);
        for x in [x.rows(0..60), x.rows(7..31), x.rows(9..9)] {
            for function in [UnaryFunction::Tanh, UnaryFunction::Round, UnaryFunction::Negate] {
                let found = map(&x, function, Stop::NEVER);
                let cells = to_dense(&x).cells().iter().map(|&x| function.apply(x)).collect();
                assert_close(&to_dense(&found), &Dense::new(x.shape(), cells), 0.0);
                assert!(stored_values(&found).iter().all(|&x| x != 0.0));
            }
        }
    }

    #[test]
    fn a_sparse_diagonal_goes_in_and_comes_out() {
        let x = diagonal_matrix(&[1.0, 0.0, 3.0]);
        assert_eq!(x.stored(), 2);
        assert_eq!(diagonal(&x).cells(), [1.0, 0.0, 3.0]);
        assert_eq!(diagonal(&x.rows(1..3)).cells(), [0.0, 0.0]);
    }
}
