//! A square matrix reduced to Hessenberg form by reflections: `a = q·h·t(q)`, `h` zero below the diagonal
//! beside the main one.
//!
//! For each column what is left is read once, from memory, for a product with a vector, which is a fifth of the
//! work; the reflections of a panel are applied by products of matrices.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §7.4; Quintana-Ortí and van de Geijn, *ACM
//! Trans. Math. Software* 32 (2006), 180–194, for how little a column needs of those before it.

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatRef};
use rayon::prelude::*;

use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::super::columns::{PANEL, add_columns, column, column_mut, dots};
use super::super::reflections::{Reflections, reflect};

/// The reduced matrix, and below it the reflections that reduced it.
pub(super) struct Hessenberg<T> {
    cells: Mat<T>,
    scales: Vec<T>,
}

/// The reflections of a panel of columns, from the row below its first one on: what is left has become
/// `(1 - v·t(t)·t(v))·(a - y·t(v))`.
struct Panel<T> {
    v: Mat<T>,
    /// `a·v·t`.
    y: Mat<T>,
    t: Mat<T>,
}

impl<T: Real> Hessenberg<T> {
    pub(super) fn of(cells: Mat<T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let n = cells.nrows();
        let mut found = Self { cells, scales: vec![T::ZERO; n.saturating_sub(2)] };
        let count = found.scales.len();
        for left in (0..count).step_by(PANEL) {
            let width = PANEL.min(count - left);
            let rows = n - left - 1;
            let mut panel = Panel {
                v: Mat::zeros(rows, width),
                y: Mat::zeros(n, width),
                t: Mat::zeros(width, width),
            };
            for k in 0..width {
                Unfinished::check(stop)?;
                found.reflect(&mut panel, left, k);
            }
            found.apply(panel, left, stop);
        }
        Ok(found)
    }

    /// Brings column `left + k` up to date, reflects what is below the diagonal, and adds to the panel.
    fn reflect(&mut self, panel: &mut Panel<T>, left: usize, k: usize) {
        let first = left + 1;
        let rows = self.cells.nrows() - first;
        let (v, y) = (panel.v.subcols(0, k), panel.y.subcols(0, k).subrows(first, rows));
        let x = &mut column_mut(self.cells.as_mut(), left + k)[first..];
        let mut on_v = [T::ZERO; PANEL];
        if k > 0 {
            for (i, weight) in on_v[..k].iter_mut().enumerate() {
                *weight = v[(k - 1, i)];
            }
            add_columns(x, y, &on_v[..k], -T::ONE);
            dots(v, x, &mut on_v[..k]);
            let turned = transposed_times(panel.t.as_ref(), &on_v[..k]);
            add_columns(x, v, &turned[..k], -T::ONE);
        }
        let (below, scale) = reflect(&mut x[k..]);
        self.scales[left + k] = scale;
        column_mut(panel.v.as_mut(), k)[k..].copy_from_slice(&x[k..]);
        x[k] = below;
        if scale == T::ZERO {
            return;
        }

        // Of the rows of the panel only; those above it follow for all of its columns at once.
        let v = column(panel.v.as_ref(), k);
        let mut product = vec![T::ZERO; rows];
        let rest = self.cells.as_ref().submatrix(first, first + k, rows, rows - k);
        multiply_by_rows(rest, &v[k..], &mut product);
        dots(panel.v.subcols(0, k), v, &mut on_v[..k]);
        add_columns(&mut product, panel.y.subcols(0, k).subrows(first, rows), &on_v[..k], -T::ONE);
        let t = times(panel.t.as_ref(), &on_v[..k]);
        for (i, &t) in t[..k].iter().enumerate() {
            panel.t[(i, k)] = -scale * t;
        }
        panel.t[(k, k)] = scale;
        let y = &mut column_mut(panel.y.as_mut(), k)[first..];
        y.iter_mut().zip(product).for_each(|(y, x)| *y = scale * x);
    }

