/* packed.c: products whose b is packed. Panels of b, so many columns of op(b), are made dense in the workspace and
 * multiplied one after the other. Each gives its own columns of c: no sum is cut, and where one panel ends the shape
 * alone decides. */
#include "packed.h"

/* Columns of op(b): whole blocks, and enough that a product of them runs as fast as a large one. */
#define PANEL 256

static product panel_of(const product *p, int64_t first) {
    product out = *p;
    out.n = size_min(PANEL, p->n - first);
    out.ldb = p->transpose_b ? p->k : out.n;
    out.c = cpu_at(p->c, first, weft_dtype_bytes(p->dtype_c));
    return out;
}

/* The dense panel comes first in the workspace. */
static int64_t dense_bytes(const product *p) {
    return size_round_up(size_min(PANEL, p->n) * p->k * weft_dtype_bytes(p->dtype), 64);
}

int64_t packed_workspace(const weft_device *device, const product *p) {
    const product first = panel_of(p, 0), last = panel_of(p, size_max(p->n - 1, 0) / PANEL * PANEL);
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    return dense_bytes(p) + size_max(product_workspace(device, &first), product_workspace(device, &last));
}

/* rows x width numbers from rows of blocks that are `stride` blocks long. */
static void make_dense(const weft_device *device, void *to, int32_t dtype, const weft_i8x64 *from, int64_t rows,
                       int64_t width, int64_t stride) {
    const cpu_cells *cells = cpu_cells_of(device, dtype);
    const int64_t block = weft_dtype_block(WEFT_I8X64), blocks = width / block, bytes = weft_dtype_bytes(dtype);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < blocks; i++) {
            float numbers[sizeof from->q];
            weft_i8x64_unpack(numbers, &from[r * stride + i]);
            cells->put(cpu_at(to, r * width + i * block, bytes), numbers, block, 0);
        }
    }
}

weft_status packed_run(const weft_device *device, const product *p, const weft_i8x64 *b, void *workspace,
                       const char *kernel, weft_error *err) {
    const int64_t block = weft_dtype_block(WEFT_I8X64), stride = (p->transpose_b ? p->k : p->n) / block;
    char *rest = workspace == NULL ? NULL : (char *)workspace + dense_bytes(p);
    weft_status status = WEFT_OK;
    for (int64_t first = 0; first < p->n && status == WEFT_OK; first += PANEL) {
        const weft_i8x64 *from = b == NULL ? NULL : b + (p->transpose_b ? first * stride : first / block);
        product panel = panel_of(p, first);
        panel.b = workspace;
        if (p->m > 0 && p->k > 0)
            make_dense(device, workspace, p->dtype, from, p->transpose_b ? panel.n : p->k,
                       p->transpose_b ? p->k : panel.n, stride);
        status = product_run(device, &panel, rest, kernel, err);
    }
    return status;
}
