// What a fused program runs in: loops over the cells of a matrix, and reductions of what they compute.
//
//     map         out[i] = f(i)                       a thread for each cell, or for the cells of 16 bytes
//     Rows        s = reduce(f), out = g(s)           lanes side by side for each row, which keep its cells in registers
//     reduce_*    partial results, one for each block in an order that the shape alone decides, then finish_*
//
// Cells are row-major; a function of cells is given a cell's place, its row and its column. No sum depends on how many blocks a
// device runs at once, so a result has the same bits on every device.
#pragma once

#include "cells.cuh"

// Packs of cells that a thread of a reduction reads before it adds the first of them: 64 bytes keep a device's memory at work.
#define ROUNDS 4

// Lanes that hand each other numbers without memory between them.
#define WARP 32
#define WHOLE_WARP 0xffffffffu

// Matrices begin where the packs of cells do that a thread reads and writes at once.
#define ALIGNED(cells) __builtin_assume_aligned(cells, 16)

enum Reduction { SUM, SUM_OF_SQUARES, MEAN, MIN, MAX, VARIANCE, POPULATION_VARIANCE, DEVIATION };

// A reduction under way, as exec/kernels/fused/reduce.rs has it: the sum, the extreme or the mean, and what the sum lost to rounding
// or the squared distances from the mean. How many cells there were is counted for these alone; else it follows from the shape.
template <int R>
struct Accumulator {
    f64 count, value, rest;

    static constexpr bool is_sum = R == SUM || R == SUM_OF_SQUARES || R == MEAN;
    static constexpr bool is_extreme = R == MIN || R == MAX;

    // The cell that changes nothing.
    __device__ __forceinline__ static f64 neutral() {
        return R == MIN ? math::infinity() : R == MAX ? -math::infinity() : 0.0;
    }

    __device__ __forceinline__ void clear() {
        count = rest = 0.0;
        value = neutral();
    }

    // Takes in so many cells, of which some may be none.
    template <u32 COUNT, class F, class G>
    __device__ __forceinline__ void push(F cell, G is_any) {
        if constexpr (is_sum || is_extreme) {
            #pragma unroll
            for (u32 k = 0; k < COUNT; k++) {
                const f64 x = is_any(k) ? (f64)cell(k) : neutral();
                if constexpr (is_extreme) {
                    merge({0.0, x, 0.0});
                } else if constexpr (sizeof(cell(k)) == sizeof(f32)) {
                    // What this loses is far below what the result in single precision can tell.
                    value += R == SUM_OF_SQUARES ? x * x : x;
                } else {
                    const math::Pair sum = math::two_sum(value, R == SUM_OF_SQUARES ? x * x : x);
                    value = sum.value;
                    rest += sum.low;
                }
            }
        } else {
            // Their own mean and the distances from it, for one division and not one for each.
            Accumulator next;
            next.clear();
            #pragma unroll
            for (u32 k = 0; k < COUNT; k++) {
                next.count += is_any(k) ? 1.0 : 0.0;
                next.value += is_any(k) ? (f64)cell(k) : 0.0;
            }
            next.value /= next.count;
            #pragma unroll
            for (u32 k = 0; k < COUNT; k++) {
                const f64 distance = is_any(k) ? (f64)cell(k) - next.value : 0.0;
                next.rest += distance * distance;
            }
            merge(next);
        }
    }

    __device__ __forceinline__ void merge(const Accumulator& other) {
        if constexpr (is_sum) {
            const math::Pair sum = math::two_sum(value, other.value);
            value = sum.value;
            rest += sum.low + other.rest;
        } else if constexpr (R == MIN) {
            value = cell::least(value, other.value);
        } else if constexpr (R == MAX) {
            value = cell::greatest(value, other.value);
        } else if (count == 0.0) {
            *this = other;
        } else if (other.count > 0.0) {
            const f64 share = other.count / (count + other.count);
            const f64 distance = other.value - value;
            value += distance * share;
            rest += other.rest + distance * distance * count * share;
            count += other.count;
        }
    }

    // That of another lane: `from` hands on one number.
    template <class F>
    __device__ __forceinline__ Accumulator moved(F from) const {
        Accumulator other = *this;
        other.value = from(value);
        if constexpr (!is_extreme) other.rest = from(rest);
        if constexpr (!is_extreme && !is_sum) other.count = from(count);
        return other;
    }

