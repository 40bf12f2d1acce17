// Rows of a table, added up by groups: what a generated text says of one row is done for each, and its numbers go to the totals of the
// row's group.
//
//     each_pack   f(pack, count): a thread for each pack of adjacent rows
//     each_stretch  the same of rows in stretches, each of which has blocks of its own
//     found       the row of another table that has a key, which `place` has put in its place
//     Registers   totals of few groups: every thread has its own, and a block adds them up     ─┐ parts, one for each block,
//     Shared      totals of more: one table for a block, in its shared memory                  ─┤ which `finish` adds up in their order
//     Global      totals of most: one table for all, in the device's memory                    ─┘ nothing is left to add up
//
// Totals have a place for the code of a group, and say whether they have that group at all.
//
// A total is one or two words. Whole numbers add up to the same whatever the order. Numbers of floating point are added up in
// registers alone, by threads in the order of the rows and then in that of threads, blocks and stretches, which the rows alone decide: so
// they have the same bits on every device, however many launches the rows come in.
#pragma once

#include "math.cuh"

// Adjacent rows that a thread reads at once: of the narrowest columns 8 bytes, and of their bits for what is NULL one.
#define PACK 8

#define WARP 32
#define WHOLE_WARP 0xffffffffu

// PACK cells of a column, whose memory ends with a whole pack.
template <class T>
struct Cells {
    T cells[PACK];

    __device__ __forceinline__ Cells(const T* __restrict__ column, u64 pack) {
        constexpr u32 words = PACK * sizeof(T) / sizeof(u64);
        const u64* from = (const u64*)__builtin_assume_aligned(column + pack * PACK, words > 1 ? 16 : 8);
        u64* to = (u64*)cells;
        #pragma unroll
        for (u32 word = 0; word < words; word++) to[word] = from[word];
    }

    __device__ __forceinline__ T operator[](u32 k) const { return cells[k]; }
};

// All rows, in packs; of the last one some may be none.
template <class F>
__device__ __forceinline__ void each_pack(u64 rows, F f) {
    const u64 packs = (rows + PACK - 1) / PACK, step = (u64)gridDim.x * THREADS;
    for (u64 pack = (u64)blockIdx.x * THREADS + threadIdx.x; pack < packs; pack += step) {
        const u64 left = rows - pack * PACK;
        f(pack, left < PACK ? (u32)left : PACK);
    }
}

// The same of the rows of a launch, which begin with a stretch: each stretch of so many, a whole number of packs, has so many blocks.
template <class F>
__device__ __forceinline__ void each_stretch(u64 rows, u64 stretch, u64 blocks, F f) {
    // The division is one of 32 bits, which takes fewer registers.
    const u64 first = blockIdx.x / (u32)blocks * stretch, end = first + stretch < rows ? first + stretch : rows;
    const u64 packs = (end + PACK - 1) / PACK, step = blocks * THREADS;
    for (u64 pack = first / PACK + blockIdx.x % (u32)blocks * THREADS + threadIdx.x; pack < packs; pack += step) {
        const u64 left = end - pack * PACK;
        f(pack, left < PACK ? (u32)left : PACK);
    }
}

// Puts each row of a table in the place of its key, whose cells are above the least one; those that are NULL in none. No two rows have the same.
template <class T>
__device__ __forceinline__ void place(u32* __restrict__ places, u64 rows, const T* __restrict__ column, const u8* __restrict__ valid) {
    each_pack(rows, [&](u64 pack, u32 count) {
        const Cells<T> keys(column, pack);
        const u32 known = valid ? valid[pack] : 0xff;
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) {
            if (k < count && known >> k & 1) places[keys[k]] = (u32)(pack * PACK + k + 1);
        }
    });
}

// Adds what a number is above the least one to a code, of which the numbers before it have the lower part; false where it is none of so many from there on.
__device__ __forceinline__ bool coded(u64& code, u64& each, i64 number, i64 least, u64 numbers) {
    const u64 above = (u64)number - (u64)least;
    code += each * above;
    each *= numbers;
    return number >= least && above < numbers;
}

// The row, from 1, that has a key, of which the least and how many numbers from it on are given; zero where none has.
__device__ __forceinline__ u32 found(const u32* __restrict__ places, u64 numbers, i64 least, i64 key) {
    const u64 above = (u64)key - (u64)least;
    return key >= least && above < numbers ? places[above] : 0;
}

// Whether a row of a column has a value.
__device__ __forceinline__ bool is_valid(const u8* __restrict__ valid, u32 row) { return valid[row / 8] >> row % 8 & 1; }

