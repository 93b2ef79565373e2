/* cuda/cases_ranks.cu: programs of several processes that communicate by NCCL; see ranks.h. */
#include <cmath>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "launches.h"
#include "ranks.h"

namespace {

constexpr int N = 20000; /* more than fits in one message */

#define WORKS(call) MUST((call) == ncclSuccess)

struct place {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
};

place come(int rank, int ranks, const ncclUniqueId *id) {
    if (cudaSetDevice(rank) != cudaSuccess) std::abort();
    place p = {rank, ranks, nullptr, new_stream()};
    if (ncclCommInitRank(&p.comm, ranks, *id, rank) != ncclSuccess) std::abort();
    return p;
}

float number(int rank, int i) {
    return static_cast<float>((rank + 1) * 1000 + i % 97);
}
std::vector<float> numbers(int rank, int n) {
    std::vector<float> out;
    for (int i = 0; i < n; i++) out.push_back(number(rank, i));
    return out;
}
float sum_of(int ranks, int i) {
    float sum = 0;
    for (int r = 0; r < ranks; r++) sum += number(r, i);
    return sum;
}

} // namespace

/* Two streams of one communicator, waited for in a different order on each rank; the host waits for neither at
 * first. */
int ranks_streams(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    const cudaStream_t other = new_stream();
    float *a = device_array(N, numbers(rank, N)), *b = device_array(N, numbers(rank, N));
    for (int i = 0; i < 3; i++) {
        WORKS(ncclAllReduce(a, a, N, ncclFloat, ncclMax, p.comm, p.stream));
        WORKS(ncclAllReduce(b, b, N, ncclFloat, ncclMax, p.comm, other));
    }
    if (rank % 2 == 0) (void)usleep(100000);
    FINE(cudaStreamSynchronize(rank % 2 == 0 ? p.stream : other));
    FINE(cudaDeviceSynchronize());
    for (float *at : {a, b}) {
        const std::vector<float> got = host_copy(at, N);
        for (int i = 0; i < N; i++) MUST(got[static_cast<size_t>(i)] == number(ranks - 1, i));
    }
    WORKS(ncclCommDestroy(p.comm));
    return 0;
}

/* Splits into the even and the odd ranks, in reverse order. */
int ranks_split(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    ncclComm_t half = nullptr, none = nullptr;
    int place = -1, size = -1;
    WORKS(ncclCommSplit(p.comm, rank % 2, -rank, &half, nullptr));
    WORKS(ncclCommSplit(p.comm, NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
    WORKS(ncclCommUserRank(half, &place));
    WORKS(ncclCommCount(half, &size));
    MUST(none == nullptr && size == (ranks + 1 - rank % 2) / 2 && place == size - 1 - rank / 2);
    float *a = device_array(1, numbers(rank, 1)), *all = device_array<float>(static_cast<size_t>(size));
    WORKS(ncclAllGather(a, all, 1, ncclFloat, half, p.stream));
    FINE(cudaStreamSynchronize(p.stream));
    const std::vector<float> got = host_copy(all, static_cast<size_t>(size));
    for (int i = 0; i < size; i++) MUST(got[static_cast<size_t>(i)] == number(rank % 2 + 2 * (size - 1 - i), 0));
    WORKS(ncclCommDestroy(half));
    WORKS(ncclCommDestroy(p.comm));
    return 0;
}

int ranks_graph(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    float *a = device_array(N, std::vector<float>(N, 1.0f));
    FINE(cudaStreamBeginCapture(p.stream, cudaStreamCaptureModeThreadLocal));
    WORKS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, p.comm, p.stream));
    FINE(add_to(a, a, N, 1.0f, p.stream));
    FINE(cudaStreamEndCapture(p.stream, &graph));
    FINE(cudaGraphInstantiate(&exec, graph, 0));
    float wanted = 1;
    for (int i = 0; i < 3; i++) {
        FINE(cudaGraphLaunch(exec, p.stream));
        wanted = wanted * static_cast<float>(ranks) + 1;
    }
    FINE(cudaStreamSynchronize(p.stream));
    for (float got : host_copy(a, N)) MUST(got == wanted);
    WORKS(ncclCommDestroy(p.comm));
    return 0;
}