    // Of so many cells in all.
    __device__ __forceinline__ f64 result(u64 cells) const {
        // Beyond the finite numbers nothing was lost that could be added back.
        const f64 sum = fabs(value) < math::infinity() ? value + rest : value;
        const f64 variance = cells > 1 ? rest / (f64)(cells - 1) : math::nan();
        switch (R) {
            case SUM:
            case SUM_OF_SQUARES: return sum;
            case MEAN: return sum / (f64)cells;
            case MIN:
            case MAX: return cells == 0 ? math::nan() : value;
            case VARIANCE: return variance;
            case POPULATION_VARIANCE: return rest / (f64)cells;
            default: return sqrt(variance);
        }
    }
};

// What becomes of a reduction in the end: itself, or of a norm the root of this power.
struct Root {
    f64 power;

    __device__ __forceinline__ f64 of(f64 sum, u64 cells) const {
        if (power == 0.0) return sum;
        if (cells == 0) return 0.0;
        return power == 1.0 ? sum : power == 2.0 ? ::sqrt(sum) : ::pow(sum, 1.0 / power);
    }
};

// Merges the accumulators of WIDTH lanes side by side, a power of two of at most THREADS, for each of them; every thread of the block
// takes part.
template <int R, u32 WIDTH>
__device__ __forceinline__ Accumulator<R> merged(Accumulator<R> own) {
    constexpr u32 width = WIDTH < WARP ? WIDTH : WARP;
    #pragma unroll
    for (u32 half = width / 2; half > 0; half /= 2) {
        own.merge(own.moved([=](f64 x) { return __shfl_down_sync(WHOLE_WARP, x, half, width); }));
    }
    if constexpr (WIDTH > WARP) {
        __shared__ Accumulator<R> parts[THREADS / WARP];
        if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = own;
        __syncthreads();
        const u32 first = threadIdx.x / WIDTH * (WIDTH / WARP);
        own = parts[first];
        #pragma unroll
        for (u32 other = 1; other < WIDTH / WARP; other++) own.merge(parts[first + other]);
        // Nobody writes the next parts before everybody has read these.
        __syncthreads();
    } else if constexpr (WIDTH > 1) {
        own = own.moved([=](f64 x) { return __shfl_sync(WHOLE_WARP, x, 0, width); });
    }
    return own;
}

// Merges those of threads `width` apart, for the first `width` threads.
template <int R>
__device__ __forceinline__ Accumulator<R> merged_across(Accumulator<R> own, u32 width) {
    __shared__ Accumulator<R> parts[THREADS];
    parts[threadIdx.x] = own;
    for (u32 half = THREADS / 2; half >= width; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x].merge(parts[threadIdx.x + half]);
    }
    own = parts[threadIdx.x];
    __syncthreads();
    return own;
}

// Lanes for so many things side by side: as many, to the next power of two.
__device__ __forceinline__ u32 lanes(u64 count, u32 most) {
    u32 width = 1;
    while (width < most && width < count) width *= 2;
    return width;
}

// COUNT places, `step` apart; beyond the end the last one again, and whether it is one. So nothing branches, and what is read is on
// its way for all of them at once.
template <u32 COUNT, class I, class F>
__device__ __forceinline__ void batch(I first, I end, I step, F f) {
    #pragma unroll
    for (u32 k = 0; k < COUNT; k++) {
        const I next = first + k * step;
        f(k, next < end ? next : end - 1, next < end);
    }
}

// Which of them are any.
struct Any {
    u64 first, step, end;

    __device__ __forceinline__ bool operator()(u32 k) const { return first + k * step < end; }
};

// Goes through places in batches: reads each of a batch, then takes them, given which of them are any.
template <u32 COUNT, class F, class G>
__device__ __forceinline__ void batches(u64 first, u64 end, u64 step, F read, G take) {
    for (u64 at = first; at < end; at += COUNT * step) {
        batch<COUNT>(at, end, step, [&](u32 k, u64 place, bool) { read(k, place); });
        take(Any{at, step, end});
    }
}

// All cells, where none needs to know its row and column: packs of PACK adjacent ones, at most 16 bytes.
template <u32 PACK>
struct Flat {
    u64 cells;

