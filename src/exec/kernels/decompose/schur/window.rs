//! A window on the diagonal of a Hessenberg matrix: turned alone first, the rest of its rows and columns
//! afterwards, by products.
//!
//! ```text
//!  x x x x x x x x        w := t(u)·w·u      in the window, reflection by reflection
//!  x x x x x x x x        a := a·u           above it
//!    w w w w b b b        b := t(u)·b        beside it
//!    w w w w b b b        z := z·u           in what gathers all turns
//!      w w w b b b
//! ```
//!
//! A pair of shifts makes a bulge of three rows below the diagonal, which reflections chase down and
//! out. Several follow each other at three rows' distance: what they turn then overlaps nowhere. Vectors are
//! `pulp`'s own, as in `dot`: whole operations take up to 1.9 times as long here, by AVX-512 too (measured, 24 to 100 rows).
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §7.5; Braman, Byers and Mathias, *SIAM J.
//! Matrix Anal. Appl.* 23 (2002), 929–947.

use std::ops::Range;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::super::super::dot::vectors_mut;
use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::pairs::{Pair, Value};

/// Rows between two bulges.
pub(super) const DISTANCE: usize = 3;

/// A copy of the window, by columns without gaps, and what it was turned by.
pub(super) struct Window<T> {
    pub(super) side: usize,
    pub(super) h: Vec<T>,
    pub(super) u: Vec<T>,
}

/// Two shifts whose sum and product are real.
pub(super) type Shifts = [Value; 2];

/// Bulges on their way: the first of them is at row `time`, counted from that before the block, each
/// other [`DISTANCE`] rows behind the one before it.
pub(super) struct Chain<'a> {
    pub(super) shifts: &'a [Shifts],
    /// The rows they go through, counted from the window's first.
    pub(super) block: Range<isize>,
    pub(super) times: Range<isize>,
    /// Whether the window was turned by nothing before.
    pub(super) is_first: bool,
}

impl<T: Real> Window<T> {
    pub(super) fn of(h: MatRef<'_, T>) -> Self {
        let side = h.nrows();
        let mut cells = vec![T::ZERO; side * side];
        MatMut::from_column_major_slice_mut(&mut cells, side, side).copy_from(h);
        let mut u = vec![T::ZERO; side * side];
        u.iter_mut().step_by(side + 1).for_each(|x| *x = T::ONE);
        Self { side, h: cells, u }
    }

    pub(super) fn cell(&self, i: usize, j: usize) -> T {
        self.h[i + j * self.side]
    }

    pub(super) fn cell_mut(&mut self, i: usize, j: usize) -> &mut T {
        &mut self.h[i + j * self.side]
    }

