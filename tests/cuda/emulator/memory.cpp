/* memory.cpp: device memory, pinned memory, and the lookup of allocations.
 *
 * Device memory is one range of addresses. Each allocation has its own pages, followed by pages without access; an
 * address is used once. Device memory is accessible only to running work: a fault opens a page, and it is closed
 * afterwards. The rest of an allocation's pages has a pattern that must not change. New memory is full of NaN. Records
 * of allocations are kept after a free, outside the heap, so that heap growth measures only the device. */
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

constexpr size_t PAGE = 4096, ARENA = size_t{1} << 42;
constexpr int POISON = 0xff, EDGE_BYTE = 0xb6;

/* Allocates system memory that is never freed. */
void *take_apart(size_t bytes) {
    constexpr size_t CHUNK = size_t{1} << 20;
    static char *next, *end;
    bytes = (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
    if (next == nullptr || bytes > static_cast<size_t>(end - next)) {
        const size_t room = bytes > CHUNK ? bytes : CHUNK;
        void *memory = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fault("%zu bytes for records are not to be had", room);
        next = static_cast<char *>(memory);
        end = next + room;
    }
    next += bytes;
    return next - bytes;
}
template <typename T> struct Apart {
    typedef T value_type;
    Apart() = default;
    template <typename U> Apart(const Apart<U> &) {}
    T *allocate(size_t n) {
        return static_cast<T *>(take_apart(n * sizeof(T)));
    }
    void deallocate(T *, size_t) {}
    template <typename U> bool operator==(const Apart<U> &) const {
        return true;
    }
    template <typename U> bool operator!=(const Apart<U> &) const {
        return false;
    }
};
/* By the first byte of their pages. */
typedef std::map<uintptr_t, Allocation, std::less<uintptr_t>, Apart<std::pair<const uintptr_t, Allocation>>> Records;

char *arena, *arena_next;
Records device, pinned;
std::vector<size_t> live_of(64);
thread_local int open_count; /* of this thread; below, of all, counted under the lock */
int open_in_all;
std::vector<const Allocation *> opened;
bool forbidden;
std::atomic<size_t> of_libraries;

size_t alignment() {
    static const size_t bytes = static_cast<size_t>(number("WEFT_EMULATOR_ALIGN", 256));
    return bytes;
}

size_t rounded(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

void prepare() {
    void *memory = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fault("%zu bytes of addresses for device memory are not to be had", ARENA);
    arena = arena_next = static_cast<char *>(memory);
    watch_faults();
}

void protect(const Allocation &a, int how) {
    if (mprotect(reinterpret_cast<void *>(a.map), a.mapped, how) != 0) fault("mprotect failed");
}

const Allocation *find(const Records &in, uintptr_t address, size_t around) {
    auto it = in.upper_bound(address);
    if (it == in.begin()) return nullptr;
    const Allocation &a = (--it)->second;
    return address < a.map + a.mapped + around ? &a : nullptr;
}

void draw_edges(const Allocation &a) {
    std::memset(reinterpret_cast<void *>(a.map), EDGE_BYTE, a.base - a.map);
    std::memset(reinterpret_cast<void *>(a.base), POISON, a.size);
    std::memset(reinterpret_cast<void *>(a.base + a.size), EDGE_BYTE, a.map + a.mapped - a.base - a.size);
}

void check_edge(const Allocation &a, uintptr_t from, uintptr_t to, const char *after) {
    for (uintptr_t at = from; at < to; at++) {
        if (*reinterpret_cast<const unsigned char *>(at) == EDGE_BYTE) continue;
        if (at < a.base) fault("byte %zu before an allocation of %zu bytes was written%s", a.base - at, a.size, after);
        fault("byte %zu behind the end of an allocation of %zu bytes was written%s", at - a.base - a.size, a.size,
              after);
    }
}

void check_one(const Allocation &a, const char *after) {
    check_edge(a, a.map, a.base, after);
    check_edge(a, a.base + a.size, a.map + a.mapped, after);
}

/* Assigns pages in the arena; the allocation ends near their end. */
Allocation place(size_t bytes) {
    Allocation a;
    if (arena == nullptr) prepare();
    a.mapped = rounded(rounded(bytes, alignment()), PAGE);
    if (arena_next + a.mapped + 2 * PAGE > arena + ARENA) fault("the addresses of device memory are used up");
    a.map = reinterpret_cast<uintptr_t>(arena_next) + PAGE;
    a.base = a.map + a.mapped - rounded(bytes, alignment());
    a.size = bytes;
    a.device = device_now();
    arena_next += a.mapped + PAGE;
    return a;
}

/* Returns the GPU's available memory. Library memory is counted on every GPU: a process uses one of them. */
size_t room_left() {
    const size_t taken = live_of[static_cast<size_t>(device_now())] + device_context() + of_libraries;
    return taken < device_memory() ? device_memory() - taken : 0;
}

cudaError_t may_allocate(const char *function) {
    const cudaError_t code = capture_allows(function);
    if (code != cudaSuccess) return code;
    if (forbidden) return refuse(cudaErrorNotPermitted, "%s is called where nothing may be allocated", function);
    if (number("WEFT_EMULATOR_NO_ALLOC", 0) != 0 && kernels_wait())
        return refuse(cudaErrorNotPermitted, "%s is called while kernels are queued: in a step", function);
    return cudaSuccess;
}

} // namespace

void library_takes(long long bytes) {
    if (device_context() > 0) of_libraries += static_cast<size_t>(bytes);
}

bool in_arena(uintptr_t address) {
    return arena != nullptr && address >= reinterpret_cast<uintptr_t>(arena) &&
           address < reinterpret_cast<uintptr_t>(arena) + ARENA;
}

const Allocation *allocation_at(uintptr_t address) {
    const Allocation *a = find(in_arena(address) ? device : pinned, address, 0);
    return a != nullptr && address >= a->base && address <= a->base + a->size ? a : nullptr;
}

const Allocation *allocation_near(uintptr_t address) {
    const Allocation *before = find(device, address, PAGE);
    return before != nullptr ? before : find(device, address + PAGE, 0); /* the next one */
}

Sort sort_of(const void *pointer) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    if (in_arena(address)) return Sort::DEVICE;
    const Allocation *a = allocation_at(address);
    return a != nullptr && a->live && address < a->base + a->size ? Sort::PINNED : Sort::PAGEABLE;
}

