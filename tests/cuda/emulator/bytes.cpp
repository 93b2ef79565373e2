/* bytes.cpp: counts the bytes of device memory that kernels touch, and those that memory must move for them.
 *
 * A plugin compiled for counting (weft_add_counted in cuda.cmake) calls a function at each load and store. The compiler
 * inserts the calls for ThreadSanitizer; here they count. Kernels declare nothing.
 *
 * Memory moves sectors of 32 bytes. Within one launch a sector is read once by any number of blocks, and written once,
 * as with caches. But a sector that a block accesses again after more bytes than its share of a cache moves again. The
 * threads of a block are modelled as concurrent, although they run one after another here: the bytes in between are
 * those of the thread itself times the number of threads. Accesses marked for early eviction (__ldcs, __stcs) leave the
 * cache first, so they evict nothing else. */
#include <unordered_map>
#include <unordered_set>

#include "emulator.h"

namespace weft_emulator {
namespace {

constexpr uintptr_t SECTOR = 32;
constexpr uint64_t SHARE = 192 << 10; /* bytes: of 50 MB, for two blocks on each of 132 SMs */

struct Sum {
    long long asked = 0, moved = 0;
};

bool counting;
std::map<std::string, Sum> sums;
Sum *now;                                     /* of the running launch; NULL: no launch, or no counting */
std::unordered_set<uintptr_t> seen, written;  /* by the launch */
std::unordered_map<uintptr_t, uint64_t> last; /* by the block: progress of the last thread there */
std::vector<uint64_t> asked_by;               /* bytes, by each thread of the block */

/* True: the block was here, but so long ago that the sector is evicted. */
bool is_gone(uintptr_t sector) {
    const uint64_t far = asked_by[thread_now()];
    const auto [it, is_first] = last.insert({sector, far});
    const bool gone = !is_first && far > it->second && (far - it->second) * asked_by.size() > SHARE;
    if (far > it->second) it->second = far;
    return gone;
}

void touch_sector(uintptr_t sector, bool write) {
    const bool gone = is_gone(sector);
    const bool is_new = write ? written.insert(sector).second : seen.insert(sector).second;
    if (write) seen.insert(sector);
    if (is_new || gone) now->moved += SECTOR;
}

void touch(const void *at, size_t bytes, bool write) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(at);
    if (now == nullptr || !in_kernel() || !in_arena(address)) return;
    now->asked += static_cast<long long>(bytes);
    asked_by[thread_now()] += bytes;
    for (uintptr_t s = address / SECTOR; s <= (address + bytes - 1) / SECTOR; s++) touch_sector(s, write);
}

} // namespace

bool bytes_are_counted() {
    return counting;
}

void bytes_begin_launch(const char *kernel) {
    now = counting ? &sums[kernel] : nullptr;
    seen.clear();
    written.clear();
}

void bytes_begin_block(size_t threads) {
    if (now == nullptr) return;
    last.clear();
    asked_by.assign(threads, 0);
}

void bytes_end_launch() {
    now = nullptr;
}

void bytes_read(const void *at, size_t bytes) {
    touch(at, bytes, false);
}

} // namespace weft_emulator

using namespace weft_emulator;

/* The last access of this thread, of so many bytes, was marked for early eviction. */
EXPORT void emulator_evicted_first(size_t bytes) {
    if (now != nullptr && in_kernel()) asked_by[thread_now()] -= bytes;
}

EXPORT void emulator_count_bytes(int count) {
    counting = count != 0;
    sums.clear();
}

static bool begins_with(const std::string &name, const char *kernel) {
    const size_t n = std::string(kernel).size();
    return name.compare(0, n, kernel) == 0 && (name.size() == n || name[n] == '<');
}

EXPORT long long emulator_bytes(const char *kernel, long long *asked) {
    long long moved = 0;
    for (const auto &[name, sum] : sums) {
        if (kernel != nullptr && !begins_with(name, kernel)) continue;
        moved += sum.moved;
        if (asked != nullptr) *asked += sum.asked;
    }
    return moved;
}

/* Called by instrumented code. Under the sanitizers GCC knows these functions as builtins with these parameters. */
extern "C" {
#define TOUCHES(bytes)                                                                                                 \
    EXPORT void __tsan_read##bytes(void *at) {                                                                         \
        touch(at, bytes, false);                                                                                       \
    }                                                                                                                  \
    EXPORT void __tsan_write##bytes(void *at) {                                                                        \
        touch(at, bytes, true);                                                                                        \
    }                                                                                                                  \
    EXPORT void __tsan_unaligned_read##bytes(void *at) {                                                               \
        touch(at, bytes, false);                                                                                       \
    }                                                                                                                  \
    EXPORT void __tsan_unaligned_write##bytes(void *at) {                                                              \
        touch(at, bytes, true);                                                                                        \
    }
TOUCHES(1)
TOUCHES(2)
TOUCHES(4)
TOUCHES(8)
TOUCHES(16)
EXPORT void __tsan_read_range(void *at, long bytes) {
    if (bytes > 0) touch(at, bytes, false);
}
EXPORT void __tsan_write_range(void *at, long bytes) {
    if (bytes > 0) touch(at, bytes, true);
}
EXPORT void __tsan_init(void) {}
EXPORT void __tsan_func_entry(void *) {}
EXPORT void __tsan_func_exit(void *) {}
EXPORT void __tsan_vptr_update(void *, void *) {}
EXPORT void __tsan_vptr_read(void *) {}
}
