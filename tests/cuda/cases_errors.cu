/* cuda/cases_errors.cu: see cases.h. */
#include <cstring>

#include "launches.h"

int case_planted(void) {
    void *at = nullptr;
    emulator_plant("cudaMalloc:2=2,cudaMemsetAsync:1=719");
    FINE(cudaMalloc(&at, 100));
    FINE(cudaGetLastError());
    MUST(cudaMalloc(&at, 100) == cudaErrorMemoryAllocation);
    MUST(cudaPeekAtLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    FINE(cudaGetLastError());
    MUST(cudaMemsetAsync(at, 0, 10, nullptr) == cudaErrorLaunchFailure);
    FINE(cudaMemsetAsync(at, 0, 10, nullptr));
    MUST(emulator_calls("cudaMalloc") == 2);
    MUST(std::strcmp(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure") == 0);
    return 0;
}
/* The next waiting call reports a kernel's error, and so do all later calls. */
int case_planted_kernel(void) {
    float *x = device_array<float>(10, std::vector<float>(10, 1.0f));
    void *at = nullptr;
    emulator_plant("kernel:2=700");
    for (int i = 0; i < 3; i++) FINE(add_to(x, x, 10, 1.0f, nullptr));
    MUST(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    MUST(cudaMalloc(&at, 10) == cudaErrorIllegalAddress);
    MUST(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() == cudaErrorIllegalAddress);
    emulator_plant(nullptr);
    FINE(cudaMalloc(&at, 10));
    return 0;
}
int case_bad_launches(void) {
    float *x = device_array<float>(10);
    CUDA_LAUNCH(plus, 0, 64, 0, nullptr, x, x, 10, 1.0f);
    MUST(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(plus, 1, 1025, 0, nullptr, x, x, 10, 1.0f);
    MUST(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(plus, dim3(1, 65536), 32, 0, nullptr, x, x, 10, 1.0f);
    MUST(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(plus, 1, 32, 0, reinterpret_cast<cudaStream_t>(77), x, x, 10, 1.0f);
    MUST(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    FINE(cudaGetLastError());
    MUST(emulator_launches(nullptr) == 0);
    return 0;
}
int case_no_card(void) {
    int n = -1;
    void *at = nullptr;
    (void)setenv("WEFT_EMULATOR_DEVICES", "0", 1);
    MUST(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
    MUST(cudaMalloc(&at, 100) != cudaSuccess || at != nullptr);
    MUST(cudaSetDevice(0) == cudaErrorNoDevice);
    return 0;
}
int case_no_driver(void) {
    int n = -1;
    (void)setenv("WEFT_EMULATOR_DEVICES", "-1", 1);
    MUST(cudaDriverGetVersion(&n) == cudaSuccess && n == 0);
    MUST(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 0);
    MUST(cudaDeviceSynchronize() == cudaErrorInsufficientDriver);
    return 0;
}
/* A step must not allocate. */
int case_step_allocates(void) {
    float *x = device_array<float>(10);
    void *at = nullptr;
    (void)setenv("WEFT_EMULATOR_NO_ALLOC", "1", 1);
    FINE(add_to(x, x, 10, 1.0f, nullptr));
    MUST(cudaMalloc(&at, 100) == cudaErrorNotPermitted);
    FINE(cudaDeviceSynchronize());
    FINE(cudaMalloc(&at, 100));
    emulator_forbid_allocation(1);
    MUST(cudaFree(at) == cudaErrorNotPermitted);
    return 0;
}
