// What a fused program runs in: loops over the cells of a matrix, and reductions of what they compute.
//
//     map         out[i] = f(i)                       a thread for each cell
//     Rows        s = reduce(row), out = g(row, s)    lanes side by side for each row
//     reduce_*    partial results, one for each block in an order that the shape alone decides, then finish_*
//
// Cells are row-major; a function of cells is given a cell's place, its row and its column. No sum depends on how many blocks a
// device runs at once, so a result has the same bits on every device.
#pragma once

#include "cells.cuh"

enum Reduction { SUM, SUM_OF_SQUARES, MEAN, MIN, MAX, VARIANCE, POPULATION_VARIANCE, DEVIATION };

// A reduction under way, as exec/kernels/fused/reduce.rs has it: how many cells, the sum, the extreme or the mean, and what the sum
// lost to rounding or the squared distances from the mean.
template <int R>
struct Accumulator {
    f64 count, value, rest;

    static constexpr bool is_sum = R == SUM || R == SUM_OF_SQUARES || R == MEAN;

    __device__ __forceinline__ void clear() {
        count = rest = 0.0;
        value = R == MIN ? math::infinity() : R == MAX ? -math::infinity() : 0.0;
    }

    __device__ __forceinline__ void push(f64 x) {
        count += 1.0;
        if constexpr (is_sum) {
            const math::Pair sum = math::two_sum(value, R == SUM_OF_SQUARES ? x * x : x);
            value = sum.value;
            rest += sum.low;
        } else if constexpr (R == MIN) {
            value = cell::least(value, x);
        } else if constexpr (R == MAX) {
            value = cell::greatest(value, x);
        } else {
            const f64 distance = x - value;
            value += distance / count;
            rest += distance * (x - value);
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
            value = other.value;
            rest = other.rest;
        } else if (other.count > 0.0) {
            const f64 share = other.count / (count + other.count);
            const f64 distance = other.value - value;
            value += distance * share;
            rest += other.rest + distance * distance * count * share;
        }
        count += other.count;
    }

    __device__ __forceinline__ f64 result() const {
        // Beyond the finite numbers nothing was lost that could be added back.
        const f64 sum = fabs(value) < math::infinity() ? value + rest : value;
        const f64 variance = count > 1.0 ? rest / (count - 1.0) : math::nan();
        switch (R) {
            case SUM:
            case SUM_OF_SQUARES: return sum;
            case MEAN: return sum / count;
            case MIN:
            case MAX: return count == 0.0 ? math::nan() : value;
            case VARIANCE: return variance;
            case POPULATION_VARIANCE: return rest / count;
            default: return sqrt(variance);
        }
    }
};

// What becomes of a reduction in the end: itself, or of a norm the root of this power.
struct Root {
    f64 power;

    __device__ __forceinline__ f64 of(f64 sum, f64 count) const {
        if (power == 0.0) return sum;
        if (count == 0.0) return 0.0;
        return power == 1.0 ? sum : power == 2.0 ? ::sqrt(sum) : ::pow(sum, 1.0 / power);
    }
};

// Merges the accumulators of `width` lanes side by side, a power of two of at most THREADS; every thread of the block takes part.
template <int R>
__device__ __forceinline__ Accumulator<R> merged(Accumulator<R> own, u32 width) {
    __shared__ Accumulator<R> parts[THREADS];
    const u32 lane = threadIdx.x & (width - 1);
    parts[threadIdx.x] = own;
    __syncthreads();
    for (u32 half = width / 2; half > 0; half /= 2) {
        if (lane < half) parts[threadIdx.x].merge(parts[threadIdx.x + half]);
        __syncthreads();
    }
    own = parts[threadIdx.x - lane];
    // Nobody writes the next parts before everybody has read these.
    __syncthreads();
    return own;
}

// Lanes for each row: as many as it has cells, to the next power of two.
__device__ __forceinline__ u32 lanes(u64 columns) {
    u32 width = 1;
    while (width < THREADS && width < columns) width *= 2;
    return width;
}

// Every cell, where none needs to know its row and column.
template <class T, class F>
__device__ __forceinline__ void map_flat(T* out, u64 cells, F f) {
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < cells; at += step) out[at] = f(at, 0, 0);
}

// Every cell with its row and column.
template <class T, class F>
__device__ __forceinline__ void map(T* out, u64 rows, u64 columns, F f) {
    const u32 width = lanes(columns), lane = threadIdx.x & (width - 1), height = THREADS / width;
    for (u64 row = (u64)blockIdx.x * height + threadIdx.x / width; row < rows; row += (u64)gridDim.x * height) {
        for (u64 column = lane; column < columns; column += width) {
            const u64 at = row * columns + column;
            out[at] = f(at, row, column);
        }
    }
}

