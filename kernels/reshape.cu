// The same cells at other places: transposes, and blocks of one matrix copied into another.
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
