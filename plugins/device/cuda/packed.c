/* packed.c: matmuls with a packed b. Strips of columns of op(b) are unpacked into the workspace and multiplied one
 * after the other. Each strip computes its own columns of c, so no sum is split, and the strip width depends only on
 * the shape. */
#include "packed.h"

#include "cuda.h"

/* Columns of op(b) per strip: complete blocks for types with blocks within rows, and enough for a matmul that fills a
 * GPU. */
#define STRIP 1024

static cuda_product strip_of(const cuda_product *p, int64_t first) {
    cuda_product out = *p;
    out.n = size_min(STRIP, p->n - first);
    out.dtype_b = p->dtype_a;
    out.ldb = p->transpose_b ? p->k : out.n;
    out.c = p->c == NULL ? NULL : (char *)p->c + first * weft_dtype_bytes(p->dtype_c);
    out.bias = p->bias == NULL ? NULL : p->bias + first;
    return out;
}

/* Bytes of the unpacked strip, the first part of the workspace. */
static int64_t dense_bytes(const cuda_product *p) {
    return size_round_up(size_min(STRIP, p->n) * p->k * weft_dtype_bytes(p->dtype_a), CUDA_LINE);
}

int64_t cuda_packed_workspace(const weft_device *device, const cuda_product *p) {
    const cuda_product first = strip_of(p, 0), last = strip_of(p, size_max(p->n - 1, 0) / STRIP * STRIP);
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return 0;
    return dense_bytes(p) + size_max(cuda_product_workspace(device, &first), cuda_product_workspace(device, &last));
}

static weft_status multiply_strip(weft_device *device, cudaStream_t stream, const cuda_product *p, const void *packed,
                                  int64_t first, weft_error *err) {
    cuda_product strip = strip_of(p, first);
    const packed_rows from = {.blocks = packed,
                              .dtype = p->dtype_b,
                              .first = p->transpose_b ? first * p->k : first,
                              .rows = p->transpose_b ? strip.n : p->k,
                              .width = p->transpose_b ? p->k : strip.n,
                              .stride = p->transpose_b ? p->k : p->n};
    char *workspace = cuda_line_up(p->workspace);
    const weft_status status = cuda_judge(unpack_launch(stream, workspace, p->dtype_a, &from), "matmul", err);
    strip.b = workspace;
    strip.workspace = workspace + dense_bytes(p);
    return status == WEFT_OK ? cuda_product_run(device, stream, &strip, err) : status;
}

weft_status cuda_packed_multiply(weft_device *device, cudaStream_t stream, const cuda_product *p, const void *packed,
                                 weft_error *err) {
    weft_status status = WEFT_OK;
    if (p->m <= 0 || p->n <= 0 || p->k <= 0) return cuda_product_run(device, stream, p, err);
    for (int64_t first = 0; first < p->n && status == WEFT_OK; first += STRIP)
        status = multiply_strip(device, stream, p, packed, first, err);
    return status;
}
