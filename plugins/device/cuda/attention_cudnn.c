/* attention_cudnn.c: see attention_cudnn.h. Caches one plan per shape, or the error of making it, for the device's
 * lifetime. The call that needs a missing plan returns the error. */
#include "attention_cudnn.h"
#include "attention_graph.h"

#ifdef CUDA_HAS_CUDNN

#include <dlfcn.h>

#define CUDNN_FILE "libcudnn.so." WEFT_STRING(CUDNN_MAJOR)

typedef struct kept_plan {
    attention_plan plan;
    weft_status status; /* of making the plan */
    weft_error why;
    struct kept_plan *next;
} kept_plan;

struct cuda_cudnn {
    cudnn_calls calls;
    cudnnHandle_t handle;
    kept_plan *plans;
};

static weft_status find_cudnn(cudnn_calls *out, weft_error *err) {
    void *handle = cuda_library_open(CUDNN_FILE);
    void *symbol = NULL;
    if (handle == NULL) {
        return weft_error_set(err, WEFT_E_DEVICE,
                              CUDNN_FILE " was not found, and attention = cudnn needs it. Fix: install the Python "
                                         "package nvidia-cudnn or NVIDIA's library, or set attention = auto.");
    }
#define LOOK_UP(name)                                                                                                  \
    symbol = dlsym(handle, #name);                                                                                     \
    if (symbol == NULL)                                                                                                \
        return weft_error_set(err, WEFT_E_DEVICE,                                                                      \
                              CUDNN_FILE " has no function " #name ", so it is too old for attention = cudnn. "        \
                                         "attention = auto does without it.");                                         \
    memcpy(&out->name, &symbol, sizeof symbol);
    CUDNN_CALLS(LOOK_UP)
    return WEFT_OK;
}

weft_status cuda_cudnn_open(weft_device *device, weft_error *err) {
    cuda_cudnn *c = calloc(1, sizeof *c);
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    weft_status status = WEFT_OK;
    if (c == NULL) return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for cuDNN's plans.");
    device->cudnn = c;
    status = find_cudnn(&c->calls, err);
    if (status != WEFT_OK) return status;
    code = c->calls.cudnnCreate(&c->handle);
    if (code == CUDNN_STATUS_SUCCESS) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DEVICE, "cudnnCreate on device cuda: cuDNN answered %s (%d).",
                          c->calls.cudnnGetErrorString(code), (int)code);
}

/* Logs a failure to close a plan. */
static void end_plan(const weft_device *device, cudnnStatus_t code) {
    cuda_end_other_call(device, (int)code, "cudnnBackendDestroyDescriptor");
}

void cuda_cudnn_close(weft_device *device) {
    cuda_cudnn *c = device->cudnn;
    if (c == NULL) return;
    while (c->plans != NULL) {
        kept_plan *kept = c->plans;
        c->plans = kept->next;
        end_plan(device, attention_plan_close(&kept->plan, &c->calls));
        free(kept);
    }
    if (c->handle != NULL) cuda_end_other(device, c->calls.cudnnDestroy(c->handle));
    free(c);
    device->cudnn = NULL;
}

static bool has_window(const weft_attention *args) {
    return args->window > 0 && args->window < args->length;
}

static attention_shape shape_of(const weft_attention *args) {
    const attention_shape shape = {args->batch,    args->length,     args->heads,  args->kv_heads,
                                   args->head_dim, has_window(args), args->cap > 0};
    return shape;
}

static weft_status plan_of(cuda_cudnn *c, const weft_attention *args, const attention_plan **out, weft_error *err) {
    const attention_shape shape = shape_of(args);
    kept_plan *kept = c->plans;
    while (kept != NULL && memcmp(&kept->plan.shape, &shape, sizeof shape) != 0) kept = kept->next;
    if (kept == NULL) {
        kept = calloc(1, sizeof *kept);
        if (kept == NULL)
            return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for cuDNN's plans.");
        kept->why = (weft_error)WEFT_ERROR_INIT;
        kept->status = attention_plan_open(&kept->plan, &c->calls, c->handle, NULL, &shape, &kept->why);
        kept->next = c->plans;
        c->plans = kept;
    }
    *out = &kept->plan;
    return kept->status == WEFT_OK ? WEFT_OK : weft_error_set(err, kept->status, "%s", kept->why.text);
}

