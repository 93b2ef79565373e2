/* cuda/cases_memory.cu: see cases.h. */
#include "launches.h"

namespace {

__global__ void where(int *y, int width) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    y[row * static_cast<unsigned>(width) + x] = static_cast<int>(row * 1000 + x);
}
__global__ void put(float *y, long i) {
    y[i] = 1.0f;
}
__global__ void read(float *y, const float *x, long i) {
    y[0] = x[i];
}
__global__ void wide(float *y, const float *x) {
    const float4 four = *reinterpret_cast<const float4 *>(x);
    y[0] = four.x + four.y + four.z + four.w;
}

int run_put(float *at, long i) {
    CUDA_LAUNCH(put, 1, 1, 0, nullptr, at, i);
    FINE(cudaGetLastError());
    FINE(cudaDeviceSynchronize());
    return 0;
}

} // namespace

int case_grid(void) {
    int *y = device_array<int>(24 * 10);
    CUDA_LAUNCH(where, dim3(3, 5), dim3(8, 2), 0, nullptr, y, 24);
    const std::vector<int> got = host_copy(y, 24 * 10);
    for (int i = 0; i < 240; i++) MUST(got[static_cast<size_t>(i)] == i / 24 * 1000 + i % 24);
    return 0;
}
int case_past_the_end(void) {
    return run_put(device_array<float>(1024), 1024);
}
int case_before_the_start(void) {
    return run_put(device_array<float>(1024), -1);
}
/* Writes after an allocation whose size is no multiple of the allocation alignment. */
int case_just_past_the_end(void) {
    return run_put(device_array<float>(1023), 1023);
}
int case_after_free(void) {
    float *at = device_array<float>(64);
    FINE(cudaFree(at));
    return run_put(at, 3);
}
int case_freed_twice(void) {
    float *at = device_array<float>(64);
    FINE(cudaFree(at));
    MUST(cudaFree(at) == cudaErrorInvalidValue);
    return 0;
}
int case_not_written(void) {
    for (float x : host_copy(device_array<float>(64), 64)) MUST(x == x);
    return 0;
}
int case_host_reads(void) {
    const float *at = device_array<float>(64, std::vector<float>(64, 1.0f));
    MUST(at[2] == 1.0f);
    return 0;
}
int case_host_writes(void) {
    device_array<float>(64)[2] = 1.0f;
    return 0;
}
int case_kernel_reads_host(void) {
    float *y = device_array<float>(1);
    CUDA_LAUNCH(read, 1, 1, 0, nullptr, y, reinterpret_cast<const float *>(16), 0L);
    FINE(cudaDeviceSynchronize());
    return 0;
}
int case_null_pointer(void) {
    return run_put(nullptr, 0);
}
int case_misaligned(void) {
    float *x = device_array<float>(64, std::vector<float>(64, 1.0f));
    CUDA_LAUNCH(wide, 1, 1, 0, nullptr, x, x + 4);
    FINE(cudaDeviceSynchronize());
    CUDA_LAUNCH(wide, 1, 1, 0, nullptr, x, x + 1);
    FINE(cudaDeviceSynchronize());
    return 0;
}
int case_copy_too_long(void) {
    char *at = device_array<char>(100);
    FINE(cudaMemsetAsync(at, 0, 100, nullptr));
    MUST(cudaMemsetAsync(at + 1, 0, 100, nullptr) == cudaErrorInvalidValue);
    return 0;
}
int case_too_large(void) {
    size_t available = 0, total = 0;
    void *at = nullptr;
    FINE(cudaMemGetInfo(&available, &total));
    MUST(available == total - (size_t{300} << 20)); /* its context */
    MUST(cudaMalloc(&at, available + 1) == cudaErrorMemoryAllocation);
    MUST(cudaGetLastError() == cudaErrorMemoryAllocation);
    FINE(cudaMalloc(&at, 1000));
    FINE(cudaMemGetInfo(&available, &total));
    MUST(available == total - (size_t{300} << 20) - 1000);
    FINE(cudaGetLastError());
    return 0;
}
