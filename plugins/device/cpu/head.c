/* head.c: the head: logits, cross-entropy and its gradients, in chunks of rows.
 *
 * A chunk's logits are in the workspace (at most LOGITS bytes for any number of rows, but at least one row). They
 * become each row's loss and then, in place, the gradient. From the gradient follow dx's rows and a term of dw. Chunks
 * run in order, so dw is one chain of additions; with accumulate, dw is first summed in the workspace. In bf16 and fp16
 * the logits are fp32. Their gradient, an operand of two matmuls, is rounded into the first half of its row. A soft
 * cap's slopes are kept in one row per thread, since the logits are overwritten. A row of zero weight is replaced by
 * zeros, so that a NaN in it does not spread. */
#include <math.h>
#include <omp.h>

#include "product.h"

#define LOGITS   ((int64_t)32 << 20)
#define MAX_ROWS 1024
#define COLUMNS  1024 /* of the bias gradient that a thread sums at a time */

typedef struct head {
    const weft_device *device;
    const weft_head *args;
    const char *kernel;
    bool grad;
    int64_t chunk, ld; /* rows per chunk; row distance of the logits, never a power of two (cache conflicts) */
    int64_t bytes;     /* per element of x, w and dx */
    const void *x, *w;
    const float *weights, *bias, *seed; /* bias, seed: may be NULL */
    const int32_t *targets;
    double *loss;
    void *dx;
    float *dw, *dbias;
    /* in the workspace */
    double *row_loss; /* (chunk) */
    void *rows;       /* (chunk, D), as x */
    float *logits;    /* (chunk, ld) */
    float *whole;     /* (V,D) if dw is accumulated */
    float *columns;   /* (V), with a bias: its gradient */
    float *slopes;    /* (threads, V), with a cap */
    void *scratch;    /* for the matmuls */
} head;

static head head_of(const weft_device *device, const weft_head *args, const char *kernel, bool grad) {
    head h = {.device = device, .args = args, .kernel = kernel, .grad = grad};
    h.bytes = cpu_cell_bytes(args->dtype);
    h.ld = size_round_up(size_min(size_max(args->vocab, 1), OPERANDS_SIZE_LIMIT), 16) + 16;
    h.chunk = size_min(MAX_ROWS, LOGITS / 4 / h.ld);
    h.chunk = h.chunk >= 16 ? h.chunk / 16 * 16 : size_max(h.chunk, 1);
    h.chunk = size_min(h.chunk, size_max(args->rows, 1));
    return h;
}

/* For n rows of the chunk: logits = x w^T, dx = dlogits w, dw (+)= dlogits^T x. */
static product logits_of(const head *h, int64_t n) {
    const int64_t d = h->args->width, v = h->args->vocab;
    const product p = {.a = h->rows,
                       .b = h->w,
                       .c = h->logits,
                       .m = n,
                       .n = v,
                       .k = d,
                       .lda = d,
                       .ldb = d,
                       .ldc = h->ld,
                       .transpose_b = true,
                       .mode = PRODUCT_SET,
                       .dtype = h->args->dtype,
                       .dtype_c = WEFT_F32};
    return p;
}
/* Returns the row distance of the gradient, in its own elements. It overwrites the logits. */
static int64_t gradient_ld(const head *h) {
    return h->ld * (int64_t)sizeof(float) / h->bytes;
}
static product dx_of(const head *h, int64_t n, void *dx) {
    const int64_t d = h->args->width, v = h->args->vocab;
    const product p = {.a = h->logits,
                       .b = h->w,
                       .c = dx,
                       .m = n,
                       .n = d,
                       .k = v,
                       .lda = gradient_ld(h),
                       .ldb = d,
                       .ldc = d,
                       .mode = PRODUCT_SET,
                       .dtype = h->args->dtype,
                       .dtype_c = h->args->dtype};
    return p;
}
static product dw_of(const head *h, int64_t n, float *dw, bool first) {
    const int64_t d = h->args->width, v = h->args->vocab;
    const product p = {.a = h->logits,
                       .b = h->rows,
                       .c = dw,
                       .m = v,
                       .n = d,
                       .k = n,
                       .lda = gradient_ld(h),
                       .ldb = d,
                       .ldc = d,
                       .transpose_a = true,
                       .mode = first ? PRODUCT_SET : PRODUCT_CHAIN,
                       .dtype = h->args->dtype,
                       .dtype_c = WEFT_F32};
    return p;
}

/* Returns the largest scratch size of the matmuls of an n-row chunk. */
static int64_t head_product_scratch(const head *h, int64_t n) {
    const product logits = logits_of(h, n), dx = dx_of(h, n, NULL), dw = dw_of(h, n, NULL, false);
    int64_t bytes = product_workspace(h->device, &logits);
    if (h->grad) bytes = size_max(bytes, product_workspace(h->device, &dx));
    if (h->grad) bytes = size_max(bytes, product_workspace(h->device, &dw));
    return bytes;
}

/* Lays out the workspace at base (NULL: size only) and returns its bytes. Ignores refs: reserves the complete dw if dw
 * would be accumulated, and the bias gradient if there is a bias. */