// A number as a whole number of units: its lower 32 bits, the next, and what is above them.
struct Units {
    u64 low, middle, high;
};

// That of a number which is a multiple of this power of two, and has no more than 95 digits from there on.
__device__ __forceinline__ Units units(f64 x, i64 unit) {
    const i64 bits = (i64)math::bits_of(x), field = bits >> 52 & 0x7ff;
    const u64 low = (u64)bits & 0xfffffffffffffull, mantissa = field ? low | 1ull << 52 : low;
    if (mantissa == 0) return {0, 0, 0};
    const i64 by = (field ? field - 1075 : -1074) - unit;
    u64 lower = by < 0 ? mantissa >> -by : mantissa << by;
    u64 upper = by <= 0 ? 0 : mantissa >> (64 - by);
    if (bits < 0) {
        lower = ~lower + 1;
        upper = ~upper + (lower == 0);
    }
    return {lower & 0xffffffffull, lower >> 32, upper};
}

// The order of numbers: NaN is beyond all, and zeros are equal.
__device__ __forceinline__ i64 ordered(f64 x) {
    const i64 bits = (i64)math::bits_of(x + 0.0);
    return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

// What words are, a bit for each: extremes, the sums of numbers, each with what it lost to rounding in the next word, and all
// others counts and sums of whole numbers.
template <u32 WORDS, u64 LEAST, u64 GREATEST, u64 REAL>
struct Words {
    __device__ __forceinline__ static bool is(u64 kind, u32 word) { return kind >> word & 1; }

    // The word that changes nothing.
    __device__ __forceinline__ static u64 neutral(u32 word) {
        return is(LEAST, word) ? 0x7fffffffffffffffull : is(GREATEST, word) ? 0x8000000000000000ull : 0;
    }

    __device__ __forceinline__ static u64 merged(u32 word, u64 own, u64 other) {
        if (is(LEAST, word)) return (i64)own < (i64)other ? own : other;
        if (is(GREATEST, word)) return (i64)own > (i64)other ? own : other;
        return own + other;
    }

    // Takes in the words of others, `other(word)`.
    template <class F>
    __device__ __forceinline__ static void merge(u64* own, F other) {
        #pragma unroll
        for (u32 word = 0; word < WORDS; word++) {
            if (is(REAL, word)) {
                const math::Pair sum = math::two_sum(math::of_bits(own[word]), math::of_bits(other(word)));
                own[word] = math::bits_of(sum.value);
                own[word + 1] = math::bits_of(math::of_bits(own[word + 1]) + (sum.low + math::of_bits(other(word + 1))));
            } else if (word == 0 || !is(REAL, word - 1)) {
                own[word] = merged(word, own[word], other(word));
            }
        }
    }

    // The words of a block's threads together, for its first thread; all take part.
    __device__ __forceinline__ static void merge_block(u64* own) {
        #pragma unroll
        for (u32 half = WARP / 2; half > 0; half /= 2) {
            u64 others[WORDS];
            #pragma unroll
            for (u32 word = 0; word < WORDS; word++) others[word] = __shfl_down_sync(WHOLE_WARP, own[word], half, WARP);
            merge(own, [&](u32 word) { return others[word]; });
        }
        __shared__ u64 parts[THREADS / WARP][WORDS];
        if (threadIdx.x % WARP == 0) {
            #pragma unroll
            for (u32 word = 0; word < WORDS; word++) parts[threadIdx.x / WARP][word] = own[word];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u32 warp = 1; warp < THREADS / WARP; warp++) merge(own, [&](u32 word) { return parts[warp][word]; });
        }
        // Nobody writes the next parts before these were read.
        __syncthreads();
    }
};

// A table of words for each thread.
template <u32 GROUPS, u32 WORDS, u64 LEAST, u64 GREATEST, u64 REAL>
struct Registers {
    typedef Words<WORDS, LEAST, GREATEST, REAL> Kinds;
    u64 words[GROUPS][WORDS];

