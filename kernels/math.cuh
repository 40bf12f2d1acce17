// Functions of one number: the same straight lines as exec/kernels/math.rs, where their errors and sources are told.
//
// Every step is exactly rounded on either side, so a cell has the same bits on a device and on the host. That holds only where
// nothing is contracted: these are compiled with --fmad=false, and fused multiply-adds are written.
#pragma once

#include "common.cuh"

namespace math {

__device__ __forceinline__ f64 of_bits(u64 bits) { return __longlong_as_double((long long)bits); }
__device__ __forceinline__ u64 bits_of(f64 x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ f64 infinity() { return of_bits(0x7ff0000000000000ull); }
__device__ __forceinline__ f64 nan() { return of_bits(0x7ff8000000000000ull); }
__device__ __forceinline__ bool is_nan(f64 x) { return x != x; }

#define ROUND 6755399441055744.0
#define LOG2_E 1.44269504088896340736
#define LN2_HIGH 6.93147180369123816490e-1
#define LN2_LOW 1.90821492927058770002e-10
#define BIAS 2048ull

// A number and what it lost to rounding.
struct Pair {
    f64 value, low;
};

__device__ __forceinline__ Pair two_sum(f64 a, f64 b) {
    const f64 sum = a + b;
    const f64 b_part = sum - a;
    return {sum, (a - (sum - b_part)) + (b - b_part)};
}

__device__ __forceinline__ f64 clamp(f64 x, f64 low, f64 high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

// x = n ln2 + r + low, and n + BIAS.
struct Reduced {
    f64 r, low;
    u64 n;
};

__device__ __forceinline__ Reduced reduce(f64 x) {
    const f64 shifted = fma(x, LOG2_E, ROUND);
    const f64 n = shifted - ROUND;
    const f64 high = fma(n, -LN2_HIGH, x);
    const f64 r = fma(n, -LN2_LOW, high);
    return {r, fma(n, -LN2_LOW, high - r), (bits_of(shifted) + BIAS) & 0xfffull};
}

// exp(r + low) - 1 - r
__device__ __forceinline__ f64 tail(f64 r, f64 low) {
    const f64 r2 = r * r;
    const f64 r4 = r2 * r2;
    f64 p0 = fma(0.1666666666666667, r, 0.5);
    const f64 p2 = fma(0.008333333333326129, r, 0.04166666666666667);
    f64 p4 = fma(1.9841269874840768e-4, r, 1.3888888888883744e-3);
    const f64 p6 = fma(2.7557255374658744e-6, r, 2.4801587325562125e-5);
    f64 p8 = fma(2.510522763655176e-8, r, 2.755727362486648e-7);
    p8 = fma(2.0914694560351592e-9, r2, p8);
    p0 = fma(p2, r2, p0);
    p4 = fma(p6, r2, p4);
    return fma(fma(fma(p8, r4, p4), r4, p0), r2, low);
}

__device__ __forceinline__ f64 power_of_two(u64 exponent) { return of_bits((exponent - 1) << 52); }

__device__ __forceinline__ Pair exp_pair(f64 x) {
    const Reduced at = reduce(clamp(x, -746.0, 710.0));
    const u64 half = at.n >> 1;
    const f64 first = power_of_two(half), second = power_of_two(at.n - half);
    const f64 part = at.r + tail(at.r, at.low);
    const f64 value = 1.0 + part;
    return {(value * first) * second, (((1.0 - value) + part) * first) * second};
}

__device__ __forceinline__ f64 exp(f64 x) { return exp_pair(x).value; }

__device__ __forceinline__ Pair expm1_pair(f64 x) {
    const Reduced at = reduce(x);
    const f64 scale = of_bits((at.n - (BIAS - 1023)) << 52);
    const Pair sum = two_sum(scale - 1.0, scale * at.r);
    const f64 part = fma(tail(at.r, at.low), scale, sum.low);
    const f64 value = sum.value + part;
    return {value, (sum.value - value) + part};
}

__device__ __forceinline__ f64 quotient(f64 a, f64 a_low, f64 b, f64 b_low) {
    const f64 q = a / b;
    return q + fma(q, -b_low, a_low) / b;
}

__device__ __forceinline__ f64 expm1(f64 x) {
    const f64 y = x > 50.0 ? exp(x) : expm1_pair(clamp(x, -50.0, 50.0)).value;
    return fabs(x) < 1e-290 ? x : y;
}

// x = 2^k m
struct Split {
    f64 k, m;
};

__device__ __forceinline__ Split split(f64 x) {
    const u64 sqrt_half = 0x3fe6a09e667f3bcdull;
    const u64 bits = bits_of(x) + (0x3ff0000000000000ull - sqrt_half);
    const f64 k = of_bits((bits >> 52) | 0x4330000000000000ull) - (4503599627370496.0 + 1023.0);
    return {k, of_bits((bits & 0x000fffffffffffffull) + sqrt_half)};
}

// k ln2 + log(1 + f + c)
__device__ __forceinline__ f64 log_sum(f64 k, f64 f, f64 c) {
    const f64 half_square = 0.5 * f * f;
    const f64 s = f / (2.0 + f);
    const f64 z = s * s;
    const f64 w = z * z;
    const f64 even =
        w * fma(fma(w, 1.531383769920937332e-1, 2.222219843214978396e-1), w, 3.999999999940941908e-1);
    f64 odd = fma(w, 1.479819860511658591e-1, 1.818357216161805012e-1);
    odd = fma(fma(odd, w, 2.857142874366239149e-1), w, 6.666666666666735130e-1);
    const f64 q = fma(z, odd, even);
    return k * LN2_HIGH - ((half_square - fma(s, half_square + q, fma(k, LN2_LOW, c))) - f);
}

__device__ __forceinline__ f64 log(f64 x) {
    const bool small = x < 2.2250738585072014e-308;
    const Split at = split(small ? x * 18014398509481984.0 : x);
    f64 y = log_sum(small ? at.k - 54.0 : at.k, at.m - 1.0, 0.0);
    y = x < infinity() ? y : x;
    y = x == 0.0 ? -infinity() : y;
    return x < 0.0 ? nan() : y;
}

__device__ __forceinline__ f64 log1p(f64 x) {
    const f64 u = 1.0 + x;
    const Split at = split(u);
    const f64 lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
    const bool near = at.k == 0.0;
    f64 y = log_sum(at.k, near ? x : at.m - 1.0, near ? 0.0 : lost / u);
    y = x < infinity() ? y : x;
    y = fabs(x) < 1e-290 ? x : y;
    y = x == -1.0 ? -infinity() : y;
    return x < -1.0 ? nan() : y;
}

__device__ __forceinline__ f64 tanh(f64 x) {
    const f64 a = fabs(x);
    const Pair t = expm1_pair(clamp(a + a, 0.0, 44.0));
    const Pair below = two_sum(t.value, 2.0);
    const bool near = a < 0.55;
    const f64 q =
        quotient(near ? t.value : 2.0, near ? t.low : 0.0, below.value, below.low + t.low);
    const f64 y = near ? q : 1.0 - q;
    return copysign(a < 1e-290 ? a : y, x);
}

__device__ __forceinline__ f64 sigmoid(f64 x) {
    const Pair e = exp_pair(-fabs(x));
    const Pair below = two_sum(1.0, e.value);
    const bool negative = x < 0.0;
    return quotient(negative ? e.value : 1.0, negative ? e.low : 0.0, below.value, below.low + e.low);
}

__device__ __forceinline__ f64 softplus(f64 x) {
    const f64 y = log1p(exp(-fabs(x)));
    return x > 0.0 ? x + y : y;
}

// The device's own erfc is within 5 units in the last place of the host's.
__device__ __forceinline__ f64 gelu(f64 x) {
    return x < -40.0 ? -0.0 : 0.5 * x * ::erfc(-x / 1.41421356237309504880);
}

// The device's own pow is within 2 units in the last place of the host's.
__device__ __forceinline__ f64 power(f64 a, f64 b) {
    if (b == 2.0) return a * a;
    if (b == 3.0) return a * a * a;
    if (b == -1.0) return 1.0 / a;
    if (b == 0.5) return a == -infinity() ? infinity() : ::sqrt(a) + 0.0;
    return ::pow(a, b);
}

}  // namespace math
