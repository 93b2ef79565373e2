/* sums.c: square_sum and clip, both in fp64.
 *
 * The pairwise tree is cut at a power of two: SPAN blocks, aligned to SPAN, are a separate sub-tree. The last span is
 * one too, where an odd block moves up as it would in the complete tree. Spans can therefore be summed in parallel, and
 * the rest is the same tree over the spans. */
#include <math.h>

#include "cpu.h"

#define BLOCK 64   /* elements summed in order */
#define SPAN  1024 /* blocks per sub-tree */

static int64_t spans_of(int64_t n) {
    return size_ceil_div(size_ceil_div(size_max(n, 0), BLOCK), SPAN);
}

int64_t cpu_square_sum_workspace(const weft_device *device, const weft_square_sum *args) {
    (void)device;
    if (args->dtype == WEFT_F64) return size_max(args->n, 0) * (int64_t)sizeof(double);
    if (args->cell > 0) return 0;
    return spans_of(args->n) * (int64_t)sizeof(double);
}

/* Sums n values in pairs, in place. */
static double sum_by_neighbours(double *v, int64_t n) {
    int64_t i = 0;
    if (n == 0) return 0;
    for (; n > 1; n = (n + 1) / 2) {
        for (i = 0; i < n / 2; i++) v[i] = v[2 * i] + v[2 * i + 1];
        if (n % 2 != 0) v[n / 2] = v[n - 1];
    }
    return v[0];
}

static double span_sum(const weft_device *device, const float *x, int64_t n) {
    double sums[SPAN];
    const int64_t whole = n / BLOCK;
    int64_t i = 0;
    device->loops->square_blocks(sums, x, whole);
    if (n % BLOCK == 0) return sum_by_neighbours(sums, whole);
    sums[whole] = 0;
    for (i = whole * BLOCK; i < n; i++) sums[whole] += (double)x[i] * (double)x[i];
    return sum_by_neighbours(sums, whole + 1);
}

/* Sums n elements by the tree; sums: scratch for its spans. */
static double whole_sum(const weft_device *device, const float *x, int64_t n, double *sums) {
    const int64_t spans = spans_of(n);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < spans; i++) {
        const int64_t at = i * SPAN * BLOCK;
        sums[i] = span_sum(device, x + at, size_min(SPAN * BLOCK, n - at));
    }
    return sum_by_neighbours(sums, spans);
}

/* Sums existing sums by the tree. */
static double sum_nodes(const double *x, int64_t n, double *sums) {
    if (n > 0) memcpy(sums, x, (size_t)n * sizeof *sums);
    return sum_by_neighbours(sums, n);
}

/* Operands of a call. Without a table, one extent covers x. */
typedef struct squares {
    const void *x;
    double *out, *sums;
    const char *extents; /* rows `stride` bytes apart: a host with a later SDK may have longer ones */
    int64_t n_extents, stride, cell;
    weft_extent all;
} squares;

static const weft_extent *extent_at(const squares *q, int64_t i) {
    return (const weft_extent *)(const void *)(q->extents + i * q->stride);
}

static int64_t sums_of(const squares *q, const weft_extent *e) {
    return q->cell > 0 ? size_ceil_div(e->length, q->cell) : 1;
}

static void check_cell(operands *c, const weft_square_sum *args) {
    const int64_t blocks = args->cell / BLOCK;
    if (c->status != WEFT_OK || args->cell == 0) return;
    if (args->dtype != WEFT_F64 && args->cell % BLOCK == 0 && args->cell > 0 && blocks <= SPAN &&
        (blocks & (blocks - 1)) == 0) {
        return;
    }
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device cpu: cells of %lld elements; 64 * 2^k are possible, at most %d, of fp32.",
                               c->kernel, (long long)args->cell, SPAN * BLOCK);
}

static void look_up_extents(squares *q, operands *c, const weft_square_sum *args) {
    q->stride = args->extent_stride;
    q->n_extents = args->n_extents;
    q->extents = operands_need_rows(c, args->extents, "extents", args->n_extents, args->extent_stride,
                                    WEFT_SIZE_1_0(weft_extent));
}

