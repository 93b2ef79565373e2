/* embedding.c: kernel-table slots of the embedding lookup and its backward. Ids are in device memory, so the host
 * cannot validate them: an id outside the table yields a row of NaN and adds nothing to the gradient. */
#include "embedding.h"
#include "workspace.h"

/* Row numbers and ids are int32. */
static void check_embedding_sizes(operands *c, const weft_embedding *args) {
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "vocab", args->vocab, 0);
    operands_size(c, "width", args->width, 0);
    if (c->status != WEFT_OK || (args->rows <= INT32_MAX && args->vocab <= INT32_MAX)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device cuda: %lld rows and a table of %lld exceed the limit of 2^31 - 1.",
                               c->kernel, (long long)args->rows, (long long)args->vocab);
}

static embedding_call embedding_call_of(const weft_embedding *args) {
    const embedding_call call = {.rows = args->rows,
                                 .width = args->width,
                                 .vocab = args->vocab,
                                 .dtype = args->dtype,
                                 .dtype_table = args->dtype_table,
                                 .accumulate = args->accumulate != 0,
                                 .padding = args->has_padding ? args->padding : -1};
    return call;
}

CUDA_KERNEL(embedding, weft_embedding) {
    operands c = OPERANDS("embedding", weft_embedding, args, err);
    embedding_call call;
    int64_t bytes = 0, table_bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    check_embedding_sizes(&c, args);
    bytes = operands_dtype(&c, "dtype", args->dtype);
    table_bytes = operands_dtype(&c, "dtype_table", args->dtype_table);
    call = embedding_call_of(args);
    call.ids = operands_need(&c, args->ids, "ids", args->rows, 1, 4);
    call.table = operands_need(&c, args->table, "table", args->vocab, args->width, table_bytes);
    call.y = operands_need(&c, args->y, "y", args->rows, args->width, bytes);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(embedding_launch(&call, cuda_stream(device, s)), "embedding", err);
}

static int64_t lay_out_embedding(room r, const weft_embedding *args, embedding_call *call) {
    call->begin = room_take(&r, (size_max(args->vocab, 0) + 1) * 4);
    call->order = room_take(&r, size_max(args->rows, 0) * 4);
    call->found = room_take(&r, size_max(args->rows, 0) * 4);
    return room_bytes(&r);
}

int64_t cuda_embedding_backward_workspace(const weft_device *device, const weft_embedding *args) {
    embedding_call call = {0};
    (void)device;
    return lay_out_embedding(room_at(NULL), args, &call);
}

CUDA_KERNEL(embedding_backward, weft_embedding) {
    operands c = OPERANDS("embedding_backward", weft_embedding, args, err);
    embedding_call call;
    void *workspace = NULL;
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    check_embedding_sizes(&c, args);
    bytes = operands_dtype(&c, "dtype", args->dtype);
    call = embedding_call_of(args);
    call.ids = operands_need(&c, args->ids, "ids", args->rows, 1, 4);
    call.dy = operands_need(&c, args->dy, "dy", args->rows, args->width, bytes);
    call.dtable = operands_need(&c, args->dtable, "dtable", args->vocab, args->width, 4);
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cuda_embedding_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)lay_out_embedding(room_at(workspace), args, &call);
    return cuda_judge(embedding_backward_launch(&call, cuda_stream(device, s)), "embedding_backward", err);
}