    template <u32 COUNT, class F, class G>
    __device__ __forceinline__ void each(F read, G take) const {
        const u64 first = (u64)blockIdx.x * THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS;
        batches<COUNT>(first, cells / PACK, step, [&](u32 k, u64 pack) { read(k, pack * PACK, 0, 0); }, take);
    }
};

// All cells with their rows and columns: a block goes through tiles, a pack of each row for each lane.
template <u32 PACK>
struct Wide {
    u64 rows, columns;

    template <u32 COUNT, class F, class G>
    __device__ __forceinline__ void each(F read, G take) const {
        const u64 packs = columns / PACK;
        const u32 width = lanes(packs, THREADS), height = THREADS / width;
        const u32 panels = (packs + width - 1) / width, tiles = panels * ((rows + COUNT * height - 1) / (COUNT * height));
        for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const u64 own = (u64)(tile % panels) * width + (threadIdx.x & (width - 1)), pack = own < packs ? own : packs - 1;
            const u64 first = (u64)(tile / panels) * COUNT * height + threadIdx.x / width, end = own < packs ? rows : 0;
            batch<COUNT, u64>(first, rows, height, [&](u32 k, u64 row, bool) { read(k, (row * packs + pack) * PACK, row, pack * PACK); });
            take(Any{first, height, end});
        }
    }
};

// Every cell.
template <u32 PACK, template <u32> class O, class T, class F>
__device__ __forceinline__ void map(O<PACK> over, T* out, F f) {
    T cells[PACK];
    u64 to;
    over.template each<1>(
        [&](u32, u64 at, u64 row, u64 column) {
            to = at;
            #pragma unroll
            for (u32 k = 0; k < PACK; k++) cells[k] = f(at + k, row, column + k);
        },
        [&](Any is_any) {
            #pragma unroll
            for (u32 k = 0; k < PACK; k++) if (is_any(0)) out[to + k] = cells[k];
        });
}

// Rows, as many at once as a block has lanes for; of each row a lane has CELLS cells at a time, WIDTH apart. All threads of a block
// go through the same rounds, for they meet in each.
template <u32 WIDTH, u32 CELLS>
struct Rows {
    u64 rows, first;
    u32 columns;

    __device__ __forceinline__ Rows(u64 rows, u64 columns) : rows(rows), columns(columns) {
        first = (u64)blockIdx.x * (THREADS / WIDTH);
    }

    __device__ __forceinline__ bool any() const { return first < rows; }
    __device__ __forceinline__ void next() { first += (u64)gridDim.x * (THREADS / WIDTH); }

    // The cells of a lane from a column on.
    template <class F>
    __device__ __forceinline__ void each(u32 from, F f) const {
        const u64 own = first + threadIdx.x / WIDTH, row = own < rows ? own : rows - 1, start = row * columns;
        batch<CELLS>(from + threadIdx.x % WIDTH, columns, WIDTH, [&](u32 k, u32 column, bool is_any) {
            f(k, start + column, row, column, is_any && own < rows);
        });
    }

    // The reduction of each row, in each of its lanes.
    template <int R, class T, class F>
    __device__ __forceinline__ f64 reduce(F f) const {
        Accumulator<R> own;
        own.clear();
        for (u32 from = 0; from < columns; from += WIDTH * CELLS) {
            T cells[CELLS];
            each(from, [&](u32 k, u64 at, u64 row, u64 column, bool) { cells[k] = f(k, at, row, column); });
            const u32 next = from + threadIdx.x % WIDTH, end = first + threadIdx.x / WIDTH < rows ? columns : 0;
            own.template push<CELLS>([&](u32 k) { return cells[k]; }, [=](u32 k) { return next + k * WIDTH < end; });
        }
        return merged<R, WIDTH>(own).result(columns);
    }

    // The cells of rows that have WIDTH * CELLS at most.
    template <class T, class F>
    __device__ __forceinline__ void map(T* out, F f) const {
        each(0, [&](u32 k, u64 at, u64 row, u64 column, bool is_any) {
            const T cell = f(k, at, row, column);
            if (is_any) out[at] = cell;
        });
    }

    // One number for each row.
    template <class T, class F>
    __device__ __forceinline__ void write(T* out, F f) const {
        const u64 row = first + threadIdx.x / WIDTH;
        if (row < rows && threadIdx.x % WIDTH == 0) out[row] = f(row);
    }
};

