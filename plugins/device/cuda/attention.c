/* attention.c: kernel-table slots of attention and its backward.
 *
 * The number of cached positions is in device memory, so a call cannot check on the host that the new positions fit. If
 * they do not fit, the kernels read and write no keys, and the result is NaN. */
#include "attention_cudnn.h"
#include "attention_hopper.h"
#include "workspace.h"

#define ROWS_LIMIT  (INT32_MAX / 2)    /* a position plus a window must fit an int */
#define LEAST_BLOCK ((int64_t)16)      /* minimum rows of a head per thread block */
#define LOG2_E      1.4426950408889634 /* the kernels compute scores as exponents of two */

static int64_t rows_of(const weft_attention *args) {
    return args->cache_rows > 0 ? args->cache_rows : args->length;
}

static void check_attention_shape(operands *c, const weft_attention *args) {
    (void)operands_dtype(c, "dtype", args->dtype);
    operands_size(c, "batch", args->batch, 0);
    operands_size(c, "length", args->length, 0);
    operands_size(c, "heads", args->heads, 1);
    operands_size(c, "kv_heads", args->kv_heads, 1);
    operands_size(c, "head_dim", args->head_dim, 1);
    operands_size(c, "cache_rows", args->cache_rows, 0);
    operands_size(c, "window", args->window, 0);
    if (c->status != WEFT_OK) return;
    if (args->heads % args->kv_heads != 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cuda: %lld heads cannot share %lld key-value heads evenly.", c->kernel,
                                   (long long)args->heads, (long long)args->kv_heads);
    } else if (args->length > rows_of(args) || rows_of(args) > ROWS_LIMIT) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cuda: %lld positions do not fit %lld rows of keys (at most 2^30).",
                                   c->kernel, (long long)args->length, (long long)rows_of(args));
    }
}

/* Fails for valid sizes above the kernels' limits. */
static void check_attention_limits(operands *c, const weft_attention *args) {
    const int64_t tiles = size_ceil_div(rows_of(args), LEAST_BLOCK), columns = size_times(args->batch, args->heads);
    const int64_t blocks = columns < 0 ? -1 : size_times(columns, tiles);
    if (c->status != WEFT_OK) return;
    if (args->head_dim > ATTENTION_HEAD_DIM_LIMIT) {
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device cuda: head_dim is %lld. Allowed: up to %d.", c->kernel,
                                   (long long)args->head_dim, ATTENTION_HEAD_DIM_LIMIT);
    } else if (blocks < 0 || blocks > INT32_MAX) {
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device cuda: %lld sequences of %lld heads and %lld positions exceed one "
                                   "launch. Fix: pass fewer sequences.",
                                   c->kernel, (long long)args->batch, (long long)args->heads, (long long)rows_of(args));
    }
}

static attention_call call_of(const weft_attention *args) {
    const int64_t rows = rows_of(args);
    const double cap = args->cap > 0 ? args->cap : 0;
    const attention_call call = {.batch = args->batch,
                                 .length = args->length,
                                 .rows = rows,
                                 .heads = args->heads,
                                 .kv_heads = args->kv_heads,
                                 .head_dim = (int)size_min(args->head_dim, INT32_MAX),
                                 .window = args->window < rows ? (int)args->window : 0,
                                 .scale = (float)args->scale,
                                 .to_exponent = (float)(args->scale * LOG2_E),
                                 .to_cap = cap > 0 ? (float)(args->scale / cap) : 0,
                                 .cap_exponent = (float)(cap * LOG2_E),
                                 .dtype = args->dtype};
    return call;
}

