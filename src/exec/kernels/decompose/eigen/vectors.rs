//! Eigenvectors of a quasi-triangular matrix, by substitution from the last row up.
//!
//! ```text
//!  (t - λ)·x = 0      x is 1 where its block is, and 0 below it
//! ```
//!
//! Vectors go in groups and rows in blocks: within a block each vector is solved for alone, as each has a shift of
//! its own; what the block takes from the rows above is one product for the group. A vector that grows beyond what
//! its type holds is scaled down as a whole. A shift that meets its own eigenvalue again is moved by the unit of
//! rounding, so a defective matrix has vectors that are nearly parallel.
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §7.6.4; Anderson, *Robust solution of
//! triangular linear systems*, LAPACK Working Note 36, for the scaling.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::traits::math_utils::{max_positive, min_positive};
use faer::{Accum, Mat, MatMut, MatRef};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::super::super::arch::Arch;
use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::super::columns::{column, column_mut};
use super::super::schur::{Pair, Schur, Value, blocks};

/// Rows that are solved one by one, and vectors that go together, but for a pair that is not cut.
const BLOCK: usize = 32;

/// The vectors of `a = z·t·t(z)`, each in the columns of its block: a pair has its real part in the first
/// one and its imaginary part in the second.
pub(super) fn vectors<T: Real>(schur: &Schur<T>, stop: Stop<'_>) -> Mat<T> {
    vectors_by(Arch::new(), schur, stop)
}

pub(super) fn vectors_by<T: Real>(arch: Arch, schur: &Schur<T>, stop: Stop<'_>) -> Mat<T> {
    let (t, z) = (schur.t.as_ref(), schur.z.as_ref());
    let n = t.nrows();
    let groups = groups(&blocks(t));
    let mut vectors = Mat::zeros(n, n);
    let mut parts = Vec::new();
    let mut rest = vectors.as_mut();
    for group in &groups {
        let (part, beyond) = rest.split_at_col_mut(group.len());
        parts.push((group.clone(), part));
        rest = beyond;
    }
    // The last are the longest, and begin first.
    parts.into_par_iter().rev().with_max_len(1).for_each(|(group, part)| {
        let mut x = Mat::zeros(group.end, group.len());
        solve(arch, t, &groups, group.clone(), x.as_mut(), stop);
        let z = z.subcols(0, group.end);
        multiply(part, Accum::Replace, z, x.as_ref(), T::ONE, Grain::factor(stop));
    });
    vectors
}

/// The rows, and columns, in runs of whole blocks.
fn groups(blocks: &[usize]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    for &end in blocks {
        if end - start >= BLOCK || (end > start && Some(&end) == blocks.last()) {
            groups.push(start..end);
            start = end;
        }
    }
    groups
}

/// The vectors of one group, which are zero before.
fn solve<T: Real>(
    arch: Arch,
    t: MatRef<'_, T>,
    groups: &[Range<usize>],
    group: Range<usize>,
    mut x: MatMut<'_, T>,
    stop: Stop<'_>,
) {
    let grain = Grain::factor(stop);
    for rows in groups.iter().rev().skip_while(|rows| rows.start > group.start) {
        if stop.is_asked() {
            return;
        }
        let mut at = group.start;
        while at < group.end {
            let width = if is_pair(t, at) { 2 } else { 1 };
            let cells = x.rb_mut().subcols_mut(at - group.start, width);
            arch.dispatch(Solve { vector: Vector::of(t, at, cells), rows });
            at += width;
        }
        let (above, known) = x.rb_mut().split_at_row_mut(rows.start);
        let factor = t.submatrix(0, rows.start, rows.start, rows.len());
        let known = known.rb().subrows(0, rows.len());
        multiply(above, Accum::Add, factor, known, -T::ONE, grain);
    }
    for at in group.clone().filter(|&at| at == 0 || !is_pair(t, at - 1)) {
        let width = if is_pair(t, at) { 2 } else { 1 };
        let cells = x.rb_mut().subcols_mut(at - group.start, width);
        Vector::of(t, at, cells).normalize();
    }
}

/// Whether a pair begins in this row.
fn is_pair<T: Real>(t: MatRef<'_, T>, i: usize) -> bool {
    i + 1 < t.nrows() && t[(i + 1, i)] != T::ZERO
}

