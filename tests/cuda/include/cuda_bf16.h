/* cuda_bf16.h of the CUDA emulator (C++): bf16 rounded as on the GPU, to nearest even; NaN stays NaN. */
#ifndef WEFT_EMULATOR_CUDA_BF16_H
#define WEFT_EMULATOR_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

static inline unsigned short emulator_to_bf16(float value) {
    const unsigned bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static inline float emulator_from_bf16(unsigned short bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float value) : bits(emulator_to_bf16(value)) {}
    __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
    operator float() const {
        return emulator_from_bf16(bits);
    }
    __nv_bfloat16 &operator=(float value) {
        bits = emulator_to_bf16(value);
        return *this;
    }
};
struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) : x(low), y(high) {}
};
/* Deleted: the GPU would round each result to bf16, but sums are fp32, so code must convert to float explicitly. */
__nv_bfloat16 operator+(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator-(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator*(__nv_bfloat16, __nv_bfloat16) = delete;
__nv_bfloat16 operator/(__nv_bfloat16, __nv_bfloat16) = delete;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 x) {
    return emulator_from_bf16(x.bits);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    return __nv_bfloat16(x);
}
static inline __nv_bfloat16 __float2bfloat16(float x) {
    return __nv_bfloat16(x);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
    return x.bits;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __nv_bfloat162(low, high);
}
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __nv_bfloat162(low, high);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
    return __nv_bfloat162(__nv_bfloat16(low), __nv_bfloat16(high));
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) {
    return __floats2bfloat162_rn(v.x, v.y);
}
static inline __nv_bfloat162 __float2bfloat162_rn(float x) {
    return __floats2bfloat162_rn(x, x);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v) {
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) {
    return v.x;
}
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) {
    return v.y;
}
static inline float __low2float(__nv_bfloat162 v) {
    return __bfloat162float(v.x);
}
static inline float __high2float(__nv_bfloat162 v) {
    return __bfloat162float(v.y);
}

#endif
