/* libraries.h: CUDA's libraries, loaded at run time when a device is created. The plugin therefore loads on a machine
 * without them and reports the missing one. The CUDA runtime is linked statically. */
#ifndef WEFT_DEVICE_CUDA_LIBRARIES_H
#define WEFT_DEVICE_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <weft/base.h>

#define CUDA_LT_CALLS(F)                                                                                               \
    F(cublasLtCreate)                                                                                                  \
    F(cublasLtDestroy)                                                                                                 \
    F(cublasLtGetVersion)                                                                                              \
    F(cublasLtGetStatusString)                                                                                         \
    F(cublasLtMatmul)                                                                                                  \
    F(cublasLtMatmulAlgoCheck)                                                                                         \
    F(cublasLtMatmulAlgoConfigGetAttribute)                                                                            \
    F(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    F(cublasLtMatmulDescCreate)                                                                                        \
    F(cublasLtMatmulDescDestroy)                                                                                       \
    F(cublasLtMatmulDescSetAttribute)                                                                                  \
    F(cublasLtMatmulPreferenceCreate)                                                                                  \
    F(cublasLtMatmulPreferenceDestroy)                                                                                 \
    F(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    F(cublasLtMatrixLayoutCreate)                                                                                      \
    F(cublasLtMatrixLayoutDestroy)

#define CUDA_RTC_CALLS(F)                                                                                              \
    F(nvrtcVersion)                                                                                                    \
    F(nvrtcGetErrorString)                                                                                             \
    F(nvrtcCreateProgram)                                                                                              \
    F(nvrtcCompileProgram)                                                                                             \
    F(nvrtcDestroyProgram)                                                                                             \
    F(nvrtcGetProgramLogSize)                                                                                          \
    F(nvrtcGetProgramLog)                                                                                              \
    F(nvrtcGetCUBINSize)                                                                                               \
    F(nvrtcGetCUBIN)

#define CUDA_DRIVER_CALLS(F)                                                                                           \
    F(cuGetErrorName)                                                                                                  \
    F(cuGetErrorString)                                                                                                \
    F(cuLaunchKernel)                                                                                                  \
    F(cuModuleGetFunction)                                                                                             \
    F(cuModuleLoadData)                                                                                                \
    F(cuModuleUnload)                                                                                                  \
    F(cuTensorMapEncodeTiled)

#define CUDA_CALL_FIELD_(name) __typeof__(&name) name;
typedef struct cuda_libraries {
    CUDA_LT_CALLS(CUDA_CALL_FIELD_)
    CUDA_RTC_CALLS(CUDA_CALL_FIELD_)
    CUDA_DRIVER_CALLS(CUDA_CALL_FIELD_)
} cuda_libraries;

/* Loads all of them, or fails with the name of the missing library and the package that contains it. */
weft_status cuda_libraries_open(cuda_libraries *out, weft_error *err);
/* Returns a library's handle or NULL. Searches the system's paths, then the toolkit. The library stays loaded. */
void *cuda_library_open(const char *file);
/* Loads NVRTC's built-in functions from NVRTC's directory. NVRTC opens them by their file name only, which fails if the
 * loader does not search that directory; a loaded library is found by its name. If the file is not there, NVRTC's
 * compilation fails with NVRTC_ERROR_BUILTIN_OPERATION_FAILURE. */
void cuda_rtc_open_builtins(const cuda_libraries *of, int major, int minor);

#endif