/// A solution for some rows, compiled for the widest vectors there are.
struct Solve<'a, 'b, T> {
    vector: Vector<'a, T>,
    rows: &'b Range<usize>,
}

impl<T: Real> WithSimd for Solve<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) {
        self.vector.solve(self.rows);
    }
}

/// A vector that is being solved for.
struct Vector<'a, T> {
    t: MatRef<'a, T>,
    /// Where its own block begins.
    at: usize,
    value: Value,
    /// How near to zero what is divided by may be.
    least: f64,
    /// One column, or two: the real and the imaginary part.
    x: MatMut<'a, T>,
}

impl<'a, T: Real> Vector<'a, T> {
    #[inline(always)]
    fn of(t: MatRef<'a, T>, at: usize, x: MatMut<'a, T>) -> Self {
        let value = match x.ncols() {
            1 => Value { re: t[(at, at)].to_f64(), im: 0.0 },
            _ => pair(t, at).values()[0],
        };
        let size = value.re.abs() + value.im.abs();
        let smallest = min_positive::<T>().to_f64() * t.nrows() as f64;
        let least = T::EPSILON.to_f64() * size.max(smallest / T::EPSILON.to_f64().powi(2));
        Self { t, at, value, least, x }
    }

    /// Solves for these rows, of which those above know nothing yet.
    #[inline(always)]
    fn solve(&mut self, rows: &Range<usize>) {
        let width = self.x.ncols();
        let mut end = rows.end;
        if rows.contains(&self.at) {
            end = self.at;
            self.begin();
            for k in 0..width {
                self.subtract(self.at + k, rows.start..end);
            }
        }
        while end > rows.start {
            let i = end - 1;
            if i > rows.start && is_pair(self.t, i - 1) {
                let right = [self.cell(i - 1), self.cell(i)];
                let (pair, value, least) = (pair(self.t, i - 1), self.value, self.least);
                let found = self.within_range(right, |right| solve_pair(pair, value, right, least));
                self.set(i - 1, found[0]);
                self.set(i, found[1]);
                self.subtract(i - 1, rows.start..i - 1);
                self.subtract(i, rows.start..i - 1);
                end = i - 1;
            } else {
                let pivot =
                    Complex { re: self.t[(i, i)].to_f64() - self.value.re, im: -self.value.im };
                let pivot = pivot.at_least(self.least);
                let found = self.within_range([self.cell(i)], |[right]| [right.over(pivot)]);
                self.set(i, found[0]);
                self.subtract(i, rows.start..i);
                end = i;
            }
        }
    }

    /// The cells of its own block.
    fn begin(&mut self) {
        let at = self.at;
        if self.x.ncols() == 1 {
            self.x[(at, 0)] = T::ONE;
            return;
        }
        let Pair { b, c, .. } = pair(self.t, at);
        if b.abs() >= c.abs() {
            self.x[(at, 0)] = T::ONE;
            self.x[(at + 1, 1)] = T::from_f64(self.value.im / b);
        } else {
            self.x[(at, 0)] = T::from_f64(-self.value.im / c);
            self.x[(at + 1, 1)] = T::ONE;
        }
    }

    /// Takes what row `i` of the vector makes of a column of `t` out of other rows.
    #[inline(always)]
    fn subtract(&mut self, i: usize, rows: Range<usize>) {
        let from = &column(self.t, i)[rows.clone()];
        for k in 0..self.x.ncols() {
            let weight = self.x[(i, k)];
            let x = &mut column_mut(self.x.rb_mut(), k)[rows.clone()];
            for (x, &t) in x.iter_mut().zip(from) {
                *x -= weight * t;
            }
        }
    }

    /// Solves a few equations; the whole vector is scaled down first if it would leave the range otherwise.
    #[inline(always)]
    fn within_range<const N: usize>(
        &mut self,
        right: [Complex; N],
        solve: impl Fn([Complex; N]) -> [Complex; N],
    ) -> [Complex; N] {
        let size = right.iter().fold(0.0, |most: f64, x| most.max(x.size()));
        if size == 0.0 {
            return right;
        }
        let found = solve(right.map(|x| x.scaled(1.0 / size)));
        let growth = found.iter().fold(0.0, |most: f64, x| most.max(x.size()));
        // Sums of what is below it are in the range too.
        let most = max_positive::<T>().to_f64().sqrt() / 1024.0;
        if growth <= most / size {
            return found.map(|x| x.scaled(size));
        }
        self.scale(1.0 / size);
        self.scale(1.0 / growth);
        found.map(|x| x.scaled(1.0 / growth))
    }

