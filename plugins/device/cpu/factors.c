/* factors.c: multiply by factors shared by all rows, its backward, and dropout. */
#include "row_sums.h"

/* Operands of both directions; NULL where absent. */
typedef struct factors {
    const weft_multiply *args;
    const cpu_cells *cells;
    int64_t bytes, part; /* bytes per element; elements per part */
    const void *x, *dy;
    const float *by, *over, *shift;
    void *y, *dx;
    float *dby, *runs;
} factors;

static factors factors_look_up(const weft_device *device, const weft_multiply *args, operands *c) {
    factors f = {.args = args, .cells = cpu_cells_of(device, args->dtype)};
    f.bytes = operands_dtype(c, "dtype", args->dtype);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "width", args->width, 1);
    operands_parts(c, args->parts, args->width);
    if (c->status == WEFT_OK) f.part = args->width / args->parts;
    f.x = operands_need(c, args->x, "x", args->rows, args->width, f.bytes);
    f.by = operands_need(c, args->by, "by", args->parts, 1, 4);
    f.over = operands_may(c, args->over, "over", args->parts, 1, 4);
    f.shift = operands_may(c, args->shift, "shift", args->parts, 1, 4);
    operands_shift(c, args);
    return f;
}

static float factor_of_part(const factors *f, int64_t p) {
    return f->over == NULL ? f->by[p] : f->by[p] / f->over[p];
}

static void multiply_row(const factors *f, int64_t r) {
    const int64_t at = r * f->args->width;
    if (f->part == 1) {
        f->cells->multiply(cpu_at(f->y, at, f->bytes), cpu_from(f->x, at, f->bytes), f->by, f->over, f->shift,
                           f->args->width);
        return;
    }
    for (int64_t p = 0; p < f->args->parts; p++) {
        const int64_t first = at + p * f->part;
        f->cells->scale(cpu_at(f->y, first, f->bytes), cpu_from(f->x, first, f->bytes), f->part, factor_of_part(f, p),
                        0, 0);
    }
}

CPU_KERNEL(multiply, weft_multiply) {
    operands c = OPERANDS("multiply", weft_multiply, args, err);
    factors f;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    f = factors_look_up(device, args, &c);
    f.y = operands_need(&c, args->y, "y", args->rows, args->width, f.bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) multiply_row(&f, r);
    return WEFT_OK;
}

int64_t cpu_multiply_backward_workspace(const weft_device *device, const weft_multiply *args) {
    (void)device;
    return runs_bytes(args->rows, args->parts);
}

static void multiply_row_backward(const factors *f, int64_t r, float *dby) {
    const int64_t at = r * f->args->width;
    const void *dy = cpu_from(f->dy, at, f->bytes), *x = cpu_from(f->x, at, f->bytes);
    void *dx = cpu_at(f->dx, at, f->bytes);
    if (f->part == 1) {
        f->cells->multiply_backward(dx, dby, dy, x, f->by, f->over, f->shift, f->args->width, f->args->accumulate_dx);
        return;
    }
    for (int64_t p = 0; p < f->args->parts; p++) {
        const void *d = cpu_from(dy, p * f->part, f->bytes);
        if (dby != NULL) dby[p] += f->cells->dot(d, cpu_from(x, p * f->part, f->bytes), f->part);
        if (dx != NULL)
            f->cells->scale(cpu_at(dx, p * f->part, f->bytes), d, f->part, factor_of_part(f, p), 0,
                            f->args->accumulate_dx);
    }
}

/* Sums the rows of run i into its own part of the workspace. */
static void multiply_run_backward(const factors *f, int64_t i) {
    const int64_t rows = f->args->rows, n = runs_of(rows), end = cpu_cut(rows, n, i + 1);
    float *dby = f->dby == NULL ? NULL : runs_begin(f->runs, f->args->parts, i);
    for (int64_t r = cpu_cut(rows, n, i); r < end; r++) multiply_row_backward(f, r, dby);
}

CPU_KERNEL(multiply_backward, weft_multiply) {
    operands c = OPERANDS("multiply_backward", weft_multiply, args, err);
    factors f;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    f = factors_look_up(device, args, &c);
    f.dy = operands_need(&c, args->dy, "dy", args->rows, args->width, f.bytes);
    f.dx = operands_may(&c, args->dx, "dx", args->rows, args->width, f.bytes);
    f.dby = operands_may(&c, args->dby, "dby", args->parts, 1, 4);
    f.runs = operands_need_workspace(&c, args->workspace, cpu_multiply_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < runs_of(args->rows); i++) multiply_run_backward(&f, i);
    if (f.dby == NULL) return WEFT_OK;
    if (f.over != NULL && runs_fold(device, f.runs, args->rows, args->parts)) {
        for (int64_t p = 0; p < args->parts; p++) f.runs[p] /= f.over[p];
        device->loops->f32.take(f.dby, f.runs, args->parts, args->accumulate_dby);
    } else {
        runs_add(device, f.dby, f.runs, args->rows, args->parts, args->accumulate_dby != 0);
    }
    return WEFT_OK;
}

/* ---- dropout ---- */

CPU_KERNEL(dropout, weft_dropout) {
    operands c = OPERANDS("dropout", weft_dropout, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const int64_t pieces = size_ceil_div(args->row, CPU_GRAIN);
    cpu_drops drops = {.seed = args->seed, .site = (uint32_t)args->site};
    const int64_t *first = NULL;
    const void *x = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    operands_dropout(&c, args);
    x = operands_need(&c, args->x, "x", args->batch, args->row, bytes);
    y = operands_need(&c, args->y, "y", args->batch, args->row, bytes);
    first = operands_need(&c, args->first, "first", 1, 1, 8);
    if (c.status != WEFT_OK) return c.status;
    drops.least = operands_least(args->p);
    drops.factor = operands_kept(args->p);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->batch * pieces; i++) {
        const int64_t b = i / pieces, from = i % pieces * CPU_GRAIN, at = b * args->row + from;
        cpu_drops own = drops;
        own.row = (uint64_t)(*first + b);
        cells->dropout(cpu_at(y, at, bytes), cpu_from(x, at, bytes), &own, from, size_min(CPU_GRAIN, args->row - from),
                       args->accumulate);
    }
    return WEFT_OK;
}
