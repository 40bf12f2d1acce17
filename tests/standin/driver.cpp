// A CUDA driver without a device: those functions of it that the engine calls.
//
// There may be several devices. Each has its memory, its streams and its faults, and what belongs to one is refused where the context of
// another is current: a stream, an event, a function, a pointer. All such mistakes are counted, for the host may do what was refused.
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
#include <set>
#include <string>
#include <utility>
#include <vector>

#define API extern "C" int

namespace {

using Address = unsigned long long;

// Of what is allocated.
constexpr size_t ALIGNMENT = 256;

// Pieces of work that wait in a stream.
constexpr size_t QUEUED_MAX = 1024;

enum Code {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    TOO_MANY_RESOURCES = 701,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

struct Stream;

// It is its own context and its own pool.
struct Device {
    int ordinal;
    std::map<Address, size_t> live;
    std::vector<Stream*> streams;
    // The error that all later calls have too.
    int lost = SUCCESS;
};

// What a stream does at its turn, and returns the code of what went wrong.
struct Work {
    std::function<int()> run;
    // Whether it is a kernel, or what a library does by kernels.
    bool computes = false;
    // Another stream that comes so far before, if it is a wait.
    Stream* after = nullptr;
    unsigned long until = 0;
};

// Work that is queued whenever it is launched; as it was captured, and as it is launched.
using Graph = std::vector<Work>;

struct Stream {
    Device* device;
    std::deque<Work> queue;
    unsigned long done = 0, queued = 0;
    // What is captured, if it is, and whether something was called that cannot be.
    Graph* captured = nullptr;
    bool is_invalid = false;
};

struct Event {
    Device* device;
    Stream* stream = nullptr;
    unsigned long at = 0;
};

// As device.h has it.
struct Kernel {
    void (*enter)(void**);
    unsigned parameters;
    const unsigned* bytes;
};

// What is loaded for a device, and a kernel of it.
struct Module {
    Device* device;
    void* library;
};

struct Function {
    Device* device;
    Kernel* kernel;
};

std::recursive_mutex alone;
// Never given back: a process may end while a kernel runs.
std::map<std::string, long long>& figures = *new std::map<std::string, long long>;
std::map<int, Device>& devices = *new std::map<int, Device>;
// That whose context is the thread's.
thread_local Device* current = nullptr;
// Graphs that are not destroyed.
std::set<Graph*>& graphs = *new std::set<Graph*>;

// A figure that was set, or in the environment as STANDIN_NAME, or this one.
long long figure(const std::string& name, long long otherwise) {
    auto found = figures.find(name);
    if (found != figures.end()) return found->second;
    const char* given = getenv(("STANDIN_" + name).c_str());
    return given ? atoll(given) : otherwise;
}

std::string of_device(const std::string& name, int ordinal) { return name + "_" + std::to_string(ordinal); }

// That of a device, where it has one of its own.
long long figure_of(int ordinal, const char* name, long long otherwise) {
    return figure(of_device(name, ordinal), figure(name, otherwise));
}

void count(const char* name) { figures[name] = figure(name, 0) + 1; }

// What is of one device was used in the context of another.
int crossed(int code) { return count("crossed"), code; }

Device* device_of(int ordinal) { return &devices.try_emplace(ordinal, Device{ordinal, {}, {}}).first->second; }

int work_on(Stream* stream, unsigned long until) {
    while (stream->done < until && !stream->queue.empty()) {
        auto work = stream->queue.front();
        stream->queue.pop_front();
        stream->done++;
        if (int code = work.run()) return stream->device->lost = code;
    }
    return SUCCESS;
}

// What a captured stream is asked for is recorded, not done.
void queue(Stream* stream, Work work) {
    if (stream->captured) return stream->captured->push_back(std::move(work));
    stream->queue.push_back(std::move(work));
    stream->queued++;
}

// Whether there is a kernel among what a stream has to do until a place, or in what that waits for.
bool computes(const Stream* stream, unsigned long until) {
    unsigned long at = stream->done;
    for (const Work& work : stream->queue) {
        if (at++ >= until) return false;
        if (work.computes || (work.after && computes(work.after, work.until))) return true;
    }
    return false;
}

// Counts a copy that is queued while there are kernels to be run: whether it comes behind one, or goes beside them.
void count_copy(const Stream* stream, const char* behind, const char* beside) {
    if (computes(stream, stream->queued)) return count(behind);
    for (const Stream* other : stream->device->streams) {
        if (computes(other, other->queued)) return count(beside);
    }
}

// Refuses what would wait for a captured stream, or needs it to be at work.
bool is_captured(Stream* stream) {
    if (!stream->captured) return false;
    stream->is_invalid = true;
    return true;
}

bool is_live(const Device* device, Address address, size_t bytes) {
    auto after = device->live.upper_bound(address);
    if (after == device->live.begin()) return false;
    auto [start, length] = *--after;
    return address + bytes <= start + length;
}

// Whether an address is in the memory of another device.
bool is_elsewhere(const Device* device, Address address) {
    for (auto& [_, other] : devices) {
        if (&other != device && is_live(&other, address, 1)) return true;
    }
    return false;
}

bool is_here(const Stream* stream) { return stream->device == current; }

int copy(Stream* stream, void* to, const void* from, size_t bytes, bool to_device, bool from_device) {
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_elsewhere(current, (Address)to) || is_elsewhere(current, (Address)from)) return crossed(INVALID_VALUE);
    if (standin_fails("refuse_copy")) return INVALID_VALUE;
    const bool is_lost = standin_fails("fail_copy");
    if (!from_device) count_copy(stream, "up_behind", "up_beside");
    if (!to_device) count_copy(stream, "down_behind", "down_beside");
    queue(stream, {[=]() -> int {
        if (is_lost) return ILLEGAL_ADDRESS;
        if (to_device && !is_live(stream->device, (Address)to, bytes)) return ILLEGAL_ADDRESS;
        if (from_device && !is_live(stream->device, (Address)from, bytes)) return ILLEGAL_ADDRESS;
        memcpy(to, from, bytes);
        return SUCCESS;
    }});
    return SUCCESS;
}

}  // namespace

