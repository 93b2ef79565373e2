/* cuda/cases_blocks.cu: see cases.h. */
#include "launches.h"

namespace {

/* Sums x's 128 numbers by a tree in shared memory. */
template <bool BARRIER> __global__ void block_sum(float *out, const float *x) {
    CUDA_SHARED(float, part, [128]);
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (unsigned half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        if (BARRIER) __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

template <bool BARRIER> int sum_is_right() {
    float *x = device_array<float>(128, std::vector<float>(128, 2.0f)), *y = device_array<float>(4);
    CUDA_LAUNCH((block_sum<BARRIER>), 4, 128, 0, nullptr, y, x);
    FINE(cudaGetLastError());
    for (float sum : host_copy(y, 4)) MUST(sum == 256.0f);
    FINE(cudaFree(x));
    FINE(cudaFree(y));
    return 0;
}

/* Passes two values through one variable; a barrier between the two reads is missing. */
__global__ void twice(float *y) {
    CUDA_SHARED(float, value, [1]);
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x == 0) value[0] = static_cast<float>(i);
        __syncthreads();
        y[2 * threadIdx.x + static_cast<unsigned>(i)] = value[0];
    }
}

/* Repeats sums over all threads: by shuffles within a warp, through shared memory across warps. Without the second
 * barrier a fast warp overwrites a partial sum that another has not read. */
template <bool BARRIER> __global__ void sums(float *y, int n) {
    CUDA_SHARED(float, part, [4]);
    for (int i = 0; i < n; i++) {
        float v = static_cast<float>(i + 1), sum = 0.0f;
        for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        for (int warp = 0; warp < 4; warp++) sum += part[warp];
        if (BARRIER) __syncthreads();
        y[static_cast<unsigned>(i) * 128 + threadIdx.x] = sum;
    }
}

template <bool BARRIER> int sums_are_right() {
    constexpr int N = 3;
    float *y = device_array<float>(128 * N);
    CUDA_LAUNCH((sums<BARRIER>), 1, 128, 0, nullptr, y, N);
    FINE(cudaGetLastError());
    const std::vector<float> got = host_copy(y, 128 * N);
    for (size_t i = 0; i < 128 * N; i++) MUST(got[i] == 128.0f * static_cast<float>(i / 128 + 1));
    return 0;
}

__global__ void one_micro_batches() {
    if (threadIdx.x == 5) return;
    __syncthreads();
}
__global__ void two_places() {
    if (threadIdx.x < 32) __syncthreads();
    else __syncthreads_or(1);
}
__global__ void reads_unwritten(float *y) {
    CUDA_SHARED(float, value, [64]);
    if (threadIdx.x > 0) value[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = value[threadIdx.x];
}
__global__ void writes_too_far(int n) {
    CUDA_SHARED(float, value, [64]);
    for (int i = 0; i < n; i++) value[i] = 0.0f;
}
__global__ void writes_dynamic(int n) {
    CUDA_SHARED_DYNAMIC(float, value);
    for (int i = 0; i < n; i++) value[i] = 0.0f;
}
__global__ void vote(int *y) {
    y[3 * threadIdx.x] = __syncthreads_or(threadIdx.x == 7);
    y[3 * threadIdx.x + 1] = __syncthreads_and(threadIdx.x == 7);
    y[3 * threadIdx.x + 2] = __syncthreads_count(threadIdx.x < 7);
}
template <bool WAIT> __global__ void copies(float *y, const float *x) {
    CUDA_SHARED(float, tile, [64][4]);
    const unsigned i = threadIdx.x;
    emulator_copy_async(tile[i], x + 4 * i, 16, i == 3 ? 8 : 16);
    emulator_copy_commit();
    if (WAIT) emulator_copy_wait(0);
    __syncthreads();
    for (int j = 0; j < 4; j++) y[4 * i + static_cast<unsigned>(j)] = tile[63 - i][j];
}
__global__ void deep(int *y, int n) {
    volatile char much[4096];
    much[n % 4096] = 1;
    if (n > 0) deep(y, n - 1);
    y[0] = much[n % 4096];
}

template <bool WAIT> int late_copies() {
    std::vector<float> from(256);
    for (size_t i = 0; i < 256; i++) from[i] = static_cast<float>(i);
    float *x = device_array(256, from), *y = device_array<float>(256);
    CUDA_LAUNCH((copies<WAIT>), 1, 64, 0, nullptr, y, x);
    FINE(cudaGetLastError());
    const std::vector<float> got = host_copy(y, 256);
    for (size_t i = 0; i < 256; i++) {
        const size_t j = (63 - i / 4) * 4 + i % 4;
        MUST(got[i] == (j / 4 == 3 && j % 4 >= 2 ? 0.0f : from[j]));
    }
    return 0;
}

/* Counts the blocks without atomics. With the barrier between read and write, two blocks can read the same number. */
__global__ void count_blocks(int *y) {
    const int before = *static_cast<volatile int *>(y);
    __syncthreads();
    if (threadIdx.x == 0) *y = before + 1;
}

/* Uses shared memory of both kinds, late copies, shuffles and votes, with more barriers in later blocks. */
__global__ void independent(int *y, const int *x) {
    CUDA_SHARED(int, tile, [64][4]);
    CUDA_SHARED_DYNAMIC(int, turns);
    const unsigned i = threadIdx.x, block = blockIdx.x;
    int sum = 0;
    emulator_copy_async(tile[i], x + 4 * (64 * block + i), 16, 16);
    emulator_copy_commit();
    turns[i] = 0;
    for (unsigned turn = 0; turn <= block; turn++) {
        turns[i] += __syncthreads_count(i <= block);
        turns[i] += __shfl_xor_sync(0xffffffffu, static_cast<int>(block), 1);
    }
    sum += tile[i][0] == -1; /* poison until the wait */
    emulator_copy_wait(0);
    __syncthreads();
    for (int j = 0; j < 4; j++) sum += tile[63 - i][j];
    y[64 * block + i] = sum + turns[63 - i];
}

template <bool SECOND> __global__ void one_block_waits(int *y) {
    for (unsigned turn = 0; turn < 4; turn++) __syncthreads();
    if (blockIdx.x == SECOND && threadIdx.x == 5) return;
    __syncthreads();
    y[64 * blockIdx.x + threadIdx.x] = 1;
}

template <bool SECOND> int wait_in_one_block() {
    int *y = device_array<int>(2 * 64);
    CUDA_LAUNCH((one_block_waits<SECOND>), 2, 64, 0, nullptr, y);
    FINE(cudaGetLastError());
    FINE(cudaDeviceSynchronize());
    return 0;
}

int run_only(cudaError_t launched) {
    FINE(launched);
    FINE(cudaDeviceSynchronize());
    return 0;
}

} // namespace

int case_block_sum(void) {
    return sum_is_right<true>();
}
int case_block_sum_without_barrier(void) {
    return sum_is_right<false>();
}
int case_block_sum_reused(void) {
    float *y = device_array<float>(128);
    CUDA_LAUNCH(twice, 1, 64, 0, nullptr, y);
    const std::vector<float> got = host_copy(y, 128);
    for (size_t i = 0; i < 128; i++) MUST(got[i] == static_cast<float>(i % 2));
    return 0;
}
int case_sums(void) {
    return sums_are_right<true>();
}
int case_sums_run_ahead(void) {
    return sums_are_right<false>();
}
int case_barrier_left_out_by_one(void) {
    emulator_start("one_micro_batches", __FILE__, __LINE__, one_micro_batches, 1, 64, 0, nullptr);
    return run_only(cudaGetLastError());
}
int case_two_barriers(void) {
    emulator_start("two_places", __FILE__, __LINE__, two_places, 1, 64, 0, nullptr);
    return run_only(cudaGetLastError());
}
int case_shared_not_written(void) {
    float *y = device_array<float>(64);
    CUDA_LAUNCH(reads_unwritten, 1, 64, 0, nullptr, y);
    for (float got : host_copy(y, 64)) MUST(got == 1.0f);
    return 0;
}
int case_shared_too_far(void) {
    CUDA_LAUNCH(writes_too_far, 1, 1, 0, nullptr, 65);
    return run_only(cudaGetLastError());
}
int case_dynamic_too_far(void) {
    CUDA_LAUNCH(writes_dynamic, 1, 1, 64 * sizeof(float), nullptr, 65);
    return run_only(cudaGetLastError());
}
int case_votes(void) {
    int *y = device_array<int>(3 * 96);
    CUDA_LAUNCH(vote, 1, 96, 0, nullptr, y);
    const std::vector<int> got = host_copy(y, 3 * 96);
    for (size_t i = 0; i < 96; i++) MUST(got[3 * i] == 1 && got[3 * i + 1] == 0 && got[3 * i + 2] == 7);
    return 0;
}
int case_late_copy(void) {
    return late_copies<true>();
}
int case_late_copy_without_wait(void) {
    return late_copies<false>();
}
int case_blocks_race(void) {
    int *y = device_array<int>(1);
    FINE(cudaMemset(y, 0, sizeof *y));
    for (int i = 0; i < 4; i++) CUDA_LAUNCH(count_blocks, 2, 64, 0, nullptr, y);
    FINE(cudaGetLastError());
    MUST(host_copy(y, 1)[0] == 8);
    return 0;
}
int case_blocks_independent(void) {
    constexpr int BLOCKS = 5;
    std::vector<int> from(256 * BLOCKS);
    for (size_t i = 0; i < from.size(); i++) from[i] = static_cast<int>(i / 4);
    int *x = device_array(from.size(), from), *y = device_array<int>(64 * BLOCKS);
    for (int launch = 0; launch < 8; launch++) {
        FINE(cudaMemset(y, 0, 64 * BLOCKS * sizeof *y));
        CUDA_LAUNCH(independent, BLOCKS, 64, 64 * sizeof(int), nullptr, y, x);
        FINE(cudaGetLastError());
        const std::vector<int> got = host_copy(y, 64 * BLOCKS);
        for (int i = 0; i < 64 * BLOCKS; i++) {
            const int block = i / 64;
            MUST(got[static_cast<size_t>(i)] == 1 + 4 * (64 * block + 63 - i % 64) + (block + 1) * (2 * block + 1));
        }
    }
    return 0;
}
int case_first_block_waits(void) {
    return wait_in_one_block<false>();
}
int case_second_block_waits(void) {
    return wait_in_one_block<true>();
}
int case_too_much_shared(void) {
    CUDA_LAUNCH(writes_dynamic, 1, 1, 64 << 10, nullptr, 1);
    MUST(cudaGetLastError() == cudaErrorInvalidValue);
    FINE(cudaFuncSetAttribute(writes_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    CUDA_LAUNCH(writes_dynamic, 1, 1, 64 << 10, nullptr, 16 << 10);
    return run_only(cudaGetLastError());
}
int case_stack_full(void) {
    int *y = device_array<int>(1);
    CUDA_LAUNCH(deep, 1, 1, 0, nullptr, y, 1000);
    return run_only(cudaGetLastError());
}
