// CUDA's language for a C++ compiler: what stands before the text of a kernel, so that it runs on the processor.
//
// The threads of a block take turns on one thread of the system (threads.cpp): each runs until a barrier or its end. What is written
// here is what our kernels use; there is no dynamic shared memory, and no warp by itself: all threads of a block meet where lanes hand
// each other numbers. Nothing comes between the steps of an atomic function, for threads change places at barriers alone.
#pragma once

#define __global__ static
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads)
// Alone in the thread-local part of its library, which is filled with rubbish before each block.
#define __shared__ thread_local

struct standin_index {
    unsigned x, y, z;
};

extern "C" {
extern standin_index standin_thread, standin_block, standin_threads, standin_blocks;
void standin_barrier();
double fabs(double), fma(double, double, double), copysign(double, double), sqrt(double);
double floor(double), ceil(double), round(double), pow(double, double), erfc(double);
double sin(double), cos(double), tan(double);
float sqrtf(float), fmaf(float, float, float);
}

#define threadIdx standin_thread
#define blockIdx standin_block
#define blockDim standin_threads
#define gridDim standin_blocks
#define __syncthreads standin_barrier

// What lanes show one another, in turns of two: nobody writes what others may not have read yet.
static __shared__ double standin_shown[2][1024];
static __shared__ unsigned char standin_turn[1024];

// What another lane of the same group shows; what there is none of, its own.
static inline double standin_lane(double own, unsigned lane, unsigned width) {
    const unsigned at = standin_thread.x, turn = standin_turn[at]++ & 1;
    standin_shown[turn][at] = own;
    standin_barrier();
    return lane < width ? standin_shown[turn][at - at % width + lane] : own;
}

static inline double __shfl_sync(unsigned, double own, int lane, int width) { return standin_lane(own, lane, width); }
static inline double __shfl_down_sync(unsigned, double own, unsigned by, int width) {
    return standin_lane(own, standin_thread.x % width + by, width);
}

static inline unsigned long long __shfl_down_sync(unsigned, unsigned long long own, unsigned by, int width) {
    return __builtin_bit_cast(unsigned long long, standin_lane(__builtin_bit_cast(double, own), standin_thread.x % width + by, width));
}

static inline void __syncwarp(unsigned) { standin_barrier(); }

// The lanes of a warp that show the same number.
static inline unsigned __match_any_sync(unsigned, unsigned own) {
    const unsigned at = standin_thread.x, turn = standin_turn[at]++ & 1;
    standin_shown[turn][at] = own;
    standin_barrier();
    unsigned same = 0;
    for (unsigned lane = 0; lane < 32; lane++) same |= (unsigned)(standin_shown[turn][at - at % 32 + lane] == own) << lane;
    return same;
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }

static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long by) {
    const unsigned long long before = *at;
    return *at += by, before;
}
static inline unsigned atomicAdd(unsigned* at, unsigned by) {
    const unsigned before = *at;
    return *at += by, before;
}
static inline unsigned long long atomicOr(unsigned long long* at, unsigned long long other) {
    const unsigned long long before = *at;
    return *at = before | other, before;
}
static inline unsigned long long atomicCAS(unsigned long long* at, unsigned long long expected, unsigned long long other) {
    const unsigned long long before = *at;
    return *at = before == expected ? other : before, before;
}
static inline long long atomicMin(long long* at, long long other) {
    const long long before = *at;
    return *at = other < before ? other : before, before;
}
static inline long long atomicMax(long long* at, long long other) {
    const long long before = *at;
    return *at = other > before ? other : before, before;
}

static inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
static inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
static inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

// Runs one thread of a kernel with the parameters that a launch was given.
template <int... At>
struct standin_places {
    template <class... Parameters>
    static void call(void (*kernel)(Parameters...), void** given) {
        kernel(*(Parameters*)given[At]...);
    }
};

template <int Count>
using standin_counted = standin_places<__integer_pack(Count)...>;

template <class... Parameters>
static void standin_enter(void (*kernel)(Parameters...), void** given) {
    standin_counted<sizeof...(Parameters)>::call(kernel, given);
}

// How many bytes each parameter has, for a launch copies them: nobody but the kernel knows.
template <class... Parameters>
static constexpr unsigned standin_count(void (*)(Parameters...)) {
    return sizeof...(Parameters);
}

template <class... Parameters>
static const unsigned* standin_bytes(void (*)(Parameters...)) {
    static const unsigned bytes[] = {sizeof(Parameters)...};
    return bytes;
}

// What the driver finds for a kernel: how to run a thread of it, and its parameters.
struct standin_kernel {
    void (*enter)(void**);
    unsigned parameters;
    const unsigned* bytes;
};

#define STANDIN_KERNEL(name)                                                                             \
    static void standin_enter_##name(void** given) { standin_enter(name, given); }                       \
    extern "C" standin_kernel standin_kernel_##name;                                                     \
    standin_kernel standin_kernel_##name = {standin_enter_##name, standin_count(name), standin_bytes(name)};
