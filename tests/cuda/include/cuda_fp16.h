/* cuda_fp16.h of the CUDA emulator (C++): fp16 rounded as on the GPU, to nearest even, and to infinity from 65520 on;
 * NaN stays NaN. Computed from the value, not from its bits. */
#ifndef WEFT_EMULATOR_CUDA_FP16_H
#define WEFT_EMULATOR_CUDA_FP16_H

#include <math.h>

#include "cuda_runtime.h"

static inline unsigned short emulator_to_f16(float value) {
    const unsigned sign = __float_as_uint(value) >> 16 & 0x8000u;
    const float size = fabsf(value);
    int exponent = 0;
    float steps;
    if (value != value) return 0x7fff;
    if (size >= 65520.0f) return static_cast<unsigned short>(sign | 0x7c00u);
    (void)frexpf(size, &exponent);
    if (size < 0x1p-14f) exponent = -13; /* steps are 2^-24 there */
    steps = rintf(ldexpf(size, 11 - exponent));
    /* An exponent has 1024 steps, so a carry into the next exponent is correct. */
    return static_cast<unsigned short>(sign |
                                       (static_cast<unsigned>(exponent + 13) * 1024u + static_cast<unsigned>(steps)));
}
static inline float emulator_from_f16(unsigned short bits) {
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    float size = exponent > 0 ? ldexpf(static_cast<float>(1024 + digits), exponent - 25)
                              : ldexpf(static_cast<float>(digits), -24);
    if (exponent == 31) size = digits != 0 ? NAN : INFINITY;
    return bits >> 15 != 0 ? -size : size;
}

struct __half {
    unsigned short bits;
    __half() = default;
    explicit __half(float value) : bits(emulator_to_f16(value)) {}
    operator float() const {
        return emulator_from_f16(bits);
    }
};
struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half low, __half high) : x(low), y(high) {}
};
/* Deleted: the GPU would round each result to fp16, but sums are fp32, so code must convert to float explicitly. */
__half operator+(__half, __half) = delete;
__half operator-(__half, __half) = delete;
__half operator*(__half, __half) = delete;
__half operator/(__half, __half) = delete;

static inline float __half2float(__half x) {
    return emulator_from_f16(x.bits);
}
static inline __half __float2half_rn(float x) {
    return __half(x);
}
static inline __half2 __floats2half2_rn(float low, float high) {
    return __half2(__half(low), __half(high));
}
static inline float __low2float(__half2 v) {
    return __half2float(v.x);
}
static inline float __high2float(__half2 v) {
    return __half2float(v.y);
}

#endif
