//! Sparse matrices rearranged: slices, gathers, stacks and Kronecker products.
//!
//! A block of whole rows shares its cells ([`Csr::rows`]); everything here writes new ones.

use std::ops::Range;

use super::super::{Real, Stop};
use super::rows::{Rows, accumulate, by_rows, stored_before};
use crate::matrix::{Csr, Scalar, Shape};

/// A range of columns.
///
/// # Panics
/// Where it reaches outside.
pub fn slice_columns<T: Scalar>(x: &Csr<T>, columns: Range<usize>) -> Csr<T> {
    assert!(columns.end <= x.shape().columns, "columns within {}", x.shape());
    let shape = Shape::new(x.shape().rows, columns.len());
    by_rows(
        shape,
        stored_before(x),
        || (),
        Stop::NEVER,
        |(), i, rows| {
            let (places, values) = x.row(i);
            let from = places.partition_point(|&j| (j as usize) < columns.start);
            let to = places.partition_point(|&j| (j as usize) < columns.end);
            for (&j, &x) in places[from..to].iter().zip(&values[from..to]) {
                rows.push(j - columns.start as u32, x);
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
    let write = |cells: &mut Vec<(u32, T)>, i, rows: &mut Rows<T>| {
        let (columns, values) = x.row(i);
        for (&j, &x) in columns.iter().zip(values) {
            let targets = &targets[starts[j as usize]..starts[j as usize + 1]];
            cells.extend(targets.iter().map(|&target| (target, x)));
        }
        cells.sort_unstable_by_key(|&(target, _)| target);
        cells.drain(..).for_each(|(target, x)| rows.push(target, x));
    };
    by_rows(shape, stored_before(x), Vec::new, Stop::NEVER, write)
}

/// The rows at these places, in their order; a place may come again.
///
/// # Panics
/// Where one is outside.
pub fn gather_rows<T: Scalar>(x: &Csr<T>, places: &[usize]) -> Csr<T> {
    let shape = Shape::new(places.len(), x.shape().columns);
    let before = before(places.iter().map(|&place| x.row(place).0.len()));
    by_rows(
        shape,
        |row| before[row],
        || (),
        Stop::NEVER,
        |(), i, rows| {
            let (columns, values) = x.row(places[i]);
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
    let before: Vec<_> = parts.iter().map(stored_before).collect();
    by_rows(
        Shape::new(height, columns),
        |row| before.iter().map(|before| before(row)).sum(),
        || (),
        Stop::NEVER,
        |(), i, rows| {
            let mut left = 0;
            for part in parts {
                let (columns, values) = part.row(i);
                for (&j, &x) in columns.iter().zip(values) {
                    rows.push(left + j, x);
                }
                left += part.shape().columns as u32;
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
        |row| before[row],
        || (),
        Stop::NEVER,
        |(), i, rows| {
            let (part, i) = places[i];
            let (columns, values) = parts[part].row(i);
            rows.extend(columns, values);
        },
    )
}

/// The Kronecker product: each cell of `x` times the whole of `y`.
pub fn kron<T: Real>(x: &Csr<T>, y: &Csr<T>, stop: Stop<'_>) -> Csr<T> {
    let (height, width) = (y.shape().rows, y.shape().columns);
    let shape = Shape::new(x.shape().rows * height, x.shape().columns * width);
    let (x_before, y_before) = (stored_before(x), stored_before(y));
    let before = |row: usize| {
        let (i, k) = (row / height.max(1), row % height.max(1));
        let own = if k > 0 { (x_before(i + 1) - x_before(i)) * y_before(k) } else { 0 };
        x_before(i).saturating_mul(y.stored()).saturating_add(own)
    };
    by_rows(
        shape,
        before,
        || (),
        stop,
        |(), i, rows| {
            let (left, right) = (x.row(i / height), y.row(i % height));
            let is_finite = |(_, values): (&[u32], &[T])| values.iter().all(|x| x.is_finite());
            if is_finite(left) && is_finite(right) {
                for (&j, &x) in left.0.iter().zip(left.1) {
                    for (&k, &y) in right.0.iter().zip(right.1) {
                        rows.push(j * width as u32 + k, x * y);
                    }
                }
            } else {
                // NaN and infinities meet the cells that are not stored too.
                let (left, right) = (in_full(left, x.shape().columns), in_full(right, width));
                for (j, &x) in left.iter().enumerate() {
                    for (k, &y) in right.iter().enumerate() {
                        rows.push((j * width + k) as u32, x * y);
                    }
                }
            }
        },
    )
}

/// Every cell of a row.
fn in_full<T: Real>((columns, values): (&[u32], &[T]), width: usize) -> Vec<T> {
    let mut cells = vec![T::ZERO; width];
    columns.iter().zip(values).for_each(|(&j, &x)| cells[j as usize] = x);
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
