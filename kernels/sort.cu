// What sorts rows by codes that are there, of 32 and of 64 bits; see `sort.cuh`.
#include "sort.cuh"

// Of rows that are named the codes that begin at a place.
template <class T>
__device__ __forceinline__ void gather_codes(T* __restrict__ out, const T* __restrict__ codes, const u32* __restrict__ rows, u64 count, u64 first) {
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < count; at += (u64)gridDim.x * THREADS) out[at] = codes[first + rows[at]];
}

extern "C" __global__ void __launch_bounds__(THREADS) number_rows(u32* out, u64 rows) {
    for (u64 row = (u64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += (u64)gridDim.x * THREADS) out[row] = (u32)row;
}

// By one block.
extern "C" __global__ void __launch_bounds__(THREADS) scan_rows(u64* counts, u64 blocks) {
    scan_counts(counts, blocks);
}

// By a block for each digit.
extern "C" __global__ void __launch_bounds__(THREADS) scan_digits(u64* counts, u64 blocks) {
    scan_counts(counts + (u64)blockIdx.x * (blocks + 1), blocks);
}

extern "C" __global__ void __launch_bounds__(THREADS) narrow_threshold(u64* left, u64* threshold, u32* counts, u32 word, u32 shift) {
    narrow(left, threshold, counts, word, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_prefix_u32(u32* counts, const u32* codes, const u8* kept, u64 rows, u64 stride, const u64* threshold, u32 word, u32 shift) {
    count_prefix(counts, codes, kept, rows, stride, threshold, word, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_rows_u32(u64* counts, u64 rows, const u32* codes, const u8* kept, u64 stride, const u64* threshold, u32 words, u32 which) {
    count_there(counts, rows, Wanted<u32>{codes, kept, stride, threshold, words, which});
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_rows_u32(u32* out, u64 most, const u64* left, const u64* counts, u64 rows, const u32* codes, const u8* kept, u64 stride, const u64* threshold, u32 words, u32 which) {
    gather_rows(out, counts, rows, Wanted<u32>{codes, kept, stride, threshold, words, which}, left, most);
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_codes_u32(u32* out, const u32* codes, const u32* rows, u64 count, u64 first) {
    gather_codes(out, codes, rows, count, first);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_digits_u32(u64* counts, const u32* codes, u64 count, u32 shift) {
    count_digits(counts, codes, count, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) move_digits_u32(u32* out_codes, u32* out_rows, const u32* codes, const u32* rows, const u64* counts, u64 count, u32 shift) {
    move_digits(out_codes, out_rows, codes, rows, counts, count, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_prefix_u64(u32* counts, const u64* codes, const u8* kept, u64 rows, u64 stride, const u64* threshold, u32 word, u32 shift) {
    count_prefix(counts, codes, kept, rows, stride, threshold, word, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_rows_u64(u64* counts, u64 rows, const u64* codes, const u8* kept, u64 stride, const u64* threshold, u32 words, u32 which) {
    count_there(counts, rows, Wanted<u64>{codes, kept, stride, threshold, words, which});
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_rows_u64(u32* out, u64 most, const u64* left, const u64* counts, u64 rows, const u64* codes, const u8* kept, u64 stride, const u64* threshold, u32 words, u32 which) {
    gather_rows(out, counts, rows, Wanted<u64>{codes, kept, stride, threshold, words, which}, left, most);
}

extern "C" __global__ void __launch_bounds__(THREADS) gather_codes_u64(u64* out, const u64* codes, const u32* rows, u64 count, u64 first) {
    gather_codes(out, codes, rows, count, first);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_digits_u64(u64* counts, const u64* codes, u64 count, u32 shift) {
    count_digits(counts, codes, count, shift);
}

extern "C" __global__ void __launch_bounds__(THREADS) move_digits_u64(u64* out_codes, u32* out_rows, const u64* codes, const u32* rows, const u64* counts, u64 count, u32 shift) {
    move_digits(out_codes, out_rows, codes, rows, counts, count, shift);
}
