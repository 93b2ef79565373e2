/* failure.c: converts CUDA errors to messages with the call's name. A failure in a function without an error result is
 * deferred to the thread's next checked call; a failure of a release is logged. In both cases CUDA's last error is
 * cleared, so that the next launch does not report it. */
#include "cuda.h"

#include <ctype.h>
#include <stdatomic.h>

/* True for errors that destroy the context: every later call returns the same error. */
static bool is_sticky(cudaError_t code) {
    return code == cudaErrorIllegalAddress || code == cudaErrorMisalignedAddress || code == cudaErrorLaunchFailure ||
           code == cudaErrorHardwareStackError || code == cudaErrorIllegalInstruction ||
           code == cudaErrorECCUncorrectable;
}

static atomic_bool has_launched; /* a kernel, so one can have failed */
static atomic_int lost;          /* the sticky error already reported; once per process */

/* Deferred failure. */
static _Thread_local cudaError_t unheard;
static _Thread_local const char *unheard_of, *unheard_in; /* the call; its purpose or NULL */
/* The call inside a launcher that returned its error, if it was not a launch. */
static _Thread_local const char *noted;

/* ---- the call's name ---- */

typedef struct call_name {
    char text[64];
} call_name;

/* Extracts "cublasLtMatmul" from "device->libraries.cublasLtMatmul(device->lt, ...)"; a plain name stays as it is. */
static call_name name_of(const char *call) {
    const char *end = strchr(call, '('), *begin = NULL;
    call_name out = {""};
    if (end == NULL) end = call + strlen(call);
    for (begin = end; begin > call && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_');) begin--;
    (void)snprintf(out.text, sizeof out.text, "%.*s", (int)(end - begin), begin);
    return out;
}

/* Same for the device's own wrappers: a launcher, a copy, a fill. */
static call_name name_of_cuda(const char *call) {
    call_name out = name_of(call);
    const char *name = out.text;
    if (strncmp(name, "cuda", 4) == 0 && name[4] != '_') return out;
    if (strcmp(name, "cuda_move") == 0) name = "cudaMemcpyAsync";
    else if (strcmp(name, "cuda_clear") == 0) name = "cudaMemsetAsync";
    else name = noted != NULL ? noted : "cudaLaunchKernel";
    noted = NULL;
    (void)snprintf(out.text, sizeof out.text, "%s", name);
    return out;
}

void cuda_note_call(const char *call) {
    noted = call;
}

/* ---- messages ---- */

static weft_status tell(cudaError_t code, const char *call, const char *what, weft_error *err) {
    const call_name name = name_of_cuda(call);
    (void)cudaGetLastError(); /* otherwise the next launch would report it */
    if (is_sticky(code)) atomic_store(&lost, (int)code);
    return weft_error_set(err, code == cudaErrorMemoryAllocation ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: %s answered %s (%s, %d).%s", what, name.text, cudaGetErrorString(code),
                          cudaGetErrorName(code), (int)code,
                          is_sticky(code) && atomic_load(&has_launched)
                              ? " The error may be from any kernel that was queued earlier; CUDA_LAUNCH_BLOCKING=1 "
                                "with run.replay=no makes the run slower and names the kernel."
                              : "");
}

/* Returns WEFT_OK or the deferred failure. */
static weft_status tell_unheard(const char *what, weft_error *err) {
    const cudaError_t code = unheard;
    unheard = cudaSuccess;
    return code == cudaSuccess ? WEFT_OK : tell(code, unheard_of, unheard_in != NULL ? unheard_in : what, err);
}

/* Notes that a kernel was launched, if the call is a launcher. */
static void note_launch(const char *call) {
    if (strncmp(call, "cuda", 4) != 0 && !cuda_is_dry()) atomic_store(&has_launched, true);
}

void cuda_put_off(cudaError_t code, const char *call, const char *what) {
    if (code == cudaSuccess) {
        note_launch(call);
        return;
    }
    (void)cudaGetLastError();
    if (unheard != cudaSuccess) return; /* keep the first one */
    unheard = code;
    unheard_of = call;
    unheard_in = what;
}

weft_status cuda_judge_call(cudaError_t code, const char *call, const char *what, weft_error *err) {
    if (unheard != cudaSuccess && err != NULL) return tell_unheard(what, err);
    if (code != cudaSuccess && err == NULL) { /* the caller ignores the message */
        cuda_put_off(code, call, what);
        return WEFT_E_DEVICE;
    }
    if (code != cudaSuccess) return tell(code, call, what, err);
    note_launch(call);
    return WEFT_OK;
}

weft_status cuda_judge_lt_call(const weft_device *device, cublasStatus_t code, const char *call, const char *what,
                               weft_error *err) {
    if (unheard != cudaSuccess && err != NULL) return tell_unheard(what, err);
    if (code == CUBLAS_STATUS_SUCCESS) return WEFT_OK;
    /* A matmul that cannot be captured may still run outside of a capture: the host then captures no more. */
    return weft_error_set(err,
                          code == CUBLAS_STATUS_ALLOC_FAILED ? WEFT_E_MEMORY
                          : device->recording != NULL        ? WEFT_E_UNSUPPORTED
                                                             : WEFT_E_DEVICE,
                          "%s on device cuda: %s answered %s (%d).", what, name_of(call).text,
                          device->libraries.cublasLtGetStatusString(code), (int)code);
}

weft_status cuda_judge_driver_call(const weft_device *device, CUresult code, const char *call, const char *what,
                                   weft_error *err) {
    const char *name = NULL, *text = NULL;
    if (unheard != cudaSuccess && err != NULL) return tell_unheard(what, err);
    if (code == CUDA_SUCCESS) return WEFT_OK;
    (void)device->libraries.cuGetErrorName(code, &name);
    (void)device->libraries.cuGetErrorString(code, &text);
    return weft_error_set(err, code == CUDA_ERROR_OUT_OF_MEMORY ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: %s answered %s (%s, %d).", what, name_of(call).text,
                          text == NULL ? "an unknown error" : text, name == NULL ? "?" : name, (int)code);
}

/* ---- releases ---- */

void cuda_end_call(const weft_device *device, cudaError_t code, const char *call) {
    const call_name name = code == cudaSuccess ? (call_name){""} : name_of(call);
    if (code == cudaSuccess) return;
    (void)cudaGetLastError();
    if (is_sticky(code) && atomic_exchange(&lost, (int)code) == (int)code) return;
    weft_log(device->host, WEFT_LOG_ERROR, "%s on device cuda answered %s (%s, %d).", name.text,
             cudaGetErrorString(code), cudaGetErrorName(code), (int)code);
}

void cuda_end_other_call(const weft_device *device, int code, const char *call) {
    if (code == 0 || code == atomic_load(&lost)) return;
    weft_log(device->host, WEFT_LOG_ERROR, "%s on device cuda answered %d.", name_of(call).text, code);
}

void cuda_end_unheard(const weft_device *device) {
    const cudaError_t code = unheard;
    unheard = cudaSuccess;
    cuda_end_call(device, code, unheard_of);
}
