/* convert.c: fp32, bf16 and fp16 into each other, to the nearest, ties to even.
 *
 * bf16 is the upper half of an fp32 (simd.h). fp16 goes through the fp32 adder: adding a power of two whose last place
 * is fp16's makes the hardware round. Two 16-bit types meet in fp32, which holds both exactly, so there is one rounding
 * at most.
 */
#include "cpu.h"

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t f16_from(float x) {
    const uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    /* Below 2^-14 fp16 has steps of 2^-24, the last place of 0.5; above, 13 bits go and the exponent's bias falls by
     * 112. */
    const uint32_t small = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
    const uint32_t normal = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    uint32_t h = a < (113u << 23) ? small : normal;
    if (a >= 0x477FF000u) h = 0x7C00u; /* 65520 and more round to infinity */
    if (a > 0x7F800000u) h = 0x7E00u | ((a >> 13) & 0x1FFu);
    return (uint16_t)(sign | h);
}

static float f16_to(uint16_t h) {
    const uint32_t sign = ((uint32_t)h & 0x8000u) << 16, e = ((uint32_t)h >> 10) & 31u, m = (uint32_t)h & 0x3FFu;
    const uint32_t small = bits_of((float)m * 0x1p-24f);
    if (e == 0) return float_of(sign | small);
    if (e == 31) return float_of(sign | 0x7F800000u | m << 13 | (m != 0 ? 0x400000u : 0u));
    return float_of(sign | (e + 112u) << 23 | m << 13);
}

static void to_f32(const weft_device *device, float *out, const void *from, int32_t dtype, int64_t n) {
    const uint16_t *h = from;
    int64_t i = 0;
    if (dtype != WEFT_F16) {
        cpu_cells_of(device, dtype)->take(out, from, n, 0);
    } else {
        for (i = 0; i < n; i++) out[i] = f16_to(h[i]);
    }
}

static void from_f32(const weft_device *device, void *out, int32_t dtype, const float *from, int64_t n) {
    uint16_t *h = out;
    int64_t i = 0;
    if (dtype != WEFT_F16) {
        cpu_cells_of(device, dtype)->put(out, from, n, 0);
    } else {
        for (i = 0; i < n; i++) h[i] = f16_from(from[i]);
    }
}

static void check_convertible(operands *c, const char *name, int32_t dtype) {
    if (c->status != WEFT_OK || dtype == WEFT_F32 || dtype == WEFT_BF16 || dtype == WEFT_F16) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "convert on device cpu: %s is %s; fp32, bf16 and fp16 can be converted.", name,
                               weft_dtype_name(dtype));
}

/* A piece goes through a block on the stack that stays in the first cache. */
static void convert_piece(const weft_device *device, char *to, int32_t dtype_to, const char *from, int32_t dtype_from,
                          int64_t n) {
    const int64_t to_bytes = weft_dtype_bytes(dtype_to), from_bytes = weft_dtype_bytes(dtype_from);
    float block[1024];
    int64_t i = 0;
    for (i = 0; i < n; i += 1024) {
        const int64_t some = size_min(1024, n - i);
        to_f32(device, block, from + i * from_bytes, dtype_from, some);
        from_f32(device, to + i * to_bytes, dtype_to, block, some);
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
