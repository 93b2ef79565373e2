/* libraries.h: CUDA's libraries, looked up when a device is made rather than linked: so the plugin loads on a machine
 * that lacks them, and says what is missing. The runtime is linked statically. */
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
    F(cuModuleUnload)

#define CUDA_CALL_FIELD_(name) __typeof__(&name) name;
typedef struct cuda_libraries {
    CUDA_LT_CALLS(CUDA_CALL_FIELD_)
    CUDA_RTC_CALLS(CUDA_CALL_FIELD_)
    CUDA_DRIVER_CALLS(CUDA_CALL_FIELD_)
} cuda_libraries;

/* All of them, or a sentence that names the one that is missing and where it comes from. */
weft_status cuda_libraries_open(cuda_libraries *out, weft_error *err);
/* A library's handle, or NULL: by what the system finds itself, then in the toolkit. It stays loaded. */
void *cuda_library_open(const char *file);

#endif