#define ALONE                                               \
    std::lock_guard<std::recursive_mutex> guard(alone);     \
    if (!current) return INVALID_CONTEXT;                   \
    if (current->lost) return current->lost

void standin_set(const char* name, long long value) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    figures[name] = value;
}

long long standin_get(const char* name) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    if (!strcmp(name, "graphs")) return graphs.size();
    size_t buffers = 0;
    for (auto& [ordinal, device] : devices) {
        if (name == of_device("buffers", ordinal)) return device.live.size();
        buffers += device.live.size();
    }
    return strcmp(name, "buffers") ? figure(name, 0) : buffers;
}

bool standin_fails(const char* name) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    bool fails = false;
    auto count_down = [&](const std::string& name) {
        const long long left = figure(name, 0);
        if (left > 0) figures[name] = left - 1;
        fails |= left == 1;
    };
    count_down(name);
    if (current) count_down(of_device(name, current->ordinal));
    return fails;
}

const void* standin_device() { return current; }

bool standin_queue(const void* device, void* stream, std::initializer_list<const void*> places, const std::function<int()>* work) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    bool is_right = device == current && is_here((Stream*)stream);
    for (const void* place : places) is_right &= !is_elsewhere(current, (Address)place);
    if (!is_right) return crossed(0);
    return queue((Stream*)stream, {*work, true}), true;
}

bool standin_captures(void* stream) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    return ((Stream*)stream)->captured;
}

bool standin_lives(const void* address, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    return current && is_live(current, (Address)address, bytes);
}

API cuInit(unsigned) { return figure("init", SUCCESS); }
API cuDriverGetVersion(int* version) { return *version = figure("driver", 13000), SUCCESS; }
API cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal < figure("devices", 1) ? SUCCESS : INVALID_DEVICE; }
API cuDeviceGetCount(int* devices) { return *devices = figure("devices", 1), SUCCESS; }
API cuDeviceGetName(char* name, int length, int) { return strncpy(name, "Stand-in", length), SUCCESS; }
API cuDeviceGetUuid_v2(char* uuid, int device) { return memset(uuid, 0xA5, 16), uuid[15] += device, SUCCESS; }
API cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = figure_of(device, "memory", 1ll << 30), SUCCESS; }

API cuDeviceGetAttribute(int* value, int attribute, int device) {
    const int capability = figure_of(device, "capability", 90);
    const std::map<int, int> known = {
        {16, 4},  // multiprocessors
        {75, capability / 10},
        {76, capability % 10},
        {115, 1},  // memory pools
    };
    auto found = known.find(attribute);
    return *value = found == known.end() ? 0 : found->second, SUCCESS;
}

