//! Where the largest cell is: the first of them, counted from 0, or the first `NaN`.

use std::ops::Range;

use super::super::{Real, Stop, dense, fold_blocks, sparse};
use super::{Axis, BLOCK_CELLS};
use crate::matrix::{Csr, Dense, Shape, Storage};

/// A largest value so far, and its place.
type Largest<T> = (T, usize);

/// The places of the largest cells; `NaN` where there is no cell.
pub(super) fn of_largest<T: Real>(x: &Storage<T>, axis: Axis) -> Dense<T> {
    let (m, n) = (x.shape().rows, x.shape().columns);
    let written = |shape: Shape, largest: Vec<Largest<T>>, cells: usize| {
        let place = |(_, at): Largest<T>| T::from_f64(at as f64);
        let place = |largest| if cells == 0 { T::NAN } else { place(largest) };
        dense(shape, largest.into_iter().map(place).collect::<Vec<_>>())
    };
    let rows = |x: &Storage<T>| match x {
        Storage::Dense(x) => of_dense_rows(x),
        Storage::Csr(x) => of_sparse_rows(x),
    };
    match (x, axis) {
        (_, Axis::Rows) => written(Shape::new(m, 1), rows(x), n),
        (_, Axis::All) => {
            let of_rows = rows(x).into_iter().enumerate();
            let places = of_rows.map(|(i, (value, at))| (value, i * n + at));
            let largest = places.reduce(larger).unwrap_or((T::NAN, 0));
            written(Shape::new(1, 1), vec![largest], m * n)
        }
        (Storage::Dense(x), Axis::Columns) => written(Shape::new(1, n), of_columns(x), m),
        (Storage::Csr(x), Axis::Columns) => {
            let turned = Storage::Csr(sparse::transpose(x, Stop::NEVER));
            written(Shape::new(1, n), rows(&turned), m)
        }
    }
}

/// The larger of two; of equals the earlier, which is the first.
fn larger<T: Real>(a: Largest<T>, b: Largest<T>) -> Largest<T> {
    if exceeds(b.0, a.0) { b } else { a }
}

/// Whether `a` replaces `b` as the largest so far: a `NaN` does unless there is one already.
fn exceeds<T: Real>(a: T, b: T) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

fn of_dense_rows<T: Real>(x: &Dense<T>) -> Vec<Largest<T>> {
    let grain = BLOCK_CELLS / x.shape().columns.max(1) + 1;
    let block = |rows: Range<usize>| rows.map(|i| of_cells(x.row(i))).collect::<Vec<_>>();
    let join = |mut top: Vec<_>, bottom: Vec<_>| {
        top.extend(bottom);
        top
    };
    fold_blocks(x.shape().rows, grain, &block, &join).unwrap_or_default()
}

/// Those of a long row piece by piece.
fn of_sparse_rows<T: Real>(x: &Csr<T>) -> Vec<Largest<T>> {
    let mut rows: Vec<Largest<T>> = Vec::with_capacity(x.shape().rows);
    for (row, piece) in sparse::of_pieces(x, of_stored) {
        match rows.get_mut(row) {
            Some(largest) => *largest = larger(*largest, piece),
            None => rows.push(piece),
        }
    }
    rows
}

/// Two passes: the first finds the value without a branch, in lanes.
fn of_cells<T: Real>(x: &[T]) -> Largest<T> {
    let (mut lanes, mut poison) = ([-T::INFINITY; 8], [T::ZERO; 8]);
    let chunks = x.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..8 {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
            // Zero but for infinities and NaN.
            poison[i] += chunk[i] * T::ZERO;
        }
    }
    let most = |most: T, &x: &T| if x > most { x } else { most };
    let largest = rest.iter().fold(lanes.iter().fold(-T::INFINITY, most), most);
    let finite = poison.iter().chain(rest).all(|x| !x.is_nan());
    let nan = || x.iter().position(|x| x.is_nan());
    if let Some(at) = if finite { None } else { nan() } {
        return (T::NAN, at);
    }
    (largest, x.iter().position(|&x| x == largest).unwrap_or(0))
}

/// Of what a row stores in these columns, and the zeros beside it.
fn of_stored<T: Real>((columns, values): (&[u32], &[T]), range: Range<usize>) -> Largest<T> {
    let (value, at) = of_cells(values);
    let place = columns.get(at).map_or(0, |&column| column as usize);
    if values.len() == range.len() {
        return (value, place);
    }
    // The first cell that is not stored, which is zero.
    let is_gap = |&at: &usize| columns[at] as usize != range.start + at;
    let gap = (0..columns.len()).find(is_gap).unwrap_or(columns.len());
    let gap = range.start + gap;
    if exceeds(T::ZERO, value) || (value == T::ZERO && gap < place) {
        (T::ZERO, gap)
    } else {
        (value, place)
    }
}

fn of_columns<T: Real>(x: &Dense<T>) -> Vec<Largest<T>> {
    let n = x.shape().columns;
    let block = |rows: Range<usize>| {
        let mut largest = vec![(-T::INFINITY, rows.start); n];
        for i in rows {
            for (largest, &x) in largest.iter_mut().zip(x.row(i)) {
                if exceeds(x, largest.0) {
                    *largest = (x, i);
                }
            }
        }
        largest
    };
    let merge = |top: Vec<Largest<T>>, bottom: Vec<Largest<T>>| {
        top.into_iter().zip(bottom).map(|(a, b)| larger(a, b)).collect()
    };
    let grain = (BLOCK_CELLS / n.max(1)).max(256);
    fold_blocks(x.shape().rows, grain, &block, &merge).unwrap_or_else(|| vec![(T::NAN, 0); n])
}