// A part of all cells for each block.
template <int R, class T, u32 PACK, template <u32> class O, class F>
__device__ __forceinline__ void reduce_cells(O<PACK> over, Accumulator<R>* parts, F f) {
    Accumulator<R> own;
    own.clear();
    T cells[ROUNDS][PACK];
    over.template each<ROUNDS>(
        [&](u32 round, u64 at, u64 row, u64 column) {
            #pragma unroll
            for (u32 k = 0; k < PACK; k++) cells[round][k] = f(at + k, row, column + k);
        },
        [&](Any is_any) {
            own.template push<ROUNDS * PACK>([&](u32 k) { return cells[k / PACK][k % PACK]; }, [=](u32 k) { return is_any(k / PACK); });
        });
    own = merged<R, THREADS>(own);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

// A part of each column for each run of `height` rows; blocks go through the runs of some columns, then the next ones.
template <int R, class T, u32 PACK, class F>
__device__ __forceinline__ void reduce_columns(Accumulator<R>* parts, u64 rows, u64 columns, u64 height, F f) {
    const u64 packs = columns / PACK, runs = (rows + height - 1) / height;
    const u32 width = lanes(packs, WARP), lane = threadIdx.x & (width - 1), side = threadIdx.x / width;
    const u64 panels = (packs + width - 1) / width;
    for (u64 work = blockIdx.x; work < runs * panels; work += gridDim.x) {
        const u64 run = work / panels, next = (work % panels) * width + lane, pack = next < packs ? next : packs - 1;
        const u64 end = rows < (run + 1) * height ? rows : (run + 1) * height;
        Accumulator<R> own[PACK];
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) own[k].clear();
        T cells[ROUNDS][PACK];
        batches<ROUNDS>(
            run * height + side, end, THREADS / width,
            [&](u32 round, u64 row) {
                #pragma unroll
                for (u32 k = 0; k < PACK; k++) cells[round][k] = f((row * packs + pack) * PACK + k, row, pack * PACK + k);
            },
            [&](Any is_any) {
                #pragma unroll
                for (u32 k = 0; k < PACK; k++) own[k].template push<ROUNDS>([&](u32 round) { return cells[round][k]; }, is_any);
            });
        #pragma unroll
        for (u32 k = 0; k < PACK; k++) {
            own[k] = merged_across(own[k], width);
            if (side == 0 && next < packs) parts[run * columns + pack * PACK + k] = own[k];
        }
    }
}

// What is merged of parts that are `step` apart.
template <int R>
__device__ __forceinline__ Accumulator<R> merged_parts(const Accumulator<R>* parts, u64 first, u64 count, u64 step, u64 stride) {
    Accumulator<R> own, next[ROUNDS];
    own.clear();
    batches<ROUNDS>(
        first, count, step, [&](u32 round, u64 at) { next[round] = parts[at * stride]; },
        [&](Any is_any) {
            #pragma unroll
            for (u32 round = 0; round < ROUNDS; round++) if (is_any(round)) own.merge(next[round]);
        });
    return own;
}

// The parts of all cells, by one block.
template <int R, class T>
__device__ __forceinline__ void finish_cells(T* out, const Accumulator<R>* parts, u64 count, u64 cells, Root root) {
    const Accumulator<R> own = merged<R, THREADS>(merged_parts(parts, threadIdx.x, count, THREADS, 1));
    if (threadIdx.x == 0) out[0] = (T)root.of(own.result(cells), cells);
}

// The parts of each column.
template <int R, class T>
__device__ __forceinline__ void finish_columns(T* out, const Accumulator<R>* parts, u64 runs, u64 rows, u64 columns, Root root) {
    const u32 width = lanes(columns, WARP), lane = threadIdx.x & (width - 1), side = threadIdx.x / width;
    for (u64 first = (u64)blockIdx.x * width; first < columns; first += (u64)gridDim.x * width) {
        const u64 next = first + lane, column = next < columns ? next : columns - 1;
        const Accumulator<R> own = merged_across(merged_parts(parts + column, side, runs, THREADS / width, columns), width);
        if (side == 0 && next < columns) out[column] = (T)root.of(own.result(rows), rows);
    }
}