bool whole(const void *pointer, size_t bytes, const char *function, const char *which) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    const Allocation *a = allocation_at(address);
    if (a == nullptr && !in_arena(address)) return pointer != nullptr;
    if (a != nullptr && a->live && bytes <= a->base + a->size - address) return true;
    if (a == nullptr) (void)refuse(cudaErrorInvalidValue, "%s: %s lies in no allocation", function, which);
    else
        (void)refuse(cudaErrorInvalidValue, "%s: %s of %zu bytes from byte %zu on leaves an allocation of %zu bytes%s",
                     function, which, bytes, address - a->base, a->size, a->live ? "" : " that was freed");
    return false;
}

bool open_for_work(uintptr_t address) {
    if (open_count == 0) return false;
    const Allocation *a = find(device, address, 0);
    if (a == nullptr || !a->live || std::find(opened.begin(), opened.end(), a) != opened.end()) return false;
    protect(*a, PROT_READ | PROT_WRITE);
    opened.push_back(a);
    return true;
}

Open::Open() {
    open_count++;
    open_in_all++;
}
Open::~Open() {
    open_count--;
    if (--open_in_all > 0) return;
    for (const Allocation *a : opened) {
        if (!a->live) continue; /* freed by another thread */
        check_one(*a, " (seen behind the work that ran last)");
        protect(*a, PROT_NONE);
    }
    opened.clear();
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT void emulator_forbid_allocation(int forbid) {
    forbidden = forbid != 0;
}

EXPORT cudaError_t cudaMalloc(void **out, size_t bytes) {
    CALL("cudaMalloc");
    cudaError_t code = may_allocate("cudaMalloc");
    if (code == cudaSuccess && out == nullptr) code = cudaErrorInvalidValue;
    if (code != cudaSuccess) return answer(code);
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (bytes > room_left()) return answer(cudaErrorMemoryAllocation);
    const Allocation a = place(bytes);
    protect(a, PROT_READ | PROT_WRITE);
    draw_edges(a);
    protect(a, PROT_NONE);
    device[a.map] = a;
    live_of[static_cast<size_t>(a.device)] += bytes;
    *out = reinterpret_cast<void *>(a.base);
    return cudaSuccess;
}

EXPORT cudaError_t cudaFree(void *memory) {
    CALL("cudaFree");
    if (memory == nullptr) return cudaSuccess;
    cudaError_t code = may_allocate("cudaFree");
    auto it = device.upper_bound(reinterpret_cast<uintptr_t>(memory));
    if (code == cudaSuccess &&
        (it == device.begin() || (--it)->second.base != reinterpret_cast<uintptr_t>(memory) || !it->second.live))
        code = refuse(cudaErrorInvalidValue, "cudaFree: %p is no allocation, or was freed before", memory);
    if (code == cudaSuccess) code = run_all();
    if (code != cudaSuccess) return answer(code);
    Allocation &a = it->second;
    protect(a, PROT_READ | PROT_WRITE);
    check_one(a, " (seen by cudaFree)");
    a.live = false;
    live_of[static_cast<size_t>(a.device)] -= a.size;
    (void)madvise(reinterpret_cast<void *>(a.map), a.mapped, MADV_DONTNEED);
    protect(a, PROT_NONE);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    CALL("cudaMemGetInfo");
    *total = device_memory();
    *available = room_left();
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
    CALL("cudaHostAlloc");
    cudaError_t code = may_allocate("cudaHostAlloc");
    (void)flags;
    if (code == cudaSuccess && out == nullptr) code = cudaErrorInvalidValue;
    if (code != cudaSuccess) return answer(code);
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    const size_t mapped = rounded(bytes, PAGE);
    void *memory = mmap(nullptr, mapped + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return answer(cudaErrorMemoryAllocation);
    Allocation a;
    a.base = a.map = reinterpret_cast<uintptr_t>(memory);
    a.size = bytes;
    a.mapped = mapped;
    a.sort = Sort::PINNED;
    (void)mprotect(static_cast<char *>(memory) + mapped, PAGE, PROT_NONE);
    draw_edges(a);
    pinned[a.map] = a;
    *out = memory;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

EXPORT cudaError_t cudaFreeHost(void *memory) {
    CALL("cudaFreeHost");
    if (memory == nullptr) return cudaSuccess;
    cudaError_t code = may_allocate("cudaFreeHost");
    auto it = pinned.find(reinterpret_cast<uintptr_t>(memory));
    if (code == cudaSuccess && (it == pinned.end() || it->second.registered))
        code = refuse(cudaErrorInvalidValue, "cudaFreeHost: %p is no pinned memory, or was freed before", memory);
    if (code == cudaSuccess) code = run_all();
    if (code != cudaSuccess) return answer(code);
    check_one(it->second, " (seen by cudaFreeHost)");
    (void)munmap(memory, it->second.mapped + PAGE);
    pinned.erase(it);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags) {
    CALL("cudaHostRegister");
    cudaError_t code = may_allocate("cudaHostRegister");
    (void)flags;
    if (code == cudaSuccess && (memory == nullptr || bytes == 0)) code = cudaErrorInvalidValue;
    if (code == cudaSuccess && sort_of(memory) != Sort::PAGEABLE) code = cudaErrorHostMemoryAlreadyRegistered;
    if (code != cudaSuccess) return answer(code);
    Allocation a;
    a.base = a.map = reinterpret_cast<uintptr_t>(memory);
    a.size = a.mapped = bytes;
    a.registered = true;
    a.sort = Sort::PINNED;
    pinned[a.map] = a;
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *memory) {
    CALL("cudaHostUnregister");
    auto it = pinned.find(reinterpret_cast<uintptr_t>(memory));
    if (it == pinned.end() || !it->second.registered) return answer(cudaErrorHostMemoryNotRegistered);
    const cudaError_t code = run_all();
    if (code == cudaSuccess) pinned.erase(it);
    return answer(code);
}

EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *pointer) {
    CALL("cudaPointerGetAttributes");
    const Sort sort = sort_of(pointer);
    void *const same = const_cast<void *>(pointer);
    *out = cudaPointerAttributes{};
    out->type = sort == Sort::DEVICE   ? cudaMemoryTypeDevice
                : sort == Sort::PINNED ? cudaMemoryTypeHost
                                       : cudaMemoryTypeUnregistered;
    if (sort != Sort::PAGEABLE) out->devicePointer = same;
    if (sort != Sort::DEVICE) out->hostPointer = same;
    return cudaSuccess;
}
