//! Factorizations of tall matrices that memory has no room for, by blocks of rows.
//!
//! Each block is factored by itself, its R put below the others', and those factored again: the R of that is the R of
//! the whole, and a block of the whole's Q is that of the block times a block of the second one's. So a matrix is
//! read once for R, and Q is read and written once more.
//!
//! ```text
//! a₁ = q₁·r₁     r₁
//! a₂ = q₂·r₂     r₂  = p·r          q = q₁·p₁  below it  q₂·p₂  below it  q₃·p₃
//! a₃ = q₃·r₃     r₃
//! ```
//!
//! Blocks follow from the shape, and so do the bits, whatever the number of threads; they differ in their last digits
//! from those of a factorization in memory.
//!
//! Source: Demmel, Grigori, Hoemmen and Langou, *Communication-optimal parallel and sequential QR and LU
//! factorizations*, SIAM J. Sci. Comput. 34 (2012), §2.

use std::ops::Range;

use rayon::prelude::*;

use super::super::dense::{hstack, product, product_into, vstack};
use super::super::{Real, Stop, dense};
use super::orthogonal::{Qr, factored, triangle};
use super::spectral::Svd;
use crate::error::{Error, Result};
use crate::matrix::{CellBuffer, Dense, Shape};
use crate::memory;

/// How many times as tall as wide a matrix is at least, for its blocks to be much taller than wide.
const TALL: usize = 16;

/// Cells of a block: 2 MiB of `f64`, of which each thread holds some copies.
const BLOCK_CELLS: usize = 1 << 18;

/// Rows of a block for each of its columns, at least: so much smaller is what is factored next.
const BLOCK_TALL: usize = 4;

/// Whether a matrix of this shape may go by blocks of rows.
pub fn is_tall(shape: Shape) -> bool {
    shape.rows >= TALL * shape.columns.max(1)
}

/// Whether it does: it is in a file, or memory has no room for the copies of its factors.
pub(super) fn goes_by_blocks<T: Real>(a: &Dense<T>) -> bool {
    let bytes: &[u8] = bytemuck::cast_slice(a.cells());
    let has_room = || memory::has_room(bytes.len().saturating_mul(3));
    is_tall(a.shape()) && (memory::is_on_disk(bytes) || !has_room())
}

/// The rows of each block; the last is up to twice as tall.
fn blocks(shape: Shape) -> Vec<Range<usize>> {
    let columns = shape.columns.max(1);
    let height = (BLOCK_CELLS / columns).max(BLOCK_TALL * columns);
    let count = (shape.rows / height).max(1);
    let end = |at: usize| if at + 1 == count { shape.rows } else { (at + 1) * height };
    (0..count).map(|at| at * height..end(at)).collect()
}

/// The cells of each block of rows so wide.
fn parts<'a, T>(mut cells: &'a mut [T], blocks: &[Range<usize>], width: usize) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(blocks.len());
    for block in blocks {
        let (part, rest) = cells.split_at_mut(block.len() * width);
        parts.push(part);
        cells = rest;
    }
    parts
}

fn let_go<T: Real>(cells: &[T]) {
    memory::done_with(bytemuck::cast_slice(cells));
}

/// The R of a matrix, and of one beside it.
///
/// # Errors
/// A cell that is not finite.
pub(super) fn triangle_beside<T: Real>(
    function: &'static str,
    a: &Dense<T>,
    beside: Option<&Dense<T>>,
    stop: Stop<'_>,
) -> Result<Dense<T>> {
    let whole =
        Shape::new(a.shape().rows, a.shape().columns + beside.map_or(0, |b| b.shape().columns));
    let blocks = blocks(whole);
    let of_block = |rows: &Range<usize>| {
        stop.check()?;
        let block = a.rows(rows.clone());
        let r = match beside {
            None => triangle(function, &block, stop)?,
            Some(b) => triangle(function, &hstack(&[block.clone(), b.rows(rows.clone())]), stop)?,
        };
        let_go(block.cells());
        Ok(r)
    };
    let triangles: Vec<Dense<T>> = blocks.par_iter().map(of_block).collect::<Result<_>>()?;
    let [first, _, ..] = triangles.as_slice() else { return Ok(vstack(triangles)) };
    let columns = first.shape().columns;
    debug_assert!(columns == whole.columns, "blocks are taller than wide");
    triangle_beside(function, &vstack(triangles), None, stop)
}

