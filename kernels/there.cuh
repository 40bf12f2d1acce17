// Those of many that are there, one after the other in their order, whoever is first.
//
//     count_there     how many of a block's share are there
//     scan_counts     how many the blocks before it have
//     gather_there    each of them with its place
#pragma once

#include "common.cuh"

// What a thread looks at before the threads of its block tell each other how many there are.
#define SIDE_BY_SIDE 8

// What the threads of a block before this one have together, and what all of them have; all take part.
__device__ __forceinline__ u32 before(u32 own, u32& all) {
    __shared__ u32 sums[2][THREADS];
    u32 from = 0;
    sums[from][threadIdx.x] = own;
    __syncthreads();
    for (u32 width = 1; width < THREADS; width *= 2) {
        const u32 earlier = threadIdx.x >= width ? sums[from][threadIdx.x - width] : 0;
        sums[1 - from][threadIdx.x] = sums[from][threadIdx.x] + earlier;
        from = 1 - from;
        __syncthreads();
    }
    all = sums[from][THREADS - 1];
    const u32 own_and_before = sums[from][threadIdx.x];
    // Nobody writes the next sums before these were read.
    __syncthreads();
    return own_and_before - own;
}

// The share of a block, in rounds of a few side by side for each thread: `f(one, there)`, in which all take part, with a bit for each from `one` on of
// which `is_there` holds.
template <class Is, class F>
__device__ __forceinline__ void each_there(u64 many, Is is_there, F f) {
    const u64 own = (many + gridDim.x - 1) / gridDim.x, first = own * blockIdx.x;
    const u64 end = first + own < many ? first + own : many;
    for (u64 round = first; round < end; round += THREADS * SIDE_BY_SIDE) {
        const u64 one = round + threadIdx.x * SIDE_BY_SIDE;
        u32 there = 0;
        #pragma unroll
        for (u32 k = 0; k < SIDE_BY_SIDE; k++) {
            if (one + k < end && is_there(one + k)) there |= 1u << k;
        }
        f(one, there);
    }
}

template <class Is>
__device__ __forceinline__ void count_there(u64* counts, u64 many, Is is_there) {
    u32 own = 0, all;
    each_there(many, is_there, [&](u64, u32 there) { own += __popc(there); });
    before(own, all);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

// By one block: in the place of each count the sum of those before it, and behind the last that of all.
__device__ __forceinline__ void scan_counts(u64* counts, u64 blocks) {
    u64 sum = 0;
    for (u64 round = 0; round < blocks; round += THREADS) {
        const u64 at = round + threadIdx.x;
        u32 all;
        const u32 own = before(at < blocks ? (u32)counts[at] : 0, all);
        if (at < blocks) counts[at] = sum + own;
        sum += all;
    }
    if (threadIdx.x == 0) counts[blocks] = sum;
}

// `put(place, one)` for each, in as many blocks as have counted them.
template <class Is, class Put>
__device__ __forceinline__ void gather_there(const u64* counts, u64 many, Is is_there, Put put) {
    u64 place = counts[blockIdx.x];
    each_there(many, is_there, [&](u64 one, u32 there) {
        u32 all;
        u64 own = place + before(__popc(there), all);
        place += all;
        #pragma unroll 1
        for (u32 k = 0; k < SIDE_BY_SIDE; k++, one++) {
            if (there >> k & 1) put(own++, one);
        }
    });
}
