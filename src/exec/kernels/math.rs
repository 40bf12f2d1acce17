//! Transcendental functions of one `f64`, written so that a loop over them becomes vector code.
//!
//! Straight lines of `+ - * /`, fused multiply-adds, comparisons and integer operations on the bits: no
//! branch, no table. Each of those operations is exactly rounded on every processor, so a value has the
//! same bits whether the loop was compiled for SSE2, AVX2, AVX-512 or NEON. (A processor without fused
//! multiply-adds, of before 2013, computes them in software: the same bits, many times slower. With
//! them the exponential of a strip in cache takes half the time.)
//!
//! ```text
//! exp      x = n·ln2 + r, |r| ≤ ln2/2;   eˣ = 2ⁿ·(1 + r + r²·p(r))        p of degree 10
//! expm1    the same sum with 1 replaced by 1 - 2⁻ⁿ, added without loss
//! log      x = 2ᵏ·(1 + f), s = f/(2 + f);  log(1 + f) = f - (f²/2 - s·(f²/2 + q(s²)))
//! tanh     from expm1(2|x|);  sigmoid from exp(-|x|);  softplus from log1p(exp(-|x|))
//! ```
//!
//! Errors are below 1 ulp for `exp`, `log` and `log1p`, below 2 ulp for `expm1`, `tanh`, `sigmoid` and
//! `softplus`, subnormal results included (measured against 200 bits on a million arguments). What
//! vectorizes badly (`sin`, `cos`, `tan`, `pow`, `erfc`) is taken from the crate `libm`: plain Rust too,
//! so again the same bits everywhere.
//!
//! Sources: the argument reductions and `q` are fdlibm's (`e_log.c`, `s_log1p.c`, `s_expm1.c`); `p` is the
//! Chebyshev fit of (eʳ - 1 - r)/r², whose error is 3·10⁻¹⁹ of the result.

#![allow(clippy::excessive_precision, reason = "constants as their sources print them")]

use std::f64::consts::{LOG2_E, SQRT_2};

/// 1.5·2⁵²: adding it rounds to an integer, which the low bits of the sum then hold.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// ln 2 to 32 bits, so that a product with an exponent is exact, and the rest of it.
const LN2_HIGH: f64 = 6.931_471_803_691_238_164_90e-1;
const LN2_LOW: f64 = 1.908_214_929_270_587_700_02e-10;

/// Added to binary exponents so that they stay positive and can be halved by a plain shift.
const BIAS: u64 = 2048;

/// `x = n·ln2 + r + low` with |r| ≤ ln2/2: r, low, and n + [`BIAS`]. For |x| < 1024.
#[inline(always)]
fn reduce(x: f64) -> (f64, f64, u64) {
    let shifted = x.mul_add(LOG2_E, ROUND);
    let n = shifted - ROUND;
    let high = n.mul_add(-LN2_HIGH, x);
    let r = n.mul_add(-LN2_LOW, high);
    (r, n.mul_add(-LN2_LOW, high - r), shifted.to_bits().wrapping_add(BIAS) & 0xfff)
}

/// `exp(r + low) - 1 - r`, for |r| ≤ ln2/2.
#[inline(always)]
fn tail(r: f64, low: f64) -> f64 {
    let r2 = r * r;
    let r4 = r2 * r2;
    let p0 = 0.166_666_666_666_666_7f64.mul_add(r, 0.5);
    let p2 = 0.008_333_333_333_326_129f64.mul_add(r, 0.041_666_666_666_666_67);
    let p4 = 1.984_126_987_484_076_8e-4f64.mul_add(r, 1.388_888_888_888_374_4e-3);
    let p6 = 2.755_725_537_465_874_4e-6f64.mul_add(r, 2.480_158_732_556_212_5e-5);
    let p8 = 2.510_522_763_655_176e-8f64.mul_add(r, 2.755_727_362_486_648e-7);
    let p8 = 2.091_469_456_035_159_2e-9f64.mul_add(r2, p8);
    let (p0, p4) = (p2.mul_add(r2, p0), p6.mul_add(r2, p4));
    p8.mul_add(r4, p4).mul_add(r4, p0).mul_add(r2, low)
}

/// `2^(n/2)` twice (the second time rounded up), so that their product passes the normal range.
#[inline(always)]
fn powers_of_two(n: u64) -> (f64, f64) {
    let half = n >> 1;
    let power = |exponent: u64| f64::from_bits(exponent.wrapping_sub(1) << 52);
    (power(half), power(n.wrapping_sub(half)))
}

/// The sum, and what it lost to rounding.
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_part = sum - a;
    (sum, (a - (sum - b_part)) + (b - b_part))
}

/// `x` within `low..=high`; `NaN` stays.
#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// eˣ, and what it lost to rounding.
#[inline(always)]
fn exp_pair(x: f64) -> (f64, f64) {
    // Beyond these bounds the result is 0 or infinite already.
    let (r, low, n) = reduce(clamp(x, -746.0, 710.0));
    let (first, second) = powers_of_two(n);
    let part = r + tail(r, low);
    let value = 1.0 + part;
    ((value * first) * second, (((1.0 - value) + part) * first) * second)
}

