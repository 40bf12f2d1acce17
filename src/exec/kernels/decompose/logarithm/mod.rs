//! The principal matrix logarithm, by inverse scaling and squaring of the real Schur form.
//!
//! ```text
//! a = z·t·t(z)       log(a) = z·log(t)·t(z)
//! log(t) = 2^s·log(1 + x),    1 + x = t^(1/2^s) near 1,    log(1 + x) ≈ Σ wⱼ·(1 + tⱼ·x)⁻¹·x
//! ```
//!
//! The roots are taken of the quasi-triangular factor (`root`); the sum is the Padé approximant of degree 7, by
//! its partial fractions, which are the points and weights of Gauss and Legendre. What stands on the diagonal is
//! known from the eigenvalues, so nothing of it is lost when one is taken from what is near one.
//!
//! Source: Al-Mohy and Higham, *Improved inverse scaling and squaring algorithms for the matrix
//! logarithm*, SIAM J. Sci. Comput. 34 (2012), C153–C169; Cheng, Higham, Kenney and Laub, *SIAM J. Matrix Anal.
//! Appl.* 22 (2001), 1112–1125, for the bound of the approximant.

mod quasi;
mod root;

use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef, Par};

use super::super::gemm::{Grain, multiply};
use super::super::{Real, Stop, view};
use super::schur::{Schur, Value, blocks};
use super::solve::reciprocal_condition_of;
use super::{Unfinished, by_columns, by_rows, check_finite, norm_1, scale_to_one, side};
use crate::error::{Error, Result};
use crate::matrix::Dense;
use quasi::{set_diagonal, solve_alike, value};
use root::root;

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

/// Up to which size of x the approximant serves 64 bits.
const NEAR: f64 = 0.264;

/// Roots taken at most: the exponents of 64 bits halve away in eleven, and what is far from normal needs more.
const ROOTS_MAX: usize = 60;

/// The logarithm whose eigenvalues have imaginary parts between -π and π.
///
/// - Work: some 25n³ flop for the Schur form, n³/3 for each root, and 8n³ at the end.
/// - Accuracy: relative to the norm some units of rounding times the condition of the logarithm at `a`.
/// - Errors: a cell that is not finite; an eigenvalue that is 0 or negative, to the unit of rounding beside the
///   norm, which has no such logarithm; no convergence, which has not been seen of finite cells.
///
/// # Panics
/// Unless `a` is square.
pub fn logarithm<T: Real>(a: &Dense<T>, stop: Stop<'_>) -> Result<Dense<T>> {
    let n = side(a);
    check_finite("logm", a)?;
    let unfinished = |why: Unfinished| why.error("logm", a.shape());
    let mut cells = by_columns(view(a));
    let scale = scale_to_one(cells.as_mut());
    let Schur { mut t, z } = Schur::of(cells, stop).map_err(unfinished)?;
    if !has_logarithm(t.as_ref()) {
        return Err(none(a));
    }
    t *= faer::Scale(scale);
    let starts = blocks(t.as_ref());
    let values: Vec<Value> = starts.windows(2).map(|b| value(t.as_ref(), b[0], b[1])).collect();
    let logarithms: Vec<Value> = values.iter().map(|x| x.logarithm()).collect();

    let (mut power, mut roots) = (t.clone(), 0);
    let x = loop {
        stop.check()?;
        let shrink = (-(roots as f64)).exp2();
        let mut x = power.clone();
        set_diagonal(x.as_mut(), t.as_ref(), &starts, |block| {
            let Value { re, im } = logarithms[block];
            Value { re: re * shrink, im: im * shrink }.exponential_less_one()
        });
        if is_near(x.as_ref()) {
            break x;
        }
        if roots == ROOTS_MAX {
            return Err(none(a));
        }
        power = root(power.as_ref(), &starts, stop);
        roots += 1;
    };
    let grain = Grain::factor(stop);
    let mut sum = Mat::<T>::zeros(n, n);
    for (point, weight) in FRACTIONS {
        stop.check()?;
        let point = T::from_f64(point);
        let factor =
            Mat::from_fn(n, n, |i, j| point * x[(i, j)] + if i == j { T::ONE } else { T::ZERO });
        let mut part = x.clone();
        solve_alike(factor.as_ref(), part.as_mut(), &starts, stop);
        sum += part * faer::Scale(T::from_f64(weight * (roots as f64).exp2()));
    }
    set_diagonal(sum.as_mut(), t.as_ref(), &starts, |block| logarithms[block]);
    stop.check()?;
    let mut product = Mat::zeros(n, n);
    multiply(product.as_mut(), Accum::Replace, z.as_ref(), sum.as_ref(), T::ONE, grain);
    multiply(sum.as_mut(), Accum::Replace, product.as_ref(), z.transpose(), T::ONE, grain);
    stop.check()?;
    Ok(by_rows(sum.as_ref()))
}

fn none<T: Real>(a: &Dense<T>) -> Error {
    let message = format!(
        "its {} argument has no principal logarithm: an eigenvalue is zero or negative, or nearly so",
        a.shape()
    );
    Error::argument("logm", message)
}

/// Whether no eigenvalue is 0 or negative, to the unit of rounding.
fn has_logarithm<T: Real>(t: MatRef<'_, T>) -> bool {
    let least = T::EPSILON.to_f64() * norm_1(t).to_f64();
    let starts = blocks(t);
    starts.windows(2).all(|block| {
        let Value { re, im } = value(t, block[0], block[1]);
        re > least || im.abs() > least
    })
}

/// Whether the approximant serves this x: by its norm or, for one that is far from normal, by those of its
/// powers, whose roots are less.
fn is_near<T: Real>(x: MatRef<'_, T>) -> bool {
    if norm_1(x).to_f64() <= NEAR {
        return true;
    }
    let root = |power: usize| norm_of_power(x, power).powf(1.0 / power as f64);
    let third = root(3);
    third <= NEAR && (root(2) <= NEAR || root(4) <= NEAR)
}

/// The 1-norm of a power, estimated from below.
fn norm_of_power<T: Real>(x: MatRef<'_, T>, power: usize) -> f64 {
    let apply = |x: MatRef<'_, T>, mut b: MatMut<'_, T>| {
        let mut product = Mat::zeros(b.nrows(), 1);
        for _ in 0..power {
            let (one, add) = (T::ONE, Accum::Replace);
            faer::linalg::matmul::matmul(product.as_mut(), add, x, b.rb(), one, Par::Seq);
            b.rb_mut().copy_from(&product);
        }
    };
    let along = |b: MatMut<'_, T>| apply(x, b);
    let across = |b: MatMut<'_, T>| apply(x.transpose(), b);
    1.0 / reciprocal_condition_of(x.nrows(), T::ONE, &along, &across).to_f64()
}
