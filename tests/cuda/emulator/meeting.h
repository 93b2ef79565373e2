/* meeting.h: processes of one machine that send bytes to each other; of meeting.cpp, nccl.cpp and collectives.cpp. */
#ifndef WEFT_EMULATOR_MEETING_H
#define WEFT_EMULATOR_MEETING_H

#include <atomic>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace weft_emulator {

constexpr uint64_t RING = 64 << 10; /* bytes under way in one direction between two ranks */

struct Ring { /* one writes, one reads */
    std::atomic<uint64_t> written, read;
    char bytes[RING];
};
struct Seat {
    uint64_t card;                             /* whose it is; written before the rank counts as come */
    std::atomic<int32_t> color, key, answered; /* of a split: how many it has answered */
};
struct Shared {
    std::atomic<int32_t> came, left_seats, aborted;
    Seat seats[64];
    Ring rings[]; /* from * ranks + to */
};

/* A communicator's shared memory: in a file of /dev/shm that goes when all have come. */
class Meeting {
  public:
    Meeting(const std::string &name, int rank, int ranks, uint64_t card);
    ~Meeting();
    bool complete() const; /* all have come */
    bool alive(int rank);  /* that process has not ended */
    /* How many of n bytes went through just now. */
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
