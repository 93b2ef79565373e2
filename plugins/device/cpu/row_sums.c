/* row_sums.c: sums over rows, the gradients of parameters shared by all rows, such as a bias or a gain.
 *
 * Rows are divided into runs; the shape fixes their number. One thread sums a run from zero, in row order, and the runs
 * are added in order. */
#include "row_sums.h"

#define MAX_RUNS 64
#define MIN_ROWS 16

int64_t runs_of(int64_t rows) {
    return size_min(MAX_RUNS, size_ceil_div(rows, MIN_ROWS));
}

int64_t runs_bytes(int64_t rows, int64_t width) {
    return size_max(rows, 0) * size_max(width, 0) == 0 ? 0 : runs_of(rows) * cpu_floats(width);
}

float *runs_begin(float *runs, int64_t width, int64_t i) {
    float *sum = runs + i * (cpu_floats(width) / (int64_t)sizeof(float));
    memset(sum, 0, (size_t)width * sizeof *sum);
    return sum;
}

bool runs_fold(const weft_device *device, float *runs, int64_t rows, int64_t width) {
    const int64_t n = runs_of(rows), distance = cpu_floats(width) / (int64_t)sizeof(float);
    for (int64_t i = 1; i < n; i++) device->loops->f32.add(runs, runs, runs + i * distance, width);
    return n > 0;
}

void runs_add(const weft_device *device, float *out, float *runs, int64_t rows, int64_t width, bool accumulate) {
    if (runs_fold(device, runs, rows, width)) device->loops->f32.take(out, runs, width, accumulate);
    else if (!accumulate) memset(out, 0, (size_t)width * sizeof *out);
}

int64_t cpu_sum_rows_workspace(const weft_device *device, const weft_sum_rows *args) {
    (void)device;
    return runs_bytes(args->rows, args->width);
}

CPU_KERNEL(sum_rows, weft_sum_rows) {
    operands c = OPERANDS("sum_rows", weft_sum_rows, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const int64_t runs = runs_of(args->rows), width = args->width;
    const void *x = NULL;
    float *out = NULL, *sums = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    operands_size(&c, "rows", args->rows, 0);
    operands_size(&c, "width", width, 1);
    x = operands_need(&c, args->x, "x", args->rows, width, bytes);
    out = operands_need(&c, args->out, "out", width, 1, 4);
    sums = operands_need_workspace(&c, args->workspace, cpu_sum_rows_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < runs; i++) {
        float *sum = runs_begin(sums, width, i);
        for (int64_t r = cpu_cut(args->rows, runs, i); r < cpu_cut(args->rows, runs, i + 1); r++)
            cells->take(sum, cpu_from(x, r * width, bytes), width, 1);
    }
    runs_add(device, out, sums, args->rows, width, args->accumulate != 0);
    return WEFT_OK;
}
