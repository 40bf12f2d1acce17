// The same cells at other places, or in fewer bits: transposes, blocks of one matrix copied into another, triangles, factors of 16 bits.
#include "common.cuh"

// By tiles in shared memory, so that both reading and writing go along rows; a column more keeps lanes in banks of their own.
#define TILE 32
#define SIDE (THREADS / TILE)

template <class T>
__device__ __forceinline__ void transpose(T* out, const T* in, u64 rows, u64 columns) {
    __shared__ T tile[TILE][TILE + 1];
    const u32 lane = threadIdx.x % TILE, side = threadIdx.x / TILE;
    const u64 across = (columns + TILE - 1) / TILE, tiles = across * ((rows + TILE - 1) / TILE);
    for (u64 at = blockIdx.x; at < tiles; at += gridDim.x) {
        const u64 top = at / across * TILE, left = at % across * TILE;
        for (u32 row = side; row < TILE; row += SIDE) {
            if (top + row < rows && left + lane < columns) {
                tile[row][lane] = in[(top + row) * columns + left + lane];
            }
        }
        __syncthreads();
        for (u32 row = side; row < TILE; row += SIDE) {
            if (left + row < columns && top + lane < rows) {
                out[(left + row) * rows + top + lane] = tile[lane][row];
            }
        }
        __syncthreads();
    }
}

// `rows` rows of `columns` cells, from places `from` on of rows of `from_width` cells to places `to` on of rows of `to_width`.
template <class T>
__device__ __forceinline__ void copy(T* out, const T* in, u64 rows, u64 columns, u64 from, u64 from_width, u64 to, u64 to_width) {
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < rows * columns; at += step) {
        const u64 row = at / columns, column = at % columns;
        out[to + row * to_width + column] = in[from + row * from_width + column];
    }
}

// What is on and below the diagonal, or on and above it, and zeros elsewhere.
template <bool Upper, class T>
__device__ __forceinline__ void triangle(T* out, const T* in, u64 rows, u64 columns) {
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < rows * columns; at += step) {
        const u64 row = at / columns, column = at % columns;
        out[at] = (Upper ? row <= column : column <= row) ? in[at] : T(0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) lower_f64(f64* out, const f64* in, u64 rows, u64 columns) {
    triangle<false>(out, in, rows, columns);
}

extern "C" __global__ void __launch_bounds__(THREADS) lower_f32(f32* out, const f32* in, u64 rows, u64 columns) {
    triangle<false>(out, in, rows, columns);
}

extern "C" __global__ void __launch_bounds__(THREADS) upper_f64(f64* out, const f64* in, u64 rows, u64 columns) {
    triangle<true>(out, in, rows, columns);
}

extern "C" __global__ void __launch_bounds__(THREADS) upper_f32(f32* out, const f32* in, u64 rows, u64 columns) {
    triangle<true>(out, in, rows, columns);
}

// The upper half of a number in single precision, rounded to the nearest and of two to the even one; what is not a number stays none.
__device__ __forceinline__ u32 bf16(f32 x) {
    const u32 bits = __float_as_uint(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
}

// Two in a word, the first in its lower half; the last word of an odd number of cells ends with a zero.
template <class T>
__device__ __forceinline__ void halve(u32* out, const T* in, u64 cells) {
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; 2 * at < cells; at += step) {
        const u32 second = 2 * at + 1 < cells ? bf16((f32)in[2 * at + 1]) : 0;
        out[at] = bf16((f32)in[2 * at]) | second << 16;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) halve_f64(u32* out, const f64* in, u64 cells) {
    halve(out, in, cells);
}

extern "C" __global__ void __launch_bounds__(THREADS) halve_f32(u32* out, const f32* in, u64 cells) {
    halve(out, in, cells);
}

extern "C" __global__ void __launch_bounds__(THREADS) transpose_f64(f64* out, const f64* in, u64 rows, u64 columns) {
    transpose(out, in, rows, columns);
}

extern "C" __global__ void __launch_bounds__(THREADS) transpose_f32(f32* out, const f32* in, u64 rows, u64 columns) {
    transpose(out, in, rows, columns);
}

extern "C" __global__ void __launch_bounds__(THREADS) copy_f64(f64* out, const f64* in, u64 rows, u64 columns, u64 from, u64 from_width, u64 to, u64 to_width) {
    copy(out, in, rows, columns, from, from_width, to, to_width);
}

extern "C" __global__ void __launch_bounds__(THREADS) copy_f32(f32* out, const f32* in, u64 rows, u64 columns, u64 from, u64 from_width, u64 to, u64 to_width) {
    copy(out, in, rows, columns, from, from_width, to, to_width);
}
