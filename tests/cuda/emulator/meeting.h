/* meeting.h: byte messages between processes of one machine; used by meeting.cpp, nccl.cpp and collective.cpp. */
#ifndef WEFT_EMULATOR_MEETING_H
#define WEFT_EMULATOR_MEETING_H

#include <atomic>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace weft_emulator {

constexpr uint64_t RING = 64 << 10; /* bytes in flight in one direction between two ranks */

struct Ring { /* single writer, single reader */
    std::atomic<uint64_t> written, read;
    char bytes[RING];
};
struct Seat {
    uint64_t card;                             /* GPU of the rank; written before the rank counts as present */
    std::atomic<int32_t> color, key, answered; /* of a split; answered: number of answers */
};
struct Shared {
    std::atomic<int32_t> came, left_seats, aborted;
    Seat seats[64];
    Ring rings[]; /* index: from * ranks + to */
};

/* A communicator's shared memory: a file in /dev/shm, removed when all ranks are present. */
class Meeting {
  public:
    Meeting(const std::string &name, int rank, int ranks, uint64_t card);
    ~Meeting();
    bool complete() const; /* all ranks are present */
    bool alive(int rank);  /* its process has not exited */
    /* Transfer up to n bytes without waiting, and return the number. */
    uint64_t send(int to, const char *bytes, uint64_t n);
    uint64_t receive(int from, char *bytes, uint64_t n);
    Shared *shared() {
        return memory;
    }
    const std::string name;
    const int rank, ranks;

  private:
    Ring &ring(int from, int to) {
        return memory->rings[from * ranks + to];
    }
    Shared *memory;
    size_t mapped;
    int file;
    bool named = true;
};

} // namespace weft_emulator
#endif
