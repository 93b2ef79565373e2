/* head.c: kernel-table slots of the head: logits, cross-entropy and its gradients, in chunks of rows.
 *
 * A chunk's logits are in the workspace (at most LOGITS bytes for any number of rows, but at least one row). They
 * become each row's loss and then, in place, the gradient. From the gradient follow dx's rows and a term of dw. Chunks
 * run in order, so dw is one chain of additions; with accumulate, dw is first summed in the workspace. Chunks are large
 * because each one reads and writes all of dw. A row of zero weight is replaced by zeros, so that a NaN in it does not
 * spread. */
#include "head.h"
#include "add.h"
#include "row_sums.h"
#include "workspace.h"

#define LOGITS   ((int64_t)1 << 30)
#define MAX_ROWS 2048

typedef struct head {
    weft_device *device;
    const weft_head *args;
    const char *kernel;
    cudaStream_t stream;
    bool grad;
    int64_t chunk, ld; /* rows per chunk; row distance of the logits */
    int64_t bytes;     /* per element of x, w and dx */
    const void *x, *w;
    const float *weights, *bias, *seed; /* bias, seed: may be NULL */
    const int32_t *targets;
    double *loss;
    void *dx;
    float *dw, *dbias;
    /* in the workspace */
    double *losses; /* (R) */
    void *rows;     /* (chunk, D), as x */
    float *logits;  /* (chunk, ld) */
    float *whole;   /* (V,D) if dw is accumulated */
    float *columns; /* (V), with a bias: its gradient */
    float *runs;    /* partial sums of the bias gradient */
    void *scratch;  /* for the matmuls */
} head;

static head head_of(const weft_device *device, const weft_head *args, const char *kernel, bool grad) {
    head h = {.device = (weft_device *)(uintptr_t)device, .args = args, .kernel = kernel, .grad = grad};
    h.bytes = cell_bytes(args->dtype);
    h.ld = size_round_up(size_min(size_max(args->vocab, 1), OPERANDS_SIZE_LIMIT), 16);
    h.chunk = size_min(MAX_ROWS, LOGITS / 4 / h.ld);
    h.chunk = h.chunk >= 128 ? h.chunk / 128 * 128 : size_max(h.chunk, 1);
    h.chunk = size_min(h.chunk, size_max(args->rows, 1));
    return h;
}

/* Returns the row distance of the gradient, in its own elements. It overwrites the logits. */
static int64_t gradient_ld(const head *h) {
    return h->ld * (int64_t)sizeof(float) / h->bytes;
}

/* Returns the gradient: the second half of each row of logits, or all of it. */
static const void *gradient_of(const head *h) {
    const int64_t before = h->ld * ((int64_t)sizeof(float) - h->bytes);
    return h->logits == NULL ? NULL : (const char *)h->logits + before;
}

/* For n rows of the chunk: logits = x w^T, dx = dlogits w, dw (+)= dlogits^T x. */
static cuda_product logits_of(const head *h, int64_t n) {
    const int64_t d = h->args->width;
    const cuda_product p = {.a = h->rows,
                            .b = h->w,
                            .c = h->logits,
                            .m = n,
                            .n = h->args->vocab,
                            .k = d,
                            .lda = d,
                            .ldb = d,
                            .ldc = h->ld,
                            .dtype_a = h->args->dtype,
                            .dtype_b = h->args->dtype,
                            .dtype_c = WEFT_F32,
                            .transpose_b = 1,
                            .workspace = h->scratch};
    return p;
}
static cuda_product dx_of(const head *h, int64_t n, void *dx) {
    const int64_t d = h->args->width;
    const cuda_product p = {.a = gradient_of(h),
                            .b = h->w,
                            .c = dx,
                            .m = n,
                            .n = d,
                            .k = h->args->vocab,
                            .lda = gradient_ld(h),
                            .ldb = d,
                            .ldc = d,
                            .dtype_a = h->args->dtype,
                            .dtype_b = h->args->dtype,
                            .dtype_c = h->args->dtype,
                            .workspace = h->scratch};
    return p;
}
static cuda_product dw_of(const head *h, int64_t n, float *dw, bool first) {
    const int64_t d = h->args->width;
    const cuda_product p = {.a = gradient_of(h),
                            .b = h->rows,
                            .c = dw,
                            .m = h->args->vocab,
                            .n = d,
                            .k = n,
                            .lda = gradient_ld(h),
                            .ldb = d,
                            .ldc = d,
                            .dtype_a = h->args->dtype,
                            .dtype_b = h->args->dtype,
                            .dtype_c = WEFT_F32,
                            .transpose_a = 1,
                            .accumulate = !first,
                            .workspace = h->scratch};
    return p;
}