/// Both thin factors.
///
/// # Errors
/// A cell that is not finite.
pub(super) fn qr<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Qr<T>> {
    let (blocks, n) = (blocks(a.shape()), a.shape().columns);
    let Halves { mut q, top } = halves(a, &blocks, stop)?;
    let Some(top) = top else { return factored(a, stop) };
    let turn = |(at, part): (usize, &mut [T])| {
        stop.check()?;
        let block = dense(Shape::new(part.len() / n, n), part.to_vec());
        product_into(&block, &top.q.rows(at * n..(at + 1) * n), part, stop);
        let_go(part);
        Ok::<_, Error>(())
    };
    parts(&mut q, &blocks, n).into_par_iter().enumerate().try_for_each(turn)?;
    stop.check()?;
    Ok(Qr { q: dense(a.shape(), q), r: top.r })
}

/// The singular value decomposition, by that of R.
///
/// # Errors
/// A cell that is not finite; no convergence.
pub(super) fn svd<T: Real>(
    a: &Dense<T>,
    of_small: impl Fn(&Dense<T>) -> Result<Svd<T>>,
    stop: Stop<'_>,
) -> Result<Svd<T>> {
    let (blocks, n) = (blocks(a.shape()), a.shape().columns);
    let Halves { mut q, top } = halves(a, &blocks, stop)?;
    let Some(top) = top else { return of_small(a) };
    let Svd { u: inner, s, vt } = of_small(&top.r)?;
    let turned = product(&top.q, &inner, stop);
    let width = inner.shape().columns;
    let shape = Shape::new(a.shape().rows, width);
    let mut u = CellBuffer::arbitrary(shape.cells());
    let places = parts(&mut q, &blocks, n).into_iter().zip(parts(&mut u, &blocks, width));
    let turn = |(at, (q, u)): (usize, (&mut [T], &mut [T]))| {
        stop.check()?;
        let block = dense(Shape::new(q.len() / n, n), q.to_vec());
        let_go(q);
        product_into(&block, &turned.rows(at * n..(at + 1) * n), u, stop);
        let largest = largest(u, width);
        let_go(u);
        Ok(largest)
    };
    let places: Vec<(&mut [T], &mut [T])> = places.collect();
    let largest: Vec<Vec<T>> =
        places.into_par_iter().enumerate().map(turn).collect::<Result<_>>()?;
    drop(q);
    let mut vt = vt.cells().to_vec();
    let are_negative = negative_columns(&largest);
    for (row, _) in vt.chunks_mut(n).zip(&are_negative).filter(|(_, is_negative)| **is_negative) {
        row.iter_mut().for_each(|x| *x = -*x);
    }
    if are_negative.contains(&true) {
        parts(&mut u, &blocks, width).into_par_iter().for_each(|u| {
            negate_columns(u, &are_negative);
            let_go(u);
        });
    }
    stop.check()?;
    Ok(Svd { u: dense(shape, u), s, vt: dense(Shape::new(width, n), vt) })
}

/// Whether the cell of the largest magnitude is negative in each column, given those of some blocks of rows.
pub(super) fn negative_columns<T: Real>(largest: &[Vec<T>]) -> Vec<bool> {
    let width = largest.first().map_or(0, Vec::len);
    let of_column = |j: usize| largest.iter().map(move |block| block[j]);
    let larger = |most: T, x: T| if x.abs() > most.abs() { x } else { most };
    (0..width).map(|j| of_column(j).reduce(larger).is_some_and(|most| most < T::ZERO)).collect()
}

pub(super) fn negate_columns<T: Real>(cells: &mut [T], which: &[bool]) {
    for row in cells.chunks_mut(which.len().max(1)) {
        let cells = row.iter_mut().zip(which);
        cells.filter(|(_, is_negated)| **is_negated).for_each(|(x, _)| *x = -*x);
    }
}

/// The cell of the largest magnitude in each column, the first of equals.
pub(super) fn largest<T: Real>(cells: &[T], width: usize) -> Vec<T> {
    let mut largest = vec![T::ZERO; width];
    for row in cells.chunks(width.max(1)) {
        for (largest, &x) in largest.iter_mut().zip(row) {
            if x.abs() > largest.abs() {
                *largest = x;
            }
        }
    }
    largest
}

/// The Q of each block, below one another, and the factors of all their R.
struct Halves<T: Real> {
    q: CellBuffer<T>,
    /// None where there is one block alone.
    top: Option<Qr<T>>,
}

