/* meeting.cpp: see meeting.h. Each process holds a lock on a byte of the file during its lifetime, so that the others
 * can detect its exit. */
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"
#include "meeting.h"

namespace weft_emulator {

namespace {
struct flock seat_of(int rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}
} // namespace

Meeting::Meeting(const std::string &its_name, int its_rank, int its_ranks, uint64_t card)
    : name(its_name), rank(its_rank), ranks(its_ranks),
      mapped(sizeof(Shared) + static_cast<size_t>(its_ranks) * static_cast<size_t>(its_ranks) * sizeof(Ring)) {
    struct flock seat = seat_of(rank);
    file = open(("/dev/shm/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(mapped)) != 0) fault("/dev/shm/%s cannot be made", name.c_str());
    if (fcntl(file, F_SETLK, &seat) != 0) fault("rank %d of %d has come twice", rank, ranks);
    void *at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) fault("no memory for %d ranks", ranks);
    memory = static_cast<Shared *>(at);
    memory->seats[rank].card = card;
    if (memory->came.fetch_add(1) + 1 == ranks) (void)unlink(("/dev/shm/" + name).c_str());
}

Meeting::~Meeting() {
    if (!complete()) (void)unlink(("/dev/shm/" + name).c_str());
    (void)munmap(memory, mapped);
    (void)close(file);
}

bool Meeting::complete() const {
    return memory->came.load() >= ranks;
}

bool Meeting::alive(int other) {
    struct flock seat = seat_of(other);
    if (other == rank || !complete()) return true;
    return fcntl(file, F_GETLK, &seat) != 0 || seat.l_type != F_UNLCK;
}

uint64_t Meeting::send(int to, const char *bytes, uint64_t n) {
    Ring &r = ring(rank, to);
    const uint64_t at = r.written.load(std::memory_order_relaxed),
                   room = RING - (at - r.read.load(std::memory_order_acquire));
    if (n > room) n = room;
    for (uint64_t i = 0, part = 0; i < n; i += part) {
        part = std::min(n - i, RING - (at + i) % RING);
        std::memcpy(r.bytes + (at + i) % RING, bytes + i, part);
    }
    r.written.store(at + n, std::memory_order_release);
    return n;
}

uint64_t Meeting::receive(int from, char *bytes, uint64_t n) {
    Ring &r = ring(from, rank);
    const uint64_t at = r.read.load(std::memory_order_relaxed), there = r.written.load(std::memory_order_acquire) - at;
    if (n > there) n = there;
    for (uint64_t i = 0, part = 0; i < n; i += part) {
        part = std::min(n - i, RING - (at + i) % RING);
        std::memcpy(bytes + i, r.bytes + (at + i) % RING, part);
    }
    r.read.store(at + n, std::memory_order_release);
    return n;
}

} // namespace weft_emulator