    pub(super) fn h(&self) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(&self.h, self.side, self.side)
    }

    pub(super) fn u(&self) -> MatRef<'_, T> {
        MatRef::from_column_major_slice(&self.u, self.side, self.side)
    }

    pub(super) fn both_mut(&mut self) -> (MatMut<'_, T>, MatMut<'_, T>) {
        let side = self.side;
        (
            MatMut::from_column_major_slice_mut(&mut self.h, side, side),
            MatMut::from_column_major_slice_mut(&mut self.u, side, side),
        )
    }

    /// The block on the diagonal from this row on.
    pub(super) fn pair(&self, i: usize) -> Pair {
        let [a, b, c, d] =
            [(i, i), (i, i + 1), (i + 1, i), (i + 1, i + 1)].map(|(i, j)| self.cell(i, j));
        Pair::new(a, b, c, d)
    }

    /// Turns the window until it is quasi-triangular, one bulge after the other.
    pub(super) fn solve(&mut self, rounds_max: usize, stop: Stop<'_>) -> Result<(), Unfinished> {
        let mut end = self.side;
        let mut rounds = 0;
        while end > 0 {
            Unfinished::check(stop)?;
            let start = super::active_from(self.both_mut().0, end);
            if end - start <= 2 {
                if end - start == 2 {
                    self.standardize(start);
                }
                (end, rounds) = (start, 0);
                continue;
            }
            if rounds == rounds_max {
                return Err(Unfinished::NotConverged);
            }
            rounds += 1;
            let shifts = self.shifts(end, rounds);
            self.chase(Chain {
                shifts: &[shifts],
                block: start as isize..end as isize,
                times: 0..(end - start) as isize - 1,
                is_first: false,
            });
        }
        Ok(())
    }

    /// The eigenvalues of the last pair before `end`, or the nearer one twice if they are real; now and then,
    /// where nothing converges, others.
    fn shifts(&self, end: usize, round: usize) -> Shifts {
        if round.is_multiple_of(10) {
            return exceptional(self.h(), end);
        }
        let pair = self.pair(end - 2);
        let values = pair.standardized().0.values();
        if values[0].im != 0.0 {
            return values;
        }
        let nearer =
            if (values[0].re - pair.d).abs() < (values[1].re - pair.d).abs() { 0 } else { 1 };
        [values[nearer]; 2]
    }

    /// Brings the pair from this row on into standard form.
    pub(super) fn standardize(&mut self, i: usize) {
        let (pair, turn) = self.pair(i).standardized();
        let (cos, sin) = (T::from_f64(turn.cos), T::from_f64(turn.sin));
        let side = self.side;
        for column in self.h[(i + 2) * side..].chunks_exact_mut(side) {
            let (x, y) = (column[i], column[i + 1]);
            (column[i], column[i + 1]) = (cos * x + sin * y, cos * y - sin * x);
        }
        for (cells, rows) in [(&mut self.h, i), (&mut self.u, side)] {
            let (x, y) = cells[i * side..(i + 2) * side].split_at_mut(side);
            for (x, y) in x[..rows].iter_mut().zip(&mut y[..rows]) {
                (*x, *y) = (cos * *x + sin * *y, cos * *y - sin * *x);
            }
        }
        let cells = [(0, 0, pair.a), (0, 1, pair.b), (1, 0, pair.c), (1, 1, pair.d)];
        for (row, column, cell) in cells {
            *self.cell_mut(i + row, i + column) = T::from_f64(cell);
        }
    }

    /// Lets a chain of bulges go on for some time.
    pub(super) fn chase(&mut self, chain: Chain<'_>) {
        Arch::new().dispatch(Chase { window: self, chain });
    }

    /// One row further, the first of them first.
    #[inline(always)]
    fn advance<S: Simd>(&mut self, simd: S, chain: &Chain<'_>, time: isize) {
        let Range { start, end } = chain.block;
        for (number, shifts) in chain.shifts.iter().enumerate() {
            let row = start + time - (DISTANCE * number) as isize;
            if row < start {
                return;
            }
            let left = end - row;
            if left < 2 {
                continue;
            }
            // A bulge is at the row below the cell that stays in the column it leaves.
            let is_new = row == start;
            let row = row as usize;
            let (side, end) = (self.side, end as usize);
            // Each bulge before this one has added two rows to what is not zero yet.
            let tall = if chain.is_first { side.min(row + 3 + 2 * number) } else { side };
            let x = if is_new {
                self.first_column(row, shifts)
            } else {
                let column = &self.h[(row - 1) * side + row..];
                [column[0], column[1], if left > 2 { column[2] } else { T::ZERO }]
            };
            let (rest, scale, v) = reflect(x);
            if !is_new {
                let column = &mut self.h[(row - 1) * side + row..];
                column[0] = rest;
                column[1] = T::ZERO;
                if left > 2 {
                    column[2] = T::ZERO;
                }
            }
            if scale == T::ZERO {
                continue;
            }
            if left > 2 {
                from_left::<T, 3>(&mut self.h, side, row, v, scale);
                from_right::<T, S, 3>(simd, &mut self.h, side, row, end.min(row + 4), v, scale);
                from_right::<T, S, 3>(simd, &mut self.u, side, row, tall, v, scale);
            } else {
                let v = [v[0], v[1]];
                from_left::<T, 2>(&mut self.h, side, row, v, scale);
                from_right::<T, S, 2>(simd, &mut self.h, side, row, end, v, scale);
                from_right::<T, S, 2>(simd, &mut self.u, side, row, tall, v, scale);
            }
        }
    }

    /// A multiple of the first column of `(h - s₀)·(h - s₁)` for the block that begins here.
    fn first_column(&self, i: usize, shifts: &Shifts) -> [T; 3] {
        let h = |row: usize, column: usize| self.cell(i + row, i + column).to_f64();
        let [first, second] = shifts;
        let scale = (h(0, 0) - second.re).abs() + second.im.abs() + h(1, 0).abs();
        if scale == 0.0 {
            return [T::ZERO; 3];
        }
        let below = h(1, 0) / scale;
        [
            (h(0, 0) - first.re) * ((h(0, 0) - second.re) / scale) - first.im * (second.im / scale)
                + h(0, 1) * below,
            below * (h(0, 0) + h(1, 1) - first.re - second.re),
            below * h(2, 1),
        ]
        .map(T::from_f64)
    }

    /// Puts the window back at this row, and turns the rest of its rows and columns.
    pub(super) fn turn(&self, mut h: MatMut<'_, T>, z: MatMut<'_, T>, at: usize, stop: Stop<'_>) {
        let (n, end) = (h.ncols(), at + self.side);
        h.rb_mut().submatrix_mut(at, at, self.side, self.side).copy_from(self.h());
        let (left, right) = h.split_at_col_mut(end);
        let above = left.submatrix_mut(0, at, at, self.side);
        let beside = right.submatrix_mut(at, 0, self.side, n - end);
        let z = z.subcols_mut(at, self.side);
        // Parts of equal work, for they wait for each other.
        const STRIP: usize = 128;
        let mut strips: Vec<Strip<'_, T>> = Vec::new();
        for part in [above, z] {
            let mut rest = part;
            while rest.nrows() > 0 {
                let height = STRIP.min(rest.nrows());
                let (strip, below) = rest.split_at_row_mut(height);
                strips.push(Strip::Rows(strip));
                rest = below;
            }
        }
        let mut rest = beside;
        while rest.ncols() > 0 {
            let width = STRIP.min(rest.ncols());
            let (strip, beyond) = rest.split_at_col_mut(width);
            strips.push(Strip::Columns(strip));
            rest = beyond;
        }
        let grain = Grain::factor(stop);
        strips.into_par_iter().with_max_len(1).for_each(|strip| match strip {
            Strip::Rows(mut x) => {
                let mut turned = Mat::zeros(x.nrows(), x.ncols());
                multiply(turned.as_mut(), Accum::Replace, x.rb(), self.u(), T::ONE, grain);
                x.copy_from(turned);
            }
            Strip::Columns(mut x) => {
                let mut turned = Mat::zeros(x.nrows(), x.ncols());
                let u = self.u().transpose();
                multiply(turned.as_mut(), Accum::Replace, u, x.rb(), T::ONE, grain);
                x.copy_from(turned);
            }
        });
    }
}

