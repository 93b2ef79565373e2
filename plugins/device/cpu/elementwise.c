/* elementwise.c: kernels in which no element knows of another row: rope, swiglu, add. */
#include "cpu.h"

static void check_rope(cpu_check *c, const weft_rope *args) {
    cpu_check_size(c, "rows", args->rows, 0);
    cpu_check_size(c, "heads", args->heads, 0);
    cpu_check_size(c, "head_dim", args->head_dim, 2);
    if (c->status != WEFT_OK || args->head_dim % 2 == 0) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST, "rope on device cpu: head_dim is %lld and should be even.",
                               (long long)args->head_dim);
}

CPU_KERNEL(rope, weft_rope) {
    cpu_check c = CPU_CHECK("rope", weft_rope, args, err);
    const int64_t d = args->head_dim, half = d / 2, width = cpu_times(args->heads, d);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const int32_t *positions = NULL;
    const float *table = NULL;
    const void *x = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    check_rope(&c, args);
    x = cpu_need(&c, args->x, "x", args->rows, width, bytes);
    y = cpu_need(&c, args->y, "y", args->rows, width, bytes);
    positions = cpu_need(&c, args->positions, "positions", args->rows, 1, 4);
    table = cpu_need(&c, args->table, "table", args->table_rows, d, 4);
    cpu_check_indices(&c, "positions", positions, NULL, args->rows, args->table_rows);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) {
        const float *turn = table + positions[r] * d;
        for (int64_t at = r * width; at < (r + 1) * width; at += d) {
            cells->rope_head(cpu_at(y, at, bytes), cpu_from(x, at, bytes), turn, turn + half, half, args->inverse,
                             args->accumulate);
        }
    }
    return WEFT_OK;
}

CPU_KERNEL(swiglu, weft_swiglu) {
    cpu_check c = CPU_CHECK("swiglu", weft_swiglu, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *gate = NULL, *up = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    gate = cpu_need(&c, args->gate, "gate", args->n, 1, bytes);
    up = cpu_need(&c, args->up, "up", args->n, 1, bytes);
    y = cpu_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->swiglu(cpu_at(y, i, bytes), cpu_from(gate, i, bytes), cpu_from(up, i, bytes),
                      cpu_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}

CPU_KERNEL(swiglu_backward, weft_swiglu) {
    cpu_check c = CPU_CHECK("swiglu_backward", weft_swiglu, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *gate = NULL, *up = NULL, *dy = NULL;
    void *dgate = NULL, *dup = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    gate = cpu_need(&c, args->gate, "gate", args->n, 1, bytes);
    up = cpu_need(&c, args->up, "up", args->n, 1, bytes);
    dy = cpu_need(&c, args->dy, "dy", args->n, 1, bytes);
    dgate = cpu_may(&c, args->dgate, "dgate", args->n, 1, bytes);
    dup = cpu_may(&c, args->dup, "dup", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->swiglu_backward(cpu_at(dgate, i, bytes), cpu_at(dup, i, bytes), cpu_from(dy, i, bytes),
                               cpu_from(gate, i, bytes), cpu_from(up, i, bytes), cpu_min(CPU_GRAIN, args->n - i),
                               args->accumulate_dgate, args->accumulate_dup);
    }
    return WEFT_OK;
}

CPU_KERNEL(add, weft_add) {
    cpu_check c = CPU_CHECK("add", weft_add, args, err);
    const cpu_cells *cells = cpu_cells_of(device, args->dtype);
    const void *a = NULL, *b = NULL;
    void *y = NULL;
    int64_t bytes = 0;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    bytes = cpu_check_dtype(&c, "dtype", args->dtype);
    a = cpu_need(&c, args->a, "a", args->n, 1, bytes);
    b = cpu_need(&c, args->b, "b", args->n, 1, bytes);
    y = cpu_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        cells->add(cpu_at(y, i, bytes), cpu_from(a, i, bytes), cpu_from(b, i, bytes), cpu_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}
