//! Quasi-triangular matrices: functions of the blocks on their diagonals, and equations with them.
//!
//! ```text
//! f([a b; c a]) = re·1 + im/√(-b·c)·[0 b; c 0]       re + im·i = f(a + √(b·c))
//! ```
//!
//! Source: Higham, *Functions of Matrices*, 2008, §6.2.

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef};

use super::super::super::gemm::{Grain, multiply};
use super::super::super::{Real, Stop};
use super::super::columns::{add_columns, column_mut};
use super::super::schur::{Pair, Value};

/// Rows below which nothing is gained by a product.
pub(super) const SMALL: usize = 32;

/// The eigenvalue of a block, of a pair that with a positive imaginary part.
pub(super) fn value<T: Real>(t: MatRef<'_, T>, start: usize, end: usize) -> Value {
    if end - start == 1 {
        return Value { re: t[(start, start)].to_f64(), im: 0.0 };
    }
    pair(t, start).values()[0]
}

fn pair<T: Real>(t: MatRef<'_, T>, i: usize) -> Pair {
    Pair::new(t[(i, i)], t[(i, i + 1)], t[(i + 1, i)], t[(i + 1, i + 1)])
}

/// Writes a function of the blocks of `t` onto the diagonal of `x`, given its value for each.
pub(super) fn set_diagonal<T: Real>(
    mut x: MatMut<'_, T>,
    t: MatRef<'_, T>,
    starts: &[usize],
    function: impl Fn(usize) -> Value,
) {
    for (number, block) in starts.windows(2).enumerate() {
        let (i, found) = (block[0], function(number));
        x[(i, i)] = T::from_f64(found.re);
        if block[1] - i == 2 {
            let Pair { b, c, .. } = pair(t, i);
            let ratio = found.im / (b.abs().sqrt() * c.abs().sqrt());
            x[(i + 1, i + 1)] = T::from_f64(found.re);
            x[(i, i + 1)] = T::from_f64(ratio * b);
            x[(i + 1, i)] = T::from_f64(ratio * c);
        }
    }
}

impl Value {
    /// The principal one.
    pub(super) fn logarithm(self) -> Self {
        Self { re: self.re.hypot(self.im).ln(), im: self.im.atan2(self.re) }
    }

    /// `eˣ - 1`, with all digits also near zero.
    pub(super) fn exponential_less_one(self) -> Self {
        let half = (self.im / 2.0).sin();
        let re = self.re.exp_m1() * self.im.cos() - 2.0 * half * half;
        Self { re, im: self.re.exp() * self.im.sin() }
    }

    /// The square root with a real part that is not negative.
    pub(super) fn root(self) -> Self {
        let size = ((self.re.hypot(self.im) + self.re.abs()) / 2.0).sqrt();
        let other = if size == 0.0 { 0.0 } else { self.im / (2.0 * size) };
        if self.re >= 0.0 {
            Self { re: size, im: other }
        } else {
            Self { re: other.abs(), im: size.copysign(self.im) }
        }
    }
}

/// The block boundary nearest to the middle of some blocks, but for their ends; as its place among `starts`.
pub(super) fn middle(starts: &[usize]) -> usize {
    let half = (starts[0] + starts[starts.len() - 1]) / 2;
    starts.partition_point(|&start| start < half).clamp(1, starts.len() - 2)
}

/// `b = m⁻¹·b`, where `b` has zeros where `m` has them.
pub(super) fn solve_alike<T: Real>(
    m: MatRef<'_, T>,
    b: MatMut<'_, T>,
    starts: &[usize],
    stop: Stop<'_>,
) {
    if m.nrows() <= SMALL || starts.len() <= 2 {
        return solve(m, b, starts, stop);
    }
    let at = middle(starts);
    let cut = starts[at] - starts[0];
    let (m_first, m_beside, _, m_last) = m.split_at(cut, cut);
    let (first, mut beside, _, mut last) = b.split_at_mut(cut, cut);
    solve_alike(m_last, last.rb_mut(), &starts[at..], stop);
    multiply(beside.rb_mut(), Accum::Add, m_beside, last.rb(), -T::ONE, Grain::factor(stop));
    rayon::join(
        || solve(m_first, beside, &starts[..=at], stop),
        || solve_alike(m_first, first, &starts[..=at], stop),
    );
}

/// `b = m⁻¹·b` for any `b`.
fn solve<T: Real>(m: MatRef<'_, T>, b: MatMut<'_, T>, starts: &[usize], stop: Stop<'_>) {
    if stop.is_asked() {
        return;
    }
    if m.nrows() <= SMALL || starts.len() <= 2 {
        return solve_small(m, b, starts);
    }
    let at = middle(starts);
    let cut = starts[at] - starts[0];
    let (m_first, m_beside, _, m_last) = m.split_at(cut, cut);
    let (mut first, mut last) = b.split_at_row_mut(cut);
    solve(m_last, last.rb_mut(), &starts[at..], stop);
    multiply(first.rb_mut(), Accum::Add, m_beside, last.rb(), -T::ONE, Grain::factor(stop));
    solve(m_first, first, &starts[..=at], stop);
}

/// Block by block, from the last one up.
fn solve_small<T: Real>(m: MatRef<'_, T>, mut b: MatMut<'_, T>, starts: &[usize]) {
    for j in 0..b.ncols() {
        let b = column_mut(b.rb_mut(), j);
        for block in starts.windows(2).rev() {
            let (i, end) = (block[0] - starts[0], block[1] - starts[0]);
            if end - i == 1 {
                b[i] /= m[(i, i)];
            } else {
                let (first, second) = (b[i], b[i + 1]);
                let [a, above, below, d] =
                    [m[(i, i)], m[(i, i + 1)], m[(i + 1, i)], m[(i + 1, i + 1)]];
                let determinant = a * d - above * below;
                b[i] = (d * first - above * second) / determinant;
                b[i + 1] = (a * second - below * first) / determinant;
            }
            let (rest, known) = b.split_at_mut(i);
            add_columns(rest, m.submatrix(0, i, i, end - i), &known[..end - i], -T::ONE);
        }
    }
}
