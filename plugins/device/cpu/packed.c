/* packed.c: matmuls with a packed b. Panels of columns of op(b) are unpacked into the workspace and multiplied one
 * after the other. Each panel computes its own columns of c, so no sum is split, and the panel width depends only on
 * the shape. */
#include "packed.h"

#include <weft/blocks.h>

/* Columns of op(b) per panel: complete blocks for types with blocks within rows, and enough that the matmul runs as
 * fast as a large one. */
#define PANEL 256
#define RUN   64 /* numbers that share a scale in all types; the loops decode this many at once */

static product panel_of(const product *p, int64_t first) {
    product out = *p;
    out.n = size_min(PANEL, p->n - first);
    out.ldb = p->transpose_b ? p->k : out.n;
    out.c = cpu_at(p->c, first, weft_dtype_bytes(p->dtype_c));
    return out;
}

/* Bytes of the unpacked panel, the first part of the workspace. */
static int64_t dense_bytes(const product *p) {
    return size_round_up(size_min(PANEL, p->n) * p->k * weft_dtype_bytes(p->dtype), 64);
}

int64_t packed_workspace(const weft_device *device, const product *p) {
    const product first = panel_of(p, 0), last = panel_of(p, size_max(p->n - 1, 0) / PANEL * PANEL);
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    return dense_bytes(p) + size_max(product_workspace(device, &first), product_workspace(device, &last));
}

/* ---- block decoding ---- */

static void unpack_nf4(const cpu_loops *loops, float *out, const weft_nf4 *blocks, int64_t run) {
    static const float dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    const int64_t runs = weft_dtype_block(WEFT_NF4) / RUN, i = run % runs;
    const weft_nf4 *block = &blocks[run / runs];
    const float scale = dynamic[block->scales[i]] * block->scale + block->added;
    loops->unpack_nf4(out, block->codes + i * RUN / 2, scale);
}

static void unpack_nf4x64(const cpu_loops *loops, float *out, const weft_nf4x64 *blocks, int64_t run) {
    loops->unpack_nf4(out, blocks[run].codes, blocks[run].scale);
}

static void unpack_f8(const cpu_loops *loops, float *out, const weft_f8x128 *blocks, int64_t run) {
    const int64_t runs = weft_dtype_block(WEFT_F8X128) / RUN;
    const weft_f8x128 *block = &blocks[run / runs];
    loops->unpack_f8(out, block->codes + run % runs * RUN, block->scale);
}

static void unpack_i8(const cpu_loops *loops, float *out, const weft_i8x64 *blocks, int64_t run) {
    loops->unpack_i8(out, blocks[run].q, blocks[run].scale);
}

static void unpack_run(const cpu_loops *loops, float *out, const void *blocks, int32_t dtype, int64_t run) {
    switch (dtype) {
    case WEFT_NF4: unpack_nf4(loops, out, blocks, run); break;
    case WEFT_NF4X64: unpack_nf4x64(loops, out, blocks, run); break;
    case WEFT_F8X128: unpack_f8(loops, out, blocks, run); break;
    default: unpack_i8(loops, out, blocks, run); break;
    }
}

/* Decodes n numbers starting at `first`, which may be inside a run, since rows have any length. */
static void unpack_some(const weft_device *device, void *to, int32_t dtype_to, const void *blocks, int32_t dtype,
                        int64_t first, int64_t n) {
    const cpu_cells *cells = cpu_cells_of(device, dtype_to);
    const int64_t bytes = weft_dtype_bytes(dtype_to);
    for (int64_t at = 0; at < n;) {
        const int64_t skipped = (first + at) % RUN, some = size_min(RUN - skipped, n - at);
        float numbers[RUN];
        unpack_run(device->loops, numbers, blocks, dtype, (first + at) / RUN);
        cells->put(cpu_at(to, at, bytes), numbers + skipped, some, 0);
        at += some;
    }
}

void packed_numbers(const weft_device *device, float *to, const void *blocks, int32_t dtype, int64_t first, int64_t n) {
    unpack_some(device, to, WEFT_F32, blocks, dtype, first, n);
}

/* ---- matmul ---- */

/* Unpacks the panel's rows of b, which are `stride` long, starting at element `first`. */
static void make_dense(const weft_device *device, const product *panel, void *to, const packed_matrix *b, int64_t first,
                       int64_t stride) {
    const int64_t rows = panel->transpose_b ? panel->n : panel->k, width = panel->transpose_b ? panel->k : panel->n;
    const int64_t bytes = weft_dtype_bytes(panel->dtype);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < rows; r++)
        unpack_some(device, cpu_at(to, r * width, bytes), panel->dtype, b->blocks, b->dtype, first + r * stride, width);
}

weft_status packed_run(const weft_device *device, const product *p, const packed_matrix *b, void *workspace,
                       const char *kernel, weft_error *err) {
    const int64_t stride = p->transpose_b ? p->k : p->n;
    char *rest = workspace == NULL ? NULL : (char *)workspace + dense_bytes(p);
    weft_status status = WEFT_OK;
    for (int64_t first = 0; first < p->n && status == WEFT_OK; first += PANEL) {
        product panel = panel_of(p, first);
        panel.b = workspace;
        if (p->m > 0 && p->k > 0)
            make_dense(device, &panel, workspace, b, p->transpose_b ? first * stride : first, stride);
        status = product_run(device, &panel, rest, kernel, err);
    }
    return status;
}