// Rows, as many at once as a block has lanes for. All threads of a block go through the same rounds, for they meet in each.
struct Rows {
    u64 rows, columns, first;
    u32 width, lane, height;

    __device__ __forceinline__ Rows(u64 rows, u64 columns) : rows(rows), columns(columns) {
        width = lanes(columns);
        lane = threadIdx.x & (width - 1);
        height = THREADS / width;
        first = (u64)blockIdx.x * height;
    }

    __device__ __forceinline__ bool any() const { return first < rows; }
    __device__ __forceinline__ void next() { first += (u64)gridDim.x * height; }

    template <class F>
    __device__ __forceinline__ void each(F f) const {
        const u64 row = first + threadIdx.x / width;
        if (row >= rows) return;
        for (u64 column = lane; column < columns; column += width) f(row * columns + column, row, column);
    }

    // The reduction of each row, in each of its lanes.
    template <int R, class F>
    __device__ __forceinline__ Accumulator<R> reduce(F f) const {
        Accumulator<R> own;
        own.clear();
        each([&](u64 at, u64 row, u64 column) { own.push((f64)f(at, row, column)); });
        return merged(own, width);
    }

    // Hands on one number for each row.
    template <class T>
    __device__ __forceinline__ void write(T* out, f64 value) const {
        const u64 row = first + threadIdx.x / width;
        if (row < rows && lane == 0) out[row] = (T)value;
    }
};

// A part of all cells for each block.
template <int R, class F>
__device__ __forceinline__ void reduce_cells(Accumulator<R>* parts, u64 rows, u64 columns, F f) {
    Accumulator<R> own;
    own.clear();
    for (Rows at(rows, columns); at.any(); at.next()) {
        at.each([&](u64 place, u64 row, u64 column) { own.push((f64)f(place, row, column)); });
    }
    own = merged(own, THREADS);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

template <int R, class F>
__device__ __forceinline__ void reduce_cells_flat(Accumulator<R>* parts, u64 cells, F f) {
    Accumulator<R> own;
    own.clear();
    const u64 step = (u64)gridDim.x * THREADS;
    // Several cells are on their way while one is added.
    #pragma unroll 4
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < cells; at += step) own.push((f64)f(at, 0, 0));
    own = merged(own, THREADS);
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

// A part of each column for each run of `height` rows; blocks go through the runs of some columns, then the next ones.
template <int R, class F>
__device__ __forceinline__ void reduce_columns(Accumulator<R>* parts, u64 rows, u64 columns, u64 height, F f) {
    const u64 runs = (rows + height - 1) / height;
    const u32 width = lanes(columns), lane = threadIdx.x & (width - 1), side = threadIdx.x / width;
    const u64 panels = (columns + width - 1) / width;
    __shared__ Accumulator<R> shared[THREADS];
    for (u64 work = blockIdx.x; work < runs * panels; work += gridDim.x) {
        const u64 run = work / panels, column = (work % panels) * width + lane;
        const u64 end = rows < (run + 1) * height ? rows : (run + 1) * height;
        Accumulator<R> own;
        own.clear();
        if (column < columns) {
            #pragma unroll 4
            for (u64 row = run * height + side; row < end; row += THREADS / width) {
                own.push((f64)f(row * columns + column, row, column));
            }
        }
        shared[threadIdx.x] = own;
        __syncthreads();
        if (side == 0 && column < columns) {
            for (u32 other = 1; other < THREADS / width; other++) own.merge(shared[other * width + lane]);
            parts[run * columns + column] = own;
        }
        __syncthreads();
    }
}

// The parts of all cells, by one block.
template <int R, class T>
__device__ __forceinline__ void finish_cells(T* out, const Accumulator<R>* parts, u64 count, Root root) {
    Accumulator<R> own;
    own.clear();
    for (u64 at = threadIdx.x; at < count; at += THREADS) own.merge(parts[at]);
    own = merged(own, THREADS);
    if (threadIdx.x == 0) out[0] = (T)root.of(own.result(), own.count);
}

// The parts of each column.
template <int R, class T>
__device__ __forceinline__ void finish_columns(T* out, const Accumulator<R>* parts, u64 runs, u64 columns, Root root) {
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 column = (u64)blockIdx.x * THREADS + threadIdx.x; column < columns; column += step) {
        Accumulator<R> own;
        own.clear();
        for (u64 run = 0; run < runs; run++) own.merge(parts[run * columns + column]);
        out[column] = (T)root.of(own.result(), own.count);
    }
}
