/* shared.cpp: shared memory of each running block, and late copies into it. Arrays of a fixed size follow one another
 * with guard areas, checked when the block ends; dynamic shared memory ends at a page without access. All of it is NaN
 * when a block starts. */
#include <cstring>
#include <sys/mman.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

constexpr size_t PAGE = 4096, FIXED = 64 << 10, DYNAMIC = 256 << 10, EDGE = 64, MOST_FIXED = 48 << 10;
constexpr int POISON = 0xff, EDGE_BYTE = 0xa5;

struct Array {
    const void *site;
    const char *name;
    char *at;
    size_t bytes;
};
struct Copy {
    void *to;
    const void *from;
    size_t bytes, valid;
};
struct Copies { /* of a thread; groups: number of copies per group */
    std::deque<Copy> copies;
    std::deque<size_t> groups;
    size_t open = 0; /* copies after the last commit */
};
struct Shared { /* of a running block */
    char *fixed, *dynamic_end;
    std::vector<Array> arrays;
    size_t used, asked_fixed;
    std::vector<Copies> copies;
};
Shared all[MOST_BLOCKS];
Shared *self = all; /* of the block of the running thread */
bool any_copies;

void prepare() {
    const size_t bytes = PAGE + FIXED + PAGE + DYNAMIC + PAGE;
    void *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fault("no memory for shared memory");
    self->fixed = static_cast<char *>(memory) + PAGE;
    self->dynamic_end = self->fixed + FIXED + PAGE + DYNAMIC;
    if (mprotect(self->fixed, FIXED, PROT_READ | PROT_WRITE) != 0 ||
        mprotect(self->dynamic_end - DYNAMIC, DYNAMIC, PROT_READ | PROT_WRITE) != 0)
        fault("no memory for shared memory");
}

void check_edge(const Array &array) {
    for (size_t i = 0; i < EDGE; i++)
        if (array.at[array.bytes + i] != static_cast<char>(EDGE_BYTE))
            fault("byte %zu behind the end of the shared array %s of %zu bytes was written", i, array.name,
                  array.bytes);
}

void arrive(Copies &mine, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const Copy copy = mine.copies.front();
        mine.copies.pop_front();
        std::memcpy(copy.to, copy.from, copy.valid);
        std::memset(static_cast<char *>(copy.to) + copy.valid, 0, copy.bytes - copy.valid);
    }
}
} // namespace

void shared_select(unsigned block) {
    self = &all[block];
}

void shared_begin(const emulator_launch &launch) {
    if (self->fixed == nullptr) prepare();
    std::memset(self->fixed, POISON, self->used);
    self->arrays.clear();
    self->used = self->asked_fixed = 0;
    if (launch.shared > 0)
        std::memset(self->dynamic_end - (launch.shared + 15) / 16 * 16, POISON, (launch.shared + 15) / 16 * 16);
}

void shared_end() {
    for (const Array &array : self->arrays) check_edge(array);
    const size_t bytes = self->asked_fixed + launch_now()->shared, most = dynamic_shared_most(launch_now()->kernel);
    if (self->asked_fixed > MOST_FIXED || bytes > (most > MOST_FIXED ? most : MOST_FIXED))
        fault("a block has %zu bytes of shared memory, of %zu in arrays of a fixed size; %zu are allowed", bytes,
              self->asked_fixed, most);
}

bool shared_holds(uintptr_t address) {
    for (const Shared &shared : all) {
        const uintptr_t low = reinterpret_cast<uintptr_t>(shared.fixed) - PAGE;
        const uintptr_t high = reinterpret_cast<uintptr_t>(shared.dynamic_end) + PAGE;
        if (shared.fixed != nullptr && address >= low && address < high) return true;
    }
    return false;
}

void copies_end(unsigned thread) {
    if (!any_copies || thread >= self->copies.size()) return;
    arrive(self->copies[thread], self->copies[thread].copies.size());
    self->copies[thread] = Copies();
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT void *emulator_shared(const void *site, const char *name, size_t bytes, size_t align) {
    for (const Array &array : self->arrays)
        if (array.site == site) return array.at;
    if (!in_kernel()) fault("the shared array %s is named outside of a kernel", name);
    if (align < 16) align = 16;
    const size_t at = (self->used + align - 1) / align * align;
    if (at + bytes + EDGE > FIXED) fault("the shared array %s of %zu bytes has no room", name, bytes);
    self->used = at + bytes + EDGE;
    self->asked_fixed += bytes;
    std::memset(self->fixed + at, POISON, bytes);
    std::memset(self->fixed + at + bytes, EDGE_BYTE, EDGE);
    self->arrays.push_back({site, name, self->fixed + at, bytes});
    return self->fixed + at;
}

EXPORT void *emulator_shared_dynamic(const char *name) {
    if (!in_kernel()) fault("the shared array %s is named outside of a kernel", name);
    return self->dynamic_end - (launch_now()->shared + 15) / 16 * 16;
}

EXPORT void emulator_copy_async(void *shared, const void *global, size_t bytes, size_t valid) {
    if ((bytes != 4 && bytes != 8 && bytes != 16) || valid > bytes)
        fault("an asynchronous copy of %zu bytes, %zu of them valid: 4, 8 or 16 are copied", bytes, valid);
    if (reinterpret_cast<uintptr_t>(shared) % bytes != 0 || reinterpret_cast<uintptr_t>(global) % bytes != 0)
        fault("an asynchronous copy of %zu bytes from %p to %p: both are to be aligned to its size", bytes, global,
              shared);
    if (valid > 0) bytes_read(global, valid);
    any_copies = true;
    if (self->copies.size() <= thread_now()) self->copies.resize(thread_now() + 1);
    self->copies[thread_now()].copies.push_back({shared, global, bytes, valid});
    self->copies[thread_now()].open++;
}

EXPORT void emulator_copy_commit(void) {
    any_copies = true;
    if (self->copies.size() <= thread_now()) self->copies.resize(thread_now() + 1);
    Copies &mine = self->copies[thread_now()];
    mine.groups.push_back(mine.open);
    mine.open = 0;
}

EXPORT void emulator_copy_wait(int groups_left) {
    if (self->copies.size() <= thread_now()) return;
    Copies &mine = self->copies[thread_now()];
    while (mine.groups.size() > static_cast<size_t>(groups_left)) {
        arrive(mine, mine.groups.front());
        mine.groups.pop_front();
    }
}