    /// Applies the reflections of a panel to the columns behind it, from both sides, and to the rows above.
    fn apply(&mut self, mut panel: Panel<T>, left: usize, stop: Stop<'_>) {
        let (n, width) = (self.cells.nrows(), panel.t.ncols());
        let (first, right, grain) = (left + 1, left + width, Grain::factor(stop));
        let (v, t) = (panel.v.as_ref(), panel.t.as_ref());
        let above = self.cells.as_ref().submatrix(0, first, first, n - first);
        let mut products = Mat::zeros(first, width);
        multiply(products.as_mut(), Accum::Replace, above, v, T::ONE, grain);
        let y = panel.y.as_mut().subrows_mut(0, first);
        multiply(y, Accum::Replace, products.as_ref(), t, T::ONE, grain);

        let y = panel.y.as_ref();
        if width > 1 {
            let beside = self.cells.as_mut().submatrix_mut(0, first, first, width - 1);
            let v = v.subrows(0, width - 1).transpose();
            multiply(beside, Accum::Add, y.subrows(0, first), v, -T::ONE, grain);
        }
        let mut rest = self.cells.as_mut().subcols_mut(right, n - right);
        let v_rest = v.subrows(width - 1, n - right).transpose();
        multiply(rest.rb_mut(), Accum::Add, y, v_rest, -T::ONE, grain);
        let rest = rest.subrows_mut(first, n - first);
        let mut vt = Mat::zeros(v.nrows(), width);
        multiply(vt.as_mut(), Accum::Replace, v, t, T::ONE, grain);
        let mut products = Mat::zeros(width, n - right);
        multiply(products.as_mut(), Accum::Replace, vt.transpose(), rest.rb(), T::ONE, grain);
        multiply(rest, Accum::Add, v, products.as_ref(), -T::ONE, grain);
    }

    /// `q`, from its last reflections to its first, for what they turn grows.
    pub(super) fn orthogonal(&self, stop: Stop<'_>) -> Mat<T> {
        const BLOCK: usize = 128;
        let n = self.cells.nrows();
        let mut q = Mat::identity(n, n);
        for left in (0..self.scales.len()).step_by(BLOCK).rev() {
            let scales = &self.scales[left..self.scales.len().min(left + BLOCK)];
            let (first, rows) = (left + 1, n - left - 1);
            let vectors = self.cells.submatrix(first, left, rows, scales.len());
            let turned = q.as_mut().submatrix_mut(first, first, rows, rows);
            Reflections { vectors, scales }.apply(turned, stop);
        }
        q
    }

    /// `h` alone.
    pub(super) fn into_matrix(mut self) -> Mat<T> {
        let n = self.cells.nrows();
        for j in 0..n {
            column_mut(self.cells.as_mut(), j)[n.min(j + 2)..].fill(T::ZERO);
        }
        self.cells
    }
}

/// `t·x` for an upper triangular `t`, of which the first columns count.
fn times<T: Real>(t: MatRef<'_, T>, x: &[T]) -> [T; PANEL] {
    let mut product = [T::ZERO; PANEL];
    for (j, &x) in x.iter().enumerate() {
        for (i, sum) in product[..=j].iter_mut().enumerate() {
            *sum += t[(i, j)] * x;
        }
    }
    product
}

/// `t(t)·x`.
fn transposed_times<T: Real>(t: MatRef<'_, T>, x: &[T]) -> [T; PANEL] {
    let mut product = [T::ZERO; PANEL];
    for (j, sum) in product[..x.len()].iter_mut().enumerate() {
        for (i, &x) in x[..=j].iter().enumerate() {
            *sum += t[(i, j)] * x;
        }
    }
    product
}

/// `y = a·x`, in strips of rows.
fn multiply_by_rows<T: Real>(a: MatRef<'_, T>, x: &[T], y: &mut [T]) {
    const STRIP: usize = 256;
    if a.nrows() * a.ncols() < 1 << 14 {
        return add_columns(y, a, x, T::ONE);
    }
    y.par_chunks_mut(STRIP).enumerate().for_each(|(strip, y)| {
        add_columns(y, a.subrows(strip * STRIP, y.len()), x, T::ONE);
    });
}
