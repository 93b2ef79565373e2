/* collective.h: an operation of NCCL's as what each rank sends to and receives from each other one. */
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

/* As it was asked for. */
struct Asked {
    Kind kind;
    const char *from;
    char *to;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer;   /* root, or the other side of a pair */
    bool sends; /* of a pair */
};

/* A communicator, as long as operations of it are queued or somebody holds its handle. */
struct Party {
    Meeting meeting;
    ncclResult_t state = ncclSuccess; /* what went wrong behind the calls */
    std::string said;
    bool aborted = false, busy = false;
    uint64_t turn = 0; /* of operations that run */
    int splits = 0, device = 0;
    Point last;                      /* the operation that was queued last, behind which the next one runs */
    std::weak_ptr<Graph> last_graph; /* which holds what holds this */
    size_t last_node = 0;
    Party(const std::string &name, int rank, int ranks, uint64_t card) : meeting(name, rank, ranks, card) {}
};
using PartyRef = std::shared_ptr<Party>;

/* Several operations of one communicator that go on beside each other. */
Maker collective(const PartyRef &party, const std::vector<Asked> &asked);

} // namespace weft_emulator
#endif
