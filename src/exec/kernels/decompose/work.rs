//! A matrix that a factorization overwrites, in a kept block of memory, its columns one after another.

use std::ops::Index;

use faer::{MatMut, MatRef};
use rayon::prelude::*;

use super::super::{Real, dense, view};
use super::{check_finite, fill, refuse_infinite};
use crate::error::Result;
use crate::matrix::{CellBuffer, Dense, Shape};

/// Cells that one task copies.
const TASK_CELLS: usize = 1 << 15;

/// A copy that is worked on in place.
#[derive(Debug)]
pub(super) struct Work<T> {
    cells: CellBuffer<T>,
    shape: Shape,
}

impl<T: Real> Work<T> {
    /// The cells of `x`.
    ///
    /// # Errors
    /// A cell that is not finite.
    pub(super) fn copy(function: &'static str, x: &Dense<T>) -> Result<Self> {
        check_finite(function, x)?;
        let mut cells = CellBuffer::arbitrary(x.shape().cells());
        let (m, n) = (x.shape().rows, x.shape().columns);
        fill(MatMut::from_column_major_slice_mut(&mut cells, m, n), view(x));
        Ok(Self { cells, shape: x.shape() })
    }

    /// The cells of the transpose of `x`, which has them in this order: nothing waits for columns that lie apart.
    ///
    /// # Errors
    /// A cell that is not finite.
    pub(super) fn transposed(function: &'static str, x: &Dense<T>) -> Result<Self> {
        let mut cells = CellBuffer::arbitrary(x.shape().cells());
        let are_finite = cells
            .par_chunks_mut(TASK_CELLS)
            .zip(x.cells().par_chunks(TASK_CELLS))
            .map(|(to, from)| {
                to.copy_from_slice(from);
                from.iter().fold(true, |all, x| all & x.is_finite())
            })
            .reduce(|| true, |one, other| one & other);
        if !are_finite {
            return Err(refuse_infinite(function, x.shape()));
        }
        Ok(Self { cells, shape: x.shape().transposed() })
    }

    /// Ones on the diagonal.
    pub(super) fn identity(side: usize) -> Self {
        let mut cells = CellBuffer::zeroed(side * side);
        cells.iter_mut().step_by(side + 1).for_each(|x| *x = T::ONE);
        Self { cells, shape: Shape::new(side, side) }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn view(&self) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(&self.cells, self.shape.rows, self.shape.columns)
    }

    pub(super) fn view_mut(&mut self) -> MatMut<'_, T> {
        MatMut::from_column_major_slice_mut(&mut self.cells, self.shape.rows, self.shape.columns)
    }

    /// The transpose as a matrix.
    pub(super) fn into_transpose(self) -> Dense<T> {
        dense(self.shape.transposed(), self.cells)
    }
}

impl<T: Real> Index<(usize, usize)> for Work<T> {
    type Output = T;

    fn index(&self, (i, j): (usize, usize)) -> &T {
        &self.cells[j * self.shape.rows + i]
    }
}