/// eˣ.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    exp_pair(x).0
}

/// eˣ - 1 for -60 ≤ x ≤ 60, and what it lost to rounding.
#[inline(always)]
fn expm1_pair(x: f64) -> (f64, f64) {
    let (r, low, n) = reduce(x);
    let scale = f64::from_bits(n.wrapping_sub(BIAS - 1023) << 52);
    let (sum, lost) = two_sum(scale - 1.0, scale * r);
    let part = tail(r, low).mul_add(scale, lost);
    let value = sum + part;
    (value, (sum - value) + part)
}

/// `(a + a_low) / (b + b_low)` for low parts of some units of rounding.
#[inline(always)]
fn quotient(a: f64, a_low: f64, b: f64, b_low: f64) -> f64 {
    let q = a / b;
    q + q.mul_add(-b_low, a_low) / b
}

/// eˣ - 1, exact to the last places near 0.
#[inline(always)]
pub(super) fn expm1(x: f64) -> f64 {
    let y = if x > 50.0 { exp(x) } else { expm1_pair(clamp(x, -50.0, 50.0)).0 };
    if x.abs() < 1e-290 { x } else { y }
}

/// `x = 2^k·m` with m in √½ … √2: k and m. For positive normal x.
#[inline(always)]
fn split(x: f64) -> (f64, f64) {
    const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = x.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - SQRT_HALF_BITS);
    // 2^52 + exponent, by its bits, is exact and vectorizes where a conversion would not.
    let k =
        f64::from_bits((bits >> 52) | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + 1023.0);
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF_BITS));
    (k, m)
}

/// `k·ln2 + log(1 + f + c)` for a c far below f, and f in √½-1 … √2-1.
#[inline(always)]
fn log_sum(k: f64, f: f64, c: f64) -> f64 {
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * w
        .mul_add(1.531_383_769_920_937_332e-1, 2.222_219_843_214_978_396e-1)
        .mul_add(w, 3.999_999_999_940_941_908e-1);
    let odd = w
        .mul_add(1.479_819_860_511_658_591e-1, 1.818_357_216_161_805_012e-1)
        .mul_add(w, 2.857_142_874_366_239_149e-1)
        .mul_add(w, 6.666_666_666_666_735_130e-1);
    let q = z.mul_add(odd, even);
    k * LN2_HIGH - ((half_square - s.mul_add(half_square + q, k.mul_add(LN2_LOW, c))) - f)
}

/// The natural logarithm.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    const TWO_54: f64 = 18_014_398_509_481_984.0;
    let small = x < f64::MIN_POSITIVE;
    let (k, m) = split(if small { x * TWO_54 } else { x });
    let y = log_sum(if small { k - 54.0 } else { k }, m - 1.0, 0.0);
    let y = if x < f64::INFINITY { y } else { x };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x < 0.0 { f64::NAN } else { y }
}

