//! Sparse matrices rearranged: slices, gathers, stacks and Kronecker products.
//!
//! A block of whole rows shares its cells ([`Csr::rows`]); everything here writes new ones.

use std::ops::Range;

use rayon::prelude::*;

use super::super::{Real, Stop};
use super::rows::{
    Rows, accumulate, all_finite, by_rows, piece, stored_before, stored_left, stored_values, within,
};
use crate::matrix::{Csr, Scalar, Shape};

/// A range of columns.
///
/// # Panics
/// Where it reaches outside.
pub fn slice_columns<T: Scalar>(x: &Csr<T>, columns: Range<usize>) -> Csr<T> {
    assert!(columns.end <= x.shape().columns, "columns within {}", x.shape());
    let shape = Shape::new(x.shape().rows, columns.len());
    let (first, before) = (columns.start, stored_before(x));
    by_rows(
        shape,
        |row, column| before(row, if column == 0 { 0 } else { first + column }),
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            let (places, values) = piece(x, i, &(first + columns.start..first + columns.end));
            for (&j, &x) in places.iter().zip(values) {
                rows.push(j - first as u32, x);
            }
        },
    )
}

/// The columns at these places, in their order; a place may come again.
///
/// # Panics
/// Where one is outside.
pub fn gather_columns<T: Scalar>(x: &Csr<T>, places: &[usize]) -> Csr<T> {
    // Where each column goes: those of column j are targets[starts[j]..starts[j + 1]].
    let mut starts = vec![0; x.shape().columns + 1];
    places.iter().for_each(|&place| starts[place + 1] += 1);
    for j in 0..x.shape().columns {
        starts[j + 1] += starts[j];
    }
    let (mut next, mut targets) = (starts.clone(), vec![0u32; places.len()]);
    for (target, &place) in places.iter().enumerate() {
        targets[next[place]] = target as u32;
        next[place] += 1;
    }
    let shape = Shape::new(x.shape().rows, places.len());
    let is_ascending = places.is_sorted();
    let write = |cells: &mut Vec<(u32, T)>, i, columns: Range<usize>, rows: &mut Rows<T>| {
        let is_whole = columns.len() == places.len();
        // A row is cut only where what lies side by side comes from side by side.
        let from = if is_whole { 0 } else { places[columns.start] };
        let to = if is_whole { x.shape().columns } else { places[columns.end - 1] + 1 };
        let (stored, values) = piece(x, i, &(from..to));
        for (&j, &x) in stored.iter().zip(values) {
            let mut targets = &targets[starts[j as usize]..starts[j as usize + 1]];
            if !is_whole {
                targets = &targets[within(targets, &columns)];
            }
            cells.extend(targets.iter().map(|&target| (target, x)));
        }
        match cells.len() {
            0..PARALLEL_SORT => cells.sort_unstable_by_key(|&(target, _)| target),
            _ => cells.par_sort_unstable_by_key(|&(target, _)| target),
        }
        cells.drain(..).for_each(|(target, x)| rows.push(target, x));
    };
    let before = stored_before(x);
    let before = |row: usize, column: usize| match column {
        0 => before(row, 0),
        _ => before(row, if is_ascending { places[column] } else { 0 }),
    };
    by_rows(shape, before, Vec::new, Stop::NEVER, write)
}

/// Cells of a row that are worth sorting on all threads.
const PARALLEL_SORT: usize = 1 << 16;

/// The rows at these places, in their order; a place may come again.
///
/// # Panics
/// Where one is outside.
pub fn gather_rows<T: Scalar>(x: &Csr<T>, places: &[usize]) -> Csr<T> {
    let shape = Shape::new(places.len(), x.shape().columns);
    let before = before(places.iter().map(|&place| x.row(place).0.len()));
    by_rows(
        shape,
        |row, column| match column {
            0 => before[row],
            _ => before[row] + stored_left(x, places[row], column),
        },
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            let (columns, values) = piece(x, places[i], &columns);
            rows.extend(columns, values);
        },
    )
}

