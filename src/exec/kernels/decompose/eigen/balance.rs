//! Rows and columns permuted and scaled before eigenvalues are looked for: `a = p·d·b·d⁻¹·t(p)`.
//!
//! ```text
//!  t x y      t, u: eigenvalues that a permutation alone tells, upper triangular
//!    b z      b: what is left, each row scaled to be about as long as its column
//!      u      d is a diagonal of powers of two, which rounds nothing
//! ```
//!
//! Source: Parlett and Reinsch, *Numer. Math.* 13 (1969), 293–304; James, Langou and Lowery, *On matrix
//! balancing and eigenvector computation*, 2014, for lengths as 2-norms.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::math_utils::min_positive;
use faer::{ColMut, ColRef, Mat, MatMut, MatRef};
use rayon::prelude::*;

use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::super::columns::column;

/// What was permuted and scaled.
pub(super) struct Balance<T> {
    /// Rows, and columns, that changed places, in order.
    swaps: Vec<(usize, usize)>,
    scales: Vec<T>,
}

impl<T: Real> Balance<T> {
    /// Balances `a` in place.
    pub(super) fn of(mut a: MatMut<'_, T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let n = a.nrows();
        let mut found = Self { swaps: Vec::new(), scales: vec![T::ONE; n] };
        let rest = found.permute(a.rb_mut(), stop)?;
        found.scale(a, rest, stop)?;
        Ok(found)
    }

    /// Moves to the end what has no other cell in its row, to the front what has none in its column; gives
    /// the rows between.
    fn permute(
        &mut self,
        mut a: MatMut<'_, T>,
        stop: Stop<'_>,
    ) -> Result<Range<usize>, Unfinished> {
        let mut rest = 0..a.nrows();
        let is_alone = |mut cells: Box<dyn Iterator<Item = (usize, T)> + '_>, at: usize| {
            cells.all(|(k, x)| k == at || x == T::ZERO)
        };
        while let Some(row) = rest
            .clone()
            .rev()
            .find(|&i| is_alone(Box::new(rest.clone().map(|k| (k, a[(i, k)]))), i))
        {
            Unfinished::check(stop)?;
            rest.end -= 1;
            self.swap(a.rb_mut(), row, rest.end);
        }
        while let Some(column) =
            rest.clone().find(|&j| is_alone(Box::new(rest.clone().map(|k| (k, a[(k, j)]))), j))
        {
            Unfinished::check(stop)?;
            self.swap(a.rb_mut(), column, rest.start);
            rest.start += 1;
        }
        Ok(rest)
    }

    fn swap(&mut self, mut a: MatMut<'_, T>, i: usize, j: usize) {
        if i == j {
            return;
        }
        self.swaps.push((i, j));
        swap_rows(a.rb_mut(), i, j);
        swap_rows(a.transpose_mut(), i, j);
    }

    /// Scales until no row is much longer or shorter than its column.
    fn scale(
        &mut self,
        mut a: MatMut<'_, T>,
        rest: Range<usize>,
        stop: Stop<'_>,
    ) -> Result<(), Unfinished> {
        // Mostly nothing is to be done, and then the lengths need not be taken one by one.
        let lengths = lengths(a.rb().submatrix(rest.start, rest.start, rest.len(), rest.len()));
        let mut is_changed = lengths.iter().any(|&(row, column)| factor(row, column).is_some());
        while is_changed {
            is_changed = false;
            for i in rest.clone() {
                Unfinished::check(stop)?;
                let across = a.rb().row(i).transpose().subrows(rest.start, rest.len());
                let row = length(across);
                let column = length(a.rb().col(i).subrows(rest.start, rest.len()));
                let Some(factor) = factor(row, column).map(T::from_f64) else { continue };
                let scale = self.scales[i] * factor;
                if !(scale.is_finite() && scale > min_positive::<T>()) {
                    continue;
                }
                is_changed = true;
                self.scales[i] = scale;
                a.rb_mut().row_mut(i).iter_mut().for_each(|x| *x /= factor);
                a.rb_mut().col_mut(i).iter_mut().for_each(|x| *x *= factor);
            }
        }
        Ok(())
    }

    /// Turns vectors of the balanced matrix into those of the one that was given.
    pub(super) fn undo(&self, mut vectors: MatMut<'_, T>) {
        let turn = |mut vector: ColMut<'_, T>| {
            for (x, &scale) in vector.rb_mut().iter_mut().zip(&self.scales) {
                *x *= scale;
            }
            for &(i, j) in self.swaps.iter().rev() {
                (vector[i], vector[j]) = (vector[j], vector[i]);
            }
        };
        vectors.rb_mut().par_col_iter_mut().for_each(turn);
    }
}

/// The power of two for a column that makes it about as long as its row, unless that is little gain.
fn factor(row: f64, column: f64) -> Option<f64> {
    if row == 0.0 || column == 0.0 {
        return None;
    }
    let factor = ((row / column).sqrt().log2().round()).exp2();
    let is_gain = column * factor + row / factor < 0.95 * (column + row);
    is_gain.then_some(factor)
}

/// The lengths of each row and column, without their cells on the diagonal.
fn lengths<T: Real>(a: MatRef<'_, T>) -> Vec<(f64, f64)> {
    let n = a.nrows();
    let mut squares = Mat::<f64>::zeros(n, 1);
    let mut columns = vec![0.0; n];
    for (j, total) in columns.iter_mut().enumerate() {
        for (&x, row) in column(a, j).iter().zip(squares.as_mut().col_mut(0).iter_mut()) {
            let square = x.to_f64() * x.to_f64();
            *row += square;
            *total += square;
        }
    }
    (0..n).map(|i| (squares[(i, 0)].sqrt(), columns[i].sqrt())).collect()
}

/// The 2-norm.
fn length<T: Real>(x: ColRef<'_, T>) -> f64 {
    let largest = x.iter().fold(0.0f64, |most, x| most.max(x.to_f64().abs()));
    if largest == 0.0 {
        return 0.0;
    }
    largest * x.iter().map(|x| (x.to_f64() / largest).powi(2)).sum::<f64>().sqrt()
}

fn swap_rows<T: Real>(mut a: MatMut<'_, T>, i: usize, j: usize) {
    for k in 0..a.ncols() {
        let (x, y) = (a[(i, k)], a[(j, k)]);
        (a[(i, k)], a[(j, k)]) = (y, x);
    }
}
