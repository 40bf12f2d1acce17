// Products of a sparse matrix, compressed by rows, and a dense one; and all cells of a sparse matrix.
#include "common.cuh"

// Some threads share a row, a power of two and no more than a warp: `across` of them go along the columns of the result, and as many
// cells are read at once as the others allow. All threads of a block go equally often through its loops, for they meet in them.
template <class T>
__device__ __forceinline__ void product(T* out, const u64* offsets, const u32* places, const T* values, const T* dense, u64 rows, u64 columns, u32 shared, u32 across) {
    const u32 lane = threadIdx.x % shared, column = lane % across, first = lane / across, step = shared / across;
    const u32 at_once = THREADS / shared;
    for (u64 top = (u64)blockIdx.x * at_once; top < rows; top += (u64)gridDim.x * at_once) {
        const u64 row = top + threadIdx.x / shared;
        const u64 begin = row < rows ? offsets[row] - offsets[0] : 0, end = row < rows ? offsets[row + 1] - offsets[0] : 0;
        for (u64 left = 0; left < columns; left += across) {
            const bool is_inside = left + column < columns;
            f64 sum = 0;
#pragma unroll 4
            for (u64 at = begin + first; at < end; at += step) {
                if (is_inside) sum += (f64)values[at] * (f64)dense[places[at] * columns + left + column];
            }
            for (u32 apart = shared / 2; apart >= across; apart /= 2) sum += __shfl_down_sync(0xffffffff, sum, apart, shared);
            if (row < rows && is_inside && first == 0) out[row * columns + left + column] = (T)sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) product_f64(f64* out, const u64* offsets, const u32* places, const f64* values, const f64* dense, u64 rows, u64 columns, u32 shared, u32 across) {
    product(out, offsets, places, values, dense, rows, columns, shared, across);
}

extern "C" __global__ void __launch_bounds__(THREADS) product_f32(f32* out, const u64* offsets, const u32* places, const f32* values, const f32* dense, u64 rows, u64 columns, u32 shared, u32 across) {
    product(out, offsets, places, values, dense, rows, columns, shared, across);
}

// Writes what is stored to its places among cells that are zero; some threads share a row.
template <class T>
__device__ __forceinline__ void expand(T* out, const u64* offsets, const u32* places, const T* values, u64 rows, u64 columns, u32 shared) {
    const u32 at_once = THREADS / shared;
    for (u64 row = (u64)blockIdx.x * at_once + threadIdx.x / shared; row < rows; row += (u64)gridDim.x * at_once) {
        const u64 end = offsets[row + 1] - offsets[0];
        for (u64 at = offsets[row] - offsets[0] + threadIdx.x % shared; at < end; at += shared) out[row * columns + places[at]] = values[at];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) expand_f64(f64* __restrict__ out, const u64* __restrict__ offsets, const u32* __restrict__ places, const f64* __restrict__ values, u64 rows, u64 columns, u32 shared) {
    expand(out, offsets, places, values, rows, columns, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS) expand_f32(f32* __restrict__ out, const u64* __restrict__ offsets, const u32* __restrict__ places, const f32* __restrict__ values, u64 rows, u64 columns, u32 shared) {
    expand(out, offsets, places, values, rows, columns, shared);
}
