/* failure.c: what a call of CUDA answered, as a sentence. */
#include "cuda.h"

/* After these the context is lost, and every later call gives the same answer. */
static bool is_lasting(cudaError_t code) {
    return code == cudaErrorIllegalAddress || code == cudaErrorMisalignedAddress || code == cudaErrorLaunchFailure ||
           code == cudaErrorHardwareStackError || code == cudaErrorIllegalInstruction ||
           code == cudaErrorECCUncorrectable;
}

weft_status cuda_judge(cudaError_t code, const char *what, weft_error *err) {
    if (code == cudaSuccess) return WEFT_OK;
    (void)cudaGetLastError(); /* or the next launch would be told of it */
    return weft_error_set(err, code == cudaErrorMemoryAllocation ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: %s (%s, %d).%s", what, cudaGetErrorString(code), cudaGetErrorName(code),
                          (int)code,
                          is_lasting(code) ? " It may come from any kernel that was queued before; "
                                             "CUDA_LAUNCH_BLOCKING=1 makes the run slower and names the one."
                                           : "");
}

weft_status cuda_judge_lt(const weft_device *device, cublasStatus_t code, const char *what, weft_error *err) {
    if (code == CUBLAS_STATUS_SUCCESS) return WEFT_OK;
    return weft_error_set(err, code == CUBLAS_STATUS_ALLOC_FAILED ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: cuBLASLt answered %s (%d).", what,
                          device->libraries.cublasLtGetStatusString(code), (int)code);
}

weft_status cuda_judge_driver(const weft_device *device, CUresult code, const char *what, weft_error *err) {
    const char *name = NULL, *text = NULL;
    if (code == CUDA_SUCCESS) return WEFT_OK;
    (void)device->libraries.cuGetErrorName(code, &name);
    (void)device->libraries.cuGetErrorString(code, &text);
    return weft_error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: %s (%s, %d).", what, text == NULL ? "an unknown error" : text,
                          name == NULL ? "?" : name, (int)code);
}