/* Looks up the operands up to the end of the extents. */
static void look_up_squares(squares *q, operands *c, const weft_device *device, const weft_square_sum *args) {
    const int64_t size = args->dtype == WEFT_F64 ? 8 : 4;
    int64_t elements = 0, sums = 0, all = 0, i = 0;
    q->all = (weft_extent){(uint32_t)sizeof q->all, 0, 0, args->n, 0};
    q->extents = (const char *)&q->all;
    q->n_extents = 1;
    q->stride = (int64_t)sizeof q->all;
    q->cell = args->cell;
    operands_size(c, "n", args->n, 0);
    operands_size(c, "n_extents", args->n_extents, 0);
    check_cell(c, args);
    if (args->extents.buffer != NULL) look_up_extents(q, c, args);
    for (i = 0; c->status == WEFT_OK && i < q->n_extents; i++) {
        const weft_extent *e = extent_at(q, i);
        operands_size(c, "extents[].offset", e->offset, 0);
        operands_size(c, "extents[].out", e->out, 0);
        operands_size(c, "extents[].length", e->length, 0);
        if (c->status != WEFT_OK) return;
        all += e->length;
        elements = size_max(elements, e->offset + e->length);
        sums = size_max(sums, e->out + sums_of(q, e));
    }
    if (c->status == WEFT_OK && all > args->n)
        c->status = weft_error_set(c->err, WEFT_E_HOST, "%s on device cpu: extents of %lld elements, and n is %lld.",
                                   c->kernel, (long long)all, (long long)args->n);
    q->x = operands_need(c, args->x, "x", elements, 1, size);
    q->out = operands_need(c, args->out, "out", sums, 1, 8);
    q->sums = operands_need_workspace(c, args->workspace, cpu_square_sum_workspace(device, args));
}

static void sum_cells(const weft_device *device, const squares *q) {
#pragma omp parallel num_threads(device->threads)
    for (int64_t k = 0; k < q->n_extents; k++) {
        const weft_extent *e = extent_at(q, k);
        const float *x = (const float *)q->x + e->offset;
        const int64_t cells = sums_of(q, e);
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < cells; i++) {
            q->out[e->out + i] = span_sum(device, x + i * q->cell, size_min(q->cell, e->length - i * q->cell));
        }
    }
}

CPU_KERNEL(square_sum, weft_square_sum) {
    operands c = OPERANDS("square_sum", weft_square_sum, args, err);
    squares q;
    int64_t k = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    look_up_squares(&q, &c, device, args);
    if (c.status != WEFT_OK) return c.status;
    if (q.cell > 0) sum_cells(device, &q);
    for (k = 0; q.cell == 0 && k < q.n_extents; k++) {
        const weft_extent *e = extent_at(&q, k);
        q.out[e->out] = args->dtype == WEFT_F64 ? sum_nodes((const double *)q.x + e->offset, e->length, q.sums)
                                                : whole_sum(device, (const float *)q.x + e->offset, e->length, q.sums);
    }
    return WEFT_OK;
}

CPU_KERNEL(clip, weft_clip) {
    operands c = OPERANDS("clip", weft_clip, args, err);
    const double *sums = NULL, *count = NULL;
    const float *seed = NULL;
    double *norm = NULL, total = 0, factor = 0, all = 0;
    float *coefficient = NULL;
    int32_t *skip = NULL;
    int64_t i = 0;
    (void)device, (void)s;
    if (c.status != WEFT_OK) return c.status;
    sums = operands_need(&c, args->square_sums, "square_sums", args->n, 1, 8);
    count = operands_need(&c, args->count, "count", 1, 1, 8);
    norm = operands_need(&c, args->norm, "norm", 1, 1, 8);
    coefficient = operands_need(&c, args->coefficient, "coefficient", 1, 1, 4);
    skip = operands_need(&c, args->skip, "skip", 1, 1, 4);
    seed = operands_may(&c, args->seed, "seed", 1, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    for (i = 0; i < args->n; i++) total += sums[i];
    all = seed == NULL ? *count : *count * (double)*seed;
    *norm = sqrt(total) / all;
    *skip = !isfinite(*norm);
    factor = args->clip > 0 ? fmin(1.0, args->clip / (*norm + 1e-6)) : 1.0;
    *coefficient = *skip ? 0.0f : (float)(factor / all);
    return WEFT_OK;
}