static void look_up_attention(operands *c, const weft_attention *args, attention_call *call, bool backward) {
    const int64_t queries = size_times(args->batch, args->length), q_width = size_times(args->heads, args->head_dim);
    const int64_t keys = size_times(args->batch, rows_of(args)), k_width = size_times(args->kv_heads, args->head_dim);
    const int64_t bytes = cell_bytes(call->dtype);
    if (args->cache_rows > 0) call->past = operands_need(c, args->past, "past", 1, 1, 8);
    call->q = operands_need(c, args->q, "q", queries, q_width, bytes);
    call->k = operands_need(c, args->k, "k", keys, k_width, bytes);
    call->v = operands_need(c, args->v, "v", keys, k_width, bytes);
    call->starts = operands_need(c, args->starts, "starts", queries, 1, 4);
    call->o = operands_need(c, args->o, "o", queries, q_width, bytes);
    if (!backward) {
        if (args->cache_rows > 0) call->new_k = operands_may(c, args->new_k, "new_k", queries, k_width, bytes);
        if (args->cache_rows > 0) call->new_v = operands_may(c, args->new_v, "new_v", queries, k_width, bytes);
        call->lse = operands_may(c, args->lse, "lse", queries, args->heads, 4);
        return;
    }
    call->lse = operands_need(c, args->lse, "lse", queries, args->heads, 4);
    call->d_o = operands_need(c, args->d_o, "d_o", queries, q_width, bytes);
    call->dq = operands_may(c, args->dq, "dq", queries, q_width, bytes);
    call->dk = operands_may(c, args->dk, "dk", keys, k_width, bytes);
    call->dv = operands_may(c, args->dv, "dv", keys, k_width, bytes);
}

static weft_status prepare(operands *c, const weft_attention *args, attention_call *call, bool backward) {
    if (c->status != WEFT_OK) return c->status;
    check_attention_shape(c, args);
    if (c->status != WEFT_OK) return c->status;
    *call = call_of(args);
    look_up_attention(c, args, call, backward);
    check_attention_limits(c, args);
    return c->status;
}

/* Lays out cuDNN's workspace, and lse if the caller needs none. Returns the total size. */
static int64_t lay_out_cudnn(room r, const weft_device *device, const weft_attention *args, void **part, float **lse) {
    *part = room_take(&r, cuda_cudnn_workspace(device, args));
    *lse = room_take(&r, size_times(size_times(args->batch, args->length), size_times(args->heads, 4)));
    return room_bytes(&r);
}

int64_t cuda_attention_workspace(const weft_device *device, const weft_attention *args) {
    void *part = NULL;
    float *lse = NULL;
    return cuda_cudnn_makes(device, args) ? lay_out_cudnn(room_at(NULL), device, args, &part, &lse) : 0;
}

/* cuDNN does not write zeros for a position that sees no key; a second kernel does. */
static weft_status by_cudnn(operands *c, weft_device *device, cudaStream_t stream, const weft_attention *args,
                            attention_call *call) {
    void *part = NULL, *all = operands_need_workspace(c, args->workspace, cuda_attention_workspace(device, args));
    float *lse = NULL;
    weft_status status = c->status;
    if (status != WEFT_OK) return status;
    (void)lay_out_cudnn(room_at(all), device, args, &part, &lse);
    if (call->lse == NULL) call->lse = lse;
    status = cuda_cudnn_attention(device, stream, args, call, part, c->err);
    return status != WEFT_OK ? status : cuda_judge(attention_blind_launch(call, stream), "attention", c->err);
}

/* ---- compute capability 9.0 ---- */

bool cuda_rounds_attention(const weft_device *device) {
    return device->card.major == 9 && device->card.minor == 0 && !device->splits_attention;
}

/* True if the kernels of attention_hopper.cu compute this call. */
static bool is_for_hopper(const weft_device *device, const weft_attention *args, const attention_call *call) {
    return cuda_rounds_attention(device) && args->dtype != WEFT_F32 &&
           (call->head_dim == 64 || call->head_dim == 128) && args->cache_rows == 0 && args->cap <= 0 &&
           args->scale > 0;
}