/* The last rank exits. The others get the error, and their streams finish after an abort. */
int ranks_one_ends(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    ncclResult_t code = ncclSuccess;
    float *a = device_array<float>(N);
    if (rank == ranks - 1) _exit(0);
    WORKS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, p.comm, p.stream));
    while (code == ncclSuccess) {
        MUST(cudaStreamQuery(p.stream) == cudaErrorNotReady);
        WORKS(ncclCommGetAsyncError(p.comm, &code));
    }
    MUST(code == ncclRemoteError);
    WORKS(ncclCommAbort(p.comm));
    FINE(cudaStreamSynchronize(p.stream));
    return 0;
}

int ranks_differ(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    float *a = device_array<float>(N);
    WORKS(ncclAllReduce(a, a, rank == 0 ? N : N - 1, ncclFloat, ncclSum, p.comm, p.stream));
    while (cudaStreamQuery(p.stream) == cudaErrorNotReady) {
        ncclResult_t code = ncclSuccess;
        WORKS(ncclCommGetAsyncError(p.comm, &code));
        WORKS(code);
    }
    return 0;
}

/* Two ranks on one GPU: both get an error and no communicator. */
int ranks_share(int rank, int ranks, const ncclUniqueId *id) {
    const bool shares = ranks > 1 && rank < 2;
    ncclComm_t comm = nullptr;
    FINE(cudaSetDevice(shares ? 0 : rank));
    MUST(ncclCommInitRank(&comm, ranks, *id, rank) == (shares ? ncclInvalidUsage : ncclSuccess));
    MUST((comm == nullptr) == shares);
    MUST(!shares || std::strstr(ncclGetLastError(nullptr), "Duplicate GPU detected") != nullptr);
    if (comm != nullptr) WORKS(ncclCommAbort(comm));
    return 0;
}

/* The host reads before it has waited. */
int ranks_look_early(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    float *a = device_array(N, numbers(rank, N)), *b = device_array(N, numbers(rank, N));
    WORKS(ncclAllReduce(a, b, N, ncclFloat, ncclSum, p.comm, p.stream));
    const std::vector<float> got = host_copy(b, N);
    for (int i = 0; i < N; i++) MUST(got[static_cast<size_t>(i)] == sum_of(ranks, i));
    return 0;
}

int ranks_host_memory(int rank, int ranks, const ncclUniqueId *id) {
    const place p = come(rank, ranks, id);
    std::vector<float> a(N);
    MUST(ncclAllReduce(a.data(), a.data(), N, ncclFloat, ncclSum, p.comm, p.stream) == ncclInvalidUsage);
    return 0;
}

/* The process exits while another thread queries the communicator and the emulator's thread watches its streams. The
 * last exit handler reuses the memory that libraries released before. */
static void linger() {
#if !defined(__SANITIZE_ADDRESS__) /* ASan detects freed memory by itself */
    for (int i = 0; i < 3000; i++) {
        void *at = std::malloc(static_cast<size_t>(16 + i % 60 * 16));
        if (at != nullptr) std::memset(at, 0x5a, static_cast<size_t>(16 + i % 60 * 16));
    }
#endif
    (void)usleep(50000);
}
int ranks_exit(int rank, int ranks, const ncclUniqueId *id) {
    if (std::atexit(linger) != 0) return 1;
    const place p = come(rank, ranks, id);
    float *a = device_array(N, numbers(rank, N));
    WORKS(ncclAllReduce(a, a, N, ncclFloat, ncclSum, p.comm, p.stream));
    FINE(cudaStreamSynchronize(p.stream));
    std::thread([p] {
        ncclResult_t code = ncclSuccess;
        while (ncclCommGetAsyncError(p.comm, &code) == ncclSuccess) (void)usleep(500);
    }).detach();
    std::exit(0);
}
