/* cuda/cases_warps.cu: see cases.h. */
#include "launches.h"

namespace {

__global__ void warp_sum(float *y) {
    float sum = static_cast<float>(threadIdx.x % 32);
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    y[threadIdx.x] = sum;
}

/* Shuffles in groups of 8 lanes: the previous lane, the next one, the second, and the mirrored one. */
__global__ void shuffles(int *y) {
    const int lane = static_cast<int>(threadIdx.x);
    y[4 * lane] = __shfl_up_sync(~0u, lane, 1, 8);
    y[4 * lane + 1] = __shfl_down_sync(~0u, lane, 1, 8);
    y[4 * lane + 2] = __shfl_sync(~0u, lane, 1, 8);
    y[4 * lane + 3] = __shfl_xor_sync(~0u, lane, 7);
}

__global__ void short_warp(unsigned *y) {
    y[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 2 == 0);
}
__global__ void one_stays_away(int *y) {
    if (threadIdx.x == 9) y[0] = 1;
    else y[threadIdx.x] = __any_sync(0xffffffffu, 0);
    __syncthreads();
}
__global__ void one_is_gone(int *y) {
    if (threadIdx.x == 9) return;
    y[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 9);
}
__global__ void masks_differ(int *y) {
    y[threadIdx.x] = __shfl_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u, 1, 9);
}

struct pair {
    int mine, all;
};
__global__ void meets(int *y) {
    pair here = {static_cast<int>(threadIdx.x), 0};
    emulator_meet(~0u, "adding up", &here, [](void **lanes, unsigned) {
        int sum = 0;
        for (int i = 0; i < 32; i++) sum += static_cast<pair *>(lanes[i])->mine;
        for (int i = 0; i < 32; i++) static_cast<pair *>(lanes[i])->all = sum + i;
    });
    y[threadIdx.x] = here.all;
}

/* Reads the previous lane's value through shared memory. */
template <bool SYNC> __global__ void neighbour(int *y) {
    CUDA_SHARED(int, value, [32]);
    value[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (SYNC) __syncwarp();
    y[threadIdx.x] = value[(threadIdx.x + 31) % 32];
}

template <typename K> int run_only(K kernel) {
    int *y = device_array<int>(32);
    CUDA_LAUNCH(kernel, 1, 32, 0, nullptr, y);
    FINE(cudaGetLastError());
    FINE(cudaDeviceSynchronize());
    return 0;
}

} // namespace

int case_warp_sum(void) {
    float *y = device_array<float>(128);
    CUDA_LAUNCH(warp_sum, 1, 128, 0, nullptr, y);
    for (float sum : host_copy(y, 128)) MUST(sum == 496.0f);
    return 0;
}
int case_shuffles(void) {
    int *y = device_array<int>(128);
    CUDA_LAUNCH(shuffles, 1, 32, 0, nullptr, y);
    const std::vector<int> got = host_copy(y, 128);
    for (int i = 0; i < 32; i++) {
        const size_t at = static_cast<size_t>(4 * i);
        MUST(got[at] == (i % 8 == 0 ? i : i - 1) && got[at + 1] == (i % 8 == 7 ? i : i + 1));
        MUST(got[at + 2] == i / 8 * 8 + 1 && got[at + 3] == (i ^ 7));
    }
    return 0;
}
int case_short_warp(void) {
    unsigned *y = device_array<unsigned>(40);
    CUDA_LAUNCH(short_warp, 1, 40, 0, nullptr, y);
    const std::vector<unsigned> got = host_copy(y, 40);
    for (size_t i = 0; i < 40; i++) MUST(got[i] == (i < 32 ? 0x55555555u : 0x55u));
    return 0;
}
int case_shuffle_not_by_all(void) {
    return run_only(one_stays_away);
}
int case_shuffle_by_the_gone(void) {
    return run_only(one_is_gone);
}
int case_shuffle_masks_differ(void) {
    return run_only(masks_differ);
}
int case_meeting(void) {
    int *y = device_array<int>(32);
    CUDA_LAUNCH(meets, 1, 32, 0, nullptr, y);
    const std::vector<int> got = host_copy(y, 32);
    for (int i = 0; i < 32; i++) MUST(got[static_cast<size_t>(i)] == 496 + i);
    return 0;
}
int case_syncwarp_left_out(void) {
    int *y = device_array<int>(32);
    CUDA_LAUNCH((neighbour<true>), 1, 32, 0, nullptr, y);
    std::vector<int> got = host_copy(y, 32);
    for (int i = 0; i < 32; i++) MUST(got[static_cast<size_t>(i)] == (i + 31) % 32);
    CUDA_LAUNCH((neighbour<false>), 1, 32, 0, nullptr, y);
    got = host_copy(y, 32);
    for (int i = 0; i < 32; i++) MUST(got[static_cast<size_t>(i)] == (i + 31) % 32);
    return 0;
}
