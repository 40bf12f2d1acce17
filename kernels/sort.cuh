// Rows in the order of their codes: numbers of one or more words, of which the first decides before the others.
//
//     Told                          which bits differ, and how many rows there are: a code is made by a generated text
//     count_prefix, narrow          digit by digit the greatest code of the first so many rows, the threshold   ┐
//     count_rows, gather_rows       rows below the threshold, and of those at it the first                      ┘ where few are asked for
//     count_digits, move_digits     rows in the order of one digit, and else in that which they had             ─ for each digit, the last first
//
// So rows with the same code stay in their order, and what comes out depends neither on blocks nor on threads.
#pragma once

#include "groups.cuh"
#include "there.cuh"

#define DIGIT_BITS 8
#define DIGITS 256

// Rows that a thread has of a tile, and those of a tile.
#define ITEMS 8
#define TILE_ROWS (THREADS * ITEMS)

#define WARPS (THREADS / WARP)

static_assert(THREADS == DIGITS, "a thread for each digit");

template <class T>
__device__ __forceinline__ u32 digit(T code, u32 shift) { return (u32)(code >> shift) & (DIGITS - 1); }

// IEEE 754's total order: all bits of what is below zero change, and of others the sign.
__device__ __forceinline__ u64 total_order(f64 x) {
    const u64 bits = math::bits_of(x);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ __forceinline__ u64 total_order(f32 x) {
    const u32 bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

// What a thread has seen of the codes of its rows: the bits that are one somewhere, and those that are zero somewhere.
template <u32 WORDS>
struct Told {
    u64 ones[WORDS], zeros[WORDS];
    u32 rows;

    __device__ __forceinline__ Told() : rows(0) {
        #pragma unroll
        for (u32 word = 0; word < WORDS; word++) ones[word] = zeros[word] = 0;
    }

    __device__ __forceinline__ void take(u32 word, u64 code) {
        ones[word] |= code;
        zeros[word] |= ~code;
    }

    // Together with what others have seen: how many rows, and then the bits of each word.
    __device__ __forceinline__ void finish(u64* told) const {
        u32 all;
        before(rows, all);
        if (threadIdx.x == 0) atomicAdd(told, (u64)all);
        #pragma unroll
        for (u32 word = 0; word < WORDS; word++) {
            tell(told + 1 + 2 * word, ones[word]);
            tell(told + 2 + 2 * word, zeros[word]);
        }
    }

    // Most find that it was told before.
    __device__ __forceinline__ static void tell(u64* told, u64 bits) {
        if (bits & ~*(volatile u64*)told) atomicOr(told, bits);
    }
};

// How many rows have the words and digits that the threshold has so far, by the digit that is looked for.
template <class T>
__device__ __forceinline__ void count_prefix(u32* counts, const T* __restrict__ codes, const u8* __restrict__ kept, u64 rows, u64 stride, const u64* __restrict__ threshold, u32 word, u32 shift) {
    __shared__ u32 own[DIGITS];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (u64 row = (u64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += (u64)gridDim.x * THREADS) {
        if (kept && !is_valid(kept, (u32)row)) continue;
        bool is_one = true;
        for (u32 earlier = 0; earlier < word; earlier++) is_one = is_one && codes[earlier * stride + row] == (T)threshold[earlier];
        const T code = codes[word * stride + row];
        if (is_one && code >> shift >> DIGIT_BITS == (T)threshold[word] >> shift >> DIGIT_BITS) atomicAdd(own + digit(code, shift), 1u);
    }
    __syncthreads();
    if (own[threadIdx.x]) atomicAdd(counts + threadIdx.x, own[threadIdx.x]);
}

// By one block: the digit within which the last of the rows is that are asked for, and how many of these it has; the counts are zeros again.
__device__ __forceinline__ void narrow(u64* left, u64* threshold, u32* counts, u32 word, u32 shift) {
    const u32 own = counts[threadIdx.x], asked = (u32)*left;
    u32 all;
    const u32 less = before(own, all);
    if (less < asked && asked - less <= own) {
        threshold[word] |= (u64)threadIdx.x << shift;
        *left = asked - less;
    }
    counts[threadIdx.x] = 0;
}

// Which rows are gathered.
#define ALL 0
#define BELOW 1
#define TIES 2

// Rows that are kept, and of them those below the threshold or those at it.
template <class T>
struct Wanted {
    const T* __restrict__ codes;
    const u8* __restrict__ kept;
    u64 stride;
    const u64* __restrict__ threshold;
    u32 words, which;

    __device__ __forceinline__ bool operator()(u64 row) const {
        if (kept && !is_valid(kept, (u32)row)) return false;
        if (which == ALL) return true;
        #pragma unroll 1
        for (u32 word = 0; word < words; word++) {
            const T own = codes[word * stride + row], last = (T)threshold[word];
            if (own != last) return which == BELOW && own < last;
        }
        return which == TIES;
    }
};

// Their numbers: those below the threshold first, and as many of those at it as are left.
template <class T>
__device__ __forceinline__ void gather_rows(u32* out, const u64* counts, u64 rows, const Wanted<T>& wanted, const u64* left, u64 most) {
    const u64 first = wanted.which == TIES ? most - *left : 0;
    gather_there(counts, rows, wanted, [&](u64 place, u64 row) {
        if (first + place < most) out[first + place] = (u32)row;
    });
}

// The rows of a block: whole tiles.
struct Share {
    u64 first, end;

    __device__ __forceinline__ Share(u64 count) {
        const u64 tiles = (count + TILE_ROWS - 1) / TILE_ROWS, own = (tiles + gridDim.x - 1) / gridDim.x * TILE_ROWS;
        first = own * blockIdx.x;
        end = first + own < count ? first + own : count;
    }
};

// How many rows of each block have each digit: of one digit block by block, with room for their sum.
template <class T>
__device__ __forceinline__ void count_digits(u64* counts, const T* __restrict__ codes, u64 count, u32 shift) {
    __shared__ u32 own[DIGITS];
    own[threadIdx.x] = 0;
    __syncthreads();
    const Share share(count);
    for (u64 at = share.first + threadIdx.x; at < share.end; at += THREADS) atomicAdd(own + digit(codes[at], shift), 1u);
    __syncthreads();
    counts[(u64)threadIdx.x * (gridDim.x + 1) + blockIdx.x] = own[threadIdx.x];
}

// Codes and rows in the order of a digit, in as many blocks as have counted it. A tile is put in order in shared memory, so that what goes to
// adjacent places is written together.
template <class T>
__device__ __forceinline__ void move_digits(T* __restrict__ out_codes, u32* __restrict__ out_rows, const T* __restrict__ codes, const u32* __restrict__ rows, const u64* __restrict__ counts, u64 count, u32 shift) {
    __shared__ T tile_codes[TILE_ROWS];
    __shared__ u32 tile_rows[TILE_ROWS];
    // Of each digit: how many the warps before have; where it begins in the tile; and, of what is at this place of the tile, the place that it goes to.
    __shared__ u32 ranks[WARPS][DIGITS];
    __shared__ u32 starts[DIGITS], places[DIGITS];
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u64* of_digit = counts + (u64)threadIdx.x * (gridDim.x + 1);
    u32 all;
    // The place of the next row with this thread's digit.
    u32 next = before((u32)of_digit[gridDim.x], all) + (u32)of_digit[blockIdx.x];
    const Share share(count);
    for (u64 first = share.first; first < share.end; first += TILE_ROWS) {
        const u32 held = share.end - first < TILE_ROWS ? (u32)(share.end - first) : TILE_ROWS;
        #pragma unroll
        for (u32 other = 0; other < WARPS; other++) ranks[other][threadIdx.x] = 0;
        __syncthreads();
        T own[ITEMS];
        u32 rank[ITEMS];
        #pragma unroll
        for (u32 item = 0; item < ITEMS; item++) {
            const u32 at = (warp * ITEMS + item) * WARP + lane;
            // What lies behind the last row has the last digit, and comes after all that has it.
            own[item] = at < held ? codes[first + at] : (T)~(T)0;
            const u32 of = digit(own[item], shift), same = __match_any_sync(WHOLE_WARP, of);
            rank[item] = ranks[warp][of] + __popc(same & ((1u << lane) - 1));
            __syncwarp(WHOLE_WARP);
            if (same >> lane == 1) ranks[warp][of] = rank[item] + 1;
            __syncwarp(WHOLE_WARP);
        }
        __syncthreads();
        u32 sum = 0;
        #pragma unroll
        for (u32 other = 0; other < WARPS; other++) {
            const u32 its = ranks[other][threadIdx.x];
            ranks[other][threadIdx.x] = sum;
            sum += its;
        }
        const u32 start = before(sum, all);
        starts[threadIdx.x] = start;
        places[threadIdx.x] = next - start;
        next += sum;
        __syncthreads();
        #pragma unroll
        for (u32 item = 0; item < ITEMS; item++) {
            const u32 at = (warp * ITEMS + item) * WARP + lane, of = digit(own[item], shift);
            const u32 place = starts[of] + ranks[warp][of] + rank[item];
            tile_codes[place] = own[item];
            tile_rows[place] = at < held ? rows[first + at] : 0;
        }
        __syncthreads();
        for (u32 at = threadIdx.x; at < held; at += THREADS) {
            const T code = tile_codes[at];
            const u32 to = places[digit(code, shift)] + at;
            out_codes[to] = code;
            out_rows[to] = tile_rows[at];
        }
        // Nobody writes the next tile before this one was read.
        __syncthreads();
    }
}
