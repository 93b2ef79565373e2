/* failure.c: what a call of CUDA answered, as a sentence with the call's own name. What fails where nobody can be told
 * is put off until the next call of this thread that can tell it; what fails as something is given back is logged. In
 * no case does it stay in CUDA's last error, where the next launch would be taken for the one that failed. */
#include "cuda.h"

#include <ctype.h>
#include <stdatomic.h>

/* After these the context is lost, and every later call gives the same answer. */
static bool is_slow_call(cudaError_t code) {
    return code == cudaErrorIllegalAddress || code == cudaErrorMisalignedAddress || code == cudaErrorLaunchFailure ||
           code == cudaErrorHardwareStackError || code == cudaErrorIllegalInstruction ||
           code == cudaErrorECCUncorrectable;
}

static atomic_bool has_launched; /* a kernel, so that one can have failed */
static atomic_int lost;          /* the lasting answer that was told; one is enough for a process */

/* What was put off. */
static _Thread_local cudaError_t unheard;
static _Thread_local const char *unheard_of, *unheard_in; /* the call; for what, or NULL */
/* What a launcher called that answered its error, if it was no launch. */
static _Thread_local const char *noted;

/* ---- the call's name ---- */

typedef struct call_name {
    char text[64];
} call_name;

/* "cublasLtMatmul" of "device->libraries.cublasLtMatmul(device->lt, ...)"; a name by itself is one. */
static call_name name_of(const char *call) {
    const char *end = strchr(call, '('), *begin = NULL;
    call_name out = {""};
    if (end == NULL) end = call + strlen(call);
    for (begin = end; begin > call && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_');) begin--;
    (void)snprintf(out.text, sizeof out.text, "%.*s", (int)(end - begin), begin);
    return out;
}

/* Of those that go through functions of the device's own: a launcher, a copy, a fill. */
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

/* ---- sentences ---- */

static weft_status tell(cudaError_t code, const char *call, const char *what, weft_error *err) {
    const call_name name = name_of_cuda(call);
    (void)cudaGetLastError(); /* or the next launch would be told of it */
    if (is_slow_call(code)) atomic_store(&lost, (int)code);
    return weft_error_set(err, code == cudaErrorMemoryAllocation ? WEFT_E_MEMORY : WEFT_E_DEVICE,
                          "%s on device cuda: %s answered %s (%s, %d).%s", what, name.text, cudaGetErrorString(code),
                          cudaGetErrorName(code), (int)code,
                          is_slow_call(code) && atomic_load(&has_launched)
                              ? " It may come from any kernel that was queued before; CUDA_LAUNCH_BLOCKING=1 with "
                                "run.replay=no makes the run slower and names the one."
                              : "");
}

/* OK, or what was put off. */
static weft_status tell_unheard(const char *what, weft_error *err) {
    const cudaError_t code = unheard;
    unheard = cudaSuccess;
    return code == cudaSuccess ? WEFT_OK : tell(code, unheard_of, unheard_in != NULL ? unheard_in : what, err);
}

/* A kernel was launched, if the call is a launcher. */
static void note_launch(const char *call) {
    if (strncmp(call, "cuda", 4) != 0 && !cuda_is_dry()) atomic_store(&has_launched, true);
}

void cuda_put_off(cudaError_t code, const char *call, const char *what) {
    if (code == cudaSuccess) {
        note_launch(call);
        return;
    }
    (void)cudaGetLastError();
    if (unheard != cudaSuccess) return; /* the first one is told */
    unheard = code;
    unheard_of = call;
    unheard_in = what;
}

weft_status cuda_judge_call(cudaError_t code, const char *call, const char *what, weft_error *err) {
    if (unheard != cudaSuccess && err != NULL) return tell_unheard(what, err);
    if (code != cudaSuccess && err == NULL) { /* who asks throws the sentence away */
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
    return weft_error_set(err, code == CUBLAS_STATUS_ALLOC_FAILED ? WEFT_E_MEMORY : WEFT_E_DEVICE,
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

/* ---- what nobody waits for ---- */

void cuda_end_call(const weft_device *device, cudaError_t code, const char *call) {
    const call_name name = code == cudaSuccess ? (call_name){""} : name_of(call);
    if (code == cudaSuccess) return;
    (void)cudaGetLastError();
    if (is_slow_call(code) && atomic_exchange(&lost, (int)code) == (int)code) return;
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
