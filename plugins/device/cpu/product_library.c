/* product_library.c: a tile of a matmul by oneDNN, as one call on one thread or a few.
 *
 * On AVX2 oneDNN reads operands of smaller matmuls in place. Columns of a matrix with rows a multiple of 1 KiB apart
 * then share few cache lines: 50-70 GFLOP/s of 120. Such operands are copied with padded rows, PANEL_K of the inner
 * dimension at a time, which reaches 95-118. AVX-512 kernels copy by themselves.
 *
 * 16-bit operands (few rows, or all if there are no panels) are widened in such copies. oneDNN rejects bf16 on
 * processors without bf16 instructions, and PyTorch falls to a 20th of its fp32 speed there. */
#include "product_tile.h"

#define PANEL_K   1024
#define PANEL_PAD 16

/* True if an operand with this row distance should be copied to a panel. columns: it is read by columns; rows suffer
 * less. */
static bool wants_panel(const weft_device *device, const product *p, int64_t ld, bool columns) {
    return p->dtype != WEFT_F32 || (device->packs && ld % (columns ? 256 : 2048) == 0);
}

tile_sizes library_sizes(const weft_device *device, const product *p, int64_t m, int64_t n, bool whole) {
    const int64_t k = size_min(p->k, PANEL_K) + PANEL_PAD;
    tile_sizes s = {0, 0, 0};
    if (wants_panel(device, p, p->lda, p->transpose_a)) s.a = cpu_floats((m + PANEL_PAD) * k);
    if (wants_panel(device, p, p->ldb, !p->transpose_b)) s.b = cpu_floats((n + PANEL_PAD) * k);
    if (whole && (p->mode == PRODUCT_ADD || p->dtype_c != WEFT_F32)) s.c = cpu_floats(m * n);
    return s;
}

/* Copies rows x width from element `at` on to the fp32 panel; without a panel returns the operand. *ld becomes the row
 * distance. */
static const float *to_panel(const cpu_cells *cells, float *panel, const void *operand, int64_t bytes, int64_t at,
                             int64_t *ld, int64_t rows, int64_t width) {
    const void *from = cpu_from(operand, at, bytes);
    int64_t r = 0;
    if (panel == NULL) return from;
    for (r = 0; r < rows; r++) cells->take(panel + r * (width + PANEL_PAD), cpu_from(from, r * *ld, bytes), width, 0);
    *ld = width + PANEL_PAD;
    return panel;
}

/* c (tile's m, n) = or, with beta 1, += the tile's product over [k0, k1). */
static dnnl_status_t multiply_part(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                                   float *c, int64_t ldc, float beta, int64_t k0, int64_t k1) {
    const cpu_cells *cells = cpu_cells_of(device, p->dtype);
    const int64_t m = t->m1 - t->m0, n = t->n1 - t->n0, k = k1 - k0, bytes = weft_dtype_bytes(p->dtype);
    const int64_t a_at = p->transpose_a ? k0 * p->lda + t->m0 : t->m0 * p->lda + k0;
    const int64_t b_at = p->transpose_b ? t->n0 * p->ldb + k0 : k0 * p->ldb + t->n0;
    int64_t lda = p->lda, ldb = p->ldb;
    const float *a = to_panel(cells, s->a, p->a, bytes, a_at, &lda, p->transpose_a ? k : m, p->transpose_a ? m : k);
    const float *b = to_panel(cells, s->b, p->b, bytes, b_at, &ldb, p->transpose_b ? n : k, p->transpose_b ? k : n);
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c,
                      ldc);
}

static dnnl_status_t multiply(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                              float *c, int64_t ldc, float beta) {
    const int64_t step = s->a != NULL || s->b != NULL ? PANEL_K : t->k1 - t->k0;
    dnnl_status_t status = dnnl_success;
    int64_t k = t->k0;
    for (; k < t->k1 && status == dnnl_success; k += step) {
        status = multiply_part(device, p, t, s, c, ldc, k == t->k0 ? beta : 1.0f, k, size_min(k + step, t->k1));
    }
    return status;
}

dnnl_status_t library_tile(const weft_device *device, const product *p, const tile *t, const tile_scratch *s,
                           const tile_target *to) {
    const int64_t rows = t->m1 - t->m0, width = t->n1 - t->n0, bytes = weft_dtype_bytes(to->dtype);
    const bool in_place = to->dtype == WEFT_F32 && to->mode != PRODUCT_ADD;
    dnnl_status_t status = dnnl_success;
    int64_t r = 0;
    if (in_place) return multiply(device, p, t, s, to->c, to->ldc, to->mode == PRODUCT_CHAIN ? 1.0f : 0.0f);
    status = multiply(device, p, t, s, s->c, width, 0.0f);
    for (r = 0; r < rows && status == dnnl_success; r++) {
        cpu_cells_of(device, to->dtype)
            ->put(cpu_at(to->c, r * to->ldc, bytes), s->c + r * width, width, to->mode != PRODUCT_SET);
    }
    return status;
}