fn halves<T: Real>(a: &Dense<T>, blocks: &[Range<usize>], stop: Stop<'_>) -> Result<Halves<T>> {
    if blocks.len() == 1 || a.shape().columns == 0 {
        return Ok(Halves { q: CellBuffer::arbitrary(0), top: None });
    }
    let mut q = CellBuffer::arbitrary(a.shape().cells());
    let of_block = |(rows, part): (&Range<usize>, &mut [T])| {
        stop.check()?;
        let block = a.rows(rows.clone());
        let of = factored(&block, stop)?;
        part.copy_from_slice(of.q.cells());
        let_go(part);
        let_go(block.cells());
        Ok(of.r)
    };
    let places = parts(&mut q, blocks, a.shape().columns);
    let triangles: Vec<Dense<T>> =
        blocks.par_iter().zip(places).map(of_block).collect::<Result<_>>()?;
    let triangles = vstack(triangles);
    // Of many blocks of a wide matrix what is left is tall again.
    let is_large = blocks.len() > BLOCK_TALL && triangles.shape().cells() > 2 * BLOCK_CELLS;
    let top = if is_large { qr(&triangles, stop)? } else { factored(&triangles, stop)? };
    Ok(Halves { q, top: Some(top) })
}

#[cfg(test)]
mod tests {
    use super::super::super::dense::{cross, gram};
    use super::super::super::testing::*;
    use super::super::{least_squares, qr, rank, svd};
    use super::*;
    use crate::matrix::tier::testing::on_disk;

    const SHAPE: [usize; 2] = [70_000, 40];

    #[test]
    fn a_tall_matrix_in_a_file_is_factored_as_one_in_memory() {
        let mut rng = rng(11);
        let a = random::<f64>(&mut rng, SHAPE[0], SHAPE[1]);
        let b = random::<f64>(&mut rng, SHAPE[0], 2);
        assert!(blocks(a.shape()).len() > 1);
        let (expected, of_svd) =
            (qr(&a, Stop::NEVER).unwrap(), svd(&a, None, Stop::NEVER).unwrap());
        let solved = least_squares(&a, &b, Stop::NEVER).unwrap();
        on_disk(8 << 20, |put| {
            let (x, y) = (put(&a), put(&b));
            assert!(goes_by_blocks(&x));
            let found = qr(&x, Stop::NEVER).unwrap();
            assert_close(&found.r, &expected.r, 1e4);
            assert_close(&found.q, &expected.q, 1e4);
            assert_close(
                &gram(&found.q, Stop::NEVER),
                &build(40, 40, |i, j| f64::from(u8::from(i == j))),
                100.0,
            );
            let found = svd(&x, None, Stop::NEVER).unwrap();
            assert_close(&found.s, &of_svd.s, 1e4);
            assert_close(&found.u, &of_svd.u, 1e6);
            assert_close(&found.vt, &of_svd.vt, 1e6);
            let few = svd(&x, Some(3), Stop::NEVER).unwrap();
            assert_eq!(
                (few.u.shape(), few.vt.shape()),
                (Shape::new(SHAPE[0], 3), Shape::new(3, 40))
            );
            assert_close(&least_squares(&x, &y, Stop::NEVER).unwrap(), &solved, 1e4);
            assert_eq!(rank(&x, Stop::NEVER).unwrap().cells(), [40.0]);
        });
    }

    #[test]
    fn columns_that_depend_on_one_another_are_seen_by_blocks_too() {
        let mut rng = rng(12);
        let half = random::<f64>(&mut rng, SHAPE[0], SHAPE[1] / 2);
        let a = hstack(&[half.clone(), half]);
        let b = random::<f64>(&mut rng, SHAPE[0], 1);
        let solved = least_squares(&a, &b, Stop::NEVER).unwrap();
        on_disk(8 << 20, |put| {
            let (x, y) = (put(&a), put(&b));
            assert_eq!(rank(&x, Stop::NEVER).unwrap().cells(), [20.0]);
            assert_close(&least_squares(&x, &y, Stop::NEVER).unwrap(), &solved, 1e5);
            let found = qr(&x, Stop::NEVER).unwrap();
            let again = cross(&found.q, &x, Stop::NEVER);
            assert_close(&again, &found.r, 1e5);
        });
    }

    #[test]
    fn a_cell_that_is_not_finite_is_an_error_in_any_block() {
        let mut cells = vec![1.0; SHAPE[0] * SHAPE[1]];
        cells[SHAPE[1] * (SHAPE[0] - 1)] = f64::NAN;
        let a = Dense::new(Shape::new(SHAPE[0], SHAPE[1]), cells.into());
        on_disk(8 << 20, |put| {
            let x = put(&a);
            assert!(qr(&x, Stop::NEVER).is_err() && svd(&x, None, Stop::NEVER).is_err());
            assert!(rank(&x, Stop::NEVER).is_err());
        });
    }
}