/* The graph supports only bf16. */
static weft_status check_form(const weft_attention *args, weft_error *err) {
    if (args->dtype == WEFT_BF16) return WEFT_OK;
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "attention on device cuda: attention = cudnn supports only bf16. Fix: set attention = auto.");
}

bool cuda_cudnn_makes(const weft_device *device, const weft_attention *args) {
    return device->cudnn != NULL && args->cache_rows == 0;
}

int64_t cuda_cudnn_version(const weft_device *device) {
    return device->cudnn == NULL ? 0 : (int64_t)device->cudnn->calls.cudnnGetVersion();
}

int64_t cuda_cudnn_workspace(const weft_device *device, const weft_attention *args) {
    const attention_plan *plan = NULL;
    weft_error err = WEFT_ERROR_INIT;
    if (args->batch <= 0 || args->length <= 0 || check_form(args, &err) != WEFT_OK) return 0;
    if (plan_of(device->cudnn, args, &plan, &err) != WEFT_OK) return 0; /* the call reports the error */
    return plan->workspace;
}

static attention_operands operands_of(const weft_attention *args, const attention_call *call, void *workspace) {
    const bool capped = args->cap > 0;
    const attention_operands brought = {.q = call->q,
                                        .k = call->k,
                                        .v = call->v,
                                        .starts = call->starts,
                                        .o = call->o,
                                        .lse = call->lse,
                                        .scale = capped ? call->to_cap : call->scale,
                                        .cap = capped ? (float)args->cap : 0,
                                        .window = call->window,
                                        .workspace = workspace};
    return brought;
}

weft_status cuda_cudnn_attention(weft_device *device, cudaStream_t stream, const weft_attention *args,
                                 const attention_call *call, void *workspace, weft_error *err) {
    cuda_cudnn *c = device->cudnn;
    const attention_operands brought = operands_of(args, call, workspace);
    const uintptr_t ends = (uintptr_t)call->q | (uintptr_t)call->k | (uintptr_t)call->v | (uintptr_t)call->o;
    const attention_plan *plan = NULL;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS, ended = CUDNN_STATUS_SUCCESS;
    weft_status status = check_form(args, err);
    if (status != WEFT_OK || args->batch == 0 || args->length == 0) return status;
    status = plan_of(c, args, &plan, err);
    if (status != WEFT_OK) return status;
    if (ends % 16 != 0) {
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "attention on device cuda: attention = cudnn needs operands that begin at multiples of "
                              "16 bytes; attention = auto does not.");
    }
    if (cuda_dry_product()) return WEFT_OK;
    code = c->calls.cudnnSetStream(c->handle, stream);
    if (code == CUDNN_STATUS_SUCCESS) {
        status = attention_plan_run(&ended, plan, &c->calls, c->handle, &brought, err);
        end_plan(device, ended);
        return status;
    }
    return weft_error_set(err, WEFT_E_DEVICE, "attention on device cuda: cudnnSetStream: cuDNN answered %s (%d).",
                          c->calls.cudnnGetErrorString(code), (int)code);
}

#else

weft_status cuda_cudnn_open(weft_device *device, weft_error *err) {
    (void)device;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "attention = cudnn: this plugin was built without the headers of cuDNN 9; attention = auto does "
        "without it.");
}
void cuda_cudnn_close(weft_device *device) {
    (void)device;
}
bool cuda_cudnn_makes(const weft_device *device, const weft_attention *args) {
    (void)device;
    (void)args;
    return false;
}
int64_t cuda_cudnn_version(const weft_device *device) {
    (void)device;
    return 0;
}
int64_t cuda_cudnn_workspace(const weft_device *device, const weft_attention *args) {
    (void)device;
    (void)args;
    return 0;
}
weft_status cuda_cudnn_attention(weft_device *device, cudaStream_t stream, const weft_attention *args,
                                 const attention_call *call, void *workspace, weft_error *err) {
    (void)stream;
    (void)args;
    (void)call;
    (void)workspace;
    return cuda_cudnn_open(device, err);
}

#endif
