/* cuda/driver_stand_in.c: replaces the NVIDIA driver functions that cuDNN 9 calls to make a plan, on a machine without
 * a driver. cuDNN then compiles and loads kernels. Nothing runs: every function returns success. */
#include <stddef.h>

#define SAYS_YES(name)                                                                                                 \
    __attribute__((visibility("default"))) int name(void);                                                             \
    int name(void) {                                                                                                   \
        return 0;                                                                                                      \
    }
/* Returns some handle that is never dereferenced. */
#define GIVES_A_HANDLE(name)                                                                                           \
    __attribute__((visibility("default"))) int name(void **out);                                                       \
    int name(void **out) {                                                                                             \
        *out = out;                                                                                                    \
        return 0;                                                                                                      \
    }

GIVES_A_HANDLE(cuLibraryLoadData)
GIVES_A_HANDLE(cuLibraryGetKernel)
GIVES_A_HANDLE(cuKernelGetFunction)

/* Tables that the runtime queries by itself do not exist here. */
__attribute__((visibility("default"))) int cuGetExportTable(const void **out, const void *id);
int cuGetExportTable(const void **out, const void *id) {
    (void)id;
    *out = NULL;
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

SAYS_YES(cuCtxGetCurrent)
SAYS_YES(cuCtxGetDevice)
SAYS_YES(cuCtxGetLimit)
SAYS_YES(cuCtxPopCurrent)
SAYS_YES(cuCtxPushCurrent)
SAYS_YES(cuDeviceGet)
SAYS_YES(cuDeviceGetAttribute)
SAYS_YES(cuDeviceGetCount)
SAYS_YES(cuDevicePrimaryCtxRelease)
SAYS_YES(cuDevicePrimaryCtxReset)
SAYS_YES(cuDevicePrimaryCtxRetain)
SAYS_YES(cuDriverGetVersion)
SAYS_YES(cuFuncGetAttribute)
SAYS_YES(cuFuncSetAttribute)
SAYS_YES(cuGetErrorName)
SAYS_YES(cuGetErrorString)
SAYS_YES(cuInit)
SAYS_YES(cuKernelGetAttribute)
SAYS_YES(cuKernelSetAttribute)
SAYS_YES(cuLaunchCooperativeKernel)
SAYS_YES(cuLaunchKernel)
SAYS_YES(cuLaunchKernelEx)
SAYS_YES(cuLibraryLoadFromFile)
SAYS_YES(cuLibraryUnload)
SAYS_YES(cuLinkAddData)
SAYS_YES(cuLinkAddData_v2)
SAYS_YES(cuLinkAddFile_v2)
SAYS_YES(cuLinkComplete)
SAYS_YES(cuLinkCreate)
SAYS_YES(cuLinkCreate_v2)
SAYS_YES(cuLinkDestroy)
SAYS_YES(cuMemcpyDtoH_v2)
SAYS_YES(cuModuleGetFunction)
SAYS_YES(cuModuleGetGlobal_v2)
SAYS_YES(cuModuleLoadData)
SAYS_YES(cuModuleLoadDataEx)
SAYS_YES(cuModuleLoadFatBinary)
SAYS_YES(cuModuleUnload)
SAYS_YES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
SAYS_YES(cuOccupancyMaxPotentialClusterSize)
SAYS_YES(cuStreamGetCtx)
SAYS_YES(cuStreamSynchronize)
SAYS_YES(cuTensorMapEncodeTiled)
