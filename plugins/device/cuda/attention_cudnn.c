/* attention_cudnn.c: see attention_cudnn.h. One plan for each shape that was met; they live as long as the device. */
#include "attention_cudnn.h"
#include "attention_graph.h"

#ifdef CUDA_HAS_CUDNN

#include <dlfcn.h>

#define CUDNN_FILE "libcudnn.so." WEFT_STRING(CUDNN_MAJOR)

struct cuda_cudnn {
    cudnn_calls calls;
    cudnnHandle_t handle;
    attention_plan *plans;
};

static weft_status find_cudnn(cudnn_calls *out, weft_error *err) {
    void *handle = cuda_library_open(CUDNN_FILE);
    void *symbol = NULL;
    if (handle == NULL) {
        return weft_error_set(err, WEFT_E_DEVICE,
                              CUDNN_FILE
                              " was not found, and attention = cudnn needs it. It comes as the Python package "
                              "nvidia-cudnn and from NVIDIA; attention = own does without it.");
    }
#define LOOK_UP(name)                                                                                                  \
    symbol = dlsym(handle, #name);                                                                                     \
    if (symbol == NULL) return weft_error_set(err, WEFT_E_DEVICE, CUDNN_FILE " has no function " #name ".");           \
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

void cuda_cudnn_close(weft_device *device) {
    cuda_cudnn *c = device->cudnn;
    if (c == NULL) return;
    while (c->plans != NULL) {
        attention_plan *plan = c->plans;
        c->plans = plan->next;
        attention_plan_close(plan, &c->calls);
        free(plan);
    }
    if (c->handle != NULL) (void)c->calls.cudnnDestroy(c->handle);
    free(c);
    device->cudnn = NULL;
}

static attention_shape shape_of(const weft_attention *args) {
    const attention_shape shape = {args->batch, args->length, args->heads, args->kv_heads, args->head_dim};
    return shape;
}

static weft_status plan_of(cuda_cudnn *c, const weft_attention *args, const attention_plan **out, weft_error *err) {
    const attention_shape shape = shape_of(args);
    attention_plan *plan = c->plans;
    weft_status status = WEFT_OK;
    while (plan != NULL && memcmp(&plan->shape, &shape, sizeof shape) != 0) plan = plan->next;
    if (plan == NULL) {
        plan = malloc(sizeof *plan);
        if (plan == NULL)
            return weft_error_set(err, WEFT_E_MEMORY, "Device cuda has no memory left for cuDNN's plans.");
        status = attention_plan_open(plan, &c->calls, c->handle, NULL, &shape, err);
        if (status != WEFT_OK) {
            attention_plan_close(plan, &c->calls);
            free(plan);
            return status;
        }
        plan->next = c->plans;
        c->plans = plan;
    }
    *out = plan;
    return WEFT_OK;
}

/* What the graph lacks. */
static weft_status check_form(const weft_attention *args, weft_error *err) {
    const char *lacks = args->dtype != WEFT_BF16 ? "fp32"
                        : args->window > 0       ? "a window"
                        : args->cap > 0          ? "a cap"
                                                 : NULL;
    if (lacks == NULL) return WEFT_OK;
    return weft_error_set(err, WEFT_E_UNSUPPORTED,
                          "attention on device cuda: attention = cudnn does not make %s; attention = own does.", lacks);
}

bool cuda_cudnn_makes(const weft_device *device, const weft_attention *args) {
    return device->cudnn != NULL && args->cache_rows == 0;
}

int64_t cuda_cudnn_workspace(const weft_device *device, const weft_attention *args) {
    const attention_plan *plan = NULL;
    weft_error err = WEFT_ERROR_INIT;
    if (args->batch <= 0 || args->length <= 0 || check_form(args, &err) != WEFT_OK) return 0;
    if (plan_of(device->cudnn, args, &plan, &err) != WEFT_OK) return 0; /* the call says why */
    return plan->workspace;
}

weft_status cuda_cudnn_attention(weft_device *device, cudaStream_t stream, const weft_attention *args,
                                 const attention_call *call, void *workspace, weft_error *err) {
    cuda_cudnn *c = device->cudnn;
    const attention_operands brought = {call->q, call->k,   call->v,     call->starts,
                                        call->o, call->lse, call->scale, workspace};
    const uintptr_t ends = (uintptr_t)call->q | (uintptr_t)call->k | (uintptr_t)call->v | (uintptr_t)call->o;
    const attention_plan *plan = NULL;
    weft_status status = check_form(args, err);
    if (status != WEFT_OK || args->batch == 0 || args->length == 0) return status;
    if (ends % 16 != 0 || call->lse == NULL) {
        return weft_error_set(
            err, WEFT_E_UNSUPPORTED,
            "attention on device cuda: attention = cudnn needs operands that begin at multiples of 16 "
            "bytes, and lse; attention = own does not.");
    }
    status = plan_of(c, args, &plan, err);
    if (status != WEFT_OK || cuda_dry_product()) return status;
    if (c->calls.cudnnSetStream(c->handle, stream) != CUDNN_STATUS_SUCCESS) {
        return weft_error_set(err, WEFT_E_DEVICE, "attention on device cuda: cuDNN does not take the stream.");
    }
    return attention_plan_run(plan, &c->calls, c->handle, &brought, err);
}

#else

weft_status cuda_cudnn_open(weft_device *device, weft_error *err) {
    (void)device;
    return weft_error_set(
        err, WEFT_E_UNSUPPORTED,
        "attention = cudnn: this plugin was built without the headers of cuDNN 9; attention = own does "
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