static weft_status describe_rows(CUtensorMap *out, const weft_device *device, const attention_call *call,
                                 const char *name, const void *at, int64_t heads, weft_error *err) {
    const cuuint64_t row = (cuuint64_t)call->head_dim * 2, place = (cuuint64_t)heads * row;
    const cuuint64_t dims[] = {(cuuint64_t)call->head_dim, (cuuint64_t)heads, (cuuint64_t)call->length,
                               (cuuint64_t)call->batch};
    const cuuint64_t strides[] = {row, place, (cuuint64_t)call->length * place};
    const cuuint32_t box[] = {64, 1, 64, 1}, each[] = {1, 1, 1, 1};
    CUresult code = CUDA_SUCCESS;
    if ((uintptr_t)at % 16 != 0)
        return weft_error_set(
            err, WEFT_E_UNSUPPORTED,
            "attention on device cuda: operand %s does not begin at a multiple of 16 bytes; attention = "
            "split allows that.",
            name);
    code = device->libraries.cuTensorMapEncodeTiled(
        out, call->dtype == WEFT_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
        (void *)(uintptr_t)at, dims, strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return cuda_judge_driver_call(device, code, "cuTensorMapEncodeTiled", "describing the operands of attention", err);
}

static weft_status by_hopper(weft_device *device, cudaStream_t stream, const attention_call *call, bool backward,
                             weft_error *err) {
    attention_maps maps = {0};
    weft_status status = WEFT_OK;
    if (call->batch == 0 || call->length == 0) return WEFT_OK;
    if (!cuda_is_dry()) {
        status = describe_rows(&maps.q, device, call, "q", call->q, call->heads, err);
        if (status == WEFT_OK) status = describe_rows(&maps.k, device, call, "k", call->k, call->kv_heads, err);
        if (status == WEFT_OK) status = describe_rows(&maps.v, device, call, "v", call->v, call->kv_heads, err);
        if (status == WEFT_OK && backward)
            status = describe_rows(&maps.d_o, device, call, "d_o", call->d_o, call->heads, err);
    }
    if (status != WEFT_OK) return status;
    return cuda_judge(backward ? attention_backward_hopper_launch(call, &maps, stream)
                               : attention_forward_hopper_launch(call, &maps, stream),
                      backward ? "attention_backward" : "attention", err);
}

CUDA_KERNEL(attention, weft_attention) {
    operands c = OPERANDS("attention", weft_attention, args, err);
    const cudaStream_t stream = cuda_stream(device, s);
    attention_call call;
    weft_status status = prepare(&c, args, &call, false);
    if (status == WEFT_OK && cuda_cudnn_makes(device, args)) return by_cudnn(&c, device, stream, args, &call);
    if (status == WEFT_OK && is_for_hopper(device, args, &call)) return by_hopper(device, stream, &call, false, err);
    if (status == WEFT_OK) status = cuda_judge(attention_append_launch(&call, stream), "attention", err);
    if (status != WEFT_OK) return status;
    return cuda_judge(call.length == 1 ? attention_decode_launch(&call, stream)
                                       : attention_forward_launch(&call, stream),
                      "attention", err);
}

int64_t cuda_attention_backward_workspace(const weft_device *device, const weft_attention *args) {
    const int64_t numbers = size_times(args->batch, size_times(args->heads, args->length));
    (void)device;
    return numbers < 0 ? 0 : size_max(0, size_times(numbers, (int64_t)sizeof(float)));
}

CUDA_KERNEL(attention_backward, weft_attention) {
    operands c = OPERANDS("attention_backward", weft_attention, args, err);
    const cudaStream_t stream = cuda_stream(device, s);
    attention_call call;
    cudaError_t code = cudaSuccess;
    if (prepare(&c, args, &call, true) != WEFT_OK) return c.status;
    call.delta = operands_need_workspace(&c, args->workspace, cuda_attention_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    code = attention_delta_launch(&call, stream);
    if (code == cudaSuccess && is_for_hopper(device, args, &call)) return by_hopper(device, stream, &call, true, err);
    if (code == cudaSuccess) code = attention_backward_queries_launch(&call, stream);
    if (code == cudaSuccess) code = attention_backward_keys_launch(&call, stream);
    return cuda_judge_call(code, "a launch", "attention_backward", err);
}
