// Products, queued as those of cuBLAS are, column by column as it has them.

#include "driver.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#define API extern "C" int

namespace {

constexpr int SUCCESS = 0;
constexpr int INVALID_VALUE = 7;
constexpr int EXECUTION_FAILED = 13;
constexpr int NOT_SUPPORTED = 15;
// Of the driver.
constexpr int ILLEGAL_ADDRESS = 700;

// A block of a product.
constexpr int64_t ROWS = 512, COLUMNS = 32;

constexpr int FLOAT32 = 0, BF16 = 14;
constexpr int IN_FLOAT32 = 68, FAST_TF32 = 77;

struct Handle {
    const void* device;
    void* stream;
    // Memory of the caller's to work in.
    void* workspace;
    size_t bytes;
};

// A cell as it is multiplied.
struct Whole {
    template <class T>
    static T of(T x) {
        return x;
    }
};

// Without its last 13 bits: rounded to the nearest, of two to the even one.
struct Tf32 {
    static float of(float x) {
        if (!std::isfinite(x)) return x;
        const uint32_t bits = std::bit_cast<uint32_t>(x), half = (1u << 12) - 1 + (bits >> 13 & 1);
        return std::bit_cast<float>((bits + half) & ~((1u << 13) - 1));
    }
};

// The upper half of one in single precision.
struct Bf16 {
    static float of(uint16_t x) { return std::bit_cast<float>((uint32_t)x << 16); }
};

template <class As, class Cell, class T>
int gemm(Handle* handle, bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k, T alpha, const Cell* a, int64_t width_a,
         const Cell* b, int64_t width_b, T beta, T* c, int64_t width_c) {
    if (width_a < (turn_a ? k : m) || width_b < (turn_b ? n : k) || width_c < m || beta != 0) return INVALID_VALUE;
    if (standin_fails("refuse_product")) return EXECUTION_FAILED;
    // Recorded, it would allocate memory of its own each time.
    if (standin_captures(handle->stream) && !handle->workspace) return EXECUTION_FAILED;
    const std::function<int()> work = [=, workspace = handle->workspace, bytes = handle->bytes]() -> int {
        if (workspace) {
            if (!standin_lives(workspace, bytes)) return ILLEGAL_ADDRESS;
            memset(workspace, 0xC3, std::min<size_t>(bytes, 4096));
        }
        auto factor = [=](int64_t at, int64_t column) {
            return As::of(turn_b ? b[column + at * width_b] : b[at + column * width_b]);
        };
        if (turn_a) {
            for (int64_t column = 0; column < n; column++) {
                for (int64_t row = 0; row < m; row++) {
                    const Cell* left = a + row * width_a;
                    T sum = 0;
                    for (int64_t at = 0; at < k; at++) sum += As::of(left[at]) * factor(at, column);
                    c[row + column * width_c] = alpha * sum;
                }
            }
            return SUCCESS;
        }
        // In blocks that stay in the nearest cache, or each column of `c` reads all of `a` from memory.
        for (int64_t first = 0; first < n; first += COLUMNS) {
            const int64_t end = std::min(first + COLUMNS, n);
            for (int64_t top = 0; top < m; top += ROWS) {
                const int64_t rows = std::min(ROWS, m - top);
                for (int64_t column = first; column < end; column++) std::fill_n(c + top + column * width_c, rows, T(0));
                for (int64_t at = 0; at < k; at++) {
                    const Cell* left = a + top + at * width_a;
                    for (int64_t column = first; column < end; column++) {
                        T* sums = c + top + column * width_c;
                        const T right = alpha * factor(at, column);
                        for (int64_t row = 0; row < rows; row++) sums[row] += As::of(left[row]) * right;
                    }
                }
            }
        }
        return SUCCESS;
    };
    return standin_queue(handle->device, handle->stream, {a, b, c}, &work) ? SUCCESS : EXECUTION_FAILED;
}

}  // namespace

API cublasCreate_v2(Handle** handle) { return *handle = new Handle{standin_device(), nullptr, nullptr, 0}, SUCCESS; }
API cublasDestroy_v2(Handle* handle) { return delete handle, SUCCESS; }
// The memory to work in is the library's again.
API cublasSetStream_v2(Handle* handle, void* stream) { return handle->stream = stream, handle->workspace = nullptr, handle->bytes = 0, SUCCESS; }

API cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
    if ((size_t)workspace % 256) return INVALID_VALUE;
    return handle->workspace = workspace, handle->bytes = bytes, SUCCESS;
}

API cublasDgemm_v2_64(Handle* handle, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k, const double* alpha, const double* a,
                      int64_t width_a, const double* b, int64_t width_b, const double* beta, double* c, int64_t width_c) {
    return gemm<Whole>(handle, turn_a, turn_b, m, n, k, *alpha, a, width_a, b, width_b, *beta, c, width_c);
}

API cublasSgemm_v2_64(Handle* handle, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k, const float* alpha, const float* a,
                      int64_t width_a, const float* b, int64_t width_b, const float* beta, float* c, int64_t width_c) {
    return gemm<Whole>(handle, turn_a, turn_b, m, n, k, *alpha, a, width_a, b, width_b, *beta, c, width_c);
}

// What we call it for: factors of float that are rounded, or of bfloat16; scales and sums of float.
API cublasGemmEx_64(Handle* handle, int turn_a, int turn_b, int64_t m, int64_t n, int64_t k, const float* alpha, const void* a, int type_a,
                    int64_t width_a, const void* b, int type_b, int64_t width_b, const float* beta, float* c, int type_c, int64_t width_c,
                    int compute, int) {
    if (type_a != type_b || type_c != FLOAT32) return NOT_SUPPORTED;
    if (type_a == FLOAT32 && compute == FAST_TF32) {
        const auto *left = (const float*)a, *right = (const float*)b;
        return gemm<Tf32>(handle, turn_a, turn_b, m, n, k, *alpha, left, width_a, right, width_b, *beta, c, width_c);
    }
    if (type_a == BF16 && compute == IN_FLOAT32) {
        const auto *left = (const uint16_t*)a, *right = (const uint16_t*)b;
        return gemm<Bf16>(handle, turn_a, turn_b, m, n, k, *alpha, left, width_a, right, width_b, *beta, c, width_c);
    }
    return NOT_SUPPORTED;
}
