//! The Cholesky factor of a matrix that memory has no room for, by tiles.
//!
//! Columns of tiles are made from the left to the right, each tile once: what the columns before it take from it is
//! subtracted, product by product, and it is factored or solved with. A tile of the result is written once, and tiles to
//! its left are read once for each tile of their rows: 2n³ / 3t cells for tiles of side t (left-looking; Toledo and
//! Gustavson, *The design and implementation of SOLAR*, IOPADS 1996).

use std::ops::Range;

use faer::Accum;
use faer::prelude::IntoConst;

use super::super::dense::tiles::{load, room_cells, store};
use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, dense, view_mut};
use super::cholesky::{NoPivot, factor};
use super::triangular::{Diagonal, Triangle, solve_triangular};
use super::{by_columns, check_finite, side};
use crate::error::{ErrorKind, Result};
use crate::matrix::{CellBuffer, Dense, Shape};
use crate::memory;

/// Tiles in memory at once: the one that is made, two that are subtracted from it, and the factor on the diagonal.
const TILES: usize = 4;

/// Side of a tile, at least.
const SIDE_MIN: usize = 256;

/// Whether matrices go by tiles: one is in a file, or memory has no room for a copy and a result of all of them.
pub(super) fn goes_by_tiles<T: Real>(all: &[&Dense<T>]) -> bool {
    let bytes_of = |x: &&Dense<T>| bytemuck::cast_slice::<T, u8>(x.cells()).len();
    let bytes = all.iter().map(bytes_of).fold(0, usize::saturating_add);
    all.iter().any(|x| memory::is_on_disk(bytemuck::cast_slice(x.cells())))
        || !memory::has_room(bytes.saturating_mul(2))
}

/// The lower triangular factor.
///
/// # Errors
/// As those of the factor in memory.
pub(super) fn cholesky<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    check_finite("cholesky", a)?;
    let n = side(a);
    let fits = ((room_cells::<T>() / TILES) as f64).sqrt() as usize;
    let step = n.div_ceil(n.div_ceil(fits.max(SIDE_MIN)).max(1)).max(1);
    let ranges = || (0..n).step_by(step).map(|start| start..n.min(start + step));
    let mut l = CellBuffer::zeroed(n * n);
    let tile = || CellBuffer::<T>::arbitrary(step * step);
    let [mut made, mut left, mut above] = [tile(), tile(), tile()];
    let grain = Grain::factor(stop);
    for columns in ranges() {
        let mut diagonal = None;
        for rows in ranges().filter(|rows| rows.start >= columns.start) {
            let shape = Shape::new(rows.len(), columns.len());
            let made = &mut made[..shape.cells()];
            load(a.cells(), n, &rows, &columns, made);
            for inner in ranges().take_while(|inner| inner.start < columns.start) {
                stop.check()?;
                let read = |of: &Range<usize>, copy: &mut [T]| load(&l, n, of, &inner, copy);
                let left = &mut left[..rows.len() * inner.len()];
                let above = &mut above[..columns.len() * inner.len()];
                read(&rows, left);
                read(&columns, above);
                let left = view_mut(left, Shape::new(rows.len(), inner.len()));
                let above = view_mut(above, Shape::new(columns.len(), inner.len()));
                let made = view_mut(made, shape);
                let above = above.into_const().transpose();
                multiply(made, Accum::Add, left.into_const(), above, -T::ONE, grain);
            }
            match &diagonal {
                None => {
                    let mut of = by_columns(view_mut(made, shape).into_const());
                    factor(of.as_mut(), stop).map_err(|NoPivot { index, value }| {
                        let (pivot, value) = (columns.start + index + 1, value.to_f64());
                        ErrorKind::NotPositiveDefinite { shape: a.shape(), pivot, value }
                    })?;
                    let mut made = view_mut(made, shape);
                    for j in 0..shape.columns {
                        for i in 0..shape.rows {
                            made[(i, j)] = if i < j { T::ZERO } else { of[(i, j)] };
                        }
                    }
                    diagonal = Some(of);
                }
                Some(of) => {
                    let made = view_mut(made, shape).transpose_mut();
                    solve_triangular(of.as_ref(), Triangle::Lower, Diagonal::Stored, made, stop);
                }
            }
            stop.check()?;
            store(made, &rows, &columns, &mut l, n);
        }
    }
    Ok(dense(a.shape(), l))
}

#[cfg(test)]
mod tests {
    use super::super::super::dense::gram;
    use super::super::super::testing::*;
    use super::super::cholesky as of_any;
    use super::*;
    use crate::matrix::tier::testing::on_disk;

    #[test]
    fn a_factor_by_tiles_is_that_of_the_definition() {
        let mut rng = rng(21);
        let x = random::<f64>(&mut rng, 1500, 900);
        let a = gram(&x, Stop::NEVER);
        let expected = of_any(&a, Stop::NEVER).unwrap();
        for room_bytes in [0, 5 << 20] {
            let found = on_disk(room_bytes, |put| {
                let a = put(&a);
                assert!(goes_by_tiles(&[&a]));
                of_any(&a, Stop::NEVER).unwrap()
            });
            assert_close(&found, &expected, 1e4);
        }
    }

    #[test]
    fn the_first_pivot_that_is_none_is_named_by_tiles_too() {
        let mut cells = vec![0.0; 800 * 800];
        (0..800).for_each(|i| cells[i * 801] = if i == 700 { -2.0 } else { 1.0 });
        let a = Dense::new(Shape::new(800, 800), cells.into());
        let error = on_disk(0, |put| of_any(&put(&a), Stop::NEVER).unwrap_err());
        let expected = of_any(&a, Stop::NEVER).unwrap_err();
        assert_eq!(error.to_string(), expected.to_string());
    }
}