/// What is counted before each row.
fn before(counts: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut before: Vec<usize> = std::iter::once(0).chain(counts).collect();
    accumulate(&mut before);
    before
}

/// Matrices of equally many rows, side by side.
///
/// # Panics
/// Where their numbers of rows differ, or there is none.
pub fn hstack<T: Scalar>(parts: &[Csr<T>]) -> Csr<T> {
    let height = parts[0].shape().rows;
    assert!(parts.iter().all(|part| part.shape().rows == height), "equally many rows");
    let columns = parts.iter().map(|part| part.shape().columns).sum();
    // Each part with its first column.
    let parts: Vec<_> = (parts.iter())
        .scan(0, |next, part| {
            let first = *next;
            *next += part.shape().columns;
            Some((first, part, stored_before(part)))
        })
        .collect();
    let own = |part: &Csr<T>, first: usize, column: usize| {
        column.saturating_sub(first).min(part.shape().columns)
    };
    let before = |row: usize, column: usize| {
        let parts = parts.iter();
        parts.map(|(first, part, before)| before(row, own(part, *first, column))).sum()
    };
    by_rows(
        Shape::new(height, columns),
        before,
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            for (first, part, _) in &parts {
                let columns = own(part, *first, columns.start)..own(part, *first, columns.end);
                let (columns, values) = piece(part, i, &columns);
                for (&j, &x) in columns.iter().zip(values) {
                    rows.push(*first as u32 + j, x);
                }
            }
        },
    )
}

/// Matrices of equally many columns, one below the other.
///
/// # Panics
/// Where their numbers of columns differ, or there is none.
pub fn vstack<T: Scalar>(parts: &[Csr<T>]) -> Csr<T> {
    let columns = parts[0].shape().columns;
    assert!(parts.iter().all(|part| part.shape().columns == columns), "equally many columns");
    let places: Vec<(usize, usize)> = (parts.iter().enumerate())
        .flat_map(|(part, x)| (0..x.shape().rows).map(move |i| (part, i)))
        .collect();
    let before = before(places.iter().map(|&(part, i)| parts[part].row(i).0.len()));
    by_rows(
        Shape::new(places.len(), columns),
        |row, column| match column {
            0 => before[row],
            _ => before[row] + stored_left(&parts[places[row].0], places[row].1, column),
        },
        || (),
        Stop::NEVER,
        |(), i, columns, rows| {
            let (part, i) = places[i];
            let (columns, values) = piece(&parts[part], i, &columns);
            rows.extend(columns, values);
        },
    )
}

/// The Kronecker product: each cell of `x` times the whole of `y`.
pub fn kron<T: Real>(x: &Csr<T>, y: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    let (height, width) = (y.shape().rows, y.shape().columns);
    let shape = Shape::new(x.shape().rows * height, x.shape().columns * width);
    let (x_before, y_before) = (stored_before(x), stored_before(y));
    let before = |row: usize, column: usize| {
        let (i, k) = (row / height.max(1), row % height.max(1));
        let of_rows = x_before(i, 0).saturating_mul(y.stored());
        if (k, column) == (0, 0) {
            return of_rows;
        }
        let (j, l) = (column / width.max(1), column % width.max(1));
        let (left, right) = (x.row(i).0.len(), y.row(k).0.len());
        let whole = stored_left(x, i, j);
        let cut = if l > 0 { stored_left(x, i, j + 1) - whole } else { 0 };
        let own = left * y_before(k, 0) + whole * right + cut * stored_left(y, k, l);
        of_rows.saturating_add(own)
    };
    let is_finite = |cells: &[T]| cells.iter().all(|x| x.is_finite());
    let is_all_finite = all_finite(stored_values(x)) && all_finite(stored_values(y));
    by_rows(
        shape,
        before,
        || (),
        stop,
        |(), row, columns, rows| {
            let (i, k) = (row / height, row % height);
            // Which columns of `x` these are, and of `y` for one of those.
            let outer = columns.start / width..columns.end.div_ceil(width);
            let inner = |j: usize| {
                let first = j * width;
                columns.start.saturating_sub(first)..(columns.end - first).min(width)
            };
            let all_inner = if outer.len() == 1 { inner(outer.start) } else { 0..width };
            let (left, right) = (piece(x, i, &outer), piece(y, k, &all_inner));
            if is_all_finite || (is_finite(left.1) && is_finite(right.1)) {
                let is_whole = columns.len() == x.shape().columns * width;
                for (&j, &x) in left.0.iter().zip(left.1) {
                    let (places, values) =
                        if is_whole { right } else { piece(y, k, &inner(j as usize)) };
                    for (&l, &y) in places.iter().zip(values) {
                        rows.push(j * width as u32 + l, x * y);
                    }
                }
            } else {
                // NaN and infinities meet the cells that are not stored too.
                let (left, right) = (in_full(left, &outer), in_full(right, &all_inner));
                for (j, &x) in outer.zip(&left) {
                    let inner = inner(j);
                    for (l, &y) in inner.clone().zip(&right[inner.start - all_inner.start..]) {
                        rows.push((j * width + l) as u32, x * y);
                    }
                }
            }
        },
    )
}