API cuDeviceGetDefaultMemPool(Device** pool, int device) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    return *pool = device_of(device), SUCCESS;
}

API cuDevicePrimaryCtxRetain(Device** context, int device) {
    std::lock_guard<std::recursive_mutex> guard(alone);
    count("contexts");
    return *context = device_of(device), SUCCESS;
}

API cuCtxSetCurrent(Device* context) { return current = context, SUCCESS; }

API cuMemPoolSetAttribute(Device* pool, int, void*) {
    ALONE;
    return pool == current ? SUCCESS : crossed(INVALID_VALUE);
}

API cuMemPoolTrimTo(Device* pool, size_t) {
    ALONE;
    return pool == current ? SUCCESS : crossed(INVALID_VALUE);
}

API cuCtxSynchronize() {
    ALONE;
    for (Stream* stream : current->streams) {
        if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    }
    for (Stream* stream : current->streams) {
        if (int code = work_on(stream, stream->queued)) return code;
    }
    return SUCCESS;
}

// Memory that is allocated or freed within a graph is none that the engine asks for.
API cuMemAllocAsync(Address* address, size_t bytes, Stream* stream) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    size_t used = 0;
    for (auto [_, length] : current->live) used += length;
    const int own = current->ordinal;
    const bool is_full = used + bytes > (size_t)figure_of(own, "memory", 1ll << 30) || figure_of(own, "fail_allocs", 0);
    if (is_full || standin_fails("fail_alloc")) return OUT_OF_MEMORY;
    void* memory = nullptr;
    // Not a byte more, so that who leaves it is seen.
    if (posix_memalign(&memory, ALIGNMENT, bytes)) return OUT_OF_MEMORY;
    *address = (Address)memory;
    memset((void*)*address, 0xA5, bytes);
    current->live[*address] = bytes;
    return SUCCESS;
}

API cuMemFreeAsync(Address address, Stream* stream) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_elsewhere(current, address)) return crossed(INVALID_VALUE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    queue(stream, {[=]() -> int {
        auto& live = stream->device->live;
        auto found = live.find(address);
        if (found == live.end()) return ILLEGAL_ADDRESS;
        memset((void*)address, 0x5A, found->second);
        live.erase(found);
        free((void*)address);
        return SUCCESS;
    }});
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
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_elsewhere(current, address)) return crossed(INVALID_VALUE);
    queue(stream, {[=]() -> int {
        if (!is_live(stream->device, address, bytes)) return ILLEGAL_ADDRESS;
        return memset((void*)address, value, bytes), SUCCESS;
    }});
    return SUCCESS;
}

API cuStreamCreate(Stream** stream, unsigned) {
    ALONE;
    current->streams.push_back(*stream = new Stream{current, {}});
    return SUCCESS;
}

API cuStreamSynchronize(Stream* stream) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    return work_on(stream, stream->queued);
}

// A piece of work at each look.
API cuStreamQuery(Stream* stream) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    if (figure_of(current->ordinal, "never_done", 0)) return NOT_READY;
    if (stream->queue.empty()) return SUCCESS;
    const int code = work_on(stream, stream->done + 1);
    return code ? code : NOT_READY;
}

API cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    if (standin_fails("refuse_wait")) return INVALID_VALUE;
    count("waits");
    Stream* other = event->stream;
    const unsigned long until = event->at;
    if (other && other != stream) queue(stream, {[=] { return work_on(other, until); }, false, other, until});
    return SUCCESS;
}

API cuStreamBeginCapture_v2(Stream* stream, int) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (stream->captured) return ILLEGAL_STATE;
    if (standin_fails("refuse_capture")) return INVALID_VALUE;
    graphs.insert(stream->captured = new Graph);
    stream->is_invalid = false;
    return SUCCESS;
}

// Ends it also where it was spoilt.
API cuStreamEndCapture(Stream* stream, Graph** graph) {
    ALONE;
    *graph = std::exchange(stream->captured, nullptr);
    if (!*graph) return ILLEGAL_STATE;
    const bool is_refused = standin_fails("refuse_captured");
    if (!is_refused && !stream->is_invalid) return SUCCESS;
    graphs.erase(*graph);
    delete *graph;
    return *graph = nullptr, CAPTURE_INVALIDATED;
}

