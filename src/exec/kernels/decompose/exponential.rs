//! The matrix exponential, by scaling and squaring.
//!
//! ```text
//! exp(a) = r(a / 2^s)^(2^s)       r = (v - u)⁻¹·(v + u), the Padé approximant of the exponential
//! ```
//!
//! The degree of r is the least whose error is below the unit of rounding for the 1-norm of `a`; beyond the
//! bound of the highest one `a` is halved until it serves. The polynomials u (odd) and v (even) are
//! evaluated in powers of `a²`. That is products, sums and a solution, whoever computes them: [`Steps`].
//!
//! Source: Higham, *SIAM J. Matrix Anal. Appl.* 26 (2005), 1179–1193, with his bounds for 64 bits and for 32.

use std::marker::PhantomData;

use rayon::prelude::*;

use super::super::dense::product;
use super::super::{Real, Stop, dense, view};
use super::solve::solve;
use super::{check_finite, norm_1, side};
use crate::error::{self, Error};
use crate::matrix::{CellBuffer, Dense, Element, Shape};

/// Degrees of approximants, and up to which norm each serves 64 bits.
const DOUBLE: [(usize, f64); 5] = [
    (3, 1.495_585_217_958_292e-2),
    (5, 2.539_398_330_063_23e-1),
    (7, 9.504_178_996_162_932e-1),
    (9, 2.097_847_961_257_068),
    (13, 5.371_920_351_148_152),
];

/// The same for 32 bits.
const SINGLE: [(usize, f64); 3] =
    [(3, 4.258_730_016_922_831e-1), (5, 1.880_152_677_804_762), (7, 3.925_724_783_138_66)];

/// `Σ aᵏ/k!` of a square matrix.
///
/// - Work: up to seven products and a solution, and a product more each time the norm doubles beyond 5.4 (3.9).
/// - Accuracy: relative to the norm some units of rounding for each squaring; less for matrices that are far
///   from normal, as of every method that squares.
/// - Errors: a cell, or a sum of absolute values down a column, that is not finite. A result beyond the
///   range of the type is infinite or `NaN`.
///
/// # Panics
/// Unless `a` is square.
pub fn exponential<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> error::Result<Dense<T>> {
    let side = side(a);
    check_finite("expm", a)?;
    let norm = norm_1(view(a)).to_f64();
    if !norm.is_finite() {
        return Err(Error::argument("expm", "the norm of its argument must be finite"));
    }
    exponential_by(&Host { side, stop, of: PhantomData::<T> }, a, norm, T::ELEMENT)
}

/// What an exponential is made of.
pub(crate) trait Steps {
    type Matrix;
    type Error;

    fn product(&self, a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix, Self::Error>;

    /// `Σ factor·x + diagonal·identity`.
    fn combine(
        &self,
        terms: &[(f64, &Self::Matrix)],
        diagonal: f64,
    ) -> Result<Self::Matrix, Self::Error>;

    /// `a⁻¹·b`.
    fn solve(&self, a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix, Self::Error>;
}

/// Those of the host.
struct Host<'a, T> {
    side: usize,
    stop: Stop<'a>,
    of: PhantomData<T>,
}

impl<T: Real> Steps for Host<'_, T> {
    type Matrix = Dense<T>;
    type Error = Error;

    fn product(&self, a: &Dense<T>, b: &Dense<T>) -> error::Result<Dense<T>> {
        self.stop.check()?;
        Ok(product(a, b, self.stop))
    }

    fn combine(&self, terms: &[(f64, &Dense<T>)], diagonal: f64) -> error::Result<Dense<T>> {
        Ok(combine(self.side, terms, diagonal))
    }

    fn solve(&self, a: &Dense<T>, b: &Dense<T>) -> error::Result<Dense<T>> {
        solve(a, b, self.stop)
    }
}

/// The exponential of a matrix of this 1-norm.
pub(crate) fn exponential_by<S: Steps>(
    steps: &S,
    a: &S::Matrix,
    norm: f64,
    element: Element,
) -> Result<S::Matrix, S::Error> {
    let bounds: &[(usize, f64)] = if element == Element::Float64 { &DOUBLE } else { &SINGLE };
    let highest = bounds[bounds.len() - 1];
    let (degree, bound) =
        bounds.iter().copied().find(|(_, bound)| norm <= *bound).unwrap_or(highest);
    let halvings = (norm / bound).log2().ceil().max(0.0) as i32;
    // In two steps, for the whole factor may be below the least number.
    let half = 0.5_f64.powi(halvings / 2);
    let rest = 0.5_f64.powi(halvings - halvings / 2);
    let scaled = steps.combine(&[(half, a)], 0.0)?;
    let scaled = steps.combine(&[(rest, &scaled)], 0.0)?;

    let (odd, even) = approximant(steps, &scaled, degree)?;
    let below = steps.combine(&[(1.0, &even), (-1.0, &odd)], 0.0)?;
    let above = steps.combine(&[(1.0, &even), (1.0, &odd)], 0.0)?;
    let mut power = steps.solve(&below, &above)?;
    for _ in 0..halvings {
        power = steps.product(&power, &power)?;
    }
    Ok(power)
}

/// u and v of the approximant of this degree.
fn approximant<S: Steps>(
    steps: &S,
    a: &S::Matrix,
    degree: usize,
) -> Result<(S::Matrix, S::Matrix), S::Error> {
    let c = coefficients(degree);
    let mut powers = vec![steps.product(a, a)?];
    let count = if degree == 13 { 3 } else { degree / 2 };
    while powers.len() < count {
        let last = &powers[powers.len() - 1];
        powers.push(steps.product(last, &powers[0])?);
    }
    // Every other coefficient from the first on, times the powers of a².
    let polynomial = |first: usize| {
        let terms: Vec<_> = powers.iter().zip(1..).map(|(x, k)| (c[first + 2 * k], x)).collect();
        if degree < 13 {
            return steps.combine(&terms, c[first]);
        }
        // a⁸, a¹⁰ and a¹² are a⁶ times what is there.
        let a6 = &powers[2];
        let high: Vec<_> = powers.iter().zip(4..).map(|(x, k)| (c[first + 2 * k], x)).collect();
        let high = steps.product(a6, &steps.combine(&high, 0.0)?)?;
        let terms: Vec<_> = std::iter::once((1.0, &high)).chain(terms).collect();
        steps.combine(&terms, c[first])
    };
    Ok((steps.product(a, &polynomial(1)?)?, polynomial(0)?))
}

/// The coefficients of the numerator, from the constant one on, which is 1.
fn coefficients(degree: usize) -> Vec<f64> {
    let mut coefficient = 1.0;
    let mut next = |k: usize| {
        coefficient *= (degree + 1 - k) as f64 / ((2 * degree + 1 - k) * k) as f64;
        coefficient
    };
    std::iter::once(1.0).chain((1..=degree).map(&mut next)).collect()
}

/// `Σ factor·x + diagonal·identity` of n×n matrices.
pub(super) fn combine<T: Real>(n: usize, terms: &[(f64, &Dense<T>)], diagonal: f64) -> Dense<T> {
    let mut cells = CellBuffer::zeroed(n * n);
    cells.par_chunks_mut(n.max(1)).enumerate().for_each(|(i, row)| {
        for (factor, x) in terms {
            let factor = T::from_f64(*factor);
            for (cell, &x) in row.iter_mut().zip(x.row(i)) {
                *cell += factor * x;
            }
        }
        row[i] += T::from_f64(diagonal);
    });
    dense(Shape::new(n, n), cells)
}
