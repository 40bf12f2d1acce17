// Products of two sparse matrices, compressed by rows, row by row: each pair of cells that meet is a slot in shared memory, slots are put in
// the order of their columns and, within one, of the host's additions, and what lies in one column is added up.
#include "common.cuh"

// Pairs that a block holds, and those of a thread.
#define SLOTS 2048
#define EACH (SLOTS / THREADS)

// What comes behind all pairs.
#define NO_PAIR 0xffffffffffffffffull

// Threads that go along a row of the right factor at most: a warp.
#define LANES 32

// Rows of no more than `slots` pairs, a power of two; as many of them are in a block as there is room for. What they make goes where their
// pairs would, and how much that is into `counts`.
template <class T>
__device__ __forceinline__ void added(u32* columns, T* values, u32* counts, const u32* rows, u64 row_count, u32 slots, const u64* before, const u64* left_offsets, const u32* left_places, const T* left_values, const u64* right_offsets, const u32* right_places, const T* right_values) {
    __shared__ u64 keys[SLOTS];
    __shared__ T terms[SLOTS];
    __shared__ u32 kept[THREADS];
    const u32 team = slots / EACH, lane = threadIdx.x % team, first = threadIdx.x / team * slots, own = first + lane * EACH;
    const u32 width = team < LANES ? team : LANES, at_once = SLOTS / slots;
    for (u64 top = (u64)blockIdx.x * at_once; top < row_count; top += (u64)gridDim.x * at_once) {
        const u64 at = top + threadIdx.x / team;
        const bool is_row = at < row_count;
        const u32 row = is_row ? rows[at] : 0;
        for (u32 slot = lane; slot < slots; slot += team) keys[first + slot] = NO_PAIR;
        __syncthreads();
        // Lanes of some threads take turns with the cells of the left row; its pairs are numbered as the host goes through them.
        const u64 begin = left_offsets[row] - left_offsets[0], end = is_row ? left_offsets[row + 1] - left_offsets[0] : begin;
        u32 number = 0, turn = lane / width;
#pragma unroll 1
        for (u64 of = begin; of < end; ++of) {
            const u64 from = right_offsets[left_places[of]], count = right_offsets[left_places[of] + 1] - from;
            if (turn == 0) {
                const u32* places = right_places + (from - right_offsets[0]);
                const T* cells = right_values + (from - right_offsets[0]);
#pragma unroll 1
                for (u32 j = lane % width; j < count; j += width) {
                    keys[first + number + j] = (u64)places[j] << 32 | (number + j);
                    terms[first + number + j] = left_values[of] * cells[j];
                }
                turn = team / width;
            }
            turn -= 1;
            number += (u32)count;
        }
        __syncthreads();
        for (u32 size = 2; size <= slots; size *= 2) {
            for (u32 apart = size / 2; apart > 0; apart /= 2) {
                for (u32 of = threadIdx.x; of < SLOTS / 2; of += THREADS) {
                    const u32 low = 2 * of - (of & (apart - 1)), high = low + apart;
                    const u64 x = keys[low], y = keys[high];
                    if ((x > y) == (size == slots || (low & size) == 0)) {
                        keys[low] = y;
                        keys[high] = x;
                    }
                }
                __syncthreads();
            }
        }
        // The sum takes the place of the first of its terms, which nobody else reads.
        u32 is_kept = 0;
#pragma unroll 1
        for (u32 e = 0; e < EACH; ++e) {
            const u32 slot = own + e, column = (u32)(keys[slot] >> 32);
            if (keys[slot] == NO_PAIR || (slot > first && (u32)(keys[slot - 1] >> 32) == column)) continue;
            T* sum = terms + first + (u32)keys[slot];
            T all = *sum;
#pragma unroll 1
            for (u32 next = slot + 1; next < first + slots && (u32)(keys[next] >> 32) == column; ++next) all += terms[first + (u32)keys[next]];
            *sum = all;
            if (all != 0) is_kept |= 1u << e;
        }
        const u32 count = (u32)__popc(is_kept);
        kept[threadIdx.x] = count;
        __syncthreads();
        for (u32 by = 1; by < team; by *= 2) {
            const u32 more = lane >= by ? kept[threadIdx.x - by] : 0;
            __syncthreads();
            kept[threadIdx.x] += more;
            __syncthreads();
        }
        if (is_row) {
            u64 to = before[row] + kept[threadIdx.x] - count;
#pragma unroll 1
            for (u32 e = 0; e < EACH; ++e) {
                if (is_kept >> e & 1) {
                    columns[to] = (u32)(keys[own + e] >> 32);
                    values[to++] = terms[first + (u32)keys[own + e]];
                }
            }
            if (lane == team - 1) counts[row] = kept[threadIdx.x];
        }
        __syncthreads();
    }
}

// The cells of each row from where its pairs would be to where they stay, by a warp.
template <class T>
__device__ __forceinline__ void closed_up(u32* out_columns, T* out_values, const u32* columns, const T* values, const u32* counts, const u64* before, const u64* offsets, u64 rows) {
    const u64 step = (u64)gridDim.x * (THREADS / LANES);
    for (u64 row = (u64)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES; row < rows; row += step) {
        const u64 from = before[row], to = offsets[row];
        for (u32 at = threadIdx.x % LANES; at < counts[row]; at += LANES) {
            out_columns[to + at] = columns[from + at];
            out_values[to + at] = values[from + at];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) add_pairs_f64(u32* columns, f64* values, u32* counts, const u32* rows, u64 row_count, u32 slots, const u64* before, const u64* left_offsets, const u32* left_places, const f64* left_values, const u64* right_offsets, const u32* right_places, const f64* right_values) {
    added(columns, values, counts, rows, row_count, slots, before, left_offsets, left_places, left_values, right_offsets, right_places, right_values);
}

extern "C" __global__ void __launch_bounds__(THREADS) add_pairs_f32(u32* columns, f32* values, u32* counts, const u32* rows, u64 row_count, u32 slots, const u64* before, const u64* left_offsets, const u32* left_places, const f32* left_values, const u64* right_offsets, const u32* right_places, const f32* right_values) {
    added(columns, values, counts, rows, row_count, slots, before, left_offsets, left_places, left_values, right_offsets, right_places, right_values);
}

extern "C" __global__ void __launch_bounds__(THREADS) close_up_f64(u32* out_columns, f64* out_values, const u32* columns, const f64* values, const u32* counts, const u64* before, const u64* offsets, u64 rows) {
    closed_up(out_columns, out_values, columns, values, counts, before, offsets, rows);
}

extern "C" __global__ void __launch_bounds__(THREADS) close_up_f32(u32* out_columns, f32* out_values, const u32* columns, const f32* values, const u32* counts, const u64* before, const u64* offsets, u64 rows) {
    closed_up(out_columns, out_values, columns, values, counts, before, offsets, rows);
}
