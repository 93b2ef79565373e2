/* device.cpp: the GPUs, as described by the environment:
 *
 *   WEFT_EMULATOR_DEVICES=1        number of GPUs; 0: a driver without a GPU; -1: no driver
 *   WEFT_EMULATOR_DRIVER=13000     the newest CUDA version of the driver
 *   WEFT_EMULATOR_CAPABILITY=90    compute capability 9.0
 *   WEFT_EMULATOR_MODELS=A,B       their models, in order; unset: all equal
 *   WEFT_EMULATOR_MEMORY=16G       per GPU
 *   WEFT_EMULATOR_CONTEXT=300M     of it, used by a process's context
 *   WEFT_EMULATOR_APART=0          1: each process sees a different GPU of the same machine */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "emulator.h"

namespace weft_emulator {
namespace {

thread_local int current = 0;

int devices() {
    return static_cast<int>(number("WEFT_EMULATOR_DEVICES", 1));
}

int driver() {
    return devices() < 0 ? 0 : static_cast<int>(number("WEFT_EMULATOR_DRIVER", CUDART_VERSION));
}

bool exists(int device) {
    return device >= 0 && device < devices();
}

int multiprocessors() {
    return device_capability() >= 90 ? 132 : device_capability() == 80 ? 108 : 72;
}

size_t shared_per_multiprocessor() {
    switch (device_capability()) {
    case 80: return 164 << 10;
    case 86:
    case 89: return 100 << 10;
    default: return device_capability() < 80 ? 96 << 10 : 228 << 10;
    }
}

int attribute_of(cudaDeviceAttr attribute) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMultiProcessorCount: return multiprocessors();
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrComputeCapabilityMajor: return device_capability() / 10;
    case cudaDevAttrComputeCapabilityMinor: return device_capability() % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return static_cast<int>(shared_per_multiprocessor());
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return static_cast<int>(device_shared_most());
    }
    return -1;
}

/* 0: all processes see the same GPU. */
pid_t shown_to() {
    return number("WEFT_EMULATOR_APART", 0) != 0 ? getpid() : 0;
}

/* Writes name number `device` of WEFT_EMULATOR_MODELS; the last one for larger numbers. */
void put_name(char *out, size_t bytes, int device) {
    const char *names = setting("WEFT_EMULATOR_MODELS", "");
    for (; device > 0 && std::strchr(names, ',') != nullptr; device--) names = std::strchr(names, ',') + 1;
    if (*names == 0) (void)snprintf(out, bytes, "CUDA emulator sm_%d", device_capability());
    else (void)snprintf(out, bytes, "%.*s", static_cast<int>(std::strcspn(names, ",")), names);
}

void describe(cudaDeviceProp *p, int device) {
    *p = cudaDeviceProp{};
    put_name(p->name, sizeof p->name, device);
    p->uuid.bytes[0] = static_cast<char>(device + 1);
    const pid_t shown = shown_to();
    std::memcpy(p->uuid.bytes + 8, &shown, sizeof shown);
    p->totalGlobalMem = device_memory();
    p->sharedMemPerBlock = 48 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = device_capability() / 10;
    p->minor = device_capability() % 10;
    p->multiProcessorCount = multiprocessors();
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->ECCEnabled = 1;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 3;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 50 << 20;
    p->maxThreadsPerMultiProcessor = 2048;
    p->streamPrioritiesSupported = p->managedMemory = p->cooperativeLaunch = 1;
    p->sharedMemPerMultiprocessor = shared_per_multiprocessor();
    p->sharedMemPerBlockOptin = device_shared_most();
    p->reservedSharedMemPerBlock = 1024;
    p->maxBlocksPerMultiProcessor = 32;
}

} // namespace

cudaError_t device_ready() {
    if (driver() < 12000) return cudaErrorInsufficientDriver;
    if (devices() == 0) return cudaErrorNoDevice;
    return exists(current) ? cudaSuccess : cudaErrorInvalidDevice;
}

int device_now() {
    return current;
}

uint64_t device_card() {
    return static_cast<uint64_t>(shown_to()) << 32 | static_cast<uint64_t>(current + 1);
}

bool device_place(char *out, int length, int device) {
    if (!exists(device)) return false;
    (void)snprintf(out, static_cast<size_t>(length), "%04X:%02X:00.0", static_cast<unsigned>(shown_to()), device + 1);
    return true;
}

/* Bytes, with a suffix K, M or G. */
static size_t size_of(const char *text) {
    char *end = nullptr;
    const unsigned long long n = strtoull(text, &end, 10);
    const int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
    return static_cast<size_t>(n) << shift;
}

size_t device_memory() {
    return size_of(setting("WEFT_EMULATOR_MEMORY", "16G"));
}

size_t device_context() {
    const size_t bytes = size_of(setting("WEFT_EMULATOR_CONTEXT", "300M"));
    return bytes < device_memory() ? bytes : device_memory();
}

int device_capability() {
    return static_cast<int>(number("WEFT_EMULATOR_CAPABILITY", 90));
}

size_t device_shared_most() {
    return shared_per_multiprocessor() - (device_capability() >= 80 ? 1024 : 32 << 10);
}

} // namespace weft_emulator

using namespace weft_emulator;

EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    CALL("cudaDriverGetVersion");
    *version = driver();
    return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    CALL("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    CALL("cudaGetDeviceCount");
    *count = 0;
    if (driver() < 12000) return answer(cudaErrorInsufficientDriver);
    if (devices() <= 0) return answer(cudaErrorNoDevice);
    *count = devices();
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
    CALL("cudaSetDevice");
    if (driver() < 12000) return answer(cudaErrorInsufficientDriver);
    if (devices() == 0) return answer(cudaErrorNoDevice);
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
    CALL("cudaInitDevice");
    return exists(device) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaGetDevice(int *device) {
    CALL("cudaGetDevice");
    *device = current;
    return answer(device_ready());
}

EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device) {
    CALL("cudaGetDeviceProperties");
    if (device_ready() != cudaSuccess) return answer(device_ready());
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    describe(out, device);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    CALL("cudaDeviceGetAttribute");
    if (device_ready() != cudaSuccess) return answer(device_ready());
    if (!exists(device)) return answer(cudaErrorInvalidDevice);
    *value = attribute_of(attribute);
    return *value < 0 ? answer(cudaErrorInvalidValue) : cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    CALL("cudaDeviceGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *out, int length, int device) {
    CALL("cudaDeviceGetPCIBusId");
    return device_place(out, length, device) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    CALL("cudaDeviceSynchronize");
    cudaError_t code = device_ready();
    if (code == cudaSuccess) code = capture_allows("cudaDeviceSynchronize");
    if (code == cudaSuccess) code = run_all();
    return answer(code);
}

EXPORT cudaError_t cudaDeviceReset(void) {
    CALL("cudaDeviceReset");
    return answer(run_all());
}
