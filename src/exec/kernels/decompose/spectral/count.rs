//! How many singular values are large, without the vectors and without the values: bisection.
//!
//! ```text
//!  | 0 d₁         |
//!  | d₁ 0 e₁      |    has the eigenvalues ±σ of the two diagonals d and e; of those above x there are as many
//!  |    e₁ 0 d₂   |    as positive pivots when x is taken from its diagonal and it is eliminated
//!  |       d₂ 0 … |
//! ```
//!
//! Source: Golub and Van Loan, *Matrix Computations*, 4th ed., §8.4.1 and §8.6.1; Demmel and Kahan, *SIAM J.
//! Sci. Stat. Comput.* 11 (1990), 873–912, for how well small values are told apart.

use faer::Mat;

use super::super::super::{Real, Stop};
use super::super::Unfinished;
use super::super::orthogonal::Reflected;
use super::bidiagonal::Bidiagonal;
use super::{is_tall, scale_diagonals, widened};

/// How many singular values of a matrix at least as tall as wide, no cell far above one, are above the largest one
/// times `bound`.
pub(super) fn significant<T: Real>(
    a: Mat<T>,
    bound: f64,
    stop: Stop<'_>,
) -> Result<usize, Unfinished> {
    if a.ncols() == 0 {
        return Ok(0);
    }
    let is_tall = is_tall(a.nrows(), a.ncols());
    let a = if is_tall { Reflected::of(a, stop).r() } else { a };
    let reduced = Bidiagonal::of(a, stop)?;
    let (mut diagonal, mut above) = (widened(&reduced.diagonal), widened(&reduced.above));
    scale_diagonals(&mut diagonal, &mut above);
    let couplings = squares(&diagonal, &above);
    let least = bound * largest(&couplings);
    Ok(if least > 0.0 { count_above(&couplings, least) } else { 0 })
}

/// Both diagonals in turn, squared.
fn squares(diagonal: &[f64], above: &[f64]) -> Vec<f64> {
    let rows = diagonal.iter().zip(above.iter().chain(&[0.0]));
    let mut squares: Vec<f64> = rows.flat_map(|(d, e)| [d * d, e * e]).collect();
    squares.pop();
    squares
}

fn count_above(couplings: &[f64], x: f64) -> usize {
    let mut pivot = -x;
    let mut count = 0;
    for square in couplings {
        // One that is zero may be taken for either sign.
        let divisor = if pivot == 0.0 { -f64::MIN_POSITIVE } else { pivot };
        pivot = -x - square / divisor;
        count += usize::from(pivot > 0.0);
    }
    count
}

/// The largest singular value: halves of an interval around it, until there is no number between its ends.
fn largest(couplings: &[f64]) -> f64 {
    let most = couplings.iter().fold(0.0f64, |most, x| most.max(*x)).sqrt();
    // No row of the matrix above has more than two cells.
    let (mut low, mut high) = (0.0, 2.0 * most * (1.0 + f64::EPSILON));
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return high;
        }
        if count_above(couplings, middle) > 0 { low = middle } else { high = middle }
    }
}