static int64_t head_workspace(head *h, char *base) {
    const int64_t last = h->args->rows % h->chunk, row = cpu_floats(h->args->vocab);
    const int64_t rows = 2 * cpu_floats(h->chunk), x = size_round_up(h->chunk * h->args->width * h->bytes, 64);
    const int64_t logits = cpu_floats(h->chunk * h->ld);
    const int64_t whole = h->grad && h->args->accumulate_dw ? cpu_floats(h->args->vocab * h->args->width) : 0;
    const int64_t columns = h->grad && h->args->has_bias ? row : 0;
    const int64_t slopes = h->grad && h->args->cap > 0 ? h->device->threads * row : 0;
    const int64_t scratch = size_max(head_product_scratch(h, h->chunk), last > 0 ? head_product_scratch(h, last) : 0);
    if (base != NULL) {
        h->row_loss = (double *)(void *)base;
        h->rows = base += rows;
        h->logits = (float *)(void *)(base += x);
        base += logits;
        h->whole = whole > 0 ? (float *)(void *)base : NULL;
        base += whole;
        h->columns = columns > 0 ? (float *)(void *)base : NULL;
        base += columns;
        h->slopes = slopes > 0 ? (float *)(void *)base : NULL;
        h->scratch = base + slopes;
    }
    return rows + x + logits + whole + columns + slopes + scratch;
}

static int64_t head_workspace_bytes(const weft_device *device, const weft_head *args, bool grad) {
    head h = {0};
    if (args->rows <= 0 || args->width <= 0 || args->vocab <= 0) return 0;
    h = head_of(device, args, "", grad);
    return head_workspace(&h, NULL);
}

int64_t cpu_head_loss_workspace(const weft_device *device, const weft_head *args) {
    return head_workspace_bytes(device, args, false);
}
int64_t cpu_head_loss_grad_workspace(const weft_device *device, const weft_head *args) {
    return head_workspace_bytes(device, args, true);
}

static weft_status head_look_up(head *h, weft_error *err) {
    const weft_head *args = h->args;
    operands c = OPERANDS(h->kernel, weft_head, args, err);
    char *base = NULL;
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
    if (h->grad) h->dx = operands_may(&c, args->dx, "dx", args->rows, args->width, h->bytes);
    if (h->grad) h->seed = operands_may(&c, args->seed, "seed", 1, 1, 4);
    if (h->grad) h->dw = operands_may(&c, args->dw, "dw", args->vocab, args->width, 4);
    if (c.status != WEFT_OK) return c.status;
    base = operands_need_workspace(&c, args->workspace, head_workspace_bytes(h->device, args, h->grad));
    cpu_check_indices(&c, "targets", h->targets, h->weights, args->rows, args->vocab);
    if (c.status == WEFT_OK && base != NULL) (void)head_workspace(h, base);
    return c.status;
}

/* Copies x's rows [r0, r0 + n), with zeros for rows without weight; returns false if no row has weight. */
static bool copy_rows_that_count(const head *h, int64_t r0, int64_t n) {
    const int64_t row = h->args->width * h->bytes;
    bool any = false;
    int64_t i = 0;
    for (i = 0; i < n; i++) {
        const bool counts = h->weights[r0 + i] != 0;
        any = any || counts;
        if (counts) {
            memcpy(cpu_at(h->rows, i, row), cpu_from(h->x, r0 + i, row), (size_t)row);
        } else {
            memset(cpu_at(h->rows, i, row), 0, (size_t)row);
        }
    }
    return any;
}

/* Finishes the logits of the matmul and computes the cap's slopes; slope NULL: not needed, or no cap. */
static void finish_logits(const head *h, float *row, float *slope) {
    const cpu_loops *loops = h->device->loops;
    const int64_t v = h->args->vocab;
    if (h->bias != NULL) loops->f32.add(row, row, h->bias, v);
    if (h->args->scale != 0) loops->scale(row, v, (float)h->args->scale);
    if (h->args->cap > 0) loops->cap(row, slope, v, (float)h->args->cap);
}

/* Converts a row of exp(x - max) in place to weight * seed * (exp(x - max) / sum - [target]), then to the gradient of
 * the matmul's logits. */
static void row_gradient(const head *h, float *row, const float *slope, int64_t target, float weight, double sum) {
    const cpu_loops *loops = h->device->loops;
    const int64_t v = h->args->vocab;
    const float times = h->seed != NULL ? weight * *h->seed : weight;
    loops->scale(row, v, (float)((double)times / sum));
    row[target] -= times;
    if (slope != NULL) loops->multiply(row, slope, v);
    if (h->args->scale != 0) loops->scale(row, v, (float)h->args->scale);
    if (h->bytes < (int64_t)sizeof *row) cpu_cells_of(h->device, h->args->dtype)->put(row, row, v, 0);
}

