/* tests/common/reference_kernels.h: kernels of the reference device, for the table in reference_device.c. */
#ifndef WEFT_TESTS_REFERENCE_KERNELS_H
#define WEFT_TESTS_REFERENCE_KERNELS_H

#include <math.h>

#include <weft/blocks.h>
#include <weft/device.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* the table's signatures */

struct weft_buffer {
    char *data;
    int64_t bytes;
};

static inline void *reference_view(weft_ref ref) {
    return ref.buffer == NULL ? NULL : ref.buffer->data + ref.offset;
}

/* Rounds to nearest, ties to even; NaN remains NaN. */
static inline uint16_t reference_to_bf16(float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Returns element i of an operand. */
static inline float reference_load(weft_ref from, int32_t dtype, int64_t i) {
    const void *view = reference_view(from);
    uint32_t bits = 0;
    float value = 0.0f;
    if (dtype == WEFT_F32) return ((const float *)view)[i];
    bits = (uint32_t)((const uint16_t *)view)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns element i of a packed operand, decoded as specified in weft/blocks.h. */
static inline float reference_unpack(weft_ref from, int32_t dtype, int64_t i) {
    static const float levels[] = {WEFT_NF4_LEVELS}, dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    const int64_t at = i % weft_dtype_block(dtype);
    const unsigned char *block = (const unsigned char *)reference_view(from) +
                                 i / weft_dtype_block(dtype) * weft_dtype_bytes(dtype);
    float scale = 0.0f, added = 0.0f;
    memcpy(&scale, block, sizeof scale);
    memcpy(&added, block + 4, sizeof added);
    if (dtype == WEFT_I8X64) return scale * (float)(int8_t)block[4 + at];
    if (dtype == WEFT_F8X128) return scale * weft_e4m3_to(block[4 + at]);
    if (dtype == WEFT_NF4X64) return levels[block[4 + at / 2] >> (at % 2 == 0 ? 4 : 0) & 15] * scale;
    scale = dynamic[block[8 + at / 64]] * scale + added;
    return levels[block[24 + at / 2] >> (at % 2 == 0 ? 4 : 0) & 15] * scale;
}

/* Stores or accumulates a result. */
static inline void reference_store(weft_ref to, int32_t dtype, int64_t i, double value, int32_t accumulate) {
    const float rounded = accumulate ? reference_load(to, dtype, i) + (float)value : (float)value;
    if (dtype == WEFT_F32) ((float *)reference_view(to))[i] = rounded;
    else ((uint16_t *)reference_view(to))[i] = reference_to_bf16(rounded);
}

/* Returns a number rounded to the operand's dtype. */
static inline double reference_rounded(float value, int32_t dtype) {
    const uint32_t bits = (uint32_t)reference_to_bf16(value) << 16;
    float rounded = 0.0f;
    memcpy(&rounded, &bits, sizeof rounded);
    return dtype == WEFT_F32 ? (double)value : (double)rounded;
}

/* Applies the soft cap of scores and logits. */
static inline double reference_capped(double value, double cap) {
    return cap > 0.0 ? cap * tanh(value / cap) : value;
}

/* Checks for supported dtypes: fp32 and bf16. */
weft_status reference_takes(int32_t dtype, const char *kernel, weft_error *err);

#define REFERENCE_KERNEL(name, type)                                                                                   \
    weft_status reference_##name(weft_device *d, weft_stream *s, const type *a, weft_error *err);
#define REFERENCE_WORKSPACE(name, type) int64_t reference_##name##_workspace(const weft_device *d, const type *a);
WEFT_DEVICE_KERNELS(REFERENCE_KERNEL)
WEFT_DEVICE_WORKSPACES(REFERENCE_WORKSPACE)

#endif
