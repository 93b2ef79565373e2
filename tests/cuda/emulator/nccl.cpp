/* nccl.cpp: NCCL's calls. Operations are queued in their streams and run there; those of one communicator run in the
 * order of the calls. */
#include <cstdio>
#include <cstring>
#include <random>
#include <unistd.h>

#include "collective.h"

using namespace weft_emulator;

struct ncclComm {
    PartyRef party;
};

namespace {

struct Waiting { /* until the group ends */
    PartyRef party;
    Asked asked;
    cudaStream_t stream;
};
thread_local int depth;
thread_local std::vector<Waiting> group;
thread_local std::string last_said;

#define NCCL_CALL(name)                                                                                                \
    const std::lock_guard<Lock> lock(lock_of_all());                                                                   \
    const int planted_code = planted(name);                                                                            \
    if (planted_code != 0) return static_cast<ncclResult_t>(planted_code);                                             \
    if (sticking() != cudaSuccess) return ncclUnhandledCudaError

ncclResult_t refuse_use(const char *what) {
    last_said = what;
    (void)refuse(cudaErrorInvalidValue, "%s", what);
    return ncclInvalidUsage;
}

/* Operations of one stream and communicator run concurrently. */
ncclResult_t queue_all(const std::vector<Waiting> &all) {
    std::vector<bool> queued(all.size());
    for (size_t i = 0; i < all.size(); i++) {
        if (queued[i]) continue;
        std::vector<Asked> together;
        for (size_t j = i; j < all.size(); j++) {
            if (queued[j] || all[j].party != all[i].party || all[j].stream != all[i].stream) continue;
            together.push_back(all[j].asked);
            queued[j] = true;
        }
        const cudaError_t code = queue_behind(all[i].stream, name_of(together[0].kind),
                                              collective(all[i].party, together), all[i].party->last,
                                              all[i].party->last_graph, all[i].party->last_node);
        if (code != cudaSuccess) return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, const Asked &a, size_t from_rows, size_t to_rows) {
    const size_t row = a.n * bytes_of(a.type);
    if (comm == nullptr || row / (a.n == 0 ? 1 : a.n) == 0)
        return a.n == 0 && comm != nullptr ? ncclSuccess : ncclInvalidArgument;
    Party &party = *comm->party;
    if (!party.meeting.complete()) return refuse_use("a communicator is used before all its ranks have come");
    if (a.peer < 0 || a.peer >= party.meeting.ranks) return ncclInvalidArgument;
    if (party.state != ncclSuccess) return party.state;
    const char *const name = name_of(a.kind);
    if ((from_rows > 0 && (sort_of(a.from) == Sort::PAGEABLE || !whole(a.from, from_rows * row, name, "the source"))) ||
        (to_rows > 0 && (sort_of(a.to) == Sort::PAGEABLE || !whole(a.to, to_rows * row, name, "the target"))))
        return refuse_use("an operand is not the device's");
    group.push_back({comm->party, a, stream});
    if (depth > 0) return ncclSuccess;
    const std::vector<Waiting> all = std::move(group);
    group.clear();
    return queue_all(all);
}

size_t ranks_of(ncclComm_t comm) {
    return comm == nullptr ? 0 : static_cast<size_t>(comm->party->meeting.ranks);
}

/* Waits for a condition while other threads and streams progress. */
template <typename F> void wait_until(F is_true) {
    while (!is_true()) {
        run_for_others();
        lock_of_all().give_way(200);
    }
}

/* Reports NCCL's error to ranks that share a GPU. */
ncclResult_t judge_cards(Party &party) {
    const int me = party.meeting.rank;
    const Seat *seats = party.meeting.shared()->seats;
    for (int r = 0; r < party.meeting.ranks; r++) {
        if (r == me || seats[r].card != seats[me].card) continue;
        const std::string both = std::to_string(me) + " and rank " + std::to_string(r);
        return refuse_use(("Duplicate GPU detected : rank " + both + " both on CUDA device").c_str());
    }
    return ncclSuccess;
}

ncclResult_t init(ncclComm_t *out, int ranks, const std::string &name, int rank, bool blocking) {
    if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks || ranks > 64) return ncclInvalidArgument;
    if (device_ready() != cudaSuccess) return ncclUnhandledCudaError;
    *out = new ncclComm{std::make_shared<Party>(name, rank, ranks, device_card())};
    Party &party = *(*out)->party;
    party.device = device_now();
    queue_is_shared();
    if (!blocking) return ncclInProgress;
    wait_until([&party] { return party.meeting.complete(); });
    const ncclResult_t answer = judge_cards(party);
    if (answer == ncclSuccess) return ncclSuccess;
    delete *out;
    *out = nullptr;
    return answer;
}

} // namespace

EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t code) {
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return static_cast<unsigned>(code) < 8 ? words[code] : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    const std::lock_guard<Lock> lock(lock_of_all());
    return comm != nullptr && !comm->party->said.empty() ? comm->party->said.c_str() : last_said.c_str();
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    NCCL_CALL("ncclGetUniqueId");
    std::random_device random;
    *out = ncclUniqueId{};
    (void)snprintf(out->internal, sizeof out->internal, "weft-emulator-%d-%08x%08x", static_cast<int>(getpid()),
                   random(), random());
    return ncclSuccess;
}

