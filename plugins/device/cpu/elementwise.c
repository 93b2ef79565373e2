/* elementwise.c: kernels in which no element knows of another row: rope, swiglu, add. */
#include "cpu.h"

CPU_KERNEL(rope, weft_rope) {
    cpu_check c = cpu_check_begin("rope", args->struct_size, sizeof *args, err);
    const int64_t d = args->head_dim, half = d / 2, width = args->heads * d;
    const int32_t *positions = NULL;
    const float *x = NULL, *table = NULL;
    float *y = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    cpu_check_f32(&c, "dtype", args->dtype);
    cpu_check_size(&c, "rows", args->rows, 0);
    cpu_check_size(&c, "heads", args->heads, 0);
    cpu_check_size(&c, "head_dim", d, 2);
    if (c.status == WEFT_OK && d % 2 != 0) {
        c.status =
            weft_error_set(err, WEFT_E_HOST, "rope on device cpu: head_dim is %lld and should be even.", (long long)d);
    }
    x = cpu_need(&c, args->x, "x", args->rows, width, 4);
    y = cpu_need(&c, args->y, "y", args->rows, width, 4);
    positions = cpu_need(&c, args->positions, "positions", args->rows, 1, 4);
    table = cpu_need(&c, args->table, "table", args->table_rows, d, 4);
    cpu_check_indices(&c, "positions", positions, NULL, args->rows, args->table_rows);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < args->rows; r++) {
        const float *turn = table + positions[r] * d;
        for (int64_t at = r * width; at < (r + 1) * width; at += d) {
            device->loops->rope_head(y + at, x + at, turn, turn + half, half, args->inverse, args->accumulate);
        }
    }
    return WEFT_OK;
}

CPU_KERNEL(swiglu, weft_swiglu) {
    cpu_check c = cpu_check_begin("swiglu", args->struct_size, sizeof *args, err);
    const float *gate = NULL, *up = NULL;
    float *y = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    cpu_check_f32(&c, "dtype", args->dtype);
    gate = cpu_need(&c, args->gate, "gate", args->n, 1, 4);
    up = cpu_need(&c, args->up, "up", args->n, 1, 4);
    y = cpu_need(&c, args->y, "y", args->n, 1, 4);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        device->loops->swiglu(y + i, gate + i, up + i, cpu_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}

CPU_KERNEL(swiglu_backward, weft_swiglu) {
    cpu_check c = cpu_check_begin("swiglu_backward", args->struct_size, sizeof *args, err);
    const float *gate = NULL, *up = NULL, *dy = NULL;
    float *dgate = NULL, *dup = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    cpu_check_f32(&c, "dtype", args->dtype);
    gate = cpu_need(&c, args->gate, "gate", args->n, 1, 4);
    up = cpu_need(&c, args->up, "up", args->n, 1, 4);
    dy = cpu_need(&c, args->dy, "dy", args->n, 1, 4);
    dgate = cpu_may(&c, args->dgate, "dgate", args->n, 1, 4);
    dup = cpu_may(&c, args->dup, "dup", args->n, 1, 4);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        device->loops->swiglu_backward(dgate == NULL ? NULL : dgate + i, dup == NULL ? NULL : dup + i, dy + i, gate + i,
                                       up + i, cpu_min(CPU_GRAIN, args->n - i), args->accumulate_dgate,
                                       args->accumulate_dup);
    }
    return WEFT_OK;
}

CPU_KERNEL(add, weft_add) {
    cpu_check c = cpu_check_begin("add", args->struct_size, sizeof *args, err);
    const float *a = NULL, *b = NULL;
    float *y = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    cpu_check_f32(&c, "dtype", args->dtype);
    a = cpu_need(&c, args->a, "a", args->n, 1, 4);
    b = cpu_need(&c, args->b, "b", args->n, 1, 4);
    y = cpu_need(&c, args->y, "y", args->n, 1, 4);
    if (c.status != WEFT_OK) return c.status;
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < args->n; i += CPU_GRAIN) {
        device->loops->add(y + i, a + i, b + i, cpu_min(CPU_GRAIN, args->n - i));
    }
    return WEFT_OK;
}
