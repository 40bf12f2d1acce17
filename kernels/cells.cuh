// The functions of single cells, as exec/kernels/elementwise.rs defines them: evaluated in f64 and rounded once. What is exact in
// either width (sums, products, quotients, square roots) is computed in that of the cells, which gives the same.
#pragma once

#include "math.cuh"

namespace cell {

#define UNARY(name, value)                                  \
    template <class T>                                      \
    __device__ __forceinline__ T name(T cell) {             \
        const f64 x = (f64)cell;                            \
        return (T)(value);                                  \
    }

UNARY(negate, -x)
UNARY(abs, fabs(x))
UNARY(sign, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x + 0.0)
UNARY(exp, math::exp(x))
UNARY(log, math::log(x))
UNARY(log1p, math::log1p(x))
UNARY(expm1, math::expm1(x))
UNARY(sin, ::sin(x))
UNARY(cos, ::cos(x))
UNARY(tan, ::tan(x))
UNARY(tanh, math::tanh(x))
UNARY(floor, ::floor(x))
UNARY(ceil, ::ceil(x))
UNARY(round, ::round(x))
UNARY(is_nan, math::is_nan(x) ? 1.0 : 0.0)
UNARY(logical_not, x == 0.0 ? 1.0 : 0.0)
UNARY(relu, x <= 0.0 ? 0.0 : x)
UNARY(sigmoid, math::sigmoid(x))
UNARY(gelu, math::gelu(x))
UNARY(softplus, math::softplus(x))

__device__ __forceinline__ f64 sqrt(f64 x) { return ::sqrt(x); }
__device__ __forceinline__ f32 sqrt(f32 x) { return ::sqrtf(x); }

#define BINARY(name, value)                                 \
    template <class T>                                      \
    __device__ __forceinline__ T name(T a, T b) {           \
        return (T)(value);                                  \
    }

BINARY(add, a + b)
BINARY(subtract, a - b)
BINARY(multiply, a * b)
BINARY(divide, a / b)
BINARY(power, math::power((f64)a, (f64)b))
BINARY(less, a < b ? 1 : 0)
BINARY(less_equal, a <= b ? 1 : 0)
BINARY(greater, a > b ? 1 : 0)
BINARY(greater_equal, a >= b ? 1 : 0)
BINARY(equal, a == b ? 1 : 0)
BINARY(not_equal, a != b ? 1 : 0)
BINARY(logical_and, (a != (T)0) & (b != (T)0) ? 1 : 0)
BINARY(logical_or, (a != (T)0) | (b != (T)0) ? 1 : 0)
BINARY(least, (a < b) | (a != a) ? a : b)
BINARY(greatest, (a > b) | (a != a) ? a : b)

template <class T>
__device__ __forceinline__ T select(T condition, T a, T b) {
    return condition != (T)0 ? a : b;
}

}  // namespace cell