/* Computes a row's loss from its logits; replaces them by their gradient if requested. */
static double row_loss(const head *h, float *logits, float *slope, int64_t r) {
    const float weight = h->weights[r];
    const int64_t v = h->args->vocab;
    double sum = 0;
    float max = 0, target = 0;
    if (weight == 0) {
        if (h->grad) memset(logits, 0, (size_t)(v * h->bytes));
        return 0;
    }
    finish_logits(h, logits, slope);
    target = logits[h->targets[r]];
    h->device->loops->exp_row(logits, v, h->grad, &max, &sum);
    if (h->grad) row_gradient(h, logits, slope, h->targets[r], weight, sum);
    return (double)weight * ((double)max + log(sum) - (double)target);
}

static float *own_gradients(const head *h) {
    return cpu_at(h->slopes, omp_get_thread_num() * cpu_floats(h->args->vocab), 1);
}

static void chunk_losses(const head *h, int64_t r0, int64_t n) {
    int64_t i = 0;
#pragma omp parallel for schedule(static) num_threads(h->device->threads)
    for (int64_t r = 0; r < n; r++) h->row_loss[r] = row_loss(h, h->logits + r * h->ld, own_gradients(h), r0 + r);
    for (i = 0; i < n; i++) *h->loss += h->row_loss[i];
}

/* Adds the chunk's rows to the bias gradient, in order. */
static void chunk_columns(const head *h, int64_t n) {
    const cpu_cells *cells = cpu_cells_of(h->device, h->args->dtype);
    const int64_t ld = gradient_ld(h), v = h->args->vocab;
#pragma omp parallel for schedule(static) num_threads(h->device->threads)
    for (int64_t at = 0; at < v; at += COLUMNS) {
        for (int64_t r = 0; r < n; r++)
            cells->take(h->columns + at, cpu_from(h->logits, r * ld + at, h->bytes), size_min(COLUMNS, v - at), 1);
    }
}

/* Computes dx's rows of the chunk and adds its terms to dw and dbias. */
static weft_status chunk_gradients(const head *h, int64_t r0, int64_t n, bool first, weft_error *err) {
    const int64_t row = h->args->width * h->bytes;
    weft_status status = WEFT_OK;
    int64_t i = 0;
    if (h->dbias != NULL) chunk_columns(h, n);
    if (h->dx != NULL) {
        const product p = dx_of(h, n, cpu_at(h->dx, r0, row));
        status = product_run(h->device, &p, h->scratch, h->kernel, err);
        for (i = 0; i < n; i++) {
            if (h->weights[r0 + i] == 0) memset(cpu_at(h->dx, r0 + i, row), 0, (size_t)row);
        }
    }
    if (status == WEFT_OK && h->dw != NULL) {
        const product p = dw_of(h, n, h->whole != NULL ? h->whole : h->dw, first);
        status = product_run(h->device, &p, h->scratch, h->kernel, err);
    }
    return status;
}

/* any: some row had weight, so the sum exists. */
static void finish_dw(const head *h, bool any) {
    const int64_t n = h->args->vocab * h->args->width;
    if (h->dw == NULL) return;
    if (!any) {
        if (!h->args->accumulate_dw) memset(h->dw, 0, (size_t)n * sizeof *h->dw);
        return;
    }
    if (h->whole == NULL) return;
#pragma omp parallel for schedule(static) num_threads(h->device->threads)
    for (int64_t i = 0; i < n; i += CPU_GRAIN) {
        h->device->loops->f32.add(h->dw + i, h->dw + i, h->whole + i, size_min(CPU_GRAIN, n - i));
    }
}

static void finish_dbias(const head *h) {
    const int64_t v = h->args->vocab;
    if (h->dbias == NULL) return;
    h->device->loops->f32.put(h->dbias, h->columns, v, h->args->accumulate_dbias);
}

static weft_status head_run(head *h, weft_error *err) {
    const int64_t rows = h->args->rows, row = h->args->width * h->bytes;
    bool any = false;
    int64_t r0 = 0;
    weft_status status = head_look_up(h, err);
    if (status != WEFT_OK) return status;
    *h->loss = 0;
    if (h->dbias != NULL) memset(h->columns, 0, (size_t)h->args->vocab * sizeof *h->columns);
    for (r0 = 0; r0 < rows && status == WEFT_OK; r0 += h->chunk) {
        const int64_t n = size_min(h->chunk, rows - r0);
        product p;
        if (!copy_rows_that_count(h, r0, n)) {
            if (h->dx != NULL) memset(cpu_at(h->dx, r0, row), 0, (size_t)(n * row));
            continue;
        }
        p = logits_of(h, n);
        status = product_run(h->device, &p, h->scratch, h->kernel, err);
        if (status != WEFT_OK) break;
        chunk_losses(h, r0, n);
        if (h->grad) status = chunk_gradients(h, r0, n, !any, err);
        any = true;
    }
    if (status == WEFT_OK && h->grad) finish_dw(h, any);
    if (status == WEFT_OK && h->grad) finish_dbias(h);
    return status;
}

CPU_KERNEL(head_loss, weft_head) {
    head h = head_of(device, args, "head_loss", false);
    (void)s;
    return head_run(&h, err);
}

CPU_KERNEL(head_loss_grad, weft_head) {
    head h = head_of(device, args, "head_loss_grad", true);
    (void)s;
    return head_run(&h, err);
}
