/* driver.cpp: the driver's calls: modules compiled by nvrtc.cpp, and their kernels. */
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"
#include "emulator.h"
#include "emulator_module.h"
#include "module.h"

using namespace weft_emulator;

struct CUfunc_st {
    std::string name;
    const emulator_entry *entry;
};
struct CUmod_st {
    void *handle;
    std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace {

struct Header {
    char mark[8];
    uint64_t version, bytes;
};
constexpr char MARK[9] = "weftDBL\1";

#define DRIVER_CALL(name)                                                                                              \
    const LastErrorKept kept;                                                                                          \
    Call call(name);                                                                                                   \
    if (call.code != cudaSuccess) return static_cast<CUresult>(call.code)

/* Loads the module from an anonymous file. The path differs each time: for equal paths the loader would reuse the first
 * library. */
void *load(const char *bytes, size_t n) {
    static unsigned loaded;
    std::string path = "/proc/self/fd/";
    const int file = memfd_create("module", MFD_CLOEXEC);
    if (file < 0 || write(file, bytes, n) != static_cast<ssize_t>(n)) fault("a module cannot be written to memory");
    for (unsigned i = loaded++ % 1000; i > 0; i--) path += "./";
    path += std::to_string(file);
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    (void)close(file);
    return handle;
}

} // namespace

namespace weft_emulator {

std::vector<char> module_image(const std::vector<char> &shared_object) {
    Header header = {};
    std::memcpy(header.mark, MARK, sizeof header.mark);
    header.version = MODULE_VERSION;
    header.bytes = shared_object.size();
    std::vector<char> out(sizeof header + shared_object.size());
    std::memcpy(out.data(), &header, sizeof header);
    if (!shared_object.empty()) std::memcpy(out.data() + sizeof header, shared_object.data(), shared_object.size());
    return out;
}

} // namespace weft_emulator

EXPORT CUresult cuInit(unsigned int) {
    DRIVER_CALL("cuInit");
    return static_cast<CUresult>(device_ready());
}
EXPORT CUresult cuDriverGetVersion(int *version) {
    return static_cast<CUresult>(cudaDriverGetVersion(version));
}
EXPORT CUresult cuDeviceGet(CUdevice *out, int index) {
    DRIVER_CALL("cuDeviceGet");
    char place[40];
    if (device_ready() != cudaSuccess) return static_cast<CUresult>(device_ready());
    if (!device_place(place, sizeof place, index)) return static_cast<CUresult>(cudaErrorInvalidDevice);
    *out = index;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *out, int length, CUdevice device) {
    DRIVER_CALL("cuDeviceGetPCIBusId");
    return device_place(out, length, device) ? CUDA_SUCCESS : static_cast<CUresult>(cudaErrorInvalidDevice);
}
EXPORT CUresult cuGetErrorName(CUresult code, const char **out) {
    *out = cudaGetErrorName(static_cast<cudaError_t>(code));
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult code, const char **out) {
    *out = cudaGetErrorString(static_cast<cudaError_t>(code));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    DRIVER_CALL("cuModuleLoadData");
    Header header;
    std::memcpy(&header, image, sizeof header);
    if (device_ready() != cudaSuccess) return static_cast<CUresult>(device_ready());
    if (std::memcmp(header.mark, MARK, sizeof header.mark) != 0 || header.version != MODULE_VERSION)
        return CUDA_ERROR_INVALID_IMAGE;
    void *handle = load(static_cast<const char *>(image) + sizeof header, header.bytes);
    if (handle == nullptr) {
        (void)refuse(cudaErrorInvalidKernelImage, "cuModuleLoadData: %s", dlerror());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *out = new CUmod_st{handle, {}};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    DRIVER_CALL("cuModuleUnload");
    const cudaError_t code = run_all(); /* none of its kernels is queued any more */
    (void)dlclose(module->handle);
    delete module;
    return static_cast<CUresult>(code);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    DRIVER_CALL("cuModuleGetFunction");
    const void *entry = dlsym(module->handle, (std::string("emulator_entry_") + name).c_str());
    if (entry == nullptr) return CUDA_ERROR_NOT_FOUND;
    module->functions.push_back(
        std::make_unique<CUfunc_st>(CUfunc_st{name, static_cast<const emulator_entry *>(entry)}));
    *out = module->functions.back().get();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                               CUstream stream, void **values, void **extra) {
    DRIVER_CALL("cuLaunchKernel");
    if (function == nullptr || values == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const emulator_entry &entry = *function->entry;
    if (entry.bytes > 32764) return CUDA_ERROR_INVALID_VALUE; /* bytes of parameters, as on current GPUs */
    std::vector<max_align_t> arguments(entry.bytes / sizeof(max_align_t) + 1);
    entry.pack(arguments.data(), values);
    const emulator_launch what = {function->name.c_str(),
                                  "cuLaunchKernel",
                                  0,
                                  dim3(grid_x, grid_y, grid_z),
                                  dim3(block_x, block_y, block_z),
                                  shared,
                                  entry.kernel,
                                  entry.call,
                                  entry.bytes};
    return static_cast<CUresult>(emulator_launch_queue(&what, arguments.data(), stream));
}

/* The form that tensor copies of 64 rows of 64 16-bit elements need. */
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                       const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *element_strides, CUtensorMapInterleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    DRIVER_CALL("cuTensorMapEncodeTiled");
    bool fits = rank == 4 && reinterpret_cast<uintptr_t>(address) % 16 == 0 && swizzle == CU_TENSOR_MAP_SWIZZLE_128B &&
                (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) && box[0] == 64;
    *out = {static_cast<const unsigned char *>(address), {}, {2}, rank, {}};
    for (unsigned i = 0; fits && i < rank; i++) {
        fits = dims[i] > 0 && dims[i] <= 1ull << 32 && box[i] > 0 && box[i] <= 256 && element_strides[i] == 1;
        if (i > 0) fits = fits && strides[i - 1] % 16 == 0 && strides[i - 1] < 1ull << 40;
        out->dims[i] = dims[i];
        out->box[i] = box[i];
        if (i > 0) out->strides[i] = strides[i - 1];
    }
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT const unsigned short *emulator_tensor_at(const CUtensorMap *map, const int64_t *start, int row, int column) {
    const int64_t at[4] = {start[0] + column, start[1], start[2] + row, start[3]};
    const unsigned char *from = map->address;
    for (int i = 0; i < 4; i++) {
        if (at[i] < 0 || at[i] >= static_cast<int64_t>(map->dims[i])) return nullptr;
        from += static_cast<uint64_t>(at[i]) * map->strides[i];
    }
    return reinterpret_cast<const unsigned short *>(from);
}
