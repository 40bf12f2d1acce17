// Groups of which there may be more codes than rows, and those of them that there are, one after the other.
//
//     Slots            a slot for each code that came, wherever codes are
//     Hashed           a table of groups that have such slots
//     place, found     rows of another table by their codes, as in `groups.cuh` by near numbers
//     count_groups, gather_groups    those that have rows, by `there.cuh`
#pragma once

#include "groups.cuh"
#include "there.cuh"

#define NO_CODE 0xffffffffffffffffull
#define NO_SLOT 0xffffffffu

// Slots that are looked at for a code before the table is taken to be full.
#define LOOKS 128

// Codes that differ little are far apart: the last steps of MurmurHash3.
__device__ __forceinline__ u64 mixed(u64 code) {
    code = (code ^ code >> 33) * 0xff51afd7ed558ccdull;
    code = (code ^ code >> 33) * 0xc4ceb9fe1a85ec53ull;
    return code ^ code >> 33;
}

// The slots of codes, of which there is a power of two. Where a code finds none, `full` says so, and nobody looks any further.
struct Slots {
    u64* codes;
    u64 last;
    u32* full;

    __device__ __forceinline__ u32 slot(u64 code, bool& is_first) const {
        if (*(volatile u32*)full) return NO_SLOT;
        u64 at = mixed(code) & last;
        #pragma unroll 1
        for (u32 look = 0; look < LOOKS; look++) {
            // Whoever finds a slot free takes it, unless another was faster.
            u64 known = *(volatile u64*)(codes + at);
            if (known == NO_CODE) known = atomicCAS(codes + at, NO_CODE, code);
            is_first = known == NO_CODE;
            if (is_first || known == code) return (u32)at;
            at = (at + 1) & last;
        }
        *(volatile u32*)full = 1;
        return NO_SLOT;
    }
};

// A table of words for groups that have such slots: those of one part of all codes, of which there is a power of two.
template <u32 WORDS, u64 LEAST, u64 GREATEST>
struct Hashed : Table<WORDS, LEAST, GREATEST> {
    Slots slots;
    u64 part, last_part;

    __device__ __forceinline__ Hashed(u64* table, u64* codes, u64 count, u32* full, u64 part, u64 parts)
        : slots{codes, count - 1, full}, part(part), last_part(parts - 1) { this->words = table; }

    // None for codes of other parts. What decides that is no part of the slot's number.
    __device__ __forceinline__ u32 place(u64 code) const {
        bool is_first;
        if ((mixed(code) >> 40 & last_part) != part) return NO_SLOT;
        return slots.slot(code, is_first);
    }

    __device__ __forceinline__ bool has(u32 group) const { return group != NO_SLOT; }
    __device__ __forceinline__ void finish(u64*) {}
};

// Puts each row of a table in the slot of its code, `f(pack, k, code)`, which is false of those that have none. `twice` says where two have the same.
template <class F>
__device__ __forceinline__ void place_far(u32* __restrict__ places, u64 rows, const Slots& slots, u32* twice, F f) {
    each_pack(rows, [&](u64 pack, u32 count) {
        for (u32 k = 0; k < count; k++) {
            u64 code;
            bool is_first = true;
            if (!f(pack, k, code)) continue;
            const u32 slot = slots.slot(code, is_first);
            if (slot == NO_SLOT) return;
            if (!is_first) *(volatile u32*)twice = 1;
            places[slot] = (u32)(pack * PACK + k + 1);
        }
    });
}

// The row, from 1, in the slot of a code; zero where there is none.
__device__ __forceinline__ u32 found_far(const u32* __restrict__ places, const u64* __restrict__ codes, u64 slots, u64 code) {
    u64 at = mixed(code) & (slots - 1);
    #pragma unroll 1
    for (u32 look = 0; look < LOOKS; look++) {
        const u64 known = codes[at];
        if (known == code) return places[at];
        if (known == NO_CODE) break;
        at = (at + 1) & (slots - 1);
    }
    return 0;
}

// Slots that belong to nobody.
__device__ __forceinline__ void clear_codes(u64* codes, u64 slots) {
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < slots; at += (u64)gridDim.x * THREADS) codes[at] = NO_CODE;
}

// How many of a block's groups have rows.
template <u32 WORDS>
__device__ __forceinline__ void count_groups(u64* counts, const u64* __restrict__ table, u64 groups) {
    count_there(counts, groups, [&](u64 group) { return table[group * WORDS] > 0; });
}

// Their codes and words. Without codes that of a group is its number.
template <u32 WORDS>
__device__ __forceinline__ void gather_groups(u64* out_codes, u64* out, const u64* counts, const u64* __restrict__ table, u64 groups, const u64* codes) {
    gather_there(counts, groups, [&](u64 group) { return table[group * WORDS] > 0; }, [&](u64 place, u64 group) {
        out_codes[place] = codes ? codes[group] : group;
        #pragma unroll 4
        for (u32 word = 0; word < WORDS; word++) out[place * WORDS + word] = table[group * WORDS + word];
    });
}