    __device__ __forceinline__ Registers() {
        #pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            #pragma unroll
            for (u32 word = 0; word < WORDS; word++) words[group][word] = Kinds::neutral(word);
        }
    }

    __device__ __forceinline__ u32 place(u32 code) const { return code; }
    __device__ __forceinline__ bool has(u32) const { return true; }

    __device__ __forceinline__ void take(u32 word, u32 group, u64 value) {
        #pragma unroll
        for (u32 own = 0; own < GROUPS; own++) {
            const u64 taken = own == group ? value : Kinds::neutral(word);
            words[own][word] = Kinds::merged(word, words[own][word], taken);
        }
    }

    __device__ __forceinline__ void add(u32 word, u32 group, f64 value) {
        #pragma unroll
        for (u32 own = 0; own < GROUPS; own++) {
            if (own != group) continue;
            const math::Pair sum = math::two_sum(math::of_bits(words[own][word]), value);
            words[own][word] = math::bits_of(sum.value);
            words[own][word + 1] = math::bits_of(math::of_bits(words[own][word + 1]) + sum.low);
        }
    }

    __device__ __forceinline__ void finish(u64* parts) {
        #pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            Kinds::merge_block(words[group]);
            if (threadIdx.x == 0) {
                #pragma unroll
                for (u32 word = 0; word < WORDS; word++) parts[((u64)blockIdx.x * GROUPS + group) * WORDS + word] = words[group][word];
            }
        }
    }
};

// A table of words that threads share: whole numbers alone, for which of them is first is left open.
template <u32 WORDS, u64 LEAST, u64 GREATEST>
struct Table {
    typedef Words<WORDS, LEAST, GREATEST, 0> Kinds;
    u64* words;

    __device__ __forceinline__ void take(u32 word, u32 group, u64 value) {
        u64* own = words + (u64)group * WORDS + word;
        if (Kinds::is(LEAST, word)) atomicMin((i64*)own, (i64)value);
        else if (Kinds::is(GREATEST, word)) atomicMax((i64*)own, (i64)value);
        else atomicAdd(own, value);
    }

    __device__ __forceinline__ void add(u32 word, u32 group, Units value) {
        take(word, group, value.low);
        take(word + 1, group, value.middle);
        take(word + 2, group, value.high);
    }
};

// One that a block has in its shared memory.
template <u32 GROUPS, u32 WORDS, u64 LEAST, u64 GREATEST>
struct Shared : Table<WORDS, LEAST, GREATEST> {
    typedef Words<WORDS, LEAST, GREATEST, 0> Kinds;

    __device__ __forceinline__ Shared(u64* table) {
        this->words = table;
        for (u32 at = threadIdx.x; at < GROUPS * WORDS; at += THREADS) table[at] = Kinds::neutral(at % WORDS);
        __syncthreads();
    }

    __device__ __forceinline__ u32 place(u32 code) const { return code; }
    __device__ __forceinline__ bool has(u32) const { return true; }

    __device__ __forceinline__ void finish(u64* parts) {
        __syncthreads();
        for (u32 at = threadIdx.x; at < GROUPS * WORDS; at += THREADS) parts[(u64)blockIdx.x * GROUPS * WORDS + at] = this->words[at];
    }
};

// One that all have, of so many groups from the first on.
template <u32 WORDS, u64 LEAST, u64 GREATEST>
struct Global : Table<WORDS, LEAST, GREATEST> {
    u32 first, count;

    __device__ __forceinline__ Global(u64* table, u64 first, u64 count) : first((u32)first), count((u32)count) { this->words = table; }

    __device__ __forceinline__ u32 place(u32 code) const { return code - first; }
    __device__ __forceinline__ bool has(u32 group) const { return group < count; }
    __device__ __forceinline__ void finish(u64*) {}
};

// Words that change nothing, of so many groups.
template <class Kinds, u32 WORDS>
__device__ __forceinline__ void clear(u64* table, u64 groups) {
    const u64 words = groups * WORDS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < words; at += (u64)gridDim.x * THREADS) {
        table[at] = Kinds::neutral((u32)(at % WORDS));
    }
}

// The parts of so many blocks together, a block for each group.
template <class Kinds, u32 WORDS>
__device__ __forceinline__ void finish(u64* out, const u64* parts, u64 blocks) {
    const u64 group = blockIdx.x, groups = gridDim.x;
    u64 own[WORDS];
    #pragma unroll
    for (u32 word = 0; word < WORDS; word++) own[word] = Kinds::neutral(word);
    for (u64 block = threadIdx.x; block < blocks; block += THREADS) {
        const u64* part = parts + (block * groups + group) * WORDS;
        Kinds::merge(own, [&](u32 word) { return part[word]; });
    }
    Kinds::merge_block(own);
    if (threadIdx.x == 0) {
        #pragma unroll
        for (u32 word = 0; word < WORDS; word++) out[group * WORDS + word] = own[word];
    }
}
