/* row_norms.c: the 2-norms of the rows of W + factor U D. A thread computes a few rows and columns of the sum at a time
 * in its scratch and squares them: W is read once, and no buffer has its size. A row's sum follows the order of its
 * columns in any thread. */
#include <math.h>
#include <omp.h>

#include "../common/matrices.h"
#include "cpu.h"
#include "packed.h"

#define ROWS    12
#define COLUMNS 512 /* complete blocks of packed types, and complete vectors */

typedef struct norms {
    const weft_device *device;
    const weft_row_norms *args;
    const cpu_cells *cells, *cells_w;
    int64_t bytes, bytes_w, padded; /* padded: width rounded up to complete vectors */
    const void *w, *up;
    const float *down; /* (rank, padded) */
    float *out;
} norms;

static bool is_packed(const weft_row_norms *args) {
    return matrices_is_packed(args->dtype_w);
}

static int64_t down_bytes(const weft_row_norms *args) {
    return cpu_floats(size_max(args->rank, 0) * size_round_up(size_max(args->width, 0), CPU_WIDTH));
}

/* Bytes of one thread's scratch: the sum, and its part of U times factor. */
static int64_t scratch_bytes(const weft_row_norms *args) {
    return cpu_floats(ROWS * COLUMNS) + cpu_floats(ROWS * size_max(args->rank, 0));
}

int64_t cpu_row_norms_workspace(const weft_device *device, const weft_row_norms *args) {
    return down_bytes(args) + device->threads * scratch_bytes(args);
}

/* Loads columns first, ..., first + n - 1 of row r of W; zeros up to complete vectors. */
static void take_row(const norms *o, float *to, int64_t r, int64_t first, int64_t n) {
    const int64_t at = r * o->args->width + first;
    if (is_packed(o->args)) {
        packed_numbers(o->device, to, o->w, o->args->dtype_w, at, n);
        memset(to + n, 0, (size_t)(size_round_up(n, CPU_WIDTH) - n) * sizeof *to);
        return;
    }
    o->cells_w->pack(to, cpu_from(o->w, at, o->bytes_w), n, 1, n, 1.0f);
}

static void norms_of_rows(const norms *o, int64_t r, int64_t n, float *sum, float *up) {
    const int64_t rank = o->args->rank, width = o->args->width;
    double squares[ROWS] = {0};
    for (int64_t i = 0; i < n && rank > 0; i++) {
        o->cells->take(up + i * rank, cpu_from(o->up, (r + i) * rank, o->bytes), rank, 0);
        o->device->loops->scale(up + i * rank, rank, (float)o->args->factor);
    }
    for (int64_t first = 0; first < width; first += COLUMNS) {
        const int64_t columns = size_min(COLUMNS, width - first), wide = size_round_up(columns, CPU_WIDTH);
        const cpu_small added = {sum, up, o->down + first, COLUMNS, rank, 1, o->padded, n, wide, rank, 1};
        for (int64_t i = 0; i < n; i++) take_row(o, sum + i * COLUMNS, r + i, first, columns);
        if (rank > 0) o->device->loops->small(&added);
        for (int64_t i = 0; i < n; i++)
            squares[i] += (double)o->device->loops->f32.dot(sum + i * COLUMNS, sum + i * COLUMNS, columns);
    }
    for (int64_t i = 0; i < n; i++) o->out[r + i] = (float)sqrt(squares[i]);
}

static norms norms_look_up(const weft_device *device, const weft_row_norms *args, operands *c) {
    norms o = {.device = device, .args = args, .cells = cpu_cells_of(device, args->dtype)};
    o.cells_w = cpu_cells_of(device, args->dtype_w);
    o.padded = size_round_up(size_max(args->width, 0), CPU_WIDTH);
    o.bytes = operands_dtype(c, "dtype", args->dtype);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "width", args->width, 1);
    operands_size(c, "rank", args->rank, 0);
    if (is_packed(args)) {
        o.w = matrices_packed(c, args->w, "w", args->dtype_w, args->rows, args->width, args->width);
    } else {
        o.bytes_w = operands_dtype(c, "dtype_w", args->dtype_w);
        o.w = operands_need(c, args->w, "w", args->rows, args->width, o.bytes_w);
    }
    if (args->rank > 0) o.up = operands_need(c, args->up, "up", args->rows, args->rank, o.bytes);
    o.out = operands_need(c, args->out, "out", args->rows, 1, 4);
    return o;
}

CPU_KERNEL(row_norms, weft_row_norms) {
    operands c = OPERANDS("row_norms", weft_row_norms, args, err);
    const void *down = NULL;
    char *workspace = NULL;
    norms o;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    o = norms_look_up(device, args, &c);
    if (args->rank > 0) down = operands_need(&c, args->down, "down", args->rank, args->width, o.bytes);
    workspace = operands_need_workspace(&c, args->workspace, cpu_row_norms_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    o.down = (const float *)(void *)workspace;
    if (args->rank > 0) o.cells->pack((float *)(void *)workspace, down, args->width, args->rank, args->width, 1.0f);
#pragma omp parallel num_threads(device->threads)
    {
        char *own = workspace + down_bytes(args) + omp_get_thread_num() * scratch_bytes(args);
        float *sum = (float *)(void *)own, *up = (float *)(void *)(own + cpu_floats(ROWS * COLUMNS));
#pragma omp for schedule(static)
        for (int64_t r = 0; r < args->rows; r += ROWS) norms_of_rows(&o, r, size_min(ROWS, args->rows - r), sum, up);
    }
    return WEFT_OK;
}
