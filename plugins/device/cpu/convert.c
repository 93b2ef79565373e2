/* convert.c: conversions between fp32, bf16 and fp16, to nearest even (simd.h). Two 16-bit types convert through fp32,
 * which holds both exactly, so there is at most one rounding. */
#include "cpu.h"

static void check_convertible(operands *c, const char *name, int32_t dtype) {
    if (c->status != WEFT_OK || dtype == WEFT_F32 || dtype == WEFT_BF16 || dtype == WEFT_F16) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "convert on device cpu: %s is %s; fp32, bf16 and fp16 can be converted.", name,
                               weft_dtype_name(dtype));
}

/* Converts through a stack block that stays in the L1 cache. */
static void convert_piece(const weft_device *device, char *to, int32_t dtype_to, const char *from, int32_t dtype_from,
                          int64_t n) {
    const int64_t to_bytes = weft_dtype_bytes(dtype_to), from_bytes = weft_dtype_bytes(dtype_from);
    float block[1024];
    int64_t i = 0;
    for (i = 0; i < n; i += 1024) {
        const int64_t some = size_min(1024, n - i);
        cpu_cells_of(device, dtype_from)->take(block, from + i * from_bytes, some, 0);
        cpu_cells_of(device, dtype_to)->put(to + i * to_bytes, block, some, 0);
    }
}

weft_status cpu_convert(weft_device *device, weft_stream *s, weft_ref to, int32_t dtype_to, weft_ref from,
                        int32_t dtype_from, int64_t n, weft_error *err) {
    operands c = operands_plain("convert", err);
    const int64_t to_bytes = weft_dtype_bytes(dtype_to), from_bytes = weft_dtype_bytes(dtype_from);
    const int64_t pieces = size_ceil_div(size_max(n, 0), CPU_GRAIN);
    char *dst = NULL;
    const char *src = NULL;
    (void)s;
    check_convertible(&c, "to", dtype_to);
    check_convertible(&c, "from", dtype_from);
    dst = operands_need(&c, to, "to", n, 1, to_bytes);
    src = operands_need(&c, from, "from", n, 1, from_bytes);
    if (c.status != WEFT_OK) return c.status;
    if (dtype_to == dtype_from) return cpu_copy(device, s, to, from, n * to_bytes, err);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t at = i * CPU_GRAIN;
        convert_piece(device, dst + at * to_bytes, dtype_to, src + at * from_bytes, dtype_from,
                      size_min(CPU_GRAIN, n - at));
    }
    return WEFT_OK;
}
