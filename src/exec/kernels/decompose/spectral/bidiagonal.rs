//! A matrix at least as tall as wide reduced to two diagonals by reflections: `a = u·b·t(v)`.
//!
//! The reflection of row j is known when all of `t(a)·u` is, and then a product of `a` with it is
//! needed: two passes over memory. But it is known up to its first cell and a factor, both of which
//! can be made good afterwards, so a few columns at a time go through both products while they are
//! in the cache. The reflections of a panel are then applied to what is left as a product of
//! matrices.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §5.4.8; Dongarra, Hammarling and
//! Sorensen, *Block reduction of matrices to condensed forms*, LAPACK Working Note 2; Howell,
//! Demmel, Fulton, Hammarling and Marmol, *Cache efficient bidiagonalization using BLAS 2.5
//! operators*, 2008.

use faer::{Accum, Mat, MatRef};
use rayon::prelude::*;

use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop, add_into};
use super::super::Unfinished;
use super::super::columns::{PANEL, WIDTH, add_columns, beside, column, column_mut, dots, strips};
use super::super::reflections::{Reflections, reflect};

/// The two diagonals and what turns them back.
pub(super) struct Bidiagonal<T> {
    pub(super) diagonal: Vec<T>,
    pub(super) above: Vec<T>,
    cells: Mat<T>,
    left_scales: Vec<T>,
    right_scales: Vec<T>,
}

impl<T: Real> Bidiagonal<T> {
    /// Of a matrix that is not empty.
    pub(super) fn of(cells: Mat<T>, stop: Stop<'_>) -> Result<Self, Unfinished> {
        let (m, n) = (cells.nrows(), cells.ncols());
        let mut found = Self {
            diagonal: vec![T::ZERO; n],
            above: vec![T::ZERO; n - 1],
            cells,
            left_scales: vec![T::ZERO; n],
            right_scales: vec![T::ZERO; n - 1],
        };
        let mut panel = Panel {
            u: Mat::zeros(m, PANEL),
            v: Mat::zeros(n, PANEL),
            x: Mat::zeros(m, PANEL),
            y: Mat::zeros(n, PANEL),
            parts: Vec::new(),
        };
        for left in (0..n).step_by(PANEL) {
            let width = PANEL.min(n - left);
            for k in 0..width {
                Unfinished::check(stop)?;
                found.reflect_column(&panel, left + k, k);
                if left + k + 1 < n {
                    found.reflect_row(&mut panel, left + k, k);
                }
            }
            found.apply(&panel, left, width, stop);
        }
        Ok(found)
    }

    /// Brings column j up to date, as `k` columns of the panel came before, and reflects it.
    fn reflect_column(&mut self, panel: &Panel<T>, j: usize, k: usize) {
        let rows = self.cells.nrows() - j;
        let u = &mut column_mut(self.cells.as_mut(), j)[j..];
        add_columns(u, panel.u.submatrix(j, 0, rows, k), &row(&panel.y, j)[..k], -T::ONE);
        add_columns(u, panel.x.submatrix(j, 0, rows, k), &row(&panel.v, j)[..k], -T::ONE);
        (self.diagonal[j], self.left_scales[j]) = reflect(u);
    }

    /// The same of row j, behind the diagonal; column j of the matrix holds its own reflection.
    fn reflect_row(&mut self, panel: &mut Panel<T>, j: usize, k: usize) {
        let next = j + 1;
        let (rows, columns) = (self.cells.nrows() - j, self.cells.ncols() - next);
        let u = &column(self.cells.as_ref(), j)[j..];
        let (mut on_u, mut on_x) = ([T::ZERO; PANEL], [T::ZERO; PANEL]);
        dots(panel.u.submatrix(j, 0, rows, k), u, &mut on_u[..k]);
        dots(panel.x.submatrix(j, 0, rows, k), u, &mut on_x[..k]);
        let both = Both {
            a: self.cells.as_ref().submatrix(j, next, rows, columns),
            u,
            scale: self.left_scales[j],
            old: [&panel.y, &panel.v].map(|old| old.submatrix(next, 0, columns, k)),
            on_u: [&on_u[..k], &on_x[..k]],
            on_row: [&row(&panel.u, j)[..k], &row(&panel.x, j)[..k]],
        };
        let (mut y, mut v) = (vec![T::ZERO; columns], vec![T::ZERO; columns]);
        let mut x = vec![T::ZERO; rows];
        both.run(&mut y, &mut v, &mut x, &mut panel.parts);
        let first = v[0];
        let (rest, scale) = reflect(&mut v);
        (self.above[j], self.right_scales[j]) = (rest, scale);
        column_mut(panel.u.as_mut(), k)[j..].copy_from_slice(u);
        column_mut(panel.y.as_mut(), k)[next..].copy_from_slice(&y);

        let (x, rows) = (&mut x[1..], rows - 1);
        if scale != T::ZERO {
            // What was reflected is rest·e₀ + pivot·v, and x is a times that, to become a times v.
            let pivot = first - rest;
            let e = &column(self.cells.as_ref(), next)[next..];
            for (x, &e) in x.iter_mut().zip(e) {
                *x = (*x - rest * e) / pivot;
            }
            let (mut on_y, mut on_v) = ([T::ZERO; PANEL], [T::ZERO; PANEL]);
            dots(panel.y.submatrix(next, 0, columns, k + 1), &v, &mut on_y[..k + 1]);
            dots(panel.v.submatrix(next, 0, columns, k), &v, &mut on_v[..k]);
            add_columns(x, panel.u.submatrix(next, 0, rows, k + 1), &on_y[..k + 1], -T::ONE);
            add_columns(x, panel.x.submatrix(next, 0, rows, k), &on_v[..k], -T::ONE);
        }
        column_mut(panel.v.as_mut(), k)[next..].copy_from_slice(&v);
        let to = &mut column_mut(panel.x.as_mut(), k)[next..];
        to.iter_mut().zip(x).for_each(|(to, x)| *to = scale * *x);
    }

