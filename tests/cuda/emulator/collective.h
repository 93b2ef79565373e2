/* collective.h: NCCL operations as messages between each pair of ranks. */
#ifndef WEFT_EMULATOR_COLLECTIVE_H
#define WEFT_EMULATOR_COLLECTIVE_H

#include <memory>
#include <vector>

#include "emulator.h"
#include "meeting.h"
#include "nccl.h"

namespace weft_emulator {

enum class Kind : uint32_t { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, ALL_TO_ALL, PAIR };
const char *name_of(Kind kind);
size_t bytes_of(ncclDataType_t type);

/* The arguments of a call. */
struct Asked {
    Kind kind;
    const char *from;
    char *to;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;   /* root, or the peer of a send or recv */
    bool sends; /* of a send or recv */
};

/* A communicator. Lives while its operations are queued or its handle is in use. */
struct Party {
    Meeting meeting;
    ncclResult_t state = ncclSuccess; /* asynchronous error */
    std::string said;
    bool aborted = false, busy = false;
    uint64_t turn = 0; /* number of the running operation */
    int splits = 0, device = 0;
    Point last;                      /* the last queued operation; the next one runs after it */
    std::weak_ptr<Graph> last_graph; /* weak, because it owns the operations that own this */
    size_t last_node = 0;
    Party(const std::string &name, int rank, int ranks, uint64_t card) : meeting(name, rank, ranks, card) {}
};
using PartyRef = std::shared_ptr<Party>;

/* Several operations of one communicator that run concurrently. */
Maker collective(const PartyRef &party, const std::vector<Asked> &asked);

} // namespace weft_emulator
#endif