/// What a window turns beyond itself.
enum Strip<'a, T> {
    /// By `u`, from the right.
    Rows(MatMut<'a, T>),
    /// By its transpose, from the left.
    Columns(MatMut<'a, T>),
}

/// A chase, compiled for the widest vectors there are.
struct Chase<'a, 'b, T> {
    window: &'a mut Window<T>,
    chain: Chain<'b>,
}

impl<T: Real> WithSimd for Chase<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for time in self.chain.times.clone() {
            self.window.advance(simd, &self.chain, time);
        }
    }
}

/// Shifts that have nothing to do with the eigenvalues near by, for where those do not help.
pub(super) fn exceptional<T: Real>(h: MatRef<'_, T>, end: usize) -> Shifts {
    let cell = |i: usize, j: usize| h[(i, j)].to_f64();
    let size = cell(end - 1, end - 2).abs() + cell(end - 2, end - 3).abs();
    let re = 0.75 * size + cell(end - 1, end - 1);
    let im = 0.4375_f64.sqrt() * size;
    [Value { re, im }, Value { re, im: -im }]
}

/// What remains of `x` in its first place, `τ` and `v` of the reflection that does it.
#[inline(always)]
fn reflect<T: Real>(x: [T; 3]) -> (T, T, [T; 3]) {
    let largest = x.iter().fold(T::ZERO, |most, x| if x.abs() > most { x.abs() } else { most });
    if x[1] == T::ZERO && x[2] == T::ZERO || largest == T::ZERO {
        return (x[0], T::ZERO, [T::ONE, T::ZERO, T::ZERO]);
    }
    let [first, second, third] = x.map(
        #[inline(always)]
        |x| x / largest,
    );
    let norm = (first * first + second * second + third * third).sqrt();
    let rest = if first > T::ZERO { -norm } else { norm };
    let pivot = first - rest;
    let v = [T::ONE, second / pivot, third / pivot];
    let two = T::ONE + T::ONE;
    (rest * largest, two / (T::ONE + v[1] * v[1] + v[2] * v[2]), v)
}

/// `h = (1 - τ·v·t(v))·h` for rows from `row` on; columns before it have zeros there.
#[inline(always)]
fn from_left<T: Real, const N: usize>(h: &mut [T], side: usize, row: usize, v: [T; N], scale: T) {
    let w = v.map(
        #[inline(always)]
        |v| v * scale,
    );
    for column in h[row * side..].chunks_exact_mut(side) {
        let x: &mut [T] = &mut column[row..row + N];
        let mut sum = x[0];
        for k in 1..N {
            sum += v[k] * x[k];
        }
        for k in 0..N {
            x[k] -= sum * w[k];
        }
    }
}

/// `h = h·(1 - τ·v·t(v))` for columns from `column` on and rows up to `rows`.
#[inline(always)]
fn from_right<T: Real, S: Simd, const N: usize>(
    simd: S,
    h: &mut [T],
    side: usize,
    column: usize,
    rows: usize,
    v: [T; N],
    scale: T,
) {
    let mut columns = h[column * side..(column + N) * side].chunks_exact_mut(side);
    let columns: [(&mut [T::SimdVec<S>], &mut [T]); N] = std::array::from_fn(
        #[inline(always)]
        |_| vectors_mut::<T, S>(&mut columns.next().expect("N columns")[..rows]),
    );
    let w = v.map(
        #[inline(always)]
        |v| -(v * scale),
    );
    let simd = T::simd_ctx(simd);
    let splat = |x: [T; N]| {
        x.map(
            #[inline(always)]
            |x| T::simd_splat(&simd, &x),
        )
    };
    let (whole_v, whole_w) = (splat(v), splat(w));
    let count = columns[0].0.len();
    for i in 0..count {
        let mut sum = columns[0].0[i];
        for k in 1..N {
            sum = T::simd_mul_add(&simd, columns[k].0[i], whole_v[k], sum);
        }
        for k in 0..N {
            columns[k].0[i] = T::simd_mul_add(&simd, sum, whole_w[k], columns[k].0[i]);
        }
    }
    for i in 0..columns[0].1.len() {
        let mut sum = columns[0].1[i];
        for k in 1..N {
            sum += v[k] * columns[k].1[i];
        }
        for k in 0..N {
            columns[k].1[i] += sum * w[k];
        }
    }
}