/* ---- workspace ---- */

/* Returns the largest scratch size of the matmuls of an n-row chunk. */
static int64_t product_scratch(const head *h, int64_t n) {
    const cuda_product logits = logits_of(h, n), dx = dx_of(h, n, NULL), first = dw_of(h, n, NULL, true);
    const cuda_product next = dw_of(h, n, NULL, false);
    int64_t bytes = cuda_product_workspace(h->device, &logits);
    if (!h->grad) return bytes;
    bytes = size_max(bytes, cuda_product_workspace(h->device, &dx));
    bytes = size_max(bytes, cuda_product_workspace(h->device, &first));
    return h->args->rows > h->chunk ? size_max(bytes, cuda_product_workspace(h->device, &next)) : bytes;
}

/* Lays out the workspace, or computes its size. Ignores refs: reserves the complete dw if dw would be accumulated, and
 * the bias gradient if there is a bias. */
static int64_t lay_out_head(room r, head *h) {
    const int64_t v = h->args->vocab, d = h->args->width, last = h->args->rows % h->chunk;
    const bool has_columns = h->grad && h->args->has_bias;
    h->losses = room_take(&r, h->args->rows * 8);
    h->rows = room_take(&r, h->chunk * d * h->bytes);
    h->logits = room_take(&r, h->chunk * h->ld * 4);
    h->whole = room_take(&r, h->grad && h->args->accumulate_dw ? v * d * 4 : 0);
    h->columns = room_take(&r, has_columns ? v * 4 : 0);
    h->runs = room_take(&r, has_columns ? row_sums_runs(h->chunk) * RUNS_DISTANCE(v) * 4 : 0);
    h->scratch = room_take(&r, size_max(product_scratch(h, h->chunk), last > 0 ? product_scratch(h, last) : 0));
    return room_bytes(&r);
}

static int64_t head_workspace_bytes(const weft_device *device, const weft_head *args, bool grad) {
    head h = {0};
    if (args->rows <= 0 || args->width <= 0 || args->vocab <= 0) return 0;
    h = head_of(device, args, "", grad);
    return lay_out_head(room_at(NULL), &h);
}

int64_t cuda_head_loss_workspace(const weft_device *device, const weft_head *args) {
    return head_workspace_bytes(device, args, false);
}
int64_t cuda_head_loss_grad_workspace(const weft_device *device, const weft_head *args) {
    return head_workspace_bytes(device, args, true);
}

static weft_status head_look_up(head *h, weft_error *err) {
    const weft_head *args = h->args;
    operands c = OPERANDS(h->kernel, weft_head, args, err);
    void *base = NULL;
    if (c.status != WEFT_OK) return c.status;
    (void)operands_dtype(&c, "dtype", args->dtype);
    operands_size(&c, "rows", args->rows, 0);
    operands_size(&c, "width", args->width, 1);
    operands_size(&c, "vocab", args->vocab, 1);
    if (c.status != WEFT_OK) return c.status;
    h->x = operands_need(&c, args->x, "x", args->rows, args->width, h->bytes);
    h->w = operands_need(&c, args->w, "w", args->vocab, args->width, h->bytes);
    h->targets = operands_need(&c, args->targets, "targets", args->rows, 1, 4);
    h->weights = operands_need(&c, args->weights, "weights", args->rows, 1, 4);
    h->loss = operands_need(&c, args->loss, "loss", 1, 1, 8);
    if (args->has_bias) h->bias = operands_need(&c, args->bias, "bias", args->vocab, 1, 4);
    if (h->grad && args->has_bias) h->dbias = operands_may(&c, args->dbias, "dbias", args->vocab, 1, 4);
    if (h->grad) h->seed = operands_may(&c, args->seed, "seed", 1, 1, 4);
    if (h->grad) h->dx = operands_may(&c, args->dx, "dx", args->rows, args->width, h->bytes);
    if (h->grad) h->dw = operands_may(&c, args->dw, "dw", args->vocab, args->width, 4);
    if (c.status != WEFT_OK) return c.status;
    base = operands_need_workspace(&c, args->workspace, head_workspace_bytes(h->device, args, h->grad));
    if (c.status == WEFT_OK && base != NULL) (void)lay_out_head(room_at(base), h);
    return c.status;
}

/* ---- one chunk ---- */

static const void *row_of(const void *base, int64_t r, int64_t bytes) {
    return base == NULL ? NULL : (const char *)base + r * bytes;
}

