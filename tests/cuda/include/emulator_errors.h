/* emulator_errors.h: the CUDA error codes that Weft may receive, as one list for names and numbers. */
#ifndef WEFT_EMULATOR_ERRORS_H
#define WEFT_EMULATOR_ERRORS_H

/* ROW(name, number, description by the emulator) */
#define EMULATOR_ERRORS(ROW)                                                                                           \
    ROW(cudaSuccess, 0, "no error")                                                                                    \
    ROW(cudaErrorInvalidValue, 1, "invalid argument")                                                                  \
    ROW(cudaErrorMemoryAllocation, 2, "out of memory")                                                                 \
    ROW(cudaErrorInitializationError, 3, "initialization error")                                                       \
    ROW(cudaErrorCudartUnloading, 4, "driver shutting down")                                                           \
    ROW(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                            \
    ROW(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                      \
    ROW(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")               \
    ROW(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")                          \
    ROW(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                                 \
    ROW(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                  \
    ROW(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                         \
    ROW(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                                            \
    ROW(cudaErrorDeviceUninitialized, 201, "invalid device context")                                                   \
    ROW(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")              \
    ROW(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                                         \
    ROW(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed")                                                      \
    ROW(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                \
    ROW(cudaErrorSymbolNotFound, 500, "named symbol not found")                                                        \
    ROW(cudaErrorNotReady, 600, "device not ready")                                                                    \
    ROW(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                      \
    ROW(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                                 \
    ROW(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                        \
    ROW(cudaErrorAssert, 710, "device-side assert triggered")                                                          \
    ROW(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the memory is registered already")                  \
    ROW(cudaErrorHostMemoryNotRegistered, 713, "the memory is not registered")                                         \
    ROW(cudaErrorHardwareStackError, 714, "hardware stack error")                                                      \
    ROW(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                                    \
    ROW(cudaErrorMisalignedAddress, 716, "misaligned address")                                                         \
    ROW(cudaErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")                   \
    ROW(cudaErrorInvalidPc, 718, "invalid program counter")                                                            \
    ROW(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                     \
    ROW(cudaErrorNotPermitted, 800, "operation not permitted")                                                         \
    ROW(cudaErrorNotSupported, 801, "operation not supported")                                                         \
    ROW(cudaErrorSystemNotReady, 802, "system not yet initialized")                                                    \
    ROW(cudaErrorSystemDriverMismatch, 803, "system has unsupported display driver / cuda driver combination")         \
    ROW(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                    \
    ROW(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")             \
    ROW(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")           \
    ROW(cudaErrorStreamCaptureUnmatched, 903, "capture was not initiated in this stream")                              \
    ROW(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                     \
    ROW(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")               \
    ROW(cudaErrorStreamCaptureImplicit, 906, "operation would make the legacy stream depend on a capturing stream")    \
    ROW(cudaErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream")        \
    ROW(cudaErrorStreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture from another thread")     \
    ROW(cudaErrorUnknown, 999, "unknown error")

#define EMULATOR_ERROR_VALUE(name, number, text) name = number,
typedef enum cudaError { EMULATOR_ERRORS(EMULATOR_ERROR_VALUE) EMULATOR_ERRORS_END = 10000 } cudaError_t;

#endif
