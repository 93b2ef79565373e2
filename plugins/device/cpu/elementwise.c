/* elementwise.c: kernels without dependencies between rows: rope, activation, scale, add. */
#include "cpu.h"

static int64_t rotary_dim(const weft_rope *args) {
    return args->rotary_dim > 0 ? args->rotary_dim : args->head_dim;
}

static void check_rope(operands *c, const weft_rope *args) {
    const int64_t turned = rotary_dim(args);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "heads", args->heads, 0);
    operands_size(c, "head_dim", args->head_dim, 2);
    operands_size(c, "rotary_dim", args->rotary_dim, 0);
    if (c->status != WEFT_OK || (turned % 2 == 0 && turned <= args->head_dim)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "rope on device cpu: %lld elements of a head of %lld are to be rotated; that should be "
                               "an even number of them.",
                               (long long)turned, (long long)args->head_dim);
}

/* Rotates one head and copies its remaining elements. */
static void rotate_head(const cpu_cells *cells, const weft_rope *args, void *y, const void *x, const float *turn,
                        int64_t turned, int64_t bytes) {
    const int64_t half = turned / 2, rest = args->head_dim - turned;
    cells->rope_head(y, x, turn, turn + half, half, args->inverse, args->accumulate);
    if (rest == 0) return;
    if (args->accumulate)
        cells->add(cpu_at(y, turned, bytes), cpu_at(y, turned, bytes), cpu_from(x, turned, bytes), rest);
    else if (y != x) memcpy(cpu_at(y, turned, bytes), cpu_from(x, turned, bytes), (size_t)(rest * bytes));
}

CPU_KERNEL(rope, weft_rope) {
    operands c = OPERANDS("rope", weft_rope, args, err);
    const int64_t d = args->head_dim, turned = rotary_dim(args), width = size_times(args->heads, d);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const int32_t *positions = NULL;
    const float *table = NULL;
    const void *x = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    check_rope(&c, args);
    x = operands_need(&c, args->x, "x", args->rows, width, bytes);
    y = operands_need(&c, args->y, "y", args->rows, width, bytes);
    positions = operands_need(&c, args->positions, "positions", args->rows, 1, 4);
    table = operands_need(&c, args->table, "table", args->table_rows, turned, 4);
    cpu_check_indices(&c, "positions", positions, NULL, args->rows, args->table_rows);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) {
        const float *turn = table + positions[r] * turned;
        for (int64_t at = r * width; at < (r + 1) * width; at += d)
            rotate_head(cells, args, cpu_at(y, at, bytes), cpu_from(x, at, bytes), turn, turned, bytes);
    }
    return WEFT_OK;
}

static void check_activation(operands *c, const weft_activation *args) {
    if (c->status == WEFT_OK && (args->form < 0 || args->form >= CPU_ACTIVATIONS))
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device cpu: form %d is not known; SiLU (0), GELU (1) and GELU by tanh (2) "
                                   "are.",
                                   c->kernel, args->form);
    if (c->status == WEFT_OK && args->up.buffer == NULL && args->dup.buffer != NULL)
        c->status = weft_error_set(
            c->err, WEFT_E_HOST,
            "%s on device cpu: operand dup is set, and operand up, which it is the gradient of, is missing.",
            c->kernel);
}

CPU_KERNEL(activation, weft_activation) {
    operands c = OPERANDS("activation", weft_activation, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *x = NULL, *up = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    check_activation(&c, args);
    x = operands_need(&c, args->x, "x", args->n, 1, bytes);
    up = operands_may(&c, args->up, "up", args->n, 1, bytes);
    y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->activation[args->form](cpu_at(y, i, bytes), cpu_from(x, i, bytes),
                                      up == NULL ? NULL : cpu_from(up, i, bytes), size_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}

CPU_KERNEL(activation_backward, weft_activation) {
    operands c = OPERANDS("activation_backward", weft_activation, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *x = NULL, *up = NULL, *dy = NULL;
    void *dx = NULL, *dup = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    check_activation(&c, args);
    x = operands_need(&c, args->x, "x", args->n, 1, bytes);
    up = operands_may(&c, args->up, "up", args->n, 1, bytes);
    dy = operands_need(&c, args->dy, "dy", args->n, 1, bytes);
    dx = operands_may(&c, args->dx, "dx", args->n, 1, bytes);
    dup = operands_may(&c, args->dup, "dup", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->activation_backward[args->form](cpu_at(dx, i, bytes), cpu_at(dup, i, bytes), cpu_from(dy, i, bytes),
                                               cpu_from(x, i, bytes), up == NULL ? NULL : cpu_from(up, i, bytes),
                                               size_min(CPU_GRAIN, args->n - i), args->accumulate_dx,
                                               args->accumulate_dup);
    }
    return WEFT_OK;
}

CPU_KERNEL(scale, weft_scale) {
    operands c = OPERANDS("scale", weft_scale, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *x = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    x = operands_need(&c, args->x, "x", args->n, 1, bytes);
    y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->scale(cpu_at(y, i, bytes), cpu_from(x, i, bytes), size_min(CPU_GRAIN, args->n - i), (float)args->factor,
                     (float)args->cap, args->accumulate);
    }
    return WEFT_OK;
}

CPU_KERNEL(add, weft_add) {
    operands c = OPERANDS("add", weft_add, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *a = NULL, *b = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    a = operands_need(&c, args->a, "a", args->n, 1, bytes);
    b = operands_need(&c, args->b, "b", args->n, 1, bytes);
    y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->add(cpu_at(y, i, bytes), cpu_from(a, i, bytes), cpu_from(b, i, bytes), size_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}