API cuGraphInstantiateWithFlags(Graph** made, Graph* graph, unsigned long long) {
    ALONE;
    if (!graphs.count(graph)) return INVALID_VALUE;
    if (standin_fails("refuse_graph")) return OUT_OF_MEMORY;
    graphs.insert(*made = new Graph(*graph));
    return SUCCESS;
}

API cuGraphLaunch(Graph* graph, Stream* stream) {
    ALONE;
    if (!is_here(stream)) return crossed(INVALID_HANDLE);
    if (!graphs.count(graph) || standin_fails("refuse_replay")) return INVALID_VALUE;
    for (const auto& work : *graph) queue(stream, work);
    // Whoever queues more than a driver has room for waits.
    while (stream->queue.size() > QUEUED_MAX) {
        if (int code = work_on(stream, stream->done + 1)) return code;
    }
    return SUCCESS;
}

API cuGraphDestroy(Graph* graph) {
    ALONE;
    if (!graphs.erase(graph)) return INVALID_VALUE;
    return delete graph, SUCCESS;
}

// What was launched goes on.
API cuGraphExecDestroy(Graph* graph) { return cuGraphDestroy(graph); }

API cuEventCreate(Event** event, unsigned) {
    ALONE;
    return *event = new Event{current}, SUCCESS;
}
API cuEventDestroy_v2(Event* event) { return delete event, SUCCESS; }

API cuEventRecord(Event* event, Stream* stream) {
    ALONE;
    if (!is_here(stream) || event->device != current) return crossed(INVALID_HANDLE);
    if (is_captured(stream)) return CAPTURE_UNSUPPORTED;
    if (standin_fails("refuse_record")) return INVALID_VALUE;
    *event = {current, stream, stream->queued};
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
API cuModuleLoadData(Module** module, const char* image) {
    ALONE;
    if (standin_fails("fail_image")) return INVALID_IMAGE;
    *module = new Module{current, dlopen(image, RTLD_NOW | RTLD_LOCAL)};
    return (*module)->library ? SUCCESS : INVALID_IMAGE;
}

API cuModuleUnload(Module*) { return SUCCESS; }

API cuModuleGetFunction(Function** function, Module* module, const char* name) {
    ALONE;
    if (module->device != current) return crossed(INVALID_HANDLE);
    auto* kernel = (Kernel*)dlsym(module->library, (std::string("standin_kernel_") + name).c_str());
    *function = new Function{current, kernel};
    return kernel ? SUCCESS : NOT_FOUND;
}

API cuFuncSetAttribute(Function* function, int, int) {
    ALONE;
    if (function->device != current) return crossed(INVALID_HANDLE);
    return count("attributes"), SUCCESS;
}

API cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, Function* function, void*, size_t, int) {
    ALONE;
    if (function->device != current) return crossed(INVALID_HANDLE);
    count("occupancy");
    return *blocks = 8, *threads = 128, SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads, size_t) {
    ALONE;
    if (function->device != current) return crossed(INVALID_HANDLE);
    return *blocks = threads > 1024 ? 0 : 2048 / threads, SUCCESS;
}

API cuLaunchKernel(Function* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, Stream* stream,
                   void** given, void**) {
    ALONE;
    if (function->device != current || !is_here(stream)) return crossed(INVALID_HANDLE);
    if (threads > 1024 || standin_fails("refuse_launch")) return TOO_MANY_RESOURCES;
    bool is_lost = standin_fails("fail_launch");
    const Kernel* kernel = function->kernel;
    figures["grid"] = blocks, figures["block"] = threads;
    std::vector<std::vector<char>> parameters;
    for (unsigned at = 0; at < kernel->parameters; at++) {
        const char* bytes = (const char*)given[at];
        parameters.emplace_back(bytes, bytes + kernel->bytes[at]);
        // A number that is no address is in no memory.
        if (kernel->bytes[at] != sizeof(Address) || !is_elsewhere(current, *(const Address*)bytes)) continue;
        crossed(ILLEGAL_ADDRESS), is_lost = true;
    }
    auto run = [=]() mutable -> int {
        if (is_lost) return ILLEGAL_ADDRESS;
        std::vector<void*> places;
        for (auto& parameter : parameters) places.push_back(parameter.data());
        return run_kernel(kernel->enter, places.data(), blocks, threads, figure("order", 0));
    };
    queue(stream, {run, true});
    return SUCCESS;
}