/// Every cell of a row in some columns.
fn in_full<T: Real>((places, values): (&[u32], &[T]), columns: &Range<usize>) -> Vec<T> {
    let mut cells = vec![T::ZERO; columns.len()];
    places.iter().zip(values).for_each(|(&j, &x)| cells[j as usize - columns.start] = x);
    cells
}

#[cfg(test)]
mod tests {
    use super::super::super::dense;
    use super::super::super::testing::*;
    use super::super::to_dense;
    use super::*;

    #[test]
    fn sparse_slices_and_gathers_take_what_they_name() {
        let mut rng = rng(1);
        let x = random_sparse::<f64>(&mut rng, 20, 30, 0.3);
        let d = to_dense(&x);
        let places = [4, 0, 4, 19];
        let pairs = [
            (slice_columns(&x.rows(5..20), 3..9), dense::slice_columns(&d.rows(5..20), 3..9)),
            (slice_columns(&x, 30..30), dense::slice_columns(&d, 30..30)),
            (gather_rows(&x, &places), dense::gather_rows(&d, &places)),
            (gather_rows(&x, &[]), dense::gather_rows(&d, &[])),
            (gather_columns(&x, &places), dense::gather_columns(&d, &places)),
            (gather_columns(&x, &[]), dense::gather_columns(&d, &[])),
        ];
        for (found, expected) in pairs {
            assert_close(&to_dense(&found), &expected, 0.0);
        }
    }

    #[test]
    fn sparse_stacks_lay_their_parts_in_order() {
        let mut rng = rng(2);
        let parts: Vec<_> = [2, 0, 7].map(|n| random_sparse::<f64>(&mut rng, 5, n, 0.4)).into();
        let full: Vec<_> = parts.iter().map(to_dense).collect();
        assert_close(&to_dense(&hstack(&parts)), &dense::hstack(&full), 0.0);
        let parts: Vec<_> = [2, 0, 7].map(|m| random_sparse::<f64>(&mut rng, m, 5, 0.4)).into();
        let full: Vec<_> = parts.iter().map(to_dense).collect();
        assert_close(&to_dense(&vstack(&parts)), &dense::vstack(full), 0.0);
    }

    #[test]
    fn a_sparse_kron_is_the_dense_one() {
        let mut rng = rng(3);
        for ((a, b), (c, d)) in
            [((3, 4), (5, 6)), ((0, 2), (3, 2)), ((2, 2), (3, 0)), ((1, 1), (1, 9))]
        {
            let (x, y) =
                (random_sparse::<f64>(&mut rng, a, b, 0.5), random_sparse(&mut rng, c, d, 0.5));
            let expected = dense::kron(&to_dense(&x), &to_dense(&y));
            assert_close(&to_dense(&kron(&x, &y, Stop::NEVER)), &expected, 0.0);
            let x = spoiled(&x, 0.6, f64::NAN);
            let expected = dense::kron(&to_dense(&x), &to_dense(&y));
            assert_close(&to_dense(&kron(&x, &y, Stop::NEVER)), &expected, 0.0);
        }
    }
}
