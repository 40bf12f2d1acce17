//! A symmetric matrix reduced to three diagonals by reflections: `a = q·t·t(q)`.
//!
//! Half of the work is one product of what is left with a vector for each column, which reads the
//! lower triangle once, from memory; the other half, the reflections of a panel applied to what is
//! left, is a product of matrices.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §8.3.1; Dongarra, Hammarling and
//! Sorensen, *Block reduction of matrices to condensed forms*, LAPACK Working Note 2.

use std::ops::Range;

use faer::{Mat, MatRef};
use rayon::prelude::*;

use super::super::super::dot::dot;
use super::super::super::gemm::{Grain, multiply_lower};
use super::super::super::{Real, Stop, add_into};
use super::super::Unfinished;
use super::super::columns::{
    PANEL, WIDTH, add_columns, beside, column, column_mut, dot_and_add, dots, group, strips,
};
use super::super::reflections::{Reflections, reflect};

/// The three diagonals and what turns them back.
pub(super) struct Tridiagonal<T> {
    pub(super) diagonal: Vec<T>,
    pub(super) below: Vec<T>,
    cells: Mat<T>,
    scales: Vec<T>,
}

impl<T: Real> Tridiagonal<T> {
    /// Of a symmetric matrix that is not empty, of which the lower triangle is read.
    pub(super) fn of(cells: Mat<T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let n = cells.nrows();
        let mut found = Self {
            diagonal: vec![T::ZERO; n],
            below: vec![T::ZERO; n - 1],
            cells,
            scales: vec![T::ZERO; n - 1],
        };
        let mut panel =
            Panel { v: Mat::zeros(n, PANEL), w: Mat::zeros(n, PANEL), parts: Vec::new() };
        for left in (0..n).step_by(PANEL) {
            let right = n.min(left + PANEL);
            for j in left..right {
                Unfinished::check(stop)?;
                found.reflect(&mut panel, j, j - left);
            }
            if right < n {
                let (vw, wv) =
                    (beside(&panel.v, &panel.w, right), beside(&panel.w, &panel.v, right));
                let rest = found.cells.as_mut().submatrix_mut(right, right, n - right, n - right);
                multiply_lower(rest, vw.as_ref(), wv.transpose(), -T::ONE, Grain::factor(stop));
            }
        }
        Ok(found)
    }

    /// Brings column j up to date, as `k` columns of the panel came before, and reflects what is
    /// below.
    fn reflect(&mut self, panel: &mut Panel<T>, j: usize, k: usize) {
        let rows = self.cells.nrows() - j;
        let (v, w) = (panel.v.subcols(0, k), panel.w.subcols(0, k));
        let (mut on_v, mut on_w) = ([T::ZERO; PANEL], [T::ZERO; PANEL]);
        for i in 0..k {
            (on_v[i], on_w[i]) = (v[(j, i)], w[(j, i)]);
        }
        let x = &mut column_mut(self.cells.as_mut(), j)[j..];
        add_columns(x, v.subrows(j, rows), &on_w[..k], -T::ONE);
        add_columns(x, w.subrows(j, rows), &on_v[..k], -T::ONE);
        self.diagonal[j] = x[0];
        if rows == 1 {
            return;
        }
        let (next, rows) = (j + 1, rows - 1);
        let (below, scale) = reflect(&mut x[1..]);
        (self.below[j], self.scales[j]) = (below, scale);

        let x = &column(self.cells.as_ref(), j)[next..];
        let mut y = vec![T::ZERO; rows];
        let rest = self.cells.as_ref().submatrix(next, next, rows, rows);
        multiply_symmetric(rest, x, &mut y, &mut panel.parts);
        let (v, w) = (v.subrows(next, rows), w.subrows(next, rows));
        dots(v, x, &mut on_v[..k]);
        dots(w, x, &mut on_w[..k]);
        add_columns(&mut y, v, &on_w[..k], -T::ONE);
        add_columns(&mut y, w, &on_v[..k], -T::ONE);
        let along = scale * scale * dot(x, &y) / (T::ONE + T::ONE);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = scale * *y - along * x;
        }
        column_mut(panel.v.as_mut(), k)[next..].copy_from_slice(x);
        column_mut(panel.w.as_mut(), k)[next..].copy_from_slice(&y);
    }

    /// The reflections that are `q` but for its first row and column, which are the unit vector.
    pub(super) fn reflections(&self) -> Reflections<'_, T> {
        let rows = self.scales.len();
        Reflections { vectors: self.cells.submatrix(1, 0, rows, rows), scales: &self.scales }
    }
}

/// The reflections of a panel: `a - v·t(w) - w·t(v)` is what the matrix has become.
struct Panel<T> {
    v: Mat<T>,
    w: Mat<T>,
    parts: Vec<T>,
}

/// `y = a·x`, where the lower triangle of `a` is read; in `parts`, one for each strip of columns.
fn multiply_symmetric<T: Real>(a: MatRef<'_, T>, x: &[T], y: &mut [T], parts: &mut Vec<T>) {
    let n = x.len();
    let strips = strips(n * n / 2);
    // Of equal areas.
    let cut = |strip: usize| match strips - strip {
        0 => n,
        left => {
            let side = n as f64 * (left as f64 / strips as f64).sqrt();
            (n - (side as usize).min(n)) / WIDTH * WIDTH
        }
    };
    parts.clear();
    parts.resize(n * strips, T::ZERO);
    parts.par_chunks_mut(n).enumerate().with_max_len(1).for_each(|(strip, part)| {
        multiply_strip(a, cut(strip)..cut(strip + 1), x, part);
    });
    for part in parts.chunks(n) {
        add_into(y, part);
    }
}

/// What these columns, on and below the diagonal, add to the product, by rows and by columns.
fn multiply_strip<T: Real>(a: MatRef<'_, T>, columns: Range<usize>, x: &[T], y: &mut [T]) {
    let whole = columns.start + columns.len() / WIDTH * WIDTH;
    for j in (columns.start..whole).step_by(WIDTH) {
        multiply_group::<T, WIDTH>(group(a, j), j, x, y);
    }
    for j in whole..columns.end {
        multiply_group([column(a, j)], j, x, y);
    }
}

fn multiply_group<T: Real, const N: usize>(group: [&[T]; N], j: usize, x: &[T], y: &mut [T]) {
    let weights: [T; N] = std::array::from_fn(|at| x[j + at]);
    let below = j + N;
    let sums = dot_and_add(group.map(|c| &c[below..]), &x[below..], weights, &mut y[below..]);
    for k in 0..N {
        y[j + k] += sums[k] + group[k][j + k] * weights[k];
        for l in k + 1..N {
            y[j + l] += group[k][j + l] * weights[k];
            y[j + k] += group[k][j + l] * weights[l];
        }
    }
}
