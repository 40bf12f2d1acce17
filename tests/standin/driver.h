// What the parts of the stand-in tell each other.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>

struct Index {
    unsigned x, y, z;
};

// Runs a kernel, block by block; 0, or the code of what went wrong.
int run_kernel(void (*enter)(void**), void** parameters, unsigned blocks, unsigned threads, long long seed);

extern "C" {
// Changes what the stand-in does, and tells what it did: the names are in README.md.
void standin_set(const char* name, long long value);
long long standin_get(const char* name);
// Counts down what is to fail, of all devices and of the current one alone: whether it is this one's turn.
bool standin_fails(const char* name);
// Whether work that is queued on a stream is recorded.
bool standin_captures(void* stream);
// Whether memory is allocated.
bool standin_lives(const void* address, size_t bytes);
// The device whose context is current.
const void* standin_device();
// Queues work on a stream, as a launch does, with what has memory in these places; false where that, the stream or the device of who asks
// is not of the current context.
bool standin_queue(const void* device, void* stream, std::initializer_list<const void*> places, const std::function<int()>* work);
}