constexpr long long NCCL_TAKES = 64 << 20; /* bytes of GPU memory, until the process ends */

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    NCCL_CALL("ncclCommInitRank");
    const ncclResult_t answer = init(out, ranks, id.internal, rank, true);
    if (answer == ncclSuccess) library_takes(NCCL_TAKES);
    return answer;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
    NCCL_CALL("ncclCommInitRankConfig");
    return init(out, ranks, id.internal, rank, config == nullptr || config->blocking != 0);
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *) {
    NCCL_CALL("ncclCommSplit");
    Party &party = *comm->party;
    Shared *shared = party.meeting.shared();
    const int ranks = party.meeting.ranks, me = party.meeting.rank, turn = ++party.splits;
    int size = 0, rank = 0;
    shared->seats[me].color = color;
    shared->seats[me].key = key;
    shared->seats[me].answered = turn;
    wait_until([&] {
        for (int r = 0; r < ranks; r++)
            if (shared->seats[r].answered < turn) return false;
        return true;
    });
    for (int r = 0; r < ranks; r++) {
        if (shared->seats[r].color != color) continue;
        size++;
        rank += shared->seats[r].key < key || (shared->seats[r].key == key && r < me);
    }
    (void)shared->left_seats.fetch_add(1);
    wait_until([&] { return shared->left_seats >= ranks * turn; }); /* all have read */
    *out = nullptr;
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    return init(out, size, party.meeting.name + "-" + std::to_string(turn) + "." + std::to_string(color), rank, true);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    NCCL_CALL("ncclCommFinalize");
    return run_until(comm->party->last) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* Frees everything even if it returns an error. */
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::lock_guard<Lock> lock(lock_of_all());
    const int code = planted("ncclCommDestroy");
    if (comm == nullptr) return static_cast<ncclResult_t>(code);
    if (comm->party->state == ncclSuccess && !comm->party->aborted) (void)run_until(comm->party->last);
    delete comm;
    return static_cast<ncclResult_t>(code);
}

/* Queued work ends without a result. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const std::lock_guard<Lock> lock(lock_of_all());
    const int code = planted("ncclCommAbort");
    if (comm == nullptr) return static_cast<ncclResult_t>(code);
    comm->party->aborted = true;
    delete comm;
    return static_cast<ncclResult_t>(code);
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) {
    NCCL_CALL("ncclCommGetAsyncError");
    *out = comm->party->state;
    if (*out == ncclSuccess && !comm->party->meeting.complete()) *out = ncclInProgress;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *out) {
    *out = comm->party->meeting.ranks;
    return ncclSuccess;
}
EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *out) {
    *out = comm->party->device;
    return ncclSuccess;
}
EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out) {
    *out = comm->party->meeting.rank;
    return ncclSuccess;
}

static Asked asked(Kind kind, const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int peer,
                   bool sends) {
    return {kind, static_cast<const char *>(from), static_cast<char *>(to), n, type, op, peer, sends};
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream) {
    NCCL_CALL("ncclAllGather");
    return start(comm, stream, asked(Kind::ALL_GATHER, from, to, n, type, ncclSum, 0, true), 1, ranks_of(comm));
}
EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream) {
    NCCL_CALL("ncclReduceScatter");
    return start(comm, stream, asked(Kind::REDUCE_SCATTER, from, to, n, type, op, 0, true), ranks_of(comm), 1);
}
EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream) {
    NCCL_CALL("ncclAllReduce");
    return start(comm, stream, asked(Kind::ALL_REDUCE, from, to, n, type, op, 0, true), 1, 1);
}
EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
    NCCL_CALL("ncclBroadcast");
    const bool sends = comm != nullptr && comm->party->meeting.rank == root;
    return start(comm, stream, asked(Kind::BROADCAST, from, to, n, type, ncclSum, root, sends), sends ? 1 : 0, 1);
}
EXPORT ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream) {
    NCCL_CALL("ncclAlltoAll");
    return start(comm, stream, asked(Kind::ALL_TO_ALL, from, to, n, type, ncclSum, 0, true), ranks_of(comm),
                 ranks_of(comm));
}
EXPORT ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
    NCCL_CALL("ncclSend");
    return start(comm, stream, asked(Kind::PAIR, from, nullptr, n, type, ncclSum, peer, true), 1, 0);
}
EXPORT ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    NCCL_CALL("ncclRecv");
    return start(comm, stream, asked(Kind::PAIR, nullptr, to, n, type, ncclSum, peer, false), 0, 1);
}

EXPORT ncclResult_t ncclGroupStart(void) {
    NCCL_CALL("ncclGroupStart");
    depth++;
    return ncclSuccess;
}
EXPORT ncclResult_t ncclGroupEnd(void) {
    NCCL_CALL("ncclGroupEnd");
    if (depth == 0) return refuse_use("ncclGroupEnd without ncclGroupStart");
    if (--depth > 0) return ncclSuccess;
    const std::vector<Waiting> all = std::move(group);
    group.clear();
    return queue_all(all);
}