static head_chunk chunk_of(const head *h, int64_t r0, int64_t n) {
    const int64_t row = h->args->width * h->bytes;
    const head_chunk c = {.x = row_of(h->x, r0, row),
                          .rows = h->rows,
                          .dx = h->dx == NULL ? NULL : (char *)h->dx + r0 * row,
                          .logits = h->logits,
                          .loss = h->losses + r0,
                          .bias = h->bias,
                          .targets = h->targets + r0,
                          .weights = h->weights + r0,
                          .seed = h->seed,
                          .n = n,
                          .width = h->args->width,
                          .vocab = h->args->vocab,
                          .ld = h->ld,
                          .scale = (float)h->args->scale,
                          .cap = (float)h->args->cap,
                          .grad = h->grad,
                          .dtype = h->args->dtype};
    return c;
}

/* Adds the chunk's rows to the bias gradient. */
static weft_status chunk_columns(const head *h, int64_t n, bool first, weft_error *err) {
    const row_sums_call call = {.out = h->columns,
                                .runs = h->runs,
                                .x = gradient_of(h),
                                .rows = n,
                                .width = h->args->vocab,
                                .ld = gradient_ld(h),
                                .accumulate = !first,
                                .dtype = h->args->dtype};
    return cuda_judge(row_sums_launch(&call, h->stream), h->kernel, err);
}

/* Computes dx's rows of the chunk and adds its terms to dw and dbias. */
static weft_status chunk_gradients(const head *h, const head_chunk *c, bool first, weft_error *err) {
    weft_status status = WEFT_OK;
    if (h->dbias != NULL) status = chunk_columns(h, c->n, first, err);
    if (status == WEFT_OK && h->dx != NULL) {
        const cuda_product p = dx_of(h, c->n, c->dx);
        status = cuda_product_run(h->device, h->stream, &p, err);
        if (status == WEFT_OK) status = cuda_judge(head_clear_launch(c, h->stream), h->kernel, err);
    }
    if (status == WEFT_OK && h->dw != NULL) {
        const cuda_product p = dw_of(h, c->n, h->whole != NULL ? h->whole : h->dw, first);
        status = cuda_product_run(h->device, h->stream, &p, err);
    }
    return status;
}

static weft_status chunk_run(const head *h, int64_t r0, int64_t n, weft_error *err) {
    const head_chunk c = chunk_of(h, r0, n);
    const cuda_product p = logits_of(h, n);
    weft_status status = cuda_judge(head_rows_launch(&c, h->stream), h->kernel, err);
    if (status == WEFT_OK) status = cuda_product_run(h->device, h->stream, &p, err);
    if (status == WEFT_OK) status = cuda_judge(head_losses_launch(&c, h->stream), h->kernel, err);
    return status == WEFT_OK && h->grad ? chunk_gradients(h, &c, r0 == 0, err) : status;
}

/* ---- all chunks ---- */

/* out = or += n sums. With zero rows the sums count as zeros. */
static weft_status finish_sums(const head *h, float *out, const float *sums, int64_t n, bool accumulate,
                               weft_error *err) {
    const add_call added = {.y = out, .a = out, .b = sums, .n = n};
    const int64_t bytes = n * (int64_t)sizeof *out;
    if (out == NULL || out == sums || (h->args->rows == 0 && accumulate)) return WEFT_OK;
    if (h->args->rows == 0) return cuda_judge(cuda_clear(out, bytes, h->stream), h->kernel, err);
    if (accumulate) return cuda_judge(add_launch(&added, h->stream), h->kernel, err);
    return cuda_judge(cuda_move(out, sums, bytes, cudaMemcpyDeviceToDevice, h->stream), h->kernel, err);
}

static weft_status head_run(head *h, weft_error *err) {
    const int64_t rows = h->args->rows, v = h->args->vocab;
    int64_t r0 = 0;
    weft_status status = head_look_up(h, err);
    for (r0 = 0; r0 < rows && status == WEFT_OK; r0 += h->chunk)
        status = chunk_run(h, r0, size_min(h->chunk, rows - r0), err);
    if (status == WEFT_OK) status = cuda_judge(head_total_launch(h->loss, h->losses, rows, h->stream), h->kernel, err);
    if (status == WEFT_OK && (h->whole != NULL || rows == 0))
        status = finish_sums(h, h->dw, h->whole, v * h->args->width, h->args->accumulate_dw != 0, err);
    if (status == WEFT_OK) status = finish_sums(h, h->dbias, h->columns, v, h->args->accumulate_dbias != 0, err);
    return status;
}

CUDA_KERNEL(head_loss, weft_head) {
    head h = head_of(device, args, "head_loss", false);
    h.stream = cuda_stream(device, s);
    return head_run(&h, err);
}

CUDA_KERNEL(head_loss_grad, weft_head) {
    head h = head_of(device, args, "head_loss_grad", true);
    h.stream = cuda_stream(device, s);
    return head_run(&h, err);
}
