// A window that moves over images, of which each is a row: convolution and pooling.
#include "common.cuh"

// Cells of the window that are at hand at once.
#define DEPTH 16

// A window and the images it moves over, as kernels are given them.
#define WINDOW u32 height, u32 width, u32 kernel_height, u32 kernel_width, u32 stride_height, u32 stride_width, u32 padding, u32 places_height, u32 places_width
#define GIVEN height, width, kernel_height, kernel_width, stride_height, stride_width, padding, places_height, places_width

__device__ __forceinline__ f64 multiplied(f64 x, f64 y, f64 sum) { return fma(x, y, sum); }
__device__ __forceinline__ f32 multiplied(f32 x, f32 y, f32 sum) { return fmaf(x, y, sum); }

// A product of the filters and of what the window shows at all places of all images, which exists in tiles alone. Each thread has EACH
// by EACH results, and adds up each of them in the order of the window's cells: it depends on nothing but its image and its filter.
template <u32 Filters, u32 Each, class T>
__device__ __forceinline__ void convolution(T* out, const T* images, const T* filters, u64 count, u64 filter_count, u64 channels, WINDOW) {
    constexpr u32 across = THREADS * Each / Filters, tile = across * Each, at_once = THREADS / tile, down = Filters / Each;
    static_assert(at_once >= 1 && down * across == THREADS, "a thread for each square of results, and one at least for each place");
    // A column more keeps lanes in banks of their own.
    __shared__ T shown[DEPTH][tile], cells[DEPTH][Filters + 1];
    const u64 area = (u64)height * width, places = (u64)places_height * places_width, columns = count * places;
    const u64 depth = channels * kernel_height * kernel_width;
    const u64 rows_of_tiles = (filter_count + Filters - 1) / Filters, tiles = (columns + tile - 1) / tile * rows_of_tiles;
    const u32 column = threadIdx.x % across, row = threadIdx.x / across;
    const u32 lane = threadIdx.x % tile, first = threadIdx.x / tile;
    for (u64 at = blockIdx.x; at < tiles; at += gridDim.x) {
        // Blocks that follow each other read the same images.
        const u64 left = at / rows_of_tiles * tile, top = at % rows_of_tiles * Filters;
        const u64 own = left + lane, place = own % places;
        const int i = (int)(place / places_width * stride_height) - (int)padding;
        const int j = (int)(place % places_width * stride_width) - (int)padding;
        // Where the cell of the window is that this thread reads next.
        const T* plane = images + own / places * channels * area + first / kernel_width / kernel_height * area;
        u32 u = first / kernel_width % kernel_height, v = first % kernel_width;
        T sums[Each][Each] = {};
        for (u64 k = 0; k < depth; k += DEPTH) {
#pragma unroll 1
            for (u32 d = first; d < DEPTH; d += at_once) {
                const u32 y = (u32)(i + (int)u), x = (u32)(j + (int)v);
                const bool is_pixel = own < columns && k + d < depth && y < height && x < width;
                shown[d][lane] = is_pixel ? plane[(u64)y * width + x] : T(0);
                for (v += at_once; v >= kernel_width; v -= kernel_width) {
                    if (++u == kernel_height) {
                        u = 0;
                        plane += area;
                    }
                }
            }
            for (u32 of = threadIdx.x; of < DEPTH * Filters; of += THREADS) {
                const u64 d = of % DEPTH, filter = of / DEPTH;
                const bool is_cell = k + d < depth && top + filter < filter_count;
                cells[d][filter] = is_cell ? filters[(top + filter) * depth + k + d] : T(0);
            }
            __syncthreads();
#pragma unroll 4
            for (u32 d = 0; d < DEPTH; ++d) {
                T pixels[Each], weights[Each];
#pragma unroll
                for (u32 b = 0; b < Each; ++b) pixels[b] = shown[d][column + b * across];
#pragma unroll
                for (u32 a = 0; a < Each; ++a) weights[a] = cells[d][row + a * down];
#pragma unroll
                for (u32 a = 0; a < Each; ++a) {
#pragma unroll
                    for (u32 b = 0; b < Each; ++b) sums[a][b] = multiplied(weights[a], pixels[b], sums[a][b]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (u32 b = 0; b < Each; ++b) {
            const u64 to = left + column + b * across;
            if (to >= columns) continue;
            T* result = out + to / places * filter_count * places + to % places;
#pragma unroll
            for (u32 a = 0; a < Each; ++a) {
                const u64 filter = top + row + a * down;
                if (filter < filter_count) result[filter * places] = sums[a][b];
            }
        }
    }
}

// What the window shows of each channel, column by column as on the host: the largest pixel, none of which is below `nothing`, or their sum
// from that on, shared by `area`.
template <bool Mean, class T>
__device__ __forceinline__ void pooled(T* out, const T* images, u64 planes, f64 nothing, f64 area, WINDOW) {
    const u64 step = (u64)gridDim.x * THREADS, places = (u64)places_height * places_width;
    auto both = [](T all, T pixel) { return Mean ? all + pixel : pixel > all || pixel != pixel ? pixel : all; };
    auto clipped = [&](u64 at, u32 size) { return (u32)(at < padding ? 0 : at - padding < size ? at - padding : size); };
    for (u64 at = (u64)blockIdx.x * THREADS + threadIdx.x; at < planes * places; at += step) {
        const u64 place = at % places;
        const T* plane = images + at / places * height * width;
        const u64 i = place / places_width * stride_height, j = place % places_width * stride_width;
        const u32 top = clipped(i, height), bottom = clipped(i + kernel_height, height);
        const u32 left = clipped(j, width), right = clipped(j + kernel_width, width);
        T all = (T)nothing;
        for (u32 x = left; x < right; ++x) {
            T column = (T)nothing;
            for (u32 y = top; y < bottom; ++y) column = both(column, plane[(u64)y * width + x]);
            all = both(all, column);
        }
        out[at] = Mean ? all / (T)area : all;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) convolve_f64(f64* out, const f64* images, const f64* filters, u64 count, u64 filter_count, u64 channels, WINDOW) {
    convolution<64, 4>(out, images, filters, count, filter_count, channels, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) convolve_f32(f32* out, const f32* images, const f32* filters, u64 count, u64 filter_count, u64 channels, WINDOW) {
    convolution<64, 8>(out, images, filters, count, filter_count, channels, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) convolve_few_f64(f64* out, const f64* images, const f64* filters, u64 count, u64 filter_count, u64 channels, WINDOW) {
    convolution<16, 4>(out, images, filters, count, filter_count, channels, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) convolve_few_f32(f32* out, const f32* images, const f32* filters, u64 count, u64 filter_count, u64 channels, WINDOW) {
    convolution<16, 4>(out, images, filters, count, filter_count, channels, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool_max_f64(f64* out, const f64* images, u64 planes, f64 nothing, f64 area, WINDOW) {
    pooled<false>(out, images, planes, nothing, area, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool_max_f32(f32* out, const f32* images, u64 planes, f64 nothing, f64 area, WINDOW) {
    pooled<false>(out, images, planes, nothing, area, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool_mean_f64(f64* out, const f64* images, u64 planes, f64 nothing, f64 area, WINDOW) {
    pooled<true>(out, images, planes, nothing, area, GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS) pool_mean_f32(f32* out, const f32* images, u64 planes, f64 nothing, f64 area, WINDOW) {
    pooled<true>(out, images, planes, nothing, area, GIVEN);
}
