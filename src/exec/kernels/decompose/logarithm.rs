//! The principal matrix logarithm, by inverse scaling and squaring.
//!
//! ```text
//! log(a) = 2^s·log(1 + x),    1 + x = a^(1/2^s) near 1,    log(1 + x) ≈ Σ wⱼ·(1 + tⱼ·x)⁻¹·x
//! ```
//!
//! Square roots come from the product form of the iteration of Denman and Beavers, which needs inverses and no
//! eigenvalues; the sum is the Padé approximant of degree 7, by its partial fractions, which are the
//! points and weights of Gauss and Legendre.
//!
//! Source: Cheng, Higham, Kenney and Laub, *SIAM J. Matrix Anal. Appl.* 22 (2001), 1112–1125.

use super::super::dense::product;
use super::super::{Real, Stop, view};
use super::exponential::combine;
use super::solve::{inverse, solve};
use super::{check_finite, norm_1, side};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::Dense;

/// Points and weights over 0 … 1.
const FRACTIONS: [(f64, f64); 7] = [
    (0.025_446_043_828_620_75, 0.064_742_483_084_434_85),
    (0.129_234_407_200_302_75, 0.139_852_695_744_638_3),
    (0.297_077_424_311_301_4, 0.190_915_025_252_559_45),
    (0.5, 0.208_979_591_836_734_7),
    (0.702_922_575_688_698_6, 0.190_915_025_252_559_45),
    (0.870_765_592_799_697_2, 0.139_852_695_744_638_3),
    (0.974_553_956_171_379_3, 0.064_742_483_084_434_85),
];

/// Up to which 1-norm of x the approximant serves 64 bits.
const NEAR: f64 = 0.264;

/// Roots taken at most: the exponents of 64 bits halve away in eleven, and what is far from normal needs more.
const ROOTS_MAX: usize = 60;

/// Steps to one root at most; with scaling ten are many.
const STEPS_MAX: usize = 40;

/// The logarithm whose eigenvalues have imaginary parts between -π and π.
///
/// - Work: some ten inverses and products for each root, seven solutions at the end.
/// - Errors: [`ErrorKind::Argument`] where a cell is not finite, and where an eigenvalue is 0 or negative,
///   which has no such logarithm.
///
/// # Panics
/// Unless `a` is square.
pub fn logarithm<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let n = side(a);
    check_finite("logm", a)?;
    let mut power = a.clone();
    let mut roots = 0;
    let x = loop {
        let x = combine(n, &[(1.0, &power)], -1.0);
        if norm_1(view(&x)).to_f64() <= NEAR {
            break x;
        }
        if roots == ROOTS_MAX {
            return Err(none(a));
        }
        power = root(&power, stop)?.ok_or_else(|| none(a))?;
        roots += 1;
    };
    let scale = (roots as f64).exp2();
    let mut sum = combine(n, &[], 0.0);
    for (point, weight) in FRACTIONS {
        stop.check()?;
        let part = solve(&combine(n, &[(point, &x)], 1.0), &x, stop)?;
        sum = combine(n, &[(1.0, &sum), (scale * weight, &part)], 0.0);
    }
    Ok(sum)
}

fn none<T: Real>(a: &Dense<T>) -> Error {
    let message = format!(
        "its {} argument has no principal logarithm: an eigenvalue is zero or negative, or nearly so",
        a.shape()
    );
    Error::argument("logm", message)
}

/// The principal square root; `None` where the iteration does not come to one.
fn root<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Option<Dense<T>>> {
    let n = side(a);
    let enough = 4.0 * n as f64 * T::EPSILON.to_f64();
    let (mut x, mut m) = (a.clone(), a.clone());
    let mut distance = f64::INFINITY;
    for _ in 0..STEPS_MAX {
        stop.check()?;
        let inverse = match inverse(&m, stop) {
            Ok(inverse) => inverse,
            Err(error) => match error.kind() {
                ErrorKind::Singular { .. } | ErrorKind::Argument { .. } => return Ok(None),
                _ => return Err(error),
            },
        };
        // Far from its end the iteration is faster where m and its inverse are alike in size.
        let scale = match distance > 0.1 {
            true => (norm_1(view(&inverse)).to_f64() / norm_1(view(&m)).to_f64()).sqrt(),
            false => 1.0,
        };
        let factor = combine(n, &[(0.5 / scale.sqrt(), &inverse)], 0.5 * scale.sqrt());
        x = product(&x, &factor, stop);
        m = combine(n, &[(0.25 * scale, &m), (0.25 / scale, &inverse)], 0.5);
        let last = distance;
        distance = norm_1(view(&combine(n, &[(1.0, &m)], -1.0))).to_f64();
        // It halves its digits at every step, until rounding is all that is left.
        if distance <= enough || (distance < 1e-3 && distance >= last / 2.0) {
            return Ok(Some(x));
        }
    }
    Ok(None)
}