    /// Applies the reflections of a panel to what is left, and keeps those of its rows where they
    /// were.
    fn apply(&mut self, panel: &Panel<T>, left: usize, width: usize, stop: Stop<'_>) {
        let (m, n) = (self.cells.nrows(), self.cells.ncols());
        let right = left + width;
        for j in left + 1..n {
            let cells = &mut column_mut(self.cells.as_mut(), j)[left..right.min(j)];
            for (k, cell) in cells.iter_mut().enumerate() {
                *cell = panel.v[(j, k)];
            }
        }
        if right == n {
            return;
        }
        let (ux, yv) = (beside(&panel.u, &panel.x, right), beside(&panel.y, &panel.v, right));
        let rest = self.cells.as_mut().submatrix_mut(right, right, m - right, n - right);
        multiply(rest, Accum::Add, ux.as_ref(), yv.transpose(), -T::ONE, Grain::factor(stop));
    }

    /// The reflections that are `u`.
    pub(super) fn left(&self) -> Reflections<'_, T> {
        Reflections { vectors: self.cells.as_ref(), scales: &self.left_scales }
    }

    /// The reflections that are `v` but for its first row and column, which are the unit vector.
    pub(super) fn right(&self) -> Reflections<'_, T> {
        let rows = self.right_scales.len();
        let vectors = self.cells.submatrix(0, 1, rows, rows).transpose();
        Reflections { vectors, scales: &self.right_scales }
    }
}

/// The reflections of a panel: `a - u·t(y) - x·t(v)` is what the matrix has become.
struct Panel<T> {
    u: Mat<T>,
    v: Mat<T>,
    x: Mat<T>,
    y: Mat<T>,
    parts: Vec<T>,
}

/// A row of a panel, of which the first cells are read.
fn row<T: Real>(x: &Mat<T>, i: usize) -> [T; PANEL] {
    std::array::from_fn(|j| x[(i, j)])
}

/// Both products of one step.
struct Both<'a, T> {
    /// What is left of the matrix as it was before the panel.
    a: MatRef<'a, T>,
    u: &'a [T],
    scale: T,
    /// y and v of the panel, and what they are weighted by in `t(a)·u` and in the first row of `a`.
    old: [MatRef<'a, T>; 2],
    on_u: [&'a [T]; 2],
    on_row: [&'a [T]; 2],
}

impl<T: Real> Both<'_, T> {
    /// `y = τ·t(a)·u`, `row` the first of `a` less y, `x = a·row`, for the `a` that the panel
    /// makes; but for x, to which the panel is not applied. All are zero before.
    fn run(&self, y: &mut [T], row: &mut [T], x: &mut [T], parts: &mut Vec<T>) {
        let (m, n) = (self.a.nrows(), self.a.ncols());
        let width = n.div_ceil(strips(m * n)).next_multiple_of(WIDTH);
        parts.clear();
        parts.resize(m * n.div_ceil(width), T::ZERO);
        let of_columns = y.par_chunks_mut(width).zip(row.par_chunks_mut(width));
        let tasks = parts.par_chunks_mut(m).zip(of_columns).enumerate().with_max_len(1);
        tasks.for_each(|(strip, (part, (y, row)))| self.strip(strip * width, y, row, part));
        for part in parts.chunks(m) {
            add_into(x, part);
        }
    }

    /// The same of some columns, as many as `y` is long.
    fn strip(&self, left: usize, y: &mut [T], row: &mut [T], x: &mut [T]) {
        let a = self.a.subcols(left, y.len());
        for (j, row) in row.iter_mut().enumerate() {
            *row = a[(0, j)];
        }
        for side in 0..2 {
            let old = self.old[side].subrows(left, y.len());
            add_columns(y, old, self.on_u[side], -T::ONE);
            add_columns(row, old, self.on_row[side], -T::ONE);
        }
        for j in (0..y.len()).step_by(WIDTH) {
            let group = j..y.len().min(j + WIDTH);
            let a = a.subcols(j, group.len());
            let mut sums = [T::ZERO; WIDTH];
            dots(a, self.u, &mut sums[..group.len()]);
            for (j, sum) in group.clone().zip(sums) {
                y[j] = self.scale * (y[j] + sum);
                row[j] -= y[j];
            }
            add_columns(x, a, &row[group], T::ONE);
        }
    }
}
