// A CUDA driver without a device: those functions of it that the engine calls.
//
// Memory of the device is that of the process, full of rubbish when it is new and when it is freed. A stream is a queue that is worked
// on only when somebody waits for it, so that what is used too early, or freed too soon, is wrong every time.

#include "driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" int

namespace {

using Address = unsigned long long;

enum Code {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    TOO_MANY_RESOURCES = 701,
};

struct Stream {
    std::deque<std::function<int()>> queue;
    unsigned long done = 0, queued = 0;
};

struct Event {
    Stream* stream = nullptr;
    unsigned long at = 0;
};

// As device.h has it.
struct Kernel {
    void (*enter)(void**);
    unsigned parameters;
    const unsigned* bytes;
};

std::recursive_mutex alone;
// Never given back: a process may end while a kernel runs.
std::map<Address, size_t>& live = *new std::map<Address, size_t>;
std::map<std::string, long long>& figures = *new std::map<std::string, long long>;
std::vector<Stream*>& streams = *new std::vector<Stream*>;
// The error that all later calls have too.
int lost = SUCCESS;

// A figure that was set, or in the environment as STANDIN_NAME, or this one.
long long figure(const std::string& name, long long otherwise) {
    auto found = figures.find(name);
    if (found != figures.end()) return found->second;
    const char* given = getenv(("STANDIN_" + name).c_str());
    return given ? atoll(given) : otherwise;
}

void count(const char* name) { figures[name] = figure(name, 0) + 1; }

int work_on(Stream* stream, unsigned long until) {
    while (stream->done < until && !stream->queue.empty()) {
        auto work = stream->queue.front();
        stream->queue.pop_front();
        stream->done++;
        if (int code = work()) return lost = code;
    }
    return SUCCESS;
}

void queue(Stream* stream, std::function<int()> work) {
    stream->queue.push_back(std::move(work));
    stream->queued++;
}

bool is_live(Address address, size_t bytes) {
    auto after = live.upper_bound(address);
    if (after == live.begin()) return false;
    auto [start, length] = *--after;
    return address + bytes <= start + length;
}

int copy(Stream* stream, void* to, const void* from, size_t bytes, bool to_device, bool from_device) {
    if (standin_fails("refuse_copy")) return INVALID_VALUE;
    const bool is_lost = standin_fails("fail_copy");
    queue(stream, [=] {
        if (is_lost) return ILLEGAL_ADDRESS;
        if (to_device && !is_live((Address)to, bytes)) return ILLEGAL_ADDRESS;
        if (from_device && !is_live((Address)from, bytes)) return ILLEGAL_ADDRESS;
        memcpy(to, from, bytes);
        return SUCCESS;
    });
    return SUCCESS;
}

}  // namespace

#define ALONE                                               \
    std::lock_guard<std::recursive_mutex> guard(alone);     \
    if (lost) return lost

void standin_set(const char* name, long long value) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    figures[name] = value;
}

long long standin_get(const char* name) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    if (!strcmp(name, "buffers")) return live.size();
    return figure(name, 0);
}

bool standin_fails(const char* name) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    long long left = figure(name, 0);
    if (left > 0) figures[name] = left - 1;
    return left == 1;
}

void standin_queue(void* stream, const std::function<int()>* work) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    queue((Stream*)stream, *work);
}

API cuInit(unsigned) { return figure("init", SUCCESS); }
API cuDriverGetVersion(int* version) { return *version = figure("driver", 13000), SUCCESS; }
API cuDeviceGet(int* device, int) { return *device = 0, SUCCESS; }
API cuDeviceGetCount(int* devices) { return *devices = figure("devices", 1), SUCCESS; }
API cuDeviceGetName(char* name, int length, int) { return strncpy(name, "Stand-in", length), SUCCESS; }
API cuDeviceGetUuid_v2(char* uuid, int) { return memset(uuid, 0xA5, 16), SUCCESS; }
API cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = figure("memory", 1ll << 30), SUCCESS; }

API cuDeviceGetAttribute(int* value, int attribute, int) {
    const int capability = figure("capability", 90);
    const std::map<int, int> known = {
        {16, 4},  // multiprocessors
        {75, capability / 10},
        {76, capability % 10},
        {115, 1},  // memory pools
    };
    auto found = known.find(attribute);
    return *value = found == known.end() ? 0 : found->second, SUCCESS;
}

API cuDeviceGetDefaultMemPool(void** pool, int) { return *pool = &live, SUCCESS; }
API cuDevicePrimaryCtxRetain(void** context, int) { return *context = &streams, SUCCESS; }
API cuCtxSetCurrent(void*) { return SUCCESS; }
API cuMemPoolSetAttribute(void*, int, void*) { return SUCCESS; }
API cuMemPoolTrimTo(void*, size_t) { return SUCCESS; }

API cuCtxSynchronize() {
    ALONE;
    for (Stream* stream : streams) {
        if (int code = work_on(stream, stream->queued)) return code;
    }
    return SUCCESS;
}

