/* norm.c: rms_norm and its backward. Rows are independent but for the gain's gradient, a sum over rows: it is made in
 * runs of rows whose length the shape fixes, each from zero, and the runs are added in order. */
#include "cpu.h"

#define MAX_RUNS 64
#define MIN_ROWS 16

static int64_t runs_of(int64_t rows) {
    return cpu_min(MAX_RUNS, cpu_ceil_div(rows, MIN_ROWS));
}

int64_t cpu_rms_norm_backward_workspace(const weft_device *device, const weft_rms_norm *args) {
    (void)device;
    return cpu_max(args->rows, 0) * cpu_max(args->width, 0) == 0 ? 0 : runs_of(args->rows) * cpu_floats(args->width);
}

CPU_KERNEL(rms_norm, weft_rms_norm) {
    cpu_check c = CPU_CHECK("rms_norm", weft_rms_norm, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const float *gain = NULL;
    const void *x = NULL;
    void *y = NULL;
    float *rstd = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    cpu_check_size(&c, "rows", args->rows, 0);
    cpu_check_size(&c, "width", args->width, 1);
    x = cpu_need(&c, args->x, "x", args->rows, args->width, bytes);
    gain = cpu_need(&c, args->gain, "gain", args->width, 1, 4);
    y = cpu_need(&c, args->y, "y", args->rows, args->width, bytes);
    rstd = cpu_may(&c, args->rstd, "rstd", args->rows, 1, 4);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) {
        const int64_t at = r * args->width;
        const float factor =
            cells->norm_row(cpu_at(y, at, bytes), cpu_from(x, at, bytes), gain, args->width, args->eps);
        if (rstd != NULL) rstd[r] = factor;
    }
    return WEFT_OK;
}

typedef struct norm_operands {
    const cpu_cells *cells;
    int64_t bytes; /* of an element of x, dy and dx */
    const float *gain, *rstd;
    const void *x, *dy;
    void *dx;
    float *dgain, *runs;
} norm_operands;

/* Rows of run i; its part of dgain lies at its own place in the workspace. */
static void backward_run(const weft_rms_norm *args, const norm_operands *o, int64_t i) {
    const int64_t n = runs_of(args->rows), width = args->width, end = cpu_cut(args->rows, n, i + 1);
    float *part = o->dgain == NULL ? NULL : o->runs + i * cpu_floats(width) / 4;
    int64_t r = 0;
    if (part != NULL) memset(part, 0, (size_t)width * sizeof *part);
    for (r = cpu_cut(args->rows, n, i); r < end; r++) {
        const int64_t at = r * width;
        o->cells->norm_row_backward(cpu_at(o->dx, at, o->bytes), part, cpu_from(o->dy, at, o->bytes),
                                    cpu_from(o->x, at, o->bytes), o->gain, o->rstd == NULL ? -1.0f : o->rstd[r], width,
                                    args->eps, args->accumulate_dx);
    }
}

static void add_runs(const weft_device *device, const weft_rms_norm *args, const norm_operands *o) {
    const int64_t n = runs_of(args->rows), width = args->width, distance = cpu_floats(width) / 4;
    int64_t i = 0;
    if (o->dgain == NULL) return;
    if (n == 0) {
        if (!args->accumulate_dgain) memset(o->dgain, 0, (size_t)width * sizeof *o->dgain);
        return;
    }
    for (i = 1; i < n; i++) device->loops->f32.add(o->runs, o->runs, o->runs + i * distance, width);
    if (args->accumulate_dgain) {
        device->loops->f32.add(o->dgain, o->dgain, o->runs, width);
    } else {
        memcpy(o->dgain, o->runs, (size_t)width * sizeof *o->dgain);
    }
}

CPU_KERNEL(rms_norm_backward, weft_rms_norm) {
    cpu_check c = CPU_CHECK("rms_norm_backward", weft_rms_norm, args, err);
    norm_operands o = {.cells = cpu_cells_of(device, args->dtype)};
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    o.bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    cpu_check_size(&c, "rows", args->rows, 0);
    cpu_check_size(&c, "width", args->width, 1);
    o.x = cpu_need(&c, args->x, "x", args->rows, args->width, o.bytes);
    o.gain = cpu_need(&c, args->gain, "gain", args->width, 1, 4);
    o.rstd = cpu_may(&c, args->rstd, "rstd", args->rows, 1, 4);
    o.dy = cpu_need(&c, args->dy, "dy", args->rows, args->width, o.bytes);
    o.dx = cpu_may(&c, args->dx, "dx", args->rows, args->width, o.bytes);
    o.dgain = cpu_may(&c, args->dgain, "dgain", args->width, 1, 4);
    o.runs = cpu_need_workspace(&c, args->workspace, cpu_rms_norm_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < runs_of(args->rows); i++) backward_run(args, &o, i);
    add_runs(device, args, &o);
    return WEFT_OK;
}
