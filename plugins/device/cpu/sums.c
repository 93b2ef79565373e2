/* sums.c: square_sum and clip, both in fp64.
 *
 * The tree of neighbours is cut at a power of two: SPAN blocks, aligned to SPAN, are a sub-tree of their own, also the
 * last ones, where an odd block moves up as it would in the whole tree. So spans can be summed side by side, and what
 * is left is the same tree over the spans.
 */
#include <math.h>

#include "cpu.h"

#define BLOCK 64   /* elements that are summed in order */
#define SPAN  1024 /* blocks of one sub-tree */

static int64_t spans_of(int64_t n) {
    return cpu_ceil_div(cpu_ceil_div(cpu_max(n, 0), BLOCK), SPAN);
}

int64_t cpu_square_sum_workspace(const weft_device *device, const weft_square_sum *args) {
    (void)device;
    if (args->dtype == WEFT_F64) return cpu_max(args->n, 0) * (int64_t)sizeof(double);
    return spans_of(args->n) * (int64_t)sizeof(double);
}

/* Sums n values by neighbours, in place. */
static double tree(double *v, int64_t n) {
    int64_t i = 0;
    if (n == 0) return 0;
    for (; n > 1; n = (n + 1) / 2) {
        for (i = 0; i < n / 2; i++) v[i] = v[2 * i] + v[2 * i + 1];
        if (n % 2 != 0) v[n / 2] = v[n - 1];
    }
    return v[0];
}

/* Elements x[0..n) of one span. */
static double span_sum(const weft_device *device, const float *x, int64_t n) {
    double sums[SPAN];
    const int64_t whole = n / BLOCK;
    int64_t i = 0;
    device->loops->square_blocks(sums, x, whole);
    if (n % BLOCK == 0) return tree(sums, whole);
    sums[whole] = 0;
    for (i = whole * BLOCK; i < n; i++) sums[whole] += (double)x[i] * (double)x[i];
    return tree(sums, whole + 1);
}

/* The tree over sums that are there already. */
static weft_status sum_nodes(weft_device *device, const weft_square_sum *args, cpu_check *c) {
    const double *x = cpu_need(c, args->x, "x", args->n, 1, 8);
    double *out = cpu_need(c, args->out, "out", 1, 1, 8);
    double *sums = cpu_need_workspace(c, args->workspace, cpu_square_sum_workspace(device, args));
    if (c->status != WEFT_OK) return c->status;
    if (args->n > 0) memcpy(sums, x, (size_t)args->n * sizeof *sums);
    *out = tree(sums, args->n);
    return WEFT_OK;
}

CPU_KERNEL(square_sum, weft_square_sum) {
    cpu_check c = cpu_check_begin("square_sum", args->struct_size, sizeof *args, err);
    int64_t spans = 0;
    const float *x = NULL;
    double *out = NULL, *sums = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    if (args->dtype == WEFT_F64) return sum_nodes(device, args, &c);
    spans = spans_of(args->n);
    x = cpu_need(&c, args->x, "x", args->n, 1, 4);
    out = cpu_need(&c, args->out, "out", 1, 1, 8);
    sums = cpu_need_workspace(&c, args->workspace, cpu_square_sum_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < spans; i++) {
        const int64_t at = i * SPAN * BLOCK;
        sums[i] = span_sum(device, x + at, cpu_min(SPAN * BLOCK, args->n - at));
    }
    *out = tree(sums, spans);
    return WEFT_OK;
}

CPU_KERNEL(clip, weft_clip) {
    cpu_check c = cpu_check_begin("clip", args->struct_size, sizeof *args, err);
    const double *sums = NULL, *count = NULL;
    double *norm = NULL, total = 0, factor = 0;
    float *coefficient = NULL;
    int32_t *skip = NULL;
    int64_t i = 0;
    (void)device, (void)s;
    if (c.status != WEFT_OK) return c.status;
    sums = cpu_need(&c, args->square_sums, "square_sums", args->n, 1, 8);
    count = cpu_need(&c, args->count, "count", 1, 1, 8);
    norm = cpu_need(&c, args->norm, "norm", 1, 1, 8);
    coefficient = cpu_need(&c, args->coefficient, "coefficient", 1, 1, 4);
    skip = cpu_need(&c, args->skip, "skip", 1, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    for (i = 0; i < args->n; i++) total += sums[i];
    *norm = sqrt(total) / *count;
    *skip = !isfinite(*norm);
    factor = args->clip > 0 ? fmin(1.0, args->clip / (*norm + 1e-6)) : 1.0;
    *coefficient = *skip ? 0.0f : (float)(factor / *count);
    return WEFT_OK;
}