API cuMemAllocAsync(Address* address, size_t bytes, Stream*) {
    ALONE;
    size_t used = 0;
    for (auto [_, length] : live) used += length;
    const bool is_full = used + bytes > (size_t)figure("memory", 1ll << 30) || figure("fail_allocs", 0);
    if (is_full || standin_fails("fail_alloc")) return OUT_OF_MEMORY;
    *address = (Address)malloc(bytes);
    memset((void*)*address, 0xA5, bytes);
    live[*address] = bytes;
    return SUCCESS;
}

API cuMemFreeAsync(Address address, Stream* stream) {
    ALONE;
    queue(stream, [=]() -> int {
        auto found = live.find(address);
        if (found == live.end()) return ILLEGAL_ADDRESS;
        memset((void*)address, 0x5A, found->second);
        live.erase(found);
        free((void*)address);
        return SUCCESS;
    });
    return SUCCESS;
}

API cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    ALONE;
    if (figure("fail_pins", 0)) return OUT_OF_MEMORY;
    return *address = malloc(bytes), SUCCESS;
}

API cuMemFreeHost(void* address) { return free(address), SUCCESS; }

API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
    ALONE;
    return copy(stream, (void*)to, from, bytes, true, false);
}

API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
    ALONE;
    return copy(stream, to, (const void*)from, bytes, false, true);
}

API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
    ALONE;
    return copy(stream, (void*)to, (const void*)from, bytes, true, true);
}

API cuMemsetD8Async(Address address, unsigned char value, size_t bytes, Stream* stream) {
    ALONE;
    queue(stream, [=]() -> int {
        if (!is_live(address, bytes)) return ILLEGAL_ADDRESS;
        return memset((void*)address, value, bytes), SUCCESS;
    });
    return SUCCESS;
}

API cuStreamCreate(Stream** stream, unsigned) {
    ALONE;
    streams.push_back(*stream = new Stream);
    return SUCCESS;
}

API cuStreamSynchronize(Stream* stream) {
    ALONE;
    return work_on(stream, stream->queued);
}

// A piece of work at each look.
API cuStreamQuery(Stream* stream) {
    ALONE;
    if (figure("never_done", 0)) return NOT_READY;
    if (stream->queue.empty()) return SUCCESS;
    const int code = work_on(stream, stream->done + 1);
    return code ? code : NOT_READY;
}

API cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    ALONE;
    Stream* other = event->stream;
    const unsigned long until = event->at;
    if (other && other != stream) queue(stream, [=] { return work_on(other, until); });
    return SUCCESS;
}

API cuEventCreate(Event** event, unsigned) { return *event = new Event, SUCCESS; }
API cuEventDestroy_v2(Event* event) { return delete event, SUCCESS; }

API cuEventRecord(Event* event, Stream* stream) {
    ALONE;
    *event = {stream, stream->queued};
    return SUCCESS;
}

API cuEventQuery(Event* event) {
    ALONE;
    return !event->stream || event->stream->done >= event->at ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(Event* event) {
    ALONE;
    return event->stream ? work_on(event->stream, event->at) : SUCCESS;
}

// An image of the stand-in's compiler is the path of a library.
API cuModuleLoadData(void** module, const char* image) {
    ALONE;
    if (standin_fails("fail_image")) return INVALID_IMAGE;
    *module = dlopen(image, RTLD_NOW | RTLD_LOCAL);
    return *module ? SUCCESS : INVALID_IMAGE;
}

API cuModuleUnload(void*) { return SUCCESS; }

API cuModuleGetFunction(Kernel** kernel, void* module, const char* name) {
    ALONE;
    *kernel = (Kernel*)dlsym(module, (std::string("standin_kernel_") + name).c_str());
    return *kernel ? SUCCESS : NOT_FOUND;
}

API cuFuncSetAttribute(Kernel*, int, int) {
    ALONE;
    return count("attributes"), SUCCESS;
}

API cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, Kernel*, void*, size_t, int) {
    ALONE;
    count("occupancy");
    return *blocks = 8, *threads = 128, SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int threads, size_t) {
    return *blocks = threads > 1024 ? 0 : 2048 / threads, SUCCESS;
}

API cuLaunchKernel(Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, Stream* stream,
                   void** given, void**) {
    ALONE;
    if (threads > 1024 || standin_fails("refuse_launch")) return TOO_MANY_RESOURCES;
    const bool is_lost = standin_fails("fail_launch");
    figures["grid"] = blocks, figures["block"] = threads;
    std::vector<std::vector<char>> parameters;
    for (unsigned at = 0; at < kernel->parameters; at++) {
        const char* bytes = (const char*)given[at];
        parameters.emplace_back(bytes, bytes + kernel->bytes[at]);
    }
    queue(stream, [=]() mutable -> int {
        if (is_lost) return ILLEGAL_ADDRESS;
        std::vector<void*> places;
        for (auto& parameter : parameters) places.push_back(parameter.data());
        return run_kernel(kernel->enter, places.data(), blocks, threads, figure("order", 0));
    });
    return SUCCESS;
}
