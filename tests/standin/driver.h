// What the parts of the stand-in tell each other.
#pragma once

#include <functional>

struct Index {
    unsigned x, y, z;
};

// Runs a kernel, block by block; 0, or the code of what went wrong.
int run_kernel(void (*enter)(void**), void** parameters, unsigned blocks, unsigned threads, long long seed);

extern "C" {
// Changes what the stand-in does, and tells what it did: the names are in README.md.
void standin_set(const char* name, long long value);
long long standin_get(const char* name);
// Counts down what is to fail: whether it is this one's turn.
bool standin_fails(const char* name);
// Queues work on a stream, as a launch does.
void standin_queue(void* stream, const std::function<int()>* work);
}