    fn scale(&mut self, factor: f64) {
        let factor = T::from_f64(factor);
        for column in self.x.rb_mut().col_iter_mut() {
            column.iter_mut().for_each(|x| *x *= factor);
        }
    }

    /// Makes its largest cell about one.
    fn normalize(&mut self) {
        let largest = |most: f64, x: &T| most.max(x.to_f64().abs());
        let columns = self.x.rb().col_iter();
        let most = columns.fold(0.0, |most, column| column.iter().fold(most, largest));
        self.scale(1.0 / most);
    }

    #[inline(always)]
    fn cell(&self, i: usize) -> Complex {
        let im = if self.x.ncols() > 1 { self.x[(i, 1)].to_f64() } else { 0.0 };
        Complex { re: self.x[(i, 0)].to_f64(), im }
    }

    #[inline(always)]
    fn set(&mut self, i: usize, x: Complex) {
        self.x[(i, 0)] = T::from_f64(x.re);
        if self.x.ncols() > 1 {
            self.x[(i, 1)] = T::from_f64(x.im);
        }
    }
}

#[inline(always)]
fn pair<T: Real>(t: MatRef<'_, T>, i: usize) -> Pair {
    Pair::new(t[(i, i)], t[(i, i + 1)], t[(i + 1, i)], t[(i + 1, i + 1)])
}

/// The solution of `(pair - λ)·x = right`, by elimination under the largest cell.
fn solve_pair(pair: Pair, value: Value, right: [Complex; 2], least: f64) -> [Complex; 2] {
    let real = |re: f64| Complex { re, im: 0.0 };
    let Pair { a, b, c, d } = pair;
    let [a, d] = [a, d].map(|x| Complex { re: x - value.re, im: -value.im });
    let rows = [([a, real(b)], right[0]), ([real(c), d], right[1])];
    let size = |(i, j): (usize, usize)| rows[i].0[j].size();
    let places = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let (i, j) =
        places.into_iter().fold((0, 0), |best, at| if size(at) > size(best) { at } else { best });
    let ([upper, lower], k) = ([rows[i], rows[1 - i]], 1 - j);
    let pivot = upper.0[j].at_least(least);
    let factor = lower.0[j].over(pivot);
    let rest = lower.0[k].minus(factor.times(upper.0[k])).at_least(least);
    let second = lower.1.minus(factor.times(upper.1)).over(rest);
    let first = upper.1.minus(upper.0[k].times(second)).over(pivot);
    if j == 0 { [first, second] } else { [second, first] }
}

#[derive(Debug, Clone, Copy)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn size(self) -> f64 {
        self.re.abs() + self.im.abs()
    }

    fn scaled(self, factor: f64) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }

    fn minus(self, x: Self) -> Self {
        Self { re: self.re - x.re, im: self.im - x.im }
    }

    fn times(self, x: Self) -> Self {
        Self { re: self.re * x.re - self.im * x.im, im: self.re * x.im + self.im * x.re }
    }

    /// The quotient, by Smith's formula, whose parts stay in the range.
    fn over(self, x: Self) -> Self {
        if x.re.abs() >= x.im.abs() {
            let ratio = x.im / x.re;
            let whole = x.re + x.im * ratio;
            let (re, im) = (self.re + self.im * ratio, self.im - self.re * ratio);
            Self { re: re / whole, im: im / whole }
        } else {
            let ratio = x.re / x.im;
            let whole = x.re * ratio + x.im;
            let (re, im) = (self.re * ratio + self.im, self.im * ratio - self.re);
            Self { re: re / whole, im: im / whole }
        }
    }

    /// Itself, unless it is nearer to zero than that.
    fn at_least(self, least: f64) -> Self {
        if self.size() < least { Self { re: least, im: 0.0 } } else { self }
    }
}
