/* prefix.c: kernel-table slots of attention to a prefix and its backward. */
#include "prefix.h"
#include "workspace.h"

static prefix_call prefix_of(const weft_prefix *args) {
    const prefix_call call = {.rows = args->batch * args->length,
                              .length = args->length,
                              .heads = args->heads,
                              .kv_heads = args->kv_heads,
                              .head_dim = args->head_dim,
                              .places = args->places,
                              .half = args->rotary_dim / 2,
                              .scale = (float)args->scale,
                              .join = args->join != 0,
                              .accumulate_dq = args->accumulate_dq != 0,
                              .dtype = args->dtype};
    return call;
}

static void check_prefix(operands *c, const weft_prefix *args) {
    operands_prefix(c, args);
    if (c->status != WEFT_OK || (args->head_dim <= PREFIX_HEAD && size_times(args->batch, args->length) >= 0)) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "%s on device cuda: heads have %lld elements; at most %d are served with a prefix.",
                               c->kernel, (long long)args->head_dim, PREFIX_HEAD);
}

static weft_status look_up_prefix(prefix_call *call, operands *c, const weft_prefix *args, bool backward) {
    int64_t bytes = 0, q_width = 0, k_width = 0;
    if (c->status != WEFT_OK) return c->status;
    bytes = operands_dtype(c, "dtype", args->dtype);
    check_prefix(c, args);
    if (c->status != WEFT_OK) return c->status;
    *call = prefix_of(args);
    q_width = args->heads * args->head_dim;
    k_width = args->kv_heads * args->head_dim;
    call->q = operands_need(c, args->q, "q", call->rows, q_width, bytes);
    call->k = operands_need(c, args->k, "k", args->places, k_width, bytes);
    call->v = operands_need(c, args->v, "v", args->places, k_width, bytes);
    call->turn = operands_may(c, args->turn, "turn", args->rotary_dim, 1, 4);
    call->o = operands_need(c, args->o, "o", call->rows, q_width, bytes);
    call->lse = backward || args->join ? operands_need(c, args->lse, "lse", call->rows, args->heads, 4)
                                       : operands_may(c, args->lse, "lse", call->rows, args->heads, 4);
    return c->status;
}

int64_t cuda_prefix_workspace(const weft_device *device, const weft_prefix *args) {
    (void)device;
    (void)args;
    return 0;
}

CUDA_KERNEL(prefix, weft_prefix) {
    operands c = OPERANDS("prefix", weft_prefix, args, err);
    prefix_call call;
    if (look_up_prefix(&call, &c, args, false) != WEFT_OK) return c.status;
    return cuda_judge(prefix_launch(&call, cuda_stream(device, s)), "prefix", err);
}

static int64_t lay_out_prefix(room r, prefix_call *call) {
    const int64_t pairs = call->rows * call->heads * call->places * 4;
    const int64_t runs = prefix_runs(call->rows) * call->places * call->kv_heads * call->head_dim * 4;
    call->weights = room_take(&r, pairs);
    call->slopes = room_take(&r, pairs);
    call->key_runs = room_take(&r, runs);
    call->value_runs = room_take(&r, runs);
    return room_bytes(&r);
}

int64_t cuda_prefix_backward_workspace(const weft_device *device, const weft_prefix *args) {
    prefix_call call = prefix_of(args);
    (void)device;
    return lay_out_prefix(room_at(NULL), &call);
}

CUDA_KERNEL(prefix_backward, weft_prefix) {
    operands c = OPERANDS("prefix_backward", weft_prefix, args, err);
    const int64_t bytes = cell_bytes(args->dtype);
    void *workspace = NULL;
    prefix_call call;
    if (look_up_prefix(&call, &c, args, true) != WEFT_OK) return c.status;
    call.d_o = operands_need(&c, args->d_o, "d_o", call.rows, args->heads * args->head_dim, bytes);
    call.dq = operands_may(&c, args->dq, "dq", call.rows, args->heads * args->head_dim, bytes);
    call.dk = operands_need(&c, args->dk, "dk", args->places, args->kv_heads * args->head_dim, bytes);
    call.dv = operands_need(&c, args->dv, "dv", args->places, args->kv_heads * args->head_dim, bytes);
    workspace = operands_need_workspace(&c, args->workspace, cuda_prefix_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)lay_out_prefix(room_at(workspace), &call);
    return cuda_judge(prefix_backward_launch(&call, cuda_stream(device, s)), "prefix_backward", err);
}
