// The threads of a kernel: one block after the other, and in it one thread after the other, each until a barrier or its end.
//
// A thread is a fiber, so that it can stop at a barrier, as kernels that sort do dozens of times. Where the first of a block meets none, the others run as plain calls. As on a
// device, all threads of a block must come to a barrier: one that has ended never does, and those who wait for it fail.

#include "driver.h"

#include <link.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

extern "C" {
Index standin_thread, standin_block, standin_threads, standin_blocks;
void standin_barrier();
}

namespace {

constexpr size_t STACK_BYTES = 64 << 10;
constexpr int LAUNCH_FAILED = 719;

enum class State { Ready, AtBarrier, Done };

#ifdef __x86_64__

// Where somebody has stopped: what a function leaves as it was is on his stack.
using Context = void*;

// swapcontext but for the mask of signals, for which that calls the system twice.
extern "C" void standin_switch(Context* own, Context other);
asm(R"(
.text
.type standin_switch, @function
standin_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size standin_switch, .-standin_switch
)");

void change(Context& own, Context& other) { standin_switch(&own, other); }

// A function at its first instruction, which never returns.
void prepare(Context& context, char* stack, void (*entry)()) {
    void** top = (void**)(((size_t)stack + STACK_BYTES) & ~(size_t)15);
    *--top = nullptr;
    *--top = (void*)entry;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    context = top;
}

#else

using Context = ucontext_t;

void change(Context& own, Context& other) { swapcontext(&own, &other); }

void prepare(Context& context, char* stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&context, entry, 0);
}

#endif

struct Fiber {
    Context context;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    State state;
};

// Never given back: a process may end while a kernel runs.
std::vector<Fiber>& fibers = *new std::vector<Fiber>;
Context scheduler;
Fiber* running;
bool failed;
void (*kernel)(void**);
void** given;

void begin() {
    kernel(given);
    running->state = State::Done;
    change(running->context, scheduler);
}

void resume(unsigned thread) {
    running = &fibers[thread];
    standin_thread = {thread, 0, 0};
    change(scheduler, running->context);
    running = nullptr;
}

void start(unsigned thread) {
    Fiber& fiber = fibers[thread];
    fiber.state = State::Ready;
    prepare(fiber.context, fiber.stack.get(), begin);
    resume(thread);
}

// The order in which the threads of a block, and the blocks, have their turns.
std::vector<unsigned> order(unsigned count, long long seed) {
    std::vector<unsigned> all(count);
    for (unsigned at = 0; at < count; at++) {
        // An odd step goes through all of a power of two.
        unsigned step = (unsigned)(2 * seed + 1), whole = 1;
        while (whole < count) whole *= 2;
        all[at] = at;
        if (seed > 1) all[at] = (at * step + (unsigned)seed) % whole;
    }
    if (seed > 1) {
        std::vector<unsigned> ranks(all);
        std::sort(ranks.begin(), ranks.end());
        for (unsigned& place : all) place = std::lower_bound(ranks.begin(), ranks.end(), place) - ranks.begin();
    }
    if (seed == 1) std::reverse(all.begin(), all.end());
    return all;
}

// Fills the shared memory of the library that a kernel is in: nothing of an earlier block is left.
void poison(const void* inside) {
    auto visit = [](dl_phdr_info* info, size_t, void* inside) {
        for (int at = 0; at < info->dlpi_phnum; at++) {
            const auto& part = info->dlpi_phdr[at];
            const char* start = (const char*)info->dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || inside < start || inside >= start + part.p_memsz) continue;
            for (int other = 0; other < info->dlpi_phnum; other++) {
                const auto& local = info->dlpi_phdr[other];
                if (local.p_type == PT_TLS && info->dlpi_tls_data) memset(info->dlpi_tls_data, 0xA5, local.p_memsz);
            }
            return 1;
        }
        return 0;
    };
    dl_iterate_phdr(visit, const_cast<void*>(inside));
}

int run_block(const std::vector<unsigned>& turns) {
    start(turns[0]);
    if (fibers[turns[0]].state == State::Done) {
        for (size_t at = 1; at < turns.size(); at++) {
            standin_thread = {turns[at], 0, 0};
            kernel(given);
        }
        return failed ? LAUNCH_FAILED : 0;
    }
    for (size_t at = 1; at < turns.size(); at++) start(turns[at]);
    for (;;) {
        size_t done = 0;
        for (unsigned thread : turns) done += fibers[thread].state == State::Done;
        if (done == turns.size()) return 0;
        if (done > 0) {
            fprintf(stderr, "stand-in: block %u waits at a barrier for threads that have ended\n", standin_block.x);
            return LAUNCH_FAILED;
        }
        for (unsigned thread : turns) {
            fibers[thread].state = State::Ready;
            resume(thread);
        }
    }
}

}  // namespace

void standin_barrier() {
    if (!running) {
        // The first of its block met none.
        failed = true;
        return;
    }
    running->state = State::AtBarrier;
    change(running->context, scheduler);
}

int run_kernel(void (*enter)(void**), void** parameters, unsigned blocks, unsigned threads, long long seed) {
    kernel = enter, given = parameters, failed = false;
    if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
    standin_threads = {threads, 1, 1};
    standin_blocks = {blocks, 1, 1};
    const std::vector<unsigned> turns = order(threads, seed);
    for (unsigned block : order(blocks, seed)) {
        standin_block = {block, 0, 0};
        poison((const void*)enter);
        if (int code = run_block(turns)) return code;
    }
    return 0;
}