/// log(1 + x), exact to the last places near 0.
#[inline(always)]
pub(super) fn log1p(x: f64) -> f64 {
    let u = 1.0 + x;
    let (k, m) = split(u);
    // What 1 + x lost to rounding, relative to u; of no account once u is beyond 2^53.
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    let near = k == 0.0;
    let (f, c) = (if near { x } else { m - 1.0 }, if near { 0.0 } else { lost / u });
    let y = log_sum(k, f, c);
    let y = if x < f64::INFINITY { y } else { x };
    let y = if x.abs() < 1e-290 { x } else { y };
    let y = if x == -1.0 { f64::NEG_INFINITY } else { y };
    if x < -1.0 { f64::NAN } else { y }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f64) -> f64 {
    // From 19.07 on the result is 1.
    let a = x.abs();
    let (t, t_low) = expm1_pair(clamp(a + a, 0.0, 44.0));
    let (below, below_low) = two_sum(t, 2.0);
    let near = a < 0.55;
    let (above, above_low) = if near { (t, t_low) } else { (2.0, 0.0) };
    let q = quotient(above, above_low, below, below_low + t_low);
    let y = if near { q } else { 1.0 - q };
    (if a < 1e-290 { a } else { y }).copysign(x)
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(super) fn sigmoid(x: f64) -> f64 {
    let (e, e_low) = exp_pair(-x.abs());
    let (below, below_low) = two_sum(1.0, e);
    let (above, above_low) = if x < 0.0 { (e, e_low) } else { (1.0, 0.0) };
    quotient(above, above_low, below, below_low + e_low)
}

/// log(1 + eˣ).
#[inline(always)]
pub(super) fn softplus(x: f64) -> f64 {
    let y = log1p(exp(-x.abs()));
    if x > 0.0 { x + y } else { y }
}

/// x·Φ(x) with the normal distribution function Φ, by the complementary error function.
///
/// The relative error grows like x² units of rounding for negative x, where the result vanishes.
pub(super) fn gelu(x: f64) -> f64 {
    if x < -40.0 { -0.0 } else { 0.5 * x * libm::erfc(-x / SQRT_2) }
}

/// `a` to the power `b` as IEEE 754-2019 has it, but a², a³ and a⁻¹ by multiplying and dividing.
pub(super) fn power(a: f64, b: f64) -> f64 {
    if b == 2.0 {
        a * a
    } else if b == 3.0 {
        a * a * a
    } else if b == -1.0 {
        1.0 / a
    } else if b == 0.5 {
        square_root_power(a)
    } else {
        libm::pow(a, b)
    }
}

/// `a` to the power ½, which unlike the square root maps -∞ to ∞ and -0 to 0.
#[inline(always)]
fn square_root_power(a: f64) -> f64 {
    if a == f64::NEG_INFINITY { f64::INFINITY } else { a.sqrt() + 0.0 }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Where functions change their ways: zeros, subnormals, ones, overflow, not numbers.
    const EXTREMES: [f64; 24] = [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        1e-310,
        -1e-310,
        f64::MIN_POSITIVE,
        1e-291,
        1.0,
        -1.0,
        0.5,
        -0.5,
        0.55,
        709.782_712_893_384,
        709.782_712_893_385,
        -708.4,
        -745.133_219_101_941_1,
        -745.2,
        1e300,
        -1e300,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];

    /// Extremes, any bits at all, and numbers of ordinary size, near 1 and near 0.
    fn arguments(seed: u64) -> impl Iterator<Item = f64> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let random = (0..400_000).flat_map(move |_| {
            let scale = 10f64.powi(rng.random_range(-12..3));
            [
                f64::from_bits(rng.random()),
                rng.random_range(-750.0..750.0),
                rng.random_range(-3.0..3.0),
                1.0 + rng.random_range(-1.0..1.0) * scale.min(0.5),
                rng.random_range(-1.0..1.0) * scale,
            ]
        });
        EXTREMES.into_iter().chain(random)
    }

    /// How many numbers `a` and `b` are apart; 0 for two `NaN`.
    fn distance(a: f64, b: f64) -> u64 {
        let ordered = |x: f64| {
            let bits = x.to_bits() as i64;
            if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
        };
        if a.is_nan() && b.is_nan() { 0 } else { ordered(a).abs_diff(ordered(b)) }
    }

    /// `ulp_max` allows for the error of the twin: that of `libm` is up to 1 ulp, of `tanh` 2.
    fn assert_near(name: &str, ours: impl Fn(f64) -> f64, twin: impl Fn(f64) -> f64, ulp_max: u64) {
        for x in arguments(7) {
            let (found, expected) = (ours(x), twin(x));
            assert!(
                distance(found, expected) <= ulp_max,
                "{name}({x:e}) is {found:e}, not {expected:e}"
            );
            if x == 0.0 && expected == 0.0 {
                assert_eq!(found.to_bits(), expected.to_bits(), "the sign of {name}({x})");
            }
        }
    }

    #[test]
    fn functions_are_near_their_twins() {
        assert_near("exp", exp, libm::exp, 1);
        assert_near("log", log, libm::log, 1);
        assert_near("expm1", expm1, libm::expm1, 2);
        assert_near("log1p", log1p, libm::log1p, 2);
        assert_near("tanh", tanh, libm::tanh, 3);
    }

    #[test]
    fn composed_functions_are_near_their_formulas() {
        // The formulas lose nothing on their side of 0; on the other they stand for the mirror image.
        let logistic = |x: f64| {
            if x > -700.0 { 1.0 / (1.0 + libm::exp(-x)) } else { libm::exp(x) }
        };
        assert_near("sigmoid", sigmoid, logistic, 3);
        let plus = |x: f64| {
            if x > 0.0 { x + libm::log1p(libm::exp(-x)) } else { libm::log1p(libm::exp(x)) }
        };
        assert_near("softplus", softplus, plus, 2);
    }

    #[test]
    fn small_exponents_agree_with_pow() {
        for x in arguments(11) {
            assert_eq!(distance(power(x, 2.0), libm::pow(x, 2.0)), 0, "{x:e} squared");
            assert_eq!(distance(power(x, -1.0), libm::pow(x, -1.0)), 0, "one over {x:e}");
            assert!(distance(power(x, 3.0), libm::pow(x, 3.0)) <= 1, "{x:e} cubed");
            assert!(distance(power(x, 0.5), libm::pow(x, 0.5)) <= 1, "root of {x:e}");
        }
    }

    #[test]
    fn gelu_vanishes_on_the_left_and_is_x_on_the_right() {
        assert_eq!(gelu(0.0).to_bits(), 0);
        assert_eq!(gelu(f64::NEG_INFINITY), 0.0);
        assert_eq!(gelu(50.0), 50.0);
        assert!(gelu(f64::NAN).is_nan());
        // 1·Φ(1), from tables of the normal distribution.
        assert!((gelu(1.0) - 0.841_344_746_068_542_9).abs() < 1e-15);
    }
}
